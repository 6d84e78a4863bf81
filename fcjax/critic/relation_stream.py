"""Relations for a file of cases, asked of a model: many cases at once, in order, in bounded memory.

A few workers, as many as the client has room for, pull questions from case after case, so that a few slow questions at
the end of one case do not hold up the next. What was answered is in the client's store, and nothing more is needed to
resume: the same command asks the store first, and the endpoint for what is missing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from fcjax.core.prompts import PendingError
from fcjax.core.records import Case, Relation
from fcjax.critic.asker import Asker
from fcjax.critic.open_case import CaseQuestion, OpenCase
from fcjax.critic.relation_config import RelationConfig, RelationCounts
from fcjax.critic.rounds import AskedInRounds
from fcjax.io.client import Client
from fcjax.io.window import Window, each


def questions(case: Case, how: RelationConfig) -> Iterator[Any]:
    """What is to be asked about a case, one at a time, at most where that is adaptive; nothing where it lacks atoms or
    contexts, or has failed."""
    return islice(OpenCase(case, how).questions(), how.ask_at_most)


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
        try:
            relations: list[Relation] = await how.model.answer(asked.question, asker.ask, asker.reject)
        except PendingError:
            asked.case.pends = True
            return []
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
