"""Every sweep backend gives the same answers, and XLA compiles once a size class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracle
import pytest
from checks import P_TOLERANCE, bare, build, expect, preset
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import PRIOR, chain, context, edge, fact_graphs, golden_rows, grid, networks, random_graph, settings_of
from size_classes import traced_once

from fcjax import FactGraph, InputError, Limits, SettingsError, Status, infer

BACKENDS = ["cpu", "xla"]


def shapes() -> dict[str, dict[str, Any]]:
    """One of every structure that reaches the sweep, or must not."""
    rng = np.random.default_rng(17)
    return {
        "tree": chain(40),
        "grid": grid(6, 9),
        "thin grid": grid(3, 70),
        "sparse": random_graph(rng, 12, 25, 0.15),
        "dense": random_graph(rng, 8, 17, 0.7),
        "contexts tied": random_graph(rng, 8, 14, 0.3, cc=0.15),
        "two parts": join(random_graph(rng, 5, 9, 0.6), grid(4, 4)),
        "parallel": {**(g := random_graph(rng, 4, 6, 0.8)), "edges": g["edges"] * 2},
        "certain": random_graph(rng, 5, 9, 0.5, low=0.999999, high=1.0),
        "even": random_graph(rng, 6, 12, 0.6, low=0.5, high=0.5),
        "weak": random_graph(rng, 6, 12, 0.6, low=0.0, high=0.5),
    }


def join(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Two graphs side by side; their ids must differ."""
    return {key: [*left[key], *right[key]] for key in ("nodes", "edges")}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PRIOR)
@pytest.mark.parametrize("shape", shapes())
def test_solver_by_structure(backend: Any, name: str, shape: str) -> None:
    graph, net = preset(shapes()[shape], name)
    expect(infer([graph], backend=backend)[0], oracle.eliminate(net))


def test_an_inconsistent_core_on_every_backend() -> None:
    data = random_graph(np.random.default_rng(4), 5, 9, 0.8)
    data["nodes"] += [context("sure", 1.0), context("sure too", 1.0)]
    data["edges"] += [edge("sure", "a0", "entailment", 1.0), edge("sure too", "a0", "contradiction", 1.0)]
    for backend in BACKENDS:
        (out,) = infer([preset(data)[0]], backend=backend)  # type: ignore[arg-type]
        assert out.status == Status.INCONSISTENT
        assert "sure" in (out.reason or "")


@pytest.mark.slow
def test_golden_graphs_through_xla() -> None:
    rows = [row for row in golden_rows() if row["exact"]["width"] <= 9]
    for row, out in zip(rows, infer([build(row) for row in rows], backend="xla"), strict=True):
        log_z = row["exact"]["log_z"]
        expect(out, oracle.Answer(-math.inf if log_z is None else log_z, row["exact"]["marginals"]), row["id"])


@settings(max_examples=40)
@given(st.lists(fact_graphs(max_nodes=9, hard=True), min_size=1, max_size=8))
def test_random_graphs_through_xla(rows: list[dict[str, Any]]) -> None:
    for out, row in zip(infer([build(row) for row in rows], backend="xla"), rows, strict=True):
        expect(out, oracle.enumerate_states(oracle.network(row, **settings_of(row))))


@settings(max_examples=40)
@given(st.lists(networks(max_variables=8), min_size=1, max_size=8))
def test_bare_models_through_xla(nets: list[oracle.Network]) -> None:
    for out, net in zip(infer([*map(bare, nets)], backend="xla"), nets, strict=True):
        expect(out, oracle.enumerate_states(net))


@pytest.mark.parametrize("backend", BACKENDS)
def test_range_in_every_backend(backend: Any) -> None:
    """25 + 25 shared contexts at 0.9999 on three atoms: more than float32 holds, and still 0.5."""
    nodes = [{"id": f"a{k}", "type": "atom", "probability": 0.5} for k in range(3)]
    nodes += [context(f"c{i}", 0.99) for i in range(50)]
    edges = [
        edge(f"c{i}", f"a{k}", "entailment" if i < 25 else "contradiction", 0.9999) for i in range(50) for k in range(3)
    ]
    rng = np.random.default_rng(0)
    orders = [edges, edges[::-1], *([edges[i] for i in rng.permutation(len(edges))] for _ in range(10))]
    for out in infer([FactGraph.from_dict({"nodes": nodes, "edges": order}) for order in orders], backend=backend):
        assert [out.p[f"a{k}"] for k in range(3)] == pytest.approx([0.5] * 3, abs=P_TOLERANCE)


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_and_company_change_nothing(backend: Any) -> None:
    """The same graph alone, among equals and among graphs of every other size class."""
    rng = np.random.default_rng(23)
    mixed = [preset(random_graph(rng, int(rng.integers(3, 9)), 14, rng.uniform(0.2, 0.7)))[0] for _ in range(60)]
    for i in (0, 7, 31):
        (alone,) = infer([mixed[i]], backend=backend)
        for out in (infer(mixed, backend=backend)[i], infer([mixed[i]] * 5, backend=backend)[4]):
            assert out.p == pytest.approx(alone.p, abs=1e-6, rel=0)
            assert out.log_z == pytest.approx(alone.log_z, abs=1e-5)


def test_rows_that_were_not_solved_leave_the_others_alone() -> None:
    graph, net = preset(grid(4, 6))
    wide, _ = preset(grid(9, 9))
    for backend in BACKENDS:
        out = infer([InputError("torn"), graph, wide, graph], limits=Limits(exact_width=6), backend=backend)  # type: ignore[arg-type]
        assert out[0].status == Status.INVALID_INPUT
        assert out[2].method != "exact"
        expect(out[1], oracle.eliminate(net))
        expect(out[3], oracle.eliminate(net))


@pytest.mark.slow
def test_at_most_one_compile_per_size_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mixed file of 1,000 cases needs at most 25 programs, and none is made twice, whatever the order."""
    rng = np.random.default_rng(5)
    graphs = []
    for _ in range(1000):
        atoms = max(2, round(rng.normal(8, 4)))
        graphs.append(preset(random_graph(rng, atoms, round(2.1 * atoms), rng.choice([0.03, 0.1, 0.15])))[0])
    programs = traced_once(monkeypatch)
    infer(graphs, backend="xla")
    made = set(programs)
    assert len(made) <= 25
    infer(graphs[::-1], backend="xla")
    infer(graphs[300:700], backend="xla")
    assert set(programs) == made


def test_an_unknown_backend_says_what_is_allowed() -> None:
    with pytest.raises(SettingsError, match="xla"):
        infer([], backend="gpu")  # type: ignore[arg-type]
