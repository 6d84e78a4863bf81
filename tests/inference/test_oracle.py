"""The oracles agree with each other and with the golden file."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
from hypothesis import given
from samples import golden_rows, networks


@given(networks(max_variables=9))
def test_elimination_and_enumeration_agree(net: oracle.Network) -> None:
    brute, quick = oracle.enumerate_states(net), oracle.eliminate(net)
    assert quick.log_z == pytest.approx(brute.log_z, abs=1e-10)
    if brute.log_z > -math.inf:
        np.testing.assert_allclose(list(quick.p.values()), list(brute.p.values()), atol=1e-10)


def test_golden_answers() -> None:
    for row in golden_rows():
        if row["exact"]["width"] > 12:
            continue
        answer = oracle.eliminate(oracle.network(row, row["encoding"], row["context_prior"], row["atom_prior"]))
        if row["exact"]["log_z"] is None:
            assert answer.log_z == -math.inf, row["id"]
            continue
        assert answer.log_z == pytest.approx(row["exact"]["log_z"], rel=1e-9), row["id"]
        assert answer.p == pytest.approx(row["exact"]["marginals"], abs=1e-9), row["id"]


def test_min_fill_widths() -> None:
    """Widths that are known: a tree 1, a cycle 2, a clique of n variables n - 1."""

    def width(edges: list[tuple[int, int]]) -> int:
        count = 1 + max(max(edge) for edge in edges)
        flat = np.ones((len(edges), 2, 2))
        return oracle.min_fill(oracle.weights([str(v) for v in range(count)], np.ones((count, 2)), edges, flat))[1]

    assert width([(v, (v - 1) // 2) for v in range(1, 40)]) == 1
    assert width([(v, (v + 1) % 9) for v in range(9)]) == 2
    assert width([(u, v) for v in range(8) for u in range(v)]) == 7
