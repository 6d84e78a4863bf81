"""The proofs of wide graphs: gaps, certain labels and the rows that they cost."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import oracle
from speed import network
from workloads import Workload

import fcjax
from fcjax import Limits

LEAST_WIDTH = 13
ROWS = 1000
WORKLOADS = [
    *(Workload(size, "FR2", cross) for size in ("askhist", "biofr") for cross in (0.05, 0.1, 0.2)),
    *(Workload(size, "FR3", 0.1, 0.03) for size in ("askhist", "biofr")),
]


def measure(workload: Workload, wanted: int, backend: str | None) -> dict[str, Any]:
    """`wanted` graphs of width 13 and more, conditioned with `exact_width=12` and at most 1,000 sweeps each."""
    limits = Limits(exact_width=LEAST_WIDTH - 1, rows=ROWS)
    graphs = [graph for graph in workload.graphs(8 * wanted) if oracle.min_fill(network(graph))[1] >= LEAST_WIDTH][
        :wanted
    ]
    record: dict[str, Any] = {"workload": workload.name, "graphs": len(graphs), "rows_limit": ROWS}
    for effort in ("tight", "label"):
        start = perf_counter()
        out = fcjax.infer(graphs, effort=effort, limits=limits, backend=backend)  # type: ignore[arg-type]
        took = perf_counter() - start
        gaps = np.array([row.gap if row.method else np.inf for row in out])
        certain = [certain for row in out for certain in row.certain.values()]
        spent = [row.rows for row in out]
        record[effort] = {
            "gap_under_tail": float(np.mean(gaps <= limits.tail)),
            "gap_p50": float(np.median(gaps)),
            "gap_max": float(gaps.max()),
            "certain_labels": sum(certain) / len(certain),
            "rows_p50": float(np.median(spent)),
            "rows_max": max(spent),
            "ms_per_graph": 1e3 * took / len(graphs),
        }
    return record
