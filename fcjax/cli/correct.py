"""`fcjax correct`: responses rewritten by what the critic finds, while that makes them better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from fcjax.cli import shell
from fcjax.cli.evidence_options import (
    check_outputs,
    critic_options,
    open_critic,
    refuse_corpus,
    resume_hint,
    searched,
)
from fcjax.cli.method_options import METHOD, correction_options, method_of, open_writer
from fcjax.cli.model_options import COUNT, OpenClient, client_options, open_client
from fcjax.cli.relate import client_report, counts, dollars
from fcjax.runs.observer import RunObserver

if TYPE_CHECKING:
    from fcjax.correction.method import Method
    from fcjax.correction.record import Round
    from fcjax.io.stats import Stats
    from fcjax.runs.correct_file import CorrectReport
    from fcjax.runs.observer import Preview
    from fcjax.runs.preview import Choice
    from fcjax.scoring.rows import Row

_SHOWN: Final = 25  # cases in the table at the end

_EPILOG = """\b
Examples:
  fcjax correct responses.jsonl -o corrected.jsonl --corpus documents/ --base-url http://localhost:8000 --model NAME
  fcjax correct responses.jsonl -o corrected.jsonl --retriever wikipedia --model NAME --theta 0.9 --rounds 3
  fcjax correct results.jsonl -o corrected.jsonl --model NAME        what `fcjax critique` found is not asked again
  fcjax correct responses.jsonl -o rac.jsonl --corrector rac --corpus documents/ --model NAME
  fcjax correct responses.jsonl -o corrected.jsonl --corpus documents/ --model SMALL --refiner-model LARGE

OUT gets a line a case: the best response, every round with its precision, a diff, what it cost. The cases with the best
responses go to OUT.corrected.jsonl, for `fcjax critique`. Stop at any moment and run the same command again: what is
finished is in OUT.journal until the run is complete, and every reply in the store, so that nothing is asked twice.
Exit codes: 0 all is well, 1 something failed or the budget is used up, 2 bad usage or nothing could be read or asked,
130 interrupted."""


@click.command(epilog=_EPILOG)
@click.argument("source", metavar="IN", type=shell.INPUT)
@click.option("-o", "--output", "out", metavar="OUT", type=shell.OUTPUT, help="Where the corrections go, one a line.")
@click.option(
    "--cases",
    "cases_out",
    metavar="FILE",
    type=shell.OUTPUT,
    help="Where the corrected cases go. [default: beside OUT, as in results.corrected.jsonl]",
)
@correction_options
@critic_options
@client_options
@click.option("--limit", type=COUNT, metavar="N", help="The first N cases only.")
@click.option("--sample", type=COUNT, metavar="N", help="N cases drawn at random, of the first --limit ones.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="What --sample draws by.")
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be done; send and write nothing.")
@click.option("--overwrite", is_flag=True, help="Begin anew, whatever an earlier run has left beside OUT.")
@shell.common_options
@click.pass_context
def correct(
    ctx: click.Context,
    /,
    source: str,
    out: str | None,
    cases_out: str | None,
    dry_run: bool,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Rewrite responses by what the critic finds in them, while that makes them better.

    Where the precision Pr of a response is below theta, a model rewrites it by the feedback: what is refuted, with the
    evidence, and what nobody could verify. The revision is evaluated as the response was, and kept if its Pr is higher
    and no guard refuses it; again, up to R rounds. IN is a file of cases, or the results of `fcjax critique`, whose
    findings are used; or - for standard input.
    """
    check_outputs(out, cases_out, dry_run=dry_run, as_json=as_json)
    also_read = [options[name] for name in ("config", "priors", "refiner_config", "refine_template")]
    also_read += options["templates"].values()
    refuse_corpus(options["corpus"], out, cases_out)
    from fcjax.cli.score import cases_of
    from fcjax.runs.preview import Choice

    source = cases_of(source)
    choice = Choice(**{name: options.pop(name) for name in ("limit", "sample", "seed")})
    refiner = {name: options.pop(f"refiner_{name}") for name in ("model", "base_url", "config", "price")}
    asked = {name: options[name] for name in ("base_url", "model", "concurrency", "tries", "timeout")}
    with open_client(options, dry_run=dry_run) as asking, open_writer(asking, refiner, asked) as writer:
        given = {name: options.pop(name) for name in METHOD}
        critic = open_critic(options, asking, dry_run=dry_run)
        method = method_of(given, critic, writer, open_cases=min(max(16, asking.window // 4), 4096))
        about: dict[str, Any] = {"input": source, "output": out, "corrector": method.name}
        about |= {"endpoint": asking.endpoint, "model": asking.model, "refiner": method.writer.model}
        about["store"] = None if asking.store is None else str(asking.store)
        if dry_run:
            _show_look(source, method, choice, about, quiet=quiet, as_json=as_json)
            return
        assert out is not None
        _run(
            ctx,
            source,
            out,
            asking,
            method,
            choice,
            about,
            cases_out=cases_out,
            overwrite=overwrite,
            also_read=also_read,
            quiet=quiet,
            as_json=as_json,
        )


def _run(
    ctx: click.Context,
    source: str,
    out: str,
    asking: OpenClient,
    method: Method,
    choice: Choice,
    about: dict[str, Any],
    *,
    cases_out: str | None,
    overwrite: bool,
    also_read: list[str | None],
    quiet: bool,
    as_json: bool,
) -> None:
    """Correct a file, and tell of it."""
    from fcjax.evaluation.comparison import MEASURES, Comparison
    from fcjax.io.files.streams import refuse_input
    from fcjax.runs.correct_file import all_settings, correct_file
    from fcjax.runs.file_run import cases_file

    cases = cases_out or cases_file(out, "corrected")
    for written in (out, cases):
        if written is not None:
            refuse_input(written, asking.store, *also_read)
    settings = all_settings(method, choice)
    stats = [client.stats for client in dict.fromkeys((asking.client, method.writer))]
    watch = _Watch(stats, live=not quiet)
    with resume_hint(ctx, watch, out, asking):
        report = correct_file(source, out, method, choice, cases_out=cases_out, overwrite=overwrite, observer=watch)
    compared = Comparison.of(report.before, report.after, MEASURES[:-1]) if _is_evaluated(report) else None  # no C here
    if as_json:
        import fcjax

        about |= {"fcjax": fcjax.__version__, "cases": None if cases is None else str(cases), "settings": settings}
        searches = searched(method.critic)
        asked: dict[str, Any] = {"client": client_report(stats[0])}
        asked["refiner_client"] = client_report(stats[1]) if len(stats) > 1 else None
        asked["searches"] = None if searches is None else searches.stats.answered
        gains = {"comparison": None if compared is None else compared.to_dict()}
        shell.print_json(about | report.to_dict() | gains | asked)
    elif not quiet:
        from fcjax.cli.display import show
        from fcjax.cli.display_correct import cases_table, changes, comparison_table, cost_line

        parts = [cases_table(watch.rows, len(report)), changes(watch.rows)]
        parts += [comparison_table(compared)] if compared else []
        show(*parts, stderr=out == "-")
        for line in (*_told(report, stats, bool(compared)), cost_line(report.cost, len(report))):
            click.echo(line, err=out == "-")
        if out != "-":
            click.echo(f"{shell.counted(len(report), 'correction')} in {out}, the corrected cases in {cases}")
    if watch.first_failure and not quiet:
        shell.say(f"warning: {shell.counted(report.n_failed, 'case')} failed; the first: {watch.first_failure}")
    if report.statuses.keys() == {"invalid_input"}:
        shell.say(f"error: {source}: not one case could be used")
        ctx.exit(shell.UNUSABLE)
    ctx.exit(shell.SOME_FAILED if report.n_failed else shell.OK)


def _is_evaluated(report: CorrectReport) -> bool:
    return any(row["measures"] is not None for row in report.before)


class _Watch(RunObserver):
    """Looks on while a file is corrected: moves the live lines and gathers what the table at the end will show."""

    def __init__(self, asked: list[Stats], *, live: bool):
        self.begun = False
        self.done = 0
        self.first_failure: str | None = None
        self.rows: list[dict[str, Any]] = []
        self._asked, self._wants_live = asked, live
        self._live: Any = None

    def begins(self, found: Preview) -> None:
        self.begun = True
        if found.lacking:
            first, lack = next(iter(found.lacking.items()))
            cases = shell.counted(found.cases, "case")
            shell.say(f"warning: nothing can be done for {len(found.lacking):,} of {cases}; case {first + 1}: {lack}")
        if self._wants_live:
            from fcjax.cli.display_correct import CorrectProgress

            self._live = CorrectProgress(found.cases, self._asked)
        from fcjax.inference.engine import (
            use_persistent_cache,  # not before: faults of the input are told without an engine
        )

        use_persistent_cache()

    def round(self, place: int, one: Round) -> None:
        if self._live:
            self._live.round()

    def case(self, finished: Row, kept: bool) -> None:
        row = finished
        from fcjax.runs.correct_file import sides
        from fcjax.scoring.summary import has_failed

        self.done += 1
        failed = has_failed(row["status"])
        if failed and self.first_failure is None:
            self.first_failure = f"case {row['id']!r}: {row['status']}: {row['reason']}"
        before, after = (None if side["measures"] is None else side["measures"]["precision"] for side in sides(row))
        if len(self.rows) < _SHOWN:
            line = {"id": row["id"], "before": before, "after": after, "failed": failed, "stop": row["stop"]}
            line |= {"rounds": len(row["trajectory"]) - 1, "prompts": row["cost"]["prompts"]}
            line |= {"changed": row["changed"], "response": row["response"], "best": row["best"]["response"]}
            self.rows.append(line)
        if self._live:
            self._live.case(kept, row["changed"], failed, before, after)

    def kept(self, out: str, asking: OpenClient) -> str:
        """What there is to go on from."""
        places = [] if out == "-" else [f"what is finished is in {out}.journal"]
        places += [f"all replies are in {asking.store}"] if asking.store else []
        done = shell.counted(self.done, "case")
        return "; ".join([f"{done} corrected", *places, "run the same command to go on"])

    def close(self) -> None:
        if self._live:
            self._live.close()
            self._live = None


def _told(report: CorrectReport, stats: list[Stats], evaluated: bool) -> list[str]:
    """What the work came to, for people."""
    k = "n // 2" if report.k == "release" else f"{report.k:g}"
    lines = [f"{shell.counted(len(report), 'case')}: {counts(report.statuses)}; {report.changed:,} changed; K = {k}"]
    lines.append(f"ended: {counts(report.stops)}")
    if not evaluated:
        lines.append("not evaluated: `fcjax critique` scores the corrected cases, `fcjax eval` compares methods")
    if report.resumed:
        lines.append(f"{shell.counted(report.resumed, 'case')} taken up from an earlier run")
    for one in stats:
        lines.append(f"{one.cache_hits:,} answers from the store, {shell.counted(one.sent, 'call')}")
        if one.seconds:
            tokens = f"{one.prompt_tokens:,} tokens in and {one.completion_tokens:,} out"
            lines[-1] += f", {one.retries:,} of them repeated; {tokens}; cost {dollars(one.cost)}"
        if one.failed:
            lines.append(f"{shell.counted(one.failed.total(), 'prompt')} failed: {counts(one.failed)}")
    return lines


def _show_look(
    source: str, method: Method, choice: Choice, about: dict[str, Any], *, quiet: bool, as_json: bool
) -> None:
    """Say what a run would do, as far as that is known before it."""
    from fcjax.io.files.spool import readable_twice
    from fcjax.runs.correct_file import all_settings, look

    with readable_twice(source) as path:
        found = look(path, method, choice)
    rounds = getattr(method, "rounds", 1)
    if as_json:
        known = {"n_cases": found.cases, "n_lacking": len(found.lacking), "planned": dict(found.planned)}
        settings = {"settings": all_settings(method, choice)}
        shell.print_json(about | settings | {"dry_run": True, **known, "rounds": rounds})
    elif not quiet:
        click.echo(f"{shell.counted(found.cases, 'case')}; {len(found.lacking):,} that nothing can be done for")
        for place, lack in list(found.lacking.items())[:3]:
            click.echo(f"  case {place + 1}: {lack}")
        if found.planned:
            planned = {str(stage): count for stage, count in found.planned.items()}
            click.echo(f"cases by the stages that the first evaluation takes: {counts(planned)}")
        click.echo(
            f"then at most {shell.counted(rounds, 'revision')} of each, by {method.name} with {method.writer.model}"
        )
