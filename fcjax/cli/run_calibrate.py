"""How `fcjax calibrate` runs, and what it prints."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import click
import orjson

from fcjax.cli import shell
from fcjax.cli.client import ModelAccess, open_client
from fcjax.cli.critic import relation_model, warn_of_constraint
from fcjax.cli.summary import client_lines, client_report, dollars
from fcjax.core.errors import SettingsError
from fcjax.evaluation.baselines import Embedder
from fcjax.evaluation.label_shares import check_labels
from fcjax.evaluation.plots import check_plot, reliability
from fcjax.evaluation.relation_exam import Exam, examine, questions_of
from fcjax.evaluation.relation_pairs import LabelledPairs, read_pairs
from fcjax.evaluation.reliability import sets_of
from fcjax.inference.backend import use_persistent_cache
from fcjax.io.files.streams import check_folder, refuse_input, write_lines
from fcjax.io.own_loop import in_own_loop
from fcjax.io.stats import CostEstimate
from fcjax.stages.relate import Relater


def run(
    ctx: click.Context,
    *,
    source: str,
    out: str | None,
    limit: int | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    template: str | None,
    in_use: tuple[float, float, float] | None,
    plot: str | None,
    embedding: str | None,
    **parameters: Any,
) -> None:
    """Examine a relation model, print its figures and write its calibration."""
    if as_json and out == "-":
        raise SettingsError("--json and -o - both use standard output; specify a file for -o, or remove one of them")
    if in_use is not None and out is None:
        raise SettingsError("--in-use has no effect without an output file; remove it, or add -o FILE")
    also_read = source, template, parameters["config"], parameters["calibration"]
    if plot is not None:
        if out is not None and _is_same_file(out, plot):
            raise SettingsError(f"-o and --plot are both {plot}; specify two different files")
        check_plot(plot)
    local = parameters["relation_model"] is not None
    with open_client(parameters, dry_run=dry_run, asks=not local, stores=local) as access:
        model = relation_model(parameters, access, template)
        if not quiet:
            warn_of_constraint(access, model)
        for written in (out, plot):
            if written is not None:
                refuse_input(written, access.store_path, *also_read)
                check_folder(written)
        pairs = read_pairs(source)
        if limit is not None:
            pairs = replace(pairs, pairs=pairs.pairs[:limit])
        _warn_of_rows(pairs)
        if out is not None:
            check_labels(pairs)
        about: dict[str, Any] = {"input": source, "output": out, "endpoint": access.endpoint}
        about["store"] = None if access.store_path is None else str(access.store_path)
        if dry_run:
            _show_estimate(pairs, model, access, about, quiet=quiet, as_json=as_json)
            return
        embedder: Embedder | None = None
        if embedding is not None:
            use_persistent_cache()
            from fcjax.encoders.embedder import Embedder as LocalEmbedder  # loads jax, which looks for its cache then

            embedder = LocalEmbedder.open(embedding)
        exam = _examined(ctx, pairs, model, access, in_use, embedder, bar=not quiet)
    if out is not None and exam.calibration is not None:
        write_lines(out, [orjson.dumps(exam.calibration.to_dict(), option=orjson.OPT_INDENT_2)], bare=True)
    stats = access.stats
    if as_json:
        shell.print_json(about | exam.to_dict() | {"client": client_report(stats)})
    elif not quiet:
        from fcjax.cli.display import show  # loads rich
        from fcjax.cli.display_calibrate import draw_exam

        aside = out == "-"
        show(draw_exam(exam), stderr=aside)
        if access.client_or_none is not None:  # else nothing was asked
            cost = f"{exam.cost.prompt_tokens:,} input and {exam.cost.completion_tokens:,} output tokens"
            prompts = shell.counted(exam.cost.prompts, "prompt")
            shell.echo(f"{prompts}, {cost}; cost {dollars(exam.cost.dollars)}", err=aside)
            shell.echo(client_lines(stats)[0], err=aside)
        if out not in (None, "-") and (made := exam.calibration):
            shell.echo(f"calibration {made.digest} of {shell.counted(made.n_pairs, 'pair')} in {out}")
    for warning in () if quiet else exam.warnings:
        shell.say(f"warning: {warning}")
    if out is not None and exam.calibration is not None and not exam.gate.passed and not quiet:
        shell.say(f"warning: {out}: other commands refuse this calibration without --force; gate {exam.gate.verdict}")
    if plot is not None and exam.raw is not None:  # last, so that all else is there if it cannot be written
        reliability({name: figures.bins for name, figures in sets_of(exam).items()}, plot)
    if out is not None and exam.calibration is None:
        shell.say(f"error: {out}: not written: the answers allow no calibration")
        ctx.exit(shell.UNUSABLE)
    ctx.exit(shell.SOME_FAILED if exam.n_failed or pairs.n_faulty else shell.OK)


def _is_same_file(one: str, other: str) -> bool:
    """Whether two outputs are one file, which need not be there yet."""
    if os.path.realpath(one) == os.path.realpath(other):
        return one != "-"
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _examined(
    ctx: click.Context,
    pairs: LabelledPairs,
    model: Relater,
    access: ModelAccess,
    in_use: tuple[float, float, float] | None,
    embedder: Embedder | None,
    *,
    bar: bool,
) -> Exam:
    """The examination, with a progress bar, and a message about how to resume where it is stopped."""
    monitor: Any = None
    if bar and sys.stderr.isatty():
        from fcjax.cli.display import Bar  # loads rich

        monitor = Bar(len(pairs.pairs), doing="asking", unit="pairs")
    done = 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        if monitor:
            monitor.advance(by=count)

    def kept() -> str:
        place = f"all replies are in {access.store_path}; " if access.store_path else ""
        return f"{shell.counted(done, 'pair')} of {len(pairs.pairs):,} done; {place}{shell.RESUME}"

    async def work() -> Exam:
        async with access.client_or_none or nullcontext() as client:
            how: dict[str, Any] = {"in_use": in_use, "embedder": embedder, "window": access.window}
            return await examine(pairs, client, model, progress=progress, **how)

    try:
        with shell.stopped(ctx, kept):
            return in_own_loop(work())
    finally:
        if monitor:
            monitor.close()


def _warn_of_rows(pairs: LabelledPairs) -> None:
    """Warn of the rows that were left out."""
    for fault in pairs.faults[: shell.FAULTS_SHOWN]:
        shell.say(f"warning: {fault}")
    if pairs.n_faulty:
        shell.say(f"warning: {shell.counted(pairs.n_faulty, 'row')} skipped")


def _show_estimate(
    pairs: LabelledPairs,
    model: Relater,
    access: ModelAccess,
    about: dict[str, Any],
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    found = CostEstimate()
    if model.asks:
        prompts = (question.prompt() for question in questions_of(pairs.pairs, model))
        found = in_own_loop(access.client.estimate(prompts, count_tokens=access.count_tokens))
    if as_json:
        counts = {"n_pairs": len(pairs.pairs), "pairs": pairs.to_dict()}
        shell.print_json(about | counts | {"dry_run": True, **asdict(found), "to_send": found.to_send})
    elif not quiet:
        shell.echo(
            f"{shell.counted(len(pairs.pairs), 'pair')}, {shell.counted(found.prompts, 'prompt')}, "
            f"{found.stored:,} in the store: {found.to_send:,} to send\n"
            f"about {found.prompt_tokens:,} input and at most {found.completion_tokens:,} output tokens; "
            f"cost at most {dollars(found.cost)}"
        )
