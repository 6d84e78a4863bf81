"""Many fact graphs as one batch of arrays, the form that the kernels take (docs/architecture.md, The engine)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from fcjax.graph.fact_graph import FactGraph


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class GraphBatch:
    """`G` graphs with `V` variables and `E` factors in all; graph g owns variables `node_ptr[g]:node_ptr[g + 1]`.

    Weights are linear float64, >= 0; an observed variable's other state weighs 0.
    """

    node_ptr: Int[np.ndarray, " G+1"]  # int64
    factor_ptr: Int[np.ndarray, " G+1"]  # int64
    unary: Float[np.ndarray, "V 2"]  # by state (false, true)
    ends: Int[np.ndarray, "E 2"]  # int32: source and target, counted within the graph
    tables: Float[np.ndarray, "E 2 2"]  # by [source state][target state]

    def __len__(self) -> int:
        return len(self.node_ptr) - 1

    @classmethod
    def from_graphs(
        cls, graphs: Sequence[FactGraph], evidence: Sequence[Mapping[str, bool] | None] | None = None
    ) -> GraphBatch:
        """The batch of `graphs`; `evidence` is added to each graph's own evidence.

        Raises `KeyError` for evidence on a variable that its graph does not have.
        """
        batch = cls(
            node_ptr=_starts([len(graph.unary) for graph in graphs]),
            factor_ptr=_starts([len(graph.ends) for graph in graphs]),
            unary=_stack([graph.unary for graph in graphs], np.float64).reshape(-1, 2),
            ends=_stack([graph.ends for graph in graphs], np.int32).reshape(-1, 2),
            tables=_stack([graph.tables for graph in graphs], np.float64).reshape(-1, 2, 2),
        )
        for g, graph in enumerate(graphs):
            if graph.evidence or evidence is not None:
                for name, state in {**graph.evidence, **((evidence and evidence[g]) or {})}.items():
                    v = graph.index[graph.aliases.get(name, name)]
                    batch.unary[batch.node_ptr[g] + v, 0 if state else 1] = 0.0
        return batch


def _starts(counts: list[int]) -> np.ndarray:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _stack(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    """All entries of many small contiguous arrays of one dtype; several times faster than `np.concatenate`."""
    return np.frombuffer(bytearray().join(parts), dtype)  # type: ignore[arg-type]  # arrays are buffers
