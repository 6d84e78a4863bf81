"""Elimination orders for the frontier sweep.

The sweep keeps one table over the frontier: the variables that still stand and have an eliminated neighbour. At the
step of v all its neighbours enter the frontier and v leaves it, so the table has `width` bits, the number of variables
then in it. A greedy rule picks the variable that makes the frontier grow least; ties are broken at random and the
whole is restarted, the more often the wider the graph, for the cheapest order by `cost`, the sum of all table sizes.

The least width over all orders is the graph's pathwidth (Bodlaender, "A Partial k-Arboretum of Graphs with Bounded
Treewidth", Theoretical Computer Science 209, 1998). Elimination on graphs and greedy orders: Rose, "Triangulated Graphs
and the Elimination Process", Journal of Mathematical Analysis and Applications 32, 1970; Kjaerulff, "Triangulation of
Graphs: Algorithms Giving Small Total State Space", technical report R-90-09, Aalborg University 1990.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fcjax.kernels.compilation import kernel

CEILING = 2.0**48  # entries of tables in all, past which an order is of no use
SHARE = 0.25  # of a sweep's time that the restarts may take
GAIN = 4  # width that restarts can save, about
LONGEST = 3e7  # ns that the restarts of one graph may take, whatever the sweep
ENTRY, STEP, COMPARISON = 4.0, 1500.0, 8.0  # about what a table entry, a step, a greedy comparison take, in ns


class Steps(NamedTuple):
    """Elimination orders of `G` cores with `C` steps and `A` factors in all, every variable named by its own step.

    A step's arcs are the factors that tie its variable to those of later steps.
    """

    step_ptr: np.ndarray  # [G + 1] int64
    variable: np.ndarray  # [C] int32: the step's variable, numbered within its graph
    arc_ptr: np.ndarray  # [C + 1] int64
    arc_to: np.ndarray  # [A] int32: the later step, counted within the graph
    arc_edge: np.ndarray  # [A] int32: the edge, numbered within the graph
    arc_flipped: np.ndarray  # [A] bool: whether the step's variable is the edge's head
    arc_bit: np.ndarray  # [A] int16: the later variable's bit of the table after the step
    arc_opens: np.ndarray  # [A] bool: whether this step brings it into the frontier
    held: np.ndarray  # [C] bool: whether the step's variable is in the frontier before its step
    bits: np.ndarray  # [C] int32: bits of the table after the step
    width: np.ndarray  # [G] int32: the largest of `bits`; induced width of the order at most
    cost: np.ndarray  # [G] float64: entries of all tables together


@kernel
def _random(state):
    """xorshift64*: the next state and a number below 2**31."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state, np.int64((state * np.uint64(2685821657736338717)) >> np.uint64(33))


@kernel
def greedy(count, row, column, removed, seed, ceiling, order, absent, inside, done):
    """One greedy order of `count` variables with neighbours `column[row[v]:row[v + 1]]`, written to `order`.

    `removed[v]` variables are left out. Returns (steps, width, cost); gives up with cost infinity once it reaches
    `ceiling`. The last three arrays are workspace of `count`.
    """
    steps = 0
    for v in range(count):
        done[v] = removed[v]
        inside[v] = False
        absent[v] = 0
        if not removed[v]:
            steps += 1
            for k in range(row[v], row[v + 1]):
                if not removed[column[k]]:
                    absent[v] += 1  # neighbours that are neither eliminated nor in the frontier
    state = np.uint64(seed * 2 + 1) * np.uint64(0x9E3779B97F4A7C15)
    frontier, width, cost = 0, 0, 0.0
    for step in range(steps):
        best, least, ties = -1, 2**30, 0
        for v in range(count):
            if done[v]:
                continue
            growth = 2 * absent[v] - 3 * inside[v]  # a variable in the frontier frees a bit, and goes first on a tie
            if growth < least:
                best, least, ties = v, growth, 1
            elif growth == least and seed > 0:
                ties += 1
                state, draw = _random(state)
                if draw % ties == 0:
                    best = v
        v = best
        order[step] = v
        done[v] = True
        if not inside[v]:
            for k in range(row[v], row[v + 1]):
                absent[column[k]] -= 1
        else:
            frontier -= 1
        for k in range(row[v], row[v + 1]):
            w = column[k]
            if not done[w] and not inside[w]:
                inside[w] = True
                frontier += 1
                for j in range(row[w], row[w + 1]):
                    absent[column[j]] -= 1
        width = max(width, frontier)
        cost += 2.0 ** min(frontier, 1000)
        if cost >= ceiling:
            return steps, width, np.inf
    return steps, width, cost


@kernel
def neighbours(count, edges, tail, head, index, row, column):
    """Adjacency of `count` variables in `row [count + 1]`, `column [2 len(edges)]`; `index` numbers them."""
    row[: count + 1] = 0
    for e in edges:
        row[index[tail[e]] + 1] += 1
        row[index[head[e]] + 1] += 1
    for v in range(count):
        row[v + 1] += row[v]
    for e in edges:
        a, b = index[tail[e]], index[head[e]]
        column[row[a]], column[row[b]] = b, a
        row[a] += 1
        row[b] += 1
    for v in range(count, 0, -1):
        row[v] = row[v - 1]
    row[0] = 0


@kernel
def search(count, row, column, removed, restarts, widest, order):
    """The cheapest of some greedy orders, written to `order`; returns (steps, width, cost).

    The first order takes the first variable on a tie. `restarts` more are tried at most, and only while they take a
    small part of the time that a sweep along the first one would; those that cannot improve are cut short. Where the
    first is so wide that none can be expected to come down to `widest`, it is the only one.
    """
    absent, inside, done = np.empty(count, np.int32), np.empty(count, np.bool_), np.empty(count, np.bool_)
    steps, width, cost = greedy(count, row, column, removed, 0, CEILING, order, absent, inside, done)
    if width > widest + GAIN:
        return steps, width, cost
    trial = np.empty(count, np.int32)
    saving = SHARE * (ENTRY * min(cost, CEILING) + STEP * steps)
    tries = min(restarts, int(saving / (COMPARISON * count * count)), int(LONGEST / (COMPARISON * count * count)))
    for seed in range(1, tries + 1):
        _, trial_width, trial_cost = greedy(count, row, column, removed, seed, cost, trial, absent, inside, done)
        if trial_cost < cost:
            width, cost = trial_width, trial_cost
            order[:steps] = trial[:steps]
    return steps, width, cost


@kernel
def lay_steps(order, steps, edges, tail, head, names, place, ptr, to, edge, flipped, bit, opens, held, bits):
    """Write one order's arcs and table sizes; `order` holds positions in `names`, `place` is workspace by name.

    Returns the number of arcs. `ptr [steps + 1]` counts from 0. Edges with an end outside the order are left out;
    `place` must be -1 for these. The table's bits are sorted by step, latest lowest, so that the variable at hand
    always has the top bit.
    """
    for i in range(steps):
        place[names[order[i]]] = i
    ptr[: steps + 1] = 0
    for e in edges:
        a, b = place[tail[e]], place[head[e]]
        if a >= 0 and b >= 0:
            ptr[min(a, b) + 1] += 1
    for i in range(steps):
        ptr[i + 1] += ptr[i]
    for e in edges:
        a, b = place[tail[e]], place[head[e]]
        if a >= 0 and b >= 0:
            k = ptr[min(a, b)]
            ptr[min(a, b)] += 1
            to[k], edge[k], flipped[k] = max(a, b), e, b < a
    for i in range(steps, 0, -1):
        ptr[i] = ptr[i - 1]
    ptr[0] = 0
    held[:steps] = False
    front = np.empty(steps, np.int32)
    size = 0
    for i in range(steps):
        size -= held[i]
        for k in range(ptr[i], ptr[i + 1]):
            u = to[k]
            opens[k] = not held[u]
            if opens[k]:
                held[u] = True
                b = size
                while b > 0 and front[b - 1] < u:
                    front[b] = front[b - 1]
                    b -= 1
                front[b] = u
                size += 1
        bits[i] = size
        for k in range(ptr[i], ptr[i + 1]):
            b = 0
            while front[b] != to[k]:
                b += 1
            bit[k] = b
    return ptr[steps]


@kernel
def plan(node_ptr, factor_ptr, reduced, restarts, widest, chosen):
    """Orders for the cores of the `chosen [G]` of `G` reduced graphs; the others get width 0 and no steps.

    A core whose every variable has more than `widest` neighbours cannot have an order of that width. It is given that
    number of neighbours, a lower bound, as its width, an infinite cost and no steps; so is one that no order was found
    for within `CEILING`.
    """
    graphs = len(node_ptr) - 1
    total, arcs = 0, 0
    for g in range(graphs):
        if chosen[g]:
            total += node_ptr[g + 1] - node_ptr[g] - reduced.eliminated[g]
            arcs += reduced.core_edges[g]
    step_ptr = np.zeros(graphs + 1, np.int64)
    variable, arc_ptr = np.empty(total, np.int32), np.zeros(total + 1, np.int64)
    arc_to, arc_edge, arc_flipped = np.empty(arcs, np.int32), np.empty(arcs, np.int32), np.empty(arcs, np.bool_)
    arc_bit, arc_opens = np.empty(arcs, np.int16), np.empty(arcs, np.bool_)
    held, bits = np.empty(total, np.bool_), np.empty(total, np.int32)
    width, cost = np.zeros(graphs, np.int32), np.zeros(graphs)
    largest = 0
    for g in range(graphs):
        largest = max(largest, node_ptr[g + 1] - node_ptr[g])
    names, index = np.empty(largest, np.int32), np.empty(largest, np.int32)
    stands = np.empty(largest, np.bool_)
    ptr = np.empty(largest + 1, np.int64)
    done, used = 0, 0
    for g in range(graphs):
        n = node_ptr[g + 1] - node_ptr[g]
        count = n - reduced.eliminated[g]
        if count > 0 and chosen[g]:
            e0, f0 = reduced.edge_ptr[g], factor_ptr[g]
            tail, head = reduced.tail[e0:], reduced.head[e0:]
            edges = reduced.core_edge[f0 : f0 + reduced.core_edges[g]]
            stands[:n] = True
            for v in reduced.order[node_ptr[g] : node_ptr[g] + reduced.eliminated[g]]:
                stands[v] = False
            k = 0
            for v in range(n):
                index[v] = -1
                if stands[v]:
                    names[k], index[v] = v, k
                    k += 1
            row, column = np.empty(count + 1, np.int32), np.empty(2 * len(edges), np.int32)
            neighbours(count, edges, tail, head, index, row, column)
            order, removed = np.empty(count, np.int32), np.zeros(count, np.bool_)
            least = count
            for v in range(count):
                least = min(least, row[v + 1] - row[v])
            steps, width[g], cost[g] = 0, least, np.inf
            if least <= widest:
                steps, width[g], cost[g] = search(count, row, column, removed, restarts, widest, order)
            if cost[g] < np.inf:
                index[:n] = -1
                made = lay_steps(
                    order, steps, edges, tail, head, names, index, ptr, arc_to[used:], arc_edge[used:],
                    arc_flipped[used:], arc_bit[used:], arc_opens[used:], held[done:], bits[done:],
                )  # fmt: skip
                for i in range(steps):
                    variable[done + i] = names[order[i]]
                    arc_ptr[done + i] = used + ptr[i]
                done += steps
                used += made
        step_ptr[g + 1] = done
    arc_ptr[done] = used
    return Steps(
        step_ptr, variable[:done], arc_ptr[: done + 1], arc_to[:used], arc_edge[:used], arc_flipped[:used],
        arc_bit[:used], arc_opens[:used], held[:done], bits[:done], width, cost,
    )  # fmt: skip
