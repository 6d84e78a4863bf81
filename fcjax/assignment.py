"""The most probable joint assignment of a graph's variables (MAP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fcjax.engine import infer
from fcjax.graph import FactGraph
from fcjax.kernels import layout, plan, reduce, sweep_max
from fcjax.limits import Limits
from fcjax.records import Status
from fcjax.table import GraphTable


@dataclass(frozen=True, slots=True)
class Assignment:
    """The most probable states of all variables together; none where `status` is not ok, and `reason` says why.

    Of equally probable assignments one is returned, always the same for the same graph.
    """

    states: Mapping[str, bool]
    log_weight: float  # natural logarithm of the product of all factors
    log_probability: float  # of this assignment: log_weight - log Z
    status: Status = Status.OK
    reason: str | None = None


def most_probable(
    graphs: Sequence[FactGraph],
    evidence: Sequence[Mapping[str, bool] | None] | None = None,
    limits: Limits | None = None,
) -> list[Assignment]:
    """The most probable assignment of each graph, in order, by exact elimination with maxima for sums.

    A graph that is inconsistent or too wide never raises: its `status` says so.
    """
    limits = limits or Limits()
    answers = infer(graphs, evidence=evidence, limits=limits)
    ok = [not answer.status.failed for answer in answers]
    table = GraphTable.from_graphs(
        [g if good else NOTHING for g, good in zip(graphs, ok, strict=True)],
        evidence and [row if good else None for row, good in zip(evidence, ok, strict=True)],
    )
    whole = reduce.keep_all(table.node_ptr, table.factor_ptr, table.unary, table.ends, table.tables)
    widest = limits.width("tight")
    steps = plan.plan(table.node_ptr, table.factor_ptr, whole, limits.restarts, widest)
    chosen = (steps.width <= widest) & (steps.cost <= limits.entries())
    best, state = sweep_max.sweep(steps, layout.weigh(steps, table.node_ptr, whole), chosen)
    found = []
    for g, (graph, answer) in enumerate(zip(graphs, answers, strict=True)):
        if answer.status.failed or not chosen[g]:
            status = answer.status if answer.status.failed else Status.TOO_WIDE
            reason = answer.reason or f"induced width {steps.width[g]}; allowed: {widest} (exact_width); raise it"
            found.append(Assignment({}, np.nan, np.nan, status, reason))
            continue
        mine = slice(steps.step_ptr[g], steps.step_ptr[g + 1])
        by_variable = np.empty(len(graph), bool)
        by_variable[steps.variable[mine]] = state[mine].astype(bool)
        states = dict(zip(graph.ids, by_variable.tolist(), strict=True))
        found.append(Assignment(states, float(best[g]), float(best[g]) - answer.log_z))
    return found


NOTHING = FactGraph.from_dict({"nodes": [], "edges": []})
