"""`--constrain` as a user gives it, against a server on loopback that honours or refuses the fields."""

from __future__ import annotations

import json
from typing import get_args

import biased_model
import pytest
import scripted_model as model
from command import KEY, OK, UNUSABLE, fcjax
from jsonl import rows_in, write
from relations import case as related_case
from scripted_critique import corpus_of, settings
from scripted_server import ScriptedServer, unknown

from fcjax.cli.main import commands
from fcjax.io.constraints import FIELDS, Constrain


@pytest.fixture
def run(tmp_path):
    """Runs `fcjax critique` on three cases with a server of this test."""
    source = write(tmp_path / "in.jsonl", *(model.case(town, 1 + town % 3) for town in range(3)))
    corpus = corpus_of(tmp_path)

    def go(server, name, *args):
        out = tmp_path / f"{name}.jsonl"
        env = settings(server, tmp_path) | {"FCJAX_STORE": str(tmp_path / f"{name}.sqlite")}
        done = fcjax("critique", source, "-o", out, "--corpus", corpus, "--concurrency", 1, *args, **env)
        assert done.returncode == OK, done.stderr
        return done.stdout.decode(), rows_in(out)

    return go


def constrained(server):
    return [next((name for name in FIELDS if name in body), None) for body in server.bodies]


def test_the_choices_are_those_of_the_client():
    for name in ("relate", "critique", "correct"):
        (option,) = [one for one in commands.get_command(None, name).params if one.name == "constrain"]
        assert tuple(option.type.choices) == get_args(Constrain)
        assert option.default == "auto"


def test_json_is_constrained_by_default_and_nothing_on_request(run):
    with ScriptedServer(model.answer, key=KEY, enforces=["response_format"]) as server:
        shown, rows = run(server, "auto")
        assert constrained(server).count("response_format") >= 3
        server.bodies.clear()
        _, free = run(server, "none", "--constrain", "none")
        assert set(constrained(server)) == {None}
    assert "refused" not in shown
    assert [row["measures"] for row in rows] == [row["measures"] for row in free]


def test_a_refusal_is_reported_once(run):
    with ScriptedServer(model.answer, key=KEY, refuses={"response_format": unknown("response_format")}) as server:
        shown, rows = run(server, "refused")
        report = json.loads(run(server, "json", "--json")[0])["client"]
    assert [row["status"] for row in rows] == ["ok"] * 3
    line = (
        "the server refused to constrain some answers, so they are free (HTTP 400: Unknown parameter: "
        "'response_format'.); run fcjax doctor for a --constrain that works, or use --constrain none"
    )
    assert " ".join(shown.split()).count(line) == 1
    assert report["unconstrained"] == "HTTP 400: Unknown parameter: 'response_format'."


def test_a_report_without_a_refusal_has_no_word_of_it(run):
    with ScriptedServer(model.answer, key=KEY) as server:
        assert "unconstrained" not in json.loads(run(server, "quiet", "--json")[0])["client"]


def test_an_unknown_way_is_bad_usage(tmp_path):
    source = write(tmp_path / "in.jsonl", model.case(1, 1))
    done = fcjax("relate", source, "-o", tmp_path / "out.jsonl", "--constrain", "regex")
    assert done.returncode == UNUSABLE
    assert "'regex' is not one of 'auto', 'none', 'json_schema'" in done.stderr.decode()


@pytest.mark.parametrize("command", ["relate", "critique", "correct", "calibrate"])
def test_a_constraint_that_does_not_reach_the_labels_is_said_once(tmp_path, command):
    cases = write(tmp_path / "in.jsonl", related_case("x", 1, 1))
    pairs = write(tmp_path / "pairs.jsonl", *biased_model.pairs(6))
    source = pairs if command == "calibrate" else cases
    words = "warning: --constrain grammar has no effect on the labels of relations"

    def said(*args):
        with ScriptedServer(model.answer, key=KEY) as server:
            env = settings(server, tmp_path)
            out = () if command == "calibrate" else ("-o", tmp_path / "out.jsonl")
            return fcjax(command, source, *out, "-n", *args, **env).stderr.decode()

    found = said("--constrain", "grammar")
    assert found.count(words) == 1
    assert "this wording has a sentence before them; it applies to answers in JSON" in found
    assert "--wording 1" in found
    for args in (
        ("--constrain", "grammar", "--wording", "1"),
        ("--constrain", "grammar", "--style", "packed"),
        ("--constrain", "grammar", "--quiet"),
        ("--constrain", "none"),
        (),
    )[: None if command == "relate" else 1]:
        assert words not in said(*args), args


def test_a_constraint_has_no_effect_on_the_labels_of_a_custom_wording(tmp_path):
    source = write(tmp_path / "in.jsonl", related_case("x", 1, 1))
    (tmp_path / "mine.txt").write_text("$premise\n$hypothesis\nWhich?")
    with ScriptedServer(model.answer, key=KEY) as server:
        args = (source, "-n", "--constrain", "choice", "--template", tmp_path / "mine.txt")
        done = fcjax("relate", *args, **settings(server, tmp_path))
    assert "a custom wording does not say which they are" in done.stderr.decode()
