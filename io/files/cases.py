"""Cases (SPEC 7): JSON objects to records and back, reporting every fault of a row and losing nothing.

Keys that are unknown stay in `extra` and are written back. A missing key and a null both mean "not known yet".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import orjson

from fcjax.core.checks import contradicted
from fcjax.core.errors import Fault, InputError
from fcjax.core.records import (
    DISTRIBUTED,
    Atom,
    Case,
    Context,
    Distribution,
    Relation,
    RelationType,
    Status,
    by_label,
)
from fcjax.io.files.fields import (
    TEXTS,
    check_depth,
    check_status,
    check_texts,
    distribution,
    extra_of,
    probability,
    register,
    rows_of,
    shown,
)
from fcjax.io.files.formats import is_graph, is_result
from fcjax.io.files.objects import Row, kind, read_rows, row_id, seen
from fcjax.io.files.streams import LINE_LIMIT, Source, write_lines

Record = TypeVar("Record")

_OK = Status.OK
_NESTED = {dict, list}
_TYPES: dict[Any, RelationType] = {str(type): type for type in RelationType}

_ATOM_KEYS = frozenset(("id", "text", "original", "label", "contexts", "status"))
_CONTEXT_KEYS = frozenset(("id", "title", "text", "snippet", "link", "prior", "summary_confidence", "status"))
_RELATION_KEYS = frozenset(
    ("source", "target", "type", "probability", "status", "method", "distribution", "from", "to", "relation")
)
_CASE_KEYS = frozenset(
    ("id", "query", "response", "topic", "atoms", "contexts", "relations", "status", "input", "output")
)


A_RESULT = "the row is a result of `fcjax score`; allowed: the case that it was made from"


class CaseRow(Row[Case]):
    """One row of a file of cases."""

    __slots__ = ()

    @property
    def case(self) -> Case | None:
        """The case; None where the row has faults."""
        return self.value


def read_cases(path: Source, limit: int = LINE_LIMIT) -> Iterator[CaseRow]:
    """The rows of a file of cases, in order and as a stream; a bad row carries its faults and does not end the stream.

    Reads JSON Lines, a JSON list or one object, plain or gzip-compressed; `-` is standard input. FactReasoner's problem
    files are cases under other names and are read as well. Raises `InputError` where there is nothing to read at all.
    """
    for row in read_rows(path, parse_row, limit):
        yield CaseRow(*row)


def parse_row(value: Any, number: int) -> Case:
    """The case of a row of a file: `parse_case`, and a fault where an unknown key is nested too deep to be written."""
    case = parse_case(value, number)
    records: tuple[Any, ...] = (case, *(case.atoms or ()), *(case.contexts or ()), *(case.relations or ()))
    if any(type(part) in _NESTED for record in records if record.extra for part in record.extra.values()):
        check_depth(value)
    return case


def parse_case(value: Any, number: int = 1) -> Case:
    """The case that a JSON object describes (SPEC 7); one without an id gets `number` for it.

    Raises `InputError` with every fault that was found.
    """
    if type(value) is not dict:
        raise InputError(f"the case is {kind(value)}; allowed: a JSON object")
    faults: list[Fault] = []
    if is_result(value):
        raise InputError(A_RESULT)
    get = value.get
    id = get("id")
    if id is not None and type(id) is not int and (type(id) is not str or not id):
        faults.append(Fault(f"id is {seen(id)}; allowed: a non-empty string", field="id"))
    query, response, topic, status = get("query"), get("response"), get("topic"), get("status")
    if query is None:
        query = get("input")  # FactReasoner's names
    if response is None:
        response = get("output")
    if not {type(query), type(response), type(topic)} <= TEXTS:
        check_texts({"query": query, "response": response, "topic": topic}, "", faults)
    status = _OK if status is None else check_status(status, "", faults)
    known: dict[str, str] = {}  # what each id stands for: atoms and contexts are variables of one graph
    contexts = _contexts(value, known, faults)
    atoms = _atoms(value, known, faults)
    relations = parse_relations(value, "relations", known, faults)
    if faults:
        raise InputError(*faults)
    return Case(
        id=row_id(value, number),
        query=query,
        response=response,
        topic=topic,
        atoms=atoms,
        contexts=contexts,
        relations=relations,
        status=status,
        extra=extra_of(value, _CASE_KEYS),
    )


def missing_stage(value: dict[str, Any]) -> str | None:
    """Why a case, as JSON, cannot be scored yet, with the missing stages; None if it can be."""
    atoms, contexts = value.get("atoms"), value.get("contexts")
    if is_result(value):
        return A_RESULT
    if is_graph(value) or value.get("status") not in (None, "ok"):
        return None
    if atoms is None:
        return "the case has no `atoms`: the output of the stages atomize, retrieve and relate is missing; add it"
    if value.get("relations") is not None or not atoms or contexts == []:
        return None
    if contexts:
        return "the case has atoms and contexts but no `relations`: the output of the stage relate is missing; add it"
    if all(isinstance(atom, dict) and atom.get("contexts") == [] for atom in atoms):
        return None
    return (
        "the case has atoms but no `contexts` and no `relations`: the output of the stages retrieve and relate is "
        "missing; add it"
    )


# The three loops below see every object of every file, so each row is first tested as a whole; only a row that fails
# the test is looked at field by field. Records are made by position, in half the time that their own constructors take.


def _contexts(value: Mapping[str, Any], known: dict[str, str], faults: list[Fault]) -> tuple[Context, ...] | None:
    rows = rows_of(value, "contexts", faults)
    if rows is None:
        return None
    records = []
    for i, row in rows:
        get = row.get
        id, title, text, snippet, link = get("id"), get("title"), get("text"), get("snippet"), get("link")
        prior, confidence, status = get("prior"), get("summary_confidence"), get("status")
        register(row, "context", known, "contexts", i, faults)
        if not (
            (type(title) is str or title is None)
            and (type(text) is str or text is None)
            and (type(snippet) is str or snippet is None)
            and (type(link) is str or link is None)
        ):
            check_texts({"title": title, "text": text, "snippet": snippet, "link": link}, f"contexts[{i}].", faults)
        if prior is not None:
            prior = probability(row, "prior", f"contexts[{i}].", faults, ", or null")
        if confidence is not None:
            confidence = probability(row, "summary_confidence", f"contexts[{i}].", faults, ", or null")
        if status is not None:
            status = check_status(status, f"contexts[{i}].", faults)
        rest = status or _OK, extra_of(row, _CONTEXT_KEYS)
        records.append(_context(id, title, text, snippet, link, prior, confidence, *rest))
    return tuple(records)


def _atoms(value: Mapping[str, Any], known: dict[str, str], faults: list[Fault]) -> tuple[Atom, ...] | None:
    rows = rows_of(value, "atoms", faults)
    if rows is None:
        return None
    records = []
    for i, row in rows:
        get = row.get
        id, text, original, label = get("id"), get("text"), get("original"), get("label")
        contexts, status = get("contexts"), get("status")
        register(row, "atom", known, "atoms", i, faults)
        if type(text) is not str or not text or text.isspace():
            fault = f"text is {shown(row, 'text')}; allowed: a non-empty string"
            faults.append(Fault(fault, field=f"atoms[{i}].text"))
        if not {type(original), type(label)} <= TEXTS:
            check_texts({"original": original, "label": label}, f"atoms[{i}].", faults)
        elif label is not None and label.upper() in ("S", "NS"):
            label = label.upper()
        if contexts is not None:
            contexts = _own_contexts(contexts, known, i, faults)
        if status is not None:
            status = check_status(status, f"atoms[{i}].", faults)
        records.append(_atom(id, text, original, label, contexts, status or _OK, extra_of(row, _ATOM_KEYS)))
    return tuple(records)


def _own_contexts(ids: Any, known: Mapping[str, str], i: int, faults: list[Fault]) -> tuple[str, ...]:
    """The contexts that an atom names, after a look at whether the case has them."""
    if type(ids) is not list:
        fault = f"contexts is {kind(ids)}; allowed: a list of context ids, or null"
        faults.append(Fault(fault, field=f"atoms[{i}].contexts"))
        return ()
    for k, id in enumerate(ids):
        if type(id) is not str or known.get(id) != "context":
            fault = f"the entry is {seen(id)}; allowed: the id of one of the case's contexts"
            faults.append(Fault(fault, field=f"atoms[{i}].contexts[{k}]"))
    return tuple(ids)


def parse_relations(
    value: Mapping[str, Any], key: str, known: Mapping[str, str], faults: list[Fault]
) -> tuple[Relation, ...] | None:
    """The relations under `key`, between the ids that are `known`; faults are added to `faults`.

    `from`, `to` and `relation` are accepted for `source`, `target` and `type`; a type is read in any case of letters.
    A type or probability that does not follow from the relation's `distribution` is a fault (see `contradicted`): the
    encodings would read different answers from it.
    """
    rows = rows_of(value, key, faults)
    if rows is None:
        return None
    records = []
    for i, row in rows:
        get = row.get
        source, target = get("source", get("from")), get("target", get("to"))
        name, p, status, method = get("type", get("relation")), get("probability"), get("status"), get("method")
        if type(source) is not str or type(target) is not str or source not in known or target not in known:
            for end, other, id in (("source", "from", source), ("target", "to", target)):
                if type(id) is not str or id not in known:
                    fault = f"{end} is {shown(row, end, other)}; allowed: the id of an atom or context"
                    faults.append(Fault(fault, field=f"{key}[{i}].{end}"))
        elif source == target:
            fault = f"source and target are both {seen(source)}; allowed: two different ids"
            faults.append(Fault(fault, field=f"{key}[{i}]"))
        status = _OK if status is None else check_status(status, f"{key}[{i}].", faults)
        kind_of = _TYPES.get(name) if type(name) is str else None
        if kind_of is None and not (name is None and status.failed):
            kind_of = _relation_type(row, name, f"{key}[{i}].", faults)
        if type(p) is float and 0.0 <= p <= 1.0:
            pass
        elif p is not None or not status.failed:
            p = probability(row, "probability", f"{key}[{i}].", faults, ", or null if the status is a failure")
        if type(method) not in TEXTS:
            check_texts({"method": method}, f"{key}[{i}].", faults)
        told = given = get("distribution")
        if given is not None:
            told = distribution(given, f"{key}[{i}].", faults)
            if told is not None and kind_of is not None and p is not None and not status.failed:
                faults += _contradiction(kind_of, p, told, given, f"{key}[{i}].")
        records.append(_relation(source, target, kind_of, p, status, method, told, extra_of(row, _RELATION_KEYS)))
    return tuple(records)


def _contradiction(type: RelationType, p: float, q: Distribution, given: Mapping[str, Any], place: str) -> list[Fault]:
    """The fault of a relation that contradicts its distribution, scaled (`q`) and as it was `given`."""
    found = contradicted(type, p, q)
    if found is None or contradicted(type, p, [given[answer] for answer in DISTRIBUTED]) is None:
        return []
    return [Fault(found[1], field=place + found[0])]


def _relation_type(row: Mapping[str, Any], name: Any, place: str, faults: list[Fault]) -> RelationType:
    known = _TYPES.get(name.strip().lower()) if type(name) is str else None
    if known is None:
        allowed = ", ".join(map(seen, _TYPES))
        faults.append(Fault(f"type is {shown(row, 'type', 'relation')}; allowed: {allowed}", field=f"{place}type"))
    return known or RelationType.NEUTRAL


def _maker(record: type[Record]) -> Callable[..., Record]:
    """A constructor of a frozen record that takes its fields by position, in the order of their declaration."""
    names = [field.name for field in fields(record)]  # type: ignore[arg-type]
    scope: dict[str, Any] = {"new": object.__new__, "record": record}
    scope |= {f"set_{name}": getattr(record, name).__set__ for name in names}
    steps = "; ".join(f"set_{name}(it, {name})" for name in names)
    exec(f"def make({', '.join(names)}):\n    it = new(record); {steps}\n    return it", scope)
    make: Callable[..., Record] = scope["make"]
    return make


_atom, _context, _relation = _maker(Atom), _maker(Context), _maker(Relation)


def case_to_dict(case: Case) -> dict[str, Any]:
    """The JSON object of a case: known keys in the order of SPEC 7, then all other keys.

    What is not known yet is left out, and so is a status that is `ok`.
    """
    return {
        **_known(id=case.id, query=case.query, response=case.response, topic=case.topic, status=_named(case.status)),
        **_known(
            atoms=None if case.atoms is None else [_atom_dict(atom) for atom in case.atoms],
            contexts=None if case.contexts is None else [_context_dict(context) for context in case.contexts],
            relations=None if case.relations is None else [relation_to_dict(r) for r in case.relations],
        ),
        **case.extra,
    }


def _atom_dict(atom: Atom) -> dict[str, Any]:
    contexts = None if atom.contexts is None else list(atom.contexts)
    return {
        **_known(id=atom.id, text=atom.text, original=atom.original, label=atom.label),
        **_known(contexts=contexts, status=_named(atom.status)),
        **atom.extra,
    }


def _context_dict(context: Context) -> dict[str, Any]:
    return {
        **_known(id=context.id, title=context.title, text=context.text, snippet=context.snippet, link=context.link),
        **_known(prior=context.prior, summary_confidence=context.summary_confidence, status=_named(context.status)),
        **context.extra,
    }


def relation_to_dict(relation: Relation) -> dict[str, Any]:
    """The JSON object of a relation."""
    q = relation.distribution
    return {
        "source": relation.source,
        "target": relation.target,
        "type": None if relation.type is None else str(relation.type),
        "probability": relation.probability,
        **_known(
            status=_named(relation.status), method=relation.method, distribution=None if q is None else by_label(q)
        ),
        **relation.extra,
    }


def _known(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _named(status: Status) -> str | None:
    return None if status is Status.OK else str(status)


def write_cases(path: Source, cases: Iterable[Case]) -> int:
    """Write cases as JSON Lines, or as a list where the name ends in `.json`; `.gz` compresses. Returns how many.

    The file takes its place when it is complete. Raises `OutputError`.
    """
    return write_lines(path, (orjson.dumps(case_to_dict(case)) for case in cases))
