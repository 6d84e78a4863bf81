"""Commands with --relation-model as a user starts them, with no endpoint where none is needed."""

from __future__ import annotations

import json

import model_folders as tiny
import pytest
import scripted_model
import scripted_writer
from command import KEY, OK, SOME_FAILED, UNUSABLE, fcjax
from jsonl import rows_in, write
from scripted_critique import corpus_of, settings
from scripted_server import ScriptedServer

from fcjax.encoders.relation_model import LocalRelationModel
from fcjax.stages.calibration import Calibration

GATE = {"passed": False, "verdict": "failed: worse than always answering neutral"}
CASES = [
    {
        "id": f"case {town}",
        "response": "x",
        "atoms": [{"id": f"a{thing}", "text": f"Town {town} has {thing + 10} parks."} for thing in range(3)],
        "contexts": [{"id": f"c{n}", "text": f"Guide {n} says so: Town {town} has {11 + n} parks."} for n in range(2)],
    }
    for town in range(3)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_folder(tmp_path_factory.mktemp("models") / "judge")


@pytest.fixture(scope="module")
def name(folder):
    return LocalRelationModel.open(folder).name


@pytest.fixture
def run(tmp_path):
    """Runs a command with no endpoint in its environment, and a store of this test."""
    none = {"OPENAI_BASE_URL": "", "OPENAI_API_KEY": "", "FCJAX_MODEL": "", "HF_HUB_OFFLINE": "1"}
    none |= {"FCJAX_STORE": str(tmp_path / "store.sqlite"), "XDG_CACHE_HOME": str(tmp_path / "indexes")}

    def go(*args, **more):
        return fcjax(*args, **(none | more))

    return go


def pairs_of(n=60):
    """Balanced labelled pairs; a random model knows nothing about them."""
    labels = ("entailment", "contradiction", "neutral")
    return [
        {"premise": f"Town {i // 3} has 12 parks.", "hypothesis": f"It has {i % 90} wells.", "label": labels[i % 3]}
        for i in range(n)
    ]


def test_relate_needs_no_endpoint_and_twice_gives_the_same_bytes(run, tmp_path, folder, name):
    source, out = write(tmp_path / "in.jsonl", *CASES), tmp_path / "out.jsonl"
    done = run("relate", source, "-o", out, "--relation-model", folder, "--json")
    assert done.returncode == OK, done.stderr
    document = json.loads(done.stdout)
    assert (document["endpoint"], document["n_pairs"], document["n_failed"]) == (None, 18, 0)
    assert document["settings"]["model"] == name
    assert document["methods"] == {"local": 18}
    assert b"was not examined" in done.stderr
    first = out.read_bytes()
    for row in rows_in(out):
        assert row["relate"]["model"] == name
        assert row["relate"]["template"] == "relate.local/1"
        assert {one["method"] for one in row["relations"]} == {"local"}
        assert all(sum(one["distribution"].values()) == pytest.approx(1, abs=1e-5) for one in row["relations"])
    for again in (out, tmp_path / "again.jsonl"):
        assert run("relate", source, "-o", again, "--relation-model", folder).returncode == OK
        assert again.read_bytes() == first
    (tmp_path / "store.sqlite").unlink()
    assert run("relate", source, "-o", out, "--relation-model", folder, "--concurrency", "1").returncode == OK
    assert out.read_bytes() == first  # also without what was kept


def test_relate_in_other_graphs_and_with_screening(run, tmp_path, folder):
    source, out = write(tmp_path / "in.jsonl", *CASES), tmp_path / "out.jsonl"
    how = ("relate", source, "-o", out, "--relation-model", folder, "--json")
    found = json.loads(run(*how, "--graph", "FR3").stdout)
    assert found["n_pairs"] == 18 + 6  # each context about the other one
    found = json.loads(run(*how, "--screen", "0.9", "-q").stdout)
    assert found["n_pairs"] + found["n_screened"] == 18
    assert found["n_screened"] > 0


def test_claims_that_are_too_long_and_empty_passages_are_counted_as_failed(run, tmp_path, folder):
    case = {
        "id": "hard",
        "atoms": [{"id": "a0", "text": "Town 1 has 12 parks. " * 100}, {"id": "a1", "text": "It is high."}],
        "contexts": [{"id": "c0", "text": "The tower is high."}],
    }
    out = tmp_path / "out.jsonl"
    done = run("relate", write(tmp_path / "in.jsonl", case), "-o", out, "--relation-model", folder, "--json")
    assert done.returncode == SOME_FAILED
    assert json.loads(done.stdout)["failed"] == {"local model": 1}
    assert "the claim has 600 tokens" in done.stderr.decode()
    failed, fine = rows_in(out)[0]["relations"]
    assert (failed["status"], fine["type"]) == ("relation_failed", "neutral")


def test_a_dry_run_sends_nothing_and_writes_nothing(run, tmp_path, folder):
    source = write(tmp_path / "in.jsonl", *CASES)
    done = run("relate", source, "--dry-run", "--relation-model", folder, "--json")
    assert done.returncode == OK, done.stderr
    found = json.loads(done.stdout)
    assert (found["dry_run"], found["prompts"], found["to_send"]) == (True, 0, 0)
    pairs = write(tmp_path / "pairs.jsonl", *pairs_of())
    done = run("calibrate", pairs, "--dry-run", "--relation-model", folder, "--json")
    assert (done.returncode, json.loads(done.stdout)["to_send"]) == (OK, 0), done.stderr
    assert not (tmp_path / "store.sqlite").exists()


def test_critique_by_sentences_needs_no_endpoint_at_all(run, tmp_path, folder, name):
    source = write(tmp_path / "in.jsonl", *(scripted_model.case(town, 3) for town in range(2)))
    out = tmp_path / "out.jsonl"
    how = ("--atomizer", "sentences", "--corpus", corpus_of(tmp_path), "--relation-model", folder)
    done = run("critique", source, "-o", out, *how, "--json")
    assert done.returncode == OK, done.stderr
    document = json.loads(done.stdout)
    assert (document["client"], document["endpoint"]) == (None, None)
    first = out.read_bytes(), (tmp_path / "out.cases.jsonl").read_bytes()
    for row, case in zip(rows_in(out), rows_in(tmp_path / "out.cases.jsonl"), strict=True):
        assert len(row["atoms"]) == 3
        assert case["relate"]["model"] == name
        assert case["stages"]["atomize"]["atomizer"] == "sentences"
    again = tmp_path / "again.jsonl"
    assert run("critique", source, "-o", again, *how).returncode == OK
    assert (again.read_bytes(), (tmp_path / "again.cases.jsonl").read_bytes()) == first
    shown = run("critique", source, *how, "--dry-run")
    assert shown.returncode == OK, shown.stderr
    assert b"relate" in shown.stdout


def test_calibrate_measures_a_model_and_other_commands_refuse_one_that_knows_nothing(run, tmp_path, folder, name):
    pairs, file = write(tmp_path / "pairs.jsonl", *pairs_of()), tmp_path / "calibration.json"
    done = run("calibrate", pairs, "-o", file, "--relation-model", folder, "--json")
    assert done.returncode == OK, done.stderr
    document = json.loads(done.stdout)
    assert (document["model"], document["style"], document["n_answered"]) == (name, "local", 60)
    made = json.loads(file.read_bytes())
    assert made["model"] == name
    assert not made["figures"]["gate"]["passed"]
    source, out = write(tmp_path / "in.jsonl", *CASES), tmp_path / "out.jsonl"
    how = ("relate", source, "-o", out, "--relation-model", folder, "--calibration", file)
    done = run(*how)
    assert done.returncode == UNUSABLE
    assert "did not pass the gate of its examination" in done.stderr.decode()
    assert not out.exists()
    done = run(*how, "--force")
    assert done.returncode == OK, done.stderr
    assert "used although the gate was not passed" in done.stderr.decode()
    assert rows_in(out)[0]["relate"]["calibration"] == made["digest"]
    done = run("calibrate", pairs, "--relation-model", folder, "--calibration", file, "--embedding", folder, "--json")
    assert done.returncode == OK, done.stderr
    document = json.loads(done.stdout)
    assert "given" in document
    other = tiny.write_folder(tmp_path / "other", seed=1)
    done = run("relate", source, "-o", out, "--relation-model", other, "--calibration", file, "--force")
    assert done.returncode == UNUSABLE
    assert f"the calibration is of model '{name}'" in done.stderr.decode()


def test_the_gate_in_the_folder_holds_too(run, tmp_path, folder, name):
    made = Calibration(model=name, style="local", template="relate.local/1", figures={"gate": GATE})
    poor = tiny.write_folder(tmp_path / "poor", calibration=made.to_dict())
    source, out = write(tmp_path / "in.jsonl", *CASES), tmp_path / "out.jsonl"
    done = run("relate", source, "-o", out, "--relation-model", poor)
    assert (done.returncode, "did not pass the gate" in done.stderr.decode()) == (UNUSABLE, True)
    assert run("relate", source, "-o", out, "--relation-model", poor, "--force").returncode == OK
    assert run("calibrate", write(tmp_path / "p.jsonl", *pairs_of()), "--relation-model", poor).returncode == OK
    assert "did not pass the gate" not in run("doctor", "--relation-model", poor).stderr.decode()


def test_doctor_says_what_the_model_is(run, tmp_path, folder, name):
    done = run("doctor", "--relation-model", folder, "--prompts", "8", "--json")
    assert done.returncode in (OK, SOME_FAILED), done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["model"]["classes"] == 3
    assert name in found["model"]["words"]
    assert found["examined"]["verdict"] == "limited"
    assert found["speed"]["pairs_per_second"] > 0
    two = tiny.write_folder(tmp_path / "two", labels=("entailment", "not_entailment"))
    shown = run("doctor", "--relation-model", two, "--prompts", "8").stdout.decode()
    assert "it has no label for contradictions" in shown


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (("--style", "packed"), "--style"),
        (("--votes", "3"), "--votes"),
        (("--wording", "1"), "--wording"),
        (("--max-tokens", "9"), "--max-tokens"),
        (("--default", "0.8"), "--default"),
        (("--model", "m"), "--model"),
        (("--base-url", "http://localhost:1/v1"), "--base-url"),
        (("--timeout", "3"), "--timeout"),
        (("--price", "1", "2"), "--price"),
        (("--constrain", "choice"), "--constrain"),
    ],
)
def test_options_without_effect_are_refused(run, tmp_path, folder, options, option):
    source = write(tmp_path / "in.jsonl", *CASES)
    done = run("relate", source, "--dry-run", "--relation-model", folder, *options)
    assert done.returncode == UNUSABLE
    assert f"{option} has no effect" in " ".join(done.stderr.decode().split())


@pytest.mark.parametrize("command", ["relate", "critique", "calibrate", "doctor"])
def test_a_folder_that_cannot_be_used_ends_the_command_with_one_clear_message(run, tmp_path, command):
    source = write(tmp_path / "in.jsonl", *(pairs_of() if command == "calibrate" else CASES))
    out = () if command == "doctor" else (source, "-o", tmp_path / "out.jsonl")
    more = ("--atomizer", "sentences") if command == "critique" else ()
    bare = tmp_path / "bare"
    bare.mkdir()
    nan = tiny.write_folder(tmp_path / "nan", change=lambda tensors: tensors["classifier.bias"].fill(float("nan")))
    for folder, words in (
        (bare, "model.safetensors is missing"),
        (tmp_path / "none", "there is no folder"),
        (nan, "NaN or infinite"),
        ("no-such/model", "could not be fetched from the hub"),
    ):
        done = run(command, *out, *more, "--relation-model", folder)
        assert done.returncode == UNUSABLE, done.stderr
        assert words in done.stderr.decode()
        assert len(done.stderr.decode().splitlines()) <= 4
        assert done.stdout == b""
        assert not (tmp_path / "out.jsonl").exists()


def test_correct_asks_a_model_for_words_alone(tmp_path, folder):
    source = write(tmp_path / "in.jsonl", *(scripted_model.case(town, 3) for town in (1, 2)))
    asked = []

    def answer(messages):
        asked.append(messages[0]["content"])
        said = scripted_writer.answer(messages)  # a model at random may leave nothing to say
        return scripted_writer.revised("Town 1 has 9 parks.") if said == scripted_writer.revised("") else said

    out = tmp_path / "out.jsonl"
    with ScriptedServer(answer, key=KEY) as server:
        how = ("--corpus", corpus_of(tmp_path), "--relation-model", folder)
        done = fcjax("correct", source, "-o", out, *how, **settings(server, tmp_path))
    assert done.returncode == OK, done.stderr
    assert asked
    assert not any("<hypothesis>" in one for one in asked)
    assert [row["status"] for row in rows_in(out)] == ["ok", "ok"]


def test_a_local_model_goes_before_the_endpoints_only_with_a_calibration(tmp_path, folder):
    source, out = write(tmp_path / "in.jsonl", *CASES), tmp_path / "out.jsonl"
    with ScriptedServer(scripted_model.answer, key=KEY) as server:
        env = settings(server, tmp_path) | {"HF_HUB_OFFLINE": "1"}
        done = fcjax("relate", source, "-o", out, "--relation-model", folder, "--ask", "adaptive", **env)
        assert done.returncode == UNUSABLE
        assert b"the local model that answers first has no calibration" in done.stderr
        assert not server.calls
        own = Calibration(
            model=LocalRelationModel.open(folder).name,
            style="local",
            template="relate.local/1",
            figures={"gate": {"passed": True, "verdict": "passed"}},
        )
        calibrated = tiny.write_folder(tmp_path / "calibrated")
        (calibrated / "calibration.json").write_text(json.dumps(own.to_dict()))
        done = fcjax("relate", source, "-o", out, "--relation-model", calibrated, "--ask", "adaptive", **env)
        assert done.returncode == OK, done.stderr
        assert server.calls
    for row in rows_in(out):
        assert (row["relate"]["model"], row["relate"]["opinion"]) == ("scripted", "local")
        assert row["relate"]["first"].endswith(own.model.rpartition("@")[2])
