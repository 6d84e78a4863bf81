"""Which questions to ask next: those whose answers could change a label, for the fewest prompts (docs/adaptive.md).

Known of each pair that was not asked about is an opinion, a distribution over its answers, and how far each answer
would move the log-odds of its atom. Of these, `outlook` makes how sure each atom's label is against all answers that
are missing, and `chosen` the next prompts. All is a function of arrays: nothing depends on when an answer came.

An opinion may be wrong, and then wrong of all pairs of a case at once. So there are three: the `opinion` as it is; the
same with `NOISE` of its mass spread evenly; and none at all, even between the answers. How much each counts follows
from how well it foretold the answers of the case so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fcjax.core.records import EPS

TRUST: Final = (0.96, 0.03, 0.01)
"""How much the three opinions count before any answer."""
NOISE: Final = 0.15
BATCH: Final = 8
"""The part of the open questions that a round asks is one of this number."""
FEW: Final = 0.02
"""Probability of an answer other than neutral, from which a claim that is settled is worth its place in a prompt."""


class Pairs(NamedTuple):
    """The pairs of one case that can be asked about, in the order of asking all; `source` and `target` by number."""

    source: Int[np.ndarray, " N"]  # int64: contexts
    target: Int[np.ndarray, " N"]  # int64: atoms
    opinion: Float[np.ndarray, "N 3"]  # float64, columns by `DISTRIBUTED`


class Moves(NamedTuple):
    """The log-odds of each atom now, and by how much an answer would move them."""

    now: Float[np.ndarray, " A"]  # float64, nats
    up: Float[np.ndarray, " N"]  # float64, nats: by an entailment of the pair's context
    down: Float[np.ndarray, " N"]  # by a contradiction


def experts(opinion: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "3 N 3"]:
    """The three opinions on each pair."""
    even = np.full_like(opinion, 1 / 3)
    return np.stack([opinion, (1 - NOISE) * opinion + NOISE * even, even])


def trust(opinion: Float[np.ndarray, "N 3"], answers: Int[np.ndarray, " N"]) -> Float[np.ndarray, " 3"]:
    """How much the three opinions count, after `answers`: places in `DISTRIBUTED`, -1 where there is none."""
    known = np.flatnonzero(answers >= 0)
    said = experts(opinion[known])[:, np.arange(len(known)), answers[known]]
    score = np.log(TRUST) + np.log(said).sum(axis=1)
    weight: Float[np.ndarray, " 3"] = np.exp(score - score.max())
    return weight / weight.sum()


@dataclass(frozen=True, slots=True)
class Outlook:
    """How sure the labels of a case are: `settled` is, of each atom, the probability that the answers that are missing
    would leave its label as it is; `worth`, of each pair, how much its answer may change one (0 of those answered)."""

    settled: Float[np.ndarray, " A"]  # float64
    telling: Float[np.ndarray, " N"]  # float64: probability of an answer other than neutral
    worth: Float[np.ndarray, " N"]  # float64


def outlook(pairs: Pairs, moves: Moves, answers: Int[np.ndarray, " N"]) -> Outlook:
    """The outlook after `answers` (see `trust`). The pairs of an atom count as independent, given the opinion."""
    from fcjax.kernels.settling import stays  # compiled: takes a second to import

    open_ = np.flatnonzero(answers < 0)
    order = open_[np.argsort(pairs.target[open_], kind="stable")]
    ptr = np.searchsorted(pairs.target[order], np.arange(len(moves.now) + 1)).astype(np.int64)
    weight, three = trust(pairs.opinion, answers), experts(pairs.opinion)
    settled = np.zeros(len(moves.now))
    for w, q in zip(weight.tolist(), three, strict=True):
        settled += w * stays(ptr, moves.now, moves.up[order], moves.down[order], np.ascontiguousarray(q[order, :2]), 8 * EPS)
    settled = np.clip(settled, 0.0, 1.0)
    telling = 1 - np.einsum("k,kn->n", weight, three[:, :, 2])
    worth = np.where(answers < 0, (1 - settled[pairs.target]) * telling, 0.0)
    return Outlook(settled, telling, worth)


def chosen(
    pairs: Pairs, found: Outlook, open_: Bool[np.ndarray, " N"], settle: float, pack: int, most: int | None = None
) -> list[list[int]]:
    """The next prompts, best first, each as the places of its pairs, of one context; none where all is settled.

    Only atoms that are less sure than `settle` are asked about, but for claims that are likely to be spoken of by a
    passage that is asked about anyway. A round asks one in `BATCH` of the prompts that are left, each such atom at
    least once; `most` prompts at most.
    """
    wanted = open_ & (found.settled[pairs.target] < settle)
    if not wanted.any() or most == 0:
        return []
    if pack == 1:
        return _alone(pairs, found, wanted, most)
    riders = open_ & (wanted | (found.telling >= FEW))
    by_source: dict[int, list[int]] = {}
    order = np.lexsort((np.arange(len(wanted)), -found.telling, -found.worth, ~wanted))
    for place in order[riders[order]].tolist():
        by_source.setdefault(int(pairs.source[place]), []).append(place)
    groups = [places[:pack] for places in by_source.values() if wanted[places[0]]]
    value = [float(sum(found.worth[place] for place in group if wanted[place])) for group in groups]
    ranked = [groups[g] for g in sorted(range(len(groups)), key=lambda g: (-value[g], g))]
    least = math.ceil(len(ranked) / BATCH)
    unseen = set(pairs.target[wanted].tolist())
    picked: list[list[int]] = []
    for rank, group in enumerate(ranked):
        of = {int(pairs.target[place]) for place in group if wanted[place]}
        if rank < least or of & unseen:
            picked.append(group)
            unseen -= of
        if rank >= least and not unseen:
            break
    return [sorted(group) for group in picked[:most]]


def _alone(pairs: Pairs, found: Outlook, wanted: Bool[np.ndarray, " N"], most: int | None) -> list[list[int]]:
    """The best pairs of each atom, one in `BATCH` of its own."""
    picked: list[int] = []
    for atom in np.unique(pairs.target[wanted]).tolist():
        its = np.flatnonzero(wanted & (pairs.target == atom))
        best = its[np.lexsort((its, -found.worth[its]))]
        picked += best[: math.ceil(len(its) / BATCH)].tolist()
    picked.sort(key=lambda place: (-found.worth[place], place))
    return [[place] for place in picked[:most]]
