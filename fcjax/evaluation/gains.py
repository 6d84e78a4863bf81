"""The effect of a correction: relative gains, their spread, and a significance test (SPEC 5).

Scores are paired: a case counts if it has the score before and after. Failed cases leave the pairs and are counted, and
every mean comes with the limits that the failed cases could still move it to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from fcjax.scoring.measures import relative_gain
from fcjax.scoring.summary import CONFIDENCE, RESAMPLES, SEED

SAME: Final = 2.5e-7
"""Differences no further apart than this count as equal: scores are rounded to 7 digits, so a difference of two is up
to 1e-7 from the true one, and two differences up to 2e-7 from each other."""

_DRAWN_AT_ONCE: Final = 4_000_000  # scores; bounds the bootstrap's memory


def gain(before: float | None, after: float | None) -> float | None:
    """The relative gain G of a score (SPEC 5), from -2 to 2; None if either has no value.

    Raises `ValueError` for scores below 0, for which G is not defined.
    """
    if not (_known(before) and _known(after)):
        return None
    assert before is not None
    assert after is not None
    if before < 0 or after < 0:
        raise ValueError(
            f"scores are {before!r} and {after!r}; allowed: at least 0, where the relative gain is defined"
        )
    return relative_gain(after, before)


class Span(NamedTuple):
    """A score, or None if it failed, and the limits within which it must lie; `high` may be infinite."""

    value: float | None
    low: float
    high: float

    @classmethod
    def at(cls, value: float) -> Span:
        """A known score."""
        return cls(value, value, value)


def gain_span(before: Span, after: Span) -> Span:
    """The gain of two scores and its limits: it rises with `after` and falls with `before`."""
    low, high = _outer_gain(before.high, after.low), _outer_gain(before.low, after.high)
    return Span(gain(before.value, after.value), low, high)


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of the `n` known scores, with their sample standard deviation (n - 1 degrees of freedom).

    `low` and `high` are the bootstrap interval of the mean (percentile, seeded, 95 %); `worst` and `best` are the
    limits of the mean over the `n_failed` failed scores as well. A number that does not exist is None: all of them
    without any score, `sd` and the interval for fewer than two scores, `worst` and `best` where there is no limit.
    """

    n: int = 0
    n_failed: int = 0
    mean: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    worst: float | None = None
    best: float | None = None

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Spread:
        """The spread of scores; a partly known one has its value in the mean and its limits in the extremes."""
        spans = list(spans)
        if not spans:
            return cls()
        values = np.array([span.value for span in spans if _known(span.value)], np.float64)
        worst, best = (
            _finite(sum(ends) / len(spans)) for ends in ([one.low for one in spans], [one.high for one in spans])
        )
        n = len(values)
        if not n:
            return cls(n_failed=len(spans), worst=worst, best=best)
        low, high = bootstrap(values.tolist())
        sd = float(values.std(ddof=1)) if n > 1 else None
        return cls(n, len(spans) - n, float(values.mean()), sd, low, high, worst, best)


def bootstrap(
    values: Sequence[float], *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float | None, float | None]:
    """The percentile interval of the mean over `resamples` draws with replacement; (None, None) below two values."""
    if len(values) < 2:
        return None, None
    from scipy import stats  # takes a second to import

    found = stats.bootstrap(
        (np.asarray(values, np.float64),),
        np.mean,
        n_resamples=resamples,
        batch=max(1, _DRAWN_AT_ONCE // len(values)),
        confidence_level=confidence,
        method="percentile",
        random_state=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class PairedTest:
    """A one-sided paired t-test: `p` is the probability of a mean difference this large if there were no gain.

    `t` and `p` are None where the test is not defined, and `reason` says why.
    """

    n: int  # pairs that have both scores
    t: float | None = None
    p: float | None = None
    reason: str | None = None

    @property
    def marks(self) -> str:
        """`*`, `**` or `***` for p below 0.05, 0.01 or 0.001."""
        return "" if self.p is None else "*" * sum(self.p < level for level in LEVELS)


LEVELS: Final = (0.05, 0.01, 0.001)


def paired_test(before: Sequence[float | None], after: Sequence[float | None]) -> PairedTest:
    """Whether the mean of `after` is greater than that of `before`; pairs that lack a value are left out.

    Raises `ValueError` if the two have different lengths.
    """
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if _known(a) and _known(b)]
    n = len(pairs)
    if n < 2:
        return PairedTest(n, reason=f"{n} of 2 pairs that a test needs at least")
    old, new = np.array(pairs, np.float64).T
    differences = new - old
    if float(np.ptp(differences)) <= SAME:
        same = float(differences[0])
        what = "no pair differs" if abs(same) <= SAME else f"every pair differs by the same {same:.3g}"
        return PairedTest(n, reason=f"{what}: a test needs variance")
    from scipy.stats import ttest_rel  # takes a second to import

    found = ttest_rel(new, old, alternative="greater")
    return PairedTest(n, float(found.statistic), float(found.pvalue))


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _outer_gain(before: float, after: float) -> float:
    """The gain of scores that may be infinite."""
    if math.isinf(after):
        return 2.0
    return -2.0 if math.isinf(before) else relative_gain(after, before)
