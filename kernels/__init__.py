"""Arrays in, arrays out: the compiled kernels of the engine.

Compiled code is kept on disk beside the sources (see `compilation`). numba recompiles a function when its own file
changes, but kernels call each other across files and share named tuples, so a change of any file here discards all.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def _renew_compiled_code(folder: Path) -> None:
    """Delete compiled code that was made from other sources than those now in `folder`."""
    kept = folder / "__pycache__"
    stamp = kept / "numba.sources"
    states = ((path.name, path.stat()) for path in sorted(folder.glob("*.py")))
    sources = "".join(f"{name} {state.st_mtime_ns} {state.st_size}\n" for name, state in states)
    with suppress(OSError):  # where this folder is read-only, numba keeps its cache elsewhere
        if stamp.exists() and stamp.read_text() == sources:
            return
        kept.mkdir(exist_ok=True)
        for path in (*kept.glob("*.nbi"), *kept.glob("*.nbc")):
            path.unlink(missing_ok=True)
        stamp.write_text(sources)


_renew_compiled_code(Path(__file__).parent)
