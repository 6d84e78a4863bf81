"""Options of input and output, and those of every command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from fcjax.cli.command import COMMON, FILES, OTHER, Decorated, option, options
from fcjax.cli.options.types import COUNT, INPUT, OUTPUT
from fcjax.cli.shell import VERBOSE

cases_in = click.argument("source", metavar="IN", type=INPUT)
"""IN as `source`."""

output = partial(option, "-o", "--output", "out", metavar="OUT", type=OUTPUT, section=COMMON)
"""`-o OUT` as `out`; needs its `help`."""


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[VERBOSE] = value


def print_options(section: str = FILES) -> Callable[[Decorated], Decorated]:
    """`as_json` and `quiet`, and `--verbose`, which a command does not see."""
    add = partial(option, section=section)
    return options(
        add(
            "--json", "as_json", is_flag=True, help="Print a single JSON document to standard output, and nothing else."
        ),
        add("-q", "--quiet", is_flag=True, help="Print errors only."),
        add(
            "-v",
            "--verbose",
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="Print the traceback of an unexpected error.",
        ),
    )


plain_print_options = print_options(OTHER)
"""The same for a command whose help has no sections."""

limit = option("--limit", type=COUNT, metavar="N", section=COMMON, help="Use only the first N cases.")
dry_run = option(
    "-n",
    "--dry-run",
    is_flag=True,
    section=COMMON,
    help="Report the prompts, tokens and cost of a run; send and write nothing.",
)
overwrite = option("--overwrite", is_flag=True, section=FILES, help="Start over instead of resuming an earlier run.")
sample = options(
    option(
        "--sample", type=COUNT, metavar="N", section=FILES, help="Use N randomly chosen cases, after applying --limit."
    ),
    option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        metavar="N",
        section=FILES,
        help="Random seed for --sample.",
    ),
)
