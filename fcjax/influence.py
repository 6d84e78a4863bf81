"""How much each relation moves each atom, and what every atom would be without each context.

The influence of relation r on atom a is dP(a = true) / dp_r, exact: with f the relation's table (SPEC 2),

    dP(a) / dp = P(a) sum_st [P(s, t | a) - P(s, t)] f'(s, t) / f(s, t),

so that one row without evidence and one row per atom, observed true, give all influences of a graph.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from fcjax.engine import infer
from fcjax.graph import FactGraph
from fcjax.limits import Limits
from fcjax.posterior import Posterior
from fcjax.records import Relation, Status

INSIDE = 1e-9  # probabilities of 0 and 1 are moved inward by this: the derivative is continuous there


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Influence:
    """dP(atom) / dp(relation) of one graph. Where `status` is not ok, `values` is NaN and `reason` says why."""

    atoms: tuple[str, ...]
    relations: tuple[Relation, ...]
    values: Float[np.ndarray, "atoms relations"]  # float64
    status: Status = Status.OK
    reason: str | None = None

    def top(self, atom: str, count: int = 3) -> list[tuple[Relation, float]]:
        """The relations that move `atom` most, largest first. Raises `KeyError` for an unknown atom."""
        if atom not in self.atoms:
            raise KeyError(atom)
        row = self.values[self.atoms.index(atom)]
        order = np.argsort(-np.abs(row), kind="stable")[:count]
        return [(self.relations[r], float(row[r])) for r in order.tolist()]

    def __repr__(self) -> str:
        if self.status.failed:
            return f"Influence({self.status}: {self.reason})"
        return f"Influence({len(self.atoms)} atoms, {len(self.relations)} relations)"

    def _repr_html_(self) -> str:
        if self.status.failed:
            return f"<p><b>{self.status}</b>: {html.escape(self.reason or '')}</p>"
        rows = "".join(
            f"<tr><td>{html.escape(atom)}</td><td>{html.escape(r.source)} {r.type} {html.escape(r.target)}</td>"
            f"<td>{value:+.4f}</td></tr>"
            for atom in self.atoms
            for r, value in self.top(atom, 1)
        )
        return f"<table><tr><th>atom</th><th>most influential relation</th><th>dP/dp</th></tr>{rows}</table>"


def influences(graphs: Sequence[FactGraph], limits: Limits | None = None) -> list[Influence]:
    """The influence of every relation on every atom, one result a graph, in order; exact rows only.

    A graph that is too wide, inconsistent or a bare model never raises: its `status` says why there is nothing.
    """
    soft = [_inside(graph) if graph.encoding else graph for graph in graphs]
    atoms = [tuple(name for name, kind in zip(g.ids, g.kinds, strict=True) if kind == "atom") for g in graphs]
    rows = [graph for graph, names in zip(soft, atoms, strict=True) for _ in range(1 + len(names))]
    evidence = [observed for names in atoms for observed in ({}, *({name: True} for name in names))]
    answers = iter(infer(rows, evidence=evidence, limits=limits, pairs=True))
    found = []
    for graph, names in zip(soft, atoms, strict=True):
        base, *given = (next(answers) for _ in range(1 + len(names)))
        found.append(_influence(graph, names, base, given))
    return found


def _influence(graph: FactGraph, atoms: tuple[str, ...], base: Posterior, given: list[Posterior]) -> Influence:
    values = np.full((len(atoms), len(graph.relations)), np.nan)
    if base.status.failed or base.method != "exact":
        reason = base.reason or "the posterior is not exact"
        status = base.status if base.status.failed else Status.TOO_WIDE
        return Influence(atoms, graph.relations, values, status, reason)
    if graph.encoding is None:
        reason = "a bare Markov model has no relations; allowed: a graph of relations"
        return Influence(atoms, graph.relations, values, Status.INVALID_INPUT, reason)
    slope = graph.slopes() / graph.tables
    for a, (name, row) in enumerate(zip(atoms, given, strict=True)):
        p = base.p[name]
        # an atom that cannot be true stays so, whatever a relation's probability inside (0, 1) is
        values[a] = 0.0 if row.status.failed else p * ((row.pairs - base.pairs) * slope).sum(axis=(1, 2))
    return Influence(atoms, graph.relations, values)


def _inside(graph: FactGraph) -> FactGraph:
    """The graph with every relation's probability inside (0, 1), so that no table entry is 0."""
    p = np.array([relation.probability for relation in graph.relations], np.float64)
    moved = np.clip(p, INSIDE, 1.0 - INSIDE) - p
    return replace(graph, tables=graph.tables + graph.slopes() * moved[:, None, None])


def leave_one_out(graph: FactGraph, limits: Limits | None = None) -> dict[str, Posterior]:
    """The posterior of everything without each context, by the context that is left out.

    Its relations are dropped, and the variable itself is left with nothing but its prior.
    """
    contexts = [v for v, kind in enumerate(graph.kinds) if kind == "context"]
    kept = [np.flatnonzero((graph.ends != v).all(axis=1)) for v in contexts]
    without = [
        replace(
            graph,
            ends=np.ascontiguousarray(graph.ends[rows]),
            tables=np.ascontiguousarray(graph.tables[rows]),
            relations=tuple(graph.relations[r] for r in rows.tolist()),
        )
        for rows in kept
    ]
    answers = infer(without, limits=limits)
    return {graph.ids[v]: answer for v, answer in zip(contexts, answers, strict=True)}
