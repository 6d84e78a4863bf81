"""The record of a correction: every round, the best one, and the cost.

It is the same for FactCorrector and for the methods that it is compared with (`fcjax.correction.baselines`), which do
not evaluate their revisions: their rounds have no critique.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from fcjax.core.records import Case, Status
from fcjax.core.word_diff import Diff
from fcjax.correction.evidence_reuse import was_searched_for
from fcjax.critic.asker import Cost
from fcjax.critic.critic import Critique
from fcjax.scoring.measures import K, k_of
from fcjax.scoring.rows import Row
from fcjax.scoring.score_cases import completed
from fcjax.scoring.summary import has_failed
from fcjax.stages.traces import without

if TYPE_CHECKING:
    from fcjax.scoring.feedback import Feedback

Stop = Literal["theta", "rounds", "nothing_to_correct", "unchanged", "no_gain", "guard", "done", "failed"]
"""Why a correction ended: Pr reached theta; the rounds were used up; no statement was refuted or unverified; the
revision was the same text, or the method kept the text; its Pr did not rise, or more of it failed; a guard refused it;
the method, which has no Pr, is done; or it failed."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Round:
    """One round of a correction, and why its response was `kept` or not; round 0 is the response as it came.

    `response` is None if the round produced none, `critique` if there was no evaluation. `cost` is that of the round:
    the evaluation of round 0; the making, checking and evaluation of the others. `trace` holds details of the method.
    """

    number: int
    response: str | None
    kept: bool
    why: str
    cost: Cost = field(default_factory=Cost)
    critique: Critique | None = None
    trace: Mapping[str, Any] = field(default_factory=dict)

    @property
    def precision(self) -> float | None:
        """Pr of the response, not rounded; None if unknown."""
        return None if self.critique is None else precision_of(self.critique)

    @property
    def feedback(self) -> Feedback | None:
        return None if self.critique is None else self.critique.feedback


@dataclass(frozen=True, eq=False, slots=True, kw_only=True, repr=False)
class Correction:
    """A correction: the rounds, and the best of them, which is round 0 if no revision was kept.

    `status` is ok if the method ran to its end, whatever it found; else it is the kind of failure, with the `reason`,
    and the best response so far stands. K of all rounds is `k`, or the number of atoms of the first response.
    """

    case: Case  # as it was given
    method: str
    rounds: tuple[Round, ...]
    stop: Stop
    status: Status = Status.OK
    reason: str | None = None
    k: K | None = None
    fingerprint: str = ""

    @property
    def best(self) -> Round:
        return max((one for one in self.rounds if one.kept), key=lambda one: one.number)

    @property
    def response(self) -> str | None:
        """The best response."""
        return self.best.response

    @property
    def changed(self) -> bool:
        """Whether a revision was kept."""
        return self.best.number > 0

    @property
    def corrected(self) -> Case:
        """The case with the best response in place of its own, without the parts that were made of that one; contexts
        stay if the input had them."""
        contexts = None if was_searched_for(self.case) else self.case.contexts
        return Case(
            id=self.case.id,
            query=self.case.query,
            response=self.response,
            topic=self.case.topic,
            contexts=contexts,
            extra=without(self.case),
        )

    @property
    def cost(self) -> Cost:
        return sum((one.cost for one in self.rounds), Cost())

    @property
    def diff(self) -> Diff:
        """The changes from the first response to the best one."""
        return Diff.of(self.case.response or "", self.response or "")

    @property
    def row(self) -> Row:
        """The correction as JSON; `feedback` is that on the first response."""
        first, best = self.rounds[0], self.best
        return {
            "id": self.case.id,
            "status": str(self.status),
            "reason": self.reason,
            "method": self.method,
            "query": self.case.query,
            "response": self.case.response,
            "best": {"round": best.number, **_scored_row(best, self._k)},
            "trajectory": [_round_row(one, self._k) for one in self.rounds],
            "stop": self.stop,
            "changed": self.changed,
            "feedback": None if first.feedback is None else first.feedback.to_dict(),
            "diff": self.diff.text(),
            "cost": self.cost.to_dict(),
            "fingerprint": self.fingerprint,
        }

    @property
    def _k(self) -> float:
        """The K of every round (SPEC 5)."""
        measures = None if (first := self.rounds[0].critique) is None else first.row["measures"]
        n = 1 if measures is None else measures["n_atoms"]
        return max(n, 1) if self.k is None else k_of(self.k, n)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        failed = f"{self.status}: " if self.status.failed else ""
        yield f"Correction({self.case.id!r}: {self._summary()}; {failed}{self.reason})"
        yield from (f"  round {one.number}: {_round_text(one)}" for one in self.rounds)
        if self.changed:
            yield f"  {self.diff.text()}"

    def _summary(self) -> str:
        before, after = self.rounds[0].precision, self.best.precision
        gain = "" if before is None or after is None else f"Pr {before:.2f} -> {after:.2f}, "
        cost = self.cost
        dollars = "" if not cost.dollars else f", ${cost.dollars:.4f}"
        return f"{gain}{'changed' if self.changed else 'unchanged'}, {cost.prompts:,} prompts{dollars}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{one.number}</td><td>{'' if one.precision is None else format(one.precision, '.2f')}</td>"
            f"<td>{one.cost.prompts:,}</td><td style='text-align:left'>{'kept' if one.kept else 'not kept'}: "
            f"{html.escape(one.why)}</td></tr>"
            for one in self.rounds
        )
        failed = (
            f"<p><b>{html.escape(self.status)}</b>: {html.escape(self.reason or '')}</p>" if self.status.failed else ""
        )
        return (
            f"<p>{html.escape(self._summary())}</p>{failed}{self.diff._repr_html_()}"
            f"<table><tr><th>round</th><th>Pr</th><th>prompts</th><th></th></tr>{rows}</table>"
        )


def precision_of(critique: Critique) -> float | None:
    """Pr = S / n, not rounded (SPEC 5); None without measures."""
    measures = critique.row["measures"]
    return None if measures is None else measures["n_supported"] / measures["n_atoms"]


def with_k(row: Row, k: K) -> Row:
    """The row of a correction with another K: that of its data set, or of the first response (SPEC 5)."""
    if (first := row["trajectory"][0]["measures"]) is not None:
        k = k_of(k, first["n_atoms"])

    def again(part: Row) -> Row:
        return {**part, "measures": completed({"measures": part["measures"]}, k, "")["measures"]}

    return {**row, "best": again(row["best"]), "trajectory": [again(part) for part in row["trajectory"]]}


def _round_text(one: Round) -> str:
    pr = "" if one.precision is None else f"Pr {one.precision:.2f}, "
    return f"{pr}{'kept' if one.kept else 'not kept'}: {one.why}"


def _scored_row(one: Round, k: float) -> Row:
    """A response, and the parts of its results row (SPEC 7)."""
    if one.critique is None:
        return {"response": one.response, "status": None, "reason": None, "measures": None, "atoms": None}
    row = completed(one.critique.row, k, "")
    texts = {atom.id: atom.text for atom in one.critique.case.atoms or ()}
    shown = ("id", "p", "lower", "upper", "label", "certain", "status", "duplicate_of")
    calibration = row["diagnostics"].get("calibration")
    return {
        "response": one.response,
        "status": row["status"],
        "reason": row["reason"],
        "measures": row["measures"],
        "atoms": [
            {"id": atom["id"], "text": texts[atom["id"]], **{key: atom[key] for key in shown[1:] if key in atom}}
            for atom in row["atoms"]
        ],
        **({} if calibration is None else {"calibration": calibration}),
    }


def _round_row(one: Round, k: float) -> Row:
    return {
        "round": one.number,
        "kept": one.kept,
        "why": one.why,
        **_scored_row(one, k),
        "feedback": None if one.feedback is None else one.feedback.to_dict(texts=False),
        "cost": one.cost.to_dict(),
        **({"trace": dict(one.trace)} if one.trace else {}),
    }


def not_started(case: Case, method: str, status: Status, reason: str, first: Round | None = None) -> Correction:
    """The correction of a case that cannot be corrected; its response stands."""
    first = first or Round(number=0, response=case.response, kept=True, why=reason)
    stop: Stop = "failed" if has_failed(status) else "nothing_to_correct"
    return Correction(
        case=case, method=method, rounds=(replace(first, why=reason),), stop=stop, status=status, reason=reason
    )
