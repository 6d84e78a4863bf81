"""Maintenance of a store between runs: statistics, pruning, export and import."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import orjson

from fcjax.core.errors import Fault, InputError, OutputError, SettingsError
from fcjax.io.entries import ANSWERED, CHAT, DAMAGED, DamagedError, canonical
from fcjax.io.files.streams import Line, Source, display_name, read_lines, refuse_input, write_lines
from fcjax.io.rows import NAMES, NUMBERS, RowError, read_row, row_document
from fcjax.io.schema import (
    COUNTED,
    FORMAT,
    INSERT,
    connect,
    damaged_file,
    is_busy,
    is_damaged,
    locked,
    patiently,
    unwritable,
)

_MOST_FAULTS: Final = 1000  # of an import that are kept; all are counted
_PACK: Final = 16 << 20  # bytes of lines that are imported in one transaction, in addition to one line
_SPAN: Final = 1000  # rows that are read or deleted at a time, so that other processes never wait long


def inventory(path: Path, *, check: bool = False) -> dict[str, Any]:
    """The content of a store: totals, and one group for each kind, endpoint, model and template.

    `cost` is in US dollars and leaves out the `unpriced` replies, whose price is unknown. `hits`, `misses`, `known`
    (replies that another process had stored first) and `damaged` (rows) are those of all runs. With `check` all pages
    of the file are read, and `faults` lists their faults.

    Raises `InputError` where the store does not exist.
    """
    with _reading(path) as connection:
        faults = [row[0] for row in connection.execute("PRAGMA integrity_check")] if check else None
        groups = [dict(zip(_GROUP, row, strict=True)) for row in connection.execute(_GROUPS)]
        statuses = dict(
            connection.execute("SELECT CAST(status AS TEXT), count(*) FROM entries GROUP BY 1 ORDER BY 2 DESC, 1")
        )
        oldest, newest = connection.execute("SELECT min(created), max(created) FROM entries").fetchone()
        counts = dict(connection.execute("SELECT name, value FROM counts"))
    return {
        "store": os.fspath(path),
        "format": FORMAT,
        "bytes": _size(path),
        "entries": sum(statuses.values()),
        "statuses": statuses,
        **{name: sum(group[name] for group in groups) for name in _GROUP[4:]},
        **{name: counts[name] if isinstance(counts.get(name), int) else 0 for name in COUNTED},
        "oldest": _date(oldest),
        "newest": _date(newest),
        "groups": groups,
        "faults": None if faults is None else [fault for fault in faults if fault != "ok"],
    }


@dataclass(frozen=True, slots=True)
class Pruned:
    """The rows that were deleted, or would be. Sizes are for the whole store, in bytes."""

    entries: int
    size_before: int
    size_after: int


def prune(
    path: Path,
    *,
    before: float | None = None,
    templates: Sequence[str] = (),
    models: Sequence[str] = (),
    kinds: Sequence[str] = (),
    failures: bool = False,
    dry_run: bool = False,
) -> Pruned:
    """Delete the rows that meet all the given conditions, and free the space.

    `before` is in seconds since 1970. Templates, models and kinds are names, or patterns with `*` and `?`. `failures`
    are the rows that a live run does not use. Other processes may use the store meanwhile.

    Raises `SettingsError` where no condition is given, `InputError` where the store does not exist, `OutputError`
    where it cannot be written.
    """
    patterns = {"template": templates, "model": models, "kind": kinds}
    conditions, values = _conditions(before, patterns, failures)
    size = _size(path)
    with _reading(path) as connection:
        (entries,) = connection.execute(f"SELECT count(*) FROM entries WHERE {conditions}", values).fetchone()
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM entries").fetchone()
    if dry_run or not entries:
        return Pruned(entries, size, size)
    connection = connect(path)
    try:
        entries = 0
        for start in range(0, last, _SPAN):
            span = values | {"first": start + 1, "last": start + _SPAN}
            entries += patiently(partial(connection.execute, _DELETE + conditions, span)).rowcount
        patiently(partial(connection.execute, "VACUUM"))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise OutputError(locked(path) if is_busy(error) else unwritable(path, error)) from error
    finally:
        connection.close()
    return Pruned(entries, size, _size(path))


@dataclass(frozen=True, slots=True)
class Exported:
    """The numbers of rows that were written, and of damaged rows that were left out."""

    written: int
    damaged: int


def export(path: Path, out: Source) -> Exported:
    """Write all that a store holds as JSON Lines to `out` (`.gz` compresses it), in the order of arrival.

    A line has the columns of its row, with the question and the answer as objects (see `rows`). Raises `InputError`
    where the store does not exist and `OutputError` where `out` cannot be written.
    """
    refuse_input(out, path)
    damaged = 0

    def lines() -> Iterator[bytes]:
        nonlocal damaged
        with _reading(path) as connection:
            for row in _rows(connection):
                try:
                    if row is None or row[2] == DAMAGED:
                        raise DamagedError("the row is damaged")
                    yield canonical(row_document(row))
                except (DamagedError, TypeError, RecursionError):  # the latter ones of values that JSON cannot hold
                    damaged += 1

    return Exported(write_lines(out, lines()), damaged)


@dataclass(frozen=True, slots=True)
class Imported:
    """The numbers of rows that were added and that the store had already, and the faults of lines that are not rows.

    `faults` holds the first thousand of `n_faults`.
    """

    added: int
    known: int
    faults: tuple[Fault, ...]
    n_faults: int


def import_rows(path: Path, source: Source) -> Imported:
    """Add the rows of a file of JSON Lines, as `export` writes it or made by hand (see `rows`), to a store.

    The store is made where there is none. What is answered there already stays as it is. Raises `InputError` for a file
    that cannot be read, `OutputError` where the store cannot be written.
    """
    lines = read_lines(source)
    first = next(lines, None)  # so that a file that is not there makes no store
    connection = connect(path)
    name = display_name(source)
    total = known = n_faults = 0
    faults: list[Fault] = []
    try:
        for pack in _packs(chain(() if first is None else (first,), lines)):
            rows = []
            for line in pack:
                fault = line.fault
                try:
                    if fault is None:
                        rows.append(read_row(_parsed(line.text), time.time()))
                        continue
                except RowError as error:
                    fault = Fault(str(error), file=name, line=line.number)
                n_faults += 1
                if len(faults) < _MOST_FAULTS:
                    faults.append(fault)
            if not rows:
                continue
            patiently(partial(connection.execute, "BEGIN IMMEDIATE"))
            for row in rows:
                if connection.execute(_SAME, row).fetchone() or not connection.execute(INSERT, row).rowcount:
                    known += 1
            connection.execute("COMMIT")
            total += len(rows)
    except sqlite3.Error as error:
        raise OutputError(locked(path) if is_busy(error) else unwritable(path, error)) from error
    finally:
        connection.close()
    return Imported(total - known, known, tuple(faults), n_faults)


def _packs(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Lines by the thousand; fewer where they are long, as a pack is held in memory."""
    pack: list[Line] = []
    size = 0
    for line in lines:
        pack.append(line)
        size += len(line.text)
        if len(pack) == _SPAN or size > _PACK:
            yield pack
            pack, size = [], 0
    if pack:
        yield pack


def _parsed(text: bytes) -> Any:
    """A line's JSON, half surrogate pairs among it, as `canonical` writes them."""
    try:
        return orjson.loads(text) if b"\\ud" not in text else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"the line is not JSON ({error})") from error


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(path, readonly=True)
    try:
        yield connection
    except sqlite3.DatabaseError as error:
        raise InputError(damaged_file(path, error)) from error
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...] | None]:
    """All rows, in short reads, so that the log of a store that is in use does not grow; None for a spoilt one."""
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM entries").fetchone()
    for start in range(0, last, _SPAN):
        try:
            yield from connection.execute(_READ, (start + 1, start + _SPAN)).fetchall()
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
            for number in range(start + 1, min(start + _SPAN, last) + 1):
                try:
                    yield from connection.execute(_READ, (number, number)).fetchall()
                except sqlite3.DatabaseError:
                    yield None


def _conditions(before: float | None, given: Mapping[str, Sequence[str]], failures: bool) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {}
    parts = []
    if before is not None:
        parts.append("created < :before")
        values["before"] = before
    for column, patterns in given.items():
        if patterns:
            names = {f"{column}{i}": pattern for i, pattern in enumerate(patterns)}
            parts.append("(" + " OR ".join(f":{name} = {column} OR {column} GLOB :{name}" for name in names) + ")")
            values |= names
    if failures:
        parts.append(f"status <> '{ANSWERED}'")
    if not parts:
        raise SettingsError("nothing is selected to prune; give an age, templates, models, a kind or failures")
    return " AND ".join(parts), values


def _size(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return sum(file.stat().st_size for file in (path, log) if file.exists())


def _date(seconds: float | None) -> str | None:
    """A date in ISO 8601; None where there is none, or what stands there is not a date."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return None


_GROUP: Final = (
    *("kind", "source", "model", "template"),
    *("answered", "failed", "prompt_tokens", "completion_tokens", "cost", "unpriced"),
)
_GROUPS = f"""
SELECT CAST(kind AS TEXT), CAST(source AS TEXT), CAST(model AS TEXT), CAST(template AS TEXT),
       sum(status = '{ANSWERED}'), sum(status <> '{ANSWERED}'),
       CAST(total(prompt_tokens) AS INTEGER), CAST(total(completion_tokens) AS INTEGER), coalesce(sum(cost), 0.0),
       sum(status = '{ANSWERED}' AND cost IS NULL AND kind = '{CHAT}')
FROM entries GROUP BY 1, 2, 3, 4 ORDER BY count(*) DESC, 1, 2, 3, 4"""
_SAME = """
SELECT 1 FROM entries
WHERE key = :key AND status = :status AND answer = :answer AND (created = :created OR NOT :dated)"""
_DELETE = "DELETE FROM entries WHERE id BETWEEN :first AND :last AND "
_READ = f"SELECT key, {', '.join((*NAMES, *NUMBERS))}, asked, answer FROM entries WHERE id BETWEEN ? AND ? ORDER BY id"
