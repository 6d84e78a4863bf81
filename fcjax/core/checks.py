"""Checks of arguments before any work: choices, numbers, and records made by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Final

from fcjax.core.errors import Fault, SettingsError
from fcjax.core.records import DISTRIBUTED, Atom, Case, Context, Distribution, Relation, RelationType, Status

_TEXTS = (str, type(None))

SUM_TOLERANCE: Final = 1e-3
"""How far the probabilities of a distribution may be from adding up to 1."""
_AGREEMENT: Final = 1e-6  # how far a relation's probability may be from that of its distribution


def check_choice(name: str, value: Any, allowed: Iterable[str], *, none: bool = False) -> None:
    """Raise `SettingsError` unless `value` is one of `allowed`, or None if `none` is set."""
    allowed = tuple(allowed)
    if not (isinstance(value, str) and value in allowed) and not (none and value is None):
        names = ", ".join(map(repr, allowed)) + (" or None" if none else "")
        raise SettingsError(f"{name} is {value!r:.60}; allowed: {names}")


def is_number(value: Any, low: float, high: float = float("inf"), *, whole: bool = False) -> bool:
    """Whether `value` is a real number from `low` to `high`; truth values and NaN are not."""
    kind: Any = Integral if whole else Real
    return isinstance(value, kind) and not isinstance(value, bool) and bool(low <= value <= high)


def check_number(
    name: str, value: Any, low: float, high: float = float("inf"), *, whole: bool = False, none: bool = False
) -> None:
    """Raise `SettingsError` unless `is_number` holds, or `value` is None if `none` is set."""
    if not is_number(value, low, high, whole=whole) and not (none and value is None):
        bounds = f"from {low}" + (f" to {high}" if high < float("inf") else "")
        allowed = f"a {'whole ' if whole else ''}number {bounds}{', or None' if none else ''}"
        raise SettingsError(f"{name} is {value!r:.60}; allowed: {allowed}")


def id_faults(id: Any, field: str) -> list[Fault]:
    """Faults of an id: it must be a non-empty string."""
    if isinstance(id, str) and id:
        return []
    return [Fault(f"id is {id!r:.60}; allowed: a non-empty string", field=field)]


def relation_faults(relation: Relation, known: Collection[str], place: str) -> list[Fault]:
    """A relation is between two of the `known` variables and has, unless it failed, a type and a probability."""
    if not isinstance(relation, Relation):
        return [_no_record(relation, "Relation", place)]
    faults: list[Fault] = []
    source, target, p = relation.source, relation.target, relation.probability
    for end, name in (("source", source), ("target", target)):
        if not isinstance(name, str) or name not in known:
            seen = f"{end} is {name!r:.60}; allowed: the id of an atom or context"
            faults.append(Fault(seen, field=f"{place}.{end}"))
    if not faults and source == target:
        faults.append(Fault(f"ties {source!r} to itself; allowed: two different ids", field=place))
    faults += _status_faults(relation.status, place)
    if relation.status is Status.OK or not (faults or relation.status.failed):
        is_probability = (type(p) is float and 0.0 <= p <= 1.0) or is_number(p, 0, 1)
        if not is_probability or not isinstance(relation.type, RelationType):
            seen = f"type {relation.type!r:.40}, probability {p!r:.40}"
            faults.append(Fault(f"{seen}; allowed: a RelationType and a number from 0 to 1", field=place))
        if relation.distribution is not None and not is_distribution(relation.distribution):
            seen = f"distribution is {relation.distribution!r:.60}"
            allowed = f"the probabilities of {', '.join(DISTRIBUTED)}, which add up to 1, or None"
            faults.append(Fault(f"{seen}; allowed: {allowed}", field=place))
    return faults


def is_distribution(value: Any) -> bool:
    """Whether `value` is a `Distribution`: three numbers from 0 to 1 that add up to 1, to `SUM_TOLERANCE`."""
    return (
        isinstance(value, tuple)
        and len(value) == len(DISTRIBUTED)
        and all(is_number(p, 0, 1) for p in value)
        and abs(sum(value) - 1) <= SUM_TOLERANCE
    )


def parse_distribution(value: Any) -> Distribution | None:
    """The distribution of an object of probabilities by answer, scaled to add up to 1; None where it is not one."""
    if not (isinstance(value, Mapping) and value.keys() == {*map(str, DISTRIBUTED)}):
        return None
    numbers = tuple(value[answer] for answer in DISTRIBUTED)
    if not is_distribution(numbers):
        return None
    scale = 1.0 if abs(sum(numbers) - 1) <= 1e-9 else sum(numbers)  # to the byte where there is nothing to do
    entailment, contradiction, neutral = (float(p / scale) for p in numbers)
    return entailment, contradiction, neutral


def contradicted(type: RelationType, p: float, q: Sequence[float]) -> tuple[str, str] | None:
    """What of a relation contradicts its distribution, and how: (`type` or `probability`, words); None where both
    follow from it, to 1e-6 (SPEC 2, 9).

    The type is the likeliest answer, of equal ones any, and the probability is that answer's. An equivalence is an
    entailment in both orders.
    """
    own = DISTRIBUTED.index(RelationType.ENTAILMENT if type is RelationType.EQUIVALENCE else type)
    best = max(range(len(DISTRIBUTED)), key=lambda i: q[i])
    if q[own] < q[best] - _AGREEMENT:
        seen = f"type is '{type}', and the likeliest answer of the distribution is '{DISTRIBUTED[best]}'"
        return "type", f"{seen}; allowed: that answer, or no distribution"
    if abs(q[own] - p) > _AGREEMENT:
        seen = f"probability is {p:.7g}, and the distribution has {q[own]:.7g} for '{DISTRIBUTED[own]}'"
        return "probability", f"{seen}; allowed: the same number, or no distribution"
    return None


def case_faults(case: Case) -> list[Fault]:
    """Every fault of a case that prevents building its graph. Relations agree with their distributions."""
    if not isinstance(case, Case):
        return [_no_record(case, "Case", "case")]
    known: dict[str, str] = {}  # what each id stands for: atoms and contexts are variables of one graph
    faults = id_faults(case.id, "id")
    for key, records in (("atoms", case.atoms), ("contexts", case.contexts)):
        kind: type[Atom | Context] = Atom if key == "atoms" else Context
        for i, record in enumerate(records or ()):
            place = f"{key}[{i}]"
            if not isinstance(record, kind):
                faults.append(_no_record(record, kind.__name__, place))
                continue
            wrong = id_faults(record.id, f"{place}.id")
            if not wrong and record.id in known:
                seen = f"id is {record.id!r}, already the id of another {known[record.id]}"
                wrong = [Fault(f"{seen}; allowed: a unique id", field=f"{place}.id")]
            elif not wrong:
                known[record.id] = key.removesuffix("s")
            faults += wrong + _status_faults(record.status, place)
            faults += _atom_faults(record, place) if isinstance(record, Atom) else _context_faults(record, place)
    for i, atom in enumerate(case.atoms or ()):
        if isinstance(atom, Atom):
            faults += _own_faults(atom, known, f"atoms[{i}].contexts")
    for i, relation in enumerate(case.relations or ()):
        place = f"relations[{i}]"
        wrong = relation_faults(relation, known, place)
        if not wrong and relation.distribution is not None and not relation.status.failed:
            assert relation.type is not None  # else it had a fault, as the next
            assert relation.probability is not None
            if found := contradicted(relation.type, relation.probability, relation.distribution):
                wrong = [Fault(found[1], field=f"{place}.{found[0]}")]
        faults += wrong
    return faults


def _atom_faults(atom: Atom, place: str) -> list[Fault]:
    faults: list[Fault] = []
    if not isinstance(atom.text, str):
        faults.append(Fault(f"text is {atom.text!r:.60}; allowed: a string", field=f"{place}.text"))
    return faults


def _own_faults(atom: Atom, known: Mapping[str, str], place: str) -> list[Fault]:
    """The contexts that an atom names are the case's."""
    own = atom.contexts
    if own is None:
        return []
    if isinstance(own, str) or not all(isinstance(name, str) for name in own):
        return [Fault(f"contexts is {own!r:.60}; allowed: ids of contexts, or None", field=place)]
    return [
        Fault(f"the entry is {name!r:.60}; allowed: the id of one of the case's contexts", field=f"{place}[{k}]")
        for k, name in enumerate(own)
        if known.get(name) != "context"
    ]


def _context_faults(context: Context, place: str) -> list[Fault]:
    faults = [
        Fault(f"{key} is {text!r:.60}; allowed: a string, or None", field=f"{place}.{key}")
        for key, text in (("text", context.text), ("snippet", context.snippet))
        if not isinstance(text, _TEXTS)
    ]
    if context.prior is not None and not is_number(context.prior, 0, 1):
        seen = f"prior is {context.prior!r:.60}; allowed: a number from 0 to 1, or None"
        faults.append(Fault(seen, field=f"{place}.prior"))
    return faults


def _status_faults(status: Any, place: str) -> list[Fault]:
    if isinstance(status, Status):
        return []
    return [Fault(f"status is {status!r:.60}; allowed: a Status", field=f"{place}.status")]


def _no_record(value: Any, kind: str, place: str) -> Fault:
    return Fault(f"is a {type(value).__name__}; allowed: a {kind}", field=place)
