"""Counts, costs and the client's statistics, as the commands print them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fcjax.cli.shell import counted
from fcjax.core.terminal import visible
from fcjax.critic.relation_config import RelationConfig
from fcjax.io.stats import Stats


def counts(found: Mapping[str, int]) -> str:
    """`3 ok, 1 refused`."""
    return ", ".join(f"{count:,} {what}" for what, count in found.items())


def dollars(cost: float | None) -> str:
    """US dollars, or `unknown`."""
    return "unknown" if cost is None else f"${cost:,.4f}"


def client_report(stats: Stats) -> dict[str, Any]:
    """What a client did, as JSON."""
    report = {**asdict(stats), "failed": dict(stats.failed), "mean_concurrency": stats.mean_concurrency}
    if stats.unconstrained is None:  # only where the server refused
        del report["unconstrained"]
    return report


def client_lines(stats: Stats) -> list[str]:
    """What a client did, as lines of text."""
    lines = [f"{stats.cache_hits:,} answers from the store, {counted(stats.sent, 'request')}"]
    if stats.seconds:
        lines[-1] += f" at {stats.sent / stats.seconds:,.1f} per second, including {stats.retries:,} retries"
        tokens = f"{stats.prompt_tokens:,} input and {stats.completion_tokens:,} output tokens"
        lines.append(f"{tokens}; cost {dollars(stats.cost)}")
    if stats.unconstrained is not None:
        seen = f"the server refused to constrain some answers, so they are free ({visible(stats.unconstrained)})"
        lines.append(f"{seen}; run fcjax doctor for a --constrain that works, or use --constrain none")
    return lines


def earlier_lines(n_cases: int) -> list[str]:
    """A line about cases that keep relations of another model, if any."""
    if not n_cases:
        return []
    return [f"relations of another model, wording or calibration are kept in {counted(n_cases, 'case')}"]


def failed_prompts(stats: Stats) -> list[str]:
    """A line about the prompts that failed, if any."""
    return [f"{counted(stats.failed.total(), 'prompt')} failed: {counts(stats.failed)}"] if stats.failed else []


def experience_line(how: RelationConfig, prompts: int) -> str | None:
    """What adaptive asking will take of the prompts of asking all; None where all will be asked."""
    if how.ask == "all":
        return None
    most = "with --ask adaptive, these are the most that may be sent"
    if (expected := how.expected(prompts)) is None:
        return most
    return f"{most}; by experience it is {expected[0]:,} to {expected[1]:,}"


def left_out_lines(not_asked: Mapping[str, int], prompts: int, prompts_of_all: int) -> list[str]:
    """A line about adaptive asking: the pairs left out by each first opinion, and the prompts that this saved; none
    where all was asked."""
    if not prompts_of_all:
        return []
    left = sum(not_asked.values())
    saved = f"{counted(prompts, 'prompt')} about relations in place of {prompts_of_all:,}"
    by = {"words": "by a first opinion from words", "local": "by a first opinion of the local model"}
    parts = ", ".join(f"{count:,} {by.get(name, name)}" for name, count in not_asked.items() if count)
    return [f"{saved}: {counted(left, 'pair')} left out{f' ({parts})' if parts else ''}"]
