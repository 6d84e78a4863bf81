"""The store of a model's replies: cache and journal in one SQLite file, which several processes may share.

A reply is paid for, so it is on disk before anyone uses it: `put` returns when its transaction is through fsync. One
thread of its own does all the writing and takes whatever has gathered since its last commit into the next one, so a
thousand replies a second cost some dozens of fsyncs. Reading is done in place: one look-up in an index takes some tens
of microseconds, less than handing it to a thread.

The file is append-only: a question may fail on Monday and be answered on Tuesday, and both are kept, but it is answered
once. A unique index over answered rows says so to all processes at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from fcjax.errors import OutputError
from fcjax.io.entries import (
    ANSWERED,
    DAMAGED,
    UNREADABLE,
    DamagedError,
    canonical,
    pack_answer,
    pack_prompt,
    question,
    unpack_answer,
)
from fcjax.io.schema import COUNTED, PATIENCE, connect, damaged_file, is_busy, is_damaged, locked, patiently
from fcjax.prompts import Failure, Prompt, Reply, Usage

GROUP: Final = 1024  # rows a transaction at most, so that no other process waits long

Answer = Reply | Failure


def default_path() -> Path:
    """The store that commands share unless told otherwise: `FCJAX_STORE`, or a file in the user's cache folder."""
    return Path(os.environ.get("FCJAX_STORE") or Path.home() / ".cache" / "fcjax" / "replies.sqlite")


def prompt_key(endpoint: str, model: str, prompt: Prompt) -> str:
    """The name of a question: 64 hex digits over all that changes its answer and nothing else.

    `endpoint` is a name without credentials, so that a new key for the same service finds the old replies. Raises
    `TypeError` for an option that JSON does not know.
    """
    asked = {"endpoint": endpoint, "model": model, "prompt": question(prompt)}
    return hashlib.sha256(canonical(asked)).hexdigest()


@dataclass(slots=True)
class StoreStats:
    """What one `Store` did since it was opened."""

    hits: int = 0
    misses: int = 0
    stored: int = 0  # rows written, failures among them
    known: int = 0  # replies that came too late: another process had stored one
    damaged: int = 0  # rows that could not be read; each was a miss
    commits: int = 0


@dataclass(slots=True)
class _Job:
    """Something to do in the writer's next transaction, and who waits for it."""

    do: Callable[[], Any]
    result: asyncio.Future[Any] | None = None  # None where nobody waits
    value: Any = None
    error: Exception | None = None

    def settle(self) -> None:
        if self.result is None or self.result.done():  # done: whoever waited was cancelled
            return
        if self.error is not None:
            self.result.set_exception(self.error)
        else:
            self.result.set_result(self.value)


class Store:
    """An open store; `Store.open` makes one, in every process its own.

    Its methods are called in the thread of an event loop. They never keep it from its work: they wait for other
    processes without blocking, and writing happens in a thread.
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

    def close(self) -> None:
        """Write what is left and let go of the file; a second time does nothing."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def get(self, key: str, *, replay: bool = False) -> Answer | None:
        """The stored answer to a question, or None.

        A live run gets replies. In replay the latest failure, or a reply in which nobody could find an answer, will do
        as well, so that a run repeats itself whole. A row that is damaged is a miss.
        """
        rows = await self._look(_ANSWERED, key)
        if replay and not rows:
            rows = await self._look(_OTHERS, key)
        for row, packed in rows:
            try:
                answer = unpack_answer(packed)
            except DamagedError:
                self._set_aside(row)
            else:
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
        kind: str = "chat",
    ) -> Answer:
        """Store what came of a question; returns when that is durable.

        `usage` and `cost` are what all its tries were billed; by default, what a reply says of itself.
        Returns what now stands under `key`: `outcome`, or the reply that another process stored before it. Who goes on
        with that one takes the course that a replay will take. Raises `OutputError` where it could not be written.
        """
        reply = outcome if isinstance(outcome, Reply) else None
        if reply is not None:
            usage = reply.usage if usage is None else usage
            cost = reply.cost if cost is None else cost
        head = {"key": bytes.fromhex(key), "kind": kind, "source": endpoint, "model": model}

        def insert() -> Answer:
            row = head | {
                "status": outcome.kind if isinstance(outcome, Failure) else ANSWERED,
                "template": prompt.template,
                "asked": pack_prompt(prompt),
                "answer": pack_answer(outcome),
                "prompt_tokens": usage.prompt if usage else None,
                "completion_tokens": usage.completion if usage else None,
                "cost": cost,
                "seconds": reply.seconds if reply else None,
                "attempts": outcome.attempts,
                "created": self._clock(),
            }
            return self._insert(row) or outcome

        answer: Answer = await self._written(insert)
        return answer

    async def reject(self, key: str) -> None:
        """Call a stored reply unreadable: only a replay gets it from now on, and a new one may be stored.

        Raises `OutputError` where that could not be written.
        """
        await self._written(lambda: self._writer.execute(_REJECT, (bytes.fromhex(key),)))

    async def _look(self, query: str, key: str) -> list[tuple[int, bytes]]:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._reader.execute(query, (bytes.fromhex(key),)).fetchall()
            except sqlite3.DatabaseError as error:
                if is_damaged(error):
                    self.stats.damaged += 1
                    return []
                if not is_busy(error) or time.monotonic() > deadline:
                    raise self._trouble(error) from error
            await asyncio.sleep(0.005)  # another process mends the log after a crash

    def _set_aside(self, row: int) -> None:
        """Take a damaged row out of the way of a new answer."""
        self.stats.damaged += 1
        if self._thread is not None:
            self._jobs.put(_Job(lambda: self._writer.execute(_SET_ASIDE, (row,))))

    async def _written(self, do: Callable[[], Any]) -> Any:
        if self._thread is None:
            raise RuntimeError(f"{self.path} is closed, or was opened for reading only")
        result = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(do, result))
        return await result

    # What follows runs in the writer's thread.

    def _write(self) -> None:
        """Do what waits in one transaction, and settle it when that is durable."""
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
                except Exception as error:  # this job's own fault, such as an option that is no JSON
                    job.error = error
            self._writer.executemany(_COUNT, counts)
            self._writer.execute("COMMIT")
            self.stats.commits += 1
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")
            for job in jobs:
                job.error = self._trouble(error)

    def _insert(self, row: dict[str, Any]) -> Answer | None:
        """Add a row, unless its question is answered: then that answer, and nothing is added."""
        if self._writer.execute(_INSERT, row).rowcount:
            self.stats.stored += 1
            return None
        ((number, standing),) = self._writer.execute(_ANSWERED, (row["key"],)).fetchall()
        try:
            answer = unpack_answer(standing)
        except DamagedError:
            self._writer.execute(_SET_ASIDE, (number,))
            return self._insert(row)
        self.stats.known += 1
        return answer

    def _news(self) -> list[tuple[str, int]]:
        """Our statistics since the last time, to be added to those of all runs."""
        now = {name: getattr(self.stats, name) for name in COUNTED}
        news = [(name, now[name] - self._counted[name]) for name in COUNTED if now[name] != self._counted[name]]
        self._counted = now
        return news

    def _trouble(self, error: sqlite3.Error) -> OutputError:
        if is_busy(error):
            return OutputError(locked(self.path))
        if is_damaged(error):
            return OutputError(damaged_file(self.path, error))
        return OutputError(f"{self.path}: the store cannot be used ({error}); see to the disk, then run again")


def _settle(jobs: list[_Job]) -> None:
    """Tell those who wait, every loop once."""
    waiting: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        if job.result is not None:
            waiting.setdefault(job.result.get_loop(), []).append(job)
    for loop, its in waiting.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle_here, its)


def _settle_here(jobs: list[_Job]) -> None:
    for job in jobs:
        job.settle()


_ANSWERED = f"SELECT id, answer FROM entries WHERE key = ? AND status = '{ANSWERED}'"
_OTHERS = f"SELECT id, answer FROM entries WHERE key = ? AND status <> '{ANSWERED}' ORDER BY id DESC"
_REJECT = f"UPDATE entries SET status = '{UNREADABLE}' WHERE key = ? AND status = '{ANSWERED}'"
_SET_ASIDE = f"UPDATE entries SET status = '{DAMAGED}' WHERE id = ?"
_INSERT = f"""
INSERT INTO entries (key, kind, status, source, model, template, asked, answer, prompt_tokens, completion_tokens,
                     cost, seconds, attempts, created)
VALUES (:key, :kind, :status, :source, :model, :template, :asked, :answer, :prompt_tokens, :completion_tokens,
        :cost, :seconds, :attempts, :created)
ON CONFLICT (key) WHERE status = '{ANSWERED}' DO NOTHING"""
_COUNT = """
INSERT INTO counts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"""
