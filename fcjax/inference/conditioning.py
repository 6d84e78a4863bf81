"""Graphs that are too wide to eliminate: conditioned on a cutset with a proof, or estimated (SPEC 4).

The papers are cited where the work is done: `kernels.cutset`, `kernels.search` and `kernels.hoelder`.
"""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

import numpy as np

from fcjax.core.limits import Effort, Limits
from fcjax.graph.batch import GraphBatch
from fcjax.kernels import reduce, search

BUDGET = 3e9  # table entries that one graph may cost where no time is set: some seconds
STEP_COST = 100.0  # entries that the fixed cost of a step is worth
NODE_BYTES = 20  # of a node of the search, beside a byte for each variable of the cutset
BEYOND = 300.0  # nats that the root's bound is too high, past which a search does not succeed
FEW = 4  # orders tried for an estimate
SLICE = 64  # rows between two looks at the clock
# A search is as hard as the nats that the root's bound is too high and the variables of the cutset, together: from
# which hardness on is the rest that much wider?
WIDER = {"tight": ((60.0, 6), (40.0, 4)), "label": ((55.0, 4),)}


def condition(
    g: int,
    table: GraphBatch,
    reduced: reduce.Reduced,
    effort: Effort,
    limits: Limits,
    tail: float,
    p: np.ndarray,
    joint: np.ndarray,
    budget: float = np.inf,
) -> search.SearchResult:
    """Search the assignments of a cutset of graph g until R / L < `tail`.

    It goes as far as `effort`, `limits` and `budget`, in table entries, allow.

    Writes P(true) among the solved assignments to graph g's part of `p [V]`, and its joint posteriors to `joint`; the
    result holds the share that was left open.
    """
    began = perf_counter()
    core, variables, wanted, scale = search.take_core(g, table.node_ptr, table.factor_ptr, reduced)
    edges = reduced.edge_ptr[g] + reduced.core_edge[table.factor_ptr[g] : table.factor_ptr[g] + len(core.tail)]
    most, restarts = limits.rows, limits.restarts
    if effort == "fast":  # an assignment makes two nodes, and further orders do not pay off
        most, restarts = min(most, 2 * limits.assignments), min(restarts, FEW)
    most = min(most, max(2, int(8 * limits.entries() / (len(variables) + NODE_BYTES))))

    def prepare(target: int) -> tuple[Any, Any, np.ndarray, int]:
        state, work, belief = search.prepare(core, wanted, target, restarts, most)
        rows = len(state.depth) - search.SPARE
        spend = min(budget, BUDGET if limits.seconds is None else np.inf)
        if spend < np.inf:
            rows = int(min(rows, max(2, spend / (state.steps.cost[0] + STEP_COST * len(state.steps.variable)))))
        return state, work, belief, rows

    def begin(target: int, spent: float = 0.0) -> tuple[Any, Any, np.ndarray, int]:
        state, work, _, rows = prepare(target)
        believed = state.state[0].copy()
        search.begin(core, state, work, wanted, min(search.TIGHTEN, rows // 4))
        state.scalar[search.ROWS] += spent
        return state, work, believed, rows

    target = limits.rest_width(effort)
    mine = slice(table.node_ptr[g], table.node_ptr[g + 1])

    def write(excess: float) -> search.SearchResult:
        found = search.report(state, excess)
        found = found._replace(log_z=found.log_z + scale)
        p[table.node_ptr[g] + variables] = found.p
        joint[edges] = found.joint
        reduce.restore(table.node_ptr, reduced, np.array([g]), p, joint)
        np.clip(p[mine], 0.0, 1.0, out=p[mine])  # weighted means, up to rounding
        return found

    if effort == "fast":
        state, work, belief, rows = prepare(target)
        search.most_believed(core, state, work, wanted, belief, min(rows, limits.assignments))
        return write(np.inf)
    state, work, believed, rows = begin(target)
    nats = math.log(max(1.0, search.excess(state)))
    if nats > BEYOND:
        return write(search.excess(state))
    hardness = len(believed) + nats
    wider = next((wider for least, wider in WIDER[effort] if hardness > least), 0)
    if wider and limits.cutset_width is None:
        state, work, believed, rows = begin(target + wider, state.scalar[search.ROWS])
    until_tail, labels = tail, effort == "label"
    while True:
        spent = int(state.scalar[search.ROWS])
        until = rows if limits.seconds is None else min(rows, spent + SLICE)
        excess = search.advance(core, state, work, wanted, believed, until, until_tail, labels)
        found = write(excess)
        late = limits.seconds is not None and perf_counter() - began > limits.seconds
        if late or found.rows + search.LANES > rows or excess <= tail or not state.scalar[search.HEAP]:
            return found
        if effort == "label" and search.all_certain(p[mine], excess):
            return found
        if found.rows + search.LANES <= until:  # the core is certain, but not all that hangs on it
            until_tail, labels = max(tail, excess / 4), False


def interval(p: np.ndarray, excess: float) -> tuple[np.ndarray, np.ndarray]:
    """The proved interval of posteriors `p` among solved assignments, where `excess` is open mass over solved mass."""
    if not np.isfinite(excess):
        return np.zeros_like(p), np.ones_like(p)
    return p / (1.0 + excess), (p + excess) / (1.0 + excess)
