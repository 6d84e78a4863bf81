"""`fcjax data` as a user starts it: every builder, what it says of bad rows, and the way of corrections and back."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from dataset_rows import BIO, CHECKED, CLAIMS, CORRECTED, EXPORT, QUESTION, TABLE, THREAD, answer
from jsonl import write
from scripted_server import ScriptedServer

from fcjax.cli.data import data as data_commands
from fcjax.cli.main import commands
from fcjax.io.datasets import SPLITS
from fcjax.io.datasets.selection import is_drawn
from fcjax.io.files import read_cases

OK, SOME_FAILED, UNUSABLE = 0, 1, 2


def run(*args, **env):
    done = CliRunner().invoke(commands, ["data", *map(str, args)], env={"FCJAX_MODEL": "m", **env})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


FILES = {
    "factscore": (BIO, 1),
    "factool": (CLAIMS, 1),
    "factcheck-gpt": (CHECKED, 1),
    "conflictbank": (QUESTION, 2),
    "askhistorians": (THREAD | {"subreddit": "AskHistorians"}, 1),
    "wikicontradict": (TABLE, 2),
}


@pytest.mark.parametrize("name", FILES)
def test_every_builder_writes_cases(tmp_path, name):
    row, count = FILES[name]
    source = tmp_path / ("in.csv" if name == "wikicontradict" else "in.jsonl")
    write(source, row)
    out = tmp_path / "out.jsonl"
    done = run(name, source, "-o", out)
    assert (done.exit_code, done.stderr) == (OK, "")
    assert f"{count} case" in done.stdout
    assert all(not row.faults for row in read_cases(out))
    first = out.read_bytes()
    assert run(name, source, "-o", out, "-q").stdout == ""
    assert out.read_bytes() == first


def test_bad_rows_are_told_and_left_out(tmp_path):
    source = write(tmp_path / "in.jsonl", BIO, {"topic": "Bo"}, BIO | {"mood": 1}, BIO | {"output": ""})
    out = tmp_path / "out.jsonl"
    done = run("factscore", source, "-o", out)
    assert done.exit_code == SOME_FAILED
    assert (
        f"fcjax: error: {source}:2: case 'factscore-in-2', output: output is missing; allowed: a non-blank string"
        in done.stderr
    )
    assert "1 row skipped: the model gave no output" in done.stderr
    assert "field mood is not part of the format and is ignored (1 row)" in done.stderr
    assert f"2 cases in {out}, from 4 rows, 1 left out\n" == done.stdout
    document = json.loads(run("factscore", source, "-o", out, "--json").stdout)
    assert (document["n_rows"], document["n_cases"], document["n_bad_rows"]) == (4, 2, 1)
    assert document["faults"][0]["field"] == "output"
    assert document["unknown_fields"] == {"mood": 1}


def test_nothing_usable_leaves_the_output_as_it_was(tmp_path):
    source, out = write(tmp_path / "in.jsonl", {"topic": "Bo"}), write(tmp_path / "out.jsonl", "keep me")
    done = run("factscore", source, "-o", out)
    assert (done.exit_code, out.read_text()) == (UNUSABLE, "keep me\n")
    assert "output is missing" in done.stderr
    write(source, BIO)  # one case: two of the splits are empty
    full = [split for split in SPLITS if run("factscore", source, "-o", "-", "--split", split).exit_code == OK]
    assert len(full) == 1
    done = run("factscore", source, "-o", out, "--split", "test" if full != ["test"] else "train")
    assert (done.exit_code, out.read_text()) == (UNUSABLE, "keep me\n")
    assert "the split is empty" in done.stderr
    assert run("factscore", source, "-o", source).exit_code == UNUSABLE
    assert run("factscore", source, "-o", "-", "--json").exit_code == UNUSABLE
    assert run("factscore", "-o", out).exit_code == UNUSABLE
    assert run("factscore", tmp_path / "none.jsonl", "-o", out).exit_code == UNUSABLE


def test_limit_seed_and_split(tmp_path):
    source = write(tmp_path / "in.jsonl", *(BIO | {"topic": f"T{i}"} for i in range(30)))

    def ids(*options):
        done = run("factscore", source, "-o", "-", *options)
        assert done.exit_code == OK, done.stderr
        return [json.loads(line)["id"] for line in done.stdout.splitlines()]

    assert ids("--limit", 3) == ["factscore-in-1", "factscore-in-2", "factscore-in-3"]
    assert ids("--limit", 3, "--seed", 1) == ids("--limit", 3, "--seed", 1) != ids("--limit", 3)
    assert len(ids("--split", "train", "--seed", 5)) == 24
    assert not set(ids("--split", "train", "--seed", 5)) & set(ids("--split", "test", "--seed", 5))


def test_conflictbank_options(tmp_path):
    source, out = write(tmp_path / "in.jsonl", QUESTION), tmp_path / "out.jsonl"
    done = run("conflictbank", source, "-o", out, "--conflict", "temporal", "--claims", "false", "--relations", 0.8)
    assert done.exit_code == OK
    (case,) = [row.case for row in read_cases(out)]
    assert (case.id, [one.probability for one in case.relations]) == ("conflictbank-in-1-temporal", [0.8, 0.8])


def test_eli5_makes_half_of_the_answers_wrong_and_resumes(tmp_path):
    rows = [
        THREAD | {"q_id": f"q{i}", "answers": {"text": [f"It is number {i} of them."], "score": [1]}} for i in range(6)
    ]
    source, out = write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl"
    with ScriptedServer(answer) as server:
        env = {"OPENAI_BASE_URL": server.url, "FCJAX_STORE": str(tmp_path / "s.sqlite")}
        command = ("eli5", source, "-o", out, "--seed", next(seed for seed in range(99) if is_drawn(seed, 2)))
        dry = run(*command, "--dry-run", **env)
        assert (dry.exit_code, dry.stdout, out.exists(), server.calls) == (OK, "", False, 0)
        assert "3 prompts, 0 in the store: 3 to send" in dry.stderr
        done = run(*command, **env)
        assert done.exit_code == SOME_FAILED
        assert "case 'eli5-q2': no wrong answer: unreadable: no wrong answer can be read" in done.stderr
        assert f"5 cases in {out}, from 6 rows, 1 left out" in done.stdout
        cases = [row.case for row in read_cases(out)]
        assert all(case.extra["split"] in SPLITS for case in cases)
        assert [case.extra["answer"] for case in cases].count("right") == 3
        wrong = [case for case in cases if case.extra["answer"] == "wrong"]
        assert len(wrong) == 2
        assert all(case.response == case.extra["reference"].replace("number", "letter") for case in wrong)
        calls, before = server.calls, out.read_bytes()
        again = run(*command, "--replay", **env)
        assert (again.exit_code, out.read_bytes(), server.calls) == (SOME_FAILED, before, calls)
        stopped = run(*command, "--errors", 2, "--budget-prompts", 0, **env)
        assert (stopped.exit_code, out.read_bytes()) == (SOME_FAILED, before)
        assert "run the same command to resume" in stopped.stderr
    done = run("eli5", source, "-o", out, "--no-wrong", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert done.exit_code == OK
    assert [row.case.response for row in read_cases(out)] == [f"It is number {i} of them." for i in range(6)]


def test_corrections_become_conversations(tmp_path):
    rows = [CORRECTED | {"id": f"c{i}"} for i in range(10)]
    source, out = write(tmp_path / "c.jsonl", *rows, {"id": "bad"}), tmp_path / "t.jsonl"
    done = run("finetune", source, "-o", out, "--split", "train")
    assert done.exit_code == SOME_FAILED
    assert f"8 conversations in {out}, from 11 rows, 1 left out" in done.stdout
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(list(row) == ["messages"] for row in rows)
    assert run("finetune", source, "-o", out, "--no-feedback", "--limit", 1).exit_code == OK
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert "Feedback" not in row["messages"][1]["content"]


def test_corrections_go_to_label_studio_and_come_back(tmp_path):
    source = write(tmp_path / "c.jsonl", *(CORRECTED | {"id": f"c{i}"} for i in range(3)))
    tasks, interface = tmp_path / "tasks.json", tmp_path / "interface.xml"
    assert run("label-studio", source, "-o", tasks, "--interface", interface).exit_code == OK
    found = json.loads(tasks.read_text())
    assert [task["data"]["id"] for task in found] == ["c0", "c1", "c2"]
    assert interface.read_text().startswith("<View>")
    assert run("label-studio", source, "-o", tmp_path / "tasks.jsonl").exit_code == UNUSABLE
    for task in found:  # an annotator who finds out each time
        better = task["data"]["corrected_is"]
        result = [{"from_name": "preferred", "type": "choices", "value": {"choices": [better]}}]
        task["annotations"] = [{"completed_by": 1, "result": result}]
    export = tmp_path / "export.json"
    export.write_text(json.dumps(found))
    document = json.loads(run("annotations", export, "--json").stdout)
    assert document["tasks"] == 3
    assert document["criteria"][0]["wins"] == 1


def test_annotations_as_a_table(tmp_path):
    export, out = tmp_path / "export.json", tmp_path / "table.md"
    export.write_text(json.dumps([*EXPORT, {"data": {}}]))
    done = run("annotations", export)
    assert done.exit_code == SOME_FAILED
    assert "| factuality | 2 | 2.75 | 3.50 |" in done.stdout
    assert "2 tasks, 3 annotators" in done.stderr
    assert "corrected_is is missing" in done.stderr
    assert run("annotations", export, "-o", out, "-q").stdout == ""
    assert out.read_text() == done.stdout
    export.write_text(json.dumps([{"data": {"corrected_is": "A"}, "annotations": []}]))
    done = run("annotations", export)
    assert (done.exit_code, "has no annotations" in done.stderr) == (UNUSABLE, True)


def test_commands_of_the_page_run(tmp_path, monkeypatch):
    page = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S) for line in block.splitlines()]
    monkeypatch.chdir(tmp_path)
    for name in ("ChatGPT.jsonl", "InstructGPT.jsonl"):
        write(Path(name), BIO)
    write(Path("askh.jsonl"), THREAD | {"subreddit": "AskHistorians"})
    rows = [THREAD | {"q_id": f"q{i}"} for i in range(4)]
    Path("eli5-category-train.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    write(Path("cb_qa.jsonl"), QUESTION)
    write(Path("factcheck-GPT-benchmark.jsonl"), CHECKED)
    write(Path("WikiContradict.csv"), TABLE)
    write(Path("knowledge_qa.jsonl"), CLAIMS)
    write(Path("corrections.jsonl"), *(CORRECTED | {"id": f"c{i}"} for i in range(10)))
    Path("export.json").write_text(json.dumps(EXPORT))
    told = []
    with ScriptedServer(lambda messages: "<wrong>Long waves scatter more.</wrong>") as server:
        for line in lines:
            program, group, *arguments = shlex.split(line.replace("http://localhost:8000/v1", server.url))
            assert (program, group) == ("fcjax", "data")
            done = run(*arguments, FCJAX_STORE=str(tmp_path / "s.sqlite"))
            assert done.exit_code == OK, f"{line}\n{done.stdout}\n{done.stderr}"
            told.append(arguments[0])
    assert set(told) == set(data_commands.commands)


def test_every_command_has_help():
    for name, command in data_commands.commands.items():
        done = run(name, "--help")
        assert (done.exit_code, command.help is not None) == (OK, True)
