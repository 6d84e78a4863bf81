"""Options of the fact graph (SPEC 2) and of K (SPEC 5)."""

from __future__ import annotations

from functools import partial

import click

from fcjax.cli.command import GRAPH, option, options
from fcjax.cli.options.types import GRAPH_VERSIONS, number_k

_graph = partial(option, section=GRAPH)

number_options = options(
    _graph(
        "--preset",
        type=click.Choice(["paper", "release"]),
        default="paper",
        show_default=True,
        help="Published settings. paper: encoding implication, context prior 0.99; release: conditional, 0.9.",
    ),
    _graph(
        "--encoding",
        type=click.Choice(["implication", "conditional"]),
        help="Factor of a relation. [default: from the preset]",
    ),
    _graph(
        "--context-prior",
        type=click.FloatRange(0, 1),
        metavar="P",
        help="P(true) of a context without a prior of its own. [default: from the preset]",
    ),
    _graph(
        "--atom-prior",
        type=click.FloatRange(0, 1),
        metavar="P",
        default=0.5,
        show_default=True,
        help="P(true) of every atom before any evidence.",
    ),
)
"""Numbers of the factors: the arguments of `Settings` of the same names."""

graph_options = options(
    _graph(
        "--graph",
        "version",
        type=GRAPH_VERSIONS,
        help="Relations to use. FR1: each atom with its own contexts; FR2: each atom with every context; FR3: also "
        "contexts with each other. [default: all that the cases have]",
    ),
    number_options,
)
"""The graph of a case that has relations."""

rescore_graph = _graph(
    "--graph",
    "version",
    type=GRAPH_VERSIONS,
    help="Relations to use, as in fcjax critique. [default: the graph that the cases were related for]",
)

k_option = _graph(
    "--k",
    metavar="K",
    callback=number_k,
    help="K of recall and F1: a number, or 'release' for half of each response's atoms. [default: the median number of "
    "atoms]",
)
