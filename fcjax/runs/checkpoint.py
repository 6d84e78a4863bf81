"""The cases under way, as the journal has them: where a stopped run resumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from fcjax.core.errors import InputError
from fcjax.core.records import Case, Status
from fcjax.io.files import case_to_dict, parse_case
from fcjax.io.files.journal import Journal
from fcjax.stages.pipeline import Stage
from fcjax.stages.traces import traces

_AGAIN: Final = (Status.ATOMIZE_FAILED, Status.RETRIEVAL_FAILED, Status.RELATION_FAILED, Status.STOPPED)
_FIELDS: Final = ("atoms", "contexts", "relations", "status")  # of a case, that stages may change

OnStage = Callable[[Stage, Case, bool], None]


class Checkpoint:
    """The state of the cases under way.

    `on_stage(stage, case, kept)` is called for every stage that a case has been through, in this run or (`kept`) in an
    earlier one. Without a journal nothing is written.
    """

    def __init__(self, journal: Journal | None, on_stage: OnStage):
        self._journal, self._on_stage = journal, on_stage
        self._written: dict[int, Case] = {}
        self._unwritten: set[int] = set()  # cases in which something failed: later stages depend on it

    def resumed(self, place: int, case: Case) -> Case:
        """The case as an earlier run left it."""
        entries = self._journal.entries(place) if self._journal is not None else []
        if entries:
            record = case_to_dict(case)
            for entry in entries:
                record = entry.applied(record)
            try:
                case = parse_case(record)
            except InputError:  # the journal makes a case that cannot be read: start over
                self._unwritten.add(place)
                entries = []
        self._written[place] = case
        for entry in entries:
            self._on_stage(cast("Stage", entry.stage), case, True)
        return case

    def after(self, place: int, stage: Stage, case: Case) -> None:
        """Write what a stage has found to the journal, unless something has failed: then the stage is repeated."""
        before = self._written[place]
        changed, gone = _changes(before, case)
        if not (changed or gone):
            return  # it had been through this stage before
        self._on_stage(stage, case, False)
        if place in self._unwritten or has_failures(stage, case):
            self._unwritten.add(place)
            return
        self._written[place] = case
        if self._journal is not None:
            self._journal.write(place, stage, changed, gone)

    def forget(self, place: int) -> None:
        """The case is finished."""
        self._written.pop(place, None)
        self._unwritten.discard(place)


def has_failures(stage: Stage, case: Case) -> bool:
    """Whether something has failed in the stage that a case has just been through."""
    if case.status in _AGAIN:
        return True
    if stage == "relate":
        return any(relation.status.failed for relation in case.relations or ())
    return bool(traces(case).get(stage, {}).get("failed"))


def _changes(before: Case, after: Case) -> tuple[dict[str, Any], list[str]]:
    """The changed fields of a case, as JSON, and the names of those that are gone."""
    fields = {name: getattr(after, name) for name in _FIELDS if getattr(after, name) != getattr(before, name)}
    none = object()
    extra = {key: value for key, value in after.extra.items() if before.extra.get(key, none) != value}
    changed = case_to_dict(Case(id="", **fields, extra=extra))
    del changed["id"]
    had = [name for name in fields if getattr(before, name) not in (None, Status.OK)]
    gone = [name for name in had if name not in changed]
    return changed, gone + [key for key in before.extra if key not in after.extra]
