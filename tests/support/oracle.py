"""Float64 oracles for the tests and the benchmarks, written from SPEC 2 and sharing no code with the engine.

A `Network` is built from the same `nodes`/`edges` dicts that the engine takes, or from any weights. Two solvers answer
for it: `enumerate_states` adds up every state (some 18 variables), `eliminate` does exact variable elimination along a
min-fill order (induced width up to 20 or so). Both work on natural logarithms, so that a weight of 0 is just -inf.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Table = tuple[tuple[int, ...], np.ndarray]  # scope (variables, one axis each), log weights


@dataclass(frozen=True)
class Network:
    """A pairwise Boolean network: log weights `unary[v, state]` and `((source, target), table[state, state])`."""

    ids: tuple[str, ...]
    unary: np.ndarray
    pairs: tuple[Table, ...]

    def observe(self, evidence: Mapping[str, bool]) -> Network:
        """The same network where the variables of `evidence` are forced into a state."""
        unary = self.unary.copy()
        for name, state in evidence.items():
            unary[self.ids.index(name), 1 - int(state)] = -np.inf
        return Network(self.ids, unary, self.pairs)


class Answer(NamedTuple):
    """log Z (natural; -inf where no state has any weight) and P(true) of every variable (NaN there)."""

    log_z: float
    p: dict[str, float]


def log(weights: Any) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(weights, np.float64))


def weights(ids: Sequence[str], unary: Any, ends: Iterable[Sequence[int]], tables: Any) -> Network:
    """A network of plain weights: `unary` (V, 2), `ends` (E, 2), `tables` (E, 2, 2), all >= 0."""
    pairs = (((int(s), int(t)), log(table)) for (s, t), table in zip(ends, tables, strict=True))
    return Network(tuple(ids), log(unary).reshape(-1, 2), tuple(pairs))


def network(
    data: Mapping[str, Any], encoding: str = "implication", context_prior: float = 0.99, atom_prior: float = 0.5
) -> Network:
    """The network of a fact graph (SPEC 2): `{"nodes": [...], "edges": [...]}`, neutral edges making no factor."""
    default = {"atom": atom_prior, "context": context_prior}
    ids = [node["id"] for node in data["nodes"]]
    kinds = [node["type"] for node in data["nodes"]]
    priors = [node.get("probability", default[node["type"]]) for node in data["nodes"]]
    ends, tables = [], []
    for edge in data["edges"]:
        p, meaning = edge["probability"], edge["type"]
        s, t = ids.index(edge["source"]), ids.index(edge["target"])
        b = context_prior if kinds[s] == kinds[t] == "context" else atom_prior
        source_false = [p, p] if encoding == "implication" else [1 - b, b]
        if meaning == "entailment":
            tables.append([source_false, [1 - p, p]])
        elif meaning == "contradiction":
            tables.append([source_false, [p, 1 - p]])
        elif meaning == "equivalence":
            tables.append([[p, 1 - p], [1 - p, p]])
        else:
            assert meaning == "neutral", meaning
            continue
        ends.append((s, t))
    return weights(ids, [[1 - prior, prior] for prior in priors], ends, tables)


def enumerate_states(net: Network) -> Answer:
    """By adding up all 2^V states."""
    count = len(net.ids)
    states = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    score = np.zeros(2**count)
    for v in range(count):
        score += net.unary[v, states[:, v]]
    for (s, t), table in net.pairs:
        score += table[states[:, s], states[:, t]]
    log_z = float(np.logaddexp.reduce(score))
    if log_z == -np.inf:
        return Answer(log_z, dict.fromkeys(net.ids, np.nan))
    mass = np.exp(score - log_z)
    return Answer(log_z, {name: min(1.0, float(mass[states[:, v] == 1].sum())) for v, name in enumerate(net.ids)})


def latent(data: Mapping[str, Any], context_prior: float = 0.99, atom_prior: float = 0.5) -> Answer:
    """The answer for a fact graph in `soft` (SPEC 2) by adding up all states of variables and relations together.

    A relation is one of entailment, contradiction and neutral. An edge without a `distribution` shares what its
    probability leaves.
    """
    forbidden = {  # (source, target) by answer; for an equivalence, entailment goes both ways
        "entailment": {(True, False)},
        "contradiction": {(True, True)},
        "neutral": set(),
    }
    default = {"atom": atom_prior, "context": context_prior}
    ids = [node["id"] for node in data["nodes"]]
    priors = [node.get("probability", default[node["type"]]) for node in data["nodes"]]
    relations: list[list[tuple[float, int, int, set[tuple[bool, bool]]]]] = []  # by edge, then by answer
    for edge in data["edges"]:
        p, both = edge["probability"], edge["type"] == "equivalence"
        own = "entailment" if both else edge["type"]
        q = edge.get("distribution", {name: p if name == own else (1.0 - p) / 2 for name in forbidden})
        ends = ids.index(edge["source"]), ids.index(edge["target"])
        relations.append(
            [
                (q[name], *ends, states | {(False, True)} if both and name == "entailment" else states)
                for name, states in forbidden.items()
            ]
        )
    z, true = 0.0, np.zeros(len(ids))
    for states in itertools.product((False, True), repeat=len(ids)):
        unary = float(np.prod([p if state else 1.0 - p for p, state in zip(priors, states, strict=True)]))
        for said in itertools.product(*relations):
            weight = unary
            for share, source, target, no in said:
                weight *= 0.0 if (states[source], states[target]) in no else share
            z += weight
            true += weight * np.array(states)
    return Answer(float(log(z)), {name: float(true[v] / z) if z else np.nan for v, name in enumerate(ids)})


def min_fill(net: Network) -> tuple[list[int], int]:
    """An elimination order, leaves first and then the variable that adds the fewest edges, and its induced width."""
    near: list[set[int]] = [set() for _ in net.ids]
    for (s, t), _ in net.pairs:
        near[s].add(t)
        near[t].add(s)
    order: list[int] = []
    width = 0
    fill: dict[int, int] = {}

    def eliminate(v: int) -> None:
        nonlocal width
        width = max(width, len(near[v]))
        order.append(v)
        fill.pop(v, None)
        for u in near[v]:
            near[u] |= near[v] - {u}
            near[u].discard(v)

    leaves = [v for v in range(len(near)) if len(near[v]) <= 1]
    gone = set(leaves)
    while leaves:
        v = leaves.pop()
        around = list(near[v])
        eliminate(v)
        for u in around:
            if len(near[u]) <= 1 and u not in gone:
                gone.add(u)
                leaves.append(u)

    def missing(v: int) -> int:
        return sum(len(near[v]) - 1 - len(near[v] & near[u]) for u in near[v]) // 2

    fill.update((v, missing(v)) for v in range(len(near)) if v not in gone)
    heap = [(cost, v) for v, cost in fill.items()]
    heapq.heapify(heap)
    while fill:
        cost, v = heapq.heappop(heap)
        if fill.get(v) != cost:
            continue  # eliminated, or pushed again at another cost
        around = set(near[v])
        eliminate(v)
        for u in around.union(*(near[u] for u in around)):
            fill[u] = missing(u)
            heapq.heappush(heap, (fill[u], u))
    return order, width


def eliminate(net: Network) -> Answer:
    """By exact elimination: one bucket a variable, messages down the bucket tree and back up (Hugin's division)."""
    order, _ = min_fill(net)
    place = {v: i for i, v in enumerate(order)}
    inbox: list[list[Table]] = [[((v,), net.unary[v])] for v in range(len(net.ids))]
    for scope, table in net.pairs:
        inbox[min(scope, key=place.__getitem__)].append((scope, table))

    buckets: dict[int, Table] = {}
    sent: dict[int, tuple[int | None, Table]] = {}  # where the message of a variable's bucket went, and what it was
    log_z = 0.0
    for v in order:
        buckets[v] = bucket = _product(v, inbox[v])
        rest = bucket[0][1:]
        message = (rest, np.logaddexp(bucket[1][0], bucket[1][1]))
        if rest:
            parent = min(rest, key=place.__getitem__)
            inbox[parent].append(message)
            sent[v] = (parent, message)
        else:
            log_z += float(message[1])
            sent[v] = (None, message)
    if log_z == -np.inf:
        return Answer(log_z, dict.fromkeys(net.ids, np.nan))

    p: dict[str, float] = {}
    for v in reversed(order):
        parent, (rest, message) = sent[v]
        scope, table = buckets[v]
        if parent is not None:
            belief = _sum_onto(buckets[parent], rest)
            table = table + np.where(message == -np.inf, -np.inf, belief - np.where(message == -np.inf, 0.0, message))
            buckets[v] = (scope, table)
        false, true = (np.logaddexp.reduce(half, axis=None) for half in table)
        p[net.ids[v]] = float(np.exp(true - np.logaddexp(false, true)))
    return Answer(log_z, {name: p[name] for name in net.ids})


def _product(v: int, tables: list[Table]) -> Table:
    """The product of log tables; `v` is the first axis of the result."""
    scope = (v, *sorted({u for names, _ in tables for u in names} - {v}))
    total = np.zeros((2,) * len(scope))
    for names, table in tables:
        total += _spread(names, table, scope)
    return scope, total


def _spread(names: tuple[int, ...], table: np.ndarray, scope: tuple[int, ...]) -> np.ndarray:
    """`table` with its axes in the order of `scope`, and an axis of length 1 for what it does not depend on."""
    axes = sorted(range(len(names)), key=lambda axis: scope.index(names[axis]))
    return table.transpose(axes).reshape([2 if u in names else 1 for u in scope])


def _sum_onto(bucket: Table, rest: tuple[int, ...]) -> np.ndarray:
    """The log sum of a bucket over all variables but `rest`, axes in the order of `rest`."""
    scope, table = bucket
    kept = [u for u in scope if u in rest]
    for axis in reversed(range(len(scope))):
        if scope[axis] not in rest:
            table = np.logaddexp(table.take(0, axis), table.take(1, axis))
    return table.transpose([kept.index(u) for u in rest])
