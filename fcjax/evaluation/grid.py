"""A grid of (corrector x model x data set): each cell is corrected, evaluated and scored, in steps that are kept.

A step writes one file, and is done again only if something that it rests on has changed, or something in it had failed:
the state of the folder holds a fingerprint of each. What a step was at when it was stopped is in its own journal, and
every reply in one store, so that the same command goes on and asks nothing twice.

    data/DATA/CRITIC/before.jsonl      the originals' results, with before.cases.jsonl beside them
    cells/DATA/MODEL/CORRECTOR/corrections.jsonl, after.jsonl
    .../coverage.jsonl, judge.jsonl, factscore.jsonl, ...   other scores, of originals and of corrections

All responses are evaluated by the same critic in the same way: a corrected one has the evidence of the original where
it says the same, and its own where it does not (see `fcjax.correction.factcorrector.evaluation`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from fcjax.core.errors import OutputError
from fcjax.core.records import Case, Status
from fcjax.correction.factcorrector import evaluation, failures, reevaluation_inputs
from fcjax.critic.asker import Asker
from fcjax.critic.critic import Critic
from fcjax.evaluation.assessors import assessor_of
from fcjax.evaluation.config import Cell, Plan
from fcjax.evaluation.judge import Equivalence
from fcjax.evaluation.resources import Resources, RunBudget, Work
from fcjax.evaluation.scores import Facts, assessment, coverage, equivalence
from fcjax.io.client import Client
from fcjax.io.files import encode_result, read_cases
from fcjax.io.files.locks import locked
from fcjax.io.files.results import read_results
from fcjax.io.files.streams import Source, replacing, write_lines
from fcjax.runs.correct_file import correct_file
from fcjax.runs.correct_file import look as look_at
from fcjax.runs.critique_file import critique_file
from fcjax.runs.observer import RunObserver
from fcjax.runs.preview import Choice, described, preview
from fcjax.scoring.measures import K
from fcjax.scoring.rows import Row
from fcjax.scoring.score_cases import completed
from fcjax.scoring.summary import has_failed
from fcjax.stages.atomize import ATOMIZE

VERSION: Final = 1
"""Part of every step's fingerprint; raise it when steps come to write something else."""

_FINAL: Final = (Status.OK, Status.NO_ATOMS, Status.REFUSED, Status.STOPPED, Status.INVALID_INPUT)
"""Statuses that another try would not change."""


_OURS: Final = ("cells", "plots", "report.md", "tables")
"""What is written in a folder and might be somebody else's."""


class GridObserver(Protocol):
    """Someone who looks on while a grid is run."""

    def begins(self, steps: int) -> None:
        """So many steps are to be done, or are done already."""

    def starts(self, name: str) -> None:
        """A step is begun that was not done before."""

    def case(self) -> None:
        """A case of the step that was begun last is done."""

    def step(self, name: str, kept: bool, failed: int) -> None:
        """A step is done, or was done before and is `kept`; in `failed` of its cases something failed."""


@dataclass(slots=True)
class GridReport:
    """What a run of a grid came to."""

    steps: int = 0
    kept: int = 0  # of these, the ones that were done before
    failed: dict[str, int] = field(default_factory=dict)  # step -> how much failed in it
    statuses: dict[str, Counter[str]] = field(default_factory=dict)  # of the corrections, by cell

    @property
    def n_failed(self) -> int:
        """How much failed in all steps, and cases that could not be corrected."""
        lost = sum(count for found in self.statuses.values() for status, count in found.items() if has_failed(status))
        return sum(self.failed.values()) + lost


def run_grid(
    plan: Plan,
    folder: Source,
    *,
    replay: bool = False,
    purse: RunBudget | None = None,
    watch: GridObserver | None = None,
) -> GridReport:
    """Do what is left of a plan, in `folder`, which is made where there is none; `rendering.render` makes the tables.

    With `replay` the store alone answers. Raises `SettingsError` for what cannot be asked or searched, before any work;
    `BudgetError` where the purse is empty: the same call goes on; and what reading and writing files raise.
    """
    home = Path(folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
        others = sorted(path.name for path in home.iterdir() if path.name in _OURS)
    except OSError as error:
        raise OutputError(f"{home}: no folder can be made there ({error.strerror or error})") from error
    if others and not any((home / name).exists() for name in ("state.json", "plan.json")):
        raise OutputError(f"{home}: holds {' and '.join(others)}, and no evaluation; name another folder")
    with ExitStack() as opened:
        opened.enter_context(locked(home / "state.json"))
        shop = opened.enter_context(Resources(plan, home / "replies.sqlite", replay=replay, purse=purse or RunBudget()))
        return _Run(plan, home, shop, watch).all()


def original_folder(home: Path, data: str, critic: str) -> Path:
    """Where the originals of a data set are evaluated by a critic."""
    return home / "data" / data / critic


def cell_folder(home: Path, cell: Cell) -> Path:
    """Where a cell's files are."""
    return home / "cells" / cell.data / cell.model / cell.corrector


class _Run:
    """One run over a folder."""

    def __init__(self, plan: Plan, home: Path, shop: Resources, watch: GridObserver | None):
        self._plan, self._home, self._shop, self._watch = plan, home, shop, watch
        self._state = _State(home / "state.json")
        self._report = GridReport()
        self._done: list[str] = []  # steps whose files are as this plan and its data want them

    def all(self) -> GridReport:
        cells, scores = self._plan.cells(), self._plan.scores
        for cell in cells:
            self._shop.method(cell)  # so that a fault of the plan is told before any work
        if scores.judge:
            self._shop.client(scores.judge)
        originals = list(dict.fromkeys((cell.data, cell.critic) for cell in cells))
        if self._watch:
            each = bool(scores.facts) + bool(scores.judge) + len(scores.assessors)
            self._watch.begins(len(originals) * (1 + bool(scores.facts) + each) + len(cells) * (2 + each))
        self._note_plan()
        for data, critic in originals:
            self._original(data, critic)
        for cell in cells:
            self._cell(cell)
        return self._report

    def _note_plan(self) -> None:
        """Write down what the tables are made by: of files that another plan has left they know nothing."""
        with replacing(self._home / "plan.json") as out:
            out.write(orjson.dumps(self._plan.to_dict() | {"done": self._done}, option=orjson.OPT_INDENT_2))

    def _original(self, data: str, name: str) -> None:
        """The originals of a data set: evaluated, the facts of their evidence, and their other scores."""
        folder = original_folder(self._home, data, name)
        before, cases = folder / "before.jsonl", folder / "before.cases.jsonl"
        source, choice, scores = self._plan.data[data].path, self._choice(data), self._plan.scores
        critic = self._shop.critic(name, data)
        found = preview(str(source), critic, choice).fingerprint
        _drop_other(folder / "before.jsonl.stages", found)

        def critique() -> int:
            report = critique_file(source, before, critic, choice, observer=_Cases(self._watch))
            lost = sum(count for status, count in report.summary.statuses.items() if status not in _FINAL)
            return lost + sum(kinds.total() for kinds in report.failed.values())

        self._step(before, [found, _scoring(critic)], critique, beside=cases)
        if scores.facts:
            facts = Facts(most=scores.facts, contexts=scores.contexts)

            async def taken(asker: Asker, case: Case) -> Row:
                return await facts.run(case, asker.ask, asker.reject)

            parts = [_digest(cases), name, facts.most, facts.contexts, ATOMIZE.name]
            self._rows(folder / "facts.jsonl", parts, lambda: self._shop.client(name), lambda: _cases(cases), taken)
        self._scored(folder, data, name, cases)

    def _cell(self, cell: Cell) -> None:
        """A cell: corrected, evaluated, and scored otherwise."""
        folder, origin = cell_folder(self._home, cell), original_folder(self._home, cell.data, cell.critic)
        corrections, cases = folder / "corrections.jsonl", folder / "corrections.corrected.jsonl"
        source, choice = self._plan.data[cell.data].path, self._choice(cell.data)
        method = self._shop.method(cell)
        found = look_at(str(source), method, choice).fingerprint
        _drop_other(folder / "corrections.jsonl.journal", found)

        def correct() -> int:
            return correct_file(source, corrections, method, choice, observer=_Cases(self._watch)).to_try_again

        self._step(corrections, [found, self._plan.critic.settings.k], correct, beside=cases, counts=False)
        name = "/".join((cell.data, cell.model, cell.corrector))
        self._report.statuses[name] = Counter(row["status"] for row in read_results(corrections))
        before, known = origin / "before.jsonl", origin / "before.cases.jsonl"
        critic = self._shop.critic(cell.critic, cell.data)

        async def evaluated(asker: Asker, item: tuple[Row, Case, Row]) -> Row:
            return await _evaluated(critic, asker, *item)

        def items() -> Iterator[tuple[Row, Case, Row]]:
            return zip(read_results(before), _cases(known), read_results(corrections), strict=True)

        parts = [*map(_digest, (before, known, corrections)), _scoring(critic), found]
        self._rows(folder / "after.jsonl", parts, lambda: critic, items, evaluated)
        self._scored(folder, cell.data, cell.critic, cases)

    def _scored(self, folder: Path, data: str, critic: str, cases: Path) -> None:
        """The other scores that the plan asks for, of the responses in a file of cases."""
        scores, digest = self._plan.scores, _digest(cases)
        if scores.facts:
            facts = original_folder(self._home, data, critic) / "facts.jsonl"

            async def covered(asker: Asker, item: tuple[Case, Row]) -> Row:
                return await coverage(*item, asker.ask, asker.reject)

            def pairs() -> Iterator[tuple[Case, Row]]:
                return zip(_cases(cases), read_results(facts), strict=True)

            parts = [digest, _digest(facts), critic]
            self._rows(folder / "coverage.jsonl", parts, lambda: self._shop.client(critic), pairs, covered)
        if judge_name := scores.judge:
            judge = Equivalence(swapped=scores.swapped)

            async def judged(asker: Asker, case: Case) -> Row:
                return await equivalence(judge, case, asker.ask, asker.reject)

            named = [digest, judge_name, judge.template.name, judge.swapped]
            client = self._shop.client
            self._rows(folder / "judge.jsonl", named, lambda: client(judge_name), lambda: _cases(cases), judged)
        for name in scores.assessors:
            self._assessed(folder / f"{name}.jsonl", name, data, critic)

    def _assessed(self, path: Path, name: str, data: str, critic: str) -> None:
        """An assessor's verdicts on the originals, by the critic's atoms and contexts, or on what became of them, which
        has the same evidence where it says the same."""
        kind, made = assessor_of(name), self._shop.critic(critic, data)
        origin, corrections = original_folder(self._home, data, critic), path.parent / "corrections.jsonl"
        before, known = origin / path.name, origin / "before.cases.jsonl"
        named = [critic, _scoring(made), self._plan.data[data].retriever]

        async def first(asker: Asker, case: Case) -> Row:
            return await assessment(kind(made), case)

        async def later(asker: Asker, item: tuple[Row, Case, Row]) -> Row:
            row, case, correction = item
            if not correction["changed"]:
                return {**row, "n_failed": 0}
            critic, revised = reevaluation_inputs(made, correction["best"]["response"], case)
            return await assessment(kind(critic), revised)

        def items() -> Iterator[tuple[Row, Case, Row]]:
            return zip(read_results(before), _cases(known), read_results(corrections), strict=True)

        if path == before:
            self._rows(path, [_digest(known), *named], lambda: made, lambda: _cases(known), first)
        else:
            self._rows(path, [*map(_digest, (before, known, corrections)), *named], lambda: made, items, later)

    def _rows(
        self,
        path: Path,
        parts: list[Any],
        owner: Callable[[], Critic | Client],
        items: Callable[[], Iterable[Any]],
        work: Work[Any],
    ) -> None:
        """A step that makes a row of each item."""

        def make() -> int:
            lost = 0

            def lines() -> Iterator[bytes]:
                nonlocal lost
                for row in self._shop.rows(owner(), items(), work):
                    lost += row.pop("n_failed", 0)
                    if self._watch:
                        self._watch.case()
                    yield encode_result(row)

            write_lines(path, lines())
            return lost

        self._step(path, parts, make)

    def _step(
        self, path: Path, parts: list[Any], make: Callable[[], int], *, beside: Path | None = None, counts: bool = True
    ) -> None:
        """Do a step, unless it is done: `make` writes `path`, and `beside`, and says how much failed."""
        name = str(path.relative_to(self._home))
        fingerprint = hashlib.blake2b(orjson.dumps([VERSION, name, parts]), digest_size=16).hexdigest()
        there = path.is_file() and (beside is None or beside.is_file())
        kept, failed = there and self._state.has(name, fingerprint), 0
        try:
            if not kept:
                path.parent.mkdir(parents=True, exist_ok=True)
                if self._watch:
                    self._watch.starts(name)
                failed = make()
                self._state.note(name, None if failed else fingerprint)  # what failed is tried again
        finally:
            self._shop.settle()
        self._done.append(name)
        self._note_plan()
        self._report.steps += 1
        self._report.kept += kept
        if failed and counts:
            self._report.failed[name] = failed
        if self._watch:
            self._watch.step(name, kept, failed)

    def _choice(self, data: str) -> Choice:
        given = self._plan.data[data]
        return Choice(limit=given.limit, sample=given.sample, seed=self._plan.seed)


async def _evaluated(critic: Critic, asker: Asker, before: Row, known: Case, correction: Row) -> Row:
    """The result of a corrected response, by the K of the originals; a correction that failed has none."""
    row = {**before, "n_failed": 0}
    if has_failed(correction["status"]):
        lost = {"status": correction["status"], "reason": correction["reason"], "atoms": [], "measures": None}
        return row | lost
    if not correction["changed"] or has_failed(before["status"]):
        return row
    found = await evaluation(critic, correction["best"]["response"], known, asker)
    k: K = (before["measures"] or {}).get("k") or critic.settings.k or 1
    reevaluation_inputs = found.status not in _FINAL
    return {**completed(found.row, k, found.row["fingerprint"]), "n_failed": int(reevaluation_inputs) + failures(found)}


class _Cases(RunObserver):
    """Reports every finished case of a step."""

    def __init__(self, watch: GridObserver | None):
        self._watch = watch

    def case(self, finished: Any, kept: bool) -> None:
        if self._watch:
            self._watch.case()


def _cases(path: Path) -> Iterator[Case]:
    """The cases of a file of ours, each of which can be read."""
    return (row.case or Case(id=row.id, status=Status.INVALID_INPUT) for row in read_cases(path))


def _scoring(critic: Critic) -> Any:
    return described(critic.settings.resolved())


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _drop_other(journal: Path, fingerprint: str) -> None:
    """Take away a journal that a run of other settings has left: the store has its replies."""
    if journal.is_file():
        with open(journal, "rb") as lines:
            if fingerprint.encode() not in lines.readline():
                journal.unlink()


class _State:
    """Which steps are done, by name, with what they were made from."""

    def __init__(self, path: Path):
        self._path = path
        self._done: dict[str, str] = {}
        if path.is_file():
            try:
                self._done = dict(orjson.loads(path.read_bytes()))
            except (OSError, ValueError, TypeError) as error:
                raise OutputError(f"{path}: is no state of an evaluation; name another folder") from error

    def has(self, name: str, fingerprint: str) -> bool:
        return self._done.get(name) == fingerprint

    def note(self, name: str, fingerprint: str | None) -> None:
        self._done.pop(name, None)
        if fingerprint is not None:
            self._done[name] = fingerprint
        with replacing(self._path) as out:
            out.write(orjson.dumps(self._done, option=orjson.OPT_INDENT_2))
