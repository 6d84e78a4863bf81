"""Tables of an examination of a relation model. Imported only where something is drawn, as it loads rich."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fcjax.cli.shell import counted
from fcjax.core.records import DISTRIBUTED
from fcjax.evaluation.relation_exam import Exam
from fcjax.evaluation.relation_figures import Figures
from fcjax.evaluation.reliability import BASELINE_TITLES, TITLES, bar, baseline_number, baselines_of, number, sets_of

_SETS = {"raw": "raw", "calibrated": "calibrated", "given": "--calibration"}


def draw_exam(exam: Exam) -> RenderableType:
    """The numbers, confusion matrices, bias, reliability diagram and calibration of an examination."""
    sets = sets_of(exam)
    asked = f"{counted(len(exam.pairs.pairs), 'pair')} asked about, {exam.n_failed:,} failed"
    methods = ", ".join(f"{count:,} {method}" for method, count in exam.methods.items())
    parts: list[RenderableType] = [Text(f"{exam.model}, {exam.template}: {asked}")]
    if methods:
        parts.append(Text(f"probabilities from {methods}"))
    gate = Text(f"gate {exam.gate.verdict}", style="" if exam.gate.passed else "bold")
    if not sets:
        return Group(*parts, gate)
    parts.append(_numbers(exam, sets))
    parts.append(_baselines(exam))
    parts.append(gate)
    parts += [_matrix(_SETS[name], figures) for name, figures in sets.items()]
    parts.append(_bias(sets))
    parts += [_diagram(_SETS[name], figures) for name, figures in sets.items() if figures.bins]
    if exam.calibration is not None:
        found = exam.calibration
        biases = ", ".join(f"{label} {bias:+.3f}" for label, bias in zip(DISTRIBUTED, found.biases, strict=True))
        parts.append(Text(f"fitted on all answers: temperature {found.temperature:.3f}; biases {biases}"))
    return Group(*parts)


def _numbers(exam: Exam, sets: dict[str, Figures]) -> Table:
    table = _table("Figures with 95% intervals")
    table.add_column("measure")
    for name in sets:
        table.add_column(_SETS[name], justify="right")
    for key, title in TITLES.items():
        table.add_row(title, *(number(figures, key) for figures in sets.values()))
    table.add_row("expected by chance", *(number(figures, "ece_by_chance") for figures in sets.values()))
    if exam.folds:
        table.caption = f"calibrated: cross-validated in {exam.folds} folds by premise"
        table.caption_justify = "left"
    return table


def _baselines(exam: Exam) -> Table:
    table = _table("Baselines, on the same pairs")
    table.add_column("measure")
    baselines = baselines_of(exam)
    for baseline in baselines:
        table.add_column(baseline.name, justify="right")
    for key, title in BASELINE_TITLES.items():
        table.add_row(title, *(baseline_number(baseline, key) for baseline in baselines))
    return table


def _matrix(name: str, figures: Figures) -> Table:
    table = _table(f"Confusion, {name}: people's labels by the model's")
    table.add_column("people")
    for label in DISTRIBUTED:
        table.add_column(label, justify="right")
    for label, row in zip(DISTRIBUTED, figures.confusion, strict=True):
        table.add_row(label, *(f"{count:,}" for count in row))
    return table


def _bias(sets: dict[str, Figures]) -> Table:
    table = _table("Bias: mean distributions beside people's labels")
    table.add_column("label")
    table.add_column("people", justify="right")
    for name in sets:
        table.add_column(_SETS[name], justify="right")
    shares = next(iter(sets.values())).shares
    for place, label in enumerate(DISTRIBUTED):
        table.add_row(label, f"{shares[place]:.3f}", *(f"{figures.mean[place]:.3f}" for figures in sets.values()))
    return table


def _diagram(name: str, figures: Figures) -> Table:
    """The reliability diagram: a bar for the share that is right beside one for the probability."""
    table = _table(f"Reliability, {name}")
    for head in ("answers", "probability", "", "right", ""):
        table.add_column(head, justify="left" if not head else "right", no_wrap=True)
    for one in figures.bins:
        table.add_row(f"{one.n:,}", f"{one.p:.3f}", bar(one.p), f"{one.right:.3f}", bar(one.right))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, collapse_padding=True)
