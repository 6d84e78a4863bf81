"""`fcjax critique` and `fcjax rescore` as a user starts them, against a server on loopback and a corpus on disk."""

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
from command import INTERRUPTED, KEY, OK, SCRIPT, SOME_FAILED, UNUSABLE, fcjax, stored
from jsonl import rows_in, write
from scripted_critique import corpus_of, settings
from scripted_server import ScriptedServer

from fcjax.stages.chunks import chunks

TOWNS = 10


@pytest.fixture
def server():
    with ScriptedServer(model.answer, key=KEY) as running:
        yield running


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.jsonl", *(model.case(town, 1 + town % 3) for town in range(TOWNS)))


@pytest.fixture
def run(server, tmp_path):
    """Runs `fcjax critique` with the server, a store and a corpus of this test."""
    corpus = corpus_of(tmp_path)

    def go(*args, **env):
        return fcjax("critique", *args, "--corpus", corpus, **settings(server, tmp_path) | env)

    return go


def test_lost_claims_are_asked_about_and_what_stays_uncovered_is_shown(run, tmp_path):
    response = "Town 1 has 9 bridges, and Mayor Jones opened the old mill. Town 1 has 14 schools."
    source = write(tmp_path / "in.jsonl", {"id": "x", "query": "What is in Town 1?", "response": response})

    def answer(messages):
        if "<passages>" in messages[0]["content"]:
            return json.dumps(["Mayor Jones opened something in Town 1."])
        if "<text>" in messages[0]["content"]:
            return json.dumps(["Town 1 has 9 bridges.", "Town 1 has 14 schools."])
        return model.answer(messages)

    with ScriptedServer(answer, key=KEY) as server:
        done = run(source, "-o", tmp_path / "out.jsonl", OPENAI_BASE_URL=server.url)
        assert done.returncode == OK, done.stderr
    shown = done.stdout.decode()
    assert "1 uncovered passage asked about again: 1 atom added" in shown
    assert "Passages that no atom covers" in shown
    assert "Mayor Jones opened the old mill.  x" in shown
    line = "of the claims in 1 response, by words; 1 passage in 1 of them uncovered"
    assert line in " ".join(shown.split())  # wherever the terminal breaks it
    (row,) = rows_in(tmp_path / "out.jsonl")
    assert len(row["atoms"]) == 3
    assert row["coverage"]["uncovered"] == ["Mayor Jones opened the old mill."]


def test_critique_then_rescore(run, source, server, tmp_path):
    out, cases = tmp_path / "out.jsonl", tmp_path / "out.cases.jsonl"
    done = run(source, "-o", out)
    assert done.returncode == OK, done.stderr
    shown = done.stdout.decode()
    assert "10 cases: 10 ok; K = 2" in shown
    assert "precision Pr" in shown
    assert "\n19 searches\n" in shown
    assert f"0 answers from the store, {server.calls:,} requests" in shown
    assert f"10 results in {out}, the cases in {cases}" in shown
    assert done.stderr == b""
    assert [row["id"] for row in rows_in(out)] == [f"town {i}" for i in range(TOWNS)]
    assert any(row["feedback"]["findings"] for row in rows_in(out))

    calls = server.calls
    for again, given in (("one", cases), ("two", out)):  # the cases, or the results with the cases beside them
        assert fcjax("rescore", given, "-o", tmp_path / again).returncode == OK
        assert (tmp_path / again).read_bytes() == out.read_bytes()
    other = fcjax("rescore", out, "-o", tmp_path / "other.jsonl", "--preset", "release", "--json")
    assert json.loads(other.stdout)["settings"]["encoding"] == "conditional"
    assert (tmp_path / "other.jsonl").read_bytes() != out.read_bytes()
    assert server.calls == calls


def test_refuted_statements_are_printed_with_the_contradicting_passage(run, source, tmp_path):
    shown = " ".join(run(source, "-o", tmp_path / "out.jsonl", COLUMNS="200").stdout.decode().split())
    refuted = [
        f for row in rows_in(tmp_path / "out.jsonl") for f in row["feedback"]["findings"] if f["label"] == "refuted"
    ]
    assert len(refuted) == 6
    for found in refuted:
        assert f"refuted {found['p']:.3f} {found['text']} town " in shown
    claim = model.case(1, 2)["response"].split(". ")[1]
    told = f"Town 1 has {model.count(1, 1)} {model.THINGS[1]}."
    assert claim in shown
    against = rf"contradicted by Town 1, https://source(\d).example/town1/{model.THINGS[1]}: Guide \1 says so: {told}"
    assert re.search(against, shown)


def test_rescore_takes_the_version_that_was_asked_for(run, source, tmp_path):
    out = tmp_path / "out.jsonl"
    assert run(source, "-o", out, "--graph", "FR3", "--limit", 4).returncode == OK
    assert fcjax("rescore", out, "-o", tmp_path / "again.jsonl").returncode == OK
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()
    assert fcjax("rescore", out, "-o", tmp_path / "less.jsonl", "--graph", "FR1").returncode == OK
    assert (tmp_path / "less.jsonl").read_bytes() != out.read_bytes()
    (tmp_path / "out.cases.jsonl").unlink()
    done = fcjax("rescore", out, "-o", tmp_path / "none.jsonl")
    assert (done.returncode, "with their cases does not exist" in done.stderr.decode()) == (UNUSABLE, True)


def test_json_names_what_was_done_and_no_secret(run, source, tmp_path, server):
    done = run(source, "-o", tmp_path / "out.jsonl", "--json", "--style", "packed", "--queries", "model", "--summarise")
    document = json.loads(done.stdout)
    assert document["endpoint"] == server.url
    assert document["cases"] == str(tmp_path / "out.cases.jsonl")
    assert document["settings"]["relate"]["version"] == "FR2"
    assert document["settings"]["relate"]["model"]["packed"] == "relate.packed/2"
    assert document["settings"]["retriever"].startswith("local:")
    assert document["settings"]["stages"]["query"]["template"] == "query/1"
    assert document["settings"]["scoring"]["encoding"] == "implication"
    assert document["stages"]["query"]["prompts"] == TOWNS
    assert document["client"]["answered"] == server.calls
    assert document["searches"]["sent"] == 19
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert KEY.encode() not in done.stdout + done.stderr + kept


def test_replay_needs_no_server(run, source, server, tmp_path):
    out = tmp_path / "out.jsonl"
    assert run(source, "-o", out).returncode == OK
    server.stop()
    done = run(source, "-o", tmp_path / "again.jsonl", "--replay", "--concurrency", 1)
    assert done.returncode == OK, done.stderr
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()
    assert (tmp_path / "again.cases.jsonl").read_bytes() == (tmp_path / "out.cases.jsonl").read_bytes()
    missed = run(source, "-o", out, "--replay", "--style", "packed", "--summarise")
    assert missed.returncode == SOME_FAILED
    assert "replay_miss" in missed.stderr.decode()
    server.start()


def test_a_dry_run_sends_and_makes_nothing(run, source, server, tmp_path):
    related = tmp_path / "out.cases.jsonl"
    before = {path.name for path in tmp_path.iterdir()}
    done = run(source, "--dry-run", "--queries", "model")
    assert done.returncode == OK, done.stderr
    assert "10 cases; 0 cannot be processed" in done.stdout.decode()
    assert "10 atomize, 10 revise, 10 query, 10 retrieve, 10 relate" in done.stdout.decode()
    assert server.calls == 0
    assert {path.name for path in tmp_path.iterdir()} == before
    assert run(source, "-o", tmp_path / "out.jsonl", "--limit", 3).returncode == OK
    done = run(related, "--dry-run", "--json", "--from-stage", "relate", "--price", 1, 2)
    document = json.loads(done.stdout)
    assert document["planned"] == {"relate": 3}
    relations = sum(len(row["relations"]) for row in rows_in(related))
    asks = document["stages"]["relate"]["asks"]
    assert (asks["prompts"], asks["to_send"], document["complete"]) == (relations, 0, True)


def test_a_dry_run_tells_what_can_be_known_and_what_cannot(run, source, server, tmp_path):
    long = {"id": "long", "response": " ".join(f"Town {n} has {n} parks." for n in range(400))}
    declining = {"id": "no", "response": "I'm sorry, but I cannot help with that."}
    nothing = {"id": "none", "response": " ... "}
    claims = [{"id": f"a{n}", "text": f"Town 1 has {n + 2} wells."} for n in range(20)]
    taken_apart = {"id": "atoms", "response": "?", "atoms": claims}
    mixed = write(tmp_path / "mixed.jsonl", long, declining, nothing, taken_apart)
    options = ("--dry-run", "--queries", "model", "--price", 1, 1)
    document = json.loads(run(mixed, *options, "--json").stdout)
    assert document["planned"] == {"atomize": 3, "revise": 1, "query": 2, "retrieve": 2, "relate": 2}
    stages = document["stages"]
    assert stages["atomize"]["asks"]["prompts"] == len(chunks(long["response"], 4000)) == 3
    assert (stages["revise"]["open"], stages["revise"]["asks"]) == (1, None)
    assert (stages["query"]["open"], stages["query"]["asks"]["prompts"]) == (1, 2)  # 16 atoms each
    assert (stages["retrieve"]["open"], stages["retrieve"]["searches"]) == (1, 20)
    assert (stages["relate"]["open"], stages["relate"]["asks"]) == (2, None)
    assert document["complete"] is False
    assert (document["known"]["to_send"], document["known"]["searches"]) == (5, 20)
    assert document["known"]["cost"] > 0
    assert (document["retriever"], document["settings"]["retriever"]) == ("local", "local")

    shown = run(mixed, *options).stdout.decode()
    assert "atomize: 3 prompts, 3 different" in shown
    assert "revise: depends on earlier stages (1 case)" in shown
    assert "query: at least 2 prompts" in shown
    assert "retrieve: at least 20 searches; the rest depends on earlier stages" in shown
    assert "total: at least 5 prompts to send" in shown
    assert server.calls == 0


def test_a_dry_run_counts_what_the_run_asks(run, source, server, tmp_path):
    only = ("--stages", "atomize", "--price", 1, 1)
    known = json.loads(run(source, *only, "--dry-run", "--json").stdout)["known"]
    assert run(source, "-o", tmp_path / "out.jsonl", *only).returncode == SOME_FAILED  # there are no posteriors
    assert known["to_send"] == server.calls == TOWNS
    known = json.loads(run(source, *only, "--dry-run", "--json").stdout)["known"]
    assert (known["prompts"], known["to_send"], known["cost"]) == (TOWNS, 0, 0)


def test_results_stand_for_the_cases_beside_them(run, source, server, tmp_path):
    out, packed = tmp_path / "out.jsonl", ("--from-stage", "relate", "--style", "packed")
    assert run(source, "-o", out, "--limit", 2).returncode == OK
    for given, name in ((out, "one"), (tmp_path / "out.cases.jsonl", "two")):
        assert run(given, "-o", tmp_path / f"{name}.jsonl", *packed).returncode == OK
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    done = run(out, "-o", out, "--cases", tmp_path / "other.jsonl", *packed)
    assert (done.returncode, "is also the input" in done.stderr.decode()) == (UNUSABLE, True)
    (tmp_path / "out.cases.jsonl").unlink()
    done = run(out, "-o", tmp_path / "three.jsonl", *packed)
    assert (done.returncode, "does not exist" in done.stderr.decode()) == (UNUSABLE, True)


def test_rescore_warns_of_relations_that_were_never_asked_for(run, source, tmp_path):
    out = tmp_path / "out.jsonl"
    assert run(source, "-o", out, "--limit", 2).returncode == OK
    for version, warned in (("FR1", False), ("FR2", False), ("FR3", True)):
        done = fcjax("rescore", out, "-o", tmp_path / f"{version}.jsonl", "--graph", version)
        assert done.returncode == OK
        assert ("relations are for --graph FR2" in done.stderr.decode()) == warned
    quiet = fcjax("rescore", out, "-o", tmp_path / "quiet.jsonl", "--graph", "FR3", "-q")
    assert quiet.stderr == b""


def test_what_could_not_be_reworded_queried_or_summed_up_is_told(run, source, server, tmp_path):
    def silent(messages):
        asked = messages[0]["content"]
        lost = asked.startswith(("Numbered statements", "For each of the numbered claims", "Sum up what a passage"))
        return "no" if lost else model.answer(messages)

    server.answer = silent
    done = run(source, "-o", tmp_path / "out.jsonl", "--queries", "model", "--summarise", "--limit", 3)
    shown = done.stdout.decode()
    assert "6 of 6 atoms kept the wording of the response: no usable rewording" in shown
    assert "6 of 6 atoms searched for by their own words: no usable query" in shown
    assert re.search(r"(\d+) of \1 contexts kept as retrieved: no usable summary", shown)


def test_a_model_that_finds_no_claims_is_told_of_once(run, source, server, tmp_path):
    server.answer = lambda messages: "[]"
    done = run(source, "-o", tmp_path / "out.jsonl")
    assert done.stderr.decode().count("the model found no claims in 10 responses") == 1
    server.answer = lambda messages: "[]" if "Town 4 has" in messages[0]["content"] else model.answer(messages)
    assert "found no claims" not in run(source, "-o", tmp_path / "out.jsonl", "--model", "other").stderr.decode()


def test_documents_that_cannot_be_read_are_named(server, source, tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    corpus_of(folder)
    (folder / "rows.jsonl").write_text("{\n" * 10)
    (folder / "zebra.pdf").write_bytes(b"no PDF")
    (folder / "photo.png").write_bytes(b"")
    args = ("critique", source, "--corpus", folder, "--limit", 1, "-o", tmp_path / "out.jsonl")
    done = fcjax(*args, **settings(server, tmp_path))
    warnings = done.stderr.decode().splitlines()
    assert "12 items could not be read" in warnings[0]
    assert "zebra.pdf" in warnings[1]
    assert "rows.jsonl:" in warnings[2]
    assert "and 7 more" in warnings[6]
    document = json.loads(fcjax(*args, "--json", **settings(server, tmp_path)).stdout)
    assert document["n_corpus_faults"] == len(document["corpus_faults"]) == 12


def test_what_failed_is_named(run, source, server, tmp_path):
    def flawed(messages):
        return "cannot say" if "Town 4 has" in messages[0]["content"] else model.answer(messages)

    server.answer = flawed
    bad = write(tmp_path / "bad.jsonl", "{ no JSON", *source.read_text().splitlines(), {"id": "none"})
    done = run(bad, "-o", tmp_path / "out.jsonl")
    assert done.returncode == SOME_FAILED
    message = done.stderr.decode()
    assert "warning: 2 of 12 cases cannot be processed; case 1: " in message
    assert "3 cases failed; the first: case '1': invalid_input" in message
    rows = {row["id"]: row for row in rows_in(tmp_path / "out.jsonl")}
    assert (rows["town 4"]["status"], rows["town 4"]["measures"]) == ("atomize_failed", None)
    assert "unreadable" in rows["town 4"]["reason"]
    server.answer = model.answer  # what was unreadable is not taken for an answer another time
    assert run(source, "-o", tmp_path / "out.jsonl").returncode == OK


def test_a_budget_stops_the_run_and_the_next_one_goes_on(run, source, server, tmp_path):
    assert run(source, "-o", tmp_path / "calm.jsonl", FCJAX_STORE=str(tmp_path / "calm.sqlite")).returncode == OK
    calls, out = server.calls, tmp_path / "out.jsonl"
    done = run(source, "-o", out, "--budget-prompts", 30)
    assert done.returncode == SOME_FAILED
    message = done.stderr.decode()
    assert "the budget of 30 prompts is used up" in message
    assert f"finished stages are in {out}.stages" in message
    assert "run the same command to resume" in message
    assert not out.exists()
    again = run(source, "-o", out)
    assert again.returncode == OK
    assert "of cases resumed from an earlier run" in again.stdout.decode()
    assert server.calls == 2 * calls
    assert out.read_bytes() == (tmp_path / "calm.jsonl").read_bytes()


def test_a_template_of_ones_own(run, source, server, tmp_path):
    (tmp_path / "terse.txt").write_text("$question $before $after\n<text>\n$text\n</text>")
    done = run(source, "-o", tmp_path / "out.jsonl", "--template", f"atomize={tmp_path}/terse.txt", "--json")
    assert json.loads(done.stdout)["settings"]["stages"]["atomize"]["template"].startswith("terse/")
    assert rows_in(tmp_path / "out.cases.jsonl")[0]["stages"]["atomize"]["template"].startswith("terse/")
    (tmp_path / "wrong.txt").write_text("$text")
    done = run(source, "-o", tmp_path / "wrong.jsonl", "--template", f"atomize={tmp_path}/wrong.txt")
    assert (done.returncode, "allowed: each of" in done.stderr.decode()) == (UNUSABLE, True)


def test_domains_and_priors(run, source, tmp_path):
    (tmp_path / "priors.toml").write_text('"source1.example" = 0.25')
    out = tmp_path / "out.jsonl"
    assert (
        run(source, "-o", out, "--deny-domain", "source0.example", "--priors", tmp_path / "priors.toml").returncode
        == OK
    )
    contexts = [context for row in rows_in(tmp_path / "out.cases.jsonl") for context in row["contexts"]]
    assert contexts
    assert all(context["link"].startswith("https://source1.example/") for context in contexts)
    assert {context["prior"] for context in contexts} == {0.25}


@pytest.mark.parametrize(("retriever", "here"), [("wikipedia", True), ("serper", False)])
def test_domains_are_looked_at_once(server, source, tmp_path, retriever, here):
    """Serper reads no page of a denied domain in the first place, so that no spare ones are needed."""
    args = ("--retriever", retriever, "--deny-domain", "a.example", "--dry-run", "--json")
    done = fcjax("critique", source, *args, **settings(server, tmp_path))
    retrieve = json.loads(done.stdout)["settings"]["stages"]["retrieve"]
    assert (retrieve["allowed"] is not None) == here


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        ([], {}, "add -o OUT"),
        (["-o", "-", "--json"], {}, "both use standard output"),
        (["-o", "out", "--cases", "-", "--json"], {}, "both use standard output"),
        (["-o", "out"], {"FCJAX_MODEL": ""}, "no model given"),
        (["-o", "out"], {"OPENAI_API_KEY": "sk-wrong-key-entirely"}, "set OPENAI_API_KEY to a key"),
        (["-o", "out", "--retriever", "wikipedia"], {}, "--corpus has no effect with --retriever wikipedia"),
        (["-o", "out", "--retriever", "given"], {}, "--corpus has no effect with --retriever given"),
        (["-o", "out", "--template", "query=x.txt"], {}, "the stage query does not run; add --queries model"),
        (["-o", "corpus.jsonl"], {}, "is also the input"),
        (["-o", "out", "--cases", "corpus.jsonl"], {}, "is also the input"),
        (["-o", "out", "--deny-domain", "!"], {}, "--deny-domain has '!'; allowed: a domain"),
        (["-o", "out", "--replay", "--store", "nowhere"], {}, "there is no store there"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(run, source, tmp_path, args, env, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(source, *args, **env)
    assert done.returncode == UNUSABLE
    assert words in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1
    assert "sk-wrong" not in done.stderr.decode()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--stages", "atomize,score"], "unknown stage 'score'; expected atomize, revise, query"),
        (["--template", "atomize"], "expected STAGE=FILE"),
        (["--template", "retrieve=x"], "expected STAGE=FILE"),
        (["--contexts-per-atom", "0"], "Invalid value for '--contexts-per-atom'"),
        (["--sample", "0"], "Invalid value for '--sample'"),
        (["--from-stage", "score"], "Invalid value for '--from-stage'"),
        (["-o", ""], "the file name is empty; expected a file, or -"),
    ],
)
def test_options_that_make_no_sense_are_bad_usage(run, source, tmp_path, server, args, words):
    done = run(source, "-o", tmp_path / "out.jsonl", *args)
    assert (done.returncode, words in done.stderr.decode()) == (UNUSABLE, True)
    assert server.calls == 0


def test_a_bare_response_without_a_source_of_evidence(server, source, tmp_path):
    done = fcjax("critique", source, "-o", tmp_path / "out.jsonl", **settings(server, tmp_path))
    assert done.returncode == UNUSABLE
    assert (
        "no retriever was given to search for evidence (--corpus or --retriever on the command line)"
        in done.stderr.decode()
    )
    done = fcjax("critique", source, "-o", tmp_path / "out.jsonl", "--stages", "atomize", **settings(server, tmp_path))
    assert done.returncode == SOME_FAILED
    assert {row["status"] for row in rows_in(tmp_path / "out.jsonl")} == {"stopped"}
    assert all(row["atoms"] for row in rows_in(tmp_path / "out.cases.jsonl"))


def test_nothing_is_written_into_the_corpus(server, source, tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    corpus_of(folder)
    (folder / "one.txt").write_text("A document.")
    (tmp_path / "loop").symlink_to("loop")
    inside = "is inside the corpus"
    for out, words in (
        ("documents/one.txt", inside),
        ("documents/new.jsonl", inside),
        ("loop", "a symbolic link to itself"),
    ):
        done = fcjax("critique", source, "-o", tmp_path / out, "--corpus", folder, **settings(server, tmp_path))
        assert (done.returncode, words in done.stderr.decode()) == (UNUSABLE, True), out
    assert {path.name: path.stat().st_size > 0 for path in folder.iterdir()} == {"one.txt": True, "corpus.jsonl": True}
    assert (folder / "one.txt").read_text() == "A document."
    assert server.calls == 0


def test_results_that_go_nowhere_or_cases_on_standard_output(run, source, tmp_path):
    done = run(source, "-o", "/dev/null", "--limit", 1)
    assert done.stdout.decode().splitlines()[-1] == "1 result in /dev/null"
    done = run(source, "-o", tmp_path / "out.jsonl", "--cases", "-", "--limit", 1)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["town 0"]
    assert f"1 result in {tmp_path / 'out.jsonl'}, the cases in standard output" in done.stderr.decode()


def test_results_on_standard_output(run, source, tmp_path):
    done = run(source, "-o", "-", "--limit", 2)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["town 0", "town 1"]
    assert "2 cases: 2 ok" in done.stderr.decode()
    assert not list(tmp_path.glob("*.stages"))


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGKILL])
def test_stopped_at_any_moment_it_goes_on(server, tmp_path, signal_):
    source, corpus = write(tmp_path / "in.jsonl", *(model.case(town, 4) for town in range(30))), corpus_of(tmp_path, 30)
    server.delay = 0.05
    env, out = settings(server, tmp_path), tmp_path / "out.jsonl"
    command = [SCRIPT, "critique", source, "-o", out, "--corpus", corpus, "--concurrency", "4"]
    process = subprocess.Popen(command, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while server.answered.total() < 100:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal_)
    _, said = process.communicate(timeout=30)
    assert not out.exists()
    if signal_ is signal.SIGINT:
        assert process.returncode == INTERRUPTED
        assert f"finished stages are in {out}.stages".encode() in said
        assert int(re.search(rb"stopped; (\d+) of 30 cases finished; ", said)[1]) < 30
        assert b"Traceback" not in said
    server.delay = 0
    done = fcjax(*command[1:], **env)
    assert done.returncode == OK, done.stderr
    assert len(rows_in(out)) == 30
    assert server.calls <= len(server.asked) + (2 * 4 if signal_ is signal.SIGKILL else 0)


def test_a_second_interrupt_does_not_wait(server, tmp_path, source):
    server.delay = 30
    env = os.environ | settings(server, tmp_path)
    command = [SCRIPT, "critique", source, "-o", tmp_path / "out.jsonl", "--corpus", corpus_of(tmp_path)]
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


def test_killed_again_and_again_it_ends_with_the_same_files(server, tmp_path):
    """kill -9 in every part of the run: the final files are those of a run that nobody disturbed."""
    source, corpus = (
        write(tmp_path / "in.jsonl", *(model.case(town, 3) for town in range(100))),
        corpus_of(tmp_path, 100),
    )
    env = settings(server, tmp_path)
    options = ["--corpus", corpus, "--queries", "model", "--summarise", "--style", "packed", "--concurrency", "16"]
    calm = fcjax(
        "critique", source, "-o", tmp_path / "calm.jsonl", *options, **env | {"FCJAX_STORE": str(tmp_path / "x")}
    )
    assert calm.returncode == OK, calm.stderr
    total = server.answered.total()
    server.asked.clear()
    server.answered.clear()
    server.delay = 0.005
    command = [SCRIPT, "critique", source, "-o", tmp_path / "out.jsonl", *options]
    random, kills = Random(5), 6
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
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "calm.jsonl").read_bytes()
    assert (tmp_path / "out.cases.jsonl").read_bytes() == (tmp_path / "calm.cases.jsonl").read_bytes()
    left = {path.name for path in tmp_path.iterdir() if "out" in path.name}
    assert left == {"out.jsonl", "out.cases.jsonl"}
    assert len(kept) > 100
    assert all(server.asked[question] == calls for question, calls in kept.items())
