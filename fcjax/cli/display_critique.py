"""Progress and findings of `fcjax critique`."""

from __future__ import annotations

import time
from collections import Counter

from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fcjax.cli.display import SafeConsole, clock, plain
from fcjax.core.records import Label
from fcjax.io.retrievers.cached import SearchStats
from fcjax.io.stats import Stats
from fcjax.runs.observer import Preview
from fcjax.scoring.findings import Feedback, Finding, extract
from fcjax.stages.pipeline import STAGES

_PER_SECOND = 4
_SHOWN = 12  # statements that are printed
_EXCERPT = 160  # characters of a passage


class CritiqueProgress:
    """A live table on standard error, drawn a few times a second by its own thread; nothing where that is not a
    terminal.
    """

    def __init__(self, found: Preview, asked: Stats, searched: SearchStats | None):
        self._found, self._asked, self._searched = found, asked, searched
        self._done: Counter[str] = Counter()  # cases by stage
        self._kept: Counter[str] = Counter()  # of these, in an earlier run
        self._failed: Counter[str] = Counter()  # of these, with failures
        self._finished = self._failed_cases = 0
        self._precision = 0.0
        self._scored = 0
        self._began = time.monotonic()
        self._live: Live | None = None
        console = SafeConsole(stderr=True)
        if console.is_terminal:
            self._live = Live(
                console=console, transient=True, refresh_per_second=_PER_SECOND, get_renderable=self._draw
            )
            self._live.start()

    def stage(self, stage: str, kept: bool, failed: bool) -> None:
        """Count a case that has been through a stage."""
        self._done[stage] += 1
        self._kept[stage] += kept
        self._failed[stage] += failed

    def case(self, precision: float | None, failed: bool) -> None:
        """Count a finished case."""
        self._finished += 1
        self._failed_cases += failed
        if precision is not None:
            self._precision += precision
            self._scored += 1

    def close(self) -> None:
        """Remove the table from the screen."""
        if self._live:
            self._live.stop()

    def _draw(self) -> RenderableType:
        table = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
        table.add_column("stage")
        for name in ("cases", "of", "with failures"):
            table.add_column(name, justify="right")
        rows: list[tuple[str, int, int, int]] = []
        rows += [(stage, self._found.planned[stage], self._done[stage], self._failed[stage]) for stage in STAGES]
        rows.append(("finished", self._found.cases, self._finished, self._failed_cases))
        for stage, planned, done, failed in rows:
            if planned or done:
                shown = Text(f"{failed:,}" if failed else "", "red")
                table.add_row(stage, f"{done:,}", f"{max(planned, done):,}", shown)
        return Group(table, Text("\n".join(self._lines())))

    def _lines(self) -> list[str]:
        asked, seconds = self._asked, max(time.monotonic() - self._began, 1e-9)
        failed = asked.failed.total()
        prompts = f"{asked.answered:,} prompts, {asked.answered / seconds:,.0f}/s"
        calls = f"{asked.in_flight:,} in flight, {asked.retries:,} retried"
        lines = [f"{prompts}; {asked.cache_hits:,} from the store, {calls}, {failed:,} failed"]
        if self._searched is not None:
            found = self._searched
            lines.append(f"{found.answered:,} searches; {found.hits:,} from the store, {found.failed.total():,} failed")
        last = []
        if asked.cost is not None:
            last.append(f"${asked.cost:,.4f} so far")
        if (left := self.seconds_left(seconds)) is not None:
            last.append(f"{clock(left)} left")
        if self._scored:
            last.append(f"mean precision so far {self._precision / self._scored:.3f}")
        return [*lines, ", ".join(last)] if last else lines

    def seconds_left(self, seconds: float) -> float | None:
        """Estimate by the slowest stage, at the pace of this run; None before every stage has finished a case."""
        left = []
        for stage, planned in self._found.planned.items():
            waiting, done = planned - self._done[stage], self._done[stage] - self._kept[stage]
            if waiting > 0 and not done:
                return None
            left.append(seconds * max(waiting, 0) / done if done else 0.0)
        return max(left, default=None)


class FindingsList:
    """The refuted and unverified statements: the first of each kind, and how many more there are."""

    def __init__(self) -> None:
        self._refuted: list[tuple[str, Finding]] = []
        self._unverified: list[tuple[str, Finding]] = []
        self._more = 0

    def add(self, id: str, feedback: Feedback) -> None:
        """Add the findings of a case."""
        for found in feedback.findings:
            ours = self._refuted if found.label is Label.REFUTED else self._unverified
            if len(ours) < _SHOWN:
                ours.append((id, found))
            else:
                self._more += 1

    def __rich__(self) -> RenderableType:
        lines = [Text("Refuted and unverified statements", "bold")] if self._refuted or self._unverified else []
        room = max(_SHOWN - len(self._refuted), 0)
        more = self._more + max(len(self._unverified) - room, 0)
        for id, found in (*self._refuted, *self._unverified[:room]):
            style = "red" if found.label is Label.REFUTED else "yellow"
            lines.append(
                Text.assemble(
                    "\n",
                    (str(found.label), style),
                    f" {found.p:.3f}  ",
                    plain(found.text, 400),
                    (f"  {plain(id)}", "dim"),
                )
            )
            for given in found.by_side("against")[:1]:
                passage = extract(given.text, found.text, _EXCERPT)
                lines.append(
                    Text.assemble(
                        "  contradicted by ", plain(given.name, 120), ": ", (str(plain(passage, 400)), "italic")
                    )
                )
        if more:
            lines.append(Text(f"\nand {more:,} more; the results have all of them, with every passage for and against"))
        return Group(*lines, *([Text()] if lines else []))
