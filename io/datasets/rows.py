"""The rows of public files, JSON or tables, and checked access to their fields."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fcjax.core.errors import Fault, InputError, SettingsError
from fcjax.core.records import Case
from fcjax.io.files.fields import check_depth
from fcjax.io.files.objects import Item, Row, kind, read_objects, seen
from fcjax.io.files.streams import Source, display_name, opened

BLANKS: Final = frozenset(("", "na", "n/a", "nan", "none", "null"))
"""What tables and annotators write for a missing text, in lower case."""
_MOST_FAULTS: Final = 100  # of a row that are kept


@dataclass(frozen=True, slots=True)
class Unit:
    """The cases of a row. Those of one `group` go into the same split."""

    group: str
    cases: tuple[Case, ...]
    skipped: str | None = None  # why there are none, if that is not a fault
    unknown: tuple[str, ...] = ()  # fields of the row that the data set's format does not have


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of a row, from which ids are made, so that they do not depend on the other rows of a file."""

    label: str  # of the file, unique
    number: int  # of the line in it, or of the item, from 1
    index: int  # of the row among all rows of all files, from 0


class RowFaults(list[Fault]):
    """The faults of a row: the first hundred, and one that says that there are more."""

    def append(self, fault: Fault) -> None:
        if len(self) < _MOST_FAULTS:
            super().append(fault)
        elif len(self) == _MOST_FAULTS:
            super().append(Fault(f"the row has more than {_MOST_FAULTS} faults; the first ones are listed"))


class Fields:
    """The fields of one JSON object. A missing field, or one of another type, becomes a fault that names it."""

    def __init__(self, values: Any, place: str = "", faults: list[Fault] | None = None):
        self.faults: list[Fault] = RowFaults() if faults is None else faults
        self.place = place
        self.values: Mapping[str, Any] = values if isinstance(values, dict) else {}
        if not isinstance(values, dict):
            self.faults.append(
                Fault(f"the row is {kind(values)}; allowed: a JSON object", field=place.rstrip(".") or None)
            )

    def has(self, key: str) -> bool:
        """Whether there is anything but null under a key."""
        return self.values.get(key) is not None

    def text(self, *keys: str) -> str:
        """The text under the first of `keys` that is there; a fault and "" if there is none or it is blank."""
        found = self.maybe(*keys)
        if found is None and not self._complained(keys):
            self.lack(keys, "a non-blank string")
        return found or ""

    def maybe(self, *keys: str) -> str | None:
        """The same, but None without a fault if it is missing, null or blank. Numbers are read as texts."""
        key = next((key for key in keys if self.has(key)), keys[0])
        value = self.values.get(key)
        if type(value) in (int, float):
            return str(value)
        if value is not None and not isinstance(value, str):
            self.wrong(key, "a text")
        return value if isinstance(value, str) and value.strip() else None

    def given(self, *keys: str) -> str | None:
        """The same, and also None for what tables and annotators write for a missing text ("NA")."""
        found = self.maybe(*keys)
        return None if found is None or found.strip().lower() in BLANKS else found

    def items(self, key: str, length: int | None = None, *, optional: bool = False) -> list[Any]:
        """The list under a key, which must have `length` items if that is given."""
        value = self.values.get(key)
        allowed = "a list" if length is None else f"a list of {length}"
        if value is None and optional:
            return []
        if not isinstance(value, list):
            self.lack((key,), allowed) if value is None else self.wrong(key, allowed)
            return []
        if length is not None and len(value) != length:
            self.faults.append(Fault(f"{key} has {len(value)} items; allowed: {length}", field=self.place + key))
            return []
        return value

    def objects(self, key: str, *, optional: bool = False) -> list[Fields]:
        """The objects in the list under a key."""
        found = self.items(key, optional=optional)
        return [Fields(value, f"{self.place}{key}[{i}].", self.faults) for i, value in enumerate(found)]

    def truth(self, key: str) -> bool | None:
        """The truth value under a key; None with a fault if there is none."""
        value = self.values.get(key)
        if not isinstance(value, bool):
            self.lack((key,), "true or false") if value is None else self.wrong(key, "true or false")
            return None
        return value

    def wrong(self, key: str, allowed: str) -> None:
        """Add the fault that the value under a key is of another type."""
        value = self.values.get(key)
        self.faults.append(Fault(f"{key} is {kind(value)}; allowed: {allowed}", field=self.place + key))

    def lack(self, keys: Collection[str], allowed: str) -> None:
        """Add the fault that none of some keys has a value, with the fields that the row has."""
        first, *others = keys
        names = "".join(f" (or {other})" for other in others)
        there = next((f"is {seen(self.values[key])}" for key in keys if key in self.values), "is missing")
        has = ", ".join(self.values) or "no fields"
        has = has if len(has) <= 200 else has[:197] + "..."
        about = f"; the row has {has}" if there == "is missing" else ""
        self.faults.append(Fault(f"{first}{names} {there}; allowed: {allowed}{about}", field=self.place + first))

    def check(self) -> None:
        """Raise `InputError` with the faults so far, if any."""
        if self.faults:
            raise InputError(*self.faults)

    def _complained(self, keys: Collection[str]) -> bool:
        faulty = {fault.field for fault in self.faults}
        return any(self.place + key in faulty for key in keys)


def read_each(
    name: str, paths: Iterable[Source], known: Collection[str], parse: Callable[[Fields, Origin], Unit]
) -> Iterator[Row[Unit]]:
    """The units of the rows of files, one by one; a row with faults has them in place of a unit.

    `parse` may raise `InputError`, or leave its faults in the fields. A case with the id of an earlier row is a fault.
    Raises `InputError` if a file cannot be read at all, `SettingsError` if one is given twice.
    """
    return parse_each(name, read_items(paths), known, parse)


def parse_each(
    name: str,
    items: Iterable[tuple[Origin, str, Item]],
    known: Collection[str],
    parse: Callable[[Fields, Origin], Unit],
) -> Iterator[Row[Unit]]:
    """`read_each` for rows that have been read."""
    ids: dict[int, str] = {}  # of cases with ids from the data; other ids are made from the row, and so unique
    for origin, file, item in items:
        id = f"{name}-{origin.label}-{origin.number}"
        faults, unit = list(item.faults), None
        if item.value is not None or not faults:
            fields = Fields(item.value)
            try:
                fields.check()
                check_depth(fields.values)
                unit = parse(fields, origin)
                fields.check()
            except InputError as error:
                faults += error.faults
        for case in unit.cases if unit and not faults else ():
            here = f"{file}:{item.line or item.number}"
            if not case.id.startswith(id) and (before := ids.setdefault(hash(case.id), here)) != here:
                faults.append(Fault(f"the case's id is {seen(case.id)}, as in {before}; allowed: a unique id"))
        if unit is not None and not faults:
            unknown = tuple(key for key in fields.values if key not in known)
            unit = Unit(unit.group, unit.cases, unit.skipped, unknown)
        yield Row(
            item.number,
            id,
            None if faults else unit,
            tuple(item.located(fault, file, id) for fault in faults),
            item.line,
        )


def read_items(paths: Iterable[Source]) -> Iterator[tuple[Origin, str, Item]]:
    """The rows of files, JSON or tables, each with its origin and the name of its file."""
    index = 0
    paths = list(paths)
    for path, label in zip(paths, labels(paths), strict=True):
        for item in read_table(path) if is_table(path) else read_objects(path):
            yield Origin(label, item.number, index), display_name(path), item
            index += 1


def labels(paths: Iterable[Source]) -> list[str]:
    """A label per file: its name without suffixes, after its folder's if two files have the same name."""
    names = [Path("stdin") if os.fspath(path) == "-" else Path(path) for path in paths]
    short = [_stem(name) for name in names]
    counts = Counter(short)
    found = [
        f"{name.resolve().parent.name}-{stem}" if counts[stem] > 1 else stem
        for name, stem in zip(names, short, strict=True)
    ]
    for label, count in Counter(found).items():
        if count > 1:
            raise SettingsError(f"{count} files are called {label}; allowed: each file once, with a unique name")
    return found


def _stem(path: Path) -> str:
    name = path.name
    for suffix in (".gz", ".jsonl", ".ndjson", ".json", ".csv", ".tsv"):
        name = name.removesuffix(suffix)
    return name or "file"


def is_table(path: Source) -> bool:
    """Whether a file is a table by its name."""
    return os.fspath(path).removesuffix(".gz").endswith((".csv", ".tsv"))


def read_table(path: Source) -> Iterator[Item]:
    """The lines of a table (.csv, .tsv, .gz) as objects with the names of its header; all values are texts.

    A line with more or fewer fields than the header is a fault of its own. Raises `InputError` as `opened` does.
    """
    name = os.fspath(path).removesuffix(".gz")
    with opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        try:
            rows = csv.reader(text, dialect="excel-tab" if name.endswith(".tsv") else "excel", strict=True)
            yield from _table_rows(rows)
        finally:
            text.detach()  # `opened` closes the stream


def _table_rows(rows: Any) -> Iterator[Item]:
    header: list[str] | None = None
    number, line = 0, 1
    while True:
        try:
            row = next(rows, None)
        except (csv.Error, UnicodeDecodeError, OSError, EOFError) as error:
            yield Item(number + 1, None, (Fault(f"reading stopped: {error}", line=line),), line)
            return
        if row is None:
            return
        if row and header is None:
            header = [field.strip() for field in row]
        elif row and header is not None:
            number += 1
            if len(row) != len(header):
                fault = Fault(f"the line has {len(row)} fields; allowed: {len(header)}, as in the header")
                yield Item(number, None, (fault,), line)
            else:
                yield Item(number, dict(zip(header, row, strict=True)), (), line)
        line = rows.line_num + 1
