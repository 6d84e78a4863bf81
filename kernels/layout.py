"""Between graphs and sweeps: factors laid out in the order of the steps, and results carried back."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcjax.kernels.compilation import kernel


class Weights(NamedTuple):
    """The factors of planned cores in the order of the steps; `A` arcs and `C` steps as in `plan.Steps`."""

    log_arc: np.ndarray  # [A, 4] float64: logarithms by [state of the step's variable][state of the later one]
    arc: np.ndarray  # [A, 4] float64: the same, linear, scaled to a largest entry of 1
    arc_scale: np.ndarray  # [A] float64: logarithm of that scale
    unary: np.ndarray  # [C, 2] float64: logarithms
    wanted: np.ndarray  # [A] bool: whether restoring the eliminated variables takes the arc's joint posterior


@kernel
def weigh(steps, node_ptr, reduced):
    """The factors of planned cores."""
    arcs = len(steps.arc_to)
    log_arc, arc, scale = np.empty((arcs, 4)), np.empty((arcs, 4)), np.empty(arcs)
    unary = np.empty((len(steps.variable), 2))
    wanted = np.zeros(arcs, np.bool_)
    needed = np.zeros(len(reduced.tail), np.bool_)
    for g in range(len(node_ptr) - 1):
        e0 = reduced.edge_ptr[g]
        if steps.step_ptr[g] == steps.step_ptr[g + 1]:
            continue
        for v in range(node_ptr[g], node_ptr[g + 1]):
            if reduced.used[v, 2] >= 0:
                needed[e0 + reduced.used[v, 2]] = True
        for i in range(steps.step_ptr[g], steps.step_ptr[g + 1]):
            unary[i] = reduced.unary[node_ptr[g] + steps.variable[i]]
            for k in range(steps.arc_ptr[i], steps.arc_ptr[i + 1]):
                e = e0 + steps.arc_edge[k]
                wanted[k] = needed[e]
                top = reduced.table[e].max()
                scale[k] = top
                for z in range(2):
                    for s in range(2):
                        value = reduced.table[e, 2 * s + z if steps.arc_flipped[k] else 2 * z + s]
                        log_arc[k, 2 * z + s] = value
                        arc[k, 2 * z + s] = math.exp(value - top) if top > -math.inf else 0.0
    return Weights(log_arc, arc, scale, unary, wanted)


@kernel
def carry_back(steps, node_ptr, reduced, graphs, wanted, p, joint, by_variable, by_edge):
    """Posteriors `by_variable [V]` and joint ones `by_edge [E + V, 4]` of some graphs, from those by step and arc.

    What has no step or arc that is wanted is left for `reduce.restore` to fill in.
    """
    for g in graphs:
        for i in range(steps.step_ptr[g], steps.step_ptr[g + 1]):
            by_variable[node_ptr[g] + steps.variable[i]] = p[i]
            for k in range(steps.arc_ptr[i], steps.arc_ptr[i + 1]):
                if wanted[k]:
                    e = reduced.edge_ptr[g] + steps.arc_edge[k]
                    by_edge[e, 0], by_edge[e, 3] = joint[k, 0], joint[k, 3]
                    flip = steps.arc_flipped[k]
                    by_edge[e, 1], by_edge[e, 2] = joint[k, 2 if flip else 1], joint[k, 1 if flip else 2]


@kernel
def pairs_by_factor(node_ptr, factor_ptr, ends, reduced, graphs, joint):
    """The joint posterior of each given factor's variables, `[E, 2, 2]` by [source][target]; NaN outside `graphs`."""
    pairs = np.full((len(ends), 2, 2), math.nan)
    for g in graphs:
        for f in range(factor_ptr[g], factor_ptr[g + 1]):
            e = reduced.edge_ptr[g] + reduced.edge_of[f]
            along = reduced.tail[e] == ends[f, 0]
            for s in range(2):
                for t in range(2):
                    pairs[f, s, t] = joint[e, 2 * s + t] if along else joint[e, 2 * t + s]
    return pairs


@kernel
def slots(steps, first, last, slot):
    """A slot of a table of fixed width for each variable of the frontier, in `slot [last - first]`; -1: needs none.

    Returns how many slots there are. A slot is free again after the step of its variable.
    """
    free = np.empty(last - first, np.int32)
    spare, used = 0, 0
    slot[: last - first] = -1
    for i in range(last - first):
        for k in range(steps.arc_ptr[first + i], steps.arc_ptr[first + i + 1]):
            u = steps.arc_to[k]
            if steps.arc_opens[k]:
                if spare > 0:
                    spare -= 1
                    slot[u] = free[spare]
                else:
                    slot[u] = used
                    used += 1
        if slot[i] >= 0:
            free[spare] = slot[i]
            spare += 1
    return used


@kernel
def slot_counts(steps):
    """The number of slots that each planned graph needs, `[G]`."""
    graphs = len(steps.width)
    counts = np.zeros(graphs, np.int64)
    for g in range(graphs):
        first, last = steps.step_ptr[g], steps.step_ptr[g + 1]
        counts[g] = slots(steps, first, last, np.empty(last - first, np.int32))
    return counts


@kernel
def fill_tile(steps, weights, graphs, unary, factors, closes):
    """Lay `graphs` into the first rows of a tile: `unary [B, C, 2]`, `factors [B, C, 2, W, 2]`, `closes [B, C]`.

    Returns the natural logarithm of each row's scale, float64. Expects the tile to hold inert padding.
    """
    scale = np.zeros(len(graphs))
    for row in range(len(graphs)):
        first, last = steps.step_ptr[graphs[row]], steps.step_ptr[graphs[row] + 1]
        slot = np.empty(last - first, np.int32)
        slots(steps, first, last, slot)
        for i in range(last - first):
            top = max(weights.unary[first + i, 0], weights.unary[first + i, 1])
            scale[row] += top
            closes[row, i] = slot[i]
            for z in range(2):
                unary[row, i, z] = math.exp(weights.unary[first + i, z] - top) if top > -math.inf else 0.0
                if slot[i] >= 0:
                    factors[row, i, z, slot[i], 1 - z] = 0.0
            for k in range(steps.arc_ptr[first + i], steps.arc_ptr[first + i + 1]):
                scale[row] += weights.arc_scale[k]
                s = slot[steps.arc_to[k]]
                for z in range(2):
                    factors[row, i, z, s, 0] = weights.arc[k, 2 * z]
                    factors[row, i, z, s, 1] = weights.arc[k, 2 * z + 1]
    return scale


@kernel
def empty_tile(steps, weights, graphs, tile_p, tile_joint, p, joint):
    """Carry a tile's `p [B, C]` and `joint [B, C, 2, W]` back to steps `[C]` and wanted arcs `[A, 4]`."""
    for row in range(len(graphs)):
        first, last = steps.step_ptr[graphs[row]], steps.step_ptr[graphs[row] + 1]
        slot = np.empty(last - first, np.int32)
        slots(steps, first, last, slot)
        for i in range(last - first):
            true = np.float64(tile_p[row, i])
            p[first + i] = true
            for k in range(steps.arc_ptr[first + i], steps.arc_ptr[first + i + 1]):
                if weights.wanted[k]:
                    s = slot[steps.arc_to[k]]
                    joint[k, 1], joint[k, 3] = tile_joint[row, i, 0, s], tile_joint[row, i, 1, s]
                    joint[k, 0], joint[k, 2] = max(0.0, 1.0 - true - joint[k, 1]), max(0.0, true - joint[k, 3])
