"""`fcjax data`: public data sets as cases, corrections as training and annotation data, annotations as a table."""

from __future__ import annotations

import click

from fcjax.cli import shell
from fcjax.cli.data_build import BUILDERS, FAULTS_SHOWN, FILES, OUT, SEED, SPLIT, check_places, never_none, tell
from fcjax.cli.model_options import COUNT
from fcjax.core.errors import InputError, SettingsError

_EPILOG = """\b
Examples:
  fcjax data factscore ChatGPT.jsonl -o bio.jsonl
  fcjax data eli5 eli5-category-train.json.gz -o veli5.jsonl --limit 1000 --seed 1 --model NAME
  fcjax data finetune corrections.jsonl -o train.jsonl --split train
  fcjax data label-studio corrections.jsonl -o tasks.json --interface interface.xml
  fcjax data annotations export.json

Nothing is downloaded: the files are those that a data set's authors have published, on your disk. A row that cannot be
used is told with file, line and field, and left out. Exit codes: 0 all rows were used, 1 some were left out or have
failed, 2 bad usage or nothing could be used."""


@click.group(epilog=_EPILOG)
def data() -> None:
    """Make cases of public data sets, and training and annotation data of corrections."""


for _command in BUILDERS:
    data.add_command(_command)

_corrections = click.argument("source", metavar="CORRECTIONS", type=shell.INPUT)
_unchanged = click.option("--unchanged", is_flag=True, help="Rows where nothing was changed as well.")


@data.command()
@_corrections
@OUT
@click.option("--feedback/--no-feedback", default=True, help="Whether the feedback is in the user's turn.")
@_unchanged
@SPLIT
@SEED
@click.option("--limit", type=COUNT, metavar="N", help="The first N conversations only.")
@shell.common_options
@click.pass_context
def finetune(
    ctx: click.Context,
    /,
    source: str,
    out: str,
    feedback: bool,
    unchanged: bool,
    split: str | None,
    seed: int | None,
    limit: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Corrections as conversations to fine-tune a chat model on.

    OUT gets one JSON object a line with `messages`: system, user (question, answer, feedback), assistant (the corrected
    answer).
    """
    import orjson

    from fcjax.io.datasets import BuildReport, Selection
    from fcjax.io.datasets.finetune import conversations
    from fcjax.io.files.streams import write_lines

    check_places(out, as_json, source)
    report, selection = BuildReport(), Selection(limit, seed, split)
    rows = conversations(source, selection, report, feedback=feedback, unchanged=unchanged)
    write_lines(out, never_none((orjson.dumps(row) for row in rows), report))
    tell(ctx, report, selection, (source,), out, "conversation", quiet=quiet, as_json=as_json)


@data.command("label-studio")
@_corrections
@OUT
@click.option("--interface", metavar="FILE", type=click.Path(dir_okay=False), help="Write the interface (XML) to FILE.")
@_unchanged
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="S", help="Draws A and B.")
@click.option("--limit", type=COUNT, metavar="N", help="The first N tasks only.")
@shell.common_options
@click.pass_context
def label_studio(
    ctx: click.Context,
    /,
    source: str,
    out: str,
    interface: str | None,
    unchanged: bool,
    seed: int,
    limit: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Corrections as tasks for annotators who compare both answers in Label Studio.

    OUT ends in .json: import it into a project whose labelling interface is what --interface writes.
    """
    import orjson

    from fcjax.io.datasets import BuildReport, Selection
    from fcjax.io.datasets.finetune import chosen
    from fcjax.io.datasets.label_studio import interface as drawn
    from fcjax.io.datasets.label_studio import tasks
    from fcjax.io.files.streams import refuse_input, replacing, write_lines

    if out != "-" and not out.endswith(".json"):
        raise SettingsError(f"-o {out}: Label Studio imports JSON lists; allowed: a name that ends in .json")
    check_places(out, as_json, source)
    report, selection = BuildReport(), Selection(limit, seed)
    if interface is not None:
        refuse_input(interface, source, out)
    found = chosen(source, selection, report, unchanged=unchanged)
    write_lines(out, never_none((orjson.dumps(task) for task in tasks(found, seed)), report))
    if interface is not None:
        with replacing(interface) as stream:
            stream.write(drawn().encode())
    tell(ctx, report, selection, (source,), out, "task", quiet=quiet, as_json=as_json)


@data.command("annotations")
@FILES
@click.option("-o", "--output", "out", metavar="OUT", type=shell.OUTPUT, help="Write the table (Markdown) to OUT.")
@shell.common_options
@click.pass_context
def told_by_annotators(
    ctx: click.Context, /, files: tuple[str, ...], out: str | None, quiet: bool, as_json: bool
) -> None:
    """What annotators made of corrections, from exports of Label Studio (JSON).

    For each criterion: the mean of both answers, the share of tasks that the corrected one wins, ties and loses, and
    how far annotators agree: per cent, Cohen's kappa averaged over pairs, Fleiss' kappa, Krippendorff's alpha.
    """
    from fcjax.evaluation.annotator_study import study
    from fcjax.io.datasets import BuildReport
    from fcjax.io.datasets.label_studio import Annotation, read_annotations
    from fcjax.io.files.streams import replacing

    if out is not None:
        check_places(out, as_json, *files)
    report, judgements = BuildReport(), list[Annotation]()
    for file in files:
        for row in read_annotations(file):
            report.rows += 1
            report.add(row.faults)
            judgements += row.value or ()
    if not judgements:
        raise InputError(*report.faults or (f"{', '.join(files)}: the export has no annotations",))
    found = study(judgements)
    if out is not None:
        with replacing(out) as stream:
            stream.write(found.to_markdown().encode())
    if as_json:
        faults = [shell.fault_dict(fault) for fault in report.faults]
        shell.print_json({"input": list(files), **found.to_dict(), "n_bad_rows": report.bad, "faults": faults})
    else:
        for fault in report.faults[:FAULTS_SHOWN]:
            shell.say(f"error: {fault}")
        if not quiet and out is None:
            click.echo(found.to_markdown(), nl=False)
            click.echo(
                f"{shell.counted(found.tasks, 'task')}, {shell.counted(found.annotators, 'annotator')}", err=True
            )
    ctx.exit(shell.SOME_FAILED if report.bad else shell.OK)
