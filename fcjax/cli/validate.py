"""`fcjax validate`: every fault of files."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli import shell
from fcjax.cli.command import command
from fcjax.cli.options.files import plain_print_options
from fcjax.cli.options.types import INPUT
from fcjax.core.terminal import visible

_EPILOG = """\b
Examples:
  fcjax validate cases.jsonl problem.json model.uai
  fcjax validate --json cases.jsonl | jq .files[0].faults

Exit codes: 0 no faults, 1 faults were found, 2 bad usage."""


@command(epilog=_EPILOG)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=INPUT)
@plain_print_options
@click.pass_context
def validate(ctx: click.Context, /, files: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """Check files and list all faults.

    Each fault gives the file, line, case and field, what was found there and what is expected. Notes point out content
    that is valid but unusual.
    """
    from fcjax.io.files import Notice
    from fcjax.io.files import validate as faults_of
    from fcjax.io.files.streams import display_name

    documents: list[dict[str, Any]] = []
    for file in files:
        document: dict[str, Any] = {"file": file, "n_faults": 0, "n_notes": 0, "faults": [], "notes": []}
        unfinished = 0  # cases that lack stages
        for fault in faults_of(file):
            kind = "note" if isinstance(fault, Notice) else "fault"
            document[f"n_{kind}s"] += 1
            unfinished += kind == "note" and " missing; add " in fault.message
            if as_json:
                document[f"{kind}s"].append(shell.fault_dict(fault))
            elif not quiet:
                click.echo(f"{click.style('note: ', fg='yellow') if kind == 'note' else ''}{visible(str(fault))}")
        documents.append(document)
        if not (as_json or quiet):
            counts = f"{shell.counted(document['n_faults'], 'fault')}, {shell.counted(document['n_notes'], 'note')}"
            click.secho(visible(f"{display_name(file)}: {counts}"), fg="red" if document["n_faults"] else "green")
            if unfinished:
                cases = shell.counted(unfinished, "case")
                shell.echo(
                    f"{cases} not ready for `fcjax score`; run `fcjax critique` to add what is missing and score them"
                )
    total = sum(document["n_faults"] for document in documents)
    if as_json:
        shell.print_json({"n_faults": total, "files": documents})
    ctx.exit(shell.SOME_FAILED if total else shell.OK)
