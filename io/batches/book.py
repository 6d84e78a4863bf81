"""The book of a folder of batch files: which prompts each file has, what became of them, where a file was sent.

One SQLite file, `batch.sqlite`, for this user alone: it holds prompts, as the request files do, but no key. A request's
`custom_id` is its round and the beginning of its prompt's key in the store, so that the book knows each prompt again
and nothing of another run is mistaken for one.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from fcjax.core.errors import InputError, OutputError
from fcjax.core.folders import private_folder

NAME: Final = "batch.sqlite"
APPLICATION: Final = 0x46434A42  # "FCJB", in the file's header
FORMAT: Final = 1  # counts up when a table changes its meaning
DIGITS: Final = 40  # hex digits of a prompt's key in a `custom_id`; OpenAI allows 512 characters, others 64

ANSWERED: Final = "answered"  # the outcome of a request that has a reply; a failure's is its kind, None waits
EXPIRED: Final = "expired"  # the batch ended before the request's turn came
FEWER: Final = "top_logprobs"  # the server gives fewer alternatives a token; the prompt is asked for fewer
FREE: Final = "constraint"  # the server does not constrain answers like this; the prompt is asked without

_TABLES: Final = (
    """CREATE TABLE prompts (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,  -- in the store
    source TEXT NOT NULL,      -- the endpoint's name, without credentials
    model TEXT NOT NULL,
    template TEXT NOT NULL,
    form TEXT NOT NULL,        -- kind of the form that the answer is constrained to; empty where it is free
    wanted INTEGER,            -- alternatives a token
    asked BLOB NOT NULL        -- the question, see entries.py
)""",
    """CREATE TABLE parts (
    id INTEGER PRIMARY KEY,
    round INTEGER NOT NULL,
    name TEXT NOT NULL UNIQUE, -- of the file of requests
    source TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    most INTEGER,              -- alternatives a token that the server gives, as it was known; null where it was not
    imported INTEGER NOT NULL DEFAULT 0,  -- whether outputs have come in, or none will
    file TEXT,                 -- the server's names of the uploaded file and of the batch
    batch TEXT,
    state TEXT,                -- creating, or the batch's status as the server last gave it
    output TEXT,               -- the server's names of the files of outputs
    errors TEXT,
    note TEXT                  -- what the server said, if it failed
)""",
    """CREATE TABLE requests (
    prompt INTEGER NOT NULL REFERENCES prompts,
    part INTEGER NOT NULL REFERENCES parts,
    outcome TEXT,
    PRIMARY KEY (prompt, part)
) WITHOUT ROWID""",
    "CREATE INDEX by_part ON requests (part, outcome)",
    """CREATE TABLE limits (
    source TEXT NOT NULL,
    model TEXT NOT NULL,
    kind TEXT NOT NULL,        -- top_logprobs or constraint
    value TEXT NOT NULL,       -- how many, or the form that is refused
    PRIMARY KEY (source, model, kind, value)
) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
)
_ID: Final = re.compile(rf"([1-9][0-9]{{0,8}})-([0-9a-f]{{{DIGITS}}})")


@dataclass(frozen=True, slots=True)
class Part:
    """A file of requests, to one model."""

    id: int
    round: int
    name: str
    source: str
    model: str
    requests: int
    bytes: int
    imported: bool
    file: str | None
    batch: str | None
    state: str | None
    output: str | None
    errors: str | None
    note: str | None

    @property
    def under_way(self) -> bool:
        """Whether it is at a server, or has been and its outputs are still to come in."""
        return not self.imported and (self.batch is not None or self.state is not None)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a file, and the row of its prompt; `most` are the alternatives that the file asked for at most."""

    part: int
    prompt: int
    outcome: str | None
    key: bytes
    source: str
    model: str
    template: str
    form: str
    wanted: int | None
    most: int | None
    asked: bytes


_PART: Final = ", ".join(Part.__dataclass_fields__)


class Book:
    """The open book of a folder; `Book.open` makes one."""

    def __init__(self, folder: Path, connection: sqlite3.Connection):
        self.folder = folder
        self.connection = connection

    @classmethod
    def open(cls, folder: Path, *, make: bool = False) -> Self:
        """The book of `folder`, which is made with it where there is none and `make` is set.

        Raises `InputError` where there is none, or it is another program's or damaged, and `OutputError` where it
        cannot be written.
        """
        path = folder / NAME
        if not make and not path.is_file():
            raise InputError(f"{folder}: holds no {NAME}; give the folder that was named with --batch-out")
        try:
            private_folder(folder)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
        except OSError as error:
            raise OutputError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
        with _reported(path):
            connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        try:
            with _reported(path):
                _check(connection, path)
        except BaseException:
            connection.close()
            raise
        return cls(folder, connection)

    @property
    def path(self) -> Path:
        return self.folder / NAME

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of the block, or nothing. Raises `OutputError`."""
        with _reported(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def parts(self, *, round: int | None = None) -> list[Part]:
        """The files, in order: those of a round, or all."""
        only = "" if round is None else f" WHERE round = {round:d}"
        rows = self.connection.execute(f"SELECT {_PART} FROM parts{only} ORDER BY id").fetchall()
        return [Part(*(*row[:7], bool(row[7]), *row[8:])) for row in rows]

    @property
    def round(self) -> int:
        """The number of the last round; 0 before the first."""
        return int(self.connection.execute("SELECT coalesce(max(round), 0) FROM parts").fetchone()[0])

    def outcomes(self, key: bytes) -> list[str]:
        """What came of a prompt, in the order of the rounds, without the requests that have no outcome."""
        return [row[0] for row in self.connection.execute(_OUTCOMES, (key,))]

    def answers(self, source: str, model: str) -> bool:
        """Whether a model has answered any request."""
        return self.connection.execute(_ANSWERS, (source, model)).fetchone() is not None

    def limits(self, source: str, model: str) -> tuple[int | None, frozenset[str]]:
        """The alternatives a token that a model gives at most, None where that is not known, and the kinds of forms
        that it is not to be held to."""
        rows = self.connection.execute("SELECT kind, value FROM limits WHERE source = ? AND model = ?", (source, model))
        found = rows.fetchall()
        most = min((int(value) for kind, value in found if kind == FEWER), default=None)
        return most, frozenset(value for kind, value in found if kind == FREE)

    def request(self, custom_id: str) -> Request | None:
        """The request of this id; None where the folder has none."""
        if not (found := _ID.fullmatch(custom_id)):
            return None
        first = bytes.fromhex(found[2])
        row = self.connection.execute(_REQUEST, (int(found[1]), first, first + b"\xff" * 32)).fetchone()
        return None if row is None else Request(*row)

    def waiting(self) -> dict[int, int]:
        """The requests without an outcome, by the id of their file."""
        return dict(self.connection.execute("SELECT part, count(*) FROM requests WHERE outcome IS NULL GROUP BY part"))

    def note(self, part: int, **changed: Any) -> None:
        """Change columns of a part, durably."""
        columns = ", ".join(f"{name} = :{name}" for name in changed)
        with self.change() as connection:
            connection.execute(f"UPDATE parts SET {columns} WHERE id = :id", {**changed, "id": part})


def custom_id(round: int, key: bytes) -> str:
    """The id of a prompt's request in a round."""
    return f"{round}-{key.hex()[:DIGITS]}"


def written_parts(parts: Iterable[Part]) -> int:
    """The requests in these files."""
    return sum(part.requests for part in parts)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OutputError(f"{path}: cannot be used ({error}); check its disk, or choose another folder") from error
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: is damaged, or no book of batch files ({error}); choose another folder") from error


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables where there are none, and refuse a file that is not ours."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA synchronous = FULL")
    if connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None:  # another process may have been first
            for statement in _TABLES:
                connection.execute(statement)
        connection.execute("COMMIT")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (format_,) = connection.execute("PRAGMA user_version").fetchone()
    if (application, format_) != (APPLICATION, FORMAT):
        raise InputError(f"{path}: is no book of batch files of this fcjax; choose another folder")


_OUTCOMES: Final = """
SELECT outcome FROM requests JOIN prompts ON prompts.id = requests.prompt
WHERE key = ? AND outcome IS NOT NULL ORDER BY part"""
_ANSWERS: Final = f"""
SELECT 1 FROM requests JOIN parts ON parts.id = requests.part
WHERE parts.source = ? AND parts.model = ? AND outcome = '{ANSWERED}' LIMIT 1"""
_REQUEST: Final = """
SELECT requests.part, prompts.id, outcome, key, prompts.source, prompts.model, template, form, wanted, most, asked
FROM prompts JOIN requests ON requests.prompt = prompts.id JOIN parts ON parts.id = requests.part
WHERE parts.round = ? AND key >= ? AND key < ?"""
