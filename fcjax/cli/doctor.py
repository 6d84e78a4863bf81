"""`fcjax doctor`: what an endpoint supports."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli.command import MODEL, command, option
from fcjax.cli.options.files import print_options
from fcjax.cli.options.model import endpoint_options
from fcjax.cli.options.types import COUNT

_EPILOG = """\b
Examples:
  fcjax doctor --base-url http://localhost:8000 --model NAME
  fcjax doctor --relation-model FOLDER
  fcjax doctor --model NAME --prompts 200 --concurrency 64 --json | jq .findings

Exit codes: 0 everything works, 1 something does not work, 2 bad usage."""


@command(epilog=_EPILOG)
@option(
    "--relation-model",
    metavar="FOLDER",
    section=MODEL,
    help="Test a local encoder instead: its folder, as on Hugging Face's hub, or its name there.",
)
@endpoint_options
@option(
    "--prompts",
    type=COUNT,
    default=32,
    show_default=True,
    metavar="N",
    section=MODEL,
    help="Number of small prompts to send to measure speed.",
)
@option(
    "--concurrency",
    type=click.IntRange(1, 4096),
    default=16,
    show_default=True,
    metavar="N",
    section=MODEL,
    help="Maximum number of concurrent requests.",
)
@option(
    "--max-tokens",
    type=COUNT,
    default=256,
    show_default=True,
    metavar="N",
    section=MODEL,
    help="Maximum tokens per answer.",
)
@print_options()
@click.pass_context
def doctor(ctx: click.Context, /, **parameters: Any) -> None:
    """Test what an endpoint or a local relation model supports.

    Checks which models are served, whether labels can be read, whether logprobs are returned, how long a prompt may be
    and how fast answers arrive. Sends a few small prompts, which may cost about a cent, and stores nothing.
    """
    from fcjax.cli.run_doctor import run

    run(ctx, **parameters)
