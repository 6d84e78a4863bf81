"""A plan is read, or its first fault is raised, before anything is asked: in a dry run too."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields, replace
from inspect import signature
from typing import get_args

import pytest
from jsonl import write

from fcjax.core.errors import SettingsError
from fcjax.correction.baselines import METHODS
from fcjax.correction.guards import Guards
from fcjax.correction.refine import Refiner
from fcjax.evaluation.assessors import ASSESSORS
from fcjax.evaluation.config import Scores, read_plan
from fcjax.evaluation.config_correctors import CorrectorConfig, GuardsConfig, RefinerConfig
from fcjax.graph.factors import PRESETS, Encoding
from fcjax.stages.calibration import Calibration
from fcjax.stages.relate import RelationModel

BASE = "data: [towns.jsonl]\nmodels: [{model: m%s}]\ncorrectors: [%s]\n%s"


def plan_of(tmp_path, corrector="llm1", model="", more=""):
    write(tmp_path / "towns.jsonl", {"id": "1", "response": "A town."})
    (tmp_path / "grid.yaml").write_text(BASE % (model, corrector, more))
    return read_plan(tmp_path / "grid.yaml")


@pytest.mark.parametrize(
    ("corrector", "words"),
    [
        ("{name: factcorrector, theta: 2}", r"correctors\[0\]\.theta is 2; allowed: a number from 0 to 1"),
        ("{name: factcorrector, theta: .nan}", r"correctors\[0\]\.theta is nan"),
        ("{name: factcorrector, theta: high}", r"correctors\[0\]\.theta is 'high'"),
        ("{name: factcorrector, rounds: 1.5}", r"correctors\[0\]\.rounds is 1\.5"),
        ("{name: factcorrector, pool: 'false'}", r"correctors\[0\]\.pool is 'false'; allowed: true or false"),
        ("{name: rac, unmentioned: 'no'}", r"correctors\[0\]\.unmentioned is 'no'; allowed: true or false"),
        ("{name: llm2, k: 0}", r"correctors\[0\]\.k is 0"),
        ("{name: sft, system: 5}", r"correctors\[0\]\.system is 5; allowed: a string"),
        ("{name: critic, rounds: 1e400}", r"correctors\[0\]\.rounds is"),
    ],
)
def test_arguments_that_a_method_refuses_are_named_with_their_place(tmp_path, corrector, words):
    with pytest.raises(SettingsError, match=words):
        plan_of(tmp_path, corrector)


def test_a_path_that_is_too_long_is_not_found(tmp_path):
    (tmp_path / "grid.yaml").write_text(f"data: [{{name: d, path: {'a' * 5000}}}]\nmodels: [m]\ncorrectors: [llm1]\n")
    with pytest.raises(SettingsError, match=r"data\[0\]\.path is .*; nothing was found at"):
        read_plan(tmp_path / "grid.yaml")


def test_a_key_without_a_value_has_its_default(tmp_path):
    plan = plan_of(tmp_path, "{name: factcorrector, theta: , guards: , pool: true}")
    assert plan.correctors["factcorrector"].arguments == {"pool": True}


def test_every_encoding_and_preset_can_be_given(tmp_path):
    for encoding in get_args(Encoding):
        assert plan_of(tmp_path, more=f"critic: {{encoding: {encoding}}}").critic.settings.encoding == encoding
    for preset in PRESETS:
        assert plan_of(tmp_path, more=f"critic: {{preset: {preset}}}").critic.settings.preset == preset
    with pytest.raises(SettingsError, match=r"encoding is 'softer'; allowed: .*'soft'"):
        plan_of(tmp_path, more="critic: {encoding: softer}")


def test_a_key_that_occurs_twice_is_a_fault(tmp_path):
    with pytest.raises(SettingsError, match=r"correctors occurs twice.*line 4"):
        plan_of(tmp_path, more="correctors: [rac]")
    with pytest.raises(SettingsError, match="seed occurs twice"):
        plan_of(tmp_path, more="seed: 1\nseed: 2")
    merged = plan_of(tmp_path, "&one {name: rac, max_tokens: 10}, {<<: *one, name: other, method: rac}")
    assert merged.correctors["other"].arguments == {"max_tokens": 10}


@pytest.mark.parametrize(
    "model", ["api_key_env: sk-secret", "options: {api_key: sk-secret}", "options: {API-Key: sk-secret}"]
)
def test_a_secret_is_neither_taken_nor_shown(tmp_path, model):
    with pytest.raises(SettingsError, match="api_key_env") as error:
        plan_of(tmp_path, model=f", {model}")
    assert "sk-secret" not in str(error.value)


def test_null_switches_a_guard_off(tmp_path):
    plan = plan_of(tmp_path, "{name: factcorrector, guards: {shortest: , language: false}, refiner: {excerpt: 90}}")
    assert plan.correctors["factcorrector"].arguments == {
        "guards": Guards(shortest=None, language=False),
        "refiner": Refiner(excerpt=90),
    }


def test_names_and_retrievers_have_defaults(tmp_path):
    plan = plan_of(tmp_path, "llm1, {method: rac}", model=", corrects: false}, {model: Org/Name 7B, timeout: 5")
    assert (list(plan.data), list(plan.models), list(plan.correctors)) == (
        ["towns"],
        ["m", "Org-Name-7B"],
        ["llm1", "rac"],
    )
    assert (plan.data["towns"].retriever, plan.data["towns"].path) == ("given", tmp_path / "towns.jsonl")
    assert {cell.model for cell in plan.cells()} == {"Org-Name-7B"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("scoers: {}", "scoers is unknown; allowed: seed, store, .*; did you mean scores\\?$"),
        ("critic: {contxts: 2}", "critic.contxts is unknown; allowed: model, version, .*; did you mean contexts\\?$"),
        ("weather: 1", "weather is unknown; allowed: [a-z, ]*scores$"),
        ("1: 2", "1 is a key of type int; allowed: string keys"),
        ("critic: 5", "critic is 5; allowed: keys with values"),
        ("critic: {contexts: 0}", "critic.contexts is 0; allowed: a whole number from 1 to 1000"),
        ("critic: {contexts: true}", "critic.contexts is True; allowed: a whole number"),
        ("critic: {screen: 5}", "critic.screen is 5; allowed: a number from 0 to 1"),
        ("scores: {assessors: factscore}", "scores.assessors is 'factscore'; allowed: a list"),
        ("seed: x", "seed is 'x'; allowed: a whole number from -9223372036854775808 to"),
        ("store: ' '", "store is ' '; allowed: a string"),
    ],
)
def test_faults_name_the_key_the_value_and_what_is_allowed(tmp_path, more, words):
    with pytest.raises(SettingsError, match=rf"^{re.escape(str(tmp_path))}/grid\.yaml: {words}"):
        plan_of(tmp_path, more=more)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("timeout: .nan", "timeout is nan; allowed: a number from 0.001 to 1000000"),
        ("concurrency: 5.0", "concurrency is 5.0; allowed: a whole number from 1 to 4096"),
        ("price: [1, -2]", r"price\[1\] is -2; allowed: a number from 0 to 1000000"),
        ("options: {1: x}", "options.1 is a key of type int; allowed: string keys"),
        ("name: ''", "name is ''; allowed: up to 64 letters, digits"),
        ("litellm: 1", "litellm is 1; allowed: true or false"),
    ],
)
def test_faults_of_a_model_name_the_key_the_value_and_what_is_allowed(tmp_path, model, words):
    with pytest.raises(SettingsError, match=rf"models\[0\]\.{words}"):
        plan_of(tmp_path, model=f", {model}")


def test_a_mapping_in_the_place_of_a_list_is_not_shown(tmp_path):
    write(tmp_path / "towns.jsonl", {"id": "1", "response": "A town."})
    (tmp_path / "grid.yaml").write_text("data: [towns.jsonl]\nmodels: {url: sk-secret}\ncorrectors: [llm1]\n")
    with pytest.raises(SettingsError, match="models is a mapping; allowed: a list") as error:
        read_plan(tmp_path / "grid.yaml")
    assert "sk-secret" not in str(error.value)


def test_pydantic_loads_only_when_a_plan_is_read():
    code = "import sys, fcjax.evaluation.rendering, fcjax.evaluation.grid; print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_sections_have_the_arguments_of_their_classes():
    assert set(GuardsConfig.model_fields) == {one.name for one in fields(Guards)}
    assert set(RefinerConfig.model_fields) == {one.name for one in fields(Refiner)} - {"template"}
    sections = CorrectorConfig.__subclasses__()
    assert {get_args(kind.model_fields["method"].annotation)[0] for kind in sections} == set(METHODS)
    for kind in sections:
        method = METHODS[get_args(kind.model_fields["method"].annotation)[0]]
        own = kind.model_fields.keys() - CorrectorConfig.model_fields.keys()
        assert own == signature(method).parameters.keys() - {"critic", "client", "open_cases"}
    (assessors,) = get_args(Scores.model_fields["assessors"].annotation)
    assert set(get_args(assessors)) == set(ASSESSORS)


def test_the_critics_calibration_is_of_its_model_style_and_wording(tmp_path):
    passed = {"gate": {"passed": True, "verdict": "passed: better"}}
    name = RelationModel().template.name
    made = Calibration(model="m", style="pairwise", template=name, temperature=2.0, figures=passed)
    for name, one in (("c", made), ("other", replace(made, model="n")), ("packed", replace(made, style="packed"))):
        (tmp_path / f"{name}.json").write_text(json.dumps(one.to_dict()))
    (tmp_path / "bad.json").write_text("{}")
    assert plan_of(tmp_path, more="critic: {calibration: c.json}").critic.relations.model.calibration == made
    for key, words in (
        ("calibration: other.json", "critic.calibration is a calibration of 'n', and the critic asks 'm'"),
        ("calibration: packed.json", "of style 'packed', and this run uses 'pairwise'"),
        ("calibration: c.json, style: packed", "of style 'pairwise', and this run uses 'packed'"),
        ("calibration: bad.json", "temperature is None"),
        ("calibration: none.json", "critic.calibration is 'none.json'; allowed: a file of `fcjax calibrate`"),
    ):
        with pytest.raises(SettingsError, match=re.escape(words)):
            plan_of(tmp_path, more=f"critic: {{{key}}}")


def test_the_critics_wording_and_length_of_answers(tmp_path):
    def relations(section):
        return plan_of(tmp_path, more=f"critic: {{{section}}}").critic.relations.model

    assert relations("wording: 1").template.name == "relate.pairwise/1"
    assert relations("wording: '1', style: packed").template.name == "relate.packed/1"
    assert relations("max_tokens: 64").max_tokens == 64
    assert relations("wording: 2") == relations("votes: 0") == RelationModel()
    for section, words in (
        ("wording: 3", "critic.wording is '3'; allowed: '1', '2'"),
        ("wording: true", "critic.wording is 'True'; allowed: '1', '2'"),
        ("max_tokens: 0", "critic.max_tokens is 0"),
        ("max_tokens: many", "critic.max_tokens is 'many'"),
    ):
        with pytest.raises(SettingsError, match=re.escape(words)):
            relations(section)
    made = Calibration(model="m", style="pairwise", template="relate.pairwise/1")
    (tmp_path / "c.json").write_text(json.dumps(made.to_dict()))
    assert relations("wording: 1, calibration: c.json").calibration == made
    with pytest.raises(SettingsError, match=r"of wording 'relate\.pairwise/1', and this run uses 'relate\.pairwise/2'"):
        relations("calibration: c.json")
