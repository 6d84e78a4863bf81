"""Influence of relations and contexts, against central differences of the oracle."""

from dataclasses import replace
from itertools import product

import numpy as np
import oracle
import pytest
from checks import build, preset
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import PRIOR, atom, clique, context, edge, fact_graphs, random_graph, settings_of

from fcjax.core.errors import SettingsError
from fcjax.core.limits import Limits
from fcjax.core.records import Status
from fcjax.inference.engine import infer
from fcjax.inference.influence import influences, leave_one_out


def with_probability(data: dict, r: int, p: float) -> dict:
    edges = [dict(row) for row in data["edges"]]
    edges[r]["probability"] = p
    return {**data, "edges": edges}


def slope(data: dict, r: int, name: str) -> tuple[float, float]:
    """dP(name) / dp of edge r, and its rounding error at most.

    By the oracle: Z, and its part where the atom is true, are linear in p.
    """

    def parts(p: float) -> np.ndarray:
        answer = oracle.enumerate_states(oracle.network(with_probability(data, r, p), **settings_of(data)))
        z = np.exp(answer.log_z)
        return np.array([z, z * answer.p[name] if z > 0 else 0.0])

    z, true = parts(data["edges"][r]["probability"])
    dz, dtrue = parts(1.0) - parts(0.0)
    return float((dtrue - true / z * dz) / z), 1e-13 * abs(dz) / z


@pytest.mark.parametrize("hard", [False, True])
@settings(max_examples=30, deadline=None)
@given(drawn=st.data())
def test_against_the_oracle(hard: bool, drawn: st.DataObject) -> None:
    """Hard ones have p, priors and b of 0 and 1, too: derivatives at the ends, and atoms that cannot be true."""
    data = drawn.draw(fact_graphs(max_nodes=7, hard=hard))
    found = influences([build(data)])[0]
    if oracle.enumerate_states(oracle.network(data, **settings_of(data))).log_z == -np.inf:
        assert found.status == Status.INCONSISTENT
        assert np.isnan(found.values).all()
        return
    assert found.status == Status.OK
    relations = [r for r, row in enumerate(data["edges"]) if row["type"] != "neutral"]
    assert found.values.shape == (len(found.atoms), len(relations))
    for row, name in enumerate(found.atoms):
        for column, r in enumerate(relations):
            truth, error = slope(data, r, name)
            assert found.values[row, column] == pytest.approx(truth, rel=1e-5, abs=1e-7 + error)


@pytest.mark.parametrize("name", PRIOR)
def test_against_central_differences_of_the_engine(name: str) -> None:
    data = random_graph(np.random.default_rng(3), 4, 8, 0.5, cc=0.2, high=0.99)
    graph, _ = preset(data, name)
    (found,) = influences([graph])
    moved = [
        preset(with_probability(data, r, row["probability"] + step), name)[0]
        for r, row in enumerate(data["edges"])
        for step in (-1e-5, 1e-5)
    ]
    p = np.array([[out.p[a] for a in found.atoms] for out in infer(moved)])
    differences = (p[1::2] - p[::2]) / 2e-5
    assert found.values == pytest.approx(differences.T, abs=1e-7)


def test_certain_relations_have_the_slope_at_the_end() -> None:
    nodes = [atom("a"), context("c", 1.0)]
    data = {"nodes": nodes, "edges": [edge("c", "a", "contradiction", 1.0)]}
    (found,) = influences([preset(data)[0]])
    # P(a) = 1 - p: an atom that cannot be true yet may become so
    assert found.values == pytest.approx(np.array([[-1.0]]))
    assert found.top("a") == [(found.relations[0], -1.0)]
    with pytest.raises(KeyError):
        found.top("c")


def test_what_was_observed_is_not_moved() -> None:
    data = clique(5)
    data["nodes"].append(atom("a"))
    data["edges"].append(edge("c0", "a", "entailment", 1.0))
    graph, _ = preset(data)
    for state in (False, True):
        (found,) = influences([replace(graph, evidence={"a": state})])
        assert found.status == Status.OK
        assert found.values == pytest.approx(0.0, abs=1e-12)


def test_the_largest_stand_first() -> None:
    nodes = [atom("<a>"), context("c", 0.9), context("d", 0.2)]
    edges = [edge("d", "<a>", "contradiction", 0.8), edge("c", "<a>", "entailment", 0.8)]
    (found,) = influences([preset({"nodes": nodes, "edges": edges})[0]])
    assert [relation.source for relation, _ in found.top("<a>")] == ["c", "d"]
    assert len(found.top("<a>", 1)) == 1
    page = found._repr_html_()
    assert "&lt;a&gt;" in page
    assert "<a>" not in page


def test_rows_without_a_value_say_why() -> None:
    wide, _ = preset(clique(20), "paper")
    good, _ = preset({"nodes": [{"id": "a", "type": "atom"}], "edges": []}, "paper")
    found = influences([wide, good], limits=Limits(exact_width=5))
    assert found[0].status == Status.TOO_WIDE
    assert found[0].reason
    assert np.isnan(found[0].values).all()
    assert found[1].status == Status.OK


@settings(max_examples=30, deadline=None)
@given(data=fact_graphs(max_nodes=8))
def test_pairs_are_joint_posteriors(data: dict) -> None:
    graph, net = build(data), oracle.network(data, **settings_of(data))
    whole = oracle.enumerate_states(net).log_z
    (answer,) = infer([graph], pairs=True)
    assert answer.pairs.shape == (len(graph.ends), 2, 2)
    for f, (s, t) in enumerate(graph.ends.tolist()):
        for states in product((0, 1), repeat=2):
            both = net.observe({graph.ids[s]: bool(states[0]), graph.ids[t]: bool(states[1])})
            truth = np.exp(oracle.enumerate_states(both).log_z - whole)
            assert answer.pairs[f][states] == pytest.approx(truth, abs=1e-9)


def test_pairs_must_be_asked_for() -> None:
    with pytest.raises(ValueError, match="pairs=True"):
        _ = infer([preset(clique(5))[0]])[0].pairs


@settings(max_examples=15, deadline=None)
@given(data=fact_graphs(max_nodes=8))
def test_without_a_context_its_relations_are_gone(data: dict) -> None:
    graph, _ = preset(data, "paper")
    without = leave_one_out(graph)
    assert set(without) == {node["id"] for node in data["nodes"] if node["type"] == "context"}
    for name, answer in without.items():
        edges = [row for row in data["edges"] if name not in (row["source"], row["target"])]
        _, net = preset({**data, "edges": edges}, "paper")
        assert dict(answer.p.items()) == pytest.approx(oracle.enumerate_states(net).p, abs=1e-9)


def test_evidence_of_the_graph_itself_counts() -> None:
    data = clique(5)
    graph, net = preset(data, "paper")
    name = graph.ids[0]
    found = infer([replace(graph, evidence={name: False})])[0]
    assert dict(found.p.items()) == pytest.approx(oracle.enumerate_states(net.observe({name: False})).p, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(drawn=st.data())
def test_of_some_atoms_it_is_as_of_all(drawn: st.DataObject) -> None:
    graphs = [build(drawn.draw(fact_graphs(max_nodes=7, hard=True))) for _ in range(3)]
    everything = influences(graphs)
    wanted = [drawn.draw(st.one_of(st.none(), st.sets(st.sampled_from(all_.atoms or ("",))))) for all_ in everything]
    wanted = [None if names == {""} else names for names in wanted]
    for names, some, all_ in zip(wanted, influences(graphs, atoms=wanted), everything, strict=True):
        assert some.atoms == tuple(name for name in all_.atoms if names is None or name in names)
        assert some.status == all_.status
        rows = [all_.atoms.index(name) for name in some.atoms]
        np.testing.assert_array_equal(some.values, all_.values[rows])


def test_what_is_no_atom_is_refused() -> None:
    graph, _ = preset({"nodes": [atom("a"), context("c", 0.9)], "edges": [edge("c", "a", "entailment", 0.8)]})
    with pytest.raises(SettingsError, match=r"atoms has 2 rows; allowed: one per graph \(1\)"):
        influences([graph], atoms=[["a"], ["a"]])
    for wrong in (["c"], ["a", "b"], "other"):
        with pytest.raises(SettingsError, match="allowed: ids of the graph's atoms"):
            influences([graph], atoms=[wrong])
    (copied,) = influences([replace(graph, aliases={"copy": "a"})], atoms=[["copy"]])
    assert copied.atoms == ("a",)
    with pytest.raises(KeyError):
        influences([graph], atoms=[[]])[0].top("a")
