"""`fcjax critique`: from responses to what is false in them, what nobody could verify, and on what evidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fcjax.cli import shell
from fcjax.cli.evidence_options import (
    STAGES,
    Unread,
    check_outputs,
    critic_options,
    open_critic,
    refuse_corpus,
    resume_hint,
    searched,
)
from fcjax.cli.model_options import COUNT, OpenClient, client_options, open_client
from fcjax.cli.preview import show_outlook
from fcjax.cli.relate import client_report, counts, dollars
from fcjax.runs.observer import RunObserver

if TYPE_CHECKING:
    from fcjax.core.records import Case
    from fcjax.critic.critic import Critic, Critique
    from fcjax.io.retrievers.cached import SearchStats
    from fcjax.io.stats import Stats
    from fcjax.runs.critique_file import CritiqueReport
    from fcjax.runs.observer import Preview
    from fcjax.runs.preview import Choice
    from fcjax.scoring.rows import Row
    from fcjax.stages.pipeline import Stage

_EPILOG = """\b
Examples:
  fcjax critique responses.jsonl -o results.jsonl --corpus documents/ --base-url http://localhost:8000 --model NAME
  fcjax critique responses.jsonl -o results.jsonl --retriever wikipedia --model gpt-4o-mini --budget-dollars 5
  fcjax critique responses.jsonl --dry-run --corpus documents/ --model NAME       what it takes, as far as known
  fcjax critique responses.jsonl -o few.jsonl --sample 20 --seed 7 --corpus documents/ --model NAME
  fcjax critique results.cases.jsonl -o anew.jsonl --from-stage relate --style packed --model OTHER
  fcjax rescore results.jsonl -o release.jsonl --preset release                   the same, scored anew

A response needs a line such as {"id": "1", "query": "...", "response": "..."}; what a case has already (atoms,
contexts, relations) is used as it is. The key is in OPENAI_API_KEY. Stop at any moment and run the same command again:
what the stages have found is in OUT.stages until the run is complete, and every reply in the store, so that nothing is
asked twice. Exit codes: 0 all is well, 1 something failed or the budget is used up, 2 bad usage or nothing could be
read or asked, 130 interrupted."""


@click.command(epilog=_EPILOG)
@click.argument("source", metavar="IN", type=shell.INPUT)
@click.option("-o", "--output", "out", metavar="OUT", type=shell.OUTPUT, help="Where the results go, one a line.")
@click.option(
    "--cases",
    "cases_out",
    metavar="FILE",
    type=shell.OUTPUT,
    help="Where the cases go, with all that was found. [default: beside OUT, as in results.cases.jsonl]",
)
@critic_options
@client_options
@click.option("--limit", type=COUNT, metavar="N", help="The first N cases only.")
@click.option("--sample", type=COUNT, metavar="N", help="N cases drawn at random, of the first --limit ones.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="What --sample draws by.")
@click.option(
    "--from-stage",
    type=click.Choice(STAGES),
    help="Do this stage and all after it anew, whatever the cases have of them.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be done; send and write nothing.")
@click.option("--overwrite", is_flag=True, help="Begin anew, whatever an earlier run has left beside OUT.")
@shell.common_options
@click.pass_context
def critique(
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
    """Find out what responses claim, look for evidence, and say how probable each claim is.

    A response is taken apart into atoms, one fact each; these are made clear by themselves; evidence is looked for; a
    model says what each passage means for each atom; and inference makes probabilities of that. IN is a file of cases
    (.jsonl, .jsonl.gz, .json), or - for standard input. OUT gets a result a case, in the same order, with feedback on
    what is refuted or unverified; it is replaced when it is complete.
    """
    check_outputs(out, cases_out, dry_run=dry_run, as_json=as_json)
    also_read = [source, options["config"], options["priors"], *options["templates"].values()]
    refuse_corpus(options["corpus"], out, cases_out)
    from fcjax.cli.score import cases_of
    from fcjax.runs.preview import Choice

    source = cases_of(source)
    corpus = options["corpus"]
    evidence = {"retriever": options["retriever"] or ("local" if corpus else "given"), "corpus": corpus}
    choice = Choice(**{name: options.pop(name) for name in ("limit", "sample", "seed", "from_stage")})
    with open_client(options, dry_run=dry_run) as asking:
        unread = Unread()
        critic = open_critic(options, asking, dry_run=dry_run, unread=unread)
        about: dict[str, Any] = {"input": source, "output": out, "endpoint": asking.endpoint, "model": asking.model}
        about |= {"store": None if asking.store is None else str(asking.store), **evidence}
        about |= unread.to_dict()
        if dry_run:
            show_outlook(source, asking, critic, choice, about, quiet=quiet, as_json=as_json)
            return
        assert out is not None
        _run(
            ctx,
            source,
            out,
            asking,
            critic,
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
    critic: Critic,
    choice: Choice,
    about: dict[str, Any],
    *,
    cases_out: str | None,
    overwrite: bool,
    also_read: list[str | None],
    quiet: bool,
    as_json: bool,
) -> None:
    """Critique a file, and tell of it."""
    from fcjax.io.files.streams import refuse_input
    from fcjax.runs.critique_file import critique_file
    from fcjax.runs.file_run import cases_file
    from fcjax.runs.preview import settings_of

    cases: str | Path | None = cases_out or cases_file(out)
    for written in (out, cases):
        if written is not None:
            refuse_input(written, asking.store, *also_read)
    found = searched(critic)
    searches = None if found is None else found.stats
    watch = _Watch(asking.client.stats, searches, table=not (quiet or as_json), live=not quiet)
    settings = settings_of(critic, choice)
    with resume_hint(ctx, watch, out, asking):
        report = critique_file(source, out, critic, choice, cases_out=cases_out, overwrite=overwrite, observer=watch)
    stats = asking.client.stats
    if as_json:
        import fcjax

        about |= {"fcjax": fcjax.__version__, "cases": None if cases is None else str(cases)}
        about["settings"] = settings | {"scoring": critic.settings.resolved()}
        asked = {"client": client_report(stats), "searches": None if searches is None else _searches(searches)}
        shell.print_json(about | report.to_dict() | asked)
    elif not quiet:
        aside = "-" in (out, cases)  # the files have standard output for themselves
        watch.draw(report.summary.to_dict(), stderr=aside)
        for line in _told(report, stats, searches):
            click.echo(line, err=aside)
        if out != "-":
            told = "" if cases is None else f", the cases in {'standard output' if cases == '-' else cases}"
            click.echo(f"{shell.counted(len(report.summary), 'result')} in {out}{told}", err=aside)
    if watch.first_failure and not quiet:
        shell.say(f"warning: {_failures(report)}; the first: {watch.first_failure}")
    if watch.unclaiming and not watch.claiming and not quiet:
        responses = shell.counted(watch.unclaiming, "response")
        shell.say(f"warning: the model finds no claim in any of {responses}; ask another one")
    if report.summary.statuses.keys() == {"invalid_input"}:
        shell.say(f"error: {source}: not one case could be used")
        ctx.exit(shell.UNUSABLE)
    ctx.exit(shell.SOME_FAILED if report.n_failed else shell.OK)


class _Watch(RunObserver):
    """Looks on while a file is critiqued: moves the live table and gathers what the one at the end will show."""

    def __init__(self, asked: Stats, searches: SearchStats | None, *, table: bool, live: bool):
        self.begun = False
        self.cases = self.done = 0
        self.first_failure: str | None = None
        self.unclaiming = self.claiming = 0  # responses in which a model found no claim, and others
        self._ended = 0  # cases that will go through no stage more, done or not
        self._asked, self._searches, self._wants_live = asked, searches, live
        self._live: Any = None
        self._worst: Any = None
        self._doubtful: Any = None
        if table:
            from fcjax.cli.display import Worst
            from fcjax.cli.display_critique import Doubtful

            self._worst, self._doubtful = Worst(), Doubtful()

    def begins(self, found: Preview) -> None:
        self.begun, self.cases = True, found.cases
        if found.lacking:
            first, lack = next(iter(found.lacking.items()))
            cases = shell.counted(found.cases, "case")
            shell.say(f"warning: nothing can be done for {len(found.lacking):,} of {cases}; case {first + 1}: {lack}")
        if self._wants_live:
            from fcjax.cli.display_critique import CritiqueProgress

            self._live = CritiqueProgress(found, self._asked, self._searches)
        from fcjax.inference.engine import (
            use_persistent_cache,  # not before: faults of the input are told without an engine
        )

        use_persistent_cache()

    def stage(self, stage: Stage, case: Case, kept: bool) -> None:
        from fcjax.runs.checkpoint import has_failures

        failed = not kept and has_failures(stage, case)
        self._ended += not failed and (stage == "relate" or case.atoms == ())
        if self._live:
            self._live.stage(stage, kept, failed)

    def case(self, finished: Critique, kept: bool) -> None:
        critique = finished
        self.done += 1
        self.unclaiming += critique.status == "no_atoms" and _was_asked(critique.case)
        self.claiming += bool(critique.case.atoms)
        self.first_failure = self.first_failure or _failure(critique)
        if self._doubtful:
            self._doubtful.add(critique.case.id, critique.feedback)
        if self._live:
            from fcjax.scoring.summary import has_failed

            self._live.case(critique.precision, has_failed(critique.status))

    def row(self, row: Row, kept: bool) -> None:
        if self._worst:
            self._worst.add(row)

    def kept(self, out: str, asking: OpenClient) -> str:
        """What there is to go on from."""
        places = [] if out == "-" else [f"what the stages found is in {out}.stages"]
        places += [f"all replies are in {asking.store}"] if asking.store else []
        done = f"{max(self.done, self._ended):,} of {shell.counted(self.cases, 'case')} finished"
        return "; ".join([done, *places, "run the same command to go on"])

    def close(self) -> None:
        if self._live:
            self._live.close()
            self._live = None

    def draw(self, summary: dict[str, Any], stderr: bool) -> None:
        from fcjax.cli.display import draw_summary, show

        show(self._worst, self._doubtful, draw_summary(summary), stderr=stderr)


def _was_asked(case: Case) -> bool:
    """Whether it was a model that found no atoms in a response."""
    from fcjax.stages.traces import traces

    return bool(traces(case).get("atomize", {}).get("prompts"))


def _failure(critique: Critique) -> str | None:
    """The first thing that failed in a case; None where nothing did."""
    from fcjax.scoring.summary import has_failed

    case = critique.case
    for atom in case.atoms or ():
        if atom.status.failed:
            return f"case {case.id!r}, {atom.id}: {atom.extra.get('reason', atom.status)}"
    for relation in case.relations or ():
        if relation.status.failed:
            ends = f"{relation.source} to {relation.target}"
            return f"case {case.id!r}, {ends}: {relation.extra.get('reason', relation.status)}"
    return f"case {case.id!r}: {critique.status}: {critique.reason}" if has_failed(critique.status) else None


def _failures(report: CritiqueReport) -> str:
    """How much failed, for people."""
    parts = {"case": report.summary.n_failed}
    parts |= {name: report.failed[stage].total() for stage, name in _FAILING.items() if stage in report.failed}
    return ", ".join(shell.counted(count, what) for what, count in parts.items() if count) + " failed"


_FAILING = {"retrieve": "retrieval", "relate": "pair"}
_LEFT = {
    "revise": ("atom", "without a rewording that could be used: the words are those of the response"),
    "query": ("atom", "without a query that could be used: searched for by the atom's own words"),
    "summarise": ("context", "without a summary that could be used: the passage stands as it was"),
}


def _told(report: CritiqueReport, stats: Stats, searches: SearchStats | None) -> list[str]:
    """What the work came to, for people."""
    lines = []
    if report.relations:
        lines.append(f"{shell.counted(report.relations.total(), 'relation')}: {counts(report.relations)}")
    for stage, kinds in report.failed.items():
        lines.append(f"{kinds.total():,} failed in the stage {stage}: {counts(kinds)}")
    for stage, (what, left) in _LEFT.items():
        sums = report.stages.get(stage, Counter())
        if without := {kind: sums[kind] for kind in ("missing", "failed") if sums[kind]}:
            count, asked = sum(without.values()), sums["done"] + sums["irrelevant"] + sum(without.values())
            lines.append(f"{count:,} of {shell.counted(asked, what)} {left} ({counts(without)})")
    if removed := report.stages.get("summarise", Counter())["irrelevant"]:
        lines.append(f"{shell.counted(removed, 'context')} left out as irrelevant")
    if report.repeated:
        lines.append(f"{shell.counted(report.repeated, 'context')} repeat another one of their case")
    if report.resumed:
        lines.append(f"{shell.counted(report.resumed, 'stage')} of cases taken up from an earlier run")
    if searches is not None:
        stored = f", {searches.hits:,} of them answered from the store" if searches.hits else ""
        lines.append(f"{searches.answered:,} searches{stored}")
    lines.append(f"{stats.cache_hits:,} answers from the store, {shell.counted(stats.sent, 'call')}")
    if stats.seconds:
        lines[-1] += f", {stats.sent / stats.seconds:,.1f} a second, {stats.retries:,} of them repeated"
        tokens = f"{stats.prompt_tokens:,} tokens in and {stats.completion_tokens:,} out"
        lines.append(f"{tokens}; cost {dollars(stats.cost)}")
    if failed := stats.failed:
        lines.append(f"{shell.counted(failed.total(), 'prompt')} failed: {counts(failed)}")
    return lines


def _searches(stats: SearchStats) -> dict[str, Any]:
    return {**asdict(stats), "failed": dict(stats.failed)}
