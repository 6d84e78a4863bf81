"""`fcjax critique --dry-run`: what a run would send, as far as that is known before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fcjax.cli import shell
from fcjax.cli.client import ModelAccess
from fcjax.cli.summary import counts, dollars, experience_line
from fcjax.critic.critic import Critic
from fcjax.runs.preview import Choice, Prospect, estimate_file, settings_of
from fcjax.stages.pipeline import Stage


def show_preview(
    source: str,
    access: ModelAccess,
    critic: Critic,
    choice: Choice,
    about: dict[str, Any],
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Print what a run would send."""
    found, stages = estimate_file(source, critic, choice, count_tokens=access.count_tokens)
    planned: dict[str, int] = {stage: prospect.cases for stage, prospect in stages.items()}
    known = _known(stages)
    complete = not any(prospect.open for prospect in stages.values())
    if as_json:
        settings = settings_of(critic, choice) | {"retriever": about["retriever"]}  # which a dry run does not open
        cases = {"n_cases": found.cases, "n_lacking": len(found.lacking), "planned": planned}
        each = {stage: asdict(prospect) for stage, prospect in stages.items()}
        for stage, prospect in stages.items():
            if prospect.asks is not None:
                each[stage]["asks"]["to_send"] = prospect.asks.to_send
        expected = {"complete": complete, "known": known, "stages": each}
        shell.print_json(about | {"settings": settings, "dry_run": True, **cases, **expected})
        return
    if quiet:
        return
    show_cases(found.cases, found.lacking)
    shell.echo(f"cases per stage: {counts(planned) or 'none'}")
    for stage, prospect in stages.items():
        shell.echo(f"{stage}: {_expected(prospect)}")
    if known["searches"] or known["prompts"] or not complete:
        least = "" if complete else "at least "
        shell.echo(
            f"total: {least}{shell.counted(known['to_send'], 'prompt')} to send, about {known['prompt_tokens']:,} "
            f"input and at most {known['completion_tokens']:,} output tokens; cost {_bounded(known['cost'])}"
            + ("" if complete else " so far; later stages depend on these and come on top")
        )
    asks = stages["relate"].asks if "relate" in stages else None
    if asks is not None and (line := experience_line(critic.how, asks.prompts)):
        shell.echo(f"relate: {line}")
    if (votes := critic.how.model.settings().get("votes")) and "relate" in stages:
        shell.echo(f"plus {votes} prompts for each relation without logprobs")


def show_cases(count: int, lacking: Mapping[int, str]) -> None:
    """Print how many cases there are, and the first ones that cannot be processed."""
    shell.echo(f"{shell.counted(count, 'case')}; {len(lacking):,} cannot be processed")
    for place, lack in list(lacking.items())[:3]:
        shell.echo(f"  case {place + 1}: {lack}")


def _expected(prospect: Prospect) -> str:
    """What a stage will ask, as text."""
    least = "at least " if prospect.open else ""
    if prospect.searches is not None:
        known = f"{least}{prospect.searches:,} {'search' if prospect.searches == 1 else 'searches'}"
    elif (asks := prospect.asks) is not None:
        known = (
            f"{least}{shell.counted(asks.prompts, 'prompt')}, {asks.distinct:,} different, {asks.stored:,} in the "
            f"store: {asks.to_send:,} to send, about {asks.prompt_tokens:,} input and at most "
            f"{asks.completion_tokens:,} output tokens; cost {_bounded(asks.cost)}"
        )
    elif not prospect.open:
        return f"no prompts ({shell.counted(prospect.cases, 'case')})"
    else:
        return f"depends on earlier stages ({shell.counted(prospect.open, 'case')})"
    return f"{known}; the rest depends on earlier stages" if least else known


def _known(stages: Mapping[Stage, Prospect]) -> dict[str, Any]:
    """The sums over all stages, of what is known."""
    asks = [prospect.asks for prospect in stages.values() if prospect.asks is not None]
    names = ("prompts", "distinct", "stored", "to_send", "prompt_tokens", "completion_tokens")
    known: dict[str, Any] = {name: sum(getattr(one, name) for one in asks) for name in names}
    costs = [one.cost for one in asks]
    known["cost"] = None if None in costs or not costs else sum(cost for cost in costs if cost is not None)
    known["searches"] = sum(prospect.searches or 0 for prospect in stages.values())
    return known


def _bounded(cost: float | None) -> str:
    return "unknown" if cost is None else f"at most {dollars(cost)}"
