"""The fit of a first opinion to labelled pairs, and its cross-validation, as in `vector_scaling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from fcjax.evaluation.vector_scaling import BIAS_SD, PLANE, by_folds, surprise_of
from fcjax.stages.first_opinion import TERMS, CosineOpinion, terms_of

SLOPE_SD: Final = 2.0
"""Standard deviation of the prior on the slope, in nats per standard deviation of the cosines."""
SQUARE_SD: Final = 1.0
"""The same for the square; few pairs say little of it."""
_NARROWEST: Final = 0.01  # standard deviation of cosines; those that differ less are taken as nearly the same


def fit_opinion(cosines: Float[np.ndarray, " N"], labels: Int[np.ndarray, " N"], embedding: str) -> CosineOpinion:
    """The first opinion that fits the cosines to the `labels`, places in `DISTRIBUTED`, by maximum likelihood with a
    small Gaussian prior on the coefficients of the standardised cosine. `embedding` names what the cosines are of.

    The result does not depend on the order of pairs, to rounding. Without any pairs it is uniform. Raises `InputError`
    where a cosine is not finite, or is beyond -1 to 1.
    """
    from scipy.optimize import minimize  # takes a second to import

    terms = terms_of(cosines)
    middle = float(terms[:, 1].mean()) if len(terms) else 0.0
    width = max(float(terms[:, 1].std()), _NARROWEST) if len(terms) else 1.0
    # The terms of the standardised cosine (c - middle) / width are the terms of the cosine times this matrix.
    change = np.array(
        [
            [1.0, -middle / width, middle**2 / width**2],
            [0.0, 1 / width, -2 * middle / width**2],
            [0.0, 0.0, 1 / width**2],
        ]
    )
    standard = np.stack([np.ones(len(terms)), *(((terms[:, 1] - middle) / width) ** power for power in (1, 2))], axis=1)
    chosen = np.eye(3)[labels]
    narrow = np.array([BIAS_SD, SLOPE_SD, SQUARE_SD]).repeat(2) ** -2.0

    def loss(x: Float[np.ndarray, " 6"]) -> tuple[float, Float[np.ndarray, " 6"]]:
        """The negative log posterior of the coefficients, two directions per term, and its gradient."""
        surprise, off = surprise_of(standard @ (x.reshape(3, 2) @ PLANE), chosen)
        slope = (standard.T @ off @ PLANE.T).ravel()
        return surprise + 0.5 * float(x @ (narrow * x)), slope + narrow * x

    options = {"maxiter": 1000, "ftol": 1e-13, "gtol": 1e-8}
    found = minimize(loss, np.zeros(6), jac=True, method="L-BFGS-B", options=options).x
    coefficients = (change @ found.reshape(len(TERMS), 2) @ PLANE).tolist()
    constant, cosine, square = ((row[0], row[1], row[2]) for row in coefficients)
    span = (float(terms[:, 1].min()), float(terms[:, 1].max())) if len(terms) else (-1.0, 1.0)
    return CosineOpinion(embedding=embedding, coefficients=(constant, cosine, square), span=span, n_pairs=len(terms))


def cross_validated_opinion(
    cosines: Float[np.ndarray, " N"], labels: Int[np.ndarray, " N"], groups: Sequence[str]
) -> Float[np.ndarray, "N 3"] | None:
    """The first opinion on each pair, by a fit to the other folds alone (see `vector_scaling.folds_of`); None where
    all are of one group. Raises what `fit_opinion` raises."""

    def work(others: Bool[np.ndarray, " N"], inside: Bool[np.ndarray, " N"]) -> Float[np.ndarray, "M 3"]:
        return fit_opinion(cosines[others], labels[others], "cross-validation").apply_all(cosines[inside])

    return by_folds(groups, work)
