"""The most probable assignment: the frontier sweep with maxima for sums, in float64 logarithms, and the way back.

Ties go to the state false of the variable that is eliminated first.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from fcjax.kernels.sweep_log import _source, _weights


@njit(cache=True, nogil=True)
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
    choice, source = np.empty(starts[count], np.int8), np.empty(starts[count], np.int64)
    table = np.zeros(1)
    for i in range(count):
        new, size = steps.bits[first + i], steps.bits[first + i - 1] if i > 0 else 0
        arcs = range(steps.arc_ptr[first + i], steps.arc_ptr[first + i + 1])
        entered[:new] = False
        for k in arcs:
            if steps.arc_opens[k]:
                entered[steps.arc_bit[k]] = True
        half = (1 << size) >> 1 if steps.held[first + i] else 0
        out = np.empty(1 << new)
        for x in range(1 << new):
            at = _source(x, new, entered)
            a0, a1 = _weights(x, arcs, steps, arc, unary[i, 0], unary[i, 1])
            false, true = table[at] + a0, table[at + half] + a1
            best = true > false
            out[x] = true if best else false
            choice[starts[i] + x] = best
            source[starts[i] + x] = at + half if best else at
        table = out
    if table[0] == -math.inf:
        return table[0]
    x = 0
    for i in range(count - 1, -1, -1):
        state[i] = choice[starts[i] + x]
        x = source[starts[i] + x]
    return table[0]


@njit(cache=True, nogil=True)
def sweep(steps, weights, chosen):
    """Maximise the `chosen [G]` of the planned graphs: (log weight `[G]`, state of each step's variable `[C]` int8)."""
    best, state = np.full(len(steps.width), math.nan), np.zeros(len(steps.variable), np.int8)
    for g in range(len(steps.width)):
        if chosen[g]:
            first, last = steps.step_ptr[g], steps.step_ptr[g + 1]
            best[g] = sweep_row(steps, first, last, weights.log_arc, weights.unary[first:last], state[first:last])
    return best, state
