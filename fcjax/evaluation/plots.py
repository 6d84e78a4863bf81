"""Plots of comparisons, as PNG or SVG by the file's name. Equal numbers give equal bytes of SVG.

matplotlib (the extra `plots`) is loaded for the first plot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fcjax.core.errors import OutputError, SettingsError
from fcjax.evaluation.optional import load
from fcjax.evaluation.relation_figures import Bin
from fcjax.evaluation.report import HEADS, GridEntry

SUFFIXES: Final = (".png", ".svg")
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # colour-blind safe
_MARKERS: Final = "osD^vP*"
_NAMES: Final = {"precision": "factual precision", "comprehensiveness": "comprehensiveness"}


def before_after(entries: Iterable[GridEntry], path: str | Path, measure: str = "precision") -> None:
    """A point per case, its score before against its score after, by corrector and model; one panel per data set.

    Points above the diagonal improved. Raises `SettingsError` for another suffix or without matplotlib, and
    `OutputError` if the plot cannot be written.
    """
    entries = list(entries)
    name = _NAMES.get(measure, HEADS.get(measure, measure))
    with _figure(path, _unique(entry.data for entry in entries), 4.0) as panels:
        styles = {who: i for i, who in enumerate(_unique(_who(entry) for entry in entries))}
        for data, axes in panels.items():
            ours = [entry for entry in entries if entry.data == data]
            scores = {_who(entry): entry.comparison[measure].scores for entry in ours}
            largest = max((max(before, after) for found in scores.values() for _, before, after in found), default=1.0)
            top = largest if largest > 1 else 1.0
            axes.plot([0, top], [0, top], color="#999999", linewidth=0.8, zorder=0)
            for who, found in scores.items():
                axes.scatter(
                    [before for _, before, _ in found],
                    [after for _, _, after in found],
                    s=16,
                    alpha=0.6,
                    linewidths=0,
                    color=_COLOURS[styles[who] % len(_COLOURS)],
                    marker=_MARKERS[styles[who] % len(_MARKERS)],
                    label=_text(f"{who} ({len(found)})"),
                )
            axes.set_title(_text(data))
            axes.set_xlabel(_text(f"{name} before"))
            axes.set_ylabel(_text(f"{name} after"))
            axes.set_aspect("equal")
            if scores:
                axes.legend(frameon=False, fontsize="small")


def gains_by_model(entries: Iterable[GridEntry], path: str | Path, measure: str = "precision") -> None:
    """The mean relative gain of every corrector, grouped by model, with its bootstrap interval; one panel per data set.

    Raises the same errors as `before_after`.
    """
    entries = list(entries)
    name = HEADS.get(measure, measure)
    models, correctors = _unique(entry.model for entry in entries), _unique(entry.corrector for entry in entries)
    width = 0.8 / max(len(correctors), 1)
    with _figure(path, _unique(entry.data for entry in entries), 1.5 + 1.2 * max(len(models), 2)) as panels:
        for data, axes in panels.items():
            axes.axhline(0, color="#999999", linewidth=0.8)
            for i, corrector in enumerate(correctors):
                ours = [entry for entry in entries if (entry.data, entry.corrector) == (data, corrector)]
                bars = [
                    (models.index(entry.model) + (i - (len(correctors) - 1) / 2) * width, spread)
                    for entry in ours
                    if (spread := entry.comparison[measure].gain).mean is not None
                ]
                if not bars:
                    continue
                colour = _COLOURS[i % len(_COLOURS)]
                axes.bar(
                    [at for at, _ in bars],
                    [spread.mean for _, spread in bars],
                    0.9 * width,
                    color=colour,
                    label=_text(corrector),
                )
                for at, spread in bars:
                    if spread.low is not None:
                        axes.plot([at, at], [spread.low, spread.high], color="black", linewidth=1.0)
            axes.set_title(_text(data))
            axes.set_xticks(range(len(models)), [_text(model) for model in models])
            axes.set_ylabel(_text(f"G({name})"))
            axes.set_xlim(-0.5, max(len(models), 1) - 0.5)
            if axes.containers:
                axes.legend(frameon=False, fontsize="small")


def reliability(sets: Mapping[str, Sequence[Bin]], path: str | Path) -> None:
    """The probability of answers against the share that is right, in bins; one line per set.

    Raises the same errors as `before_after`.
    """
    with _figure(path, ["reliability"], 4.4) as panels:
        axes = panels["reliability"]
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, zorder=0)
        for i, (name, bins) in enumerate(sets.items()):
            axes.plot(
                [one.p for one in bins],
                [one.right for one in bins],
                color=_COLOURS[(1 - i) % len(_COLOURS)],
                marker=_MARKERS[i % len(_MARKERS)],
                markersize=4,
                linewidth=1.0,
                label=_text(name),
            )
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel("probability of the answer")
        axes.set_ylabel("share that is right")
        axes.set_aspect("equal")
        if sets:
            axes.legend(frameon=False, fontsize="small")


def check_plot(path: str | Path) -> None:
    """Raise `SettingsError` where a plot cannot be saved as `path`: another suffix, or no matplotlib."""
    if Path(path).suffix not in SUFFIXES:
        raise SettingsError(f"{path}: plots are saved as {' or '.join(SUFFIXES)}; change the file extension")
    load("matplotlib", "plots", "a picture")


@contextmanager
def _figure(path: str | Path, panels: Sequence[str], width: float) -> Iterator[dict[str, Any]]:
    """A figure with a panel per name, written to `path` at the end."""
    path = Path(path)
    check_plot(path)
    matplotlib = load("matplotlib", "plots", "a picture")
    figures = load("matplotlib.figure", "plots", "a picture")
    # Text stays text in an SVG, and ids have a fixed salt, so that neither fonts nor random ids change the file.
    with matplotlib.rc_context({"svg.hashsalt": "fcjax", "svg.fonttype": "none", "axes.unicode_minus": False}):
        figure = figures.Figure(figsize=(width * max(len(panels), 1), 4.4), layout="constrained")
        axes = figure.subplots(1, max(len(panels), 1), squeeze=False)[0]
        yield dict(zip(panels, axes, strict=False))
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
        except OSError as error:
            raise OutputError(f"{path}: {error.strerror or error}") from error


def _who(entry: GridEntry) -> str:
    return f"{entry.corrector}, {entry.model}" if entry.model else entry.corrector


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _text(text: str) -> str:
    """Text with the sign escaped that starts mathematics in matplotlib."""
    return text.replace("$", r"\$")
