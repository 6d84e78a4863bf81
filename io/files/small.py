"""Small text files that are read whole: templates, tables, and TOML. Their kind and size are checked before reading."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import stat
import tomllib
import zlib
from typing import Any, Final

from fcjax.io.files.gzipped import unpacked
from fcjax.io.files.objects import is_deeper
from fcjax.io.files.streams import Source

SMALL_LIMIT: Final = 1 << 20
"""Bytes that a template or a configuration file may have."""
MOST_KEYS: Final = 100
"""Levels of a configuration file, and parts of a dotted key in it."""


def read_small(path: Source, limit: int = SMALL_LIMIT, encoding: str = "utf-8", *, gzipped: bool = False) -> str:
    """The text of a regular file of at most `limit` bytes; where it may be `gzipped`, of as many once unpacked.

    A pipe or device is not waited for. Raises `OSError` where it cannot be read, `UnicodeDecodeError` where it is not
    text.
    """
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(number, "rb") as stream:
        found = os.fstat(number)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file; allowed: files, not pipes or devices", os.fspath(path))
        small = found.st_size <= limit  # gzip data may be long and unpack to little
        content = _unpacked(stream, limit, path) if gzipped and small else stream.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"more than {limit:,} bytes; allowed: a smaller file", os.fspath(path))
    return content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def _unpacked(stream: io.BufferedReader, limit: int, path: Source) -> bytes:
    """The start of a file that may be gzip data."""
    try:
        return unpacked(stream, limit).read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        why = f"the gzip data is cut off or damaged ({error}); allowed: a complete file"
        raise OSError(errno.EINVAL, why, os.fspath(path)) from error


def read_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text. Raises `ValueError`, also for integers beyond 64 bits and for what is nested deep."""
    for line in _without_strings(text).splitlines():
        if any(len(run.split(".")) > MOST_KEYS for part in _RUN.findall(line) for run in _GAP.split(part)):
            raise ValueError(f"a key of more than {MOST_KEYS} parts")  # the time to read it grows with their square
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    check_values(table)
    return table


def check_values(value: Any) -> None:
    """Raise `ValueError` where a configuration holds an integer beyond 64 bits, or is nested too deep."""
    if is_deeper(value, MOST_KEYS):
        raise ValueError(f"it is nested too deep; allowed: at most {MOST_KEYS} levels")
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            parts += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            parts += part
        elif isinstance(part, int) and not -(2**63) <= part < 2**64:
            raise ValueError("an integer is beyond 64 bits")


def _without_strings(text: str) -> str:
    """A TOML text with q for each string, and without comments: what has dots there is a key or a number."""
    parts, place = [], 0
    while found := _OPENING.search(text, place):
        opening = found[0]
        end = found.end()
        while stop := _CLOSING[opening].search(text, end):
            end = stop.end()
            if not stop[0].startswith("\\"):
                break
        parts += [text[place : found.start()], "" if opening == "#" else "q"]
        place = end if stop else len(text)
        if stop and stop[0] == "\n":
            place -= 1  # the line ends, also where a string in it does not
    return "".join(parts) + text[place:]


_OPENING: Final = re.compile("\"\"\"|'''|[\"'#]")
_CLOSING: Final = {
    '"""': re.compile(r'\\.?|"{3,5}', re.DOTALL),
    "'''": re.compile("'{3,5}"),
    '"': re.compile(r'\\[^\n]?|["\n]'),
    "'": re.compile("['\n]"),
    "#": re.compile("\n"),
}
_RUN: Final = re.compile(r"[\w.\t -]+")
_GAP: Final = re.compile(r"\.[\t ]*\.")  # no key has it
