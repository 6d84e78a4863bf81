"""The fields of a JSON object, checked: each function adds the faults that it finds to a list and continues.

`place` is the path of the object, ending in a dot, or empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fcjax.core.checks import parse_distribution
from fcjax.core.errors import Fault, InputError
from fcjax.core.records import DISTRIBUTED, Distribution, Status
from fcjax.io.files.objects import is_deeper, kind, seen

TEXTS = {str, type(None)}
"""The types that an optional text may have."""

_OBJECTS = {dict}
_NESTED = {dict, list}
_NUMBERS = {float, int}  # bool is a type of its own
_STATUSES = {str(status): status for status in Status}


def rows_of(value: Mapping[str, Any], key: str, faults: list[Fault]) -> Iterable[tuple[int, dict[str, Any]]] | None:
    """The objects of one of a row's lists with their indices; None where the key is missing or null."""
    rows = value.get(key)
    if rows is None:
        return None
    if type(rows) is not list:
        faults.append(Fault(f"{key} is {kind(rows)}; allowed: a list of objects, or null", field=key))
        return None
    if set(map(type, rows)) <= _OBJECTS:
        return enumerate(rows)
    for i, row in enumerate(rows):
        if type(row) is not dict:
            faults.append(Fault(f"the entry is {kind(row)}; allowed: a JSON object", field=f"{key}[{i}]"))
    return ((i, row) for i, row in enumerate(rows) if type(row) is dict)


def register(row: Mapping[str, Any], what: str, known: dict[str, str], key: str, i: int, faults: list[Fault]) -> None:
    """Enter a variable's id among those that relations may name."""
    id = row.get("id")
    if type(id) is not str or not id:
        faults.append(Fault(f"id is {shown(row, 'id')}; allowed: a non-empty string", field=f"{key}[{i}].id"))
    elif id in known:
        fault = f"id is {seen(id)}, already the id of another {known[id]}; allowed: a unique id"
        faults.append(Fault(fault, field=f"{key}[{i}].id"))
    else:
        known[id] = what


def check_texts(texts: Mapping[str, Any], place: str, faults: list[Fault]) -> None:
    """Check that each of `texts`, by key, is a string or None."""
    for key, text in texts.items():
        if type(text) not in TEXTS:
            faults.append(Fault(f"{key} is {seen(text)}; allowed: a string, or null", field=place + key))


def check_status(name: Any, place: str, faults: list[Fault]) -> Status:
    """The status that a row names (SPEC 3)."""
    status = _STATUSES.get(name) if type(name) is str else None
    if status is None:
        allowed = ", ".join(seen(str(status)) for status in Status)
        faults.append(Fault(f"status is {seen(name)}; allowed: {allowed}", field=f"{place}status"))
    return status or Status.OK


def distribution(value: Any, place: str, faults: list[Fault]) -> Distribution | None:
    """The `distribution` of a relation as JSON, scaled to add up to 1; None where it has a fault."""
    parsed = parse_distribution(value)
    if parsed is not None:
        return parsed
    allowed = f"an object with the probabilities of {', '.join(DISTRIBUTED)}, which add up to 1, or null"
    faults.append(Fault(f"distribution is {seen(value)}; allowed: {allowed}", field=f"{place}distribution"))
    return None


def probability(row: Mapping[str, Any], key: str, place: str, faults: list[Fault], more: str = "") -> float | None:
    """A real number from 0 to 1, as a float; strings, truth values and NaN are faults."""
    value: Any = row.get(key)
    if type(value) in _NUMBERS and 0.0 <= value <= 1.0:
        return float(value)
    faults.append(Fault(f"{key} is {shown(row, key)}; allowed: a number from 0 to 1{more}", field=place + key))
    return None


def shown(row: Mapping[str, Any], *keys: str) -> str:
    """A row's value under the first of some keys that it has, as messages quote it."""
    return next((seen(row[key]) for key in keys if key in row), "missing")


MOST_LEVELS: Final = 240
"""Levels to which the lists and objects of a row may be nested: what writes JSON ends at 254, some of them our own."""


def check_depth(value: Mapping[str, Any]) -> None:
    """Raise `InputError` where a key of a row holds what is nested deeper than can be written again."""
    for key, part in value.items():
        if type(part) in _NESTED and is_deeper(part, MOST_LEVELS - 1):
            fault = f"{key} is nested too deep; allowed: at most {MOST_LEVELS} levels of lists and objects"
            raise InputError(Fault(fault, field=key))


def extra_of(row: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The keys of a row that have no field."""
    return {} if row.keys() <= known else {key: value for key, value in row.items() if key not in known}
