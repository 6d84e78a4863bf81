"""Compiles the kernels into their cache on disk, once, before test workers that would each do it again."""

from samples import clique

from fcjax.assignment import most_probable
from fcjax.engine import infer
from fcjax.graph import FactGraph
from fcjax.limits import Limits

if __name__ == "__main__":
    certain = clique(6, 1.0)  # its tables hold zeros
    graphs = [FactGraph.from_dict(data) for data in (clique(9), certain)]
    infer(graphs, pairs=True)
    infer(graphs, effort="fast", limits=Limits(exact_width=3))
    infer(graphs, effort="label", limits=Limits(exact_width=3))
    most_probable(graphs[:1])
