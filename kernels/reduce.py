"""Exact reduction of pairwise Boolean networks, and the way back (SPEC 4).

Parallel factors are merged, then every variable with at most two neighbours is summed out, again and again: isolated
nodes, leaves, trees, chains. What is left is the core, in which every variable has three neighbours or more; a graph
of induced width 2 or less has none.

A summed-out variable leaves two things behind: a factor on its one or two neighbours, and its conditional given these,
from which `restore` makes its posterior, P(v) = sum P(v | neighbours) P(neighbours), walking the variables backwards.

Weights are float64 logarithms, so that neither a probability of 0 nor 1,600 decades of one-sided evidence loses
anything. A variable or edge that nothing was added to yet keeps its linear weights: most variables are summed out with
one logarithm a message. Results that come near the end of the linear range are done again in logarithms.

This is bucket elimination (Dechter, "Bucket Elimination: A Unifying Framework for Reasoning", Artificial Intelligence
113, 1999) as far as it makes no new table over more than two variables.

Flat arrays hold many graphs: graph g owns variables `node_ptr[g]:node_ptr[g + 1]`, and so on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcjax.kernels.compilation import kernel

LEAST = 1e-250  # under this a sum of linear products may have lost terms
MOST = 1e40  # over this a weight may raise what a product of two lost, which is under 1e-307, to what counts at `LEAST`


class Reduced(NamedTuple):
    """`G` graphs after reduction; `V` and `E` count the variables and the given factors of all of them together.

    Edges are numbered per graph in a space of `E_g + V_g`: the given ones that were not merged away, then the ones
    that elimination made.
    """

    edge_ptr: np.ndarray  # [G + 1] int64: the edge space of each graph
    tail: np.ndarray  # [E + V] int32: endpoints of the edges, numbered within the graph
    head: np.ndarray  # [E + V] int32
    table: np.ndarray  # [E + V, 4] float64: log weights of the core's edges by [state of tail][state of head]
    unary: np.ndarray  # [V, 2] float64: log weights of the core's variables, messages included
    share: np.ndarray  # [V, 4] float64: P(true) of an eliminated variable by the states of its neighbours
    order: np.ndarray  # [V] int32: the eliminated variables of each graph, in order
    used: np.ndarray  # [V, 3] int32: edges of an eliminated variable to its neighbours, edge between these; -1: none
    eliminated: np.ndarray  # [G] int32: how many variables were eliminated
    edge_of: np.ndarray  # [E] int32: the edge that each given factor became a part of
    core_edges: np.ndarray  # [G] int32: how many edges the core has
    core_edge: np.ndarray  # [E] int32: the core's edges, from factor_ptr on
    width: np.ndarray  # [G] int32: induced width of the eliminated parts: 0, 1 or 2
    log_z: np.ndarray  # [G] float64: the log partition function of the parts that were eliminated whole


@kernel
def _link(h, v, first, after, before):
    """Put half-edge h at the front of v's list."""
    old = first[v]
    after[h] = old
    before[h] = -1
    if old >= 0:
        before[old] = h
    first[v] = h


@kernel
def _connect(e, a, b, tail, head, degree, first, after, before):
    """Make e the edge from a to b."""
    tail[e], head[e] = a, b
    _link(2 * e, a, first, after, before)
    _link(2 * e + 1, b, first, after, before)
    degree[a] += 1
    degree[b] += 1


@kernel
def _unlink(h, v, first, after, before):
    if before[h] >= 0:
        after[before[h]] = after[h]
    else:
        first[v] = after[h]
    if after[h] >= 0:
        before[after[h]] = before[h]


@kernel
def _find(a, b, degree, first, after, tail, head):
    """The edge between a and b, or -1; looks through the shorter list."""
    if degree[b] < degree[a]:
        a, b = b, a
    h = first[a]
    while h >= 0:
        e = h >> 1
        if (head[e] if h & 1 == 0 else tail[e]) == b:
            return e
        h = after[h]
    return -1


@kernel
def _at(v_is_tail, z, s):
    """Where an edge keeps its weight for state z of the variable at hand and state s of the other end."""
    return 2 * z + s if v_is_tail else 2 * s + z


@kernel
def _sum(false, true):
    """(log(exp(false) + exp(true)), the share of `true` in it); the share is 0 where both are -inf."""
    if true == -math.inf:
        return false, 0.0
    if false == -math.inf:
        return true, 1.0
    ratio = math.exp(-abs(true - false))
    if true >= false:
        return true + math.log1p(ratio), 1.0 / (1.0 + ratio)
    return false + math.log1p(ratio), ratio / (1.0 + ratio)


@kernel
def _log_variable(v, weight, logged):
    if not logged[v]:
        logged[v] = True
        weight[v, 0], weight[v, 1] = math.log(weight[v, 0]), math.log(weight[v, 1])


@kernel
def _log_edge(e, table, logged):
    if not logged[e]:
        logged[e] = True
        for i in range(4):
            table[e, i] = math.log(table[e, i])


@kernel
def _leaf_message(v, e, v_tail, weight, table, variable_logged, edge_logged, share, message):
    """Sum leaf v out over its edge: `message[:2]`, logs by the neighbour's state, and `share[:2]`, P(v | it)."""
    if not variable_logged[v] and not edge_logged[e]:
        lowest, highest = math.inf, 0.0
        for s in range(2):
            true = weight[v, 1] * table[e, _at(v_tail, 1, s)]
            whole = weight[v, 0] * table[e, _at(v_tail, 0, s)] + true
            lowest, highest = min(lowest, whole), max(highest, whole)
            message[s], share[s] = whole, true / whole if whole > 0 else 0.0
        if lowest > LEAST and highest < 1.0 / LEAST:
            message[0], message[1] = math.log(message[0]), math.log(message[1])
            return
    _log_variable(v, weight, variable_logged)
    _log_edge(e, table, edge_logged)
    for s in range(2):
        message[s], share[s] = _sum(
            weight[v, 0] + table[e, _at(v_tail, 0, s)], weight[v, 1] + table[e, _at(v_tail, 1, s)]
        )


@kernel
def _chain_message(v, e, v_tail, e2, v_tail2, weight, table, variable_logged, edge_logged, share, message):
    """Sum v out over its two edges: the same by the states [s][r] of the two neighbours, four entries each."""
    if not (variable_logged[v] or edge_logged[e] or edge_logged[e2]):
        lowest, highest = math.inf, 0.0
        for s in range(2):
            false_s = weight[v, 0] * table[e, _at(v_tail, 0, s)]
            true_s = weight[v, 1] * table[e, _at(v_tail, 1, s)]
            for r in range(2):
                true = true_s * table[e2, _at(v_tail2, 1, r)]
                whole = false_s * table[e2, _at(v_tail2, 0, r)] + true
                lowest, highest = min(lowest, whole), max(highest, whole)
                message[2 * s + r], share[2 * s + r] = whole, true / whole if whole > 0 else 0.0
        if lowest > LEAST and highest < 1.0 / LEAST and table[e2].max() < MOST:
            for i in range(4):
                message[i] = math.log(message[i])
            return
    _log_variable(v, weight, variable_logged)
    _log_edge(e, table, edge_logged)
    _log_edge(e2, table, edge_logged)
    for s in range(2):
        for r in range(2):
            message[2 * s + r], share[2 * s + r] = _sum(
                weight[v, 0] + table[e, _at(v_tail, 0, s)] + table[e2, _at(v_tail2, 0, r)],
                weight[v, 1] + table[e, _at(v_tail, 1, s)] + table[e2, _at(v_tail2, 1, r)],
            )


@kernel
def reduce(node_ptr, factor_ptr, unary, ends, tables):
    """Reduce `G` graphs; `unary [V, 2]`, `tables [E, 2, 2]` are linear weights >= 0, `ends [E, 2]` within a graph."""
    graphs = len(node_ptr) - 1
    nodes, factors = len(unary), len(ends)
    space = nodes + factors
    edge_ptr = node_ptr + factor_ptr
    tail, head = np.empty(space, np.int32), np.empty(space, np.int32)
    table, share = np.empty((space, 4), np.float64), np.empty((nodes, 4), np.float64)
    weight = unary.copy()
    order, used = np.empty(nodes, np.int32), np.empty((nodes, 3), np.int32)
    eliminated, width = np.zeros(graphs, np.int32), np.zeros(graphs, np.int32)
    edge_of, core_edge = np.empty(factors, np.int32), np.empty(factors, np.int32)
    core_edges = np.zeros(graphs, np.int32)
    log_z = np.zeros(graphs)
    most_nodes, most_edges = 0, 0
    for g in range(graphs):
        most_nodes = max(most_nodes, node_ptr[g + 1] - node_ptr[g])
        most_edges = max(most_edges, edge_ptr[g + 1] - edge_ptr[g])
    degree, first = np.empty(most_nodes, np.int32), np.empty(most_nodes, np.int32)
    after, before = np.empty(2 * most_edges, np.int32), np.empty(2 * most_edges, np.int32)
    leaves, chains = np.empty(4 * most_nodes, np.int32), np.empty(4 * most_nodes, np.int32)
    gone, variable_logged = np.empty(most_nodes, np.bool_), np.empty(most_nodes, np.bool_)
    edge_logged = np.empty(most_edges, np.bool_)
    message = np.empty(4)
    for g in range(graphs):
        n0, e0, f0 = node_ptr[g], edge_ptr[g], factor_ptr[g]
        n = node_ptr[g + 1] - n0
        degree[:n], first[:n], gone[:n], variable_logged[:n] = 0, -1, False, False
        w, t, hd, tb = weight[n0 : n0 + n], tail[e0:], head[e0:], table[e0:]
        mine, shares = used[n0 : n0 + n], share[n0 : n0 + n]
        count = 0
        for f in range(f0, factor_ptr[g + 1]):
            a, b = ends[f, 0], ends[f, 1]
            e = _find(a, b, degree, first, after, t, hd)
            edge_of[f] = e if e >= 0 else count
            if e < 0:
                e = count
                count += 1
                edge_logged[e] = False
                tb[e, 0], tb[e, 1], tb[e, 2], tb[e, 3] = (
                    tables[f, 0, 0], tables[f, 0, 1], tables[f, 1, 0], tables[f, 1, 1]
                )  # fmt: skip
                _connect(e, a, b, t, hd, degree, first, after, before)
            else:
                _log_edge(e, tb, edge_logged)
                for s in range(2):
                    for z in range(2):
                        tb[e, _at(t[e] == a, s, z)] += math.log(tables[f, s, z])
        few, some, done = 0, 0, 0
        for v in range(n):
            if degree[v] == 0:
                gone[v] = True
                order[n0 + done] = v
                done += 1
                mine[v] = -1
                top = max(w[v, 0], w[v, 1])
                whole = w[v, 0] / top + w[v, 1] / top if top > 0 else 0.0
                shares[v, 0] = w[v, 1] / top / whole if top > 0 else math.nan
                log_z[g] += math.log(whole) + math.log(top)
            elif degree[v] == 1:
                leaves[few] = v
                few += 1
            elif degree[v] == 2:
                chains[some] = v
                some += 1
        while few > 0 or some > 0:
            if few > 0:  # leaves first: they are cheaper, and turn chains into leaves
                few -= 1
                v = leaves[few]
            else:
                some -= 1
                v = chains[some]
            if gone[v] or degree[v] > 2:
                continue
            gone[v] = True
            order[n0 + done] = v
            done += 1
            mine[v] = -1
            width[g] = max(width[g], degree[v])
            if degree[v] == 0:
                _log_variable(v, w, variable_logged)
                whole, shares[v, 0] = _sum(w[v, 0], w[v, 1])
                log_z[g] += whole
                continue
            h = first[v]
            e = h >> 1
            v_tail = h & 1 == 0
            a = hd[e] if v_tail else t[e]
            _unlink(h ^ 1, a, first, after, before)
            degree[a] -= 1
            mine[v, 0] = e
            if degree[v] == 1:
                _leaf_message(v, e, v_tail, w, tb, variable_logged, edge_logged, shares[v], message)
                _log_variable(a, w, variable_logged)
                w[a, 0] += message[0]
                w[a, 1] += message[1]
                if degree[a] <= 1:
                    leaves[few] = a
                    few += 1
                elif degree[a] == 2:
                    chains[some] = a
                    some += 1
                continue
            h2 = after[h]
            e2 = h2 >> 1
            v_tail2 = h2 & 1 == 0
            b = hd[e2] if v_tail2 else t[e2]
            _unlink(h2 ^ 1, b, first, after, before)
            degree[b] -= 1
            mine[v, 1] = e2
            _chain_message(v, e, v_tail, e2, v_tail2, w, tb, variable_logged, edge_logged, shares[v], message)
            both = _find(a, b, degree, first, after, t, hd)
            if both < 0:
                both = count
                count += 1
                edge_logged[both] = True
                tb[both] = message
                _connect(both, a, b, t, hd, degree, first, after, before)
            else:
                _log_edge(both, tb, edge_logged)
                for s in range(2):
                    for r in range(2):
                        tb[both, _at(t[both] == a, s, r)] += message[2 * s + r]
                for u in (a, b):
                    if degree[u] <= 1:
                        leaves[few] = u
                        few += 1
                    elif degree[u] == 2:
                        chains[some] = u
                        some += 1
            mine[v, 2] = both
        eliminated[g] = done
        kept = 0
        if done < n:
            for v in range(n):
                if not gone[v]:
                    mine[v] = -1
                    _log_variable(v, w, variable_logged)
            for e in range(count):
                if not gone[t[e]] and not gone[hd[e]]:
                    _log_edge(e, tb, edge_logged)
                    core_edge[f0 + kept] = e
                    kept += 1
        core_edges[g] = kept
    return Reduced(
        edge_ptr, tail, head, table, weight, share, order, used, eliminated, edge_of, core_edges, core_edge, width,
        log_z,
    )  # fmt: skip


@kernel
def restore(node_ptr, reduced, graphs, p, joint):
    """Fill in the posteriors of the eliminated variables of `graphs`, in place.

    `p [V]` float64 holds P(true) of the core's variables, `joint [E + V, 4]` the joint posterior of the core's edges by
    [state of tail][state of head]; both are completed for all variables and all edges that still stood when one of
    their ends was eliminated. Everything is linear in the core's posteriors. Graphs with Z = 0 get no meaningful
    numbers.
    """
    for g in graphs:
        n0, e0 = node_ptr[g], reduced.edge_ptr[g]
        t, hd, pg, jg = reduced.tail[e0:], reduced.head[e0:], p[n0:], joint[e0:]
        for i in range(reduced.eliminated[g] - 1, -1, -1):
            v = reduced.order[n0 + i]
            e, e2, both = reduced.used[n0 + v, 0], reduced.used[n0 + v, 1], reduced.used[n0 + v, 2]
            share = reduced.share[n0 + v]
            if e < 0:
                pg[v] = share[0]
                continue
            v_tail = t[e] == v
            a = hd[e] if v_tail else t[e]
            if e2 < 0:
                for s in range(2):
                    given = pg[a] if s == 1 else 1.0 - pg[a]
                    jg[e, _at(v_tail, 1, s)] = given * share[s]
                    jg[e, _at(v_tail, 0, s)] = given * (1.0 - share[s])
            else:
                v_tail2 = t[e2] == v
                a_tail = t[both] == a
                jg[e] = 0.0
                jg[e2] = 0.0
                for s in range(2):
                    for r in range(2):
                        given = jg[both, _at(a_tail, s, r)]
                        true, false = given * share[2 * s + r], given * (1.0 - share[2 * s + r])
                        jg[e, _at(v_tail, 1, s)] += true
                        jg[e, _at(v_tail, 0, s)] += false
                        jg[e2, _at(v_tail2, 1, r)] += true
                        jg[e2, _at(v_tail2, 0, r)] += false
            pg[v] = min(1.0, jg[e, _at(v_tail, 1, 0)] + jg[e, _at(v_tail, 1, 1)])  # rounding may pass 1


@kernel
def keep_all(node_ptr, factor_ptr, unary, ends, tables):
    """A `Reduced` in which nothing was eliminated and every factor is an edge: for what sums cannot simplify."""
    graphs, nodes, factors = len(node_ptr) - 1, len(unary), len(ends)
    edge_ptr = node_ptr + factor_ptr
    tail, head = np.empty(nodes + factors, np.int32), np.empty(nodes + factors, np.int32)
    table = np.empty((nodes + factors, 4))
    edge_of, core_edges = np.empty(factors, np.int32), np.empty(graphs, np.int32)
    for g in range(graphs):
        core_edges[g] = factor_ptr[g + 1] - factor_ptr[g]
        for f in range(factor_ptr[g], factor_ptr[g + 1]):
            edge_of[f] = f - factor_ptr[g]
            e = edge_ptr[g] + edge_of[f]
            tail[e], head[e] = ends[f, 0], ends[f, 1]
            for s in range(2):
                for t in range(2):
                    table[e, 2 * s + t] = math.log(tables[f, s, t])
    return Reduced(
        edge_ptr, tail, head, table, np.log(unary), np.empty((nodes, 4)), np.empty(nodes, np.int32),
        np.full((nodes, 3), -1, np.int32), np.zeros(graphs, np.int32), edge_of, core_edges, edge_of.copy(),
        np.zeros(graphs, np.int32), np.zeros(graphs),
    )  # fmt: skip
