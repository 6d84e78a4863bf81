"""Graphs that are too wide to eliminate: a status or a proved interval, never a crash, a stall or a wrong word."""

from __future__ import annotations

import dataclasses
import math
from time import perf_counter
from typing import Any

import numpy as np
import oracle
import pytest
from checks import P_TOLERANCE, bare, build, expect, expect_proved, preset
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import (
    PRIOR,
    TYPES,
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

from fcjax import FactGraph, Label, Limits, SettingsError, Status, infer
from fcjax.inference.map_assignment import most_probable

MIB = 2**20


@pytest.mark.parametrize("name", PRIOR)
@pytest.mark.parametrize("exact_width", [3, 5, 8])
def test_wide_graphs_against_elimination(name: str, exact_width: int) -> None:
    """Widths of 1 to 14 under small limits: exact within the limit, proved or refused beyond it."""
    rng = np.random.default_rng(exact_width)
    pairs = [preset(grid(7, 9), name)]
    while len(pairs) < 25:
        atoms = int(rng.integers(3, 13))
        data = random_graph(rng, atoms, 2 * atoms, rng.uniform(0.1, 0.6), preset=name, cc=rng.choice([0.0, 0.1]))
        graph, net = preset(data, name)
        if oracle.min_fill(net)[1] <= 14:
            pairs.append((graph, net))
    rows = infer([graph for graph, _ in pairs], limits=Limits(exact_width=exact_width))
    for out, (_, net) in zip(rows, pairs, strict=True):
        expect_proved(out, oracle.eliminate(net))
        assert out.status == Status.OK
        assert (out.method == "exact") == (out.width <= exact_width)
        assert out.method == "exact" or out.gap <= 1e-3 or out.rows > 900


@pytest.mark.parametrize("name", PRIOR)
def test_weak_relations_spread_the_mass(name: str) -> None:
    """The hard case of conditioning: p in 0.5 to 0.75, so that no assignment of a cutset stands out."""
    rng = np.random.default_rng(1)
    pairs = [preset(random_graph(rng, 8, 16, 0.5, preset=name, cc=0.05, high=0.75), name) for _ in range(8)]
    for out, (_, net) in zip(infer([g for g, _ in pairs], limits=Limits(exact_width=5)), pairs, strict=True):
        expect_proved(out, oracle.eliminate(net))


@pytest.mark.parametrize(
    "data", [clique(60), grid(70, 71), grid(40, 40)], ids=["clique of 60", "grid of 4970", "grid of 1600"]
)
def test_what_nobody_can_eliminate_has_a_status_and_a_width(data: dict) -> None:
    start = perf_counter()
    (out,) = infer([preset(data)[0]], limits=Limits(rows=60, seconds=5.0))
    assert perf_counter() - start < 60
    assert out.width > 24
    assert out.method != "exact"
    if out.status.failed:
        assert out.status == Status.TOO_WIDE
        assert str(out.width) in (out.reason or "")
        assert set(out.p.values()) == {None}
    else:
        assert all(out.lower[v] <= p <= out.upper[v] for v, p in list(out.p.items())[:20])


def test_the_memory_limit_holds_where_the_width_would_not() -> None:
    """A graph of width 17 or so needs tens of MiB of tables; with one MiB it is not eliminated."""
    graph, _ = preset(grid(17, 17))
    (out,) = infer([graph], limits=Limits(exact_width=30, memory=1 * MIB, rows=20))
    assert out.method != "exact"
    small, net = preset(grid(5, 5))
    expect(infer([small], limits=Limits(exact_width=30, memory=1 * MIB))[0], oracle.eliminate(net))


def test_wide_graphs_do_not_disturb_thousands_of_small_ones() -> None:
    small = [preset(data) for data in (chain(4), star(5), grid(2, 3))]
    answers = [oracle.enumerate_states(net) for _, net in small]
    graphs = [small[i % 3][0] for i in range(3000)]
    enormous = {1000: preset(clique(60))[0], 2000: preset(grid(70, 71))[0], 2500: preset(chain(5000))[0]}
    for i, graph in enormous.items():
        graphs[i] = graph
    out = infer(graphs, limits=Limits(rows=20))
    for i in [*range(0, 3000, 53), 999, 1001, 1999, 2001, 2499]:
        if i not in enormous:
            expect(out[i], answers[i % 3], i)
    assert out[1000].width >= 59
    assert out[2500].method == "exact"


@settings(max_examples=150)
@given(st.lists(fact_graphs(max_nodes=8, hard=True), min_size=1, max_size=6), st.integers(0, 2), st.integers(1, 3))
def test_conditioning_against_enumeration(rows: list[dict[str, Any]], exact_width: int, cutset_width: int) -> None:
    """Graphs of any width, small enough to enumerate, that the limits call wide; p and priors of 0 and 1 among them."""
    limits = Limits(exact_width=exact_width, cutset_width=cutset_width)
    for out, row in zip(infer([build(row) for row in rows], limits=limits), rows, strict=True):
        expect_proved(out, oracle.enumerate_states(oracle.network(row, **settings_of(row))))


@settings(max_examples=60)
@given(networks(max_variables=8), st.data())
def test_conditioning_of_bare_models_with_evidence(net: oracle.Network, data: st.DataObject) -> None:
    observed = data.draw(st.dictionaries(st.sampled_from(net.ids), st.booleans(), max_size=2))
    limits = Limits(exact_width=data.draw(st.integers(0, 2)), cutset_width=1)
    for effort in ("tight", "label"):
        (out,) = infer([bare(net)], effort=effort, evidence=observed, limits=limits)  # type: ignore[arg-type]
        expect_proved(out, oracle.enumerate_states(net.observe(observed)), observed)


def _wide(count: int = 12, seed: int = 2, name: str = "release") -> list[tuple[FactGraph, oracle.Network]]:
    rng = np.random.default_rng(seed)
    pairs: list[tuple[FactGraph, oracle.Network]] = []
    while len(pairs) < count:
        pair = preset(random_graph(rng, 9, 18, 0.5, preset=name, cc=rng.choice([0.0, 0.1])), name)
        if 7 <= oracle.min_fill(pair[1])[1] <= 14:
            pairs.append(pair)
    return pairs


SMALL = Limits(exact_width=5, cutset_width=5)


@pytest.mark.parametrize("name", PRIOR)
def test_a_finished_proof_is_within_its_tail(name: str) -> None:
    pairs = _wide(name=name)
    for tail in (1e-2, 1e-4):
        limits = Limits(exact_width=5, cutset_width=5, tail=tail, rows=4000)
        for out, (_, net) in zip(infer([graph for graph, _ in pairs], limits=limits), pairs, strict=True):
            truth = oracle.eliminate(net)
            expect_proved(out, truth)
            assert out.method == "conditioned"
            assert out.gap <= tail
            assert out.p == pytest.approx(truth.p, abs=tail + P_TOLERANCE, rel=0)
            assert max(out.upper[v] - out.lower[v] for v in truth.p) <= tail + 3 * P_TOLERANCE


def test_label_effort_ends_when_every_label_is_certain_and_costs_less() -> None:
    pairs = _wide()
    graphs = [graph for graph, _ in pairs]
    label, tight = infer(graphs, effort="label", limits=SMALL), infer(graphs, limits=SMALL)
    for out, (_, net) in zip(label, pairs, strict=True):
        truth = oracle.eliminate(net)
        expect_proved(out, truth)
        assert all(out.certain.values()) or out.gap <= SMALL.tail
        assert {v: Label.of(p) for v, p in truth.p.items() if out.certain[v]} == {
            v: label for v, label in out.label.items() if out.certain[v]
        }
    assert sum(out.rows for out in label) < sum(out.rows for out in tight)


def test_fast_effort_is_an_estimate_and_says_so() -> None:
    pairs = _wide()
    errors = []
    for out, (_, net) in zip(infer([g for g, _ in pairs], effort="fast", limits=SMALL), pairs, strict=True):
        truth = oracle.eliminate(net).p
        assert (out.status, out.method) == (Status.OK, "conditioned")
        assert math.isnan(out.gap)
        assert set(out.lower.values()) == {0.0}
        assert set(out.upper.values()) == {1.0}
        assert not any(out.certain.values())
        assert out.reason
        errors.append(max(abs(out.p[v] - truth[v]) for v in truth))
    assert np.median(errors) < 1e-2


def test_more_assignments_make_a_better_estimate() -> None:
    pairs = _wide(seed=6)
    truth = [oracle.eliminate(net).p for _, net in pairs]

    def error(assignments: int) -> float:
        limits = Limits(exact_width=5, cutset_width=5, assignments=assignments)
        rows = infer([graph for graph, _ in pairs], effort="fast", limits=limits)
        return float(np.mean([max(abs(out.p[v] - p[v]) for v in p) for out, p in zip(rows, truth, strict=True)]))

    assert error(64) < error(4) < error(1)


def test_rows_and_seconds_are_kept() -> None:
    graph, _ = preset(random_graph(np.random.default_rng(0), 31, 67, 0.2, preset="release", cc=0.05), "release")
    (few,), (more,) = (infer([graph], limits=Limits(exact_width=8, rows=rows)) for rows in (30, 300))
    assert few.rows <= 30
    assert 30 < more.rows <= 300
    if not more.status.failed and not few.status.failed:
        assert more.gap <= few.gap
    start = perf_counter()
    infer([graph], limits=Limits(exact_width=8, rows=10**9, seconds=1.0))
    assert perf_counter() - start < 10


def test_evidence_in_a_wide_graph() -> None:
    for graph, net in _wide(4):
        observed = {"a0": True, "c1": False, "a5": False}
        (out,) = infer([graph], evidence=observed, limits=SMALL)
        expect_proved(out, oracle.eliminate(net.observe(observed)))
        assert [out.p[v] for v in observed] == pytest.approx([1.0, 0.0, 0.0], abs=P_TOLERANCE)


def test_an_inconsistent_wide_graph_names_what_clashes() -> None:
    data = random_graph(np.random.default_rng(8), 31, 67, 0.2, preset="release", cc=0.05)
    data["nodes"] += [context("sure", 1.0), context("also sure", 1.0)]
    data["edges"] += [edge("sure", "a0", "entailment", 1.0), edge("also sure", "a0", "contradiction", 1.0)]
    (out,) = infer([preset(data, "release")[0]], limits=Limits(rows=20))
    assert out.status == Status.INCONSISTENT
    assert "also sure contradiction a0" in (out.reason or "")


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("searchable", [True, False])
def test_a_wide_graph_may_be_inconsistent_only_by_its_evidence(searchable: bool, pairs: bool) -> None:
    """A clique of 24 in a core, that a search can solve, and a graph of width 45 or more, that nothing can."""
    data = clique(24) if searchable else random_graph(np.random.default_rng(8), 31, 67, 0.2, preset="release", cc=0.05)
    if searchable:
        data["edges"][5]["probability"] = 1.0
        impossible = {data["edges"][5]["source"]: True, data["edges"][5]["target"]: False}
    else:
        data["nodes"] += [context("sure", 0.9)]
        data["edges"] += [edge("sure", "a0", "entailment", 1.0)]
        impossible = {"sure": True, "a0": False}
    graph, _ = preset(data, "release")
    limits = Limits(rows=20, exact_width=5)
    clash, fine = infer([graph, graph], evidence=[impossible, {}], limits=limits, pairs=pairs)
    assert (clash.status, clash.log_z) == (Status.INCONSISTENT, -math.inf)
    assert "entailment" in (clash.reason or "")
    assert fine.status == (Status.OK if searchable and not pairs else Status.TOO_WIDE)


def test_elimination_after_a_search_that_failed_leaves_no_trace_of_it() -> None:
    """A clique of 22: too wide at first, and solved exactly after two rows that proved nothing."""
    graph, net = preset(clique(22, 0.55))
    (searched,) = infer([graph], limits=Limits(rows=2, exact_width=5))
    assert searched.method == "conditioned"
    assert searched.reason
    (out,) = infer([graph], limits=Limits(rows=2))
    expect(out, oracle.eliminate(net))
    assert (out.status, out.method, out.reason) == (Status.OK, "exact", None)
    assert out.rows > 1  # the search came first


@pytest.mark.parametrize("seed", range(3))
def test_extreme_probabilities_in_wide_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = []
    while len(pairs) < 6:
        data = random_graph(rng, 8, 16, 0.5, preset="release", cc=0.05)
        for e in data["edges"]:
            e["probability"] = float(rng.choice([0.0, 1e-9, 1e-4, 0.5, 0.9999, 1 - 1e-9, 1.0]))
        pairs.append(preset(data, "release"))
    for out, (_, net) in zip(infer([g for g, _ in pairs], limits=SMALL), pairs, strict=True):
        expect_proved(out, oracle.eliminate(net))


def test_wide_rows_are_the_same_bits_every_time_and_in_any_company() -> None:
    graphs = [graph for graph, _ in _wide(6)]
    first, second = infer(graphs, limits=SMALL), infer(graphs, limits=SMALL)
    assert [(out.p, out.gap, out.rows) for out in first] == [(out.p, out.gap, out.rows) for out in second]
    small = [preset(chain(4))[0]] * 50
    mixed = infer([*small, graphs[2], *small], limits=SMALL)
    assert mixed[50].p == pytest.approx(first[2].p, abs=1e-6)


def test_golden_graphs_under_a_small_limit() -> None:
    """The widest golden graphs, conditioned: their exact answers lie inside every interval."""
    rows = [row for row in golden_rows() if row["exact"]["width"] >= 12]
    out = infer([build(row) for row in rows], limits=Limits(exact_width=11, rows=200))
    for row, got in zip(rows, out, strict=True):
        log_z = row["exact"]["log_z"]
        answer = oracle.Answer(-math.inf if log_z is None else log_z, row["exact"]["marginals"])
        expect_proved(got, answer, row["id"])
    assert sum(got.method == "conditioned" for got in out) > 10


@pytest.mark.parametrize(
    ("limits", "reason", "enough"),
    [
        (
            Limits(exact_width=30, memory=12 * 1024 * MIB),
            "exact inference needs 27.0 GiB for width 26; allowed: 12.0 GiB (memory); raise `memory` to 27.0 GiB",
            None,
        ),
        (
            Limits(exact_width=20, memory=12 * 1024 * MIB),
            "exact inference needs width at least 26; allowed: 20 (exact_width); raise `exact_width` to at least 26",
            "exact inference needs width 26; allowed: 20 (exact_width); raise `exact_width` to 26",
        ),
        (
            Limits(exact_width=25, memory=64 * MIB),
            "exact inference needs width at least 26; allowed: 25 (exact_width), and at least 512.0 MiB for width at "
            "least 26; allowed: 64.0 MiB (memory); raise `exact_width` to at least 26 and `memory` to at least "
            "512.0 MiB",
            "exact inference needs width 26; allowed: 25 (exact_width); raise `exact_width` to 26",
        ),
    ],
)
def test_the_reason_of_a_graph_that_is_too_wide_names_what_binds(
    limits: Limits, reason: str, enough: str | None
) -> None:
    """Each of 26 atoms related to each of 53 contexts: width 26, whatever the order.

    Without joint posteriors, a sum over the atoms' assignments takes no memory; where allowed, it takes seconds.
    """
    rng = np.random.default_rng(1)
    names = [f"a{i}" for i in range(26)], [f"c{i}" for i in range(53)]
    nodes = [{"id": name, "type": "atom" if name[0] == "a" else "context"} for part in names for name in part]
    edges = [edge(c, a, TYPES[rng.integers(2)], rng.uniform(0.6, 0.9)) for a in names[0] for c in names[1]]
    graph = FactGraph.from_dict({"nodes": nodes, "edges": edges})
    (out,) = infer([graph], limits=limits, pairs=True)
    assert (out.status, out.reason) == (Status.TOO_WIDE, reason)
    if enough:
        (searched,) = infer([graph], limits=dataclasses.replace(limits, rows=20))
        assert searched.status == Status.TOO_WIDE
        assert (searched.reason or "").startswith(f"{enough}; or raise `rows`")
    (best,) = most_probable([graph], limits=limits)
    assert best.reason == reason


def test_a_width_that_no_limit_allows_is_said_so() -> None:
    (out,) = infer([preset(clique(60))[0]], limits=Limits(rows=20), pairs=True)
    assert "which no limit allows" in (out.reason or "")


def test_each_limit_says_what_is_allowed() -> None:
    for wrong in ({"exact_width": -1}, {"exact_width": 100}, {"memory": 0}):
        with pytest.raises(SettingsError, match="allowed"):
            Limits(**wrong)


@pytest.mark.parametrize("exponent", [-120, -40, 0, 40, 120])
def test_the_scale_of_tables_moves_nothing_but_log_z(exponent: int) -> None:
    """Bounds, beliefs and proofs are those of the same distribution, whatever its tables are multiplied by."""
    rng = np.random.default_rng(7)
    graph, net = preset(random_graph(rng, 8, 16, 0.4, preset="release"), "release")
    answer = oracle.eliminate(net)
    scaled = dataclasses.replace(graph, tables=graph.tables * 10.0**exponent)
    out = infer([scaled], limits=Limits(exact_width=3))[0]
    shift = len(graph.ends) * exponent * np.log(10.0)
    expect_proved(out, oracle.Answer(answer.log_z + shift, answer.p))
    assert out.method == "conditioned"
    assert out.gap <= 1e-3


def test_a_time_limit_does_not_turn_label_into_tight() -> None:
    """Slices between looks at the clock are not an answer: the search still stops once every label is certain."""
    graph, _ = preset(random_graph(np.random.default_rng(3), 22, 46, 0.15, preset="release"), "release")
    (free,) = infer([graph], effort="label", limits=Limits(exact_width=8))
    (timed,) = infer([graph], effort="label", limits=Limits(exact_width=8, seconds=60.0))
    assert all(free.certain.values())
    assert all(timed.certain.values())
    assert timed.rows <= free.rows + 64
