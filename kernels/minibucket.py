"""Weighted mini-buckets: an upper bound on log Z, and beliefs without a guarantee (SPEC 4: `wmb`).

Variables are eliminated one after another as in exact elimination, but the factors in a variable's bucket are shared
out to mini-buckets over at most `i_bound` + 1 variables, which are summed out apart from each other. By Hoelder's
inequality,

    sum_x prod_m f_m(x)  <=  prod_m ( sum_x f_m(x)^(1 / w_m) )^(w_m),    w_m > 0,  sum_m w_m = 1,

that makes an upper bound (Liu and Ihler 2011), and an equality where no bucket was split. It holds for any weights and
however the factors are shared out, so both are fitted. Each pass down the order moves factors of the bucket's variable
between its mini-buckets until they agree on its posterior (moment matching), and weight away from those of high
entropy. The pass back up makes the derivatives of the bound, the posteriors that the fitting goes by. They only choose
among bounds: nothing that is rounded or cut off in them can make a bound too low. Where buckets were split, the
posteriors that are reported come from `join_graph`, over the same mini-buckets.

Weights are float64 logarithms. A table is indexed by its scope, sorted by step, the first on the top bit.

Mini-buckets: Dechter and Rish, "Mini-Buckets: A General Scheme for Bounded Inference", Journal of the ACM 50, 2003;
with weights and moment matching: Liu and Ihler, "Bounding the Partition Function using Hoelder's Inequality", ICML
2011.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcjax.kernels import join_graph, search
from fcjax.kernels.compilation import kernel
from fcjax.kernels.join_graph import project

PASSES = 10  # down and up, at most
ENOUGH = 1e-6  # nats: a pass that changes the bound by less is the last one
STEP = 1.0  # of the exponentiated gradient on the weights; larger ones overshoot
LEAST_WEIGHT = 1e-3  # of a mini-bucket, before normalisation
LEAST_P = 1e-13  # posterior under which mini-buckets need not agree


class Buckets(NamedTuple):
    """The `B` mini-buckets of a core of `K` variables and `M` edges, in the order of elimination.

    Variables are named by their steps.
    """

    first: np.ndarray  # [K + 1] int64: step i has mini-buckets first[i]:first[i + 1]
    scope: np.ndarray  # [B, i_bound + 1] int32: ascending, so that the bucket's own variable leads
    size: np.ndarray  # [B] int32: variables in the scope
    parent: np.ndarray  # [B] int32: the mini-bucket that its message goes to; -1: the message is a constant
    home: np.ndarray  # [M] int32: the mini-bucket of each edge
    start: np.ndarray  # [B + 1] int64: where its table starts; its message starts at half of that


class Tables(NamedTuple):
    """The state of a bound over `T` table entries; all logarithms but `weight` and `belief`."""

    weight: np.ndarray  # [B]: w_m
    factor: np.ndarray  # [T]: f_m without messages; their product is the core's weight, always
    full: np.ndarray  # [T]: f_m
    message: np.ndarray  # [T / 2]: what is left of it when the variable is summed out
    back: np.ndarray  # [T / 2]: what the rest of the graph makes of the message: a belief is exp((full + back) / w)
    belief: np.ndarray  # [T]: normalised
    at: np.ndarray  # [2**(i_bound + 1)] int32: workspace


@kernel
def min_degree(core):
    """An order of elimination, always the variable with the fewest neighbours next: (order `[K]`, induced width)."""
    count = len(core.unary)
    order, degree, width = np.empty(count, np.int32), np.empty(count, np.int32), 0
    near, done = np.zeros((count, count), np.bool_), np.zeros(count, np.bool_)
    for v in range(count):
        degree[v] = core.row[v + 1] - core.row[v]
        for k in range(core.row[v], core.row[v + 1]):
            near[v, core.column[k]] = True
    around = np.empty(count, np.int32)
    for i in range(count):
        v, left = -1, count - i
        for u in range(count):
            if not done[u] and (v < 0 or degree[u] < degree[v]):
                v = u
        order[i], done[v] = v, True
        width = max(width, degree[v])
        if degree[v] == left - 1:  # a clique is left, in which degrees stay equal
            for u in range(count):
                degree[u] = left - 2
            continue
        found = 0
        for u in range(count):
            if near[v, u] and not done[u]:
                around[found] = u
                found += 1
                degree[u] -= 1
        for j in range(found):
            for k in range(j):
                a, b = around[j], around[k]
                if not near[a, b]:
                    near[a, b] = near[b, a] = True
                    degree[a] += 1
                    degree[b] += 1
    return order, width


@kernel
def _missing(scope, size, other, count):
    """How many of `other[:count]` are not in `scope[:size]`; both ascend."""
    i, missing = 0, 0
    for j in range(count):
        while i < size and scope[i] < other[j]:
            i += 1
        if i == size or scope[i] != other[j]:
            missing += 1
    return missing


@kernel
def _fit(scope, size, begin, made, other, count):
    """Put `other[:count]` into the mini-bucket of begin ... made - 1 that has room and grows least, or into a new one.

    Returns which, `made` being new.
    """
    best, least = made, count
    for m in range(begin, made):
        missing = _missing(scope[m], size[m], other, count)
        if missing < least and size[m] + missing <= scope.shape[1]:
            best, least = m, missing
    mine, length = scope[best], size[best] if best < made else 0
    for j in range(count):
        i = length
        while i > 0 and mine[i - 1] > other[j]:
            i -= 1
        if i == 0 or mine[i - 1] != other[j]:
            for k in range(length, i, -1):
                mine[k] = mine[k - 1]
            mine[i] = other[j]
            length += 1
    size[best] = length
    return best


@kernel
def partition(place, tail, head, i_bound):
    """The mini-buckets of an order; `place [K]` is the step of each variable, `i_bound` at least 1.

    Messages are placed first, those over most variables leading, then edges. What goes into a mini-bucket over s
    variables leaves it over s - 1 at most, even if it leaves with others, so there are no more than 2 M mini-buckets,
    and K that nothing went into.
    """
    count, edges = len(place), len(tail)
    room = count + 2 * edges
    first, home, pair = np.zeros(count + 1, np.int64), np.empty(edges, np.int32), np.empty(2, np.int32)
    scope, size = np.empty((room, i_bound + 1), np.int32), np.empty(room, np.int32)
    parent, next_message = np.full(room, -1, np.int32), np.empty(room, np.int32)
    edge_at, next_edge = np.full(count, -1, np.int32), np.empty(edges, np.int32)
    message_at = np.full(count, -1, np.int32)
    for e in range(edges):
        i = min(place[tail[e]], place[head[e]])
        next_edge[e], edge_at[i] = edge_at[i], e
    made = 0
    for i in range(count):
        begin = made
        for length in range(i_bound, 0, -1):
            sent = message_at[i]
            while sent >= 0:
                if size[sent] - 1 == length:
                    parent[sent] = _fit(scope, size, begin, made, scope[sent, 1:], length)
                    made = max(made, parent[sent] + 1)
                sent = next_message[sent]
        e = edge_at[i]
        while e >= 0:
            pair[0], pair[1] = i, max(place[tail[e]], place[head[e]])
            home[e] = _fit(scope, size, begin, made, pair, 2)
            made = max(made, home[e] + 1)
            e = next_edge[e]
        if made == begin:
            scope[made, 0], size[made] = i, 1
            made += 1
        for m in range(begin, made):
            if size[m] > 1:
                to = scope[m, 1]
                next_message[m], message_at[to] = message_at[to], m
        first[i + 1] = made
    start = np.zeros(made + 1, np.int64)
    for m in range(made):
        start[m + 1] = start[m] + (1 << size[m])
    return Buckets(first, scope[:made], size[:made], parent[:made], home, start)


@kernel
def _project_edge(buckets, core, place, e, at):
    """The mini-bucket of an edge, and where the edge's table keeps each of its entries."""
    m, pair = buckets.home[e], np.empty(2, np.int32)
    a, b = place[core.tail[e]], place[core.head[e]]
    pair[0], pair[1] = min(a, b), max(a, b)
    project(buckets.scope[m], buckets.size[m], pair, 2, at)
    if a > b:
        for x in range(1 << buckets.size[m]):
            at[x] = (at[x] >> 1) | (at[x] & 1) << 1
    return m


@kernel
def _lay(buckets, core, place, order):
    """The tables to begin with: equal weights, every edge at home, unaries shared among the mini-buckets."""
    count, entries, longest = len(buckets.size), buckets.start[-1], 1 << buckets.scope.shape[1]
    weight, factor, at = np.empty(count), np.empty(entries), np.empty(longest, np.int32)
    for i in range(len(order)):
        a, b = buckets.first[i], buckets.first[i + 1]
        for m in range(a, b):
            begin, middle, end = buckets.start[m], (buckets.start[m] + buckets.start[m + 1]) >> 1, buckets.start[m + 1]
            weight[m] = 1.0 / (b - a)
            factor[begin:middle] = weight[m] * core.unary[order[i], 0]
            factor[middle:end] = weight[m] * core.unary[order[i], 1]
    for e in range(len(core.tail)):
        m = _project_edge(buckets, core, place, e, at)
        for x in range(1 << buckets.size[m]):
            factor[buckets.start[m] + x] += core.table[e, at[x]]
    return Tables(
        weight, factor, np.empty(entries), np.empty(entries >> 1), np.zeros(entries >> 1), np.empty(entries), at
    )


@kernel
def _believe(full, back, w, belief):
    """Write a mini-bucket's belief before its message is known; returns False where it has no mass."""
    half, top, total = len(back), -math.inf, 0.0
    for x in range(len(full)):
        top = max(top, full[x] + back[x & (half - 1)])
    if top == -math.inf:
        return False
    for x in range(len(full)):
        belief[x] = math.exp((full[x] + back[x & (half - 1)] - top) / w)
        total += belief[x]
    belief /= total
    return True


@kernel
def _match(buckets, i, tables):
    """Move factors and weight between the mini-buckets of step i, their products and sum staying what they are."""
    a, b = buckets.first[i], buckets.first[i + 1]
    weight = tables.weight[a:b]
    log_p, entropy = np.empty((b - a, 2)), np.zeros(b - a)
    for m in range(a, b):
        begin, end = buckets.start[m], buckets.start[m + 1]
        half, belief = (end - begin) >> 1, tables.belief[begin:end]
        if not _believe(tables.full[begin:end], tables.back[begin >> 1 : end >> 1], tables.weight[m], belief):
            return
        for x in range(half):  # the entropy of the variable, given the others
            less, more = min(belief[x], belief[half + x]), max(belief[x], belief[half + x])
            if less > 0.0:
                odds = abs(tables.full[begin + x] - tables.full[begin + half + x]) / tables.weight[m]
                entropy[m - a] += (less + more) * math.log1p(less / more) + less * odds
        for z in range(2):
            log_p[m - a, z] = math.log(max(LEAST_P, belief[z * half : (z + 1) * half].sum()))
    for z in range(2):
        mean = (weight * log_p[:, z]).sum()
        for m in range(a, b):
            half = (buckets.start[m + 1] - buckets.start[m]) >> 1
            begin = buckets.start[m] + z * half
            shift = tables.weight[m] * (mean - log_p[m - a, z])
            tables.factor[begin : begin + half] += shift
            tables.full[begin : begin + half] += shift
    average = (weight * entropy).sum()
    for j in range(b - a):
        weight[j] = max(LEAST_WEIGHT, weight[j] * math.exp(STEP * (average - entropy[j])))
    weight /= weight.sum()


@kernel
def _down(buckets, tables):
    """Eliminate, fitting each bucket on the way; returns an upper bound on log Z."""
    full, message, at, bound = tables.full, tables.message, tables.at, 0.0
    full[:] = tables.factor
    for i in range(len(buckets.first) - 1):
        if buckets.first[i + 1] - buckets.first[i] > 1:
            _match(buckets, i, tables)
        for m in range(buckets.first[i], buckets.first[i + 1]):
            begin, end, w, to = buckets.start[m], buckets.start[m + 1], tables.weight[m], buckets.parent[m]
            half, sent = (end - begin) >> 1, message[begin >> 1 : end >> 1]
            for x in range(half):
                low, high = full[begin + x], full[begin + half + x]
                if low > high:
                    low, high = high, low
                sent[x] = high + w * math.log1p(math.exp((low - high) / w)) if low > -math.inf else high
            if to < 0:
                bound += sent[0]
                continue
            project(buckets.scope[to], buckets.size[to], buckets.scope[m, 1:], buckets.size[m] - 1, at)
            for x in range(1 << buckets.size[to]):
                full[buckets.start[to] + x] += sent[at[x]]
    return bound


@kernel
def _up(buckets, tables):
    """The beliefs of all mini-buckets, after `_down` found a finite bound."""
    belief, full, at, rest = tables.belief, tables.full, tables.at, np.empty(len(tables.at))
    for m in range(len(buckets.size) - 1, -1, -1):
        begin, end, w, to = buckets.start[m], buckets.start[m + 1], tables.weight[m], buckets.parent[m]
        half, sent, back = (end - begin) >> 1, tables.message[begin >> 1 : end >> 1], tables.back[begin >> 1 : end >> 1]
        rest[:half] = 0.0
        if to < 0:
            rest[0] = 1.0
        else:
            project(buckets.scope[to], buckets.size[to], buckets.scope[m, 1:], buckets.size[m] - 1, at)
            for x in range(1 << buckets.size[to]):
                rest[at[x]] += belief[buckets.start[to] + x]
        for x in range(half):
            if sent[x] == -math.inf:
                back[x] = belief[begin + x] = belief[begin + half + x] = 0.0
                continue
            back[x] = w * math.log(rest[x]) - sent[x] if rest[x] > 0.0 else -math.inf
            true = rest[x] / (1.0 + math.exp((full[begin + x] - full[begin + half + x]) / w))
            belief[begin + x], belief[begin + half + x] = rest[x] - true, true


@kernel
def bound(core, wanted, i_bound, passes, entries):
    """An upper bound on the log partition function of one core, the least of some `passes`, and posteriors.

    Returns (bound, induced width of the order, passes done, `p [K]`, `joint [M, 4]` of the `wanted [M]` edges). Where
    the tables would take more than `entries` numbers, the bound is inf and there were no passes.
    """
    count, edges = len(core.unary), len(core.tail)
    p, joint = np.zeros(count), np.full((edges, 4), math.nan)
    if count * count / 8 > entries:
        return math.inf, (core.row[1:] - core.row[:-1]).min(), 0, p, joint
    order, width = min_degree(core)
    place = np.empty(count, np.int32)
    for i in range(count):
        place[order[i]] = i
    buckets = partition(place, core.tail, core.head, i_bound)
    if 4 * buckets.start[-1] > entries:
        return math.inf, width, 0, p, joint
    tables = _lay(buckets, core, place, order)
    least, last, done = math.inf, math.inf, 0
    while done < passes:
        done += 1
        now = _down(buckets, tables)
        least = min(least, now)
        if now == -math.inf:
            return least, width, done, p, joint
        _up(buckets, tables)
        if abs(last - now) < ENOUGH:
            break
        last = now  # which may rise for a pass or two before it falls
    belief = tables.belief
    if buckets.first[-1] > count:  # buckets were split
        belief = tables.full
        belief[:] = tables.factor
        join_graph.propagate(buckets, belief, tables.message, tables.back)
    for i in range(count):
        for m in range(buckets.first[i], buckets.first[i + 1]):
            begin, end = buckets.start[m], buckets.start[m + 1]
            p[order[i]] += belief[(begin + end) >> 1 : end].sum() / (buckets.first[i + 1] - buckets.first[i])
        p[order[i]] = min(1.0, p[order[i]])
    for e in range(edges):
        if wanted[e]:
            m = _project_edge(buckets, core, place, e, tables.at)
            joint[e] = 0.0
            for x in range(1 << buckets.size[m]):
                joint[e, tables.at[x]] += belief[buckets.start[m] + x]
    return least, width, done, p, joint


@kernel
def sweep(node_ptr, factor_ptr, reduced, i_bound, passes, entries):
    """Bounds and beliefs of the cores of `G` reduced graphs, each as of `bound`.

    Returns log_z, width, passes done and `zero`, whether a core has weights of 0, all `[G]`, and for `reduce.restore`
    `p [V]` and `joint [E + V, 4]`. A graph without a core has log_z 0 and no passes.
    """
    graphs = len(node_ptr) - 1
    log_z, width = np.zeros(graphs), np.zeros(graphs, np.int32)
    done, zero = np.zeros(graphs, np.int64), np.zeros(graphs, np.bool_)
    p, joint = np.full(node_ptr[-1], math.nan), np.full((len(reduced.tail), 4), math.nan)
    for g in range(graphs):
        if reduced.core_edges[g] == 0:
            continue
        core, variables, wanted, scale = search.take_core(g, node_ptr, factor_ptr, reduced)
        zero[g] = core.unary.min() == -math.inf or core.table.min() == -math.inf
        log_z[g], width[g], done[g], mine, edges = bound(core, wanted, i_bound, passes, entries)
        log_z[g] += scale
        for i in range(len(variables)):
            p[node_ptr[g] + variables[i]] = mine[i]
        for i in range(len(edges)):
            joint[reduced.edge_ptr[g] + reduced.core_edge[factor_ptr[g] + i]] = edges[i]
    return log_z, width, done, zero, p, joint
