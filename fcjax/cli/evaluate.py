"""`fcjax eval`: correctors x models x data sets from one YAML file, and the tables that compare them."""

from __future__ import annotations

import os
from typing import Any

import click

from fcjax.cli import requirements
from fcjax.cli.command import COMMON, FILES, RELATIONS, command, option
from fcjax.cli.options.files import print_options
from fcjax.cli.options.model import budget_options, replay

_EPILOG = """\b
Examples:
  fcjax eval grid.yaml -o comparison/ --dry-run     check the file and list the cells
  fcjax eval grid.yaml -o comparison/               run what is missing, then create the tables
  fcjax eval comparison/                            recreate the tables and plots; no prompts

docs/correct.md describes the YAML file. API keys are read from the environment variables given in it. Tables go to
FOLDER/report.md and FOLDER/tables, plots to FOLDER/plots. An interrupted run resumes when the same command is run
again. Exit codes: 0 success, 1 something failed or the budget is used up, 2 bad usage, unreadable input or no endpoint,
130 interrupted."""


@command("eval", epilog=_EPILOG)
@click.argument("source", metavar="GRID.yaml|FOLDER", type=click.Path(exists=True))
@option(
    "-o",
    "--output",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    section=COMMON,
    help="Output folder.",
)
@option(
    "-n", "--dry-run", is_flag=True, section=COMMON, help="Check the file and list the cells; send and write nothing."
)
@replay
@budget_options
@option(
    "--force",
    is_flag=True,
    section=RELATIONS,
    help="Use the calibration of a relation model that did not pass the gate of its examination.",
)
@option("--no-plots", is_flag=True, section=FILES, help="Create tables only, without plots.")
@print_options()
@click.pass_context
def evaluate(ctx: click.Context, /, source: str, **parameters: Any) -> None:
    """Compare correction methods, models and data sets.

    Each combination of corrector, model and data set is a cell. One critic evaluates all corrections. Reported are Pr,
    R@K, F1@K and V before and after, gains with significance tests and confidence intervals, the scores requested in
    the file, and the cost of each method.
    """
    rendered = os.path.isdir(source)
    requirements.check(ctx, rendered=rendered)
    from fcjax.cli.run_evaluate import render_folder, run

    if rendered:
        render_folder(source, **{name: parameters[name] for name in ("no_plots", "quiet", "as_json")})
    else:
        run(ctx, source, **parameters)
