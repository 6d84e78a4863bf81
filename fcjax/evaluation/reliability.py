"""The reliability diagram of a relation model's answers, as text and as SVG, and an examination as text and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final, Protocol

from fcjax.core.errors import counted
from fcjax.core.records import DISTRIBUTED
from fcjax.evaluation.baselines import Baseline, Baselines
from fcjax.evaluation.gate import Gate
from fcjax.evaluation.relation_figures import Bin, Figures
from fcjax.evaluation.relation_pairs import LabelledPairs
from fcjax.stages.calibration import Calibration


class Exam(Protocol):
    """What is shown of an examination (see `relation_exam.Exam`)."""

    @property
    def model(self) -> str: ...
    @property
    def template(self) -> str: ...
    @property
    def pairs(self) -> LabelledPairs: ...
    @property
    def n_failed(self) -> int: ...
    @property
    def raw(self) -> Figures | None: ...
    @property
    def calibrated(self) -> Figures | None: ...
    @property
    def given(self) -> Figures | None: ...
    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def baselines(self) -> Baselines | None: ...
    @property
    def gate(self) -> Gate: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


TITLES: Final = {"accuracy": "accuracy", "macro_f1": "macro-F1", "log_loss": "log loss", "ece": "calibration error"}
"""The main numbers of `Figures`, with their titles."""
BASELINE_TITLES: Final = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "log_loss": "log loss",
    "auc": "AUC, entailment against neutral",
}
"""The numbers of `Baseline`, with their titles."""
COLOURS: Final = {"raw": "#d55e00", "calibrated": "#0072b2", "given": "#009e73"}  # colour-blind safe

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_SIDE: Final = 240  # of the SVG's square, in pixels
_EDGE: Final = 34  # round it, for the axes


def sets_of(exam: Exam) -> dict[str, Figures]:
    """The sets of figures that an examination has, by name."""
    found = {"raw": exam.raw, "calibrated": exam.calibrated, "given": exam.given}
    return {name: figures for name, figures in found.items() if figures is not None}


def number(figures: Figures, name: str) -> str:
    """A number of `Figures` with its interval; `-` where it does not exist."""
    value = getattr(figures, name, None)
    if value is None:
        return "-"
    ends = figures.intervals.get(name)
    return f"{value:.3f}" + ("" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})")


def baselines_of(exam: Exam) -> tuple[Baseline, ...]:
    """The baselines of an examination, in the order in which they are shown."""
    return () if exam.baselines is None else tuple(exam.baselines)


def baseline_number(baseline: Baseline, name: str) -> str:
    """A number of a baseline; `-` where it does not exist."""
    value = getattr(baseline, name, None)
    return "-" if value is None else f"{value:.3f}"


def bar(share: float, width: int = 20) -> str:
    """A share from 0 to 1 as a bar of block characters, `width` columns long."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(width)


def exam_lines(exam: Exam) -> Iterator[str]:
    """An examination as a few lines of text."""
    asked = f"{counted(len(exam.pairs.pairs), 'pair')}, {exam.n_failed:,} failed"
    yield f"Exam({exam.model!r}, {exam.template}: {asked})"
    for name, figures in sets_of(exam).items():
        yield f"  {name:<10} " + ", ".join(f"{title} {number(figures, key)}" for key, title in TITLES.items())
    if exam.calibration is not None:
        biases = ", ".join(
            f"{label} {bias:+.2f}" for label, bias in zip(DISTRIBUTED, exam.calibration.biases, strict=True)
        )
        yield f"  temperature {exam.calibration.temperature:.2f}, biases {biases}"
    for baseline in baselines_of(exam):
        found = (f"{title} {baseline_number(baseline, key)}" for key, title in BASELINE_TITLES.items())
        yield f"  {baseline.name}: " + ", ".join(found)
    yield f"  gate {exam.gate.verdict}"
    yield from (f"  {warning}" for warning in exam.warnings)


def exam_html(exam: Exam) -> str:
    """An examination as HTML: numbers, confusion matrices and a reliability diagram."""
    sets = sets_of(exam)
    baselines = baselines_of(exam)
    head = "".join(f"<th>{escape(name)}</th>" for name in (*sets, *(baseline.name for baseline in baselines)))
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(title)}</th>"
        + "".join(f"<td>{escape(number(figures, key))}</td>" for figures in sets.values())
        + "".join(f"<td>{baseline_number(baseline, key)}</td>" for baseline in baselines)
        + "</tr>"
        for key, title in (TITLES | BASELINE_TITLES).items()
    )
    matrices = "".join(_matrix(name, figures) for name, figures in sets.items())
    warnings = "".join(f"<li>{escape(warning)}</li>" for warning in exam.warnings)
    asked = f"{counted(len(exam.pairs.pairs), 'pair')}, {exam.n_failed:,} failed"
    return (
        f"<p><b>{escape(exam.model)}</b>, {escape(exam.template)}: {escape(asked)}</p>"
        f"<table><tr><th></th>{head}</tr>{rows}</table>"
        f"<p>gate {escape(exam.gate.verdict)}</p>"
        f"<div style='display:flex;flex-wrap:wrap;gap:1em'>{matrices}"
        f"{svg({name: figures.bins for name, figures in sets.items()})}</div>"
        + (f"<ul>{warnings}</ul>" if warnings else "")
    )


def svg(sets: dict[str, Sequence[Bin]]) -> str:
    """The reliability diagram as an SVG element: the probability of answers against the share that is right."""
    size = _SIDE + 2 * _EDGE

    def at(x: float, y: float) -> tuple[float, float]:
        return round(_EDGE + x * _SIDE, 1), round(_EDGE + (1 - y) * _SIDE, 1)

    marks: list[str] = []
    for place, (name, bins) in enumerate(sets.items()):
        colour = COLOURS.get(name, "#000000")
        points = [at(one.p, one.right) for one in bins]
        line = " ".join(f"{x},{y}" for x, y in points)
        marks.append(f"<polyline points='{line}' fill='none' stroke='{colour}'/>")
        marks += [f"<circle cx='{x}' cy='{y}' r='3' fill='{colour}'/>" for x, y in points]
        marks.append(f"<text x='{_EDGE + 6}' y='{_EDGE + 14 + 14 * place}' fill='{colour}'>{escape(name)}</text>")
    (left, bottom), (right, top) = at(0, 0), at(1, 1)
    axes = (
        f"<rect x='{left}' y='{top}' width='{_SIDE}' height='{_SIDE}' fill='none' stroke='#999999'/>"
        f"<line x1='{left}' y1='{bottom}' x2='{right}' y2='{top}' stroke='#999999' stroke-dasharray='4'/>"
        f"<text x='{left}' y='{bottom + 14}'>0</text><text x='{right - 6}' y='{bottom + 14}'>1</text>"
        f"<text x='{left - 12}' y='{top + 8}'>1</text>"
        f"<text x='{_EDGE + _SIDE / 2}' y='{bottom + 28}' text-anchor='middle'>probability of the answer</text>"
        f"<text x='{_EDGE}' y='{top - 8}'>share that is right</text>"
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{size}' height='{size}' viewBox='0 0 {size} {size}' "
        f"font-family='sans-serif' font-size='11' role='img' aria-label='reliability diagram'>{axes}{''.join(marks)}"
        "</svg>"
    )


def _matrix(name: str, figures: Figures) -> str:
    head = "".join(f"<th>{label}</th>" for label in DISTRIBUTED)
    rows: Iterable[str] = (
        f"<tr><th style='text-align:left'>{label}</th>{''.join(f'<td>{count}</td>' for count in row)}</tr>"
        for label, row in zip(DISTRIBUTED, figures.confusion, strict=True)
    )
    return f"<table><tr><th>{escape(name)}: people \\ model</th>{head}</tr>{''.join(rows)}</table>"
