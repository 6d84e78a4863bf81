"""Corrections as tasks for Label Studio, its labelling interface, and its exports read back as judgements.

Annotators see a question and two answers, A and B; which of them is the original is drawn by a seed for each task and
not shown. They rate each answer on four scales, compare the two by factuality and overall, and judge the statements
that the critic found refuted or unverified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final
from xml.etree import ElementTree as ET

from fcjax.core.errors import Fault
from fcjax.io.datasets.corrections import CorrectionRow
from fcjax.io.datasets.rows import Fields
from fcjax.io.datasets.selection import digest
from fcjax.io.files.objects import Row, read_objects, seen
from fcjax.io.files.streams import Source, display_name

RATINGS: Final = {
    "factuality": "How factual is the answer? (5: no error at all)",
    "relevance": "How well does it answer the question?",
    "completeness": "How much of what a reader needs is there?",
    "coherence": "How coherent and fluent is it?",
}
"""Scales from 1 to 5, asked about each answer."""
COMPARISONS: Final = {
    "more_factual": "Which answer is more factual?",
    "preferred": "Which answer is better, all in all?",
}
"""Comparisons of the two answers."""
VERDICTS: Final = ("true", "false", "cannot tell")
"""The verdicts on a statement."""
MAX_RATING: Final = 5
_DIGITS: Final = 9  # of a statement's number, at most
_SIDES: Final = ("A", "B")
_CHOICES: Final = (*_SIDES, "Neither")


def interface(statements: bool = True) -> str:
    """The labelling interface as XML, for the settings of a Label Studio project."""
    view = ET.Element("View")
    ET.SubElement(view, "Style").text = ".pair { display: flex; gap: 2em } .pair > div { flex: 1 }"
    ET.SubElement(view, "Header", value="Question")
    ET.SubElement(view, "Text", name="question", value="$query")
    pair = ET.SubElement(view, "View", className="pair")
    for side in _SIDES:
        box = ET.SubElement(pair, "View")
        ET.SubElement(box, "Header", value=f"Answer {side}")
        ET.SubElement(box, "Text", name=f"answer_{side}", value=f"${side.lower()}")
        for name, question in RATINGS.items():
            ET.SubElement(box, "Header", value=question, size="5")
            control = {"name": f"{name}_{side}", "toName": f"answer_{side}", "maxRating": str(MAX_RATING)}
            ET.SubElement(box, "Rating", control, required="true")
    for name, question in COMPARISONS.items():
        ET.SubElement(view, "Header", value=question)
        control = {"name": name, "toName": "question", "choice": "single-radio", "showInline": "true"}
        choices = ET.SubElement(view, "Choices", control, required="true")
        for choice in _CHOICES:
            ET.SubElement(choices, "Choice", value=choice)
    if statements:
        ET.SubElement(view, "Header", value="Is each of these statements true?")
        repeat = ET.SubElement(view, "Repeater", on="$statements", indexFlag="{{idx}}")
        place = "$statements[{{idx}}]"
        ET.SubElement(repeat, "Text", name="statement_text_{{idx}}", value=f"{place}.text")
        ET.SubElement(repeat, "Text", name="evidence_text_{{idx}}", value=f"{place}.evidence")
        control = {"name": "statement_{{idx}}", "toName": "statement_text_{{idx}}", "choice": "single-radio"}
        choices = ET.SubElement(repeat, "Choices", control, showInline="true")
        for verdict in VERDICTS:
            ET.SubElement(choices, "Choice", value=verdict)
    ET.SubElement(view, "TextArea", name="comment", toName="question", placeholder="Anything to add?", rows="2")
    ET.indent(view)
    return ET.tostring(view, encoding="unicode") + "\n"


def tasks(corrections: Iterable[CorrectionRow], seed: int = 0) -> Iterator[dict[str, Any]]:
    """A task for each correction, as Label Studio imports them (as a JSON list).

    `corrected_is`, which the interface does not show, says whether A or B is the corrected answer; the export returns
    it. Every task has an id of its own: of corrections with the same id, the second is numbered `ID#2`, the third
    `ID#3`, so that their judgements stay apart.
    """
    ids: set[str] = set()
    for correction in corrections:
        id = _unique(correction.id, ids)
        side = _SIDES[digest(seed, "side", id)[0] % 2]
        a, b = correction.corrected, correction.response
        if side == "B":
            a, b = b, a
        statements = [
            {
                "text": one.text,
                "label": one.label,
                "evidence": "\n".join(f"{piece.type}: {piece.text}" for piece in one.evidence),
            }
            for one in correction.statements
        ]
        data = {"id": id, "query": correction.query or "", "a": a, "b": b, "corrected_is": side}
        yield {"data": {**data, "statements": statements}}


def _unique(id: str, taken: set[str]) -> str:
    """`id`, numbered if it is taken already."""
    found = id if id not in taken else next(name for n in count(2) if (name := f"{id}#{n}") not in taken)
    taken.add(found)
    return found


@dataclass(frozen=True, slots=True)
class Annotation:
    """The judgement of one annotator on one task by one criterion.

    `side` is `original` or `corrected` for a rating and None otherwise. The value of a comparison is `original`,
    `corrected` or `neither`, that of a statement one of `VERDICTS`; a statement has its number in `item` and the
    critic's label in `label`.
    """

    task: str
    annotator: str
    criterion: str
    value: float | str
    side: str | None = None
    item: int | None = None
    label: str | None = None


def read_annotations(path: Source) -> Iterator[Row[tuple[Annotation, ...]]]:
    """The judgements in an export of Label Studio (its JSON format), one row per task.

    Cancelled annotations, and those without any judgement, are left out. Of several by one annotator on one task, the
    latest counts, by `updated_at` or else `created_at`; if either of two has no time, the later in the file. Raises
    `InputError` if the file cannot be read.
    """
    name = display_name(path)
    for item in read_objects(path):
        faults: tuple[Fault, ...] = item.faults
        found: tuple[Annotation, ...] = ()
        id = str(item.number)
        if not faults:
            row = Fields(item.value)
            found, id = _task(row, item.number)
            faults = tuple(row.faults)
        located = tuple(item.located(fault, name, id) for fault in faults)
        yield Row(item.number, id, None if faults else found, located, item.line)


def _task(row: Fields, number: int) -> tuple[tuple[Annotation, ...], str]:
    data = row.values.get("data")
    if not isinstance(data, dict):
        row.lack(("data",), "the task's data (export as JSON, not as JSON-MIN or CSV)")
        return (), str(number)
    fields = Fields(data, "data.", row.faults)
    id = fields.maybe("id") or str(number)
    side = fields.text("corrected_is")
    if side and side not in _SIDES:
        fields.wrong("corrected_is", " or ".join(map(seen, _SIDES)))
    labels = [one.maybe("label") for one in fields.objects("statements", optional=True)]
    by_annotator: dict[str, tuple[datetime | None, list[Annotation]]] = {}
    for annotation in row.objects("annotations"):
        if annotation.values.get("was_cancelled") is True:
            continue
        annotator = _annotator(annotation)
        results = annotation.objects("result")
        if row.faults:
            continue
        judgements = [one for one in (_judgement(result, id, annotator, side, labels) for result in results) if one]
        made, (before, _) = _time(annotation), by_annotator.get(annotator, (None, []))
        if judgements and (made is None or before is None or made >= before):
            by_annotator[annotator] = made, judgements
    return tuple(one for _, judgements in by_annotator.values() for one in judgements), id


def _time(annotation: Fields) -> datetime | None:
    """When an annotation was last changed, or made; None if it does not say so."""
    for key in ("updated_at", "created_at"):
        try:
            found = datetime.fromisoformat(annotation.values[key])
        except (KeyError, TypeError, ValueError):
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


def _annotator(annotation: Fields) -> str:
    """The annotator, whom Label Studio identifies by a number or by an object with `id` and `email`."""
    who = annotation.values.get("completed_by")
    if isinstance(who, Mapping):
        who = who.get("email") or who.get("id")
    if who is None:
        annotation.lack(("completed_by",), "the annotator's number")
    return str(who)


def _judgement(
    result: Fields, task: str, annotator: str, corrected: str, labels: list[str | None]
) -> Annotation | None:
    """The judgement in a result; None for a result without one, such as a comment."""
    name = result.text("from_name")
    value = result.values.get("value")
    values = Fields(value, f"{result.place}value.", result.faults)
    base, _, tail = name.rpartition("_")
    if base in RATINGS and tail in _SIDES:
        rating: Any = values.values.get("rating")
        if type(rating) not in (int, float) or not 1 <= rating <= MAX_RATING:
            values.faults.append(
                Fault(f"rating is {seen(rating)}; allowed: 1 to {MAX_RATING}", field=f"{values.place}rating")
            )
            return None
        return Annotation(task, annotator, base, float(rating), "corrected" if tail == corrected else "original")
    if name in COMPARISONS:
        choice = _choice(values, _CHOICES)
        if choice is None:
            return None
        better = "neither" if choice == "Neither" else "corrected" if choice == corrected else "original"
        return Annotation(task, annotator, name, better)
    if base == "statement" and tail.isdecimal():
        if len(tail) > _DIGITS:
            result.wrong("from_name", f"statement_ and a number of at most {_DIGITS} digits")
            return None
        choice, item = _choice(values, VERDICTS), int(tail)
        label = labels[item] if item < len(labels) else None
        return None if choice is None else Annotation(task, annotator, "statement", choice, None, item, label)
    return None


def _choice(values: Fields, allowed: tuple[str, ...]) -> str | None:
    choices = values.values.get("choices")
    if isinstance(choices, list) and len(choices) == 1 and choices[0] in allowed:
        return str(choices[0])
    names = ", ".join(map(seen, allowed))
    fault = f"choices is {seen(choices)}; allowed: a list of one of {names}"
    values.faults.append(Fault(fault, field=f"{values.place}choices"))
    return None
