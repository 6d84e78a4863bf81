"""Agreement between raters of the same units: per cent, kappa, alpha.

A unit maps the names of its raters to their ratings; raters without a rating are left out, and so are units with fewer
than two ratings. All measures are None if there is nothing to compare; kappa and alpha also if all ratings are equal,
because the agreement by chance is 1 then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Literal

Rating = float | str
Unit = Mapping[str, Rating]
Level = Literal["nominal", "interval"]


def percent_agreement(units: Sequence[Unit]) -> float | None:
    """The share of pairs of ratings of one unit that are equal, averaged over units."""
    shares = []
    for ratings in _paired(units):
        counts, n = Counter(ratings), len(ratings)
        shares.append(sum(count * (count - 1) for count in counts.values()) / (n * (n - 1)))
    return fmean(shares) if shares else None


def cohen_kappa(first: Sequence[Rating], second: Sequence[Rating]) -> float | None:
    """Cohen's (1960) kappa of two raters, from their ratings of the same units in the same order."""
    n = len(first)
    if not n or n != len(second):
        return None
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / n
    one, two = Counter(first), Counter(second)
    expected = sum(one[value] * two[value] for value in one) / n**2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def pairwise_kappa(units: Sequence[Unit]) -> float | None:
    """Cohen's kappa averaged over the pairs of raters, each over the units that both rated."""
    raters = sorted({name for unit in units for name in unit})
    kappas = []
    for a, b in combinations(raters, 2):
        both = [unit for unit in units if a in unit and b in unit]
        kappa = cohen_kappa([unit[a] for unit in both], [unit[b] for unit in both])
        kappas += [] if kappa is None else [kappa]
    return fmean(kappas) if kappas else None


def fleiss_kappa(units: Sequence[Unit]) -> float | None:
    """Fleiss' (1971) kappa; with different numbers of ratings per unit, each unit counts by its own share."""
    paired = _paired(units)
    observed = percent_agreement(units)
    if observed is None:
        return None
    totals: Counter[Rating] = Counter()
    for ratings in paired:
        totals.update(ratings)
    n = totals.total()
    expected = sum((count / n) ** 2 for count in totals.values())
    return None if expected == 1 else (observed - expected) / (1 - expected)


def krippendorff_alpha(units: Sequence[Unit], level: Level = "nominal") -> float | None:
    """Krippendorff's (2011) alpha; `interval` weighs a disagreement by the square of the difference."""
    paired = _paired(units)
    n = sum(map(len, paired))
    if not n:
        return None
    totals: Counter[Rating] = Counter()
    observed = 0.0
    for ratings in paired:
        totals.update(ratings)
        observed += _spread(Counter(ratings), level) / (len(ratings) - 1)
    expected = _spread(totals, level) / (n - 1)
    return None if expected == 0 else 1 - observed / expected


def _spread(counts: Counter[Rating], level: Level) -> float:
    """The sum of the differences over all ordered pairs of ratings."""
    if level == "nominal":
        n = counts.total()
        return float(n * n - sum(count * count for count in counts.values()))
    return float(sum(2 * counts[a] * counts[b] * (float(a) - float(b)) ** 2 for a, b in combinations(counts, 2)))


def _paired(units: Sequence[Unit]) -> list[list[Rating]]:
    """The ratings of the units that have at least two."""
    return [list(unit.values()) for unit in units if len(unit) > 1]
