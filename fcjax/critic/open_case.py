"""One case whose relations are being asked for: its questions, their answers, and the record of the work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fcjax.core.errors import Fault, InputError
from fcjax.core.records import Case, Relation, Status
from fcjax.stages.relate import Agenda, Relater
from fcjax.stages.screen import Screen
from fcjax.stages.traces import related, with_related

if TYPE_CHECKING:
    from fcjax.critic.relation_config import RelationConfig, RelationCounts

_MAKERS: Final = ("model", "style", "template", "calibration")
"""Keys of a record of relations that say what gave them."""


class CaseQuestion(NamedTuple):
    """One question of a case, or None for a case that has none; `last` where no further question follows."""

    case: OpenCase
    place: int
    question: Any  # None where there is none
    last: bool


class OpenCase:
    """A case that is being asked about."""

    def __init__(self, case: Case, how: RelationConfig, wanted: bool = True):
        self.case, self._how = case, how
        self._agenda: Agenda | None = None
        self._screen: Screen | None = None
        self._found: dict[int, list[Relation]] = {}
        self._expected: int | None = None  # questions; None until the last one is known
        self.pends = False  # whether a reply comes later, from a batch
        if wanted and is_ready(case):
            try:
                self._agenda = Agenda.of(case, how.version)
            except InputError as error:
                self.case = unusable(case, *error.faults)

    def questions(self) -> Iterator[Any]:
        """The questions that are left to ask."""
        if self._agenda is None:
            return iter(())
        pairs = self._agenda.pairs()
        if self._how.screen is not None:
            self._screen = Screen(self._agenda, self._how.screen)
            pairs = self._screen.passed(pairs)
        return self._how.model.questions(pairs)

    def numbered(self) -> Iterator[CaseQuestion]:
        questions, place = self.questions(), 0
        question = next(questions, None)
        while (following := next(questions, None)) is not None:
            yield CaseQuestion(self, place, question, last=False)
            question, place = following, place + 1
        yield CaseQuestion(self, place, question, last=True)

    def take(self, asked: CaseQuestion, relations: list[Relation]) -> None:
        self._found[asked.place] = relations
        if asked.last:
            self._expected = asked.place + 1

    @property
    def done(self) -> bool:
        return len(self._found) == self._expected

    @property
    def left_out(self) -> int:
        """Pairs left out by screening, so far."""
        return self._screen.left_out if self._screen else 0

    def relations(self) -> list[Relation]:
        """The relations that were found, in the order of the questions."""
        return [relation for _, part in sorted(self._found.items()) for relation in part]

    def record(self) -> dict[str, Any]:
        """What is recorded of the asking beside what was asked and failed."""
        return {} if self._screen is None else {"screened": self.left_out}

    def finished(self, name: str, counts: RelationCounts) -> Case:
        """The case with its relations, in the order of the questions, and a record of the work under `relate`."""
        agenda, case = self._agenda, self.case
        if self.pends:
            case = pending(case)
        elif agenda is not None:
            relations = self.relations()
            failed = [relation for relation in relations if relation.status.failed]
            answered = [relation for relation in relations if not relation.status.failed]
            counts.pairs += len(relations)
            counts.types.update(str(relation.type) for relation in answered)
            counts.methods.update(str(relation.method) for relation in answered)
            counts.failed.update(relation.extra["reason"].partition(":")[0] for relation in failed)
            counts.given += len(case.relations or ())
            self.count(counts)
            counts.skipped.update(agenda.skipped.values())
            made_with = _made_with(name, self._how.model)
            done = {
                "model": made_with.pop("model"),
                "version": self._how.version,
                **made_with,
                "asked": len(relations),
                "failed": len(failed),
                **self.record(),
                **({"skipped": dict(agenda.skipped)} if agenda.skipped else {}),
            }
            case = agenda.answered(relations)
            if (earlier := _earlier(case, relations, done)) is not None:
                done["earlier"] = earlier
            if relations or related(case) is None:  # else the record is of the run that did ask
                case = replace(case, extra=with_related(case, done))
            counts.earlier += keeps_earlier(case, name, self._how.model)
        counts.cases[str(case.status)] += 1
        return case

    def count(self, counts: RelationCounts) -> None:
        """Add what was left out to the counts."""
        counts.screened += self.left_out


def _earlier(case: Case, made: list[Relation], done: dict[str, Any]) -> dict[str, Any] | None:
    """What the relations that a model gave before, and that are kept, were made with, as far as it is known; None
    where it is the same."""
    before, ours = related(case), {id(relation) for relation in made}
    kept = any(one.method and not one.status.failed and id(one) not in ours for one in case.relations or ())
    if not kept:
        return None
    if before is None:
        return {}
    if all(before.get(name) == done.get(name) for name in _MAKERS):
        return before.get("earlier")
    return {name: before[name] for name in (*_MAKERS, "earlier") if name in before}


def _made_with(name: str, model: Relater) -> dict[str, Any]:
    """What a record of relations says of their model of this `name`; of a calibration only where there is one."""
    calibration = {} if model.calibration is None else {"calibration": model.calibration.digest}
    return {"model": name, "style": model.style, "template": model.template_name, **calibration}


def keeps_earlier(case: Case, name: str, model: Relater) -> bool:
    """Whether a case that has been related keeps relations that a model gave, and another than the one of this `name`,
    in another style or wording, or with another calibration, as far as its record says."""
    if not any(one.method and not one.status.failed for one in case.relations or ()):
        return False
    record, ours = related(case) or {}, _made_with(name, model)
    return "earlier" in record or any(record.get(key) != ours.get(key) for key in _MAKERS)


def unusable(case: Case, *faults: Fault) -> Case:
    """The case with the status `invalid_input` and the reason for it."""
    reason = "; ".join(str(replace(fault, file=None, case=None)) for fault in faults)
    return replace(case, status=Status.INVALID_INPUT, extra={**case.extra, "reason": reason})


def pending(case: Case) -> Case:
    """The case while replies to its prompts are still to come from a batch: stopped, and resumed by a later run."""
    return replace(case, status=Status.STOPPED, extra={**case.extra, "reason": "its replies come from a batch"})


def is_ready(case: Case) -> bool:
    return not case.status.failed and case.atoms is not None and case.contexts is not None
