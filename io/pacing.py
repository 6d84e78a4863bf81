"""Pacing of a client: rate limits, adaptive concurrency, back-off between attempts, a budget per run.

Each is a small state machine that knows nothing of HTTP; time and chance come from outside.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from fcjax.core.errors import SettingsError


class Clock(Protocol):
    """The clock for pacing, in seconds."""

    def now(self) -> float: ...

    def sleep(self, seconds: float, /) -> Awaitable[None]: ...


class RealClock:
    now = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)


@dataclass(frozen=True, slots=True)
class Retry:
    """When to retry: `attempts` in total, with waits that double from `first` to `longest` seconds.

    A wait is drawn from the upper half of its span, so that calls that failed together do not return together. A server
    that asks for more than `patience` seconds is not waited for.
    """

    attempts: int = 8
    first: float = 0.5
    longest: float = 30.0
    patience: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.first, self.longest, self.patience) < 0:
            raise SettingsError(f"{self}; allowed: at least 1 attempt and times of 0 seconds or more")

    def delay(self, failed: int, after: float | None, random: Random) -> float | None:
        """Seconds to wait after `failed` tries, the last of which was asked to wait `after`; None to give up."""
        if failed >= self.attempts or (after is not None and after > self.patience):
            return None
        span = min(self.longest, self.first * 2.0 ** min(failed - 1, 60))
        if after is not None:  # never sooner than the server asks
            return after + random.uniform(0.0, min(span, 0.1 * after + 0.1 * self.first))
        return random.uniform(0.5 * span, span)


class _Meter:
    """An amount per minute, spread evenly: what was taken is paid off at a steady rate, up to `slack` seconds late.

    In no stretch of time is more taken than its share, the slack's share and one piece.
    """

    slack = 1.0

    def __init__(self, per_minute: float):
        self._seconds_each = 60.0 / per_minute
        self._paid_at = float("-inf")  # when all that was taken is paid off

    def wait(self, now: float) -> float:
        return self._paid_at - now - self.slack

    def take(self, amount: float, now: float) -> None:
        self._paid_at = max(self._paid_at, now) + amount * self._seconds_each

    def correct(self, amount: float) -> None:
        self._paid_at += amount * self._seconds_each


class RateLimit:
    """The most requests and tokens per minute; None means no limit.

    Tokens are reserved by estimate, as a call's true number is known when it is over; `settle` corrects the account.
    """

    def __init__(self, *, requests: float | None = None, tokens: float | None = None, clock: Clock | None = None):
        for name, value in (("requests", requests), ("tokens", tokens)):
            if value is not None and not 0 < value < float("inf"):
                raise SettingsError(f"{name} per minute is {value}; allowed: a number over 0, or none for no limit")
        self._clock = clock or RealClock()
        self._requests = _Meter(requests) if requests is not None else None
        self._tokens = _Meter(tokens) if tokens is not None else None
        self._meters = [meter for meter in (self._requests, self._tokens) if meter is not None]
        self._turn = asyncio.Lock()  # first come, first served; only the first one watches the clock

    async def reserve(self, tokens: int) -> None:
        """Wait until one more request with this many tokens may be sent."""
        if not self._meters:
            return
        async with self._turn:
            while (wait := max(meter.wait(self._clock.now()) for meter in self._meters)) > 0:
                await self._clock.sleep(min(wait, 0.05))  # a call that settles may shorten the wait: look again
            now = self._clock.now()
            if self._requests is not None:
                self._requests.take(1, now)
            if self._tokens is not None:
                self._tokens.take(tokens, now)

    def settle(self, reserved: int, used: int) -> None:
        """Correct a reservation once the call's tokens are known."""
        if self._tokens is not None:
            self._tokens.correct(used - reserved)


class Concurrency:
    """How many calls may be in flight at once: a semaphore whose limit adapts to the server's capacity.

    It begins at `most`, and `limit` calls that succeed raise it by one. Where more than the share `tolerated` of a
    round, which has twice as many calls as the limit, is turned away, the limit is cut to the share of those that were
    not, but by no more than the factor `cut`. A smaller share says nothing: others may use the server too, or it turns
    calls away at any load. Calls on the wire count as good ones until they end, as a call is turned away sooner than it
    is answered. For `cool_down` seconds after a cut the limit stays: calls that were on the wire before have nothing
    new to say. `async with` holds a slot, first come, first served.
    """

    def __init__(
        self,
        most: int,
        *,
        least: int = 1,
        cut: float = 0.5,
        tolerated: float = 0.25,
        cool_down: float = 5.0,
        clock: Clock | None = None,
    ):
        if not 1 <= least <= most:
            raise SettingsError(f"concurrency is {least} to {most}; allowed: at least 1, the lower number first")
        if not (0 < cut < 1 and 0 <= tolerated < 1 and cool_down >= 0):
            seen = f"cut is {cut}, tolerated {tolerated}, cool_down {cool_down}"
            raise SettingsError(f"{seen}; allowed: between 0 and 1, from 0 to under 1, and 0 or more")
        self.limit = float(most)
        self.in_flight = 0
        self._most, self._least, self._cut, self._cool_down = most, least, cut, cool_down
        self._tolerated = tolerated
        self._clock = clock or RealClock()
        self._calm_at = float("-inf")  # when the cool-down ends
        self._good = self._turned_away = 0  # calls of this round
        self._waiting: deque[asyncio.Future[None]] = deque()

    def succeeded(self) -> None:
        """A call succeeded."""
        if self._clock.now() < self._calm_at:
            return
        self.limit = min(self._most, self.limit + 1 / self.limit)
        self._good += 1
        if self._good + self._turned_away >= 2 * self.limit:
            self._good = self._turned_away = 0
        self._admit()

    def overloaded(self) -> None:
        """A call was refused by an overloaded server (429, 503, 529)."""
        now = self._clock.now()
        if now < self._calm_at:
            return
        self._turned_away += 1
        known = self._turned_away + self._good
        if self._turned_away > self._tolerated * (known + self.in_flight):
            self.limit = max(self._least, self.limit * max(self._cut, self._good / known))
            self._calm_at = now + self._cool_down
            self._good = self._turned_away = 0

    async def __aenter__(self) -> None:
        if not self._waiting and self.in_flight + 1 <= self.limit:
            self.in_flight += 1
            return
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled():  # the slot came in the same moment: pass it on
                await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self.in_flight + 1 <= self.limit:
            ticket = self._waiting.popleft()
            if not ticket.done():  # done: cancelled
                self.in_flight += 1
                ticket.set_result(None)


@dataclass(slots=True)
class _Spend:
    prompts: int = 0
    tokens: int = 0
    dollars: float = 0.0


class Budget:
    """What a run may spend at most, in prompts, tokens and US dollars; None means no limit.

    What a prompt may cost at most is held while it is asked, so the cap is not passed as long as estimates are not too
    low. A prompt that does not fit waits for those that are being asked, as they mostly cost less than was held. Once
    one does not fit with nothing held, the budget is used up, for all that follow.
    """

    def __init__(self, *, prompts: int | None = None, tokens: int | None = None, dollars: float | None = None):
        for name, value in (("prompts", prompts), ("tokens", tokens), ("dollars", dollars)):
            if value is not None and not value >= 0:
                raise SettingsError(f"a budget of {value} {name}; allowed: 0 or more, or none for no limit")
        self.prompts, self.tokens, self.dollars = prompts, tokens, dollars
        self.spent = _Spend()
        self.used_up: str | None = None  # which limit ended it, in words
        self._held = _Spend()
        self._news = asyncio.Event()

    async def hold(self, tokens: int, dollars: float | None) -> bool:
        """Reserve the most that a prompt may cost; False if the budget is used up."""
        while self.used_up is None:
            limit = self._passed(tokens, dollars or 0.0)
            if limit is None:
                self._held.prompts += 1
                self._held.tokens += tokens
                self._held.dollars += dollars or 0.0
                return True
            if not self._held.prompts:
                self.used_up = limit
                self._news.set()
                break
            self._news.clear()
            await self._news.wait()
        return False

    def spend(self, tokens: int, dollars: float | None) -> None:
        """Record what a call was billed."""
        self.spent.tokens += tokens
        self.spent.dollars += dollars or 0.0

    def release(self, tokens: int, dollars: float | None, *, sent: bool) -> None:
        """Release the reservation of a finished prompt; `sent` says whether it was sent at all."""
        self.spent.prompts += sent
        self._held.prompts -= 1
        self._held.tokens -= tokens
        self._held.dollars = self._held.dollars - (dollars or 0.0) if self._held.prompts else 0.0  # no rounding stays
        self._news.set()

    def _passed(self, tokens: int, dollars: float) -> str | None:
        """The limit that one more prompt would pass, in words."""
        spent, held = self.spent, self._held
        if self.prompts is not None and spent.prompts + held.prompts + 1 > self.prompts:
            return f"{self.prompts} prompts"
        if self.tokens is not None and spent.tokens + held.tokens + tokens > self.tokens:
            return f"{self.tokens} tokens"
        if self.dollars is not None and spent.dollars + held.dollars + dollars > self.dollars * (1 + 1e-12):
            return f"{self.dollars:g} US dollars"
        return None
