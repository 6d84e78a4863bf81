"""`fcjax batch`: files of prompts to and from a server that takes batches."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fcjax.cli import shell
from fcjax.cli.command import Group, option, options
from fcjax.cli.options.files import plain_print_options
from fcjax.cli.options.types import FILE

if TYPE_CHECKING:
    from fcjax.io.batches.book import Part
    from fcjax.io.batches.errands import Errands

Result = TypeVar("Result")

_EPILOG = """\b
Examples:
  fcjax critique responses.jsonl -o results.jsonl --corpus documents/ --model gpt-4o-mini --batch-out prompts/
  fcjax batch submit prompts/                   upload the files and create a batch of each one
  fcjax batch status prompts/ --wait            until all have ended
  fcjax batch fetch prompts/                    download the outputs
  fcjax cache import --batch prompts/           take them into the store, then run the first command again

The API key is read from OPENAI_API_KEY. What was sent where is in FOLDER/batch.sqlite: a command that was stopped
continues when it is run again, and nothing is submitted twice."""


@click.group(cls=Group, epilog=_EPILOG)
def batch() -> None:
    """Send files of prompts to a server, and fetch the outputs.

    The files are those that `--batch-out FOLDER` has written. The server must have OpenAI's Files and Batches APIs.
    """


_folder = click.argument("folder", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, path_type=Path))
_endpoint = options(
    option("--base-url", metavar="URL", help="Base URL of the server. [default: that of the run]"),
    option("--config", metavar="FILE", type=FILE, help="TOML file with base_url and api_key_env."),
    plain_print_options,
)


@batch.command()
@_folder
@_endpoint
def submit(folder: Path, base_url: str | None, config: str | None, quiet: bool, as_json: bool) -> None:
    """Upload the files of the last round and create a batch of each one.

    Files that were submitted before are left out.
    """
    done = _run(folder, base_url, config, quiet or as_json, lambda errands: errands.submit())
    if as_json:
        shell.print_json({"folder": str(folder), "submitted": [_report(part) for part in done]})
    elif not quiet:
        shell.echo(f"{shell.counted(len(done), 'file')} submitted; next: fcjax batch status {folder} --wait")


@batch.command()
@_folder
@option("--wait", is_flag=True, help="Look again until all batches have ended.")
@option(
    "--every",
    type=click.FloatRange(0.01, 86400),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds between two looks, with --wait.",
)
@_endpoint
def status(
    folder: Path, base_url: str | None, config: str | None, wait: bool, every: float, quiet: bool, as_json: bool
) -> None:
    """Show how far the batches are."""
    while True:
        parts = _run(folder, base_url, config, True, lambda errands: errands.look())
        if not (wait and any(_is_working(part) for part in parts)):
            break
        time.sleep(every)
    if as_json:
        shell.print_json({"folder": str(folder), "files": [_report(part) for part in parts]})
    elif not quiet:
        for part in parts:
            shell.echo(f"{part.name}: {shell.counted(part.requests, 'request')}, {_state(part)}")


@batch.command()
@_folder
@_endpoint
@click.pass_context
def fetch(
    ctx: click.Context, /, folder: Path, base_url: str | None, config: str | None, quiet: bool, as_json: bool
) -> None:
    """Download the outputs and errors of batches that have ended.

    A file of requests NAME.jsonl has NAME.output.jsonl and NAME.errors.jsonl beside it afterwards. Exit code 3: some
    batches have not ended yet.
    """
    from fcjax.io.batches.book import Book

    files = _run(folder, base_url, config, quiet or as_json, lambda errands: errands.fetch())
    with Book.open(folder) as book:
        parts = book.parts()
    working, failed = ([part for part in parts if test(part)] for test in (_is_working, _has_failed))
    if as_json:
        shell.print_json({"folder": str(folder), "files": [str(file) for file in files], "n_working": len(working)})
    elif not quiet:
        shell.echo(f"{shell.counted(len(files), 'file')} of outputs in {folder}")
        if files:
            shell.echo(f"next: fcjax cache import --batch {folder}")
        if working:
            shell.echo(f"{shell.counted(len(working), 'batch').replace('batchs', 'batches')} not ended yet")
    for part in failed:
        shell.say(f"error: {folder / part.name}: the batch was refused: {part.note or 'without a reason'}")
    ctx.exit(shell.SOME_FAILED if failed else shell.WAITING if working else shell.OK)


def _run(
    folder: Path,
    base_url: str | None,
    config: str | None,
    quiet: bool,
    work: Callable[[Errands], Awaitable[Result]],
) -> Result:
    """The result of errands with the book of a folder."""
    import asyncio

    from fcjax.core.errors import SettingsError
    from fcjax.io.batches.book import NAME, Book
    from fcjax.io.batches.errands import Errands
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.files.locks import locked

    def on_step(part: Part, what: str) -> None:
        if not quiet:
            shell.echo(f"{part.name}: {what}")

    async def done(book: Book, endpoint: Endpoint) -> Result:
        async with Errands(book, endpoint, on_step=on_step) as errands:
            return await work(errands)

    with Book.open(folder) as book, locked(folder / NAME):
        sources = {part.source for part in book.parts()}
        if not sources:
            raise SettingsError(f"{folder}: no prompts have been written there; run a command with --batch-out first")
        if len(sources) > 1 and not (base_url or config):
            named = ", ".join(sorted(sources))
            raise SettingsError(f"{folder}: its prompts are for several endpoints ({named}); name one with --base-url")
        url = base_url or (None if config else next(iter(sources)))
        return asyncio.run(done(book, Endpoint.from_env(url, "any", config)))


def _is_working(part: Part) -> bool:
    from fcjax.io.batches.errands import ENDED

    return part.batch is not None and not part.imported and part.state not in ENDED


def _has_failed(part: Part) -> bool:
    from fcjax.io.batches.errands import FAILED

    return part.state == FAILED


def _state(part: Part) -> str:
    """How far a file is, in words."""
    if part.batch is None:
        return "imported" if part.imported else "not submitted"
    words = [str(part.state), *(["imported"] if part.imported else []), *([part.note] if part.note else [])]
    return f"batch {part.batch}: {', '.join(words)}"


def _report(part: Part) -> dict[str, Any]:
    """A file as JSON."""
    names = ("round", "name", "requests", "bytes", "imported", "file", "batch", "state", "output", "errors", "note")
    return {name: getattr(part, name) for name in names}
