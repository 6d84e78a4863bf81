"""`fcjax critique --dry-run`: what a run would ask, and what of that nobody can know before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fcjax.cli import shell
from fcjax.cli.relate import counts, dollars

if TYPE_CHECKING:
    from fcjax.cli.model_options import OpenClient
    from fcjax.critic.critic import Critic
    from fcjax.runs.preview import Choice, Prospect
    from fcjax.stages.pipeline import Stage


def show_outlook(
    source: str,
    asking: OpenClient,
    critic: Critic,
    choice: Choice,
    about: dict[str, Any],
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Say what a run would do, as far as that is known before it."""
    from fcjax.runs.preview import estimate_file, settings_of

    found, stages = estimate_file(source, critic, choice, count_tokens=asking.count_tokens)
    planned: dict[str, int] = {stage: prospect.cases for stage, prospect in stages.items()}
    known = _known(stages)
    complete = not any(prospect.open for prospect in stages.values())
    if as_json:
        settings = settings_of(critic, choice) | {"retriever": about["retriever"]}  # which no dry run opens
        cases = {"n_cases": found.cases, "n_lacking": len(found.lacking), "planned": planned}
        each = {stage: asdict(prospect) for stage, prospect in stages.items()}
        for stage, prospect in stages.items():
            if prospect.asks is not None:
                each[stage]["asks"]["to_send"] = prospect.asks.to_send
        told = {"complete": complete, "known": known, "stages": each}
        shell.print_json(about | {"settings": settings, "dry_run": True, **cases, **told})
        return
    if quiet:
        return
    click.echo(f"{shell.counted(found.cases, 'case')}; {len(found.lacking):,} that nothing can be done for")
    for place, lack in list(found.lacking.items())[:3]:
        click.echo(f"  case {place + 1}: {lack}")
    click.echo(f"cases by the stages that they will go through: {counts(planned) or 'none'}")
    for stage, prospect in stages.items():
        click.echo(f"{stage}: {_expected(prospect)}")
    if known["searches"] or known["prompts"] or not complete:
        least = "" if complete else "at least "
        click.echo(
            f"in all {least}{shell.counted(known['to_send'], 'prompt')} to send, about {known['prompt_tokens']:,} "
            f"tokens in and at most {known['completion_tokens']:,} out; cost {_bounded(known['cost'])}"
            + ("" if complete else "; more depends on what the stages before find")
        )
    if critic.how.model.votes and "relate" in stages:
        click.echo(f"where relations have no logprobs, {critic.how.model.votes} more prompts for each")


def _expected(prospect: Prospect) -> str:
    """What a stage will ask, for people."""
    least = "at least " if prospect.open else ""
    if prospect.searches is not None:
        known = f"{least}{prospect.searches:,} {'search' if prospect.searches == 1 else 'searches'}"
    elif (asks := prospect.asks) is not None:
        known = (
            f"{least}{shell.counted(asks.prompts, 'prompt')}, {asks.distinct:,} of them different, {asks.stored:,} in "
            f"the store already: {asks.to_send:,} to send, about {asks.prompt_tokens:,} tokens in and at most "
            f"{asks.completion_tokens:,} out; cost {_bounded(asks.cost)}"
        )
    else:
        return f"depends on what the stages before find ({shell.counted(prospect.open, 'case')})"
    return f"{known}; more depends on what the stages before find" if least else known


def _known(stages: Mapping[Stage, Prospect]) -> dict[str, Any]:
    """What is known of all stages together; whoever reads it has to see whether that is all of it."""
    asks = [prospect.asks for prospect in stages.values() if prospect.asks is not None]
    names = ("prompts", "distinct", "stored", "to_send", "prompt_tokens", "completion_tokens")
    known: dict[str, Any] = {name: sum(getattr(one, name) for one in asks) for name in names}
    costs = [one.cost for one in asks]
    known["cost"] = None if None in costs or not costs else sum(cost for cost in costs if cost is not None)
    known["searches"] = sum(prospect.searches or 0 for prospect in stages.values())
    return known


def _bounded(cost: float | None) -> str:
    return "unknown" if cost is None else f"at most {dollars(cost)}"
