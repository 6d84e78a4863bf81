"""Vertex covers of cores: a few variables whose assignments leave all others independent of each other.

Where S is a vertex cover of a core and I the others, no two variables of I share a factor, so that

    Z = sum over s of  g(s) prod_{i in I} f_i(s),    f_i(s) = sum_z u_i(z) prod_{j in S} t_ij(z, s_j),

g being the factors within S. That takes 2^|S| |I| sums whatever the width of the rest, hardly any memory, and loops
without a branch. In a graph of atoms and contexts that are related across only, the smaller side is such a cover.
`cover_cpu` and `cover_xla` do the sums, each component of a core by itself.

Conditioning on a set that leaves the rest without edges: Dechter, "Enhancement Schemes for Constraint Processing:
Backjumping, Learning, and Cutset Decomposition", Artificial Intelligence 41, 1990. The greedy rule: Halldorsson and
Radhakrishnan, "Greed is Good: Approximating Independent Sets in Sparse and Bounded-Degree Graphs", Algorithmica 18,
1997.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcjax.kernels.compilation import kernel
from fcjax.kernels.cutset import log_weight

LOW = 8  # cover variables that the inner loop runs over: tables of 2 KB
RANGE = 600.0  # nats that a product of linear weights may span: e^-600 is 1e-261
LOG_COST = 40.0  # times a linear factor that one in logarithms takes
BASE_COST = 20.0  # what the factors within a cover take, in linear factors, where they tie both halves
BLOCK_COST = 200.0  # what every block of 2**LOW assignments takes beside its sums


class Terms(NamedTuple):
    """The factors of one component by a cover of `D` variables, the first on the lowest bit, and `N` others.

    `LINK[i, d]` is neutral where variable i of the rest has no factor with variable d of the cover.
    """

    cut: np.ndarray  # [D] int64: variables of the core
    rest: np.ndarray  # [N] int64
    unary: np.ndarray  # [N, 2] float64, log: of the rest
    link: np.ndarray  # [N, D, 2, 2] float64, log: by [state of the rest's variable][state of the cover's]
    wanted: np.ndarray  # [N] bool: whether a joint posterior with a variable of the cover is
    first: np.ndarray  # [T] int64: a factor within the cover, its first variable's bit
    second: np.ndarray  # [T] int64: its second one's; the same one for a unary
    table: np.ndarray  # [T, 4] float64, log: by [state of first][state of second]


@kernel
def components(core):
    """Which component each variable belongs to `[K]`, numbered from 0 in the order of their first variables."""
    count = len(core.unary)
    label, queue, found = np.full(count, -1, np.int64), np.empty(count, np.int64), 0
    for start in range(count):
        if label[start] >= 0:
            continue
        label[start], queue[0], head, tail = found, start, 0, 1
        while head < tail:
            v = queue[head]
            head += 1
            for k in range(core.row[v], core.row[v + 1]):
                u = core.column[k]
                if label[u] < 0:
                    label[u], queue[tail] = found, u
                    tail += 1
        found += 1
    return label


@kernel
def _colour(core, members, inside):
    """Mark the smaller side of a bipartite component; returns its size, or one more than all where it is not one."""
    side = np.full(len(core.unary), -1, np.int8)
    queue = np.empty(len(members), np.int64)
    side[members[0]], queue[0], head, tail, ones = 0, members[0], 0, 1, 0
    while head < tail:
        v = queue[head]
        head += 1
        ones += side[v]
        for k in range(core.row[v], core.row[v + 1]):
            u = core.column[k]
            if side[u] < 0:
                side[u], queue[tail] = 1 - side[v], u
                tail += 1
            elif side[u] == side[v]:
                return len(members) + 1
    smaller = 1 if 2 * ones <= len(members) else 0
    for v in members:
        inside[v] = side[v] == smaller
    return min(ones, len(members) - ones)


@kernel
def _greedy(core, members, seed, most, inside):
    """Decide on one variable after another: that with the fewest undecided neighbours is out, and these are inside.

    Ties are broken at random, by the first variable where `seed` is 0. Returns the size, over `most` where it gave up.
    """
    decided = np.zeros(len(core.unary), np.bool_)
    degree = np.zeros(len(core.unary), np.int64)
    state = np.uint64(seed * 2 + 1) * np.uint64(0x9E3779B97F4A7C15)
    for v in members:
        degree[v] = core.row[v + 1] - core.row[v]
        inside[v] = False
    size, left = 0, len(members)
    while left > 0:
        best, ties = -1, 0
        for v in members:
            if decided[v]:
                continue
            if best < 0 or degree[v] < degree[best]:
                best, ties = v, 1
            elif degree[v] == degree[best] and seed > 0:
                ties += 1
                state ^= state >> np.uint64(12)
                state ^= state << np.uint64(25)
                state ^= state >> np.uint64(27)
                if np.int64((state * np.uint64(2685821657736338717)) >> np.uint64(33)) % ties == 0:
                    best = v
        decided[best] = True
        left -= 1
        for k in range(core.row[best], core.row[best + 1]):
            u = core.column[k]
            if decided[u]:
                continue
            decided[u] = inside[u] = True
            left -= 1
            size += 1
            for j in range(core.row[u], core.row[u + 1]):
                degree[core.column[j]] -= 1
        if size > most:
            return most + 1
    return size


@kernel
def find(core, label, most, tries):
    """A small vertex cover of each component: which variables are inside `[K]`, and the sizes `[C]`.

    The smaller side of a bipartite component, or the least of `tries` greedy ones. A component whose covers all have
    over `most` variables has the size `most` + 1, and what is inside means nothing.
    """
    count, parts = len(core.unary), label.max() + 1
    inside, trial = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    sizes = np.full(parts, most + 1, np.int64)
    for c in range(parts):
        members = np.flatnonzero(label == c)
        edges, widest = 0, 0
        for v in members:
            edges += core.row[v + 1] - core.row[v]
            widest = max(widest, core.row[v + 1] - core.row[v])
        if edges > 2 * most * widest:
            continue  # so many variables cannot touch all the edges
        for seed in range(-1, tries):
            if seed < 0:
                size = _colour(core, members, trial)
            else:
                size = _greedy(core, members, seed, min(most, sizes[c]), trial)
            if size < sizes[c]:
                sizes[c] = size
                for v in members:
                    inside[v] = trial[v]
    return inside, sizes


@kernel
def lay(core, label, component, inside, wanted):
    """The `Terms` of one component; `wanted [M]` are the edges whose joint posteriors are."""
    degree = core.row[1:] - core.row[:-1]
    cut = np.flatnonzero((label == component) & inside)
    cut = cut[np.argsort(degree[cut], kind="mergesort")]
    rest = np.flatnonzero((label == component) & ~inside)
    bit = np.full(len(core.unary), -1, np.int64)
    for d in range(len(cut)):
        bit[cut[d]] = d
    terms = len(cut)
    for e in range(len(core.tail)):
        terms += bit[core.tail[e]] >= 0 and bit[core.head[e]] >= 0
    first, second, table = np.empty(terms, np.int64), np.empty(terms, np.int64), np.zeros((terms, 4))
    for d in range(len(cut)):
        first[d] = second[d] = d
        table[d, 0], table[d, 3] = core.unary[cut[d], 0], core.unary[cut[d], 1]
    at = len(cut)
    for e in range(len(core.tail)):
        if bit[core.tail[e]] >= 0 and bit[core.head[e]] >= 0:
            first[at], second[at], table[at] = bit[core.tail[e]], bit[core.head[e]], core.table[e]
            at += 1
    link = np.zeros((len(rest), len(cut), 2, 2))
    asked = np.zeros(len(rest), np.bool_)
    for i in range(len(rest)):
        for k in range(core.row[rest[i]], core.row[rest[i] + 1]):
            asked[i] |= wanted[core.edge[k]]
            for z in range(2):
                for s in range(2):
                    link[i, bit[core.column[k]], z, s] = log_weight(core, k, rest[i], z, s)
    return Terms(cut, rest, core.unary[rest], link, asked, first, second, table)


@kernel
def spans(terms):
    """The nats between the least and the largest product that a variable of the rest can take part in, `[N]`.

    Weights of 0 are exact in any number format and are left out.
    """
    found = np.zeros(len(terms.rest))
    for i in range(len(terms.rest)):
        for d in range(-1, len(terms.cut)):
            low, high = math.inf, -math.inf
            for k in range(2 if d < 0 else 4):
                value = terms.unary[i, k] if d < 0 else terms.link[i, d, k >> 1, k & 1]
                if value > -math.inf:
                    low, high = min(low, value), max(high, value)
            if high > low:
                found[i] += high - low
    return found


@kernel
def is_split(terms):
    """Whether a factor within the cover ties the bits of the inner loop to the others."""
    return ((terms.first < LOW) != (terms.second < LOW)).any()


@kernel
def cost(terms):
    """About how many linear factors are multiplied, all in all."""
    size = BLOCK_COST / 2**LOW + (BASE_COST if is_split(terms) else 0.0)
    for span in spans(terms):
        size += 1.0 if span < RANGE else LOG_COST
    return size * 2.0 ** len(terms.cut)


@kernel
def write(core, wanted, terms, p_cut, p_rest, both_cut, both, p, joint):
    """Carry the posteriors of one component to `p [K]` and, of the `wanted [M]` edges, `joint [M, 4]` of the core.

    `p_cut [D]`, `p_rest [N]` are P(true), `both_cut [D, D]` and `both [N, D]` P(true, true).
    """
    bit, place = np.full(len(core.unary), -1, np.int64), np.full(len(core.unary), -1, np.int64)
    for d in range(len(terms.cut)):
        bit[terms.cut[d]] = d
        p[terms.cut[d]] = p_cut[d]
    for i in range(len(terms.rest)):
        place[terms.rest[i]] = i
        p[terms.rest[i]] = p_rest[i]
    for e in range(len(core.tail)):
        a, b = core.tail[e], core.head[e]
        if not wanted[e]:
            continue
        if bit[a] >= 0 and bit[b] >= 0:
            true = both_cut[min(bit[a], bit[b]), max(bit[a], bit[b])]
        elif bit[a] >= 0 and place[b] >= 0:
            true = both[place[b], bit[a]]
        elif bit[b] >= 0 and place[a] >= 0:
            true = both[place[a], bit[b]]
        else:
            continue
        joint[e, 3] = true
        joint[e, 1], joint[e, 2] = max(0.0, p[b] - true), max(0.0, p[a] - true)
        joint[e, 0] = max(0.0, 1.0 - p[a] - p[b] + true)
