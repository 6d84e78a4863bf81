"""`fcjax relate`: relations for cases that have atoms and contexts."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fcjax.cli import shell
from fcjax.cli.model_options import COUNT, Amount, OpenClient, client_options, open_client
from fcjax.core.errors import BudgetError, InputError, SettingsError
from fcjax.runs.observer import RunObserver

if TYPE_CHECKING:
    from fcjax.core.records import Case
    from fcjax.critic.relation_stream import RelationConfig, RelationCounts
    from fcjax.io.stats import CostEstimate, Stats
    from fcjax.runs.observer import Preview
    from fcjax.stages.templates import Template

_EPILOG = """\b
Examples:
  fcjax relate cases.jsonl -o related.jsonl --base-url http://localhost:8000 --model NAME
  fcjax relate cases.jsonl --model NAME --dry-run           how many prompts that is, before any is sent
  fcjax relate cases.jsonl -o related.jsonl --style packed --version FR1 --budget-prompts 10000
  fcjax score related.jsonl -o results.jsonl

The key is in OPENAI_API_KEY. Every reply is in the store before it is used: stop at any moment and run the same command
again, and nothing is asked twice. `fcjax doctor` says what an endpoint can do. Exit codes: 0 every pair has its answer,
1 some have failed or the budget is used up, 2 bad usage or nothing could be read or asked, 130 interrupted."""


relation_options = shell.added(
    click.option(
        "--version",
        type=click.Choice(["FR1", "FR2", "FR3"]),
        default="FR2",
        show_default=True,
        help="Pairs to ask about: FR1 an atom with its own contexts, FR2 with every context, FR3 contexts with each "
        "other too.",
    ),
    click.option(
        "--style",
        type=click.Choice(["pairwise", "packed"]),
        default="pairwise",
        show_default=True,
        help="A prompt for each pair, or for a context and several atoms.",
    ),
    click.option("--pack", type=COUNT, metavar="N", help="Atoms in one packed prompt, at most. [default: 16]"),
    click.option(
        "--votes",
        type=click.IntRange(0, 1000),
        metavar="N",
        help="Where a reply has no logprobs, ask N more times and count. [default: 0]",
    ),
    click.option(
        "--default",
        type=Amount(0, 1, min_open=True, max_open=True),
        metavar="P",
        help="The probability of an answer without logprobs and votes. [default: 0.9]",
    ),
    click.option(
        "--screen",
        type=Amount(0, 1),
        metavar="T",
        help="Leave out pairs that share less than T of the target's telling words; 0.1 is cautious. "
        "[default: ask all]",
    ),
    click.option("--max-tokens", type=COUNT, metavar="N", help="Of an answer about relations. [default: 256]"),
)
"""What is asked about relations, and how; `taken_relating` takes them out of the others."""


@click.command(epilog=_EPILOG)
@click.argument("source", metavar="IN", type=shell.INPUT)
@click.option("-o", "--output", "out", metavar="OUT", type=shell.OUTPUT, help="Where the cases go, with relations.")
@relation_options
@click.option(
    "--template", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="Another wording of the prompts."
)
@client_options
@click.option("-n", "--dry-run", is_flag=True, help="Count prompts, tokens and cost; send and write nothing.")
@click.option("--limit", type=COUNT, metavar="N", help="The first N cases only.")
@shell.common_options
@click.pass_context
def relate(
    ctx: click.Context,
    /,
    source: str,
    out: str | None,
    dry_run: bool,
    limit: int | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Ask a model what the contexts of cases say of their atoms.

    IN is a file of cases that have atoms and contexts (.jsonl, .jsonl.gz, .json), or - for standard input. OUT gets the
    same cases in the same order with relations; it is replaced when it is complete. Relations that are there already
    are kept and not asked for again.
    """
    if out is None and not dry_run:
        raise SettingsError("no output is named; give -o OUT, or --dry-run to see what would be asked")
    if as_json and out == "-":
        raise SettingsError("--json and -o - both want standard output; give -o a file, or leave one of them out")
    also_read = options["template"], options["config"]
    with open_client(options, dry_run=dry_run) as asking:
        how = relation_config(options, options.pop("template"))
        about: dict[str, Any] = {"input": source, "output": out, "endpoint": asking.endpoint, "model": asking.model}
        about |= {"store": None if asking.store is None else str(asking.store), "settings": _settings(how)}
        if dry_run:
            _show_estimate(source, asking, how, about, limit=limit, quiet=quiet, as_json=as_json)
            return
        assert out is not None
        from fcjax.io.files.streams import refuse_input

        refuse_input(out, asking.store, *also_read)
        watch = _Watch(bar=not quiet)
        try:
            from fcjax.runs.relate_file import relate_file

            tally = relate_file(source, out, asking.client, how, window=asking.window, limit=limit, observer=watch)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped; {_kept(asking, watch)}") from None
        except BudgetError as error:
            shell.say(f"stopped: {error}; {_kept(asking, watch)}")
            ctx.exit(shell.SOME_FAILED)
        finally:
            watch.close()
    stats = asking.client.stats
    if as_json:
        shell.print_json(about | tally.to_dict() | {"client": client_report(stats)})
    elif not quiet:
        for line in _summary(tally, stats):
            click.echo(line, err=out == "-")
        if out != "-":
            click.echo(f"{shell.counted(tally.cases.total(), 'case')} in {out}")
    if watch.first_failure and not quiet:
        shell.say(f"warning: {shell.counted(tally.n_failed, 'pair')} failed; the first: {watch.first_failure}")
    failed = tally.n_failed or any(status != "ok" for status in tally.cases)
    ctx.exit(shell.SOME_FAILED if failed else shell.OK)


def relation_config(options: dict[str, Any], template: str | None = None) -> RelationConfig:
    """The settings that `relation_options` describe, with what was given in place of their own defaults."""
    from fcjax.critic.relation_stream import RelationConfig
    from fcjax.stages import templates
    from fcjax.stages.relate import RelationModel

    version, screen, style = (options.pop(name) for name in ("version", "screen", "style"))
    chosen = {name: options.pop(name) for name in ("pack", "votes", "default", "max_tokens")}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if template is not None:
        chosen[style] = worded(getattr(templates, style.upper()), template)
    return RelationConfig(version=version, screen=screen, model=RelationModel(style=style, **chosen))


def worded(template: Template, file: str) -> Template:
    """A template in the words of a file. Raises `InputError` and `SettingsError`."""
    try:
        return template.reworded(Path(file).read_text(encoding="utf-8"), Path(file).stem)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}; allowed: a text in UTF-8") from error


def _settings(how: RelationConfig) -> dict[str, Any]:
    """The settings as JSON; templates by their names."""
    model = asdict(how.model)
    names = {"pairwise": how.model.pairwise.name, "packed": how.model.packed.name}
    return {"version": how.version, "screen": how.screen, **model, **names}


class _Watch(RunObserver):
    """Looks on while a file is related."""

    def __init__(self, bar: bool):
        self.done = 0
        self.first_failure: str | None = None
        self._wants_bar = bar and sys.stderr.isatty()
        self._bar: Any = None

    def begins(self, found: Preview) -> None:
        if found.lacking:
            place, lack = next(iter(found.lacking.items()))
            cases = shell.counted(found.cases, "case")
            shell.say(f"warning: {len(found.lacking):,} of {cases} cannot be asked about; case {place + 1}: {lack}")
        if self._wants_bar:
            from fcjax.cli.display import Bar

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


def _kept(asking: OpenClient, watch: _Watch) -> str:
    place = f"all replies are in {asking.store}; " if asking.store else ""
    return f"{shell.counted(watch.done, 'case')} had all relations; {place}run the same command to go on"


def _summary(tally: RelationCounts, stats: Stats) -> list[str]:
    """What a run came to, for people."""
    lines = [f"{shell.counted(tally.cases.total(), 'case')}: {counts(tally.cases)}"]
    lines.append(f"{shell.counted(tally.pairs, 'pair')} asked about: {counts(tally.types) or 'none answered'}")
    if tally.n_failed:
        lines[-1] += f"; {tally.n_failed:,} failed ({counts(tally.failed)})"
    if tally.methods:
        lines.append(f"probabilities from {counts(tally.methods)}")
    more = {"given before": tally.given, "left out by screening": tally.screened}
    more |= {f"atoms or contexts skipped as {why}": count for why, count in tally.skipped.items()}
    if seen := ", ".join(f"{count:,} {what}" for what, count in more.items() if count):
        lines.append(seen)
    lines.append(f"{stats.cache_hits:,} answers from the store, {shell.counted(stats.sent, 'call')}")
    if stats.seconds:
        lines[-1] += f", {stats.sent / stats.seconds:,.1f} a second, {stats.retries:,} of them repeated"
        tokens = f"{stats.prompt_tokens:,} tokens in and {stats.completion_tokens:,} out"
        lines.append(f"{tokens}; cost {dollars(stats.cost)}")
    return lines


def counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items())


def dollars(cost: float | None) -> str:
    return "unknown" if cost is None else f"${cost:,.4f}"


def client_report(stats: Stats) -> dict[str, Any]:
    return {**asdict(stats), "failed": dict(stats.failed), "mean_concurrency": stats.mean_concurrency}


def _show_estimate(
    source: str,
    asking: OpenClient,
    how: RelationConfig,
    about: dict[str, Any],
    *,
    limit: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    from fcjax.runs.relate_file import estimate_file

    found: CostEstimate = estimate_file(source, asking.client, how, limit=limit, count_tokens=asking.count_tokens)
    if as_json:
        shell.print_json(about | {"dry_run": True, **asdict(found), "to_send": found.to_send})
    elif not quiet:
        click.echo(
            f"{shell.counted(found.prompts, 'prompt')}, {found.distinct:,} of them different, {found.stored:,} in the "
            f"store already: {found.to_send:,} to send\n"
            f"about {found.prompt_tokens:,} tokens in and at most {found.completion_tokens:,} out; "
            f"cost at most {dollars(found.cost)}"
        )
        if how.model.votes:
            click.echo(f"where there are no logprobs, {how.model.votes} more for each")
