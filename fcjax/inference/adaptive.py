"""Which questions to ask next: those whose answers could change a label, in as few prompts (docs/adaptive.md).

Known of each pair that was not asked about is an opinion, a distribution over its answers, and how far each answer
would move the log-odds of its atom. Of these, `outlook` makes how sure each atom's label is against all answers that
are missing, and `chosen` the next prompts. Both are functions of arrays: nothing depends on when an answer came.

An opinion may be wrong, and then wrong of all pairs of a case at once. So there are three: the opinion as it is; the
same with `NOISE` of its mass spread evenly; and none at all, even between the answers. How much each counts follows
from how well it foretold the answers of the case so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fcjax.core.records import EPS

OPEN: Final = -1
"""Of a pair that was not asked about, in place of an answer's place in `DISTRIBUTED`."""
APART: Final = 3
"""Of a pair that was asked about in vain, or answered by the opinion itself: it tells nothing of the opinion."""
TRUST: Final = (0.96, 0.03, 0.01)
"""How much the three opinions count before any answer."""
NOISE: Final = 0.15
FIRST: Final = 3
"""Passages that are read for an atom, at least, whatever the opinion."""
PROBE: Final = 100
"""One pair in this number is asked about whatever the opinion, where a prompt has one pair."""
ROUND: Final = {False: 12, True: 4}
"""Of what is left to ask, a round asks one part in this number; by whether prompts have several pairs."""
FEW: Final = 0.02
"""Probability of an answer other than neutral, from which a claim is worth its place in a prompt."""
LEAST_LOSS: Final = 0.05
"""Nats, below which it is of no account whether a relation keeps its force."""
BAND: Final = 8 * EPS
"""Half width of the tie band in nats: 2 EPS in the probability."""


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


@dataclass(frozen=True, slots=True)
class Outlook:
    """How sure the labels of a case are: `settled` is, of each atom, the probability that the answers that are missing
    would leave its label as it is; `telling`, of each pair, that of an answer other than neutral; and `worth`, how
    much its answer may change (0 where it was asked)."""

    settled: Float[np.ndarray, " A"]  # float64
    telling: Float[np.ndarray, " N"]  # float64
    worth: Float[np.ndarray, " N"]  # float64


def scenarios(pairs: Pairs) -> tuple[Float[np.ndarray, "S N 3"], Float[np.ndarray, " S"], Int[np.ndarray, " S"]]:
    """Each of the three opinions for each kind of claim, with the kind's share, and the number of the opinion."""
    even = np.full((1, *pairs.opinion.shape[1:]), 1 / 3)
    q = np.concatenate([pairs.opinion, (1 - NOISE) * pairs.opinion + NOISE / 3, even])
    kinds = len(pairs.share)
    return q, np.concatenate([pairs.share, pairs.share, np.ones(1)]), np.array([0] * kinds + [1] * kinds + [2])


def beliefs(pairs: Pairs, atoms: int, answers: Int[np.ndarray, " N"]) -> Float[np.ndarray, "S A"]:
    """How much each of the `scenarios` counts for each of the `atoms`, after `answers`: places in `DISTRIBUTED`, `OPEN`
    or `APART`. They add up to 1 for every atom."""
    q, share, opinion = scenarios(pairs)
    known = np.flatnonzero((answers != OPEN) & (answers != APART))
    its = pairs.target[known]
    said = np.log(q[:, known, answers[known]])
    joint = np.log(share)[:, None] + np.stack([np.bincount(its, row, atoms) for row in said])
    top = joint.max(axis=0)
    kinds = np.exp(joint - top)
    total = np.stack([kinds[opinion == one].sum(axis=0) for one in range(len(TRUST))])  # [3, A]
    score = np.log(TRUST) + (np.log(np.maximum(total, 1e-300)) + top).sum(axis=1)
    weight = np.exp(score - score.max())
    found: Float[np.ndarray, "S A"] = (
        (weight / weight.sum())[opinion, None] * kinds / np.maximum(total, 1e-300)[opinion]
    )
    return found


def outlook(pairs: Pairs, moves: Moves, answers: Int[np.ndarray, " N"]) -> Outlook:
    """The outlook after `answers` (see `beliefs`). The pairs of an atom count as independent, in each scenario."""
    from fcjax.kernels.settling import stays  # compiled: takes a second to import

    atoms = len(moves.now)
    q, _, _ = scenarios(pairs)
    weight = beliefs(pairs, atoms, answers)
    mixed = np.einsum("sn,snk->nk", weight[:, pairs.target], q[:, :, :2])
    telling = mixed.sum(axis=1)
    open_ = np.flatnonzero(answers == OPEN)
    shaken = np.flatnonzero(np.abs(moves.loss) > LEAST_LOSS)
    target = np.concatenate([pairs.target[open_], moves.held[shaken, 1]])
    order = np.argsort(target, kind="stable")
    ptr = np.searchsorted(target[order], np.arange(atoms + 1)).astype(np.int64)
    up = np.concatenate([moves.up[open_], moves.loss[shaken]])[order]
    down = np.concatenate([moves.down[open_], np.zeros(len(shaken))])[order]
    lost = np.zeros((len(q), len(shaken), 2))
    lost[:, :, 0] = _shaken(pairs, moves, open_, mixed)[moves.held[shaken, 0]]
    steps = np.concatenate([q[:, open_, :2], lost], axis=1)[:, order]
    settled = np.clip(stays(ptr, moves.now, up, down, np.ascontiguousarray(steps), weight, BAND), 0.0, 1.0)
    worth = np.where(answers == OPEN, (1 - settled[pairs.target]) * telling, 0.0)
    return Outlook(settled, telling, worth)


def _shaken(
    pairs: Pairs, moves: Moves, open_: Int[np.ndarray, " O"], mixed: Float[np.ndarray, "N 2"]
) -> Float[np.ndarray, " contexts"]:
    """The probability of each context that an answer that is missing has it speak against what is held of an atom."""
    true = 0.5 + 0.5 * np.tanh(0.5 * moves.now[pairs.target[open_]])
    against = mixed[open_, 0] * (1 - true) + mixed[open_, 1] * true
    contexts = int(max(pairs.source.max(initial=0), moves.held[:, 0].max(initial=0))) + 1
    kept = np.bincount(pairs.source[open_], np.log1p(-np.minimum(against, 0.999)), contexts)
    found: Float[np.ndarray, " contexts"] = 1 - np.exp(kept)
    return found


def chosen(
    pairs: Pairs, found: Outlook, answers: Int[np.ndarray, " N"], settle: float, pack: int, most: int | None = None
) -> list[list[int]]:
    """The next prompts, best first, each as the places of its pairs, of one context; none where all is settled.

    Asked about are atoms that are less sure than `settle`, as long as a passage may say something of them with a
    probability of 1 - `settle` or more, and those for which fewer than `FIRST` passages were read. A round asks a part
    of what is left (see `ROUND`); `most` prompts at most. A prompt of several claims also carries those of its passage
    that are worth their place. Where each prompt has one pair, the first round also has every `PROBE`th pair, whatever
    the opinion on it: else an opinion that is wrong of what it holds to be idle would not be found out.
    """
    open_ = answers == OPEN
    unsure = open_ & (found.settled[pairs.target] < settle)
    read = np.bincount(pairs.target[~open_ & (answers != APART)], minlength=len(found.settled))
    wanted = (unsure & (found.telling >= 1 - settle)) | (open_ & (read < FIRST)[pairs.target])
    if most is not None and most <= 0:
        return []
    need = _need(pairs, found, wanted, settle)
    if pack == 1:
        places = _best_of_each(pairs, found, wanted, need)
        if open_.all() and wanted.any():
            even = np.argsort(found.telling, kind="stable")[min(PROBE, len(answers)) // 2 :: PROBE].tolist()
            places += [place for place in even if place not in places]
        return [[place] for place in places[:most]]
    groups = _by_context(pairs, found, wanted, open_ & (unsure | (found.telling >= FEW)), pack)
    picked: list[list[int]] = []
    for group in groups[: math.ceil(len(groups) / ROUND[True])][:most]:
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
    need: Float[np.ndarray, " A"] = left * np.maximum(0.0, 1 - (1 - settle) / doubt)
    return need


def _best_of_each(
    pairs: Pairs, found: Outlook, wanted: Bool[np.ndarray, " N"], need: Float[np.ndarray, " A"]
) -> list[int]:
    """The best pairs of each atom, a part of its own, no more than it needs; best first."""
    picked: list[int] = []
    order = np.lexsort((-found.worth, pairs.target))
    order = order[wanted[order]]
    for its in np.split(order, np.flatnonzero(np.diff(pairs.target[order])) + 1) if len(order) else ():
        enough = int(np.searchsorted(np.cumsum(found.telling[its]), need[pairs.target[its[0]]])) + 1
        picked += its[: min(enough, math.ceil(len(its) / ROUND[False]))].tolist()
    return sorted(picked, key=lambda place: (-found.worth[place], place))


def _by_context(
    pairs: Pairs, found: Outlook, wanted: Bool[np.ndarray, " N"], riders: Bool[np.ndarray, " N"], pack: int
) -> list[list[int]]:
    """A prompt of each context with `wanted` pairs, which also has `riders`, `pack` in all; best first."""
    order = np.lexsort((-found.telling, -found.worth, ~wanted))
    groups: dict[int, list[int]] = {}
    for place in order[riders[order]].tolist():
        groups.setdefault(int(pairs.source[place]), []).append(place)
    prompts = [group[:pack] for group in groups.values() if wanted[group[0]]]
    worth = np.where(wanted, found.worth, 0.0)
    return sorted(prompts, key=lambda group: (-float(worth[group].sum()), min(group)))
