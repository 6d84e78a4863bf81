"""The JSON values of a file, one after another, each with its place and its faults."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import orjson

from fcjax.core.errors import Fault, InputError
from fcjax.core.words import mended
from fcjax.io.files.streams import LINE_LIMIT, Source, display_name, opened, read_whole, split_lines

Parsed = TypeVar("Parsed")

MOST_LISTS: Final = 8_000_000
"""Lists and objects that one JSON text may have (a line, or a file that is read whole): an empty one takes 64 bytes."""
MOST_VALUES: Final = 32_000_000
"""Values that one JSON text may have, by its commas."""

_MOST_OTHERS: Final = 100_000  # values of a list that are not objects: each is a fault, and they are not rows
_LONG: Final = 1 << 20  # bytes up to which nothing is counted


@dataclass(frozen=True, slots=True)
class Item:
    """One JSON value of a file. `value` is None where nothing could be read; faults may come with a value as well."""

    number: int  # counted from 1: the line's, or the item's in a list
    value: Any
    faults: tuple[Fault, ...] = ()
    line: int | None = None  # None where the whole file is one JSON text
    prefix: str = ""  # what a field's path begins with, e.g. "[2]." in a list
    id: str | int | None = None  # of a line that is not JSON, where its beginning gives one

    def located(self, fault: Fault, name: str, case: str | None = None) -> Fault:
        """`fault`, found inside of this value, with its place in the file."""
        field = self.prefix + fault.field if fault.field else self.prefix.rstrip(".") or None
        return Fault(fault.message, name, self.line or fault.line, case, field)


def read_objects(path: Source, limit: int = LINE_LIMIT) -> Iterator[Item]:
    """The JSON values of a file: one per line, the items of a list, or one object; the content shows which.

    A file named `.jsonl` or `.ndjson` is always read by lines. Lines stream; a list is held as a whole. A line that
    cannot be read is an `Item` with faults and does not end the reading. Raises `InputError` where there is nothing to
    read at all (see `streams.opened`), where a whole file is not JSON, or where it is one text under a name for lines.
    """
    with opened(path) as stream:
        yield from objects_of(stream, display_name(path), limit)


def objects_of(stream: io.BufferedReader[Any], name: str, limit: int = LINE_LIMIT) -> Iterator[Item]:
    """`read_objects` of a stream of text that is open already; `name` is its file's."""
    lines = _has_lines(stream.peek())
    if name.removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        if not lines and stream.peek().lstrip().partition(b"\n")[0].strip() in (b"{", b"["):
            fault = "the file is a multi-line JSON text; allowed in .jsonl: one object per line (name it .json)"
            raise InputError(Fault(fault, file=name))
        lines = True
    if lines:
        yield from _by_lines(stream, name, limit)
    else:
        yield from _as_whole(stream, name)


@dataclass(frozen=True, slots=True)
class Row(Generic[Parsed]):
    """One row of a file: what it describes, or every fault that keeps it from that."""

    number: int  # counted from 1: the line's, or the item's in a list
    id: str  # the row's id; its number where it has none that can be read
    value: Parsed | None
    faults: tuple[Fault, ...] = ()  # empty if and only if there is a value
    line: int | None = None  # None where the whole file is one JSON text

    @property
    def error(self) -> InputError:
        """The faults as an `InputError`."""
        return InputError(*self.faults)


def read_rows(
    path: Source, parse: Callable[[Any, int], Parsed], limit: int = LINE_LIMIT
) -> Iterator[tuple[int, str, Parsed | None, tuple[Fault, ...], int | None]]:
    """The parts of a `Row` for each JSON value of a file; `parse` takes it and its number and raises `InputError`."""
    name = display_name(path)
    for item in read_objects(path, limit):
        faults = item.faults
        parsed = None
        if item.value is not None or not faults:
            try:
                parsed = parse(item.value, item.number)
            except InputError as error:
                known = {fault.field for fault in faults}
                faults += tuple(fault for fault in error.faults if fault.field not in known)
        id = row_id(item.value if item.id is None else {"id": item.id}, item.number)
        if faults:
            yield item.number, id, None, tuple(item.located(fault, name, id) for fault in faults), item.line
        else:
            yield item.number, id, parsed, (), item.line


def row_id(value: Any, number: int) -> str:
    """The id of a row: a string, a whole number read as one, or the row's own number where it gives none."""
    id = value.get("id") if isinstance(value, dict) else None
    if type(id) is int or (type(id) is str and id):
        return str(id)
    return str(number)


def _has_lines(head: bytes) -> bool:
    """Whether a text that begins like this is JSON Lines, and not one JSON text over many lines."""
    first, ended, rest = head.lstrip().partition(b"\n")
    if first.startswith(b"["):
        return first.rstrip().endswith(b"]") and bool(rest.strip())
    return not ended or first.rstrip().endswith(b"}") or rest.lstrip(b"\r\n").startswith(b"{")


def _by_lines(stream: io.BufferedReader[Any], name: str, limit: int) -> Iterator[Item]:
    empty = True
    for line in split_lines(stream, name, limit):
        empty = False
        if line.fault:
            yield Item(line.number, None, (line.fault,), line.number)
        else:
            value, faults = decode(line.text)
            id = None if value is not None else _id_of_broken(line.text)
            yield Item(line.number, value, faults, line.number, id=id)
    if empty:
        raise InputError(Fault("the file has only blank lines; allowed: at least one JSON object", file=name))


def _as_whole(stream: io.BufferedReader[Any], name: str) -> Iterator[Item]:
    text = read_whole(stream, name)
    if not text.strip():
        raise InputError(Fault("the file has only blank lines; allowed: at least one JSON object", file=name))
    value, faults = decode(text)
    del text
    if value is None and faults:
        raise InputError(*(Fault(fault.message, name, fault.line) for fault in faults))
    if not isinstance(value, list):
        yield Item(1, value, faults)
        return
    if sum(not isinstance(item, dict) for item in value) > _MOST_OTHERS:
        fault = f"the file is a list of {len(value):,} values, over {_MOST_OTHERS:,} of them no objects"
        raise InputError(Fault(f"{fault}; allowed: a list of objects", file=name))
    for i, item in enumerate(value):
        own = tuple(_non_finite(item, "")) if faults and _may_be(item) else ()
        yield Item(i + 1, item, own, None, f"[{i}].")


def decode(text: bytes) -> tuple[Any, tuple[Fault, ...]]:
    """The value of a JSON text, with its faults; the value is None where the text is not JSON at all.

    NaN, Infinity and numbers beyond float64 are not JSON: each is a fault that names its field. Half of a character (a
    lone surrogate, as programs leave that cut texts anywhere) is read as U+FFFD.
    """
    if len(text) > _LONG and (text.count(b"[") + text.count(b"{") > MOST_LISTS or text.count(b",") > MOST_VALUES):
        most = f"{MOST_VALUES:,} values and {MOST_LISTS:,} lists and objects"
        return None, (Fault(f"one JSON text has too many values to be held; allowed: {most}, or one object per line"),)
    try:
        return orjson.loads(text), ()
    except orjson.JSONDecodeError as error:
        why = _syntax_fault(text, error)
    try:
        value = json.loads(text.decode(errors="surrogatepass"), parse_int=_integer)
        faults = tuple(_non_finite(value, ""))
        halves = _HALF.search(text) is not None
        value = _mended(value) if halves else value
    except (ValueError, RecursionError):
        return None, (why,)
    return (value, faults) if faults or halves else (None, (why,))


def _integer(digits: str) -> int | float:
    """A whole number as orjson reads it, which cannot write integers beyond 64 bits: they become floats."""
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else float(digits)  # infinity, a fault, beyond float64


_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")  # of a character, as an escape or as bytes


def _mended(value: Any) -> Any:
    """`value` with U+FFFD for each half of a character in its texts and keys."""
    if isinstance(value, str):
        return mended(value)
    if isinstance(value, list):
        return [_mended(part) for part in value]
    if isinstance(value, dict):
        return {mended(key): _mended(part) for key, part in value.items()}
    return value


def _id_of_broken(text: bytes) -> str | int | None:
    """The id at the beginning of an object that is not JSON further on."""
    found = _FIRST_ID.match(text)
    try:
        id = orjson.loads(found[1]) if found else None
    except orjson.JSONDecodeError:
        return None
    return id if isinstance(id, str | int) else None


_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*"'
_FIRST_ID: Final = re.compile(
    rb"\s*+\{\s*+(?:%b\s*+:\s*+(?:%b|-?\d++|true|false|null)\s*+,\s*+)*?\"id\"\s*+:\s*+(%b|-?\d++)\s*+[,}]"
    % (_TEXT, _TEXT, _TEXT),
    re.DOTALL,
)


def _syntax_fault(text: bytes, error: orjson.JSONDecodeError) -> Fault:
    try:
        near = text.decode()[max(error.pos - 20, 0) : error.pos + 20]
    except UnicodeDecodeError as wrong:
        byte = text[wrong.start]
        return Fault(f"byte {byte:#04x} at position {wrong.start + 1} is not UTF-8; save the text again as UTF-8")
    fault = f"not JSON: {error.msg} (column {error.colno}, near {near!r}); allowed: a JSON object"
    return Fault(fault, line=error.lineno)


def _non_finite(value: Any, path: str) -> list[Fault]:
    """The numbers in `value` that are not finite, in their order: the first hundred, and how many more there are.

    It is not recursive: a value may be nested deeper than Python's stack.
    """
    faults: list[Fault] = []
    open_parts: list[Iterator[tuple[str, Any]]] = [iter([(path, value)])]
    while open_parts and len(faults) < _MOST_FAULTS:
        found = next(open_parts[-1], None)
        if found is None:
            open_parts.pop()
            continue
        place, part = found
        if isinstance(part, float) and not math.isfinite(part):
            what = place.rpartition(".")[2] or "the value"
            faults.append(Fault(f"{what} is {seen(part)}; allowed: a finite number", field=place))
        elif isinstance(part, dict | list):
            open_parts.append(_inside(place, part))
    if len(faults) == _MOST_FAULTS and (more := _count_non_finite(value) - _MOST_FAULTS):
        faults.append(Fault(f"{more:,} more numbers are not finite; allowed: finite numbers"))
    return faults


def _count_non_finite(value: Any) -> int:
    """How many numbers in `value` are not finite, without their paths, which take 20 times as long."""
    count = 0
    groups: list[Collection[Any]] = [[value]]
    while groups:
        parts = groups.pop()
        types = set(map(type, parts))
        if float in types:
            numbers = [part for part in parts if type(part) is float]
            count += len(numbers) - sum(map(math.isfinite, numbers))
        if dict in types or list in types:
            groups += [part.values() if type(part) is dict else part for part in parts if type(part) in (dict, list)]
    return count


def _inside(place: str, value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    """What a number that is not finite may be in, of the parts of a value, each with its path."""
    if isinstance(value, dict):
        yield from ((f"{place}.{key}" if place else key, part) for key, part in value.items() if _may_be(part))
    else:
        yield from ((f"{place}[{i}]", part) for i, part in enumerate(value) if _may_be(part))


def _may_be(value: Any) -> bool:
    """Whether a number that is not finite may be in a value."""
    return isinstance(value, dict | list) or (isinstance(value, float) and not math.isfinite(value))


def is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested in `value` more than `levels` deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        inner = (part for one in level for part in (one.values() if isinstance(one, dict) else one))
        level = [part for part in inner if isinstance(part, dict | list)]
        if not level:
            return False
    return bool(level)


def seen(value: Any) -> str:
    """A value as messages quote it: as JSON, cut short. Of a long or deep one, only the beginning is written."""
    if isinstance(value, str):
        value = value[: _QUOTED + 1]
    if not isinstance(value, dict | list | tuple):
        text = json.dumps(value, ensure_ascii=False, default=repr)
    else:
        text = ""
        for piece in json.JSONEncoder(ensure_ascii=False, default=repr).iterencode(value):
            text += piece
            if len(text) > _QUOTED:
                break
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."


_QUOTED: Final = 60  # characters
_MOST_FAULTS: Final = 100  # of numbers in one value; the rest are counted


def kind(value: Any) -> str:
    """A value as messages name it: lists and objects by their kind, the rest as it stands."""
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else seen(value)
