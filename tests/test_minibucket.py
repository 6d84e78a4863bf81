"""Weighted mini-buckets: log Z is an upper bound, always; exact where the i-bound holds the width (SPEC 4)."""

import math

import numpy as np
import oracle
import pytest
from checks import bare, preset
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import clique, grid, networks, random_graph

from fcjax import SettingsError, Status, infer


@settings(max_examples=40, deadline=None)
@given(net=networks(max_variables=9), i_bound=st.integers(1, 4))
def test_log_z_is_an_upper_bound(net: oracle.Network, i_bound: int) -> None:
    out = infer([bare(net)], method="wmb", i_bound=i_bound)[0]
    truth = oracle.enumerate_states(net).log_z
    if truth == -math.inf:
        assert out.status == Status.INCONSISTENT
        return
    assert out.status == Status.OK
    assert out.method == "wmb"
    assert out.log_z >= truth - 1e-9 * max(1.0, abs(truth))


@pytest.mark.parametrize("name", ["paper", "release"])
def test_wide_graphs_are_bounded_and_nothing_is_promised(name: str) -> None:
    rng = np.random.default_rng(3)
    pairs = [preset(random_graph(rng, 8, 16, 0.4, preset=name), name) for _ in range(6)]
    for out, (_, net) in zip(infer([g for g, _ in pairs], method="wmb", i_bound=3), pairs, strict=True):
        assert out.log_z >= oracle.eliminate(net).log_z - 1e-9
        assert all(0.0 <= p <= 1.0 for p in out.p.values())
        assert set(out.lower.values()) == {0.0}
        assert set(out.upper.values()) == {1.0}
        assert not any(out.certain.values())


def test_an_i_bound_that_holds_the_width_is_exact() -> None:
    graph, net = preset(grid(4, 4), "release")
    out = infer([graph], method="wmb", i_bound=8)[0]
    answer = oracle.eliminate(net)
    assert out.log_z == pytest.approx(answer.log_z, abs=1e-9)
    assert dict(out.p.items()) == pytest.approx(answer.p, abs=1e-9)


def test_what_is_allowed() -> None:
    graph, _ = preset(clique(4), "paper")
    for settings_ in ({"method": "wmb", "i_bound": 0}, {"method": "lbp"}, {"method": "wmb", "pairs": True}):
        with pytest.raises(SettingsError, match="allowed"):
            infer([graph], **settings_)
