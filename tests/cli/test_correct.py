"""`fcjax correct` as a user starts it, against a server on loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from random import Random

import pytest
import scripted_model as model
import scripted_writer
from command import INTERRUPTED, KEY, OK, SCRIPT, SOME_FAILED, UNUSABLE, fcjax, stored
from jsonl import rows_in, write
from scripted_critique import corpus_of, settings
from scripted_server import ScriptedServer

from fcjax.cli.options.correction import CORRECTORS
from fcjax.correction.baselines import METHODS

TOWNS = 8


@pytest.fixture
def server():
    with ScriptedServer(scripted_writer.answer, key=KEY) as running:
        yield running


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.jsonl", *(model.case(town, 1 + town % 4) for town in range(TOWNS)))


@pytest.fixture
def run(server, tmp_path):
    """Runs `fcjax correct` with the server, a store and a corpus of this test."""
    corpus = corpus_of(tmp_path)

    def go(*args, **env):
        return fcjax("correct", *args, "--corpus", corpus, **settings(server, tmp_path) | env)

    return go


def test_correct_then_critique(run, source, server, tmp_path):
    out, cases = tmp_path / "out.jsonl", tmp_path / "out.corrected.jsonl"
    done = run(source, "-o", out)
    assert done.returncode == OK, done.stderr
    shown = done.stdout.decode()
    assert "8 cases: 8 ok; 6 changed; K = 2.5" in shown
    assert "town 3" in shown
    assert "0.500 -> 1.000" in shown
    assert re.search(r"Changes\n\ntown \d: .*\[-.*-\]\{\+.*\+\}", shown)
    assert "Before and after, 8 of 8 cases" in shown
    assert "+0.433**" in shown
    assert "gain = 2 (after - before) / (after + before)" in shown
    assert re.search(r"^per case: \d\d\.\d prompts, [\d,]+ tokens, cost unknown$", shown, re.MULTILINE)
    assert f"8 corrections in {out}, the corrected cases in {cases}" in shown
    assert done.stderr == b""
    calls = server.calls
    again = fcjax(
        "critique",
        cases,
        "-o",
        tmp_path / "new.jsonl",
        "--corpus",
        tmp_path / "corpus.jsonl",
        **settings(server, tmp_path),
    )
    assert again.returncode == OK, again.stderr
    assert {row["measures"]["precision"] for row in rows_in(tmp_path / "new.jsonl")} == {1.0}
    assert server.calls == calls  # all of that was asked before


def test_json_names_what_was_done_and_no_secret(run, source, server, tmp_path):
    done = run(source, "-o", tmp_path / "out.jsonl", "--json", "--rounds", 2, "--theta", 0.9, "--price", 1, 2)
    document = json.loads(done.stdout)
    assert document["corrector"] == "factcorrector"
    assert (document["settings"]["method"]["theta"], document["settings"]["method"]["rounds"]) == (0.9, 2)
    assert document["stops"] == {"theta": TOWNS}
    assert document["comparison"]["measures"]["precision"]["after"]["mean"] == 1.0
    assert "comprehensiveness" not in document["comparison"]["measures"]
    assert document["cost"]["dollars"] > 0
    assert document["client"]["answered"] == document["cost"]["prompts"]
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert KEY.encode() not in done.stdout + done.stderr + kept


def test_replay_needs_no_server(run, source, server, tmp_path):
    out, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    assert run(source, "-o", out).returncode == OK
    server.stop()
    done = run(source, "-o", again, "--replay", "--concurrency", 1)
    assert done.returncode == OK, done.stderr
    assert again.read_bytes() == out.read_bytes()
    assert (tmp_path / "again.corrected.jsonl").read_bytes() == (tmp_path / "out.corrected.jsonl").read_bytes()
    server.start()


@pytest.mark.parametrize("options", [["-o", "corpus.jsonl"], ["-o", "out.jsonl", "--cases", "corpus.jsonl"]])
def test_no_output_takes_the_place_of_the_corpus(run, source, server, tmp_path, options):
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = run(source, *(tmp_path / option if option[0] != "-" else option for option in options))
    assert (done.returncode, "is also the input" in done.stderr.decode()) == (UNUSABLE, True), done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert server.calls == 0


def test_a_dry_run_sends_and_makes_nothing(run, source, server, tmp_path):
    before = {path.name for path in tmp_path.iterdir()}
    done = run(source, "--dry-run", "--rounds", 3)
    assert done.returncode == OK, done.stderr
    assert "8 cases; 0 cannot be processed" in done.stdout.decode()
    assert "8 atomize, 8 revise, 8 retrieve, 8 relate" in done.stdout.decode()
    assert "then at most 3 revisions per case, by factcorrector with scripted" in done.stdout.decode()
    document = json.loads(run(source, "--dry-run", "--json").stdout)
    assert (document["dry_run"], document["n_cases"], document["rounds"]) == (True, TOWNS, 1)
    assert server.calls == 0
    assert {path.name for path in tmp_path.iterdir()} == before


def test_results_of_critique_are_gone_on_from(run, source, server, tmp_path):
    found = tmp_path / "found.jsonl"
    corpus, env = tmp_path / "corpus.jsonl", settings(server, tmp_path)
    assert fcjax("critique", source, "-o", found, "--corpus", corpus, **env).returncode == OK
    before = found.read_bytes()
    for command in ("correct", "critique"):
        done = fcjax(command, found, "-o", found, "--cases", tmp_path / "x", "--corpus", corpus, **env)
        assert (done.returncode, "is also the input" in done.stderr.decode()) == (UNUSABLE, True)
    assert found.read_bytes() == before
    (tmp_path / "store.sqlite").unlink()  # nothing is taken from there
    calls = server.calls
    done = run(found, "-o", tmp_path / "out.jsonl", "--json")
    assert done.returncode == OK, done.stderr
    assert json.loads(done.stdout)["input"] == str(tmp_path / "found.cases.jsonl")
    assert server.calls - calls < calls + 6
    assert not any("<text>\n" in question for question, n in server.asked.items() if n > 1)  # none taken apart again
    (tmp_path / "found.cases.jsonl").unlink()
    done = run(found, "-o", tmp_path / "out.jsonl")
    assert (done.returncode, "with their cases does not exist" in done.stderr.decode()) == (UNUSABLE, True)


@pytest.mark.parametrize("name", CORRECTORS[1:])
def test_the_others_are_run_in_the_same_way(run, source, tmp_path, name):
    done = run(source, "-o", tmp_path / "out.jsonl", "--corrector", name)
    assert done.returncode == OK, done.stderr
    assert "not evaluated: `fcjax critique` scores the corrected cases" in done.stdout.decode()
    assert {row["method"] for row in rows_in(tmp_path / "out.jsonl")} == {name}


def test_correctors_of_the_command_line_are_those_of_the_library():
    assert list(METHODS) == list(CORRECTORS)


def test_another_model_rewrites(run, source, server, tmp_path):
    done = run(source, "-o", tmp_path / "out.jsonl", "--refiner-model", "large", "--json")
    document = json.loads(done.stdout)
    assert (document["model"], document["refiner"]) == ("scripted", "large")
    assert document["refiner_client"]["answered"] == 6
    models = {body["model"]: 0 for body in server.bodies}
    assert set(models) == {"scripted", "large"}
    assert all(
        ("<false_statements>" in body["messages"][0]["content"]) == (body["model"] == "large") for body in server.bodies
    )
    (tmp_path / "large.toml").write_text(f'base_url = "{server.url}"\nmodel = "larger"\napi_key_env = "OPENAI_API_KEY"')
    done = run(source, "-o", tmp_path / "two.jsonl", "--refiner-config", tmp_path / "large.toml", "--json")
    assert json.loads(done.stdout)["refiner"] == "larger"


def test_the_budget_is_for_both_models(run, source, tmp_path):
    done = run(source, "-o", tmp_path / "out.jsonl", "--refiner-model", "large", "--budget-prompts", 60)
    assert done.returncode == SOME_FAILED
    message = done.stderr.decode()
    assert "the budget of 60 prompts is used up" in message
    assert f"finished cases are in {tmp_path}/out.jsonl.journal" in message
    assert not (tmp_path / "out.jsonl").exists()
    again = run(source, "-o", tmp_path / "out.jsonl", "--refiner-model", "large")
    assert again.returncode == OK, again.stderr


def test_guards_can_be_switched_off(run, source, server, tmp_path):
    def emptying(messages):
        if "<false_statements>" in messages[0]["content"]:
            return scripted_writer.revised("Town 3 has 23 bridges.")
        return scripted_writer.answer(messages)

    server.answer = emptying
    one = write(tmp_path / "one.jsonl", model.case(3, 4))
    strict = run(one, "-o", tmp_path / "strict.jsonl", "--json")
    assert json.loads(strict.stdout)["stops"] == {"guard": 1}
    loose = run(one, "-o", tmp_path / "loose.jsonl", "--json", "--no-guard", "supported", "--no-guard", "length")
    assert json.loads(loose.stdout)["stops"] == {"theta": 1}
    assert json.loads(loose.stdout)["settings"]["method"]["guards"]["longest"] is None
    both = run(one, "-o", tmp_path / "both.jsonl", "--json", "--no-guard", "length", "--may-lose", 0.5)
    assert json.loads(both.stdout)["stops"] == {"theta": 1}
    assert json.loads(run(one, "-o", tmp_path / "all.jsonl", "--json", "--no-guard", "all").stdout)["n_changed"] == 1


def test_a_wording_of_ones_own(run, source, server, tmp_path):
    text = "Put it right.\n" + "\n".join(
        f"<{tag}>\n${name}\n</{tag}>"
        for tag, name in (
            ("question", "question"),
            ("response", "response"),
            ("false_statements", "false"),
            ("unverified_statements", "unverified"),
            ("passages", "passages"),
        )
    )
    (tmp_path / "mine.txt").write_text(text)
    done = run(source, "-o", tmp_path / "out.jsonl", "--refine-template", tmp_path / "mine.txt", "--json")
    document = json.loads(done.stdout)
    assert document["settings"]["method"]["refiner"]["template"].startswith("mine/")
    assert document["n_changed"] == 6


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "add -o OUT"),
        (["-o", "-", "--json"], "both use standard output"),
        (["-o", "out", "--corrector", "llm1", "--theta", "0.5"], "--theta has no effect with this --corrector"),
        (["-o", "out", "--corrector", "rac", "--no-guard", "all"], "--no-guard has no effect with this --corrector"),
        (
            ["-o", "out", "--no-guard", "supported", "--may-lose", "0.1"],
            "--may-lose has no effect with --no-guard supported",
        ),
        (["-o", "out", "--refiner-price", "1", "1"], "--refiner-price has no effect without a separate refiner model"),
        (["-o", "out", "--replay", "--store", "nowhere"], "there is no store there"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(run, source, tmp_path, args, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(source, *args)
    assert done.returncode == UNUSABLE
    assert words in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("args", [["--theta", "2"], ["--rounds", "-1"], ["--corrector", "llm3"], ["--no-guard", "x"]])
def test_options_that_make_no_sense_are_bad_usage(run, source, tmp_path, server, args):
    done = run(source, "-o", tmp_path / "out.jsonl", *args)
    assert (done.returncode, f"Invalid value for '{args[0]}'" in done.stderr.decode()) == (UNUSABLE, True)
    assert server.calls == 0


@pytest.mark.parametrize(("theta", "changed"), [(0, 0), (0.5, 0), (0.6, 4), (1, 6)])
def test_theta(run, source, tmp_path, theta, changed):
    """Precisions of the responses: 1, 1/2, 2/3 and 1/2, twice."""
    document = json.loads(run(source, "-o", tmp_path / "out.jsonl", "--json", "--theta", theta).stdout)
    assert document["n_changed"] == changed


def test_what_failed_is_named(run, source, server, tmp_path):
    server.answer = lambda messages: (
        "" if "<false_statements>" in messages[0]["content"] else scripted_writer.answer(messages)
    )
    done = run(source, "-o", tmp_path / "out.jsonl")
    assert done.returncode == SOME_FAILED
    assert "6 cases failed; the first: case 'town 1': correction_failed: round 1: no revision" in done.stderr.decode()
    assert "Before and after, 2 of 8 cases" in done.stdout.decode()


def test_corrections_on_standard_output(run, source, tmp_path):
    done = run(source, "-o", "-", "--limit", 2)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["town 0", "town 1"]
    assert "2 cases: 2 ok" in done.stderr.decode()
    assert not list(tmp_path.glob("*.journal"))


def test_a_sample_is_the_same_each_time(run, source, tmp_path):
    ids = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert run(source, "-o", tmp_path / name, "--sample", 3, "--seed", seed).returncode == OK
        ids.append([row["id"] for row in rows_in(tmp_path / name)])
    assert ids[0] == ids[1] != ids[2]


def test_interrupted_it_says_how_to_resume(server, source, tmp_path):
    server.delay = 0.05
    command = [SCRIPT, "correct", source, "-o", tmp_path / "out.jsonl", "--corpus", corpus_of(tmp_path)]
    env = settings(server, tmp_path)
    process = subprocess.Popen(
        [*command, "--concurrency", "4"], env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while server.answered.total() < 60:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED
    assert f"finished cases are in {tmp_path}/out.jsonl.journal".encode() in said
    assert b"Traceback" not in said
    server.delay = 0
    assert fcjax(*command[1:], **env).returncode == OK


def test_killed_again_and_again_it_ends_with_the_same_files(server, tmp_path):
    """kill -9 in every part of the run: the final files are those of a run that nobody disturbed."""
    towns = 45  # but the first: the guides have their numbers, and are found for them
    source = write(tmp_path / "in.jsonl", *(model.case(town, 3 + town % 2) for town in range(5, towns)))
    corpus, env = corpus_of(tmp_path, towns), settings(server, tmp_path)
    options = ["--corpus", corpus, "--style", "packed", "--rounds", "2", "--concurrency", "16"]
    calm = fcjax(
        "correct", source, "-o", tmp_path / "calm.jsonl", *options, **env | {"FCJAX_STORE": str(tmp_path / "x")}
    )
    assert calm.returncode == OK, calm.stderr
    total = server.answered.total()
    server.asked.clear()
    server.answered.clear()
    server.delay = 0.005
    command = [SCRIPT, "correct", source, "-o", tmp_path / "out.jsonl", *options]
    random, kills = Random(7), 4
    kept = {}  # question with a reply in the store -> calls for it until then
    for kill in range(kills):
        process = subprocess.Popen(
            [*map(str, command)], env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        begun, calls = time.monotonic(), total * (kill + random.random()) / kills
        while server.answered.total() < calls and process.poll() is None:
            time.sleep(0.002)
            assert time.monotonic() - begun < 60
        process.kill()
        process.wait()
        if (tmp_path / "store.sqlite").exists():
            kept |= {asked: server.asked[asked] for asked in stored(tmp_path / "store.sqlite") - kept.keys()}
    server.delay = 0
    done = fcjax(*command[1:], **env)
    assert done.returncode == OK, done.stderr
    for name in ("jsonl", "corrected.jsonl"):
        assert (tmp_path / f"out.{name}").read_bytes() == (tmp_path / f"calm.{name}").read_bytes()
    assert not (tmp_path / "out.jsonl.journal").exists()
    assert all(server.asked[question] == calls for question, calls in kept.items())
