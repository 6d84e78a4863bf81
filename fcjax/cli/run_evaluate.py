"""How `fcjax eval` runs, and what it prints."""

from __future__ import annotations

import warnings
from typing import Any

import click

import fcjax
from fcjax.cli import shell
from fcjax.cli.summary import dollars
from fcjax.core.errors import BudgetError, SettingsError
from fcjax.evaluation.config import Plan, read_plan
from fcjax.evaluation.grid import GridReport, run_grid
from fcjax.evaluation.rendering import Rendered, render
from fcjax.evaluation.resources import RunBudget
from fcjax.inference.backend import use_persistent_cache
from fcjax.scoring.summary import has_failed


def render_folder(folder: str, *, no_plots: bool, quiet: bool, as_json: bool) -> None:
    """Make the tables and plots of a folder again."""
    _show(render(folder, plots=not no_plots), {"folder": folder}, folder, quiet=quiet, as_json=as_json)


def run(
    ctx: click.Context,
    source: str,
    *,
    folder: str | None,
    replay: bool,
    budget_prompts: int | None,
    budget_tokens: int | None,
    budget_dollars: float | None,
    no_plots: bool,
    force: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the grid of a file and print its tables, or list its cells."""
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        plan = read_plan(source, force=force)
    for doubt in doubts:
        shell.say(f"warning: {doubt.message}")
    if dry_run:
        _show_plan(plan, quiet=quiet, as_json=as_json)
        return
    if folder is None:
        raise SettingsError("no output folder given; add -o FOLDER, or use --dry-run to list the cells")
    budget = RunBudget(prompts=budget_prompts, tokens=budget_tokens, dollars=budget_dollars)
    report = _run_grid(ctx, plan, folder, budget, replay=replay, quiet=quiet)
    about = {"plan": source, "folder": folder, "steps": report.steps, "kept": report.kept, "failed": report.failed}
    about |= {"statuses": {name: dict(found) for name, found in report.statuses.items()}, "client": _spent(budget)}
    _show(render(folder, plots=not no_plots), about, folder, quiet=quiet, as_json=as_json)
    if not (quiet or as_json):
        shell.echo(f"{shell.counted(report.steps, 'step')}, {report.kept:,} kept from an earlier run")
        sent = f"{shell.counted(budget.sent, 'request')}, {budget.hits:,} answers from the store"
        tokens = f"{budget.prompt_tokens:,} input and {budget.completion_tokens:,} output tokens"
        shell.echo(f"{sent}; {tokens}; cost {dollars(budget.cost)}")
    if report.n_failed and not quiet:
        shell.say(f"warning: {_failures(report)}; run the same command again to retry")
    ctx.exit(shell.SOME_FAILED if report.n_failed else shell.OK)


def _run_grid(
    ctx: click.Context, plan: Plan, folder: str, budget: RunBudget, *, replay: bool, quiet: bool
) -> GridReport:
    use_persistent_cache()
    monitor = GridMonitor(live=not quiet)
    try:
        return run_grid(plan, folder, replay=replay, budget=budget, observer=monitor)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; {monitor.kept(folder)}") from None
    except BudgetError as error:
        monitor.close()
        shell.say(f"stopped: {error}; {monitor.kept(folder)}")
        ctx.exit(shell.SOME_FAILED)
    finally:
        monitor.close()


class GridMonitor:
    """Follows a grid; on a terminal, shows the step in progress."""

    def __init__(self, *, live: bool):
        self._wants_live = live
        self._steps = self._done = self._cases = 0
        self._name = ""
        self._status: Any = None

    def begins(self, steps: int) -> None:
        self._steps = steps
        if self._wants_live:
            from fcjax.cli.display import SafeConsole  # only where something is drawn

            console = SafeConsole(stderr=True)
            if console.is_terminal:
                self._status = console.status("")
                self._status.start()

    def starts(self, name: str) -> None:
        self._name, self._cases = name, 0
        self._draw()

    def case(self) -> None:
        self._cases += 1
        self._draw()

    def step(self, name: str, kept: bool, failed: int) -> None:
        self._done += 1

    def _draw(self) -> None:
        if self._status:
            from rich.text import Text

            cases = shell.counted(self._cases, "case")
            self._status.update(Text(f"step {self._done + 1} of {self._steps}: {self._name}, {cases} done"))

    def kept(self, folder: str) -> str:
        """What is finished and where it is kept."""
        return f"{self._done:,} of {self._steps:,} steps finished in {folder}; {shell.RESUME}"

    def close(self) -> None:
        if self._status:
            self._status.stop()
            self._status = None


def _failures(report: GridReport) -> str:
    """What failed, and where."""
    parts = [f"{count:,} in {name}" for name, count in report.failed.items()]
    for name, found in report.statuses.items():
        lost = {status: count for status, count in found.items() if has_failed(status)}
        parts += [f"{name}: {', '.join(f'{count:,} {status}' for status, count in lost.items())}"] if lost else []
    more = f", and {len(parts) - 3:,} more places" if len(parts) > 3 else ""
    return f"failures: {'; '.join(parts[:3])}{more}"


def _spent(budget: RunBudget) -> dict[str, Any]:
    tokens = {"prompt_tokens": budget.prompt_tokens, "completion_tokens": budget.completion_tokens}
    calls = {"sent": budget.sent, "answered": budget.answered, "cache_hits": budget.hits, "failed": dict(budget.failed)}
    return calls | tokens | {"cost": budget.cost}


def _show(found: Rendered, about: dict[str, Any], folder: str, *, quiet: bool, as_json: bool) -> None:
    """Print the tables of a folder."""
    if as_json:
        cells = [
            {"corrector": one.corrector, "model": one.model, "data": one.data, "comparison": one.comparison.to_dict()}
            for one in found.entries
        ]
        made = {"tables": list(found.tables), "plots": found.plots, "missing": [vars(one) for one in found.missing]}
        shell.print_json(about | {"fcjax": fcjax.__version__, "cells": cells} | made)
    elif not quiet:
        from fcjax.cli.display import show
        from fcjax.cli.display_correct import entries_table

        show(entries_table(found.entries))
        for one in found.missing:
            shell.echo(f"missing: {one.data}, {one.model}, {one.corrector}")
        if found.note:
            shell.echo(found.note)
        tables = shell.counted(len(found.tables), "table")
        shell.echo(f"{tables} and {shell.counted(len(found.plots), 'plot')} in {folder}; report.md has all tables")


def _show_plan(plan: Plan, *, quiet: bool, as_json: bool) -> None:
    """List the cells."""
    if as_json:
        shell.print_json(plan.to_dict() | {"dry_run": True})
    elif not quiet:
        cells = plan.cells()
        for cell in cells:
            shell.echo(f"{cell.data}: {cell.corrector} with {cell.model}, evaluated by {cell.critic}")
        shell.echo(shell.counted(len(cells), "cell"))
