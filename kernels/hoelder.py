"""Upper bounds on the share of Z that is left to an incomplete assignment of a cutset.

A bound costs one forward sweep of the rest: assigned variables are folded into their neighbours' unaries, and an
unassigned variable v is shattered into one message per neighbour by Hoelder's inequality. With weights w_j > 0 that sum
to 1 and any shifts d_j,

    sum_v u(v) prod_j f_j(v, x_j) <= prod_j ( sum_v [f_j(v, x_j) exp(-d_j v)]^(1 / w_j) b(v) )^(w_j),
    b(v) = u(v) exp(sum_j d_j v).

Weights and shifts start from belief propagation and are tightened at the root by gradient.

The inequality as a bound on Z: Liu and Ihler, "Bounding the Partition Function using Hoelder's Inequality", ICML 2011.
The gradient steps: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
"""

from __future__ import annotations

import math

import numpy as np

from fcjax.kernels.compilation import kernel
from fcjax.kernels.condition import FLOOR, LOG_L, ROWS, assign, load, sweep_rest
from fcjax.kernels.logspace import log_add

RATE = 0.1  # of Adam
STRIDE, WORTH = 4, 0.5  # tightening continues while so many steps gain so many nats
FAR = 10.0  # nats over the solved part, from which it is tried in smaller steps too
GRAIN = 64  # chords of softplus in a unit
CHORDS = np.log1p(np.exp(-np.arange(40 * GRAIN + 1) / GRAIN))
LAST = len(CHORDS) - 1
MARGIN = 1e-9  # by which bounds are rounded up, against rounding errors


@kernel
def _reaches(search, i, depth, at):
    """Whether cutset variable i's message to a neighbour at `at` is sent: it stands still, in the rest or before i."""
    return at >= 0 or depth <= -1 - at < i


@kernel
def _weights(core, search, i, depth, cut_unary):
    """The sum of cutset variable i's shares, and log b(v) for v = 0, 1, by all messages that are sent."""
    v, total = search.cut[i], 0.0
    base0, base1 = max(cut_unary[i, 0], 50 * FLOOR), max(cut_unary[i, 1], 50 * FLOOR)
    for k in range(core.row[v], core.row[v + 1]):
        if _reaches(search, i, depth, search.place[core.column[k]]):
            total += search.share[k]
            base1 += search.shift[k]
    return total, base0, base1


@kernel
def _softplus(distance):
    """log(1 + exp(-distance)) from above: chords of a convex function; `distance` >= 0."""
    at = distance * GRAIN
    if not at < LAST:
        return CHORDS[LAST]
    k = int(at)
    return CHORDS[k] + (at - k) * (CHORDS[k + 1] - CHORDS[k])


@kernel
def _shatter(core, search, i, depth, unary, cut_unary):
    """Sum out cutset variable i by Hoelder's inequality; returns a log constant."""
    total, base0, base1 = _weights(core, search, i, depth, cut_unary)
    if total == 0.0:
        return log_add(base0, base1)
    v = search.cut[i]
    for k in range(core.row[v], core.row[v + 1]):
        at = search.place[core.column[k]]
        if not _reaches(search, i, depth, at):
            continue
        w, inverse = search.share[k] / total, total / search.share[k]
        for x in range(2):
            a = search.floored[k, x] * inverse + base0
            b = (search.floored[k, 2 + x] - search.shift[k]) * inverse + base1
            message = w * (max(a, b) + _softplus(abs(a - b)))
            if at >= 0:
                unary[at, x] += message
            else:
                cut_unary[-1 - at, x] += message
    return 0.0


@kernel
def _relax(core, search, work, rows, common, depth):
    """Unaries and constants of the rows whose first `depth` cutset variables are assigned; `common` of them alike.

    What is alike in all rows is worked out once: so are the messages of variables without a neighbour in the cutset.
    """
    count = len(search.cut)
    load(core, search, work.shared, work.cut_shared)
    constant = assign(core, search, work.state[0], 0, common, work.shared, work.cut_shared)
    for i in range(count - 1, depth - 1, -1):
        if search.free[i]:
            constant += _shatter(core, search, i, depth, work.shared, work.cut_shared)
    for lane in range(rows):
        unary = work.unary[lane]
        unary[:] = work.shared
        work.cut_unary[:] = work.cut_shared
        rest = assign(core, search, work.state[lane], common, depth, unary, work.cut_unary)
        for i in range(count - 1, depth - 1, -1):
            if not search.free[i]:
                rest += _shatter(core, search, i, depth, unary, work.cut_unary)
        work.constant[lane] = constant + rest
        if work.constant[lane] == -math.inf:
            unary[:] = 0.0  # nothing to be swept for


@kernel
def upper(core, search, work, rows, common, depth):
    """The log upper bounds, in `work.log_z`, of the nodes in the first `rows` rows of `work.state`, all of one `depth`.

    The first `common` variables have the same state in all of them. A bound that is not a number comes out as inf.
    """
    _relax(core, search, work, rows, common, depth)
    sweep_rest(search, work, rows, work.nothing, False)
    for lane in range(rows):
        if work.constant[lane] == -math.inf:
            work.log_z[lane] = -math.inf
        else:
            bound = work.log_z[lane] + work.constant[lane]
            bound += MARGIN * (1.0 + abs(bound))
            work.log_z[lane] = math.inf if math.isnan(bound) else bound


@kernel
def tighten(core, search, work, most):
    """Lower the root's bound by gradient steps on weights and shifts; returns the rows spent, `most` at most.

    The derivative of log Z with respect to a unary message is the rest's posterior; it is chained back through the
    Hoelder sums, the cutset variable that was summed out last coming first.
    """
    arcs = len(core.column)
    moment, square = np.zeros((2, arcs)), np.zeros((2, arcs))
    gradient = np.zeros((2, arcs))
    slope = np.zeros((len(core.unary), 2))
    logit = np.log(np.maximum(search.share, 1e-300))
    best, best_share, best_shift = math.inf, search.share.copy(), search.shift.copy()
    last, rate = math.inf, RATE
    spent = 0
    while spent < most:
        spent += 1
        _relax(core, search, work, 1, 0, 0)
        sweep_rest(search, work, 1, work.nothing, True)
        value = work.log_z[0] + work.constant[0]
        if value < best:
            best = value
            best_share[:], best_shift[:] = search.share, search.shift
        if spent % STRIDE == 0:
            if last - best < WORTH:
                if rate < RATE or best - search.scalar[LOG_L] < FAR:
                    break
                rate /= 3.0
            last = best
        for i in range(len(search.steps.variable)):
            v = search.steps.variable[i]
            slope[v, 1] = work.p[0, i]
            slope[v, 0] = 1.0 - work.p[0, i]
        gradient[:] = 0.0
        for i in range(len(search.cut)):
            v = search.cut[i]
            total, base0, base1 = _weights(core, search, i, 0, work.cut_unary)
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
                w = search.share[k] / total
                for x in range(2):
                    f0 = search.floored[k, x] / w
                    f1 = (search.floored[k, 2 + x] - search.shift[k]) / w
                    a, b = f0 + base0, f1 + base1
                    less = math.exp(-abs(a - b))
                    q1 = (1.0 if b >= a else less) / (1.0 + less)
                    g = slope[u, x]
                    slope[v, 0] += g * w * (1.0 - q1)
                    slope[v, 1] += g * w * q1
                    gradient[1, k] -= g * q1
                    gradient[0, k] += g * (max(a, b) + math.log1p(less) - (1.0 - q1) * f0 - q1 * f1)
                gradient[0, k] *= w
                mean += gradient[0, k]
            for k in range(core.row[v], core.row[v + 1]):
                if _reaches(search, i, 0, search.place[core.column[k]]):
                    gradient[0, k] -= search.share[k] / total * mean
                    gradient[1, k] += slope[v, 1]
        for j in range(2):
            for k in range(arcs):
                g = gradient[j, k]
                moment[j, k] = 0.9 * moment[j, k] + 0.1 * g
                square[j, k] = 0.999 * square[j, k] + 0.001 * g * g
                move = moment[j, k] / (1.0 - 0.9**spent)
                step = rate * move / (math.sqrt(square[j, k] / (1.0 - 0.999**spent)) + 1e-8)
                if j == 0:
                    logit[k] = max(-20.0, logit[k] - step)
                    search.share[k] = math.exp(logit[k])
                else:
                    search.shift[k] -= step
    search.share[:], search.shift[:] = best_share, best_shift
    search.scalar[ROWS] += spent
    return spent
