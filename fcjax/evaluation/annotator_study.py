"""Human evaluation of corrections: per criterion the mean ratings of both answers, the wins, and the agreement.

Every task counts once, however many annotators it had: their judgements of it are averaged first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from fcjax.evaluation.inter_rater import Unit, fleiss_kappa, krippendorff_alpha, pairwise_kappa, percent_agreement
from fcjax.evaluation.tables import Cell, Column, Number, Share, Table
from fcjax.io.datasets.label_studio import COMPARISONS, RATINGS, VERDICTS, Annotation

ORIGINAL, CORRECTED = "original", "corrected"


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """Agreement between annotators; None where nothing was judged twice, see `fcjax.evaluation.inter_rater`."""

    units: int  # judged at least twice
    percent: float | None
    cohen: float | None  # averaged over pairs of annotators
    fleiss: float | None
    alpha: float | None  # Krippendorff's; for ratings with the interval distance


@dataclass(frozen=True, slots=True)
class Criterion:
    """One row of the table. Wins, ties and losses are shares of tasks, seen from the corrected answer."""

    name: str
    tasks: int
    judgements: int
    original: float | None  # mean rating; None for a comparison
    corrected: float | None
    wins: float | None
    ties: float | None
    losses: float | None
    agreement: RaterAgreement


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The annotators' verdicts on the statements to which the critic gave one label, as shares of statements.

    The verdict on a statement is that of the majority, `cannot tell` on a tie.
    """

    label: str
    statements: int
    shares: dict[str, float]


@dataclass(frozen=True, slots=True)
class Study:
    """The result of a human evaluation."""

    tasks: int
    annotators: int
    criteria: tuple[Criterion, ...]
    verdicts: tuple[Verdicts, ...]
    statements: RaterAgreement | None  # None without judged statements

    def to_dict(self) -> dict[str, Any]:
        """The study as JSON."""
        return asdict(self)

    def tables(self) -> tuple[Table, ...]:
        """A table of the criteria and, if statements were judged, one of the verdicts."""
        names = ["criterion", "tasks", "original", "corrected", "wins", "ties", "losses"]
        names += ["agreement", "Cohen", "Fleiss", "alpha"]
        found = [Table(tuple(map(Column, names)), tuple(map(_criterion_cells, self.criteria)))]
        if self.verdicts:
            names = ["critic's label", "statements", *VERDICTS]
            rows: list[tuple[Cell, ...]] = [
                (one.label, one.statements, *(Share(one.shares[verdict]) for verdict in VERDICTS))
                for one in self.verdicts
            ]
            found.append(Table(tuple(map(Column, names)), tuple(rows)))
        return tuple(found)

    def to_markdown(self) -> str:
        """The tables as Markdown; a dash where there is no value."""
        return "\n".join(table.markdown() for table in self.tables())


def study(judgements: Iterable[Annotation]) -> Study:
    """The result of the judgements."""
    judgements = list(judgements)
    rows = []
    for name in (*RATINGS, *COMPARISONS):
        found = [one for one in judgements if one.criterion == name]
        if found:
            rows.append(_rating(name, found) if name in RATINGS else _comparison(name, found))
    statements = [one for one in judgements if one.criterion == "statement"]
    return Study(
        tasks=len({one.task for one in judgements}),
        annotators=len({one.annotator for one in judgements}),
        criteria=tuple(rows),
        verdicts=tuple(_verdicts(statements)),
        statements=_agreed(_units(statements)) if statements else None,
    )


def _rating(name: str, judgements: Sequence[Annotation]) -> Criterion:
    means: dict[str, dict[str, float]] = {}
    for side in (ORIGINAL, CORRECTED):
        by_task = defaultdict(list)
        for one in judgements:
            if one.side == side:
                by_task[one.task].append(float(one.value))
        means[side] = {task: fmean(values) for task, values in by_task.items()}
    gains = [means[CORRECTED][task] - value for task, value in means[ORIGINAL].items() if task in means[CORRECTED]]
    original, corrected = (fmean(means[side].values()) if means[side] else None for side in (ORIGINAL, CORRECTED))
    shares = _shares([(gain > 0) - (gain < 0) for gain in gains])
    tasks = len({one.task for one in judgements})
    agreement = _agreed(_units(judgements), interval=True)
    return Criterion(name, tasks, len(judgements), original, corrected, *shares, agreement)


def _comparison(name: str, judgements: Sequence[Annotation]) -> Criterion:
    score = {CORRECTED: 1, ORIGINAL: -1}
    by_task: Counter[str] = Counter()
    for one in judgements:
        by_task[one.task] += score.get(str(one.value), 0)
    signs = [(total > 0) - (total < 0) for total in by_task.values()]
    agreement = _agreed(_units(judgements))
    return Criterion(name, len(by_task), len(judgements), None, None, *_shares(signs), agreement)


def _shares(signs: Sequence[int]) -> tuple[float | None, float | None, float | None]:
    """The shares of wins, ties and losses."""
    if not signs:
        return None, None, None
    counts = Counter(signs)
    return counts[1] / len(signs), counts[0] / len(signs), counts[-1] / len(signs)


def _verdicts(judgements: Sequence[Annotation]) -> Iterable[Verdicts]:
    said: dict[tuple[str, int | None], Counter[str]] = defaultdict(Counter)
    labels: dict[tuple[str, int | None], str] = {}
    for one in judgements:
        said[one.task, one.item][str(one.value)] += 1
        labels[one.task, one.item] = one.label or "(none)"
    by_label: dict[str, Counter[str]] = defaultdict(Counter)
    for unit, counts in said.items():
        (first, most), *others = counts.most_common()
        tied = bool(others) and others[0][1] == most
        by_label[labels[unit]][VERDICTS[-1] if tied else first] += 1
    for label in sorted(by_label):
        counts = by_label[label]
        yield Verdicts(label, counts.total(), {verdict: counts[verdict] / counts.total() for verdict in VERDICTS})


def _units(judgements: Iterable[Annotation]) -> list[Unit]:
    """The judgements of each unit, by annotator."""
    units: dict[tuple[str, str | None, int | None], dict[str, float | str]] = defaultdict(dict)
    for one in judgements:
        units[one.task, one.side, one.item][one.annotator] = one.value
    return list(units.values())


def _agreed(units: Sequence[Unit], *, interval: bool = False) -> RaterAgreement:
    return RaterAgreement(
        sum(len(unit) > 1 for unit in units),
        percent_agreement(units),
        pairwise_kappa(units),
        fleiss_kappa(units),
        krippendorff_alpha(units, "interval" if interval else "nominal"),
    )


def _criterion_cells(row: Criterion) -> tuple[Cell, ...]:
    means, shares = (row.original, row.corrected), (row.wins, row.ties, row.losses, row.agreement.percent)
    agreement = (row.agreement.cohen, row.agreement.fleiss, row.agreement.alpha)
    return (
        row.name,
        row.tasks,
        *(Number(mean, 2) for mean in means),
        *map(Share, shares),
        *(Number(value, 2) for value in agreement),
    )
