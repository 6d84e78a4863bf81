"""Factors: the table that a relation of each type stands for, by encoding, and the published presets (SPEC 2).

This is the only place that defines what a relation means: below it, a factor is a 2 x 2 table of weights.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from fcjax.core.records import DISTRIBUTED, Distribution, RelationType

Encoding = Literal["implication", "conditional", "soft"]
Table = list[list[float]]

ATOM_PRIOR = 0.5


class Preset(NamedTuple):
    """A published choice of numbers (SPEC 2)."""

    encoding: Encoding
    context_prior: float


PRESETS: dict[str, Preset] = {
    "paper": Preset("implication", 0.99),
    "release": Preset("conditional", 0.9),
    "release-cli": Preset("implication", 0.9),
}

OWN: Final = {type: i for i, type in enumerate(DISTRIBUTED)} | {RelationType.EQUIVALENCE: 0}
"""The place of each type's own answer in a `Distribution`; equivalence is entailment in both orders."""


def factor_table(
    type: RelationType, p: float, encoding: Encoding, b: float, distribution: Distribution | None = None
) -> Table:
    """The table `f[source][target]` of a relation, states in the order (false, true); the table of SPEC 2.

    `b` is the probability of the target where a `conditional` relation's source is false. Only `soft` reads
    `distribution`; without one, `p` is that of the type's own answer, and the two others share the rest.
    """
    if encoding == "soft":
        return _soft_table(type, distribution_at(type, p) if distribution is None else distribution)
    q = 1.0 - p
    if type is RelationType.EQUIVALENCE:
        return [[p, q], [q, p]]
    if type is RelationType.ENTAILMENT:
        return [[p, p] if encoding == "implication" else [1.0 - b, b], [q, p]]
    if type is RelationType.CONTRADICTION:
        return [[p, p] if encoding == "implication" else [1.0 - b, b], [p, q]]
    raise ValueError("a neutral relation makes no factor")


def factor_slope(type: RelationType, encoding: Encoding, distribution: Distribution | None = None) -> Table:
    """The derivative of a relation's table with respect to its probability, in which every table is linear.

    In `soft` that is the probability of the type's own answer, and the two others keep their proportion.
    """
    low, high = (
        factor_table(type, p, encoding, 0.5, distribution_at(type, p, distribution) if encoding == "soft" else None)
        for p in (0.0, 1.0)
    )
    return [[after - before for before, after in zip(*rows, strict=True)] for rows in zip(low, high, strict=True)]


def distribution_at(type: RelationType, p: float, distribution: Distribution | None = None) -> Distribution:
    """The distribution with probability `p` for the answer of `type`; the two others share the rest.

    They share it in the proportion that they have in `distribution`, or equally without one or where both are 0.
    """
    own = OWN[type]
    shares = [0.0 if i == own else 1.0 if distribution is None else distribution[i] for i in range(3)]
    if not any(shares):
        shares = [float(i != own) for i in range(3)]
    scale = (1.0 - p) / sum(shares)
    entailment, contradiction, neutral = (p if i == own else scale * share for i, share in enumerate(shares))
    return entailment, contradiction, neutral


def _soft_table(type: RelationType, distribution: Distribution) -> Table:
    """The relation as a latent variable, summed out: each answer forbids the states that it speaks against."""
    entailment, contradiction, _ = distribution
    e, c = 1.0 - entailment, 1.0 - contradiction
    return [[1.0, e if type is RelationType.EQUIVALENCE else 1.0], [e, c]]
