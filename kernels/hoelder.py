"""Upper bounds on the share of Z that is left to an incomplete assignment of a cutset (ENGINE_NOTES, The proof).

A bound costs one forward sweep of the rest: assigned variables are folded into their neighbours' unaries, and an
unassigned variable v is shattered into one message a neighbour by Hoelder's inequality. With weights w_j > 0 that sum
to 1 and any shifts d_j,

    sum_v u(v) prod_j f_j(v, x_j) <= prod_j ( sum_v [f_j(v, x_j) exp(-d_j v)]^(1 / w_j) b(v) )^(w_j),
    b(v) = u(v) exp(sum_j d_j v).

Weights and shifts start from belief propagation and are tightened at the root by gradient.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from fcjax.kernels.condition import ROWS, assign, sweep_rest
from fcjax.kernels.cutset import log_weight
from fcjax.kernels.logspace import log_add

FLOOR = -60.0  # log weights are raised to this, which keeps the bounds upper bounds and everything finite
RATE = 0.05  # of Adam
STRIDE, WORTH = 5, 0.5  # tightening goes on while so many steps gain so many nats
MARGIN = 1e-9  # by which bounds are rounded up, against rounding errors


@njit(cache=True, nogil=True)
def _reaches(search, i, depth, at):
    """Whether cutset variable i's message to a neighbour at `at` is sent: it stands still, in the rest or before i."""
    return at >= 0 or depth <= -1 - at < i


@njit(cache=True, nogil=True)
def _total_weight(core, search, i, depth):
    total = 0.0
    v = search.cut[i]
    for k in range(core.row[v], core.row[v + 1]):
        if _reaches(search, i, depth, search.place[core.column[k]]):
            total += math.exp(search.logit[k])
    return total


@njit(cache=True, nogil=True)
def _base(core, search, work, i, depth):
    """log b(v) of cutset variable i for v = 0, 1, by all shifts that are in use."""
    v = search.cut[i]
    base0, base1 = max(work.cut_unary[i, 0], 50 * FLOOR), max(work.cut_unary[i, 1], 50 * FLOOR)
    for k in range(core.row[v], core.row[v + 1]):
        if _reaches(search, i, depth, search.place[core.column[k]]):
            base1 += search.shift[k]
    return base0, base1


@njit(cache=True, nogil=True)
def _shatter(core, search, work, lane, depth):
    """Sum out a row's unassigned cutset variables by Hoelder's inequality, last first."""
    unary = work.unary[lane]
    constant = 0.0
    for i in range(len(search.cut) - 1, depth - 1, -1):
        v = search.cut[i]
        total = _total_weight(core, search, i, depth)
        base0, base1 = _base(core, search, work, i, depth)
        if total == 0.0:
            constant += log_add(base0, base1)
            continue
        for k in range(core.row[v], core.row[v + 1]):
            at = search.place[core.column[k]]
            if not _reaches(search, i, depth, at):
                continue
            w = math.exp(search.logit[k]) / total
            for x in range(2):
                message = w * log_add(
                    max(log_weight(core, k, v, 0, x), FLOOR) / w + base0,
                    (max(log_weight(core, k, v, 1, x), FLOOR) - search.shift[k]) / w + base1,
                )
                if at >= 0:
                    unary[at, x] += message
                else:
                    work.cut_unary[-1 - at, x] += message
    work.constant[lane] += constant


@njit(cache=True, nogil=True)
def upper(core, search, work, rows, depth):
    """The log upper bounds, in `work.log_z`, of the nodes in the first `rows` rows of `work.state`, all of one `depth`.

    A bound that is not a number comes out as inf.
    """
    for lane in range(rows):
        assign(core, search, work, lane, depth)
        if work.constant[lane] > -math.inf:
            _shatter(core, search, work, lane, depth)
        else:
            work.unary[lane] = 0.0  # nothing to be swept for
    sweep_rest(search, work, rows, work.nothing, False)
    for lane in range(rows):
        if work.constant[lane] == -math.inf:
            work.log_z[lane] = -math.inf
        else:
            bound = work.log_z[lane] + work.constant[lane]
            bound += MARGIN * (1.0 + abs(bound))
            work.log_z[lane] = math.inf if math.isnan(bound) else bound


@njit(cache=True, nogil=True)
def tighten(core, search, work, most):
    """Lower the root's bound by gradient steps on weights and shifts; returns the rows spent, `most` at most.

    The derivative of log Z with respect to a unary message is the rest's posterior; it is chained back through the
    Hoelder sums, the cutset variable that was summed out last coming first.
    """
    arcs = len(core.column)
    moment, square = np.zeros((2, arcs)), np.zeros((2, arcs))
    gradient = np.zeros((2, arcs))
    slope = np.zeros((len(core.unary), 2))
    best, best_logit, best_shift = math.inf, search.logit.copy(), search.shift.copy()
    last = math.inf
    spent = 0
    while spent < most:
        spent += 1
        assign(core, search, work, 0, 0)
        _shatter(core, search, work, 0, 0)
        sweep_rest(search, work, 1, work.nothing, True)
        value = work.log_z[0] + work.constant[0]
        if value < best:
            best = value
            best_logit[:], best_shift[:] = search.logit, search.shift
        if spent % STRIDE == 0:
            if last - best < WORTH:
                break
            last = best
        for i in range(len(search.steps.variable)):
            v = search.steps.variable[i]
            slope[v, 1] = work.p[0, i]
            slope[v, 0] = 1.0 - work.p[0, i]
        gradient[:] = 0.0
        for i in range(len(search.cut)):
            v = search.cut[i]
            total = _total_weight(core, search, i, 0)
            base0, base1 = _base(core, search, work, i, 0)
            slope[v] = 0.0
            if total == 0.0:
                slope[v, 1] = 1.0 / (1.0 + math.exp(min(700.0, base0 - base1)))
                slope[v, 0] = 1.0 - slope[v, 1]
                continue
            mean = 0.0
            for k in range(core.row[v], core.row[v + 1]):
                u = core.column[k]
                if not _reaches(search, i, 0, search.place[u]):
                    continue
                w = math.exp(search.logit[k]) / total
                for x in range(2):
                    f0 = max(log_weight(core, k, v, 0, x), FLOOR) / w
                    f1 = (max(log_weight(core, k, v, 1, x), FLOOR) - search.shift[k]) / w
                    a, b = f0 + base0, f1 + base1
                    q1 = 1.0 / (1.0 + math.exp(min(700.0, a - b)))
                    g = slope[u, x]
                    slope[v, 0] += g * w * (1.0 - q1)
                    slope[v, 1] += g * w * q1
                    gradient[1, k] -= g * q1
                    gradient[0, k] += g * (log_add(a, b) - (1.0 - q1) * f0 - q1 * f1)
                gradient[0, k] *= w
                mean += gradient[0, k]
            for k in range(core.row[v], core.row[v + 1]):
                if _reaches(search, i, 0, search.place[core.column[k]]):
                    gradient[0, k] -= math.exp(search.logit[k]) / total * mean
                    gradient[1, k] += slope[v, 1]
        for j in range(2):
            for k in range(arcs):
                g = gradient[j, k]
                moment[j, k] = 0.9 * moment[j, k] + 0.1 * g
                square[j, k] = 0.999 * square[j, k] + 0.001 * g * g
                move = moment[j, k] / (1.0 - 0.9**spent)
                step = RATE * move / (math.sqrt(square[j, k] / (1.0 - 0.999**spent)) + 1e-8)
                if j == 0:
                    search.logit[k] = max(-20.0, search.logit[k] - step)
                else:
                    search.shift[k] -= step
    search.logit[:], search.shift[:] = best_logit, best_shift
    search.scalar[ROWS] += spent
    return spent
