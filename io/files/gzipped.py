"""Gzip data as they are decompressed, within a limit."""

from __future__ import annotations

import errno
import gzip
import io
from typing import Any, Final

BUFFER: Final = 1 << 18
"""Bytes that are read at once."""


def unpacked(raw: io.BufferedReader[Any], most: int | None = None) -> io.BufferedReader[Any]:
    """A stream, decompressed where it is gzip data.

    Reading more than `most` bytes of gzip data raises `OSError`, after all bytes up to there have been read.
    """
    return io.BufferedReader(_Unzipped(raw, most), BUFFER) if raw.peek(2)[:2] == b"\x1f\x8b" else raw


class _Unzipped(io.RawIOBase):
    """Gzip data as they are decompressed: unlike `GzipFile`, it hands out all that stands before a break."""

    def __init__(self, raw: io.BufferedReader[Any], most: int | None):
        self._file = gzip.GzipFile(fileobj=raw)
        self._most = most
        self._left = 0 if most is None else most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._most is None:
            data = self._file.read1(len(buffer))
        else:
            data = self._file.read1(max(1, min(len(buffer), self._left)))
            if len(data) > self._left:
                fault = f"the gzip data has more than {self._most:,} bytes once unpacked; unpack the file, or split it"
                raise OSError(errno.EFBIG, fault)
            self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)
