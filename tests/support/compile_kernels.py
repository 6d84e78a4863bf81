"""Compiles the kernels into their cache on disk, once, before test workers that would each do it again.

Two processes share the work: the argument `exact` or `wide` says which kernels this one compiles.
"""

import sys

import numpy as np
from samples import clique

from fcjax.core.limits import Limits
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.engine import infer
from fcjax.inference.map_assignment import most_probable
from fcjax.kernels.settling import stays

if __name__ == "__main__":
    certain = clique(6, 1.0)  # its tables hold zeros
    graphs = [FactGraph.from_dict(data) for data in (clique(9), certain)]
    if sys.argv[1] == "wide":
        infer(graphs, effort="label", limits=Limits(exact_width=3))
        infer(graphs, effort="fast", limits=Limits(exact_width=3))
        infer([FactGraph.from_dict(clique(18))])  # by a vertex cover
    else:
        infer(graphs, pairs=True)
        one = np.ones(1)
        stays(np.array([0, 1]), one, one, -one, np.full((1, 1, 2), 0.1), np.ones((1, 1)), 1e-4)
        most_probable(graphs[:1])
        infer(graphs, method="wmb")
