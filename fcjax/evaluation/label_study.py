"""The critic against human labels: its labels, probabilities and feedback (SPEC 5, 6).

Everything is computed from result rows, in which an atom's human label is `human`. The baseline counts the passages
that support a claim and those that contradict it, without any model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from fcjax.core.records import EPS, Case, Label, RelationType, Status
from fcjax.evaluation.tables import Cell, Column, CountOf, Interval, Number, Table
from fcjax.scoring.human_labels import HUMAN
from fcjax.scoring.measures import median_k
from fcjax.scoring.rows import Row, case_row
from fcjax.scoring.score_cases import Job, job, posteriors, rows
from fcjax.scoring.settings import Settings
from fcjax.scoring.summary import Summary

BASELINE: Final = "majority of stances"

_NUMBERS: Final = {
    "accuracy": "accuracy",
    "f1_refuted": "F1 refuted",
    "f1_supported": "F1 supported",
    "brier": "Brier",
    "ece": "ECE",
    "mae_precision": "MAE of Pr",
}


@dataclass(frozen=True, slots=True)
class FeedbackQuality:
    """How feedback with every refuted and unverified atom (SPEC 6) compares with human labels.

    `found` is the share of the human-false claims that it contains, `mistaken` that of the human-true ones that it
    contains by mistake; `found_refuted` and `mistaken_refuted` are the parts that it calls refuted. None without such
    claims. Failed atoms are in neither share; `n_failed` counts them.
    """

    n_false: int
    n_true: int
    n_failed: int
    found: float | None
    mistaken: float | None
    found_refuted: float | None
    mistaken_refuted: float | None

    @classmethod
    def of(cls, three_way: Mapping[str, Mapping[str, int]], n_failed: int = 0) -> FeedbackQuality:
        """From counts of atoms by human label and by label."""
        shares: list[float | None] = []
        totals = []
        for human in ("NS", "S"):
            labels = three_way[human]
            total = sum(labels.values())
            totals.append(total)
            for inside in ((Label.REFUTED, Label.UNVERIFIED), (Label.REFUTED,)):
                shares.append(sum(labels[label] for label in inside) / total if total else None)
        found, found_refuted, mistaken, mistaken_refuted = shares
        return cls(totals[0], totals[1], n_failed, found, mistaken, found_refuted, mistaken_refuted)


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """How the rows of a run agree with human labels.

    `numbers` has the entries of `Summary` for accuracy, f1_supported, f1_refuted, mae_precision, brier and ece:
    `value`, the bootstrap interval `low` and `high`, and the limits `worst` and `best` that failed atoms leave open.
    Unverified counts as NS in accuracy and F1.
    """

    n_cases: int
    n_atoms: int
    n_failed: int
    numbers: Mapping[str, Mapping[str, float | None]]
    three_way: Mapping[str, Mapping[str, int]]  # human label -> label -> atoms
    feedback: FeedbackQuality

    @classmethod
    def of(cls, found: Iterable[Row]) -> LabelAgreement | None:
        """The agreement of rows; None if no atom has a human label."""
        summary = Summary()
        for row in found:
            summary.add(row)
        labels = summary.to_dict()["human_labels"]
        if labels is None:
            return None
        numbers = {name: labels[name] for name in _NUMBERS}
        feedback = FeedbackQuality.of(labels["three_way"], labels["n_failed"])
        return cls(labels["n_cases"], labels["n_atoms"], labels["n_failed"], numbers, labels["three_way"], feedback)

    def to_dict(self) -> dict[str, Any]:
        """The agreement as JSON."""
        return asdict(self)


class _Majority:
    """A posterior that counts stances: P = (for + 1) / (for + against + 2), Laplace's estimate; 1/2 on a tie.

    It has the attributes of a posterior that `case_row` reads, so that failures, duplicates and labels are treated as
    in the critic's rows.
    """

    status, reason, method, width = Status.OK, None, "majority", 0
    log_z = float("nan")

    def __init__(self, ready: Job) -> None:
        atoms = {atom.id for atom in ready.case.atoms or ()}
        counts: dict[str, list[int]] = {}
        for relation in ready.graph.relations:
            if relation.type is RelationType.NEUTRAL:
                continue
            for end, other in ((relation.source, relation.target), (relation.target, relation.source)):
                if end in atoms and other not in atoms:
                    counts.setdefault(end, [0, 0])[relation.type is RelationType.CONTRADICTION] += 1
        ends = {name: counts.get(ready.graph.aliases.get(name, name), [0, 0]) for name in atoms}
        self.p = {name: (support + 1) / (support + against + 2) for name, (support, against) in ends.items()}
        self.lower = {name: max(p - EPS, 0.0) for name, p in self.p.items()}
        self.upper = {name: min(p + EPS, 1.0) for name, p in self.p.items()}
        self.certain = dict.fromkeys(self.p, True)


def scored(cases: Sequence[Case], settings: Settings) -> list[Row]:
    """The rows of cases with relations, in order; K is that of these cases if the settings have none."""
    if settings.k is None:
        settings = replace(settings, k=median_k(len(case.atoms) for case in cases if case.atoms is not None))
    jobs = [job(case, settings) for case in cases]
    return list(rows(jobs, posteriors(jobs, settings), settings))


def majority(cases: Iterable[Case], settings: Settings | None = None) -> list[Row]:
    """The rows of the baseline, on the relations of the settings' version; probabilities are not used."""
    settings = settings or Settings()

    def row(one: Job | Row) -> Row:
        if not isinstance(one, Job):
            return one
        found: Any = _Majority(one)
        return case_row(one.case, one.graph, found, k=settings.k or 1, version=settings.version, fingerprint="")

    return [row(job(case, settings)) for case in cases]


def presets() -> dict[str, Settings]:
    """Both presets, with each atom's own contexts (FR1) and with all relations."""
    return {
        f"{preset}, {version or 'all relations'}": Settings(preset=preset, version=version)
        for preset in ("paper", "release")
        for version in ("FR1", None)
    }


def agreements(
    cases: Sequence[Case], settings: Mapping[str, Settings] | None = None
) -> dict[str, LabelAgreement | None]:
    """The baseline with FR1 and with all relations, then each of `settings` (by default `presets`), by name."""
    found = {
        f"{BASELINE}, FR1": majority(cases, Settings(version="FR1")),
        f"{BASELINE}, all relations": majority(cases),
    }
    for name, chosen in (presets() if settings is None else settings).items():
        found[name] = scored(cases, chosen)
    return {name: LabelAgreement.of(result) for name, result in found.items()}


def table(found: Mapping[str, LabelAgreement | None], caption: str = "") -> Table:
    """The agreement of labels, probabilities and feedback with human labels, one row per run; numbers only."""
    columns = ["labels by", "atoms", *_NUMBERS.values(), "false claims found", "true claims by mistake"]
    lines: list[tuple[Cell, ...]] = []
    for name, one in found.items():
        if one is None:
            lines.append((name, *[None] * (len(columns) - 1)))
            continue
        estimates = (one.numbers[number] for number in _NUMBERS)
        lines.append(
            (
                name,
                CountOf(one.n_atoms, one.n_failed),
                *(Interval(number["value"], number["low"], number["high"]) for number in estimates),
                Number(one.feedback.found),
                Number(one.feedback.mistaken),
            )
        )
    notes = (
        "Atoms with a human label, duplicates within a case left out; unverified counts as NS in accuracy and F1.",
        "Brier, ECE and MAE are errors: lower is better. In brackets: 95 % bootstrap interval over cases.",
        "Found, by mistake: the share of the human-false and of the human-true claims that the feedback contains, as "
        "refuted or unverified.",
    )
    return Table(tuple(map(Column, columns)), tuple(lines), caption, notes)


def three_way_table(found: Mapping[str, LabelAgreement | None], caption: str = "") -> Table:
    """Atoms by human label (S, NS) and by label, one row per run."""
    columns = [Column("labels by"), *(Column(str(label), f"human {human}:") for human in HUMAN for label in Label)]
    lines: list[tuple[Cell, ...]] = []
    for name, one in found.items():
        counts = [one.three_way[human][label] if one else None for human in HUMAN for label in Label]
        lines.append((name, *counts))
    return Table(tuple(columns), tuple(lines), caption)
