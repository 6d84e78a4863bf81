"""FActScore's biographies: responses about people, partly with human labels of their atomic facts.

A row has `topic`, `output`, mostly `input` and `cat` (how rare the person is, and from where); labelled ones have
`annotations`: sentences with `human-atomic-facts`, each of them a `text` and a `label` (S, NS, or IR for irrelevant).
Both are null if annotators had nothing to label.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fcjax.core.records import Atom, Case
from fcjax.io.datasets.rows import Fields, Origin, Unit, read_each
from fcjax.io.files.objects import Row, seen
from fcjax.io.files.streams import Source

_KNOWN: Final = frozenset(("input", "output", "topic", "cat", "annotations"))
_LABELS: Final = ("S", "NS", "IR")


def read_factscore(*paths: Source) -> Iterator[Row[Unit]]:
    """FActScore's files, labelled or not, as cases: one per biography, with the human atoms.

    Irrelevant facts are left out and counted under `irrelevant_facts`. Unlabelled rows have no atoms yet. A row without
    output is skipped. All responses about one person go into the same split.
    """
    return read_each("factscore", paths, _KNOWN, _parse)


def _parse(row: Fields, origin: Origin) -> Unit:
    topic = row.text("topic")
    if isinstance(row.values.get("output"), str) and not row.values["output"].strip():
        return Unit(topic, (), "the model gave no output")
    response = row.text("output")
    query = row.maybe("input") or f"Question: Tell me a bio of {topic}."
    atoms: tuple[Atom, ...] | None = None
    extra: dict[str, Any] = {"source": "factscore", "model": origin.label}
    extra |= {"cat": row.values["cat"]} if row.has("cat") else {}
    if row.has("annotations"):
        atoms, irrelevant = _atoms(row)
        extra |= {"irrelevant_facts": irrelevant} if irrelevant else {}
    id = f"factscore-{origin.label}-{origin.number}"
    case = Case(id=id, query=_question(query), response=response, topic=topic, atoms=atoms, extra=extra)
    return Unit(topic, (case,))


def _question(text: str) -> str:
    """The question without the prefix of FActScore's prompts."""
    return text.strip().removeprefix("Question:").strip()


def _atoms(row: Fields) -> tuple[tuple[Atom, ...], int]:
    """The labelled facts in order, and the number of irrelevant ones."""
    atoms: list[Atom] = []
    irrelevant = 0
    for sentence in row.objects("annotations"):
        original = sentence.maybe("text")
        for fact in sentence.objects("human-atomic-facts", optional=True):
            text, label = fact.text("text"), fact.text("label")
            if label and label not in _LABELS:
                fact.wrong("label", f"one of {', '.join(map(seen, _LABELS))}")
            elif label == "IR":
                irrelevant += 1
            else:
                atoms.append(Atom(id=f"a{len(atoms)}", text=text, original=original, label=label))
    return tuple(atoms), irrelevant
