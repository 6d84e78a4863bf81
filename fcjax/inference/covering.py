"""Graphs with a small vertex cover, summed over all of the cover's assignments (SPEC 4).

The papers are cited where the work is done: `kernels.cover`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fcjax.core.limits import MOST_COVER, Backend, Effort, Limits, workers
from fcjax.graph.batch import GraphBatch
from fcjax.kernels import cover, cover_cpu, plan, reduce, search

OPERATION = 0.7  # ns that a linear factor of one assignment takes, both passes together
WORTHWHILE = 2.0**17  # table entries of an elimination from which on a cover is looked for
FASTER = 2.0  # times as fast as an elimination that a cover must be to replace it
DIRECTLY = {"tight": 2e7, "label": 5e6, "fast": np.inf}  # ns up to which a cover is summed over without a search first
SEARCH = 0.5  # of a cover's time that a search may take before it
ON_DEVICE = 2e7  # ns on the CPU from which on an accelerator is worth its overhead
TRIES = 8  # greedy covers
PARTS = 32  # that the blocks of assignments are cut into, however many workers there are: sums are the same bits


class Covered(NamedTuple):
    """A core with a vertex cover of each of its components."""

    core: Any  # kernels.cutset.Core
    variables: np.ndarray  # [K] int32: the core's, numbered within the graph
    wanted: np.ndarray  # [M] bool: edges whose joint posteriors `reduce.restore` takes
    scale: float  # the logarithm of what the core's weights were divided by
    terms: tuple[cover.Terms, ...]  # of the components; none where the cover is too large
    size: int  # variables in the largest of these covers; over what was asked for: the covers are too large
    nanoseconds: float  # that the sum takes, about
    entries: float  # numbers of 8 bytes that it takes

    def search_budget(self) -> float:
        """Table entries that a search may cost where the cover is there if it fails."""
        return SEARCH * self.nanoseconds / plan.ENTRY


def find_cover(g: int, table: GraphBatch, reduced: reduce.Reduced, most: int) -> Covered:
    """A vertex cover of the core of graph g, of `most` variables in each component at most."""
    core, variables, wanted, scale = search.take_core(g, table.node_ptr, table.factor_ptr, reduced)
    label = cover.components(core)
    inside, sizes = cover.find(core, label, most, TRIES)
    size = int(sizes.max())
    if size > most:
        return Covered(core, variables, wanted, scale, (), size, math.inf, math.inf)
    terms = tuple(cover.lay(core, label, c, inside, wanted) for c in range(len(sizes)))
    nanoseconds = OPERATION * sum(cover.cost(part) for part in terms)
    return Covered(
        core, variables, wanted, scale, terms, size, nanoseconds, max(cover_cpu.entries(part) for part in terms)
    )


def find_covers(
    table: GraphBatch, reduced: reduce.Reduced, steps: plan.Steps, limits: Limits, effort: Effort
) -> dict[int, Covered]:
    """The covers within `limits` of those graphs whose elimination along `steps` takes long or is impossible."""
    most = limits.cover(effort)
    wanted = np.flatnonzero((steps.cost >= WORTHWHILE) & (reduced.core_edges > 0)).tolist()
    found = {g: find_cover(g, table, reduced, most) for g in wanted} if most > 0 else {}
    return {g: mine for g, mine in found.items() if mine.terms and mine.entries <= limits.entries()}


def replaces(found: Covered, cost: float) -> bool:
    """Whether the cover is faster than an elimination of `cost` table entries."""
    return FASTER * found.nanoseconds < plan.ENTRY * cost


def why_too_wide(
    g: int, table: GraphBatch, reduced: reduce.Reduced, limits: Limits, effort: Effort, width: int, cost: float
) -> str:
    """Why graph g is not solved exactly, and what would do: the cheaper of elimination and a cover."""
    widest = limits.last if limits.falls_back(effort) else limits.width(effort)
    found = find_cover(g, table, reduced, MOST_COVER)
    if not found.terms:
        return limits.too_wide(width, cost, widest)
    if width > widest or found.size <= limits.cover(effort):
        return limits.too_wide(found.size, found.entries, limits.cover(effort))
    return f"{limits.too_wide(width, cost, widest)}, or `exact_width` to {found.size}"


def solve(
    g: int, found: Covered, table: GraphBatch, reduced: reduce.Reduced, backend: Backend, p: np.ndarray,
    joint: np.ndarray,
) -> float:  # fmt: skip
    """Write the posteriors of graph g to its parts of `p [V]` and `joint [E + V, 4]`; returns its core's log Z.

    Nothing is written where log Z is -inf: the graph is inconsistent.
    """
    core = found.core
    mine, edges, log_z = np.empty(len(core.unary)), np.zeros((len(core.tail), 4)), found.scale
    for terms in found.terms:
        if backend == "xla" and OPERATION * cover.cost(terms) >= ON_DEVICE:
            from fcjax.kernels import cover_xla  # loads jax

            part, *posteriors = cover_xla.solve(terms)
        else:
            terms, part, posteriors = _solve_cpu(terms)
        log_z += part
        if part == -math.inf:
            return log_z
        cover.write(core, found.wanted, terms, *posteriors, mine, edges)
    p[table.node_ptr[g] + found.variables] = mine
    joint[reduced.edge_ptr[g] + reduced.core_edge[table.factor_ptr[g] : table.factor_ptr[g] + len(edges)]] = edges
    reduce.restore(table.node_ptr, reduced, np.array([g]), p, joint)
    return log_z


def _solve_cpu(terms: cover.Terms) -> tuple[cover.Terms, float, list[np.ndarray]]:
    """The terms in the order of the results, log Z, and P(true) and P(true, true) as `cover_xla.solve` has them."""
    terms, linear = cover_cpu.order_rest(terms)
    halves = cover_cpu.prepare(terms, linear)
    blocks = 1 << int(halves.bits[1:].sum())
    log_mass = np.empty(blocks)
    for _ in _each(blocks, lambda first, last: cover_cpu.masses(halves, terms, first, last, log_mass)):
        pass
    log_z = _log_sum(log_mass)
    if log_z == -math.inf:
        return terms, log_z, []
    sums = None
    for part in _each(blocks, lambda first, last: cover_cpu.posteriors(halves, terms, first, last, log_mass, log_z)):
        if sums is None:
            sums = part
        else:
            for whole, more in zip(sums, part, strict=True):
                whole += more
    assert sums is not None
    cover_cpu.finish(int(halves.bits[0]), sums)
    return terms, log_z, [np.diag(sums.cut).copy(), sums.rest, sums.cut, sums.both]


def _log_sum(values: np.ndarray) -> float:
    top = float(values.max())
    return top + math.log(np.exp(values - top).sum()) if top > -math.inf else top


def _each(blocks: int, work: Any) -> Iterator[Any]:
    """`work(first, last)` for parts of the blocks, the results in order; by several threads where it is much."""
    ends = np.linspace(0, blocks, min(PARTS, blocks) + 1).astype(np.int64).tolist()
    parts = list(pairwise(ends))
    if blocks < 64 * PARTS:
        yield from (work(first, last) for first, last in parts)
        return
    waiting = [_threads().submit(work, first, last) for first, last in parts]
    for future in waiting:
        yield future.result()


@cache
def _threads() -> ThreadPoolExecutor:
    """Apart from the engine's own workers, which wait for these."""
    return ThreadPoolExecutor(workers(), thread_name_prefix="fcjax-cover")
