"""The most probable joint assignment of a graph's variables (MAP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fcjax.core.limits import Limits
from fcjax.core.records import Status
from fcjax.graph.batch import GraphBatch
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.engine import NO_GRAPH, Evidence, infer
from fcjax.kernels import layout, plan, reduce, sweep_max


@dataclass(frozen=True, slots=True)
class Assignment:
    """The most probable joint states of all variables; if `status` is not ok, there are none and `reason` says why.

    Where several are equally probable, variables are false rather than true, the last one of the elimination order
    first: always the same one for the same graph.
    """

    states: Mapping[str, bool]
    log_weight: float  # natural logarithm of the product of all factors
    log_probability: float  # of this assignment: log_weight - log Z
    status: Status = Status.OK
    reason: str | None = None


def most_probable(
    graphs: Sequence[FactGraph],
    evidence: Evidence | Sequence[Evidence | None] | None = None,
    limits: Limits | None = None,
) -> list[Assignment]:
    """The most probable assignment of each graph, in order, by exact elimination with maxima for sums.

    `evidence` observes variables, as for `infer`. A graph that is inconsistent or too wide for elimination never
    raises: its `status` says so. Raises `SettingsError` for invalid arguments.
    """
    limits = limits or Limits()
    answers = infer(graphs, evidence=evidence, limits=limits, pairs=True)  # for log Z, of exact rows only
    rows = [evidence] * len(graphs) if evidence is None or isinstance(evidence, Mapping) else evidence
    ok = [not answer.status.failed for answer in answers]
    table = GraphBatch.from_graphs(
        [graph if good else NO_GRAPH for graph, good in zip(graphs, ok, strict=True)],
        [row if good else None for row, good in zip(rows, ok, strict=True)],
    )
    whole = reduce.keep_all(table.node_ptr, table.factor_ptr, table.unary, table.ends, table.tables)
    widest = limits.affordable
    steps = plan.plan(table.node_ptr, table.factor_ptr, whole, limits.restarts, widest, np.ones(len(table), bool))
    chosen = (steps.width <= widest) & (steps.cost <= limits.entries())
    best, state = sweep_max.sweep(steps, layout.weigh(steps, table.node_ptr, whole), chosen)
    found = []
    for g, (graph, answer) in enumerate(zip(graphs, answers, strict=True)):
        if answer.status.failed or not chosen[g]:
            status = answer.status if answer.status.failed else Status.TOO_WIDE
            reason = answer.reason or limits.too_wide(int(steps.width[g]), steps.cost[g], widest)
            found.append(Assignment({}, np.nan, np.nan, status, reason))
            continue
        mine = slice(steps.step_ptr[g], steps.step_ptr[g + 1])
        by_variable = np.empty(len(graph), bool)
        by_variable[steps.variable[mine]] = state[mine]
        states = dict(zip(graph.ids, by_variable.tolist(), strict=True))
        weight = float(best[g]) + graph.log_scale
        found.append(Assignment(states, weight, weight - answer.log_z))
    return found
