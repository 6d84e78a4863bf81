"""`fcjax correct`: responses rewritten according to the critic's findings."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli.command import FILES, command, option
from fcjax.cli.options.correction import correction_options
from fcjax.cli.options.evidence import critic_options
from fcjax.cli.options.files import cases_in, dry_run, limit, output, overwrite, print_options, sample
from fcjax.cli.options.model import batch_options, client_options
from fcjax.cli.options.types import OUTPUT

_EPILOG = """\b
Examples:
  fcjax correct responses.jsonl -o corrected.jsonl --corpus documents/ --base-url http://localhost:8000 --model NAME
  fcjax correct responses.jsonl -o corrected.jsonl --retriever wikipedia --model NAME --theta 0.9 --rounds 3
  fcjax correct results.jsonl -o corrected.jsonl --model NAME        reuses what `fcjax critique` found
  fcjax correct responses.jsonl -o rac.jsonl --corrector rac --corpus documents/ --model NAME
  fcjax correct responses.jsonl -o corrected.jsonl --corpus documents/ --model SMALL --refiner-model LARGE

OUT receives one line per case: the best response, every round with its precision, a diff, and the cost. The cases with
the best responses are written to OUT.corrected.jsonl, as input for `fcjax critique`. An interrupted run resumes when
the same command is run again: finished cases are kept in OUT.journal until the run is complete, and every reply is in
the store. Exit codes: 0 success, 1 something failed or the budget is used up, 2 bad usage, unreadable input or no
endpoint, 130 interrupted."""


@command(epilog=_EPILOG)
@cases_in
@output(help="File for the corrections, one per line; - for standard output.")
@limit
@dry_run
@option(
    "--cases",
    "cases_out",
    metavar="FILE",
    type=OUTPUT,
    section=FILES,
    help="File for the corrected cases. [default: next to OUT, e.g. results.corrected.jsonl]",
)
@correction_options
@client_options
@batch_options
@critic_options
@sample
@overwrite
@print_options()
@click.pass_context
def correct(ctx: click.Context, /, **parameters: Any) -> None:
    """Rewrite responses according to the critic's findings.

    A response whose precision Pr is below --theta is rewritten by a model that sees the feedback: refuted statements
    with their evidence, and unverified statements. The revision is evaluated in the same way, and kept if its Pr
    is higher and every guard accepts it. This is repeated up to --rounds times. IN is a file of cases, the results of
    `fcjax critique`, whose findings are reused, or - for standard input.
    """
    from fcjax.cli.run_correct import run

    run(ctx, **parameters)
