"""The figures of a relation model against people: how often it is right, how sure it is, and how it is biased (SPEC 9).

Answers are distributions over `DISTRIBUTED`, and labels places in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fcjax.core.records import DISTRIBUTED, Distribution, by_label
from fcjax.scoring.summary import CONFIDENCE, RESAMPLES, SEED
from fcjax.stages.calibration import LEAST

BINS: Final = 15
_NAMES: Final = tuple(map(str, DISTRIBUTED))
_NUMBERS: Final = ("accuracy", "macro_f1", "log_loss", "ece", "ece_by_chance")
_CHANCES: Final = 200  # draws for the error that chance makes
_DIGITS: Final = 7
_TIED: Final = 12  # digits: probabilities that are equal up to here are one


class Bin(NamedTuple):
    """Answers of about the same probability: how many, their mean probability, and the share that is right."""

    n: float
    p: float
    right: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How `n` answers compare with people's labels.

    `ece` is the expected calibration error over 15 bins of equal mass of the probability of the answer. Chance alone
    makes some of it: `ece_by_chance` is the mean of it where each answer is right with just its probability. They and
    `log_loss` (in nats) are None where there are no usable probabilities. `intervals` has the 95 % bootstrap interval
    of each number, by name; pairs of one premise are drawn together. It is empty for fewer than two premises.
    """

    n: int
    accuracy: float
    macro_f1: float  # over the labels that people or the model gave
    log_loss: float | None
    ece: float | None
    ece_by_chance: float | None
    confusion: tuple[tuple[int, int, int], ...]  # a row per label of people, a column per answer
    mean: Distribution  # of the answers
    shares: Distribution  # of people's labels
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    bins: tuple[Bin, ...] = ()  # of the reliability diagram, from the least to the most probable answers

    @property
    def answered(self) -> Distribution:
        """The share of each label among the answers."""
        entailment, contradiction, neutral = (sum(column) / self.n for column in zip(*self.confusion, strict=True))
        return entailment, contradiction, neutral

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON, to 7 digits."""
        numbers = {name: _rounded(getattr(self, name)) for name in _NUMBERS}
        confusion = {
            label: dict(zip(_NAMES, row, strict=True)) for label, row in zip(_NAMES, self.confusion, strict=True)
        }
        bias = {
            "mean": _rounded_by_label(self.mean),
            "shares": _rounded_by_label(self.shares),
            "answered": _rounded_by_label(self.answered),
        }
        return {
            "n": self.n,
            **numbers,
            "intervals": {name: [_rounded(end) for end in ends] for name, ends in self.intervals.items()},
            "confusion": confusion,
            "bias": bias,
            "reliability": [{"n": one.n, "p": _rounded(one.p), "right": _rounded(one.right)} for one in self.bins],
        }


def answers_of(q: Float[np.ndarray, "N 3"], given: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """The likeliest label of each distribution; the `given` one on a tie, to rounding, as in `likeliest`."""
    own = np.take_along_axis(q, given[:, None], axis=1)[:, 0]
    best: Int[np.ndarray, " N"] = np.where(own >= q.max(axis=1) - 1e-9, given, q.argmax(axis=1))
    return best


def figures_of(
    q: Float[np.ndarray, "N 3"],
    answers: Int[np.ndarray, " N"],
    labels: Int[np.ndarray, " N"],
    groups: Sequence[str],
    *,
    usable: bool = True,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Figures:
    """The figures of the distributions `q` of N >= 1 `answers`. `groups` names the premise of each; `usable` says
    whether the probabilities mean anything."""
    n = len(labels)
    p = np.take_along_axis(q, answers[:, None], axis=1)[:, 0]
    surprise = surprises(q, labels)
    right = (answers == labels).astype(np.float64)
    cells = np.zeros((n, 3, 3))
    cells[np.arange(n), labels, answers] = 1.0
    confusion = cells.sum(axis=0)
    bins = _Bins(p, right)
    ones = np.ones(n, np.int64)
    mean, shares = q.mean(axis=0).tolist(), np.bincount(labels, minlength=3) / n
    statistics = {"accuracy": float(right.mean()), "macro_f1": float(macro_f1(confusion[None])[0])}
    if usable:
        statistics |= {"log_loss": float(surprise.mean()), "ece": bins.error(ones)}
    intervals: dict[str, tuple[float, float]] = {}
    if len(set(groups)) > 1:
        draws: dict[str, list[float]] = {name: [] for name in statistics}
        for weights in resampled(groups, resamples, seed):
            total = weights.sum()
            draws["accuracy"].append(float(weights @ right / total))
            draws["macro_f1"].append(float(macro_f1(np.tensordot(weights, cells, 1)[None])[0]))
            if usable:
                draws["log_loss"].append(float(weights @ surprise / total))
                draws["ece"].append(bins.error(weights))
        for name, found in draws.items():
            low, high = interval(found)
            intervals[name] = (min(low, statistics[name]), max(high, statistics[name]))
    return Figures(
        n=n,
        accuracy=statistics["accuracy"],
        macro_f1=statistics["macro_f1"],
        log_loss=statistics.get("log_loss"),
        ece=statistics.get("ece"),
        ece_by_chance=bins.error_by_chance(seed) if usable else None,
        confusion=tuple((int(a), int(b), int(c)) for a, b, c in confusion.tolist()),
        mean=(mean[0], mean[1], mean[2]),
        shares=(float(shares[0]), float(shares[1]), float(shares[2])),
        intervals=intervals,
        bins=bins.of(ones) if usable else (),
    )


def surprises(q: Float[np.ndarray, "N 3"], labels: Int[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """-ln of the probability of each label, in nats; its mean is the log loss."""
    found: Float[np.ndarray, " N"] = -np.log(np.maximum(np.take_along_axis(q, labels[:, None], axis=1)[:, 0], LEAST))
    return found


def resampled(groups: Sequence[str], resamples: int = RESAMPLES, seed: int = SEED) -> Iterator[Int[np.ndarray, " N"]]:
    """How often each answer occurs in each bootstrap sample of premises; all answers of a premise occur together."""
    names = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    place = np.array([names[name] for name in groups])
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        yield generator.multinomial(len(names), np.full(len(names), 1 / len(names)))[place]


def interval(found: Sequence[float]) -> tuple[float, float]:
    """The middle `CONFIDENCE` of the bootstrap samples of a number."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(found, [tail, 1 - tail]).tolist()
    return low, high


def macro_f1(confusion: Float[np.ndarray, "R 3 3"]) -> Float[np.ndarray, " R"]:
    """The mean F1 of the labels, of each table with a row per true label; a label that nobody gave does not count."""
    both = np.diagonal(confusion, axis1=1, axis2=2)
    total = confusion.sum(axis=1) + confusion.sum(axis=2)
    known = total > 0
    scores = 2 * both / np.where(known, total, 1)
    mean: Float[np.ndarray, " R"] = scores.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return mean


class _Bins:
    """Answers in bins of equal mass, by their probability. Of answers that are equally probable, each counts as right
    as they are on average, so that their order has no effect."""

    def __init__(self, p: Float[np.ndarray, " N"], right: Float[np.ndarray, " N"]):
        self._order = np.argsort(p, kind="stable")
        self._p, self._right = p[self._order], right[self._order]
        _, self._tie = np.unique(np.round(self._p, _TIED), return_inverse=True)

    def of(self, weights: Int[np.ndarray, " N"]) -> tuple[Bin, ...]:
        """The bins where answer i occurs `weights[i]` times."""
        n, p, right = self._sums(weights)
        return tuple(Bin(int(a), float(b / a), float(c / a)) for a, b, c in zip(n, p, right, strict=True))

    def error(self, weights: Int[np.ndarray, " N"]) -> float:
        """The expected calibration error."""
        n, p, right = self._sums(weights)
        return float(np.abs(p - right).sum() / n.sum())

    def error_by_chance(self, seed: int) -> float:
        """The mean error where each answer is right with just its probability."""
        generator = np.random.default_rng(seed)
        n, p, _ = self._sums(np.ones(len(self._p), np.int64))
        starts = np.concatenate([[0], np.cumsum(n)[:-1]])
        errors = [
            np.abs(p - np.add.reduceat((generator.random(len(self._p)) < self._p).astype(np.float64), starts)).sum()
            for _ in range(_CHANCES)
        ]
        return float(np.mean(errors) / n.sum())

    def _sums(self, weights: Int[np.ndarray, " N"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The size of each bin, and its sums of probabilities and of right answers."""
        weights = weights[self._order]
        ties = self._tie
        counts = np.bincount(ties, weights, minlength=ties[-1] + 1)
        mean_right = np.bincount(ties, weights * self._right, minlength=len(counts)) / np.maximum(counts, 1)
        drawn = np.repeat(np.arange(len(weights)), weights)
        n = len(drawn)
        count = min(BINS, n)
        sizes = np.full(count, n // count)
        sizes[: n % count] += 1  # as in numpy.array_split
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        return sizes, np.add.reduceat(self._p[drawn], starts), np.add.reduceat(mean_right[ties[drawn]], starts)


def _rounded_by_label(values: Sequence[float]) -> dict[str, float]:
    return by_label([round(value, _DIGITS) for value in values])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS) + 0.0
