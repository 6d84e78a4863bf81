"""`fcjax relate` as a user starts it, against a server on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from random import Random

import pytest
from command import INTERRUPTED, KEY, OK, SCRIPT, SOME_FAILED, UNUSABLE, environment, fcjax, stored
from jsonl import rows_in, write
from relations import case, judge
from scripted_server import ScriptedServer

from fcjax.io.files import parse_case


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.jsonl", *(case(f"case {i}", 2, 2) for i in range(5)))


@pytest.fixture
def server():
    with ScriptedServer(judge, key=KEY) as running:
        yield running


@pytest.fixture
def run(server, tmp_path):
    """Runs the command with the server and a store of this test."""

    def go(*args, **env):
        return fcjax("relate", *args, **environment(server, tmp_path), **env)

    return go


def test_relate_never_writes_over_what_it_reads(run, source, server, tmp_path):
    assert run(source, "-o", tmp_path / "out.jsonl").returncode == OK
    store, before = tmp_path / "store.sqlite", source.read_bytes()
    for out in (source, store):
        done = run(source, "-o", out)
        assert (done.returncode, "is also the input" in done.stderr.decode()) == (UNUSABLE, True), out
    assert source.read_bytes() == before
    assert run(source, "-o", tmp_path / "again.jsonl", "--replay").returncode == OK  # the store is whole


def test_relate_then_score(run, source, server, tmp_path):
    out = tmp_path / "out.jsonl"
    done = run(source, "-o", out)
    assert done.returncode == OK, done.stderr
    shown = done.stdout.decode()
    assert "5 cases: 5 ok\n20 pairs asked about: 10 entailment, 10 contradiction\n" in shown
    assert "probabilities from 20 logprobs" in shown
    assert "0 answers from the store, 20 requests" in shown
    assert done.stderr == b""
    assert fcjax("score", out, "--json").returncode == OK
    again = run(source, "-o", tmp_path / "again.jsonl", "--concurrency", 3)
    assert "20 answers from the store, no requests" in again.stdout.decode()
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()
    assert server.calls == 20


def test_json_names_what_was_done_and_no_secret(run, source, tmp_path, server):
    done = run(source, "-o", tmp_path / "out.jsonl", "--json", "--style", "packed", "--pack", 2, "--graph", "FR3")
    document = json.loads(done.stdout)
    assert document["endpoint"] == server.url
    assert document["settings"].items() >= {"style": "packed", "pack": 2, "version": "FR3", "votes": 0}.items()
    assert document["settings"]["packed"] == "relate.packed/2"
    assert (document["n_pairs"], document["client"]["sent"]) == (5 * 4 + 5 * 2, 5 * 2 + 5 * 2)
    kept = (tmp_path / "store.sqlite").read_bytes() + (tmp_path / "out.jsonl").read_bytes()
    assert KEY.encode() not in done.stdout + done.stderr + kept


def test_a_dry_run_counts_and_prices_as_litellm_does(run, source):
    from fcjax.core.prompts import Usage
    from fcjax.io.providers import count_tokens, price
    from fcjax.stages.relate import Agenda, RelationModel

    questions = RelationModel().questions(Agenda.of(parse_case(case("case 0", 2, 2)), "FR2").pairs())
    expected = sum(count_tokens("gpt-4o", question.prompt()) for question in questions)
    done = run(source, "--dry-run", "--json", "--limit", 1, "--litellm", "--model", "openai/gpt-4o")
    found = json.loads(done.stdout)
    assert found["prompt_tokens"] == expected
    assert found["cost"] == pytest.approx(price("gpt-4o")(Usage(expected, found["completion_tokens"])))


def test_a_dry_run_sends_and_makes_nothing(run, source, server, tmp_path):
    done = run(source, "--dry-run", "--price", 1, 2)
    assert done.returncode == OK, done.stderr
    assert "20 prompts, 20 different, 0 in the store: 20 to send" in done.stdout.decode()
    assert "cost at most $0.0" in done.stdout.decode()
    document = json.loads(run(source, "--dry-run", "--json", "--limit", 2).stdout)
    assert (document["prompts"], document["to_send"], document["cost"]) == (8, 8, None)
    assert server.calls == 0
    assert not (tmp_path / "store.sqlite").exists()


def test_adaptive_asking_is_told_before_and_after(run, tmp_path):
    claim, recipe = "Genoa has 40 painted bridges", "Boil lentils with onions for {} minutes"
    contexts = [{"id": f"c{j}", "text": recipe.format(j) if j else claim} for j in range(20)]
    source = write(tmp_path / "in.jsonl", {"id": "x", "atoms": [{"id": "a", "text": claim}], "contexts": contexts})
    how = ("--ask", "adaptive")
    before = run(source, "--dry-run", *how)
    assert (
        "with --ask adaptive, these are the most that may be sent; by experience it is 5 to 8" in before.stdout.decode()
    )
    assert json.loads(run(source, "-n", "--json", *how).stdout)["by_experience"] == [5, 8]
    after = run(source, "-o", tmp_path / "out.jsonl", *how)
    assert after.returncode == OK, after.stderr
    (row,) = rows_in(tmp_path / "out.jsonl")
    sent, left = row["relate"]["prompts"], len(row["relate"]["not_asked"])
    assert (sent + left, row["relate"]["prompts_of_all"]) == (20, 20)
    assert f"{sent} prompts about relations in place of 20: {left} pairs left out ({left} by a first" in str(
        after.stdout
    )


def test_a_budget_stops_the_run_and_the_next_one_goes_on(run, source, server, tmp_path):
    out = tmp_path / "out.jsonl"
    done = run(source, "-o", out, "--budget-prompts", 7, "--concurrency", 2)
    assert done.returncode == SOME_FAILED
    message = done.stderr.decode()
    assert "the budget of 7 prompts is used up" in message
    assert str(tmp_path / "store.sqlite") in message
    assert not out.exists()
    assert run(source, "-o", out).returncode == OK
    assert server.calls == 20


def test_replay_needs_no_server(run, source, server, tmp_path):
    out = tmp_path / "out.jsonl"
    assert run(source, "-o", out).returncode == OK
    server.stop()
    done = run(source, "-o", tmp_path / "again.jsonl", "--replay")
    assert done.returncode == OK
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()
    other = run(source, "-o", tmp_path / "other.jsonl", "--replay", "--style", "packed")
    assert other.returncode == SOME_FAILED
    assert "replay_miss" in other.stderr.decode()
    assert {r["status"] for row in rows_in(tmp_path / "other.jsonl") for r in row["relations"]} == {"relation_failed"}
    server.start()


def test_failures_are_named(run, tmp_path, server):
    server.answer = lambda messages: "cannot say"
    source = write(tmp_path / "in.jsonl", case("x", 1, 1), {"id": "early"})
    done = run(source, "-o", tmp_path / "out.jsonl")
    assert done.returncode == SOME_FAILED
    message = done.stderr.decode()
    assert "1 of 2 cases cannot be processed; case 2: the case has no `atoms`" in message
    assert "case 'x', c0 to a0: unreadable: no label can be read in 'cannot say'" in message
    assert "1 failed" in done.stdout.decode()


def test_a_template_of_ones_own(run, source, server, tmp_path):
    (tmp_path / "terse.txt").write_text("<premise>\n$premise\n</premise>\n<hypothesis>\n$hypothesis\n</hypothesis>")
    done = run(source, "-o", tmp_path / "out.jsonl", "--template", tmp_path / "terse.txt", "--limit", 1, "--json")
    assert json.loads(done.stdout)["settings"]["pairwise"].startswith("terse/")
    assert all(question.startswith("<premise>") for question in server.asked)
    (tmp_path / "wrong.txt").write_text("$premise")
    done = run(source, "-o", tmp_path / "out.jsonl", "--template", tmp_path / "wrong.txt")
    assert done.returncode == UNUSABLE
    assert "allowed: each of $hypothesis, $premise" in done.stderr.decode()


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        ([], {}, "add -o OUT"),
        (["-o", "-", "--json"], {}, "both use standard output"),
        (["-o", "out"], {"FCJAX_MODEL": ""}, "no model given"),
        (["-o", "out"], {"OPENAI_API_KEY": "sk-wrong-key-entirely"}, "set OPENAI_API_KEY to a key"),
        (["-o", "out", "--budget-dollars", "1"], {}, "price is unknown"),
        (["-o", "out", "--litellm"], {}, "add --model PROVIDER/NAME"),
        (["-o", "out", "--replay", "--store", "nowhere"], {}, "there is no store there"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(server, source, tmp_path, args, env, words):
    done = fcjax("relate", source, *args, **environment(server, tmp_path) | env)
    assert done.returncode == UNUSABLE
    assert words in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1
    assert "sk-wrong" not in done.stderr.decode()


@pytest.mark.parametrize(
    "args",
    [
        ["--price", "nan", "1", "--budget-dollars", "1"],
        ["--price", "1", "inf"],
        ["--price", "-1", "1"],
        ["--budget-dollars", "nan"],
        ["--timeout", "nan"],
        ["--timeout", "inf"],
        ["--timeout", "0"],
        ["--limit", str(2**63)],
        ["--max-tokens", str(2**31)],
        ["--max-tokens", str(10**40)],
        ["--pack", str(2**63), "--style", "packed"],
        ["--default", "nan"],
        ["--requests-per-minute", "nan"],
    ],
)
def test_numbers_that_make_no_sense_are_bad_usage(run, source, server, tmp_path, args):
    done = run(source, "-o", tmp_path / "out.jsonl", *args)
    assert done.returncode == UNUSABLE
    assert f"Invalid value for '{args[0]}'" in done.stderr.decode()
    assert server.calls == 0
    assert not (tmp_path / "out.jsonl").exists()


def test_results_on_standard_output(run, source):
    done = run(source, "-o", "-")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [f"case {i}" for i in range(5)]
    assert "20 pairs asked about" in done.stderr.decode()


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGKILL])
def test_stopped_at_any_moment_it_goes_on(server, tmp_path, signal_):
    source = write(tmp_path / "in.jsonl", *(case(f"case {i}", 3, 3) for i in range(40)))
    server.delay = 0.05
    env = os.environ | environment(server, tmp_path)
    command = [SCRIPT, "relate", source, "-o", tmp_path / "out.jsonl", "--concurrency", "4"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while server.answered.total() < 60:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal_)
    _, said = process.communicate(timeout=30)
    assert not (tmp_path / "out.jsonl").exists()
    if signal_ is signal.SIGINT:
        assert process.returncode == INTERRUPTED
        assert b"run the same command to resume" in said
        assert b"Traceback" not in said
    server.delay = 0
    done = fcjax(*command[1:], **environment(server, tmp_path))
    assert done.returncode == OK
    assert len(rows_in(tmp_path / "out.jsonl")) == 40
    # What was on the wire is all that was lost, and an interrupt waits for it.
    assert server.calls <= 360 + (2 * 4 if signal_ is signal.SIGKILL else 0)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".out")) == [] or (
        signal_ is signal.SIGKILL
    )


def test_a_second_interrupt_does_not_wait(server, tmp_path):
    source = write(tmp_path / "in.jsonl", case("one", 3, 3))
    server.delay = 30
    env = os.environ | environment(server, tmp_path)
    command = [SCRIPT, "relate", source, "-o", tmp_path / "out.jsonl"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not server.calls:
        assert process.poll() is None
        time.sleep(0.01)
    began = time.monotonic()
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    _, said = process.communicate(timeout=30)
    assert time.monotonic() - began < 4
    assert process.returncode == INTERRUPTED
    assert b"run the same command to resume" in said
    assert b"Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize(("times", "how"), [(20, ()), (3, ("--ask", "adaptive"))], ids=["all", "adaptive"])
def test_killed_many_times_it_asks_nothing_again_and_ends_with_the_same_relations(server, tmp_path, times, how):
    source = write(tmp_path / "in.jsonl", *(case(f"case {i}", 4, 4) for i in range(60)))
    env = environment(server, tmp_path)
    calm = fcjax("relate", source, "-o", tmp_path / "calm.jsonl", *how, **env | {"FCJAX_STORE": str(tmp_path / "calm")})
    assert calm.returncode == OK
    server.asked.clear()
    server.answered.clear()
    server.delay = 0.02
    command = [SCRIPT, "relate", source, "-o", tmp_path / "out.jsonl", "--concurrency", "4", *how]
    random = Random(4)
    kept = {}  # question with a reply -> calls for it until then
    for _ in range(times):
        process = subprocess.Popen(command, env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun, calls = time.monotonic(), server.answered.total() + random.randrange(40)
        while server.answered.total() < calls and process.poll() is None:
            time.sleep(0.002)
            assert time.monotonic() - begun < 30
        process.kill()
        process.wait()
        assert all(server.asked[question] == count for question, count in kept.items())
        if (tmp_path / "store.sqlite").exists():
            kept |= {question: server.asked[question] for question in stored(tmp_path / "store.sqlite") - kept.keys()}
    server.delay = 0
    assert fcjax(*command[1:], **env).returncode == OK
    assert all(server.asked[question] == count for question, count in kept.items())
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "calm.jsonl").read_bytes()
    assert len(kept) > 5 * times
