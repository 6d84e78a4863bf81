"""The gate of an examination as a user meets it: the verdict of `fcjax calibrate`, and --force where it is used."""

from __future__ import annotations

import json
import random

import biased_model
import pytest
import scripted_model
import scripted_writer
from command import KEY, OK, UNUSABLE, environment, fcjax
from jsonl import rows_in, write
from scripted_critique import corpus_of, settings
from scripted_server import ScriptedServer

from fcjax.stages.calibration import Calibration
from fcjax.stages.relate import RelationModel

FAILED = {"passed": False, "verdict": "failed: worse than always answering neutral: log loss 1.020 against 0.800"}

ATOMIZED = {
    "id": "k",
    "atoms": [{"id": "a0", "text": "Town 1 has 9 parks."}],
    "contexts": [{"id": "c0", "text": "Town 1 has 9 parks."}],
}


def file_of(tmp_path, **figures):
    made = Calibration(
        model="scripted", style="pairwise", template=RelationModel().template.name, temperature=3.0, figures=figures
    )
    return write(tmp_path / "calibration.json", json.dumps(made.to_dict()))


@pytest.fixture
def examined(tmp_path):
    """`fcjax calibrate -o` on pairs whose labels the scripted model knows, or on labels at random."""

    def go(rows, *args):
        with ScriptedServer(biased_model.answer, key=KEY) as server:
            source, out = write(tmp_path / "pairs.jsonl", *rows), tmp_path / "calibration.json"
            return fcjax("calibrate", source, "-o", out, *args, **environment(server, tmp_path)), out

    return go


def test_the_verdict_is_printed_and_kept_in_the_file(examined):
    done, out = examined(biased_model.pairs(120))
    assert (done.returncode, done.stderr) == (OK, b"")
    shown = done.stdout.decode()
    for words in ("Baselines, on the same pairs", "cosine of word counts", "gate passed: better than always answering"):
        assert words in shown
    figures = json.loads(out.read_bytes())["figures"]
    assert (figures["gate"]["passed"], figures["baselines"].keys()) == (True, {"commonest", "cosine"})
    document = json.loads(examined(biased_model.pairs(120), "--json")[0].stdout)
    assert document["gate"] == figures["gate"]
    assert document["baselines"] == figures["baselines"]


def test_a_model_that_says_nothing_is_measured_and_its_calibration_is_written_with_a_warning(examined):
    rows = biased_model.pairs(120)
    labels = [row["label"] for row in rows]
    random.Random(0).shuffle(labels)
    done, out = examined([row | {"label": label} for row, label in zip(rows, labels, strict=True)])
    assert done.returncode == OK
    gate = json.loads(out.read_bytes())["figures"]["gate"]
    assert not gate["passed"]
    assert "always answering" in " ".join(done.stdout.decode().split())
    assert f"other commands refuse this calibration without --force; gate {gate['verdict']}" in done.stderr.decode()
    made = out.rename(out.with_name("made.json"))
    done, _ = examined(rows, "--calibration", made)  # to measure it on other pairs is no use of it
    assert done.returncode == OK


def test_relate_critique_and_correct_refuse_it_without_force(tmp_path):
    file = file_of(tmp_path, gate=FAILED)
    cases = write(tmp_path / "in.jsonl", *(scripted_model.case(town, 2) for town in range(2)))
    atomized = write(tmp_path / "atomized.jsonl", ATOMIZED)
    corpus = corpus_of(tmp_path)
    with ScriptedServer(scripted_writer.answer, key=KEY) as server:
        env = settings(server, tmp_path)
        for command, more in (("relate", ()), ("critique", ("--corpus", corpus)), ("correct", ("--corpus", corpus))):
            source = atomized if command == "relate" else cases
            given = (command, source, "-o", tmp_path / f"{command}.jsonl", *more, "--calibration", file)
            before = server.calls
            done = fcjax(*given, **env)
            assert (done.returncode, server.calls, (tmp_path / f"{command}.jsonl").exists()) == (
                UNUSABLE,
                before,
                False,
            )
            complaint = done.stderr.decode()
            assert "relation model 'scripted' did not pass the gate" in complaint
            assert "log loss 1.020 against 0.800" in complaint
            assert "--force" in complaint
            done = fcjax(*given, "--force", **env)
            assert done.returncode == OK, done.stderr
            assert done.stderr.decode().count("used although the gate was not passed") == 1
            assert rows_in(tmp_path / f"{command}.jsonl")


def test_a_calibration_without_a_gate_is_used_with_one_warning(tmp_path):
    cases = write(tmp_path / "in.jsonl", ATOMIZED)
    with ScriptedServer(scripted_writer.answer, key=KEY) as server:
        given = ("relate", cases, "-o", tmp_path / "out.jsonl")
        done = fcjax(*given, "--calibration", file_of(tmp_path), **environment(server, tmp_path))
        assert (done.returncode, done.stderr.decode().count("has no gate")) == (OK, 1)
        done = fcjax(*given, "--force", **environment(server, tmp_path))
        assert (done.returncode, "--force has no effect without --calibration" in done.stderr.decode()) == (
            UNUSABLE,
            True,
        )


def test_eval_refuses_it_without_force(tmp_path):
    write(tmp_path / "towns.jsonl", {"id": "1", "response": "A town."})
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "data: [towns.jsonl]\nmodels: [{model: scripted}]\ncorrectors: [llm1]\n"
        "critic: {calibration: calibration.json}\n"
    )
    file_of(tmp_path, gate=FAILED)
    done = fcjax("eval", grid, "-n")
    assert (done.returncode, "log loss 1.020 against 0.800" in done.stderr.decode()) == (UNUSABLE, True)
    done = fcjax("eval", grid, "-n", "--force")
    assert (done.returncode, done.stderr.decode().count("used although the gate was not passed")) == (OK, 1)
    file_of(tmp_path)
    done = fcjax("eval", grid, "-n")
    assert (done.returncode, done.stderr.decode().count("has no gate")) == (OK, 1)
