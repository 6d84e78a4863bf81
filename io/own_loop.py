"""Running coroutines from synchronous functions, even if an event loop is already running (in a notebook)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


class OwnLoop:
    """An event loop that belongs to one synchronous function. Use it in a `with` block.

    It runs in the caller's thread, or in a thread of its own while the caller's thread has a running loop: no other
    loop can run there. An interrupt cancels the coroutine, waits for its end, and is then raised to the caller.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._thread: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread is None:
            self._runner.close()
            return
        with self._thread:
            self._thread.submit(self._runner.close).result()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`. Raises what `work` raises."""
        if not _loop_is_running():
            return self._runner.run(work)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="fcjax-loop")
        begun: Future[asyncio.Task[Result]] = Future()

        async def task() -> Result:
            inner = asyncio.ensure_future(work)
            begun.set_result(inner)
            return await inner

        outcome = self._thread.submit(self._runner.run, task())
        try:
            return outcome.result()
        except KeyboardInterrupt:  # reaches the caller's thread only, so that the runner cannot handle it
            inner = begun.result()
            with suppress(RuntimeError):  # the loop is closed already: the work has just ended
                inner.get_loop().call_soon_threadsafe(inner.cancel)
            wait((outcome,))
            raise


def _loop_is_running() -> bool:
    """Whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def in_own_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of one coroutine, run in its own event loop (see `OwnLoop`)."""
    with OwnLoop() as loop:
        return loop.run(work)
