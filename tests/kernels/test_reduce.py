"""Sums over eliminated variables, where linear weights come near the ends of their range."""

from __future__ import annotations

import math

import oracle
import pytest
from checks import bare, expect
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fcjax import infer

WEIGHTS = st.sampled_from([0.0, 1e-300, 1e-200, 1e-150, 1e-120, 1e-60, 1.0, 1e60, 1e150, 1e300])


def triangle(unary: tuple[float, ...], first: tuple[float, ...], second: tuple[float, ...]) -> oracle.Network:
    """Variable v between a and b, which are tied too, so that a factor on them is what is left of v."""
    pairs = [("v", "a", first), ("v", "b", second), ("a", "b", (1.0, 2.0, 3.0, 4.0))]
    names = ("a", "b", "v")
    tables = [(table[:2], table[2:]) for _, _, table in pairs]
    ends = [(names.index(one), names.index(other)) for one, other, _ in pairs]
    return oracle.weights(names, [(1.0, 1.0), (1.0, 1.0), unary], ends, tables)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_product_that_underflows_may_count_after_a_large_weight(swapped: bool) -> None:
    """v is false with 1e-200 * 1e-200 * 1e300 = 1e-100, and true with 1e-150, of which the sum alone is in range."""
    first, second = (1e300, 2e300, 1e-150, 1e-150), (1e-200, 1e-200, 1.0, 1.0)
    net = triangle((1e-200, 1.0), *((second, first) if swapped else (first, second)))
    (out,) = infer([bare(net)])
    expect(out, oracle.enumerate_states(net))
    assert out.p["v"] < 1e-49
    sums = [(2 if (r if swapped else s) else 1) * (1 + 2 * s + r) for s in (0, 1) for r in (0, 1)]
    assert out.log_z == pytest.approx(math.log(sum(sums)) - 100 * math.log(10), abs=1e-9)


@settings(max_examples=300)
@given(st.lists(WEIGHTS, min_size=10, max_size=10))
@example([1e-200, 1.0, 1e300, 1e300, 1e-150, 1e-150, 1e-200, 1e-200, 1.0, 1.0])
def test_chains_over_the_whole_range(values: list[float]) -> None:
    net = triangle(tuple(values[:2]), tuple(values[2:6]), tuple(values[6:]))
    (out,) = infer([bare(net)])
    expect(out, oracle.enumerate_states(net))
