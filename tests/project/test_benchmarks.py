"""The benchmarks measure what they describe: workloads, and peers that answer the same question."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import oracle
import pytest

from fcjax import FactGraph

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def workloads(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("workloads")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("peers")


def network(graph: FactGraph) -> oracle.Network:
    return oracle.weights(graph.ids, graph.unary, graph.ends, graph.tables)


def test_workloads_are_seeded(workloads: ModuleType) -> None:
    workload = workloads.Workload("bio", "FR3", 0.1, 0.03)
    few, many = workload.graphs(3), workload.graphs(10)
    for a, b in zip(few, many, strict=False):
        assert np.array_equal(a.ends, b.ends)
        assert np.array_equal(a.tables, b.tables)
    assert not np.array_equal(few[0].tables, workload.graphs(1, seed=1)[0].tables)


@pytest.mark.parametrize("preset", ["release", "paper"])
def test_workload_factors_are_those_of_the_relations(workloads: ModuleType, preset: str) -> None:
    """The quick way to the arrays gives what `from_dict` gives."""
    ends, types, p = (
        np.array([[1, 0], [2, 0], [1, 2], [2, 1], [1, 2]]),
        np.array([0, 1, 0, 1, 2]),
        np.linspace(0.5, 0.9, 5),
    )
    built = workloads.build(1, 2, ends, types, p, preset)
    encoding, prior = workloads.PRESETS[preset]
    names = ("a0", "c0", "c1")
    nodes = [{"id": name, "type": "atom" if name[0] == "a" else "context"} for name in names]
    edges = [
        {"source": names[s], "target": names[t], "type": str(workloads.TYPES[kind]), "probability": float(q)}
        for (s, t), kind, q in zip(ends, types, p, strict=True)
    ]
    given = FactGraph.from_dict({"nodes": nodes, "edges": edges}, encoding=encoding, context_prior=prior)
    assert built.ids == given.ids
    np.testing.assert_array_equal(built.ends, given.ends)
    np.testing.assert_allclose(built.tables, given.tables, atol=1e-15)
    np.testing.assert_allclose(built.unary, given.unary, atol=1e-15)


def test_workload_densities(workloads: ModuleType) -> None:
    """Atoms, contexts and relations as the module's docstring says, within sampling error."""
    graphs = workloads.Workload("bio", "FR2", 0.1).graphs(400)
    atoms = np.array([graph.kinds.count("atom") for graph in graphs])
    contexts = np.array([graph.kinds.count("context") for graph in graphs])
    assert atoms.mean() == pytest.approx(15, abs=1)
    assert atoms.std() == pytest.approx(6, abs=0.7)
    assert np.array_equal(contexts, [round(2.1 * (n + 1)) for n in atoms])
    expected = (contexts * (0.7 + 0.1 * (atoms - 1))).sum()
    assert sum(len(graph.ends) for graph in graphs) == pytest.approx(expected, rel=0.03)
    assert all(oracle.min_fill(network(graph))[1] <= 1 for graph in workloads.Workload("biofr", "FR1").graphs(20))


@pytest.mark.parametrize("width", [3, 7])
def test_tied_graphs_have_the_given_width(workloads: ModuleType, width: int) -> None:
    assert [oracle.min_fill(network(graph))[1] for graph in workloads.tied(width, 4)] == [width] * 4


def test_pyagrum_answers_the_same_question(workloads: ModuleType, peers: ModuleType) -> None:
    pytest.importorskip("pyagrum")
    graphs = [
        graph
        for workload in (
            workloads.Workload("veli5", "FR3", 0.1, 0.1),
            workloads.Workload("veli5", "FR2", 0.2, preset="paper"),
        )
        for graph in workload.graphs(6)
        if oracle.min_fill(network(graph))[1] <= 12
    ]
    twice = [(1, 0), (0, 1), (1, 0)]  # parallel and opposite factors
    tables = np.random.default_rng(0).random((3, 2, 2))
    parallel = workloads.build(2, 0, np.array(twice), np.zeros(3, int), np.full(3, 0.8), "release")
    parallel.tables[:] = tables
    for graph in [*graphs, parallel]:
        truth = oracle.eliminate(network(graph)).p
        assert peers.pyagrum(graph) == pytest.approx(np.array(list(truth.values())), abs=1e-12)


@pytest.fixture
def lost_claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("lost_claims")


def test_losses_of_atoms_are_noticed(lost_claims: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    atoms = ["Ada was born in London.", "Ada died in 1852.", "Ada was a writer."]
    case = {
        "id": "x",
        "response": "Ada was born in London and died in 1852. She was a writer.",
        "atoms": [{"id": f"a{i}", "text": text} for i, text in enumerate([*atoms, atoms[2]])],
    }
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    cases = [row.value for row in lost_claims.read_cases(tmp_path / "cases.jsonl")]
    counts = lost_claims.measured(cases)[lost_claims.half("x")]
    assert (counts.own, counts.own_noticed, counts.repeated, counts.repeated_noticed) == (2, 2, 2, 0)
    assert (counts.covered, counts.passages) == (counts.words, 0)
    table = lost_claims.table(lost_claims.measured(cases))
    assert "| losses noticed | " in table
    assert "0.500 (2 of 4)" in table


def test_losses_of_peoples_atoms_are_noticed(lost_claims: ModuleType) -> None:
    if not lost_claims.CASES.is_file():
        pytest.skip("the cases with people's atoms are not part of the project")
    cases = [row.value for row in lost_claims.read_cases(lost_claims.CASES)]
    for counts in lost_claims.measured(cases[:20]):
        assert counts.own_noticed >= 0.9 * counts.own
        assert counts.covered >= 0.85 * counts.words


STAND_IN = """
import json, sys
sys.path.insert(0, {tests!r})
import numpy as np, oracle
from fcjax.io.files.uai import read_uai
from fcjax import FactGraph
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
asked = [given[key] for key in ("--task", "--algorithm", "--ibound", "--output-format")]
assert asked == ["MAR", "wmb", "6", "json"], asked
graph = FactGraph.from_model(read_uai(given["--input-file"]))
p = oracle.eliminate(oracle.weights(graph.ids, graph.unary, graph.ends, graph.tables)).p
rows = [{{"variable": v, "states": 2, "probabilities": [1 - q, q]}} for v, q in enumerate(p.values())]
json.dump({{"marginals": rows}}, open(given["--output-file"] + ".MAR.json", "w"))
"""


def test_merlin_is_called_by_its_command_line(workloads: ModuleType, peers: ModuleType, tmp_path: Path) -> None:
    """A stand-in with merlin's command line, which checks what it is asked and answers exactly."""
    program = tmp_path / "merlin"
    program.write_text(f"#!{sys.executable}\n" + STAND_IN.format(tests=str(FOLDER.parent / "tests" / "support")))
    program.chmod(0o755)
    (graph,) = workloads.Workload("veli5", "FR2", 0.1).graphs(1)
    truth = oracle.eliminate(network(graph)).p
    assert peers.merlin(graph, str(program)) == pytest.approx(np.array(list(truth.values())), abs=1e-9)
    program.write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
    with pytest.raises(RuntimeError, match="ended with 3: no memory"):
        peers.merlin(graph, str(program))


@pytest.mark.slow
def test_a_short_run_writes_its_record(tmp_path: Path) -> None:
    """All parts of the benchmark, as small as they get."""
    pytest.importorskip("pyagrum")
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(FOLDER / "bench.py"), "--quick", "--out", str(tmp_path)]
    command += ["--sizes", "veli5", "--presets", "release", "--seconds", "0.02", "--runs", "1", "--proofs", "1"]
    command += ["--largest-batch", "100", "--widest", "6"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONSAFEPATH": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    assert record["machine"]["versions"]["fcjax"]
    assert all(row["graphs_per_s"] > 0 and row["checked"]["worst_exact"] < 1e-5 for row in record["speed"])
    assert record["proof"]
    assert [row["batch"] for row in record["by_batch"]] == [1, 10, 100]
    assert [row["width"] for row in record["by_width"]] == [4, 6]
    assert list(tmp_path.glob("*.png"))


def test_retrieval_counts_the_passages_that_people_marked(tmp_path: Path) -> None:
    """Two claims, one of which finds one of the two passages that entail it, since the other shares no word with it."""
    contexts = [
        {"id": "c0", "text": "The Vasa sank in 1628."},
        {"id": "c1", "text": "A warship went down."},
        {"id": "c2", "text": "The Vasa sank as a cake does."},
        {"id": "c3", "text": "Water is wet."},
    ]
    atoms = [
        {"id": "a0", "text": "Vasa sank, 1628", "contexts": ["c0", "c1", "c2"]},
        {"id": "a1", "text": "Nothing of it", "contexts": ["c3"]},
    ]
    relations = [
        {"source": source, "target": "a0", "type": kind, "probability": 1.0}
        for source, kind in (("c0", "entailment"), ("c1", "entailment"), ("c2", "contradiction"))
    ]
    case = {"id": "ships", "atoms": atoms, "contexts": contexts, "relations": relations}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    command = [sys.executable, "-P", str(FOLDER / "retrieval.py"), "--cases", str(tmp_path / "cases.jsonl")]
    command += ["--passages", "300", "--queries", "20", "--out", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "results").glob("*-retrieval-*.json")
    found = json.loads(path.read_text())
    assert found["evidence"]["supporting"]["recall"] == {"1": 0.5, "3": 0.5, "5": 0.5, "10": 0.5}
    assert found["evidence"]["supporting"]["any"]["1"] == 1.0
    assert found["evidence"]["all_own"]["recall"]["3"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["speed"]["queries_per_s"] > 0
    assert found["machine"]["versions"]["bm25s"]


def test_unknown_parts_and_sizes_are_refused() -> None:
    for words in (["spede"], ["--sizes", "huge"]):
        command = [sys.executable, str(FOLDER / "bench.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "seen" in done.stderr
