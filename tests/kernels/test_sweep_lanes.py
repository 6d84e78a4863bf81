"""Rows swept side by side come out as rows swept alone, and a bound stays a bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracle
import pytest
from checks import bare, expect_proved, preset
from samples import TYPES, grid, random_graph, strong_evidence_both_ways

from fcjax import FactGraph, Limits, infer
from fcjax.graph.batch import GraphBatch
from fcjax.inference.engine import EPS
from fcjax.kernels import hoelder, layout, plan, reduce, sweep_cpu, sweep_lanes


def planned(graph: FactGraph) -> tuple[plan.Steps, layout.Weights]:
    table = GraphBatch.from_graphs([graph])
    reduced = reduce.reduce(table.node_ptr, table.factor_ptr, table.unary, table.ends, table.tables)
    steps = plan.plan(table.node_ptr, table.factor_ptr, reduced, 8, 20, np.ones(1, bool))
    return steps, layout.weigh(steps, table.node_ptr, reduced)


def swept(steps: plan.Steps, weights: layout.Weights, unary: np.ndarray) -> tuple[Any, ...]:
    """log Z, whether they were held, posteriors and joint posteriors of the rows `unary [L, R, 2]`."""
    lanes, arcs = len(unary), len(steps.arc_to)
    program = sweep_lanes.lay(steps, weights.arc, weights.arc_scale)
    work = sweep_lanes.workspace(program)
    log_z, held = np.empty(lanes), np.empty(lanes, bool)
    p, joint = np.empty(unary.shape[:2]), np.empty((lanes, arcs, 4))
    sweep_lanes.sweep(program, unary, lanes, False, work, log_z, held)
    forward = log_z.copy()
    sweep_lanes.sweep(program, unary, lanes, True, work, log_z, held)
    np.testing.assert_array_equal(forward, log_z)  # whether the tables are kept or not
    sweep_lanes.sweep_back(program, unary, lanes, work, np.ones(arcs, bool), p, joint, held)
    return log_z, held, p, joint


@pytest.mark.parametrize("lanes", [1, 3, 8])
@pytest.mark.parametrize("shape", ["grid", "dense", "tied"])
def test_rows_side_by_side_are_rows_alone(shape: str, lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    data = {
        "grid": lambda: grid(5, 9),
        "dense": lambda: random_graph(rng, 8, 17, 0.7),
        "tied": lambda: random_graph(rng, 8, 14, 0.3, cc=0.15),
    }[shape]()
    steps, weights = planned(preset(data)[0])
    unary = rng.normal(scale=4.0, size=(lanes, len(steps.variable), 2))
    log_z, held, p, joint = swept(steps, weights, unary)
    assert held.all()
    for lane in range(lanes):
        alone = weights._replace(unary=unary[lane])
        everything, one = np.ones(len(steps.arc_to), bool), np.ones(1, bool)
        want_z, want_p, want_joint, _ = sweep_cpu.sweep(steps, alone, everything, one)
        assert log_z[lane] == pytest.approx(want_z[0], abs=1e-9)
        np.testing.assert_allclose(p[lane], want_p, atol=1e-12)
        np.testing.assert_allclose(joint[lane], want_joint, atol=1e-12)


def test_a_row_that_the_number_format_does_not_hold_leaves_the_others_alone() -> None:
    steps, weights = planned(preset(random_graph(np.random.default_rng(1), 6, 12, 0.7))[0])
    unary = np.zeros((3, len(steps.variable), 2))
    before = swept(steps, weights, unary)
    unary[1, 0] = -math.inf
    log_z, held, p, _ = swept(steps, weights, unary)
    assert held.tolist() == [True, False, True]
    for lane in (0, 2):
        assert log_z[lane] == before[0][lane]
        np.testing.assert_array_equal(p[lane], before[2][lane])


@pytest.mark.parametrize("split", [(1, 2), (2, 2), (2, 3)])
def test_lanes_that_are_called_held_have_lost_no_product(split: tuple[int, int]) -> None:
    """Evidence of 1e-308 and less for and against one variable: right posteriors, or a lane that is not held."""
    rng = np.random.default_rng(11)
    held_at_all = 0
    for _ in range(40):
        net = strong_evidence_both_ways(rng, int(rng.integers(6)), split)
        steps, weights = planned(bare(net))
        if not len(steps.variable):
            continue
        _, held, p, _ = swept(steps, weights, np.stack([weights.unary] * 2))
        want = [oracle.enumerate_states(net).p[net.ids[v]] for v in steps.variable]
        for lane in np.flatnonzero(held):
            held_at_all += 1
            np.testing.assert_allclose(p[lane], want, atol=1e-6)
    easy = planned(preset(random_graph(rng, 6, 12, 0.7))[0])
    assert swept(*easy, np.stack([easy[1].unary]))[1].all()
    assert held_at_all < 80


def test_chords_of_softplus_lie_on_it_or_above() -> None:
    distance = np.linspace(0.0, 100.0, 5001)
    chords = np.array([hoelder._softplus(d) for d in distance])
    above = chords - np.log1p(np.exp(-distance))
    assert (above >= -1e-16).all()
    assert above.max() < 1e-5


@pytest.mark.parametrize("p", [0.9999, 0.999999])
def test_bounds_hold_over_a_range_of_a_thousand_nats(p: float) -> None:
    """Tables are scaled as they go, and what falls under the number format's range must not make a bound too low."""
    data = grid(8, 8, p)
    rng = np.random.default_rng(3)
    for one in data["edges"]:
        one["type"] = TYPES[rng.integers(3)]
    graph, net = preset(data)
    truth = oracle.eliminate(net)
    for rows in (20, 100, 1000):
        (out,) = infer([graph], limits=Limits(exact_width=3, cutset_width=3, rows=rows))
        expect_proved(out, truth, rows)


def test_a_graph_that_could_be_eliminated_is_as_close_as_if_it_were() -> None:
    """Up to the width that can be afforded: by a proof where that is cheap, by elimination where the proof fails."""
    rng = np.random.default_rng(5)
    easy = random_graph(rng, 24, 50, 0.16, preset="release", low=0.9)
    hard = random_graph(rng, 20, 40, 0.25, cc=0.02, low=0.5, high=0.6)
    graphs = [preset(easy, "release")[0], preset(hard)[0]]
    out, exact = infer(graphs), infer(graphs, limits=Limits(exact_width=22))
    assert [row.method for row in exact] == ["exact", "exact"]
    assert all(row.width > 16 for row in exact)
    assert [row.method for row in out] == ["conditioned", "exact"]
    for got, want in zip(out, exact, strict=True):
        assert got.p == pytest.approx(want.p, abs=EPS, rel=0)
        assert got.log_z == pytest.approx(want.log_z, abs=1e-5)
