"""The store's file: its tables, how a store is recognised, and how it is opened."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from fcjax.core.errors import InputError, OutputError
from fcjax.core.folders import private_folder
from fcjax.io.entries import ANSWERED

APPLICATION: Final = 0x46434A58  # "FCJX", in the file's header
FORMAT: Final = 1  # counts up when a table changes its meaning
PATIENCE: Final = 60.0  # seconds to wait for the other processes, each of which holds the file for milliseconds

# `entries` is the journal, in the order of arrival. `kind` is chat for a model's replies, and search for what a source
# of evidence found, which has neither model nor template. `status` is answered, unreadable, outdated, damaged, or a
# failure's kind.
_TABLES = (
    """CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL,         -- SHA-256 of the question
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    source TEXT NOT NULL,      -- the endpoint's or retriever's name, without credentials
    model TEXT NOT NULL,
    template TEXT NOT NULL,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    cost REAL,                 -- US dollars; null where the price is unknown
    seconds REAL,
    attempts INTEGER NOT NULL,
    created REAL NOT NULL,     -- seconds since 1970
    asked BLOB NOT NULL,       -- the question, see entries.py; long columns stand last, out of the way of sums
    answer BLOB NOT NULL       -- the reply, the passages or the failure
)""",
    f"CREATE UNIQUE INDEX answered ON entries (key) WHERE status = '{ANSWERED}'",
    f"CREATE INDEX others ON entries (key) WHERE status <> '{ANSWERED}'",
    "CREATE TABLE counts (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",  # over all runs
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
)

_COLUMNS: Final = {
    "entries": frozenset(re.findall(r"^    (\w+) ", _TABLES[0], re.MULTILINE)),
    "counts": frozenset(("name", "value")),
}
"""The columns of the tables."""

COUNTED: Final = ("hits", "misses", "known", "damaged")  # the names in `counts`

INSERT: Final = f"""
INSERT INTO entries (key, kind, status, source, model, template, asked, answer, prompt_tokens, completion_tokens,
                     cost, seconds, attempts, created)
VALUES (:key, :kind, :status, :source, :model, :template, :asked, :answer, :prompt_tokens, :completion_tokens,
        :cost, :seconds, :attempts, :created)
ON CONFLICT (key) WHERE status = '{ANSWERED}' DO NOTHING"""
"""Adds a row, unless it is an answer to what is answered already."""

Found = TypeVar("Found")


def connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """A connection to the store at `path`, which is made where there is none unless `readonly`.

    The connection never waits for a lock (see `patiently`) and begins no transaction by itself; any one thread at a
    time may use it. A commit is durable, also if the power fails: with a write-ahead log and `synchronous = FULL` every
    commit ends in one fsync of the log. NORMAL would leave that out, which matters only in a power cut, but one fsync
    per group of rows costs little.

    Raises `InputError` for a file that is not a store of fcjax, and `OutputError` where none can be made.
    """
    if readonly and not path.exists():
        raise InputError(
            f"{path}: there is no store there; run with a model first, or specify the store of an earlier run"
        )
    for name in ("", "-wal", "-shm", "-journal"):
        file = path.with_name(path.name + name)
        if file.exists() and not (file.is_file() or file.is_dir()):  # opening a named pipe would wait for ever
            raise _foreign(file, "not a regular file")
    try:
        if not readonly:
            private_folder(path.parent)
            _make_private(path)
        connection = _open(path, readonly)
        try:
            patiently(lambda: _check(connection, path, readonly))
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise OutputError(f"{path}: cannot create a store there ({error.strerror}); specify another file") from error
    except sqlite3.DatabaseError as error:
        if is_busy(error):
            raise OutputError(locked(path)) from error
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise _foreign(path, "not an SQLite database") from error
        if is_damaged(error):
            raise InputError(damaged_file(path, error)) from error
        if is_full(error):
            raise OutputError(unwritable(path, error)) from error
        raise OutputError(f"{path}: the store cannot be opened ({error}); specify another file") from error
    return connection


def _make_private(path: Path) -> None:
    """Make the file where there is none, for this user alone: SQLite gives its log the permissions of the file."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _open(path: Path, readonly: bool) -> sqlite3.Connection:
    if not readonly:
        return _connect(path, "rwc")
    connection = None
    try:
        connection = _connect(path, "rw")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.DatabaseError as error:
        if connection is not None:
            connection.close()
        log = path.with_name(f"{path.name}-wal")
        if not isinstance(error, sqlite3.OperationalError) or is_busy(error) or (log.exists() and log.stat().st_size):
            raise
        return _connect(path, "ro&immutable=1")  # a folder where no log can be made, and so no process writes
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")  # a damaged text is not the end of a run
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _check(connection: sqlite3.Connection, path: Path, readonly: bool) -> None:
    """Check that the file is a store of our format; make it one where it is empty."""
    if _is_empty(connection):
        if readonly:
            raise _foreign(path, "empty")
        _use_log(connection, path)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if _is_empty(connection):  # another process may have been first
                for statement in _TABLES:
                    connection.execute(statement)
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (format_,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise _foreign(path, "a database of another program")
    if format_ != FORMAT:
        raise InputError(
            f"{path}: the store has format {format_}, but this fcjax reads format {FORMAT}; "
            "upgrade fcjax, or specify another file"
        )
    _check_tables(connection, path)
    connection.execute("SELECT 1 FROM entries LIMIT 1").fetchone()
    if not readonly:
        _use_log(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_size_limit = 67108864")


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the tables are ours before any of them is read: a view or a trigger may run for ever."""
    kinds = {name: (kind, sql) for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_schema")}
    if any(kind not in ("table", "index") for kind, _ in kinds.values()):
        raise _foreign(path, "a database with views or triggers")
    for table, columns in _COLUMNS.items():
        kind, sql = kinds.get(table, ("", ""))
        found = [row[1::5] for row in connection.execute(f"PRAGMA table_xinfo({table})")] if kind == "table" else []
        plain = str(sql).upper().startswith("CREATE TABLE") and all(hidden == 0 for _, hidden in found)
        if not plain or {name for name, _ in found} != columns:
            raise _foreign(path, f"a database whose table {table} has other columns")
    if kinds.get("answered", ("", ""))[0] != "index":
        raise _foreign(path, "a database without the index `answered`")


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None


def _use_log(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise OutputError(
            f"{path}: its file system cannot share a store between processes; use a store on a local disk"
        )


def patiently(do: Callable[[], Found]) -> Found:
    """Retry for a minute while other processes hold the file.

    SQLite's own waiting sleeps longer with each try, so that one process of eight may starve; this sleeps at random.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return do()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.001, 0.01))


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether the file itself is damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_full(error: sqlite3.Error) -> bool:
    """Whether the disk has no room left."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def unwritable(path: Path, error: sqlite3.Error) -> str:
    """The message for a store that SQLite cannot write: what was found, in which folder, what to change."""
    if is_full(error):
        remedy = "free some space there or use a store on another disk (--store, or FCJAX_STORE)"
        return f"{path}: the disk of the folder {path.absolute().parent} is full; {remedy}, then run again"
    return (
        f"{path}: the store cannot be used ({error}); check the disk of the folder {path.absolute().parent}, "
        "then run again"
    )


def locked(path: Path) -> str:
    """The message for a store that another process keeps locked."""
    return f"{path}: another process has kept the store locked for {PATIENCE:.0f} s; end it, or specify another store"


def damaged_file(path: Path, error: sqlite3.Error) -> str:
    """The message for a file that SQLite finds malformed."""
    return (
        f"{path}: the store is damaged ({error}); move it away, then run again "
        f"(`sqlite3 {path.name} .recover` may recover part of it)"
    )


def _foreign(path: Path, what: str) -> InputError:
    return InputError(f"{path}: {what}, so not an fcjax store; the file was not changed; specify another file")
