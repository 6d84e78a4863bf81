"""`fcjax cache`: the store of replies and searches, between runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from fcjax.cli import shell
from fcjax.cli.command import Group, option
from fcjax.cli.options.files import plain_print_options
from fcjax.cli.options.types import OUTPUT, PRICES
from fcjax.core.errors import SettingsError
from fcjax.io import maintenance
from fcjax.io.store import default_path

_EPILOG = """\b
Examples:
  fcjax cache info                              what is stored, and what it cost
  fcjax cache prune --failures --older 30d      delete failed requests older than a month
  fcjax cache prune --template 'relate.*' --dry-run
  fcjax cache prune --kind search --older 90d   delete old searches, so that they are repeated
  fcjax cache export replies.jsonl.gz           one JSON object per line
  fcjax cache import replies.jsonl.gz           add them to this store or another
  fcjax cache import --batch prompts/           add the outputs of batch files

These commands are safe to use while runs access the store."""

_AGES: Final = {"h": 3600, "d": 86400, "w": 7 * 86400}


@click.group(cls=Group, epilog=_EPILOG)
def cache() -> None:
    """Manage the store of replies and searches.

    The store is one SQLite file with every prompt and search that was sent, and its result. A run sends only
    what is not in the store.
    """


_store = option(
    "--store",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Store to use. [default: $FCJAX_STORE, or .cache/fcjax/replies.sqlite in the home folder]",
)


def _age(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Seconds of an age such as 12h, 30d or 2w."""
    if value is None:
        return None
    number, unit = value[:-1], value[-1:].lower()
    if unit not in _AGES or not number.isdecimal():
        raise click.BadParameter(
            f"{value!r} is not an age; expected whole hours, days or weeks, such as 12h, 30d or 2w"
        )
    return float(number) * _AGES[unit]


@cache.command()
@_store
@option("--check", is_flag=True, help="Read the whole file and report damaged entries.")
@plain_print_options
@click.pass_context
def info(ctx: click.Context, /, store: Path | None, check: bool, quiet: bool, as_json: bool) -> None:
    """Show what the store holds and what it cost.

    Costs are in US dollars, at the prices on the day each reply arrived.
    """
    found = maintenance.inventory(store or default_path(), check=check)
    if as_json:
        shell.print_json(found)
    elif not quiet:
        from fcjax.cli.display import show  # loads rich
        from fcjax.cli.display_cache import inventory_tables

        show(*inventory_tables(found))
    for fault in found["faults"] or ():
        shell.say(f"error: {found['store']}: {fault}")
    ctx.exit(shell.SOME_FAILED if found["faults"] else shell.OK)


@cache.command()
@_store
@option("--older", metavar="AGE", callback=_age, help="Entries older than AGE, e.g. 12h, 30d or 2w.")
@option(
    "--template",
    "templates",
    metavar="NAME",
    multiple=True,
    help="Replies to this prompt template; * and ? are wildcards; repeatable.",
)
@option(
    "--model", "models", metavar="NAME", multiple=True, help="Replies of this model; * and ? are wildcards; repeatable."
)
@option(
    "--kind", "kinds", type=click.Choice(["chat", "search"]), multiple=True, help="Replies or searches; repeatable."
)
@option("--failures", is_flag=True, help="Failures, and unreadable or damaged replies.")
@option("-n", "--dry-run", is_flag=True, help="Count the entries; delete nothing.")
@plain_print_options
def prune(
    store: Path | None,
    older: float | None,
    templates: tuple[str, ...],
    models: tuple[str, ...],
    kinds: tuple[str, ...],
    failures: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Delete entries from the store.

    Deletes the entries that match all of the given options; at least one is required. A later run that needs a deleted
    entry requests and pays for it again.
    """
    place = store or default_path()
    before = None if older is None else time.time() - older
    wanted = {"templates": templates, "models": models, "kinds": kinds}
    done = maintenance.prune(place, before=before, **wanted, failures=failures, dry_run=dry_run)
    if as_json:
        sizes = {"bytes_before": done.size_before, "bytes_after": done.size_after}
        shell.print_json({"store": str(place), "entries": done.entries, "dry_run": dry_run, **sizes})
    elif not quiet:
        count = shell.counted(done.entries, "row")
        freed = (
            f"; size {shell.byte_size(done.size_before)} before, {shell.byte_size(done.size_after)} now"
            if done.entries
            else ""
        )
        shell.echo(f"{place}: {count} would be deleted" if dry_run else f"{place}: {count} deleted{freed}")


@cache.command()
@click.argument("out", metavar="OUT", type=OUTPUT)
@_store
@plain_print_options
@click.pass_context
def export(ctx: click.Context, /, out: str, store: Path | None, quiet: bool, as_json: bool) -> None:
    """Write every entry to OUT, one JSON object per line.

    OUT must end in .jsonl or .jsonl.gz, or be - for standard output. An existing OUT is replaced only once the new
    file is complete. Damaged entries are skipped and counted.
    """
    if as_json and out == "-":
        raise SettingsError("--json and OUT - both use standard output; specify a file for OUT, or remove --json")
    place = store or default_path()
    done = maintenance.export(place, out)
    if as_json:
        shell.print_json({"store": str(place), "output": out, "written": done.written, "damaged": done.damaged})
    elif not quiet and out != "-":
        shell.echo(f"{shell.counted(done.written, 'row')} in {out}")
    if done.damaged:
        shell.say(f"error: {place}: {shell.counted(done.damaged, 'row')} could not be read")
    ctx.exit(shell.SOME_FAILED if done.damaged else shell.OK)


@cache.command("import")
@click.argument("sources", metavar="FILE...", type=click.Path(exists=True, allow_dash=True), nargs=-1, required=True)
@option("--batch", is_flag=True, help="Read the outputs of batches; a FOLDER stands for all outputs in it.")
@option(
    "--folder",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of --batch-out. [default: that of each FILE]",
)
@option(
    "--price",
    type=PRICES,
    metavar="IN OUT",
    help="US dollars per million input tokens and per million output tokens of batches. [default: half the listed price"
    " for OpenAI's own endpoint, else unknown]",
)
@_store
@plain_print_options
@click.pass_context
def import_(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    batch: bool,
    folder: Path | None,
    price: tuple[float, float] | None,
    store: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Add the entries of FILE, or the outputs of batches, to the store.

    FILE is the output of export, or JSON Lines written by hand; - for standard input. With --batch, it is what OpenAI's
    Batch API or vLLM has answered to the files of --batch-out. The store is created if it does not exist, and entries
    that are already in it are kept. Unusable lines are reported and skipped.
    """
    place = store or default_path()
    if batch:
        from fcjax.cli.import_batch import import_batch

        import_batch(ctx, sources, folder, price, place, quiet=quiet, as_json=as_json)
    done = _imported(place, sources)
    if as_json:
        faults = [shell.fault_dict(fault) for fault in done.faults]
        counts = {"added": done.added, "known": done.known, "n_faults": done.n_faults}
        shell.print_json({"store": str(place), **counts, "faults": faults})
    elif not quiet:
        known = f"; {done.known:,} already in the store" if done.known else ""
        shell.echo(f"{place}: {shell.counted(done.added, 'row')} added{known}")
    shell.say_faults(done.faults, done.n_faults)
    ctx.exit(shell.SOME_FAILED if done.n_faults else shell.OK)


def _imported(store: Path, sources: tuple[str, ...]) -> maintenance.Imported:
    """The files' rows in the store, and what all imports say together."""
    all_done = [maintenance.import_rows(store, source) for source in sources]
    faults = tuple(fault for done in all_done for fault in done.faults)
    added, known, n_faults = (sum(getattr(done, name) for done in all_done) for name in ("added", "known", "n_faults"))
    return maintenance.Imported(added, known, faults, n_faults)
