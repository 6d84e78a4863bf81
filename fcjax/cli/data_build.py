"""The commands of `fcjax data` that build cases from public data sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from fcjax.cli.command import COMMON, command, option
from fcjax.cli.options.files import dry_run, print_options
from fcjax.cli.options.model import client_options
from fcjax.cli.options.types import COUNT, INPUT, OUTPUT

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=INPUT)
OUT = option(
    "-o", "--output", "out", metavar="OUT", type=OUTPUT, required=True, section=COMMON, help="File for the rows."
)
SPLIT = option(
    "--split",
    type=click.Choice(["train", "validation", "test", "all"]),
    section=COMMON,
    help="Use only this split (80/10/10, by --seed); all: every case, each with its split. [default: no splits]",
)
SEED = option(
    "--seed",
    type=click.IntRange(0),
    metavar="S",
    section=COMMON,
    help="Random seed for the splits; with --limit, cases are chosen at random.",
)
_LIMIT = option(
    "--limit", type=COUNT, metavar="N", section=COMMON, help="Use the first N cases, or N random cases with --seed."
)


def _builder(function: Decorated) -> Decorated:
    """Parameters of every builder: `files`, `out`, `limit`, `seed`, `split`, `quiet`, `as_json`."""
    for add in (print_options(), SPLIT, SEED, _LIMIT, OUT, FILES):
        function = add(function)
    return click.pass_context(function)  # type: ignore[return-value]


@command()
@_builder
def factscore(ctx: click.Context, /, files: tuple[str, ...], **parameters: Any) -> None:
    """Build cases from FActScore's biographies, labelled or unlabelled.

    Labelled facts become atoms; irrelevant ones are left out.
    """
    from fcjax.cli.build_cases import build
    from fcjax.io.datasets import read_factscore

    build(ctx, read_factscore(*files), files, **parameters)


@command()
@_builder
def askhistorians(ctx: click.Context, /, files: tuple[str, ...], **parameters: Any) -> None:
    """Build cases from AskHistorians.

    FILE contains the rows of that subreddit in ELI5, or rows with a question and a response. The response of a case is
    the answer with the most votes, or the row's own response.
    """
    from fcjax.cli.build_cases import build
    from fcjax.io.datasets import read_askhistorians

    build(ctx, read_askhistorians(*files), files, **parameters)


@command("factcheck-gpt")
@_builder
def factcheck_gpt(ctx: click.Context, /, files: tuple[str, ...], **parameters: Any) -> None:
    """Build cases from Factcheck-GPT.

    Claims become atoms, passages contexts, and the annotators' stances relations.
    """
    from fcjax.cli.build_cases import build
    from fcjax.io.datasets import read_factcheck_gpt

    build(ctx, read_factcheck_gpt(*files), files, **parameters)


@command()
@_builder
def factool(ctx: click.Context, /, files: tuple[str, ...], **parameters: Any) -> None:
    """Build cases from FacTool's knowledge-based questions.

    Labelled claims become atoms.
    """
    from fcjax.cli.build_cases import build
    from fcjax.io.datasets import read_factool

    build(ctx, read_factool(*files), files, **parameters)


@command()
@_builder
def wikicontradict(ctx: click.Context, /, files: tuple[str, ...], **parameters: Any) -> None:
    """Build cases from WikiContradict.

    Each pair of contradicting passages yields two cases, one per answer. FILE is a table (.csv) or the same rows as
    JSON.
    """
    from fcjax.cli.build_cases import build
    from fcjax.io.datasets import read_wikicontradict

    build(ctx, read_wikicontradict(*files), files, **parameters)


@command()
@option(
    "--conflict",
    "conflicts",
    type=click.Choice(["misinformation", "temporal", "semantic"]),
    multiple=True,
    default=("misinformation",),
    show_default=True,
    section=COMMON,
    help="Kind of conflicting claims; repeatable.",
)
@option(
    "--claims",
    type=click.Choice(["both", "true", "false"]),
    default="both",
    show_default=True,
    section=COMMON,
    help="Build cases from the true claim of each fact, from the false ones, or from both.",
)
@option(
    "--relations",
    type=click.FloatRange(0, 1),
    metavar="P",
    section=COMMON,
    help="Add relations: each piece of evidence entails its own claim and contradicts the other, with probability P. "
    "[default: no relations]",
)
@_builder
def conflictbank(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    conflicts: tuple[str, ...],
    claims: str,
    relations: float | None,
    **parameters: Any,
) -> None:
    """Build cases from ConflictBank.

    A case has a claim, the evidence for it and the evidence against it.
    """
    from fcjax.cli.build_cases import build
    from fcjax.io.datasets import read_conflictbank

    rows = read_conflictbank(*files, conflicts=conflicts, claims=claims, relations=relations)
    build(ctx, rows, files, **parameters)


@command()
@option(
    "--wrong/--no-wrong",
    default=True,
    show_default=True,
    section=COMMON,
    help="Have the model introduce errors into half of the answers.",
)
@option(
    "--errors",
    type=COUNT,
    metavar="N",
    section=COMMON,
    help="Approximate number of facts to change per answer. [default: 3]",
)
@dry_run
@client_options
@_builder
def eli5(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    wrong: bool,
    errors: int | None,
    dry_run: bool,
    **parameters: Any,
) -> None:
    """Build cases from ELI5-Category, half of them with wrong answers (the recipe of Veli5).

    The response is the answer with the most votes, which is also kept as `reference`. In one of every two cases, a
    model rewrites it into a wrong answer. An interrupted run resumes when the same command is run again.
    """
    from fcjax.cli.build_cases import build, build_wrong
    from fcjax.io.datasets import read_eli5

    parameters["split"] = parameters["split"] or "all"
    rows = read_eli5(*files)
    if wrong:
        build_wrong(ctx, rows, files, errors=errors, dry_run=dry_run, **parameters)
    else:
        own = ("out", "limit", "seed", "split", "quiet", "as_json")
        build(ctx, rows, files, **{name: parameters[name] for name in own})


BUILDERS: Final = (factscore, askhistorians, eli5, conflictbank, factcheck_gpt, wikicontradict, factool)
"""The commands, one per data set."""
