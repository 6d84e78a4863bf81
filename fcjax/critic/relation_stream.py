"""Relations for a file of cases, asked of a model: many cases at once, in order, in bounded memory.

A few workers, as many as the client has room for, pull questions from case after case, so that a few slow questions at
the end of one case do not hold up the next. What was answered is in the client's store, and nothing more is needed to
resume: the same command asks the store first, and the endpoint for what is missing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Final, NamedTuple, get_args

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import Fault, InputError
from fcjax.core.prompts import PendingError
from fcjax.core.records import Case, Relation, Status
from fcjax.critic.asker import Asker
from fcjax.graph.selection import Version
from fcjax.io.client import Client
from fcjax.io.window import Window, each
from fcjax.stages.calibration import Calibration
from fcjax.stages.relate import Agenda, Relater, RelationModel
from fcjax.stages.screen import Screen
from fcjax.stages.traces import related, with_related

_MAKERS: Final = ("model", "style", "template", "calibration")
"""Keys of a record of relations that say what gave them."""


@dataclass(frozen=True, kw_only=True)
class RelationConfig:
    """What to ask about a case, and how: the graph version that the relations are for (SPEC 2), the relation model, and
    the score below which a pair is not worth asking about (see `Screen`; None asks about all). A `calibration` given
    here becomes the model's.

    Raises `SettingsError`.
    """

    version: Version = "FR2"
    model: Relater = field(default_factory=RelationModel)
    screen: float | None = None
    calibration: InitVar[Calibration | None] = None

    def __post_init__(self, calibration: Calibration | None) -> None:
        check_choice("version", self.version, get_args(Version))
        check_number("screen", self.screen, 0, 1, none=True)
        if calibration is not None:
            object.__setattr__(self, "model", self.model.calibrated(calibration))


@dataclass(slots=True)
class RelationCounts:
    """Running totals of what was related."""

    cases: Counter[str] = field(default_factory=Counter)  # finished, by status
    pairs: int = 0  # that were asked about
    types: Counter[str] = field(default_factory=Counter)  # of these, the answered ones by type
    methods: Counter[str] = field(default_factory=Counter)  # and by where their probabilities come from
    failed: Counter[str] = field(default_factory=Counter)  # the others, by the kind of failure
    given: int = 0  # relations that the input has
    earlier: int = 0  # cases that keep relations of another model, wording or calibration (see `keeps_earlier`)
    screened: int = 0  # pairs left out as unrelated
    skipped: Counter[str] = field(default_factory=Counter)  # atoms and contexts that cannot be asked about, by reason

    @property
    def n_failed(self) -> int:
        """Pairs that were asked about and not answered."""
        return self.failed.total()

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "n_cases": self.cases.total(),
            "statuses": dict(self.cases),
            "n_pairs": self.pairs,
            "types": dict(self.types),
            "methods": dict(self.methods),
            "n_failed": self.n_failed,
            "failed": dict(self.failed),
            "n_given": self.given,
            "n_earlier": self.earlier,
            "n_screened": self.screened,
            "skipped": dict(self.skipped),
        }


class _CaseQuestion(NamedTuple):
    """One question of a case, or None for a case that has none; `last` where no further question follows."""

    case: _OpenCase
    place: int
    question: Any  # None where there is none
    last: bool


class _OpenCase:
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

    def numbered(self) -> Iterator[_CaseQuestion]:
        questions, place = self.questions(), 0
        question = next(questions, None)
        while (following := next(questions, None)) is not None:
            yield _CaseQuestion(self, place, question, last=False)
            question, place = following, place + 1
        yield _CaseQuestion(self, place, question, last=True)

    def take(self, asked: _CaseQuestion, relations: list[Relation]) -> None:
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

    def finished(self, name: str, counts: RelationCounts) -> Case:
        """The case with its relations, in the order of the questions, and a record of the work under `relate`."""
        agenda, case = self._agenda, self.case
        if self.pends:
            case = pending(case)
        elif agenda is not None:
            relations = [relation for _, part in sorted(self._found.items()) for relation in part]
            failed = [relation for relation in relations if relation.status.failed]
            answered = [relation for relation in relations if not relation.status.failed]
            counts.pairs += len(relations)
            counts.types.update(str(relation.type) for relation in answered)
            counts.methods.update(str(relation.method) for relation in answered)
            counts.failed.update(relation.extra["reason"].partition(":")[0] for relation in failed)
            counts.given += len(case.relations or ())
            counts.screened += self.left_out
            counts.skipped.update(agenda.skipped.values())
            made_with = _made_with(name, self._how.model)
            done = {
                "model": made_with.pop("model"),
                "version": self._how.version,
                **made_with,
                "asked": len(relations),
                "failed": len(failed),
                **({} if self._screen is None else {"screened": self.left_out}),
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


def questions(case: Case, how: RelationConfig) -> Iterator[Any]:
    """What is to be asked about a case, one at a time; nothing where it lacks atoms or contexts, or has failed."""
    return _OpenCase(case, how).questions()


async def relate_cases(
    cases: Iterable[Case] | AsyncIterable[Case],
    client: Client | Asker,
    how: RelationConfig,
    *,
    window: int = 256,
    counts: RelationCounts | None = None,
    progress: Callable[[int], None] | None = None,
    wanted: Callable[[Case], bool] | None = None,
) -> AsyncGenerator[Case, None]:
    """The cases with their relations, in order.

    At most `window` questions are being asked and at most `window` cases are open at once; prompts are made when their
    turn comes. A case that lacks atoms or contexts, has failed before, or is not `wanted`, comes through as it is.
    `progress(n)` is called when n more pairs are done.

    Raises `BudgetError` where the budget is used up, and `SettingsError` where the endpoint answers no prompt at all,
    in both cases after the questions in flight have been answered: their replies are paid for. With few prompts it is
    only known at the end that the endpoint could not be reached.
    """
    counts = counts or RelationCounts()
    asker = client if isinstance(client, Asker) else Asker(client)
    if how.model.calibration is not None:
        how.model.check(how.model.calibration, asker.model)
    room = asyncio.Semaphore(window)
    opened: deque[_OpenCase] = deque()

    async def pending() -> AsyncIterator[_CaseQuestion]:
        async for case in each(cases):
            await room.acquire()
            opened.append(_OpenCase(case, how, wanted is None or wanted(case)))
            for asked in opened[-1].numbered():
                if asker.end:
                    return
                yield asked

    async def work(asked: _CaseQuestion) -> list[Relation]:
        try:
            return [] if asked.question is None else await how.model.answer(asked.question, asker.ask, asker.reject)
        except PendingError:
            asked.case.pends = True
            return []

    answers = Window(pending(), work, window)
    try:
        async for asked, relations in answers:
            asked.case.take(asked, relations)
            if progress:
                progress(len(relations) + (asked.case.left_out if asked.last else 0))
            while opened and opened[0].done:
                case = opened.popleft()
                if not asker.end:
                    yield case.finished(how.model.named(asker.model), counts)
                room.release()
    finally:
        await answers.close()
    asker.raise_end()


def is_ready(case: Case) -> bool:
    return not case.status.failed and case.atoms is not None and case.contexts is not None
