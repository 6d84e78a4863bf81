"""A cutset's assignments as rows of one sweep: what an assignment leaves of a wide core, and its exact share of Z.

The rest of the core, without the cutset, has one elimination order; an assignment only changes its unaries. `search`
walks the assignments; `hoelder` bounds those that are not complete. (SPEC 4; ENGINE_NOTES, Conditioning.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from fcjax.kernels import plan, sweep_cpu, sweep_log
from fcjax.kernels.cutset import CLAMP, log_weight
from fcjax.kernels.logspace import log_add

SAFE = 600.0  # nats of range that a float64 table certainly holds

# entries of `Search.scalar`
LOG_L, OPEN, REFERENCE, ROWS, NODES, HEAP, SOLVED = range(7)


class Search(NamedTuple):
    """The state of one search; `D` cutset variables, `N` nodes at most, `R` variables in the rest, `M` edges.

    `mass` and `joint` are sums over the solved assignments, each weighted by exp(log Z - scalar[REFERENCE]).
    """

    cut: np.ndarray  # [D] int64: the cutset, in the order of branching
    place: np.ndarray  # [K] int64: step of a variable of the rest, or -1 - its rank in the cutset
    steps: plan.Steps  # of the rest; its edges are the core's
    arc: np.ndarray  # [A, 4] float64: weights of the rest, scaled to a largest entry of 1
    arc_scale: np.ndarray  # [A] float64
    log_arc: np.ndarray  # [A, 4] float64
    arc_range: float  # nats between the least and the largest entry, summed over the arcs; inf with zeros
    logit: np.ndarray  # [2 M] float64: unnormalised log weights w, by arc of the cutset variable
    shift: np.ndarray  # [2 M] float64: d
    state: np.ndarray  # [N, D] int8: assignments of the nodes
    depth: np.ndarray  # [N] int32
    bound: np.ndarray  # [N] float64: log upper bounds
    heap: np.ndarray  # [N] int64: open nodes, largest bound first
    mass: np.ndarray  # [K] float64: of true
    joint: np.ndarray  # [M, 4] float64
    scalar: (
        np.ndarray
    )  # [7] float64: LOG_L (log), OPEN (R over exp(REFERENCE)), REFERENCE (log), ROWS, NODES, HEAP, SOLVED


@njit(cache=True, nogil=True)
def start(core, cut, order, belief, message, nodes):
    """A search that knows nothing yet; `order` eliminates the rest."""
    count, edges, rest = len(core.unary), len(core.tail), len(order)
    place, names = np.full(count, -1, np.int32), np.arange(count)
    ptr, bits, held = np.zeros(rest + 1, np.int64), np.empty(rest, np.int32), np.empty(rest, np.bool_)
    to, edge, flipped = np.empty(edges, np.int32), np.empty(edges, np.int32), np.empty(edges, np.bool_)
    bit, opens = np.empty(edges, np.int16), np.empty(edges, np.bool_)
    arcs = plan.lay_steps(
        order, rest, np.arange(edges), core.tail, core.head, names, place, ptr, to, edge, flipped, bit, opens,
        held, bits,
    )  # fmt: skip
    width = bits.max() if rest > 0 else 0
    cost = (2.0**bits).sum()
    steps = plan.Steps(
        np.array([0, rest]), order.astype(np.int32), ptr, to[:arcs], edge[:arcs], flipped[:arcs], bit[:arcs],
        opens[:arcs], held, bits, np.array([width], np.int32), np.array([cost]),
    )  # fmt: skip
    arc, log_arc, scale = np.empty((arcs, 4)), np.empty((arcs, 4)), np.empty(arcs)
    spread = 0.0
    for k in range(arcs):
        table = core.table[edge[k]]
        scale[k] = table.max()
        spread += table.max() - table.min()
        for z in range(2):
            for s in range(2):
                log_arc[k, 2 * z + s] = table[2 * s + z if flipped[k] else 2 * z + s]
                arc[k, 2 * z + s] = math.exp(log_arc[k, 2 * z + s] - scale[k]) if scale[k] > -math.inf else 0.0
    where = place.astype(np.int64)
    for i in range(len(cut)):
        where[cut[i]] = -1 - i
    logit, shift = np.zeros(2 * edges), np.zeros(2 * edges)
    for v in cut:
        for k in range(core.row[v], core.row[v + 1]):
            t = np.maximum(core.table[core.edge[k]], -CLAMP)
            logit[k] = math.log(abs(t[0] + t[3] - t[1] - t[2]) + 1e-3)
            shift[k] = message[k]
    search = Search(
        cut, where, steps, arc, scale, log_arc, spread, logit, shift, np.zeros((nodes, len(cut)), np.int8),
        np.zeros(nodes, np.int32), np.empty(nodes), np.empty(nodes, np.int64), np.zeros(count), np.zeros((edges, 4)),
        np.zeros(7),
    )  # fmt: skip
    search.scalar[LOG_L] = search.scalar[REFERENCE] = -math.inf
    for i in range(len(cut)):  # the first assignment to try: what belief propagation believes
        search.state[0, i] = belief[cut[i]] > 0
    return search


class Workspace(NamedTuple):
    """What one sweep of the rest takes, made once a search."""

    unary: np.ndarray  # [R, 2] float64: log unaries of the row at hand
    cut_unary: np.ndarray  # [D, 2] float64: of the unassigned cutset variables
    p: np.ndarray  # [R] float64
    joint: np.ndarray  # [A, 4] float64
    wanted: np.ndarray  # [A] bool
    nothing: np.ndarray  # [A] bool, all False
    stack: np.ndarray
    one: np.ndarray
    two: np.ndarray
    lanes: np.ndarray
    offsets: np.ndarray


@njit(cache=True, nogil=True)
def workspace(search, wanted):
    """`wanted [M]` says whose joint posteriors are asked for."""
    rest, arcs = len(search.steps.variable), len(search.steps.arc_to)
    width = search.steps.width[0]
    half = sweep_cpu.half_size(width)
    chosen = np.empty(arcs, np.bool_)
    for k in range(arcs):
        chosen[k] = wanted[search.steps.arc_edge[k]]
    return Workspace(
        np.empty((rest, 2)), np.empty((len(search.cut), 2)), np.empty(rest), np.empty((arcs, 4)), chosen,
        np.zeros(arcs, np.bool_), np.empty(np.int64(search.steps.cost[0]) + 1), np.empty(1 << width),
        np.empty(1 << width), np.empty((8, half)), np.empty((2, half), np.int64),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def assign(core, search, work, state, depth):
    """Fold the first `depth` cutset variables into their neighbours' unaries; returns the log of what is left over."""
    for i in range(len(search.steps.variable)):
        work.unary[i] = core.unary[search.steps.variable[i]]
    for i in range(len(search.cut)):
        work.cut_unary[i] = core.unary[search.cut[i]]
    constant = 0.0
    for i in range(depth):
        v, z = search.cut[i], state[i]
        constant += work.cut_unary[i, z]  # earlier ones have folded their factors in
        for k in range(core.row[v], core.row[v + 1]):
            at = search.place[core.column[k]]
            if at >= 0:
                work.unary[at, 0] += log_weight(core, k, v, z, 0)
                work.unary[at, 1] += log_weight(core, k, v, z, 1)
            elif -1 - at > i:
                work.cut_unary[-1 - at, 0] += log_weight(core, k, v, z, 0)
                work.cut_unary[-1 - at, 1] += log_weight(core, k, v, z, 1)
    return constant


@njit(cache=True, nogil=True)
def sweep_rest(search, work, wanted, marginals):
    """log Z of the rest under `work.unary`; with `marginals` also `work.p` and `work.joint` of the `wanted` arcs."""
    rest = len(search.steps.variable)
    spread = search.arc_range
    for i in range(rest):
        spread += abs(work.unary[i, 1] - work.unary[i, 0])
    backward = marginals or not spread < SAFE
    log_z, held = sweep_cpu.sweep_row(
        search.steps, 0, rest, search.arc, search.arc_scale, work.unary, wanted, work.p, work.joint, work.stack,
        work.one, work.two, work.lanes, work.offsets, backward,
    )  # fmt: skip
    if not held:
        log_z = sweep_log.sweep_row(search.steps, 0, rest, search.log_arc, work.unary, wanted, work.p, work.joint)
    return log_z


@njit(cache=True, nogil=True)
def solve(core, search, work, wanted, state):
    """Solve a full assignment exactly and add it to the sums."""
    scalar = search.scalar
    constant = assign(core, search, work, state, len(search.cut))
    scalar[SOLVED] += 1
    if constant == -math.inf:
        return
    log_z = sweep_rest(search, work, work.wanted, True) + constant
    if log_z == -math.inf:
        return
    if log_z > scalar[REFERENCE] or scalar[LOG_L] == -math.inf:  # the first one is the reference, however small
        scale = math.exp(min(700.0, scalar[REFERENCE] - log_z))
        search.mass[:] *= scale
        search.joint[:] *= scale
        scalar[OPEN] *= scale
        scalar[REFERENCE] = log_z
    share = math.exp(log_z - scalar[REFERENCE])
    scalar[LOG_L] = log_add(scalar[LOG_L], log_z)
    for i in range(len(search.cut)):
        search.mass[search.cut[i]] += share * state[i]
    for i in range(len(search.steps.variable)):
        search.mass[search.steps.variable[i]] += share * work.p[i]
    for k in range(len(search.steps.arc_to)):
        if work.wanted[k]:
            e, flip = search.steps.arc_edge[k], search.steps.arc_flipped[k]
            search.joint[e, 0] += share * work.joint[k, 0]
            search.joint[e, 3] += share * work.joint[k, 3]
            search.joint[e, 1] += share * work.joint[k, 2 if flip else 1]
            search.joint[e, 2] += share * work.joint[k, 1 if flip else 2]
    for i in range(len(search.cut)):
        v = search.cut[i]
        for k in range(core.row[v], core.row[v + 1]):
            e, u = core.edge[k], core.column[k]
            if not wanted[e]:
                continue
            at = search.place[u]
            if at < 0 and -1 - at < i:
                continue  # counted at the other end
            for x in range(2):
                true = work.p[at] if at >= 0 else np.float64(state[-1 - at])
                q = true if x == 1 else 1.0 - true
                search.joint[e, 2 * state[i] + x if core.tail[e] == v else 2 * x + state[i]] += share * q
