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
from typing import Any, Literal, get_args

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import SettingsError
from fcjax.core.records import Case, Relation
from fcjax.critic.asker import Asker
from fcjax.critic.open_case import CaseQuestion, OpenCase
from fcjax.critic.rounds import AskedInRounds
from fcjax.graph.selection import Version
from fcjax.io.client import Client
from fcjax.io.window import Window, each
from fcjax.scoring.settings import Settings
from fcjax.stages.calibration import Calibration
from fcjax.stages.relate import Relater, RelationModel

Ask = Literal["all", "adaptive"]


@dataclass(frozen=True, kw_only=True)
class RelationConfig:
    """What to ask about a case, and how: the graph version that the relations are for (SPEC 2), the relation model, and
    the score below which a pair is not worth asking about (see `Screen`; None asks about all). A `calibration` given
    here becomes the model's.

    To `ask` is all, or `adaptive`: first of what could change a label most, until no label is less sure than `settle`
    or, where that cannot be, no answer that is missing is likely to say anything; `ask_at_most` prompts a case. Labels
    are those of the settings `graph`. A model `first`, a calibrated local one, then answers where it is as sure as
    `settle`, so that the other is not asked.

    Raises `SettingsError`.
    """

    version: Version = "FR2"
    model: Relater = field(default_factory=RelationModel)
    screen: float | None = None
    ask: Ask = "all"
    settle: float = 0.99
    ask_at_most: int | None = None
    first: Relater | None = None
    graph: Settings = field(default_factory=Settings)
    calibration: InitVar[Calibration | None] = None

    def __post_init__(self, calibration: Calibration | None) -> None:
        check_choice("version", self.version, get_args(Version))
        check_number("screen", self.screen, 0, 1, none=True)
        check_choice("ask", self.ask, get_args(Ask))
        check_number("settle", self.settle, 0.5, 1)
        check_number("ask_at_most", self.ask_at_most, 0, 2**31 - 1, whole=True, none=True)
        self._check_adaptive()
        object.__setattr__(self, "graph", replace(self.graph, version=self.version))
        if calibration is not None:
            object.__setattr__(self, "model", self.model.calibrated(calibration))

    def asking(self) -> dict[str, Any]:
        """What decides which pairs are asked about, as JSON; nothing where all are."""
        if self.ask == "all":
            return {}
        first = None if self.first is None else self.first.settings() | {"calibration": self.first.calibration.digest}
        numbers = self.graph.numbers()
        return {"ask": self.ask, "settle": self.settle, "ask_at_most": self.ask_at_most, "first": first, "graph": numbers}

    def _check_adaptive(self) -> None:
        """Raise `SettingsError` for what does not go with the way of asking."""
        if self.ask == "all":
            if self.first is not None or self.ask_at_most is not None:
                name = "first" if self.first is not None else "ask_at_most"
                raise SettingsError(f"{name} has no effect with ask='all'; remove it, or use ask='adaptive'")
            return
        if self.version == "FR3":
            raise SettingsError("version is 'FR3', which asks about contexts too; allowed with ask='adaptive': FR1, FR2")
        if not self.model.asks:
            raise SettingsError("ask is 'adaptive', and the relations are read by a local model, which costs no prompts")
        if self.first is not None and self.first.calibration is None:
            raise SettingsError(
                "the local model that answers first has no calibration, so it is unknown how sure it is; make one with "
                "`fcjax calibrate`"
            )


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
    not_asked: Counter[str] = field(default_factory=Counter)  # pairs left out by adaptive asking, by first opinion
    prompts: int = 0  # of adaptive asking, repairs and votes apart
    prompts_of_all: int = 0  # that asking all would have taken in its place
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
            **(
                {"not_asked": dict(self.not_asked), "prompts": self.prompts, "prompts_of_all": self.prompts_of_all}
                if self.not_asked or self.prompts_of_all
                else {}
            ),
            "skipped": dict(self.skipped),
        }


def questions(case: Case, how: RelationConfig) -> Iterator[Any]:
    """What is to be asked about a case, one at a time; nothing where it lacks atoms or contexts, or has failed."""
    return OpenCase(case, how).questions()


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
    opened: deque[OpenCase] = deque()

    def open_(case: Case) -> OpenCase:
        kind = AskedInRounds if how.ask == "adaptive" else OpenCase
        opened.append(kind(case, how, wanted is None or wanted(case)))
        return opened[-1]

    async def pending() -> AsyncIterator[CaseQuestion]:
        async for case in each(cases):
            await room.acquire()
            for asked in open_(case).numbered():
                if asker.end:
                    return
                yield asked

    async def work(asked: CaseQuestion) -> list[Relation]:
        if asked.question is None:
            return []
        relations: list[Relation] = await how.model.answer(asked.question, asker.ask, asker.reject)
        return relations

    rounds = _Rounds(cases, open_, room, asker) if how.ask == "adaptive" else None
    answers = Window(rounds.questions(), rounds.work, window) if rounds else Window(pending(), work, window)
    try:
        async for asked, relations in answers:
            if rounds is None:
                asked.case.take(asked, relations)
            if progress:
                progress(len(relations) + (asked.case.left_out if asked.last else 0))
            while opened and opened[0].done:
                case = opened.popleft()
                if progress and rounds:
                    progress(case.left_out)
                if not asker.end:
                    yield case.finished(how.model.named(asker.model), counts)
                room.release()
    finally:
        await answers.close()
    asker.raise_end()


class _Rounds:
    """The questions about cases that are asked about in rounds: those of cases that are open before others."""

    def __init__(
        self,
        cases: Iterable[Case] | AsyncIterable[Case],
        open_: Callable[[Case], OpenCase],
        room: asyncio.Semaphore,
        asker: Asker,
    ):
        self._cases, self._open, self._room, self._asker = each(cases), open_, room, asker
        self._ready: deque[CaseQuestion] = deque()
        self._under_way = 0  # cases that are not done
        self._wake = asyncio.Event()

    async def _next_case(self) -> Case | None:
        await self._room.acquire()
        return await anext(self._cases, None)

    async def questions(self) -> AsyncIterator[CaseQuestion]:
        """A beginning for each case, and its questions as they become ready."""
        coming: asyncio.Task[Case | None] | None = None
        more = True
        try:
            while not self._asker.end and (more or self._ready or self._under_way):
                if self._ready:
                    yield self._ready.popleft()
                    continue
                if more and coming is None:
                    coming = asyncio.create_task(self._next_case())
                self._wake.clear()
                woken = asyncio.create_task(self._wake.wait())
                await asyncio.wait([woken, *([coming] if coming else ())], return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                if coming and coming.done():
                    case, coming = coming.result(), None
                    if case is None:
                        more = False
                    else:
                        self._under_way += 1
                        yield CaseQuestion(self._open(case), 0, None, last=False)
        finally:
            if coming:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def work(self, asked: CaseQuestion) -> list[Relation]:
        """The relations that answer a question; what follows from them is ready then."""
        case = asked.case
        assert isinstance(case, AskedInRounds)
        try:
            if asked.question is None:
                await case.begin(self._asker)
                return []
            return await case.answer(asked, self._asker)
        finally:
            self._ready.extend(case.ready)
            case.ready.clear()
            if case.done and not case.counted:
                case.counted = True
                self._under_way -= 1
            self._wake.set()
