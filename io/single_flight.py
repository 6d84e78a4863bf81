"""Work that several callers need at the same time, or again soon, and that is done once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


def retrieve(task: asyncio.Task[Any]) -> None:
    """Mark a task's error as seen: callers may have gone before it, and asyncio would print a traceback for it."""
    if not task.cancelled():
        task.exception()


@dataclass(slots=True)
class Flight(Generic[Result]):
    """Work in progress, and how many callers wait for it. `detached` work continues where none is left."""

    task: asyncio.Task[Result] = field(init=False)
    waiting: int = 0
    detached: bool = False


class SingleFlight(Generic[Result]):
    """Results by key: those in progress are shared, and the last `most` are kept.

    Work that no caller waits for any more is cancelled, unless it is detached. Use it in one event loop.
    """

    def __init__(self, most: int = 0, *, keep: Callable[[Result], bool] = lambda result: True):
        self._most, self._keep = most, keep
        self._made: OrderedDict[str, Result] = OrderedDict()
        self._flights: dict[str, Flight[Result]] = {}
        self.shared = 0  # results that another caller's work, or an earlier one, gave

    async def get(self, key: str, make: Callable[[], Awaitable[Result]]) -> Result:
        """The result under `key`, made if there is none. What `make` raises is raised in all waiting callers."""
        if key in self._made:
            self._made.move_to_end(key)
            self.shared += 1
            return self._made[key]
        return await self.join(key, lambda _: make())

    async def join(self, key: str, make: Callable[[Flight[Result]], Awaitable[Result]]) -> Result:
        """The result of the work in progress under `key`, or else of `make`, which may detach its `Flight`."""
        flight = self._flights.get(key)
        shared = flight is not None
        if flight is None:
            flight = self._flights[key] = Flight()
            flight.task = asyncio.create_task(self._run(key, make, flight))
            flight.task.add_done_callback(retrieve)
        flight.waiting += 1
        try:
            result = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not (flight.waiting or flight.detached or flight.task.done()):
                flight.task.cancel()
                del self._flights[key]  # at once, so that no caller joins cancelled work
        self.shared += shared
        return result

    async def close(self, grace: float = 0.0) -> None:
        """Stop the work in progress after at most `grace` seconds, and discard the rest."""
        tasks = [flight.task for flight in self._flights.values()]
        if tasks and grace:
            await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that is cancelled before its first step never removes its own entry.
        self._flights = {key: flight for key, flight in self._flights.items() if not flight.task.done()}
        self._made.clear()

    async def _run(
        self, key: str, make: Callable[[Flight[Result]], Awaitable[Result]], flight: Flight[Result]
    ) -> Result:
        try:
            result = await make(flight)
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
        if self._most and self._keep(result):
            self._made[key] = result
            while len(self._made) > self._most:
                self._made.popitem(last=False)
        return result
