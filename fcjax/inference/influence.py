"""The influence of each relation on each atom, and the posteriors without each context.

The influence of relation r on atom a is dP(a = true) / dp_r, exact. Z is linear in r's table f (SPEC 2); let
Q(s, t) = (dZ / df(s, t)) / Z, and Q_a the same of the sum over the states with a true, also divided by Z. Then

    dP(a) / dp = sum_st [Q_a(s, t) - P(a) Q(s, t)] f'(s, t).

Q(s, t) is P(s, t) / f(s, t), so that one row without evidence and one row per atom, observed true, give all of a graph.
Where f(s, t) is 0 or nearly so, Q comes from the same rows of the graph with ones for this one table.

Posteriors as derivatives of Z: Darwiche, "A Differential Approach to Inference in Bayesian Networks", Journal of the
ACM 50, 2003.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from fcjax.core.errors import SettingsError, counted
from fcjax.core.limits import Limits
from fcjax.core.records import Relation, Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.engine import infer
from fcjax.inference.posterior import Posterior

LEAST = 1e-6  # a table entry under this would cost P / f more than 10 of its 16 digits
TOGETHER = 64  # graphs whose rows are solved as one batch


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Influence:
    """dP(atom) / dp(relation) of one graph. Where `status` is not ok, `values` is NaN and `reason` says why."""

    atoms: tuple[str, ...]
    relations: tuple[Relation, ...]
    values: Float[np.ndarray, "atoms relations"]  # float64
    status: Status = Status.OK
    reason: str | None = None

    def top(self, atom: str, k: int = 3) -> list[tuple[Relation, float]]:
        """The `k` relations that move `atom` most, largest first. Raises `KeyError` for an unknown atom."""
        if atom not in self.atoms:
            raise KeyError(atom)
        row = self.values[self.atoms.index(atom)]
        order = np.argsort(-np.abs(row), kind="stable")[:k]
        return [(self.relations[r], float(row[r])) for r in order.tolist()]

    def __repr__(self) -> str:
        if self.status.failed:
            return f"Influence({self.status}: {self.reason})"
        return f"Influence({counted(len(self.atoms), 'atom')}, {counted(len(self.relations), 'relation')})"

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


def influences(
    graphs: Sequence[FactGraph],
    limits: Limits | None = None,
    *,
    atoms: Sequence[Collection[str] | None] | None = None,
) -> list[Influence]:
    """The influence of every relation on every atom, one result per graph, in order.

    `atoms` selects atoms, one list (or None for all) per graph; each atom costs a row. At p = 0 and
    p = 1 it is the one-sided derivative, and each such relation costs as many rows again. A graph that is inconsistent,
    too wide for elimination or a bare model never raises: its `status` says why there is nothing. Raises
    `SettingsError` where `atoms` has another length than `graphs` or names an id that is not an atom.
    """
    if atoms is not None and len(atoms) != len(graphs):
        raise SettingsError(f"atoms has {len(atoms)} rows; allowed: one per graph ({len(graphs)}), or None")
    wanted = [_wanted(graph, None if atoms is None else atoms[g]) for g, graph in enumerate(graphs)]
    found: list[Influence] = []
    for start in range(0, len(graphs), TOGETHER):
        part = graphs[start : start + TOGETHER]
        asked = wanted[start : start + TOGETHER]
        open_ = [_near_zero(graph) for graph in part]  # factors
        rows: list[FactGraph] = []
        evidence: list[dict[str, bool]] = []
        for graph, names, factors in zip(part, asked, open_, strict=True):
            for variant in (graph, *(_with_ones(graph, f) for f in factors)):
                rows += [variant] * (1 + len(names))
                # an atom that was observed before stays as it was, and comes out as moved by nothing
                evidence += [{}, *({name: graph.evidence.get(name, True)} for name in names)]
        answers = iter(infer(rows, evidence=evidence, limits=limits, pairs=True, backend="cpu"))  # float64
        found += [
            _influence(graph, names, factors, answers) for graph, names, factors in zip(part, asked, open_, strict=True)
        ]
    return found


def _wanted(graph: FactGraph, names: Collection[str] | None) -> tuple[str, ...]:
    """The atoms of a graph, or those of `names`, in the graph's order; a merged duplicate stands for the kept one."""
    atoms = tuple(name for name, kind in zip(graph.ids, graph.kinds, strict=True) if kind == "atom")
    if names is None:
        return atoms
    asked = {graph.aliases.get(name, name) for name in ([names] if isinstance(names, str) else names)}
    if unknown := asked.difference(atoms):
        raise SettingsError(f"atoms names {sorted(unknown)}; allowed: ids of the graph's atoms, one list per graph")
    return tuple(name for name in atoms if name in asked)


def _influence(graph: FactGraph, atoms: tuple[str, ...], open_: list[int], answers: Iterator[Posterior]) -> Influence:
    """Of one graph; takes its rows from `answers`: the graph's own, then those with ones for each of `open_`."""
    own, *others = ([next(answers) for _ in range(1 + len(atoms))] for _ in range(1 + len(open_)))
    base = own[0]
    if base.status.failed or graph.encoding is None:
        reason = base.reason if base.status.failed else "a bare Markov model; allowed: a graph of relations"
        status = base.status if base.status.failed else Status.INVALID_INPUT
        return Influence(atoms, graph.relations, np.full((len(atoms), len(graph.relations)), np.nan), status, reason)
    slopes = graph.slopes()
    rate = np.divide(slopes, graph.tables, out=np.zeros_like(slopes), where=graph.tables >= LEAST)
    rate[open_] = slopes[open_]
    mass = np.array([_mass(row, base.log_z) for row in own])
    for f, rows in zip(open_, others, strict=True):
        mass[:, f] = [_mass(row, base.log_z)[f] for row in rows]
    moved = (mass * rate).sum(axis=(2, 3))
    p = np.exp([row.log_z - base.log_z for row in own])[
        :, None
    ]  # 1 for an atom that was observed before, even as false
    return Influence(atoms, graph.relations, (moved - p * moved[0])[1:])


def _mass(row: Posterior, log_z: float) -> Float[np.ndarray, "E 2 2"]:
    """The weight of each factor's states in a row, as a part of the graph's Z."""
    return np.zeros_like(row.pairs) if row.status is Status.INCONSISTENT else row.pairs * np.exp(row.log_z - log_z)


def _near_zero(graph: FactGraph) -> list[int]:
    """The factors with a table entry that is too small to divide by, and that moves with p."""
    if graph.encoding is None:
        return []
    return np.flatnonzero(((graph.tables < LEAST) & (graph.slopes() != 0.0)).any(axis=(1, 2))).tolist()


def _with_ones(graph: FactGraph, factor: int) -> FactGraph:
    tables = graph.tables.copy()
    tables[factor] = 1.0
    return replace(graph, tables=tables)


def leave_one_out(graph: FactGraph, limits: Limits | None = None) -> dict[str, Posterior]:
    """The posteriors without each context, by the id of the context that is left out.

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
