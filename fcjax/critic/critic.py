"""The critic: from a response to posteriors, and to feedback on what is false and what is not verified (SPEC 1, 6).

Many cases are under way at once: the stages with few prompts take some cases ahead of the relations, whose many
questions keep the endpoint busy, while a worker thread has the engine at the cases before. They come out in order.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from copy import copy
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from fcjax.core.checks import check_number
from fcjax.core.passages import Found, Retriever
from fcjax.core.prompts import Failure, PendingError, Prompt, Reply
from fcjax.core.records import Case, Status
from fcjax.critic.asker import Asker
from fcjax.critic.open_case import pending
from fcjax.critic.relation_config import Ask, RelationConfig, RelationCounts
from fcjax.critic.relation_stream import relate_cases
from fcjax.graph.selection import Version
from fcjax.io.files import case_to_dict
from fcjax.io.files.digests import count_atoms, digest_of
from fcjax.io.own_loop import in_own_loop
from fcjax.io.window import Window, each, in_chunks
from fcjax.scoring.measures import median_k
from fcjax.scoring.rows import Row
from fcjax.scoring.score_cases import Fingerprints, completed, feedback_of, job, posteriors, rows, with_feedback
from fcjax.scoring.settings import Settings
from fcjax.stages.pipeline import Pipeline, Stage
from fcjax.stages.relate import Relater, RelationModel

if TYPE_CHECKING:
    from fcjax.io.client import Client
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.store import Store
    from fcjax.scoring.feedback import Feedback

CHUNK: Final = 16
"""Cases that the engine gets at a time, by their place in the stream."""
AHEAD: Final = 4
"""Chunks that wait for the engine at most; where it is the slowest, the stages wait for it."""

After = Callable[[int, Stage, Case], None]
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False, slots=True)
class Critique:
    """The result of the critic for one case.

    `case` has the atoms, contexts and relations that were found, `row` is the case's row in a file of results (SPEC 7),
    and `feedback` is written for a corrector (SPEC 6); without posteriors it is empty, and says why.
    """

    case: Case
    row: Row
    feedback: Feedback

    @property
    def status(self) -> str:
        return str(self.row["status"])

    @property
    def reason(self) -> str | None:
        return self.row["reason"]

    @property
    def precision(self) -> float | None:
        """Pr, the share of the atoms that are supported (SPEC 5); None where there are no posteriors."""
        measures = self.row["measures"]
        return None if measures is None else float(measures["precision"])

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        measures = self.row["measures"]
        if measures is None:
            yield f"Critique({self.case.id!r}: {self.status}: {self.reason})"
            return
        counts = ", ".join(f"{measures[f'n_{label}']} {label}" for label in ("supported", "refuted", "unverified"))
        failed = f", {measures['n_failed']} failed" if measures["n_failed"] else ""
        yield f"Critique({self.case.id!r}: Pr {measures['precision']:.2f}: {counts}{failed})"
        for text, atom in self._atoms():
            p = "" if atom["p"] is None else f"{atom['p']:.3f}"
            yield f"  {atom['label'] or atom['status']:<12} {p:<6} {text if len(text) <= 90 else text[:89] + '…'}"

    def _atoms(self) -> Iterable[tuple[str, dict[str, Any]]]:
        texts = {atom.id: atom.text for atom in self.case.atoms or ()}
        return ((texts[atom["id"]], atom) for atom in self.row["atoms"])

    def _repr_html_(self) -> str:
        from html import escape

        measures = self.row["measures"]
        if measures is None:
            return f"<p><b>{escape(self.status)}</b>: {escape(self.reason or '')}</p>"
        colours = {"supported": "#2a7d2a", "refuted": "#b22222", "unverified": "#9a7b00"}
        lines = "".join(
            f"<tr><td style='color:{colours.get(atom['label'], '#666')}'>{escape(atom['label'] or atom['status'])}</td>"
            f"<td>{'' if atom['p'] is None else format(atom['p'], '.3f')}</td>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for text, atom in self._atoms()
        )
        feedback = self.feedback._repr_html_()
        return (
            f"<p>precision Pr <b>{measures['precision']:.2f}</b> of {measures['n_atoms']} atoms</p>"
            f"<table><tr><th>label</th><th>P(true)</th><th>atom</th></tr>{lines}</table>{feedback}"
        )


class Critic:
    """Finds out what a response claims, what sources say of it, and how probable each claim is.

    `client` answers prompts and `retrieve` searches; without them, only what a case brings along is used. `pipeline`
    has the stages that come before the relations, `relate` how these are asked for, and `screen`, `ask`, `settle`,
    `ask_at_most` and `first` which pairs are left out (see `RelationConfig`); the graph version is the settings' one,
    or FR2. At most `open_cases` cases are before their relations, and four times as many under way in all. Use it in
    one event loop; client and retriever stay their owner's.

    K is the settings' one; without it, each case's own number of atoms, as in a file of that case alone. Raises
    `SettingsError`.
    """

    def __init__(
        self,
        client: Client | None = None,
        *,
        retrieve: Retriever | None = None,
        relate: Relater | None = None,
        settings: Settings | None = None,
        pipeline: Pipeline | None = None,
        screen: float | None = None,
        ask: Ask = "all",
        settle: float = 0.99,
        ask_at_most: int | None = None,
        first: Relater | None = None,
        open_cases: int = 64,
        window: int = 256,
    ):
        check_number("open_cases", open_cases, 1, 4096, whole=True)
        check_number("window", window, 1, 2**20, whole=True)
        settings = settings or Settings()
        self.version: Version = settings.version or "FR2"
        self.settings = replace(settings, version=self.version)
        self.client, self.retriever = client, retrieve
        self.how = RelationConfig(
            version=self.version,
            model=relate or RelationModel(),
            screen=screen,
            ask=ask,
            settle=settle,
            ask_at_most=ask_at_most,
            first=first,
            graph=self.settings,
        )
        asks, local = client is not None, not self.how.model.asks
        self.pipeline = replace(pipeline or Pipeline(), asks=asks, searches=retrieve is not None, local_relations=local)
        self._open, self._window = open_cases, window
        self._asker: Asker | None = None  # each run has one of its own, unless `using` gave one
        self._engine = Lock()  # it has all cores at work for one batch: two at once are no faster

    def using(self, *, asker: Asker | None = None, pipeline: Pipeline | None = None) -> Critic:
        """The same critic, asking through `asker` (which may count, or end several runs at once) or with another
        pipeline, whose `asks` and `searches` are used as they are."""
        other = copy(self)
        other._asker = asker or self._asker
        other.pipeline = pipeline or self.pipeline
        return other

    async def critique(self, case: Case) -> Critique:
        """The critique of one case. What fails is in its status and its atoms' own; raises as `critique_many` does."""
        async with aclosing(self.critique_many((case,))) as found:
            return await anext(found)

    async def critique_many(
        self,
        cases: Iterable[Case] | AsyncIterable[Case],
        *,
        after: After | None = None,
        counts: RelationCounts | None = None,
    ) -> AsyncGenerator[Critique, None]:
        """The critiques of a stream of cases, in order, with a bounded number under way.

        `after(i, stage, case)` is called for every stage that case `i`, from 0, has been through, in no order of cases.
        Raises `BudgetError` where the budget is used up and `SettingsError` where the endpoint answers nothing at all.
        """
        ordered = self._advanced(cases, after or _ignore, counts or RelationCounts())
        async with aclosing(in_chunks(ordered, self._scored, CHUNK, AHEAD)) as critiques:
            async for critique in critiques:
                yield critique

    async def _advanced(
        self, cases: Iterable[Case] | AsyncIterable[Case], after: After, counts: RelationCounts
    ) -> AsyncGenerator[Case, None]:
        """Each case with all that it lacked, in order."""
        asker = self._asker or (None if self.client is None else Asker(self.client))
        room = asyncio.Semaphore(4 * self._open)
        fed: deque[int] = deque()  # places of the cases that are being related, in the order of their coming
        early: dict[int, Case] = {}  # cases that wait for earlier cases

        async def numbered() -> AsyncIterator[tuple[int, Case]]:
            place = 0
            async for case in each(cases):
                await room.acquire()
                if asker and asker.end:
                    return
                yield place, case
                place += 1

        async def prepare(item: tuple[int, Case]) -> Case:
            place, case = item

            def through(stage: Stage, case: Case) -> None:
                if not (asker and asker.end):  # else it may be a failure for want of an endpoint
                    after(place, stage, case)

            ask, reject = (asker.ask, asker.reject) if asker else (_no_model, None)
            search = self.retriever.search if self.retriever else _no_source
            try:
                return await self.pipeline.prepare(case, ask, search, reject, through)
            except PendingError:
                return pending(case)

        async def prepared() -> AsyncIterator[Case]:
            async for (place, _), case in front:
                fed.append(place)
                yield case

        def wanted(case: Case) -> bool:
            return self.pipeline.may("relate") and self.pipeline.needs("relate", case)

        async def related() -> AsyncGenerator[Case, None]:
            if asker is None and self.how.model.asks:
                async for case in prepared():
                    yield case
                return
            asking, window = asker or Asker(None), self._window
            stream = relate_cases(prepared(), asking, self.how, window=window, counts=counts, wanted=wanted)
            async with aclosing(stream):
                async for case in stream:
                    if case.relations is not None and not case.status.failed:
                        after(fed[0], "relate", case)
                    yield case

        front = Window(numbered(), prepare, self._open)
        try:
            following = 0
            async with aclosing(related()) as stream:
                async for case in stream:
                    early[fed.popleft()] = case
                    while following in early:
                        yield early.pop(following)
                        room.release()
                        following += 1
        finally:
            await front.close()

    def _scored(self, cases: list[Case]) -> list[Critique]:
        """The critiques of cases that have been through all stages."""
        cases = [self._ended(case) for case in cases]
        jobs = [job(case, self.settings, coverage=True) for case in cases]
        with self._engine:
            made = list(rows(jobs, posteriors(jobs, self.settings), self.settings, coverage=True))
            answers = list(zip(cases, made, feedback_of(jobs, made, self.settings), strict=True))
        return [self._critique(case, row, feedback) for case, row, feedback in answers]

    def _ended(self, case: Case) -> Case:
        """The case with the status that says why there are no posteriors, where stages are missing."""
        why = self.pipeline.lacks(case)
        if why is None and not case.status.failed:
            why = self.pipeline.unfinished(case)
        if why is None:
            return case
        empty = case.atoms is None and case.response is None  # else another run can resume it
        status = Status.INVALID_INPUT if empty else Status.STOPPED
        return replace(case, status=status, extra={**case.extra, "reason": why})

    def _critique(self, case: Case, row: Row, feedback: Feedback) -> Critique:
        record = case_to_dict(case)
        k = self.settings.k or median_k([count_atoms(record) or 1])
        prints = Fingerprints(replace(self.settings, k=k), feedback=True)
        row = completed(with_feedback(row, feedback), k, prints.of(digest_of(orjson.dumps(record))))
        return Critique(case, row, feedback)


def critique(
    response: str | Case,
    query: str | None = None,
    *,
    retrieve: Retriever | str | os.PathLike[str] | None = None,
    where: Endpoint | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    replay: bool = False,
    **critic: Any,
) -> Critique:
    """The critique of one response, or of a case that has some of its parts already; also within a running event loop.

    Asked is the endpoint `where`, by default the one that the environment names, with replies kept in `store` (by
    default the one that commands share; with `replay` it alone answers); there need be none where no stage of the
    `pipeline` asks a model. `retrieve` is the path of a corpus (a folder, or a file of documents), a `LocalCorpus`, or
    another source of evidence, which is asked for what the store does not hold, and closed in the end; the next call
    may have it again. Other arguments go to `Critic`.

    Raises `SettingsError`, `InputError`, `BudgetError`, and `OutputError` where the store cannot be written.
    """
    case = case_of(response, query)

    async def found(critic: Critic) -> Critique:
        return await critic.critique(case)

    relate: Relater = critic.get("relate") or RelationModel()
    stages = replace(critic.get("pipeline") or Pipeline(), local_relations=not relate.asks)
    asks = where is not None or bool(stages.asking)
    return in_own_loop(with_critic(found, retrieve, where, store, replay, asks=asks, **critic))


def case_of(response: str | Case, query: str | None) -> Case:
    """A response, and what it answers, as a case."""
    return response if isinstance(response, Case) else Case(id="response", query=query, response=response)


async def with_critic(
    work: Callable[[Critic], Awaitable[Item]],
    retrieve: Retriever | str | os.PathLike[str] | None,
    where: Endpoint | None,
    store: Store | str | os.PathLike[str] | None,
    replay: bool,
    *,
    asks: bool = True,
    **critic: Any,
) -> Item:
    """The result of `work` with a critic whose client, store and source are open for as long (see `critique`).

    Unless it `asks`, there is no client, and a store only for searches that are not of a local corpus.
    """
    from fcjax.io.client import Client
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.retrievers.cached import Cached
    from fcjax.io.retrievers.local import LocalCorpus
    from fcjax.io.store import Store

    async with AsyncExitStack() as opened:
        source = LocalCorpus.open(retrieve) if isinstance(retrieve, str | os.PathLike) else retrieve
        kept: Store | None = None
        if isinstance(store, Store):
            kept = store
        elif asks or not isinstance(source, LocalCorpus | Cached | None):
            kept = opened.enter_context(Store.open(store, readonly=replay))
        if not isinstance(source, LocalCorpus | Cached | None):
            source = Cached(source, kept, replay=replay)
        if source is not None and not isinstance(retrieve, LocalCorpus):  # whose connections belong to this event loop
            opened.push_async_callback(source.close)
        if not asks:
            return await work(Critic(None, retrieve=source, **critic))
        async with Client(where or Endpoint.from_env(), store=kept, replay=replay) as client:
            return await work(Critic(client, retrieve=source, **critic))


def _ignore(place: int, stage: Stage, case: Case) -> None:
    pass


async def _no_model(prompt: Prompt) -> Reply | Failure:
    raise AssertionError("a stage asked a model, and there is none")


async def _no_source(query: str, k: int) -> Found | Failure:
    raise AssertionError("a stage searched for evidence, and there is no source")
