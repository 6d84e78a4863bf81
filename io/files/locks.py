"""A lock on an output, so that two runs never write to one file."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    """An empty file in this user's folder among the system's temporary files, which stays there.

    It is not the output itself, since that may be replaced at the end; and not beside it, since locks do not work on
    every network file system.
    """
    name = hashlib.blake2b(os.path.realpath(out).encode(errors="surrogateescape"), digest_size=16).hexdigest()
    return _own_folder() / f"{name}.lock"


def _own_folder() -> Path:
    """A folder that no other user can write to: a lock's name is known, and a link under it would be followed."""
    temporary = tempfile.gettempdir()
    if not hasattr(os, "getuid"):
        return Path(temporary)  # Windows has temporary files per user
    folder = Path(temporary, f"fcjax-{os.getuid()}")
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        raise OutputError(f"{folder}: cannot be made: {error.strerror}; set TMPDIR to another folder") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        fault = "is not a folder that only this user can write to"
        raise OutputError(f"{folder}: {fault}; remove it, or set TMPDIR to another folder")
    return folder
