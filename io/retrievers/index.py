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
import sys
import threading
import uuid
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
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
_IMPORTING: Final = threading.Lock()


class Draft:
    """A new index under construction, in a folder next to its final place."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._draft = folder / f".{uuid.uuid4().hex}.part"
        self._digest = sha256(f"{FORMAT} {K1} {B}".encode())
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
        self._draft.mkdir(parents=True)
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
        (self._draft / _ABOUT).write_text(json.dumps({"format": FORMAT, "passages": self.size, "bytes": sizes}))
        for path in self._draft.iterdir():
            with open(path, "rb+") as stream:
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
        """Raises `OSError` or `ValueError` where the folder holds no whole index of this format."""
        about = json.loads((path / _ABOUT).read_text())
        sizes = {name: (path / name).stat().st_size for name in about["bytes"]}
        if about["format"] != FORMAT or sizes != about["bytes"]:
            raise ValueError(f"{path} does not contain a complete index of format {FORMAT}")
        self.size: int = about["passages"]
        arrays: Any = (np.load(path / f"{key}.npy", mmap_mode="r", allow_pickle=False) for key in _ARRAYS)
        self._worth, self._having, self._starts, self._places = map(np.asarray, arrays)
        self._numbers = {word: i for i, word in enumerate(orjson.loads((path / _WORDS).read_bytes()))}
        with open(path / _PASSAGES, "rb") as stream:
            self._passages = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """The index at `path`; None if there is none, or an incomplete one."""
        try:
            return cls(path)
        except (OSError, ValueError, KeyError, TypeError):
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
