"""The selection of cases: splits, a limit, a sample; and the report on the rows."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import Fault
from fcjax.core.records import Case
from fcjax.io.datasets.rows import Unit
from fcjax.io.files.objects import Row

SPLITS: Final = ("train", "validation", "test")
_SHARES: Final = (*["train"] * 8, "validation", "test")  # of ten groups
_KEPT: Final = 1000  # faults that a report holds; the rest is counted


@dataclass(frozen=True, slots=True)
class Selection:
    """The first `limit` cases, or with a `seed` a sample of that size; of one `split`, of `all` of them, or without.

    Splits are 80/10/10, drawn by the seed (0 by default) in blocks of ten groups: the shares are exact after every
    tenth group, and rows that are appended move none of the earlier ones. Raises `SettingsError`.
    """

    limit: int | None = None
    seed: int | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        check_number("limit", self.limit, 1, whole=True, none=True)
        check_number("seed", self.seed, 0, 2**63 - 1, whole=True, none=True)
        check_choice("split", self.split, (*SPLITS, "all"), none=True)


@dataclass(slots=True)
class BuildReport:
    """The report on the rows so far. Faults beyond the first thousand are only counted."""

    rows: int = 0
    cases: int = 0  # that were selected
    bad: int = 0  # rows with faults
    n_faults: int = 0
    faults: list[Fault] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # rows without a case, by the reason
    unknown: Counter[str] = field(default_factory=Counter)  # fields that the format does not have, by rows

    def add(self, faults: Iterable[Fault]) -> None:
        """Add the faults of one row."""
        faults = tuple(faults)
        self.bad += bool(faults)
        self.n_faults += len(faults)
        self.faults += faults[: max(_KEPT - len(self.faults), 0)]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON, without the faults themselves."""
        return {
            "n_rows": self.rows,
            "n_cases": self.cases,
            "n_bad_rows": self.bad,
            "n_faults": self.n_faults,
            "skipped": dict(self.skipped),
            "unknown_fields": dict(self.unknown),
        }


def selected(rows: Iterable[Row[Unit]], selection: Selection, report: BuildReport | None = None) -> Iterator[Case]:
    """The selected cases, in the order of the rows; if splits are selected, each has its own under `split`.

    Reading ends at the limit, except for a sample, for which all rows are read.
    """
    report = report if report is not None else BuildReport()
    cases = _cases(rows, selection, report)
    if selection.limit is not None and selection.seed is not None:
        seed = selection.seed
        drawn = heapq.nsmallest(selection.limit, enumerate(cases), key=lambda one: digest(seed, "sample", one[1].id))
        cases = iter([case for _, case in sorted(drawn, key=lambda one: one[0])])
    for case in cases:
        report.cases += 1
        yield case
        if report.cases == selection.limit:
            return


def _cases(rows: Iterable[Row[Unit]], selection: Selection, report: BuildReport) -> Iterator[Case]:
    splitter = Splitter(selection.seed or 0) if selection.split else None
    for row in rows:
        report.rows += 1
        unit = row.value
        if unit is None:
            report.add(row.faults)
            continue
        report.unknown.update(unit.unknown)
        if unit.skipped:
            report.skipped[unit.skipped] += 1
        elif splitter is None:
            yield from unit.cases
        elif selection.split in ("all", split := splitter.of(unit.group)):
            yield from (replace(case, extra={**case.extra, "split": split}) for case in unit.cases)


class Splitter:
    """Assigns splits to groups; a group that was seen before keeps its split."""

    def __init__(self, seed: int):
        self._seed = seed
        self._places: dict[int, int] = {}  # hash of a group -> its place in the order of arrival

    def of(self, group: str) -> str:
        """The split of a group."""
        place = self._places.setdefault(hash(group), len(self._places))
        block, here = divmod(place, len(_SHARES))
        order = sorted(range(len(_SHARES)), key=lambda i: digest(self._seed, "split", block, i))
        return _SHARES[order.index(here)]


def is_drawn(seed: int, place: int) -> bool:
    """Whether the case at a place (from 0) is in the drawn half: one of every two in a row is."""
    pair, here = divmod(place, 2)
    return digest(seed, "half", pair)[0] % 2 == here


def digest(seed: int, *parts: object) -> bytes:
    """A hash of a seed and some parts, equal in every version of Python."""
    return hashlib.sha256("/".join(map(str, (seed, *parts))).encode()).digest()
