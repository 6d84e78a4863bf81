"""Bounded work on a stream of items: results as they finish (`Window`), `in_order`, or `in_chunks`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, Self, TypeVar

from fcjax.core.errors import FcjaxError

Item = TypeVar("Item")
Result = TypeVar("Result")

_END: Final = object()


async def each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterator[Item]:
    """The items of a synchronous or asynchronous stream."""
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
            self._done.put_nowait(_END)  # for the next call
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
        except Exception as error:  # raised to the consumer, since the task is not awaited
            self._done.put_nowait(error)
        except asyncio.CancelledError:
            if not self._closed:  # from within `work`: else its item would be missing without a word
                self._done.put_nowait(RuntimeError("the work on an item was cancelled"))
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


async def in_order(
    items: Iterable[Item] | AsyncIterable[Item],
    work: Callable[[int, Item], Awaitable[Result]],
    at_once: int,
    end: Callable[[], FcjaxError | None],
) -> AsyncGenerator[Result, None]:
    """`await work(i, item)` for each item, in order, with `at_once` under way and 4 times as many between the source
    and the consumer. The error that `end` returns, if any, is raised as soon as it is there, before later results."""
    room = asyncio.Semaphore(4 * at_once)
    finished: dict[int, Result] = {}  # those that wait for earlier items

    async def numbered() -> AsyncGenerator[tuple[int, Item], None]:
        place = 0
        async for item in each(items):
            await room.acquire()
            if end():
                return
            yield place, item
            place += 1

    async def done(numbered_item: tuple[int, Item]) -> Result:
        return await work(*numbered_item)

    window = Window(numbered(), done, at_once)
    following = 0
    try:
        async for (place, _), result in window:
            finished[place] = result
            while following in finished and not end():
                yield finished.pop(following)
                room.release()
                following += 1
            if error := end():
                raise error
    finally:
        await window.close()
    if error := end():
        raise error


async def in_chunks(
    items: AsyncGenerator[Item, None], work: Callable[[list[Item]], list[Result]], size: int, ahead: int
) -> AsyncGenerator[Result, None]:
    """The results of `work(chunk)`, one per item, in order.

    A chunk has `size` items, by their place in the stream. `work` runs in one thread while more items come in. At most
    `ahead` chunks wait; `items` is closed in the end.
    """
    loop = asyncio.get_running_loop()
    pending: deque[asyncio.Future[list[Result]]] = deque()
    chunk: list[Item] = []
    worker = ThreadPoolExecutor(1, thread_name_prefix="fcjax-chunks")
    coming: asyncio.Task[Any] | None = None
    more = True
    try:
        while more or pending:
            if more and coming is None and len(pending) < ahead:
                coming = asyncio.ensure_future(anext(items, _END))
            awaited = [*([coming] if coming else ()), *([pending[0]] if pending else ())]
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if coming and coming.done():
                item, coming = coming.result(), None
                if item is _END:
                    more = False
                else:
                    chunk.append(item)
                if chunk and (not more or len(chunk) == size):
                    pending.append(loop.run_in_executor(worker, work, chunk))
                    chunk = []
            if pending and pending[0].done():
                for result in pending.popleft().result():
                    yield result
    finally:
        if coming:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        await items.aclose()
        worker.shutdown(wait=False, cancel_futures=True)
