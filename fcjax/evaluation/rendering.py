"""Tables and plots of a grid, from the files in its folder alone, without a plan or an endpoint.

report.md                      all tables
tables/NAME.md, .tex, .csv     comparison, gains, scores, judge, endings, humans
plots/NAME.png, .svg           before against after, and gains by model
cells/.../cases.jsonl          one row per case: measures before and after, gains, cost
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

from fcjax.core.errors import InputError, OutputError
from fcjax.critic.asker import Cost
from fcjax.evaluation.comparison import MEASURES, Comparison
from fcjax.evaluation.gains import gain
from fcjax.evaluation.label_study import BASELINE, LabelAgreement, majority, three_way_table
from fcjax.evaluation.label_study import table as agreement_table
from fcjax.evaluation.layout import Cell, cell_folder, original_folder
from fcjax.evaluation.report import HEADS, GridEntry, RunCost, comparison_table
from fcjax.evaluation.scores import EQUIVALENT, TEXTS, compared_texts, reference_of, with_scores
from fcjax.evaluation.tables import BeforeAfter, Column, CountOf, Interval, Number, Table
from fcjax.evaluation.tables import Cell as TableCell
from fcjax.io.files import encode_result, read_cases
from fcjax.io.files.results import read_results
from fcjax.io.files.streams import Source, write_lines
from fcjax.scoring.rows import Row, rounded
from fcjax.scoring.settings import Settings
from fcjax.scoring.summary import has_failed

FORMATS: Final = (".md", ".tex", ".csv")
_SPENT_COLUMNS: Final = ("prompts / case", "tokens / case", "cost ($) / case")
_VERDICTS: Final = ("same", "partly", "different", "unanswered")


@dataclass(slots=True)
class Rendered:
    """The tables and plots of a folder."""

    tables: dict[str, Table] = field(default_factory=dict)
    entries: list[GridEntry] = field(default_factory=list)
    missing: list[Cell] = field(default_factory=list)  # cells that are not done yet
    plots: list[str] = field(default_factory=list)
    note: str | None = None  # why there are no plots


@dataclass(frozen=True, slots=True)
class _Done:
    """The rows and results of a cell."""

    cell: Cell
    before: list[Row]
    after: list[Row]
    corrections: list[Row]
    verdicts: tuple[Counter[str], Counter[str]]  # of the judge, before and after, if neither response failed
    entry: GridEntry


def render(folder: Source, *, plots: bool = True) -> Rendered:
    """Write the tables and plots of all cells that are done. Raises `InputError` if the folder has no grid."""
    home = Path(folder)
    plan = _plan(home)
    found = Rendered()
    done = []
    scores: list[str] = []
    for cell in (Cell(**one) for one in plan["cells"]):
        if one := _read(home, cell, plan, scores):
            done.append(one)
        else:
            found.missing.append(cell)
    found.entries = [one.entry for one in done]
    measures = [name for name in MEASURES if name != "comprehensiveness" or plan["scores"]["facts"]]
    found.tables["comparison"] = _noted(
        comparison_table(found.entries, measures, "Responses before and after correction")
    )
    found.tables["gains"] = _gains(found.entries, [*measures, *scores])
    if scores:
        found.tables["scores"] = _noted(
            comparison_table(found.entries, scores, "Other scores before and after correction")
        )
    if plan["scores"]["judge"]:
        found.tables["judge"] = _judged(done)
    found.tables["endings"] = _endings(done)
    found.tables |= _humans(home, done)
    _write_tables(home, found)
    for one in done:
        write_lines(cell_folder(home, one.cell) / "cases.jsonl", _case_lines(one), private=True)
    if plots:
        _draw(home, found)
    return found


def _plan(home: Path) -> dict[str, Any]:
    path = home / "plan.json"
    try:
        found = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"{home}: does not contain an evaluation; specify the output folder of `fcjax eval GRID.yaml -o FOLDER`"
        ) from None
    except (OSError, orjson.JSONDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    return dict(found)


def _read(home: Path, cell: Cell, plan: Mapping[str, Any], names: list[str]) -> _Done | None:
    """A cell; None if it is not done, or only by another plan. Adds the names of its other scores to `names`."""
    scores, there = plan["scores"], plan.get("done")
    folder, origin = cell_folder(home, cell), original_folder(home, cell.data, cell.critic)
    beside = ["coverage"] if scores["facts"] else []
    beside += ["judge"] if scores["judge"] else []
    beside += scores["assessors"]
    needed = [origin / "before.jsonl", folder / "corrections.jsonl", folder / "after.jsonl"]
    needed += [place / f"{name}.jsonl" for place in (origin, folder) for name in beside]
    if not all(path.is_file() and (there is None or str(path.relative_to(home)) in there) for path in needed):
        return None
    corrections = list(read_results(folder / "corrections.jsonl"))
    sides: list[list[Row]] = []
    verdicts: list[list[str | None]] = []
    for place, name in ((origin, "before"), (folder, "after")):
        rows = list(read_results(place / f"{name}.jsonl"))
        files = {one: list(read_results(place / f"{one}.jsonl")) for one in beside}
        texts = [(row["response"] if name == "before" else row["best"]["response"]) for row in corrections]
        more = _texts(origin, texts) if scores["texts"] else [{} for _ in rows]
        for found in files.values():
            more = [one | other["measures"] for one, other in zip(more, found, strict=True)]
        sides.append([with_scores(row, one) for row, one in zip(rows, more, strict=True)])
        judged_rows = zip(files.get("judge", ()), rows, strict=False)
        verdicts.append([None if has_failed(result["status"]) else _verdict(row) for row, result in judged_rows])
    available = {name for side in sides for row in side for name in row["measures"] or ()}
    for one in (*TEXTS, EQUIVALENT, *scores["assessors"]):
        if one in available and one not in names:
            names.append(one)
    comparison = Comparison.of(sides[0], sides[1], (*MEASURES, *(one for one in names if one in available)))
    cost = sum((Cost(**row["cost"]) for row in corrections), Cost())
    spent = RunCost(len(corrections), cost.prompts, cost.tokens, cost.dollars)
    entry = GridEntry(cell.corrector, cell.model, cell.data, comparison, spent)
    judged = [pair for pair in zip(*verdicts, strict=True) if None not in pair]
    old, new = (Counter(str(pair[side]) for pair in judged) for side in (0, 1))
    return _Done(cell, sides[0], sides[1], corrections, (old, new), entry)


def _verdict(judged: Row) -> str | None:
    """The judge's verdict, or that it failed; None for a response without a reference."""
    return judged["verdict"] or ("failed" if judged["measures"] else None)


def _texts(origin: Path, texts: list[str | None]) -> list[dict[str, float]]:
    cases = (row.case for row in read_cases(origin / "before.cases.jsonl"))
    references = [None if case is None else reference_of(case) for case in cases]
    if not any(references):
        return [{} for _ in texts]
    return compared_texts(zip(texts, references, strict=True))


# Tables


def _spent_cells(entry: GridEntry) -> list[TableCell]:
    spent = entry.spent
    totals = (spent.prompts, spent.tokens, spent.cost) if spent else (None, None, None)
    each = [spent.per_case(total) if spent else None for total in totals]
    return [Number(value, places) for value, places in zip(each, (1, 0, 4), strict=True)]


def _noted(table: Table) -> Table:
    """The table with a note on its cost."""
    note = "Prompts, tokens and cost are those of the method; the evaluation that compares methods is not counted."
    return replace(table, notes=(*table.notes, note))


def _who(entry: GridEntry) -> list[TableCell]:
    return [entry.data, entry.corrector, entry.model]


_WHO: Final = ("data", "corrector", "model")


def _gains(entries: list[GridEntry], measures: list[str]) -> Table:
    """The gain of each measure of each cell, with interval, standard deviation and test."""
    heads = ("measure", "pairs", "score", "gain", "sd", "t", "p", "gain at worst", "at best")
    rows: list[tuple[TableCell, ...]] = []
    for entry in entries:
        for name in measures:
            change = entry.comparison.changes.get(name)
            if change is None or (not change.n and not change.gain.n_failed):
                continue
            spread, test = change.gain, change.test
            numbers = (spread.sd, test.t, test.p, spread.worst, spread.best)
            rows.append(
                (
                    *_who(entry),
                    HEADS.get(name, name),
                    CountOf(change.n, change.gain.n_failed),
                    BeforeAfter(change.before.mean, change.after.mean),
                    Interval(spread.mean, spread.low, spread.high),
                    *(Number(value, 4 if i == 2 else 3) for i, value in enumerate(numbers)),
                    *_spent_cells(entry),
                )
            )
    notes = (
        "gain: mean relative gain per case, with its 95 % bootstrap interval in brackets; sd: its standard deviation.",
        "t, p: one-sided paired t-test of after > before; empty without variance.",
        "worst, best: limits of the mean gain, whatever the scores of the failed pairs.",
    )
    return Table(tuple(map(Column, (*_WHO, *heads, *_SPENT_COLUMNS))), tuple(rows), "Gains", notes)


def _judged(done: list[_Done]) -> Table:
    """The judge's verdicts on the responses."""
    rows: list[tuple[TableCell, ...]] = []
    for one in done:
        before, after = one.verdicts
        counts = [BeforeAfter(before[name], after[name], 0) for name in (*_VERDICTS, "failed")]
        rows.append((*_who(one.entry), *counts, *_spent_cells(one.entry)))
    columns = tuple(map(Column, (*_WHO, *_VERDICTS, "failed", *_SPENT_COLUMNS)))
    return Table(columns, tuple(rows), "Responses compared with references by a model as judge")


def _endings(done: list[_Done]) -> Table:
    """How corrections ended: the cases by the reason."""
    stops = list(dict.fromkeys(row["stop"] for one in done for row in one.corrections))
    rows: list[tuple[TableCell, ...]] = []
    for one in done:
        counts = Counter(row["stop"] for row in one.corrections)
        n_failed = sum(has_failed(row["status"]) for row in one.corrections)
        rounds = sum(len(row["trajectory"]) - 1 for row in one.corrections) / max(len(one.corrections), 1)
        changed = sum(row["changed"] for row in one.corrections)
        cells: list[TableCell] = [CountOf(len(one.corrections) - n_failed, n_failed), changed, Number(rounds, 2)]
        rows.append((*_who(one.entry), *cells, *(counts[stop] for stop in stops), *_spent_cells(one.entry)))
    heads = ("cases", "changed", "rounds / case", *stops, *_SPENT_COLUMNS)
    return _noted(Table(tuple(map(Column, (*_WHO, *heads))), tuple(rows), "How corrections ended"))


def _humans(home: Path, done: list[_Done]) -> dict[str, Table]:
    """The agreement of critics with human labels, if any atom has one."""
    found: dict[str, LabelAgreement | None] = {}
    for data, critic in dict.fromkeys((one.cell.data, one.cell.critic) for one in done):
        folder = original_folder(home, data, critic)
        if (agreement := LabelAgreement.of(read_results(folder / "before.jsonl"))) is None:
            continue
        found[f"{data}: critic, {critic}"] = agreement
        cases = [row.case for row in read_cases(folder / "before.cases.jsonl") if row.case is not None]
        found[f"{data}: {BASELINE}, {critic}"] = LabelAgreement.of(majority(cases, Settings()))
    if not found:
        return {}
    return {
        "humans": agreement_table(found, "Labels of the originals compared with human labels"),
        "humans-three-way": three_way_table(found, "Labels by human label"),
    }


def _write_tables(home: Path, found: Rendered) -> None:
    folder = home / "tables"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror or error}") from error
    for name, table in found.tables.items():
        for suffix in FORMATS:
            table.save(folder / f"{name}{suffix}")
    parts = [table.markdown() for table in found.tables.values()]
    if found.missing:
        cells = ", ".join("/".join((one.data, one.model, one.corrector)) for one in found.missing)
        parts.insert(0, f"Not done yet: {cells}\n")
    (home / "report.md").write_text("\n".join(parts), encoding="utf-8")


def _case_lines(one: _Done) -> Iterator[bytes]:
    """One row per case."""
    names = [name for name in one.entry.comparison.changes if name not in ("n_atoms", "n_supported")]
    shown = ("id", "status", "stop", "changed")
    for before, after, row in zip(one.before, one.after, one.corrections, strict=True):
        sides = [side["measures"] or {} for side in (before, after)]
        gains = {name: gain(*(side.get(name) for side in sides)) for name in names}
        yield encode_result(
            {
                **{name: row[name] for name in shown},
                "before": before["measures"],
                "after": after["measures"],
                "gains": {name: rounded(value) for name, value in gains.items() if value is not None},
                "response": row["response"],
                "corrected": row["best"]["response"],
                "cost": row["cost"],
            }
        )


def _draw(home: Path, found: Rendered) -> None:
    """The plots, if matplotlib is installed."""
    if find_spec("matplotlib") is None:
        found.note = "no plots: matplotlib is not installed (pip install 'fcjax[plots]')"
        return
    entries = [entry for entry in found.entries if entry.comparison["precision"].n]
    if not entries:
        found.note = "no plots: no case has a precision before and after"
        return
    from fcjax.evaluation.plots import SUFFIXES, before_after, gains_by_model

    folder = home / "plots"
    folder.mkdir(exist_ok=True)
    for measure in ("precision", "f1_at_k"):
        for name, draw in (("before-after", before_after), ("gains", gains_by_model)):
            for suffix in SUFFIXES:
                draw(entries, folder / f"{name}-{measure}{suffix}", measure)
                found.plots.append(f"plots/{name}-{measure}{suffix}")
