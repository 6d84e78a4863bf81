"""FactReasoner's problems and fact graphs, which file is which, and the way from one format to another."""

from __future__ import annotations

import copy
import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from samples import SHARED

from fcjax.core.errors import InputError, SettingsError
from fcjax.graph.fact_graph import FactGraph
from fcjax.io.files import (
    case_to_graph,
    case_to_problem,
    convert,
    detect,
    graph_to_case,
    parse_case,
    parse_graph,
    read_cases,
    read_graphs,
    write_graphs,
    write_problems,
)

GRAPH: dict[str, Any] = {
    "id": "g",
    "nodes": [
        {"id": "a1", "type": "atom", "probability": 0.5},
        {"id": "c1", "type": "context", "probability": 0.9},
        {"id": "c2", "type": "Context", "shape": "round"},
    ],
    "edges": [
        {"from": "c1", "to": "a1", "relation": "entailment", "probability": 0.8, "link": "context_atom"},
        {"source": "c2", "target": "c1", "type": "Contradiction", "probability": 1},
        {"source": "a1", "target": "c2", "type": "neutral", "probability": 0.7},
    ],
}
CASE: dict[str, Any] = {
    "id": "x",
    "query": "Q",
    "response": "R",
    "atoms": [{"id": "a1", "text": "A", "label": "S"}, {"id": "a2", "text": "B", "original": "b", "contexts": ["c1"]}],
    "contexts": [{"id": "c1", "prior": 0.25}, {"id": "c2", "title": "T", "text": "text", "snippet": "s"}],
    "relations": [
        {"source": "c1", "target": "a1", "type": "entailment", "probability": 0.8},
        {"source": "c2", "target": "c1", "type": "contradiction", "probability": 0.9},
        {"source": "a1", "target": "a2", "type": "equivalence", "probability": 0.6},
        {"source": "a1", "target": "c2", "type": "entailment", "probability": 0.6},
        {"source": "c1", "target": "a2", "type": "neutral", "probability": 0.7},
        {"source": "c2", "target": "a2", "type": None, "probability": None, "status": "relation_failed"},
    ],
}


def shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs ../shared/{name}")
    return path


def edges(graph: dict[str, Any]) -> set[tuple[Any, ...]]:
    return {(edge["source"], edge["target"], edge["type"], edge["probability"]) for edge in graph["edges"]}


# Fact graphs


def test_a_graph_is_read_in_one_spelling_with_what_it_carries():
    graph = parse_graph(GRAPH)
    assert graph["id"] == "g"
    assert graph["nodes"] == [
        {"id": "a1", "type": "atom", "probability": 0.5},
        {"id": "c1", "type": "context", "probability": 0.9},
        {"id": "c2", "type": "context", "probability": None, "shape": "round"},
    ]
    assert graph["edges"][0] == {
        "source": "c1",
        "target": "a1",
        "type": "entailment",
        "probability": 0.8,
        "link": "context_atom",
    }
    assert [edge["type"] for edge in graph["edges"]] == ["entailment", "contradiction", "neutral"]
    assert parse_graph(graph) == graph


def test_a_written_graph_is_what_factreasoner_reads(tmp_path):
    """Its reader takes `from`, `to`, `relation`, `probability` and `link` by name, and checks the values below."""
    write_graphs(tmp_path / "graph.json", [parse_graph(GRAPH)])
    written = json.loads((tmp_path / "graph.json").read_text())
    assert [set(edge) for edge in written["edges"]] == [{"from", "to", "relation", "probability", "link"}] * 2
    for edge in written["edges"]:
        assert edge["relation"] in ("entailment", "contradiction", "equivalence")
        assert edge["link"] in ("context_atom", "context_context", "atom_atom")
    (again,) = read_graphs(tmp_path / "graph.json")
    assert again.graph is not None
    assert again.graph["nodes"] == parse_graph(GRAPH)["nodes"]
    assert edges(again.graph) == {("c1", "a1", "entailment", 0.8), ("c2", "c1", "contradiction", 1.0)}


def test_links_are_named_by_what_they_join(tmp_path):
    write_graphs(tmp_path / "graph.json", [case_to_graph(parse_case(CASE))])
    written = json.loads((tmp_path / "graph.json").read_text())
    assert [edge["link"] for edge in written["edges"]] == [
        "context_atom",
        "context_context",
        "atom_atom",
        "context_atom",
    ]


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        (lambda g: g.pop("edges"), "edges", "edges is missing; allowed: a list of objects"),
        (lambda g: g.update(nodes=7), "nodes", "nodes is 7"),
        (lambda g: g["nodes"][0].update(type="claim"), "nodes[0].type", 'type is "claim"; allowed: "atom", "context"'),
        (lambda g: g["nodes"][0].pop("type"), "nodes[0].type", "type is missing"),
        (lambda g: g["nodes"][2].update(id="c1"), "nodes[2].id", 'id is "c1", already the id of another context'),
        (lambda g: g["nodes"][2].update(id=None), "nodes[2].id", "id is null"),
        (lambda g: g["nodes"][1].update(probability=1.5), "nodes[1].probability", "probability is 1.5; allowed: a num"),
        (lambda g: g["edges"][0].update({"to": "a9"}), "edges[0].target", 'target is "a9"; allowed: the id of an atom'),
        (lambda g: g["edges"][0].update({"to": "c1"}), "edges[0]", 'source and target are both "c1"'),
        (lambda g: g["edges"][0].update(relation="x"), "edges[0].type", 'type is "x"; allowed: "entailment"'),
        (lambda g: g["edges"][0].pop("probability"), "edges[0].probability", "probability is missing; allowed: a num"),
    ],
)
def test_a_fault_of_a_graph_names_its_field(change, field, says):
    graph = copy.deepcopy(GRAPH)
    change(graph)
    with pytest.raises(InputError) as caught:
        parse_graph(graph)
    assert (field, True) in {(fault.field, fault.message.startswith(says)) for fault in caught.value.faults}


def test_a_graph_is_an_object():
    with pytest.raises(InputError, match="the graph is a list; allowed: a JSON object"):
        parse_graph([GRAPH])


def test_the_papers_graph_is_read():
    (row,) = read_graphs(shared("cases/fact_graph.json"))
    assert row.graph is not None
    assert len(FactGraph.from_dict(row.graph)) == 3
    assert edges(row.graph) == {
        ("c11", "a1", "entailment", 0.9),
        ("c12", "a1", "entailment", 0.6),
        ("c12", "c11", "contradiction", 0.8),
    }


def test_graphs_stream_from_lines():
    rows = list(read_graphs(shared("golden/exact.jsonl")))
    assert len(rows) == 300
    assert all(row.graph is not None and {"encoding", "exact"} <= row.graph.keys() for row in rows)


# Problems


def test_a_problem_has_the_keys_that_factreasoner_insists_on():
    problem = case_to_problem(parse_case({"id": "x", "atoms": [{"id": "a", "text": "A"}], "contexts": [{"id": "c"}]}))
    assert (problem["input"], problem["output"], problem["topic"]) == ("", "", None)
    assert problem["atoms"] == [{"original": "A", "contexts": [], "id": "a", "text": "A"}]
    assert problem["contexts"] == [{"title": "", "text": "", "id": "c"}]
    problem = case_to_problem(parse_case({"id": "x"}))
    assert (problem["atoms"], problem["contexts"]) == ([], [])


def test_a_problem_carries_all_of_a_case(tmp_path):
    row = copy.deepcopy(CASE) | {"cat": ["rare"]}
    row["contexts"][1]["synthetic_summary"] = "short"
    case = parse_case(row)
    write_problems(tmp_path / "problem.json", [case])
    (again,) = read_cases(tmp_path / "problem.json")
    assert again.case is not None
    assert (again.case.query, again.case.relations, again.case.extra) == (case.query, case.relations, {"cat": ["rare"]})
    assert again.case.contexts is not None
    assert again.case.contexts[1] == (case.contexts or ())[1]
    assert again.case.contexts[0].prior == 0.25


@pytest.mark.parametrize("name", ["flaherty_google.json", "flaherty_wikipedia.json"])
def test_real_problems_come_through_cases_unchanged(tmp_path, name):
    path = shared(f"cases/{name}")
    assert detect(path) == "problem"
    assert convert(path, tmp_path / "cases.jsonl").written == 1
    assert detect(tmp_path / "cases.jsonl") == "cases"
    assert convert(tmp_path / "cases.jsonl", tmp_path / name, "problem").written == 1
    assert json.loads((tmp_path / name).read_text()) == json.loads(path.read_text()) | {"id": "1"}


# Between cases and graphs


def test_a_case_gives_the_graph_that_it_stands_for():
    case = parse_case(CASE)
    graph = case_to_graph(case, context_prior=0.9, atom_prior=0.4)
    assert {node["id"]: node["probability"] for node in graph["nodes"]} == {"a1": 0.4, "a2": 0.4, "c1": 0.25, "c2": 0.9}
    assert edges(graph) == {
        ("c1", "a1", "entailment", 0.8),
        ("c2", "c1", "contradiction", 0.9),
        ("a1", "a2", "equivalence", 0.6),
        ("a1", "c2", "entailment", 0.6),
    }
    here = FactGraph.from_dict(graph, "conditional", 0.9, 0.4)
    there = FactGraph.from_case(case, preset="release", atom_prior=0.4)
    assert (here.ids, here.unary.tolist()) == (there.ids, there.unary.tolist())
    assert here.tables.tolist() == there.tables.tolist()


def test_a_case_comes_back_from_its_graph():
    case = parse_case(CASE)
    again = graph_to_case(case_to_graph(case, context_prior=0.9))
    assert [(atom.id, atom.text) for atom in again.atoms or ()] == [("a1", "A"), ("a2", "B")]
    assert [(context.id, context.prior) for context in again.contexts or ()] == [("c1", 0.25), ("c2", 0.9)]
    assert again.relations == (case.relations or ())[:4]
    assert again.id == "x"


def test_an_atom_without_a_text_gets_its_id_for_one():
    case = graph_to_case(parse_graph(GRAPH))
    assert [(atom.id, atom.text) for atom in case.atoms or ()] == [("a1", "a1")]
    assert (case.contexts or ())[1].extra == {"shape": "round"}
    assert parse_case({"id": "g", "atoms": [{"id": "a1", "text": "a1"}]}).atoms == case.atoms


def test_an_atom_with_a_prior_of_its_own_is_refused_by_name(tmp_path):
    path = tmp_path / "graph.jsonl"
    odd = copy.deepcopy(GRAPH)
    odd["nodes"][0]["probability"] = 0.75
    path.write_text(json.dumps(GRAPH) + "\n" + json.dumps(odd | {"id": "odd"}) + "\n")
    done = convert(path, tmp_path / "cases.jsonl")
    assert done.written == 1
    (fault,) = done.faults
    assert (fault.file, fault.line, fault.case, fault.field) == (str(path), 2, "odd", "nodes[0].probability")
    assert fault.message == "probability is 0.75; allowed: 0.5, the prior that all atoms of a case share"
    assert convert(path, tmp_path / "cases.jsonl", atom_prior=0.75).written == 1


# Which is which


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", json.dumps(CASE), "cases"),
        ("a.jsonl", "broken\n" + json.dumps(GRAPH), "graph"),
        ("a.json", json.dumps(GRAPH, indent=2), "graph"),
        ("a.json", json.dumps([GRAPH]), "graph"),
        ("a.json", '{"input": "x", "output": "y"}', "problem"),
        ("a.json", '{"input": "x", "response": "y"}', "cases"),
        ("a.jsonl", '{"id": "x", "status": "ok", "atoms": [], "measures": null, "fingerprint": "f"}', "results"),
        ("a", "MARKOV\n1\n2\n0\n", "uai"),
        ("a.uai", "BAYES\n1\n2\n0\n", "uai"),
        ("a.uai", "junk", "uai"),
        ("a.uai.evid", "0", "evidence"),
        ("a.jsonl", "17\n", "cases"),
    ],
)
def test_a_format_is_known_by_name_and_content(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    assert detect(tmp_path / name) == expected
    (tmp_path / (name + ".gz")).write_bytes(gzip.compress(content.encode()))
    assert detect(tmp_path / (name + ".gz")) == expected


def test_looking_at_a_pipe_takes_nothing_out_of_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(json.dumps(CASE),))
    writer.start()
    assert convert(tmp_path / "pipe", tmp_path / "out.jsonl").written == 1
    writer.join()


# Conversions as a whole


@pytest.mark.parametrize("target", ["cases.jsonl", "cases.json", "cases.jsonl.gz"])
def test_a_conversion_leaves_bad_rows_out_and_says_so(tmp_path, target):
    path = tmp_path / "in.jsonl"
    path.write_text(
        "\n".join([json.dumps(CASE), "no", json.dumps(CASE | {"topic": 5}), json.dumps(CASE | {"id": "y"})])
    )
    for to in ("cases", "problem", "graph"):
        done = convert(path, tmp_path / target, to)
        assert done.written == 2
        assert [(fault.line, fault.field) for fault in done.faults] == [(2, None), (3, "topic")]
    assert [row.id for row in read_graphs(tmp_path / target)] == ["x", "y"]


def test_a_conversion_without_a_way_is_refused(tmp_path):
    path = tmp_path / "model.uai"
    path.write_text("MARKOV\n1\n2\n0\n")
    with pytest.raises(SettingsError, match="cannot convert uai to cases"):
        convert(path, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(CASE))
    with pytest.raises(SettingsError, match="cannot convert cases to uai"):
        convert(path, tmp_path / "out.uai", "uai")  # type: ignore[arg-type]
