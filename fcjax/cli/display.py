"""Progress bars and tables. Imported only where something is drawn, as it loads rich."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fcjax.cli.options.engine import with_option_names
from fcjax.cli.shell import counted
from fcjax.core.records import EPS
from fcjax.core.terminal import visible
from fcjax.scoring.rows import Row
from fcjax.scoring.summary import has_failed

SHOWN: Final = 25
"""Cases in the final table; of more, a few that failed and the worst ones."""

_NAME_WIDTH: Final = 40
_LEAST_NAME: Final = 12
_COLUMNS: Final = (
    ("status", "Pr", "F1@K", "atoms", "S", "R", "U", "failed"),
    ("status", "Pr", "atoms", "S", "R", "U"),
    ("status", "Pr", "atoms"),
    ("Pr",),
    (),
)  # beside the name, the widest choice that fits
_FILE_WIDTH: Final = 100  # columns where the output goes to a file or pipe
_REASONS: Final = 5  # failed cases whose reason is shown
_PASSAGES: Final = 5  # uncovered passages that are printed
_TITLES: Final = {
    "precision": "precision Pr",
    "recall_at_k": "recall R@K",
    "f1_at_k": "F1@K",
    "e_measure": "entropy measure E",
    "verifiability_share": "verifiable share V/n",
    "accuracy": "accuracy",
    "f1_supported": "F1 of S (supported)",
    "f1_refuted": "F1 of NS",
    "mae_precision": "MAE of Pr",
    "brier": "Brier score",
    "ece": "calibration error",
}
_STYLES: Final = {"supported": "green", "refuted": "red", "unverified": "yellow"}


def plain(text: str, width: int = _NAME_WIDTH) -> Text:
    """Text from a file for one cell: no markup, no control characters, cut to `width`."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[: width + 1])
    return Text(shown if len(shown) <= width else shown[: width - 1] + "\N{HORIZONTAL ELLIPSIS}")


class Bar:
    """A progress bar on standard error with the rate and the time left; nothing where that is not a terminal."""

    def __init__(self, total: int, wanted: bool = True, doing: str = "scoring", unit: str = "cases"):
        self._total, self._unit = total, unit
        self._done = self._kept = 0
        self._start = self._shown = time.monotonic()
        self._progress: Progress | None = None
        console = SafeConsole(stderr=True)
        if wanted and console.is_terminal:
            columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
            self._progress = Progress(*columns, console=console, transient=True, refresh_per_second=5)
            self._task: TaskID = self._progress.add_task("", total=total, pace="")
            self._progress.start()

    def advance(self, kept: bool = False, by: int = 1) -> None:
        """Count `by` more cases as done; those `kept` from an earlier run do not count for the rate."""
        self._done += by
        self._kept += by if kept else 0
        now = time.monotonic()
        if kept:
            self._start = now
        if self._progress and (now - self._shown > 0.1 or self._done == self._total):
            self._shown = now
            rate = (self._done - self._kept) / max(now - self._start, 1e-9)
            left = (self._total - self._done) / rate if rate else 0.0
            pace = "" if kept else f"{rate:,.{0 if rate >= 10 else 1}f} {self._unit}/s, {clock(left)} left"
            self._progress.update(self._task, completed=self._done, pace=pace)

    def close(self) -> None:
        """Remove the bar from the screen."""
        if self._progress:
            self._progress.stop()


def clock(seconds: float) -> str:
    """`m:ss`, or `h:mm:ss` from one hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Worst:
    """The rows of the final table: all of a few, else some that failed and those with the lowest precision."""

    def __init__(self) -> None:
        self._failed: list[tuple[int, Row]] = []  # the first ones, with their places
        self._others: list[tuple[tuple[float, int], Row]] = []
        self.count = self.count_failed = 0

    def add(self, row: Row) -> None:
        measures, kept = row["measures"], row | {"atoms": None}
        if has_failed(row["status"]):
            if len(self._failed) < SHOWN:
                self._failed.append((self.count, kept))
            self.count_failed += 1
        else:
            worth = 2.0 if measures is None else measures["precision"]  # a case without atoms is not among the worst
            self._others.append(((worth, self.count), kept))
            if len(self._others) > 8 * SHOWN:
                self._others.sort(key=lambda line: line[0])
                del self._others[SHOWN:]
        self.count += 1

    def _chosen(self) -> list[Row]:
        others = sorted(self._others, key=lambda line: line[0])
        if self.count <= SHOWN:
            lines = [*self._failed, *((place, row) for (_, place), row in others)]
            return [row for _, row in sorted(lines, key=lambda line: line[0])]
        failed = [row for _, row in self._failed[:_REASONS]]
        return failed + [row for _, row in others[: SHOWN - len(failed)]]

    def _title(self, shown: int) -> str:
        if self.count <= SHOWN:
            return "Cases"
        failed = min(self.count_failed, _REASONS)
        among = f", with {failed} of {self.count_failed:,} that failed" if failed else ""
        return f"The {shown} worst of {self.count:,} cases{among}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One line per case with its counts and measures; then why cases failed.

        A narrow terminal gets fewer columns; the name always stays.
        """
        shown = self._chosen()
        rows = [_case_cells(row) for row in shown]
        widths = {name: max([len(name), *(len(row[name]) for row in rows if name in row)]) for name in _COLUMNS[0]}
        for names in _COLUMNS:
            if 4 + _LEAST_NAME + sum(2 + widths[name] for name in names) <= options.max_width:
                break
        table = _table(self._title(len(shown)))
        table.add_column("case", overflow="fold", min_width=min(_LEAST_NAME, options.max_width - 4))
        for name in names:
            table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
        for row, cells in zip(shown, rows, strict=True):
            table.add_row(plain(str(row["id"])), *(cells.get(name, "") for name in names))
        yield table
        legend = Text("S supported, R refuted, U unverified\n" if "S" in names else "")
        explained = [row for row in shown if has_failed(row["status"])][:_REASONS]
        for row in explained:
            legend.append_text(Text.assemble("\n", (str(plain(row["id"])), "bold"), f": {_reason(row)}"))
        if self.count_failed > len(explained):
            legend.append(f"\nand {self.count_failed - len(explained):,} more; OUT has the reason for each")
        yield legend


class UncoveredList:
    """The first passages of responses that no atom covers, and how many more there are."""

    def __init__(self) -> None:
        self._first: list[tuple[str, str]] = []
        self._count = 0

    def add(self, row: Row) -> None:
        """Add the uncovered passages of a row."""
        found = row.get("coverage") or {"n_uncovered": 0, "uncovered": []}
        room = _PASSAGES - len(self._first)
        self._first += [(str(row["id"]), passage) for passage in found["uncovered"][:room]]
        self._count += found["n_uncovered"]

    def __rich__(self) -> RenderableType:
        if not self._first:
            return Group()
        lines = [Text("Passages that no atom covers, so that nothing checks them", "bold")]
        lines += [Text.assemble("  ", plain(passage, 200), (f"  {plain(id)}", "dim")) for id, passage in self._first]
        if more := self._count - len(self._first):
            lines.append(Text(f"  and {more:,} more; the results list the first ones of each case"))
        return Group(*lines, Text())


def _reason(row: Row) -> str:
    reason = str(row["reason"])
    return with_option_names(reason) if row["status"] == "too_wide" else reason


def _case_cells(row: Row) -> dict[str, Text]:
    """The cells of a case, by column."""
    cells = {"status": Text(row["status"], "red" if has_failed(row["status"]) else "")}
    measures = row["measures"]
    if measures is None:
        return cells
    cells |= {"Pr": Text(f"{measures['precision']:.3f}"), "F1@K": Text(f"{measures['f1_at_k']:.3f}")}
    cells["atoms"] = Text(str(measures["n_atoms"]))
    for label, style in _STYLES.items():
        count = measures[f"n_{label}"]
        cells[label[0].upper()] = Text(str(count), style if count else "dim")
    cells["failed"] = Text(str(measures["n_failed"]), "red" if measures["n_failed"] else "dim")
    return cells


def draw_summary(summary: dict[str, Any]) -> RenderableType:
    """The summary of a data set."""
    statuses = ", ".join(f"{count:,} {status}" for status, count in summary["statuses"].items())
    atoms, k = summary["atoms"], summary["k"]
    lines = [
        f"{counted(summary['n_cases'], 'case')}: {statuses}; K = {'n // 2' if k == 'release' else f'{k:g}'}",
        f"{counted(atoms['n_atoms'], 'atom')}: {atoms['n_supported']:,} supported, {atoms['n_refuted']:,} refuted, "
        f"{atoms['n_unverified']:,} unverified; not counted: {atoms['n_failed']:,} failed, "
        f"{atoms['n_duplicates']:,} merged as duplicates",
    ]
    if coverage := summary.get("coverage"):
        passages, cases = counted(coverage["n_uncovered"], "passage"), counted(coverage["n"], "response")
        lines.append(
            f"atoms cover {coverage['share']:.1%} of the claims in {cases}, by words; "
            f"{passages} in {coverage['n_incomplete']:,} of them uncovered"
        )
    parts: list[RenderableType] = [Text(line) for line in lines]
    if warning := summary.get("answers", {}).get("warning"):
        parts.append(Text(f"warning: {warning}. Its labels are not certain.", "yellow"))
    means = {name: summary["means"][name] for name in _TITLES if name in summary["means"]}
    if summary["n_scored"]:
        parts.append(_numbers_table(f"Means over {counted(summary['n_scored'], 'case')}", means))
    if human := summary["human_labels"]:
        labels, cases = counted(human["n_atoms"], "human label"), counted(human["n_cases"], "case")
        title = f"Against {labels} in {cases}"
        parts.append(_numbers_table(title, {name: human[name] for name in _TITLES if name in human}))
        parts.append(_three_way(human["three_way"]))
    return Group(*parts)


def _numbers_table(title: str, numbers: dict[str, dict[str, Any]]) -> Table:
    table = _table(title)
    table.add_column("measure")
    unsettled = any(number["worst"] != number["best"] for number in numbers.values())
    for name in ("value", "95% interval", *(("failed at worst", "at best") if unsettled else ())):
        table.add_column(name, justify="right")
    for name, number in numbers.items():
        interval = "" if number["low"] is None else f"{number['low']:.3f} to {number['high']:.3f}"
        ends = [_number(number["worst"]), _number(number["best"])] if unsettled else []
        table.add_row(_TITLES[name], _number(number["value"]), interval, *ends)
    return table


def _table(title: str | None = None) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, collapse_padding=True)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _three_way(counts: dict[str, dict[str, int]]) -> Table:
    table = _table("Labels by human label")
    table.add_column("human")
    for label, style in _STYLES.items():
        table.add_column(label, justify="right", header_style=style)
    for human, row in counts.items():
        table.add_row(human, *(f"{row[label]:,}" for label in _STYLES))
    return table


def marginals_table(answer: dict[str, Any]) -> RenderableType:
    """The result of `fcjax infer`."""
    head = Text(f"log Z = {answer['log_z']}; {answer['method']}, width {answer['width']}")
    table = _table()
    table.add_column("variable", overflow="fold", min_width=_LEAST_NAME)
    table.add_column("P(true)", justify="right")
    table.add_column("interval", justify="right")
    for row in answer["marginals"]:
        close = row["upper"] - row["lower"] <= 2.2 * EPS
        interval = "exact" if close else f"{row['lower']:.5f} to {row['upper']:.5f}"
        table.add_row(plain(row["name"]), f"{row['p']:.7f}", interval)
    return Group(head, table)


class SafeConsole(Console):
    """A console on which control characters in texts are shown and not obeyed; rich's own are kept."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(visible(text, keep="\n"), style)


def show(*parts: RenderableType, stderr: bool = False) -> None:
    """Print on standard output or standard error; colours on a terminal only, and not with NO_COLOR."""
    console = SafeConsole(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _FILE_WIDTH
    for part in parts:
        console.print(part)
    (sys.stderr if stderr else sys.stdout).flush()
