"""A grid whose critic reads relations with a local encoder."""

from __future__ import annotations

import json

import model_folders as tiny
import pytest
import scripted_model as model
import scripted_writer
from command import KEY
from jsonl import rows_in, write
from scripted_server import ScriptedServer

from fcjax.core.errors import SettingsError
from fcjax.evaluation.config import read_plan
from fcjax.evaluation.grid import run_grid
from fcjax.stages.calibration import Calibration

GATE = {"passed": False, "verdict": "failed: worse than always answering neutral"}


@pytest.fixture
def plan_of(tmp_path, monkeypatch):
    """A plan in a folder with the model's folder `judge`; `critic` is the content of that section."""
    write(tmp_path / "towns.jsonl", model.case(1, 2), model.case(3, 2))
    rows = ({"title": p.title, "text": p.text, "link": p.link} for p in model.passages(4, 2))
    write(tmp_path / "corpus.jsonl", *rows)
    if not (tmp_path / "judge").exists():
        tiny.write_folder(tmp_path / "judge")

    def make(critic, url="http://127.0.0.1:9/v1", **options):
        text = (
            "data:\n  - {path: towns.jsonl, corpus: corpus.jsonl}\n"
            f"models:\n  - {{model: small, base_url: '{url}', api_key_env: A_KEY}}\n"
            f"correctors: [llm1]\ncritic: {{{critic}}}\nscores: {{texts: false}}\n"
        )
        (tmp_path / "plan.yaml").write_text(text)
        return read_plan(tmp_path / "plan.yaml", **options)

    monkeypatch.setenv("A_KEY", KEY)
    return make


@pytest.mark.filterwarnings("ignore:.*the local model was not examined")
def test_no_relation_is_asked_for_and_another_model_s_are_read_anew(plan_of, tmp_path):
    asked = []

    def answer(messages):
        asked.append(messages[0]["content"])
        return scripted_writer.answer(messages)

    how = "atomizer: sentences, relation_model: judge"
    with ScriptedServer(answer, key=KEY) as server:
        first = plan_of(how, server.url)
        name = first.critic.relations.model.name
        assert name.startswith("judge@")
        report = run_grid(first, tmp_path / "out")
        assert (report.kept, report.failed) == (0, {})
        assert asked
        assert not any("<hypothesis>" in one for one in asked)
        cases = rows_in(tmp_path / "out/data/towns/small/before.cases.jsonl")
        assert [case["relate"]["model"] for case in cases] == [name, name]
        again = run_grid(plan_of(how, server.url), tmp_path / "out")
        assert again.kept == again.steps > 0
        tiny.write_folder(tmp_path / "judge", seed=1)  # the same path, other weights
        other = plan_of(how, server.url)
        assert run_grid(other, tmp_path / "out").kept == 0
        cases = rows_in(tmp_path / "out/data/towns/small/before.cases.jsonl")
        assert {case["relate"]["model"] for case in cases} == {other.critic.relations.model.name} != {name}


def test_what_cannot_be_used_is_said_with_its_place(plan_of, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "bare").mkdir()
    for critic, words in (
        ("relation_model: none", "critic.relation_model is not a model that can be used .there is no folder"),
        ("relation_model: bare", "critic.relation_model is .*config.json.*missing"),
        ("relation_model: 3", "critic.relation_model is 3; allowed: a folder with a model"),
        ("relation_model: judge, votes: 3", "critic.votes is 3; allowed: nothing with relation_model"),
        ("relation_model: judge, style: packed", "critic.style is 'packed'; allowed: nothing with relation_model"),
    ):
        with pytest.raises(SettingsError, match=words):
            plan_of(critic)


def test_the_gate_of_the_folder_s_calibration_holds(plan_of, tmp_path):
    with pytest.warns(UserWarning, match="was not examined"):
        name = plan_of("relation_model: judge").critic.relations.model.name
    made = Calibration(model=name, style="local", template="relate.local/1", figures={"gate": GATE})
    (tmp_path / "judge" / "calibration.json").write_text(json.dumps(made.to_dict()))
    with pytest.raises(SettingsError, match="did not pass the gate"):
        plan_of("relation_model: judge")
    with pytest.warns(UserWarning, match="although the gate was not passed"):
        assert plan_of("relation_model: judge", force=True).critic.relations.model.calibration == made
    other = Calibration(model="x@1", style="local", template="relate.local/1")
    write(tmp_path / "c.json", json.dumps(other.to_dict()))
    with pytest.raises(SettingsError, match="the calibration is of model 'x@1'"):
        plan_of("relation_model: judge, calibration: c.json", force=True)
