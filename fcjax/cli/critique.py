"""`fcjax critique`: which claims of responses are false or unverified, and on what evidence."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli.command import FILES, command, option
from fcjax.cli.options.evidence import critic_options, from_stage
from fcjax.cli.options.files import cases_in, dry_run, limit, output, overwrite, print_options, sample
from fcjax.cli.options.model import batch_options, client_options
from fcjax.cli.options.types import OUTPUT

_EPILOG = """\b
Examples:
  fcjax critique responses.jsonl -o results.jsonl --corpus documents/ --base-url http://localhost:8000 --model NAME
  fcjax critique responses.jsonl -o results.jsonl --retriever wikipedia --model gpt-4o-mini --budget-dollars 5
  fcjax critique responses.jsonl --corpus documents/ --model NAME --dry-run       what a run would send
  fcjax critique responses.jsonl -o few.jsonl --sample 20 --seed 7 --corpus documents/ --model NAME
  fcjax critique results.cases.jsonl -o packed.jsonl --from-stage relate --style packed --model OTHER
  fcjax rescore results.jsonl -o release.jsonl --preset release                   other settings, no prompts

Each line of IN looks like {"id": "1", "query": "...", "response": "..."}; atoms, contexts and relations that a case
already has are reused. The API key is read from OPENAI_API_KEY. An interrupted run resumes when the same command is run
again: finished stages are kept in OUT.stages until the run is complete, and every reply is in the store. Exit codes: 0
success, 1 something failed or the budget is used up, 2 bad usage, unreadable input or no endpoint, 130 interrupted."""


@command(epilog=_EPILOG)
@cases_in
@output(help="File for the results, one per line; - for standard output.")
@limit
@dry_run
@option(
    "--cases",
    "cases_out",
    metavar="FILE",
    type=OUTPUT,
    section=FILES,
    help="File for the cases with all findings. [default: next to OUT, e.g. results.cases.jsonl]",
)
@client_options
@batch_options
@critic_options
@from_stage
@sample
@overwrite
@print_options()
@click.pass_context
def critique(ctx: click.Context, /, **parameters: Any) -> None:
    """Check the claims of responses against evidence.

    Each response is split into atoms, one fact each. Evidence is retrieved for every atom, a model says how each
    passage relates to it, and inference turns the relations into probabilities. IN is a file of cases (.jsonl,
    .jsonl.gz, .json), or - for standard input. OUT receives one result per case, in the same order, with feedback
    on refuted and unverified atoms. An existing OUT is replaced only once the new file is complete.
    """
    from fcjax.cli.run_critique import run

    run(ctx, **parameters)
