"""From a case, its graph and its results row to the feedback on it (SPEC 6).

Labels and statuses are the row's (`fcjax.scoring.rows`), and the passages are those that share a factor with a refuted
atom in the graph. Failed atoms are not part of the feedback: a failure is never a verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from fcjax.core.errors import SettingsError, counted
from fcjax.core.limits import Limits
from fcjax.core.records import Case, Label, Relation, RelationType, Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.graph.selection import p_of
from fcjax.inference.influence import LEAST, Influence, influences
from fcjax.scoring.findings import Evidence, Feedback, Finding
from fcjax.scoring.near_duplicates import Repeat, repeats
from fcjax.scoring.rows import Row, Side, rounded, side_of

WORK: Final = 2**21
"""The largest number of table entries for the influences in one graph, 2 ** width per row: about 0.3 s."""

Scored = tuple[Case, FactGraph | None, Row]
"""A case, its graph (None if it has none) and its results row."""


def feedbacks(scored: Sequence[Scored], limits: Limits | None = None) -> list[Feedback]:
    """The feedback on every case, in order, with evidence ordered by influence where that is available.

    Influences cost one row per refuted atom with evidence, all graphs in a batch; a relation of probability 0 or 1 is
    moved inside by a millionth, so that it costs no row of its own. Evidence is ordered by probability if the graph's
    posteriors are not exact, if its influences would take more than `WORK`, or if it is too wide within `limits`. Never
    raises for a bad case: its row says why.
    """
    wanted: dict[int, tuple[FactGraph, Collection[str]]] = {}
    for i, (_, graph, row) in enumerate(scored):
        if graph is not None and row["diagnostics"].get("method") == "exact":
            atoms = _connected(graph, row).keys()
            if atoms and (1 + len(atoms)) << row["diagnostics"]["width"] <= WORK:
                wanted[i] = _inside(graph), atoms
    graphs, atoms_of = zip(*wanted.values(), strict=True) if wanted else ((), ())
    found = dict(zip(wanted, influences(graphs, limits, atoms=atoms_of), strict=True))
    return [feedback(*parts, influence=found.get(i)) for i, parts in enumerate(scored)]


def feedback(case: Case, graph: FactGraph | None, row: Row, influence: Influence | None = None) -> Feedback:
    """The feedback on one case (SPEC 6): its atoms labelled refuted or unverified, and all evidence of the refuted.

    Evidence is ordered by `influence`, of this graph's relations on the refuted atoms (`fcjax.influences`), or by
    probability without one or if it has no values. Raises `SettingsError` if it belongs to another graph.
    """
    status, reason = Status(row["status"]), row["reason"]
    failed = sum(atom["label"] is None and "duplicate_of" not in atom for atom in row["atoms"])
    if graph is None:
        return Feedback(n_failed=failed, status=status, reason=reason)
    if influence is not None and influence.relations != graph.relations:
        seen = f"{counted(len(influence.relations), 'relation')} from another graph"
        raise SettingsError(f"influence is of {seen}; allowed: the influence of the same graph")
    atoms = {atom.id: atom for atom in case.atoms or ()}
    connected = _connected(graph, row)
    moves = influence
    if moves is not None and not (np.isfinite(moves.values).all() and connected.keys() <= set(moves.atoms)):
        moves = None
    repeated = repeats(case.contexts or (), graph.relations)
    passages = _Passages(case, graph, repeated)
    findings = [
        Finding(
            atom=said["id"],
            text=atoms[said["id"]].text,
            original=atoms[said["id"]].original,
            label=Label(said["label"]),
            p=said["p"],
            lower=said["lower"],
            upper=said["upper"],
            certain=said["certain"],
            duplicates=tuple(passages.copies.get(said["id"], ())),
            evidence=passages.of(said["id"], connected[said["id"]], moves) if said["id"] in connected else (),
        )
        for said in _labelled(row, Label.REFUTED, Label.UNVERIFIED)
    ]
    evidence = [given for finding in findings for given in finding.evidence]
    return Feedback(
        findings=tuple(findings),
        repeated=repeated,
        order=None if not evidence else "probability" if moves is None else "influence",
        n_atoms=len(_labelled(row, *Label)),
        n_failed=failed,
        status=status,
        reason=reason,
    )


def _labelled(row: Row, *labels: Label) -> list[Row]:
    """The atoms of a results row with one of `labels`; of merged duplicates, the kept one."""
    return [atom for atom in row["atoms"] if atom["label"] in labels and "duplicate_of" not in atom]


def _connected(graph: FactGraph, row: Row) -> dict[str, list[int]]:
    """The relations between refuted atoms and contexts, without neutral ones, as numbers in the graph, by atom."""
    kinds = dict(zip(graph.ids, graph.kinds, strict=True))
    refuted = {atom["id"] for atom in _labelled(row, Label.REFUTED)}
    connected: dict[str, list[int]] = {}
    for r, relation in enumerate(graph.relations):
        if relation.type is RelationType.NEUTRAL:
            continue  # in the encoding `soft` it has a factor, but it is no evidence for or against an atom
        for atom, other in ((relation.source, relation.target), (relation.target, relation.source)):
            if atom in refuted and kinds[other] == "context":
                connected.setdefault(atom, []).append(r)
    return connected


def _inside(graph: FactGraph) -> FactGraph:
    """The graph with all probabilities moved far enough inside 0 and 1 that every table entry can be a divisor."""
    given = graph.probabilities()
    inside = np.clip(given, 2 * LEAST, 1 - 2 * LEAST)
    return replace(graph, tables=graph.tables + graph.slopes() * (inside - given)[:, None, None])


class _Passages:
    """The contexts of a case, as merged in its graph."""

    def __init__(self, case: Case, graph: FactGraph, repeated: Iterable[Repeat]):
        self._graph = graph
        self._contexts = {context.id: context for context in case.contexts or ()}
        self._alike = {name: group.contexts for group in repeated for name in group.contexts}
        self.copies: dict[str, list[str]] = {}  # of each kept variable
        for copy, kept in graph.aliases.items():
            self.copies.setdefault(kept, []).append(copy)

    def of(self, atom: str, relations: list[int], influence: Influence | None) -> tuple[Evidence, ...]:
        """The evidence on an atom from these relations of the graph, the largest first."""
        said = {r: self._graph.relations[r] for r in relations}
        moves: dict[int, float] = {}
        if influence is not None:
            row = influence.values[influence.atoms.index(atom)]
            moves = {r: rounded(row[r]) for r in relations}
        sides: dict[str, set[Side]] = {}
        for relation in said.values():
            sides.setdefault(_other(relation, atom), set()).add(side_of(relation.type))
        order = sorted(relations, key=lambda r: (-abs(moves.get(r, 0.0)), -p_of(said[r])))
        return tuple(self._evidence(said[r], _other(said[r], atom), moves.get(r), sides) for r in order)

    def _evidence(
        self, relation: Relation, name: str, influence: float | None, sides: dict[str, set[Side]]
    ) -> Evidence:
        copies = [self._contexts[copy] for copy in (name, *self.copies.get(name, ()))]
        alike = (other for other in self._alike.get(name, ()) if other != name)
        kept = self._graph.aliases
        assert relation.type is not None  # every relation with a factor has one
        return Evidence(
            context=name,
            source=relation.source,
            target=relation.target,
            type=relation.type,
            probability=rounded(p_of(relation)),
            influence=influence,
            title=next((copy.title for copy in copies if copy.title), None),
            links=tuple(dict.fromkeys(link for copy in copies for link in copy.links)),
            text=copies[0].evidence,
            repeats=tuple(o for o in alike if sides.get(kept.get(o, o), sides[name]) & sides[name]),
        )


def _other(relation: Relation, atom: str) -> str:
    return relation.target if relation.source == atom else relation.source
