"""The command line: arguments in, files and tables out. Only click is loaded before a command knows what it needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from fcjax import shell
from fcjax.cli_cache import cache
from fcjax.cli_doctor import doctor
from fcjax.cli_relate import relate
from fcjax.errors import Fault, OutputError, SettingsError

if TYPE_CHECKING:
    from fcjax.results import Row
    from fcjax.survey import Survey

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

_EPILOG = """\b
Examples:
  fcjax score cases.jsonl -o results.jsonl      score a file; run it again to go on after a stop
  fcjax validate cases.jsonl                    list everything that is wrong with a file
  fcjax convert problem.json cases.jsonl        from one format to another
  fcjax infer model.uai --evid model.uai.evid   marginals of a bare Markov network

`fcjax COMMAND --help` says more. Exit codes: 0 all is well, 1 some cases failed, 2 bad usage or nothing could be
read, 130 interrupted."""


@click.group(cls=shell.Commands, context_settings=_SETTINGS, epilog=_EPILOG)
@click.version_option(package_name="fcjax", message="%(prog)s %(version)s")
def commands() -> None:
    """Which statements of a long answer are false, on what evidence, and how sure that is."""


_SCORE_EPILOG = """\b
Examples:
  fcjax score cases.jsonl -o results.jsonl
  fcjax score cases.jsonl.gz -o results.jsonl.gz --preset release --version FR2
  zcat cases.jsonl.gz | fcjax score - -o - --k 12 | jq .measures.precision
  fcjax score cases.jsonl --json | jq .means.precision

Stop it at any moment and run the same command again: finished cases are kept, and the file ends up the same. Exit
codes: 0 every case has its values, 1 some cases failed, 2 bad usage or nothing could be read, 130 interrupted."""


@commands.command(epilog=_SCORE_EPILOG)
@click.argument("source", metavar="IN", type=shell.INPUT)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    type=shell.OUTPUT,
    help="Write a result a line to OUT; - is standard output.",
)
@shell.graph_options
@click.option(
    "--k",
    metavar="K",
    callback=shell.number_k,
    help="K of recall and F1, a number, or `release` for half of each response's atoms. [default: the median "
    "number of atoms]",
)
@shell.engine_options
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Score the first N cases only.")
@click.option("--overwrite", is_flag=True, help="Start OUT from nothing, whatever it holds.")
@shell.common_options
@click.pass_context
def score(
    ctx: click.Context,
    /,
    source: str,
    out: str | None,
    limit: int | None,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Score cases that carry relations.

    Every atom gets its posterior probability and label, and every case its measures. IN is a file of cases (.jsonl,
    .jsonl.gz, .json), a FactReasoner problem or fact graph, or - for standard input. OUT gets one JSON line a case
    (.jsonl, .jsonl.gz) or a list of them (.json). Without it only tables are printed.
    """
    if as_json and out == "-":
        raise SettingsError("--json and -o - both want standard output; give -o a file, or leave one of them out")
    from fcjax.bulk import Settings
    from fcjax.bulk import score as run

    settings = Settings(limits=shell.taken_limits(options), **options)
    to_file = out is not None and out != "-"
    watch = _Watch(bar=not quiet, table=not (quiet or as_json))
    try:
        summary = run(source, out, settings, overwrite=overwrite, limit=limit, watch=watch)
    except KeyboardInterrupt:
        done = shell.counted(watch.done, "finished case")
        kept = f"; {done} kept; run the same command to go on" if to_file else ""
        raise KeyboardInterrupt(f"stopped{kept}") from None
    except OutputError as error:
        kept = f"; {shell.counted(watch.done, 'finished case')} kept" if watch.done else ""
        raise OutputError(f"{error}{kept}") from error
    finally:
        watch.close()
    if as_json:
        import fcjax

        about = {"fcjax": fcjax.__version__, "input": source, "output": out, "settings": settings.resolved()}
        shell.print_json(about | summary.to_dict())
    elif not quiet:
        watch.draw(summary.to_dict(), stderr=out == "-")
        if to_file:
            kept = f": {watch.kept:,} kept, {watch.done - watch.kept:,} new" if watch.kept else ""
            click.echo(f"{shell.counted(watch.done, 'result')} in {out}{kept}")
    if summary.statuses.keys() == {"invalid_input"}:
        shell.say(f"error: {source}: not one case could be used; the first: {watch.first_reason}")
        ctx.exit(shell.UNUSABLE)
    ctx.exit(shell.SOME_FAILED if summary.n_failed else shell.OK)


class _Watch:
    """Looks on while a file is scored: moves the bar and gathers what the table will show."""

    def __init__(self, bar: bool, table: bool):
        self.done = self.kept = 0
        self.first_reason: str | None = None
        self._wants_bar = bar and sys.stderr.isatty()
        self._bar: Any = None
        self._worst: Any = None
        if table:
            from fcjax.display import Worst

            self._worst = Worst()

    def begins(self, found: Survey) -> None:
        if found.missing:
            first, lack = next(iter(found.missing.items()))
            count = shell.counted(len(found), "case")
            shell.say(f"warning: {len(found.missing):,} of {count} cannot be scored; case {first + 1}: {lack}")
        if self._wants_bar:
            from fcjax.display import Bar

            self._bar = Bar(len(found))
        from fcjax.engine import use_persistent_cache  # not before: faults of the input are told without an engine

        use_persistent_cache()

    def row(self, row: Row, kept: bool) -> None:
        self.done += 1
        self.kept += kept
        self.first_reason = self.first_reason or row["reason"]
        if self._bar:
            self._bar.advance(kept)
        if self._worst:
            self._worst.add(row)

    def close(self) -> None:
        if self._bar:
            self._bar.close()

    def draw(self, summary: dict[str, Any], stderr: bool) -> None:
        from fcjax.display import draw_summary, show

        show(self._worst, draw_summary(summary), stderr=stderr)


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
        for fault in faults_of(file):
            kind = "note" if isinstance(fault, Notice) else "fault"
            document[f"n_{kind}s"] += 1
            if as_json:
                document[f"{kind}s"].append(shell.fault_dict(fault))
            elif not quiet:
                click.echo(f"{click.style('note: ', fg='yellow') if kind == 'note' else ''}{fault}")
        documents.append(document)
        if not (as_json or quiet):
            counts = f"{shell.counted(document['n_faults'], 'fault')}, {shell.counted(document['n_notes'], 'note')}"
            click.secho(f"{file}: {counts}", fg="red" if document["n_faults"] else "green")
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
    from fcjax.bulk import Settings, one_graph
    from fcjax.io.files import convert as run
    from fcjax.io.files import detect, write_uai
    from fcjax.io.files.streams import refuse_input

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

    from fcjax.engine import infer as run
    from fcjax.engine import use_persistent_cache
    from fcjax.graph import FactGraph
    from fcjax.io.files import read_uai
    from fcjax.io.files.streams import refuse_input, write_lines
    from fcjax.results import model_answer

    if out is not None:
        refuse_input(out, model, evid, f"{model}.names")
    graph = FactGraph.from_model(read_uai(model, evid))
    use_persistent_cache()
    found = run([graph], limits=shell.taken_limits(options), **options)[0]
    answer = {"model": model, **model_answer(graph, found)}
    if out:
        write_lines(out, [orjson.dumps(answer)], bare=True)
    if as_json:
        shell.print_json(answer)
    elif not (quiet or out == "-" or found.status.failed):
        from fcjax.display import marginals_table, show

        show(marginals_table(answer))
    if found.status.failed:
        shell.say(f"error: {model}: {found.status}: {found.reason}")
    ctx.exit(shell.SOME_FAILED if found.status.failed else shell.OK)


commands.add_command(cache)
commands.add_command(relate)
commands.add_command(doctor)
