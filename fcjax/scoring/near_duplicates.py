"""Contexts of a case that repeat each other: three copies of a page are one piece of evidence, not three.

Texts are compared by their shingles, runs of a few words (see `core.words`). A text is looked up by a sample of its
shingles in those of all others, so that the work grows with the texts' length and not with the number of pairs.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, UInt

from fcjax.core.records import Context, Relation, RelationType
from fcjax.core.words import bare, is_unspaced
from fcjax.graph.selection import merge, p_of

Why = Literal["same text", "nearly the same text", "one contains the other", "equivalent"]

SHINGLE: Final = 5  # words
NEARLY: Final = 0.8  # of the shingles of two texts together are common to both
CONTAINED: Final = 0.9  # of the shingles of an excerpt are in the whole
FEWEST: Final = 8  # shingles that an excerpt has, at least: a headline is not an excerpt
EQUIVALENT: Final = 0.9  # probability of an equivalence from which two contexts count as one source
SAMPLE: Final = 256  # shingles that a text is looked up by, at most: shares are right to about 0.02

_WEIGHTS: Final = np.random.default_rng(5).integers(0, 2**64, 64, np.uint64) | np.uint64(1)  # of letters, by place
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Repeat:
    """Contexts that repeat each other, by id in the order of the case, and the loosest of the ties between them."""

    contexts: tuple[str, ...]
    why: Why


def repeats(contexts: Iterable[Context], relations: Iterable[Relation] = ()) -> tuple[Repeat, ...]:
    """The groups of contexts that repeat each other, in the order of their first members; no two share a context.

    Texts are the same where they are merged duplicates (SPEC 2), nearly the same where `NEARLY` of their shingles are
    common to both; an excerpt goes with the first text that contains it. `relations` (a graph's, SPEC 2, FR3) say
    which contexts are equivalent. Nearly the same text need not say the same: a single number may differ. Texts of
    fewer than `SHINGLE` words are only compared as a whole.
    """
    given = list(contexts)
    texts = [context.evidence for context in given]
    groups = _Groups(len(given))
    copies: dict[str, str] = {}
    first = {given[i].id: i for i in range(len(given) - 1, -1, -1)}
    merge(((context.id, text) for context, text in zip(given, texts, strict=True)), copies)
    for copy, kept in copies.items():
        groups.unite(first[kept], first[copy], "same text")

    kept_texts = [i for i, context in enumerate(given) if texts[i] and context.id not in copies]
    sizes, shared = _shared([texts[i] for i in kept_texts])
    common = shared * sizes[:, None]
    together = sizes[:, None] + sizes - common
    nearly = np.triu((common > 0) & (common >= NEARLY * together), 1)
    for a, b in np.argwhere(nearly).tolist():
        groups.unite(kept_texts[a], kept_texts[b], "nearly the same text")
    within = (shared >= CONTAINED) & (sizes[:, None] < sizes) & (sizes[:, None] >= FEWEST)
    for a in np.flatnonzero(within.any(axis=1)).tolist():
        groups.unite(kept_texts[a], kept_texts[int(within[a].argmax())], "one contains the other")

    for relation in relations:
        ends = relation.source, relation.target
        sure = relation.type is RelationType.EQUIVALENCE and p_of(relation) >= EQUIVALENT
        if sure and all(end in first for end in ends):
            groups.unite(first[ends[0]], first[ends[1]], "equivalent")
    return tuple(Repeat(tuple(given[i].id for i in members), why) for members, why in groups.found())


class _Groups:
    """Disjoint groups of numbers below `count`; each keeps the reason of the last tie that it was joined by."""

    def __init__(self, count: int):
        self._parent = list(range(count))
        self._why: dict[int, Why] = {}

    def unite(self, a: int, b: int, why: Why) -> None:
        a, b = sorted((self._root(a), self._root(b)))
        if a != b:
            self._parent[b] = a
            self._why[a] = why

    def _root(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def found(self) -> list[tuple[list[int], Why]]:
        members: dict[int, list[int]] = {}
        for i in range(len(self._parent)):
            members.setdefault(self._root(i), []).append(i)
        return [(group, self._why[root]) for root, group in members.items() if len(group) > 1]


def _shared(texts: Sequence[str]) -> tuple[Int[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
    """The number of different shingles of each of `D` texts, and the share of the row's that the column's has, too."""
    count = len(texts)
    bits = np.uint64(max(count - 1, 1).bit_length())
    shingles, text = _shingles(texts)
    keys = np.sort((shingles << bits) | text.astype(np.uint64))  # a shingle and a text of it, by shingle
    keys = keys[np.diff(keys, prepend=~keys[:1]) != 0]
    shingles, text = keys >> bits, (keys & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    new = np.diff(shingles, prepend=~shingles[:1]) != 0
    run = np.cumsum(new) - 1  # of the same shingle in one text after the other
    bounds = np.append(np.flatnonzero(new), len(shingles))
    sizes = np.bincount(text, minlength=count)
    mine = np.argsort(text.astype(np.uint16 if count < 2**16 else np.int64), kind="stable")  # by text, then shingle
    starts = np.cumsum(sizes) - sizes
    shared = np.zeros((count, count))
    for i in np.flatnonzero(sizes).tolist():
        sample = run[mine[starts[i] : starts[i] + min(sizes[i], SAMPLE)]]  # the least ones, of every text alike
        low, width = bounds[sample], bounds[sample + 1] - bounds[sample]
        low, width = low[width > 1], width[width > 1]  # which others have, too
        places = np.arange(width.sum()) + np.repeat(low - (np.cumsum(width) - width), width)
        shared[i] = np.bincount(text[places], minlength=count) / len(sample)
        shared[i, i] = 1.0
    return sizes, shared


def _shingles(texts: Sequence[str]) -> tuple[UInt[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Hashes of all shingles of all texts, and the text that each is from."""
    codes = _codes(texts)
    code = np.concatenate([*codes, np.zeros(1, np.uint32)])
    if bare(letters := "".join(map(chr, _points(code)))) != letters:
        codes = _codes(map(bare, texts))
        code = np.concatenate([*codes, np.zeros(1, np.uint32)])
    letter, begins = _letters(code)
    starts = np.flatnonzero(begins)
    if len(starts) < SHINGLE:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    letter = letter[starts[0] :]
    place = np.arange(len(letter), dtype=np.int32)  # of a letter in its word
    place -= np.repeat((starts - starts[0]).astype(np.int32), np.diff(starts, append=len(code)))
    place &= len(_WEIGHTS) - 1
    words = _mixed(np.add.reduceat(letter * _WEIGHTS[place], starts - starts[0]))
    ends = np.cumsum([len(text) for text in codes])
    text = np.repeat(np.arange(len(texts)), np.diff(np.searchsorted(starts, ends), prepend=0))
    last = len(words) - SHINGLE + 1
    shingles = words[:last].copy()
    for k in range(1, SHINGLE):
        shingles *= _ODD
        shingles += words[k : k + last]
    whole = text[:last] == text[SHINGLE - 1 :]
    return _mixed(shingles)[whole], text[:last][whole]


def _codes(texts: Iterable[str]) -> list[UInt[np.ndarray, " L"]]:
    """The code points of each text, and of a space after it."""
    return [np.frombuffer(f"{text.casefold()} ".encode("utf-32-le", "surrogatepass"), np.uint32) for text in texts]


def _points(code: UInt[np.ndarray, " N"]) -> list[int]:
    """The different code points, in ascending order."""
    seen = np.zeros(int(code.max()) + 1, bool)
    seen[code] = True
    return np.flatnonzero(seen).tolist()


def _letters(code: UInt[np.ndarray, " N"]) -> tuple[UInt[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """The code points as uint64 with 0 for what stands between words, and where words begin."""
    points = _points(code)
    value = np.zeros(points[-1] + 1, np.uint64)
    alone = np.zeros(len(value), bool)  # begins a word wherever it stands
    for point in points:
        letter = chr(point)
        if letter.isalnum() or unicodedata.category(letter) in ("Mn", "Mc"):
            value[point] = point
            alone[point] = is_unspaced(letter)
    letters = value[code]
    begins = letters > 0
    begins[1:] &= ~begins[:-1]  # numpy copies what overlaps
    if alone.any():
        begins |= alone[code]
    return letters, begins


def _mixed(values: UInt[np.ndarray, " N"]) -> UInt[np.ndarray, " N"]:
    """Every bit of a hash dependent on every other (the end of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
