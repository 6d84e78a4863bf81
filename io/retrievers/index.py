"""An index of passages for BM25, in a folder that never changes once it is written and is read in place.

bm25s computes what every word is worth in every passage; those columns are written as arrays and mapped into memory.
To search is to add up a few of them, so nothing of bm25s is needed then, whose import takes a second.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import shutil
import stat
import sys
import threading
import uuid
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import file_digest, sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import orjson

from fcjax.core.passages import Passage
from fcjax.io.retrievers import words as language

FORMAT: Final = f"1.{language.VERSION}"  # another format is another index
# What Anserini takes by default; on other people's collections, and on ours, as good as any.
K1: Final = 0.9
B: Final = 0.4

_ARRAYS: Final = ("worth", "having", "starts", "places")
_PASSAGES, _WORDS, _ABOUT = "passages.jsonl", "words.json", "about.json"
_FILES: Final = (*(f"{key}.npy" for key in _ARRAYS), _PASSAGES, _WORDS, _ABOUT)
_IMPORTING: Final = threading.Lock()


class Draft:
    """A new index under construction, in a folder next to its final place."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._draft = folder / f".{uuid.uuid4().hex}.part"
        self._digest = _digest()
        self._words: dict[str, int] = {}  # every form of a word to its number
        self._numbers: dict[str, int] = {}  # every stem to its number
        self._texts: list[array[int]] = []
        self._places = array("q", [0])

    @property
    def size(self) -> int:
        """The number of passages so far."""
        return len(self._texts)

    def write(self, passages: Iterable[Passage]) -> str:
        """Add the passages; returns the index's name, which identifies everything it finds."""
        self._draft.mkdir(mode=0o700)
        with open(self._draft / _PASSAGES, "wb") as stream:
            for passage in passages:
                line = orjson.dumps([passage.title, passage.text, passage.link]) + b"\n"
                self._digest.update(line)
                stream.write(line)
                self._places.append(self._places[-1] + len(line))
                self._texts.append(array("i", self._read(f"{passage.title or ''}\n{passage.text or ''}")))
        return self._digest.hexdigest()[:32]

    def finish(self, name: str) -> None:
        """Compute the index and move it to its final place, completely or not at all."""
        bm25 = _bm25s().BM25(k1=K1, b=B, method="lucene", csc_backend="numpy")
        vocabulary = self._numbers or {"": 0}
        bm25.index((self._texts, vocabulary), create_empty_token=False, show_progress=False)
        scores = bm25.scores
        arrays = (scores["data"], scores["indices"], scores["indptr"], np.array(self._places))
        for key, values in zip(_ARRAYS, arrays, strict=True):
            np.save(self._draft / f"{key}.npy", values, allow_pickle=False)
        (self._draft / _WORDS).write_bytes(orjson.dumps(list(self._numbers)))
        sizes = {path.name: path.stat().st_size for path in self._draft.iterdir()}
        digests = {"digests": {path.name: _hashed(path) for path in self._draft.iterdir()}}
        (self._draft / _ABOUT).write_text(
            json.dumps({"format": FORMAT, "passages": self.size, "bytes": sizes, **digests})
        )
        for path in self._draft.iterdir():
            with open(path, "rb+") as stream:
                os.chmod(path, 0o600)
                os.fsync(stream.fileno())
        place = self._folder / name
        shutil.rmtree(place, ignore_errors=True)  # what is there is damaged
        with suppress(OSError):  # another process has just put the same there
            self._draft.rename(place)

    def discard(self) -> None:
        shutil.rmtree(self._draft, ignore_errors=True)

    def _read(self, text: str) -> Iterator[int]:
        """The numbers of a text's words; new ones get the next."""
        for word in language.words(text):
            number = self._words.get(word)
            if number is None:
                number = self._words[word] = self._numbers.setdefault(language.stem(word), len(self._numbers))
            yield number


class Index:
    """An index in the folder `path`, opened for searching."""

    def __init__(self, path: Path):
        """Raises `OSError` or `ValueError` where the folder holds no whole index of this format.

        Nothing in the folder is trusted: the passages must have the digest that names it, and every number must lead
        to a place that exists, so that a search in damaged or foreign arrays cannot fail or read other bytes.
        """
        if not all(stat.S_ISREG((path / name).lstat().st_mode) for name in _FILES):
            raise ValueError(f"{path} contains what is not a regular file")
        about = orjson.loads((path / _ABOUT).read_bytes())
        sizes = {name: (path / name).stat().st_size for name in _FILES if name != _ABOUT}
        if not isinstance(about, dict) or about.get("format") != FORMAT or about.get("bytes") != sizes:
            raise ValueError(f"{path} does not contain a complete index of format {FORMAT}")
        if about.get("digests") != {name: _hashed(path / name) for name in sizes}:
            raise ValueError(f"{path} is damaged")
        self._worth, self._having, self._starts, self._places = (_loaded(path / f"{key}.npy") for key in _ARRAYS)
        words = orjson.loads((path / _WORDS).read_bytes())
        with open(path / _PASSAGES, "rb") as stream:
            self._passages = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self.size: int = len(self._places) - 1
        if about.get("passages") != self.size or not self._is_sound(words, path.name):
            self.close()
            raise ValueError(f"{path} does not contain the index that its name stands for")
        self._numbers = {word: i for i, word in enumerate(words)}

    def _is_sound(self, words: Any, name: str) -> bool:
        """Whether the passages are those that `name` stands for, and all arrays fit them and each other."""
        digest = _digest()
        digest.update(self._passages)
        if digest.hexdigest()[:32] != name:
            return False
        numbers = (self._having, self._starts, self._places)
        if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in numbers):
            return False
        if self._worth.ndim != 1 or self._worth.dtype.kind != "f" or not np.isfinite(self._worth).all():
            return False
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            return False
        ends = np.flatnonzero(np.frombuffer(self._passages[:], np.uint8) == ord("\n")) + 1
        return (
            np.array_equal(self._places, np.concatenate([[0], ends]))
            and len(self._starts) > len(words)
            and self._starts[0] == 0
            and self._starts[-1] == len(self._having) == len(self._worth)
            and bool((np.diff(self._starts) >= 0).all())
            and (not len(self._having) or 0 <= self._having.min() <= self._having.max() < self.size)
            and all(_is_passage(self._passages[start:end]) for start, end in pairwise(self._places.tolist()))
        )

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """The index at `path`; None if there is none, or an incomplete one."""
        try:
            return cls(path)
        except (OSError, ValueError, EOFError):
            return None

    def best(self, query: str, k: int) -> list[int]:
        """The numbers of the `k` passages that best match a query, the best first; on a tie, the earlier one.

        A passage's score is that of BM25 with each word of the query weighted by its idf once more: claims are whole
        sentences, and this does in any language what a list of stop words does in one. Who shares no word is not found.
        """
        counts = Counter(
            number for word in language.words(query) if (number := self._numbers.get(language.stem(word))) is not None
        )
        scores = np.zeros(self.size)
        for number, count in sorted(counts.items()):
            start, end = self._starts[number], self._starts[number + 1]
            idf = np.log1p((self.size - (end - start) + 0.5) / (end - start + 0.5))
            scores[self._having[start:end]] += count * idf * self._worth[start:end]
        found = np.flatnonzero(scores > 0)
        if len(found) > k:
            least = np.partition(scores[found], -k)[-k]
            found = found[scores[found] >= least]
        return found[np.argsort(-scores[found], kind="stable")][:k].tolist()

    def passage(self, number: int) -> Passage:
        start, end = self._places[number], self._places[number + 1]
        title, text, link = orjson.loads(self._passages[start:end])
        return Passage(title=title, text=text, link=link)

    def close(self) -> None:
        self._passages.close()


def _loaded(path: Path) -> np.ndarray[Any, Any]:
    """The array in a file, mapped into memory. Raises `OSError` or `ValueError`."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except OSError:
        raise
    except Exception as error:  # its header is read as Python, with whatever that raises
        raise ValueError(f"{path} is not an array ({type(error).__name__})") from error


def _is_passage(line: bytes) -> bool:
    """Whether a line of the passages' file holds a title, a text and a link."""
    try:
        parts = orjson.loads(line)
    except ValueError:
        return False
    return isinstance(parts, list) and len(parts) == 3 and all(isinstance(part, str | None) for part in parts)


def _hashed(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _digest() -> Any:
    """The digest that names an index, before its passages."""
    return sha256(f"{FORMAT} {K1} {B}".encode())


def _bm25s() -> Any:
    """The library, kept from starting JAX on its import: it wants it for what is done here without it."""
    with _IMPORTING:
        hidden = "jax" not in sys.modules
        if hidden:
            sys.modules["jax"] = None  # type: ignore[assignment]
        try:
            import bm25s
        finally:
            if hidden:
                sys.modules.pop("jax", None)
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # it asks for every message, wherever they go
    return bm25s
