"""Coverage: the share of a response's claims that its atoms cover, and the passages that none of them covers.

Response and atoms are compared by their words, sentence by sentence. An atom speaks for the sentences that it shares
most words with, and covers the words that it shares with them: a word that stands in two sentences is not covered in
both by an atom that speaks for one. Words are compared by their beginnings, since atoms are reworded, and a passage is
uncovered only where enough of its words are. The thresholds were chosen on one half of the responses whose atoms are
people's, and measured on the other (`benchmarks/lost_claims.py`).

Only words that can claim something count (see `claim_words`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fcjax.core.records import Case
from fcjax.stages.claim_words import Word, claim_words, sentences

SPEAKS: Final = 0.6
"""An atom speaks for a sentence with which it shares this much of what it shares with the best one, by weight."""
LEAST: Final = 1.0
"""The weight of the uncovered words of an uncovered clause, at least: one word that claims something."""
REPEATED: Final = 2 / 3
"""A clause with this much of its words in one atom, wherever that speaks, repeats it and is covered by it."""
_REPEATS: Final = 3.0  # the weight of the words of such a clause, at least

LARGEST: Final = 5_000_000
"""Comparisons of words beyond which coverage is not measured: about a second of work."""
LONGEST: Final = 200_000
"""Characters of a response or of its atoms beyond which coverage is not measured."""

SHOWN: Final = 10
"""The uncovered passages that a row lists, at most."""
EXCERPT: Final = 200
"""The characters of an uncovered passage that a row shows, at most."""

_CLAUSE: Final = re.compile(
    r"[,;:—–()\[\]|、，；：（）،؛]|\s-\s"
    r"|\b(?:and|or|but|which|who|whose|where|while|whereas|because|although|though|as well as)\b"
    r"|\b(?:und|oder|aber|et|ou|mais|y|pero|и|или|но)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Gap:
    """An uncovered passage, from `start` to `end` in characters of the response; `words` are its uncovered words'."""

    start: int
    end: int
    words: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What atoms cover of a response.

    `share` is the weight of the covered words among all that claim something, from 0 to 1; None where none does.
    `measured` is False where there was too much to compare: then there is no share, and no gap.
    """

    share: float | None
    gaps: tuple[Gap, ...]
    measured: bool = True

    def to_dict(self, response: str) -> dict[str, Any]:
        """The coverage in a row of results (SPEC 7): the share to 7 digits, and the first uncovered passages."""
        return {
            "share": None if self.share is None else round(self.share, 7),
            "n_uncovered": len(self.gaps),
            "uncovered": [_excerpt(response[gap.start : gap.end]) for gap in self.gaps[:SHOWN]],
        }


class TooMuchError(Exception):
    """There are more comparisons than an `Effort` allows."""


class Effort:
    """The comparisons that are still allowed, which several measurements may share."""

    def __init__(self, left: int = LARGEST):
        self.left = left

    def spend(self, comparisons: int) -> None:
        """Raises `TooMuchError` where fewer are left."""
        self.left -= comparisons
        if self.left < 0:
            raise TooMuchError


def coverage(response: str, atoms: Iterable[str], effort: Effort | None = None) -> Coverage:
    """What the texts of `atoms` cover of `response`; not measured beyond `LONGEST` and `effort` (`LARGEST`)."""
    atoms = list(atoms)
    if max(len(response), sum(map(len, atoms))) > LONGEST:
        return Coverage(None, (), measured=False)
    try:
        return covered_by(Claims.of(response), [keys_of(text) for text in atoms], effort or Effort())
    except TooMuchError:
        return Coverage(None, (), measured=False)


@dataclass(frozen=True, slots=True)
class Claims:
    """The sentences of a response that can claim something, and the words of each, to be measured more than once."""

    response: str
    spans: list[tuple[int, int]]
    parts: list[list[Word]]

    @classmethod
    def of(cls, response: str) -> Claims:
        spans = sentences(response)
        return cls(response, spans, [claim_words(response, start, end) for start, end in spans])


def covered_by(claims: Claims, keys: Sequence[Mapping[str, float]], effort: Effort) -> Coverage:
    """What atoms, each given by its `keys_of`, cover of a response. Raises `TooMuchError`."""
    response, spans, parts = claims.response, claims.spans, claims.parts
    spoken = _spoken(parts, keys, effort)
    holders: defaultdict[str, list[int]] = defaultdict(list)  # the atoms that have a word
    for atom, own in enumerate(keys):
        for key in own:
            holders[key].append(atom)

    total = covered = 0.0
    gaps: list[Gap] = []
    for (start, end), words, known in zip(spans, parts, spoken, strict=True):
        before = -1  # where the gap before ends, if it is of this sentence
        for first, last, mine in _clauses(response, start, end, words):
            lost = [word for word in mine if known.isdisjoint(word.keys)]
            weight = sum(word.weight for word in mine)
            if lost and weight >= _REPEATS:
                lost = _unrepeated(mine, lost, weight, holders, keys, effort)
            missing = sum(word.weight for word in lost)
            total += weight
            covered += weight - missing
            if not lost or missing < LEAST:
                before = before if not mine else -1
                continue
            places = tuple((word.start, word.end) for word in lost)
            if before >= 0:
                gaps[-1] = Gap(gaps[-1].start, last, gaps[-1].words + places)
            else:
                gaps.append(Gap(first, last, places))
            before = last
    return Coverage(covered / total if total else None, tuple(gaps))


def case_coverage(case: Case) -> Coverage | None:
    """What the atoms of a case cover of its response, in their original wording or their new one.

    None without both, and where there is too much to measure.
    """
    if case.response is None or case.atoms is None:
        return None
    texts = (f"{atom.text}\n{atom.original}" if atom.original else atom.text for atom in case.atoms)
    found = coverage(case.response, texts)
    return found if found.measured else None


def keys_of(text: str) -> dict[str, float]:
    """The words of an atom with their weights."""
    found: dict[str, float] = {}
    for word in claim_words(text, 0, len(text)):
        for key in word.keys:
            found[key] = max(found.get(key, 0.0), word.weight)
    return found


def _spoken(parts: Sequence[Sequence[Word]], atoms: Sequence[Mapping[str, float]], effort: Effort) -> list[set[str]]:
    """The words that the atoms which speak for a sentence have, for each sentence.

    A word weighs less the more sentences and atoms have it: the name that every atom has says little of its place.
    """
    places: defaultdict[str, list[int]] = defaultdict(list)
    for sentence, words in enumerate(parts):
        for key in {key for word in words for key in word.keys}:
            places[key].append(sentence)
    having = Counter(key for own in atoms for key in own)
    spoken: list[set[str]] = [set() for _ in parts]
    for own in atoms:
        scores: defaultdict[int, float] = defaultdict(float)
        for key, weight in own.items():
            if weight and (where := places.get(key)):
                effort.spend(len(where))
                value = weight / (len(where) * having[key] ** 0.5)
                for sentence in where:
                    scores[sentence] += value
        best = max(scores.values(), default=0.0)
        for sentence, score in scores.items():
            if score >= SPEAKS * best:
                effort.spend(len(own))
                spoken[sentence].update(own)
    return spoken


def _clauses(text: str, start: int, end: int, words: Sequence[Word]) -> Iterable[tuple[int, int, list[Word]]]:
    """The clauses of a sentence, trimmed, with their words that claim something."""
    place = 0
    bounds = [
        (match.start(), match.end()) for match in _CLAUSE.finditer(text, start, end) if not _in_number(text, match)
    ]
    for last, following in (*bounds, (end, end)):
        mine = []
        while place < len(words) and words[place].start < last:
            if words[place].weight and words[place].start >= start:
                mine.append(words[place])
            place += 1
        first, stop = start, last
        while first < stop and text[first].isspace():
            first += 1
        while stop > first and text[stop - 1].isspace():
            stop -= 1
        yield first, stop, mine
        start = following


def _in_number(text: str, match: re.Match[str]) -> bool:
    start, end = match.span()
    return match[0] in ",:" and start > 0 and end < len(text) and text[start - 1].isdigit() and text[end].isdigit()


def _unrepeated(
    mine: Sequence[Word],
    lost: list[Word],
    weight: float,
    holders: Mapping[str, Sequence[int]],
    keys: Sequence[Mapping[str, float]],
    effort: Effort,
) -> list[Word]:
    """The uncovered words of a clause, less those of atoms that the clause repeats."""
    shared: defaultdict[int, float] = defaultdict(float)
    for word in mine:
        effort.spend(2 * sum(len(holders.get(key, ())) for key in word.keys))
        for atom in {atom for key in word.keys for atom in holders.get(key, ())}:
            shared[atom] += word.weight
    for atom, part in shared.items():
        if part >= REPEATED * weight:
            effort.spend(len(lost))
            lost = [word for word in lost if keys[atom].keys().isdisjoint(word.keys)]
    return lost


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"
