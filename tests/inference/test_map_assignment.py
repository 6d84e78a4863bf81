"""The most probable assignment, against enumeration."""

from itertools import product

import numpy as np
import oracle
import pytest
from checks import bare, preset
from hypothesis import given, settings
from samples import atom, chain, clique, edge, fact_graphs, grid, networks

from fcjax.core.limits import Limits
from fcjax.core.records import Status
from fcjax.inference.map_assignment import most_probable


def log_weight(net: oracle.Network, states: dict[str, bool]) -> float:
    x = [int(states[name]) for name in net.ids]
    total = sum(net.unary[v, s] for v, s in enumerate(x))
    return float(total + sum(table[tuple(x[v] for v in scope)] for scope, table in net.pairs))


def best_weight(net: oracle.Network) -> float:
    every = product((False, True), repeat=len(net.ids))
    return max(log_weight(net, dict(zip(net.ids, states, strict=True))) for states in every)


@settings(max_examples=40, deadline=None)
@given(net=networks(max_variables=8))
def test_against_enumeration(net: oracle.Network) -> None:
    found = most_probable([bare(net)])[0]
    best = best_weight(net)
    if best == -np.inf:
        assert found.status == Status.INCONSISTENT
        return
    assert found.log_weight == pytest.approx(best, abs=1e-9)
    assert log_weight(net, dict(found.states)) == pytest.approx(best, abs=1e-9)
    assert found.log_probability == pytest.approx(best - oracle.enumerate_states(net).log_z, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(data=fact_graphs(max_nodes=8))
def test_evidence_holds(data: dict) -> None:
    graph, net = preset(data, "release")
    for state in (False, True):
        (found,) = most_probable([graph], evidence={graph.ids[0]: state})
        assert found.states[graph.ids[0]] is state
        assert found.log_weight == pytest.approx(best_weight(net.observe({graph.ids[0]: state})), abs=1e-9)


def test_a_batch_of_all_shapes() -> None:
    graphs = [preset(data, "release")[0] for data in (grid(6, 6), chain(300), clique(40), clique(6))]
    found = most_probable(graphs, limits=Limits(exact_width=10))
    assert [row.status for row in found] == [Status.OK, Status.OK, Status.TOO_WIDE, Status.OK]
    assert found[2].reason
    assert found[3].log_weight == pytest.approx(best_weight(preset(clique(6), "release")[1]), abs=1e-9)


def test_each_graph_has_its_own_evidence() -> None:
    graph, net = preset(chain(5))
    found = most_probable([graph, graph, graph], evidence=[{"a0": False}, None, {"nobody": True}])
    assert [row.status for row in found] == [Status.OK, Status.OK, Status.INVALID_INPUT]
    assert "nobody" in (found[2].reason or "")
    assert found[0].states["a0"] is False
    assert found[0].log_weight == pytest.approx(best_weight(net.observe({"a0": False})), abs=1e-9)
    assert found[1].log_weight == pytest.approx(best_weight(net), abs=1e-9)


def test_a_tie_goes_to_false() -> None:
    """Atoms of prior 0.5 that contradict one another: of the four states three are as probable as one another."""
    data = {"nodes": [atom("a"), atom("b")], "edges": [edge("a", "b", "contradiction", 0.8)]}
    for nodes in (data["nodes"], data["nodes"][::-1]):
        (found,) = most_probable([preset({**data, "nodes": nodes})[0]])
        assert dict(found.states) == {"a": False, "b": False}
        assert found.log_probability == pytest.approx(np.log(0.8 / 2.6), abs=1e-12)
