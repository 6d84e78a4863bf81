"""`fcjax convert`: from one file format to another."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli import requirements, shell
from fcjax.cli.command import COMMON, command, option
from fcjax.cli.options.files import print_options
from fcjax.cli.options.graph import graph_options
from fcjax.cli.options.types import INPUT, OUTPUT
from fcjax.core.errors import Fault, SettingsError

_EPILOG = """\b
Formats:
  cases     cases (.jsonl, .jsonl.gz, .json)
  problem   FactReasoner problem files
  graph     FactReasoner fact graphs: nodes and edges
  uai       UAI models; names and evidence go to OUT.names and OUT.evid

\b
Examples:
  fcjax convert problem.json cases.jsonl
  fcjax convert cases.jsonl graphs.json --to graph
  fcjax convert cases.jsonl model.uai --case c17 --preset release

Exit codes: 0 everything was converted, 1 some rows were skipped, 2 bad usage or nothing could be converted."""
_FORMATS = click.Choice(["cases", "problem", "graph", "uai"])


@command(epilog=_EPILOG)
@click.argument("source", metavar="IN", type=INPUT)
@click.argument("out", metavar="OUT", type=OUTPUT)
@option("--from", "given", type=_FORMATS, section=COMMON, help="Format of IN. [default: detected from its content]")
@option("--to", type=_FORMATS, section=COMMON, help="Format of OUT. [default: uai if OUT ends in .uai, else cases]")
@option(
    "--case", "case_id", metavar="ID", section=COMMON, help="Case to convert to a UAI model, if IN has more than one."
)
@graph_options
@print_options()
@click.pass_context
def convert(
    ctx: click.Context,
    /,
    source: str,
    out: str,
    given: Any,
    to: Any,
    case_id: str | None,
    quiet: bool,
    as_json: bool,
    **graph: Any,
) -> None:
    """Convert a file to another format.

    An existing OUT is replaced only once the new file is complete.
    """
    if as_json and out == "-":
        raise SettingsError("--json and OUT - both use standard output; specify a file for OUT, or remove --json")
    from fcjax.io.files import convert as run
    from fcjax.io.files import detect, write_uai
    from fcjax.io.files.streams import refuse_input
    from fcjax.runs.score_file import Settings, one_graph

    settings = Settings(**graph)
    given = given or detect(source)
    to = to or ("uai" if out.endswith(".uai") else "cases")
    requirements.check(ctx, detected=given)
    for file in (out, f"{out}.names", f"{out}.evid") if to == "uai" else (out,):
        refuse_input(file, source, f"{source}.names")
    faults: tuple[Fault, ...] = ()
    if to == "uai":
        write_uai(out, one_graph(source, given, settings, case_id).to_model())
        written = 1
    else:
        priors = {name: settings.numbers()[name] for name in ("context_prior", "atom_prior")}
        done = run(source, out, to, format=given, **priors)
        written, faults = done.written, done.faults
    for fault in faults:
        shell.say(f"error: {fault}")
    if as_json:
        left_out = [shell.fault_dict(fault) for fault in faults]
        shell.print_json(
            {"input": source, "from": given, "output": out, "to": to, "written": written, "faults": left_out}
        )
    elif not quiet and out != "-":
        shell.echo(f"{shell.counted(written, 'row')} written to {out} as {to}")
    ctx.exit(shell.OK if not faults else shell.SOME_FAILED if written else shell.UNUSABLE)
