"""A grid of (corrector x model x data set): each cell is corrected, evaluated and scored, in steps that are kept.

Each step writes one file. It runs again only if something that it depends on has changed, or something in it has
failed: the state of the folder holds a fingerprint of each step. An interrupted step has a journal of its own, and all
replies are in one store, so the same command resumes and asks nothing twice. Files that hold prompts, replies or
passages are this user's alone, and so are folders that are created.

    data/DATA/CRITIC/before.jsonl      the originals' results, with before.cases.jsonl beside them
    cells/DATA/MODEL/CORRECTOR/corrections.jsonl, after.jsonl
    .../coverage.jsonl, judge.jsonl, factscore.jsonl, ...   other scores, of originals and of corrections

All responses are evaluated by the same critic in the same way: a corrected one has the evidence of the original where
it says the same, and its own elsewhere (see `fcjax.correction.factcorrector.evaluation`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from fcjax.core.errors import OutputError
from fcjax.core.folders import private_folder
from fcjax.core.records import Case, Status
from fcjax.correction.factcorrector import evaluation, failures, reevaluation_inputs
from fcjax.critic.asker import Asker
from fcjax.critic.critic import Critic
from fcjax.evaluation.assessors import assessor_of
from fcjax.evaluation.grid_state import (
    CaseObserver,
    GridObserver,
    GridReport,
    GridState,
    drop_journal_of_others,
    file_digest,
)
from fcjax.evaluation.judge import Equivalence
from fcjax.evaluation.layout import Cell, cell_folder, original_folder
from fcjax.evaluation.resources import Resources, RunBudget, Work
from fcjax.evaluation.scores import FactExtraction, assessment, coverage, equivalence
from fcjax.io.client import Client
from fcjax.io.files import encode_result, read_cases
from fcjax.io.files.locks import locked
from fcjax.io.files.results import read_results
from fcjax.io.files.streams import Source, replacing, write_lines
from fcjax.runs.correct_file import correct_file
from fcjax.runs.correct_file import look as look_at
from fcjax.runs.critique_file import critique_file
from fcjax.runs.preview import Choice, described, preview
from fcjax.scoring.measures import K
from fcjax.scoring.rows import RESULTS_VERSION, Row
from fcjax.scoring.score_cases import completed
from fcjax.scoring.summary import has_failed
from fcjax.stages.atomize import ATOMIZE

if TYPE_CHECKING:
    from fcjax.evaluation.config import Plan

VERSION: Final = 1
"""Part of every step's fingerprint, with the version of the results; to be raised when steps write something else."""

_FINAL: Final = (Status.OK, Status.NO_ATOMS, Status.REFUSED, Status.STOPPED, Status.INVALID_INPUT)
"""Statuses that another try would not change."""

_OURS: Final = ("cells", "plots", "report.md", "tables")
"""Names that a folder must not hold unless it holds an evaluation: their files may be of another origin."""


def run_grid(
    plan: Plan,
    folder: Source,
    *,
    replay: bool = False,
    budget: RunBudget | None = None,
    observer: GridObserver | None = None,
) -> GridReport:
    """Run the steps of a plan that are left, in `folder`, which is created; `rendering.render` makes the tables.

    With `replay`, replies come from the store alone. Raises `SettingsError` before any work for a model or a source of
    evidence that cannot be used; `BudgetError` when the budget is used up, after which the same call resumes; and the
    errors of reading and writing files.
    """
    home = Path(folder)
    try:
        private_folder(home)
        others = sorted(path.name for path in home.iterdir() if path.name in _OURS)
    except OSError as error:
        raise OutputError(f"{home}: the folder cannot be created ({error.strerror or error})") from error
    if others and not any((home / name).exists() for name in ("state.json", "plan.json")):
        raise OutputError(f"{home}: contains {' and '.join(others)} but no evaluation; specify another folder")
    with ExitStack() as opened:
        opened.enter_context(locked(home / "state.json"))
        resources = opened.enter_context(
            Resources(plan, home / "replies.sqlite", replay=replay, budget=budget or RunBudget())
        )
        return _Run(plan, home, resources, observer).all()


class _Run:
    """One run over a folder."""

    def __init__(self, plan: Plan, home: Path, resources: Resources, observer: GridObserver | None):
        self._plan, self._home, self._resources, self._observer = plan, home, resources, observer
        self._state = GridState(home / "state.json")
        self._report = GridReport()
        self._done: list[str] = []  # steps whose files fit this plan and its data

    def all(self) -> GridReport:
        cells, scores = self._plan.cells(), self._plan.scores
        for cell in cells:
            self._resources.method(cell)  # so that a fault of the plan is raised before any work
        if scores.judge:
            self._resources.client(scores.judge)
        originals = list(dict.fromkeys((cell.data, cell.critic) for cell in cells))
        if self._observer:
            each = bool(scores.facts) + bool(scores.judge) + len(scores.assessors)
            self._observer.begins(len(originals) * (1 + bool(scores.facts) + each) + len(cells) * (2 + each))
        self._note_plan()
        for data, critic in originals:
            self._original(data, critic)
        for cell in cells:
            self._cell(cell)
        return self._report

    def _note_plan(self) -> None:
        """Write what the tables are made from, so that they leave out the files of other plans."""
        with replacing(self._home / "plan.json", private=True) as out:
            out.write(orjson.dumps(self._plan.to_dict() | {"done": self._done}, option=orjson.OPT_INDENT_2))

    def _original(self, data: str, name: str) -> None:
        """The originals of a data set: their evaluation, the facts of their evidence, and their other scores."""
        folder = original_folder(self._home, data, name)
        before, cases = folder / "before.jsonl", folder / "before.cases.jsonl"
        source, choice, scores = self._plan.data[data].path, self._choice(data), self._plan.scores
        critic = self._resources.critic(name, data)
        found = preview(str(source), critic, choice).fingerprint
        drop_journal_of_others(folder / "before.jsonl.stages", found)

        def critique() -> int:
            report = critique_file(source, before, critic, choice, observer=CaseObserver(self._observer), private=True)
            lost = sum(count for status, count in report.summary.statuses.items() if status not in _FINAL)
            return lost + sum(kinds.total() for kinds in report.failed.values())

        self._step(before, [found, _scoring(critic)], critique, beside=cases)
        if scores.facts:
            facts = FactExtraction(most=scores.facts, contexts=scores.contexts)

            async def extracted(asker: Asker, case: Case) -> Row:
                return await facts.run(case, asker.ask, asker.reject)

            parts = [file_digest(cases), name, facts.most, facts.contexts, ATOMIZE.name]
            self._rows(
                folder / "facts.jsonl", parts, lambda: self._resources.client(name), lambda: _cases(cases), extracted
            )
        self._scored(folder, data, name, cases)

    def _cell(self, cell: Cell) -> None:
        """A cell: its corrections, their evaluation, and their other scores."""
        folder, origin = cell_folder(self._home, cell), original_folder(self._home, cell.data, cell.critic)
        corrections, cases = folder / "corrections.jsonl", folder / "corrections.corrected.jsonl"
        source, choice = self._plan.data[cell.data].path, self._choice(cell.data)
        method = self._resources.method(cell)
        found = look_at(str(source), method, choice).fingerprint
        drop_journal_of_others(folder / "corrections.jsonl.journal", found)

        def correct() -> int:
            observer = CaseObserver(self._observer)
            return correct_file(source, corrections, method, choice, observer=observer, private=True).to_try_again

        self._step(corrections, [found, self._plan.critic.settings.k], correct, beside=cases, counts=False)
        name = "/".join((cell.data, cell.model, cell.corrector))
        self._report.statuses[name] = Counter(row["status"] for row in read_results(corrections))
        before, known = origin / "before.jsonl", origin / "before.cases.jsonl"
        critic = self._resources.critic(cell.critic, cell.data)

        async def evaluated(asker: Asker, item: tuple[Row, Case, Row]) -> Row:
            return await _evaluated(critic, asker, *item)

        def items() -> Iterator[tuple[Row, Case, Row]]:
            return zip(read_results(before), _cases(known), read_results(corrections), strict=True)

        parts = [*map(file_digest, (before, known, corrections)), _scoring(critic), found]
        self._rows(folder / "after.jsonl", parts, lambda: critic, items, evaluated)
        self._scored(folder, cell.data, cell.critic, cases)

    def _scored(self, folder: Path, data: str, critic: str, cases: Path) -> None:
        """The other scores of the plan, for the responses in a file of cases."""
        scores, digest = self._plan.scores, file_digest(cases)
        if scores.facts:
            facts = original_folder(self._home, data, critic) / "facts.jsonl"

            async def covered(asker: Asker, item: tuple[Case, Row]) -> Row:
                return await coverage(*item, asker.ask, asker.reject)

            def pairs() -> Iterator[tuple[Case, Row]]:
                return zip(_cases(cases), read_results(facts), strict=True)

            parts = [digest, file_digest(facts), critic]
            self._rows(folder / "coverage.jsonl", parts, lambda: self._resources.client(critic), pairs, covered)
        if judge_name := scores.judge:
            judge = Equivalence(swapped=scores.swapped)

            async def judged(asker: Asker, case: Case) -> Row:
                return await equivalence(judge, case, asker.ask, asker.reject)

            named = [digest, judge_name, judge.template.name, judge.swapped]
            client = self._resources.client
            self._rows(folder / "judge.jsonl", named, lambda: client(judge_name), lambda: _cases(cases), judged)
        for name in scores.assessors:
            self._assessed(folder / f"{name}.jsonl", name, data, critic)

    def _assessed(self, path: Path, name: str, data: str, critic: str) -> None:
        """An assessor's verdicts on the originals, with the critic's atoms and contexts, or on the corrections, which
        have the same evidence where they say the same."""
        kind, made = assessor_of(name), self._resources.critic(critic, data)
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
            self._rows(path, [file_digest(known), *named], lambda: made, lambda: _cases(known), first)
        else:
            self._rows(path, [*map(file_digest, (before, known, corrections)), *named], lambda: made, items, later)

    def _rows(
        self,
        path: Path,
        parts: list[Any],
        owner: Callable[[], Critic | Client],
        items: Callable[[], Iterable[Any]],
        work: Work[Any],
    ) -> None:
        """A step that makes one row per item."""

        def make() -> int:
            lost = 0

            def lines() -> Iterator[bytes]:
                nonlocal lost
                for row in self._resources.rows(owner(), items(), work):
                    lost += row.pop("n_failed", 0)
                    if self._observer:
                        self._observer.case()
                    yield encode_result(row)

            write_lines(path, lines(), private=True)
            return lost

        self._step(path, parts, make)

    def _step(
        self, path: Path, parts: list[Any], make: Callable[[], int], *, beside: Path | None = None, counts: bool = True
    ) -> None:
        """Run a step unless it is done: `make` writes `path` and `beside`, and returns how much failed."""
        name = str(path.relative_to(self._home))
        fingerprint = hashlib.blake2b(orjson.dumps([VERSION, RESULTS_VERSION, name, parts]), digest_size=16).hexdigest()
        there = path.is_file() and (beside is None or beside.is_file())
        kept, failed = there and self._state.has(name, fingerprint), 0
        try:
            if not kept:
                private_folder(path.parent)
                if self._observer:
                    self._observer.starts(name)
                failed = make()
                self._state.note(name, None if failed else fingerprint)  # a step with failures runs again
        finally:
            self._resources.end_step()
        self._done.append(name)
        self._note_plan()
        self._report.steps += 1
        self._report.kept += kept
        if failed and counts:
            self._report.failed[name] = failed
        if self._observer:
            self._observer.step(name, kept, failed)

    def _choice(self, data: str) -> Choice:
        given = self._plan.data[data]
        return Choice(limit=given.limit, sample=given.sample, seed=self._plan.seed)


async def _evaluated(critic: Critic, asker: Asker, before: Row, known: Case, correction: Row) -> Row:
    """The result of a corrected response, at the K of the originals; a failed correction has none."""
    row = {**before, "n_failed": 0}
    if has_failed(correction["status"]):
        lost = {"status": correction["status"], "reason": correction["reason"], "atoms": [], "measures": None}
        return row | lost
    if not correction["changed"] or has_failed(before["status"]):
        return row
    found = await evaluation(critic, correction["best"]["response"], known, asker)
    k: K = (before["measures"] or {}).get("k") or critic.settings.k or 1
    unfinished = found.status not in _FINAL
    return {**completed(found.row, k, found.row["fingerprint"]), "n_failed": int(unfinished) + failures(found)}


def _cases(path: Path) -> Iterator[Case]:
    """The cases of a file that this run has written."""
    return (row.case or Case(id=row.id, status=Status.INVALID_INPUT) for row in read_cases(path))


def _scoring(critic: Critic) -> Any:
    return described(critic.settings.resolved())
