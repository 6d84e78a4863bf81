"""`fcjax train`: a local relation model, fine-tuned on labelled pairs."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli.command import COMMON, FILES, OTHER, command, option
from fcjax.cli.options.files import output, overwrite, print_options
from fcjax.cli.options.types import COUNT, INPUT, Amount

_EPILOG = """\b
Examples:
  fcjax train pairs.jsonl -o judge --base all-MiniLM-L6-v2
  fcjax train pairs.jsonl -o judge --base microsoft/deberta-v3-small --epochs 2 --learning-rate 2e-5
  fcjax relate cases.jsonl -o related.jsonl --relation-model judge

Each line of PAIRS looks like {"premise": "...", "hypothesis": "...", "label": "entailment"}; the labels are entailment,
contradiction and neutral. Cases whose relations are by people (without a `method`) are read as well. A killed run
resumes when the same command is run again, and gives the same weights. Exit codes: 0 done, 2 bad usage or unreadable
input, 130 interrupted."""


@command(epilog=_EPILOG)
@click.argument("source", metavar="PAIRS", type=INPUT)
@output(metavar="FOLDER", type=click.Path(), help="Folder for the trained model; transformers reads it, too.")
@option(
    "--base",
    metavar="FOLDER",
    required=True,
    section=COMMON,
    help="Folder of the encoder to start from, as on Hugging Face's hub, or its name there.",
)
@option(
    "--epochs", type=Amount(0.001, 1000), metavar="X", default=3.0, show_default=True, help="Passes over the pairs."
)
@option("--batch", type=COUNT, metavar="N", default=32, show_default=True, help="Pairs per step.")
@option(
    "--learning-rate",
    type=Amount(0, 1, min_open=True),
    metavar="X",
    default=5e-5,
    show_default=True,
    help="Learning rate, after the warm-up.",
)
@option(
    "--length", type=COUNT, metavar="N", default=256, show_default=True, help="Maximum tokens per pair, while training."
)
@option("--freeze-embeddings", is_flag=True, help="Keep the embeddings of the base: faster, and with less memory.")
@option(
    "--held-out",
    type=Amount(0, 0.9, min_open=True),
    metavar="SHARE",
    default=0.1,
    show_default=True,
    help="Share of the premises to hold out, for early stopping, figures and calibration.",
)
@option(
    "--patience",
    type=COUNT,
    metavar="N",
    default=4,
    show_default=True,
    help="Stop after N evaluations without a lower loss; there are four per epoch.",
)
@option(
    "--seed", type=click.IntRange(0, 2**31 - 1), metavar="N", default=0, show_default=True, section=OTHER, help="Seed."
)
@option("--limit", type=COUNT, metavar="N", section=FILES, help="Use only the first N pairs.")
@overwrite
@print_options()
@click.pass_context
def train(ctx: click.Context, /, **parameters: Any) -> None:
    """Fine-tune a local relation model on labelled pairs.

    The model is used with --relation-model. Pairs of some premises are held out: training stops when their loss no
    longer falls, and the figures and the calibration that are written beside the weights rest on them.
    """
    from fcjax.cli.run_train import run

    run(ctx, **parameters)
