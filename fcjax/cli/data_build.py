"""The commands of `fcjax data` that make cases of public data sets, and what they share with its other ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fcjax.cli import shell
from fcjax.cli.model_options import COUNT, OpenClient, client_options, open_client
from fcjax.core.errors import BudgetError, Fault, InputError, SettingsError

if TYPE_CHECKING:
    from fcjax.core.records import Case
    from fcjax.io.datasets import BuildReport, Selection, Unit
    from fcjax.io.files.objects import Row
    from fcjax.stages.falsify import Falsifier

Command = TypeVar("Command", bound=Callable[..., Any])
Item = TypeVar("Item")

FAULTS_SHOWN: Final = 20
"""Faults that are told one by one; the others are counted."""

FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=shell.INPUT)
OUT = click.option("-o", "--output", "out", metavar="OUT", type=shell.OUTPUT, required=True, help="Where rows go.")
SPLIT = click.option(
    "--split",
    type=click.Choice(["train", "validation", "test", "all"]),
    help="One of three splits (80/10/10, by the seed); with all, each case says its own. [default: no splits]",
)
SEED = click.option("--seed", type=click.IntRange(0), metavar="S", help="Draws the splits, and with --limit a sample.")
_LIMIT = click.option("--limit", type=COUNT, metavar="N", help="The first N cases; with --seed, N drawn at random.")


def _builder(command: Command) -> Command:
    """What every builder has: `files`, `out`, `limit`, `seed`, `split`, `quiet`, `as_json`."""
    for option in (shell.common_options, SPLIT, SEED, _LIMIT, OUT, FILES):
        command = option(command)
    return click.pass_context(command)  # type: ignore[return-value]


@click.command()
@_builder
def factscore(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """FActScore's biographies, labelled or not.

    Labelled facts become atoms; those that are irrelevant are left out.
    """
    from fcjax.io.datasets import read_factscore

    _build(ctx, read_factscore(*files), files, **options)


@click.command()
@_builder
def askhistorians(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """AskHistorians' questions: ELI5's rows of that subreddit, or rows with question and response.

    The response is the answer with the most votes, or the row's own.
    """
    from fcjax.io.datasets import read_askhistorians

    _build(ctx, read_askhistorians(*files), files, **options)


@click.command("factcheck-gpt")
@_builder
def factcheck_gpt(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """Factcheck-GPT: claims, passages, and what annotators say that these do to those, as relations."""
    from fcjax.io.datasets import read_factcheck_gpt

    _build(ctx, read_factcheck_gpt(*files), files, **options)


@click.command()
@_builder
def factool(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """FacTool's knowledge-based questions, with labelled claims as atoms."""
    from fcjax.io.datasets import read_factool

    _build(ctx, read_factool(*files), files, **options)


@click.command()
@_builder
def wikicontradict(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """WikiContradict: two passages that contradict each other, a case for the answer by each.

    FILE is a table (.csv) or the same rows as JSON.
    """
    from fcjax.io.datasets import read_wikicontradict

    _build(ctx, read_wikicontradict(*files), files, **options)


@click.command()
@click.option(
    "--conflict",
    "conflicts",
    type=click.Choice(["misinformation", "temporal", "semantic"]),
    multiple=True,
    default=("misinformation",),
    show_default=True,
    help="Which conflicting claims; may be given several times.",
)
@click.option(
    "--claims",
    type=click.Choice(["both", "true", "false"]),
    default="both",
    show_default=True,
    help="A case for the true claim of each fact, for the false ones, or for both.",
)
@click.option(
    "--relations",
    type=click.FloatRange(0, 1),
    metavar="P",
    help="Say of each evidence, with probability P, that it entails its own claim and contradicts the other.",
)
@_builder
def conflictbank(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    conflicts: tuple[str, ...],
    claims: str,
    relations: float | None,
    **options: Any,
) -> None:
    """ConflictBank: a claim with the evidence for it and the evidence against it."""
    from fcjax.io.datasets import read_conflictbank

    rows = read_conflictbank(*files, conflicts=conflicts, claims=claims, relations=relations)
    _build(ctx, rows, files, **options)


@click.command()
@click.option("--wrong/--no-wrong", default=True, help="Half of the answers made wrong by the model. [default: wrong]")
@click.option("--errors", type=COUNT, metavar="N", help="Facts to change in an answer, about. [default: 3]")
@click.option("-n", "--dry-run", is_flag=True, help="Count prompts, tokens and cost; send and write nothing.")
@client_options
@_builder
def eli5(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    wrong: bool,
    errors: int | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """ELI5-Category, half of its answers made wrong (the recipe of Veli5).

    The response is the answer with the most votes, which the `reference` keeps; of each two cases one gets a wrong
    answer that a model makes of it. Replies are in the store before they are used: run the same command again to go on.
    """
    from fcjax.io.datasets import read_eli5
    from fcjax.stages.falsify import Falsifier

    options["split"] = options["split"] or "all"
    how = Falsifier() if errors is None else Falsifier(errors=errors)
    rows = read_eli5(*files)
    if wrong:
        seed = options["seed"] or 0
        with open_client(options, dry_run=dry_run) as asking:
            make = partial(_estimated if dry_run else _falsified, asking=asking, how=how, seed=seed)
            also = () if asking.store is None else (str(asking.store),)
            try:
                _build(ctx, rows, files, **options, make=make, also=also, write=not dry_run)
            except BudgetError as error:
                shell.say(f"stopped: {error}")
                ctx.exit(shell.SOME_FAILED)
    else:
        own = ("out", "limit", "seed", "split", "quiet", "as_json")
        _build(ctx, rows, files, **{name: options[name] for name in own}, write=not dry_run)


def _falsified(
    cases: Iterator[Case], report: BuildReport, quiet: bool, *, asking: OpenClient, how: Falsifier, seed: int
) -> Iterator[Case]:
    """The cases, half of them with wrong answers; those for which none could be had go into the report."""
    from fcjax.evaluation.falsify import falsify

    bar: Any = None
    given = list(cases)
    if not quiet and sys.stderr.isatty():
        from fcjax.cli.display import Bar

        bar = Bar(len(given), doing="writing", unit="answers")
    try:
        advance = bar.advance if bar else None
        found = falsify(given, asking.client, how, seed=seed, window=asking.window, progress=advance)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; {_kept(asking)}") from None
    except BudgetError as error:
        raise BudgetError(f"{error}; {_kept(asking)}") from error
    finally:
        if bar:
            bar.close()
    for case, failure in found:
        if failure is None:
            yield case
        else:
            report.cases -= 1
            report.add([Fault(f"no wrong answer: {failure.kind}: {failure.reason}", case=case.id)])


def _kept(asking: OpenClient) -> str:
    place = f"all replies are in {asking.store}; " if asking.store else ""
    return f"{place}run the same command to go on"


def _estimated(
    cases: Iterator[Case], report: BuildReport, quiet: bool, *, asking: OpenClient, how: Falsifier, seed: int
) -> Iterator[Case]:
    """No cases, after telling what making them would take."""
    import asyncio

    from fcjax.io.datasets.selection import is_drawn

    drawn = (how.prompt(case) for i, case in enumerate(cases) if is_drawn(seed, i))
    found = asyncio.run(asking.client.estimate(drawn, count_tokens=asking.count_tokens))
    if not quiet:
        cost = "unknown" if found.cost is None else f"${found.cost:,.4f}"
        click.echo(
            f"{shell.counted(found.prompts, 'prompt')}, {found.stored:,} in the store already: {found.to_send:,} to "
            f"send\nabout {found.prompt_tokens:,} tokens in and at most {found.completion_tokens:,} out; "
            f"cost at most {cost}",
            err=True,
        )
    return iter(())


def _build(
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
    """Write the cases of rows, tell what came of them, and leave with the code that says so."""
    from fcjax.io.datasets import BuildReport, Selection, selected
    from fcjax.io.files import write_cases

    check_places(out, as_json, *files, *also)
    report, selection = BuildReport(), Selection(limit, seed, split)
    cases = selected(rows, selection, report)
    if make is not None:
        cases = make(cases, report, quiet)
    if not write:
        for _ in cases:  # a dry run tells what it counts
            pass
        return
    write_cases(out, never_none(cases, report))
    tell(ctx, report, selection, files, out, "case", quiet=quiet, as_json=as_json)


def check_places(out: str, as_json: bool, *read: str) -> None:
    """Refuse an output that is one of the inputs, or that has to share standard output with a document."""
    from fcjax.io.files.streams import refuse_input

    if as_json and out == "-":
        raise SettingsError("--json and -o - both want standard output; give -o a file, or leave one of them out")
    refuse_input(out, *read)


def never_none(items: Iterator[Item], report: BuildReport) -> Iterator[Item]:
    """The items; `InputError` in place of an end where there were none, so that no file is replaced by nothing."""
    empty = True
    for item in items:
        empty = False
        yield item
    if empty:
        if report.faults:
            raise InputError(*report.faults)
        reasons = ", ".join(f"{n:,} {why}" for why, n in report.skipped.items()) or "the split is empty"
        raise InputError(f"no row can be used: {reasons}")


def tell(
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
    """Tell what came of the rows, and leave with the code that says so."""
    for fault in report.faults[:FAULTS_SHOWN] if not as_json else ():
        shell.say(f"error: {fault}")
    if not as_json and report.n_faults > FAULTS_SHOWN:
        shell.say(f"error: and {report.n_faults - FAULTS_SHOWN:,} more; --json lists them")
    if as_json:
        about: dict[str, Any] = {"input": list(files), "output": out}
        about["selection"] = {"limit": selection.limit, "seed": selection.seed, "split": selection.split}
        shell.print_json(about | report.to_dict() | {"faults": [shell.fault_dict(fault) for fault in report.faults]})
    elif not quiet:
        for reason, count in report.skipped.items():
            click.echo(f"{shell.counted(count, 'row')} skipped: {reason}", err=True)
        for field, count in report.unknown.items():
            click.echo(
                f"note: the format has no field {field} ({shell.counted(count, 'row')}); it is not used", err=True
            )
        if out != "-":
            rows = shell.counted(report.rows, "row")
            bad = f", {report.bad:,} left out" if report.bad else ""
            click.echo(f"{shell.counted(report.cases, what)} in {out}, from {rows}{bad}")
    ctx.exit(shell.SOME_FAILED if report.bad else shell.OK)


BUILDERS: Final = (factscore, askhistorians, eli5, conflictbank, factcheck_gpt, wikicontradict, factool)
"""The commands, one a data set."""
