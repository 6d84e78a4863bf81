"""`fcjax doctor`: what an endpoint can do."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from fcjax.cli import shell
from fcjax.cli.model_options import COUNT, endpoint_options, transport

if TYPE_CHECKING:
    from fcjax.runs.doctor import Check

_COLORS = {"good": "green", "limited": "yellow", "bad": "red"}

_EPILOG = """\b
Examples:
  fcjax doctor --base-url http://localhost:8000 --model NAME
  fcjax doctor --model NAME --prompts 200 --concurrency 64 --json | jq .findings

Exit codes: 0 it will do, 1 something will not work, 2 bad usage."""


@click.command(epilog=_EPILOG)
@endpoint_options
@click.option(
    "--prompts",
    type=COUNT,
    default=32,
    show_default=True,
    metavar="N",
    help="Small prompts to send at once, to see how fast it is.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 4096),
    default=16,
    show_default=True,
    metavar="N",
    help="Of these, on the wire at once.",
)
@click.option("--max-tokens", type=COUNT, default=256, show_default=True, metavar="N", help="Of an answer.")
@shell.common_options
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    prompts: int,
    concurrency: int,
    max_tokens: int,
    quiet: bool,
    as_json: bool,
    timeout: float | None,
    **endpoint: Any,
) -> None:
    """Ask an endpoint some questions and say whether it will do.

    It looks at the models that are served, whether labels can be read, whether logprobs come, how long a prompt may be
    and how fast answers come. It sends a handful of small prompts, which may cost a cent, and stores nothing.
    """
    from fcjax.io.http import Timeouts
    from fcjax.runs.doctor import examine

    where = transport(**endpoint, timeout=timeout)
    limits = Timeouts(read=timeout, total=timeout) if timeout else None
    found: list[Check] = []

    async def go() -> None:
        examination = examine(where, prompts=prompts, concurrency=concurrency, max_tokens=max_tokens, timeouts=limits)
        async with aclosing(examination) as findings:
            async for finding in findings:
                found.append(finding)
                if not (as_json or quiet):
                    verdict = click.style(f"{finding.verdict:<8}", fg=_COLORS[finding.verdict])
                    click.echo(f"{verdict}{finding.name + ':':<10}{finding.words}")

    if not (as_json or quiet):
        click.echo(f"{where.model} at {where.name}")
    asyncio.run(go())
    if as_json:
        about = {"endpoint": where.name, "model": where.model}
        shell.print_json(about | {"findings": [finding.to_dict() for finding in found]})
    ctx.exit(shell.SOME_FAILED if any(finding.verdict == "bad" for finding in found) else shell.OK)
