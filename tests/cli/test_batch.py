"""Runs by files, in the process of the test: rounds of `--batch-out` and `cache import` against a run that asks."""

from __future__ import annotations

import json
import sys

import pytest
import relations
import scripted_model as model
import scripted_writer
from batch_answers import BatchServer, answer_file, failed, last_round, output_file
from command import KEY, OK, SOME_FAILED, UNUSABLE
from jsonl import rows_in, write
from scripted_critique import corpus_of
from scripted_server import ScriptedServer

from fcjax.__main__ import main

WAITING = 3
EVERYTHING = ("--queries", "model", "--summarise")


@pytest.fixture
def server():
    with ScriptedServer(scripted_writer.answer, key=KEY) as running:
        yield running


@pytest.fixture
def corpus(tmp_path):
    return corpus_of(tmp_path, 6)


@pytest.fixture
def fcjax(server, tmp_path, monkeypatch, capsys):
    """Runs a command: its exit code, standard output and standard error."""
    for name, value in {"OPENAI_API_KEY": KEY, "FCJAX_MODEL": "scripted", "OPENAI_BASE_URL": server.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FCJAX_STORE", str(tmp_path / "store.sqlite"))

    def go(*args):
        monkeypatch.setattr(sys, "argv", ["fcjax", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed, said = capsys.readouterr()
        assert "this is a bug" not in said, said
        return ended.value.code, printed, said

    return go


def by_files(fcjax, command, folder, answer, *, spoiled=False):
    """The exit code of a command once nothing is lacking, and how many prompts each round had."""
    rounds = []
    while True:
        code, printed, said = fcjax(*command, "--batch-out", folder, "--batch-requests", 10, "--json")
        if code != WAITING:
            return code, rounds
        told = json.loads(printed)["batch"]
        rounds.append(told["n_prompts"])
        assert [file["file"] for file in told["files"]] == [str(path) for path in last_round(folder)], said
        assert sum(file["requests"] for file in told["files"]) == told["n_prompts"]
        shift = len(rounds)
        for number, file in enumerate(last_round(folder)):
            if not (spoiled and number == 1):  # of some rounds, a part is never answered
                answer_file(file, answer, fails=lambda n: spoiled and (n + shift) % 8 == 0)  # noqa: B023
        code, _, said = fcjax("cache", "import", "--batch", folder)
        assert code == OK, said


def same(tmp_path, one, other, cases):
    return all((tmp_path / f"{one}{end}").read_bytes() == (tmp_path / f"{other}{end}").read_bytes() for end in cases)


def test_critique_by_files_is_critique_by_an_endpoint(fcjax, server, corpus, tmp_path, monkeypatch):
    source = write(tmp_path / "in.jsonl", *(model.case(town, 1 + town % 3) for town in range(6)))

    def answer(messages):
        first = messages[0]["content"]
        if "<hypothesis>\nTown 1 has" in first and "schools.\n</premise>" in first:
            return "Who knows?"  # always, so that the pair fails
        if "<hypothesis>\nTown 2 has" in first and len(messages) == 1:
            return "Well. [enta"  # repaired
        return scripted_writer.answer(messages)

    server.answer = answer
    command = ["critique", source, "--corpus", corpus, *EVERYTHING]
    assert fcjax(*command, "-o", tmp_path / "asked.jsonl")[0] == SOME_FAILED
    calls = server.calls
    monkeypatch.setenv("FCJAX_STORE", str(tmp_path / "files.sqlite"))
    monkeypatch.delenv("OPENAI_API_KEY")
    command += ["-o", tmp_path / "files.jsonl"]
    code, rounds = by_files(fcjax, command, tmp_path / "prompts", answer, spoiled=True)
    assert code == SOME_FAILED
    assert len(rounds) > 5
    assert same(tmp_path, "asked", "files", (".jsonl", ".cases.jsonl"))
    assert server.calls == calls, "with --batch-out nothing is sent"
    assert "unreadable" in (tmp_path / "files.cases.jsonl").read_text()


@pytest.mark.parametrize("corrector", ["factcorrector", "rac"])
def test_correct_by_files_is_correct_by_an_endpoint(fcjax, server, corpus, tmp_path, monkeypatch, corrector):
    source = write(tmp_path / "in.jsonl", *(model.case(town, 1 + town % 3) for town in range(4)))
    command = ["correct", source, "--corpus", corpus, "--corrector", corrector, "--refiner-model", "large"]
    assert fcjax(*command, "-o", tmp_path / "asked.jsonl")[0] == OK
    calls = server.calls
    monkeypatch.setenv("FCJAX_STORE", str(tmp_path / "files.sqlite"))
    command += ["-o", tmp_path / "files.jsonl"]
    code, rounds = by_files(fcjax, command, tmp_path / "prompts", scripted_writer.answer)
    assert (code, server.calls) == (OK, calls)
    assert sum(rounds) == calls, "no prompt that a run against an endpoint does not ask, and each one once"
    assert same(tmp_path, "asked", "files", (".jsonl", ".corrected.jsonl"))
    models = {one["body"]["model"] for path in (tmp_path / "prompts").glob("*[0-9].jsonl") for one in rows_in(path)}
    assert models == {"scripted", "large"}


def test_relate_without_any_endpoint_says_what_to_do(fcjax, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    source = write(tmp_path / "cases.jsonl", relations.case("x"), relations.case("y"))
    out, folder = tmp_path / "out.jsonl", tmp_path / "prompts"
    out.write_text("as it was")
    command = ["relate", source, "-o", out, "--model", "gpt-4o-mini", "--batch-out", folder]
    code, printed, said = fcjax(*command)
    file = folder / "round-001-part-001.jsonl"
    assert (code, said, out.read_text()) == (WAITING, "", "as it was")
    assert "round 1: 8 prompts in 1 file" in printed
    assert f"{file}: 8 requests" in printed
    assert f"next: fcjax batch submit {folder}" in printed
    assert f"-i {file} -o {output_file(file)}" in printed
    assert f"then: fcjax cache import --batch {folder}, and the same command again" in printed
    at_half = float(printed.partition("cost at most $")[2].splitlines()[0])
    dry = fcjax("relate", source, "--base-url", "https://api.openai.com", "--model", "gpt-4o-mini", "--dry-run")[1]
    assert at_half == pytest.approx(float(dry.partition("at most $")[2].splitlines()[0]) / 2, abs=1e-4)
    assert "as before: no output of them has been imported" in fcjax(*command)[1]

    answer_file(file, relations.judge, fails=lambda n: n == 3)
    file.with_suffix(".errors.jsonl").write_text("cut o")
    code, printed, said = fcjax("cache", "import", "--batch", folder)
    assert code == SOME_FAILED
    assert "7 replies added" in printed
    assert "1 prompt failed (1 server_error); the first: server_error: HTTP 500: The server had an error" in printed
    assert f"{file.with_suffix('.errors.jsonl')}:1: the line is not JSON; it may be cut off" in said
    code, printed, _ = fcjax(*command)
    assert "round 2: 1 prompt in 1 file" in printed
    assert "of these, 1 were asked before and failed: 1 server_error" in printed
    answer_file(*last_round(folder), relations.judge)
    assert fcjax("cache", "import", "--batch", output_file(*last_round(folder)), "--price", 1, 1)[0] == OK
    assert fcjax(*command)[0] == OK
    assert [len(row["relations"]) for row in rows_in(out)] == [4, 4]
    assert fcjax("relate", source, "-o", tmp_path / "again.jsonl", "--replay", "--model", "gpt-4o-mini",
                 "--base-url", "https://api.openai.com")[0] == OK  # fmt: skip
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()


def test_files_go_to_a_service_and_back(fcjax, server, tmp_path):
    service = server.elsewhere = BatchServer(relations.judge, key=KEY, looks=3)
    source, folder = write(tmp_path / "cases.jsonl", relations.case("x")), tmp_path / "prompts"
    command = ["relate", source, "-o", tmp_path / "out.jsonl", "--batch-out", folder, "--batch-requests", 3]
    fcjax(*command)
    code, printed, _ = fcjax("batch", "submit", folder)
    assert code == OK
    assert "round-001-part-001.jsonl: submitted as batch-0" in printed
    assert "2 files submitted" in printed
    assert "no files submitted" in fcjax("batch", "submit", folder)[1]
    code, printed, _ = fcjax(*command)
    assert (code, printed) == (WAITING, f"4 prompts under way; run fcjax batch fetch {folder}\n")
    assert "3 requests, batch batch-0: validating" in fcjax("batch", "status", folder)[1]
    code, printed, _ = fcjax("batch", "fetch", folder)
    assert (code, "2 batches not ended yet" in printed) == (WAITING, True)
    states = json.loads(fcjax("batch", "status", folder, "--wait", "--every", 0.01, "--json")[1])["files"]
    assert [state["state"] for state in states] == ["completed"] * 2
    assert fcjax("batch", "fetch", folder)[0] == OK
    assert fcjax("cache", "import", "--batch", folder)[0] == OK
    assert fcjax(*command)[0] == OK
    assert "imported" in fcjax("batch", "status", folder)[1]
    assert (server.calls, len(service.batches)) == (0, 2)
    assert KEY.encode() not in (folder / "batch.sqlite").read_bytes()


def test_a_service_that_refuses_a_batch(fcjax, server, tmp_path):
    service = server.elsewhere = BatchServer(relations.judge)
    service.refuses = "the model takes no batches"
    source, folder = write(tmp_path / "cases.jsonl", relations.case("x")), tmp_path / "prompts"
    command = ["relate", source, "-o", tmp_path / "out.jsonl", "--batch-out", folder]
    fcjax(*command)
    fcjax("batch", "submit", folder)
    code, _, said = fcjax("batch", "fetch", folder)
    assert (code, "the batch was refused: the model takes no batches" in said) == (SOME_FAILED, True)
    assert "round 2: 4 prompts" in fcjax(*command)[1]


def test_outputs_without_their_requests(fcjax, tmp_path):
    stray = write(tmp_path / "out.jsonl", failed({"custom_id": "1-x"}))
    code, _, said = fcjax("cache", "import", "--batch", stray)
    assert (code, "no batch.sqlite is beside it; name the folder of --batch-out with --folder" in said) == (2, True)
    code, _, said = fcjax("batch", "submit", tmp_path)
    assert (code, "holds no batch.sqlite; give the folder that was named with --batch-out" in said) == (UNUSABLE, True)
    assert not (tmp_path / "store.sqlite").exists()
