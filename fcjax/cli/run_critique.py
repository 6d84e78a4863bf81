"""How `fcjax critique` runs, and what it prints."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import fcjax
from fcjax.cli import shell
from fcjax.cli.batch_out import open_batch
from fcjax.cli.client import ModelAccess, is_configured, open_client
from fcjax.cli.critic import (
    CorpusFaults,
    check_outputs,
    open_critic,
    refuse_corpus,
    resume_hint,
    retriever_name,
    searches_of,
    warn_of_constraint,
)
from fcjax.cli.options.engine import with_option_names
from fcjax.cli.options.types import WEB
from fcjax.cli.preview import show_preview
from fcjax.cli.requirements import is_local, may_do_without, needs_endpoint
from fcjax.cli.run_score import cases_of
from fcjax.cli.summary import client_lines, client_report, counts, earlier_lines, failed_prompts, left_out_lines
from fcjax.core.errors import SettingsError
from fcjax.core.records import Case
from fcjax.critic.critic import Critique
from fcjax.inference.backend import use_persistent_cache
from fcjax.io.files.streams import refuse_input
from fcjax.io.retrievers.cached import SearchStats
from fcjax.io.stats import Stats
from fcjax.runs.checkpoint import has_failures
from fcjax.runs.critique_file import CritiqueReport, critique_file
from fcjax.runs.file_run import cases_file
from fcjax.runs.observer import Preview, RunObserver
from fcjax.runs.preview import Choice, settings_of
from fcjax.scoring.rows import Row
from fcjax.scoring.summary import has_failed
from fcjax.stages.pipeline import Stage
from fcjax.stages.traces import traces


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
    """Critique a file and print a summary, or what a run would send."""
    check_outputs(out, cases_out, dry_run=dry_run, as_json=as_json)
    also_read = [
        source,
        parameters["config"],
        parameters["priors"],
        parameters["calibration"],
        *parameters["templates"].values(),
    ]
    refuse_corpus(parameters["corpus"], out, cases_out)
    also_read.append(source if source != "-" else None)  # results, where the cases next to them are meant
    source = cases_of(source)
    evidence = {"retriever": retriever_name(parameters), "corpus": parameters["corpus"]}
    retrieved_only = options_of_retrieval(ctx)
    choice = Choice(**{name: parameters.pop(name) for name in ("limit", "sample", "seed", "from_stage")})
    local, reads = is_local(parameters), parameters["relation_model"] is not None
    asks = needs_endpoint(parameters, local_relations=local)
    if may_do_without(parameters):
        asks = asks and (is_configured(parameters) or parameters["batch_out"] is not None)
    web = evidence["retriever"] in WEB
    with (
        open_batch(parameters, dry_run=dry_run, quiet=quiet, as_json=as_json) as batch,
        open_client(parameters, dry_run=dry_run, asks=asks, stores=web or reads, batch=batch.collector) as access,
    ):
        faults = CorpusFaults()
        critic = open_critic(parameters, access, dry_run=dry_run, faults=faults)
        if critic.pipeline.may("relate") and not quiet:
            warn_of_constraint(access, critic.how.model)
        about: dict[str, Any] = {"input": source, "output": out, "endpoint": access.endpoint, "model": access.model}
        about |= {"store": None if access.store_path is None else str(access.store_path), **evidence}
        about |= faults.to_dict()
        if dry_run:
            show_preview(source, access, critic, choice, about, quiet=quiet, as_json=as_json)
            return
        assert out is not None
        cases: str | Path | None = cases_out or cases_file(out)
        for written in (out, cases):
            if written is not None:
                refuse_input(written, access.store_path, *also_read)
        found = searches_of(critic)
        searches = None if found is None else found.stats
        stats = access.stats
        monitor = CritiqueMonitor(
            stats,
            searches,
            retrieved_only,
            table=not (quiet or as_json),
            live=not quiet and batch.collector is None,
            warns=not quiet,
        )
        settings = settings_of(critic, choice)
        with batch.written(ctx, about), resume_hint(ctx, monitor, out, access):
            report = critique_file(
                source, out, critic, choice, cases_out=cases_out, overwrite=overwrite, observer=monitor
            )
    if as_json:
        about |= {"fcjax": fcjax.__version__, "cases": None if cases is None else str(cases)}
        about["settings"] = settings | {"scoring": critic.settings.resolved()}
        asked = {
            "client": client_report(stats) if asks else None,
            "searches": None if searches is None else _searches(searches),
        }
        shell.print_json(about | report.to_dict() | asked)
    elif not quiet:
        aside = "-" in (out, cases)  # standard output belongs to the file
        monitor.draw(report.summary.to_dict(), stderr=aside)
        for line in _summary(report, stats, searches, asks):
            shell.echo(line, err=aside)
        if out != "-":
            beside = "" if cases is None else f", the cases in {'standard output' if cases == '-' else cases}"
            shell.echo(f"{shell.counted(len(report.summary), 'result')} in {out}{beside}", err=aside)
    if not quiet:
        monitor.warn(report)
    if report.summary.statuses.keys() == {"invalid_input"}:
        shell.say(f"error: {source}: no cases could be read")
        ctx.exit(shell.UNUSABLE)
    ctx.exit(shell.SOME_FAILED if report.n_failed else shell.OK)


_RETRIEVAL = {"allow_domain": "--allow-domain", "deny_domain": "--deny-domain", "priors": "--priors"}


def options_of_retrieval(ctx: click.Context) -> tuple[str, ...]:
    """The options given that apply to retrieved contexts, not to those that a case already has."""
    return tuple(option for name, option in _RETRIEVAL.items() if ctx.params[name])


def check_retrieval(options: tuple[str, ...], found: Preview, warns: bool) -> None:
    """Raise `SettingsError` where no case retrieves contexts, so that `options` have no effect; warn where some do."""
    cases, retrieving = found.cases - len(found.lacking), found.planned["retrieve"]
    if not options or retrieving >= cases:
        return
    names = " and ".join(options)
    if not retrieving:
        raise SettingsError(
            f"{names} would have no effect: all cases already have contexts, which are used unchanged; "
            f"remove {names}, or the contexts of the cases"
        )
    if warns:
        kept = shell.counted(cases - retrieving, "case")
        shell.say(f"warning: {kept} of {cases:,} already have contexts, which {names} cannot affect")


class CritiqueMonitor(RunObserver):
    """Follows a run: moves the live table and gathers what the final tables show."""

    def __init__(
        self,
        asked: Stats,
        searches: SearchStats | None,
        retrieved_only: tuple[str, ...],
        *,
        table: bool,
        live: bool,
        warns: bool,
    ):
        self.begun = False
        self.cases = self.done = 0
        self.first_failure: str | None = None
        self._without_claims = self._with_claims = 0  # responses by whether the model found claims in them
        self._ended = 0  # cases that are through their last stage, finished or not
        self._asked, self._searches, self._wants_live = asked, searches, live
        self._retrieved_only, self._warns = retrieved_only, warns
        self._live: Any = None
        self._worst: Any = None
        self._findings: Any = None
        self._uncovered: Any = None
        if table:
            from fcjax.cli.display import UncoveredList, Worst  # loads rich, like every import from the displays
            from fcjax.cli.display_critique import FindingsList

            self._worst, self._findings, self._uncovered = Worst(), FindingsList(), UncoveredList()

    def begins(self, found: Preview) -> None:
        check_retrieval(self._retrieved_only, found, self._warns)
        self.begun, self.cases = True, found.cases
        warn_of_lacking(found)
        if self._wants_live:
            from fcjax.cli.display_critique import CritiqueProgress

            self._live = CritiqueProgress(found, self._asked, self._searches)
        use_persistent_cache()

    def stage(self, stage: Stage, case: Case, kept: bool) -> None:
        failed = not kept and has_failures(stage, case)
        self._ended += not failed and (stage == "relate" or case.atoms == ())
        if self._live:
            self._live.stage(stage, kept, failed)

    def case(self, finished: Critique, kept: bool) -> None:
        self.done += 1
        self._without_claims += finished.status == "no_atoms" and _was_asked(finished.case)
        self._with_claims += bool(finished.case.atoms)
        self.first_failure = self.first_failure or _failure(finished)
        if self._findings:
            self._findings.add(finished.case.id, finished.feedback)
        if self._live:
            self._live.case(finished.precision, has_failed(finished.status))

    def row(self, row: Row, kept: bool) -> None:
        if self._worst:
            self._worst.add(row)
            self._uncovered.add(row)

    def kept(self, out: str, access: ModelAccess) -> str:
        """What is finished and where it is kept."""
        places = [] if out == "-" else [f"finished stages are in {out}.stages"]
        places += [f"all replies are in {access.store_path}"] if access.store_path else []
        done = f"{max(self.done, self._ended):,} of {shell.counted(self.cases, 'case')} finished"
        return "; ".join([done, *places, shell.RESUME])

    def close(self) -> None:
        if self._live:
            self._live.close()
            self._live = None

    def draw(self, summary: dict[str, Any], stderr: bool) -> None:
        from fcjax.cli.display import draw_summary, show

        show(self._worst, self._findings, self._uncovered, draw_summary(summary), stderr=stderr)

    def warn(self, report: CritiqueReport) -> None:
        """Warn of failures, and of a model that finds no claims at all."""
        if self.first_failure:
            shell.say(f"warning: {_failures(report)}; the first: {self.first_failure}")
        if self._without_claims and not self._with_claims:
            responses = shell.counted(self._without_claims, "response")
            shell.say(f"warning: the model found no claims in {responses}; use another model")


def warn_of_lacking(found: Preview) -> None:
    """Warn of the cases that cannot be processed."""
    if found.lacking:
        first, lack = next(iter(found.lacking.items()))
        cases = shell.counted(found.cases, "case")
        shell.say(f"warning: {len(found.lacking):,} of {cases} cannot be processed; case {first + 1}: {lack}")


def _was_asked(case: Case) -> bool:
    """Whether a model was asked for the atoms of a response."""
    return bool(traces(case).get("atomize", {}).get("prompts"))


def _failure(critique: Critique) -> str | None:
    """The first thing that failed in a case; None where nothing did."""
    case = critique.case
    for atom in case.atoms or ():
        if atom.status.failed:
            return f"case {case.id!r}, {atom.id}: {atom.extra.get('reason', atom.status)}"
    for relation in case.relations or ():
        if relation.status.failed:
            ends = f"{relation.source} to {relation.target}"
            return f"case {case.id!r}, {ends}: {relation.extra.get('reason', relation.status)}"
    if not has_failed(critique.status):
        return None
    reason = with_option_names(str(critique.reason)) if critique.status == "too_wide" else critique.reason
    return f"case {case.id!r}: {critique.status}: {reason}"


def _failures(report: CritiqueReport) -> str:
    """How many cases, retrievals and pairs failed."""
    parts = {"case": report.summary.n_failed}
    parts |= {name: report.failed[stage].total() for stage, name in _FAILING.items() if stage in report.failed}
    return ", ".join(shell.counted(count, what) for what, count in parts.items() if count) + " failed"


_FAILING = {"retrieve": "retrieval", "relate": "pair"}
_UNCHANGED = {
    "revise": ("atom", "kept the wording of the response: no usable rewording"),
    "query": ("atom", "searched for by their own words: no usable query"),
    "summarise": ("context", "kept as retrieved: no usable summary"),
}


def _summary(report: CritiqueReport, stats: Stats, searches: SearchStats | None, asks: bool) -> list[str]:
    """Lines about a finished run."""
    lines = []
    if report.relations:
        lines.append(f"{shell.counted(report.relations.total(), 'relation')}: {counts(report.relations)}")
    lines += left_out_lines(report.not_asked, report.prompts, report.prompts_of_all)
    lines += earlier_lines(report.earlier)
    for stage, kinds in report.failed.items():
        lines.append(f"{kinds.total():,} failed in stage {stage}: {counts(kinds)}")
    for stage, (what, kept) in _UNCHANGED.items():
        sums = report.stages.get(stage, Counter())
        if without := {kind: sums[kind] for kind in ("missing", "failed") if sums[kind]}:
            count, asked = sum(without.values()), sums["done"] + sums["irrelevant"] + sum(without.values())
            lines.append(f"{count:,} of {shell.counted(asked, what)} {kept} ({counts(without)})")
    if again := report.stages.get("atomize", Counter())["asked_again"]:
        added = shell.counted(report.stages["atomize"]["added"], "atom")
        lines.append(f"{shell.counted(again, 'uncovered passage')} asked about again: {added} added")
    if removed := report.stages.get("summarise", Counter())["irrelevant"]:
        lines.append(f"{shell.counted(removed, 'context')} removed as irrelevant")
    if report.repeated:
        lines.append(f"{shell.counted(report.repeated, 'context')} repeat the text of another in the same case")
    if report.resumed:
        lines.append(f"{shell.counted(report.resumed, 'stage')} of cases resumed from an earlier run")
    if searches is not None:
        stored = f", {searches.hits:,} answered from the store" if searches.hits else ""
        lines.append(f"{searches.answered:,} searches{stored}")
    return [*lines, *(client_lines(stats) if asks else ()), *failed_prompts(stats)]


def _searches(stats: SearchStats) -> dict[str, Any]:
    return {**asdict(stats), "failed": dict(stats.failed)}
