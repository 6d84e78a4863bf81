"""The gate of an examination: a relation model must beat its baselines by more than chance.

The calibrated answers, cross-validated, are compared with always the commonest label and with the cosine of an
embedding on the same pairs: the mean difference in log loss, with its interval of a paired bootstrap by premise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float

from fcjax.core.errors import counted
from fcjax.evaluation.baselines import Baselines
from fcjax.evaluation.relation_figures import interval, resampled

FEWEST: Final = 30
"""Pairs below which nothing is shown, whatever the interval: those of few pairs are too narrow."""
FEWEST_PREMISES: Final = 10
"""The same of premises, which are what is drawn."""
BETTER: Final = 300
"""Pairs that give usable figures."""
_MOST: Final = 1e3  # times as narrow as an interval is; such a small difference cannot be shown
_DIGITS: Final = 7


@dataclass(frozen=True, slots=True)
class Margin:
    """By how much the relation model is better than a baseline on average over pairs, with its 95 % interval: in nats
    of log loss, or in accuracy."""

    difference: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """The margin as JSON, to 7 digits."""
        ends = [round(self.low, _DIGITS) + 0.0, round(self.high, _DIGITS) + 0.0]
        return {"difference": round(self.difference, _DIGITS) + 0.0, "interval": ends}


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Whether a relation model may be used without --force.

    `passed`: it is better than both baselines by more than chance, and its accuracy is not below the commonest label's
    by more than chance. `failed`: it is worse, or no better. `not shown`: it may be better, and there are too few
    pairs to say; `pairs_needed` is about how many could show it, if known.
    """

    status: Literal["passed", "failed", "not shown"]
    reasons: tuple[str, ...]
    n_pairs: int
    log_loss: dict[str, Margin] = field(default_factory=dict)  # by the baseline, commonest and cosine
    accuracy: Margin | None = None  # over the commonest label's
    pairs_needed: int | None = None

    @property
    def passed(self) -> bool:
        """Whether the gate was passed."""
        return self.status == "passed"

    @property
    def verdict(self) -> str:
        """The status with the reasons, as one text."""
        return f"{self.status}: {'; '.join(self.reasons)}"

    def to_dict(self) -> dict[str, Any]:
        """The gate as JSON, and as the file of a calibration has it under `figures`."""
        return {
            "passed": self.passed,
            "status": self.status,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "n_pairs": self.n_pairs,
            "log_loss": {name: margin.to_dict() for name, margin in self.log_loss.items()},
            "accuracy": None if self.accuracy is None else self.accuracy.to_dict(),
            "pairs_needed": self.pairs_needed,
        }


def gate_of(
    losses: Float[np.ndarray, " N"] | None,
    right: Float[np.ndarray, " N"] | None,
    baselines: Baselines | None,
    groups: Sequence[str],
) -> Gate:
    """The gate of a relation model whose calibrated answers have these `losses` in nats, and are `right` (1) or wrong
    (0). `groups` names the premise of each answer.

    `losses` and `right` are None where the answers could not be calibrated by cross-validation, `baselines` where
    nothing was answered; then nothing is shown.
    """
    n, premises = len(groups), len(set(groups))
    if baselines is None or losses is None or right is None or baselines.commonest.right is None or premises < 2:
        why = (
            f"{counted(n, 'answered pair')} of one premise or one label cannot be cross-validated"
            if n
            else "no pair was answered"
        )
        reason = f"{why}; use {BETTER} pairs of all labels and of {FEWEST_PREMISES} premises or more"
        return Gate(status="not shown", reasons=(reason,), n_pairs=n, pairs_needed=BETTER)
    margins: dict[str, Margin] = {}
    reasons: list[str] = []
    needed: list[int] = []
    failed = False
    for key, baseline in (("commonest", baselines.commonest), ("cosine", baselines.cosine)):
        assert baseline.losses is not None  # there are several premises
        margin = margins[key] = _margin(baseline.losses - losses, groups)
        name = f"always answering {baseline.of}" if key == "commonest" else f"the {baseline.name}"
        word = "better than"
        if margin.low <= 0:
            failed |= margin.difference <= 0
            word = "no better than" if margin.difference <= 0 else "not shown to be better than"
            word = "worse than" if margin.high < 0 else word
        if margin.low <= 0 < margin.difference:
            needed.append(_needed(n, margin))
        reasons.append(
            f"{word} {name}: log loss {losses.mean():.3f} against {baseline.losses.mean():.3f}, "
            f"by {margin.difference:+.3f} ({margin.low:+.3f} to {margin.high:+.3f})"
        )
    accuracy = _margin(right - baselines.commonest.right, groups)
    if accuracy.high < 0:
        failed = True
        reasons.append(
            f"less often right than always answering {baselines.commonest.of}: accuracy {right.mean():.3f} against "
            f"{baselines.commonest.right.mean():.3f}, by {accuracy.difference:+.3f} "
            f"({accuracy.low:+.3f} to {accuracy.high:+.3f})"
        )
    few = n < FEWEST or premises < FEWEST_PREMISES
    if few:
        found = f"{counted(n, 'answered pair')} of {counted(premises, 'premise')}"
        use = f"use {FEWEST} pairs of {FEWEST_PREMISES} premises or more, better {BETTER}"
        reasons.insert(0, f"{found}, too few to tell; {use}")
    elif needed and not failed:
        reasons.append(f"about {max(needed):,} pairs could show it")
    status: Literal["passed", "failed", "not shown"] = "passed"
    if few or needed:
        status = "not shown"
    if failed and not few:
        status = "failed"
    return Gate(
        status=status,
        reasons=tuple(reasons),
        n_pairs=n,
        log_loss=margins,
        accuracy=accuracy,
        pairs_needed=max([BETTER, *needed] if few else needed) if status == "not shown" else None,
    )


def _margin(better: Float[np.ndarray, " N"], groups: Sequence[str]) -> Margin:
    mean = float(better.mean())
    low, high = interval([float(weights @ better / weights.sum()) for weights in resampled(groups)])
    return Margin(mean, min(low, mean), max(high, mean))


def _needed(n: int, margin: Margin) -> int:
    """About how many pairs would bring the interval's lower end above 0 if the difference stays: its distance from
    the mean falls with the root of their number. To two digits."""
    exact = n * min((margin.difference - margin.low) / margin.difference, _MOST) ** 2
    step = 10 ** max(math.floor(math.log10(exact)) - 1, 0)
    return max(math.ceil(exact / step) * step, n + 1)
