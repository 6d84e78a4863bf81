"""A lock on an output, so that two runs never write to one file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fcjax.core.errors import OutputError
from fcjax.io.files.streams import Source, is_stream, output_name


@contextmanager
def locked(out: Source) -> Iterator[None]:
    """Lock `out` against other runs of this user on this machine; standard output and devices are not locked.

    The system drops the lock when the process ends, however it ends. Raises `OutputError` where another run holds it.
    """
    if is_stream(out):
        yield
        return
    lock = FileLock(_lock_file(out), timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        fault = f"{output_name(out)}: another run is writing to it; wait until that run ends, or stop it"
        raise OutputError(fault) from None
    try:
        yield
    finally:
        lock.release()


def _lock_file(out: Source) -> Path:
    """An empty file among the system's temporary files, which stays there.

    It is not the output itself, since that may be replaced at the end; and not beside it, since locks do not work on
    every network file system.
    """
    name = hashlib.blake2b(os.path.realpath(out).encode(errors="surrogateescape"), digest_size=16).hexdigest()
    user = f"{os.getuid()}-" if hasattr(os, "getuid") else ""  # Windows has temporary files per user
    return Path(tempfile.gettempdir(), f"fcjax-{user}{name}.lock")
