"""How `fcjax relate` runs, and what it prints."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from fcjax.cli import shell
from fcjax.cli.batch_out import open_batch
from fcjax.cli.client import ModelAccess, open_client
from fcjax.cli.critic import relation_config, warn_of_constraint
from fcjax.cli.requirements import is_local
from fcjax.cli.summary import (
    client_lines,
    client_report,
    counts,
    dollars,
    earlier_lines,
    experience_line,
    left_out_lines,
)
from fcjax.core.errors import SettingsError
from fcjax.core.records import Case
from fcjax.critic.relation_config import RelationConfig, RelationCounts
from fcjax.io.files.streams import refuse_input
from fcjax.io.stats import CostEstimate, Stats
from fcjax.runs.observer import Preview, RunObserver
from fcjax.runs.relate_file import estimate_file, relate_file


def run(
    ctx: click.Context,
    *,
    source: str,
    out: str | None,
    dry_run: bool,
    limit: int | None,
    quiet: bool,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Relate a file and print a summary."""
    if out is None and not dry_run:
        raise SettingsError("no output file given; add -o OUT, or use --dry-run to see what a run would send")
    if as_json and out == "-":
        raise SettingsError("--json and -o - both use standard output; specify a file for -o, or remove one of them")
    also_read = parameters["template"], parameters["config"], parameters["calibration"]
    local, reads = is_local(parameters), parameters["relation_model"] is not None
    with (
        open_batch(parameters, dry_run=dry_run, quiet=quiet, as_json=as_json) as batch,
        open_client(parameters, dry_run=dry_run, asks=not local, stores=reads, batch=batch.collector) as access,
    ):
        config = relation_config(parameters, access, parameters.pop("template"))
        if not quiet:
            warn_of_constraint(access, config.model)
        store = None if access.store_path is None else str(access.store_path)
        about: dict[str, Any] = {"input": source, "output": out, "endpoint": access.endpoint, "model": access.model}
        about |= {"store": store, "settings": _settings(config)}
        if dry_run:
            _show_estimate(source, access, config, about, limit=limit, quiet=quiet, as_json=as_json)
            return
        assert out is not None
        refuse_input(out, access.store_path, *also_read)
        monitor = RelateMonitor(bar=not quiet)
        try:
            with batch.written(ctx, about), shell.stopped(ctx, lambda: _kept(access, monitor)):
                totals = relate_file(
                    source, out, access.client_or_none, config, window=access.window, limit=limit, observer=monitor
                )
        finally:
            monitor.close()
    stats = access.stats
    if as_json:
        shell.print_json(about | totals.to_dict() | {"client": client_report(stats)})
    elif not quiet:
        for line in _summary(totals, stats):
            shell.echo(line, err=out == "-")
        if out != "-":
            shell.echo(f"{shell.counted(totals.cases.total(), 'case')} in {out}")
    if monitor.first_failure and not quiet:
        shell.say(f"warning: {shell.counted(totals.n_failed, 'pair')} failed; the first: {monitor.first_failure}")
    failed = totals.n_failed or any(status != "ok" for status in totals.cases)
    ctx.exit(shell.SOME_FAILED if failed else shell.OK)


def _settings(config: RelationConfig) -> dict[str, Any]:
    """The settings as JSON; templates by their names, a calibration by its digest."""
    calibration = config.model.calibration
    names = {} if calibration is None else {"calibration": calibration.digest}
    return {"version": config.version, "screen": config.screen, **config.asking(), **config.model.settings(), **names}


class RelateMonitor(RunObserver):
    """Follows a run: moves the progress bar and keeps the first failure."""

    def __init__(self, bar: bool):
        self.done = 0
        self.first_failure: str | None = None
        self._wants_bar = bar and sys.stderr.isatty()
        self._bar: Any = None

    def begins(self, found: Preview) -> None:
        if found.lacking:
            place, lack = next(iter(found.lacking.items()))
            cases = shell.counted(found.cases, "case")
            shell.say(f"warning: {len(found.lacking):,} of {cases} cannot be processed; case {place + 1}: {lack}")
        if self._wants_bar:
            from fcjax.cli.display import Bar  # loads rich

            self._bar = Bar(found.pairs, doing="relating", unit="pairs")

    def pairs(self, count: int) -> None:
        if self._bar:
            self._bar.advance(by=count)

    def case(self, finished: Case, kept: bool) -> None:
        self.done += 1
        for relation in finished.relations or () if self.first_failure is None else ():
            if relation.status.failed:
                ends = f"case {finished.id!r}, {relation.source} to {relation.target}"
                self.first_failure = f"{ends}: {relation.extra.get('reason', relation.status)}"
                break

    def close(self) -> None:
        if self._bar:
            self._bar.close()


def _kept(access: ModelAccess, monitor: RelateMonitor) -> str:
    place = f"all replies are in {access.store_path}; " if access.store_path else ""
    return f"{shell.counted(monitor.done, 'case')} complete; {place}{shell.RESUME}"


def _summary(totals: RelationCounts, stats: Stats) -> list[str]:
    """Lines about a finished run."""
    lines = [f"{shell.counted(totals.cases.total(), 'case')}: {counts(totals.cases)}"]
    lines.append(f"{shell.counted(totals.pairs, 'pair')} asked about: {counts(totals.types) or 'no answers'}")
    if totals.n_failed:
        lines[-1] += f"; {totals.n_failed:,} failed ({counts(totals.failed)})"
    if totals.methods:
        lines.append(f"probabilities from {counts(totals.methods)}")
    more = {"existing relations kept": totals.given, "pairs skipped by --screen": totals.screened}
    more |= {f"atoms or contexts skipped: {why}": count for why, count in totals.skipped.items()}
    if line := ", ".join(f"{count:,} {what}" for what, count in more.items() if count):
        lines.append(line)
    lines += left_out_lines(totals.not_asked, totals.prompts, totals.prompts_of_all)
    return [*lines, *earlier_lines(totals.earlier), *(client_lines(stats) if stats.asked else ())]


def _show_estimate(
    source: str,
    access: ModelAccess,
    config: RelationConfig,
    about: dict[str, Any],
    *,
    limit: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    client, count = access.client_or_none, access.count_tokens
    found: CostEstimate = estimate_file(source, client, config, limit=limit, count_tokens=count)
    if as_json:
        more = {} if config.expected(0) is None else {"by_experience": config.expected(found.prompts)}
        shell.print_json(about | {"dry_run": True, **asdict(found), "to_send": found.to_send, **more})
    elif not quiet:
        shell.echo(
            f"{shell.counted(found.prompts, 'prompt')}, {found.distinct:,} different, {found.stored:,} in the store: "
            f"{found.to_send:,} to send\n"
            f"about {found.prompt_tokens:,} input and at most {found.completion_tokens:,} output tokens; "
            f"cost at most {dollars(found.cost)}"
        )
        if line := experience_line(config, found.prompts):
            shell.echo(line)
        if votes := config.model.settings().get("votes"):
            shell.echo(f"plus {votes} prompts for each reply without logprobs")
