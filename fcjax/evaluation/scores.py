"""Scores of a response beside the measures of SPEC 5, from a judge or an assessor; one row per response.

A row has measures that a results row may hold, `<name>` with `<name>_worst` and `<name>_best` if something failed, so
that `Comparison` can compare them like all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fcjax.core.records import Case, Status
from fcjax.correction.evidence_reuse import statement_key
from fcjax.evaluation.assessors.assessor import Assessor
from fcjax.evaluation.judge import SAME, Coverage, Equivalence
from fcjax.evaluation.texts import text_scores
from fcjax.scoring.rows import DIGITS, Row
from fcjax.scoring.summary import has_failed
from fcjax.stages.answers import AT_ONCE, Ask, Reject, each
from fcjax.stages.atomize import Atomizer

TEXTS = ("rouge_l", "bleu")
EQUIVALENT = "equivalent"


def reference_of(case: Case) -> str | None:
    """The reference response of a case: its `reference`, if that is a text."""
    found = case.extra.get("reference")
    return found if isinstance(found, str) and found.strip() else None


def compared_texts(pairs: Iterable[tuple[str | None, str | None]]) -> list[dict[str, float]]:
    """ROUGE-L and BLEU of each (response, reference); empty if either is missing."""
    found = text_scores(pairs)
    return [{name: round(value, DIGITS) for name, value in (one or {}).items()} for one in found]


@dataclass(frozen=True, kw_only=True)
class FactExtraction:
    """Extracts the facts of a case's evidence: from its first `contexts` texts, at most `most` facts."""

    most: int
    contexts: int
    atomizer: Atomizer = field(default_factory=Atomizer)

    async def run(self, case: Case, ask: Ask, reject: Reject) -> Row:
        """A row with `facts`, and the number of texts that failed; facts in the same words are merged."""
        given = [one for one in case.contexts or () if one.evidence and not one.status.failed][: self.contexts]

        async def facts(text: str) -> list[str] | None:
            found = await self.atomizer.run(Case(id=case.id, query=case.query, response=text), ask, reject)
            if found.status.failed and found.status is not Status.NO_ATOMS:
                return None
            return [atom.text for atom in found.atoms or ()]

        made = await each(facts, [one.evidence for one in given], AT_ONCE)
        unique: dict[str, str] = {}
        for text in (text for one in made if one for text in one):
            unique.setdefault(statement_key(text), text)
        return {"id": case.id, "facts": list(unique.values())[: self.most], "n_failed": made.count(None)}


async def coverage(case: Case, facts: Row, ask: Ask, reject: Reject) -> Row:
    """The share of the facts that a case's response covers: C of SPEC 5; no measure without a response."""
    if case.response is None:
        return {"id": case.id, "measures": {}, "n_failed": 0}
    found = await Coverage().run(case.response, facts["facts"], ask, reject)
    measures = {name: value for name, value in found.to_measures().items() if value is not None}
    return {"id": case.id, "measures": measures, "n_failed": found.n_failed}


async def equivalence(judge: Equivalence, case: Case, ask: Ask, reject: Reject) -> Row:
    """Whether the response of a case says the same as its reference; no measure without a reference."""
    reference = reference_of(case)
    if reference is None or case.response is None:
        return {"id": case.id, "measures": {}, "verdict": None, "n_failed": 0}
    found = await judge.run(case.query, case.response, reference, ask, reject)
    if found.failed:
        ends = {f"{EQUIVALENT}_worst": 0.0, f"{EQUIVALENT}_best": 1.0}
        return {"id": case.id, "measures": ends, "verdict": None, "reason": found.reason, "n_failed": 1}
    return {
        "id": case.id,
        "measures": {EQUIVALENT: float(found.verdict == SAME)},
        "verdict": found.verdict,
        "n_failed": 0,
    }


async def assessment(assessor: Assessor, case: Case) -> Row:
    """The share of a case's atoms that an assessor finds supported, under the assessor's name."""
    if case.status.failed or not (case.response or case.atoms):
        return {"id": case.id, "measures": {}, "status": str(case.status), "n_failed": 0}
    found = await assessor.assess(replace(case, relations=None))
    row, name = found.row, assessor.name
    if row["measures"] is None:
        failed = has_failed(row["status"])
        ends = {f"{name}_worst": 0.0, f"{name}_best": 1.0} if failed else {}
        return {"id": case.id, "measures": ends, "status": row["status"], "n_failed": int(failed)}
    measures = {f"{name}{end}": row["measures"][f"precision{end}"] for end in ("", "_worst", "_best")}
    counts = {"cost": row["cost"], "n_failed": row["measures"]["n_failed"]}
    return {"id": case.id, "measures": measures, "status": row["status"], **counts}


def with_scores(row: Row, *scores: Mapping[str, Any]) -> Row:
    """A results row with other scores added to its measures; unchanged if it has no measures."""
    if row["measures"] is None:
        return row
    more: dict[str, Any] = {}
    for one in scores:
        more |= one
    return {**row, "measures": {**row["measures"], **more}}
