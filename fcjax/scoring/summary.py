"""The summary of a data set: counts, means with intervals, and the limits that failed rows leave open.

A summary takes result rows (SPEC 7) one at a time and keeps a few dozen sums of each. Each of its numbers is a function
of the columns' totals, so that the bootstrap over cases is one matrix product for all of them, where
`scipy.stats.bootstrap` would need a statistic each.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from fcjax.core.errors import counted
from fcjax.core.records import Label, Status
from fcjax.scoring import human_labels as agreement
from fcjax.scoring.collapse import REMEDY, AnswerCounts
from fcjax.scoring.measures import AtomCounts, K, case_measures, k_of
from fcjax.scoring.rows import Row, finite, rounded

MEANS: Final = (
    "precision",
    "recall_at_k",
    "f1_at_k",
    "e_measure",
    "entropy",
    "avg_entropy",
    "norm_entropy",
    "avg_norm_entropy",
    "verifiability",
    "verifiability_share",
)
"""The measures that are averaged over cases."""

RESAMPLES: Final = 1000
CONFIDENCE: Final = 0.95
SEED: Final = 0

_COUNTS: Final = ("n_atoms", "n_supported", "n_refuted", "n_unverified", "n_failed", "n_duplicates")
_MICRO: Final = ("precision", "verifiability")
_DRAWN_AT_ONCE: Final = 4_000_000  # cases; bounds the bootstrap's memory

# The columns kept of each case.
_VALUES: Final = slice(0, len(MEANS))
_WORST: Final = slice(len(MEANS), 2 * len(MEANS))
_BEST: Final = slice(2 * len(MEANS), 3 * len(MEANS))
_HAS: Final = 3 * len(MEANS)  # 1 if the case has measures
_DUE: Final = _HAS + 1  # 1 if it has them or failed
_UNSIZED: Final = _HAS + 2  # 1 if it failed with an unknown number of atoms
_ATOMS: Final = slice(_HAS + 3, _HAS + 3 + len(_COUNTS))
_N, _SUPPORTED, _FAILED = (_ATOMS.start + _COUNTS.index(name) for name in ("n_atoms", "n_supported", "n_failed"))
_VERIFIABLE: Final = _ATOMS.stop
_LABELS: Final = slice(_VERIFIABLE + 1, _VERIFIABLE + 1 + agreement.WIDTH)
_WIDTH: Final = _LABELS.stop


def has_failed(status: str) -> bool:
    """Whether a case of this status failed. A response without atoms has not failed, though it has no measures."""
    return Status(status).failed and status != Status.NO_ATOMS


class Summary:
    """The summary of rows; `k` is the K of the data set."""

    def __init__(self, k: K = 1) -> None:
        self.k = k
        self.statuses: Counter[str] = Counter()
        self.answers = AnswerCounts()  # of relation models
        self.n_collapsed = 0  # cases whose own answers pile up on one label
        self._columns = array("d")
        self._shares = 0.0  # of the words that claim something, summed over the rows that have one
        self._covered: Counter[str] = Counter()

    def __len__(self) -> int:
        return self.statuses.total()

    def __repr__(self) -> str:
        statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(self.statuses.items()))
        if not self.statuses:
            return "Summary(no cases)"
        totals = np.frombuffer(self._columns, np.float64).reshape(-1, _WIDTH).sum(0)
        precision = finite(_numbers(totals)["precision"])
        mean = "" if precision is None else f"; mean precision {precision:.3f}"
        return f"Summary({counted(len(self), 'case')}: {statuses}{mean}; K = {self.k})"

    @property
    def n_failed(self) -> int:
        """The number of failed cases."""
        return sum(count for status, count in self.statuses.items() if has_failed(status))

    def add(self, row: Row) -> None:
        """Add a result row."""
        self.statuses[row["status"]] += 1
        if answers := row["diagnostics"].get("answers"):
            self.answers.add(AnswerCounts.from_dict(answers))
            self.n_collapsed += "collapse" in row["diagnostics"]
        self._columns.extend(_columns(row, self.k))
        found = row.get("coverage")
        if isinstance(found, dict) and found.get("share") is not None:
            self._shares += found["share"]
            self._covered.update(cases=1, incomplete=found["n_uncovered"] > 0, passages=found["n_uncovered"])

    def _coverage(self) -> dict[str, Any] | None:
        """The mean share of the responses' claims that atoms cover; None where no row says it."""
        if not (cases := self._covered["cases"]):
            return None
        passages = {"n_incomplete": self._covered["incomplete"], "n_uncovered": self._covered["passages"]}
        return {"share": rounded(self._shares / cases), "n": cases, **passages}

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON.

        `low` and `high` are a bootstrap interval over cases (percentile, seeded), None for fewer than two cases;
        `worst` and `best` are the limits that the failed cases and atoms leave open, None without a limit.
        """
        columns = np.frombuffer(self._columns, np.float64).reshape(-1, _WIDTH)
        totals = columns.sum(0)
        labels = totals[_LABELS]
        found = _numbers(totals)
        worst, best = _extremes(totals)
        drawn = _numbers(_resampled_totals(columns)) if len(self) > 1 else {}

        def stated(name: str) -> dict[str, float | None]:
            low, high = _interval(drawn[name]) if drawn else (None, None)
            ends = {"worst": finite(worst[name]), "best": finite(best[name])}
            return {"value": finite(found[name]), "low": low, "high": high, **ends}

        rests = {
            "n": int(totals[_HAS]),
            "n_failed": self.n_failed,
            "n_partly_failed": int(np.count_nonzero(columns[:, _HAS] * columns[:, _FAILED])),
        }
        summary: dict[str, Any] = {
            "n_cases": len(self),
            "n_scored": int(totals[_HAS]),
            "n_failed": self.n_failed,
            "statuses": dict(sorted(self.statuses.items())),
            "k": self.k,
            "atoms": dict(zip(_COUNTS, totals[_ATOMS].astype(int).tolist(), strict=True)),
            "means": {name: stated(name) | rests for name in MEANS},
            "micro": {name: stated(f"micro_{name}") for name in _MICRO},
            "human_labels": None,
            "bootstrap": {"unit": "case", "confidence": CONFIDENCE, "resamples": RESAMPLES, "seed": SEED},
        }
        if np.any(labels):
            numbers = {name: stated(name) for name in agreement.NAMES}
            summary["human_labels"] = agreement.counts(labels) | numbers | {"three_way": agreement.three_way(labels)}
        if self.answers.labels:
            summary["answers"] = self.answers.to_dict() | {"n_collapsed": self.n_collapsed, "warning": self.warning}
        if coverage := self._coverage():
            summary["coverage"] = coverage
        return summary

    @property
    def warning(self) -> str | None:
        """What is to be said of a relation model that seems to answer all alike, in all cases or in some."""
        if why := self.answers.collapse:
            return f"{why}; {REMEDY}"
        if self.n_collapsed:
            return f"in {counted(self.n_collapsed, 'case')}, the answers pile up on one label; {REMEDY}"
        return None


def _columns(row: Row, k: K) -> list[float]:
    """The columns of one case."""
    atoms = [atom for atom in row["atoms"] if "duplicate_of" not in atom]
    judged, unjudged = [], []
    for atom in atoms:
        if human := atom.get("human"):
            if atom["p"] is None:
                unjudged.append(human)
            else:
                judged.append(agreement.LabelledAtom(atom["p"], Label(atom["label"]), human))
    labels = agreement.case_sums(judged, unjudged)

    measures = row["measures"]
    nothing = [0.0] * len(MEANS)
    if measures is not None:
        values = [measures[name] for name in MEANS]
        worst = best = values
        if n_failed := measures["n_failed"]:
            known = AtomCounts.of_measures(measures)
            worst, best = _means(known.worst(n_failed), k), _means(known.best(n_failed), k)
        counts = [measures[name] for name in _COUNTS]
        return [*values, *worst, *best, 1.0, 1.0, 0.0, *counts, measures["verifiability"], *labels]
    counts = [0.0, 0.0, 0.0, 0.0, len(atoms), len(row["atoms"]) - len(atoms)]
    if not has_failed(row["status"]):
        return [*nothing, *nothing, *nothing, 0.0, 0.0, 0.0, *counts, 0.0, *labels]
    if atoms:
        worst, best = _means(AtomCounts().worst(len(atoms)), k), _means(AtomCounts().best(len(atoms)), k)
        return [*nothing, *worst, *best, 0.0, 1.0, 0.0, *counts, 0.0, *labels]
    # The number of atoms is unknown: any share is possible, and a sum over atoms has no upper limit.
    worst, best = _means(AtomCounts().worst(1), k), _means(AtomCounts().best(math.ceil(k_of(k, 2))), k)
    return [*nothing, *worst, *best, 0.0, 1.0, 1.0, *counts, 0.0, *labels]


def _means(counts: AtomCounts, k: K) -> list[float]:
    found = case_measures(counts, k)
    assert found is not None  # all counts here are of some atoms
    return [found[name] for name in MEANS]


def _numbers(sums: Float[np.ndarray, "... D"]) -> dict[str, Any]:
    """Every number of a summary from totals of the columns; NaN for a number without cases."""
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums[..., _VALUES] / sums[..., _HAS, None]
        n = sums[..., _N]
        micro = {"micro_precision": sums[..., _SUPPORTED] / n, "micro_verifiability": sums[..., _VERIFIABLE] / n}
    return dict(zip(MEANS, np.moveaxis(means, -1, 0), strict=True)) | micro | agreement.agreement(sums[..., _LABELS])


def _extremes(sums: Float[np.ndarray, " D"]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The limits of `_numbers` that the failed cases and atoms leave open, worst and best; NaN without a limit."""
    unbounded = sums[_UNSIZED] > 0
    n, lost = sums[_N], sums[_FAILED]
    with np.errstate(invalid="ignore", divide="ignore"):
        ends = [dict(zip(MEANS, sums[part] / sums[_DUE], strict=True)) for part in (_WORST, _BEST)]
        for end, gained in zip(ends, (0.0, lost), strict=True):
            end["micro_precision"] = (sums[_SUPPORTED] + gained) / (n + lost)
            end["micro_verifiability"] = (sums[_VERIFIABLE] + gained) / (n + lost)
    if unbounded:
        ends[0] |= {"entropy": math.nan, "norm_entropy": math.nan, "micro_precision": 0.0, "micro_verifiability": 0.0}
        ends[1] |= {"verifiability": math.nan, "micro_precision": 1.0, "micro_verifiability": 1.0}
    worst, best = agreement.extremes(sums[_LABELS])
    return ends[0] | worst, ends[1] | best


def _resampled_totals(columns: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "R D"]:
    """The totals of the columns in each of `RESAMPLES` draws of `N` cases with replacement."""
    n = len(columns)
    draw = np.random.default_rng(SEED)
    totals = np.empty((RESAMPLES, columns.shape[1]))
    step = max(1, _DRAWN_AT_ONCE // n)
    for start in range(0, RESAMPLES, step):
        rows = min(step, RESAMPLES - start)
        drawn = draw.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        totals[start : start + rows] = weights.astype(np.float64) @ columns
    return totals


def _interval(values: Float[np.ndarray, " R"]) -> tuple[float | None, float | None]:
    """The middle `CONFIDENCE` of the resamples in which the number is defined."""
    values = values[np.isfinite(values)]
    if not len(values):
        return None, None
    low, high = np.quantile(values, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return rounded(low), rounded(high)
