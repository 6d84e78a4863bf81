"""How `fcjax doctor` runs, and what it prints."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final, NoReturn

import click

from fcjax.cli import shell
from fcjax.cli.client import open_transport, timeouts_of
from fcjax.core.terminal import visible
from fcjax.inference.backend import use_persistent_cache
from fcjax.runs.doctor import Check, examine

_COLORS: Final = {"good": "green", "limited": "yellow", "bad": "red"}


def run(
    ctx: click.Context,
    *,
    prompts: int,
    concurrency: int,
    max_tokens: int,
    quiet: bool,
    as_json: bool,
    timeout: float | None,
    relation_model: str | None,
    **endpoint: Any,
) -> None:
    """Test an endpoint or a local model, and print each finding as soon as it is known."""
    if relation_model is not None:
        _run_local(ctx, relation_model, prompts, quiet=quiet, as_json=as_json)
    transport = open_transport(**endpoint, timeout=timeout)
    found: list[Check] = []

    async def go() -> None:
        findings = examine(
            transport,
            prompts=prompts,
            concurrency=concurrency,
            max_tokens=max_tokens,
            timeouts=timeouts_of(timeout),
        )
        async with aclosing(findings):
            async for finding in findings:
                found.append(finding)
                if not (as_json or quiet):
                    _show(finding)

    if not (as_json or quiet):
        shell.echo(f"{transport.model} at {transport.name}")
    asyncio.run(go())
    if as_json:
        about = {"endpoint": transport.name, "model": transport.model}
        shell.print_json(about | {"findings": [finding.to_dict() for finding in found]})
    ctx.exit(shell.SOME_FAILED if any(finding.verdict == "bad" for finding in found) else shell.OK)


def _run_local(ctx: click.Context, folder: str, pairs: int, *, quiet: bool, as_json: bool) -> NoReturn:
    use_persistent_cache()
    from fcjax.runs.local_doctor import examine_folder  # loads jax, which looks for its cache then

    found: list[Check] = []
    for finding in examine_folder(folder, pairs=pairs):
        found.append(finding)
        if not (as_json or quiet):
            _show(finding)
    if as_json:
        shell.print_json({"relation_model": folder, "findings": [finding.to_dict() for finding in found]})
    ctx.exit(shell.SOME_FAILED if any(finding.verdict == "bad" for finding in found) else shell.OK)


def _show(finding: Check) -> None:
    verdict = click.style(f"{finding.verdict:<8}", fg=_COLORS[finding.verdict])
    click.echo(f"{verdict}{finding.name + ':':<11}{visible(finding.words)}")
