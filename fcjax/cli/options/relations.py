"""Options of the prompts about relations."""

from __future__ import annotations

from functools import partial

import click

from fcjax.cli.command import GRAPH, RELATIONS, option, options
from fcjax.cli.options.types import COUNT, FILE, GRAPH_VERSIONS, Amount

_relations = partial(option, section=RELATIONS)

_style = options(
    _relations(
        "--style",
        type=click.Choice(["pairwise", "packed"]),
        default="pairwise",
        show_default=True,
        help="pairwise: one prompt per pair; packed: one prompt per context, with several atoms.",
    ),
    _relations("--pack", type=COUNT, metavar="N", help="Maximum atoms per packed prompt. [default: 16]"),
)
_answers = options(
    _relations(
        "--votes",
        type=click.IntRange(0, 1000),
        metavar="N",
        help="If a reply has no logprobs, ask N more times and count the answers. [default: 0]",
    ),
    _relations(
        "--default",
        type=Amount(0, 1, min_open=True, max_open=True),
        metavar="P",
        help="Probability to assume for a relation without logprobs or votes. [default: 0.9]",
    ),
    _relations(
        "--wording",
        type=click.Choice(["1", "2"]),
        default="2",
        show_default=True,
        help="Version of the question; 1 is the one of stores made before 2 was chosen.",
    ),
    _relations("--max-tokens", type=COUNT, metavar="N", help="Maximum tokens per answer. [default: 256]"),
)
relation_model = _relations(
    "--relation-model",
    metavar="FOLDER",
    help="Read the relations with a local encoder, instead of asking the model: its folder, as on Hugging Face's hub, "
    "or its name there.",
)
calibration = _relations(
    "--calibration",
    metavar="FILE",
    type=FILE,
    help="File of `fcjax calibrate -o` for this model, style and wording, to apply to its probabilities.",
)
force = _relations(
    "--force",
    is_flag=True,
    help="Use a relation model that did not pass the gate of its examination, as its calibration says (--calibration, "
    "or the one in the folder of --relation-model).",
)

asking_options = options(relation_model, _style, _answers)
"""How a relation model is asked; `fcjax.cli.critic.relation_model` reads them."""

relation_options = options(
    option(
        "--graph",
        "version",
        type=GRAPH_VERSIONS,
        default="FR2",
        show_default=True,
        section=GRAPH,
        help="Pairs to ask about. FR1: each atom with its own contexts; FR2: each atom with every context; FR3: also "
        "contexts with each other.",
    ),
    relation_model,
    _style,
    _relations(
        "--screen",
        type=Amount(0, 1),
        metavar="T",
        help="Skip pairs that share less than fraction T of the target's content words; 0.1 is a cautious choice. "
        "[default: ask about every pair]",
    ),
    _relations(
        "--ask",
        type=click.Choice(["all", "adaptive"]),
        default="all",
        show_default=True,
        help="all: ask about every pair; adaptive: in rounds, about pairs whose answers could change a label, and "
        "leave out the others. With --relation-model, the local model then answers where it is sure.",
    ),
    _relations(
        "--settle",
        type=Amount(0.5, 1),
        metavar="P",
        help="Probability from which a label counts as settled, for --ask adaptive. [default: 0.99]",
    ),
    _relations(
        "--ask-at-most",
        type=click.IntRange(0),
        metavar="N",
        help="Maximum prompts about the relations of a case, best first, for --ask adaptive. [default: no limit]",
    ),
    _answers,
    calibration,
    force,
)
"""How relations are asked for; `fcjax.cli.critic.relation_config` reads them."""
