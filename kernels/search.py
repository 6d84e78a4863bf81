"""Posteriors of wide cores with a proof: best-first search over the assignments of a cutset (SPEC 4).

Assignments of the whole cutset are solved exactly and make up L, a lower bound on Z; upper bounds of the open nodes
make up R. Z lies in [L, L + R], and a posterior of L_v / L among the solved ones in [L_v, L_v + R] / (L + R). The node
with the largest bound is opened first, one cutset variable at a time.

Best-first search with bounds from mini-buckets: Marinescu and Dechter, "Best-First AND/OR Search for Graphical Models",
AAAI 2007; for the partition function, Lou, Dechter and Ihler, "Anytime Anyspace AND/OR Search for Bounding the
Partition Function", AAAI 2017. Here the tree is over a cutset only, and the rest is summed out exactly.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcjax.kernels import condition, cutset, hoelder
from fcjax.kernels.compilation import kernel
from fcjax.kernels.condition import HEAP, LOG_L, NODES, OPEN, REFERENCE, ROWS, SOLVED

LANES = condition.LANES
LEVELS = 3  # cutset variables that an opening assigns: 2 ** LEVELS = LANES
SPARE = 4  # nodes beyond the rows
TIGHTEN = 50  # gradient steps at the root, at most
RECOUNT = 64  # openings after which the open bounds are summed again, against rounding errors
BAND = 2e-5  # half the width of the tie band round one half (SPEC 3)
EPS = 1e-5


class SearchResult(NamedTuple):
    """The state of a search of one core of `K` variables and `M` edges, as results."""

    log_z: float  # of the solved assignments: a lower bound
    excess: float  # R / L; inf where nothing was solved
    p: np.ndarray  # [K] float64: P(true) among the solved assignments
    joint: np.ndarray  # [M, 4] float64: joint posteriors of the wanted edges, likewise
    rows: int  # sweeps, tightening steps included
    cutset: int
    width: int  # of the rest


@kernel
def _rise(heap, bound, at):
    node = heap[at]
    while at > 0:
        parent = (at - 1) >> 1
        if bound[heap[parent]] >= bound[node]:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = node


@kernel
def _sink(heap, bound, size):
    node, at = heap[0], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and bound[heap[child + 1]] > bound[heap[child]]:
            child += 1
        if bound[heap[child]] <= bound[node]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = node


@kernel
def _push(search, node):
    size = np.int64(search.scalar[HEAP])
    search.heap[size] = node
    search.scalar[HEAP] = size + 1
    search.scalar[OPEN] += math.exp(search.bound[node] - search.scalar[REFERENCE])
    _rise(search.heap, search.bound, size)


@kernel
def _pop(search):
    node = search.heap[0]
    size = np.int64(search.scalar[HEAP]) - 1
    search.scalar[HEAP] = size
    search.scalar[OPEN] -= math.exp(search.bound[node] - search.scalar[REFERENCE])
    if size > 0:
        search.heap[0] = search.heap[size]
        _sink(search.heap, search.bound, size)
    return node


@kernel
def _recount(search):
    """Sum the open bounds, over exp(REFERENCE), again."""
    total = 0.0
    for i in range(np.int64(search.scalar[HEAP])):
        total += math.exp(search.bound[search.heap[i]] - search.scalar[REFERENCE])
    search.scalar[OPEN] = total
    return total


@kernel
def excess(search):
    """R / L, the sum of the open bounds over that of the solved assignments."""
    if search.scalar[LOG_L] == -math.inf:
        return math.inf
    return max(0.0, search.scalar[OPEN]) * math.exp(search.scalar[REFERENCE] - search.scalar[LOG_L])


@kernel
def all_certain(p, r):
    """Whether every interval of `p`, rounded outward by EPS, lies on one side of the tie band or inside it."""
    for v in range(len(p)):
        low, high = p[v] / (1.0 + r) - EPS, (p[v] + r) / (1.0 + r) + EPS
        if not (low > 0.5 + BAND or high < 0.5 - BAND or (low >= 0.5 - BAND and high <= 0.5 + BAND)):
            return False
    return True


@kernel
def _core_certain(search, r):
    return all_certain(search.mass * math.exp(search.scalar[REFERENCE] - search.scalar[LOG_L]), r)


@kernel
def begin(core, search, work, wanted, tighten):
    """Solve the assignment that belief propagation ranks first, tighten the root, and open it."""
    work.state[0] = search.state[0]
    condition.solve(core, search, work, wanted, 1)
    search.scalar[ROWS] += 1
    if len(search.cut) == 0:
        return  # the one assignment is all of Z
    if tighten > 0:
        hoelder.tighten(core, search, work, tighten)
    hoelder.upper(core, search, work, 1, 0, 0)
    search.depth[0], search.bound[0] = 0, work.log_z[0]
    search.scalar[ROWS] += 1
    search.scalar[NODES] = 1
    if search.scalar[REFERENCE] == -math.inf and search.bound[0] < math.inf:
        search.scalar[REFERENCE] = search.bound[0]
    if search.bound[0] > -math.inf:
        _push(search, 0)


@kernel
def advance(core, search, work, wanted, believed, rows, tail, labels):
    """Open nodes until R / L < `tail`, or every label is certain where `labels` says so, or `rows` are spent.

    A node is opened by `LEVELS` cutset variables at once, whose assignments are the lanes of one sweep. `believed [D]`
    is the assignment that `begin` has solved. Returns R / L.
    """
    count = len(search.cut)
    opened = 0
    while search.scalar[HEAP] > 0 and search.scalar[ROWS] + LANES <= rows:
        r = excess(search)
        if r < tail or (labels and r < 1e3 and _core_certain(search, r)):
            _recount(search)
            r = excess(search)
            if r < tail or (labels and _core_certain(search, r)):
                break
        opened += 1
        if opened % RECOUNT == 0:
            _recount(search)
        node = _pop(search)
        depth = np.int64(search.depth[node])
        levels = LEVELS if (count - depth) % LEVELS == 0 else (count - depth) % LEVELS  # later ones take all
        children = 0
        for digits in range(1 << levels):
            work.state[children] = search.state[node]
            for i in range(levels):
                work.state[children, depth + i] = (digits >> i) & 1
            children += int(depth + levels < count or not np.array_equal(work.state[children], believed))
        search.scalar[ROWS] += children
        if depth + levels == count:
            condition.solve(core, search, work, wanted, children)
            continue
        hoelder.upper(core, search, work, children, depth, depth + levels)
        for lane in range(children):
            if work.log_z[lane] > -math.inf:
                child = np.int64(search.scalar[NODES])
                search.state[child] = work.state[lane]
                search.depth[child] = depth + levels
                search.bound[child] = min(work.log_z[lane], search.bound[node])
                search.scalar[NODES] = child + 1
                _push(search, child)
    _recount(search)
    return excess(search)


@kernel
def take_core(g, node_ptr, factor_ptr, reduced):
    """The core of graph g, with every table and unary scaled to a largest entry of 1.

    Returns (core, its variables numbered within the graph, the wanted `[M]` of its edges, the logarithm of the scale).
    """
    n, n0, e0 = node_ptr[g + 1] - node_ptr[g], node_ptr[g], reduced.edge_ptr[g]
    edges = reduced.core_edge[factor_ptr[g] : factor_ptr[g] + reduced.core_edges[g]]
    index, needed = np.zeros(n, np.int32), np.zeros(reduced.edge_ptr[g + 1] - e0, np.bool_)
    for v in reduced.order[n0 : n0 + reduced.eliminated[g]]:
        index[v] = -1
        if reduced.used[n0 + v, 2] >= 0:
            needed[reduced.used[n0 + v, 2]] = True
    count = 0
    variables = np.empty(n - reduced.eliminated[g], np.int32)
    for v in range(n):
        if index[v] >= 0:
            variables[count], index[v] = v, count
            count += 1
    tail, head = np.empty(len(edges), np.int32), np.empty(len(edges), np.int32)
    table, wanted = np.empty((len(edges), 4)), np.empty(len(edges), np.bool_)
    scale = 0.0
    for i in range(len(edges)):
        e = e0 + edges[i]
        tail[i], head[i] = index[reduced.tail[e]], index[reduced.head[e]]
        top = max(-1e300, reduced.table[e].max())
        scale += top
        table[i], wanted[i] = reduced.table[e] - top, needed[edges[i]]
    unary = np.empty((count, 2))
    for i in range(count):
        top = max(-1e300, reduced.unary[n0 + variables[i]].max())
        scale += top
        unary[i] = reduced.unary[n0 + variables[i]] - top
    return cutset.make_core(unary, tail, head, table), variables, wanted, scale


@kernel
def prepare(core, wanted, target, restarts, rows):
    """Choose a cutset that leaves a width of `target`, and set up a search of `rows` at most.

    Returns (search, workspace, beliefs of the cutset in log-odds `[D]`).
    """
    belief, message = cutset.propagate(core)
    ranking = cutset.rank(core, belief)
    length, order, _ = cutset.choose(core, ranking, target, restarts)
    cut = ranking[:length].copy()
    search = condition.start(core, cut, order, belief, message, rows + SPARE)
    return search, condition.workspace(search, wanted), belief[cut]


@kernel
def most_believed(core, search, work, wanted, belief, rows):
    """Solve the `rows` assignments with the largest product of beliefs, without a proof.

    Assignments are made of the most believed one by flipping variables in the order of how little that costs: after
    flips {.., i} come {.., i, i + 1} and {.., i + 1}. Each is generated once, in order of cost.
    """
    count = len(search.cut)
    order = np.argsort(np.abs(belief))
    best = search.state[0].copy()
    work.state[0] = best
    waiting = 1
    search.scalar[NODES] = 1
    if count > 0:
        search.state[0] = 0  # nodes hold which of the ordered variables are flipped; `depth` is the last one
        search.state[0, 0] = 1
        search.depth[0], search.bound[0] = 0, -abs(belief[order[0]])
        _push(search, 0)
    while search.scalar[HEAP] > 0 and search.scalar[ROWS] + waiting < rows:
        if waiting == LANES:
            condition.solve(core, search, work, wanted, waiting)
            search.scalar[ROWS] += waiting
            waiting = 0
        node = _pop(search)
        last = search.depth[node]
        for i in range(count):
            work.state[waiting, order[i]] = best[order[i]] ^ search.state[node, i]
        waiting += 1
        if last + 1 == count:
            continue
        for keep in range(2):
            child = np.int64(search.scalar[NODES])
            if child >= len(search.depth):
                break
            search.state[child] = search.state[node]
            search.state[child, last] = keep
            search.state[child, last + 1] = 1
            search.depth[child] = last + 1
            search.bound[child] = search.bound[node] - abs(belief[order[last + 1]])
            if keep == 0:
                search.bound[child] += abs(belief[order[last]])
            search.scalar[NODES] = child + 1
            _push(search, child)
    condition.solve(core, search, work, wanted, waiting)
    search.scalar[ROWS] += waiting


@kernel
def report(search, r):
    """The result so far."""
    scale = math.exp(search.scalar[REFERENCE] - search.scalar[LOG_L]) if search.scalar[SOLVED] > 0 else 0.0
    return SearchResult(
        search.scalar[LOG_L], r, search.mass * scale, search.joint * scale, int(search.scalar[ROWS]),
        len(search.cut), search.steps.width[0],
    )  # fmt: skip
