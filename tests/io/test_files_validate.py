"""`validate`: every fault of every format, with its place, as a stream; notices apart from faults."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from samples import SHARED

from fcjax.core.errors import Fault
from fcjax.io.files import Notice, validate
from fcjax.runs.score_file import Settings, score

CASE: dict[str, Any] = {
    "id": "x",
    "atoms": [{"id": "a0", "text": "A"}],
    "contexts": [{"id": "c0", "text": "C"}],
    "relations": [{"source": "c0", "target": "a0", "type": "entailment", "probability": 0.9}],
}
RESULT: dict[str, Any] = {
    "id": "x",
    "status": "ok",
    "reason": None,
    "atoms": [{"id": "a0", "p": 0.9, "lower": 0.89, "upper": 0.91, "label": "supported", "status": "ok"}],
    "measures": {"precision": 1.0},
    "diagnostics": {},
    "fingerprint": "f",
}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def faults(path: Path) -> list[Fault]:
    return [fault for fault in validate(path) if not isinstance(fault, Notice)]


def notices(path: Path) -> list[Fault]:
    return [fault for fault in validate(path) if isinstance(fault, Notice)]


def test_a_good_file_has_no_faults(tmp_path):
    assert list(validate(lines(tmp_path / "a.jsonl", CASE, CASE | {"id": "y"}))) == []
    assert list(validate(lines(tmp_path / "b.jsonl", RESULT))) == []


@pytest.mark.parametrize(
    "name", ["factcheck_gpt.jsonl", "fact_graph.json", "flaherty_google.json", "flaherty_wikipedia.json"]
)
def test_real_files_have_no_faults(name):
    path = SHARED / "cases" / name
    if not path.exists():
        pytest.skip(f"needs ../shared/cases/{name}")
    assert faults(path) == []


def test_every_fault_of_every_row_is_listed_with_its_place(tmp_path):
    bad = json.loads(json.dumps(CASE))
    bad["relations"][0] |= {"probability": 1.2, "source": "c9"}
    path = lines(tmp_path / "cases.jsonl", CASE, bad | {"id": "y", "topic": 1}, "{", CASE | {"id": "z", "n": math.nan})
    found = faults(path)
    assert [(fault.file, fault.line, fault.case, fault.field) for fault in found] == [
        (str(path), 2, "y", "topic"),
        (str(path), 2, "y", "relations[0].source"),
        (str(path), 2, "y", "relations[0].probability"),
        (str(path), 3, "3", None),
        (str(path), 4, "z", "n"),
    ]
    assert str(found[2]) == (
        f"{path}:2: case 'y', relations[0].probability: probability is 1.2; "
        "allowed: a number from 0 to 1, or null if the status is a failure"
    )


def test_two_cases_with_one_id_are_a_fault(tmp_path):
    path = lines(tmp_path / "cases.jsonl", CASE, CASE | {"id": "y"}, CASE)
    (fault,) = faults(path)
    assert (fault.line, fault.case, fault.field) == (3, "x", "id")
    assert fault.message == 'id is "x", as in row 1; allowed: a unique id'


@pytest.mark.parametrize("broken", ["{", '{"id": 0, broken', '{"atoms": 3}'])
def test_a_faulty_row_takes_no_other_rows_id(tmp_path, broken):
    path = lines(tmp_path / "cases.jsonl", broken, CASE | {"id": "1"}, CASE | {"id": 2})
    assert {fault.line for fault in faults(path)} == {1}


def test_a_faulty_row_and_another_share_no_id(tmp_path):
    path = lines(tmp_path / "cases.jsonl", '{"id": "x", broken', CASE)
    assert [(fault.line, fault.field) for fault in faults(path)] == [(1, None), (2, "id")]


def test_a_file_that_cannot_be_read_is_one_fault(tmp_path):
    (fault,) = validate(tmp_path / "none.jsonl")
    assert str(fault) == f"{tmp_path / 'none.jsonl'}: no such file"
    (fault,) = validate(tmp_path)
    assert "folder" in fault.message


def test_notices_are_no_faults(tmp_path):
    row = json.loads(json.dumps(CASE))
    row["atoms"][0]["label"] = "IR"
    row["contexts"].append({"id": "c1", "title": "only a title"})
    row["relations"].append(row["relations"][0])
    path = lines(tmp_path / "cases.jsonl", row, {"id": "y", "atoms": []})
    assert faults(path) == []
    assert [(fault.line, fault.field) for fault in notices(path)] == [
        (1, "atoms[0].label"),
        (1, "contexts[1]"),
        (1, "relations[1]"),
        (2, "atoms"),
    ]


GRAPH = {
    "nodes": [{"id": "a", "type": "atom", "probability": 0.7}, {"id": "c", "type": "context", "probability": 0.9}],
    "edges": [{"source": "c", "target": "a", "type": "entailment", "probability": 0.9}],
}


def test_what_score_refuses_is_told_and_nothing_else(tmp_path):
    """One rule for both, whatever the rows of a file are."""
    fit = json.loads(json.dumps(GRAPH))
    fit["nodes"][0]["probability"] = 0.5
    rows = {
        "fine": CASE,
        "fit": fit,
        "related to nothing": {"atoms": CASE["atoms"], "contexts": []},
        "failed before": {"status": "refused"},
        "a graph of another prior": GRAPH,
        "unrelated": {key: CASE[key] for key in ("atoms", "contexts")},
        "without contexts": {"atoms": CASE["atoms"]},
        "without atoms": {"response": "R"},
        "half a graph": {"edges": []},
        "a result": RESULT,
        "wrong": CASE | {"atoms": 1},
    }
    path = lines(tmp_path / "cases.jsonl", *({**row, "id": id} for id, row in rows.items()))
    told = {fault.case: str(fault) for fault in validate(path)}
    score(path, tmp_path / "out.jsonl", Settings(k=1))
    refused = {
        row["id"]: row["reason"]
        for row in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
        if row["status"] == "invalid_input"
    }
    assert list(refused) == list(told) == list(rows)[4:]
    for id, reason in refused.items():
        assert reason.rpartition(": ")[2].partition(";")[0] in told[id]
    assert {fault.case for fault in faults(path)} == {"half a graph", "a result", "wrong"}


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"id": 3}, "id", "id is 3"),
        ({"status": None}, "status", "status is null; allowed: a status"),
        ({"status": "fine"}, "status", 'status is "fine"; allowed: "ok", '),
        ({"measures": []}, "measures", "measures is a list"),
        ({"atoms": 1}, "atoms", "atoms is 1; allowed: a list of objects"),
        ({"atoms": [{"id": "a", "p": 1.1}]}, "atoms[0].p", "p is 1.1; allowed: a number from 0 to 1, or null"),
        ({"atoms": [{"id": "a", "p": 0.5, "lower": 0.6}]}, "atoms[0].p", "p is 0.5, not between lower 0.6 and upper"),
        ({"atoms": [{"id": "a", "p": 0.5, "lower": 0.4, "upper": 0.45}]}, "atoms[0].p", "p is 0.5, not between"),
        ({"atoms": [{"id": "a", "label": "S"}]}, "atoms[0].label", 'label is "S"; allowed: "supported", "refuted"'),
        ({"atoms": [{"id": "a", "status": "?"}]}, "atoms[0].status", 'status is "?"'),
        ({"atoms": [{"p": 0.5}]}, "atoms[0].id", "id is missing"),
    ],
)
def test_faults_of_results_are_listed(tmp_path, change, field, says):
    (fault,) = faults(lines(tmp_path / "results.jsonl", RESULT | change))
    assert fault.field == field
    assert fault.message.startswith(says)


def test_graphs_models_and_evidence_are_validated_too(tmp_path):
    graph = {"nodes": [{"id": "a", "type": "atom"}], "edges": [{"source": "a", "target": "b"}]}
    found = faults(lines(tmp_path / "graph.json", graph))
    assert [fault.field for fault in found] == ["edges[0].target", "edges[0].type", "edges[0].probability"]
    (fault,) = validate(lines(tmp_path / "model.uai", "MARKOV", "1", "3", "0"))
    assert str(fault) == f"{tmp_path / 'model.uai'}:3: variable 0: the variable has 3 states; allowed: 2"
    (fault,) = validate(lines(tmp_path / "model.uai.evid", "1 0 2"))
    assert "the observed state is '2'" in str(fault)
    assert list(validate(lines(tmp_path / "good.uai.evid", "1 0 1"))) == []


def test_memory_hardly_grows_with_the_number_of_cases(tmp_path):
    def peak(count: int) -> int:
        path = lines(tmp_path / "cases.jsonl", *(CASE | {"id": f"case {i}", "query": "x" * 500} for i in range(count)))
        tracemalloc.start()
        assert list(validate(path)) == []
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert (peak(5_000) - peak(500)) / 4_500 < 200  # bytes a case, of more than 700 that each has in the file
