"""Exact reduction of pairwise Boolean networks, and the way back (SPEC 4).

Parallel factors are merged, then every variable with at most two neighbours is summed out, again and again: isolated
nodes, leaves, trees, chains. What is left is the core, in which every variable has three neighbours or more; a graph
of induced width 2 or less has none. All of it runs in float64 logarithms, so that neither a probability of 0 nor 1,600
decades of one-sided evidence loses anything.

A summed-out variable leaves a factor on its one or two neighbours, and the joint posterior of these neighbours is all
that is needed to restore its own: P(v) = sum P(v | neighbours) P(neighbours). So `restore` walks the variables
backwards and carries a joint posterior for every edge.

Flat arrays hold many graphs: graph g owns variables `node_ptr[g]:node_ptr[g + 1]`, and so on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from fcjax.kernels import logspace


class Reduced(NamedTuple):
    """`G` graphs after reduction; `V` and `E` count the variables and the given factors of all of them together.

    Edges are numbered per graph in a space of `E_g + V_g`: the given ones that were not merged away, then the ones
    that elimination made. `table[e]` holds the logarithms of edge e's weights by [state of tail][state of head].
    """

    edge_ptr: np.ndarray  # [G + 1] int64: the edge space of each graph
    tail: np.ndarray  # [E + V] int32: endpoints of the edges, numbered within the graph
    head: np.ndarray  # [E + V] int32
    table: np.ndarray  # [E + V, 4] float64
    unary: np.ndarray  # [V, 2] float64: logarithms, messages of the eliminated neighbours included
    order: np.ndarray  # [V] int32: the eliminated variables of each graph, in order
    used: np.ndarray  # [V, 3] int32: edges of an eliminated variable to its neighbours, edge between these; -1: none
    eliminated: np.ndarray  # [G] int32: how many variables were eliminated
    edge_of: np.ndarray  # [E] int32: the edge that each given factor became a part of
    core_edges: np.ndarray  # [G] int32: how many edges the core has
    core_edge: np.ndarray  # [E] int32: the core's edges, from given edge_ptr on
    log_z: np.ndarray  # [G] float64: the log partition function of the parts that were eliminated whole


@njit(cache=True, nogil=True)
def _weight(table, e, v_is_tail, z, s):
    """Edge e's log weight where the variable at hand has state z and the other end has state s."""
    return table[e, 2 * z + s] if v_is_tail else table[e, 2 * s + z]


@njit(cache=True, nogil=True)
def _link(h, v, first, after, before):
    """Put half-edge h at the front of v's list."""
    old = first[v]
    after[h] = old
    before[h] = -1
    if old >= 0:
        before[old] = h
    first[v] = h


@njit(cache=True, nogil=True)
def _unlink(h, v, first, after, before):
    if before[h] >= 0:
        after[before[h]] = after[h]
    else:
        first[v] = after[h]
    if after[h] >= 0:
        before[after[h]] = before[h]


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def reduce(node_ptr, factor_ptr, unary, ends, tables):
    """Reduce `G` graphs; weights `unary [V, 2]` and `tables [E, 2, 2]` are linear, >= 0, `ends [E, 2]` within a graph."""
    graphs = len(node_ptr) - 1
    nodes, factors = len(unary), len(ends)
    space = nodes + factors
    edge_ptr = node_ptr + factor_ptr
    tail, head = np.empty(space, np.int32), np.empty(space, np.int32)
    table = np.empty((space, 4), np.float64)
    weight = np.log(unary)
    order = np.empty(nodes, np.int32)
    used = np.full((nodes, 3), -1, np.int32)
    eliminated = np.zeros(graphs, np.int32)
    core_edges = np.zeros(graphs, np.int32)
    edge_of, core_edge = np.empty(factors, np.int32), np.empty(factors, np.int32)
    log_z = np.zeros(graphs)
    largest_nodes, largest_space = 0, 0
    for g in range(graphs):
        largest_nodes = max(largest_nodes, node_ptr[g + 1] - node_ptr[g])
        largest_space = max(largest_space, edge_ptr[g + 1] - edge_ptr[g])
    degree, first = np.empty(largest_nodes, np.int32), np.empty(largest_nodes, np.int32)
    after, before = np.empty(2 * largest_space, np.int32), np.empty(2 * largest_space, np.int32)
    leaves, chains = (
        np.empty(2 * largest_nodes + 2 * largest_space, np.int32),
        np.empty(largest_nodes * 2 + 2 * largest_space, np.int32),
    )
    gone = np.empty(largest_nodes, np.bool_)
    for g in range(graphs):
        n0, e0, f0 = node_ptr[g], edge_ptr[g], factor_ptr[g]
        n = node_ptr[g + 1] - n0
        degree[:n] = 0
        first[:n] = -1
        gone[:n] = False
        u, t, hd, tb, mine = weight[n0 : n0 + n], tail[e0:], head[e0:], table[e0:], used[n0 : n0 + n]
        count = 0
        for f in range(f0, factor_ptr[g + 1]):
            a, b = ends[f, 0], ends[f, 1]
            e = _find(a, b, degree, first, after, t, hd)
            edge_of[f] = e if e >= 0 else count
            if e < 0:
                e = count
                count += 1
                t[e], hd[e] = a, b
                tb[e, 0], tb[e, 1] = math.log(tables[f, 0, 0]), math.log(tables[f, 0, 1])
                tb[e, 2], tb[e, 3] = math.log(tables[f, 1, 0]), math.log(tables[f, 1, 1])
                _link(2 * e, a, first, after, before)
                _link(2 * e + 1, b, first, after, before)
                degree[a] += 1
                degree[b] += 1
            elif t[e] == a:
                for s in range(2):
                    for z in range(2):
                        tb[e, 2 * s + z] += math.log(tables[f, s, z])
            else:
                for s in range(2):
                    for z in range(2):
                        tb[e, 2 * z + s] += math.log(tables[f, s, z])
        few, some = 0, 0
        for v in range(n):
            if degree[v] <= 1:
                leaves[few] = v
                few += 1
            elif degree[v] == 2:
                chains[some] = v
                some += 1
        done = 0
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
            if degree[v] == 0:
                log_z[g] += logspace.add(u[v, 0], u[v, 1])
                continue
            h = first[v]
            e = h >> 1
            v_tail = h & 1 == 0
            a = hd[e] if v_tail else t[e]
            _unlink(h ^ 1, a, first, after, before)
            degree[a] -= 1
            mine[v, 0] = e
            if degree[v] == 1:
                for s in range(2):
                    u[a, s] += logspace.add(
                        u[v, 0] + _weight(tb, e, v_tail, 0, s), u[v, 1] + _weight(tb, e, v_tail, 1, s)
                    )
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
            both = _find(a, b, degree, first, after, t, hd)
            fresh = both < 0
            if fresh:
                both = count
                count += 1
                t[both], hd[both] = a, b
                tb[both] = 0.0
                _link(2 * both, a, first, after, before)
                _link(2 * both + 1, b, first, after, before)
                degree[a] += 1
                degree[b] += 1
            mine[v, 2] = both
            a_tail = t[both] == a
            for s in range(2):
                for r in range(2):
                    message = logspace.add(
                        u[v, 0] + _weight(tb, e, v_tail, 0, s) + _weight(tb, e2, v_tail2, 0, r),
                        u[v, 1] + _weight(tb, e, v_tail, 1, s) + _weight(tb, e2, v_tail2, 1, r),
                    )
                    tb[both, 2 * s + r if a_tail else 2 * r + s] += message
            if not fresh:
                for w in (a, b):
                    if degree[w] <= 1:
                        leaves[few] = w
                        few += 1
                    elif degree[w] == 2:
                        chains[some] = w
                        some += 1
        eliminated[g] = done
        kept = 0
        if done < n:
            for e in range(count):
                if not gone[t[e]] and not gone[hd[e]]:
                    core_edge[f0 + kept] = e
                    kept += 1
        core_edges[g] = kept
    return Reduced(
        edge_ptr, tail, head, table, weight, order, used, eliminated, edge_of, core_edges, core_edge, log_z
    )


@njit(cache=True, nogil=True)
def restore(node_ptr, reduced, p, joint):
    """Fill in the posteriors of the eliminated variables, in place.

    `p [V]` float64 holds P(true) of the core's variables, `joint [E + V, 4]` the joint posterior of the core's edges by
    [state of tail][state of head]; both are completed for all variables and all edges that still stood when one of
    their ends was eliminated. Graphs with Z = 0 come out as NaN.
    """
    for g in range(len(node_ptr) - 1):
        n0, e0 = node_ptr[g], reduced.edge_ptr[g]
        u, t, tb = reduced.unary[n0:], reduced.tail[e0:], reduced.table[e0:]
        hd, pg, jg = reduced.head[e0:], p[n0:], joint[e0:]
        for i in range(reduced.eliminated[g] - 1, -1, -1):
            v = reduced.order[n0 + i]
            e, e2, both = reduced.used[n0 + v, 0], reduced.used[n0 + v, 1], reduced.used[n0 + v, 2]
            if e < 0:
                pg[v] = logspace.true_share(u[v, 0], u[v, 1]) if max(u[v, 0], u[v, 1]) > -math.inf else math.nan
                continue
            v_tail = t[e] == v
            a = hd[e] if v_tail else t[e]
            jg[e] = 0.0
            if e2 < 0:
                for s in range(2):
                    share = logspace.true_share(
                        u[v, 0] + _weight(tb, e, v_tail, 0, s), u[v, 1] + _weight(tb, e, v_tail, 1, s)
                    )
                    given = pg[a] if s == 1 else 1.0 - pg[a]
                    jg[e, 2 + s if v_tail else 2 * s + 1] = given * share
                    jg[e, s if v_tail else 2 * s] = given * (1.0 - share)
            else:
                v_tail2 = t[e2] == v
                a_tail = t[both] == a
                jg[e2] = 0.0
                for s in range(2):
                    for r in range(2):
                        share = logspace.true_share(
                            u[v, 0] + _weight(tb, e, v_tail, 0, s) + _weight(tb, e2, v_tail2, 0, r),
                            u[v, 1] + _weight(tb, e, v_tail, 1, s) + _weight(tb, e2, v_tail2, 1, r),
                        )
                        given = jg[both, 2 * s + r if a_tail else 2 * r + s]
                        for z in range(2):
                            mass = given * (share if z == 1 else 1.0 - share)
                            jg[e, 2 * z + s if v_tail else 2 * s + z] += mass
                            jg[e2, 2 * z + r if v_tail2 else 2 * r + z] += mass
            pg[v] = jg[e, 2] + jg[e, 3] if v_tail else jg[e, 1] + jg[e, 3]
