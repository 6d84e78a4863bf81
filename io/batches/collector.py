"""The prompts that a run lacks, collected and written as OpenAI batch requests: JSON Lines, in parts, by rounds.

A run with a collector sends nothing. What the store has is answered, what has failed for good is a failure, and every
other prompt is taken down here; what depends on it waits for the next round. So each round goes one question further,
until nothing is lacking.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import orjson

from fcjax.core.errors import OutputError
from fcjax.core.prompts import Failure, PendingError, Prompt
from fcjax.io.batches.book import EXPIRED, FEWER, FREE, NAME, Book, custom_id
from fcjax.io.constraints import Question
from fcjax.io.entries import pack_prompt
from fcjax.io.files.locks import locked
from fcjax.io.files.streams import replacing
from fcjax.io.http import body_bytes, request_body
from fcjax.io.store import Store
from fcjax.io.tokens import estimated_tokens, longest_answer

MOST_REQUESTS: Final = 50_000
"""Requests of a file, at most, by OpenAI's documentation of batches."""
MOST_BYTES: Final = 200_000_000
"""Bytes of a file, at most, by the same documentation ("200 MB")."""
EMPTY: Final = 2
"""Empty answers to one prompt before it fails, as in `fcjax.io.client`."""

FINAL: Final = frozenset({"content_filter", "refused", "context_overflow", "truncated", "too_large"})
"""Failures that another request for the same prompt would meet again."""
_NO_TRY: Final = (EXPIRED, FEWER, FREE)  # outcomes that say nothing about the prompt
_URL: Final = "/v1/chat/completions"

_DRAFT: Final = """CREATE TABLE lacking (
key BLOB PRIMARY KEY, source TEXT NOT NULL, model TEXT NOT NULL, template TEXT NOT NULL, form TEXT NOT NULL,
wanted INTEGER, most INTEGER, asked BLOB NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, body BLOB NOT NULL
)"""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the requests to a model may use: input tokens, estimated, and output tokens at most."""

    source: str
    model: str
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A file of requests that was written."""

    path: Path
    requests: int
    bytes: int


@dataclass(slots=True)
class Written:
    """What a round asks for. `under_way` prompts are at a server and in no new file; `again` were asked before and
    failed, by kind; `unimported` names files of earlier rounds whose outputs never came, so that all is asked again."""

    round: int
    parts: list[WrittenPart] = field(default_factory=list)
    tokens: list[Tokens] = field(default_factory=list)
    under_way: int = 0
    again: Counter[str] = field(default_factory=Counter)
    unimported: list[str] = field(default_factory=list)
    is_new: bool = True  # False where the files of the last round are the same

    @property
    def requests(self) -> int:
        return sum(part.requests for part in self.parts)


class Collector:
    """Takes down the prompts that a run lacks; `Collector.open` makes one for a folder.

    `tries` is how many failures that may pass a prompt can have before it fails. `lacking` are the prompts that were
    taken down, each counted once.
    """

    def __init__(self, book: Book, tries: int):
        self.book, self.lacking = book, 0
        self._tries = tries
        self._answers: dict[tuple[str, str], bool] = {}
        self._place = book.folder / ".draft.sqlite"
        self._drop_draft()
        self._draft = sqlite3.connect(self._place, isolation_level=None)
        self._draft.execute("PRAGMA journal_mode = OFF")
        self._draft.execute("PRAGMA synchronous = OFF")
        self._draft.execute(_DRAFT)
        self._draft.execute("BEGIN")

    @classmethod
    @contextmanager
    def open(cls, folder: Path, *, tries: int = 8) -> Iterator[Self]:
        """A collector with the book of `folder`, which is made where there is none, and locked. Raises `OutputError`
        and `InputError`."""
        with Book.open(folder, make=True) as book, locked(folder / NAME):
            collector = cls(book, tries)
            try:
                yield collector
            finally:
                collector._draft.close()
                collector._drop_draft()

    def _drop_draft(self) -> None:
        self._place.unlink(missing_ok=True)

    def limits(self, source: str, model: str) -> tuple[int | None, frozenset[str]]:
        """What is known of a model from earlier rounds (see `Book.limits`)."""
        return self.book.limits(source, model)

    async def take(self, question: Question, sent: Prompt, source: str, model: str, store: Store) -> Failure:
        """The failure of a prompt that the store has no reply to, where it is final; else it is taken down, to be asked
        as `sent`, and `PendingError` is raised. Raises `OutputError`."""
        key = bytes.fromhex(question.key)
        if failure := await self._failure(key, source, model, store):
            return failure
        prompt = question.sent
        named = (key, source, model, prompt.template, question.constrained, prompt.top_logprobs)
        sizes = (estimated_tokens(sent), longest_answer(sent))
        row = (*named, self.limits(source, model)[0], pack_prompt(prompt), *sizes)
        try:
            taken = self._draft.execute(_TAKE, (*row, body_bytes(request_body(model, sent))))
        except sqlite3.OperationalError as error:
            raise OutputError(f"{self.book.folder}: cannot be written ({error}); choose another folder") from error
        self.lacking += taken.rowcount
        raise PendingError("the prompt is to be answered by a batch")

    async def _failure(self, key: bytes, source: str, model: str, store: Store) -> Failure | None:
        """What a prompt has failed with, where asking again is of no use."""
        outcomes = [outcome for outcome in self.book.outcomes(key) if outcome not in _NO_TRY]
        if not outcomes:
            return None
        last = outcomes[-1]
        is_final = last in FINAL or (last == "invalid_request" and self._has_answers(source, model))
        if not is_final and outcomes.count(last) < (EMPTY if last == "empty" else self._tries):
            return None
        kept = await store.get(key.hex(), replay=True)
        return kept if isinstance(kept, Failure) else None  # a reply was not readable, or was pruned: it is asked again

    def _has_answers(self, source: str, model: str) -> bool:
        if (source, model) not in self._answers:
            self._answers[source, model] = self.book.answers(source, model)
        return self._answers[source, model]

    def write(self, *, requests: int = MOST_REQUESTS, size: int = MOST_BYTES) -> Written:
        """Write what was taken down into files of at most `requests` requests and `size` bytes, a larger single request
        apart. The same prompts give the same files: of a round that nothing came of yet, they take the places.

        Files are written before the book has them, so that a run that is killed loses nothing and asks nothing twice.
        Raises `OutputError`.
        """
        self._draft.execute("COMMIT")
        self._draft.close()
        connection = self.book.connection
        connection.execute("ATTACH ? AS draft", (str(self._place),))
        try:
            with self.book.change():
                return self._write(connection, requests, size)
        finally:
            connection.execute("DETACH draft")

    def _write(self, connection: sqlite3.Connection, requests: int, size: int) -> Written:
        held = connection.execute(_HOLD_BACK).rowcount
        (count,) = connection.execute("SELECT count(*) FROM draft.lacking").fetchone()
        last = self.book.round
        same = bool(count) and self._is_same(connection, last, count)
        done = Written(last if same or not count else last + 1, under_way=held, is_new=not same)
        done.again.update(dict(connection.execute(_AGAIN).fetchall()))
        if not count:
            return done
        done.tokens = [Tokens(*row) for row in connection.execute(_TOKENS)]
        done.unimported = [name for (name,) in connection.execute(_UNIMPORTED, (done.round,))]
        before = {part.name for part in self.book.parts(round=done.round)}
        for table, column in (("requests", "part"), ("parts", "id")):
            connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT id FROM parts WHERE round = ?)",
                               (done.round,))  # fmt: skip
        connection.execute(_ADD_PROMPTS)
        for source, model in connection.execute("SELECT DISTINCT source, model FROM draft.lacking ORDER BY 1, 2"):
            self._write_parts(connection, done, source, model, requests, size)
        for name in before - {part.path.name for part in done.parts}:
            (self.book.folder / name).unlink(missing_ok=True)
        return done

    def _is_same(self, connection: sqlite3.Connection, last: int, count: int) -> bool:
        """Whether the last round asks for the same, and nothing has come of it."""
        parts = self.book.parts(round=last)
        if any(part.imported or part.under_way for part in parts) or sum(part.requests for part in parts) != count:
            return False
        (others,) = connection.execute(_NOT_IN_ROUND, (last,)).fetchone()
        return not others

    def _write_parts(
        self, connection: sqlite3.Connection, done: Written, source: str, model: str, requests: int, size: int
    ) -> None:
        """Write the requests to a model: by template, and those alike next to each other, for a server's cache."""
        rows = connection.execute(_REQUESTS, (source, model))
        row = rows.fetchone()
        while row is not None:
            number = len(done.parts) + 1
            path = self.book.folder / f"round-{done.round:03d}-part-{number:03d}.jsonl"
            keys: list[tuple[bytes]] = []
            written = 0
            with ExitStack() as opened:
                stream = opened.enter_context(replacing(path, private=True))
                while row is not None:
                    line = _line(custom_id(done.round, row[0]), row[2])
                    if keys and (len(keys) == requests or written + len(line) > size):
                        break
                    stream.write(line)
                    keys.append((row[0],))
                    written, most = written + len(line), row[1]
                    row = rows.fetchone()
            done.parts.append(WrittenPart(path, len(keys), written))
            columns = (done.round, path.name, source, model, len(keys), written, most)
            part = connection.execute(_ADD_PART, columns).lastrowid
            connection.executemany(f"{_ADD_REQUEST} {part:d} FROM prompts WHERE key = ?", keys)


def _line(name: str, body: bytes) -> bytes:
    return b'{"custom_id":%s,"method":"POST","url":"%s","body":%s}\n' % (orjson.dumps(name), _URL.encode(), body)


_TAKE: Final = "INSERT OR IGNORE INTO lacking VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_HOLD_BACK: Final = """
DELETE FROM draft.lacking WHERE key IN (
    SELECT key FROM parts JOIN requests ON requests.part = parts.id JOIN prompts ON prompts.id = requests.prompt
    WHERE imported = 0 AND (batch IS NOT NULL OR state IS NOT NULL) AND outcome IS NULL)"""
_AGAIN: Final = """
SELECT outcome, count(*) FROM (
    SELECT outcome, max(part) FROM draft.lacking JOIN prompts ON prompts.key = lacking.key
    JOIN requests ON requests.prompt = prompts.id WHERE outcome IS NOT NULL GROUP BY prompts.id)
GROUP BY outcome ORDER BY outcome"""
_TOKENS: Final = """
SELECT source, model, sum(input), sum(output) FROM draft.lacking GROUP BY source, model ORDER BY source, model"""
_UNIMPORTED: Final = """
SELECT DISTINCT name FROM draft.lacking JOIN prompts ON prompts.key = lacking.key
JOIN requests ON requests.prompt = prompts.id JOIN parts ON parts.id = requests.part
WHERE outcome IS NULL AND imported = 0 AND round < ? ORDER BY name"""
_NOT_IN_ROUND: Final = """
SELECT count(*) FROM draft.lacking WHERE key NOT IN (
    SELECT key FROM parts JOIN requests ON requests.part = parts.id JOIN prompts ON prompts.id = requests.prompt
    WHERE round = ?)"""
_ADD_PROMPTS: Final = """
INSERT OR IGNORE INTO prompts (key, source, model, template, form, wanted, asked)
SELECT key, source, model, template, form, wanted, asked FROM draft.lacking"""
_REQUESTS: Final = """
SELECT key, most, body FROM draft.lacking WHERE source = ? AND model = ? ORDER BY template, body"""
_ADD_PART: Final = """
INSERT INTO parts (round, name, source, model, requests, bytes, most) VALUES (?, ?, ?, ?, ?, ?, ?)"""
_ADD_REQUEST: Final = "INSERT INTO requests (prompt, part) SELECT id,"
