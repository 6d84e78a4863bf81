"""The result of a case: one row of a results file (SPEC 7), with failures beside values (SPEC 3).

A row is a plain dict, ready for JSON. Its numbers are rounded to 7 digits, intervals outward, and everything else in
it (labels, measures) follows from the rounded numbers, so that a file of rows is complete in itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from fcjax.core.records import Atom, Case, Label, Relation, RelationType, Status
from fcjax.scoring.collapse import REMEDY, AnswerCounts
from fcjax.scoring.human_labels import HUMAN
from fcjax.scoring.measures import AtomCounts, K, case_measures, precision
from fcjax.stages.traces import asked_in_rounds, related

if TYPE_CHECKING:
    from fcjax.graph.fact_graph import FactGraph
    from fcjax.inference.posterior import Posterior

RESULTS_VERSION: Final = 4
"""Part of every fingerprint; increment it when the same case and settings give a different row."""

DIGITS: Final = 7
STRONGEST: Final = 3
"""The number of relations for an atom, and against it, that its row lists."""

Row = dict[str, Any]
Side = Literal["for", "against"]
Values = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
"""`p`, `lower`, `upper` and `certain` of a posterior, by id."""


def unscored_row(
    id: str | None, status: Status, reason: str, fingerprint: str, atoms: Iterable[Atom] | None = None
) -> Row:
    """The row of a case without posteriors; its atoms, if they are known, have the case's status."""
    rows = [_atom_row(atom, None, status, []) for atom in atoms or ()]
    return _row(id, status, reason, rows, None, {}, fingerprint)


def case_row(case: Case, graph: FactGraph, posterior: Posterior, *, k: K, version: str | None, fingerprint: str) -> Row:
    """The row of a case with posteriors from the engine.

    A failed atom has no `p` and no label, does not count in n, and is never `unverified`; the measures include the best
    and worst precision that the failed ones could still lead to. A merged duplicate has `duplicate_of` and does not
    count in n. Where pairs were left out by adaptive asking, `settled` is how sure the label is against them. Where a
    relation model's answers pile up on one label (see `collapse`), no label is certain.
    """
    atoms = case.atoms or ()
    if not atoms:
        return unscored_row(case.id, Status.NO_ATOMS, "the response has no atoms", fingerprint)
    touching = _touching(graph.relations, {atom.id for atom in atoms})
    failures = [relation for relation in case.relations or () if relation.status.failed]
    failed = _failed_relations(case, failures, graph.aliases, version)
    statuses = _atom_statuses(case, graph.aliases, touching, failed)

    values = posterior.p, posterior.lower, posterior.upper, posterior.certain  # each property builds a new mapping
    record = asked_in_rounds(case)
    settled = record.settled if record else {}
    rows: list[Row] = []
    counted: list[tuple[float, Label, bool]] = []
    lost: Counter[Status] = Counter()
    for atom in atoms:
        kept = graph.aliases.get(atom.id, atom.id)
        relations = touching.get(kept, [])
        status = posterior.status if posterior.status.failed else statuses[kept]
        row = _atom_row(atom, values, status, relations)
        if atom.id in settled or kept in settled:
            row["settled"] = settled.get(atom.id, settled.get(kept))
        if kept != atom.id:
            row["duplicate_of"] = kept
        elif status.failed:
            lost[status] += 1
        else:
            counted.append((row["p"], Label(row["label"]), bool(relations)))
        if failed[kept]:
            row["failed_relations"] = failed[kept]
        rows.append(row)

    status, reason = posterior.status, posterior.reason
    if not status.failed:
        status = Status.OK  # the reason may still report an unfinished proof
        if not counted:
            status = lost.most_common(1)[0][0]
            reason = "every atom failed: " + ", ".join(f"{count} {why}" for why, count in sorted(lost.items()))
    n_failed = sum(lost.values())
    measures = None if status.failed else case_measures(counts := AtomCounts.of(counted), k)
    if measures is not None:
        worst, best = counts.worst(n_failed), counts.best(n_failed)
        measures |= {
            "n_failed": n_failed,
            "n_duplicates": len(rows) - len(counted) - n_failed,
            "precision_worst": precision(worst.supported, worst.n) or 0.0,
            "precision_best": precision(best.supported, best.n) or 0.0,
        }
    diagnostics = _diagnostics(case, graph, posterior, len(failures))
    if (answers := AnswerCounts.of(case)).labels:
        diagnostics["answers"] = answers.to_dict()
    made = _row(case.id, status, reason, rows, measures, diagnostics, fingerprint)
    return uncertain(made, why) if (why := answers.collapse) else made


def uncertain(row: Row, why: str) -> Row:
    """The row without certain labels, since a relation model's answers collapse: `why` says how."""
    atoms = [{**atom, "certain": None if atom["certain"] is None else False} for atom in row["atoms"]]
    return {**row, "atoms": atoms, "diagnostics": {**row["diagnostics"], "collapse": f"{why}; {REMEDY}"}}


def model_answer(graph: FactGraph, posterior: Posterior) -> Row:
    """The result of inference in a bare model: evidence, status, and the marginals of its variables."""
    answer: Row = {"status": str(posterior.status), "reason": posterior.reason}
    answer["evidence"] = {name: bool(state) for name, state in graph.evidence.items()}
    if posterior.status.failed:
        return answer | {"method": None, "width": posterior.width, "log_z": None, "marginals": None}
    p, lower, upper = posterior.p, posterior.lower, posterior.upper
    return answer | {
        "method": posterior.method,
        "width": posterior.width,
        "log_z": finite(posterior.log_z),
        "marginals": [
            {"name": name, "p": rounded(p[name]), "lower": rounded_down(lower[name]), "upper": rounded_up(upper[name])}
            for name in graph.ids
        ],
    }


def _row(
    id: str | None,
    status: Status,
    reason: str | None,
    atoms: list[Row],
    measures: dict[str, float] | None,
    diagnostics: Row,
    fingerprint: str,
) -> Row:
    return {
        "id": id,
        "status": str(status),
        "reason": reason,
        "atoms": atoms,
        "measures": None if measures is None else {name: round(value, DIGITS) for name, value in measures.items()},
        "diagnostics": diagnostics,
        "fingerprint": fingerprint,
    }


def _atom_row(atom: Atom, values: Values | None, status: Status, relations: list[Relation]) -> Row:
    row: Row = {"id": atom.id, "p": None, "lower": None, "upper": None, "label": None, "certain": None}
    if values is not None and not status.failed:
        p, lower, upper, certain = (by_id[atom.id] for by_id in values)
        row["p"] = rounded(p)
        row["lower"], row["upper"] = rounded_down(lower), rounded_up(upper)
        row["label"] = str(Label.of(row["p"]))
        row["certain"] = certain
    row["status"] = str(status)
    row["evidence"] = _strongest(relations)
    if atom.label in HUMAN:
        row["human"] = atom.label
    return row


def _strongest(relations: list[Relation]) -> list[Row]:
    """The most probable relations for an atom, then those against it; of equal ones, the earlier first."""
    sides: dict[Side, list[Relation]] = {"for": [], "against": []}
    for relation in relations:
        sides[side_of(relation.type)].append(relation)
    return [
        {
            "source": relation.source,
            "target": relation.target,
            "type": str(relation.type),
            "probability": relation.probability,
            "side": side,
        }
        for side, ours in sides.items()
        for relation in sorted(ours, key=lambda relation: -(relation.probability or 0.0))[:STRONGEST]
    ]


def side_of(type: RelationType | None) -> Side:
    """Whether a relation that is not neutral is for an atom that it touches, or against it."""
    return "against" if type is RelationType.CONTRADICTION else "for"


def _touching(relations: Iterable[Relation], atoms: set[str]) -> dict[str, list[Relation]]:
    """The relations with a factor that are for or against an atom, by the atoms they touch.

    Neutral ones, which the encoding `soft` has, are left out: they are no evidence and make no atom verifiable.
    """
    touching: dict[str, list[Relation]] = {}
    for relation in relations:
        if relation.type is RelationType.NEUTRAL:
            continue
        for end in (relation.source, relation.target):
            if end in atoms:
                touching.setdefault(end, []).append(relation)
    return touching


def _failed_relations(
    case: Case, failures: list[Relation], aliases: Mapping[str, str], version: str | None
) -> Counter[str]:
    """The number of failed relations that are part of `version`, by the (kept) atom they touch."""
    failed: Counter[str] = Counter()
    if not failures:
        return failed
    own: dict[str, set[str]] = {}
    for atom in case.atoms or ():
        contexts = own.setdefault(aliases.get(atom.id, atom.id), set())
        contexts.update(aliases.get(name, name) for name in atom.contexts or ())
    for relation in failures:
        source, target = (aliases.get(name, name) for name in (relation.source, relation.target))
        for kept, other in ((source, target), (target, source)):
            if kept not in own or (version and other in own) or (version == "FR1" and other not in own[kept]):
                continue
            failed[kept] += 1
    return failed


def _atom_statuses(
    case: Case, aliases: Mapping[str, str], touching: dict[str, list[Relation]], failed: Counter[str]
) -> dict[str, Status]:
    """The status of every kept atom: its own, its duplicates', or that of its relations and contexts (SPEC 3)."""
    copies: dict[str, list[Atom]] = {}
    for atom in case.atoms or ():
        copies.setdefault(aliases.get(atom.id, atom.id), []).append(atom)
    everything = None if case.contexts is None else {context.id for context in case.contexts}
    lost_contexts = {context.id for context in case.contexts or () if context.status.failed}

    statuses = {}
    for kept, atoms in copies.items():
        own = next((atom.status for atom in atoms if not atom.status.failed), atoms[0].status)
        lists = [atom.contexts for atom in atoms if atom.contexts is not None]
        # An atom without a list of its own was paired with all contexts.
        contexts = {context for given in lists for context in given} if len(lists) == len(atoms) else everything
        if own.failed:
            statuses[kept] = own
        elif kept in touching:
            statuses[kept] = Status.OK
        elif failed[kept]:
            statuses[kept] = Status.RELATION_FAILED
        elif contexts and contexts <= lost_contexts:
            statuses[kept] = Status.RETRIEVAL_FAILED
        elif contexts is not None and not contexts:
            statuses[kept] = Status.NO_EVIDENCE
        else:
            statuses[kept] = own
    return statuses


def _diagnostics(case: Case, graph: FactGraph, posterior: Posterior, n_failed_relations: int) -> Row:
    row: Row = {
        "method": posterior.method,
        "width": posterior.width,
        "log_z": finite(posterior.log_z),
        "n_variables": len(graph.ids),
        "n_relations": len(graph.relations),
        "n_failed_relations": n_failed_relations,
    }
    if posterior.method == "conditioned":
        row |= {"rows": posterior.rows, "gap": finite(posterior.gap), "cutset": posterior.cutset}
    made = related(case) or {}
    if isinstance(calibration := made.get("calibration"), str) and "earlier" not in made:  # of all its relations
        row["calibration"] = calibration
    return row


def rounded(value: float) -> float:
    """`value` to 7 digits, as every number of a results file is; never -0.0."""
    return round(float(value), DIGITS) + 0.0


def finite(value: float) -> float | None:
    """`value` rounded; None if it is not finite, which JSON cannot express."""
    return rounded(value) if math.isfinite(value) else None


def rounded_down(value: float) -> float:
    """The next number of 7 digits at or below `value`, so that a rounded interval still encloses its values."""
    nearest = rounded(value)
    return nearest if nearest <= value + 1e-12 else rounded(nearest - 10.0**-DIGITS)


def rounded_up(value: float) -> float:
    """The next number of 7 digits at or above `value`."""
    return 0.0 - rounded_down(-value)
