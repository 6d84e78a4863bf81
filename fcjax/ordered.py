"""Work on a stream of items, several at once, whose results come in the order of the items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import TypeVar

from fcjax.errors import FcjaxError
from fcjax.io.window import Window, each

Item = TypeVar("Item")
Result = TypeVar("Result")


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
