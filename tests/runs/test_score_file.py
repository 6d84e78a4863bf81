"""Scoring a file: order, statuses, K, and going on after a stop at any byte (SPEC 5, 7)."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from samples import SHARED

from fcjax.core.errors import InputError, OutputError, SettingsError
from fcjax.core.limits import Limits, default_memory
from fcjax.inference.backend import default_backend
from fcjax.runs import score_file as bulk
from fcjax.runs.observer import RunObserver
from fcjax.runs.score_file import Settings, score


def case(id, atoms=2, type="entailment", **more):
    """A case of `atoms` atoms, each with one relation from a context of its own."""
    return {
        "id": id,
        "atoms": [{"id": f"a{i}", "text": f"claim {i} of {id}"} for i in range(atoms)],
        "contexts": [{"id": f"c{i}", "text": f"passage {i} for {id}"} for i in range(atoms)],
        "relations": [
            {"source": f"c{i}", "target": f"a{i}", "type": type, "probability": 0.9 - i / 100} for i in range(atoms)
        ],
        **more,
    }


def without(value, *keys):
    return {key: part for key, part in value.items() if key not in keys}


def write(path, *cases):
    """A file of cases; a string is a line as it stands."""
    path.write_text("".join((c if isinstance(c, str) else json.dumps(c)) + "\n" for c in cases))
    return path


def rows_in(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


CASES = [case(f"case-{i}", 1 + i % 3, ("entailment", "contradiction")[i % 2]) for i in range(11)]


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "cases.jsonl", *CASES)


@pytest.fixture
def chunks_of_four(monkeypatch):
    monkeypatch.setattr(bulk, "CHUNK", 4)


def test_one_row_a_case_in_order_whatever_becomes_of_it(tmp_path):
    source = write(
        tmp_path / "cases.jsonl",
        case("good"),
        "{not json",
        "",
        case("wrong", relations=[{"source": "c0", "target": "a0", "type": "entailment", "probability": 1.2}]),
        case("empty", 0),
        case("refused", status="refused", reason="the provider would not"),
        without(case("early"), "relations"),
        '["a", "list"]',
        case("last"),
    )
    summary = score(source, tmp_path / "out.jsonl")
    rows = rows_in(tmp_path / "out.jsonl")
    assert [(row["id"], row["status"]) for row in rows] == [
        ("good", "ok"),
        ("2", "invalid_input"),
        ("wrong", "invalid_input"),
        ("empty", "no_atoms"),
        ("refused", "refused"),
        ("early", "invalid_input"),
        ("8", "invalid_input"),
        ("last", "ok"),
    ]
    assert "line 4" in rows[2]["reason"]
    assert "relations[0].probability" in rows[2]["reason"]
    assert "1.2" in rows[2]["reason"]
    assert rows[4]["reason"] == "the provider would not"
    assert [atom["status"] for atom in rows[4]["atoms"]] == ["refused", "refused"]
    assert "the stage relate is missing" in rows[5]["reason"]
    assert (len(summary), summary.n_failed) == (8, 5)


def test_the_summary_is_that_of_the_rows(source, tmp_path):
    found = score(source, tmp_path / "out.jsonl").to_dict()
    rows = rows_in(tmp_path / "out.jsonl")
    assert found["n_scored"] == len(rows) == 11
    mean = sum(row["measures"]["precision"] for row in rows) / 11
    assert found["means"]["precision"]["value"] == pytest.approx(mean, abs=1e-7)


def test_without_an_output_nothing_is_written(source, tmp_path):
    assert len(score(source)) == 11
    assert list(tmp_path.iterdir()) == [source]


def test_k_is_the_median_number_of_different_atoms(tmp_path):
    repeated = case("repeated", 6)
    for atom in repeated["atoms"][1:]:
        atom["text"] = repeated["atoms"][0]["text"]
    source = write(tmp_path / "cases.jsonl", case("x", 4), case("y", 2), repeated, without(case("z", 9), "relations"))
    assert score(source).k == 3  # of 4, 2, 1 and 9
    assert score(source, limit=2).k == 3
    assert score(source, settings=Settings(k=7)).k == 7


def test_limit_takes_the_first_cases(source, tmp_path):
    score(source, tmp_path / "out.jsonl", limit=3)
    assert [row["id"] for row in rows_in(tmp_path / "out.jsonl")] == ["case-0", "case-1", "case-2"]


@pytest.mark.parametrize(
    ("keys", "stage"),
    [(["relations"], "relate is"), (["relations", "contexts"], "retrieve and relate"), (["atoms"], "atomize")],
)
def test_a_stage_that_every_case_lacks_is_an_error_before_anything_is_written(tmp_path, keys, stage):
    source = write(tmp_path / "cases.jsonl", *(without(c, *keys) for c in CASES))
    with pytest.raises(InputError, match=stage) as error:
        score(source, tmp_path / "out.jsonl")
    assert "case-0" in str(error.value)
    assert "10 other cases" in str(error.value)
    assert list(tmp_path.iterdir()) == [source]


def test_a_case_for_which_no_context_was_found_lacks_no_stage(tmp_path):
    source = write(tmp_path / "cases.jsonl", without(case("x"), "relations") | {"contexts": []})
    score(source, tmp_path / "out.jsonl")
    (row,) = rows_in(tmp_path / "out.jsonl")
    assert row["status"] == "ok"
    assert {atom["status"] for atom in row["atoms"]} == {"no_evidence"}


@pytest.mark.usefixtures("chunks_of_four")
def test_going_on_after_a_stop_at_any_byte_gives_the_same_file(source, tmp_path):
    whole = tmp_path / "whole.jsonl"
    expected_summary = score(source, whole).to_dict()
    content = whole.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    cuts = {0, 1, 5, *ends, *(end - 1 for end in ends), *(end + 4 for end in ends[:-1]), *range(7, len(content), 397)}
    for cut in sorted(cuts):
        out = tmp_path / "out.jsonl"
        out.write_bytes(content[:cut])
        summary = score(source, out)
        assert out.read_bytes() == content, cut
        assert summary.to_dict() == expected_summary, cut


class Stopper(RunObserver):
    """Looks on, and stops the run after some rows."""

    def __init__(self, after):
        self.after = after
        self.seen = []

    def begins(self, found):
        self.total = found.cases

    def row(self, row, kept):
        self.seen.append((row["id"], kept))
        if len(self.seen) == self.after:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("chunks_of_four")
@pytest.mark.parametrize("after", [1, 4, 6, 11])
def test_what_was_finished_before_an_interrupt_is_kept(source, tmp_path, after):
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        score(source, out, observer=Stopper(after))
    assert [row["id"] for row in rows_in(out)] == [f"case-{i}" for i in range(after)]
    watch = Stopper(None)
    score(source, out, observer=watch)
    assert watch.seen == [(f"case-{i}", i < after) for i in range(11)]
    score(source, tmp_path / "whole.jsonl")
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_finished_file_is_left_alone(source, tmp_path):
    out = tmp_path / "out.jsonl"
    score(source, out)
    before = out.read_bytes()
    watch = Stopper(None)
    score(source, out, observer=watch)
    assert out.read_bytes() == before
    assert all(kept for _, kept in watch.seen)


def test_rows_do_not_depend_on_where_the_cases_are_read_from(source, tmp_path):
    twins = [tmp_path / "list.json", tmp_path / "packed.jsonl.gz"]
    twins[0].write_text(json.dumps(CASES, indent=2))
    twins[1].write_bytes(gzip.compress(source.read_bytes()))
    score(source, tmp_path / "out.jsonl")
    for twin in twins:
        score(twin, tmp_path / "twin.jsonl", overwrite=True)
        assert (tmp_path / "twin.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


def test_a_pipe_is_read_like_a_file(source, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(source.read_bytes()))
    writer.start()
    score(pipe, tmp_path / "piped.jsonl")
    writer.join()
    score(source, tmp_path / "out.jsonl")
    assert (tmp_path / "piped.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


@pytest.mark.parametrize("name", ["out.jsonl.gz", "out.json"])
def test_results_in_other_containers(source, tmp_path, name):
    score(source, tmp_path / "out.jsonl")
    packed = tmp_path / name
    with pytest.raises(KeyboardInterrupt):
        score(source, packed, observer=Stopper(5))
    assert not packed.exists()  # it takes its place when it is complete
    score(source, packed)
    if name.endswith(".gz"):
        assert gzip.decompress(packed.read_bytes()) == (tmp_path / "out.jsonl").read_bytes()
    else:
        assert json.loads(packed.read_bytes()) == rows_in(tmp_path / "out.jsonl")
    before = packed.read_bytes()
    score(source, packed)
    assert packed.read_bytes() == before
    with pytest.raises(OutputError, match="overwrite"):
        score(source, packed, Settings(preset="release"))
    assert packed.read_bytes() == before
    score(source, packed, Settings(preset="release"), overwrite=True)
    assert packed.read_bytes() != before


def test_results_of_other_settings_are_not_gone_on_with(source, tmp_path):
    out = tmp_path / "out.jsonl"
    score(source, out, limit=5)
    before = out.read_bytes()
    others = [
        Settings(preset="release"),
        Settings(k=5),
        Settings(version="FR2"),
        Settings(atom_prior=0.4),
        Settings(effort="fast"),
    ]
    for settings in others:
        with pytest.raises(OutputError, match=r"line 1 .*settings.*overwrite"):
            score(source, out, settings, limit=5)
    assert out.read_bytes() == before
    score(source, out, Settings(preset="release"), overwrite=True, limit=5)
    assert out.read_bytes() != before


def test_the_same_numbers_by_another_name_are_the_same_settings(source, tmp_path):
    out = tmp_path / "out.jsonl"
    score(source, out, Settings(preset="release"))
    before = out.read_bytes()
    score(source, out, Settings(encoding="conditional", context_prior=0.9))
    assert out.read_bytes() == before


def test_a_default_by_its_value_is_the_same_settings(source, tmp_path):
    out = tmp_path / "out.jsonl"
    score(source, out)
    before = out.read_bytes()
    limits = Limits(memory=default_memory(), rows=np.int64(1000))
    score(source, out, Settings(backend=default_backend(), limits=limits, k=np.float64(2), atom_prior=np.float32(0.5)))
    assert out.read_bytes() == before
    other = "cpu" if default_backend() == "xla" else "xla"
    for settings in (Settings(limits=Limits(memory=2**20)), Settings(backend=other)):
        with pytest.raises(OutputError, match="settings"):
            score(source, out, settings)


def test_the_default_memory_is_that_of_the_machine_and_not_of_the_moment(monkeypatch):
    def of(gibibytes, cores):
        default_memory.cache_clear()
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        pages = {"SC_PHYS_PAGES": gibibytes * 2**18 - 1000, "SC_PAGE_SIZE": 4096}  # the system keeps some
        monkeypatch.setattr(os, "sysconf", pages.__getitem__)  # what is free has no part in it
        return default_memory() / 2**30

    try:
        assert [of(64, 2), of(64, 16), of(65, 32), of(16, 64), of(1, 4)] == [1, 1, 1, 0.0625, 0.0625]
    finally:
        default_memory.cache_clear()


def test_results_of_another_input_are_not_gone_on_with(source, tmp_path):
    out = tmp_path / "out.jsonl"
    score(source, out)
    changed = write(tmp_path / "changed.jsonl", *CASES[:4], case("case-4", 2, "contradiction"), *CASES[5:])
    with pytest.raises(OutputError, match="line 5"):
        score(changed, out)


def test_results_of_more_cases_than_the_run_has_are_not_cut(source, tmp_path):
    out = tmp_path / "out.jsonl"
    score(source, out, Settings(k=2))
    before = out.read_bytes()
    with pytest.raises(OutputError, match="more results than the 3 cases"):
        score(source, out, Settings(k=2), limit=3)
    assert out.read_bytes() == before


def test_more_cases_may_be_added_to_the_input_where_k_is_given(source, tmp_path):
    out = tmp_path / "out.jsonl"
    score(write(tmp_path / "few.jsonl", *CASES[:6]), out, Settings(k=2))
    score(source, out, Settings(k=2))
    score(source, tmp_path / "whole.jsonl", Settings(k=2))
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


FOREIGN = [
    "notes of mine\n",
    "notes without an end",
    '{"id": "case-0"}\n',
    "[1, 2]\n",
    "\n\n",
    '{"id":1',
    '{"id":"case-0","note":"mine"}',
    '{"id":"case-1","status":"ok"',  # the row of another case
    '{"id":"case-0","status":"ok","fingerprint":"0"}',  # of another run
    '{"id":"case-0","status":"ok"\n}',
]


@pytest.mark.parametrize("content", FOREIGN)
@pytest.mark.parametrize("name", ["notes.txt", "notes.jsonl", "notes.json", "notes.json.part", "notes.jsonl.gz.part"])
def test_a_file_that_is_no_result_of_this_run_is_not_touched(source, tmp_path, name, content):
    notes = tmp_path / name
    notes.write_text(content)
    with pytest.raises(OutputError, match="overwrite"):
        score(source, tmp_path / name.removesuffix(".part"))
    assert notes.read_text() == content
    assert sorted(tmp_path.iterdir()) == sorted([source, notes])
    score(source, tmp_path / name.removesuffix(".part"), overwrite=True)


@pytest.mark.parametrize("end", [1, 4, 12, 22, 60, -1])
def test_a_line_of_this_run_that_was_cut_short_is_done_again(source, tmp_path, end):
    score(source, tmp_path / "whole.jsonl", Settings(k=2))
    whole = (tmp_path / "whole.jsonl").read_bytes()
    first, second, _ = whole.split(b"\n", 2)
    (tmp_path / "out.jsonl").write_bytes(first + b"\n" + (second + b"\n")[:end])
    score(source, tmp_path / "out.jsonl", Settings(k=2))
    assert (tmp_path / "out.jsonl").read_bytes() == whole


@pytest.mark.parametrize("content", ['["my", "notes"]', '[{"id": "case-0"}]', "nothing of yours"])
def test_a_finished_file_beside_the_lines_of_a_stopped_run_must_be_its_own(source, tmp_path, content):
    out, part = tmp_path / "out.json", tmp_path / "out.json.part"
    with pytest.raises(KeyboardInterrupt):
        score(source, out, observer=Stopper(5))
    out.write_text(content)
    before = part.read_bytes()
    with pytest.raises(OutputError, match="overwrite"):
        score(source, out)
    assert (out.read_text(), part.read_bytes()) == (content, before)
    out.write_text(json.dumps([json.loads(line) for line in before.splitlines()[:3]]))  # what an earlier run finished
    score(source, out)
    assert [row["id"] for row in json.loads(out.read_bytes())] == [c["id"] for c in CASES]
    assert not part.exists()


def test_foreign_lines_after_good_ones_are_not_dropped(source, tmp_path):
    out = tmp_path / "out.jsonl"
    score(source, out, Settings(k=2), limit=3)
    with out.open("a") as lines:
        lines.write("my own remark\n")
    before = out.read_bytes()
    with pytest.raises(OutputError, match="line 4"):
        score(source, out, Settings(k=2))
    assert out.read_bytes() == before


def test_the_input_is_never_the_output(source, tmp_path):
    before = source.read_bytes()
    for alias in (source, tmp_path / "link.jsonl", tmp_path / "hard.jsonl"):
        if alias.name == "link.jsonl":
            alias.symlink_to(source)
        elif alias.name == "hard.jsonl":
            alias.hardlink_to(source)
        with pytest.raises(OutputError, match="is also the input"):
            score(source, alias, overwrite=True)
    assert source.read_bytes() == before


def test_two_runs_never_write_to_one_file(source, tmp_path):
    out = tmp_path / "out.jsonl"

    class Second(Stopper):
        def row(self, row, kept):
            with pytest.raises(OutputError, match="another run is writing"):
                score(source, out)
            super().row(row, kept)

    watch = Second(2)
    with pytest.raises(KeyboardInterrupt):
        score(source, out, observer=watch)
    assert len(watch.seen) == 2
    score(source, out)  # the lock ended with the run
    assert len(rows_in(out)) == 11


def test_a_full_disk_is_an_output_error(source):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with pytest.raises(OutputError, match="free some space"):
        score(source, "/dev/full")


@pytest.mark.parametrize("out", ["no/such/folder/out.jsonl", "."])
def test_an_output_that_cannot_be_written_is_named(source, tmp_path, out):
    with pytest.raises(OutputError, match=str(tmp_path)):
        score(source, tmp_path / out)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "empty"), (b"\n\n", "blank"), (b"\x00\x01\x02\xff" * 50, "binary"), ("[1]".encode("utf-16"), "UTF-16")],
)
def test_an_input_with_nothing_to_read_is_an_error_and_leaves_no_output(tmp_path, content, message):
    source = tmp_path / "cases.jsonl"
    source.write_bytes(content)
    with pytest.raises(InputError, match=message):
        score(source, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 0.5},
        {"k": float("nan")},
        {"preset": "papers"},
        {"encoding": "x"},
        {"context_prior": 1.5},
        {"version": "FR4"},
        {"effort": "much"},
        {"method": "exact"},
        {"i_bound": 21},
        {"backend": "gpu"},
        *({name: ["x"]} for name in ("preset", "encoding", "version", "k", "effort", "method", "backend", "limits")),
        *({name: "1"} for name in ("context_prior", "atom_prior", "k", "i_bound", "limits")),
        {"k": True},
        {"i_bound": 2.5},
    ],
)
def test_settings_outside_of_what_is_allowed(wrong):
    with pytest.raises(SettingsError, match="allowed"):
        Settings(**wrong)


@pytest.mark.parametrize("value", ["1", [1], True, float("nan"), -1, 1 + 1j, object()], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Limits)])
def test_limits_of_any_type_are_told_by_name(name, value):
    with pytest.raises(SettingsError, match=f"{name} is .*allowed: a"):
        Limits(**{name: value})


def test_mini_buckets_on_request_promise_nothing(source, tmp_path):
    exact, bounded = tmp_path / "exact.jsonl", tmp_path / "wmb.jsonl"
    score(source, exact)
    score(source, bounded, Settings(method="wmb", i_bound=2))
    for before, row in zip(rows_in(exact), rows_in(bounded), strict=True):
        assert (before["diagnostics"]["method"], row["diagnostics"]["method"]) == ("exact", "wmb")
        for atom, other in zip(before["atoms"], row["atoms"], strict=True):
            assert other["p"] == pytest.approx(atom["p"], abs=1e-5)  # trees, which fit into the buckets
            assert (other["lower"], other["upper"], other["certain"]) == (0.0, 1.0, False)
    with pytest.raises(OutputError, match="not a result of this input with these settings"):
        score(source, bounded, Settings(method="wmb", i_bound=3))
    before = exact.read_bytes()
    score(source, exact, Settings(i_bound=3))  # says nothing where the method does not use it
    assert exact.read_bytes() == before


def test_fact_graphs_are_scored_too(tmp_path):
    nodes = [{"id": "a", "type": "atom", "probability": 0.5}, {"id": "c", "type": "context", "probability": 0.9}]
    edges = [{"from": "c", "to": "a", "relation": "entailment", "probability": 0.9}]
    (tmp_path / "graph.json").write_text(json.dumps({"nodes": nodes, "edges": edges}))
    score(tmp_path / "graph.json", tmp_path / "out.jsonl", Settings(preset="release"))
    (row,) = rows_in(tmp_path / "out.jsonl")
    assert row["atoms"][0]["p"] == pytest.approx(0.86, abs=1e-6)  # SPEC 2


def test_the_same_case_has_the_same_fingerprint_everywhere(source, tmp_path):
    settings = Settings(k=2)
    score(source, tmp_path / "all.jsonl", settings)
    score(write(tmp_path / "one.jsonl", CASES[7]), tmp_path / "one.out", settings)
    assert rows_in(tmp_path / "one.out")[0] == rows_in(tmp_path / "all.jsonl")[7]


def shared(name):
    path = SHARED / "cases" / name
    if not path.exists():
        pytest.skip(f"needs ../shared/cases/{name}")
    return path


def test_real_responses_end_to_end(tmp_path):
    found = score(shared("factcheck_gpt.jsonl"), tmp_path / "out.jsonl").to_dict()
    rows = rows_in(tmp_path / "out.jsonl")
    assert len(rows) == 47
    assert set(found["statuses"]) <= {"ok", "no_atoms"}
    assert found["human_labels"]["accuracy"]["value"] > 0.7
    for row in rows:
        for atom in row["atoms"]:
            assert (atom["label"] == "unverified") == (not atom["evidence"] or abs(atom["p"] - 0.5) <= 2e-5)


def test_the_real_fact_graph_has_the_value_of_the_specification(tmp_path):
    score(shared("fact_graph.json"), tmp_path / "out.jsonl", Settings(preset="release"))
    assert rows_in(tmp_path / "out.jsonl")[0]["atoms"][0]["p"] == pytest.approx(0.919149, abs=1e-6)


@pytest.mark.parametrize("name", ["flaherty_google.json", "flaherty_wikipedia.json"])
def test_a_real_problem_without_relations_says_which_stage_is_missing(name):
    with pytest.raises(InputError, match="the stage relate is missing"):
        score(shared(name))
