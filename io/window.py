"""A bounded window over a stream: a few workers pull items and hand on what came of them, as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final, Generic, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_END: Final = object()


async def each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterator[Item]:
    """The items of a stream of either kind."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


class Window(Generic[Item, Result]):
    """Iterates over `(item, await work(item))` in the order in which they finish.

    At most `size` items are between the source and the consumer, however slow either is, and at most `size` tasks are
    ever made, each when there is an item for it. What the source or `work` raises is raised here; then, or to leave
    early, `close` ends the workers.
    """

    def __init__(
        self, items: Iterable[Item] | AsyncIterable[Item], work: Callable[[Item], Awaitable[Result]], size: int
    ):
        self._source: Any = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
        self._pull = self._pull_async if isinstance(items, AsyncIterable) else self._pull_sync
        self._work, self._size = work, size
        self._turn = asyncio.Lock()  # an asynchronous generator cannot be asked twice at once
        self._room = asyncio.Semaphore(size)
        self._done: asyncio.Queue[Any] = asyncio.Queue()  # pairs, an exception, or _END; bounded by the room
        self._workers: list[asyncio.Task[None]] = []
        self._working = 0
        self._closed = False
        self._handed_out = False  # whether the consumer still has a pair in hand

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Item, Result]:
        if not self._workers:
            self._hire()
        if self._handed_out:
            self._handed_out = False
            self._room.release()
        found = await self._done.get()
        if found is _END:
            self._done.put_nowait(_END)  # for whoever asks once more
            raise StopAsyncIteration
        if isinstance(found, Exception):
            raise found
        self._handed_out = True
        return found

    async def close(self) -> None:
        self._closed = True
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def _hire(self) -> None:
        self._working += 1
        self._workers.append(asyncio.create_task(self._run()))

    async def _run(self) -> None:
        try:
            while True:
                await self._room.acquire()
                item = await self._pull()
                if item is _END:
                    self._room.release()  # for the next worker, to find the same
                    return
                if len(self._workers) < self._size:
                    self._hire()
                self._done.put_nowait((item, await self._work(item)))
        except Exception as error:  # the consumer's to see, not a task's that nobody awaits
            self._done.put_nowait(error)
        except asyncio.CancelledError:
            if not self._closed:  # from within `work`: its item would be missing and nobody would know
                self._done.put_nowait(RuntimeError("what was being done about an item was cancelled"))
            raise
        finally:
            self._working -= 1
            if not self._working:
                self._done.put_nowait(_END)

    async def _pull_sync(self) -> Any:
        return next(self._source, _END)

    async def _pull_async(self) -> Any:
        async with self._turn:
            return await anext(self._source, _END)
