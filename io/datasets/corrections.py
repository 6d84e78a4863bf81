"""Corrections: rows with a response and a better one, as correctors write them or people compile them.

| what | read from the first of |
|---|---|
| the question | `query`, `input`, `question`, `prompt`; may be missing |
| the response | `response`, `output`, `original` |
| the correction | `best` (its `response`), `corrected`, `correction`, `revised_response`, `revised`, `reference` |
| the feedback | `feedback`: a text, or an object with `findings` as `Feedback.to_dict` makes it; may be missing |
| the atoms | `atoms`, as in cases; else those of the feedback's findings |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from fcjax.core.errors import Fault, InputError
from fcjax.io.datasets.rows import Fields
from fcjax.io.files.objects import Row, kind, read_rows, row_id
from fcjax.io.files.streams import Source

_QUERY: Final = ("query", "input", "question", "prompt")
_RESPONSE: Final = ("response", "output", "original")
_CORRECTED: Final = ("corrected", "correction", "revised_response", "revised", "reference")
_EXCERPT: Final = 500  # characters of a passage in the feedback's text


@dataclass(frozen=True, slots=True)
class CorrectionEvidence:
    """A passage's relation to an atom: an `entailment`, a `contradiction`, ..., with its probability if known."""

    type: str
    text: str
    title: str | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """An atom of the response with the critic's label and evidence."""

    text: str
    label: str | None = None  # refuted, unverified, supported; or S, NS
    evidence: tuple[CorrectionEvidence, ...] = ()


@dataclass(frozen=True, slots=True)
class CorrectionRow:
    """A response and its correction. `failed` is the reason if the corrector found none, which is not a fault."""

    id: str
    query: str | None
    response: str
    corrected: str
    feedback: str  # as text, empty without feedback
    statements: tuple[Statement, ...] = ()
    failed: str | None = None

    @property
    def changed(self) -> bool:
        """Whether the two differ in more than white space."""
        return self.response.split() != self.corrected.split()


def read_corrections(path: Source) -> Iterator[Row[CorrectionRow]]:
    """The corrections of a file (JSON Lines, a list, one object). Raises `InputError` if the file cannot be read."""
    for row in read_rows(path, parse_correction):
        yield Row(*row)


def parse_correction(value: Any, number: int = 1) -> CorrectionRow:
    """The correction that a JSON object describes. Raises `InputError` with every fault."""
    row = Fields(value)
    row.check()
    status, id = row.values.get("status"), row_id(value, number)
    query = row.maybe(*_QUERY)
    best = row.values.get("best")
    if status not in (None, "ok"):
        return CorrectionRow(id, query, "", "", "", failed=f"its status is {status}")
    response = row.text(*_RESPONSE)
    if isinstance(best, dict):
        corrected = Fields(best, "best.", row.faults).text("response")
    else:
        corrected = row.text("best", *_CORRECTED)
    findings = _findings(row)
    statements = _atoms(row) or findings
    words = row.values.get("feedback")
    feedback = words.strip() if isinstance(words, str) else in_words(findings)
    row.check()
    return CorrectionRow(id, query, response, corrected, feedback, statements)


def in_words(statements: Iterable[Statement]) -> str:
    """Statements with their evidence as text: numbered, with the evidence below each."""
    lines = []
    for number, statement in enumerate(statements, 1):
        lines.append(f"{number}. [{statement.label or 'doubtful'}] {' '.join(statement.text.split())}")
        for one in statement.evidence:
            p = "" if one.probability is None else f" ({one.probability:.2f})"
            title = f"{one.title}: " if one.title else ""
            text = " ".join(one.text.split())
            lines.append(f"   - {one.type}{p}: {title}{text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + '…'}")
    return "\n".join(lines)


def _findings(row: Fields) -> tuple[Statement, ...]:
    feedback = row.values.get("feedback")
    if feedback is None or isinstance(feedback, str):
        return ()
    if not isinstance(feedback, dict):
        row.faults.append(Fault(f"feedback is {kind(feedback)}; allowed: a string or an object", field="feedback"))
        return ()
    fields = Fields(feedback, "feedback.", row.faults)
    passages = {one.maybe("id"): one for one in fields.objects("contexts", optional=True)}
    found = []
    for finding in fields.objects("findings", optional=True):
        evidence = []
        for one in finding.objects("evidence", optional=True):
            p, kind_of = one.values.get("probability"), one.text("type")
            passage = passages.get(one.maybe("context") or "", one)  # its text is with it where people wrote it
            title, text = passage.maybe("title"), passage.maybe("text", "snippet") or ""
            evidence.append(CorrectionEvidence(kind_of, text, title, p if isinstance(p, float) else None))
        found.append(Statement(finding.text("text"), finding.maybe("label"), tuple(evidence)))
    return tuple(found)


def _atoms(row: Fields) -> tuple[Statement, ...]:
    atoms = row.objects("atoms", optional=True) if any("text" in atom for atom in _dicts(row)) else []
    return tuple(Statement(atom.text("text"), atom.maybe("label")) for atom in atoms)


def _dicts(row: Fields) -> list[dict[str, Any]]:
    """The atoms, which may lack a text, as those of a results row do."""
    atoms = row.values.get("atoms")
    return [atom for atom in atoms if isinstance(atom, dict)] if isinstance(atoms, list) else []


def usable(row: Row[CorrectionRow], *, unchanged: bool) -> CorrectionRow | str | InputError:
    """The correction of a row, or why it is left out: a reason, or the faults as an error."""
    found = row.value
    if found is None:
        return row.error
    if found.failed:
        return found.failed
    return found if unchanged or found.changed else "nothing was changed"
