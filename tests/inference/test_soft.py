"""Inference in the encoding `soft` (SPEC 2), against enumeration over the states of variables and relations."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from checks import build, expect
from hypothesis import given, settings
from samples import ANSWERS, atom, context, edge, soft_graphs

from fcjax import infer, most_probable
from fcjax.core.records import Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.influence import influences, leave_one_out


def exact(data: dict[str, Any]) -> oracle.Answer:
    return oracle.latent(data, data["context_prior"], data["atom_prior"])


@settings(max_examples=50)
@given(soft_graphs())
def test_posteriors(data: dict[str, Any]) -> None:
    (out,) = infer([build(data)])
    expect(out, exact(data))


def moved(data: dict[str, Any], r: int, p: float) -> dict[str, Any]:
    """The graph with probability `p` for the own answer of edge `r`, the two others in proportion."""
    row = data["edges"][r]
    own = "entailment" if row["type"] == "equivalence" else row["type"]
    given = row.get("distribution", {})
    rest = sum(share for name, share in given.items() if name != own)
    q = {name: given[name] * (1 - p) / rest if rest else (1 - p) / 2 for name in ANSWERS if name != own}
    edges = [*data["edges"][:r], row | {"distribution": q | {own: p}}, *data["edges"][r + 1 :]]
    return data | {"edges": edges}


@settings(max_examples=30)
@given(soft_graphs())
def test_influence(data: dict[str, Any]) -> None:
    """Z, and its part where the atom is true, are linear in p, also for neutral relations and at 0 and 1."""
    (found,) = influences([build(data)])
    base = exact(data)
    if base.log_z == -np.inf:
        assert found.status == Status.INCONSISTENT
        return
    z = np.exp(base.log_z)
    assert found.values.shape == (len(found.atoms), len(data["edges"]))
    for r in range(len(data["edges"])):
        ends = [exact(moved(data, r, p)) for p in (0.0, 1.0)]
        low, high = (np.exp(end.log_z) for end in ends)
        for row, name in enumerate(found.atoms):
            true = [part * end.p[name] if part > 0 else 0.0 for part, end in zip((low, high), ends, strict=True)]
            truth = (true[1] - true[0] - base.p[name] * (high - low)) / z
            error = 1e-12 * max(low, high, z) / z
            assert found.values[row, r] == pytest.approx(truth, rel=1e-5, abs=1e-7 + error)


@settings(max_examples=20)
@given(soft_graphs())
def test_the_most_probable_assignment_is_that_of_the_network_without_the_relations(data: dict[str, Any]) -> None:
    graph = build(data)
    (best,) = most_probable([graph])
    net = oracle.weights(graph.ids, graph.unary, graph.ends, graph.tables)
    if oracle.enumerate_states(net).log_z == -np.inf:
        assert best.status == Status.INCONSISTENT
        return
    states = [{name: bool(k >> v & 1) for v, name in enumerate(graph.ids)} for k in range(2 ** len(graph))]
    weight = max(oracle.enumerate_states(net.observe(each)).log_z for each in states)
    assert best.log_weight == pytest.approx(weight, abs=1e-6)
    assert oracle.enumerate_states(net.observe(best.states)).log_z == pytest.approx(weight, abs=1e-6)


def test_without_a_context_its_neutral_relations_are_dropped_too() -> None:
    said = edge("c", "a", "neutral", 0.6) | {"distribution": {"entailment": 0.3, "contradiction": 0.1, "neutral": 0.6}}
    data = {
        "nodes": [atom("a"), context("c", 0.9), context("d", 0.9)],
        "edges": [said, edge("d", "a", "entailment", 0.8)],
    }
    graph = FactGraph.from_dict(data, encoding="soft")
    without = leave_one_out(graph)
    alone = {"nodes": data["nodes"], "edges": data["edges"][1:]}
    assert without["c"].p["a"] == pytest.approx(oracle.latent(alone).p["a"], abs=1e-9)
    assert infer([graph])[0].p["a"] > without["c"].p["a"]


def test_relations_that_forbid_every_state_are_named() -> None:
    edges = [edge("c", "a", "entailment", 1.0), edge("c", "a", "contradiction", 1.0), edge("d", "a", "neutral", 1.0)]
    data = {"nodes": [atom("a"), context("c", 1.0), context("d", 0.9)], "edges": edges}
    (out,) = infer([FactGraph.from_dict(data, encoding="soft")])
    assert out.status == Status.INCONSISTENT
    assert "c entailment a (1); c contradiction a (1)" in (out.reason or "")
    assert "neutral" not in (out.reason or "")
