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
        type=click.Choice(["paper", "release", "release-cli"]),
        default="paper",
        show_default=True,
        help="Published settings. paper: implication encoding, context prior 0.99; release: conditional encoding, "
        "context prior 0.9; release-cli: implication encoding, context prior 0.9.",
    ),
    _graph(
        "--encoding",
        type=click.Choice(["implication", "conditional", "soft"]),
        help="How relations are encoded as factors; soft weighs each answer of the relation model, neutral included. "
        "[default: from the preset]",
    ),
    _graph(
        "--context-prior",
        type=click.FloatRange(0, 1),
        metavar="P",
        help="Prior P(true) of contexts that do not have their own. [default: from the preset]",
    ),
    _graph(
        "--atom-prior",
        type=click.FloatRange(0, 1),
        metavar="P",
        default=0.5,
        show_default=True,
        help="Prior P(true) of every atom.",
    ),
)
"""Numbers of the factors: the arguments of `Settings` of the same names."""

graph_options = options(
    _graph(
        "--graph",
        "version",
        type=GRAPH_VERSIONS,
        help="Relations to use. FR1: each atom with its own contexts; FR2: each atom with every context; FR3: also "
        "contexts with each other. [default: all relations in the cases]",
    ),
    number_options,
)
"""The graph of a case that has relations."""

rescore_graph = _graph(
    "--graph",
    "version",
    type=GRAPH_VERSIONS,
    help="Relations to use: FR1, FR2 or FR3, as in fcjax critique. [default: the graph used by fcjax critique]",
)

k_option = _graph(
    "--k",
    metavar="K",
    callback=number_k,
    help="K for recall and F1: a number, or 'release' for half the number of atoms in each response. [default: the "
    "median number of atoms]",
)
