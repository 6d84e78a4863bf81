"""The default backend of sweeps, and JAX's cache of compiled programs."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from fcjax.core.errors import SettingsError
from fcjax.core.folders import cache_folder
from fcjax.core.limits import Backend

_log = logging.getLogger(__name__)


@cache
def default_backend() -> Backend:
    """`xla` where JAX finds an accelerator, else `cpu`."""
    if not _may_have_accelerator():
        return "cpu"
    import jax

    return "cpu" if jax.default_backend() == "cpu" else "xla"


def _may_have_accelerator() -> bool:
    """Whether JAX was installed for one; without loading jax, which takes a second."""
    return bool(find_spec("jax_plugins") or find_spec("libtpu"))


def use_persistent_cache(folder: str | os.PathLike[str] | None = None) -> None:
    """Keep JAX's compiled programs on disk, by default in the user's cache folder; for command lines.

    Where no folder can be written, programs are compiled in every run. That is logged if there is an accelerator.
    """
    chosen = str(folder or os.environ.get("JAX_COMPILATION_CACHE_DIR") or "")
    try:
        if "://" not in chosen:
            chosen = chosen or str(cache_folder() / "jax")
            Path(chosen).mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=chosen).close()
    except (OSError, SettingsError) as error:
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        if _may_have_accelerator():
            _log.warning(
                "fcjax cannot keep its accelerator programs on disk, so each run compiles them again (%s); "
                "set JAX_COMPILATION_CACHE_DIR to a writable folder",
                error,
            )
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = chosen
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
