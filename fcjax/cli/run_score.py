"""How `fcjax score` and `fcjax rescore` run, and what they print."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any, Final

import click

import fcjax
from fcjax.cli import shell
from fcjax.cli.options.engine import inference_limits
from fcjax.core.errors import InputError, OutputError, SettingsError
from fcjax.inference.backend import use_persistent_cache
from fcjax.io.files import detect, read_cases
from fcjax.runs.file_run import cases_file
from fcjax.runs.observer import Preview, RunObserver
from fcjax.runs.score_file import score
from fcjax.scoring.rows import Row
from fcjax.scoring.settings import Settings
from fcjax.stages.traces import related

_LOOK: Final = 1000  # cases that are searched for the graph they were related for


def cases_of(source: str) -> str:
    """The file of cases: `source`, or the one next to it where `source` is a file of results. Raises `InputError`."""
    if source == "-" or detect(source) != "results":
        return source

    beside = cases_file(source)
    if beside is None or not beside.is_file():
        raise InputError(
            f"{source}: contains results, but {beside} with their cases does not exist; specify the cases file"
        )
    return str(beside)


def graph_of(cases: str) -> str | None:
    """The graph version that cases were related for; None where none of the first cases says so."""
    rows = islice(read_cases(cases), _LOOK) if cases != "-" else ()
    versions = ((related(row.case) or {}).get("version") for row in rows if row.case is not None)
    return next((version for version in versions if version in ("FR1", "FR2", "FR3")), None)


def run(
    ctx: click.Context,
    source: str,
    out: str | None,
    *,
    limit: int | None,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    feedback: bool,
    **parameters: Any,
) -> None:
    """Score a file and print a summary."""
    if as_json and out == "-":
        raise SettingsError("--json and -o - both use standard output; specify a file for -o, or remove one of them")
    settings = Settings(limits=inference_limits(parameters), **parameters)
    to_file = out is not None and out != "-"
    monitor = ScoreMonitor(bar=not quiet, table=not (quiet or as_json))
    try:
        summary = score(source, out, settings, overwrite=overwrite, limit=limit, observer=monitor, feedback=feedback)
    except KeyboardInterrupt:
        done = shell.counted(monitor.done, "finished case")
        kept = f"; {done} kept; {shell.RESUME}" if to_file else ""
        raise KeyboardInterrupt(f"stopped{kept}") from None
    except OutputError as error:
        kept = f"; {shell.counted(monitor.done, 'finished case')} kept" if monitor.done else ""
        raise OutputError(f"{error}{kept}") from error
    finally:
        monitor.close()
    if as_json:
        about = {"fcjax": fcjax.__version__, "input": source, "output": out, "settings": settings.resolved()}
        shell.print_json(about | summary.to_dict())
    elif not quiet:
        monitor.draw(summary.to_dict(), stderr=out == "-")
        if to_file:
            new = monitor.done - monitor.kept
            kept = f": {monitor.kept:,} kept from an earlier run, {new:,} new" if monitor.kept else ""
            shell.echo(f"{shell.counted(monitor.done, 'result')} in {out}{kept}")
    if summary.statuses.keys() == {"invalid_input"}:
        shell.say(f"error: {source}: no cases could be read; the first error: {monitor.first_reason}")
        ctx.exit(shell.UNUSABLE)
    ctx.exit(shell.SOME_FAILED if summary.n_failed else shell.OK)


class ScoreMonitor(RunObserver):
    """Follows a run: moves the progress bar and gathers the rows of the table."""

    def __init__(self, bar: bool, table: bool):
        self.done = self.kept = 0
        self.first_reason: str | None = None
        self._wants_bar = bar and sys.stderr.isatty()
        self._bar: Any = None
        self._worst: Any = None
        self._uncovered: Any = None
        if table:
            from fcjax.cli.display import UncoveredList, Worst  # loads rich, like every import from the displays

            self._worst, self._uncovered = Worst(), UncoveredList()

    def begins(self, found: Preview) -> None:
        if found.lacking:
            first, lack = next(iter(found.lacking.items()))
            count = shell.counted(found.cases, "case")
            shell.say(f"warning: {len(found.lacking):,} of {count} cannot be scored; case {first + 1}: {lack}")
        if self._wants_bar:
            from fcjax.cli.display import Bar

            self._bar = Bar(found.cases)
        use_persistent_cache()

    def row(self, row: Row, kept: bool) -> None:
        self.done += 1
        self.kept += kept
        self.first_reason = self.first_reason or row["reason"]
        if self._bar:
            self._bar.advance(kept)
        if self._worst:
            self._worst.add(row)
            self._uncovered.add(row)

    def close(self) -> None:
        if self._bar:
            self._bar.close()

    def draw(self, summary: dict[str, Any], stderr: bool) -> None:
        from fcjax.cli.display import draw_summary, show

        show(self._worst, self._uncovered, draw_summary(summary), stderr=stderr)
