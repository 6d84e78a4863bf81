"""The command line: arguments in, files and tables out. Only click is loaded before a command knows what it needs."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli import shell
from fcjax.cli.cache import cache
from fcjax.cli.correct import correct
from fcjax.cli.critique import critique
from fcjax.cli.data import data
from fcjax.cli.doctor import doctor
from fcjax.cli.evaluate import evaluate
from fcjax.cli.relate import relate
from fcjax.cli.score import rescore, score
from fcjax.core.errors import Fault, SettingsError

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

_EPILOG = """\b
From responses to what is false in them, and to better ones; the model is named by --base-url and --model:
  fcjax doctor --base-url URL --model NAME                             whether an endpoint will do
  fcjax critique responses.jsonl -o results.jsonl --corpus documents/  which claims are false, on what evidence
  fcjax rescore results.jsonl -o release.jsonl --preset release        the same with other numbers, without a prompt
  fcjax correct results.jsonl -o corrected.jsonl --corpus documents/   responses rewritten by that
  fcjax eval grid.yaml -o comparison                                   methods of correction compared

\b
From cases that have their claims, passages or relations:
  fcjax relate cases.jsonl -o related.jsonl      ask the model what each passage says of each claim
  fcjax score related.jsonl -o results.jsonl     score a file; run it again to go on after a stop
  fcjax validate cases.jsonl                     list everything that is wrong with a file
  fcjax convert problem.json cases.jsonl         from one format to another
  fcjax infer model.uai --evid model.uai.evid    marginals of a bare Markov network

`fcjax COMMAND --help` says more. Exit codes: 0 all is well, 1 some cases failed, 2 bad usage or nothing could be
read, 130 interrupted."""


@click.group(cls=shell.Commands, context_settings=_SETTINGS, epilog=_EPILOG)
@click.version_option(package_name="fcjax", message="%(prog)s %(version)s")
def commands() -> None:
    """Which statements of a long answer are false, on what evidence, and how sure that is."""


_VALIDATE_EPILOG = """\b
Examples:
  fcjax validate cases.jsonl problem.json model.uai
  fcjax validate --json cases.jsonl | jq .files[0].faults

Exit codes: 0 no faults, 1 faults were found, 2 bad usage."""


@commands.command(epilog=_VALIDATE_EPILOG)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=shell.INPUT)
@shell.common_options
@click.pass_context
def validate(ctx: click.Context, /, files: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """List every fault of files.

    A fault names the file, line, case and field, what was seen there, and what is allowed. Notes, about what is legal
    but worth a look, are no faults.
    """
    from fcjax.io.files import Notice
    from fcjax.io.files import validate as faults_of

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
                click.echo(f"{click.style('note: ', fg='yellow') if kind == 'note' else ''}{fault}")
        documents.append(document)
        if not (as_json or quiet):
            counts = f"{shell.counted(document['n_faults'], 'fault')}, {shell.counted(document['n_notes'], 'note')}"
            click.secho(f"{file}: {counts}", fg="red" if document["n_faults"] else "green")
            if unfinished:
                cases = shell.counted(unfinished, "case")
                click.echo(
                    f"{cases} not ready for `fcjax score`: `fcjax critique` finds what they lack, and scores them"
                )
    total = sum(document["n_faults"] for document in documents)
    if as_json:
        shell.print_json({"n_faults": total, "files": documents})
    ctx.exit(shell.SOME_FAILED if total else shell.OK)


_CONVERT_EPILOG = """\b
Formats:
  cases     cases (.jsonl, .jsonl.gz, .json)
  problem   FactReasoner's problem files
  graph     FactReasoner's fact graphs: nodes and edges
  uai       UAI models; names and evidence go to OUT.names and OUT.evid

\b
Examples:
  fcjax convert problem.json cases.jsonl
  fcjax convert cases.jsonl graphs.json --to graph
  fcjax convert cases.jsonl model.uai --case c17 --preset release

Exit codes: 0 all was converted, 1 some rows were left out, 2 bad usage or nothing could be converted."""
_FORMATS = click.Choice(["cases", "problem", "graph", "uai"])


@commands.command(epilog=_CONVERT_EPILOG)
@click.argument("source", metavar="IN", type=shell.INPUT)
@click.argument("out", metavar="OUT", type=shell.OUTPUT)
@click.option("--from", "given", type=_FORMATS, help="The format of IN. [default: seen from its content]")
@click.option("--to", type=_FORMATS, help="The format of OUT. [default: uai for a name in .uai, else cases]")
@click.option("--case", "case_id", metavar="ID", help="Which case to make a UAI model of, where IN has several.")
@shell.graph_options
@shell.common_options
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
    """Convert from one format to another.

    OUT is replaced when it is complete."""
    if as_json and out == "-":
        raise SettingsError("--json and OUT - both want standard output; give OUT a name, or leave --json out")
    from fcjax.io.files import convert as run
    from fcjax.io.files import detect, write_uai
    from fcjax.io.files.streams import refuse_input
    from fcjax.runs.score_file import Settings, one_graph

    settings = Settings(**graph)
    given = given or detect(source)
    to = to or ("uai" if out.endswith(".uai") else "cases")
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
        click.echo(f"{shell.counted(written, 'row')} in {out}, as {to}")
    ctx.exit(shell.OK if not faults else shell.SOME_FAILED if written else shell.UNUSABLE)


_INFER_EPILOG = """\b
Examples:
  fcjax infer model.uai
  fcjax infer model.uai --evid model.uai.evid --json

Variables have their names from MODEL.names where that file is there (`fcjax convert` writes it). Exit codes: 0 the
marginals are there, 1 there are none (Z = 0, too wide), 2 bad usage or an unreadable file."""


@commands.command(epilog=_INFER_EPILOG)
@click.argument("model", metavar="MODEL.uai", type=shell.INPUT)
@click.option("--evid", metavar="FILE", type=shell.INPUT, help="Observed variables, in UAI's evidence format.")
@click.option("-o", "--output", "out", metavar="OUT", type=shell.OUTPUT, help="Write the answer as JSON to OUT.")
@shell.engine_options
@shell.common_options
@click.pass_context
def infer(
    ctx: click.Context,
    /,
    model: str,
    evid: str | None,
    out: str | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Infer the marginals of a UAI model.

    MODEL.uai is a bare Markov network of two-state variables. Prints P(true) of every variable and log Z.
    """
    if as_json and out == "-":
        raise SettingsError("--json and -o - both want standard output; leave one of them out")
    import orjson

    from fcjax.graph.fact_graph import FactGraph
    from fcjax.inference.engine import infer as run
    from fcjax.inference.engine import use_persistent_cache
    from fcjax.io.files import read_uai
    from fcjax.io.files.streams import refuse_input, write_lines
    from fcjax.scoring.rows import model_answer

    if out is not None:
        refuse_input(out, model, evid, f"{model}.names")
    graph = FactGraph.from_model(read_uai(model, evid))
    use_persistent_cache()
    found = run([graph], limits=shell.inference_limits(options), **options)[0]
    answer = {"model": model, **model_answer(graph, found)}
    if out:
        write_lines(out, [orjson.dumps(answer)], bare=True)
    if as_json:
        shell.print_json(answer)
    elif not (quiet or out == "-" or found.status.failed):
        from fcjax.cli.display import marginals_table, show

        show(marginals_table(answer))
    if found.status.failed:
        shell.say(f"error: {model}: {found.status}: {found.reason}")
    ctx.exit(shell.SOME_FAILED if found.status.failed else shell.OK)


commands.add_command(critique)
commands.add_command(correct)
commands.add_command(evaluate)
commands.add_command(score)
commands.add_command(rescore)
commands.add_command(cache)
commands.add_command(relate)
commands.add_command(doctor)
commands.add_command(data)
