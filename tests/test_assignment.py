"""The most probable assignment, against enumeration."""

from itertools import product

import numpy as np
import oracle
import pytest
from checks import bare, preset
from hypothesis import given, settings
from samples import chain, clique, fact_graphs, grid, networks

from fcjax.assignment import most_probable
from fcjax.limits import Limits
from fcjax.records import Status


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
        found = most_probable([graph], evidence=[{graph.ids[0]: state}])[0]
        assert found.states[graph.ids[0]] is state
        assert found.log_weight == pytest.approx(best_weight(net.observe({graph.ids[0]: state})), abs=1e-9)


def test_a_batch_of_all_shapes() -> None:
    graphs = [preset(data, "release")[0] for data in (grid(6, 6), chain(300), clique(40), clique(6))]
    found = most_probable(graphs, limits=Limits(exact_width=10, rows=20))
    assert [row.status for row in found] == [Status.OK, Status.OK, Status.TOO_WIDE, Status.OK]
    assert found[2].reason
    assert found[3].log_weight == pytest.approx(best_weight(preset(clique(6), "release")[1]), abs=1e-9)
