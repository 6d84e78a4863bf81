"""Graphs for the tests: hypothesis strategies, families of known shape, and the rows of the golden file."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import strategies as st

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared"
TYPES = ("entailment", "contradiction", "equivalence")
ANSWERS = ("entailment", "contradiction", "neutral")  # of a relation model
PRIOR = {"paper": ("implication", 0.99), "release": ("conditional", 0.9)}  # SPEC 2: encoding, context prior

Data = dict[str, list[dict[str, Any]]]  # a fact graph as in SPEC 7: nodes and edges


@functools.cache
def _golden() -> tuple[dict[str, Any], ...]:
    with (SHARED / "golden" / "exact.jsonl").open() as lines:
        return tuple(map(json.loads, lines))


def golden_rows() -> tuple[dict[str, Any], ...]:
    """The 300 graphs with float64 answers; a test that asks for them is skipped where the file is missing."""
    if not (SHARED / "golden" / "exact.jsonl").exists():
        pytest.skip("needs ../shared/golden/exact.jsonl")
    return _golden()


def settings_of(row: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `from_dict` (and of `oracle.network`) that belong to a golden row or a drawn one."""
    return {key: row[key] for key in ("encoding", "context_prior", "atom_prior")}


def atom(name: str, prior: float = 0.5) -> dict[str, Any]:
    return {"id": name, "type": "atom", "probability": prior}


def context(name: str, prior: float) -> dict[str, Any]:
    return {"id": name, "type": "context", "probability": prior}


def edge(source: str, target: str, type: str, probability: float) -> dict[str, Any]:
    return {"source": source, "target": target, "type": type, "probability": probability}


_inner = st.floats(1e-4, 1 - 1e-4)
_any = st.one_of(_inner, st.sampled_from([0.0, 1.0, 0.5, 1e-9, 1 - 1e-9]))


@st.composite
def fact_graphs(draw: st.DrawFn, max_nodes: int = 9, hard: bool = False) -> dict[str, Any]:
    """A random fact graph with its settings; `hard` ones also have p and priors of 0 and 1, so Z may be 0."""
    probability = _any if hard else _inner
    count = draw(st.integers(1, max_nodes))
    kinds = draw(st.lists(st.sampled_from(["atom", "context"]), min_size=count, max_size=count))
    nodes = [{"id": f"{kind[0]}{v}", "type": kind, "probability": draw(probability)} for v, kind in enumerate(kinds)]
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] != pair[1])
    pairs = draw(st.lists(ends, max_size=2 * count)) if count > 1 else []  # parallel and opposite ones included
    edges = [
        edge(nodes[s]["id"], nodes[t]["id"], draw(st.sampled_from((*TYPES, "neutral"))), draw(probability))
        for s, t in pairs
    ]
    return {
        "nodes": nodes,
        "edges": edges,
        "encoding": draw(st.sampled_from(["implication", "conditional"])),
        "context_prior": draw(probability),
        "atom_prior": draw(probability),
    }


_shares = st.tuples(*[st.one_of(st.floats(1e-3, 1.0), st.sampled_from([0.0, 1.0, 1e-9]))] * 3).filter(any)


@st.composite
def soft_graphs(draw: st.DrawFn, max_nodes: int = 4, max_edges: int = 4) -> dict[str, Any]:
    """A random fact graph whose edges, of all types, have a distribution or not; answers of 0 and 1 included."""
    data = draw(fact_graphs(max_nodes, hard=True))
    edges = []
    for row in data["edges"][:max_edges]:
        if draw(st.booleans()):
            shares = draw(_shares)
            row = row | {
                "distribution": {name: share / sum(shares) for name, share in zip(ANSWERS, shares, strict=True)}
            }
        edges.append(row)
    return data | {"edges": edges, "encoding": "soft"}


@st.composite
def networks(draw: st.DrawFn, max_variables: int = 9) -> oracle.Network:
    """A random network of any weights >= 0, zeros included, as a UAI file may hold it."""
    weight = st.one_of(st.floats(1e-3, 1e3), st.sampled_from([0.0, 1.0]))
    count = draw(st.integers(1, max_variables))
    unary = [[draw(weight), draw(weight)] for _ in range(count)]
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] != pair[1])
    pairs = draw(st.lists(ends, max_size=2 * count)) if count > 1 else []
    tables = [[[draw(weight), draw(weight)], [draw(weight), draw(weight)]] for _ in pairs]
    return oracle.weights([f"x{v}" for v in range(count)], unary, pairs, np.array(tables).reshape(-1, 2, 2))


def random_graph(
    rng: np.random.Generator,
    atoms: int,
    contexts: int,
    density: float,
    *,
    preset: str = "paper",
    cc: float = 0.0,
    low: float = 0.5,
    high: float = 0.9999,
) -> Data:
    """Atoms and contexts where each pair has a relation with probability `density`, and context pairs with `cc`."""
    prior = PRIOR[preset][1]
    nodes = [atom(f"a{i}") for i in range(atoms)] + [context(f"c{j}", prior) for j in range(contexts)]
    edges = []
    for j in range(contexts):
        targets = [f"a{i}" for i in range(atoms) if rng.random() < density]
        targets += [f"c{k}" for k in range(j) if rng.random() < cc]
        for target in targets:
            kinds = TYPES if target[0] == "c" else TYPES[:2]
            edges.append(edge(f"c{j}", target, str(rng.choice(kinds)), float(rng.uniform(low, high))))
    return {"nodes": nodes, "edges": edges}


def grid(rows: int, columns: int, p: float = 0.8) -> Data:
    """A grid of contexts, each entailing its right and lower neighbour; its width is the shorter side."""
    nodes = [context(f"c{r}_{c}", 0.6) for r in range(rows) for c in range(columns)]
    edges = [
        edge(f"c{r}_{c}", f"c{r + dr}_{c + dc}", "entailment", p)
        for r in range(rows)
        for c in range(columns)
        for dr, dc in ((0, 1), (1, 0))
        if r + dr < rows and c + dc < columns
    ]
    return {"nodes": nodes, "edges": edges}


def chain(length: int, p: float = 0.8) -> Data:
    nodes = [atom("a0")] + [context(f"c{i}", 0.7) for i in range(1, length)]
    names = [node["id"] for node in nodes]
    edges = [edge(names[i], names[i - 1], TYPES[i % 3], p) for i in range(1, length)]
    return {"nodes": nodes, "edges": edges}


def star(leaves: int, p: float = 0.9, *, types: tuple[str, ...] = ("entailment", "contradiction")) -> Data:
    """One atom in the middle, and contexts that speak of it, the types in turn."""
    nodes = [atom("a0")] + [context(f"c{i}", 0.9) for i in range(leaves)]
    return {"nodes": nodes, "edges": [edge(f"c{i}", "a0", types[i % len(types)], p) for i in range(leaves)]}


def clique(size: int, p: float = 0.7) -> Data:
    nodes = [context(f"c{i}", 0.6) for i in range(size)]
    edges = [edge(f"c{i}", f"c{j}", "entailment", p) for i in range(size) for j in range(i)]
    return {"nodes": nodes, "edges": edges}


def strong_evidence_both_ways(rng: np.random.Generator, at: int, split: tuple[int, int]) -> oracle.Network:
    """A clique of six with `split[0]` factors for a variable, 1e-308 to 1e-322 in all, and `split[1]` against it.

    In floating point, products with the rest are 0 or have few digits left.
    """
    most, others = rng.uniform(308, 322), rng.permutation([v for v in range(6) if v != at])
    pro, contra = split
    exponents = np.zeros((6, 2))
    exponents[others[:pro], 0] = rng.dirichlet([9] * pro) * most
    exponents[others[pro : pro + contra], 1] = rng.dirichlet([9] * contra) * (most + rng.uniform(-3, 3))
    ends = [(a, b) for a in range(6) for b in range(a)]
    tables = rng.uniform(0.1, 1, (len(ends), 2, 2))
    for (a, b), table in zip(ends, tables, strict=True):
        if a == at:
            table *= 10.0 ** -exponents[b][:, None]
        elif b == at:
            table *= 10.0 ** -exponents[a][None, :]
    return oracle.weights("abcdef", rng.uniform(0.1, 1, (6, 2)), ends, tables)
