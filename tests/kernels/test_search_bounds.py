"""The bounds of the search, each by itself: at or above an exact sum, whatever the weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fcjax.kernels import condition, cutset, hoelder, search

EXAMPLES = settings(max_examples=60)


@given(st.floats(0.0, 1e6))
@example(0.0)
@example(39.999)
@example(40.0)
@example(math.inf)
def test_softplus_is_bounded_from_above(distance: float) -> None:
    """By less than a curve of second derivative 1/4 rises over its chords, and by 1e-17 in the far tail."""
    truth, bound = math.log1p(math.exp(-distance)), hoelder._softplus(distance)
    assert truth - 1e-16 <= bound <= truth + 0.25 / (8 * hoelder.GRAIN**2) + 1e-15


@st.composite
def dense_networks(draw: st.DrawFn, logs: st.SearchStrategy[float]) -> oracle.Network:
    """Four to six variables, nearly all pairs of them related, with log weights from `logs`."""
    count = draw(st.integers(4, 6))
    unary = np.array([[draw(logs), draw(logs)] for _ in range(count)])
    ends = [(a, b) for a in range(count) for b in range(a)]
    left_out = draw(st.sets(st.sampled_from(ends), max_size=count - 2))
    tables = {pair: np.array([[draw(logs), draw(logs)], [draw(logs), draw(logs)]]) for pair in ends}
    pairs = tuple((pair, table) for pair, table in tables.items() if pair not in left_out)
    return oracle.Network(tuple(f"x{v}" for v in range(count)), unary, pairs)


def as_core(net: oracle.Network) -> tuple[cutset.Core, np.ndarray]:
    """The network as a core, and which joint posteriors are wanted: none."""
    tail, head = (np.array([pair[i] for pair, _ in net.pairs], np.int32) for i in range(2))
    table = np.array([table.ravel() for _, table in net.pairs]).reshape(-1, 4)
    return cutset.make_core(net.unary.copy(), tail, head, table), np.zeros(len(tail), np.bool_)


def searched(net: oracle.Network, target: int = 1) -> tuple[Any, ...]:
    """The network as a core, and the search of a cutset that leaves a width of `target`."""
    core, wanted = as_core(net)
    return core, wanted, *search.prepare(core, wanted, target, 2, 200)


def truth(net: oracle.Network, state: Any, work: Any, lane: int, depth: int) -> float:
    seen = {net.ids[state.cut[i]]: bool(work.state[lane, i]) for i in range(depth)}
    return oracle.enumerate_states(net.observe(seen)).log_z


def expect_upper_bounds(net: oracle.Network, steps: int) -> None:
    """Of every node down to the last but one, in full groups of lanes and smaller ones."""
    core, _, state, work, _ = searched(net)
    if steps:
        hoelder.tighten(core, state, work, steps)
    for depth in range(len(state.cut)):
        nodes = [[code >> i & 1 for i in range(depth)] for code in range(2**depth)]
        for first in range(0, len(nodes), condition.LANES):
            rows = nodes[first : first + condition.LANES]
            for lane, node in enumerate(rows):
                work.state[lane, :depth] = node
            hoelder.upper(core, state, work, len(rows), 0, depth)
            for lane in range(len(rows)):
                exact = truth(net, state, work, lane, depth)
                assert work.log_z[lane] >= exact - 1e-12 * abs(exact), (depth, rows[lane])


@EXAMPLES
@given(dense_networks(st.one_of(st.floats(-5.0, 0.0), st.sampled_from([0.0, -40.0, -math.inf]))), st.sampled_from([0, 9]))
def test_bounds_of_nodes(net: oracle.Network, steps: int) -> None:
    """With weights of 0 and after gradient steps too."""
    expect_upper_bounds(net, steps)


@EXAMPLES
@given(dense_networks(st.sampled_from([0.0, -1.0, -200.0, -400.0, -700.0])))
def test_bounds_of_nodes_where_the_number_format_holds_no_sum(net: oracle.Network) -> None:
    expect_upper_bounds(net, 0)


def test_what_the_number_format_loses_on_the_way_is_in_the_bound() -> None:
    """Four leaves that move their centre by 450 nats each, two down and then two up.

    The centre's entry falls under 1e-308 of the largest one and would come back: half of Z. One free variable, related
    to all, makes the cutset.
    """
    lean = np.array([[0.0, -450.0], [0.0, -450.0]])
    pairs = [((leaf, 0), lean if leaf < 3 else lean[:, ::-1]) for leaf in (1, 2, 3, 4)]
    pairs += [((5, v), np.zeros((2, 2))) for v in range(5)]
    core, wanted = as_core(oracle.Network(tuple("abcdef"), np.zeros((6, 2)), tuple(pairs)))
    order = np.array([1, 2, 3, 4, 0], np.int32)
    state = condition.start(core, np.array([5]), order, *cutset.propagate(core), 9)
    work = condition.workspace(state, wanted)
    hoelder.upper(core, state, work, 1, 0, 0)
    exact = -900.0 + 6 * math.log(2)  # two of four leaves are against either state
    assert exact <= work.log_z[0] <= exact + 1e-3


@EXAMPLES
@given(dense_networks(st.floats(-8.0, 0.0)), st.integers(0, 40))
def test_excess_is_the_open_mass_over_the_solved_mass(net: oracle.Network, rows: int) -> None:
    """The solved assignments, by enumeration, and the open bounds, by a sum over the heap, hold all of Z."""
    core, wanted, state, work, belief = searched(net)
    believed = state.state[0].copy()
    search.begin(core, state, work, wanted, 0)
    excess = search.advance(core, state, work, wanted, believed, rows, 0.0, False)
    heap = state.heap[: int(state.scalar[condition.HEAP])]
    solved = state.scalar[condition.LOG_L]
    assert excess == pytest.approx(np.exp(state.bound[heap] - solved).sum(), rel=1e-9, abs=1e-300)
    log_z = oracle.enumerate_states(net).log_z
    assert solved <= log_z + 1e-9
    assert log_z <= solved + math.log1p(excess) + 1e-9
    if not len(heap):
        assert solved == pytest.approx(log_z, abs=1e-9)


@pytest.mark.parametrize(
    ("p", "r", "certain"),
    [
        (0.5, 0.0, True),  # inside the tie band, and to stay there
        (0.50004, 0.0, True),
        (0.49996, 0.0, True),
        (0.50002, 0.0, False),  # 0.50001 to 0.50003: the band ends between
        (0.49998, 0.0, False),
        (0.500035, 1e-4, False),  # 0.499975 at the lowest
        (0.49996, 1e-4, False),
        (0.9, 0.5, True),  # 0.6 to 0.93
        (0.9, 0.9, False),
        (0.1, 0.5, True),  # 0.07 to 0.4
        (0.1, 0.9, False),  # 0.526 at the highest
        (math.nan, 0.0, False),
    ],
)
def test_certain_labels(p: float, r: float, certain: bool) -> None:
    """An interval [p / (1 + r), (p + r) / (1 + r)], widened by 1e-5, on one side of 0.5 +- 2e-5 or inside."""
    assert search.all_certain(np.array([0.99, p]), r) == certain
