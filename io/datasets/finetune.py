"""Corrections as conversations to fine-tune a chat model on: JSON Lines with `messages`, one per correction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fcjax.io.datasets.corrections import CorrectionRow, read_corrections, usable
from fcjax.io.datasets.selection import BuildReport, Selection, Splitter
from fcjax.io.files.streams import Source

SYSTEM: Final = (
    "You correct answers. Given a question, an answer and what is known to be wrong or unconfirmed in it, write the "
    "answer once more with the errors corrected and what is unconfirmed left out. Keep all else as it is, in the same "
    "language and style. Write the corrected answer and nothing else."
)


def messages(query: str | None, response: str, feedback: str = "") -> list[dict[str, str]]:
    """The system and user turns, which also prompt a model that was fine-tuned on these conversations."""
    parts = [f"Question:\n{query.strip()}"] if query and query.strip() else []
    parts.append(f"Answer:\n{response.strip()}")
    parts += [f"Feedback:\n{feedback.strip()}"] if feedback.strip() else []
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "\n\n".join(parts)}]


def conversation(correction: CorrectionRow, *, feedback: bool = True) -> dict[str, Any]:
    """The conversation of a correction: system, user, assistant."""
    asked = messages(correction.query, correction.response, correction.feedback if feedback else "")
    return {"messages": [*asked, {"role": "assistant", "content": correction.corrected.strip()}]}


def conversations(
    path: Source,
    selection: Selection | None = None,
    report: BuildReport | None = None,
    *,
    feedback: bool = True,
    unchanged: bool = False,
) -> Iterator[dict[str, Any]]:
    """The conversations of a file of corrections, in its order; the first `limit` of the selection's split.

    Rows without a correction are skipped and counted, and so are those that changed nothing, unless `unchanged` is set.
    Corrections with the same id are all kept, in the same split, so that none of them leaks into another one. Raises
    `InputError` if the file cannot be read.
    """
    for correction in chosen(path, selection or Selection(), report or BuildReport(), unchanged=unchanged):
        yield conversation(correction, feedback=feedback)


def chosen(path: Source, selection: Selection, report: BuildReport, *, unchanged: bool) -> Iterator[CorrectionRow]:
    """The corrections of a file that a selection takes; the report counts those that are left out."""
    splitter = Splitter(selection.seed or 0)
    for row in read_corrections(path):
        report.rows += 1
        found = usable(row, unchanged=unchanged)
        if isinstance(found, str):
            report.skipped[found] += 1
        elif isinstance(found, Exception):
            report.add(row.faults)
        elif selection.split in (None, "all") or splitter.of(found.id) == selection.split:
            report.cases += 1
            yield found
            if report.cases == selection.limit:
                return
