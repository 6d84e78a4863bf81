"""Wide graphs with a small vertex cover: exact, by every route and on every backend, or with the limit that binds."""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import oracle
import pytest
from checks import expect, preset
from samples import atom, clique, context, edge, random_graph

from fcjax import Limits, Status, infer
from fcjax.inference import covering
from fcjax.inference.influence import influences
from fcjax.inference.map_assignment import most_probable


def complete(atoms: int, contexts: int, seed: int = 0, low: float = 0.5, high: float = 1.0) -> dict[str, Any]:
    """One relation between each atom and each context: width and smallest cover are the smaller number."""
    rng = np.random.default_rng(seed)
    nodes = [atom(f"a{i}") for i in range(atoms)] + [context(f"c{j}", 0.9) for j in range(contexts)]
    types = ("entailment", "contradiction")
    edges = [
        edge(f"c{j}", f"a{i}", types[rng.integers(2)], rng.uniform(low, high))
        for i in range(atoms)
        for j in range(contexts)
    ]
    return {"nodes": nodes, "edges": edges}


@pytest.fixture
def covers_solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the covers that were summed over."""
    found: list[int] = []
    solve = covering.solve

    def counted(g: int, cover: covering.Covered, *rest: Any) -> float:
        found.append(cover.size)
        return solve(g, cover, *rest)

    monkeypatch.setattr("fcjax.inference.engine.sum_over_cover", counted)
    return found


@pytest.mark.parametrize("effort", ["tight", "label"])
@pytest.mark.parametrize("name", ["paper", "release"])
def test_complete_graphs_are_exact(name: str, effort: Any, covers_solved: list[int]) -> None:
    pairs = [preset(complete(*sides, seed=seed), name) for seed, sides in enumerate([(17, 20), (18, 19), (14, 40)])]
    rows = infer([graph for graph, _ in pairs], effort=effort)
    for out, (_, net), size in zip(rows, pairs, (17, 18, 14), strict=True):
        expect(out, oracle.eliminate(net))
        assert (out.width, out.cutset, out.gap, out.reason) == (size, 0, 0.0, None)
        assert all(out.certain.values())
    assert sorted(covers_solved) == [14, 17, 18]


def test_evidence_and_pendant_parts_come_back(monkeypatch: pytest.MonkeyPatch, covers_solved: list[int]) -> None:
    """Chains between variables of the core take its joint posteriors, on either side of the cover."""
    monkeypatch.setattr(covering, "FASTER", 0.0)
    data = complete(15, 18)
    data["nodes"] += [context(f"d{k}", 0.7) for k in range(4)]
    for k, (one, two) in enumerate((("a0", "a9"), ("c2", "c3"), ("a1", "c5"), ("a12", "c6"))):
        data["edges"] += [edge(f"d{k}", one, "equivalence", 0.8), edge(f"d{k}", two, "contradiction", 0.9)]
    graph, net = preset(data, "release")
    for observed in ({}, {"a3": True, "c4": False, "d1": True}):
        (out,) = infer([graph], evidence=observed)
        expect(out, oracle.eliminate(net.observe(observed)), observed)
    assert len(covers_solved) == 2


def test_a_certain_clash_is_inconsistent(covers_solved: list[int]) -> None:
    data = complete(15, 20)
    for e in data["edges"]:
        if e["target"] == "a0" and e["source"] in ("c0", "c1"):
            e.update(type="entailment" if e["source"] == "c0" else "contradiction", probability=1.0)
    graph, _ = preset(data)
    clash, fine = infer([graph, graph], evidence=[{"c0": True, "c1": True}, {}])
    assert (clash.status, clash.log_z) == (Status.INCONSISTENT, -math.inf)
    assert "c0 entailment a0" in (clash.reason or "")
    assert fine.status == Status.OK
    assert covers_solved


def test_graphs_of_many_shapes_by_covers(monkeypatch: pytest.MonkeyPatch, covers_solved: list[int]) -> None:
    """Whatever has a core, however cheap its elimination: context pairs, several components, p of 0 and 1."""
    monkeypatch.setattr(covering, "WORTHWHILE", 1.0)
    monkeypatch.setattr(covering, "FASTER", 0.0)
    rng = np.random.default_rng(4)
    pairs = []
    while len(pairs) < 30:
        atoms = int(rng.integers(4, 10))
        data = random_graph(rng, atoms, 2 * atoms, rng.uniform(0.2, 0.6), preset="release", cc=rng.choice([0.0, 0.1]))
        for e in data["edges"][:: int(rng.integers(2, 9))]:
            e["probability"] = float(rng.choice([1e-300, 1e-9, 0.5, 1.0]))
        pairs.append(preset(data, "release"))
    both = {"nodes": [], "edges": []}
    for k in range(2):
        part = complete(4, 5, seed=k)
        both["nodes"] += [{**node, "id": f"{k}{node['id']}"} for node in part["nodes"]]
        both["edges"] += [{**e, "source": f"{k}{e['source']}", "target": f"{k}{e['target']}"} for e in part["edges"]]
    pairs.append(preset(both, "release"))
    for out, (_, net) in zip(infer([graph for graph, _ in pairs]), pairs, strict=True):
        expect(out, oracle.eliminate(net))
    assert len(covers_solved) > 20


def test_the_device_answers_as_the_cpu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "ON_DEVICE", 0.0)
    pairs = [preset(complete(*sides)) for sides in ((17, 18), (18, 20))]
    graphs = [graph for graph, _ in pairs]
    for out, cpu, (_, net) in zip(infer(graphs, backend="xla"), infer(graphs, backend="cpu"), pairs, strict=True):
        expect(out, oracle.eliminate(net))
        assert out.p == pytest.approx(cpu.p, abs=1e-9)
        assert out.log_z == pytest.approx(cpu.log_z, abs=1e-9)


def test_the_number_of_threads_moves_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = preset(complete(19, 20))
    first = infer([graph])[0]
    with ThreadPoolExecutor(1) as one:
        monkeypatch.setattr(covering, "_threads", lambda: one)
        second = infer([graph])[0]
    assert (first.method, first.p, first.log_z) == ("exact", second.p, second.log_z)


def test_limits_of_a_cover_are_named_and_raising_them_is_enough() -> None:
    graph, net = preset(complete(18, 22, low=0.5, high=0.6))
    limits = Limits(exact_width=17, rows=20)
    (out,) = infer([graph], limits=limits)
    if out.status.failed:
        assert (out.reason or "").startswith(
            "exact inference needs width 18; allowed: 17 (exact_width); raise `exact_width` to 18; or raise `rows`"
        )
    assert out.method != "exact"
    expect(infer([graph], limits=dataclasses.replace(limits, exact_width=18))[0], oracle.eliminate(net))


def test_the_reason_of_a_cover_that_is_too_large_names_what_is_enough() -> None:
    """27 on the smaller side: over the default, and the memory is no matter. 40: elimination's limits bind."""
    wide, widest = (preset(complete(n, n + 8, low=0.9), "release")[0] for n in (27, 40))
    for graph, reason in ((wide, "needs width 27; allowed: 26 (exact_width); raise `exact_width` to 27"), (widest, "")):
        (out,) = infer([graph], limits=Limits(rows=20))
        assert out.status == Status.TOO_WIDE
        assert reason in (out.reason or "")
    assert "(memory)" in (out.reason or "")


def test_the_memory_limit_holds_for_covers() -> None:
    graph, _ = preset(complete(20, 24, low=0.9), "release")
    (out,) = infer([graph], limits=Limits(memory=2**16, rows=20))
    assert out.status == Status.TOO_WIDE
    assert "(memory)" in (out.reason or "")


def test_what_needs_joint_posteriors_is_as_limited_as_before() -> None:
    """`pairs`, dP/dp and the most probable assignment are of elimination alone, and say so."""
    graph, _ = preset(complete(23, 30))
    (out,) = infer([graph], pairs=True)
    (moved,) = influences([graph], atoms=[["a0"]])
    (best,) = most_probable([graph])
    for found in (out, moved, best):
        assert found.status == Status.TOO_WIDE
        assert "exact inference needs width at least 23; allowed: 21 (exact_width)" in (found.reason or "")


def test_elimination_follows_a_search_that_failed_where_it_fits_the_memory() -> None:
    """A clique of 23 and two of 4 that hang on it: a width of 22, and no cover of 26."""
    data = clique(23, 0.55)
    names = [node["id"] for node in data["nodes"]]
    for k in range(2):
        part = clique(4, 0.6)
        inner = {node["id"]: f"{k}{node['id']}" for node in part["nodes"]}
        data["nodes"] += [{**node, "id": inner[node["id"]]} for node in part["nodes"]]
        data["edges"] += [{**e, "source": inner[e["source"]], "target": inner[e["target"]]} for e in part["edges"]]
        data["edges"].append(edge(names[k], next(iter(inner.values())), "equivalence", 0.7))
    graph, net = preset(data)
    (searched,) = infer([graph], limits=Limits(rows=2, memory=2**20))
    assert searched.method != "exact"
    (out,) = infer([graph], limits=Limits(rows=2))
    assert (out.status, out.method, out.width, out.reason) == (Status.OK, "exact", 22, None)
    expect(out, oracle.eliminate(net))


@pytest.mark.slow
@pytest.mark.parametrize(("atoms", "contexts"), [(24, 45), (24, 100), (26, 60)])
def test_the_graphs_that_were_too_wide(atoms: int, contexts: int) -> None:
    """Exact, and in agreement with itself: P(a0) is the part of Z that a0 observed true has."""
    graph, _ = preset(complete(atoms, contexts, seed=2))
    out, given = infer([graph, graph], evidence=[{}, {"a0": True}])
    for row in (out, given):
        assert (row.status, row.method) == (Status.OK, "exact")
        assert row.width <= atoms
    assert math.exp(given.log_z - out.log_z) == pytest.approx(out.p["a0"], abs=1e-9)
    assert given.p["a0"] == pytest.approx(1.0, abs=1e-9)
