"""The resources of a plan: clients, sources of evidence, critics and methods, and the budget that they share."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from fcjax.core.errors import FcjaxError, SettingsError
from fcjax.core.passages import Found, Retriever
from fcjax.core.prompts import Failure
from fcjax.correction.baselines import METHODS
from fcjax.correction.method import Method
from fcjax.critic.asker import Asker
from fcjax.critic.critic import Critic
from fcjax.evaluation.layout import Cell
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.http import Timeouts, Transport
from fcjax.io.own_loop import OwnLoop, in_own_loop
from fcjax.io.pacing import Budget
from fcjax.io.providers import LitellmTransport, Price, price_at
from fcjax.io.retrievers.cached import Cached
from fcjax.io.retrievers.local import LocalCorpus
from fcjax.io.store import Store
from fcjax.io.window import in_order
from fcjax.scoring.rows import Row

if TYPE_CHECKING:
    from fcjax.evaluation.config import CorrectorConfig, DataSet, ModelConfig, Plan

Item = TypeVar("Item")
Work = Callable[[Asker, Item], Awaitable[Row]]

_OPEN_CASES: Final = 16


@dataclass(slots=True)
class RunBudget:
    """The limits on what all steps of a run spend together (None: no limit), and what they have spent."""

    prompts: int | None = None
    tokens: int | None = None
    dollars: float | None = None
    sent: int = 0
    answered: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0  # US dollars; None where a price is unknown
    failed: Counter[str] = field(default_factory=Counter)
    _spent: tuple[int, int, float] = (0, 0, 0.0)

    def left(self) -> Budget:
        """The budget of the next step: what is left."""
        prompts, tokens, dollars = self._spent
        return Budget(
            prompts=None if self.prompts is None else max(self.prompts - prompts, 0),
            tokens=None if self.tokens is None else max(self.tokens - tokens, 0),
            dollars=None if self.dollars is None else max(self.dollars - dollars, 0.0),
        )

    def count(self, budget: Budget, clients: Iterable[Client]) -> None:
        """Count what a step has spent."""
        spent, (prompts, tokens, dollars) = budget.spent, self._spent
        self._spent = prompts + spent.prompts, tokens + spent.tokens, dollars + spent.dollars
        for client in clients:
            stats = client.stats
            self.sent += stats.sent
            self.answered += stats.answered
            self.hits += stats.cache_hits
            self.prompt_tokens += stats.prompt_tokens
            self.completion_tokens += stats.completion_tokens
            self.failed.update(stats.failed)
            if stats.asked:
                self.cost = None if self.cost is None or stats.cost is None else self.cost + stats.cost


class Resources:
    """Makes the clients, critics and methods of a plan's steps. Clients belong to one step, which `end_step` ends.

    Replies and searches are kept in the plan's store, or in `store`. Use it in a `with` block.
    """

    def __init__(self, plan: Plan, store: Path, *, replay: bool = False, budget: RunBudget):
        self.budget = budget
        self._plan, self._replay = plan, replay
        self._opened = ExitStack()
        self.store = plan.store or store  # where the replies are
        self._store = self._opened.enter_context(Store.open(self.store, readonly=replay))
        self._corpora: dict[Path, LocalCorpus] = {}
        self._endpoints: dict[str, Endpoint | Transport] = {}
        self._clients: dict[str, Client] = {}
        self._step_budget: Budget | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for corpus in self._corpora.values():
            in_own_loop(corpus.close())
        self._opened.close()

    def client(self, name: str) -> Client:
        """The client of a model of the plan; the same one within a step."""
        if name not in self._clients:
            self._step_budget = self._step_budget or self.budget.left()
            given, where = self._plan.models[name], self._where(name)
            timeouts = Timeouts(read=given.timeout, total=given.timeout) if given.timeout else None
            try:
                self._clients[name] = Client(
                    where,
                    store=self._store,
                    replay=self._replay,
                    concurrency=given.concurrency,
                    budget=self._step_budget,
                    price=_price(given, where),
                    timeouts=timeouts,
                )
            except SettingsError as error:
                raise SettingsError(f"{self._plan.path}: the model {name}: {error}") from error
        return self._clients[name]

    def end_step(self) -> None:
        """End a step: forget its clients and count what it has spent."""
        if self._step_budget is not None:
            self.budget.count(self._step_budget, self._clients.values())
        self._clients, self._step_budget = {}, None

    def critic(self, model: str, data: str) -> Critic:
        """The critic of a data set that asks a model."""
        how, source = self._plan.critic, self._plan.data[data]
        relate: Any = how.relations.model
        return Critic(
            self.client(model),
            retrieve=self._retriever(source),
            relate=relate if relate.asks else replace(relate, store=self._store),
            settings=how.settings,
            pipeline=how.pipeline(source),
            screen=how.relations.screen,
            ask=how.relations.ask,
            settle=how.relations.settle,
            ask_at_most=how.relations.ask_at_most,
        )

    def method(self, cell: Cell) -> Method:
        """The method of a cell."""
        given: CorrectorConfig = self._plan.correctors[cell.corrector]
        critic = self.critic(cell.critic, cell.data)
        writer = None if cell.model == cell.critic else self.client(cell.model)
        try:
            arguments: Any = {**given.arguments, "client": writer, "open_cases": _OPEN_CASES}
            return METHODS[given.method](critic, **arguments)
        except SettingsError as error:
            raise SettingsError(f"{self._plan.path}: the corrector {given.name}: {error}") from error

    def rows(self, owner: Critic | Client, items: Iterable[Item], work: Work[Item]) -> Iterator[Row]:
        """The row that `work` makes of each item, in order, a bounded number at a time; closes `owner` at the end.

        Raises `BudgetError` and `SettingsError` when the run must end.
        """
        stream = self._stream(owner, items, work)
        with OwnLoop() as loop:
            try:
                while (row := loop.run(_next(stream))) is not None:
                    yield row
            finally:
                loop.run(stream.aclose())

    async def _stream(
        self, owner: Critic | Client, items: Iterable[Item], work: Work[Item]
    ) -> AsyncGenerator[Row, None]:
        async with AsyncExitStack() as opened:
            client = owner.client if isinstance(owner, Critic) else owner
            assert client is not None
            await opened.enter_async_context(client)
            if isinstance(owner, Critic) and owner.retriever:
                opened.push_async_callback(owner.retriever.close)
            asker = Asker(client)

            async def made(_: int, item: Item) -> Row:
                return await work(asker, item)

            def end() -> FcjaxError | None:
                return asker.end

            async for row in in_order(items, made, _OPEN_CASES, end):
                yield row

    def _where(self, name: str) -> Endpoint | Transport:
        if name not in self._endpoints:
            self._endpoints[name] = _endpoint(self._plan.models[name], f"{self._plan.path}: the model {name}")
        return self._endpoints[name]

    def _retriever(self, data: DataSet) -> Retriever | None:
        """The source of evidence of a data set; a corpus is opened once for all steps."""
        match data.retriever:
            case "local":
                assert data.corpus is not None
                if data.corpus not in self._corpora:
                    self._corpora[data.corpus] = LocalCorpus.open(data.corpus)
                return Cached(_Shared(self._corpora[data.corpus]), None)
            case "serper":
                from fcjax.io.retrievers.pages import PageReader
                from fcjax.io.retrievers.serper import Serper

                return Cached(Serper(pages=PageReader(), replay=self._replay), self._store, replay=self._replay)
            case "wikipedia":
                from fcjax.io.retrievers.wikipedia import Wikipedia

                return Cached(Wikipedia(), self._store, replay=self._replay)
        return None


class _Shared:
    """A retriever whose `close` does nothing, because its owner closes it."""

    def __init__(self, source: Retriever):
        self._source = source

    @property
    def name(self) -> str:
        return self._source.name

    async def search(self, query: str, k: int) -> Found | Failure:
        return await self._source.search(query, k)

    async def close(self) -> None:
        pass


def _endpoint(given: ModelConfig, place: str) -> Endpoint | Transport:
    try:
        key = None
        if given.api_key_env is not None and not (key := os.environ.get(given.api_key_env)):
            raise SettingsError(
                f"the variable {given.api_key_env} in api_key_env is not set; set it, or give another variable"
            )
        if given.litellm:
            return LitellmTransport(
                given.model, api_key=key, api_base=given.base_url, timeout=given.timeout or Timeouts().total
            )
        found = Endpoint.from_env(given.base_url, given.model)
        return Endpoint(found.url, found.model, key or found.key, given.options)
    except SettingsError as error:
        raise SettingsError(f"{place}: {error}") from error


def _price(given: ModelConfig, where: Endpoint | Transport) -> Price | None:
    """The price in the plan, else the listed one; None where it is unknown."""
    if given.price is not None:
        return Price(given.price[0] / 1e6, given.price[1] / 1e6)
    return price_at(where.name, given.model)


async def _next(stream: AsyncGenerator[Row, None]) -> Row | None:
    return await anext(stream, None)
