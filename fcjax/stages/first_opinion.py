"""A first opinion on a pair: a distribution over the labels from the cosine of two embeddings alone.

It is a multinomial logistic regression on the cosine and its square, as a label may be likeliest at a cosine in the
middle. `fcjax.evaluation.opinion_fit` fits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from fcjax.core.checks import is_number
from fcjax.core.errors import Fault, InputError
from fcjax.core.records import Distribution, by_label
from fcjax.stages.calibration import distributions, read_by_label

TERMS: Final = ("constant", "cosine", "square")
"""The terms of the regression, in the order of `CosineOpinion.coefficients`."""
_LARGEST: Final = 1e7  # of a coefficient; a fit stays well below


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineOpinion:
    """q_l in proportion to exp(a_l + b_l c + d_l c^2) for a cosine c, with a row of coefficients per term of `TERMS`
    and a column per label of `DISTRIBUTED`. It holds for cosines of the `embedding` of this name only. A cosine outside
    of `span`, those that it was fitted to, counts as the nearest inside: a square says nothing of what lies beyond."""

    embedding: str
    coefficients: tuple[Distribution, Distribution, Distribution]
    span: tuple[float, float] = (-1.0, 1.0)
    n_pairs: int = 0  # that it was fitted to

    def apply_all(self, cosines: Float[np.ndarray, " N"]) -> Float[np.ndarray, "N 3"]:
        """The distributions for cosines, columns by `DISTRIBUTED`, float64, with no probability below `LEAST`.

        Raises `InputError` where a cosine is not finite, or is beyond -1 to 1 by more than rounding.
        """
        return distributions(terms_of(cosines, self.span) @ np.array(self.coefficients))

    def to_dict(self) -> dict[str, Any]:
        """The opinion as JSON, which `from_dict` reads."""
        rows = zip(TERMS, self.coefficients, strict=True)
        coefficients = {term: by_label(row) for term, row in rows}
        return {
            "embedding": self.embedding,
            "coefficients": coefficients,
            "span": list(self.span),
            "n_pairs": self.n_pairs,
        }

    @classmethod
    def from_dict(cls, data: Any) -> CosineOpinion:
        """The opinion of what `to_dict` made. Raises `InputError` with every fault."""
        if not isinstance(data, Mapping):
            raise InputError("the first opinion is not an object; allowed: what `CosineOpinion.to_dict` makes")
        faults: list[Fault] = []
        embedding: Any = data.get("embedding")
        if not isinstance(embedding, str) or not embedding:
            faults.append(Fault(f"embedding is {embedding!r:.60}; allowed: a non-empty string", field="embedding"))
        n_pairs: Any = data.get("n_pairs", 0)
        if not is_number(n_pairs, 0, 2**53, whole=True):
            faults.append(Fault(f"n_pairs is {n_pairs!r:.60}; allowed: a whole number from 0", field="n_pairs"))
        span: Any = data.get("span", [-1, 1])
        pair = isinstance(span, list | tuple) and len(span) == 2 and all(is_number(end, -1, 1) for end in span)
        if not pair or span[0] > span[1]:
            faults.append(Fault(f"span is {span!r:.60}; allowed: two cosines, the lower first", field="span"))
        given = data.get("coefficients")
        rows: list[Distribution | None] = []
        if not isinstance(given, Mapping):
            allowed = f"an object with {', '.join(TERMS)}"
            faults.append(Fault(f"coefficients is {given!r:.60}; allowed: {allowed}", field="coefficients"))
        else:
            rows = [read_by_label(given, term, -_LARGEST, _LARGEST, faults, required=True) for term in TERMS]
        if faults:
            raise InputError(*faults)
        constant, cosine, square = (row for row in rows if row is not None)
        low, high = map(float, span)
        coefficients = constant, cosine, square
        return cls(embedding=embedding, coefficients=coefficients, span=(low, high), n_pairs=int(n_pairs))


def terms_of(cosines: Float[np.ndarray, " N"], span: tuple[float, float] = (-1.0, 1.0)) -> Float[np.ndarray, "N 3"]:
    """The terms of the regression for each cosine, moved into `span`, columns by `TERMS`, float64. Raises what
    `CosineOpinion.apply_all` raises."""
    cosines = np.asarray(cosines, np.float64)
    bad = ~(np.abs(cosines) <= 1 + 1e-3)  # also where it is not a number
    if bad.any():
        raise InputError(f"a cosine is {cosines[bad][0]}; allowed: numbers from -1 to 1, of normalised embeddings")
    cosines = np.clip(cosines, *span)
    return np.stack([np.ones_like(cosines), cosines, cosines**2], axis=1)
