"""Weighted mini-buckets: a true upper bound on log Z, exact where no bucket is split, and no promises beyond."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracle
import pytest
from checks import LOG_Z_TOLERANCE, P_TOLERANCE, bare, build, preset
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import (
    PRIOR,
    chain,
    clique,
    context,
    edge,
    fact_graphs,
    golden_rows,
    grid,
    networks,
    random_graph,
    settings_of,
    star,
)  # fmt: skip

from fcjax import FactGraph, InputError, Limits, MarkovModel, Posterior, SettingsError, Status, infer
from fcjax.graph.batch import GraphBatch
from fcjax.kernels import minibucket, reduce

ROUNDING = 1e-10  # relative to max(1, |log Z|)
Pair = tuple[FactGraph, oracle.Network]


def wmb(graphs: list[FactGraph], i_bound: int, **options: Any) -> list[Posterior]:
    return list(infer(graphs, method="wmb", i_bound=i_bound, **options))


def expect_bound(out: Posterior, answer: oracle.Answer, name: object = "") -> None:
    """A row with log Z at or above the truth, and posteriors that claim nothing; where Z = 0, an inconsistent one."""
    if answer.log_z == -math.inf:
        assert (out.status, out.log_z) == (Status.INCONSISTENT, -math.inf), name
        assert out.reason
        return
    assert (out.status, out.method) == (Status.OK, "wmb"), (name, out.reason)
    assert answer.log_z - ROUNDING * max(1, abs(answer.log_z)) <= out.log_z < math.inf, name
    assert all(0.0 <= p <= 1.0 for p in out.p.values()), name
    assert set(out.lower.values()) == {0.0}
    assert set(out.upper.values()) == {1.0}
    assert not any(out.certain.values())
    assert math.isnan(out.gap)


def expect_equal(out: Posterior, answer: oracle.Answer, name: object = "") -> None:
    """A bound that is the truth, beliefs included."""
    expect_bound(out, answer, name)
    if answer.log_z > -math.inf:
        assert abs(out.log_z - answer.log_z) <= LOG_Z_TOLERANCE * max(1, abs(answer.log_z)), name
        assert out.p == pytest.approx(answer.p, abs=P_TOLERANCE, rel=0), name


def wide(count: int, name: str, seed: int = 3) -> list[Pair]:
    """Graphs of widths 5 to 14, which the oracle can still eliminate."""
    rng = np.random.default_rng(seed)
    pairs: list[Pair] = []
    while len(pairs) < count:
        atoms = int(rng.integers(5, 13))
        data = random_graph(rng, atoms, 2 * atoms, rng.uniform(0.2, 0.6), preset=name, cc=rng.choice([0.0, 0.1]))
        pair = preset(data, name)
        if 5 <= oracle.min_fill(pair[1])[1] <= 14:
            pairs.append(pair)
    return pairs


@settings(max_examples=150)
@given(st.lists(fact_graphs(max_nodes=9, hard=True), min_size=1, max_size=5), st.integers(1, 4))
def test_bound_of_random_graphs(rows: list[dict[str, Any]], i_bound: int) -> None:
    """Probabilities and priors of 0 and 1 among them."""
    for out, row in zip(wmb([build(row) for row in rows], i_bound), rows, strict=True):
        expect_bound(out, oracle.enumerate_states(oracle.network(row, **settings_of(row))))


@settings(max_examples=150)
@given(st.lists(networks(max_variables=8), min_size=1, max_size=5), st.integers(1, 3))
def test_bound_of_bare_models(nets: list[oracle.Network], i_bound: int) -> None:
    for out, net in zip(wmb([*map(bare, nets)], i_bound), nets, strict=True):
        expect_bound(out, oracle.enumerate_states(net))


@settings(max_examples=100)
@given(st.lists(networks(max_variables=9), min_size=1, max_size=5), st.data())
def test_nothing_is_split_within_the_i_bound(nets: list[oracle.Network], data: st.DataObject) -> None:
    """Eight neighbours fit: log Z and posteriors are exact, with evidence too."""
    observed = [data.draw(st.dictionaries(st.sampled_from(net.ids), st.booleans(), max_size=2)) for net in nets]
    for out, net, seen in zip(wmb([*map(bare, nets)], 8, evidence=observed), nets, observed, strict=True):
        expect_equal(out, oracle.enumerate_states(net.observe(seen)), seen)


@pytest.mark.parametrize("name", PRIOR)
@pytest.mark.parametrize("i_bound", [1, 2, 4, 6, 10])
def test_bound_and_width_against_elimination(name: str, i_bound: int) -> None:
    pairs = [*wide(30, name), preset(grid(6, 9), name), preset(grid(3, 70), name), preset(chain(40), name)]
    rows = wmb([graph for graph, _ in pairs], i_bound)
    for out, (_, net) in zip(rows, pairs, strict=True):
        check = expect_equal if out.width <= i_bound else expect_bound
        check(out, oracle.eliminate(net))
        assert out.width >= oracle.min_fill(net)[1] - 1  # of an order of its own


@pytest.mark.parametrize("i_bound", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_bound_where_probabilities_are_extreme(seed: int, i_bound: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(12):
        data = random_graph(rng, 8, 16, 0.5, preset="release", cc=0.05)
        for e in data["edges"]:
            e["probability"] = float(rng.choice([0.0, 1e-300, 1e-9, 0.5, 0.9999, 1 - 1e-9, 1.0]))
        pairs.append(preset(data, "release"))
    for out, (_, net) in zip(wmb([g for g, _ in pairs], i_bound), pairs, strict=True):
        expect_bound(out, oracle.eliminate(net))


def test_every_pass_has_a_bound_and_they_fall() -> None:
    """The bound is the truth's or above it after any number of passes, and the passes are worth their time."""
    pairs = wide(20, "release")
    truth = np.array([oracle.eliminate(net).log_z for _, net in pairs])
    table = GraphBatch.from_graphs([graph for graph, _ in pairs])
    reduced = reduce.reduce(table.node_ptr, table.factor_ptr, table.unary, table.ends, table.tables)
    before = np.full(len(pairs), np.inf)
    gaps = []
    for passes in range(1, 13):
        log_z = minibucket.sweep(table.node_ptr, table.factor_ptr, reduced, 3, passes, 1e9)[0] + reduced.log_z
        assert (log_z >= truth - ROUNDING * np.maximum(1, abs(truth))).all(), passes
        assert (log_z <= before).all(), passes
        before = log_z
        gaps.append(np.mean(log_z - truth))
    assert gaps[9] < gaps[0] / 2


def test_a_larger_i_bound_is_worth_its_time() -> None:
    pairs = wide(20, "release")
    truth = [oracle.eliminate(net) for _, net in pairs]
    gaps, errors = [], []
    for i_bound in (1, 3, 6, 9):
        rows = wmb([graph for graph, _ in pairs], i_bound)
        gaps.append(np.mean([out.log_z - answer.log_z for out, answer in zip(rows, truth, strict=True)]))
        worst = [max(abs(out.p[v] - p) for v, p in answer.p.items()) for out, answer in zip(rows, truth, strict=True)]
        errors.append(np.median(worst))
    assert gaps == sorted(gaps, reverse=True)
    assert errors[2] < 0.1
    assert errors[3] < errors[0]


@pytest.mark.parametrize("i_bound", [2, 6])
def test_golden_graphs_are_bounded(i_bound: int) -> None:
    rows = golden_rows()
    for row, out in zip(rows, wmb([build(row) for row in rows], i_bound), strict=True):
        log_z = row["exact"]["log_z"]
        answer = oracle.Answer(-math.inf if log_z is None else log_z, row["exact"]["marginals"])
        expect_bound(out, answer, row["id"])


def test_bad_input_has_a_bound_and_leaves_the_rest_alone() -> None:
    small, net = preset(grid(4, 5))
    enormous = [FactGraph.from_dict(data) for data in (clique(60), grid(70, 71), chain(5000), star(5000))]
    rows = wmb([small, *enormous, FactGraph.from_dict({"nodes": [], "edges": []}), InputError("torn"), small], 6)
    for out in (rows[0], rows[7]):
        expect_equal(out, oracle.eliminate(net))
    for out in rows[1:6]:
        assert out.status == Status.OK
        assert math.isfinite(out.log_z)
        assert all(0.0 <= p <= 1.0 for p in out.p.values())
    assert rows[1].width == 59
    (exact,) = infer([enormous[2]])
    assert rows[3].p == pytest.approx(exact.p, abs=P_TOLERANCE)
    assert rows[6].status == Status.INVALID_INPUT
    for i_bound in (1, 3):
        (out,) = wmb([enormous[0]], i_bound)
        assert math.isfinite(out.log_z)


def test_uniform_clique_is_bounded() -> None:
    """60 contexts that are all tied to each other by factors that say nothing: log Z in closed form."""
    size = 60
    data = clique(size, 0.5)  # every factor is 1/2 everywhere
    (out,) = wmb([preset(data)[0]], 6)
    assert out.log_z == pytest.approx(size * (size - 1) / 2 * math.log(0.5), abs=1e-6)
    assert list(out.p.values()) == pytest.approx([0.6] * size, abs=P_TOLERANCE)


def test_the_memory_limit_is_kept() -> None:
    wide_graph, (small, net) = FactGraph.from_dict(grid(60, 60)), preset(grid(4, 5))
    for i_bound, memory in ((18, 2**24), (6, 2**18)):
        out = wmb([wide_graph, small], i_bound, limits=Limits(memory=memory))
        assert out[0].status == Status.TOO_WIDE
        assert out[0].width > 0
        assert "memory" in (out[0].reason or "")
        assert math.isnan(out[0].log_z)
        expect_equal(out[1], oracle.eliminate(net))


def test_the_memory_limit_is_that_of_all_tables() -> None:
    """A clique of 10 in whole buckets has tables over 10, 9, ..., 1 variables: 2,046 entries of 8 bytes.

    There are four numbers per entry: its factor, their product, its belief, and the messages of half its size either
    way.
    """
    graph, net = preset(clique(10))
    (out,) = wmb([graph], 9, limits=Limits(memory=4 * 8 * 2046))
    expect_equal(out, oracle.enumerate_states(net))
    (out,) = wmb([graph], 9, limits=Limits(memory=4 * 8 * 2046 - 8))
    assert out.status == Status.TOO_WIDE
    assert "(memory)" in (out.reason or "")


def test_an_inconsistent_core_names_what_clashes() -> None:
    data = random_graph(np.random.default_rng(8), 31, 67, 0.2, preset="release", cc=0.05)
    data["nodes"] += [context("sure", 1.0), context("also sure", 1.0)]
    data["edges"] += [edge("sure", "a0", "entailment", 1.0), edge("also sure", "a0", "contradiction", 1.0)]
    (out,) = wmb([preset(data, "release")[0]], 6)
    assert (out.status, out.log_z) == (Status.INCONSISTENT, -math.inf)
    assert "also sure contradiction a0" in (out.reason or "")


@pytest.mark.parametrize("where", ["evidence", "relation", "nowhere"])
def test_cores_with_weights_of_nought_are_marked(where: str) -> None:
    """Only there may a finite bound hide that Z = 0, which is then looked for."""
    data = clique(6)
    if where == "relation":
        data["edges"][0]["probability"] = 1.0
    graph, _ = preset(data)
    seen = {data["nodes"][0]["id"]: True} if where == "evidence" else {}
    table = GraphBatch.from_graphs([graph], [seen])
    reduced = reduce.reduce(table.node_ptr, table.factor_ptr, table.unary, table.ends, table.tables)
    log_z, _, _, zero, _, _ = minibucket.sweep(table.node_ptr, table.factor_ptr, reduced, 2, 3, 1e9)
    assert np.isfinite(log_z).all()
    assert zero.tolist() == [where != "nowhere"]


def test_weights_over_the_range_of_a_number_have_a_status() -> None:
    """Products of factors over 1e308 are held as logarithms; a variable's own weights must be numbers."""
    names = tuple("abcdef")
    pairs = [((a, b), (1e300, 1e300, 1e300, 5e299)) for a in range(6) for b in range(a)]
    model = MarkovModel(names=names, factors=tuple(pairs))
    (truth,) = infer([FactGraph.from_model(model)])
    (out,) = wmb([FactGraph.from_model(model)], 2)
    assert truth.log_z <= out.log_z < truth.log_z + 1.0
    graph = FactGraph.from_model(model)
    graph.unary[:] = np.inf
    (out,) = wmb([graph], 2)
    assert out.status == Status.INVALID_INPUT
    assert "range" in (out.reason or "")


def test_rows_are_the_same_bits_in_any_company() -> None:
    graphs = [graph for graph, _ in wide(8, "paper")]
    first = wmb(graphs, 3)
    mixed = wmb([preset(chain(4))[0], *graphs[::-1], *graphs], 3)
    assert [(out.p, out.log_z) for out in mixed[9:]] == [(out.p, out.log_z) for out in first]


@pytest.mark.parametrize(
    "wrong", [{"method": "mbe"}, {"i_bound": 0}, {"i_bound": 21}, {"method": "wmb", "pairs": True}], ids=str
)
def test_wrong_arguments_say_what_is_allowed(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="allowed"):
        infer([], **wrong)
