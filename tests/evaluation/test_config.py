"""A plan is read, or its first fault is told, before anything is asked: in a dry run too."""

from __future__ import annotations

import pytest
from jsonl import write

from fcjax.core.errors import SettingsError
from fcjax.evaluation.config import read_plan

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
        ("{name: sft, system: 5}", r"correctors\[0\]\.system is 5; allowed: a text"),
        ("{name: critic, rounds: 1e400}", r"correctors\[0\]\.rounds is"),
    ],
)
def test_what_a_method_does_not_take_is_told_where_it_stands(tmp_path, corrector, words):
    with pytest.raises(SettingsError, match=words):
        plan_of(tmp_path, corrector)


def test_what_is_left_empty_is_as_by_default(tmp_path):
    plan = plan_of(tmp_path, "{name: factcorrector, theta: , guards: , pool: true}")
    assert plan.correctors["factcorrector"].arguments == {"pool": True}


def test_a_key_that_stands_twice_is_a_fault(tmp_path):
    with pytest.raises(SettingsError, match=r"correctors stands twice.*line 4"):
        plan_of(tmp_path, more="correctors: [rac]")
    with pytest.raises(SettingsError, match="seed stands twice"):
        plan_of(tmp_path, more="seed: 1\nseed: 2")
    merged = plan_of(tmp_path, "&one {name: rac, max_tokens: 10}, {<<: *one, name: other, method: rac}")
    assert merged.correctors["other"].arguments == {"max_tokens": 10}


@pytest.mark.parametrize(
    "model", ["api_key_env: sk-secret", "options: {api_key: sk-secret}", "options: {API-Key: sk-secret}"]
)
def test_no_key_is_taken_or_told(tmp_path, model):
    with pytest.raises(SettingsError, match="api_key_env") as told:
        plan_of(tmp_path, model=f", {model}")
    assert "sk-secret" not in str(told.value)
