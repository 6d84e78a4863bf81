"""`fcjax data`: cases from public data sets, training and annotation data from corrections, tables of annotations."""

from __future__ import annotations

import click

from fcjax.cli import shell
from fcjax.cli.command import Group, option
from fcjax.cli.data_build import BUILDERS, FILES, OUT, SEED, SPLIT
from fcjax.cli.options.files import plain_print_options
from fcjax.cli.options.types import COUNT, INPUT, OUTPUT
from fcjax.core.errors import InputError, SettingsError

_EPILOG = """\b
Examples:
  fcjax data factscore ChatGPT.jsonl -o bio.jsonl
  fcjax data eli5 eli5-category-train.json.gz -o veli5.jsonl --limit 1000 --seed 1 --model NAME
  fcjax data finetune corrections.jsonl -o train.jsonl --split train
  fcjax data label-studio corrections.jsonl -o tasks.json --interface interface.xml
  fcjax data annotations export.json

Nothing is downloaded: the input is the files published by the authors of each data set. Unusable rows are reported
with file, line and field, and skipped. Exit codes: 0 all rows were used, 1 some were skipped or failed, 2 bad usage or
no usable rows."""


@click.group(cls=Group, epilog=_EPILOG)
def data() -> None:
    """Build cases from public data sets, and training data from corrections.

    Also prepares corrections for annotators, and evaluates their annotations.
    """


for _command in BUILDERS:
    data.add_command(_command)

_corrections = click.argument("source", metavar="CORRECTIONS", type=INPUT)
_unchanged = option("--unchanged", is_flag=True, help="Include rows whose response is unchanged.")


@data.command()
@_corrections
@OUT
@option(
    "--feedback/--no-feedback",
    default=True,
    show_default=True,
    help="Include the feedback in the user message.",
)
@_unchanged
@SPLIT
@SEED
@option("--limit", type=COUNT, metavar="N", help="Use only the first N conversations.")
@plain_print_options
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
    """Convert corrections to conversations for fine-tuning a chat model.

    OUT receives one JSON object per line with `messages`: system, user (question, answer, feedback), assistant (the
    corrected answer).
    """
    import orjson

    from fcjax.cli.build_cases import check_places, never_empty, report_rows
    from fcjax.io.datasets import BuildReport, Selection
    from fcjax.io.datasets.finetune import conversations
    from fcjax.io.files.streams import write_lines

    check_places(out, as_json, source)
    report, selection = BuildReport(), Selection(limit, seed, split)
    rows = conversations(source, selection, report, feedback=feedback, unchanged=unchanged)
    write_lines(out, never_empty((orjson.dumps(row) for row in rows), report))
    report_rows(ctx, report, selection, (source,), out, "conversation", quiet=quiet, as_json=as_json)


@data.command("label-studio")
@_corrections
@OUT
@option(
    "--interface",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Also write the labelling interface (XML) to FILE.",
)
@_unchanged
@option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="S",
    help="Random seed for which answer is shown as A and which as B.",
)
@option("--limit", type=COUNT, metavar="N", help="Use only the first N tasks.")
@plain_print_options
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
    """Convert corrections to Label Studio tasks that compare both answers.

    OUT must end in .json. Import it into a project that uses the labelling interface written by --interface.
    """
    import orjson

    from fcjax.cli.build_cases import check_places, never_empty, report_rows
    from fcjax.io.datasets import BuildReport, Selection
    from fcjax.io.datasets.finetune import chosen
    from fcjax.io.datasets.label_studio import interface as drawn
    from fcjax.io.datasets.label_studio import tasks
    from fcjax.io.files.streams import refuse_input, replacing, write_lines

    if out != "-" and not out.endswith(".json"):
        raise SettingsError(f"-o {out}: Label Studio imports JSON lists; expected a file name ending in .json")
    check_places(out, as_json, source)
    report, selection = BuildReport(), Selection(limit, seed)
    if interface is not None:
        refuse_input(interface, source, out)
    found = chosen(source, selection, report, unchanged=unchanged)
    write_lines(out, never_empty((orjson.dumps(task) for task in tasks(found, seed)), report))
    if interface is not None:
        with replacing(interface) as stream:
            stream.write(drawn().encode())
    report_rows(ctx, report, selection, (source,), out, "task", quiet=quiet, as_json=as_json)


@data.command("annotations")
@FILES
@option("-o", "--output", "out", metavar="OUT", type=OUTPUT, help="File for the table (Markdown).")
@plain_print_options
@click.pass_context
def evaluate_annotations(
    ctx: click.Context, /, files: tuple[str, ...], out: str | None, quiet: bool, as_json: bool
) -> None:
    """Evaluate annotations of corrections from Label Studio exports (JSON).

    For each criterion, reports the mean of both answers, the share of tasks that the corrected answer wins, ties and
    loses, and annotator agreement: percentage, Cohen's kappa averaged over pairs, Fleiss' kappa, and Krippendorff's
    alpha.
    """
    from fcjax.cli.build_cases import check_places
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
        raise InputError(
            *report.faults
            or (f"{', '.join(files)}: the export has no annotations; export the project again after annotating it",)
        )
    found = study(judgements)
    if out is not None:
        with replacing(out) as stream:
            stream.write(found.to_markdown().encode())
    if as_json:
        faults = [shell.fault_dict(fault) for fault in report.faults]
        shell.print_json({"input": list(files), **found.to_dict(), "n_bad_rows": report.bad, "faults": faults})
    else:
        for fault in report.faults[: shell.FAULTS_SHOWN]:
            shell.say(f"error: {fault}")
        if not quiet and out is None:
            click.echo(found.to_markdown(), nl=False)
            shell.echo(
                f"{shell.counted(found.tasks, 'task')}, {shell.counted(found.annotators, 'annotator')}", err=True
            )
    ctx.exit(shell.SOME_FAILED if report.bad else shell.OK)
