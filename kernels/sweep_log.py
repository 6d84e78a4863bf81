"""The frontier sweep in float64 logarithms: slow, and right for anything (SPEC 3: exact posteriors).

For the rows whose tables span more decades than a linear number format has. Same steps and same results as
`sweep_cpu`; a weight of 0 is -inf, and a row with Z = 0 comes out with log_z = -inf.
"""

from __future__ import annotations

import math

import numpy as np

from fcjax.kernels.compilation import kernel
from fcjax.kernels.logspace import log_add


@kernel
def source(x, new, entered):
    """Where the old table keeps entry x of the new one: bits that have just entered do not count."""
    at, stride = 0, 1
    for b in range(new):
        if not entered[b]:
            if x >> b & 1:
                at += stride
            stride *= 2
    return at


@kernel
def arc_weights(x, arcs, steps, arc, unary0, unary1):
    """log A_0(x), log A_1(x)."""
    for k in arcs:
        s = x >> steps.arc_bit[k] & 1
        unary0 += arc[k, s]
        unary1 += arc[k, 2 + s]
    return unary0, unary1


@kernel
def sweep_row(steps, first, last, arc, unary, wanted, p, joint):
    """As `sweep_cpu.sweep_row`, all weights logarithms and unscaled; returns log_z."""
    count = last - first
    entered = np.empty(64, np.bool_)
    starts = np.zeros(count + 1, np.int64)
    for i in range(count):
        starts[i + 1] = starts[i] + (1 << (steps.bits[first + i - 1] if i > 0 else 0))
    stack = np.zeros(starts[count] + 1)
    for i in range(count):
        new, size = steps.bits[first + i], steps.bits[first + i - 1] if i > 0 else 0
        arcs = range(steps.arc_ptr[first + i], steps.arc_ptr[first + i + 1])
        entered[:new] = False
        for k in arcs:
            entered[steps.arc_bit[k]] = steps.arc_opens[k]
        half = (1 << size) >> 1 if steps.held[first + i] else 0
        for x in range(1 << new):
            at = starts[i] + source(x, new, entered)
            a0, a1 = arc_weights(x, arcs, steps, arc, unary[i, 0], unary[i, 1])
            stack[starts[i + 1] + x] = log_add(stack[at] + a0, stack[at + half] + a1)
    log_z = stack[starts[count]]
    if log_z == -math.inf:
        return log_z
    b_new = np.zeros(1)
    for i in range(count - 1, -1, -1):
        new, size = steps.bits[first + i], steps.bits[first + i - 1] if i > 0 else 0
        arcs = range(steps.arc_ptr[first + i], steps.arc_ptr[first + i + 1])
        entered[:new] = False
        for k in arcs:
            entered[steps.arc_bit[k]] = steps.arc_opens[k]
            joint[k] = 0.0
        half = (1 << size) >> 1 if steps.held[first + i] else 0
        b_old = np.full(1 << size, -math.inf)
        p[i] = 0.0
        for x in range(1 << new):
            at = source(x, new, entered)
            a0, a1 = arc_weights(x, arcs, steps, arc, unary[i, 0], unary[i, 1])
            a0, a1 = a0 + b_new[x], a1 + b_new[x]
            b_old[at] = log_add(b_old[at], a0)
            b_old[at + half] = log_add(b_old[at + half], a1)
            w0 = math.exp(stack[starts[i] + at] + a0 - log_z)
            w1 = math.exp(stack[starts[i] + at + half] + a1 - log_z)
            p[i] += w1
            for k in arcs:
                if wanted[k]:
                    s = x >> steps.arc_bit[k] & 1
                    joint[k, s] += w0
                    joint[k, 2 + s] += w1
        b_new = b_old
    return log_z


@kernel
def sweep(steps, weights, wanted, chosen, log_z, p, joint):
    """Sweep the `chosen [G]` of the planned graphs, results written over `log_z [G]`, `p [C]`, `joint [A, 4]`."""
    for g in range(len(steps.width)):
        if chosen[g]:
            first, last = steps.step_ptr[g], steps.step_ptr[g + 1]
            log_z[g] = sweep_row(
                steps, first, last, weights.log_arc, weights.unary[first:last], wanted, p[first:last], joint
            )
