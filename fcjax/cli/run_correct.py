"""How `fcjax correct` runs, and what it prints."""

from __future__ import annotations

from typing import Any, Final

import click

import fcjax
from fcjax.cli import shell
from fcjax.cli.batch_out import open_batch
from fcjax.cli.client import ModelAccess, open_client
from fcjax.cli.corrector import method_of, open_refiner
from fcjax.cli.critic import (
    check_outputs,
    open_critic,
    refuse_corpus,
    resume_hint,
    searches_of,
    warn_of_constraint,
)
from fcjax.cli.options.correction import METHOD
from fcjax.cli.options.engine import with_option_names
from fcjax.cli.preview import show_cases
from fcjax.cli.run_critique import warn_of_lacking
from fcjax.cli.run_score import cases_of
from fcjax.cli.summary import client_lines, client_report, counts, failed_prompts
from fcjax.correction.method import Method
from fcjax.correction.record import Round
from fcjax.evaluation.comparison import MEASURES, Comparison
from fcjax.inference.backend import use_persistent_cache
from fcjax.io.files.spool import readable_twice
from fcjax.io.files.streams import refuse_input
from fcjax.io.stats import Stats
from fcjax.runs.correct_file import CorrectReport, all_settings, correct_file, look, sides
from fcjax.runs.file_run import cases_file
from fcjax.runs.observer import Preview, RunObserver
from fcjax.runs.preview import Choice
from fcjax.scoring.rows import Row
from fcjax.scoring.summary import has_failed

_SHOWN: Final = 25  # cases in the table


def run(
    ctx: click.Context,
    *,
    source: str,
    out: str | None,
    cases_out: str | None,
    dry_run: bool,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Correct a file and print a summary, or what a run would do."""
    check_outputs(out, cases_out, dry_run=dry_run, as_json=as_json)
    also_read = [parameters[name] for name in ("config", "priors", "calibration", "refiner_config", "refine_template")]
    also_read += parameters["templates"].values()
    refuse_corpus(parameters["corpus"], out, cases_out)
    also_read.append(source if source != "-" else None)  # results, where the cases next to them are meant
    source = cases_of(source)
    choice = Choice(**{name: parameters.pop(name) for name in ("limit", "sample", "seed")})
    refiner = {name: parameters.pop(f"refiner_{name}") for name in ("model", "base_url", "config", "price")}
    critic_access = {name: parameters[name] for name in ("base_url", "model", "concurrency", "tries", "timeout")}
    with (
        open_batch(parameters, dry_run=dry_run, quiet=quiet, as_json=as_json) as batch,
        open_client(parameters, dry_run=dry_run, batch=batch.collector) as access,
        open_refiner(access, refiner, critic_access) as refiner_client,
    ):
        given = {name: parameters.pop(name) for name in METHOD}
        critic = open_critic(parameters, access, dry_run=dry_run)
        method = method_of(given, critic, refiner_client, open_cases=min(max(16, access.window // 4), 4096))
        if method.name == "factcorrector" and not quiet:  # the others ask for no relations
            warn_of_constraint(access, critic.how.model)
        about: dict[str, Any] = {"input": source, "output": out, "corrector": method.name}
        about |= {"endpoint": access.endpoint, "model": access.model, "refiner": method.writer.model}
        about["store"] = None if access.store_path is None else str(access.store_path)
        if dry_run:
            _show_preview(source, method, choice, about, quiet=quiet, as_json=as_json)
            return
        assert out is not None
        cases = cases_out or cases_file(out, "corrected")
        for written in (out, cases):
            if written is not None:
                refuse_input(written, access.store_path, *also_read)
        settings = all_settings(method, choice)
        stats = [client.stats for client in dict.fromkeys((access.client, method.writer))]
        monitor = CorrectMonitor(stats, live=not quiet and batch.collector is None)
        with batch.written(ctx, about), resume_hint(ctx, monitor, out, access):
            report = correct_file(
                source, out, method, choice, cases_out=cases_out, overwrite=overwrite, observer=monitor
            )
    compared = None
    if any(row["measures"] is not None for row in report.before):
        compared = Comparison.of(report.before, report.after, MEASURES[:-1])  # comprehensiveness needs two critics
    if as_json:
        about |= {"fcjax": fcjax.__version__, "cases": None if cases is None else str(cases), "settings": settings}
        searches = searches_of(method.critic)
        asked: dict[str, Any] = {"client": client_report(stats[0])}
        asked["refiner_client"] = client_report(stats[1]) if len(stats) > 1 else None
        asked["searches"] = None if searches is None else searches.stats.answered
        gains = {"comparison": None if compared is None else compared.to_dict()}
        shell.print_json(about | report.to_dict() | gains | asked)
    elif not quiet:
        from fcjax.cli.display import show  # loads rich, like every import from the displays
        from fcjax.cli.display_correct import cases_table, changes, comparison_table, cost_line

        parts = [cases_table(monitor.rows, len(report)), changes(monitor.rows)]
        parts += [comparison_table(compared)] if compared else []
        show(*parts, stderr=out == "-")
        for line in (*_summary(report, stats, bool(compared)), cost_line(report.cost, len(report))):
            shell.echo(line, err=out == "-")
        if out != "-":
            shell.echo(f"{shell.counted(len(report), 'correction')} in {out}, the corrected cases in {cases}")
    if monitor.first_failure and not quiet:
        shell.say(f"warning: {shell.counted(report.n_failed, 'case')} failed; the first: {monitor.first_failure}")
    if report.statuses.keys() == {"invalid_input"}:
        shell.say(f"error: {source}: no cases could be read")
        ctx.exit(shell.UNUSABLE)
    ctx.exit(shell.SOME_FAILED if report.n_failed else shell.OK)


class CorrectMonitor(RunObserver):
    """Follows a run: moves the live lines and gathers the rows of the table."""

    def __init__(self, asked: list[Stats], *, live: bool):
        self.begun = False
        self.done = 0
        self.first_failure: str | None = None
        self.rows: list[dict[str, Any]] = []
        self._asked, self._wants_live = asked, live
        self._live: Any = None

    def begins(self, found: Preview) -> None:
        self.begun = True
        warn_of_lacking(found)
        if self._wants_live:
            from fcjax.cli.display_correct import CorrectProgress  # loads rich

            self._live = CorrectProgress(found.cases, self._asked)
        use_persistent_cache()

    def round(self, place: int, one: Round) -> None:
        if self._live:
            self._live.round()

    def case(self, finished: Row, kept: bool) -> None:
        self.done += 1
        failed = has_failed(finished["status"])
        if failed and self.first_failure is None:
            reason = with_option_names(finished["reason"]) if finished["status"] == "too_wide" else finished["reason"]
            self.first_failure = f"case {finished['id']!r}: {finished['status']}: {reason}"
        before, after = (
            None if side["measures"] is None else side["measures"]["precision"] for side in sides(finished)
        )
        if len(self.rows) < _SHOWN:
            line = {"id": finished["id"], "before": before, "after": after, "failed": failed, "stop": finished["stop"]}
            line |= {"rounds": len(finished["trajectory"]) - 1, "prompts": finished["cost"]["prompts"]}
            line |= {
                "changed": finished["changed"],
                "response": finished["response"],
                "best": finished["best"]["response"],
            }
            self.rows.append(line)
        if self._live:
            self._live.case(kept, finished["changed"], failed, before, after)

    def kept(self, out: str, access: ModelAccess) -> str:
        """What is finished and where it is kept."""
        places = [] if out == "-" else [f"finished cases are in {out}.journal"]
        places += [f"all replies are in {access.store_path}"] if access.store_path else []
        return "; ".join([f"{shell.counted(self.done, 'case')} corrected", *places, shell.RESUME])

    def close(self) -> None:
        if self._live:
            self._live.close()
            self._live = None


def _summary(report: CorrectReport, stats: list[Stats], evaluated: bool) -> list[str]:
    """Lines about a finished run."""
    k = "n // 2" if report.k == "release" else f"{report.k:g}"
    lines = [f"{shell.counted(len(report), 'case')}: {counts(report.statuses)}; {report.changed:,} changed; K = {k}"]
    lines.append(f"reasons for stopping: {counts(report.stops)}")
    if not evaluated:
        lines.append("not evaluated: `fcjax critique` scores the corrected cases, `fcjax eval` compares methods")
    if report.resumed:
        lines.append(f"{shell.counted(report.resumed, 'case')} resumed from an earlier run")
    for one in stats:
        lines += [*client_lines(one), *failed_prompts(one)]
    return lines


def _show_preview(
    source: str, method: Method, choice: Choice, about: dict[str, Any], *, quiet: bool, as_json: bool
) -> None:
    """Print what a run would do."""
    with readable_twice(source) as path:
        found = look(path, method, choice)
    rounds = getattr(method, "rounds", 1)
    if as_json:
        known = {"n_cases": found.cases, "n_lacking": len(found.lacking), "planned": dict(found.planned)}
        settings = {"settings": all_settings(method, choice)}
        shell.print_json(about | settings | {"dry_run": True, **known, "rounds": rounds})
    elif not quiet:
        show_cases(found.cases, found.lacking)
        if found.planned:
            planned = {str(stage): count for stage, count in found.planned.items()}
            shell.echo(f"cases per stage of the first evaluation: {counts(planned)}")
        shell.echo(
            f"then at most {shell.counted(rounds, 'revision')} per case, by {method.name} with {method.writer.model}"
        )
