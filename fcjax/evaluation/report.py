"""The tables of the FactCorrector paper: the results of each corrector on each data set, and their cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fcjax.evaluation.comparison import MEASURES, Comparison
from fcjax.evaluation.tables import BeforeAfter, Cell, Column, CountOf, MeanGain, Number, Table

HEADS: Final = {
    "precision": "Pr",
    "recall_at_k": "R@K",
    "f1_at_k": "F1@K",
    "verifiability": "V",
    "verifiability_share": "V share",
    "comprehensiveness": "C",
    "rouge_l": "ROUGE-L",
    "bleu": "BLEU",
    "equivalent": "same answer",
    "factscore": "FactScore",
    "veriscore": "VeriScore",
    "factverify": "FactVerify",
}
"""Names of measures in the paper's tables."""

_SPENT: Final = ("prompts", "tokens", "cost ($)")


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a run of `n_cases` cost. `cost` is in US dollars, None if a price is unknown."""

    n_cases: int
    prompts: int
    tokens: int  # of prompts and answers together
    cost: float | None = None

    def per_case(self, total: float | None) -> float | None:
        """`total` per case; None without cases."""
        return None if total is None or not self.n_cases else total / self.n_cases


@dataclass(frozen=True, slots=True)
class GridEntry:
    """One cell of the grid: a corrector with a model on a data set."""

    corrector: str
    model: str
    data: str
    comparison: Comparison
    spent: RunCost | None = None


def comparison_table(
    entries: Iterable[GridEntry], measures: Sequence[str] = MEASURES, caption: str = "", digits: int = 3
) -> Table:
    """A row per corrector and model, in order of appearance; per data set the pairs, the number of atoms, every measure
    before and after with its mean relative gain, and the cost per case.

    Raises `ValueError` for two entries of the same cell.
    """
    by_place: dict[tuple[str, str], dict[str, GridEntry]] = {}
    data: dict[str, None] = {}
    for entry in entries:
        places = by_place.setdefault((entry.corrector, entry.model), {})
        if entry.data in places:
            raise ValueError(f"two entries for {entry.corrector}, {entry.model}, {entry.data}; allowed: one")
        places[entry.data] = entry
        data[entry.data] = None
    columns = [Column("corrector"), Column("model")]
    for name in data:
        columns += [Column("pairs", name), Column("atoms", name)]
        columns += [Column(head, name) for one in measures for head in (_head(one), f"G({_head(one)})")]
        columns += [Column(f"{what} / case", name) for what in _SPENT]
    rows: list[tuple[Cell, ...]] = []
    for (corrector, model), places in by_place.items():
        cells: list[Cell] = [corrector, model]
        for name in data:
            cells += _cells(places.get(name), measures, digits)
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows), caption, _notes(list(by_place.values())))


def _cells(entry: GridEntry | None, measures: Sequence[str], digits: int) -> list[Cell]:
    """The table cells of one grid cell, of the same kinds without an entry, so that the CSV has the same columns."""
    found = entry.comparison if entry else None
    changes = found.changes if found else {}
    atoms, spent = changes.get("n_atoms"), entry.spent if entry else None
    cells: list[Cell] = [
        CountOf(found.n_cases - found.n_failed, found.n_failed) if found else None,
        BeforeAfter(atoms.before.mean, atoms.after.mean, 1) if atoms else BeforeAfter(None, None),
    ]
    for name in measures:
        if change := changes.get(name):
            places = 1 if name == "verifiability" else digits
            cells.append(BeforeAfter(change.before.mean, change.after.mean, places))
            cells.append(MeanGain(change.gain.mean, change.gain.sd, change.test.p, change.test.marks, digits))
        else:
            cells += [BeforeAfter(None, None), MeanGain(None, None)]
    totals = (spent.prompts, spent.tokens, spent.cost) if spent else (None, None, None)
    per_case = [spent.per_case(total) if spent else None for total in totals]
    return [*cells, *(Number(value, places) for value, places in zip(per_case, (1, 0, 4), strict=True))]


def _head(measure: str) -> str:
    return HEADS.get(measure, measure)


def _notes(rows: Sequence[dict[str, GridEntry]]) -> tuple[str, ...]:
    entries = [entry for row in rows for entry in row.values()]
    notes = [
        "Means are over the cases that have the measure before and after.",
        "G: relative gain per case, mean ± standard deviation.",
        "*, **, ***: p < 0.05, 0.01, 0.001 in a one-sided paired t-test of after > before.",
    ]
    if any(entry.comparison.n_partly_failed for entry in entries):
        total = sum(entry.comparison.n_partly_failed for entry in entries)
        notes.append(f"{total} of the pairs lack some of their atoms, which failed.")
    if any(entry.comparison.n_no_atoms for entry in entries):
        total = sum(entry.comparison.n_no_atoms for entry in entries)
        notes.append(f"{total} of the pairs have a response without atoms, and so no measures.")
    return tuple(notes)
