"""Tables as data: columns in groups, cells with their numbers, and the three formats Markdown, LaTeX and CSV.

Markdown and LaTeX are for reading: `0.412 → 0.706` is one column there. CSV is for computing and has a column per
number, with the 7 digits of a results file. Equal tables give equal texts.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Final

from fcjax.core.errors import OutputError, SettingsError
from fcjax.core.terminal import visible
from fcjax.scoring.rows import finite

Value = str | float | int | None


def shown(value: float | None, digits: int, sign: bool = False) -> str | None:
    """A number with `digits` decimals, never -0; None for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return None
    return f"{round(value, digits) + 0.0:{'+' if sign else ''}.{digits}f}"


def _kept(value: float | None) -> float | None:
    return None if value is None else finite(value)


@dataclass(frozen=True, slots=True)
class Number:
    """One number, or none."""

    value: float | None
    digits: int = 3

    names: ClassVar[tuple[str, ...]] = ("",)

    @property
    def values(self) -> tuple[Value, ...]:
        return (_kept(self.value),)

    @property
    def text(self) -> str | None:
        return shown(self.value, self.digits)


@dataclass(frozen=True, slots=True)
class Share:
    """A number from 0 to 1 that is shown as whole per cent, or none."""

    value: float | None

    names: ClassVar[tuple[str, ...]] = ("",)

    @property
    def values(self) -> tuple[Value, ...]:
        return (_kept(self.value),)

    @property
    def text(self) -> str | None:
        return None if self.value is None or not math.isfinite(self.value) else f"{self.value:.0%}"


@dataclass(frozen=True, slots=True)
class Interval:
    """A number and its interval."""

    value: float | None
    low: float | None
    high: float | None
    digits: int = 3

    names: ClassVar[tuple[str, ...]] = ("", "low", "high")

    @property
    def values(self) -> tuple[Value, ...]:
        return _kept(self.value), _kept(self.low), _kept(self.high)

    @property
    def text(self) -> str | None:
        value, low, high = (shown(one, self.digits) for one in (self.value, self.low, self.high))
        return value if value is None or low is None or high is None else f"{value} ({low}–{high})"


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """A number before and after."""

    before: float | None
    after: float | None
    digits: int = 3

    names: ClassVar[tuple[str, ...]] = ("before", "after")

    @property
    def values(self) -> tuple[Value, ...]:
        return _kept(self.before), _kept(self.after)

    @property
    def text(self) -> str | None:
        before, after = shown(self.before, self.digits), shown(self.after, self.digits)
        return None if before is None or after is None else f"{before} → {after}"


@dataclass(frozen=True, slots=True)
class MeanGain:
    """A mean gain, its standard deviation, the p of its test and the marks of significance."""

    mean: float | None
    sd: float | None
    p: float | None = None
    marks: str = ""
    digits: int = 3

    names: ClassVar[tuple[str, ...]] = ("mean", "sd", "p")

    @property
    def values(self) -> tuple[Value, ...]:
        p = None if self.p is None or not math.isfinite(self.p) else float(f"{self.p:.3g}")
        return _kept(self.mean), _kept(self.sd), p

    @property
    def text(self) -> str | None:
        mean, sd = shown(self.mean, self.digits, sign=True), shown(self.sd, self.digits)
        return None if mean is None else f"{mean}{'' if sd is None else f' ± {sd}'}{self.marks}"


@dataclass(frozen=True, slots=True)
class CountOf:
    """A count, and the count of those that are missing because they failed."""

    n: int
    n_failed: int

    names: ClassVar[tuple[str, ...]] = ("", "failed")

    @property
    def values(self) -> tuple[Value, ...]:
        return self.n, self.n_failed

    @property
    def text(self) -> str | None:
        return f"{self.n} ({self.n_failed} failed)" if self.n_failed else str(self.n)


Cell = str | int | Number | Share | Interval | BeforeAfter | MeanGain | CountOf | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name and its group of columns, such as a data set."""

    name: str
    group: str = ""

    @property
    def full(self) -> str:
        return f"{self.group} {self.name}" if self.group else self.name


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns. `notes` are sentences for the reader."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.markdown()

    def markdown(self) -> str:
        """A table in GitHub's Markdown; a column's name has its group."""
        lines = [[_md(column.full) for column in self.columns]]
        lines.append(["---:" if self._numeric(i) else "---" for i in range(len(self.columns))])
        lines += [[_md(text) for text in _texts(row)] for row in self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        notes = "\n".join(_md(note) for note in self.notes)
        return "\n\n".join(part for part in (_md(self.caption), table, notes) if part) + "\n"

    def latex(self) -> str:
        """A `table` environment for LaTeX with the package booktabs."""
        kinds = "".join("r" if self._numeric(i) else "l" for i in range(len(self.columns)))
        lines = [r"\begin{table}", r"\centering"]
        if self.caption:
            lines.append(rf"\caption{{{_tex(self.caption)}}}")
        lines += [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
        if any(column.group for column in self.columns):
            groups = [(name, len(list(group))) for name, group in groupby(column.group for column in self.columns)]
            heads = [rf"\multicolumn{{{width}}}{{c}}{{{_tex(name)}}}" for name, width in groups]
            lines.append(" & ".join(heads) + r" \\")
            start, rules = 1, []
            for name, width in groups:
                rules += [rf"\cmidrule(lr){{{start}-{start + width - 1}}}"] if name else []
                start += width
            lines.append(" ".join(rules))
        lines += [" & ".join(_tex(column.name) for column in self.columns) + r" \\", r"\midrule"]
        lines += [" & ".join(_tex(text) for text in _texts(row)) + r" \\" for row in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip\footnotesize {_tex(' '.join(self.notes))}"] if self.notes else []
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def csv(self) -> str:
        """Comma-separated values, a column per number, empty for None. Lines end in a newline."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = [self._names(i) for i in range(len(self.columns))]
        writer.writerow(
            _csv(f"{column.full} {name}".strip())
            for column, part in zip(self.columns, names, strict=True)
            for name in part
        )
        for row in self.rows:
            values: list[Value] = []
            for cell, part in zip(row, names, strict=True):
                if cell is None:
                    values += [None] * len(part)
                elif isinstance(cell, str):
                    values.append(_csv(cell))
                else:
                    values += [cell] if isinstance(cell, int) else cell.values
            writer.writerow("" if value is None else value for value in values)
        return out.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the table in the format of the file's suffix: .md, .tex or .csv.

        Raises `SettingsError` for any other suffix, and `OutputError` if the file cannot be written.
        """
        path = Path(path)
        writers = {".md": self.markdown, ".tex": self.latex, ".csv": self.csv}
        if path.suffix not in writers:
            raise SettingsError(f"{path}: tables are saved as {', '.join(writers)}; change the file extension")
        try:
            path.write_text(writers[path.suffix](), encoding="utf-8", newline="")
        except OSError as error:
            raise OutputError(f"{path}: {error.strerror or error}") from error

    def _numeric(self, i: int) -> bool:
        cells = [row[i] for row in self.rows if row[i] is not None]
        return bool(cells) and not any(isinstance(cell, str) for cell in cells)

    def _names(self, i: int) -> tuple[str, ...]:
        """The names of the numbers in a column's cells, which are all of one kind."""
        cells = [row[i] for row in self.rows if row[i] is not None]
        kinds = {("",) if cell is None or isinstance(cell, str | int) else cell.names for cell in cells}
        if len(kinds) > 1:
            raise ValueError(f"column {self.columns[i].full!r} has cells of {len(kinds)} kinds; allowed: one")
        return kinds.pop() if kinds else ("",)


def _texts(row: Sequence[Cell]) -> list[str]:
    """The text of each cell; a dash without a number."""
    texts = (str(cell) if cell is None or isinstance(cell, str | int) else cell.text for cell in row)
    return ["–" if cell is None or text is None else text for cell, text in zip(row, texts, strict=True)]


def _csv(text: str) -> str:
    """Text for CSV. A spreadsheet would calculate what begins like a formula: an apostrophe before it makes it text.

    Numbers stay as they are.
    """
    text = visible(re.sub("\r\n?", "\n", text), keep="\n\t")  # csv does not quote a bare return
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


_FORMULA: Final = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t]")
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MD: Final = re.compile(r"[\\`*_\[\]<>|~]")
_TEX: Final = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"},
    **{"→": r"$\rightarrow$", "±": r"$\pm$", "–": "--", "−": "$-$"},
}
_SIGNED: Final = re.compile(r"(?<![\w.])([+-]\d[\d.]*)")


def _md(text: str) -> str:
    """Text escaped for Markdown, in one line."""
    return _MD.sub(lambda match: "\\" + match[0], visible(" ".join(text.split())))


def _tex(text: str) -> str:
    """Text escaped for LaTeX, in one line; numbers with a sign are set as numbers."""
    escaped = "".join(_TEX.get(sign, sign) for sign in visible(" ".join(text.split())))
    return _SIGNED.sub(r"$\1$", escaped)
