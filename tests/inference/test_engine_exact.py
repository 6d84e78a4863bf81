"""The engine's exact answers against float64 oracles (SPEC 2, 4, 8), from outside."""

from __future__ import annotations

import json
import math
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import oracle
import pytest
from checks import P_TOLERANCE, bare, build, expect, preset
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import (
    PRIOR,
    SHARED,
    atom,
    chain,
    context,
    edge,
    fact_graphs,
    golden_rows,
    grid,
    networks,
    random_graph,
    settings_of,
    star,
    strong_evidence_both_ways,
)  # fmt: skip

from fcjax import FactGraph, InputError, MarkovModel, Posterior, SettingsError, Status, infer


def test_the_golden_graphs_in_one_mixed_batch() -> None:
    """Every graph within width 18 to the tolerance of exact ones; wider ones with intervals that hold the reference."""
    rows = golden_rows()
    out = infer([build(row) for row in rows])
    assert len(out) == len(rows)
    for row, got in zip(rows, out, strict=True):
        exact = row["exact"]
        if exact["log_z"] is None:
            expect(got, oracle.Answer(-math.inf, {}), row["id"])
        elif exact["width"] <= 18:
            truth = oracle.Answer(exact["log_z"], exact["marginals"])
            expect(got, truth, row["id"], methods=("exact", "conditioned"))
        elif got.status == Status.OK:
            for v, p in exact["marginals"].items():
                assert got.lower[v] <= p <= got.upper[v], (row["id"], v)
        else:
            assert got.status == Status.TOO_WIDE, row["id"]
            assert got.width >= 18


# SPEC 2, checked values, through the engine


@pytest.mark.parametrize(
    ("types", "name", "p"),
    [
        (["entailment"], "release", 0.86),
        (["contradiction"], "release", 0.14),
        (["entailment", "contradiction"], "release", 0.5),
        (["entailment"] * 2, "release", 0.974183),
        (["entailment"] * 3, "release", 0.995704),
        (["entailment"] * 4, "release", 0.999298),
        (["entailment"] * 5, "release", 0.999886),
    ],
)
def test_checked_values_of_the_release(types: list[str], name: str, p: float) -> None:
    nodes = [atom("a")] + [context(f"c{i}", 0.9) for i in range(len(types))]
    edges = [edge(f"c{i}", "a", type, 0.9) for i, type in enumerate(types)]
    assert infer([preset({"nodes": nodes, "edges": edges}, name)[0]])[0].p["a"] == pytest.approx(p, abs=P_TOLERANCE)


def test_checked_values_of_the_paper() -> None:
    nodes = [atom("a"), context("c1", 0.99), context("c2", 0.99), context("c3", 0.99)]
    edges = [
        edge("c1", "a", "entailment", 0.8),
        edge("c2", "a", "contradiction", 0.9),
        edge("c3", "c2", "contradiction", 0.9),
    ]
    examples = [{"nodes": nodes[:3], "edges": edges[:2]}, {"nodes": nodes, "edges": edges}]
    first, second = infer([FactGraph.from_dict(data) for data in examples])
    assert first.p["a"] == pytest.approx(0.317881, abs=P_TOLERANCE)
    assert second.p["a"] == pytest.approx(0.411596, abs=P_TOLERANCE)


def test_the_checked_fact_graph_file() -> None:
    path = SHARED / "cases" / "fact_graph.json"
    if not path.exists():
        pytest.skip("needs ../shared/cases/fact_graph.json")
    graph = FactGraph.from_dict(json.loads(path.read_text()), encoding="conditional", context_prior=0.9)
    (out,) = infer([graph])
    assert out.p["a1"] == pytest.approx(0.919149, abs=P_TOLERANCE)


# Range: what a float32 table cannot hold must come out right all the same


def _orders(edges: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The same relations in many orders: by type, by target, both reversed, interleaved, and at random."""
    by_type = sorted(edges, key=lambda e: (e["type"], e["target"], e["source"]))
    by_target = sorted(edges, key=lambda e: (e["target"], e["type"], e["source"]))
    half = len(edges) // 2
    interleaved = [e for pair in zip(by_type[:half], by_type[half:], strict=True) for e in pair]
    orders = [edges, by_type, by_type[::-1], by_target, by_target[::-1], interleaved, interleaved[::-1]]
    for seed in range(30):
        orders.append(random.Random(seed).sample(edges, len(edges)))
    return orders


@pytest.mark.parametrize("atoms", [2, 3, 5])
def test_shared_evidence_that_cancels_is_a_tie_in_every_order(atoms: int) -> None:
    """25 entailing contexts and 25 contradicting ones at 0.9999 pass through states 100 decades apart."""
    contexts = [context(f"c{i:02}", 0.99) for i in range(50)]
    edges = [
        edge(f"c{i:02}", f"a{k}", "entailment" if i < 25 else "contradiction", 0.9999)
        for i in range(50)
        for k in range(atoms)
    ]
    graphs = []
    for i, order in enumerate(_orders(edges)):
        nodes = [atom(f"a{k}") for k in range(atoms)] + random.Random(i).sample(contexts, len(contexts))
        graphs.append(FactGraph.from_dict({"nodes": nodes if i % 2 else nodes[::-1], "edges": order}))
    for out in infer(graphs):
        assert out.status == Status.OK
        assert [out.p[f"a{k}"] for k in range(atoms)] == pytest.approx([0.5] * atoms, abs=P_TOLERANCE)


def test_eight_hundred_contexts_that_cancel_on_one_atom() -> None:
    data = star(800)
    assert [e["type"] for e in data["edges"]].count("entailment") == 400
    graphs = [preset({**data, "edges": order}, name)[0] for order in _orders(data["edges"]) for name in PRIOR]
    for out in infer(graphs):
        assert out.p["a0"] == pytest.approx(0.5, abs=P_TOLERANCE)


def test_one_sided_evidence_of_any_strength() -> None:
    data = [star(count, p, types=("entailment",)) for count in (1, 10, 100, 1000) for p in (0.6, 0.9999, 1 - 1e-12)]
    pairs = [preset(row, name) for row in data for name in PRIOR]
    for out, (_, net) in zip(infer([graph for graph, _ in pairs]), pairs, strict=True):
        expect(out, oracle.eliminate(net))


@pytest.mark.parametrize("split", [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("at", range(6))
def test_strong_evidence_for_and_against_a_variable_of_a_core(at: int, split: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    nets = [strong_evidence_both_ways(rng, at, split) for _ in range(100)]
    for i, (out, net) in enumerate(zip(infer([*map(bare, nets)], backend="cpu"), nets, strict=True)):
        expect(out, oracle.enumerate_states(net), i)


@pytest.mark.parametrize(
    "ends", [[(0, 1), (0, 2), (0, 3)], [(1, 0), (2, 0), (3, 0)], [(0, 1), (1, 2), (2, 3), (3, 0)]],
    ids=["leaves", "leaves that speak", "a ring"],
)  # fmt: skip
def test_products_with_few_digits_left(ends: list[tuple[int, int]]) -> None:
    """Leaves and chains whose weights multiply to 1e-320 or so, where float64 has but two or three digits."""
    rng = np.random.default_rng(0)
    nets = []
    for _ in range(100):
        share = rng.uniform(100, 220)
        unary = rng.uniform(1, 9, (4, 2)) * 10.0**-share
        unary[0] = rng.uniform(0.1, 1, 2)
        tables = rng.uniform(1, 9, (len(ends), 2, 2)) * 10.0 ** (share - rng.uniform(321, 323))
        nets.append(oracle.weights("abcd", unary, ends, tables))
    for i, (out, net) in enumerate(zip(infer([*map(bare, nets)]), nets, strict=True)):
        expect(out, oracle.enumerate_states(net), i)


@pytest.mark.parametrize("seed", range(4))
def test_extreme_probabilities_in_a_wide_core(seed: int) -> None:
    """Dense graphs whose relations are nearly certain and contradict each other."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(10):
        data = random_graph(rng, int(rng.integers(3, 9)), 30, 0.7, preset="release")
        for e in data["edges"]:
            e["probability"] = float(rng.choice([1e-9, 1e-4, 0.5, 0.9999, 1 - 1e-6, 1 - 1e-9]))
        pairs += [preset(data, name) for name in PRIOR]
    for out, (_, net) in zip(infer([graph for graph, _ in pairs]), pairs, strict=True):
        expect(out, oracle.eliminate(net))


# Against enumeration, always


@settings(max_examples=60)
@given(st.lists(fact_graphs(max_nodes=9), min_size=1, max_size=8))
def test_random_graphs_against_enumeration(rows: list[dict[str, Any]]) -> None:
    for out, row in zip(infer([build(row) for row in rows]), rows, strict=True):
        expect(out, oracle.enumerate_states(oracle.network(row, **settings_of(row))))


@settings(max_examples=100)
@given(st.lists(fact_graphs(max_nodes=8, hard=True), min_size=1, max_size=8))
def test_random_graphs_with_zeros_and_ones_against_enumeration(rows: list[dict[str, Any]]) -> None:
    for out, row in zip(infer([build(row) for row in rows]), rows, strict=True):
        expect(out, oracle.enumerate_states(oracle.network(row, **settings_of(row))))


@settings(max_examples=60)
@given(st.lists(networks(max_variables=8), min_size=1, max_size=8), st.data())
def test_bare_models_with_evidence_against_enumeration(nets: list[oracle.Network], data: st.DataObject) -> None:
    evidence = [data.draw(st.dictionaries(st.sampled_from(net.ids), st.booleans(), max_size=2)) for net in nets]
    for out, net, observed in zip(infer([*map(bare, nets)], evidence=evidence), nets, evidence, strict=True):
        expect(out, oracle.enumerate_states(net.observe(observed)), observed)


@pytest.mark.parametrize("preset_name", ["paper", "release"])
@pytest.mark.parametrize("cc", [0.0, 0.08])
def test_larger_cores_against_elimination(preset_name: str, cc: float) -> None:
    """Cores of 10 to 60 variables and widths up to 14, every size class in one batch."""
    rng = np.random.default_rng(7)
    pairs = []
    while len(pairs) < 60:
        atoms = int(rng.integers(2, 13))
        data = random_graph(rng, atoms, int(2.1 * atoms), rng.uniform(0.1, 0.6), preset=preset_name, cc=cc)
        graph, net = preset(data, preset_name)
        if oracle.min_fill(net)[1] <= 14:
            pairs.append((graph, net))
    for out, (_, net) in zip(infer([graph for graph, _ in pairs]), pairs, strict=True):
        expect(out, oracle.eliminate(net))


def test_long_and_regular_shapes_against_elimination() -> None:
    shapes = [chain(5000), star(5000), grid(8, 100), grid(3, 1000)]
    pairs = [preset(data, name) for data in shapes for name in PRIOR]
    for out, (graph, net) in zip(infer([graph for graph, _ in pairs]), pairs, strict=True):
        expect(out, oracle.eliminate(net), graph)


# What must not change a marginal (by more than 1e-6)


def relabelled(data: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], dict[str, str]]:
    """The same graph under other names, its nodes and edges in another order."""
    order = rng.sample(data["nodes"], len(data["nodes"]))
    names = {node["id"]: f"n{i}" for i, node in enumerate(order)}
    nodes = [{**node, "id": names[node["id"]]} for node in order]
    edges = [{**e, "source": names[e["source"]], "target": names[e["target"]]} for e in data["edges"]]
    return {"nodes": nodes, "edges": rng.sample(edges, len(edges))}, names


def assert_same(out: Posterior, reference: Posterior, names: dict[str, str] | None = None) -> None:
    assert out.status == reference.status
    if reference.status == Status.OK:
        got = {v: out.p[names[v] if names else v] for v in reference.p}
        assert got == pytest.approx(reference.p, abs=1e-6, rel=0)


@settings(max_examples=50)
@given(fact_graphs(max_nodes=9, hard=True), st.randoms(use_true_random=False))
def test_invariances_of_small_graphs(row: dict[str, Any], rng: random.Random) -> None:
    check_invariances(row, rng)


@pytest.mark.parametrize("seed", range(6))
def test_invariances_of_larger_graphs(seed: int) -> None:
    data = random_graph(np.random.default_rng(seed), 8, 16, 0.45, cc=0.05)
    check_invariances(
        {**data, "encoding": "implication", "context_prior": 0.99, "atom_prior": 0.5}, random.Random(seed)
    )


def check_invariances(row: dict[str, Any], rng: random.Random) -> None:
    nodes, edges, ids = row["nodes"], row["edges"], [node["id"] for node in row["nodes"]]
    (reference,) = infer([build(row)])

    renamed, names = relabelled(row, rng)
    neutral = [edge(*rng.sample(ids, 2), "neutral", rng.random()) for _ in range(5)] if len(ids) > 1 else []
    variants = [
        {**row, "edges": rng.sample(edges + neutral, len(edges + neutral))},
        {**row, "nodes": rng.sample(nodes, len(nodes))},
        {**row, "nodes": [*nodes, atom("lonely"), context("idle", 0.3)]},
        {**row, "nodes": [*nodes, atom("x"), context("y", 0.9)], "edges": [edge("y", "x", "entailment", 0.8), *edges]},
    ]
    others = [build(row)] * 3 + [preset(chain(30))[0], preset(grid(4, 5))[0], preset(star(40))[0]]
    batch = [*map(build, variants), build({**row, **renamed})]
    mixed = others[:3] + [graph for pair in zip(batch, others, strict=False) for graph in pair] + others[3:]
    alone = [infer([graph])[0] for graph in batch]
    together = infer(mixed)
    for i, out in enumerate([*alone, *(together[3 + 2 * i] for i in range(len(batch)))]):
        assert_same(out, reference, names if i % len(batch) == len(batch) - 1 else None)


def test_a_row_does_not_depend_on_the_size_of_its_batch() -> None:
    rng = np.random.default_rng(3)
    graphs = [preset(random_graph(rng, int(rng.integers(2, 9)), 12, 0.4))[0] for _ in range(700)]
    whole = infer(graphs)
    for size in (1, 7, 64, 500):
        for out, reference in zip(infer(graphs[:size]), whole, strict=False):
            assert_same(out, reference)


# Evidence


@settings(max_examples=60)
@given(fact_graphs(max_nodes=8), st.data())
def test_evidence_clamps_variables(row: dict[str, Any], data: st.DataObject) -> None:
    ids = [node["id"] for node in row["nodes"]]
    observed = data.draw(st.dictionaries(st.sampled_from(ids), st.booleans(), min_size=1, max_size=3))
    answer = oracle.enumerate_states(oracle.network(row, **settings_of(row)).observe(observed))
    for out in (infer([build(row)], evidence=observed)[0], infer([build(row)], evidence=[observed])[0]):
        expect(out, answer)
        assert {v: out.p[v] for v in observed} == pytest.approx({v: float(s) for v, s in observed.items()}, abs=1e-5)


def test_evidence_belongs_to_its_row() -> None:
    graph, net = preset(random_graph(np.random.default_rng(1), 5, 8, 0.5))
    rows: list[dict[str, bool] | None] = [None, {"a0": True}, {"a0": False, "c3": False}, {}]
    for out, observed in zip(infer([graph] * 4, evidence=rows), rows, strict=True):
        expect(out, oracle.enumerate_states(net.observe(observed or {})))


def test_evidence_on_unknown_variables_fails_its_row_only() -> None:
    graph, net = preset(random_graph(np.random.default_rng(1), 5, 8, 0.5))
    bad, good = infer([graph, graph], evidence=[{"a0": True, "zz": True}, None])
    assert bad.status == Status.INVALID_INPUT
    assert "zz" in (bad.reason or "")
    expect(good, oracle.enumerate_states(net))


def test_evidence_needs_a_row_a_graph() -> None:
    graph, _ = preset(chain(3))
    with pytest.raises(SettingsError, match="evidence"):
        infer([graph, graph], evidence=[None])


# Z = 0


def _clash(suffix: str = "") -> list[dict[str, Any]]:
    return [
        edge(f"c1{suffix}", f"a1{suffix}", "entailment", 1.0),
        edge(f"c2{suffix}", f"a1{suffix}", "contradiction", 1.0),
    ]


def test_an_inconsistent_graph_names_what_clashes_and_leaves_the_others_alone() -> None:
    nodes = [atom("a1"), atom("a2"), context("c1", 1.0), context("c2", 1.0), context("c3", 0.9), context("c4", 0.9)]
    harmless = [edge("c3", "a2", "entailment", 0.9), edge("c4", "a2", "entailment", 1.0)]
    bad = FactGraph.from_dict({"nodes": nodes, "edges": [*harmless, *_clash()]})
    rng = np.random.default_rng(0)
    pairs = [preset(random_graph(rng, 6, 12, 0.4)) for _ in range(20)]
    graphs = [graph for graph, _ in pairs]
    out = infer([*graphs[:10], bad, *graphs[10:], bad])
    for row in (out[10], out[21]):
        assert row.status == Status.INCONSISTENT
        assert row.log_z == -math.inf
        for name in ("c1 entailment a1", "c2 contradiction a1"):
            assert name in (row.reason or "")
        for name in ("c3", "c4", "a2"):
            assert name not in (row.reason or "")
        assert set(row.p.values()) == {None}
        assert not any(row.certain.values())
    for i, (_, net) in enumerate(pairs):
        expect(out[i if i < 10 else i + 1], oracle.eliminate(net), i)


def test_the_clash_is_found_along_a_chain_and_in_a_dense_core() -> None:
    """c0 is true and makes c1, ..., c9 and a true; d is true and makes a false. Soft relations lie all about."""
    names = [f"c{i}" for i in range(10)]
    nodes = [atom("a"), atom("b"), context("c0", 1.0), context("d", 1.0), *(context(name, 0.5) for name in names[1:])]
    hard = [edge(s, t, "entailment", 1.0) for s, t in zip(names, [*names[1:], "a"], strict=True)]
    hard.append(edge("d", "a", "contradiction", 1.0))
    soft = [edge(s, t, "entailment", 0.9) for i, s in enumerate(names) for t in [*names[i + 2 :], "b"]]
    clash, fine = (
        FactGraph.from_dict({"nodes": nodes, "edges": soft + hard}),
        {"nodes": nodes, "edges": soft + hard[:-1]},
    )
    bad, good = infer([clash, FactGraph.from_dict(fine)])
    assert bad.status == Status.INCONSISTENT
    assert all(f"{e['source']} {e['type']} {e['target']}" in (bad.reason or "") for e in hard)
    assert "0.9" not in (bad.reason or "")
    expect(good, oracle.enumerate_states(oracle.network(fine)))


def test_evidence_that_rules_itself_out() -> None:
    data = {"nodes": [atom("a"), context("c", 0.9)], "edges": [edge("c", "a", "entailment", 1.0)]}
    graph = FactGraph.from_dict(data)
    impossible, possible = infer([graph, graph], evidence=[{"c": True, "a": False}, {"c": False, "a": False}])
    assert impossible.status == Status.INCONSISTENT
    assert possible.status == Status.OK


def test_certain_and_even_probabilities() -> None:
    """All p in {0, 1}, all p = 0.5, priors of 0 and 1, on chains, stars and grids."""
    pairs = []
    for shape in (chain(12), star(12), grid(3, 4), random_graph(np.random.default_rng(5), 5, 9, 0.6)):
        for p in (0.0, 0.5, 1.0):
            for prior in (None, 0.0, 1.0):
                nodes = [
                    {**node, "probability": node["probability"] if prior is None else prior} for node in shape["nodes"]
                ]
                data = {"nodes": nodes, "edges": [{**e, "probability": p} for e in shape["edges"]]}
                pairs += [preset(data, name) for name in PRIOR]
    for out, (graph, net) in zip(infer([graph for graph, _ in pairs]), pairs, strict=True):
        expect(out, oracle.enumerate_states(net), graph)


# The contract's edges


def test_nothing_in_nothing_out() -> None:
    assert len(infer([])) == 0
    (out,) = infer([FactGraph.from_dict({"nodes": [], "edges": []})])
    assert (out.status, out.log_z, dict(out.p)) == (Status.OK, 0.0, {})


def test_variables_without_relations_keep_their_priors() -> None:
    (out,) = infer([FactGraph.from_dict({"nodes": [atom("a"), atom("b", 0.2), context("c", 0.7)], "edges": []})])
    assert out.p == pytest.approx({"a": 0.5, "b": 0.2, "c": 0.7}, abs=1e-7)
    assert (out.log_z, out.width, out.method) == (pytest.approx(0.0, abs=1e-9), 0, "exact")
    assert out.certain["a"]  # unverified, and surely so


def test_rows_that_could_not_be_read_keep_their_place() -> None:
    graph, net = preset(chain(5))
    out = infer([InputError("no such file"), graph, InputError("line 3 is torn")])
    assert [row.status for row in out] == [Status.INVALID_INPUT, Status.OK, Status.INVALID_INPUT]
    assert "line 3 is torn" in (out[2].reason or "")
    expect(out[1], oracle.eliminate(net))


@pytest.mark.parametrize("effort", ["tight", "label", "fast"])
def test_exact_rows_do_not_depend_on_the_effort(effort: Any) -> None:
    graph, net = preset(random_graph(np.random.default_rng(2), 6, 10, 0.5))
    expect(infer([graph], effort=effort)[0], oracle.enumerate_states(net))


def test_an_unknown_effort_says_what_is_allowed() -> None:
    with pytest.raises(SettingsError, match="tight"):
        infer([], effort="hard")  # type: ignore[arg-type]


def test_widths_are_induced_widths() -> None:
    shapes = {"chain": (chain(20), 1), "star": (star(20), 1), "grid": (grid(5, 6), 5)}
    for out, (data, width) in zip(infer([preset(d)[0] for d, _ in shapes.values()]), shapes.values(), strict=True):
        assert width <= out.width <= width + 1, data


def test_the_same_batch_gives_the_same_bits() -> None:
    rng = np.random.default_rng(11)
    graphs = [preset(random_graph(rng, 8, 16, 0.5))[0] for _ in range(200)]
    first, second = infer(graphs), infer(graphs)
    assert [(out.p, out.log_z) for out in first] == [(out.p, out.log_z) for out in second]


def test_callers_in_several_threads_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(12)
    graphs = [preset(random_graph(rng, 6, 12, 0.4))[0] for _ in range(120)]
    alone = [out.p for out in infer(graphs)]
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: [out.p for out in infer(graphs)], range(8)):
            assert result == alone


def test_one_large_graph_among_thousands_of_small_ones() -> None:
    small = [preset(chain(4))[0], preset(star(3))[0], preset(grid(2, 3))[0]]
    nets = [preset(chain(4))[1], preset(star(3))[1], preset(grid(2, 3))[1]]
    large, large_net = preset(grid(6, 800))
    out = infer(small * 500 + [large] + small * 500)
    answers = [oracle.eliminate(net) for net in nets]
    expect(out[1500], oracle.eliminate(large_net))
    for i in range(0, 3001, 97):
        if i != 1500:
            expect(out[i], answers[(i if i < 1500 else i - 1) % 3], i)


def test_rows_that_are_no_graphs_and_states_that_are_none_are_invalid() -> None:
    graph, _ = preset({"nodes": [atom("a")], "edges": []})
    out = infer(["hello", {"nodes": [], "edges": []}, graph, graph], evidence=[None, None, {"a": 0.5}, {"a": True}])
    assert [row.status for row in out] == [Status.INVALID_INPUT] * 3 + [Status.OK]
    assert "dict" in (out[1].reason or "")
    assert "0.5" in (out[2].reason or "")
    assert out[3].p["a"] == 1.0


@pytest.mark.parametrize(
    "factor",
    [((0, 5), (1, 2, 3, 4)), ((0, 0), (1, 2, 3, 4)), ((0,), (-0.3, 0.7)), ((0, -1), (1, 1, 1, 1)), ((0,), (1,))],
)
def test_a_model_with_a_bad_factor_is_refused(factor: tuple) -> None:
    with pytest.raises(InputError, match=r"factors\[0\].*allowed"):
        FactGraph.from_model(MarkovModel(names=("x", "y"), factors=(factor,)))
