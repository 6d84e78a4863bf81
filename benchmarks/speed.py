"""The measurement of one workload: answers are checked first, then time, memory, accuracy and the peers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import machine
import numpy as np
import oracle
import padding
import peers
from workloads import Workload

import fcjax
from fcjax import FactGraph, Posterior, Status

PEER_WIDTH = 16  # the widest graph that pyAgrum is given


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The amount of work to measure."""

    seconds: float = 1.5  # target time of one run
    runs: int = 5  # of which the median is reported
    most: int = 50_000  # graphs in a run
    checked: int = 16  # graphs of a workload whose answers are compared with the oracle
    check_width: int = 14  # the widest graph that the oracle is given
    peer: int = 40  # graphs that a peer is given
    backend: str | None = None
    merlin: str | None = None


class WrongAnswerError(Exception):
    """The engine's answer differs from the oracle's."""


def infer(
    graphs: Sequence[FactGraph], effort: str, plan: Plan, timings: dict[str, float] | None = None
) -> Sequence[Posterior]:
    return fcjax.infer(graphs, effort=effort, backend=plan.backend, timings=timings)  # type: ignore[arg-type]


def read(row: Posterior) -> np.ndarray:
    return np.array(list(row.p.values()))


def solve(graphs: Sequence[FactGraph], effort: str, plan: Plan, timings: dict[str, float] | None = None) -> float:
    """Seconds from a list of graphs to every posterior read as a Python float."""
    start = perf_counter()
    for row in infer(graphs, effort, plan, timings):
        for _ in row.p.values():
            pass
    return perf_counter() - start


def network(graph: FactGraph) -> oracle.Network:
    return oracle.weights(graph.ids, graph.unary, graph.ends, graph.tables)


def check(workload: Workload, effort: str, plan: Plan) -> dict[str, Any]:
    """Compare some graphs with float64 elimination. Raises `WrongAnswerError` if a guarantee fails (SPEC 4)."""
    graphs = workload.graphs(plan.checked)
    nets = [network(graph) for graph in graphs]
    known = [i for i, net in enumerate(nets) if oracle.min_fill(net)[1] <= plan.check_width]
    worst = {"exact": 0.0, "conditioned": 0.0}
    for row, i in zip(infer([graphs[i] for i in known], effort, plan), known, strict=True):
        truth = oracle.eliminate(nets[i])
        if row.status is not Status.OK or row.method is None:
            raise WrongAnswerError(f"{workload.name}, graph {i}: {row.status}, {row.reason}")
        low, high = row.lower, row.upper
        outside = [v for v, p in truth.p.items() if not low[v] <= p <= high[v]]
        error = max(abs(row.p[v] - p) for v, p in truth.p.items())
        off = abs(row.log_z - truth.log_z) / max(1, abs(truth.log_z))
        if outside or (row.method == "exact" and (error > fcjax.EPS or off > 1e-4)):
            raise WrongAnswerError(
                f"{workload.name}, graph {i}, {row.method}: {outside} outside of their intervals, "
                f"worst error {error:.1e}, log Z off by {off:.1e}"
            )
        worst[row.method] = max(worst[row.method], error)
    return {"graphs": len(known), "worst_exact": worst["exact"], "worst_conditioned": worst["conditioned"]}


def count_for(workload: Workload, effort: str, plan: Plan) -> int:
    """The number of graphs in a run of about `plan.seconds`; also compiles the code of the workload."""
    count = 4
    while True:
        graphs = workload.graphs(count)
        solve(graphs, effort, plan)
        took = solve(graphs, effort, plan)
        wanted = int(count * plan.seconds / took)
        if took > plan.seconds / 8 or count >= plan.most:
            return max(4, min(plan.most, wanted))
        count = max(2 * count, min(plan.most, wanted // 4))


def measure(workload: Workload, effort: str, plan: Plan) -> dict[str, Any]:
    """The whole record of one workload at one effort. Raises `WrongAnswerError` before anything is timed."""
    row: dict[str, Any] = {"workload": workload.name, "effort": effort, "checked": check(workload, effort, plan)}
    start = perf_counter()
    count = count_for(workload, effort, plan)
    row["warm_up_s"] = perf_counter() - start
    graphs = workload.graphs(count)
    first = solve(graphs, effort, plan)
    machine.forget_peak()
    timings: dict[str, float] = {}
    runs = [solve(graphs, effort, plan, timings) for _ in range(plan.runs)]
    median = statistics.median(runs)
    row |= {"graphs": count, "runs_s": runs, "compile_s": max(0.0, first - median), "graphs_per_s": count / median}
    row["peak_mib"], row["device_peak_mib"] = machine.peak_mib(), machine.device_peak_mib()
    whole = sum(timings.values())
    row["stages"] = {stage: spent / whole for stage, spent in timings.items()}
    row["solving"] = row["stages"]["sweep"] + row["stages"]["condition"]
    row["worker_seconds_per_graph"] = whole / plan.runs / count
    out = infer(graphs, effort, plan)
    row["answers"] = answers(out)
    row["padding"] = padding.waste(graphs[:5000], effort)
    if effort == "tight":
        row["peer"] = beside(graphs, out, plan)
    if effort == "tight" and plan.merlin:
        row["merlin"] = against_merlin(graphs, out, plan)
    return row


def answers(out: Sequence[Posterior]) -> dict[str, Any]:
    """The shares of the kinds of answers."""
    methods = [row.method for row in out]
    conditioned = [row for row in out if row.method == "conditioned"]
    widths = [
        high - low for row in conditioned for low, high in zip(row.lower.values(), row.upper.values(), strict=True)
    ]
    gaps = [row.gap for row in conditioned if not math.isnan(row.gap)]
    labels = [certain for row in out if row.method for certain in row.certain.values()]
    return {
        "exact": methods.count("exact") / len(out),
        "conditioned": methods.count("conditioned") / len(out),
        "too_wide": methods.count(None) / len(out),
        "width_p50": float(np.median([row.width for row in out])),
        "interval_p50": float(np.median(widths)) if widths else None,
        "gap_p50": float(np.median(gaps)) if gaps else None,
        "rows_p50": float(np.median([row.rows for row in conditioned])) if conditioned else None,
        "certain": sum(labels) / max(1, len(labels)),
    }


def beside(graphs: Sequence[FactGraph], out: Sequence[Posterior], plan: Plan) -> dict[str, Any] | None:
    """pyAgrum on some of the graphs that it can finish; the engine on all such graphs of the run, as one batch.

    None if the workload has fewer than five such graphs.
    """
    narrow = [i for i, row in enumerate(out) if row.width <= PEER_WIDTH]
    chosen = [i for i in narrow[: 2 * plan.peer] if oracle.min_fill(network(graphs[i]))[1] <= PEER_WIDTH][: plan.peer]
    if len(chosen) < 5:
        return None
    batch = [graphs[i] for i in narrow]
    ours = statistics.median(solve(batch, "tight", plan) for _ in range(plan.runs + 1)) / len(batch)
    start = perf_counter()
    theirs = [peers.pyagrum(graphs[i]) for i in chosen]
    took = (perf_counter() - start) / len(chosen)
    return {
        "name": "pyAgrum ShaferShenoyMRFInference",
        "graphs": len(chosen),
        "ms_per_graph": 1e3 * took,
        "our_graphs": len(batch),
        "our_ms_per_graph": 1e3 * ours,
        "ratio": took / ours,
        "difference": max(float(np.abs(read(out[i]) - p).max()) for i, p in zip(chosen, theirs, strict=True)),
    }


def against_merlin(graphs: Sequence[FactGraph], out: Sequence[Posterior], plan: Plan) -> dict[str, Any]:
    """Weighted mini-buckets as a subprocess on some graphs; its errors are counted for graphs with exact rows."""
    assert plan.merlin is not None
    start = perf_counter()
    theirs = [peers.merlin(graph, plan.merlin) for graph in graphs[: plan.peer]]
    took = (perf_counter() - start) / len(theirs)
    worst, flipped = [], 0
    for row, p in zip(out, theirs, strict=False):
        if row.method == "exact":
            ours = read(row)
            worst.append(float(np.abs(ours - p).max()))
            flipped += bool(((ours > 0.5) != (p > 0.5))[np.abs(ours - 0.5) > 2 * fcjax.EPS].any())
    return {
        "graphs": len(theirs),
        "ms_per_graph": 1e3 * took,
        "compared": len(worst),
        "worst_error_p50": float(np.median(worst)) if worst else None,
        "worst_error_max": max(worst, default=None),
        "with_a_flipped_label": flipped,
    }
