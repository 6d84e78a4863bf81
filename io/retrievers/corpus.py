"""Documents of a folder or file, cut into passages, with all that could not be read told by name.

Text (`.txt`, `.md`), web pages (`.html`) and rows of JSON (`.jsonl`, `.json`; text under `text`, `contents` or
`snippet`, with `title` and `link` or `url`), each plain or compressed by gzip.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from fcjax.errors import Fault, InputError, counted
from fcjax.io.files.objects import read_objects
from fcjax.io.files.streams import WHOLE_LIMIT
from fcjax.passages import Passage

CHUNK: Final = 1000
"""Characters that a passage has at most, unless told otherwise."""

_KINDS: Final = {
    ".txt": "text", ".text": "text", ".md": "text", ".markdown": "text", ".html": "html", ".htm": "html",
    ".xhtml": "html", ".jsonl": "rows", ".ndjson": "rows", ".json": "rows",
}  # fmt: skip
_MOST_FAULTS: Final = 100  # that are kept; all are counted


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a corpus: its name from the corpus' folder on, with `/`, and what changes when its content does."""

    name: str
    path: Path
    size: int  # bytes
    mtime_ns: int
    ctime_ns: int


@dataclass(slots=True)
class Faults:
    """What could not be read: the first hundred, and how many there are in all."""

    kept: list[Fault] = field(default_factory=list)
    count: int = 0

    def add(self, *faults: Fault) -> None:
        self.count += len(faults)
        self.kept += faults[: _MOST_FAULTS - len(self.kept)]


def entries(path: Path, faults: Faults) -> list[Entry]:
    """The files of a corpus in the order of their names; hidden ones, and those of other kinds, are left out.

    Raises `InputError` where there is no such folder or file, or none that could be a document.
    """
    if not path.is_dir():
        if not path.exists():
            raise InputError(
                Fault("no such folder or file; allowed: a folder of documents, or one file", file=str(path))
            )
        if _kind(path.name) is None:
            raise InputError(Fault(f"a file of an unknown kind; allowed: {', '.join(_KINDS)}", file=str(path)))
        return [_entry(path.name, path)]
    found: list[Entry] = []
    others: Counter[str] = Counter()
    for folder, inner, names in os.walk(path, onerror=lambda error: faults.add(_unreadable(error))):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in names:
            file = Path(folder, name)
            if name.startswith("."):
                continue
            if _kind(name) is None:
                others[file.suffix or "without a suffix"] += 1
                continue
            try:
                found.append(_entry(file.relative_to(path).as_posix(), file))
            except OSError as error:
                faults.add(_unreadable(error))
    if others:
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(others.items())[:10])
        message = f"{counted(others.total(), 'file')} of other kinds left out: {kinds}; read: {', '.join(_KINDS)}"
        faults.add(Fault(message, file=str(path)))
    if not found:
        message = f"there are no documents in this folder; allowed: files named {', '.join(_KINDS)}"
        raise InputError(Fault(message, file=str(path)), *faults.kept)
    return sorted(found, key=lambda entry: entry.name)


def passages(files: list[Entry], chunk: int, faults: Faults) -> Iterator[Passage]:
    """The passages of all files in their order; equal texts come once, where the first of them stands."""
    known: set[bytes] = set()
    for entry in files:
        try:
            for title, text, link in _READERS[_kind(entry.name) or ""](entry, faults):
                for piece in cut(text, chunk):
                    if (mark := blake2b(piece.encode(errors="surrogatepass"), digest_size=16).digest()) not in known:
                        known.add(mark)
                        yield Passage(title=title or None, text=piece, link=link)
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


def _read_text(entry: Entry, faults: Faults) -> Iterator[Document]:
    text = _decoded(entry, faults)
    heading = re.match(r"\s*#{1,3}\s+(.+)", text) if _suffix(entry.name).startswith(".m") else None
    yield (heading[1].strip() if heading else _title_of(entry)), text, entry.name


def _read_html(entry: Entry, faults: Faults) -> Iterator[Document]:
    import trafilatura  # takes most of a second to load

    page = _decoded(entry, faults)
    found: Any = trafilatura.bare_extraction(page, include_comments=False, favor_recall=True, with_metadata=True)
    text = (found.text if found else "") or trafilatura.html2txt(page)
    if not text.strip():
        faults.add(Fault("the page has no text", file=str(entry.path)))
    yield ((found.title if found else None) or _title_of(entry)), text, entry.name


def _read_rows(entry: Entry, faults: Faults) -> Iterator[Document]:
    for item in read_objects(entry.path):
        if item.faults:
            faults.add(*(item.located(fault, str(entry.path)) for fault in item.faults))
        if item.value is None:
            continue
        row = item.value if isinstance(item.value, dict) else {}
        text, title, link, id = (_first(row, *keys) for keys in _KEYS)
        if not text.strip():
            seen = f"an object with {', '.join(map(repr, row)) or 'no fields'}" if row else "no object"
            message = f"the row is {seen:.200}; allowed: an object with a text under 'text', 'contents' or 'snippet'"
            faults.add(item.located(Fault(message), str(entry.path)))
        else:
            yield title, text, link or f"{entry.name}#{id or item.number}"


_READERS: Final = {"text": _read_text, "html": _read_html, "rows": _read_rows}
_KEYS: Final = (("text", "contents", "snippet"), ("title",), ("link", "url"), ("id",))


def _first(row: dict[str, Any], *keys: str) -> str:
    """The first of some fields that is a text with anything in it, or a number."""
    values = (row.get(key) for key in keys)
    texts = (str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool))
    return next((text for text in texts if text.strip()), "")


def _decoded(entry: Entry, faults: Faults) -> str:
    """A file's text: Unicode if it is that, else in the encoding that it looks most like, which is told as a fault."""
    place = str(entry.path)
    if entry.size > WHOLE_LIMIT:
        message = f"the file has {entry.size:,} bytes; allowed: at most {WHOLE_LIMIT:,}, or rows in a .jsonl file"
        raise InputError(Fault(message, file=place))
    content = entry.path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(entry.path) as stream:
                content = stream.read(WHOLE_LIMIT + 1)[:WHOLE_LIMIT]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(Fault(f"the gzip data are damaged ({error})", file=place)) from error
    for mark, encoding in _MARKED.items():
        if content.startswith(mark):
            return content.decode(encoding, errors="replace").lstrip("\ufeff")
    if b"\0" in content[:65536]:
        raise InputError(Fault("the file is binary; allowed: text", file=place))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        if error.end >= len(content) - 4 and error.reason == "unexpected end of data":
            return content.decode(errors="ignore")
    from trafilatura.utils import detect_encoding

    encoding = next(iter(detect_encoding(content)), "cp1252")
    text = content.decode(encoding, errors="replace")
    if sum(sign < " " and sign not in "\t\n\r\f\x1b" for sign in text[:65536]) > len(text[:65536]) // 50:
        raise InputError(Fault("the file is binary; allowed: text", file=place))
    faults.add(Fault(f"the text is not UTF-8; it was read as {encoding}", file=place))
    return text


_MARKED: Final = {  # byte order marks; that of UTF-32 begins like that of UTF-16
    b"\xef\xbb\xbf": "utf-8", b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}  # fmt: skip


def _kind(name: str) -> str | None:
    """How a file is read, by its name."""
    return _KINDS.get(_suffix(name))


def _suffix(name: str) -> str:
    """The end of a file's name that tells its kind."""
    return Path(name.lower().removesuffix(".gz")).suffix


def _entry(name: str, path: Path) -> Entry:
    found = path.stat()
    name = os.fsencode(name).decode(errors="replace")  # a name may be any bytes, a link is text
    return Entry(name, path, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _title_of(entry: Entry) -> str:
    """A file's name as a title: `William_O_Douglas.txt` is about William O Douglas."""
    name = Path(entry.name).name.removesuffix(".gz")
    return re.sub(r"[_\s]+", " ", Path(name).stem).strip()


def _unreadable(error: OSError) -> Fault:
    return Fault(f"cannot be read: {error.strerror or error}", file=str(error.filename) if error.filename else None)
