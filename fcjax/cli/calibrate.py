"""`fcjax calibrate`: a relation model measured on labelled pairs, and calibrated."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli.command import FILES, RELATIONS, command, option
from fcjax.cli.options.files import dry_run, output, print_options
from fcjax.cli.options.model import client_options
from fcjax.cli.options.relations import asking_options, calibration
from fcjax.cli.options.types import COUNT, FILE, INPUT

_EPILOG = """\b
Examples:
  fcjax calibrate pairs.jsonl --base-url http://localhost:8000 --model NAME       measure only
  fcjax calibrate pairs.jsonl -o calibration.json --model NAME --plot reliability.svg
  fcjax calibrate pairs.jsonl -o packed.json --style packed --model NAME --in-use 0.2,0.05,0.75
  fcjax critique responses.jsonl -o results.jsonl --calibration calibration.json --corpus documents/ --model NAME

Each line of PAIRS looks like {"premise": "...", "hypothesis": "...", "label": "entailment"}; the labels are entailment,
contradiction and neutral. Cases whose relations are by people (without a `method`) are read as well. Every reply is
stored before it is used: an interrupted run resumes when the same command is run again. Exit codes: 0 every pair was
answered, 1 some failed, rows were skipped or the budget is used up, 2 bad usage, unreadable input or no endpoint,
130 interrupted."""

_LABELS = ("entailment", "contradiction", "neutral")


def _shares(_: click.Context, __: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    """Three shares, by name or in the order of the labels."""
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    named = {name.strip(): share for name, equals, share in (part.partition("=") for part in parts) if equals}
    if named:
        parts = [named.get(label, "") for label in _LABELS] if named.keys() == set(_LABELS) else []
    from fcjax.evaluation.label_shares import checked_shares  # loads numpy

    try:
        return checked_shares([float(part) for part in parts])
    except ValueError:
        expected = "shares that add up to 1, as in entailment=0.2,contradiction=0.1,neutral=0.7"
        raise click.BadParameter(f"found {value!r}; expected {expected}") from None


def _template(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The file, also where the stage is named as `critique` wants it."""
    return None if value is None else str(FILE.convert(value.removeprefix("relate="), parameter, ctx))


@command(epilog=_EPILOG)
@click.argument("source", metavar="PAIRS", type=INPUT)
@output(help="File for the calibration, fitted on all pairs; - for standard output.")
@option("--limit", type=COUNT, metavar="N", section=FILES, help="Use only the first N pairs.")
@dry_run
@client_options
@asking_options
@option(
    "--template",
    metavar="FILE",
    callback=_template,
    section=RELATIONS,
    help="File with the prompt template for the chosen --style.",
)
@option(
    "--in-use",
    metavar="SHARES",
    callback=_shares,
    section=RELATIONS,
    help="Shares of entailment, contradiction and neutral where the calibration will be used, if they differ from "
    "those of the pairs, e.g. 0.2,0.1,0.7. [default: not adjusted]",
)
@calibration
@option(
    "--embedding",
    metavar="FOLDER",
    section=RELATIONS,
    help="Folder of an encoder, as on Hugging Face's hub, or its name there: the cosine of its embeddings is the "
    "baseline that the model has to beat. [default: the cosine of word counts]",
)
@option(
    "--plot",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    section=FILES,
    help="Image for the reliability diagram (.png or .svg).",
)
@print_options()
@click.pass_context
def calibrate(ctx: click.Context, /, **parameters: Any) -> None:
    """Measure a relation model on labelled pairs, and calibrate it.

    The model is asked about every pair, as `fcjax relate` asks it. Reported are accuracy, macro-F1, log loss, expected
    calibration error, the confusion matrix, and the model's bias, before and after calibration. The figures after
    calibration are cross-validated by premise. With -o, a calibration that is fitted on all pairs is written, for
    --calibration in other commands.
    """
    from fcjax.cli.run_calibrate import run

    run(ctx, **parameters)
