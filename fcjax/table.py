"""Many fact graphs as one table of columns, the form in which the kernels take them (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from fcjax.graph import FactGraph


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class GraphTable:
    """`G` graphs with `V` variables and `E` factors in all; graph g owns variables `node_ptr[g]:node_ptr[g + 1]`.

    Weights are linear float64, >= 0; an observed variable's other state weighs 0.
    """

    node_ptr: Int[np.ndarray, "G+1"]  # int64
    factor_ptr: Int[np.ndarray, "G+1"]  # int64
    unary: Float[np.ndarray, "V 2"]  # by state (false, true)
    ends: Int[np.ndarray, "E 2"]  # int32: source and target, counted within the graph
    tables: Float[np.ndarray, "E 2 2"]  # by [source state][target state]

    def __len__(self) -> int:
        return len(self.node_ptr) - 1

    @classmethod
    def from_graphs(
        cls, graphs: Sequence[FactGraph], evidence: Sequence[Mapping[str, bool] | None] | None = None
    ) -> GraphTable:
        """The table of `graphs`; `evidence` is added to what each graph has observed itself.

        Raises `KeyError` for evidence on a variable that its graph does not have.
        """
        node_ptr = np.zeros(len(graphs) + 1, np.int64)
        factor_ptr = np.zeros(len(graphs) + 1, np.int64)
        np.cumsum([len(graph.unary) for graph in graphs], out=node_ptr[1:])
        np.cumsum([len(graph.ends) for graph in graphs], out=factor_ptr[1:])
        table = cls(
            node_ptr=node_ptr,
            factor_ptr=factor_ptr,
            unary=_stack([graph.unary for graph in graphs], (2,), np.float64),
            ends=_stack([graph.ends for graph in graphs], (2,), np.int32),
            tables=_stack([graph.tables for graph in graphs], (2, 2), np.float64),
        )
        for g, graph in enumerate(graphs):
            if graph.evidence or evidence is not None:
                observed = {**graph.evidence, **((evidence and evidence[g]) or {})}
                for name, state in observed.items():
                    v = graph.ids.index(graph.aliases.get(name, name))
                    table.unary[node_ptr[g] + v, 0 if state else 1] = 0.0
        return table


def _stack(parts: list[np.ndarray], tail: tuple[int, ...], dtype: type) -> np.ndarray:
    return np.concatenate([np.empty((0, *tail), dtype), *parts])
