"""Work that several callers want at once, or soon again, and that is done once."""

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
class _Work(Generic[Result]):
    task: asyncio.Task[Result] = field(init=False)
    waiting: int = 0


class SingleFlight(Generic[Result]):
    """Results by key: those that are being made are shared, and the last `most` that were made are kept.

    Work that nobody waits for any more is cancelled. Use it in one event loop.
    """

    def __init__(self, most: int = 0, *, keep: Callable[[Result], bool] = lambda result: True):
        self._most, self._keep = most, keep
        self._made: OrderedDict[str, Result] = OrderedDict()
        self._doing: dict[str, _Work[Result]] = {}
        self.shared = 0  # results that another caller's work, or an earlier one, gave

    async def get(self, key: str, make: Callable[[], Awaitable[Result]]) -> Result:
        """The result under `key`, made where there is none. What `make` raises, all who wait for it get."""
        if key in self._made:
            self._made.move_to_end(key)
            self.shared += 1
            return self._made[key]
        work = self._doing.get(key)
        shared = work is not None
        if work is None:
            work = self._doing[key] = _Work()
            work.task = asyncio.create_task(self._do(key, make, work))
            work.task.add_done_callback(retrieve)
        work.waiting += 1
        try:
            result = await asyncio.shield(work.task)
        finally:
            work.waiting -= 1
            if not work.waiting and not work.task.done():
                work.task.cancel()
                del self._doing[key]  # at once: nobody is to join it
        self.shared += shared
        return result

    async def close(self) -> None:
        """End what is being made, and forget the rest."""
        tasks = [work.task for work in self._doing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._made.clear()

    async def _do(self, key: str, make: Callable[[], Awaitable[Result]], work: _Work[Result]) -> Result:
        try:
            result = await make()
        finally:
            if self._doing.get(key) is work:
                del self._doing[key]
        if self._most and self._keep(result):
            self._made[key] = result
            while len(self._made) > self._most:
                self._made.popitem(last=False)
        return result
