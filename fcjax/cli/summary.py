"""Counts, costs and the client's statistics, as the commands print them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fcjax.cli.shell import counted
from fcjax.core.terminal import visible
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
