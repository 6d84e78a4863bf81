"""The client: prompts in, replies or failures out, as fast as the endpoint allows.

A prompt passes the store, the same prompt in flight, the budget, a slot, the rate limit and the wire; its reply passes
the store once more before it is returned. No slot is held in back-off, or while a reply is made durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from fcjax.core.errors import SettingsError, counted
from fcjax.core.prompts import Failure, Prompt, Reply, Usage
from fcjax.io.constraints import Constrain, Constraints, Question
from fcjax.io.endpoint import Endpoint
from fcjax.io.http import HttpTransport, Timeouts, Transport
from fcjax.io.logprobs import fewer_alternatives
from fcjax.io.outcome import Again, Outcome, Refused, StepDown
from fcjax.io.pacing import Budget, Clock, Concurrency, RateLimit, RealClock, Retry
from fcjax.io.single_flight import Flight, SingleFlight
from fcjax.io.stats import CostEstimate, Stats
from fcjax.io.stop_rule import StopRule
from fcjax.io.store import Store, prompt_key
from fcjax.io.tokens import billed, estimated_tokens, longest_answer
from fcjax.io.window import Window

if TYPE_CHECKING:
    from fcjax.io.batches.collector import Collector

Item = TypeVar("Item")
Price = Callable[[Usage], float]  # US dollars

OVERLOAD: Final = frozenset({"rate_limit", "overloaded"})
"""Kinds of trouble that say: fewer calls at once."""
PATIENCE: Final = 20
"""Prompts, or twice as many as may be on the wire, that may all fail before the first reply (see `StopRule`)."""

GRACE: Final = 5.0
"""Seconds that closing a client waits for calls on the wire: they are paid for, and the store keeps them."""
EMPTY: Final = 2
"""Empty answers to one prompt before it fails: each is billed, and two at temperature 0 are likely to be followed by
more."""
_REFUSED: Final = "constraint"  # kind of a failure that never leaves the client: the prompt is asked again, free


@dataclass(slots=True)
class _Call:
    """A prompt that is being asked, and what all its attempts were billed.

    Its flight is detached while it is on the wire or being stored: it is paid for, so that it continues into the store
    when no caller waits for it any more.
    """

    flight: Flight[Reply | Failure]
    constrained: bool = False
    usage: Usage | None = None  # None where nothing was billed
    cost: float | None = None  # None, too, where the price is unknown


class Client:
    """Sends prompts to a model, within limits, and never the same prompt twice.

    `where` is an `Endpoint`, or a `Transport` of another kind. With `replay`, all answers, including
    failures, come from the store. `price` gives the cost of usage, if known. `constrain` is how
    the server is asked to hold answers to the form that their prompt describes (see `Constrain`). Where it refuses a
    kind of form, that is left free from then on, and `stats.unconstrained` has its words. Use it as
    `async with Client(...) as client`, in one event loop; the caller keeps the store and closes it. With a `batch`,
    nothing is sent: what the store lacks is taken down there, and asking for it raises `PendingError`.

    Raises `SettingsError` for settings that contradict each other.
    """

    def __init__(
        self,
        where: Endpoint | Transport,
        *,
        store: Store | None = None,
        replay: bool = False,
        concurrency: int | Concurrency = 64,
        window: int | None = None,
        rate: RateLimit | None = None,
        retry: Retry | None = None,
        budget: Budget | None = None,
        price: Price | None = None,
        constrain: Constrain = "auto",
        batch: Collector | None = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ):
        if (replay or batch is not None) and store is None:
            raise SettingsError("a replay requires a store, and so does a batch; specify the store of the run")
        if budget is not None and budget.dollars is not None and price is None:
            raise SettingsError("the model's price is unknown; give a price, or set the budget in prompts or tokens")
        self.stats = Stats(cost=0.0 if price is not None else None)
        self._clock = clock or RealClock()
        self._random = random or Random()
        self._slots = concurrency if isinstance(concurrency, Concurrency) else Concurrency(concurrency, clock=clock)
        most = int(self._slots.limit)
        self._window = window if window is not None else 4 * most  # room for those that back off or are being stored
        if self._window < 1:
            raise SettingsError(f"window is {window}; allowed: at least 1 prompt")
        self._options: Mapping[str, Any] = where.options if isinstance(where, Endpoint) else {}
        self._transport: Transport = (
            HttpTransport(where, connections=most, timeouts=timeouts) if isinstance(where, Endpoint) else where
        )
        self._store, self._replay, self._price = store, replay, price
        self._rate = rate or RateLimit(clock=clock)
        self._retry = retry or Retry()
        self._budget = budget or Budget()
        self._flights: SingleFlight[Reply | Failure] = SingleFlight()
        self._most_logprobs: int | None = None  # what the server gives, once it has refused more; 0: no logprobs at all
        self.constrain = constrain
        self._constraints = Constraints(constrain, self._options, self._key, replay=replay)
        self._batch = batch
        self._rejected: list[tuple[str, ...]] = []  # until a batch run is complete: the reply is read in every round
        if batch is not None:
            self._most_logprobs, refused = batch.limits(self.endpoint, self.model)
            self._constraints.refused |= refused
        self._rule = StopRule("the first calls failed this way, so no more are sent", patience=max(PATIENCE, 2 * most))
        self._began: float | None = None

    @property
    def endpoint(self) -> str:
        """The endpoint's name, without secrets."""
        return self._transport.name

    @property
    def model(self) -> str:
        """The model's name."""
        return self._transport.model

    @property
    def options(self) -> Mapping[str, Any]:
        """The endpoint's extra fields for every request; they are part of every prompt's key."""
        return self._options

    @property
    def stopped(self) -> Failure | None:
        """Why no more prompts are sent, if every other prompt would fail too; else None."""
        return self._rule.stopped

    @property
    def unreached(self) -> str | None:
        """Why there was no answer, if the endpoint was never reached; None if it was, or may have been."""
        return self._rule.unreached

    @property
    def pending(self) -> int:
        """Prompts that are to be answered by a batch."""
        return 0 if self._batch is None else self._batch.lacking

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for keys in self._rejected if kind is None and not self.pending else ():
                await self._reject(keys)
            await self._flights.close(GRACE)
        finally:
            await self._transport.close()

    async def ask(self, prompt: Prompt) -> Reply | Failure:
        """The reply to one prompt, stored durably if there is a store, or the reason why there is none.

        Raises `OutputError` if the store cannot be written; a prompt that fails raises nothing.
        """
        question = self._constraints.question(prompt)
        self.stats.asked += 1
        try:
            answer = await self._shared_answer(question)
            if isinstance(answer, Failure) and answer.kind == _REFUSED:
                answer = await self._answer_without(question, answer.reason)
        except BaseException:
            self.stats.asked -= 1
            raise
        if isinstance(answer, Reply):
            self.stats.answered += 1
        else:
            self.stats.failed[answer.kind] += 1
        return answer

    async def ask_all(
        self, items: Iterable[Item] | AsyncIterable[Item], *, prompt: Callable[[Item], Prompt]
    ) -> AsyncIterator[tuple[Item, Reply | Failure]]:
        """Every item with the answer to its prompt, in order of arrival.

        No more than `window` items are taken ahead of the consumer, and prompts are made when their turn comes. Close
        the iterator (`contextlib.aclosing`) to leave early.
        """

        async def work(item: Item) -> Reply | Failure:
            return await self.ask(prompt(item))

        window = Window(items, work, self._window)
        try:
            async for pair in window:
                yield pair
        finally:
            await window.close()

    async def reject(self, prompt: Prompt) -> None:
        """Mark the stored reply to `prompt` as unreadable: a live run asks again, a replay gets it unchanged.

        Raises `OutputError` where the store cannot be written.
        """
        if self._batch is not None:
            self._rejected.append(self._constraints.question(prompt).keys)
        elif self._store is not None and not self._replay:
            await self._reject(self._constraints.question(prompt).keys)

    async def _reject(self, keys: tuple[str, ...]) -> None:
        for key in keys:  # the first one's was served
            if self._store is not None and await self._store.reject(key):
                return

    async def estimate(
        self, prompts: Iterable[Prompt], *, count_tokens: Callable[[Prompt], int] | None = None
    ) -> CostEstimate:
        """What sending `prompts` would cost; nothing is sent. `count_tokens` is four bytes each by default."""
        seen: set[int] = set()
        total = stored = prompt_tokens = completion_tokens = 0
        for total, given in enumerate(prompts, 1):
            question = self._constraints.question(given)
            prompt = question.sent
            if (mark := hash(question.key)) in seen:  # 64 bits are enough to count by, and a fifth of the memory
                continue
            seen.add(mark)
            if self._store is not None and await self._store.get(*question.keys) is not None:
                stored += 1
            else:
                prompt_tokens += (count_tokens or estimated_tokens)(prompt)
                completion_tokens += longest_answer(prompt)
            if total % 100 == 0:
                await asyncio.sleep(0)
        cost = None if self._price is None else self._price(Usage(prompt_tokens, completion_tokens))
        return CostEstimate(total, len(seen), stored, prompt_tokens, completion_tokens, cost)

    def _key(self, prompt: Prompt) -> str:
        return prompt_key(self._transport.name, self._transport.model, prompt)

    async def _answer_without(self, question: Question, reason: str) -> Reply | Failure:
        """The answer to a question that the server refuses to constrain for this `reason`, asked without."""
        answer = await self._shared_answer(Question.of(question.free, self._key))
        if isinstance(answer, Reply):  # so it was the constraint, and will be for all prompts from now on
            self._constraints.refused.add(question.constrained)
            self.stats.unconstrained = self.stats.unconstrained or reason
        return answer

    async def _shared_answer(self, question: Question) -> Reply | Failure:
        """The answer from the store, by the call that is in flight for the same key, or else by one of our own."""
        key, prompt = question.key, question.sent
        if self._store is not None:
            kept = await self._store.get(*question.keys, replay=self._replay)
            if kept is not None:
                self.stats.cache_hits += 1
                return kept
            if self._replay:
                return Failure(
                    "replay_miss",
                    f"the store has no answer to this prompt ({prompt.template}); run without replay to get one",
                )

            if self._batch is not None:
                asked = self._within(prompt, None)
                return await self._batch.take(question, asked, self.endpoint, self.model, self._store)

        async def answer(flight: Flight[Reply | Failure]) -> Reply | Failure:
            return await self._stored_answer(key, prompt, _Call(flight, bool(question.constrained)))

        try:
            return await self._flights.join(key, answer)
        finally:
            self.stats.shared = self._flights.shared

    async def _stored_answer(self, key: str, prompt: Prompt, call: _Call) -> Reply | Failure:
        """The answer from the endpoint, by way of the store."""
        answer = await self._affordable_answer(prompt, call)
        if self._store is None or not answer.attempts:
            return answer
        name, model = self._transport.name, self._transport.model
        return await self._store.put(
            key, prompt=prompt, endpoint=name, model=model, outcome=answer, usage=call.usage, cost=call.cost
        )

    async def _affordable_answer(self, prompt: Prompt, call: _Call) -> Reply | Failure:
        """The answer from the endpoint, within the budget."""
        expected = Usage(estimated_tokens(prompt), longest_answer(prompt))
        tokens, dollars = expected.prompt + expected.completion, self._cost(expected)
        if not await self._budget.hold(tokens, dollars):
            limit = self._budget.used_up
            return Failure("budget", f"the budget of {limit} is used up; to continue, run again with a new budget")
        answer = None
        try:
            answer = await self._answer(prompt, expected, call)
        finally:
            # A refused constraint was a request, too; its failure counts no attempt so that it is not stored.
            sent = not isinstance(answer, Failure) or answer.attempts > 0 or answer.kind == _REFUSED
            self._budget.release(tokens, dollars, sent=sent)
        return answer

    async def _answer(self, prompt: Prompt, expected: Usage, call: _Call) -> Reply | Failure:
        """The answer from the endpoint, in as many tries as it takes and may take."""
        reserved = expected.prompt + expected.completion
        fewer: int | None = None  # alternatives a token, once the server has refused more
        empty = 0  # answers that were
        for attempt in count(1):
            async with self._slots:
                await self._rate.reserve(reserved)  # not before: turns that wait for slots would be taken all at once
                if (stopped := self._rule.stopped) is not None:
                    return stopped if attempt == 1 else replace(stopped, attempts=attempt - 1)
                asked = self._within(prompt, fewer)
                call.flight.detached = self._store is not None
                outcome, seconds = await self._send(asked)
            self.stats.retries += attempt > 1
            usage = billed(outcome, expected)
            self._rate.settle(reserved, usage.prompt + usage.completion)
            cost = self._account(usage, call)
            match outcome:
                case Reply():
                    self._rule.answered()
                    if fewer is not None:  # and that was it: for all prompts from now on
                        self._most_logprobs = _least(self._most_logprobs, fewer)
                    self._slots.succeeded()
                    return replace(outcome, cost=cost, seconds=seconds, attempts=attempt)
                case Refused(kind, reason):
                    return self._failed(kind, reason, attempt)
                case StepDown(reason, kind="constraint") if call.constrained:
                    return Failure(_REFUSED, reason)
                case StepDown(reason):
                    if outcome.kind == "constraint" or asked.top_logprobs is None:
                        return self._failed("invalid_request", reason, attempt)
                    fewer = fewer_alternatives(asked.top_logprobs, outcome.allowed)
                case Again(kind, reason, after):
                    if kind in OVERLOAD:
                        self._slots.overloaded()
                    empty += kind == "empty"
                    wait = self._retry.delay(attempt, after, self._random)
                    if wait is None or empty == EMPTY or not call.flight.waiting:
                        why = f"{reason}; gave up after {counted(attempt, 'attempt')}; run again to resume"
                        return self._failed(kind, why, attempt)
                    call.flight.detached = False
                    await self._clock.sleep(wait)
        raise AssertionError("unreachable")

    def _failed(self, kind: str, reason: str, attempts: int) -> Failure:
        self._rule.failed(kind, reason)
        return Failure(kind, reason, attempts)

    async def _send(self, prompt: Prompt) -> tuple[Outcome, float]:
        """One call, and its seconds."""
        began = self._clock.now()
        if self._began is None:
            self._began = began
        self.stats.sent += 1
        self.stats.in_flight += 1
        try:
            outcome = await self._transport.send(prompt)
        finally:
            ended = self._clock.now()
            self.stats.in_flight -= 1
            self.stats.busy += ended - began
            self.stats.seconds = ended - self._began
        return outcome, ended - began

    def _within(self, prompt: Prompt, fewer: int | None) -> Prompt:
        """`prompt` with no more alternatives than the server gives. Its key stays: it is the same question."""
        most, wanted = _least(self._most_logprobs, fewer), prompt.top_logprobs
        if most is None or wanted is None or 0 < most >= wanted:
            return prompt
        return replace(prompt, top_logprobs=most or None)

    def _account(self, usage: Usage, call: _Call) -> float | None:
        """Write a call's usage into the books and the prompt's own; returns what it cost, if that is known."""
        cost = self._cost(usage)
        self.stats.prompt_tokens += usage.prompt
        self.stats.completion_tokens += usage.completion
        if cost is not None:
            self.stats.cost = (self.stats.cost or 0.0) + cost
        if usage != Usage():
            before = call.usage or Usage()
            call.usage = Usage(before.prompt + usage.prompt, before.completion + usage.completion)
            call.cost = None if cost is None else (call.cost or 0.0) + cost
        self._budget.spend(usage.prompt + usage.completion, cost)
        return cost

    def _cost(self, usage: Usage) -> float | None:
        return None if self._price is None else self._price(usage)


def _least(one: int | None, other: int | None) -> int | None:
    return min((most for most in (one, other) if most is not None), default=None)
