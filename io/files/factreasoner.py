"""FactReasoner's own files (SPEC 7): problems, which are cases under other names, and fact graphs.

A fact graph is a dictionary `{"nodes": [...], "edges": [...]}` here, in the spelling of SPEC 8 (`source`, `target`,
`type`); what its relations mean is `fcjax.graph.fact_graph`'s business. Problems are read by `cases.read_cases`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from fcjax.core.errors import Fault, InputError
from fcjax.core.records import Atom, Case, Context, Relation, RelationType
from fcjax.io.files.cases import case_to_dict, parse_relations, relation_to_dict
from fcjax.io.files.fields import check_depth, extra_of, probability, register, rows_of, shown
from fcjax.io.files.objects import Row, kind, read_rows, row_id, seen
from fcjax.io.files.streams import LINE_LIMIT, Source, write_lines

Graph = dict[str, Any]

ATOM_PRIOR = 0.5

_NODE_KEYS = frozenset(("id", "type", "probability", "text"))


def case_to_problem(case: Case) -> dict[str, Any]:
    """The problem that FactReasoner reads, with the keys it requires; unknown keys are kept."""
    known = case_to_dict(case)
    query, response = known.pop("query", ""), known.pop("response", "")
    return {
        "input": query,
        "output": response,
        "topic": known.pop("topic", None),
        **known,
        "atoms": [{"original": atom["text"], "contexts": [], **atom} for atom in known.get("atoms", ())],
        "contexts": [{"title": "", "text": "", **context} for context in known.get("contexts", ())],
    }


def write_problems(path: Source, cases: Iterable[Case]) -> int:
    """Write cases as problems: one object, or a list of several, if the name ends in `.json`; else one per line.

    The file takes its place when it is complete. Returns how many; raises `OutputError`.
    """
    return write_lines(path, (orjson.dumps(case_to_problem(case)) for case in cases), bare=True)


class GraphRow(Row[Graph]):
    """One row of a file of fact graphs."""

    __slots__ = ()

    @property
    def graph(self) -> Graph | None:
        """The graph, as `FactGraph.from_dict` takes it; None where the row has faults."""
        return self.value


def read_graphs(path: Source, limit: int = LINE_LIMIT) -> Iterator[GraphRow]:
    """The fact graphs of a file, in order and as a stream: one object, a list, or one per line.

    A bad row carries its faults and does not end the stream. Raises `InputError` where there is nothing to read at all.
    """
    for row in read_rows(path, parse_graph_row, limit):
        yield GraphRow(*row)


def parse_graph_row(value: Any, number: int) -> Graph:
    """The fact graph of a row of a file: `parse_graph`, and a fault where a key is nested too deep to be written."""
    graph = parse_graph(value, number)
    check_depth(value)
    return graph


def parse_graph(value: Any, number: int = 1) -> Graph:
    """The fact graph that a JSON object describes, in the spelling of SPEC 8; unknown keys are kept.

    Raises `InputError` with every fault that was found.
    """
    if type(value) is not dict:
        raise InputError(f"the graph is {kind(value)}; allowed: a JSON object")
    faults: list[Fault] = []
    for key in ("nodes", "edges"):
        if value.get(key) is None:
            faults.append(Fault(f"{key} is {shown(value, key)}; allowed: a list of objects", field=key))
    known: dict[str, str] = {}
    nodes = []
    for i, row in rows_of(value, "nodes", faults) or ():
        type_ = row.get("type")
        what = type_.strip().lower() if type(type_) is str else None
        if what not in ("atom", "context"):
            fault = f'type is {shown(row, "type")}; allowed: "atom", "context"'
            faults.append(Fault(fault, field=f"nodes[{i}].type"))
        register(row, what or "node", known, "nodes", i, faults)
        prior = row.get("probability")
        if prior is not None:
            prior = probability(row, "probability", f"nodes[{i}].", faults, ", or null")
        nodes.append({**row, "type": what, "probability": prior})
    edges = parse_relations(value, "edges", known, faults)
    if faults:
        raise InputError(*faults)
    return {**value, "nodes": nodes, "edges": [relation_to_dict(edge) for edge in edges or ()]}


def write_graphs(path: Source, graphs: Iterable[Graph]) -> int:
    """Write fact graphs as FactReasoner reads them (`from`, `to`, `relation`, `link`); containers as `write_problems`.

    Its edges have no neutral type, which makes no factor: such edges are left out. Raises `OutputError`.
    """
    return write_lines(path, (orjson.dumps(_factreasoner_graph(graph)) for graph in graphs), bare=True)


def _factreasoner_graph(graph: Graph) -> Graph:
    kinds = {node["id"]: node["type"] for node in graph["nodes"]}
    edges = []
    for edge in graph["edges"]:
        if edge["type"] != RelationType.NEUTRAL:
            rest = {key: value for key, value in edge.items() if key not in ("source", "target", "type", "probability")}
            names = {"from": edge["source"], "to": edge["target"], "relation": edge["type"]}
            link = _link(kinds[edge["source"]], kinds[edge["target"]])
            edges.append({**names, "probability": edge["probability"], "link": link, **rest})
    return {**graph, "nodes": graph["nodes"], "edges": edges}


def _link(source: str, target: str) -> str:
    """FactReasoner's word for what an edge joins; it has none for an edge from an atom to a context."""
    return f"{source}_{target}" if source == target else "context_atom"


def case_to_graph(case: Case, *, context_prior: float = 0.99, atom_prior: float = ATOM_PRIOR) -> Graph:
    """The fact graph of a case as it is: all its atoms, contexts and relations, one edge per relation.

    Failed and neutral relations make no factor and are left out. Nothing is merged and no version is selected; for the
    graph that is scored take `FactGraph.from_case(...).to_dict()`. An atom's text is kept in its node.
    """
    atoms = [{"id": atom.id, "type": "atom", "probability": atom_prior, "text": atom.text} for atom in case.atoms or ()]
    contexts = [
        {"id": context.id, "type": "context", "probability": context_prior if context.prior is None else context.prior}
        for context in case.contexts or ()
    ]
    return {
        "id": case.id,
        "nodes": atoms + contexts,
        "edges": [relation_to_dict(relation) for relation in case.relations or () if _makes_factor(relation)],
    }


def _makes_factor(relation: Relation) -> bool:
    return not relation.status.failed and relation.type is not RelationType.NEUTRAL


def graph_to_case(graph: Graph, number: int = 1, *, atom_prior: float = ATOM_PRIOR) -> Case:
    """The case that has the atoms, contexts and relations of a fact graph that `parse_graph` gave.

    An atom without a `text` in its node gets its id for one. Raises `InputError` for an atom whose prior is not
    `atom_prior`: a case has no place for it.
    """
    faults = []
    atoms, contexts = [], []
    for i, node in enumerate(graph["nodes"]):
        prior, extra = node["probability"], extra_of(node, _NODE_KEYS)
        if node["type"] == "context":
            contexts.append(Context(id=node["id"], prior=prior, extra=extra))
            continue
        if prior is not None and prior != atom_prior:
            fault = f"probability is {seen(prior)}; allowed: {atom_prior}, the prior that all atoms of a case share"
            faults.append(Fault(fault, field=f"nodes[{i}].probability"))
        text = node.get("text")
        text = text if isinstance(text, str) and text.strip() else node["id"]
        atoms.append(Atom(id=node["id"], text=text, extra=extra))
    if faults:
        raise InputError(*faults)
    known = {node["id"]: node["type"] for node in graph["nodes"]}
    relations = parse_relations(graph, "edges", known, [])
    extra = {key: value for key, value in graph.items() if key not in ("id", "nodes", "edges")}
    return Case(
        id=row_id(graph, number), atoms=tuple(atoms), contexts=tuple(contexts), relations=relations, extra=extra
    )
