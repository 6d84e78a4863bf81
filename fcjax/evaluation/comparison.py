"""Result rows before a correction compared with those after it: pairs of cases, and gains by measure (SPEC 5)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from fcjax.evaluation.gains import PairedTest, Span, Spread, gain_span, paired_test
from fcjax.scoring.measures import AtomCounts, K, case_measures
from fcjax.scoring.rows import Row
from fcjax.scoring.summary import has_failed

MEASURES: Final = ("precision", "recall_at_k", "f1_at_k", "verifiability", "comprehensiveness")
"""The measures of a correction: Pr, R@K, F1@K, V, C."""

COUNTS: Final = ("n_atoms", "n_supported")
_UNBOUNDED: Final = frozenset({"verifiability", *COUNTS})


class RowPair(NamedTuple):
    """One case before and after; None if that run has no such row."""

    before: Row | None
    after: Row | None


def pair_rows(before: Iterable[Row], after: Iterable[Row]) -> list[RowPair]:
    """The rows of two runs by id, in the order of the first; the n-th row of an id pairs with the n-th."""
    later = dict(_named(after))
    pairs = [RowPair(row, later.pop(name, None)) for name, row in _named(before)]
    return pairs + [RowPair(None, row) for row in later.values()]


@dataclass(frozen=True, slots=True)
class Change:
    """One measure over the pairs of a comparison."""

    measure: str
    before: Spread
    after: Spread
    gain: Spread  # of the relative gain of each pair
    test: PairedTest
    n_unmeasured: int  # pairs with a row that did not fail but lacks the measure: no atoms, or not measured
    scores: tuple[tuple[str, float, float], ...]  # id, before, after, of each pair that has both

    @property
    def n(self) -> int:
        """The number of pairs that have the measure before and after."""
        return len(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON, without the scores themselves."""
        named = asdict(self)
        del named["scores"]
        return named


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one corrector on one data set. Make it with `of`."""

    changes: Mapping[str, Change]  # by measure
    n_cases: int
    n_failed: int  # pairs with a failed or missing row
    n_partly_failed: int  # pairs with failed atoms; they count with the other atoms
    n_no_atoms: int  # pairs with a response without atoms, and so without measures

    @classmethod
    def of(
        cls,
        rows_before: Iterable[Row],
        rows_after: Iterable[Row],
        measures: Sequence[str] = MEASURES,
        *,
        k: K | None = None,
    ) -> Comparison:
        """Compare two runs over the same cases.

        R@K and F1@K of a correction are taken at the K of its original (SPEC 5), whatever the K of its own run; `k`
        replaces both. `measures` may be any names in the rows' measures whose values are at least 0.
        """
        pairs = pair_rows(rows_before, rows_after)
        whole = [pair for pair in pairs if not any(_lost(row) for row in pair)]
        return cls(
            {name: _change(name, pairs, k) for name in dict.fromkeys((*measures, *COUNTS))},
            len(pairs),
            len(pairs) - len(whole),
            sum(any((row["measures"] or {}).get("n_failed") for row in pair if row) for pair in whole),
            sum(any(row["measures"] is None for row in pair if row) for pair in whole),
        )

    def __getitem__(self, measure: str) -> Change:
        return self.changes[measure]

    def __repr__(self) -> str:
        gains = ", ".join(
            f"{name} {change.gain.mean:+.3f}{change.test.marks}"
            for name, change in self.changes.items()
            if name not in COUNTS and change.gain.mean is not None
        )
        return f"Comparison({self.n_cases} cases, {self.n_failed} failed; gains: {gains or 'none'})"

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON."""
        counts = ("n_cases", "n_failed", "n_partly_failed", "n_no_atoms")
        return {name: getattr(self, name) for name in counts} | {
            "measures": {name: change.to_dict() for name, change in self.changes.items()}
        }


def _change(name: str, pairs: Iterable[RowPair], k: K | None) -> Change:
    scores: list[tuple[str, float, float]] = []
    sides: tuple[list[Span], list[Span], list[Span]] = ([], [], [])
    unmeasured = 0
    for pair in pairs:
        k_here = k if k is not None else _k(pair)
        before, after = (_span(row, name, k_here) for row in pair)
        if before is None or after is None:
            unmeasured += 1
            continue
        if before.value is None or after.value is None:  # so that the means before and after are over the same cases
            before, after = before._replace(value=None), after._replace(value=None)
        else:
            assert pair.before is not None
            scores.append((pair.before["id"], before.value, after.value))
        for side, span in zip(sides, (before, after, gain_span(before, after)), strict=True):
            side.append(span)
    old, new, gains = map(Spread.of, sides)
    test = paired_test([one for _, one, _ in scores], [other for _, _, other in scores])
    return Change(name, old, new, gains, test, unmeasured, tuple(scores))


def _span(row: Row | None, name: str, k: K | None) -> Span | None:
    """A row's score; None if it has none but did not fail."""
    if row is None or _lost(row):
        return Span(None, 0.0, math.inf if name in _UNBOUNDED else 1.0)
    found = row["measures"]
    if found is None:
        return None
    if k is not None:
        counts = AtomCounts.of_measures(found)
        known = case_measures(counts, k) or {}
        if name in ("precision", "recall_at_k", "f1_at_k"):  # the row has 7 digits, this has all
            found = found | {name: known[name]}
        if name in known and (n_failed := found.get("n_failed")):
            ends = [case_measures(end, k) or {} for end in (counts.worst(n_failed), counts.best(n_failed))]
            return Span(found[name], *sorted(end[name] for end in ends))
    value, worst, best = (found.get(name + end) for end in ("", "_worst", "_best"))
    if worst is not None and best is not None:
        return Span(value, worst, best)
    return None if value is None else Span.at(value)


def _lost(row: Row | None) -> bool:
    return row is None or has_failed(row["status"])


def _k(pair: RowPair) -> K | None:
    """The K of the original, or else that of the correction."""
    for row in pair:
        if row and row["measures"]:
            return row["measures"].get("k")
    return None


def _named(rows: Iterable[Row]) -> Iterator[tuple[tuple[Any, int], Row]]:
    seen: Counter[Any] = Counter()
    for row in rows:
        yield (row["id"], seen[row["id"]]), row
        seen[row["id"]] += 1
