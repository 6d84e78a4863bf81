"""Temporary files on disk: for input that can be read only once, and for rows that are not complete yet."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import IO, Any, Self

import orjson

from fcjax.core.errors import InputError, OutputError
from fcjax.io.files.digests import DIGEST_SIZE
from fcjax.io.files.streams import Source, display_name


@contextmanager
def readable_twice(source: Source) -> Iterator[str]:
    """A path that can be read repeatedly: standard input and pipes are copied to a temporary file."""
    path = os.fspath(source)
    if path != "-" and (os.path.isfile(path) or not os.path.exists(path) or os.path.isdir(path)):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="fcjax-") as spool:
        with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as stream:
            shutil.copyfileobj(stream, spool)
        spool.flush()
        try:
            yield spool.name
        except InputError as error:
            names = {spool.name: display_name(source)}
            raise InputError(*(replace(f, file=names.get(f.file or "", f.file)) for f in error.faults)) from None


class Spool:
    """Rows that wait for K in a temporary file in `folder`, each with the digest of its case. Use it in a `with` block.

    In memory it holds `DIGEST_SIZE` bytes and one number per row.
    """

    def __init__(self, folder: str | None = None):
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._digests = bytearray()
        self.atoms: list[int] = []  # numbers of atoms, where they are known

    def add(self, row: bytes, digest: bytes, atoms: int | None) -> None:
        """Append one row, as JSON without line breaks. Raises `OutputError` where it cannot be written."""
        with self._reported():
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, prefix=".fcjax-")
            self._file.write(row + b"\n")
        self._digests += digest
        if atoms is not None:
            self.atoms.append(atoms)

    def __iter__(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        if self._file is None:
            return
        with self._reported():
            self._file.seek(0)  # writes what is buffered
        for i, line in enumerate(self._file):
            yield orjson.loads(line), bytes(self._digests[i * DIGEST_SIZE : (i + 1) * DIGEST_SIZE])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # of buffered rows, which are not needed any more
                self._file.close()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Name the folder in errors of the system, which know no name of a temporary file."""
        try:
            yield
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise OutputError(
                f"{folder}: the results cannot wait there: {error.strerror or error}; free some space, or use another "
                "folder (for results on standard output: TMPDIR)"
            ) from error
