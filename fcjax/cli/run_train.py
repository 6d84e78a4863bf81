"""How `fcjax train` runs, and what it prints and writes."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import orjson

import fcjax
from fcjax.cli import shell
from fcjax.core.errors import InputError, OutputError, SettingsError
from fcjax.core.records import DISTRIBUTED
from fcjax.encoders.encoder import tokens_of
from fcjax.encoders.network import Network
from fcjax.encoders.relation_model import LocalRelationModel
from fcjax.encoders.training import Progress, Rows, Trainer, TrainingPlan, held_out_of
from fcjax.evaluation.label_shares import check_labels
from fcjax.evaluation.relation_exam import Exam, examine
from fcjax.evaluation.relation_pairs import LabelledPair, LabelledPairs, read_pairs
from fcjax.inference.backend import use_persistent_cache
from fcjax.io.files.locks import locked
from fcjax.io.model_folder import (
    CALIBRATION,
    CONFIG,
    INDEX,
    TOKENIZER,
    WEIGHTS,
    ModelFolder,
    open_model,
    write_beside,
    write_model,
)
from fcjax.io.own_loop import in_own_loop
from fcjax.io.training_state import WORK, TrainingState

CARD: Final = "README.md"


def run(
    ctx: click.Context,
    *,
    source: str,
    out: str | None,
    base: str,
    held_out: float,
    limit: int | None,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **plan: Any,
) -> None:
    """Train a model, examine it on the held-out pairs, and write its folder."""
    if out in (None, "-"):
        raise SettingsError("no output folder given; add -o FOLDER")
    folder = Path(str(out))
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{out}: is a file; give a folder with -o")
    how = TrainingPlan(**plan)
    begun = open_model(base)
    if folder.resolve() == begun.path:
        raise OutputError(f"{out}: is the base itself; write to another folder")
    unfinished = TrainingState(folder / WORK, {}).exists
    if not (overwrite or unfinished):
        _refuse_others(folder)
    ctx.with_resource(locked(folder / WEIGHTS))
    use_persistent_cache()
    pairs = read_pairs(source)
    for fault in pairs.faults[: shell.FAULTS_SHOWN]:
        shell.say(f"warning: {fault}")
    if pairs.n_faulty:
        shell.say(f"warning: {shell.counted(pairs.n_faulty, 'row')} skipped")
    if limit is not None:
        pairs = replace(pairs, pairs=pairs.pairs[:limit])
    check_labels(pairs)
    apart = held_out_of([pair.premise.strip() for pair in pairs.pairs], held_out, how.seed)
    inside = [pair for pair, out_ in zip(pairs.pairs, apart, strict=True) if not out_]
    outside = [pair for pair, out_ in zip(pairs.pairs, apart, strict=True) if out_]
    trainer = _trainer(begun, how, inside, outside)
    try:
        folder.mkdir(parents=True, exist_ok=True)  # before hours of work
    except OSError as error:
        raise OutputError(f"{out}: cannot be made ({error.strerror or error}); write to another folder") from error
    if (left_out := len(pairs.pairs) - len(trainer.train.pairs) - len(trainer.held_out.pairs)) and not quiet:
        shell.say(f"warning: {shell.counted(left_out, 'pair')} left out: no words, or a claim that is too long")
    digest = hashlib.sha256(orjson.dumps([(pair.premise, pair.hypothesis, pair.label) for pair in pairs.pairs]))
    rest = {"base": begun.digest, "pairs": digest.hexdigest()[:16]}
    state = TrainingState(folder / WORK, trainer.fingerprint() | rest)
    if overwrite:
        try:
            trainer.resume(state)
        except (InputError, SettingsError):  # of another training, or damaged
            state.drop()
    monitor = _Monitor(trainer.progress, bar=not quiet)
    try:
        with shell.stopped(ctx, lambda: f"{_reached(trainer.progress)}; {shell.RESUME}"):
            network = trainer.run(state, monitor)
    finally:
        monitor.close()
    write_model(folder, _config(begun), network.tensors(), begun, {})
    exam = _examined(folder, outside)
    texts = {CARD: _card(begun, how, trainer.progress, exam, source, len(trainer.train.pairs))}
    if exam.calibration is not None:
        texts[CALIBRATION] = orjson.dumps(exam.calibration.to_dict(), option=orjson.OPT_INDENT_2).decode()
    for name, text in texts.items():
        write_beside(folder, name, text.encode())
    state.drop()  # last: until then, the same command resumes
    if as_json:
        shell.print_json(
            {
                "input": source,
                "output": out,
                "base": begun.name,
                "model": open_model(folder).name,
                "plan": trainer.fingerprint(),
                "steps": trainer.progress.step,
                "best_step": trainer.progress.best_step,
                "history": trainer.progress.history,
                "exam": exam.to_dict(),
            }
        )
    elif not quiet:
        from fcjax.cli.display import show  # loads rich
        from fcjax.cli.display_calibrate import draw_exam

        show(draw_exam(exam))
        shell.echo(
            f"{trainer.progress.step:,} steps on {shell.counted(len(inside), 'pair')}; the weights are those of step "
            f"{trainer.progress.best_step:,}\nmodel in {out}; use it with --relation-model {out}"
        )
    for warning in () if quiet else exam.warnings:
        shell.say(f"warning: {warning}")


def _reached(progress: Progress) -> str:
    """Where a training was stopped, and what of it is on disk."""
    at = f"{progress.step:,} of {progress.steps:,} steps"
    return f"{at}, of which {progress.saved:,} are saved" if progress.saved else f"{at}, of which none is saved yet"


def _refuse_others(folder: Path) -> None:
    """Raise `OutputError` where the folder holds a model, or files that one would replace."""
    if (folder / WEIGHTS).exists() or (folder / INDEX).exists():
        raise OutputError(f"{folder}: has a model already; use --overwrite to train another in its place")
    if found := [name for name in (CONFIG, TOKENIZER, CARD, CALIBRATION) if (folder / name).exists()]:
        raise OutputError(
            f"{folder}: has a file {found[0]}, which the model would replace; use --overwrite, or another folder"
        )


def _trainer(begun: ModelFolder, how: TrainingPlan, inside: list[LabelledPair], outside: list[LabelledPair]) -> Trainer:
    network = Network.of(begun.config, begun.tensors()).with_head(len(DISTRIBUTED), seed=how.seed)
    tokens = tokens_of(begun, network)
    length = min(how.length, network.max_length)

    def rows(pairs: list[LabelledPair]) -> Rows:
        texts = [(pair.premise, pair.hypothesis) for pair in pairs]
        return Rows.of(tokens, texts, [DISTRIBUTED.index(pair.label) for pair in pairs], length)

    if not inside or not outside:
        raise InputError("there are too few premises to hold some out; give pairs of at least two")
    return Trainer(network, tokens, how, rows(inside), rows(outside))


def _config(begun: ModelFolder) -> dict[str, Any]:
    """The configuration of the trained model: that of the base, with the head and its labels."""
    names = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "deberta-v2": "DebertaV2"}
    kind = names.get(str(begun.config["model_type"]), "ModernBert")
    labels = [str(label) for label in DISTRIBUTED]
    dropped = ("_name_or_path", "auto_map", "transformers_version")
    return {
        **{name: value for name, value in begun.config.items() if name not in dropped},
        "torch_dtype": "float32",
        "dtype": "float32",
        "architectures": [f"{kind}ForSequenceClassification"],
        "id2label": {str(place): label for place, label in enumerate(labels)},
        "label2id": {label: place for place, label in enumerate(labels)},
        "problem_type": "single_label_classification",
    }


def _examined(folder: Path, outside: list[LabelledPair]) -> Exam:
    """The examination on the held-out pairs, read as other commands read pairs."""
    model = LocalRelationModel.open(folder, force=True)  # its training is about to be finished
    pairs = LabelledPairs.of(outside)

    async def work() -> Exam:
        return await examine(pairs, None, model)

    return in_own_loop(work())


def _card(begun: ModelFolder, how: TrainingPlan, done: Progress, exam: Exam, source: str, n: int) -> str:
    """The model's card: data, plan and figures."""
    lines = [
        "---\nlibrary_name: transformers\npipeline_tag: text-classification\n---",
        f"# A relation model, trained with fcjax {fcjax.__version__}",
        "It says of a passage (first text) and a claim (second text) whether the passage entails the claim, contradicts"
        " it, or is neutral. Use it with `fcjax critique --relation-model FOLDER`.",
        "## Training",
        f"- base: `{begun.name}`",
        f"- pairs: {n:,} of `{Path(source).name}`, and {exam.raw.n if exam.raw else 0:,} of other premises held out",
        f"- plan: `{how}`",
        f"- steps: {done.step:,}; the weights are of step {done.best_step:,}, with a held-out loss of "
        f"{done.held_out_loss:.4f} nats",
        "## Figures on the held-out pairs",
        "The step and the calibration were chosen on these pairs, so that other pairs may be harder.",
        "```text\n" + repr(exam) + "\n```",
    ]
    return "\n\n".join(lines) + "\n"


class _Monitor:
    """Draws the progress, and says what the held-out loss is."""

    def __init__(self, progress: Progress, bar: bool):
        self._bar: Any = None
        self._seen = 0
        self._total = progress.steps
        self._says = bar
        self._at = 0
        self._has_begun = False
        if bar and sys.stderr.isatty():
            from fcjax.cli.display import Bar  # loads rich

            self._bar = Bar(progress.steps, doing="training", unit="steps")

    def __call__(self, done: Progress) -> None:
        if not self._has_begun:
            self._has_begun = True
            if done.step > 1 and self._says:
                self._seen = sum(step < done.step for step, _, _ in done.history)  # those were said before
                shell.say(f"resumed at step {done.step - 1:,} of {self._total:,}")
        if self._bar:
            self._bar.advance(by=done.step - self._at)
        self._at = done.step
        if len(done.history) > self._seen and self._says:
            step, training, held_out = done.history[-1]
            self._seen = len(done.history)
            shell.say(f"step {step:,} of {self._total:,}: loss {training:.4f}, held out {held_out:.4f}")

    def close(self) -> None:
        if self._bar:
            self._bar.close()
