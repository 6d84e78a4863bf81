"""How sure a sign is against answers that are still to come: sums of independent three-way steps, by convolution.

Each row has a number now, and items that may move it: up with one probability, down with another, else not at all. The
distribution of the sum of the moves is kept on a grid of `UNIT`, `BINS` points on each side; what goes beyond an end
stays there, where a sign is hardly in doubt.
"""

from __future__ import annotations

import numpy as np

from fcjax.kernels.compilation import kernel

UNIT = 0.3
"""Width of the grid, in nats."""
BINS = 50
"""Grid points on each side of 0: 15 nats."""
NOTHING = 1e-9
"""Probability that is dropped."""


@kernel
def _side(x, band):
    """-1, 0 or 1: below, inside and above the band round 0."""
    return 1 if x > band else (-1 if x < -band else 0)


@kernel
def stays(row_ptr, now, up, down, q, weight, band):
    """[R] float64: of each row, the probability that its number ends on the side of the band on which it is `now`.

    `row_ptr` [R + 1] int64 are the starts of the rows' items. Float64 are `now` [R], in nats, `up` and `down` [M], by
    how much an item moves it, `q` [S, M, 2], the probabilities of both in `S` scenarios, and `weight` [S, R], how much
    each scenario counts for a row. `band` is the half width of the band round 0, which is a side of its own.
    """
    rows, size = len(row_ptr) - 1, 2 * BINS + 1
    found = np.zeros(rows)
    mass, other = np.zeros(size), np.zeros(size)
    steps = np.zeros((len(up), 2), np.int64)
    for i in range(len(up)):
        steps[i, 0], steps[i, 1] = round(up[i] / UNIT), round(down[i] / UNIT)
    for s in range(len(q)):
        for r in range(rows):
            if weight[s, r] < NOTHING:
                continue
            mass[:] = 0.0
            mass[BINS] = 1.0
            low = high = BINS
            for i in range(row_ptr[r], row_ptr[r + 1]):
                a, b = steps[i, 0], steps[i, 1]
                x, y = q[s, i, 0], q[s, i, 1]
                lowest = max(0, min(low, low + a, low + b))
                highest = min(size - 1, max(high, high + a, high + b))
                other[lowest : highest + 1] = 0.0
                for k in range(low, high + 1):
                    m = mass[k]
                    if m > NOTHING:
                        other[k] += m * (1.0 - x - y)
                        other[min(size - 1, max(0, k + a))] += m * x
                        other[min(size - 1, max(0, k + b))] += m * y
                low, high = lowest, highest
                mass[low : high + 1] = other[low : high + 1]
            side = _side(now[r], band)
            for k in range(low, high + 1):
                if _side(now[r] + (k - BINS) * UNIT, band) == side:
                    found[r] += weight[s, r] * mass[k]
    return found
