"""`fcjax cache`: what a person does with a store of replies and evidence between runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fcjax.cli import shell

if TYPE_CHECKING:
    from rich.console import RenderableType

_EPILOG = """\b
Examples:
  fcjax cache info                              what is stored, and what it cost
  fcjax cache prune --failures --older 30d      delete failed calls that are older than a month
  fcjax cache prune --template 'relate.*' --dry-run
  fcjax cache prune --kind search --older 90d   forget what searches found, so that they are made again
  fcjax cache export replies.jsonl.gz           every question and answer, a JSON line each
  fcjax cache import replies.jsonl.gz           and back, into this store or another

All of these work while runs are using the store."""

_AGES = {"h": 3600, "d": 86400, "w": 7 * 86400}


@click.group(epilog=_EPILOG)
def cache() -> None:
    """Look after the store of a model's replies and of the evidence that was found.

    The store is one SQLite file with every prompt and every search that was sent, and what came of it. A run that finds
    its answers there asks and pays for nothing.
    """


_store = click.option(
    "--store",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The store. [default: $FCJAX_STORE, or .cache/fcjax/replies.sqlite in the home folder]",
)


def _age(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Seconds of an age such as 12h, 30d or 2w."""
    if value is None:
        return None
    number, unit = value[:-1], value[-1:].lower()
    if unit not in _AGES or not number.isdecimal():
        raise click.BadParameter(f"{value!r} is no age; allowed: whole hours, days or weeks, such as 12h, 30d or 2w")
    return float(number) * _AGES[unit]


@cache.command()
@_store
@click.option("--check", is_flag=True, help="Read the whole file and see that nothing in it is damaged.")
@shell.common_options
@click.pass_context
def info(ctx: click.Context, /, store: Path | None, check: bool, quiet: bool, as_json: bool) -> None:
    """Show what the store holds and what it cost.

    Costs are in US dollars, by the prices of the day when the replies came.
    """
    from fcjax.io.maintenance import inventory
    from fcjax.io.store import default_path

    found = inventory(store or default_path(), check=check)
    if as_json:
        shell.print_json(found)
    elif not quiet:
        from fcjax.cli.display import show

        show(*_drawn(found))
    for fault in found["faults"] or ():
        shell.say(f"error: {found['store']}: {fault}")
    ctx.exit(shell.SOME_FAILED if found["faults"] else shell.OK)


@cache.command()
@_store
@click.option("--older", metavar="AGE", callback=_age, help="Rows older than 12h, 30d, 2w.")
@click.option(
    "--template", "templates", metavar="NAME", multiple=True, help="Replies to a template; * and ? may stand."
)
@click.option("--model", "models", metavar="NAME", multiple=True, help="Rows of a model; * and ? match others.")
@click.option("--kind", "kinds", type=click.Choice(["chat", "search"]), multiple=True, help="Rows of this kind.")
@click.option("--failures", is_flag=True, help="Failures, and replies that were unreadable or are damaged.")
@click.option("-n", "--dry-run", is_flag=True, help="Count, and delete nothing.")
@shell.common_options
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
    """Delete a part of the store.

    What all of the given options hold for goes; at least one is needed. --template and --model may be given several
    times. What is deleted and needed again is asked and paid for again.
    """
    from fcjax.io.maintenance import prune as run
    from fcjax.io.store import default_path

    place = store or default_path()
    before = None if older is None else time.time() - older
    wanted = {"templates": templates, "models": models, "kinds": kinds}
    done = run(place, before=before, **wanted, failures=failures, dry_run=dry_run)
    if as_json:
        sizes = {"bytes_before": done.size_before, "bytes_after": done.size_after}
        shell.print_json({"store": str(place), "entries": done.entries, "dry_run": dry_run, **sizes})
    elif not quiet:
        count = shell.counted(done.entries, "row")
        freed = f"; {_bytes(done.size_before)} are {_bytes(done.size_after)} now" if done.entries else ""
        click.echo(f"{place}: {count} would be deleted" if dry_run else f"{place}: {count} deleted{freed}")


@cache.command()
@click.argument("out", metavar="OUT", type=shell.OUTPUT)
@_store
@shell.common_options
@click.pass_context
def export(ctx: click.Context, /, out: str, store: Path | None, quiet: bool, as_json: bool) -> None:
    """Write every question and answer to OUT, a JSON line each.

    OUT ends in .jsonl or .jsonl.gz, or is - for standard output; it is replaced when it is complete. Damaged rows are
    left out and counted.
    """
    from fcjax.core.errors import SettingsError
    from fcjax.io.maintenance import export as run
    from fcjax.io.store import default_path

    if as_json and out == "-":
        raise SettingsError("--json and OUT - both want standard output; give OUT a name, or leave --json out")
    place = store or default_path()
    done = run(place, out)
    if as_json:
        shell.print_json({"store": str(place), "output": out, "written": done.written, "damaged": done.damaged})
    elif not quiet and out != "-":
        click.echo(f"{shell.counted(done.written, 'row')} in {out}")
    if done.damaged:
        shell.say(f"error: {place}: {shell.counted(done.damaged, 'row')} could not be read")
    ctx.exit(shell.SOME_FAILED if done.damaged else shell.OK)


@cache.command("import")
@click.argument("source", metavar="FILE", type=shell.INPUT)
@_store
@shell.common_options
@click.pass_context
def import_(ctx: click.Context, /, source: str, store: Path | None, quiet: bool, as_json: bool) -> None:
    """Add the questions and answers of FILE to the store.

    FILE is what export writes, or JSON Lines made by hand; - is standard input. The store is made where there is none,
    and what it has an answer to already stays as it is. Lines that are no rows are left out and told.
    """
    from fcjax.io.maintenance import import_rows
    from fcjax.io.store import default_path

    place = store or default_path()
    done = import_rows(place, source)
    if as_json:
        faults = [shell.fault_dict(fault) for fault in done.faults]
        shell.print_json({"store": str(place), "added": done.added, "known": done.known, "faults": faults})
    elif not quiet:
        known = f"; {done.known:,} were there already" if done.known else ""
        click.echo(f"{place}: {shell.counted(done.added, 'row')} added{known}")
    for fault in done.faults[:_SHOWN]:
        shell.say(f"error: {fault}")
    if len(done.faults) > _SHOWN:
        shell.say(f"error: and {len(done.faults) - _SHOWN:,} more")
    ctx.exit(shell.SOME_FAILED if done.faults else shell.OK)


_SHOWN = 20  # faults


def _drawn(found: dict[str, Any]) -> list[RenderableType]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from fcjax.cli.display import plain

    asked = found["hits"] + found["misses"]
    statuses = ", ".join(f"{count:,} {status}" for status, count in found["statuses"].items()) or "no entries"
    lines = [
        found["store"],
        f"{_bytes(found['bytes'])}; {statuses}",
        f"cost {_dollars(found)}; tokens {found['prompt_tokens']:,} in and {found['completion_tokens']:,} out",
        f"{asked:,} look-ups, {found['hits'] / asked:.0%} of them answered from the store" if asked else "no look-ups",
    ]
    if found["entries"]:
        lines.append(f"from {found['oldest']} to {found['newest']}")
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    for column in ("kind", "model", "template", "source"):
        table.add_column(column, overflow="fold")
    for column in ("answered", "failed", "tokens", "cost"):
        table.add_column(column, justify="right")
    for group in found["groups"]:
        table.add_row(
            *(plain(group[name]) for name in ("kind", "model", "template", "source")),
            *(f"{group[name]:,}" for name in ("answered", "failed")),
            f"{group['prompt_tokens'] + group['completion_tokens']:,}",
            _dollars(group) if group["kind"] == "chat" else "",
        )
    return [Text("\n".join(lines)), *([table] if found["groups"] else [])]


def _dollars(group: dict[str, Any]) -> str:
    """A cost, and how many replies it leaves out because nobody knows their price."""
    if group["unpriced"] and not group["cost"]:
        return "unknown"
    more = f" + {group['unpriced']:,} unpriced" if group["unpriced"] else ""
    return f"${group['cost']:,.4f}{more}"


def _bytes(size: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size / 2**power:,.1f} {unit}"
    return f"{size} bytes"
