"""From cases with relations to results rows: the jobs for the engine, and the rows from its posteriors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

import orjson

from fcjax.core.errors import Fault, InputError
from fcjax.core.records import Atom, Case, Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.scoring.measures import K, f1_at_k, k_of, recall_at_k
from fcjax.scoring.rows import DIGITS, RESULTS_VERSION, Row, case_row, uncertain, unscored_row
from fcjax.scoring.settings import Settings
from fcjax.stages.coverage import case_coverage

if TYPE_CHECKING:
    from fcjax.inference.posterior import Posterior
    from fcjax.scoring.feedback import Feedback

FEEDBACK_VERSION: Final = 1
"""Part of the fingerprint of every row with feedback; increment it when the same case gets different feedback."""

_FAULTS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Job:
    """A case that is ready for the engine."""

    case: Case
    graph: FactGraph
    fingerprint: str = ""


class Fingerprints:
    """Fingerprints of what a row is made from: the version of the results, the settings with K, and the case."""

    def __init__(self, settings: Settings, *, feedback: bool = False):
        named = {"results": RESULTS_VERSION, **settings.resolved()}
        named["limits"] = _as_floats(named["limits"])
        if feedback:
            named["feedback"] = FEEDBACK_VERSION
        self._settings = orjson.dumps(_as_floats(named), option=orjson.OPT_SORT_KEYS)

    def of(self, digest: bytes) -> str:
        """The fingerprint of the row of a case with this `digest`."""
        return hashlib.blake2b(self._settings + digest, digest_size=16).hexdigest()


def _as_floats(values: dict[str, Any]) -> dict[str, Any]:
    """The same values with every number as a float: 1, 1.0 and those of numpy are one setting."""
    return {name: float(value) if isinstance(value, Real) else value for name, value in values.items()}


def job(
    case: Case, settings: Settings, lack: str | None = None, fingerprint: str = "", *, coverage: bool = False
) -> Job | Row:
    """The engine's job for a case, or its row if no inference is needed; that one has the `coverage` if it is wanted.

    `lack` is the reason why the case cannot be scored yet, if a stage is missing.
    """

    def unscored(status: Status, reason: str, atoms: tuple[Atom, ...] | None = case.atoms) -> Row:
        row = unscored_row(case.id, status, reason, fingerprint, atoms)
        return with_coverage(row, case) if coverage else row

    if case.status.failed:
        reason = case.extra.get("reason")
        reason = reason if isinstance(reason, str) and reason else f"the input gives the case the status {case.status}"
        return unscored(case.status, reason)
    if lack:
        return unscored(Status.INVALID_INPUT, lack)
    if not case.atoms:
        return unscored(Status.NO_ATOMS, "the response has no atoms", None)
    try:
        return Job(case, settings.graph(case), fingerprint)
    except InputError as error:
        return unscored(Status.INVALID_INPUT, reason_of(error.faults))


def reason_of(faults: tuple[Fault, ...]) -> str:
    """Faults on one line, without the file's name, so that a row does not depend on the place of its case."""
    texts = []
    for fault in faults[:_FAULTS_SHOWN]:
        place = f"line {fault.line}: " if fault.line is not None else ""
        texts.append(place + str(replace(fault, file=None, line=None, case=None)))
    if len(faults) > _FAULTS_SHOWN:
        texts.append(f"and {len(faults) - _FAULTS_SHOWN} more (`fcjax validate` lists them all)")
    return "; ".join(texts)


def posteriors(jobs: Iterable[Job | Row], settings: Settings) -> list[Posterior]:
    """The posterior of each `Job` among `jobs`."""
    from fcjax.inference.engine import infer

    graphs = [job.graph for job in jobs if isinstance(job, Job)]
    if not graphs:
        return []
    return list(
        infer(
            graphs,
            settings.effort,
            limits=settings.limits,
            method=settings.method,
            i_bound=settings.i_bound,
            backend=settings.backend,
        )
    )


def rows(
    jobs: Sequence[Job | Row], found: Sequence[Posterior], settings: Settings, *, coverage: bool = False
) -> Iterator[Row]:
    """The row of each of `jobs`, with the posteriors `found`. K is 1 if the settings have none.

    With `coverage`, it also has what the atoms cover of the response, which takes longer than all the rest.
    """
    answers = iter(found)
    for one in jobs:
        if isinstance(one, Job):
            row = case_row(
                one.case,
                one.graph,
                next(answers),
                k=settings.k or 1,
                version=settings.version,
                fingerprint=one.fingerprint,
            )
            yield with_coverage(row, one.case) if coverage else row
        else:
            yield one


def feedback_of(jobs: Sequence[Job | Row], made: Sequence[Row], settings: Settings) -> Iterator[Feedback]:
    """The feedback on each of `jobs` (SPEC 6), from their rows `made`; empty without posteriors."""
    from fcjax.scoring.feedback import feedbacks
    from fcjax.scoring.findings import Feedback

    pairs = list(zip(jobs, made, strict=True))
    scored = [(one.case, one.graph, row) for one, row in pairs if isinstance(one, Job)]
    answers = iter(feedbacks(scored, settings.limits))
    for one, row in pairs:
        if isinstance(one, Job):
            yield next(answers)
        else:
            yield Feedback(status=Status(row["status"]), reason=row["reason"], n_failed=len(row["atoms"]))


def with_feedback(row: Row, feedback: Feedback) -> Row:
    """The row with the feedback on its case."""
    return _with(row, "feedback", feedback.to_dict())


def with_coverage(row: Row, case: Case) -> Row:
    """The row with what the atoms of its case cover of the response; unchanged where one of these is not known.

    A response that declines to answer claims nothing.
    """
    if case.status is Status.REFUSED or (found := case_coverage(case)) is None:
        return row
    return _with(row, "coverage", found.to_dict(case.response or ""))


def _with(row: Row, key: str, value: Any) -> Row:
    """The row with one more value before the fingerprint, which comes last."""
    without = {name: other for name, other in row.items() if name != "fingerprint"}
    return {**without, key: value, "fingerprint": row["fingerprint"]}


def completed(row: Row, k: K, fingerprint: str, collapse: str | None = None) -> Row:
    """The row with its fingerprint, and with what depends on all rows of its file: K, R@K and F1@K, and whether the
    answers of the relation model `collapse` (see there), so that no label is certain."""
    if collapse and "answers" in row["diagnostics"]:
        row = uncertain(row, collapse)
    measures = row["measures"]
    if measures is not None:
        n, supported = measures["n_atoms"], measures["n_supported"]
        k = k_of(k, n)
        changed = {"recall_at_k": recall_at_k(supported, k), "f1_at_k": f1_at_k(supported, n, k) or 0.0, "k": k}
        measures = {**measures, **{name: round(value, DIGITS) for name, value in changed.items()}}
    return {**row, "measures": measures, "fingerprint": fingerprint}
