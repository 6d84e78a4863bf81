"""`fcjax score` and `fcjax rescore`: cases with relations in, results out."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from fcjax.cli import shell
from fcjax.cli.model_options import COUNT
from fcjax.core.errors import InputError, OutputError, SettingsError
from fcjax.runs.observer import RunObserver

if TYPE_CHECKING:
    from fcjax.runs.observer import Preview
    from fcjax.scoring.rows import Row

_SCORE_EPILOG = """\b
Examples:
  fcjax score cases.jsonl -o results.jsonl
  fcjax score cases.jsonl.gz -o results.jsonl.gz --preset release --version FR2
  zcat cases.jsonl.gz | fcjax score - -o - --k 12 | jq .measures.precision
  fcjax score cases.jsonl --json | jq .means.precision

Stop it at any moment and run the same command again: finished cases are kept, and the file ends up the same. Exit
codes: 0 every case has its values, 1 some cases failed, 2 bad usage or nothing could be read, 130 interrupted."""

_RESCORE_EPILOG = """\b
Examples:
  fcjax rescore results.cases.jsonl -o again.jsonl --preset release
  fcjax rescore results.jsonl -o doubtful.jsonl --context-prior 0.7      finds the cases beside results.jsonl
  fcjax rescore results.jsonl -o parity.jsonl --version FR1 --method wmb

With the settings of `fcjax critique` the results are its own, byte for byte. Stop it at any moment and run the same
command again: finished cases are kept. Exit codes: 0 every case has its values, 1 some cases failed, 2 bad usage or
nothing could be read, 130 interrupted."""

_LOOK = 1000  # cases that are searched for the version they were related for


@click.command(epilog=_SCORE_EPILOG)
@click.argument("source", metavar="IN", type=shell.INPUT)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    type=shell.OUTPUT,
    help="Write a result a line to OUT; - is standard output.",
)
@shell.graph_options
@shell.k_option
@shell.engine_options
@click.option("--limit", type=COUNT, metavar="N", help="Score the first N cases only.")
@click.option("--overwrite", is_flag=True, help="Start OUT from nothing, whatever it holds.")
@shell.common_options
@click.pass_context
def score(ctx: click.Context, /, source: str, out: str | None, **options: Any) -> None:
    """Score cases that carry relations.

    Every atom gets its posterior probability and label, and every case its measures. IN is a file of cases (.jsonl,
    .jsonl.gz, .json), a FactReasoner problem or fact graph, or - for standard input. OUT gets one JSON line a case
    (.jsonl, .jsonl.gz) or a list of them (.json). Without it only tables are printed.
    """
    _run(ctx, source, out, feedback=False, **options)


@click.command(epilog=_RESCORE_EPILOG)
@click.argument("source", metavar="IN", type=shell.INPUT)
@click.option(
    "-o", "--output", "out", metavar="OUT", type=shell.OUTPUT, required=True, help="Write a result a line to OUT."
)
@shell.number_options
@click.option(
    "--version",
    type=click.Choice(["FR1", "FR2", "FR3"]),
    help="Relations that count; no more than were asked for. [default: the version that the cases were related for]",
)
@shell.k_option
@shell.engine_options
@click.option("--limit", type=COUNT, metavar="N", help="The first N cases only.")
@click.option("--overwrite", is_flag=True, help="Start OUT from nothing, whatever it holds.")
@shell.common_options
@click.pass_context
def rescore(ctx: click.Context, /, source: str, out: str, **options: Any) -> None:
    """Score again what `fcjax critique` has found, with other priors, another encoding, version or method.

    Nothing is asked. IN is the file of cases that it wrote (results.cases.jsonl), or its results, with the cases beside
    them. OUT gets one JSON line a case, with feedback.
    """
    cases = cases_of(source)
    related, version = _version_of(cases), options["version"]
    if related and version and version > related and not options["quiet"]:
        shell.say(
            f"warning: {cases}: its cases were related for {related}, so that what {version} counts beside that is not "
            f"there; `fcjax critique {cases} --version {version}` asks about it"
        )
    options["version"] = version or related or "FR2"
    _run(ctx, cases, out, feedback=True, **options)


def cases_of(source: str) -> str:
    """The file of cases that is meant: the one beside it, where a file of results is named. Raises `InputError`."""
    from fcjax.io.files import detect
    from fcjax.runs.file_run import cases_file

    if source == "-" or detect(source) != "results":
        return source
    beside = cases_file(source)
    if beside is None or not beside.is_file():
        raise InputError(f"{source}: holds results, and the cases that they are of are not in {beside}; name these")
    return str(beside)


def _version_of(cases: str) -> str | None:
    """The version that cases were related for; None where none of the first says so."""
    from fcjax.io.files import read_cases
    from fcjax.stages.traces import related

    rows = islice(read_cases(cases), _LOOK) if cases != "-" else ()
    versions = ((related(row.case) or {}).get("version") for row in rows if row.case is not None)
    return next((version for version in versions if version in ("FR1", "FR2", "FR3")), None)


def _run(
    ctx: click.Context,
    source: str,
    out: str | None,
    *,
    limit: int | None,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    feedback: bool,
    **options: Any,
) -> None:
    """Score a file, and tell of it."""
    if as_json and out == "-":
        raise SettingsError("--json and -o - both want standard output; give -o a file, or leave one of them out")
    from fcjax.runs.score_file import score as run
    from fcjax.scoring.settings import Settings

    settings = Settings(limits=shell.inference_limits(options), **options)
    to_file = out is not None and out != "-"
    watch = _Watch(bar=not quiet, table=not (quiet or as_json))
    try:
        summary = run(source, out, settings, overwrite=overwrite, limit=limit, observer=watch, feedback=feedback)
    except KeyboardInterrupt:
        done = shell.counted(watch.done, "finished case")
        kept = f"; {done} kept; run the same command to go on" if to_file else ""
        raise KeyboardInterrupt(f"stopped{kept}") from None
    except OutputError as error:
        kept = f"; {shell.counted(watch.done, 'finished case')} kept" if watch.done else ""
        raise OutputError(f"{error}{kept}") from error
    finally:
        watch.close()
    if as_json:
        import fcjax

        about = {"fcjax": fcjax.__version__, "input": source, "output": out, "settings": settings.resolved()}
        shell.print_json(about | summary.to_dict())
    elif not quiet:
        watch.draw(summary.to_dict(), stderr=out == "-")
        if to_file:
            kept = f": {watch.kept:,} kept, {watch.done - watch.kept:,} new" if watch.kept else ""
            click.echo(f"{shell.counted(watch.done, 'result')} in {out}{kept}")
    if summary.statuses.keys() == {"invalid_input"}:
        shell.say(f"error: {source}: not one case could be used; the first: {watch.first_reason}")
        ctx.exit(shell.UNUSABLE)
    ctx.exit(shell.SOME_FAILED if summary.n_failed else shell.OK)


class _Watch(RunObserver):
    """Looks on while a file is scored: moves the bar and gathers what the table will show."""

    def __init__(self, bar: bool, table: bool):
        self.done = self.kept = 0
        self.first_reason: str | None = None
        self._wants_bar = bar and sys.stderr.isatty()
        self._bar: Any = None
        self._worst: Any = None
        if table:
            from fcjax.cli.display import Worst

            self._worst = Worst()

    def begins(self, found: Preview) -> None:
        if found.lacking:
            first, lack = next(iter(found.lacking.items()))
            count = shell.counted(found.cases, "case")
            shell.say(f"warning: {len(found.lacking):,} of {count} cannot be scored; case {first + 1}: {lack}")
        if self._wants_bar:
            from fcjax.cli.display import Bar

            self._bar = Bar(found.cases)
        from fcjax.inference.engine import (
            use_persistent_cache,  # not before: faults of the input are told without an engine
        )

        use_persistent_cache()

    def row(self, row: Row, kept: bool) -> None:
        self.done += 1
        self.kept += kept
        self.first_reason = self.first_reason or row["reason"]
        if self._bar:
            self._bar.advance(kept)
        if self._worst:
            self._worst.add(row)

    def close(self) -> None:
        if self._bar:
            self._bar.close()

    def draw(self, summary: dict[str, Any], stderr: bool) -> None:
        from fcjax.cli.display import draw_summary, show

        show(self._worst, draw_summary(summary), stderr=stderr)
