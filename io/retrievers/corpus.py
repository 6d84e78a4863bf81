"""Documents of a folder or file, split into passages; every file or row that cannot be read is reported by name.

Text (`.txt`, `.md`), web pages (`.html`), `.pdf`, and rows of JSON (`.jsonl`, `.json`; text under `text`, `contents` or
`snippet`, with `title` and `link` or `url`), each plain or compressed by gzip.
"""

from __future__ import annotations

import codecs
import gzip
import html
import io
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from fcjax.core.errors import Fault, InputError, counted
from fcjax.core.passages import Passage
from fcjax.core.words import without_invisible
from fcjax.io.files.gzipped import BUFFER, unpacked
from fcjax.io.files.objects import objects_of
from fcjax.io.files.streams import WHOLE_LIMIT, text_of
from fcjax.io.retrievers.extraction import HTML, PDF, ExtractionError, decode, kind_of, tidy
from fcjax.io.retrievers.extraction_workers import Workers

CHUNK: Final = 1000
"""Characters that a passage has at most, by default."""

UNPACKED: Final = 16 << 20
"""Bytes to which any gzip-compressed file may unpack."""
RATIO: Final = 100
"""Times its size to which a larger one may unpack; gzip reaches about 1,000 with nothing but repetitions."""

_KINDS: Final = {
    ".txt": "text", ".text": "text", ".md": "text", ".markdown": "text", ".html": "page", ".htm": "page",
    ".xhtml": "page", ".pdf": "page", ".jsonl": "rows", ".ndjson": "rows", ".json": "rows",
}  # fmt: skip
_TITLE_LENGTH: Final = 300  # characters; a title goes with every passage of its document
_MOST_FAULTS: Final = 100  # that are kept; all are counted


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """A file of a corpus: its name from the corpus' folder on, with `/`, and what changes when its content does."""

    name: str
    path: Path
    size: int  # bytes
    mtime_ns: int
    ctime_ns: int


@dataclass(slots=True)
class Faults:
    """What could not be read: the first hundred faults, and the total number."""

    kept: list[Fault] = field(default_factory=list)
    count: int = 0

    def add(self, *faults: Fault) -> None:
        self.count += len(faults)
        self.kept += faults[: _MOST_FAULTS - len(self.kept)]


def entries(path: Path, faults: Faults) -> list[CorpusFile]:
    """The files of a corpus in the order of their names, without hidden files and files of other types.

    Raises `InputError` where there is no such folder or file, or none that could be a document.
    """
    if not path.is_dir():
        if not path.exists():
            message = "no such folder or file; allowed: a folder of documents, or a single file"
        elif _kind(path.name) is None:
            message = f"unknown file type; allowed: {', '.join(_KINDS)}"
        else:
            return [_entry(path.name, path)]
        raise InputError(Fault(message, file=str(path)))
    found: list[CorpusFile] = []
    others: Counter[str] = Counter()
    for file in _walk(path, faults):
        if _kind(file.name) is None:
            others[file.suffix or "without a suffix"] += 1
            continue
        try:
            if file.is_symlink() and not file.resolve().is_relative_to(path.resolve()) and file.exists():
                raise InputError(Fault("a link that leads out of the corpus; skipped", file=str(file)))
            found.append(_entry(file.relative_to(path).as_posix(), file))
        except InputError as error:
            faults.add(*error.faults)
    if others:
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(others.items())[:10])
        message = f"{counted(others.total(), 'file')} of other types skipped: {kinds}; supported: {', '.join(_KINDS)}"
        faults.add(Fault(message, file=str(path)))
    if not found:
        message = f"there are no documents in this folder; allowed: files ending in {', '.join(_KINDS)}"
        raise InputError(Fault(message, file=str(path)), *faults.kept)
    return sorted(found, key=lambda entry: entry.name)


def _walk(path: Path, faults: Faults) -> Iterator[Path]:
    """All files of a folder and the folders in it, but the hidden ones."""
    for folder, inner, names in os.walk(path, onerror=lambda error: faults.add(_unreadable(error))):
        inner[:] = [name for name in inner if not name.startswith(".")]
        yield from (Path(folder, name) for name in names if not name.startswith("."))


def passages(files: list[CorpusFile], chunk: int, faults: Faults) -> Iterator[Passage]:
    """The passages of all files, in order; of equal texts, only the first is kept."""
    with closing(Workers(1)) as workers:
        yield from _passages(files, chunk, faults, workers)


def _passages(files: list[CorpusFile], chunk: int, faults: Faults, workers: Workers) -> Iterator[Passage]:
    known: set[bytes] = set()
    for entry in files:
        kind = _kind(entry.name) or ""
        try:
            documents = _read_page(entry, faults, workers) if kind == "page" else _READERS[kind](entry, faults)
            for title, text, link in documents:
                for piece in map(without_invisible, cut(text, chunk)):  # a zero-width space is a place to cut at
                    if not piece.strip():
                        continue
                    if (mark := blake2b(piece.encode(errors="surrogatepass"), digest_size=16).digest()) not in known:
                        known.add(mark)
                        yield Passage(
                            title=without_invisible(title or "")[:_TITLE_LENGTH] or None, text=piece, link=link
                        )
        except InputError as error:
            faults.add(*error.faults)
        except OSError as error:
            faults.add(_unreadable(error))


def cut(text: str, size: int = CHUNK) -> Iterator[str]:
    """`text` in pieces of at most `size` characters and about equal length, in linear time.

    A cut is made between paragraphs where one ends in about the right place, else between lines, sentences, words, and
    where there is none of these, anywhere but before a mark that belongs to the letter before it.
    """
    text = text.strip()
    start, left = 0, len(text)
    while left > size:
        aim = -(-left // -(-left // size))  # characters of a piece, were all that is left cut evenly
        end = _boundary(text, start + max(1, aim * 3 // 5), start + aim, start + size)
        if piece := text[start:end].strip():
            yield piece
        start, left = end, len(text) - end
    if piece := text[start:].strip():
        yield piece


def _boundary(text: str, first: int, aim: int, last: int) -> int:
    """The best place for a cut from `first` to `last`, the closest to `aim` of the best kind there is."""
    for kind in _BOUNDARIES:
        ends = [found.end() for found in kind.finditer(text, first - 1, last + 1) if first <= found.end() <= last]
        if ends:
            return min(ends, key=lambda end: (abs(end - aim), end))
    while last > first and _JOINED.match(text, last):
        last -= 1
    return last


# Paragraphs; lines; sentences, in scripts that have marks for them; words.
_BOUNDARIES: Final = tuple(
    re.compile(kind)
    for kind in (r"\n[^\S\n]*\n\s*", r"\n", r"[.!?…؟۔]['\"”’»)\]]*\s|[。！？।॥።]['\"”’」』)）]*", r"\s|\u200b")
)
_JOINED: Final = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e3a"
                            "\u0e47-\u0e4e\u200c\u200d\u3099\u309a\ufe00-\ufe0f]")  # fmt: skip

Document = tuple[str | None, str, str]  # title, text, link


def _read_text(entry: CorpusFile, faults: Faults) -> Iterator[Document]:
    content = _content(entry)
    text = decode(content, None)
    sample = text[:65536]
    if "\0" in sample or len(_NO_TEXT.findall(sample)) * 50 > len(sample):
        raise InputError(Fault("the file is binary; allowed: text", file=str(entry.path)))
    if not _is_unicode(content, text):
        faults.add(Fault("the text is not, or not entirely, UTF-8; its encoding was guessed", file=str(entry.path)))
    heading = re.match(r"\s*#{1,3}\s+(.+)", text) if _suffix(entry.name).startswith(".m") else None
    yield (heading[1].strip() if heading else _title_of(entry)), tidy(text), entry.name


def _read_page(entry: CorpusFile, faults: Faults, workers: Workers) -> Iterator[Document]:
    """HTML or PDF."""
    content = _content(entry)
    kind = kind_of("text/html" if _suffix(entry.name) != ".pdf" else "application/pdf", content[:1024])
    if kind is None:
        raise InputError(Fault("the content does not match the file's suffix", file=str(entry.path)))
    try:
        seconds = _SECONDS + (0.0 if kind == PDF else _SECONDS_PER_MIB * len(content) / (1 << 20))
        text, note = workers.text_of(kind, content, None, seconds)
    except ExtractionError as error:
        raise InputError(Fault(str(error), file=str(entry.path))) from error
    if note:
        faults.add(Fault(note, file=str(entry.path)))
    title = _TITLE.search(decode(content[:65536], None, meta=True)) if kind == HTML else None
    yield (" ".join(html.unescape(title[1]).split()) if title else "") or _title_of(entry), text, entry.name


_NO_TEXT: Final = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f\ufffd]")
_TITLE: Final = re.compile(r"<title[^<>]*>(.{0,1000}?)</title>", re.IGNORECASE | re.DOTALL)
_SECONDS: Final = 60.0  # for a page or PDF; a PDF that takes longer keeps the text of the pages before
_SECONDS_PER_MIB: Final = 30.0  # of HTML, in addition


def _read_rows(entry: CorpusFile, faults: Faults) -> Iterator[Document]:
    place = str(entry.path)
    with _opened(entry) as raw:
        for item in objects_of(text_of(raw, place, _most_unpacked(entry)), place):
            if item.faults:
                faults.add(*(item.located(fault, place) for fault in item.faults))
            if item.value is None:
                continue
            row = item.value if isinstance(item.value, dict) else {}
            text, title, link, id = (_first(row, *keys) for keys in _KEYS)
            if not text.strip():
                seen = f"an object with {', '.join(map(repr, row)) or 'no fields'}" if row else "not an object"
                allowed = "an object with a string under 'text', 'contents' or 'snippet'"
                faults.add(item.located(Fault(f"the row is {seen:.200}; allowed: {allowed}"), place))
            else:
                yield title, text, link or f"{entry.name}#{id or item.number}"


_READERS: Final = {"text": _read_text, "rows": _read_rows}
_KEYS: Final = (("text", "contents", "snippet"), ("title",), ("link", "url"), ("id",))


def _first(row: dict[str, Any], *keys: str) -> str:
    """The first of some fields that is a text with anything in it, or a number."""
    values = (row.get(key) for key in keys)
    texts = (str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool))
    return next((text for text in texts if text.strip()), "")


def _content(entry: CorpusFile) -> bytes:
    """The bytes of a file that is read as one piece. Raises `InputError` where it is too long or damaged."""
    place = str(entry.path)
    content = b""
    if entry.size <= WHOLE_LIMIT:
        with _opened(entry) as raw:
            try:
                most = _most_unpacked(entry)
                content = unpacked(raw, most).read(min(most, WHOLE_LIMIT) + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise InputError(Fault(f"the gzip data is damaged ({error})", file=place)) from error
            except OSError as error:
                raise InputError(Fault(f"cannot be read: {error.strerror or error}", file=place)) from error
    if max(entry.size, len(content)) > WHOLE_LIMIT:
        message = f"the file has more than {WHOLE_LIMIT:,} bytes; allowed: smaller files, or rows in a .jsonl file"
        raise InputError(Fault(message, file=place))
    return content


@contextmanager
def _opened(entry: CorpusFile) -> Iterator[io.BufferedReader[Any]]:
    """A file as it was listed. What has taken its place since then, such as a pipe or a link, is not read.

    The time of the last change of its inode, to the nanosecond, tells it from any other file: no user can set it.
    """
    number = os.open(entry.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with io.BufferedReader(io.FileIO(number), BUFFER) as stream:
        found, place = os.fstat(number), str(entry.path)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(Fault(_NOT_REGULAR, file=place))
        if (found.st_size, found.st_mtime_ns, found.st_ctime_ns) != (entry.size, entry.mtime_ns, entry.ctime_ns):
            raise InputError(Fault("it changed after the folder was listed; skipped", file=place))
        yield stream


def _most_unpacked(entry: CorpusFile) -> int:
    """Bytes that a gzip-compressed file may have once unpacked. Text is rarely compressed to less than a tenth."""
    return max(UNPACKED, RATIO * entry.size)


_NOT_REGULAR: Final = "not a regular file; allowed: files, not pipes or devices"


def _is_unicode(content: bytes, text: str) -> bool:
    """Whether `text` is what Unicode says that `content` is, and no guess."""
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # that of UTF-32 begins like it, or with 0
    return wide or content.removeprefix(codecs.BOM_UTF8) == text.encode(errors="replace")


def _kind(name: str) -> str | None:
    """How a file is read, by its name."""
    return _KINDS.get(_suffix(name))


def _suffix(name: str) -> str:
    """The end of a file's name, which gives its kind."""
    return Path(name.lower().removesuffix(".gz")).suffix


def _entry(name: str, path: Path) -> CorpusFile:
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(_unreadable(error)) from error
    if not stat.S_ISREG(found.st_mode):
        raise InputError(Fault(_NOT_REGULAR, file=str(path)))
    name = os.fsencode(name).decode(errors="replace")  # a name may be any bytes, a link is text
    return CorpusFile(name, path, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _title_of(entry: CorpusFile) -> str:
    """A file's name as a title: `William_O_Douglas.txt` is about William O Douglas."""
    name = Path(entry.name).name.removesuffix(".gz")
    return re.sub(r"[_\s]+", " ", Path(name).stem).strip()


def _unreadable(error: OSError) -> Fault:
    return Fault(f"cannot be read: {error.strerror or error}", file=str(error.filename) if error.filename else None)
