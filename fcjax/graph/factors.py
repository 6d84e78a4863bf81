"""Factors: the table that a relation of each type stands for, by encoding, and the published presets (SPEC 2).

This is the only place that defines what a relation means: below it, a factor is a 2 x 2 table of weights.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from fcjax.core.records import RelationType

Encoding = Literal["implication", "conditional"]

ATOM_PRIOR = 0.5


class Preset(NamedTuple):
    """A published choice of numbers (SPEC 2)."""

    encoding: Encoding
    context_prior: float


PRESETS: dict[str, Preset] = {
    "paper": Preset("implication", 0.99),
    "release": Preset("conditional", 0.9),
}


def factor_table(type: RelationType, p: float, encoding: Encoding, b: float) -> list[list[float]]:
    """The table `f[source][target]` of a relation, states in the order (false, true); the table of SPEC 2.

    `b` is the probability of the target where a `conditional` relation's source is false.
    """
    q = 1.0 - p
    if type is RelationType.EQUIVALENCE:
        return [[p, q], [q, p]]
    if type is RelationType.ENTAILMENT:
        return [[p, p] if encoding == "implication" else [1.0 - b, b], [q, p]]
    if type is RelationType.CONTRADICTION:
        return [[p, p] if encoding == "implication" else [1.0 - b, b], [p, q]]
    raise ValueError("a neutral relation makes no factor")
