"""Sums over a vertex cover's assignments: equal to the oracle on both backends, whatever the weights."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcjax.kernels import cover, cover_cpu, cover_xla, cutset

Result = tuple[cover.Terms, float, list[np.ndarray]]


def as_core(net: oracle.Network) -> cutset.Core:
    tail, head = (np.array([pair[i] for pair, _ in net.pairs], np.int32) for i in range(2))
    table = np.array([table.ravel() for _, table in net.pairs]).reshape(-1, 4)
    unary = net.unary - np.maximum(net.unary.max(axis=1, keepdims=True), -1e300)
    table = table - np.maximum(table.max(axis=1, keepdims=True), -1e300)
    return cutset.make_core(unary, tail, head, table)


def scale(net: oracle.Network) -> float:
    return float(net.unary.max(axis=1).sum() + sum(table.max() for _, table in net.pairs))


def on_cpu(terms: cover.Terms) -> Result:
    terms, linear = cover_cpu.order_rest(terms)
    halves = cover_cpu.prepare(terms, linear)
    log_mass = np.empty(1 << int(halves.bits[1:].sum()))
    cover_cpu.masses(halves, terms, 0, len(log_mass), log_mass)
    log_z = float(np.logaddexp.reduce(log_mass))
    if log_z == -math.inf:
        return terms, log_z, []
    sums = cover_cpu.posteriors(halves, terms, 0, len(log_mass), log_mass, log_z)
    cover_cpu.finish(int(halves.bits[0]), sums)
    return terms, log_z, [np.diag(sums.cut).copy(), sums.rest, sums.cut, sums.both]


def on_xla(terms: cover.Terms) -> Result:
    log_z, *posteriors = cover_xla.solve(terms)
    return terms, log_z, posteriors


def summed(net: oracle.Network, solve: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """log Z, P(true) `[V]` and the joint posteriors `[M, 4]` of a network, by the smallest covers that are found."""
    core = as_core(net)
    wanted = np.ones(len(core.tail), np.bool_)
    label = cover.components(core)
    inside, sizes = cover.find(core, label, len(net.ids), 4)
    p, joint, log_z = np.empty(len(net.ids)), np.empty((len(core.tail), 4)), scale(net)
    for c in range(len(sizes)):
        assert sizes[c] == (inside & (label == c)).sum()
        terms, part, posteriors = solve(cover.lay(core, label, c, inside, wanted))
        log_z += part
        if part > -math.inf:
            cover.write(core, wanted, terms, *posteriors, p, joint)
    return log_z, p, joint


def expect_truth(net: oracle.Network, solve: Any, tolerance: float = 1e-9) -> None:
    answer = oracle.eliminate(net)
    log_z, p, joint = summed(net, solve)
    if answer.log_z == -math.inf:
        assert log_z == -math.inf
        return
    assert log_z == pytest.approx(answer.log_z, abs=tolerance, rel=1e-12)
    assert p == pytest.approx(np.array([answer.p[name] for name in net.ids]), abs=tolerance)
    assert joint.sum(axis=1) == pytest.approx(np.ones(len(joint)), abs=1e-9)
    for ((a, b), _), row in zip(net.pairs, joint, strict=True):
        assert (row[2] + row[3], row[1] + row[3]) == pytest.approx((p[a], p[b]), abs=1e-9)


def joints_of(net: oracle.Network) -> np.ndarray:
    """P(true, true) of each pair, from the oracle with one end observed."""
    p = oracle.eliminate(net).p
    rows = []
    for (a, b), _ in net.pairs:
        given = oracle.eliminate(net.observe({net.ids[a]: True})).p[net.ids[b]] if p[net.ids[a]] > 0 else 0.0
        rows.append(p[net.ids[a]] * given)
    return np.array(rows)


def random_network(rng: np.random.Generator, sides: tuple[int, int], logs: Any, within: int = 0) -> oracle.Network:
    """Every variable of one side tied to every one of the other, and `within` more pairs of the first side."""
    left, right = sides
    ends = [(a, left + b) for a in range(left) for b in range(right)]
    inner = [(a, b) for b in range(left) for a in range(b)]
    ends += [inner[i] for i in rng.permutation(len(inner))[:within].tolist()]
    count = left + right
    unary = np.array([[logs(), logs()] for _ in range(count)])
    pairs = tuple((pair, np.array([[logs(), logs()], [logs(), logs()]])) for pair in ends)
    return oracle.Network(tuple(f"x{v}" for v in range(count)), unary, pairs)


@pytest.mark.parametrize("solve", [on_cpu, on_xla])
@pytest.mark.parametrize("within", [0, 5])
@pytest.mark.parametrize("sides", [(1, 1), (3, 5), (7, 6), (11, 9), (12, 12)])
def test_complete_graphs_against_the_oracle(sides: tuple[int, int], within: int, solve: Any) -> None:
    """Covers of 1 to 12 variables, so with and without middle and high bits, and factors across all of them."""
    rng = np.random.default_rng(sum(sides) + within)
    expect_truth(random_network(rng, sides, lambda: float(rng.normal(0, 1.5)), within), solve)


@pytest.mark.parametrize("solve", [on_cpu, on_xla])
@pytest.mark.parametrize("seed", range(3))
def test_joint_posteriors_against_the_oracle(seed: int, solve: Any) -> None:
    """Ten variables of the cover: pairs of low bits, of high ones, of both, and with the rest."""
    rng = np.random.default_rng(seed)
    net = random_network(rng, (10, 10), lambda: float(rng.normal(0, 1.0)), 4)
    assert summed(net, solve)[2][:, 3] == pytest.approx(joints_of(net), abs=1e-9)


@pytest.mark.parametrize("solve", [on_cpu, on_xla])
@pytest.mark.parametrize("seed", range(4))
def test_weights_of_any_range_and_of_nought(seed: int, solve: Any) -> None:
    """Evidence of 1e-300 on ten relations of one variable is far outside of float64 as a product."""
    rng = np.random.default_rng(seed)
    choices = [0.0, 0.0, -0.5, -700.0, -30.0] + [-math.inf] * (seed % 2)
    expect_truth(random_network(rng, (10, 11), lambda: float(rng.choice(choices)), seed), solve)


@pytest.mark.parametrize("solve", [on_cpu, on_xla])
def test_strong_evidence_both_ways_is_not_lost(solve: Any) -> None:
    """40 variables speak for and 40 against each of nine: products of 1e-80 and less, and one half in the end."""
    up, down = np.log(np.array([[0.5, 1e-4], [0.5, 1.0]])), np.log(np.array([[0.5, 1.0], [0.5, 1e-4]]))
    pairs = tuple(((a, 9 + b), up if b < 40 else down) for a in range(9) for b in range(80))
    unary = np.log(np.array([[0.5, 0.5]] * 9 + [[0.01, 0.99]] * 80))
    net = oracle.Network(tuple(f"x{v}" for v in range(89)), unary, pairs)
    _, p, _ = summed(net, solve)
    assert p[:9] == pytest.approx([0.5] * 9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_networks_of_any_shape(data: st.DataObject) -> None:
    """Several components, cliques, weights of 0: covers are found, and the sums are right."""
    count = data.draw(st.integers(2, 9))
    every = [(a, b) for b in range(count) for a in range(b)]
    ends = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    logs = st.one_of(st.floats(-4, 0), st.sampled_from([-math.inf, -600.0, 0.0]))
    unary = np.array([[data.draw(logs), 0.0] for _ in range(count)])
    pairs = tuple((pair, np.array([[0.0, data.draw(logs)], [data.draw(logs), data.draw(logs)]])) for pair in ends)
    net = oracle.Network(tuple(f"x{v}" for v in range(count)), unary, pairs)
    core = as_core(net)
    inside, _ = cover.find(core, cover.components(core), count, 4)
    assert all(inside[a] or inside[b] for a, b in ends)
    expect_truth(net, on_cpu)


def test_the_smaller_side_is_always_found() -> None:
    """Also where a greedy choice would go astray: each side's variables tied to one, two, ... of the other's."""
    rng = np.random.default_rng(3)
    for left, right in ((5, 60), (26, 60), (8, 8)):
        ends = [(a, left + b) for a in range(left) for b in range(right) if rng.random() < 0.3 or b % left == a]
        ends += [(a, left) for a in range(left) if (a, left) not in ends]
        net = oracle.Network(
            tuple(map(str, range(left + right))), np.zeros((left + right, 2)),
            tuple((pair, np.zeros((2, 2))) for pair in ends),
        )  # fmt: skip
        core = as_core(net)
        _, sizes = cover.find(core, cover.components(core), 26, 8)
        assert sizes.max() <= left


def test_no_cover_within_the_limit_is_said_so() -> None:
    ends = [(a, b) for b in range(40) for a in range(b)]
    net = oracle.Network(
        tuple(map(str, range(40))), np.zeros((40, 2)), tuple((pair, np.zeros((2, 2))) for pair in ends)
    )
    core = as_core(net)
    label = cover.components(core)
    assert cover.find(core, label, 26, 4)[1].tolist() == [27]
    assert cover.find(core, label, 39, 4)[1].tolist() == [39]


def test_the_program_is_lowered_for_a_gpu() -> None:
    rng = np.random.default_rng(0)
    core = as_core(random_network(rng, (9, 12), lambda: float(rng.normal()), 3))
    label = cover.components(core)
    inside, _ = cover.find(core, label, 26, 2)
    terms = cover.lay(core, label, 0, inside, np.ones(len(core.tail), np.bool_))
    with cover_xla.float64():
        text = cover_xla.sweep.trace(*cover_xla.pad(terms)).lower(lowering_platforms=("cuda",)).as_text()
    assert "f64" in text
    assert jax.config.jax_enable_x64 is False  # nothing is left switched on
