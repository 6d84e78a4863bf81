"""How sure a sign is against answers that are still to come: sums of independent three-way steps, by convolution.

Each row has a number now, and items that may move it: item i by `up[i]` with probability `q[i, 0]`, by `down[i]` with
`q[i, 1]`, else not at all. The distribution of the sum of an item's moves is kept on a grid of `UNIT`, `BINS` on each
side; what goes beyond an end stays there, where no sign is in doubt.
"""

from __future__ import annotations

import numpy as np

from fcjax.kernels.compilation import kernel

UNIT = 0.2
"""Width of the grid, in nats."""
BINS = 120
"""Grid points on each side of 0: 24 nats."""


@kernel
def _class(x, band):
    """-1, 0 or 1: below, inside and above the band round 0."""
    return 1 if x > band else (-1 if x < -band else 0)


@kernel
def stays(row_ptr, now, up, down, q, band):
    """[R] float64: of each row, the probability that its number is on the same side of the band at last as `now`.

    `row_ptr` [R + 1] int64 are the starts of the rows' items; `now` [R], `up` and `down` [N] are float64, as `q` [N, 2];
    `band` is the half width of the band round 0 that is a side of its own.
    """
    rows = len(row_ptr) - 1
    found = np.zeros(rows)
    size = 2 * BINS + 1
    mass, other = np.zeros(size), np.zeros(size)
    for r in range(rows):
        mass[:] = 0.0
        mass[BINS] = 1.0
        low = high = BINS
        for i in range(row_ptr[r], row_ptr[r + 1]):
            a, b = int(round(up[i] / UNIT)), int(round(down[i] / UNIT))
            rest = 1.0 - q[i, 0] - q[i, 1]
            lowest = max(0, min(low, low + a, low + b))
            highest = min(size - 1, max(high, high + a, high + b))
            other[lowest : highest + 1] = 0.0
            for k in range(low, high + 1):
                m = mass[k]
                if m > 0.0:
                    other[k] += m * rest
                    other[min(size - 1, max(0, k + a))] += m * q[i, 0]
                    other[min(size - 1, max(0, k + b))] += m * q[i, 1]
            low, high = lowest, highest
            mass[low : high + 1] = other[low : high + 1]
        side = _class(now[r], band)
        for k in range(low, high + 1):
            if _class(now[r] + (k - BINS) * UNIT, band) == side:
                found[r] += mass[k]
    return found
