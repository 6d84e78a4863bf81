"""`fcjax train` as a user starts it: what it writes, what it refuses, and that kill -9 changes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import model_folders as tiny
import pytest
from command import OK, SCRIPT, UNUSABLE, fcjax
from jsonl import write

from fcjax.encoders.relation_model import LocalRelationModel
from fcjax.io.model_folder import open_model

WORDS = {"entailment": "yes", "contradiction": "no", "neutral": "guide"}


def pairs(n):
    """Pairs whose label is told by one word."""
    labels = tuple(WORDS)
    return [
        {
            "premise": f"Town {i % 90} has {10 + i % 80} wells {WORDS[labels[i * 7 % 3]]}.",
            "hypothesis": "It is high.",
            "label": labels[i * 7 % 3],
        }
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "base"
    return tiny.write_folder(folder, head=False, positions=64, initializer_range=0.1)


@pytest.fixture
def run(tmp_path, base):
    """Runs `fcjax train` with small batches of short pairs."""

    def go(source, out, *args):
        how = ("--base", base, "--length", "64", "--batch", "8", "--learning-rate", "0.003")
        return fcjax("train", source, "-o", out, *how, *args, XDG_CACHE_HOME=str(tmp_path / "cache"))

    return go


def test_a_folder_is_written_that_is_a_relation_model(run, tmp_path):
    source, out = write(tmp_path / "pairs.jsonl", *pairs(160)), tmp_path / "judge"
    done = run(source, out, "--epochs", "30", "--patience", "200", "--json")
    assert done.returncode == OK, done.stderr
    document = json.loads(done.stdout)
    assert document["exam"]["raw"]["accuracy"] > 0.7
    assert document["history"][-1][2] < document["history"][0][2]
    assert {path.name for path in out.iterdir()} == {
        *("README.md", "calibration.json", "config.json", "model.safetensors", "tokenizer.json")
    }
    config = json.loads((out / "config.json").read_bytes())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "entailment", "1": "contradiction", "2": "neutral"}
    card = (out / "README.md").read_text()
    for words in ("pairs.jsonl", "base@", "accuracy", "learning_rate=0.003"):
        assert words in card
    model = LocalRelationModel.open(out, force=True)
    assert document["model"] == model.name == model.calibration.model
    held = [(row["premise"], row["hypothesis"]) for row in pairs(30)]
    said = [max(range(3), key=one.distribution.__getitem__) for one in model.judge(held)]
    right = [list(WORDS).index(row["label"]) for row in pairs(30)]
    assert sum(a == b for a, b in zip(said, right, strict=True)) > 20

    weights = (out / tiny.WEIGHTS).read_bytes()
    done = run(source, out, "--epochs", "8")
    assert (done.returncode, "has a model already" in done.stderr.decode()) == (UNUSABLE, True)
    done = run(source, out, "--epochs", "0.2", "--overwrite", "-q")
    assert (done.returncode, done.stdout) == (OK, b""), done.stderr
    assert (out / tiny.WEIGHTS).read_bytes() != weights
    assert LocalRelationModel.open(out, force=True).calibration.model == open_model(out).name


def test_a_run_that_was_killed_after_the_weights_were_written_ends_when_repeated(run, tmp_path):
    source, out, other = write(tmp_path / "pairs.jsonl", *pairs(40)), tmp_path / "judge", tmp_path / "other"
    assert run(source, out, "--epochs", "1", "-q").returncode == OK
    (other / "training").mkdir(parents=True)
    (other / "training" / "state.json").write_text("{")  # damaged
    done = run(source, other, "--epochs", "1")
    assert (done.returncode, "use --overwrite to start over" in done.stderr.decode()) == (UNUSABLE, True)
    (other / tiny.WEIGHTS).write_bytes(b"half")
    done = run(source, other, "--epochs", "1", "--overwrite", "-q")
    assert done.returncode == OK, done.stderr
    assert not (other / "training").exists()
    for name in (tiny.WEIGHTS, "config.json", "tokenizer.json"):
        assert (other / name).read_bytes() == (out / name).read_bytes()


def test_what_cannot_be_trained_is_refused_before_any_work(run, tmp_path, base):
    source = write(tmp_path / "pairs.jsonl", *pairs(40))
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "README.md").write_text("my project")
    (tmp_path / "file").write_text("")
    one_label = [row | {"label": "neutral"} for row in pairs(20)]
    one_premise = [row | {"premise": "The tower is high.", "hypothesis": f"{i}"} for i, row in enumerate(pairs(9))]
    for given, out, words in (
        (source, tmp_path / "file", "is a file; give a folder"),
        (source, mine, "has a file README.md"),
        (source, tmp_path / "file" / "out", "cannot be made"),
        (source, base, "is the base itself"),
        (write(tmp_path / "one.jsonl", *one_label), tmp_path / "out", "all pairs have the label neutral"),
        (write(tmp_path / "few.jsonl", *one_premise), tmp_path / "out", "give pairs of more premises"),
        (write(tmp_path / "none.jsonl", {"premise": "x"}), tmp_path / "out", "hypothesis"),
    ):
        done = run(given, out)
        assert (done.returncode, words in done.stderr.decode()) == (UNUSABLE, True), done.stderr
        assert not (tmp_path / "out").exists()
    assert (mine / "README.md").read_text() == "my project"


@pytest.mark.slow
def test_killed_three_times_the_weights_are_those_of_one_run(run, tmp_path, base):
    source, whole, out = write(tmp_path / "pairs.jsonl", *pairs(200)), tmp_path / "whole", tmp_path / "killed"
    more = ("--batch", "1", "--epochs", "5", "--patience", "1000", "-q")
    done = run(source, whole, *more)
    assert done.returncode == OK, done.stderr
    how = ("--base", base, "--length", "64", "--learning-rate", "0.003", *more)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    state, seen = out / "training" / "state.json", None
    for _ in range(3):
        command = [str(one) for one in (SCRIPT, "train", source, "-o", out, *how)]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as running:
            until = time.monotonic() + 300
            while time.monotonic() < until and running.poll() is None:
                if state.exists() and (found := state.read_bytes()) != seen:
                    seen = found
                    time.sleep(0.05)
                    break
                time.sleep(0.01)
            running.send_signal(signal.SIGKILL)
        assert not (out / tiny.WEIGHTS).exists()
    done = run(source, out, *more)
    assert done.returncode == OK, done.stderr
    for name in (tiny.WEIGHTS, "config.json", "tokenizer.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    calibration = [json.loads((one / "calibration.json").read_bytes()) for one in (out, whole)]
    assert calibration[0]["temperature"] == calibration[1]["temperature"]
    assert not (out / "training").exists()
