"""The store of questions and answers: cache and journal in one SQLite file, which several processes may share.

It holds the replies of models and the results of searches for evidence. A reply is paid for, so it is on disk before
it is used: `put` returns after its transaction's fsync. A thread of the store does all writing. Each commit takes the
rows that have gathered since the last one, so a thousand replies per second cost some dozens of fsyncs. Reads run in
the caller's thread: one look-up in an index takes some tens of microseconds, less than a hand-over to a thread.

The file is append-only: a question may fail on Monday and be answered on Tuesday, and both rows are kept, but it is
answered once. A unique index over answered rows ensures that for all processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from fcjax.core.errors import OutputError
from fcjax.core.folders import cache_folder
from fcjax.core.passages import Found
from fcjax.core.prompts import Failure, Prompt, Reply, Usage
from fcjax.io.entries import (
    ANSWERED,
    CHAT,
    DAMAGED,
    OUTDATED,
    SEARCH,
    UNREADABLE,
    DamagedError,
    failed_status,
    pack,
    pack_answer,
    pack_prompt,
    search,
    search_key,
    unpack_answer,
    unpack_found,
)
from fcjax.io.entries import prompt_key as prompt_key
from fcjax.io.schema import (
    COUNTED,
    INSERT,
    PATIENCE,
    connect,
    damaged_file,
    is_busy,
    is_damaged,
    locked,
    patiently,
    unwritable,
)

GROUP: Final = 1024  # rows a transaction at most, so that no other process waits long

Answer = Reply | Failure
Stored = TypeVar("Stored")
Read = Callable[[bytes], Stored]
"""How the packed answer of a row is read; raises `DamagedError`."""


def default_path() -> Path:
    """The store that commands use by default: `FCJAX_STORE`, or `replies.sqlite` in the user's cache folder.

    Raises `SettingsError` where there is neither.
    """
    return Path(os.environ.get("FCJAX_STORE") or cache_folder() / "replies.sqlite")


@dataclass(slots=True)
class StoreStats:
    """What one `Store` did since it was opened."""

    hits: int = 0
    misses: int = 0
    stored: int = 0  # rows written, failures among them
    known: int = 0  # replies that were not stored, as another process had stored one
    damaged: int = 0  # rows that could not be read; each was a miss
    commits: int = 0


@dataclass(slots=True)
class _Job:
    """Work for the writer's next transaction, and the future that waits for it."""

    do: Callable[[], Any]
    result: asyncio.Future[Any] | None = None  # None where the result is not needed
    value: Any = None
    error: Exception | None = None

    def settle(self) -> None:
        if self.result is None or self.result.done():  # done: the waiting task was cancelled
            return
        if self.error is not None:
            self.result.set_exception(self.error)
        else:
            self.result.set_result(self.value)


class Store:
    """An open store; `Store.open` makes one, in every process its own.

    Its methods are called in the thread of an event loop and do not block it: they wait for other processes
    asynchronously, and writing happens in a thread.
    """

    def __init__(
        self, path: Path, reader: sqlite3.Connection, writer: sqlite3.Connection | None, clock: Callable[[], float]
    ):
        self.path = path
        self.stats = StoreStats()
        self._clock = clock
        self._reader = reader
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()  # None ends the thread
        self._counted = dict.fromkeys(COUNTED, 0)  # what the file knows of our statistics
        self._thread: threading.Thread | None = None
        if writer is not None:
            self._writer = writer
            self._thread = threading.Thread(target=self._write, name="fcjax store", daemon=True)
            self._thread.start()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        readonly: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """The store at `path` (by default `default_path()`), made where there is none unless `readonly`.

        `clock` dates new rows, in seconds since 1970. Raises `InputError` for a file that is damaged, of another
        program or of another format, or is missing and `readonly`, and `OutputError` where it cannot be written.
        """
        place = Path(path) if path is not None else default_path()
        writer = None if readonly else connect(place)
        return cls(place, connect(place, readonly=readonly), writer, clock)

    @property
    def readonly(self) -> bool:
        """Whether nothing can be stored: it was opened read-only, or is closed."""
        return self._thread is None

    def close(self) -> None:
        """Write what is left and close the file; a second call does nothing."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def get(self, *keys: str, replay: bool = False) -> Answer | None:
        """The stored answer to a question under any of its keys, the first one's where there are several, or None.

        A live run gets replies only. A replay also gets the latest failure, or a reply in which no answer was found, so
        that it repeats the whole run. A damaged row is a miss.
        """
        return await self._get(keys, replay, unpack_answer)

    async def get_found(
        self, retriever: str, query: str, k: int, *, replay: bool = False, max_age: float | None = None
    ) -> Found | Failure | None:
        """The stored result of a search, or None.

        A replay also gets the latest failure, and outdated results. A live run gets no result older than `max_age`
        seconds; such a row is marked outdated, so that a new one can be stored.
        """
        key = search_key(retriever, query, k)
        if max_age is not None and not replay:
            await self._retire(key, self._clock() - max_age)
        return await self._get((key,), replay, unpack_found)

    async def _get(self, keys: tuple[str, ...], replay: bool, read: Read[Stored]) -> Stored | None:
        rows = [row for key in keys for row in await self._look(_ANSWERED, key)]
        if replay and not rows:
            rows = [row for key in keys for row in await self._look(_OTHERS, key)]
        for row, packed in rows:
            try:
                answer = read(packed)
            except DamagedError:
                self._set_aside(row)
                continue
            self.stats.hits += 1
            return answer
        self.stats.misses += 1
        return None

    async def put(
        self,
        key: str,
        *,
        prompt: Prompt,
        endpoint: str,
        model: str,
        outcome: Answer,
        usage: Usage | None = None,
        cost: float | None = None,
    ) -> Answer:
        """Store the outcome of a question; returns when it is durable.

        `usage` and `cost` are the sums over all tries; by default, those of the reply.
        Returns the row that now stands under `key`: `outcome`, or the reply that another process stored before it, so
        that a run does as its replay will. Raises `OutputError` where it cannot be written.
        """
        reply = outcome if isinstance(outcome, Reply) else None
        if reply is not None:
            usage = reply.usage if usage is None else usage
            cost = reply.cost if cost is None else cost

        def row() -> dict[str, Any]:
            return {
                "kind": CHAT,
                "source": endpoint,
                "model": model,
                "template": prompt.template,
                "asked": pack_prompt(prompt),
                "prompt_tokens": usage.prompt if usage else None,
                "completion_tokens": usage.completion if usage else None,
                "cost": cost,
                "seconds": reply.seconds if reply else None,
                "attempts": outcome.attempts,
            }

        return await self._put(key, row, outcome, unpack_answer)

    async def put_found(
        self, retriever: str, query: str, k: int, outcome: Found | Failure, *, seconds: float | None = None
    ) -> Found | Failure:
        """Store the outcome of a search; returns and raises as `put` does."""

        def row() -> dict[str, Any]:
            return {
                "kind": SEARCH,
                "source": retriever,
                "model": "",
                "template": "",
                "asked": pack(search(retriever, query, k)),
                "prompt_tokens": None,
                "completion_tokens": None,
                "cost": None,
                "seconds": seconds,
                "attempts": outcome.attempts if isinstance(outcome, Failure) else 1,
            }

        return await self._put(search_key(retriever, query, k), row, outcome, unpack_found)

    async def _put(self, key: str, row: Callable[[], dict[str, Any]], outcome: Stored, read: Read[Stored]) -> Stored:
        def insert() -> Stored:
            whole = row() | {
                "key": bytes.fromhex(key),
                "status": failed_status(outcome) if isinstance(outcome, Failure) else ANSWERED,
                "answer": pack_answer(outcome),  # type: ignore[arg-type]  # the type variable is one of its kinds
                "created": self._clock(),
            }
            standing = self._insert(whole, read)
            return outcome if standing is None else standing

        stored: Stored = await self._written(insert)
        return stored

    async def reject(self, key: str) -> bool:
        """Mark a stored reply as unreadable, so that only a replay gets it: whether there was one. Raises `OutputError`
        where that cannot be written."""
        return bool(await self._written(lambda: self._writer.execute(_REJECT, (bytes.fromhex(key),)).rowcount))

    async def _retire(self, key: str, before: float) -> None:
        """Mark an answer older than `before` as outdated."""
        if self._thread is not None and await self._look(_OLD, key, before):
            await self._written(lambda: self._writer.execute(_RETIRE, (bytes.fromhex(key), before)))

    async def _look(self, query: str, key: str, *more: float) -> list[tuple[int, bytes]]:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._reader.execute(query, (bytes.fromhex(key), *more)).fetchall()
            except sqlite3.DatabaseError as error:
                if is_damaged(error):
                    self.stats.damaged += 1
                    return []
                if not is_busy(error) or time.monotonic() > deadline:
                    raise self._error(error) from error
            await asyncio.sleep(0.005)  # another process repairs the log after a crash

    def _set_aside(self, row: int) -> None:
        """Mark a row as damaged, so that a new answer can be stored."""
        self.stats.damaged += 1
        if self._thread is not None:
            self._jobs.put(_Job(lambda: self._writer.execute(_SET_ASIDE, (row,))))

    async def _written(self, do: Callable[[], Any]) -> Any:
        if self._thread is None:
            raise RuntimeError(f"{self.path} is closed, or was opened read-only")
        result = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(do, result))
        return await result

    # The methods below run in the writer's thread.

    def _write(self) -> None:
        """Run the waiting jobs in one transaction, and settle them when it is durable."""
        ends = False
        while not ends:
            jobs: list[_Job] = []
            while not ends and len(jobs) < GROUP and not (jobs and self._jobs.empty()):
                if (job := self._jobs.get()) is not None:
                    jobs.append(job)
                ends = job is None
            self._commit(jobs)
            _settle(jobs)
        self._writer.close()  # the last one to close writes the log back into the file

    def _commit(self, jobs: list[_Job]) -> None:
        counts = self._news()
        if not jobs and not counts:
            return
        try:
            patiently(lambda: self._writer.execute("BEGIN IMMEDIATE"))
            for job in jobs:
                try:
                    job.value = job.do()
                except sqlite3.Error:
                    raise
                except Exception as error:  # this job's own fault, such as an option that is not JSON
                    job.error = error
            self._writer.executemany(_COUNT, counts)
            self._writer.execute("COMMIT")
            self.stats.commits += 1
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")
            for job in jobs:
                job.error = self._error(error)

    def _insert(self, row: dict[str, Any], read: Read[Stored]) -> Stored | None:
        """Add a row, unless its question is answered: then that answer, and nothing is added."""
        if self._writer.execute(INSERT, row).rowcount:
            self.stats.stored += 1
            return None
        ((number, standing),) = self._writer.execute(_ANSWERED, (row["key"],)).fetchall()
        try:
            answer = read(standing)
        except DamagedError:
            self._writer.execute(_SET_ASIDE, (number,))
            return self._insert(row, read)
        self.stats.known += 1
        return answer

    def _news(self) -> list[tuple[str, int]]:
        """The statistics since the last call, to be added to those of all runs."""
        now = {name: getattr(self.stats, name) for name in COUNTED}
        news = [(name, now[name] - self._counted[name]) for name in COUNTED if now[name] != self._counted[name]]
        self._counted = now
        return news

    def _error(self, error: sqlite3.Error) -> OutputError:
        if is_busy(error):
            return OutputError(locked(self.path))
        if is_damaged(error):
            return OutputError(damaged_file(self.path, error))
        return OutputError(unwritable(self.path, error))


def _settle(jobs: list[_Job]) -> None:
    """Settle the waiting futures, with one call per loop."""
    waiting: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        if job.result is not None:
            waiting.setdefault(job.result.get_loop(), []).append(job)
    for loop, its in waiting.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits
            loop.call_soon_threadsafe(_settle_here, its)


def _settle_here(jobs: list[_Job]) -> None:
    for job in jobs:
        job.settle()


_ANSWERED = f"SELECT id, answer FROM entries WHERE key = ? AND status = '{ANSWERED}'"
_OTHERS = f"SELECT id, answer FROM entries WHERE key = ? AND status <> '{ANSWERED}' ORDER BY id DESC"
_OLD = f"{_ANSWERED} AND created < ?"
_RETIRE = f"UPDATE entries SET status = '{OUTDATED}' WHERE key = ? AND status = '{ANSWERED}' AND created < ?"
_REJECT = f"UPDATE entries SET status = '{UNREADABLE}' WHERE key = ? AND status = '{ANSWERED}'"
_SET_ASIDE = f"UPDATE entries SET status = '{DAMAGED}' WHERE id = ?"
_COUNT = """
INSERT INTO counts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"""
