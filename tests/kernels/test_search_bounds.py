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
@given(
    dense_networks(st.one_of(st.floats(-5.0, 0.0), st.sampled_from([0.0, -40.0, -math.inf]))), st.sampled_from([0, 9])
)
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


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_the_sum_itself_where_nothing_is_split(seed: int) -> None:
    """Free variables that send one message each, to each other too: a path of six whose first three are the cutset."""
    rng = np.random.default_rng(seed)
    pairs = tuple(((v, v + 1) if v % 2 else (v + 1, v), rng.uniform(-5.0, 0.0, (2, 2))) for v in range(5))
    net = oracle.Network(tuple("abcdef"), rng.uniform(-3.0, 0.0, (6, 2)), pairs)
    core, wanted = as_core(net)
    order = np.array([3, 4, 5], np.int32)
    state = condition.start(core, np.array([2, 1, 0]), order, *cutset.propagate(core), 9)
    work = condition.workspace(state, wanted)
    for depth in range(3):
        work.state[0] = 1
        hoelder.upper(core, state, work, 1, 0, depth)
        exact = oracle.enumerate_states(net.observe({"cba"[i]: True for i in range(depth)})).log_z
        assert exact <= work.log_z[0] <= exact + 2e-4, depth  # three times the error of `_softplus`, and rounding


@pytest.mark.parametrize("rows", [2, 20, 40, 60, 200])
@pytest.mark.parametrize("seed", range(3))
def test_excess_is_the_open_mass_over_the_solved_mass(seed: int, rows: int) -> None:
    """The solved assignments, and the open bounds by a sum over the heap, hold all of Z: a clique of eight."""
    rng = np.random.default_rng(seed)
    pairs = tuple(((a, b), rng.uniform(-2.0, 0.0, (2, 2))) for a in range(8) for b in range(a))
    net = oracle.Network(tuple("abcdefgh"), rng.uniform(-2.0, 0.0, (8, 2)), pairs)
    core, wanted, state, work, _ = searched(net)
    believed = state.state[0].copy()
    search.begin(core, state, work, wanted, 0)
    excess = search.advance(core, state, work, wanted, believed, rows, 0.0, False)
    heap = state.heap[: int(state.scalar[condition.HEAP])]
    found = search.report(state, excess)
    assert len(state.cut) == 6
    if rows in (2, 200):
        assert state.scalar[condition.SOLVED] == {2: 1, 200: 64}[rows]
    assert excess == pytest.approx(np.exp(state.bound[heap] - found.log_z).sum(), rel=1e-9)
    truth = oracle.enumerate_states(net)
    assert found.log_z <= truth.log_z + 1e-9
    assert truth.log_z <= found.log_z + math.log1p(excess) + 1e-9
    if rows == 200:  # everything is solved, each assignment once
        assert (excess, len(heap)) == (0.0, 0)
        assert found.log_z == pytest.approx(truth.log_z, abs=1e-9)
        assert found.p == pytest.approx(list(truth.p.values()), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("target", [1, 3, 5])
def test_joint_posteriors_of_all_pairs(seed: int, target: int) -> None:
    """Of two variables in the cutset, of one, and of none, once all assignments are solved."""
    rng = np.random.default_rng(seed)
    ends = [(a, b) if rng.random() < 0.5 else (b, a) for a in range(7) for b in range(a)]
    pairs = tuple((pair, rng.uniform(-2.0, 0.0, (2, 2))) for pair in ends)
    net = oracle.Network(tuple("abcdefg"), rng.uniform(-2.0, 0.0, (7, 2)), pairs)
    core, wanted = as_core(net)
    wanted[:] = True
    state, work, _ = search.prepare(core, wanted, target, 2, 200)
    believed = state.state[0].copy()
    search.begin(core, state, work, wanted, 0)
    found = search.report(state, search.advance(core, state, work, wanted, believed, 200, 0.0, False))
    log_z = oracle.enumerate_states(net).log_z
    for e, (a, b) in enumerate(ends):
        states = [{net.ids[a]: s, net.ids[b]: t} for s in (False, True) for t in (False, True)]
        exact = [math.exp(oracle.enumerate_states(net.observe(seen)).log_z - log_z) for seen in states]
        assert found.joint[e] == pytest.approx(exact, abs=1e-9), (a, b)


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
