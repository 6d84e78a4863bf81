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
BATCH: Final = 12
"""The part of the open questions that a round asks is one of this number."""
BAND: Final = 8 * EPS
"""Half width of the tie band, in nats: 2 EPS in the probability."""
FIRST: Final = 3
"""Passages that are read for an atom, at least, whatever the opinion."""
PROBE: Final = 100
LEAST_LOSS: Final = 0.05
"""Nats, below which it is of no account whether a relation keeps its force."""
FEW: Final = 0.02
"""Probability of an answer other than neutral, from which a claim that is settled is worth its place in a prompt."""


class Pairs(NamedTuple):
    """The pairs of one case that can be asked about, in the order of asking all; `source` and `target` by number.

    Claims are of `C` kinds that no text tells apart, such as those of which nothing speaks; `opinion` is that on each
    pair if its claim is of a kind, and `share` how common the kind is.
    """

    source: Int[np.ndarray, " N"]  # int64: contexts
    target: Int[np.ndarray, " N"]  # int64: atoms
    opinion: Float[np.ndarray, "C N 3"]  # float64, columns by `DISTRIBUTED`
    share: Float[np.ndarray, " C"]  # float64


class Moves(NamedTuple):
    """The log-odds of each atom now, by how much an answer would move them, and what they rest on.

    Relations that are there may lose their force, where their context is found to be wrong of other atoms: `held` are
    their contexts and atoms, `loss` is by how much that would move the atom.
    """

    now: Float[np.ndarray, " A"]  # float64, nats
    up: Float[np.ndarray, " N"]  # float64, nats: by an entailment of the pair's context
    down: Float[np.ndarray, " N"]  # by a contradiction
    held: Int[np.ndarray, "R 2"]  # int64: context and atom of each relation
    loss: Float[np.ndarray, " R"]  # float64, nats


def experts(pairs: Pairs) -> list[tuple[Float[np.ndarray, "C N 3"], Float[np.ndarray, " C"]]]:
    """The three opinions on each pair, by the kind of claim, with the shares of the kinds."""
    even = np.full((1, *pairs.opinion.shape[1:]), 1 / 3)
    noisy = (1 - NOISE) * pairs.opinion + NOISE / 3
    return [(pairs.opinion, pairs.share), (noisy, pairs.share), (even, np.ones(1))]


def beliefs(pairs: Pairs, atoms: int, answers: Int[np.ndarray, " N"]) -> list[Float[np.ndarray, "C A"]]:
    """How much each of the three opinions counts, and within it each kind of each of the `atoms`, after `answers`:
    places in `DISTRIBUTED`, -1 where there is none. All add up to 1 for every atom."""
    known = np.flatnonzero(answers >= 0)
    its = pairs.target[known]
    scores, kinds = [], []
    for first, (q, share) in zip(TRUST, experts(pairs), strict=True):
        said = np.log(q[:, known, answers[known]])
        joint = np.log(share)[:, None] + np.stack([np.bincount(its, row, atoms) for row in said])
        top = joint.max(axis=0)
        total = top + np.log(np.exp(joint - top).sum(axis=0))
        kinds.append(np.exp(joint - total))
        scores.append(math.log(first) + float(total.sum()))
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    return [weight / sum(weights) * kind for weight, kind in zip(weights, kinds, strict=True)]


@dataclass(frozen=True, slots=True)
class Outlook:
    """How sure the labels of a case are: `settled` is, of each atom, the probability that the answers that are missing
    would leave its label as it is; `worth`, of each pair, how much its answer may change one (0 of those answered)."""

    settled: Float[np.ndarray, " A"]  # float64
    telling: Float[np.ndarray, " N"]  # float64: probability of an answer other than neutral
    worth: Float[np.ndarray, " N"]  # float64


def outlook(pairs: Pairs, moves: Moves, answers: Int[np.ndarray, " N"]) -> Outlook:
    """The outlook after `answers` (see `beliefs`). The pairs of an atom count as independent, given the opinion."""
    from fcjax.kernels.settling import stays  # compiled: takes a second to import

    open_ = np.flatnonzero(answers < 0)
    order = open_[np.argsort(pairs.target[open_], kind="stable")]
    atoms = len(moves.now)
    shaken = np.flatnonzero(np.abs(moves.loss) > LEAST_LOSS)
    target = np.concatenate([pairs.target[order], moves.held[shaken, 1]])
    by_atom = np.argsort(target, kind="stable")
    ptr = np.searchsorted(target[by_atom], np.arange(atoms + 1)).astype(np.int64)
    up = np.concatenate([moves.up[order], moves.loss[shaken]])[by_atom]
    down = np.concatenate([moves.down[order], np.zeros(len(shaken))])[by_atom]
    true = 1 / (1 + np.exp(-np.clip(moves.now, -500, 500)))[pairs.target[open_]]
    contexts = int(max(pairs.source.max(initial=0), moves.held[:, 0].max(initial=0))) + 1
    settled, telling = np.zeros(atoms), np.zeros(len(answers))
    for belief, (q, _) in zip(beliefs(pairs, atoms, answers), experts(pairs), strict=True):
        its = sum(weight[pairs.target, None] * one for weight, one in zip(belief, q, strict=True))
        telling += its[:, 0] + its[:, 1]
        total = belief.sum(axis=0)[pairs.target[open_]]
        against = np.where(total > 0, (its[open_, 0] * (1 - true) + its[open_, 1] * true) / np.maximum(total, 1e-300), 0)
        kept = np.exp(np.bincount(pairs.source[open_], np.log1p(-np.minimum(against, 0.999)), contexts))
        lost = np.stack([1 - kept[moves.held[shaken, 0]], np.zeros(len(shaken))], axis=1)
        for weight, one in zip(belief, q, strict=True):
            steps = np.ascontiguousarray(np.concatenate([one[order, :2], lost])[by_atom])
            settled += weight * stays(ptr, moves.now, up, down, steps, BAND)
    settled = np.clip(settled, 0.0, 1.0)
    worth = np.where(answers < 0, (1 - settled[pairs.target]) * telling, 0.0)
    return Outlook(settled, telling, worth)


def chosen(
    pairs: Pairs, found: Outlook, answers: Int[np.ndarray, " N"], settle: float, pack: int, most: int | None = None
) -> list[list[int]]:
    """The next prompts, best first, each as the places of its pairs, of one context; none where all is settled.

    Asked about are atoms that are less sure than `settle`, as long as a passage may say something of them with a
    probability of 1 - `settle` or more, or fewer than `FIRST` were read for them. A round asks one in `BATCH` of what
    is left; `most` prompts at most. A prompt of several claims also carries those of its passage that are worth their
    place. Where each prompt has one pair, the first round also has every `PROBE`th pair, whatever the opinion on it:
    else an opinion that is wrong of what it holds to be idle would not be found out.
    """
    open_ = answers < 0
    unsure = open_ & (found.settled[pairs.target] < settle)
    read = np.bincount(pairs.target[~open_], minlength=len(found.settled))
    wanted = unsure & ((found.telling >= 1 - settle) | (read < FIRST)[pairs.target])
    if most is not None and most <= 0:
        return []
    if pack == 1:
        return _alone(pairs, found, wanted, settle, most, probe=bool(open_.all()))
    if not wanted.any():
        return []
    riders = open_ & (unsure | (found.telling >= FEW))
    by_source: dict[int, list[int]] = {}
    order = np.lexsort((np.arange(len(wanted)), -found.telling, -found.worth, ~wanted))
    for place in order[riders[order]].tolist():
        by_source.setdefault(int(pairs.source[place]), []).append(place)
    groups = [places[:pack] for places in by_source.values() if wanted[places[0]]]
    value = [float(sum(found.worth[place] for place in group if wanted[place])) for group in groups]
    ranked = [groups[g] for g in sorted(range(len(groups)), key=lambda g: (-value[g], g))]
    need = _need(pairs, found, wanted, settle)
    picked: list[list[int]] = []
    for group in ranked[: math.ceil(len(ranked) / BATCH)][:most]:
        picked.append(sorted(group))
        for place in group:
            need[pairs.target[place]] -= found.telling[place]
        if not (need > 0).any():
            break
    return picked


def _need(pairs: Pairs, found: Outlook, wanted: Bool[np.ndarray, " N"], settle: float) -> Float[np.ndarray, " A"]:
    """How much of what may be said of each atom has to be asked for it to settle, if nothing is said: its doubt falls
    about in proportion to what is left. 0 for those that are settled."""
    left = np.bincount(pairs.target[wanted], found.telling[wanted], len(found.settled))
    doubt = np.maximum(1 - found.settled, 1e-12)
    return left * np.maximum(0.0, 1 - (1 - settle) / doubt)


def _alone(
    pairs: Pairs, found: Outlook, wanted: Bool[np.ndarray, " N"], settle: float, most: int | None, *, probe: bool
) -> list[list[int]]:
    """The best pairs of each atom, one in `BATCH` of its own, and in the end those of a `probe`."""
    picked: list[int] = []
    need = _need(pairs, found, wanted, settle)
    for atom in np.unique(pairs.target[wanted]).tolist():
        its = np.flatnonzero(wanted & (pairs.target == atom))
        best = its[np.lexsort((its, -found.worth[its]))]
        enough = int(np.searchsorted(np.cumsum(found.telling[best]), need[atom])) + 1
        picked += best[: min(enough, math.ceil(len(its) / BATCH))].tolist()
    picked.sort(key=lambda place: (-found.worth[place], place))
    if probe:
        even = np.argsort(found.telling, kind="stable")[PROBE // 2 :: PROBE]
        picked += [place for place in even.tolist() if place not in picked]
    return [[place] for place in picked[:most]]
