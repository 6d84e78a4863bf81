"""`fcjax eval`: correctors x models x data sets, out of one YAML file, and the tables that compare them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from fcjax.cli import shell
from fcjax.cli.model_options import Amount
from fcjax.cli.relate import dollars
from fcjax.core.errors import BudgetError, SettingsError

if TYPE_CHECKING:
    from fcjax.evaluation.config import Plan
    from fcjax.evaluation.grid import GridReport
    from fcjax.evaluation.rendering import Rendered
    from fcjax.evaluation.resources import RunBudget

_EPILOG = """\b
Examples:
  fcjax eval grid.yaml -o comparison/ --dry-run     which cells there are, and whether the file is right
  fcjax eval grid.yaml -o comparison/               run all that is not done yet, then make the tables
  fcjax eval comparison/                            make the tables and plots again; nothing is asked

docs/correct.md says what stands in the YAML file. Keys are in environment variables, whose names it has. Tables go to
FOLDER/report.md and FOLDER/tables, plots to FOLDER/plots. Stop at any moment and run the same command again: what is
done is kept, and every reply in one store. Exit codes: 0 all is well, 1 something failed or the budget is used up, 2
bad usage or nothing could be read or asked, 130 interrupted."""


@click.command("eval", epilog=_EPILOG)
@click.argument("source", metavar="GRID.yaml|FOLDER", type=click.Path(exists=True))
@click.option(
    "-o", "--output", "folder", metavar="FOLDER", type=click.Path(file_okay=False), help="Where all files of it go."
)
@click.option("--replay", is_flag=True, help="Take every answer from the store; nothing is sent.")
@click.option("--budget-prompts", type=click.IntRange(0), metavar="N", help="Stop after so many prompts sent.")
@click.option("--budget-tokens", type=click.IntRange(0), metavar="N", help="Stop before more tokens are used.")
@click.option("--budget-dollars", type=Amount(0), metavar="X", help="Stop before more is spent.")
@click.option("--no-plots", is_flag=True, help="Make tables only.")
@click.option("-n", "--dry-run", is_flag=True, help="Read the file and list the cells; send and write nothing.")
@shell.common_options
@click.pass_context
def evaluate(
    ctx: click.Context,
    /,
    source: str,
    folder: str | None,
    replay: bool,
    budget_prompts: int | None,
    budget_tokens: int | None,
    budget_dollars: float | None,
    no_plots: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compare correctors: run a grid of corrector x model x data set, and make tables of it.

    Every cell is corrected, then evaluated by one critic in one way: Pr, R@K, F1@K and V before and after, gains with
    tests and intervals, other scores where the file asks for them, and what each method costs.
    """
    if os.path.isdir(source):
        if folder is not None or dry_run or replay:
            raise SettingsError(f"{source}: is a folder, of which tables are made again; leave -o, -n and --replay out")
        from fcjax.evaluation.rendering import render

        _show(render(source, plots=not no_plots), {"folder": source}, source, quiet=quiet, as_json=as_json)
        return
    from fcjax.evaluation.config import read_plan
    from fcjax.evaluation.resources import RunBudget

    plan = read_plan(source)
    if dry_run:
        _show_plan(plan, quiet=quiet, as_json=as_json)
        return
    if folder is None:
        raise SettingsError("no folder is named; give -o FOLDER, or --dry-run to see which cells there are")
    purse = RunBudget(prompts=budget_prompts, tokens=budget_tokens, dollars=budget_dollars)
    report = _run(ctx, plan, folder, purse, replay=replay, quiet=quiet)
    from fcjax.evaluation.rendering import render

    about = {"plan": source, "folder": folder, "steps": report.steps, "kept": report.kept, "failed": report.failed}
    about |= {"statuses": {name: dict(found) for name, found in report.statuses.items()}, "client": _spent(purse)}
    _show(render(folder, plots=not no_plots), about, folder, quiet=quiet, as_json=as_json)
    if not (quiet or as_json):
        click.echo(f"{shell.counted(report.steps, 'step')}, {report.kept:,} of them done before")
        sent = f"{shell.counted(purse.sent, 'call')}, {purse.hits:,} answers from the store"
        tokens = f"{purse.prompt_tokens:,} tokens in and {purse.completion_tokens:,} out"
        click.echo(f"{sent}; {tokens}; cost {dollars(purse.cost)}")
    if report.n_failed and not quiet:
        shell.say(f"warning: {_failures(report)}; the same command tries again what may succeed")
    ctx.exit(shell.SOME_FAILED if report.n_failed else shell.OK)


def _run(ctx: click.Context, plan: Plan, folder: str, purse: RunBudget, *, replay: bool, quiet: bool) -> GridReport:
    from fcjax.evaluation.grid import run_grid
    from fcjax.inference.engine import use_persistent_cache

    use_persistent_cache()
    watch = _Watch(live=not quiet)
    try:
        return run_grid(plan, folder, replay=replay, budget=purse, observer=watch)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; {watch.kept(folder)}") from None
    except BudgetError as error:
        watch.close()
        shell.say(f"stopped: {error}; {watch.kept(folder)}")
        ctx.exit(shell.SOME_FAILED)
    finally:
        watch.close()


class _Watch:
    """Looks on while a grid is run; on a terminal, says which step it is at."""

    def __init__(self, *, live: bool):
        self._wants_live = live
        self._steps = self._done = self._cases = 0
        self._name = ""
        self._status: Any = None

    def begins(self, steps: int) -> None:
        self._steps = steps
        if self._wants_live:
            from rich.console import Console

            console = Console(stderr=True)
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
        """What there is to go on from."""
        return f"{self._done:,} of {self._steps:,} steps are done in {folder}; run the same command to go on"

    def close(self) -> None:
        if self._status:
            self._status.stop()
            self._status = None


def _failures(report: GridReport) -> str:
    """What failed, for people."""
    from fcjax.scoring.summary import has_failed

    parts = [f"{count:,} in {name}" for name, count in report.failed.items()]
    for name, found in report.statuses.items():
        lost = {status: count for status, count in found.items() if has_failed(status)}
        parts += [f"{name}: {', '.join(f'{count:,} {status}' for status, count in lost.items())}"] if lost else []
    more = f", and {len(parts) - 3:,} more places" if len(parts) > 3 else ""
    return f"failures: {'; '.join(parts[:3])}{more}"


def _spent(purse: RunBudget) -> dict[str, Any]:
    tokens = {"prompt_tokens": purse.prompt_tokens, "completion_tokens": purse.completion_tokens}
    calls = {"sent": purse.sent, "answered": purse.answered, "cache_hits": purse.hits, "failed": dict(purse.failed)}
    return calls | tokens | {"cost": purse.cost}


def _show(found: Rendered, about: dict[str, Any], folder: str, *, quiet: bool, as_json: bool) -> None:
    """Tell what was made of a folder."""
    if as_json:
        import fcjax

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
            click.echo(f"not done yet: {one.data}, {one.model}, {one.corrector}")
        if found.note:
            click.echo(found.note)
        tables = shell.counted(len(found.tables), "table")
        click.echo(f"{tables} and {shell.counted(len(found.plots), 'plot')} in {folder}; all tables in report.md")


def _show_plan(plan: Plan, *, quiet: bool, as_json: bool) -> None:
    """Say which cells there are."""
    if as_json:
        shell.print_json(plan.to_dict() | {"dry_run": True})
    elif not quiet:
        cells = plan.cells()
        for cell in cells:
            click.echo(f"{cell.data}: {cell.corrector} with {cell.model}, evaluated by {cell.critic}")
        click.echo(shell.counted(len(cells), "cell"))
