"""The fit of a calibration to labelled answers: vector scaling (Guo et al. 2017), and its cross-validation (SPEC 9).

    q'_l proportional to exp((ln q_l) / T + b_l), T > 0, sum of b = 0

by maximum likelihood with a Gaussian prior on ln T and b. In (1/T, b) the likelihood is convex, so there is one best
fit; the search is over (ln T, b), where T stays positive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from fcjax.stages.calibration import LEAST, Calibration

FOLDS: Final = 5
LOG_TEMPERATURE_SD: Final = 1.0
"""Standard deviation of the prior on ln T. It counts about as much as one pair, and keeps a few pairs that a model
happens to answer right from making it certain."""
BIAS_SD: Final = 2.0
"""The same for each bias, in nats: a small model may prefer a label by several."""

_LIMIT: Final = 5.0  # of |ln T|; beyond, nothing but rounding is left of a distribution
PLANE: Final = np.array([[1.0, 1.0, -2.0], [1.0, -1.0, 0.0]]) / np.sqrt([[6.0], [2.0]])
"""Orthonormal directions of the biases, whose sum is 0: b = c @ PLANE."""


def fit(
    base: Calibration, q: Float[np.ndarray, "N 3"], labels: Int[np.ndarray, " N"], *, temperature: bool = True
) -> Calibration:
    """`base` with the temperature and biases that fit the answers `q` to the `labels`, both by `DISTRIBUTED`.

    Without `temperature`, T stays 1 and only the biases are fitted. Without any answers, nothing changes.
    """
    from scipy.optimize import minimize  # takes a second to import

    logs = np.log(np.maximum(q, LEAST))
    chosen = np.eye(3)[labels]

    def loss(x: Float[np.ndarray, " 3"]) -> tuple[float, Float[np.ndarray, " 3"]]:
        """The negative log posterior of (ln T, c), and its gradient."""
        inverse, biases = np.exp(-x[0]), x[1:] @ PLANE
        surprise, off = surprise_of(logs * inverse + biases, chosen)
        slope = np.array([-(off * logs).sum() * inverse, *(PLANE @ off.sum(axis=0))])
        prior = np.array([x[0] / LOG_TEMPERATURE_SD**2, *(x[1:] / BIAS_SD**2)])
        return surprise + 0.5 * float(x @ prior), slope + prior

    limit = _LIMIT if temperature else 0.0
    found = minimize(
        loss,
        np.zeros(3),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-limit, limit), (None, None), (None, None)],
        options={"maxiter": 1000, "ftol": 1e-13, "gtol": 1e-8},
    ).x
    entailment, contradiction, neutral = (found[1:] @ PLANE).tolist()
    return replace(base, temperature=float(np.exp(found[0])), biases=(entailment, contradiction, neutral))


def surprise_of(
    scores: Float[np.ndarray, "N 3"], chosen: Float[np.ndarray, "N 3"]
) -> tuple[float, Float[np.ndarray, "N 3"]]:
    """The sum of -ln q of the `chosen` labels (a 1 in each row) for q in proportion to exp(scores), and its
    derivatives by the scores."""
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    totals = weights.sum(axis=1, keepdims=True)
    surprise = float((np.log(totals) + top).sum() - (scores * chosen).sum())
    return surprise, weights / totals - chosen


def folds_of(groups: Sequence[str], count: int = FOLDS) -> Int[np.ndarray, " N"]:
    """The fold of each answer. All answers of a group are in one fold, which a hash decides, so that it depends on
    neither order nor chance; groups of fewer than `count` kinds have a fold each."""
    ordered = sorted(set(groups), key=lambda group: hashlib.sha256(group.encode(errors="replace")).digest())
    fold = {group: place % count for place, group in enumerate(ordered)}
    return np.array([fold[group] for group in groups], np.int64)


def cross_validated(
    base: Calibration,
    q: Float[np.ndarray, "N 3"],
    labels: Int[np.ndarray, " N"],
    groups: Sequence[str],
    *,
    temperature: bool = True,
) -> Float[np.ndarray, "N 3"] | None:
    """The answers `q` after calibration, each by a fit to the other folds alone (see `folds_of`); None where all are
    of one group."""

    def work(others: Bool[np.ndarray, " N"], inside: Bool[np.ndarray, " N"]) -> Float[np.ndarray, "M 3"]:
        return fit(base, q[others], labels[others], temperature=temperature).apply_all(q[inside])

    return by_folds(groups, work)


def by_folds(
    groups: Sequence[str],
    work: Callable[[Bool[np.ndarray, " N"], Bool[np.ndarray, " N"]], Float[np.ndarray, "M 3"]],
) -> Float[np.ndarray, "N 3"] | None:
    """The distributions that `work(others, inside)` gives for the answers `inside` each fold, from the `others`; None
    where all are of one group."""
    folds = folds_of(groups)
    if len(set(folds.tolist())) < 2:
        return None
    made = np.empty((len(folds), 3))
    for fold in set(folds.tolist()):
        inside = folds == fold
        made[inside] = work(~inside, inside)
    return made
