"""Growth of the cost with the batch, from one graph to a hundred thousand, and with the width."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import oracle
import peers
from speed import Plan, network, solve
from workloads import Workload, tied

from fcjax import FactGraph

BATCH = Workload("bio", "FR2", 0.1)


def by_batch(plan: Plan, largest: int) -> Iterator[dict[str, Any]]:
    """Time per graph for batches of 1, 10, 100, ... `largest` graphs; for a batch of one, the median of many."""
    graphs = BATCH.graphs(largest)
    size = 1
    while size <= largest:
        parts = [graphs[i : i + size] for i in range(0, largest, size)][: max(plan.runs, 100 // size)]
        solve(parts[0], "tight", plan)
        runs = [solve(part, "tight", plan) for part in parts]
        yield {"batch": size, "runs": len(runs), "ms": 1e3 * statistics.median(runs)}
        size *= 10


def by_width(plan: Plan, widths: range, peer_width: int) -> Iterator[dict[str, Any]]:
    """Time per graph for k-trees of every width, in batches of about `plan.seconds`; pyAgrum up to `peer_width`."""
    for width in widths:
        count = max(1, min(4096, 2 ** (22 - width)))
        graphs = tied(width, count)
        first = solve(graphs, "tight", plan)
        runs = [solve(graphs, "tight", plan) for _ in range(plan.runs if first < plan.seconds else 1)]
        row: dict[str, Any] = {"width": width, "graphs": count, "ms": 1e3 * statistics.median(runs) / count}
        assert oracle.min_fill(network(graphs[0]))[1] == width
        if width <= peer_width:
            row["pyagrum_ms"] = 1e3 * statistics.median(_peer(graph) for graph in graphs[:3])
        yield row


def _peer(graph: FactGraph) -> float:
    start = perf_counter()
    peers.pyagrum(graph)
    return perf_counter() - start


def plot(batch: list[dict[str, Any]], width: list[dict[str, Any]], title: str, path: Path) -> None:
    """Both curves as one PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.loglog([row["batch"] for row in batch], [row["ms"] / row["batch"] for row in batch], "o-")
    left.set(xlabel="graphs in the batch", ylabel="ms a graph", title=BATCH.name)
    right.semilogy([row["width"] for row in width], [row["ms"] for row in width], "o-", label="fcjax")
    peer = [row for row in width if "pyagrum_ms" in row]
    right.semilogy([row["width"] for row in peer], [row["pyagrum_ms"] for row in peer], "s--", label="pyAgrum")
    right.set(xlabel="induced width", ylabel="ms a graph", title="k-trees of width + 16 contexts")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3, which="both")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
