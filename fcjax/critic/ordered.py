"""Work on a stream of items, whose results come in the order of the items: several at once, or in chunks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from fcjax.core.errors import FcjaxError
from fcjax.io.window import Window, each

Item = TypeVar("Item")
Result = TypeVar("Result")

_END: Final = object()


async def in_order(
    items: Iterable[Item] | AsyncIterable[Item],
    work: Callable[[int, Item], Awaitable[Result]],
    at_once: int,
    end: Callable[[], FcjaxError | None],
) -> AsyncGenerator[Result, None]:
    """`await work(i, item)` for each item, in order, with `at_once` under way and 4 times as many between the source
    and the consumer. What `end` returns is raised as soon as it is there: nothing that was done since is handed out."""
    room = asyncio.Semaphore(4 * at_once)
    finished: dict[int, Result] = {}  # those that wait for others before them

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
    """What `work` makes of each item, in order: it gets `size` of them at a time, by their place in the stream, in a
    thread of its own while more come in. At most `ahead` chunks wait for it; `items` is closed in the end."""
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
