"""The share of padding in the sweeps of the XLA backend, from the engine's internal plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fcjax import FactGraph, Limits
from fcjax.graph.batch import GraphBatch
from fcjax.kernels import layout, plan, reduce
from fcjax.kernels.sweep_xla import SizeClass

TILE_BYTES = 2**27  # the default of `sweep_xla.sweep_planned`


def waste(graphs: Sequence[FactGraph], effort: str) -> dict[str, Any]:
    """Padded table entries per table entry of the plans, minus one, over the exact rows; and the number of classes.

    `classes` counts the padding of widths and step counts, `whole` also the spare rows of tiles that are not full.
    """
    limits = Limits()
    table = GraphBatch.from_graphs(graphs)
    reduced = reduce.reduce(table.node_ptr, table.factor_ptr, table.unary, table.ends, table.tables)
    everyone = np.ones(len(table), bool)
    steps = plan.plan(table.node_ptr, table.factor_ptr, reduced, limits.restarts, limits.width(effort), everyone)
    counts, slots = np.diff(steps.step_ptr), layout.slot_counts(steps)
    swept = (counts > 0) & (steps.width <= limits.width(effort)) & (steps.cost <= limits.entries())
    devices = jax.local_device_count()
    sizes = Counter(SizeClass.of(int(slots[g]), int(counts[g]), TILE_BYTES, devices) for g in np.flatnonzero(swept))
    needed = float(steps.cost[swept].sum())
    rows = sum(members * size.steps * 2.0**size.slots for size, members in sizes.items())
    tiles = sum(-(-members // size.rows) * size.rows * size.steps * 2.0**size.slots for size, members in sizes.items())
    return {
        "size_classes": len(sizes),
        "classes": rows / needed - 1 if needed else 0.0,
        "whole": tiles / needed - 1 if needed else 0.0,
    }
