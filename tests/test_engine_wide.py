"""Graphs that are too wide to eliminate: a status or a proved interval, never a crash, a stall or a wrong word."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import oracle
import pytest
from checks import expect, expect_proved, preset
from samples import PRIOR, chain, clique, grid, random_graph, star

from fcjax import Limits, SettingsError, Status, infer

MIB = 2**20


@pytest.mark.parametrize("name", PRIOR)
@pytest.mark.parametrize("exact_width", [3, 5, 8])
def test_wide_graphs_against_elimination(name: str, exact_width: int) -> None:
    """Widths of 1 to 14 under small limits: exact within the limit, proved or refused beyond it."""
    rng = np.random.default_rng(exact_width)
    pairs = [preset(grid(7, 9), name)]
    while len(pairs) < 25:
        atoms = int(rng.integers(3, 13))
        data = random_graph(rng, atoms, 2 * atoms, rng.uniform(0.1, 0.6), preset=name, cc=rng.choice([0.0, 0.1]))
        graph, net = preset(data, name)
        if oracle.min_fill(net)[1] <= 14:
            pairs.append((graph, net))
    rows = infer([graph for graph, _ in pairs], limits=Limits(exact_width=exact_width))
    for out, (_, net) in zip(rows, pairs, strict=True):
        expect_proved(out, oracle.eliminate(net))
        if oracle.min_fill(net)[1] < exact_width:
            assert out.method == "exact"


@pytest.mark.parametrize("name", PRIOR)
def test_weak_relations_spread_the_mass(name: str) -> None:
    """The hard case of conditioning: p in 0.5 to 0.75, so that no assignment of a cutset stands out."""
    rng = np.random.default_rng(1)
    pairs = [preset(random_graph(rng, 8, 16, 0.5, preset=name, cc=0.05, high=0.75), name) for _ in range(8)]
    for out, (_, net) in zip(infer([g for g, _ in pairs], limits=Limits(exact_width=5)), pairs, strict=True):
        expect_proved(out, oracle.eliminate(net))


@pytest.mark.parametrize(
    "data", [clique(60), grid(70, 71), grid(40, 40)], ids=["clique of 60", "grid of 4970", "grid of 1600"]
)
def test_what_nobody_can_eliminate_has_a_status_and_a_width(data: dict) -> None:
    start = perf_counter()
    (out,) = infer([preset(data)[0]])
    assert perf_counter() - start < 120
    assert out.width > 24
    assert out.method != "exact"
    if out.status.failed:
        assert out.status == Status.TOO_WIDE
        assert str(out.width) in (out.reason or "")
        assert set(out.p.values()) == {None}
    else:
        assert all(out.lower[v] <= p <= out.upper[v] for v, p in list(out.p.items())[:20])


def test_the_memory_limit_holds_where_the_width_would_not() -> None:
    """A graph of width 17 or so needs tens of MiB of tables; with one MiB it is not eliminated."""
    graph, _ = preset(grid(17, 17))
    (out,) = infer([graph], limits=Limits(exact_width=30, memory=1 * MIB))
    assert out.method != "exact"
    small, net = preset(grid(5, 5))
    expect(infer([small], limits=Limits(exact_width=30, memory=1 * MIB))[0], oracle.eliminate(net))


def test_wide_graphs_do_not_disturb_thousands_of_small_ones() -> None:
    small = [preset(data) for data in (chain(4), star(5), grid(2, 3))]
    answers = [oracle.enumerate_states(net) for _, net in small]
    graphs = [small[i % 3][0] for i in range(3000)]
    enormous = {1000: preset(clique(60))[0], 2000: preset(grid(70, 71))[0], 2500: preset(chain(5000))[0]}
    for i, graph in enormous.items():
        graphs[i] = graph
    out = infer(graphs)
    for i in [*range(0, 3000, 53), 999, 1001, 1999, 2001, 2499]:
        if i not in enormous:
            expect(out[i], answers[i % 3], i)
    assert out[1000].width >= 59
    assert out[2500].method == "exact"


def test_each_limit_says_what_is_allowed() -> None:
    for wrong in ({"exact_width": -1}, {"exact_width": 100}, {"memory": 0}):
        with pytest.raises(SettingsError, match="allowed"):
            Limits(**wrong)
