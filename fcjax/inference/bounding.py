"""Upper bounds and beliefs in place of posteriors: the method `wmb` (SPEC 4).

The papers are cited where the work is done: `kernels.minibucket`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fcjax.core.limits import Limits
from fcjax.core.records import Status
from fcjax.graph.batch import GraphBatch
from fcjax.graph.conflict import describe_conflict, satisfiable
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.posterior import OUT_OF_RANGE, Solution
from fcjax.kernels import minibucket, reduce


def bound(
    graphs: Sequence[FactGraph],
    observed: Sequence[Mapping[str, bool]],
    table: GraphBatch,
    reduced: reduce.Reduced,
    i_bound: int,
    limits: Limits,
) -> Solution:
    """Upper bounds and beliefs of one chunk of graphs by weighted mini-buckets."""
    log_z, width, passes, zero, p, joint = minibucket.sweep(
        table.node_ptr, table.factor_ptr, reduced, i_bound, minibucket.PASSES, limits.entries()
    )
    reduce.restore(table.node_ptr, reduced, np.flatnonzero(np.isfinite(log_z)), p, joint)
    solution = Solution(
        node_ptr=table.node_ptr.tolist(),
        p=p,
        lower=np.zeros_like(p),
        upper=np.ones_like(p),
        log_z=log_z + reduced.log_z,
        width=np.maximum(width, reduced.width),
        status=[Status.OK] * len(table),
        method=["wmb"] * len(table),
        reason={},
        gap=np.full(len(table), np.nan),
        rows=passes,
        cutset=np.zeros(len(table), np.int32),
    )
    for g in range(len(table)):
        if solution.log_z[g] == -np.inf or (zero[g] and not satisfiable(graphs[g], observed[g])):
            solution.fail(g, Status.INCONSISTENT, describe_conflict(graphs[g], observed[g]))
        elif log_z[g] == np.inf and not passes[g]:
            solution.fail(
                g,
                Status.TOO_WIDE,
                f"mini-buckets of {i_bound + 1} variables need over {limits.entries() * 8 / 2**20:.0f} MiB for "
                "their tables (memory); raise `memory`, or lower `i_bound`",
            )
        elif not np.isfinite(solution.log_z[g]):
            solution.fail(g, Status.INVALID_INPUT, OUT_OF_RANGE)
    return solution
