"""A cutset's assignments as rows of one sweep: what an assignment leaves of a wide core, and its exact share of Z.

The rest of the core, without the cutset, has one elimination order; an assignment only changes its unaries. `search`
walks the assignments; `hoelder` bounds those that are not complete. (SPEC 4; for the papers see `cutset`.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcjax.kernels import plan, sweep_lanes, sweep_log
from fcjax.kernels.compilation import kernel
from fcjax.kernels.cutset import CLAMP, log_weight
from fcjax.kernels.logspace import log_add

LANES = sweep_lanes.LANES
FLOOR = -60.0  # log weights of a bound are raised to this, which keeps it an upper one and everything finite
SAFE = 1200.0  # nats: what is lost under 1e-308 after a range of 700 cannot come back through one of 500

# entries of `Search.scalar`
LOG_L, OPEN, REFERENCE, ROWS, NODES, HEAP, SOLVED = range(7)


class Search(NamedTuple):
    """The state of one search; `D` cutset variables, `N` nodes at most, `R` variables in the rest, `M` edges.

    `mass` and `joint` are sums over the solved assignments, each weighted by exp(log Z - scalar[REFERENCE]).
    """

    cut: np.ndarray  # [D] int64: the cutset, in the order of branching
    place: np.ndarray  # [K] int64: step of a variable of the rest, or -1 - its rank in the cutset
    steps: plan.Steps  # of the rest; its edges are the core's
    program: sweep_lanes.Program  # of the rest
    log_arc: np.ndarray  # [A, 4] float64: weights of the rest
    arc_range: float  # nats between the least and the largest entry, summed over the arcs; inf with zeros
    free: np.ndarray  # [D] bool: whether a variable has no neighbour in the cutset
    floored: np.ndarray  # [2 M, 4] float64: log weights by [state of the cutset variable][the other], FLOOR at least
    share: np.ndarray  # [2 M] float64: unnormalised weights w, by arc of the cutset variable
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


@kernel
def start(core, cut, order, belief, message, nodes):
    """A search before its first step; `order` eliminates the rest."""
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
    share, shift, floored = np.zeros(2 * edges), np.zeros(2 * edges), np.zeros((2 * edges, 4))
    free = np.ones(len(cut), np.bool_)
    for i in range(len(cut)):
        v = cut[i]
        for k in range(core.row[v], core.row[v + 1]):
            t = np.maximum(core.table[core.edge[k]], -CLAMP)
            share[k] = abs(t[0] + t[3] - t[1] - t[2]) + 1e-3
            shift[k] = message[k]
            free[i] = free[i] and where[core.column[k]] >= 0
            for z in range(2):
                for x in range(2):
                    floored[k, 2 * z + x] = max(log_weight(core, k, v, z, x), FLOOR)
    search = Search(
        cut, where, steps, sweep_lanes.lay(steps, arc, scale), log_arc, spread, free, floored, share,
        shift, np.zeros((nodes, len(cut)), np.int8),
        np.zeros(nodes, np.int32), np.empty(nodes), np.empty(nodes, np.int64), np.zeros(count), np.zeros((edges, 4)),
        np.zeros(7),
    )  # fmt: skip
    search.scalar[LOG_L] = search.scalar[REFERENCE] = -math.inf
    for i in range(len(cut)):  # the first assignment to try, by belief propagation
        search.state[0, i] = belief[cut[i]] > 0
    return search


class Workspace(NamedTuple):
    """Inputs and outputs of the sweeps of the rest, for `LANES` rows; made once per search."""

    state: np.ndarray  # [LANES, D] int8: assignments of the rows at hand
    unary: np.ndarray  # [LANES, R, 2] float64: log unaries of the rows
    cut_unary: np.ndarray  # [D, 2] float64: of the unassigned cutset variables
    shared: np.ndarray  # [R, 2] float64: the part that all rows share
    cut_shared: np.ndarray  # [D, 2] float64: likewise
    constant: np.ndarray  # [LANES] float64: logarithms of the factors outside of the rest
    log_z: np.ndarray  # [LANES] float64: of the rest
    held: np.ndarray  # [LANES] bool
    p: np.ndarray  # [LANES, R] float64
    joint: np.ndarray  # [LANES, A, 4] float64
    wanted: np.ndarray  # [A] bool
    nothing: np.ndarray  # [A] bool, all False
    lanes: sweep_lanes.SweepBuffers


@kernel
def workspace(search, wanted):
    """`wanted [M]` says whose joint posteriors are asked for."""
    rest, arcs = len(search.steps.variable), len(search.steps.arc_to)
    chosen = np.empty(arcs, np.bool_)
    for k in range(arcs):
        chosen[k] = wanted[search.steps.arc_edge[k]]
    return Workspace(
        np.empty((LANES, len(search.cut)), np.int8), np.empty((LANES, rest, 2)), np.empty((len(search.cut), 2)),
        np.empty((rest, 2)), np.empty((len(search.cut), 2)),
        np.empty(LANES), np.empty(LANES), np.empty(LANES, np.bool_), np.empty((LANES, rest)),
        np.empty((LANES, arcs, 4)), chosen, np.zeros(arcs, np.bool_), sweep_lanes.workspace(search.program),
    )  # fmt: skip


@kernel
def load(core, search, unary, cut_unary):
    """The unaries of the rest and of the cutset, with nothing assigned."""
    for i in range(len(search.steps.variable)):
        unary[i] = core.unary[search.steps.variable[i]]
    for i in range(len(search.cut)):
        cut_unary[i] = core.unary[search.cut[i]]


@kernel
def assign(core, search, state, first, last, unary, cut_unary):
    """Fold cutset variables `first:last` into their neighbours' unaries; returns the logarithm of the constant left."""
    constant = 0.0
    for i in range(first, last):
        v, z = search.cut[i], state[i]
        constant += cut_unary[i, z]  # earlier ones have folded their factors in
        for k in range(core.row[v], core.row[v + 1]):
            at = search.place[core.column[k]]
            if at >= 0:
                unary[at, 0] += log_weight(core, k, v, z, 0)
                unary[at, 1] += log_weight(core, k, v, z, 1)
            elif -1 - at > i:
                cut_unary[-1 - at, 0] += log_weight(core, k, v, z, 0)
                cut_unary[-1 - at, 1] += log_weight(core, k, v, z, 1)
    return constant


@kernel
def sweep_rest(search, work, rows, wanted, marginals):
    """Sweep the first `rows` rows: `work.log_z`, with `marginals` also `work.p` and `work.joint` of the `wanted` arcs.

    A row that the number format does not hold is swept again in logarithms. Only the way back can tell; it is left out
    without `marginals` where the factors' range is certainly held.
    """
    lanes = work.lanes
    back = marginals
    for lane in range(rows):
        spread = search.arc_range
        for i in range(len(search.steps.variable)):
            spread += abs(work.unary[lane, i, 1] - work.unary[lane, i, 0])
        back = back or not spread < SAFE
    sweep_lanes.sweep(search.program, work.unary, rows, back, lanes, work.log_z, work.held)
    if back:
        sweep_lanes.sweep_back(search.program, work.unary, rows, lanes, wanted, work.p, work.joint, work.held)
    for lane in range(rows):
        if not work.held[lane]:
            work.log_z[lane] = sweep_log.sweep_row(
                search.steps, 0, len(search.steps.variable), search.log_arc, work.unary[lane], wanted, work.p[lane],
                work.joint[lane],
            )  # fmt: skip


@kernel
def solve(core, search, work, wanted, rows):
    """Solve the full assignments in the first `rows` rows of `work.state` exactly, and add them to the sums."""
    count = 0
    for lane in range(rows):
        if lane > count:
            work.state[count] = work.state[lane]
        load(core, search, work.unary[count], work.cut_unary)
        work.constant[count] = assign(
            core, search, work.state[count], 0, len(search.cut), work.unary[count], work.cut_unary
        )  # fmt: skip
        count += work.constant[count] > -math.inf
    search.scalar[SOLVED] += rows
    sweep_rest(search, work, count, work.wanted, True)
    for lane in range(count):
        if work.log_z[lane] > -math.inf:
            _add(core, search, work, wanted, lane)


@kernel
def _add(core, search, work, wanted, lane):
    """Add a solved row to the sums."""
    scalar, state, p, joint = search.scalar, work.state[lane], work.p[lane], work.joint[lane]
    log_z = work.log_z[lane] + work.constant[lane]
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
        search.mass[search.steps.variable[i]] += share * p[i]
    for k in range(len(search.steps.arc_to)):
        if work.wanted[k]:
            e, flip = search.steps.arc_edge[k], search.steps.arc_flipped[k]
            search.joint[e, 0] += share * joint[k, 0]
            search.joint[e, 3] += share * joint[k, 3]
            search.joint[e, 1] += share * joint[k, 2 if flip else 1]
            search.joint[e, 2] += share * joint[k, 1 if flip else 2]
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
                true = p[at] if at >= 0 else np.float64(state[-1 - at])
                q = true if x == 1 else 1.0 - true
                search.joint[e, 2 * state[i] + x if core.tail[e] == v else 2 * x + state[i]] += share * q
