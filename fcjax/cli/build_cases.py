"""How `fcjax data` builds its rows, and what it prints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import click

from fcjax.cli import shell
from fcjax.core.errors import BudgetError, Fault, InputError, SettingsError
from fcjax.core.records import Case
from fcjax.io.datasets import BuildReport, Selection, Unit, selected
from fcjax.io.datasets.selection import is_drawn
from fcjax.io.files import write_cases
from fcjax.io.files.objects import Row
from fcjax.io.files.streams import refuse_input

Item = TypeVar("Item")


def build(
    ctx: click.Context,
    rows: Iterator[Row[Unit]],
    files: tuple[str, ...],
    *,
    out: str,
    limit: int | None,
    seed: int | None,
    split: str | None,
    quiet: bool,
    as_json: bool,
    make: Callable[[Iterator[Case], BuildReport, bool], Iterator[Case]] | None = None,
    also: tuple[str, ...] = (),
    write: bool = True,
) -> None:
    """Write the cases of rows, print a summary, and exit."""
    check_places(out, as_json, *files, *also)
    report, selection = BuildReport(), Selection(limit, seed, split)
    cases = selected(rows, selection, report)
    if make is not None:
        cases = make(cases, report, quiet)
    if not write:
        for _ in cases:  # a dry run counts
            pass
        return
    write_cases(out, never_empty(cases, report))
    report_rows(ctx, report, selection, files, out, "case", quiet=quiet, as_json=as_json)


def build_wrong(
    ctx: click.Context,
    rows: Iterator[Row[Unit]],
    files: tuple[str, ...],
    *,
    errors: int | None,
    dry_run: bool,
    **parameters: Any,
) -> None:
    """`build` with wrong answers for half of the cases."""
    from fcjax.cli.client import ModelAccess, open_client  # the other builders need no client
    from fcjax.evaluation.falsify import falsify
    from fcjax.stages.falsify import Falsifier

    falsifier = Falsifier() if errors is None else Falsifier(errors=errors)
    seed = parameters["seed"] or 0

    def estimated(cases: Iterator[Case], report: BuildReport, quiet: bool, *, access: ModelAccess) -> Iterator[Case]:
        """No cases; prints what making them would take."""
        drawn = (falsifier.prompt(case) for i, case in enumerate(cases) if is_drawn(seed, i))
        found = asyncio.run(access.client.estimate(drawn, count_tokens=access.count_tokens))
        if not quiet:
            cost = "unknown" if found.cost is None else f"${found.cost:,.4f}"
            shell.echo(
                f"{shell.counted(found.prompts, 'prompt')}, {found.stored:,} in the store: {found.to_send:,} to send\n"
                f"about {found.prompt_tokens:,} input and at most {found.completion_tokens:,} output tokens; "
                f"cost at most {cost}",
                err=True,
            )
        return iter(())

    def falsified(cases: Iterator[Case], report: BuildReport, quiet: bool, *, access: ModelAccess) -> Iterator[Case]:
        """The cases, half of them with wrong answers; the report gets those whose answer failed."""
        bar: Any = None
        given = list(cases)
        if not quiet and sys.stderr.isatty():
            from fcjax.cli.display import Bar  # loads rich

            bar = Bar(len(given), doing="writing", unit="answers")
        try:
            advance = bar.advance if bar else None
            found = falsify(given, access.client, falsifier, seed=seed, window=access.window, progress=advance)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped; {_kept(access.store_path)}") from None
        except BudgetError as error:
            raise BudgetError(f"{error}; {_kept(access.store_path)}") from error
        finally:
            if bar:
                bar.close()
        for case, failure in found:
            if failure is None:
                yield case
            else:
                report.cases -= 1
                report.add([Fault(f"no wrong answer: {failure.kind}: {failure.reason}", case=case.id)])

    with open_client(parameters, dry_run=dry_run) as access:
        make = partial(estimated if dry_run else falsified, access=access)
        also = () if access.store_path is None else (str(access.store_path),)
        try:
            build(ctx, rows, files, **parameters, make=make, also=also, write=not dry_run)
        except BudgetError as error:
            shell.say(f"stopped: {error}")
            ctx.exit(shell.SOME_FAILED)


def _kept(store: object) -> str:
    place = f"all replies are in {store}; " if store else ""
    return f"{place}{shell.RESUME}"


def check_places(out: str, as_json: bool, *read: str) -> None:
    """Refuse an output that is one of the inputs, or that shares standard output with --json."""
    if as_json and out == "-":
        raise SettingsError("--json and -o - both use standard output; specify a file for -o, or remove one of them")
    refuse_input(out, *read)


def never_empty(items: Iterator[Item], report: BuildReport) -> Iterator[Item]:
    """The items. Raises `InputError` where there are none, so that no file is replaced by an empty one."""
    empty = True
    for item in items:
        empty = False
        yield item
    if empty:
        if report.faults:
            raise InputError(*report.faults)
        reasons = ", ".join(f"{n:,} {why}" for why, n in report.skipped.items()) or "the split is empty"
        raise InputError(f"no usable rows: {reasons}")


def report_rows(
    ctx: click.Context,
    report: BuildReport,
    selection: Selection,
    files: tuple[str, ...],
    out: str,
    what: str,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Print a summary of the rows, and exit."""
    for fault in report.faults[: shell.FAULTS_SHOWN] if not as_json else ():
        shell.say(f"error: {fault}")
    if not as_json and report.n_faults > shell.FAULTS_SHOWN:
        shell.say(f"error: and {report.n_faults - shell.FAULTS_SHOWN:,} more; --json lists them")
    if as_json:
        about: dict[str, Any] = {"input": list(files), "output": out}
        about["selection"] = {"limit": selection.limit, "seed": selection.seed, "split": selection.split}
        shell.print_json(about | report.to_dict() | {"faults": [shell.fault_dict(fault) for fault in report.faults]})
    elif not quiet:
        for reason, count in report.skipped.items():
            shell.echo(f"{shell.counted(count, 'row')} skipped: {reason}", err=True)
        for field, count in report.unknown.items():
            rows = shell.counted(count, "row")
            shell.echo(f"note: field {field} is not part of the format and is ignored ({rows})", err=True)
        if out != "-":
            rows = shell.counted(report.rows, "row")
            bad = f", {report.bad:,} left out" if report.bad else ""
            shell.echo(f"{shell.counted(report.cases, what)} in {out}, from {rows}{bad}")
    ctx.exit(shell.SOME_FAILED if report.bad else shell.OK)
