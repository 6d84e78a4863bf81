"""Every fault of a file, as a stream (SPEC 7): file, line, id and field, what was found and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from fcjax.core.errors import Fault, InputError
from fcjax.core.records import Case, Label
from fcjax.io.files.cases import missing_stage, parse_row
from fcjax.io.files.factreasoner import graph_to_case, parse_graph_row
from fcjax.io.files.fields import check_status, probability, rows_of, shown
from fcjax.io.files.formats import Format, detect, is_graph
from fcjax.io.files.objects import Row, kind, read_rows, seen
from fcjax.io.files.streams import Source, display_name
from fcjax.io.files.uai import read_evidence, read_uai

_ROUNDING = 1e-6  # an interval in a file may be off by the rounding of its ends


class Notice(Fault):
    """Something valid but worth checking; it does not prevent the row from being used."""

    __slots__ = ()


def validate(path: Source, format: Format | None = None) -> Iterator[Fault]:
    """The faults of a file, in its order, with `Notice`s among them; never raises for what the file holds.

    The format is detected where it is not given. Of all rows only a hash of the id is kept, to find two with the same.
    """
    try:
        format = format or detect(path)
        match format:
            case "uai":
                read_uai(path)
            case "evidence":
                read_evidence(path)
            case "results":
                yield from _rows_faults(read_rows(path, _check_result), path)
            case _:
                yield from _rows_faults(read_rows(path, _notes_on), path)
    except InputError as error:
        yield from error.faults


Note = tuple[str, str | None]  # a message and the field it is about


def _rows_faults(parts: Iterable[tuple[Any, ...]], path: Source) -> Iterator[Fault]:
    first: dict[int, int] = {}  # hash of an id -> the row that had it first
    rows: Iterator[Row[list[Note]]] = (Row(*part) for part in parts)
    for row in rows:
        yield from row.faults
        place = Fault("", display_name(path), row.line, row.id)
        if row.value is None and row.id == str(row.number):
            continue  # its id is not known, and its number may be another row's id
        before = first.setdefault(hash(row.id), row.number)
        if before != row.number and row.value is not None:
            fault = f"id is {seen(row.id)}, as in row {before}; allowed: a unique id"
            yield replace(place, message=fault, field="id")
        for message, field in row.value or ():
            yield Notice(message, place.file, row.line, row.id, field)


def _notes_on(value: Any, number: int) -> list[Note]:
    """What is odd about a case, a problem or a fact graph, or keeps it from being scored, without being wrong.

    Raises `InputError` with every fault that was found.
    """
    if not (isinstance(value, dict) and is_graph(value)):
        notes = list(_notices(parse_row(value, number)))
        lack = missing_stage(value)
        return [*notes, (f"not ready for `fcjax score`: {lack}", None)] if lack else notes
    graph = parse_graph_row(value, number)
    try:
        graph_to_case(graph, number)
    except InputError as error:
        return [(f"not ready for `fcjax score`: {fault.message} (--atom-prior)", fault.field) for fault in error.faults]
    return []


def _notices(case: Case) -> Iterator[Note]:
    """What is odd about a case without being wrong."""
    if case.atoms == ():
        yield "the list is empty: no atom was found in the response, and the case has no measures", "atoms"
    for i, atom in enumerate(case.atoms or ()):
        if atom.label not in (None, "S", "NS"):
            yield f"label is {seen(atom.label)}; only S and NS are used in comparisons", f"atoms[{i}].label"
    for i, context in enumerate(case.contexts or ()):
        if not context.evidence:
            yield "text and snippet are empty: a relation model has nothing to read", f"contexts[{i}]"
    pairs: dict[tuple[str, str], int] = {}
    for i, relation in enumerate(case.relations or ()):
        before = pairs.setdefault((relation.source, relation.target), i)
        if before != i:
            yield f"the same pair as relations[{before}]; repeated relations multiply", f"relations[{i}]"


def _check_result(value: Any, number: int) -> list[Note]:
    """The notes on a row of a results file: none. Raises `InputError` with every fault that was found."""
    if type(value) is not dict:
        raise InputError(f"the result is {kind(value)}; allowed: a JSON object")
    faults: list[Fault] = []
    if value.get("id") is not None and type(value["id"]) is not str:
        faults.append(Fault(f"id is {seen(value['id'])}; allowed: a string", field="id"))
    if value.get("status") is None:
        faults.append(Fault(f"status is {shown(value, 'status')}; allowed: a status", field="status"))
    else:
        check_status(value["status"], "", faults)
    for key in ("measures", "diagnostics"):
        if not isinstance(value.get(key), (dict, type(None))):
            faults.append(Fault(f"{key} is {kind(value[key])}; allowed: a JSON object, or null", field=key))
    for i, row in rows_of(value, "atoms", faults) or ():
        _check_posterior(row, f"atoms[{i}].", faults)
    if faults:
        raise InputError(*faults)
    return []


def _check_posterior(row: dict[str, Any], place: str, faults: list[Fault]) -> None:
    """An atom's row: probabilities in order, a label there is, a status there is."""
    if type(row.get("id")) is not str:
        faults.append(Fault(f"id is {shown(row, 'id')}; allowed: a string", field=f"{place}id"))
    ends = {
        key: probability(row, key, place, faults, ", or null")
        for key in ("lower", "p", "upper")
        if row.get(key) is not None
    }
    lower, p, upper = (ends.get(key) for key in ("lower", "p", "upper"))
    if p is not None and not (
        (-math.inf if lower is None else lower) - _ROUNDING <= p <= (math.inf if upper is None else upper) + _ROUNDING
    ):
        fault = f"p is {p}, not between lower {lower} and upper {upper}; allowed: lower <= p <= upper"
        faults.append(Fault(fault, field=f"{place}p"))
    labels = [str(label) for label in Label]
    if row.get("label") is not None and row["label"] not in labels:
        allowed = ", ".join(map(seen, labels))
        faults.append(Fault(f"label is {seen(row['label'])}; allowed: {allowed}, or null", field=f"{place}label"))
    if row.get("status") is not None:
        check_status(row["status"], place, faults)
