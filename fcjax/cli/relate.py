"""`fcjax relate`: relations for cases that have atoms and contexts."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli.command import RELATIONS, command, option
from fcjax.cli.options.files import cases_in, dry_run, limit, output, print_options
from fcjax.cli.options.model import batch_options, client_options
from fcjax.cli.options.relations import relation_options
from fcjax.cli.options.types import FILE

_EPILOG = """\b
Examples:
  fcjax relate cases.jsonl -o related.jsonl --base-url http://localhost:8000 --model NAME
  fcjax relate cases.jsonl --model NAME --dry-run           count prompts before any is sent
  fcjax relate cases.jsonl -o related.jsonl --style packed --graph FR1 --budget-prompts 10000
  fcjax score related.jsonl -o results.jsonl

The API key is read from OPENAI_API_KEY. Every reply is stored before it is used: an interrupted run resumes when the
same command is run again, and no prompt is paid for twice. Exit codes: 0 every pair was answered, 1 some failed or the
budget is used up, 2 bad usage, unreadable input or no endpoint, 130 interrupted."""


@command(epilog=_EPILOG)
@cases_in
@output(help="File for the cases with relations; - for standard output.")
@limit
@dry_run
@client_options
@batch_options
@relation_options
@option(
    "--template",
    metavar="FILE",
    type=FILE,
    section=RELATIONS,
    help="File with the prompt template for the chosen --style.",
)
@print_options()
@click.pass_context
def relate(ctx: click.Context, /, **parameters: Any) -> None:
    """Ask a model how contexts relate to atoms.

    IN is a file of cases with atoms and contexts (.jsonl, .jsonl.gz, .json), or - for standard input. OUT
    receives the same cases in the same order, with relations; existing relations are kept. An existing OUT is replaced
    only once the new file is complete.
    """
    from fcjax.cli.run_relate import run

    run(ctx, **parameters)
