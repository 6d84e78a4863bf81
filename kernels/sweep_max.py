"""The most probable assignment: the frontier sweep with maxima for sums, in float64 logarithms, and the way back.

Ties go to the state false, from the last eliminated variable to the first, each given those after it. For maxima in
bucket elimination see Dechter 1999, cited in `reduce`.
"""

from __future__ import annotations

import math

import numpy as np

from fcjax.kernels.compilation import kernel
from fcjax.kernels.sweep_log import arc_weights, source


@kernel
def _mark_entered(steps, i, entered):
    """Which bits of the table after step i were not there before."""
    entered[: steps.bits[i]] = False
    for k in range(steps.arc_ptr[i], steps.arc_ptr[i + 1]):
        if steps.arc_opens[k]:  # of two factors on one pair, one alone opens
            entered[steps.arc_bit[k]] = True


@kernel
def sweep_row(steps, first, last, arc, unary, state):
    """Maximise over steps `first:last`; writes each step's best state to `state [last - first]` int8.

    `arc [A, 4]` and `unary [last - first, 2]` are log weights. Returns the log weight of the best assignment, -inf
    where there is none.
    """
    count = last - first
    entered = np.empty(64, np.bool_)
    starts = np.zeros(count + 1, np.int64)
    for i in range(count):
        starts[i + 1] = starts[i] + (1 << steps.bits[first + i])
    choice = np.empty(starts[count], np.bool_)
    table = np.zeros(1)
    for i in range(count):
        new = steps.bits[first + i]
        arcs = range(steps.arc_ptr[first + i], steps.arc_ptr[first + i + 1])
        _mark_entered(steps, first + i, entered)
        half = len(table) >> 1 if steps.held[first + i] else 0
        out = np.empty(1 << new)
        for x in range(1 << new):
            at = source(x, new, entered)
            a0, a1 = arc_weights(x, arcs, steps, arc, unary[i, 0], unary[i, 1])
            false, true = table[at] + a0, table[at + half] + a1
            choice[starts[i] + x] = true > false
            out[x] = max(false, true)
        table = out
    if table[0] == -math.inf:
        return table[0]
    x = 0
    for i in range(count - 1, -1, -1):
        state[i] = choice[starts[i] + x]
        _mark_entered(steps, first + i, entered)
        x = source(x, steps.bits[first + i], entered)
        if state[i] and steps.held[first + i]:
            x += (1 << steps.bits[first + i - 1]) >> 1
    return table[0]


@kernel
def sweep(steps, weights, chosen):
    """Maximise the `chosen [G]` of the planned graphs: (log weight `[G]`, state of each step's variable `[C]` int8)."""
    best, state = np.full(len(steps.width), math.nan), np.zeros(len(steps.variable), np.int8)
    for g in range(len(steps.width)):
        if chosen[g]:
            first, last = steps.step_ptr[g], steps.step_ptr[g + 1]
            best[g] = sweep_row(steps, first, last, weights.log_arc, weights.unary[first:last], state[first:last])
    return best, state
