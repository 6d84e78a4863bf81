"""The console script, started as a user starts it: what it prints where, its exit codes, and stops at any moment."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import INTERRUPTED, OK, SCRIPT, SOME_FAILED, UNUSABLE, fcjax


def case(id, type="entailment", atoms=2, **more):
    return {
        "id": id,
        "atoms": [{"id": f"a{i}", "text": f"claim {i} of {id}", "label": "S"} for i in range(atoms)],
        "contexts": [{"id": f"c{i}", "text": f"passage {i} for {id}"} for i in range(atoms)],
        "relations": [
            {"source": f"c{i}", "target": f"a{i}", "type": type, "probability": 0.9 - i / 100} for i in range(atoms)
        ],
        **more,
    }


ODD = 'odd ] [/red] "q"\n{{x}} \x1b[31m 東京 مصر'  # the name of a case that a table must survive
GOOD = [case("one"), case("two", "contradiction"), case(ODD)]


def write(path, *cases):
    path.write_text("".join((c if isinstance(c, str) else json.dumps(c)) + "\n" for c in cases))
    return path


@pytest.fixture
def good(tmp_path):
    return write(tmp_path / "good.jsonl", *GOOD)


def test_score_prints_tables_and_writes_results(good, tmp_path):
    done = fcjax("score", good, "-o", tmp_path / "out.jsonl")
    assert done.returncode == OK, done.stderr
    shown = done.stdout.decode()
    assert "one" in shown
    assert "東京" in shown
    assert "precision" in shown
    assert "\x1b" not in shown  # no colours, and nothing from the input's own, outside of a terminal
    assert done.stderr == b""
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [row["id"] for row in rows] == ["one", "two", ODD]


def test_json_is_one_document_and_nothing_else(good):
    done = fcjax("score", good, "--json", "--preset", "release", "--graph", "FR2", "--k", "release")
    assert done.returncode == OK
    document = json.loads(done.stdout)
    assert document["means"]["precision"]["value"] == pytest.approx(2 / 3)
    assert document["settings"].items() >= {"encoding": "conditional", "context_prior": 0.9, "version": "FR2"}.items()
    assert done.stderr == b""


def test_results_on_standard_output_leave_the_tables_to_standard_error(good):
    done = fcjax("score", "-", "-o", "-", stdin=good.read_bytes())
    assert done.returncode == OK
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["one", "two", ODD]
    assert "precision" in done.stderr.decode()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_standard_output_under_the_name_of_its_device_is_standard_output(good, name):
    done = fcjax("score", good, "-o", name)
    assert done.returncode == OK, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["one", "two", ODD]
    assert "precision" in done.stderr.decode()


@pytest.mark.parametrize(
    ("closed", "args", "code", "message"),
    [
        ("<&-", "score good.jsonl", OK, ""),
        ("<&-", "score -", UNUSABLE, "standard input: the file is empty"),
        (">&-", "score good.jsonl", UNUSABLE, "standard output: cannot be written: Bad file descriptor"),
        (">&-", "score good.jsonl -o -", UNUSABLE, "standard output: cannot be written: Bad file descriptor"),
        (">&-", "score good.jsonl -q -o out.jsonl", OK, ""),
        ("2>&-", "score good.jsonl -o out.jsonl", OK, ""),
        ("<&- >&- 2>&-", "score good.jsonl -q -o out.jsonl", OK, ""),
        ("<&- >&- 2>&-", "score none.jsonl -q -o out.jsonl", UNUSABLE, ""),
    ],
)
def test_closed_standard_streams_are_no_bug(good, closed, args, code, message):
    done = subprocess.run(
        ["bash", "-c", f'"$0" {args} {closed}', SCRIPT], cwd=good.parent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "bug" not in done.stderr
    if "out.jsonl" in args and code == OK:
        assert len((good.parent / "out.jsonl").read_bytes().splitlines()) == 3


def test_quiet_prints_nothing(good):
    done = fcjax("score", good, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (OK, b"", b"")


def test_some_failed_cases_give_exit_code_one_and_a_warning_where_a_stage_is_missing(tmp_path):
    unready = {key: value for key, value in case("unready").items() if key != "relations"}
    source = write(tmp_path / "cases.jsonl", case("fine"), unready, "{broken")
    done = fcjax("score", source, "-o", tmp_path / "out.jsonl")
    assert done.returncode == SOME_FAILED
    assert "warning: 1 of 3 cases" in done.stderr.decode()
    assert "the stage relate is missing" in done.stderr.decode()
    assert "not JSON" in done.stdout.decode()


def test_cases_none_of_which_can_be_read_give_exit_code_two(tmp_path):
    done = fcjax("score", write(tmp_path / "cases.jsonl", "{broken", "[1]"))
    assert done.returncode == UNUSABLE
    assert "no cases could be read" in done.stderr.decode()


def test_what_cannot_be_used_is_said_in_one_line_before_any_work(good, tmp_path):
    unready = {key: value for key, value in case("unready").items() if key != "relations"}
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    attempts = {
        ("score", tmp_path / "missing.jsonl"): "does not exist",
        ("score", tmp_path): "directory",
        ("score", write(tmp_path / "unready.jsonl", unready)): "the stage relate is missing",
        ("score", tmp_path / "binary"): "binary",
        ("score", good, "-o", good): "is also the input",
        ("score", good, "-o", tmp_path / "no" / "out.jsonl"): "create the folder",
        ("score", good, "--k", "0"): "at least 1",
        ("score", good, "--memory", "lots"): "500M",
        ("score", good, "--json", "-o", "-"): "both use standard output",
    }
    for args, message in attempts.items():
        done = fcjax(*args)
        assert done.returncode == UNUSABLE, args
        assert message in done.stderr.decode(), args
        assert done.stdout == b"", args
        assert len(done.stderr.splitlines()) <= 4, args
    assert not (tmp_path / "out.jsonl").exists()


def test_a_finished_run_done_again_says_what_it_did(good, tmp_path):
    out = tmp_path / "out.jsonl"
    assert fcjax("score", good, "-o", out).stdout.decode().endswith(f"3 results in {out}\n")
    assert (
        fcjax("score", good, "-o", out)
        .stdout.decode()
        .endswith(f"3 results in {out}: 3 kept from an earlier run, 0 new\n")
    )
    out.write_bytes(out.read_bytes()[:-5])
    assert (
        fcjax("score", good, "-o", out)
        .stdout.decode()
        .endswith(f"3 results in {out}: 2 kept from an earlier run, 1 new\n")
    )


def test_results_are_no_input(good, tmp_path):
    out = tmp_path / "out.jsonl"
    fcjax("score", good, "-o", out)
    for args in (("score", out), ("relate", out, "--dry-run", "--model", "m", "--base-url", "http://127.0.0.1:9")):
        done = fcjax(*args, FCJAX_STORE=str(tmp_path / "store.sqlite"))
        assert done.returncode == UNUSABLE
        assert "a result of `fcjax score`" in done.stderr.decode()
        assert len(done.stderr.decode().splitlines()) == 1


def test_one_object_over_many_lines_is_one_error(tmp_path):
    spread = tmp_path / "case.jsonl"
    spread.write_text(json.dumps(case("one"), indent=2))
    for command in ("score", "validate"):
        done = fcjax(command, spread)
        assert done.returncode in (UNUSABLE, SOME_FAILED)
        assert (done.stdout + done.stderr).decode().count("name it .json") == 1
        assert "not JSON" not in (done.stdout + done.stderr).decode()
    assert fcjax("score", spread.rename(tmp_path / "case.json")).returncode == OK


@pytest.mark.parametrize("columns", [12, 24, 40, 60, 80, 200])
def test_names_of_cases_stay_on_narrow_terminals(tmp_path, columns):
    source = write(tmp_path / "cases.jsonl", case("a-case-with-a-name"), case("b", status="retrieval_failed"))
    shown = fcjax("score", source, COLUMNS=str(columns)).stdout.decode()
    table = shown.partition("\n\n")[0] if columns < 80 else shown
    assert all(len(line) <= columns for line in shown.splitlines())
    names = "".join(line[2 : 2 + 18].split("  ")[0].strip() for line in table.splitlines()[3:])
    assert "a-case-with-a-name" in names
    assert ("Pr" in shown.splitlines()[2]) == (columns > 20)


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.parametrize(
    "args", [["score", "good.jsonl"], ["score", "good.jsonl", "--json"], ["score", "good.jsonl", "-o", "-"], ["--help"]]
)
def test_standard_output_that_is_full_is_called_by_its_name(good, args):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([SCRIPT, *args], cwd=good.parent, env=BUFFERED, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == UNUSABLE
    assert done.stderr.count(b"\n") == 1
    assert b"standard output: cannot be written: No space left" in done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "click",
        "fcjax.cli.shell",
        "fcjax.cli.score",
        "fcjax.cli.run_score",
        "fcjax.runs.score_file",
        "numba",
        "rich.console",
    ],
)
def test_an_interrupt_while_modules_load_is_no_traceback(good, tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    done = fcjax("score", good, PYTHONPATH=str(tmp_path))
    assert done.returncode == INTERRUPTED
    assert done.stderr.startswith(b"fcjax: stopped")


def test_the_package_runs_as_a_module(good):
    run = [sys.executable, "-P", "-m", "fcjax", "validate", str(good)]
    done = subprocess.run(run, capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode()) == (OK, f"{good}: no faults, no notes\n")


def test_no_command_writes_over_its_input(good, tmp_path):
    model, evidence, answer = tmp_path / "model.uai", tmp_path / "seen.evid", tmp_path / "seen.json"
    assert fcjax("convert", good, model, "--case", "one").returncode == OK
    evidence.write_text("1 0 1\n")
    part, link = tmp_path / "out.json.part", tmp_path / "link.jsonl"
    part.write_bytes(good.read_bytes())
    link.symlink_to(good)
    names = Path(f"{model}.names")
    before = {file: file.read_bytes() for file in (good, model, evidence, names, part)}
    for args in (
        ("score", good, "-o", link, "--overwrite"),
        ("score", part, "-o", tmp_path / "out.json", "--overwrite"),  # where its lines gather until it is done
        ("convert", good, link),
        ("convert", model, model),
        ("convert", names, model, "--from", "cases", "--to", "uai"),
        ("infer", model, "-o", model),
        ("infer", model, "-o", names),
        ("infer", model, "--evid", evidence, "-o", evidence),
    ):
        done = fcjax(*args)
        assert (done.returncode, "is also the input" in done.stderr.decode()) == (UNUSABLE, True), args
    for args, stdin, stdout in (
        (("score", "-", "-o", good, "--overwrite"), good, None),
        (("convert", "-", good), good, None),
        (("infer", "-", "-o", model), model, None),
        (("score", good, "-o", "-"), None, good),
    ):
        with open(stdin or os.devnull, "rb") as given, open(stdout or answer, "ab") as taken:
            done = subprocess.run(
                [SCRIPT, *map(str, args)], stdin=given, stdout=taken, stderr=subprocess.PIPE, check=False
            )
        assert (done.returncode, b"is also the input" in done.stderr) == (UNUSABLE, True), args
    assert {file: file.read_bytes() for file in before} == before


def test_other_results_are_refused_with_the_way_out(good, tmp_path):
    out = tmp_path / "out.jsonl"
    fcjax("score", good, "-o", out, "-q")
    before = out.read_bytes()
    done = fcjax("score", good, "-o", out, "--preset", "release")
    assert (done.returncode, out.read_bytes()) == (UNUSABLE, before)
    assert "--overwrite" in done.stderr.decode()
    assert fcjax("score", good, "-o", out, "--preset", "release", "--overwrite").returncode == OK
    assert out.read_bytes() != before


def test_a_reader_that_goes_away_is_no_error(good):
    pipe = subprocess.Popen([SCRIPT, "score", good, "-o", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pipe.stdout.close()
    stderr = pipe.stderr.read()
    pipe.stderr.close()
    assert pipe.wait(60) == 141  # as a shell would have it for SIGPIPE
    assert stderr == b""


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A file that takes a while, and its results without any stop."""
    folder = tmp_path_factory.mktemp("many")
    source = write(folder / "cases.jsonl", *(case(f"case-{i}", atoms=1 + i % 20) for i in range(2500)))
    assert fcjax("score", source, "-o", folder / "whole.jsonl", "-q").returncode == OK
    return source, (folder / "whole.jsonl").read_bytes()


def start(source, out):
    return subprocess.Popen([SCRIPT, "score", source, "-o", out, "-q"], stderr=subprocess.PIPE)


def wait_for_bytes(process, out, size):
    while process.poll() is None and (not out.exists() or out.stat().st_size < size):
        time.sleep(0.005)


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_file(many, tmp_path):
    source, whole = many
    out = tmp_path / "out.jsonl"
    chance = random.Random(7)
    kills = size = 0
    for _ in range(4):
        process = start(source, out)
        wait_for_bytes(process, out, size + 1)
        time.sleep(chance.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.stderr.close()
        kills += process.wait(60) == -signal.SIGKILL
        assert whole.startswith(out.read_bytes())  # half a line at most, and none of another kind
        assert out.stat().st_size >= size - 5000  # finished cases are kept
        size = out.stat().st_size
    assert kills >= 2  # else nothing was tried
    assert fcjax("score", source, "-o", out, "-q").returncode == OK
    assert out.read_bytes() == whole


@pytest.mark.slow
def test_interrupted_it_says_how_to_resume(many, tmp_path):
    source, whole = many
    out = tmp_path / "out.jsonl"
    process = start(source, out)
    two_rows = len(b"".join(whole.splitlines(keepends=True)[:2]))  # the last one written may not be counted yet
    wait_for_bytes(process, out, two_rows)
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=60)[1].decode()
    assert process.returncode == INTERRUPTED
    assert stderr.startswith("fcjax: stopped; ")
    assert re.search(r"finished cases? kept; run the same command to resume\n\Z", stderr)
    kept = int(stderr.split()[2].replace(",", ""))
    assert kept > 0
    assert out.read_bytes().count(b"\n") - kept in (0, 1)  # the interrupt may come between a row and its counting
    assert fcjax("score", source, "-o", out, "-q").returncode == OK
    assert out.read_bytes() == whole


@pytest.mark.slow
def test_progress_is_drawn_on_a_terminal_only(many, tmp_path):
    source, _ = many
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [SCRIPT, "score", source, "-o", tmp_path / "out.jsonl"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(theirs)
    drawn = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how a terminal ends
            break
        if not part:
            break
        drawn += part
    os.close(ours)
    shown = process.communicate(timeout=60)[0].decode()
    assert process.returncode == OK
    assert b"cases/s" in drawn
    assert b"left" in drawn
    assert b"/2500" in drawn
    assert "25 worst of 2,500" in shown
    assert "\x1b" not in shown  # standard output was no terminal


def test_the_worst_scored_cases_are_shown_beside_a_few_failed_ones(tmp_path):
    refused = [{"id": f"refused {i}", "status": "refused", "reason": "it declines"} for i in range(40)]
    source = write(tmp_path / "in.jsonl", *refused, *(case(f"scored {i}") for i in range(280)))
    shown = fcjax("score", source, COLUMNS="120").stdout.decode()
    assert "The 25 worst of 320 cases, with 5 of 40 that failed" in shown
    table = shown.partition("S supported")[0]
    assert (len(re.findall("refused [0-9]", table)), table.count("scored ")) == (5, 20)
    assert shown.count(": it declines") == 5
    assert "and 35 more; OUT has the reason for each" in shown


def test_validate_says_what_makes_bare_responses_ready(good, tmp_path):
    source = write(tmp_path / "in.jsonl", {"id": "1", "response": "One."}, {"id": "2", "response": "Two."})
    done = fcjax("validate", source)
    assert done.returncode == OK
    assert "2 cases not ready for `fcjax score`; run `fcjax critique` to add what is missing" in done.stdout.decode()
    assert "critique" not in fcjax("validate", good).stdout.decode()


def test_validate_lists_every_fault_with_its_place(good, tmp_path):
    wrong = case("w", relations=[{"source": "nobody", "target": "a0", "type": "hearsay", "probability": "0.9"}])
    source = write(tmp_path / "wrong.jsonl", case("fine"), wrong, "{broken")
    done = fcjax("validate", source, good)
    assert done.returncode == SOME_FAILED
    shown = done.stdout.decode()
    for seen in (
        "nobody",
        "hearsay",
        '"0.9"',
        "relations[0].source",
        f"{source}:2",
        f"{source}:3",
        "4 faults",
        "no faults",
    ):
        assert seen in shown
    document = json.loads(fcjax("validate", "--json", source).stdout)
    faults = document["files"][0]["faults"]
    assert document["n_faults"] == len(faults) == 4
    assert {fault["line"] for fault in faults} == {2, 3}
    assert faults[0].keys() == {"file", "line", "case", "field", "message"}
    assert fcjax("validate", good).returncode == OK


def test_convert_there_and_back(good, tmp_path):
    assert fcjax("convert", good, tmp_path / "problems.json", "--to", "problem").returncode == OK
    assert {"input", "output"} <= json.loads((tmp_path / "problems.json").read_bytes())[0].keys()
    done = fcjax("convert", tmp_path / "problems.json", tmp_path / "back.jsonl", "--json")
    assert (done.returncode, json.loads(done.stdout)["written"]) == (OK, 3)
    for name in ("good", "back"):
        score = fcjax("score", tmp_path / f"{name}.jsonl", "-o", tmp_path / f"{name}.out", "-q")
        assert score.returncode == OK
    relevant = [[json.loads(line)["atoms"] for line in (tmp_path / f"{name}.out").open()] for name in ("good", "back")]
    assert relevant[0] == relevant[1]


def test_convert_leaves_out_what_is_wrong_and_says_so(tmp_path):
    done = fcjax("convert", write(tmp_path / "cases.jsonl", case("fine"), "{broken"), tmp_path / "out.json")
    assert done.returncode == SOME_FAILED
    assert "not JSON" in done.stderr.decode()
    assert [row["id"] for row in json.loads((tmp_path / "out.json").read_bytes())] == ["fine"]
    assert fcjax("convert", write(tmp_path / "bad.jsonl", "{broken"), tmp_path / "no.jsonl").returncode == UNUSABLE


def test_a_case_as_a_bare_model_has_the_same_posteriors(good, tmp_path):
    model = tmp_path / "model.uai"
    assert fcjax("convert", good, model).returncode == UNUSABLE  # which of the three?
    assert fcjax("convert", good, model, "--case", "two", "--preset", "release").returncode == OK
    done = fcjax("infer", model, "--json")
    assert done.returncode == OK
    answer = json.loads(done.stdout)
    p = {row["name"]: row["p"] for row in answer["marginals"]}
    assert p["a0"] == pytest.approx(0.14, abs=1e-6)  # SPEC 2: one contradiction at 0.9, release
    assert (answer["status"], answer["method"], answer["width"]) == ("ok", "exact", 1)
    (tmp_path / "seen.evid").write_text(f"1 {list(p).index('c0')} 0\n")
    observed = fcjax("infer", model, "--evid", tmp_path / "seen.evid", "-o", tmp_path / "answer.json")
    assert "a0" in observed.stdout.decode()
    answer = json.loads((tmp_path / "answer.json").read_bytes())
    assert answer["evidence"] == {"c0": False}
    assert {row["name"]: row["p"] for row in answer["marginals"]}["a0"] == pytest.approx(0.5, abs=1e-6)


def test_soft_in_score_rescore_and_convert(tmp_path):
    unsure = case("x", atoms=1)
    answers = {"entailment": 0.5, "contradiction": 0.2, "neutral": 0.3}
    unsure["relations"][0] |= {"probability": 0.5, "distribution": answers}
    source, out = write(tmp_path / "cases.jsonl", unsure), tmp_path / "out.jsonl"
    done = fcjax("score", source, "-o", out, "--encoding", "soft", "--context-prior", "0.8", "--json")
    assert done.returncode == OK
    assert json.loads(done.stdout)["settings"]["encoding"] == "soft"
    truth = (1 - 0.8 * 0.2) / (2 - 0.8 * (0.2 + 0.5))  # docs/score.md
    assert json.loads(out.read_bytes())["atoms"][0]["p"] == pytest.approx(truth, abs=1e-6)
    model = tmp_path / "model.uai"
    assert fcjax("convert", source, model, "--encoding", "soft", "--context-prior", "0.8").returncode == OK
    marginals = json.loads(fcjax("infer", model, "--json").stdout)["marginals"]
    assert {row["name"]: row["p"] for row in marginals}["a0"] == pytest.approx(truth, abs=1e-6)
    graph, preset = tmp_path / "graph.json", ("--preset", "release-cli")
    assert fcjax("convert", source, graph, "--to", "graph", *preset).returncode == OK
    done = fcjax("score", graph, "-o", tmp_path / "again.jsonl", "--encoding", "soft")
    assert done.returncode == OK
    truth = (1 - 0.9 * 0.2) / (2 - 0.9 * (0.2 + 0.5))  # the file has the preset's context prior and the distribution
    assert json.loads((tmp_path / "again.jsonl").read_bytes())["atoms"][0]["p"] == pytest.approx(truth, abs=1e-6)


def test_mini_buckets_of_a_chosen_size(good, tmp_path):
    options = ("--method", "wmb", "--i-bound", "1")
    assert fcjax("score", good, "-o", tmp_path / "out.jsonl", "--preset", "release", *options).returncode == OK
    row = json.loads((tmp_path / "out.jsonl").read_bytes().splitlines()[1])
    assert row["diagnostics"]["method"] == "wmb"
    assert row["atoms"][0]["p"] == pytest.approx(0.14, abs=1e-6)  # SPEC 2; a tree, where mini-buckets are exact
    assert (row["atoms"][0]["lower"], row["atoms"][0]["upper"], row["atoms"][0]["certain"]) == (0.0, 1.0, False)
    ends = [(i, j) for i in range(5) for j in range(i)]  # five variables that each want to be equal to all others
    scopes, tables = "".join(f"2 {i} {j}\n" for i, j in ends), "\n4\n3 1 1 2\n" * len(ends)
    model = tmp_path / "clique.uai"
    model.write_text(f"MARKOV\n5\n2 2 2 2 2\n{len(ends)}\n{scopes}{tables}")
    answer = json.loads(fcjax("infer", model, "--json", *options).stdout)
    assert answer["method"] == "wmb"
    assert answer["log_z"] > json.loads(fcjax("infer", model, "--json").stdout)["log_z"]  # an upper bound
    assert {(row["lower"], row["upper"]) for row in answer["marginals"]} == {(0.0, 1.0)}


def test_a_model_without_a_solution_says_so(tmp_path):
    (tmp_path / "model.uai").write_text("MARKOV\n1\n2\n1\n1 0\n2\n0 0\n")
    done = fcjax("infer", tmp_path / "model.uai", "--json")
    assert done.returncode == SOME_FAILED
    assert json.loads(done.stdout)["status"] == "inconsistent"
    (tmp_path / "three.uai").write_text("MARKOV\n1\n3\n1\n1 0\n3\n1 1 1\n")
    done = fcjax("infer", tmp_path / "three.uai")
    assert done.returncode == UNUSABLE
    assert "3 states" in done.stderr.decode()


def cpu_seconds(*args):
    """What a run costs beside what else the machine has to do."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert fcjax(*args).returncode == OK
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["score", "--help"]])
def test_version_and_help_are_quick(args):
    assert min(cpu_seconds(*args) for _ in range(2)) < 0.5


def test_a_bug_is_one_line_and_a_traceback_only_where_asked_for(good, tmp_path):
    broken = tmp_path / "sitecustomize.py"
    broken.write_text("import fcjax.runs.input_scan\nfcjax.runs.input_scan.scan_input = None\n")
    done = fcjax("score", good, PYTHONPATH=str(tmp_path))
    assert done.returncode == 70
    assert "a bug in fcjax" in done.stderr.decode()
    args = [SCRIPT, "score", str(good), "--verbose"]
    loud = subprocess.run(args, capture_output=True, env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=False)
    assert b"Traceback" in loud.stderr
