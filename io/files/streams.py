"""Files as streams of bytes: opened by content, read by line in bounded memory, written without losing data.

`-` stands for standard input and output everywhere. Compressed input is recognised by its content, output by its name.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import secrets
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from fcjax.core.errors import Fault, InputError, OutputError
from fcjax.io.files.gzipped import BUFFER, unpacked

Source = str | os.PathLike[str]

LINE_LIMIT = 64 << 20
"""Bytes that one line may have; a longer one is passed over and reported, and never held in memory."""
WHOLE_LIMIT = 256 << 20
"""Bytes of a file that is read as one piece (a `.json` list, a UAI model)."""

_UTF8_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"%PDF-": "a PDF document",
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"BZh": "bzip2-compressed",
    b"\xfd7zXZ": "xz-compressed",
}
_BROKEN = (EOFError, OSError, zlib.error)  # what a damaged gzip file or disk raises in the middle of reading


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file without its end, or the fault that stands in its place."""

    number: int  # counted from 1
    text: bytes
    fault: Fault | None = None


def display_name(path: Source) -> str:
    """How messages name a file."""
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def output_name(path: Source) -> str:
    """How messages name a file that is written."""
    return "standard output" if os.fspath(path) == "-" else os.fspath(path)


def refuse_input(out: Source, *sources: Source | None) -> None:
    """Raise `OutputError` if `out` is one of the inputs, under any name, including standard input and output."""
    written = _file_of(out, sys.stdout)
    for source in sources:
        read = None if source is None else _file_of(source, sys.stdin)
        if written and read and os.path.samestat(written, read):
            raise OutputError(f"{output_name(out)}: is also the input; choose another file")


def is_stream(out: Source) -> bool:
    """Whether an output is standard output, a pipe or a device: it has no file beside it, and is never replaced."""
    return os.fspath(out) == "-" or (os.path.exists(out) and not os.path.isfile(out) and not os.path.isdir(out))


def check_folder(out: Source) -> None:
    """Raise `OutputError`, before any work, if `out` is in a folder that is not writable."""
    if is_stream(out):
        return
    folder = os.path.dirname(os.path.realpath(out))
    if not os.path.isdir(folder):
        raise OutputError(f"{output_name(out)}: its folder does not exist; create the folder first, or choose another")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{output_name(out)}: its folder is not writable; choose a file in another folder")


def _file_of(path: Source, stream: Any) -> os.stat_result | None:
    """The ordinary file that a path or standard stream leads to."""
    try:
        found = os.fstat(stream.fileno()) if os.fspath(path) == "-" else os.stat(path)
    except (OSError, ValueError, AttributeError):  # not there, closed, or no file at all
        return None
    return found if stat.S_ISREG(found.st_mode) else None


@contextmanager
def opened(path: Source) -> Iterator[io.BufferedReader[Any]]:
    """The decompressed bytes of a file, with a byte order mark already skipped.

    Raises `InputError` where the file is missing, unreadable, empty, binary or in another encoding than UTF-8.
    """
    name = display_name(path)
    with _raw(path, name) as raw:
        yield text_of(raw, name)


def text_of(raw: io.BufferedReader[Any], name: str, most: int | None = None) -> io.BufferedReader[Any]:
    """`opened` of a stream that is open already. Gzip data may have at most `most` bytes once unpacked."""
    stream = unpacked(raw, most)
    try:
        head = stream.peek(4096)
    except _BROKEN as error:
        raise InputError(Fault(_broken(error), file=name)) from error
    if not head:
        raise InputError(Fault("the file is empty; allowed: at least one line", file=name))
    _check_text(head, name)
    if head.startswith(_UTF8_BOM):
        stream.read(len(_UTF8_BOM))
    return stream


@contextmanager
def _raw(path: Source, name: str) -> Iterator[io.BufferedReader[Any]]:
    if os.fspath(path) == "-":
        stdin: Any = sys.stdin.buffer
        yield stdin if isinstance(stdin, io.BufferedReader) else io.BufferedReader(stdin)
        return
    try:
        raw = io.BufferedReader(io.FileIO(path), BUFFER)
    except FileNotFoundError as error:
        raise InputError(Fault("no such file", file=name)) from error
    except IsADirectoryError as error:
        raise InputError(Fault("this is a folder; allowed: a file", file=name)) from error
    except OSError as error:
        raise InputError(Fault(f"cannot be opened: {error.strerror}", file=name)) from error
    with raw:
        yield raw


def _check_text(head: bytes, name: str) -> None:
    """Refuse what cannot be UTF-8 text, by the look of its first bytes."""
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(Fault(f"the file is {what}; allowed: UTF-8 text, plain or gzip-compressed", file=name))
    sample = head[:256]
    wide = head.startswith(_WIDE_BOMS) or (
        sample.count(0) * 3 >= len(sample) and sample.strip(b"\0")[:1] in b"[{\r\n\t "
    )
    if wide:
        raise InputError(Fault("the text is UTF-16 or UTF-32; save it again as UTF-8", file=name))
    if 0 in head or (not _is_utf8(head) and any(byte < 32 and byte not in b"\t\n\r\f" for byte in head)):
        raise InputError(Fault("the file is binary; allowed: UTF-8 text, plain or gzip-compressed", file=name))


def _is_utf8(head: bytes) -> bool:
    try:
        head[:-4].decode()  # the last character may be cut
    except UnicodeDecodeError as error:
        return error.end >= len(head) - 4
    return True


def _broken(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the gzip data is cut off; everything before the end was read"
    if isinstance(error, (gzip.BadGzipFile, zlib.error)):
        return f"the gzip data is damaged ({error}); everything before the damage was read"
    return f"reading stopped: {error.strerror if isinstance(error, OSError) else error}"


def read_lines(path: Source, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """The lines of a file, blank ones left out, holding one at a time.

    A line of more than `limit` bytes, and the place where a damaged gzip file breaks off, come as a `Line` with a
    fault. Raises `InputError` as `opened` does.
    """
    with opened(path) as stream:
        yield from split_lines(stream, display_name(path), limit)


def split_lines(stream: io.BufferedReader[Any], name: str, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """`read_lines` of a stream that is open already."""
    number = 0
    while True:
        number += 1
        try:
            text = stream.readline(limit + 1)
            size = len(text)
            if size > limit and not text.endswith(b"\n"):
                text = b""
                while rest := stream.readline(BUFFER):
                    size += len(rest)
                    if rest.endswith(b"\n"):
                        break
        except _BROKEN as error:
            yield Line(number, b"", Fault(_broken(error), file=name, line=number))
            return
        if not size:
            return
        if size > limit + 1 or not text:
            seen = f"the line has {size:,} bytes; allowed: at most {limit:,}"
            yield Line(number, b"", Fault(seen, file=name, line=number))
        elif text := text.strip():
            yield Line(number, text)


def read_whole(stream: io.BufferedReader[Any], name: str, limit: int = WHOLE_LIMIT) -> bytes:
    """All of a stream's content. Raises `InputError` if it has more than `limit` bytes, or is cut off."""
    try:
        text = stream.read(limit + 1)
    except _BROKEN as error:
        raise InputError(Fault(_broken(error), file=name)) from error
    if len(text) > limit:
        fault = f"the file must be read whole and has more than {limit:,} bytes; write it as JSON Lines (.jsonl)"
        raise InputError(Fault(fault, file=name))
    return text


class LineWriter:
    """Appends lines to a file, each with a separate write: a process that is killed leaves at most one line cut short.

    Opening it drops all but the first `keep` bytes of what is there. A `private` file is this user's alone and never a
    link. Errors of the system are raised as `OutputError`.
    """

    def __init__(self, path: Source, keep: int = 0, *, private: bool = False):
        self._name = output_name(path)
        self._is_ours = os.fspath(path) != "-"
        with _reported(self._name):
            if not self._is_ours:
                self._file: BinaryIO = sys.stdout.buffer
            else:
                self._file = open(path, "ab", buffering=0, opener=_private if private else None)
                if os.path.isfile(path):
                    self._file.truncate(keep)

    def write(self, line: bytes) -> None:
        """Append one line, given without its end."""
        rest = memoryview(line + b"\n")
        with _reported(self._name):
            while rest:
                rest = rest[self._file.write(rest) :]
            self._file.flush()

    def close(self) -> None:
        """Close the file; standard output stays open."""
        if self._is_ours:
            with _reported(self._name):
                self._file.close()


def _private(path: str, flags: int) -> int:
    """Open a file that only this user can read. A link under its name is not followed, nor is another kind of file."""
    number = os.open(path, flags | _NO_LINK | getattr(os, "O_NONBLOCK", 0), 0o600)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.EEXIST, "another kind of file has its name", path)
        if hasattr(os, "fchmod"):
            os.fchmod(number, 0o600)  # of an earlier version, perhaps with more permissions
    except BaseException:
        os.close(number)
        raise
    return number


@contextmanager
def replacing(path: Source, *, private: bool = False) -> Iterator[BinaryIO]:
    """A stream whose content replaces `path` as a whole at the end of the block, or not at all.

    A new file has the permissions that the umask gives, a file that is replaced keeps its own. With
    `private`, only this user may read it, and a link under its name is replaced and not followed.

    What is not an ordinary file (standard output, a pipe, a device) is written to directly. Raises `OutputError`.
    """
    name = output_name(path)
    with _reported(name):
        if os.fspath(path) == "-":
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        target = Path(path)
        if not private:
            target = target.resolve()  # a link keeps its place; what it points at is replaced
        if target.exists() and not target.is_file():
            with open(target, "wb") as stream:
                yield stream
            return
        number, draft = _draft(target, private)
        try:
            with open(number, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)


def _draft(target: Path, private: bool) -> tuple[int, Path]:
    """A new file beside `target`, open for writing, under a name that cannot be guessed: nobody can put a link there.

    It never has more permissions than the file that it will replace.
    """
    mode = 0o600 if private else 0o666
    with suppress(FileNotFoundError):
        mode = 0o600 if private else stat.S_IMODE(target.stat().st_mode)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(16)}.part")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, mode)
    if mode != 0o666:
        with suppress(OSError):  # a file system without permissions
            os.fchmod(number, mode)
    return number, draft


_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def drop_drafts(path: Source) -> None:
    """Remove files that `replacing` left next to `path` in killed processes; only for the sole writer of `path`."""
    target = Path(path).resolve()
    for left in target.parent.iterdir():
        number = left.name.removeprefix(f".{target.name}.").removesuffix(".part")
        ours = number.isdecimal() or (len(number) == 32 and set(number) <= set("0123456789abcdef"))
        if left.name == f".{target.name}.{number}.part" and ours:
            left.unlink(missing_ok=True)


def write_lines(path: Source, lines: Iterable[bytes], *, bare: bool = False, private: bool = False) -> int:
    """Write JSON texts, each without line breaks, in the container that the name asks for; returns how many.

    `.json` gives one list, one item per line, or with `bare` the object itself if there is just one; any other name
    gives one per line; a further `.gz` compresses. The same lines give the same bytes. `private` as for `replacing`.
    Raises `OutputError`.
    """
    suffixes = Path(path).suffixes
    zipped = suffixes[-1:] == [".gz"]
    listed = (suffixes[:-1] if zipped else suffixes)[-1:] == [".json"]
    texts = iter(lines)
    first, second = next(texts, None), next(texts, None)
    texts = chain((text for text in (first, second) if text is not None), texts)
    opening, between, closing = b"", b"\n", b"\n"
    if listed and not (bare and first is not None and second is None):
        opening, between, closing = b"[\n", b",\n", b"\n]\n"
    count = 0
    with replacing(path, private=private) as raw, _zipped(raw) if zipped else nullcontext(raw) as stream:
        for count, text in enumerate(texts, 1):
            stream.write((between if count > 1 else opening) + text)
        stream.write(closing if count else b"[]\n" if listed else b"")
    return count


def _zipped(raw: BinaryIO) -> gzip.GzipFile:
    """A compressing stream without name and time, so that equal content makes equal bytes."""
    return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0)


@contextmanager
def _reported(name: str) -> Iterator[None]:
    """Turn a system error about an output into an `OutputError` that says what to do."""
    try:
        yield
    except (BrokenPipeError, OutputError):
        raise  # the reader of our output went away, which is no fault of the file; or it was reported already
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "choose another output file")
        raise OutputError(f"{name}: cannot be written: {error.strerror or error}; {remedy}") from error


_REMEDIES = {
    errno.ENOSPC: "free some space, then run the same command again",
    errno.EDQUOT: "free some space, then run the same command again",
    errno.ENOENT: "create the folder first",
    errno.ELOOP: "remove the link of that name, or choose another output file",
    errno.EISDIR: "choose a file in this folder",
}
