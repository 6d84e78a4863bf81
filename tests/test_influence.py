"""Influence of relations and contexts, against central differences of the oracle."""

from dataclasses import replace

import numpy as np
import oracle
import pytest
from checks import preset
from hypothesis import given, settings
from samples import clique, fact_graphs

from fcjax.engine import infer
from fcjax.influence import influences, leave_one_out
from fcjax.limits import Limits
from fcjax.records import Status

PRESETS = {"paper": ("implication", 0.99), "release": ("conditional", 0.9)}
STEP = 1e-5


def with_probability(data: dict, r: int, p: float) -> dict:
    edges = [dict(edge) for edge in data["edges"]]
    edges[r]["probability"] = p
    return {**data, "edges": edges}


def difference(data: dict, name: str, r: int) -> dict[str, float]:
    """dP / dp of edge r, by the oracle; one-sided at the ends of [0, 1]."""
    encoding, prior = PRESETS[name]
    p = data["edges"][r]["probability"]
    low, high = max(0.0, p - STEP), min(1.0, p + STEP)
    below, above = (
        oracle.enumerate_states(oracle.network(with_probability(data, r, q), encoding, prior)).p for q in (low, high)
    )
    return {v: (above[v] - below[v]) / (high - low) for v in above}


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=25, deadline=None)
@given(data=fact_graphs(max_nodes=8))
def test_against_differences_of_the_oracle(name: str, data: dict) -> None:
    graph, _ = preset(data, name)
    found = influences([graph])[0]
    assert found.status == Status.OK
    relations = [r for r, edge in enumerate(data["edges"]) if edge["type"] != "neutral"]
    assert len(relations) == len(found.relations)
    for column, r in enumerate(relations):
        slopes = difference(data, name, r)
        for row, atom in enumerate(found.atoms):
            assert found.values[row, column] == pytest.approx(slopes[atom], abs=2e-4)


def test_certain_relations_have_the_slope_at_the_end() -> None:
    data = {
        "nodes": [{"id": "a", "type": "atom"}, {"id": "c", "type": "context"}],
        "edges": [{"source": "c", "target": "a", "type": "entailment", "probability": 1.0}],
    }
    graph, _ = preset(data, "paper")
    found = influences([graph])[0]
    assert found.values[0, 0] == pytest.approx(difference(data, "paper", 0)["a"], abs=1e-4)
    assert found.top("a")[0][0] == graph.relations[0]
    with pytest.raises(KeyError):
        found.top("c")


def test_rows_without_a_value_say_why() -> None:
    wide, _ = preset(clique(20), "paper")
    good, _ = preset({"nodes": [{"id": "a", "type": "atom"}], "edges": []}, "paper")
    found = influences([wide, good], limits=Limits(exact_width=5, rows=20))
    assert found[0].status == Status.TOO_WIDE
    assert found[0].reason
    assert np.isnan(found[0].values).all()
    assert found[1].status == Status.OK


def test_pairs_are_joint_posteriors() -> None:
    data = clique(7)
    graph, net = preset(data, "release")
    answer = infer([graph], pairs=True)[0]
    for f, (s, t) in enumerate(graph.ends.tolist()):
        both = oracle.enumerate_states(net.observe({graph.ids[s]: True, graph.ids[t]: True}))
        whole = oracle.enumerate_states(net)
        assert answer.pairs[f, 1, 1] == pytest.approx(np.exp(both.log_z - whole.log_z), abs=1e-9)
        assert answer.pairs[f].sum() == pytest.approx(1.0, abs=1e-9)
    with pytest.raises(ValueError, match="pairs=True"):
        _ = infer([graph])[0].pairs


@settings(max_examples=15, deadline=None)
@given(data=fact_graphs(max_nodes=8))
def test_without_a_context_its_relations_are_gone(data: dict) -> None:
    graph, _ = preset(data, "paper")
    without = leave_one_out(graph)
    assert set(without) == {node["id"] for node in data["nodes"] if node["type"] == "context"}
    for name, answer in without.items():
        edges = [edge for edge in data["edges"] if name not in (edge["source"], edge["target"])]
        _, net = preset({**data, "edges": edges}, "paper")
        assert dict(answer.p.items()) == pytest.approx(oracle.enumerate_states(net).p, abs=1e-9)


def test_evidence_of_the_graph_itself_counts() -> None:
    data = clique(5)
    graph, net = preset(data, "paper")
    name = graph.ids[0]
    found = infer([replace(graph, evidence={name: False})])[0]
    assert dict(found.p.items()) == pytest.approx(oracle.enumerate_states(net.observe({name: False})).p, abs=1e-9)
