"""Graphs in, posteriors out: the only caller of the kernels (SPEC 4 and 8)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import NamedTuple, get_args

import numpy as np

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import FcjaxError, SettingsError
from fcjax.core.limits import I_BOUND, Backend, Effort, Limits, Method, workers
from fcjax.core.records import EPS, Status
from fcjax.graph.batch import GraphBatch
from fcjax.graph.conflict import describe_conflict, satisfiable
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.backend import default_backend
from fcjax.inference.bounding import bound
from fcjax.inference.conditioning import condition, interval
from fcjax.inference.covering import DIRECTLY, Covered, find_covers, replaces, why_too_wide
from fcjax.inference.covering import solve as sum_over_cover
from fcjax.inference.posterior import OUT_OF_RANGE, Posteriors, Solution
from fcjax.kernels import layout, plan, reduce, search, sweep_cpu, sweep_log

Evidence = Mapping[str, bool]

CHUNK = {"cpu": 1024, "xla": 8192}  # graphs that a worker takes at a time, at most
FEWEST = 100  # rows that a search has, at least, before elimination takes over
PER_ROW = 1e4  # table entries of an elimination that cost what a row of a search does
HOPELESS = 100.0  # open mass over solved mass, past which a search gives no answer
NO_GRAPH = FactGraph.from_dict({"nodes": [], "edges": []})  # stands in for a row that could not be read


def infer(
    graphs: Sequence[FactGraph | FcjaxError],
    effort: Effort = "tight",
    evidence: Evidence | Sequence[Evidence | None] | None = None,
    limits: Limits | None = None,
    *,
    method: Method | None = None,
    i_bound: int = I_BOUND,
    pairs: bool = False,
    backend: Backend | None = None,
    timings: dict[str, float] | None = None,
) -> Posteriors:
    """The posterior of every variable of every graph, one row per graph, in order.

    A graph that cannot be solved never raises: its row's `status` says why. So does a row that is an exception, for
    input that could not be read. `evidence` observes variables: one mapping for all graphs, or one per graph.
    Method `wmb` is for comparison with FactReasoner: weighted mini-buckets over `i_bound` + 1 variables in place of all
    else. Its log Z is an upper bound, and its posteriors have no guarantee: every interval is [0, 1] (SPEC 4).
    `pairs` also finds the joint posterior of every factor's two variables (`Posterior.pairs`) and keeps to elimination:
    a graph too wide for it is neither searched nor summed over a vertex cover, its status is `too_wide`.
    `backend` sweeps with compiled loops (`cpu`) or through XLA on the default JAX device (`xla`); by default `xla`
    where that device is an accelerator. `timings` is filled with the seconds that the stages took, summed over the
    workers. Raises `SettingsError` for invalid arguments.
    """
    check_choice("effort", effort, get_args(Effort))
    check_choice("backend", backend, get_args(Backend), none=True)
    check_choice("method", method, get_args(Method), none=True)
    check_number("i_bound", i_bound, 1, 20, whole=True)
    if method == "wmb" and pairs:
        raise SettingsError("pairs are not available with method 'wmb'; allowed: one of the two")
    if isinstance(graphs, FactGraph | str) or not isinstance(graphs, Sequence):
        raise SettingsError(f"graphs is a single {type(graphs).__name__}; allowed: a list of graphs")
    if not isinstance(limits, Limits | None):
        raise SettingsError(f"limits is {limits!r:.60}; allowed: Limits(...) or None")
    limits = limits or Limits()
    observed = _observed(graphs, evidence)
    readable: list[FactGraph] = [graph if isinstance(graph, FactGraph) else NO_GRAPH for graph in graphs]
    backend = backend or default_backend()
    chunk = max(1, min(CHUNK[backend], -(-len(graphs) // (4 * workers()))))
    solutions: list[Solution] = []
    waiting: deque[Future[Solution]] = deque()
    for start in range(0, len(graphs), chunk):
        part = slice(start, start + chunk)
        rows = (readable[part], graphs[part], observed and observed[part])
        job = (*rows, effort, limits, i_bound if method == "wmb" else None, pairs, backend, timings)
        if len(graphs) <= chunk:
            solutions.append(_solve(*job))
        else:
            waiting.append(_pool().submit(_solve, *job))
    solutions += [future.result() for future in waiting]
    return Posteriors(readable, solutions)


def _observed(
    graphs: Sequence[FactGraph | FcjaxError], evidence: Evidence | Sequence[Evidence | None] | None
) -> Sequence[Evidence | None] | None:
    if evidence is None:
        return None
    if isinstance(evidence, Mapping):
        return [evidence] * len(graphs)
    if isinstance(evidence, str) or not isinstance(evidence, Sequence):
        raise SettingsError(f"evidence is {evidence!r:.60}; allowed: one mapping, or a list of one per graph")
    if len(evidence) != len(graphs):
        raise SettingsError(
            f"evidence has {len(evidence)} rows; allowed: one mapping, or one per graph ({len(graphs)})"
        )
    return evidence


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers(), thread_name_prefix="fcjax")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


class _Clock:
    """Adds the time since the last mark to a stage."""

    def __init__(self, timings: dict[str, float] | None):
        self.timings = timings
        self.last = perf_counter()

    def mark(self, stage: str) -> None:
        now = perf_counter()
        if self.timings is not None:
            self.timings[stage] = self.timings.get(stage, 0.0) + now - self.last
        self.last = now


def _solve(
    graphs: Sequence[FactGraph],
    given: Sequence[FactGraph | FcjaxError],
    evidence: Sequence[Evidence | None] | None,
    effort: Effort,
    limits: Limits,
    i_bound: int | None,
    pairs: bool,
    backend: Backend,
    timings: dict[str, float] | None,
) -> Solution:
    """The posteriors of one chunk of graphs."""
    clock = _Clock(timings)
    invalid = {g: _unreadable(row) for g, row in enumerate(given) if not isinstance(row, FactGraph)}
    if evidence is not None:
        graphs, evidence = _check_evidence(graphs, evidence, invalid)
    table = GraphBatch.from_graphs(graphs, evidence)
    observed = [row or {} for row in evidence] if evidence is not None else [{}] * len(table)
    clock.mark("table")
    reduced = reduce.reduce(table.node_ptr, table.factor_ptr, table.unary, table.ends, table.tables)
    clock.mark("reduce")
    if i_bound is not None:
        bounded = bound(graphs, observed, table, reduced, i_bound, limits)
        for g, reason in invalid.items():
            bounded.fail(g, Status.INVALID_INPUT, reason)
        clock.mark("bound")
        return bounded
    widest = limits.affordable if pairs else limits.width(effort)
    everyone = np.ones(len(table), bool)
    steps = plan.plan(table.node_ptr, table.factor_ptr, reduced, limits.restarts, widest, everyone)
    exact = (steps.width <= widest) & (steps.cost <= limits.entries())
    covers = {} if pairs else find_covers(table, reduced, steps, limits, effort)
    summed = np.zeros(len(table), bool)
    for g, found in covers.items():
        cheap = found.nanoseconds <= DIRECTLY[effort]
        summed[g] = (backend == "cpu" and replaces(found, steps.cost[g])) if exact[g] else cheap
    exact &= ~summed
    clock.mark("plan")
    solved = (exact | summed).all()
    p, joint = np.empty(table.node_ptr[-1]), np.empty((len(reduced.tail), 4))
    solution = Solution(
        node_ptr=table.node_ptr.tolist(),
        p=p,
        lower=None if solved else p.copy(),
        upper=None if solved else p.copy(),
        log_z=np.zeros(len(table)),
        width=np.maximum(steps.width, reduced.width),
        status=[Status.OK] * len(table),
        method=["exact"] * len(table),
        reason=dict(invalid),
        gap=np.zeros(len(table)),
        rows=(np.diff(steps.step_ptr) > 0).astype(np.int64),
        cutset=np.zeros(len(table), np.int32),
    )
    chunk = _Chunk(graphs, observed, table, reduced, joint, solution)
    _eliminate(chunk, steps, exact, backend, pairs, clock)
    _sum_over(chunk, covers, summed, backend, clock)
    unproved = np.zeros(len(table), bool)
    for g in np.flatnonzero(~exact & ~summed).tolist():
        if not satisfiable(graphs[g], observed[g]):
            solution.fail(g, Status.INCONSISTENT, describe_conflict(graphs[g], observed[g]))
        elif pairs:
            solution.fail(g, Status.TOO_WIDE, limits.too_wide(int(solution.width[g]), steps.cost[g], widest))
        else:
            unproved[g] = not _condition(chunk, g, effort, limits, steps.cost[g], covers.get(g))
    clock.mark("condition")
    if unproved.any() and limits.falls_back(effort):
        steps = plan.plan(table.node_ptr, table.factor_ptr, reduced, limits.restarts, limits.last, unproved)
        clock.mark("plan")
        exact = unproved & (steps.width <= limits.last) & (steps.cost <= limits.entries())
        for g in np.flatnonzero(unproved).tolist():
            summed[g] = g in covers and (not exact[g] or replaces(covers[g], steps.cost[g]))
        summed &= unproved
        _eliminate(chunk, steps, exact & ~summed, backend, pairs, clock)
        _sum_over(chunk, covers, summed, backend, clock)
    if pairs:
        solution = replace(
            solution,
            factor_ptr=table.factor_ptr.tolist(),
            pairs=layout.pairs_by_factor(
                table.node_ptr, table.factor_ptr, table.ends, reduced, np.flatnonzero(solution.log_z > -np.inf), joint
            ),
        )
    for g, reason in invalid.items():
        solution.fail(g, Status.INVALID_INPUT, reason)
    return solution


class _Chunk(NamedTuple):
    """The data of one worker."""

    graphs: Sequence[FactGraph]
    observed: Sequence[Evidence]
    table: GraphBatch
    reduced: reduce.Reduced
    joint: np.ndarray  # [E + V, 4] float64: joint posteriors by edge
    solution: Solution


def _eliminate(
    chunk: _Chunk, steps: plan.Steps, exact: np.ndarray, backend: Backend, pairs: bool, clock: _Clock
) -> None:
    """Fill the rows `exact [G]` by elimination along `steps`."""
    graphs, observed, table, reduced, joint, solution = chunk
    weights = layout.weigh(steps, table.node_ptr, reduced)
    if pairs:
        weights.wanted[:] = True
    clock.mark("pack")
    log_z, by_step, by_arc, held = _sweep(backend, steps, weights, exact)
    inconsistent = np.zeros(len(table), bool)
    for g in np.flatnonzero(~held).tolist():
        inconsistent[g] = not satisfiable(graphs[g], observed[g])
    log_z[inconsistent] = -np.inf
    if not (held | inconsistent).all():
        sweep_log.sweep(steps, weights, weights.wanted, ~held & ~inconsistent, log_z, by_step, by_arc)
    clock.mark("sweep")
    rows = np.flatnonzero(exact)
    layout.carry_back(steps, table.node_ptr, reduced, rows, weights.wanted, by_step, by_arc, solution.p, joint)
    reduce.restore(table.node_ptr, reduced, rows, solution.p, joint)
    _report(chunk, rows, log_z, steps.width)
    clock.mark("back")


def _sum_over(chunk: _Chunk, covers: dict[int, Covered], summed: np.ndarray, backend: Backend, clock: _Clock) -> None:
    """Fill the rows `summed [G]` by summing over all assignments of their vertex covers."""
    rows, solution = np.flatnonzero(summed), chunk.solution
    log_z, width = np.zeros(len(summed)), np.zeros(len(summed), np.int32)
    for g in rows.tolist():
        log_z[g] = sum_over_cover(g, covers[g], chunk.table, chunk.reduced, backend, solution.p, chunk.joint)
        width[g] = min(covers[g].size, solution.width[g]) if solution.width[g] > 0 else covers[g].size
        solution.rows[g] = max(solution.rows[g], 1)
    _report(chunk, rows, log_z, width)
    clock.mark("cover")


def _report(chunk: _Chunk, rows: np.ndarray, log_z: np.ndarray, width: np.ndarray) -> None:
    """Complete `rows`, whose posteriors are exact; `log_z [G]` and `width [G]` are those of the cores."""
    graphs, observed, table, reduced, _, solution = chunk
    solution.log_z[rows] = log_z[rows] + reduced.log_z[rows]
    solution.width[rows] = np.maximum(width[rows], reduced.width[rows])
    for g in rows[solution.gap[rows] != 0].tolist():  # an earlier search failed
        solution.method[g], solution.status[g] = "exact", Status.OK
        solution.gap[g], solution.cutset[g] = 0.0, 0
        solution.rows[g] += 1
        solution.reason.pop(g, None)
    if solution.lower is not None and solution.upper is not None:
        for g in rows.tolist():
            mine = slice(table.node_ptr[g], table.node_ptr[g + 1])
            solution.lower[mine] = solution.upper[mine] = solution.p[mine]
    for g in rows[np.isnan(solution.log_z[rows]) | (solution.log_z[rows] == np.inf)].tolist():
        solution.fail(g, Status.INVALID_INPUT, OUT_OF_RANGE)
    for g in rows[solution.log_z[rows] == -np.inf].tolist():
        solution.fail(g, Status.INCONSISTENT, describe_conflict(graphs[g], observed[g]))


def _condition(chunk: _Chunk, g: int, effort: Effort, limits: Limits, cost: float, cover: Covered | None) -> bool:
    """Fill row g of a wide graph; returns whether what `effort` asks for was found.

    Where elimination is still affordable, at `cost` table entries, or a `cover` can be summed over, the search replaces
    that: it must come as close to the truth, and ends before it costs more.
    """
    table, reduced, joint, solution = chunk.table, chunk.reduced, chunk.joint, chunk.solution
    assert solution.lower is not None
    assert solution.upper is not None
    tail = limits.tail
    if limits.falls_back(effort):
        if effort == "tight" and (cover or solution.width[g] <= limits.affordable + plan.GAIN):
            tail = min(tail, EPS / 10)
        if solution.width[g] <= limits.affordable:
            limits = replace(limits, rows=int(min(limits.rows, max(FEWEST, cost / PER_ROW))))
    budget = cover.search_budget() if cover and effort != "fast" else np.inf
    found = condition(g, table, reduced, effort, limits, tail, solution.p, joint, budget)
    mine = slice(table.node_ptr[g], table.node_ptr[g + 1])
    solution.rows[g], solution.cutset[g] = found.rows, found.cutset
    solution.log_z[g] = found.log_z + reduced.log_z[g]
    solution.gap[g] = found.excess if effort != "fast" else np.nan
    solution.method[g] = "conditioned"
    solution.lower[mine], solution.upper[mine] = interval(solution.p[mine], found.excess)
    lost = not (np.isfinite(found.log_z) and np.isfinite(solution.p[mine]).all())
    if lost or (effort != "fast" and found.excess > HOPELESS):
        why = why_too_wide(g, table, reduced, limits, effort, int(solution.width[g]), cost)
        solution.fail(
            g,
            Status.TOO_WIDE,
            f"{why}; or raise `rows`, `seconds` or `cutset_width`: the search stopped at a gap of {found.excess:.2g} "
            f"after {found.rows} rows on a cutset of {found.cutset}",
        )
    elif effort == "fast":
        solution.reason[g] = f"an estimate from {found.rows} assignments of a cutset of {found.cutset}, not proved"
    elif effort == "tight" and found.excess > limits.tail:
        solution.reason[g] = f"the proof stopped at a gap of {found.excess:.2g} after {found.rows} rows"
    return found.excess <= tail or (effort == "label" and search.all_certain(solution.p[mine], found.excess))


def _sweep(
    backend: Backend, steps: plan.Steps, weights: layout.Weights, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    if backend == "cpu":
        return sweep_cpu.sweep(steps, weights, weights.wanted, chosen)
    from fcjax.kernels import sweep_xla  # loads jax

    return sweep_xla.sweep_planned(steps, weights, chosen)


def _unreadable(row: object) -> str:
    if isinstance(row, FcjaxError):
        return str(row)
    return f"the row is a {type(row).__name__}; allowed: a FactGraph (FactGraph.from_dict, from_case, from_model)"


def _check_evidence(
    graphs: Sequence[FactGraph], evidence: Sequence[Evidence | None], invalid: dict[int, str]
) -> tuple[list[FactGraph], list[Evidence | None]]:
    """Graphs and evidence, with rows whose evidence names an unknown variable made empty and noted as invalid."""
    checked, kept = list(graphs), list(evidence)
    for g, row in enumerate(evidence):
        graph = graphs[g]
        given = row if isinstance(row, Mapping) else {}
        unknown = [name for name in given if name not in graph.aliases and name not in graph.index]
        states = [
            state for state in given.values() if not isinstance(state, bool | np.bool_ | int) or state not in (0, 1)
        ]
        if g in invalid or unknown or states or not isinstance(row, Mapping | None):
            seen = f"has the states {states}; allowed: True, False"
            if unknown:
                seen = f"names {unknown}; allowed: ids of the graph's variables"
            elif not states:
                seen = f"is {row!r:.60}; allowed: a mapping from ids to True or False, or None"
            invalid.setdefault(g, f"evidence {seen}")
            checked[g], kept[g] = NO_GRAPH, None
    return checked, kept
