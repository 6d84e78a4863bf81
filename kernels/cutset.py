"""The variables of a wide core to condition on, ranked by loopy belief propagation.

Loopy belief propagation and conditioning on a cutset: Pearl, "Probabilistic Reasoning in Intelligent Systems", Morgan
Kaufmann 1988, chapter 4; Dechter, "Enhancement Schemes for Constraint Processing: Backjumping, Learning, and Cutset
Decomposition", Artificial Intelligence 41, 1990. A cutset that leaves a rest of bounded width instead of a tree (a
w-cutset): Bidyuk and Dechter, "Cutset Sampling for Bayesian Networks", JAIR 28, 2007.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcjax.kernels import plan
from fcjax.kernels.compilation import kernel

ROUNDS = 60  # of belief propagation, at most
DAMPING = 0.3
SETTLED = 3e-3  # change of a message in log-odds at which it is finished
CLAMP = 30.0  # log-odds of a message, at most


class Core(NamedTuple):
    """One core of `K` variables and `M` edges, all weights natural logarithms; variables are numbered from 0."""

    unary: np.ndarray  # [K, 2] float64
    tail: np.ndarray  # [M] int32
    head: np.ndarray  # [M] int32
    table: np.ndarray  # [M, 4] float64: by [state of tail][state of head]
    row: np.ndarray  # [K + 1] int32: variable v has arcs row[v]:row[v + 1]
    column: np.ndarray  # [2 M] int32: the arc's other end
    edge: np.ndarray  # [2 M] int32: the arc's edge
    twin: np.ndarray  # [2 M] int32: the same edge's arc at the other end


@kernel
def make_core(unary, tail, head, table):
    """A `Core` with its adjacency."""
    count, edges = len(unary), len(tail)
    row = np.zeros(count + 1, np.int32)
    for e in range(edges):
        row[tail[e] + 1] += 1
        row[head[e] + 1] += 1
    for v in range(count):
        row[v + 1] += row[v]
    free = row[:count].copy()
    column, edge, twin = np.empty(2 * edges, np.int32), np.empty(2 * edges, np.int32), np.empty(2 * edges, np.int32)
    for e in range(edges):
        a, b = tail[e], head[e]
        i, j = free[a], free[b]
        free[a] += 1
        free[b] += 1
        column[i], column[j] = b, a
        edge[i], edge[j] = e, e
        twin[i], twin[j] = j, i
    return Core(unary, tail, head, table, row, column, edge, twin)


@kernel
def log_weight(core, k, v, z, s):
    """The log weight of arc k of variable v, by v's state z and the other end's state s."""
    e = core.edge[k]
    return core.table[e, 2 * z + s] if core.tail[e] == v else core.table[e, 2 * s + z]


@kernel
def propagate(core):
    """Loopy belief propagation in log-odds: beliefs `[K]` and, by arc of v, the message into v `[2 M]`."""
    count = len(core.unary)
    odds = np.empty(count)
    for v in range(count):
        difference = core.unary[v, 1] - core.unary[v, 0]
        odds[v] = 0.0 if math.isnan(difference) else min(CLAMP, max(-CLAMP, difference))
    weights = np.exp(np.maximum(core.table, -CLAMP))
    message = np.zeros(len(core.column))
    belief = odds.copy()
    for _ in range(ROUNDS):
        largest = 0.0
        for v in range(count):
            for k in range(core.row[v], core.row[v + 1]):  # from u into v
                u, e = core.column[k], core.edge[k]
                cavity = math.exp(min(CLAMP, max(-CLAMP, belief[u] - message[core.twin[k]])))
                w = weights[e]
                if core.tail[e] == v:
                    fresh = math.log((w[2] + cavity * w[3]) / (w[0] + cavity * w[1]))
                else:
                    fresh = math.log((w[1] + cavity * w[3]) / (w[0] + cavity * w[2]))
                fresh = DAMPING * message[k] + (1.0 - DAMPING) * fresh
                largest = max(largest, abs(fresh - message[k]))
                belief[v] += fresh - message[k]
                message[k] = fresh
        if largest < SETTLED:
            break
    return belief, message


@kernel
def rank(core, belief):
    """Variables in the order in which conditioning on them helps most: many neighbours, little entropy lost."""
    count = len(core.unary)
    score = np.empty(count)
    for v in range(count):
        p = 1.0 / (1.0 + math.exp(-min(CLAMP, max(-CLAMP, belief[v]))))
        entropy = 0.0
        for q in (p, 1.0 - p):
            if q > 0:
                entropy -= q * math.log(q)
        score[v] = (core.row[v + 1] - core.row[v] - 1) / (entropy + 0.03)
    return np.argsort(-score)


@kernel
def choose(core, ranking, target, restarts):
    """The shortest prefix of `ranking`, of one variable at least, whose removal brings the width to `target`.

    Returns (its length, the order of the rest, the rest's width).
    """
    count = len(core.unary)
    removed, order = np.zeros(count, np.bool_), np.empty(count, np.int32)
    low, high = 1, count  # a prefix of `high` is known to do
    while low < high:
        middle = (low + high) // 2
        removed[:] = False
        removed[ranking[:middle]] = True
        _, width, _ = plan.search(count, core.row, core.column, removed, 1, target, order)
        if width <= target:
            high = middle
        else:
            low = middle + 1
    removed[:] = False
    removed[ranking[:high]] = True
    steps, width, _ = plan.search(count, core.row, core.column, removed, restarts, target, order)
    return high, order[:steps].copy(), width
