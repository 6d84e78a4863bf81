"""Progress and tables of `fcjax correct`: before and after."""

from __future__ import annotations

import time
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fcjax.cli.display import SafeConsole, clock, plain
from fcjax.core.word_diff import Diff
from fcjax.critic.asker import Cost
from fcjax.evaluation.comparison import COUNTS, Comparison
from fcjax.evaluation.report import HEADS, GridEntry
from fcjax.io.stats import Stats

_PER_SECOND = 4
_CHANGES = 5  # responses whose changes are shown
_LONGEST = 1200  # characters of one
_MARKS = {"same": ("{}", ""), "gone": ("[-{}-]", "red"), "new": ("{{+{}+}}", "green")}  # readable without colours


class CorrectProgress:
    """Live lines on standard error, drawn by their own thread; nothing where that is not a terminal."""

    def __init__(self, cases: int, asked: list[Stats]):
        self._cases, self._asked = cases, asked
        self._finished = self._kept = self._changed = self._failed = self._rounds = 0
        self._scored = 0
        self._before = self._after = 0.0
        self._began = time.monotonic()
        self._live: Live | None = None
        console = SafeConsole(stderr=True)
        if console.is_terminal:
            self._live = Live(
                console=console, transient=True, refresh_per_second=_PER_SECOND, get_renderable=self._draw
            )
            self._live.start()

    def round(self) -> None:
        """Count a finished round."""
        self._rounds += 1

    def case(self, kept: bool, changed: bool, failed: bool, before: float | None, after: float | None) -> None:
        """Count a finished case."""
        self._finished += 1
        self._kept += kept
        self._changed += changed
        self._failed += failed
        if before is not None and after is not None:
            self._scored += 1
            self._before += before
            self._after += after

    def close(self) -> None:
        """Remove the lines from the screen."""
        if self._live:
            self._live.stop()

    def _draw(self) -> RenderableType:
        return Group(*map(Text, self.lines(max(time.monotonic() - self._began, 1e-9))))

    def lines(self, seconds: float) -> list[str]:
        """The lines after `seconds` of the run."""
        new, waiting = self._finished - self._kept, self._cases - self._finished
        left = f", {clock(seconds * waiting / new)} left" if new and waiting else ""
        lines = [f"corrected {self._finished:,} of {self._cases:,} cases{left}"]
        lines.append(f"{self._rounds:,} rounds; {self._changed:,} responses changed, {self._failed:,} cases failed")
        if self._scored:
            lines.append(f"mean Pr so far {self._before / self._scored:.3f} -> {self._after / self._scored:.3f}")
        answered, hits = (sum(getattr(one, name) for one in self._asked) for name in ("answered", "cache_hits"))
        flying, retried = (sum(getattr(one, name) for one in self._asked) for name in ("in_flight", "retries"))
        costs = [one.cost for one in self._asked]
        spent = "" if None in costs else f", ${sum(cost or 0.0 for cost in costs):,.4f} so far"
        lines.append(
            f"{answered:,} prompts, {answered / seconds:,.0f}/s; {hits:,} from the store, {flying:,} in flight, "
            f"{retried:,} retried{spent}"
        )
        return lines


def comparison_table(found: Comparison) -> RenderableType:
    """Each measure before and after, with its gain, interval and p value."""
    table = Table(title=f"Before and after, {found.n_cases - found.n_failed:,} of {found.n_cases:,} cases")
    table.box, table.title_justify, table.title_style = box.SIMPLE_HEAD, "left", "bold"
    table.add_column("measure")
    for name in ("n", "before", "after", "gain", "sd", "95% interval", "p"):
        table.add_column(name, justify="right")
    for name, change in found.changes.items():
        if not change.n:
            continue
        gain = change.gain
        interval = "" if gain.low is None else f"{gain.low:+.3f} to {gain.high:+.3f}"
        title = {"n_atoms": "atoms", "n_supported": "supported atoms"}.get(name, HEADS.get(name, name))
        places = 1 if name in (*COUNTS, "verifiability") else 3
        table.add_row(
            title,
            str(change.n),
            *(f"{side.mean:.{places}f}" for side in (change.before, change.after)),
            "" if gain.mean is None else f"{gain.mean:+.3f}{change.test.marks}",
            "" if gain.sd is None else f"{gain.sd:.3f}",
            interval,
            "" if change.test.p is None else f"{change.test.p:.3g}",
        )
    table.caption = "gain = 2 (after - before) / (after + before), averaged over the cases"
    if any(change.test.marks for change in found.changes.values()):
        table.caption += "; *, **, ***: p < 0.05, 0.01, 0.001 (one-sided paired t-test)"
    table.caption_justify = "left"
    return table


def cases_table(rows: list[dict[str, Any]], count: int) -> RenderableType:
    """The first cases: Pr before and after, and why each one stopped."""
    table = Table(title="Cases" if count <= len(rows) else f"The first {len(rows)} of {count:,} cases")
    table.box, table.title_justify, table.title_style = box.SIMPLE_HEAD, "left", "bold"
    table.add_column("case", overflow="fold", min_width=12)
    for name in ("Pr", "rounds", "prompts"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("stopped by", no_wrap=True)
    for row in rows:
        before, after = row["before"], row["after"]
        pr = "" if before is None or after is None else f"{before:.3f} -> {after:.3f}"
        style = "red" if row["failed"] else ""
        table.add_row(plain(str(row["id"])), pr, str(row["rounds"]), f"{row['prompts']:,}", Text(row["stop"], style))
    return table


def changes(rows: list[dict[str, Any]]) -> RenderableType:
    """The changes of the first responses, word by word: removed and added words."""
    parts: list[RenderableType] = []
    for row in [row for row in rows if row["changed"]][:_CHANGES]:
        line = Text.assemble((f"{plain(str(row['id']))}: ", "bold"))
        for part in Diff.of(row["response"], row["best"]).parts:
            mark, style = _MARKS[part.change]
            line.append(mark.format(plain(part.text, len(part.text)).plain), style)
        line.truncate(_LONGEST, overflow="ellipsis")
        parts += [line, Text()]
    return Group(*([Text("Changes", "bold"), Text(), *parts] if parts else []))


def entries_table(entries: list[GridEntry]) -> RenderableType:
    """A grid in short: Pr before and after, and the cost per case."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    for name in ("data", "corrector", "model"):
        table.add_column(name, overflow="fold", min_width=9)
    for name in ("pairs", "Pr", "G(Pr)", "prompts", "tokens", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in entries:
        found, spent = one.comparison, one.spent
        change = found["precision"]
        before, after, gain = change.before.mean, change.after.mean, change.gain.mean
        cells = ["" if before is None or after is None else f"{before:.3f} -> {after:.3f}"]
        cells.append("" if gain is None else f"{gain:+.3f}{change.test.marks}")
        totals = (spent.prompts, spent.tokens, spent.cost) if spent else (None, None, None)
        each = [spent.per_case(total) if spent else None for total in totals]
        shown = ["" if value is None else f"{value:,.{places}f}" for value, places in zip(each, (1, 0, 5), strict=True)]
        pairs = f"{found.n_cases - found.n_failed:,}"
        table.add_row(*(plain(name) for name in (one.data, one.corrector, one.model)), pairs, *cells, *shown)
    return table


def cost_line(cost: Cost, cases: int) -> str:
    """The mean cost of a case."""
    if not cases:
        return "no cases"
    dollars = "unknown" if cost.dollars is None else f"${cost.dollars / cases:,.5f}"
    return f"per case: {cost.prompts / cases:,.1f} prompts, {cost.tokens / cases:,.0f} tokens, cost {dollars}"
