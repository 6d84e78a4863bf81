"""`fcjax calibrate` and `--calibration` as a user starts them, against a server on loopback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import biased_model
import pytest
import scripted_model
import scripted_writer
from command import KEY, OK, SOME_FAILED, UNUSABLE, environment, fcjax
from jsonl import rows_in, write
from scripted_critique import corpus_of, settings
from scripted_server import ScriptedServer

from fcjax.core.errors import InputError
from fcjax.critic.calibration_file import load_calibration
from fcjax.stages.calibration import Calibration
from fcjax.stages.relate import RelationModel

WORDING = RelationModel().template.name


@pytest.fixture
def server():
    with ScriptedServer(biased_model.answer, key=KEY) as running:
        yield running


@pytest.fixture
def run(server, tmp_path):
    def go(*args, **env):
        return fcjax("calibrate", *args, **environment(server, tmp_path), **env)

    return go


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "pairs.jsonl", *biased_model.pairs(90))


def test_the_figures_are_printed_and_the_calibration_is_written(run, source, server, tmp_path):
    out = tmp_path / "calibration.json"
    done = run(source, "-o", out)
    assert (done.returncode, done.stderr) == (OK, b"")
    shown = done.stdout.decode()
    for words in (
        "90 pairs asked about, 0 failed",
        "accuracy",
        "macro-F1",
        "Confusion, calibrated",
        "Reliability, raw",
        "█",
    ):
        assert words in shown
    made = load_calibration(out)
    assert (made.model, made.style, made.template, made.n_pairs) == ("scripted", "pairwise", WORDING, 90)
    assert f"calibration {made.digest} of 90 pairs in {out}" in shown
    again = run(source, "--replay", "--json", "-o", tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == out.read_bytes()
    document = json.loads(again.stdout)
    assert (document["n_pairs"], document["n_failed"], document["client"]["sent"]) == (90, 0, 0)
    for name in ("raw", "calibrated"):
        found = document[name]
        assert {
            "accuracy",
            "macro_f1",
            "log_loss",
            "ece",
            "confusion",
            "bias",
            "intervals",
            "reliability",
        } <= found.keys()
        assert found == made.figures[name]
        assert sum(sum(row.values()) for row in found["confusion"].values()) == 90
        assert found["bias"]["shares"].keys() == {"entailment", "contradiction", "neutral"}
    assert document["cost"]["prompts"] == 90  # what it costs, whoever answers
    assert document["calibration"]["digest"] == made.digest
    assert server.calls == 90
    assert KEY.encode() not in out.read_bytes() + again.stdout + done.stdout


def test_a_stopped_run_resumes(run, source, server, tmp_path):
    out = tmp_path / "calibration.json"
    done = run(source, "-o", out, "--budget-prompts", 20, "--concurrency", 2)
    assert done.returncode == SOME_FAILED
    assert "the budget of 20 prompts is used up" in done.stderr.decode()
    assert "run the same command to resume" in done.stderr.decode()
    assert not out.exists()
    assert run(source, "-o", out).returncode == OK
    assert server.calls == 90


def test_a_dry_run_sends_nothing(run, source, server, tmp_path):
    done = run(source, "--dry-run")
    assert (done.returncode, server.calls) == (OK, 0)
    assert "90 pairs, 90 prompts, 0 in the store: 90 to send" in done.stdout.decode()
    assert json.loads(run(source, "-n", "--json", "--limit", 7).stdout)["n_pairs"] == 7
    assert not (tmp_path / "store.sqlite").exists()


def test_skipped_rows_are_named(run, tmp_path):
    source = write(tmp_path / "pairs.jsonl", *biased_model.pairs(40), {"premise": "p", "hypothesis": "h", "label": 1})
    done = run(source)
    assert done.returncode == SOME_FAILED
    complaints = done.stderr.decode()
    assert f"{source}:41" in complaints
    assert "means different labels in different data sets" in complaints
    assert "1 row skipped" in complaints


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"premise": "p", "hypothesis": "h"}], "label is missing"),
        ([{"premise": "p", "hypothesis": "h", "label": "vrai"}], 'label is "vrai"'),
        (
            [{"premise": "p", "hypothesis": f"h{i}", "label": "neutral"} for i in range(9)],
            "all pairs have the label neutral",
        ),
    ],
)
def test_pairs_that_allow_no_calibration_end_before_anything_is_asked(run, server, tmp_path, rows, words):
    out = tmp_path / "c.json"
    done = run(write(tmp_path / "pairs.jsonl", *rows), "-o", out)
    assert (done.returncode, server.calls, out.exists()) == (UNUSABLE, 0, False)
    assert words in done.stderr.decode()


def test_a_refusal_says_what_was_left_out_before(run, server, tmp_path):
    rows = [
        {"premise": "p", "hypothesis": f"h{i}", "label": label} for i, label in enumerate(["neutral"] * 3 + ["faux"])
    ]
    doubled = [{"premise": "p", "hypothesis": "d", "label": label} for label in ("entailment", "contradiction")]
    done = run(write(tmp_path / "pairs.jsonl", *rows, *doubled), "-o", tmp_path / "c.json")
    assert (done.returncode, server.calls) == (UNUSABLE, 0)
    complaints = done.stderr.decode()
    assert 'label is "faux"' in complaints
    assert "1 row skipped" in complaints
    assert "all pairs have the label neutral (1 pair with different labels left out)" in complaints


def test_options_are_checked(run, source, server, tmp_path):
    out = tmp_path / "c.json"
    for shares in ("0.5,0.5", "a,b,c", "0.9,0.9,0.9", "entailment=1", "nan,0.5,0.5"):
        done = run(source, "-o", out, "--in-use", shares)
        assert (done.returncode, "add up to 1" in done.stderr.decode()) == (UNUSABLE, True), shares
    assert "--in-use has no effect" in run(source, "--in-use", "0.2,0.1,0.7").stderr.decode()
    assert run(source, "-o", source).returncode == UNUSABLE
    assert run(source, "-o", tmp_path / "store.sqlite").returncode in (OK, UNUSABLE)
    assert run(source, "--json", "-o", "-").returncode == UNUSABLE
    assert run(source, "--plot", tmp_path / "p.gif").returncode == UNUSABLE
    assert run(source, "--plot", tmp_path / "no" / "p.svg").returncode == UNUSABLE
    assert server.calls == 0


def test_shares_in_use_are_kept_by_name_or_in_order(run, source, tmp_path):
    for shares in ("0.2,0.1,0.7", "neutral=0.7,entailment=0.2,contradiction=0.1"):
        assert run(source, "-o", tmp_path / "c.json", "--in-use", shares).returncode == OK
        assert load_calibration(tmp_path / "c.json").in_use == (0.2, 0.1, 0.7)


def test_a_label_in_use_that_no_pair_has_is_refused(run, server, tmp_path):
    rows = (row for row in biased_model.pairs(90) if row["label"] != "neutral")
    source, out = write(tmp_path / "pairs.jsonl", *rows), tmp_path / "c.json"
    done = run(source, "-o", out, "--in-use", "0.2,0.1,0.7")
    assert (done.returncode, server.calls, out.exists()) == (UNUSABLE, 0, False)
    assert "0.7 of the labels are neutral, and no pair has that label" in done.stderr.decode()
    assert run(source, "-o", out, "--in-use", "0.9,0.1,0").returncode == OK


def test_another_wording_is_another_calibration(run, source, tmp_path):
    wording = tmp_path / "mine.txt"
    wording.write_text("<premise>\n$premise\n</premise>\n<hypothesis>\n$hypothesis\n</hypothesis>\nWhich?")
    for number, given in enumerate((str(wording), f"relate={wording}")):
        out = tmp_path / f"{number}.json"
        assert run(source, "-o", out, "--template", given).returncode == OK
        assert load_calibration(out).template.startswith("mine/")
    done = run(source, "--calibration", tmp_path / "0.json")
    assert done.returncode == UNUSABLE
    assert f"and this run uses '{WORDING}'" in done.stderr.decode()
    done = run(source, "--calibration", tmp_path / "0.json", "--template", wording)
    assert (done.returncode, "--calibration" in done.stdout.decode()) == (OK, True)


def test_a_plot_is_written(run, source, tmp_path):
    pytest.importorskip("matplotlib")
    assert run(source, "--plot", tmp_path / "p.svg").returncode == OK
    assert "probability of the answer" in (tmp_path / "p.svg").read_text()


def test_the_calibration_and_the_plot_are_two_files(run, source, server, tmp_path):
    out, link = tmp_path / "x.svg", tmp_path / "link.svg"
    link.symlink_to(out)
    (tmp_path / "there.svg").write_text("kept")
    (tmp_path / "hard.svg").hardlink_to(tmp_path / "there.svg")
    for one, other in ((out, out), (out, link), (tmp_path / "hard.svg", tmp_path / "there.svg")):
        done = run(source, "-o", one, "--plot", other)
        assert (done.returncode, server.calls) == (UNUSABLE, 0)
        assert "-o and --plot are both" in done.stderr.decode()
    assert not out.exists()
    assert (tmp_path / "there.svg").read_text() == "kept"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_plot_that_cannot_be_written_loses_no_calibration(run, source, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "p.svg").symlink_to("/dev/full")
    done = run(source, "-o", tmp_path / "c.json", "--plot", tmp_path / "p.svg")
    assert done.returncode == UNUSABLE
    assert "p.svg: No space left on device" in done.stderr.decode()
    assert "macro-F1" in done.stdout.decode()
    assert load_calibration(tmp_path / "c.json").n_pairs == 90


def test_a_compressed_calibration_is_read_by_the_other_commands(run, source, tmp_path):
    packed = tmp_path / "c.json.gz"
    assert run(source, "-o", tmp_path / "c.json").returncode == OK
    assert run(source, "-o", packed, "--replay").returncode == OK
    assert gzip.decompress(packed.read_bytes()) == (tmp_path / "c.json").read_bytes()
    assert load_calibration(packed) == load_calibration(tmp_path / "c.json")
    assert run(source, "--calibration", packed).returncode == OK
    (tmp_path / "cut.gz").write_bytes(packed.read_bytes()[:-20])
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b" " * (1 << 21)))
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b"") * 60_000)
    for name, words in (("cut", "cut off"), ("bomb", "1,048,576 bytes"), ("empty", "1,048,576 bytes")):
        with pytest.raises(InputError, match=rf"{name}.gz: cannot be read as a calibration: .*{words}"):
            load_calibration(tmp_path / f"{name}.gz")


# --calibration in the commands that ask about relations.


def calibration_file(tmp_path, name="calibration.json", **changes):
    """A calibration that turns what the scripted models say with certainty into something less certain."""
    of = {"model": "scripted", "style": "pairwise", "template": WORDING} | changes
    made = Calibration(**{"temperature": 3.0, "biases": (0.1, -0.2, 0.1)} | of)
    return write(tmp_path / name, json.dumps(made.to_dict())), made.digest


@pytest.fixture
def towns(tmp_path):
    with ScriptedServer(scripted_writer.answer, key=KEY) as server:
        source = write(tmp_path / "in.jsonl", *(scripted_model.case(town, 2) for town in range(3)))
        corpus = corpus_of(tmp_path)

        def go(command, name, *args):
            out = tmp_path / f"{name}.jsonl"
            env = settings(server, tmp_path)
            return fcjax(command, source, "-o", out, "--corpus", corpus, *args, **env), out

        yield go


def test_critique_and_correct_use_a_calibration_and_their_rows_name_it(towns, tmp_path):
    file, digest = calibration_file(tmp_path)
    for command in ("critique", "correct"):
        done, plain = towns(command, f"{command}-plain")
        assert done.returncode == OK, done.stderr
        done, out = towns(command, command, "--calibration", file)
        assert done.returncode == OK, done.stderr
        before, after = rows_in(plain), rows_in(out)
        assert all(one["fingerprint"] != two["fingerprint"] for one, two in zip(before, after, strict=True))
        if command == "correct":
            assert {row["best"]["calibration"] for row in after} == {digest}
            assert all("calibration" not in row["best"] for row in before)
        else:
            assert all("calibration" not in row["diagnostics"] for row in before)
            assert {row["diagnostics"]["calibration"] for row in after} == {digest}
            relations = [one for row in rows_in(tmp_path / "critique.cases.jsonl") for one in row["relations"]]
            assert {one["method"] for one in relations} == {"logprobs"}
            known = [one for row in rows_in(tmp_path / "critique-plain.cases.jsonl") for one in row["relations"]]
            assert max(one["probability"] for one in relations) < max(one["probability"] for one in known) - 1e-3
            scored = fcjax("score", tmp_path / "critique.cases.jsonl", "-o", tmp_path / "scored.jsonl")
            assert scored.returncode == OK
            assert {row["diagnostics"]["calibration"] for row in rows_in(tmp_path / "scored.jsonl")} == {digest}
    document = json.loads(towns("critique", "json", "--calibration", file, "--json")[0].stdout)
    assert document["settings"]["relate"]["model"]["calibration"] == digest
    assert "calibration" not in json.loads(towns("critique", "none", "--json")[0].stdout)["settings"]["relate"]["model"]


def test_a_calibration_of_another_model_style_or_wording_is_refused_by_name(towns, tmp_path):
    for changes, words in (
        ({"model": "other"}, "of model 'other', and this run uses 'scripted'"),
        ({"style": "packed"}, "of style 'packed', and this run uses 'pairwise'"),
        ({"template": "relate.pairwise/0"}, f"of wording 'relate.pairwise/0', and this run uses '{WORDING}'"),
    ):
        file, _ = calibration_file(tmp_path, **changes)
        for command in ("critique", "correct"):
            done, out = towns(command, "refused", "--calibration", file)
            assert (done.returncode, out.exists()) == (UNUSABLE, False), (command, changes)
            assert words in done.stderr.decode()
    (tmp_path / "no.json").write_text("{}")
    assert "temperature is None" in towns("critique", "x", "--calibration", tmp_path / "no.json")[0].stderr.decode()
    done, _ = towns("correct", "x", "--calibration", calibration_file(tmp_path)[0], "--corrector", "rac")
    assert "--calibration has no effect" in done.stderr.decode()
    done, _ = towns("critique", "x", "--calibration", calibration_file(tmp_path)[0], "--stages", "atomize,retrieve")
    assert "--calibration has no effect" in done.stderr.decode()


def test_relate_uses_a_calibration_and_says_which(server, tmp_path):
    pairs = biased_model.pairs(4)
    case = {
        "id": "k",
        "atoms": [{"id": f"a{i}", "text": row["hypothesis"]} for i, row in enumerate(pairs)],
        "contexts": [{"id": "c0", "text": "premise"}],
    }
    source, env = write(tmp_path / "in.jsonl", case), environment(server, tmp_path)
    file, digest = calibration_file(tmp_path, temperature=2.0, biases=biased_model.BIASES)
    plain = fcjax("relate", source, "-o", tmp_path / "plain.jsonl", "--json", **env)
    done = fcjax("relate", source, "-o", tmp_path / "out.jsonl", "--json", "--calibration", file, **env)
    assert (done.returncode, server.calls) == (OK, 4)  # the same prompts: the second run has them from the store
    assert json.loads(done.stdout)["settings"]["calibration"] == digest
    assert "calibration" not in json.loads(plain.stdout)["settings"]
    (row,), (before,) = rows_in(tmp_path / "out.jsonl"), rows_in(tmp_path / "plain.jsonl")
    assert row["relate"]["calibration"] == digest
    assert "calibration" not in before["relate"]
    calibration = load_calibration(file)
    for one, raw in zip(row["relations"], before["relations"], strict=True):
        q = tuple(raw["distribution"][label] for label in biased_model.NAMES)
        assert list(one["distribution"].values()) == pytest.approx(calibration.apply(q), abs=1e-6)
        assert one["probability"] == pytest.approx(max(one["distribution"].values()))
    done = fcjax("relate", source, "-o", tmp_path / "x.jsonl", "--calibration", file, "--model", "other", **env)
    assert (done.returncode, (tmp_path / "x.jsonl").exists()) == (UNUSABLE, False)
    assert "of model 'scripted', and this run uses 'other'" in done.stderr.decode()
    assert fcjax("relate", source, "-o", file, "--calibration", file, **env).returncode == UNUSABLE


def test_relations_kept_from_another_calibration_are_counted(towns, server, tmp_path):
    sentence = "relations of another model, wording or calibration are kept in 3 cases"
    done, _ = towns("critique", "plain")
    assert sentence not in done.stdout.decode()
    file, _ = calibration_file(tmp_path)
    known, env = tmp_path / "plain.cases.jsonl", environment(server, tmp_path)
    for command in ("critique", "relate"):
        args = (command, known, "-o", tmp_path / f"{command}.jsonl", "--calibration", file)
        assert sentence in " ".join(fcjax(*args, **env).stdout.decode().split()), command
        assert json.loads(fcjax(*args, "--json", **env).stdout)["n_earlier"] == 3
        args = (command, known, "-o", tmp_path / f"{command}-same.jsonl", "--json")
        assert json.loads(fcjax(*args, **env).stdout)["n_earlier"] == 0
