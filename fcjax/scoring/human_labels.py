"""Agreement with human labels (SPEC 5), as sums that add up over atoms and cases.

Every number here is a function of a few sums, so the same code serves one case, a data set, and a thousand bootstrap
resamples of it at once: weight the sums of the cases, add them, and compute the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float

from fcjax.core.records import Label

HUMAN: Final = ("S", "NS")
N_BINS: Final = 10
"""Bins of the calibration error: equally wide in P, each without its upper end except the last."""

NAMES: Final = ("accuracy", "f1_supported", "f1_refuted", "mae_precision", "brier", "ece")

_LABELS: Final = tuple(Label)
_TABLE: Final = slice(0, 6)  # atoms by [human S, NS][label supported, refuted, unverified]
_FAILED: Final = slice(6, 8)  # atoms without a posterior, by [human S, NS]
_BRIER: Final = 8  # sum of (P - [human S]) ** 2
_BINS: Final = slice(9, 9 + 3 * N_BINS)  # by bin: atoms, sum of P, atoms with human S
_PR_ERROR: Final = _BINS.stop  # |Pr - share of human S| of the case
_PR_CASES: Final = _PR_ERROR + 1  # 1 if the case has it
_PR_WORST: Final = _PR_ERROR + 2  # the same with the failed atoms counted in, at its largest
_PR_BEST: Final = _PR_ERROR + 3  # and at its smallest
_PR_DUE: Final = _PR_ERROR + 4  # 1 if the case has any human label
WIDTH: Final = _PR_DUE + 1
"""The number of sums per case."""


class LabelledAtom(NamedTuple):
    """An atom with both a posterior and a human label."""

    p: float
    label: Label
    human: str  # one of `HUMAN`


def case_sums(judged: Iterable[LabelledAtom], failed: Iterable[str] = ()) -> list[float]:
    """The `WIDTH` sums of one case; all zero without a human label.

    `failed` holds the human labels of atoms without a posterior. Pr of the case and the share of human S are both over
    the labelled atoms.
    """
    sums = [0.0] * WIDTH
    n = supported = true = 0
    for p, label, human in judged:
        is_true = human == "S"
        n, supported, true = n + 1, supported + (label is Label.SUPPORTED), true + is_true
        sums[(0 if is_true else 3) + _LABELS.index(label)] += 1
        sums[_BRIER] += (p - is_true) ** 2
        at = _BINS.start + 3 * min(int(p * N_BINS), N_BINS - 1)
        sums[at] += 1
        sums[at + 1] += p
        sums[at + 2] += is_true
    if n:
        sums[_PR_ERROR], sums[_PR_CASES] = abs(supported - true) / n, 1
    lost = lost_true = 0
    for human in failed:
        lost, lost_true = lost + 1, lost_true + (human == "S")
    if n + lost:
        sums[_FAILED] = [lost_true, lost - lost_true]
        ahead = supported - true - lost_true  # of the human labels, if no failed atom is supported
        sums[_PR_WORST] = max(abs(ahead), abs(ahead + lost)) / (n + lost)
        sums[_PR_BEST] = max(ahead, -ahead - lost, 0) / (n + lost)
        sums[_PR_DUE] = 1
    return sums


def agreement(sums: Float[np.ndarray, "... D"]) -> dict[str, Float[np.ndarray, "..."]]:
    """The numbers (`NAMES`) for sums of `case_sums`; NaN for a number that no labelled atom contributes to.

    `unverified` counts as NS. `f1_supported` has S as its positive class, `f1_refuted` has NS. `mae_precision` is the
    mean over cases of |Pr - share of human S|; `ece` is the calibration error of P over `N_BINS` bins.
    """
    bins = sums[..., _BINS].reshape(*sums.shape[:-1], N_BINS, 3)
    off = np.abs(bins[..., 1] - bins[..., 2]).sum(-1)
    return _numbers(sums[..., _TABLE], sums[..., _BRIER], sums[..., _PR_ERROR], sums[..., _PR_CASES], off)


def extremes(sums: Float[np.ndarray, " D"]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The worst and best numbers of `agreement` that the failed atoms could still lead to, as outer bounds."""
    found = sums[_TABLE].reshape(2, 3)
    lost = sums[_FAILED]
    wrong, right = found.copy(), found.copy()
    for human, (good, bad) in enumerate(((0, 1), (1, 0))):
        right[human, good] += lost[human]
        wrong[human, bad] += lost[human]
    bins = sums[_BINS].reshape(N_BINS, 3)
    off, n_lost = np.abs(bins[:, 1] - bins[:, 2]).sum(), lost.sum()
    return (
        _numbers(wrong.ravel(), sums[_BRIER] + n_lost, sums[_PR_WORST], sums[_PR_DUE], off + n_lost),
        _numbers(right.ravel(), sums[_BRIER], sums[_PR_BEST], sums[_PR_DUE], np.maximum(off - n_lost, 0.0)),
    )


def _numbers(table: Any, brier: Any, pr_error: Any, n_cases: Any, off: Any) -> dict[str, Any]:
    s_supported, s_refuted, s_unverified, ns_supported, ns_refuted, ns_unverified = np.moveaxis(table, -1, 0)
    s_as_ns, ns_as_ns = s_refuted + s_unverified, ns_refuted + ns_unverified
    n = s_supported + s_as_ns + ns_supported + ns_as_ns
    with np.errstate(invalid="ignore", divide="ignore"):
        values = (
            (s_supported + ns_as_ns) / n,
            2 * s_supported / (2 * s_supported + s_as_ns + ns_supported),
            2 * ns_as_ns / (2 * ns_as_ns + s_as_ns + ns_supported),
            pr_error / n_cases,
            brier / n,
            off / n,
        )
    return dict(zip(NAMES, values, strict=True))


def counts(sums: Float[np.ndarray, " D"]) -> dict[str, int]:
    """The atoms and cases behind the numbers, and the labelled atoms that failed."""
    return {
        "n_atoms": int(sums[_TABLE].sum()),
        "n_cases": int(sums[_PR_CASES]),
        "n_failed": int(sums[_FAILED].sum()),
    }


def three_way(sums: Float[np.ndarray, " D"]) -> dict[str, dict[str, int]]:
    """Atoms by human label and by predicted label."""
    table = sums[_TABLE].reshape(len(HUMAN), len(_LABELS)).astype(int).tolist()
    return {
        human: {str(label): count for label, count in zip(_LABELS, row, strict=True)}
        for human, row in zip(HUMAN, table, strict=True)
    }
