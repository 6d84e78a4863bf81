"""What is asked about one case, round by round, where not every pair is asked about (docs/adaptive.md).

An `Inquiry` knows the case's pairs, the first opinion on them, and the answers so far. Each round it brings the graph
up to date, and names the next prompts. Its decisions follow from the answers alone, so that a run is the same at every
concurrency, and when it is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from fcjax.core.limits import Limits
from fcjax.core.records import DISTRIBUTED, Relation, RelationType, Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.graph.factors import OWN, factor_table
from fcjax.graph.selection import says_nothing
from fcjax.inference.adaptive import APART, OPEN, Moves, Outlook, Pairs, chosen, outlook
from fcjax.scoring.settings import Settings
from fcjax.stages.pair_opinion import Opinion
from fcjax.stages.relate import Agenda, Pair

ASSUMED: Final = 0.9
"""Probability of an answer that is still to come."""
HARM: Final = 8.0
"""What a context's odds are divided by where it is found to be wrong of an atom, about."""
LIMITS: Final = Limits(restarts=4, assignments=4)
"""Of a wide graph, as close as choosing needs; the posteriors of the case have their own."""
DIGITS: Final = 4
"""Of what is recorded."""


def all_pairs(agenda: Agenda) -> Iterator[Pair]:
    """The pairs of a case, those that have an answer included."""
    return replace(agenda, related=frozenset()).pairs()


def found_for(agenda: Agenda) -> dict[str, frozenset[str]]:
    """The contexts that were found for each atom, by ids."""
    return {atom.id: frozenset(atom.contexts or ()) for atom in agenda.atoms.values()}


class Inquiry:
    """The asking about the `pairs` of one case, those that have an answer included. `settle` is how sure a label must
    be, `pack` how many pairs a prompt may have, `most` how many prompts the case may take. `opinion` is that on the
    pairs, in their order.

    Raises `InputError` where the case makes no graph.
    """

    def __init__(
        self,
        agenda: Agenda,
        pairs: Sequence[Pair],
        opinion: Opinion,
        settings: Settings,
        *,
        settle: float,
        pack: int = 1,
        most: int | None = None,
    ):
        self.settle, self._pack, self._most = settle, pack, most
        self.pairs, self.opinion = pairs, opinion
        self._contexts = {name: n for n, name in enumerate(dict.fromkeys(pair.source for pair in self.pairs))}
        self._atoms = {name: n for n, name in enumerate(dict.fromkeys(pair.target for pair in self.pairs))}
        source = np.array([self._contexts[pair.source] for pair in self.pairs], np.int64)
        target = np.array([self._atoms[pair.target] for pair in self.pairs], np.int64)
        self._asked = Pairs(source, target, self.opinion.kinds, self.opinion.share)
        self._answers = np.full(len(self.pairs), OPEN)
        self._encoding, self._prior = settings.numbers()["encoding"], settings.atom_prior
        self._base = settings.graph(agenda.case)
        self._held: dict[int, Relation] = {}  # relations with a force, by the place of their pair
        self._given: set[int] = set()  # places of pairs that had an answer before
        self.prompts = 0
        self._take_given(agenda)
        self._now: Outlook | None = None

    def _take_given(self, agenda: Agenda) -> None:
        """The answers that the case has."""
        names = {(pair.source, pair.target): place for place, pair in enumerate(self.pairs)}
        names_of = [atom.id for atom in agenda.atoms.values()] + [one.id for one in agenda.contexts.values()]
        kept = {agenda.aliases.get(name, name): name for name in names_of}
        for relation in agenda.case.relations or ():
            ends = [kept.get(agenda.aliases.get(end, end), end) for end in (relation.source, relation.target)]
            place = names.get((ends[0], ends[1]), names.get((ends[1], ends[0])))
            if place is not None and not relation.status.failed:
                self._note(place, relation)
                self._given.add(place)

    def take(self, place: int, relation: Relation, *, opinion: bool = False) -> None:
        """Take the answer about the pair at `place`; with `opinion`, one that the first opinion itself has given."""
        self._note(place, relation)
        if opinion:
            self._answers[place] = APART

    def is_open(self, place: int) -> bool:
        """Whether there is no answer about the pair at `place`."""
        return bool(self._answers[place] == OPEN)

    def _note(self, place: int, relation: Relation) -> None:
        if relation.status.failed or relation.type is None:
            self._answers[place] = APART
            return
        self._answers[place] = OWN[relation.type]
        if self._encoding == "soft" or not says_nothing(relation):
            self._held[place] = relation

    def round(self) -> list[list[int]]:
        """The next prompts, as the places of their pairs; none where nothing more is to be asked."""
        if not self.pairs:
            return []
        if self._most is not None and self.prompts >= self._most:
            self._now = None
            return []
        self._now = outlook(self._asked, self._moves(), self._answers)
        most = None if self._most is None else self._most - self.prompts
        prompts = chosen(self._asked, self._now, self._answers, self.settle, self._pack, most)
        self.prompts += len(prompts)
        return prompts

    def _graph(self) -> FactGraph:
        """The graph of the case with the answers so far."""
        fresh = [(place, one) for place, one in self._held.items() if place not in self._given]
        if not fresh:
            return self._base
        index, aliases = self._base.index, self._base.aliases
        ends = [[index[aliases.get(end, end)] for end in (one.source, one.target)] for _, one in fresh]
        tables = [_table(one, self._encoding, self._prior) for _, one in fresh]
        return replace(
            self._base,
            ends=np.concatenate([self._base.ends, np.array(ends, np.int32)]),
            tables=np.concatenate([self._base.tables, np.array(tables, np.float64)]),
            relations=(*self._base.relations, *(one for _, one in fresh)),
        )

    def _moves(self) -> Moves:
        from fcjax.inference.engine import infer

        graph = self._graph()
        found = infer([graph], "fast", limits=LIMITS)[0]
        prior = {name: float(row[1] / row.sum()) for name, row in zip(graph.ids, graph.unary, strict=True)}
        p: Mapping[str, float] = prior if found.status is not Status.OK else found.p
        aliases = self._base.aliases
        true = np.array([p[aliases.get(name, name)] for name in self._atoms])
        belief = np.array([p[aliases.get(name, name)] for name in self._contexts])
        b = belief[self._asked.source]
        up, down = (_step(b, _table_of(type, self._encoding, self._prior)) for type in DISTRIBUTED[:2])
        places = list(self._held)
        held = np.stack([self._asked.source[places], self._asked.target[places]], axis=1)
        trusted = belief[held[:, 0]]
        shaken = trusted / (trusted + HARM * (1 - trusted) + 1e-300)
        tables = np.array([_table(one, self._encoding, self._prior) for one in self._held.values()]).reshape(-1, 2, 2)
        steps = _step(trusted, tables)
        now = _logit(true)
        if found.status is not Status.OK:  # too wide, or at odds with itself: each answer by itself
            now = now + np.bincount(held[:, 1], steps, len(now))
        return Moves(now, up, down, held, _step(shaken, tables) - steps)

    @property
    def left(self) -> int:
        """The number of pairs that were not asked about."""
        return int(np.count_nonzero(self._answers == OPEN))

    def record(self) -> dict[str, Any]:
        """What was not asked, with the first opinion on it, and how sure each label is against that; as JSON.

        `pairs` has by context and atom the probabilities of entailment and contradiction.
        """
        told = np.einsum("c,cnk->nk", self._asked.share, self._asked.opinion).round(DIGITS)
        pairs: dict[str, dict[str, list[float]]] = {}
        for place in np.flatnonzero(self._answers == OPEN).tolist():
            pair = self.pairs[place]
            pairs.setdefault(pair.source, {})[pair.target] = told[place, :2].tolist()
        if self._now is None:
            self._now = outlook(self._asked, self._moves(), self._answers)
        settled = {name: _floor(self._now.settled[n]) for name, n in self._atoms.items()} if self.pairs else {}
        return {"settle": self.settle, "opinion": self.opinion.name, "not_asked": pairs, "settled": settled}


def _floor(value: float) -> float:
    """Rounded down, so that no label seems surer than it is."""
    return math.floor(float(value) * 10**DIGITS + 1e-6) / 10**DIGITS


def _table(relation: Relation, encoding: Any, prior: float) -> list[list[float]]:
    assert relation.type is not None
    assert relation.probability is not None
    return factor_table(relation.type, relation.probability, encoding, prior, relation.distribution)


def _table_of(type: RelationType, encoding: Any, prior: float) -> Float[np.ndarray, "2 2"]:
    return np.array(factor_table(type, ASSUMED, encoding, prior))


def _step(belief: Float[np.ndarray, " N"], table: Float[np.ndarray, "... 2 2"]) -> Float[np.ndarray, " N"]:
    """By how much a factor moves the log-odds of its target, where its source is true with this probability."""
    true = (1 - belief) * table[..., 0, 1] + belief * table[..., 1, 1]
    false = (1 - belief) * table[..., 0, 0] + belief * table[..., 1, 0]
    step: Float[np.ndarray, " N"] = np.log(np.maximum(true, 1e-300)) - np.log(np.maximum(false, 1e-300))
    return step


def _logit(p: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    found: Float[np.ndarray, " N"] = np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(1 - p, 1e-300))
    return found
