"""Labelled pairs: a premise, a hypothesis, and the relation that people saw between them (SPEC 9).

They come from JSON Lines with `premise`, `hypothesis` and `label`, or from cases whose relations are people's: with the
status ok and without the `method` that a model's have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fcjax.core.errors import Fault, InputError, refuse_where_all_lack
from fcjax.core.records import DISTRIBUTED, Case, RelationType
from fcjax.io.datasets.rows import Fields
from fcjax.io.files.cases import parse_case
from fcjax.io.files.objects import Row, read_rows, row_id, seen
from fcjax.io.files.streams import Source, display_name

SPELLINGS: Final = {
    RelationType.ENTAILMENT: ("entailment", "entails", "entailed", "supports", "supported", "support"),
    RelationType.CONTRADICTION: ("contradiction", "contradicts", "contradicted", "refutes", "refuted", "refute"),
    RelationType.NEUTRAL: ("neutral", "not enough info", "not enough information", "nei"),
}
"""How data sets write the labels: in any case, with spaces, hyphens or underscores between words."""

FAULTS_KEPT: Final = 100

_LABELS: Final = {spelling: label for label, spellings in SPELLINGS.items() for spelling in spellings}
_ALLOWED: Final = "entailment, contradiction or neutral (or SUPPORTS, REFUTES, NOT ENOUGH INFO)"
_BETWEEN: Final = re.compile(r"[\s_-]+")
_CASE_KEYS: Final = frozenset(("relations", "atoms", "contexts", "response", "output"))


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """What people say that a premise says of a hypothesis: one of the labels of `DISTRIBUTED`."""

    id: str
    premise: str
    hypothesis: str
    label: RelationType


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPairs:
    """Pairs that differ from each other, in the order of their first appearance, and what was left out."""

    pairs: tuple[LabelledPair, ...]
    n_given: int = 0  # pairs before repeated and disputed ones were taken out
    n_repeated: int = 0  # further copies of a pair with the same label
    disputed: tuple[str, ...] = ()  # ids of the pairs that have several labels; none of their copies is used
    n_without: int = 0  # cases without relations by people
    n_equivalent: int = 0  # relations by people of another type than the three labels
    n_faulty: int = 0  # rows that hold no pair
    faults: tuple[Fault, ...] = ()  # of these rows, the first `FAULTS_KEPT`

    @classmethod
    def of(cls, given: Iterable[LabelledPair], **counts: Any) -> LabelledPairs:
        """The distinct pairs among those given. Pairs are the same if their texts are, but for space at the ends."""
        kept: dict[tuple[str, str], LabelledPair] = {}
        labels: dict[tuple[str, str], set[RelationType]] = {}
        given = list(given)
        for pair in given:
            texts = pair.premise.strip(), pair.hypothesis.strip()
            kept.setdefault(texts, pair)
            labels.setdefault(texts, set()).add(pair.label)
        agreed = tuple(pair for texts, pair in kept.items() if len(labels[texts]) == 1)
        disputed = tuple(pair.id for texts, pair in kept.items() if len(labels[texts]) > 1)
        return cls(pairs=agreed, n_given=len(given), n_repeated=len(given) - len(kept), disputed=disputed, **counts)

    @property
    def labels(self) -> frozenset[RelationType]:
        """The labels that occur."""
        return frozenset(pair.label for pair in self.pairs)

    def to_dict(self) -> dict[str, Any]:
        """What was left out, as JSON."""
        return {
            "n_given": self.n_given,
            "n_repeated": self.n_repeated,
            "disputed": list(self.disputed),
            "n_cases_without_relations": self.n_without,
            "n_other_relations": self.n_equivalent,
            "n_faulty_rows": self.n_faulty,
        }


def label_of(value: Any) -> RelationType:
    """The label that a data set writes as `value`. Raises `InputError`."""
    if isinstance(value, str) and (label := _LABELS.get(_BETWEEN.sub(" ", value.strip().casefold()))):
        return label
    is_number = (isinstance(value, int | float) and not isinstance(value, bool)) or (
        isinstance(value, str) and value.strip().lstrip("-").isdecimal()
    )
    why = ", which means different labels in different data sets" if is_number else ""
    raise InputError(Fault(f"label is {seen(value)}{why}; allowed: {_ALLOWED}", field="label"))


def read_pairs(path: Source) -> LabelledPairs:
    """The labelled pairs of a file: JSON Lines, a JSON list or one object, plain or gzip-compressed; `-` is standard
    input. A row with faults is left out and counted.

    Raises `InputError` where nothing can be read, no row holds a pair, or all pairs are disputed.
    """
    found: list[LabelledPair] = []
    faults: list[Fault] = []
    rows = without = equivalent = faulty = 0
    for row in (Row(*parts) for parts in read_rows(path, _parse)):
        rows += 1
        if row.value is None:
            faulty += 1
            faults += row.faults[: max(FAULTS_KEPT - len(faults), 0)]
            continue
        pairs, others = row.value
        without += not pairs
        equivalent += others
        found += pairs
    first = None if not faults else faults[0]
    refuse_where_all_lack(first, faulty, rows, "row")
    made = LabelledPairs.of(found, n_without=without, n_equivalent=equivalent, n_faulty=faulty, faults=tuple(faults))
    if not made.pairs:
        what = f"each pair has several labels (such as {made.disputed[0]!r})" if made.disputed else "there are no pairs"
        allowed = "rows with premise, hypothesis and label, or cases with relations by people (without a `method`)"
        raise InputError(Fault(f"{what}; allowed: {allowed}", file=display_name(path)))
    return made


def pairs_of(given: LabelledPairs | Source | Iterable[LabelledPair | Mapping[str, Any]]) -> LabelledPairs:
    """Labelled pairs from a file, or from pairs or rows in memory. Raises `InputError`, there also for one bad row."""
    if isinstance(given, LabelledPairs):
        return given
    if isinstance(given, str | os.PathLike):
        return read_pairs(given)
    if not isinstance(given, Iterable):
        raise InputError(f"the labelled pairs are {given!r:.60}; allowed: a file, LabelledPairs, or rows")
    found: list[LabelledPair] = []
    for number, one in enumerate(given, 1):
        if isinstance(one, LabelledPair):
            found.append(one)
            continue
        try:
            found += _parse(dict(one) if isinstance(one, Mapping) else one, number)[0]
        except InputError as error:
            raise InputError(*(replace(fault, case=f"pair {number}") for fault in error.faults)) from None
    made = LabelledPairs.of(found)
    if not made.pairs:
        what = "each labelled pair has several labels" if made.disputed else "no labelled pairs were given"
        raise InputError(f"{what}; allowed: at least one with premise, hypothesis and one label")
    return made


def _parse(value: Any, number: int) -> tuple[list[LabelledPair], int]:
    """The pairs of one row, and the number of people's relations in it that are none of the three labels."""
    is_case = isinstance(value, dict) and not value.keys() & {"premise", "hypothesis"} and value.keys() & _CASE_KEYS
    if is_case:
        return _pairs_of_case(parse_case(value, number))
    fields = Fields(value)
    premise, hypothesis = (fields.text(key) for key in ("premise", "hypothesis")) if not fields.faults else ("", "")
    label = RelationType.NEUTRAL
    if isinstance(value, dict):
        if fields.has("label"):
            try:
                label = label_of(value["label"])
            except InputError as error:
                fields.faults += error.faults
        else:
            fields.lack(("label",), _ALLOWED)
    fields.check()
    return [LabelledPair(row_id(value, number), premise, hypothesis, label)], 0


def _pairs_of_case(case: Case) -> tuple[list[LabelledPair], int]:
    texts = {atom.id: atom.text for atom in case.atoms or ()}
    texts |= {context.id: context.evidence for context in case.contexts or ()}
    found, others = [], 0
    for relation in case.relations or ():
        premise, hypothesis = texts[relation.source], texts[relation.target]
        if relation.status.failed or relation.method is not None or not (premise.strip() and hypothesis.strip()):
            continue
        if relation.type in DISTRIBUTED:
            id = f"{case.id}: {relation.source} to {relation.target}"
            found.append(LabelledPair(id, premise, hypothesis, relation.type))
        else:
            others += 1
    return found, others
