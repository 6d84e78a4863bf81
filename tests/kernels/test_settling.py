"""The probability that a sign stays, against an enumeration of all answers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fcjax.kernels.settling import UNIT, stays


def side(x, band):
    return 1 if x > band else -1 if x < -band else 0


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_steps_are_those_of_all_answers(seed):
    draw = np.random.default_rng(seed)
    ptr = np.array([0, 4, 4, 9])
    up, down = UNIT * draw.integers(0, 9, 9), -UNIT * draw.integers(0, 9, 9)
    q = draw.dirichlet([1, 1, 3], (2, 9))[:, :, :2]
    now, weight = np.array([0.0, -1.0, 0.35]), draw.dirichlet([1, 1], 3).T.copy()
    wanted = np.zeros(3)
    for s, row in product(range(2), range(3)):
        its = range(ptr[row], ptr[row + 1])
        for answers in product(range(3), repeat=len(its)):
            p, x = 1.0, now[row]
            for i, one in zip(its, answers, strict=True):
                p *= (q[s, i, 0], q[s, i, 1], 1 - q[s, i].sum())[one]
                x += (up[i], down[i], 0.0)[one]
            wanted[row] += weight[s, row] * p * (side(x, 1e-4) == side(now[row], 1e-4))
    found = stays(ptr, now, up, down, np.ascontiguousarray(q), weight, 1e-4)
    assert found == pytest.approx(wanted, abs=1e-7)


def test_far_steps_stay_at_the_end_of_the_grid():
    found = stays(np.array([0, 2]), np.array([1.0]), np.array([900.0, 0.0]), np.array([0.0, -2.1]),
                  np.array([[[0.5, 0.0], [0.0, 0.4]]]), np.ones((1, 1)), 1e-4)  # fmt: skip
    assert found == pytest.approx([1 - 0.5 * 0.4])
