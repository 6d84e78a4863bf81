"""`fcjax critique --atomizer sentences` as a user starts it: no endpoint is needed where no stage asks a model."""

from __future__ import annotations

import json

import pytest
import scripted_model as model
from command import KEY, OK, SOME_FAILED, UNUSABLE, fcjax
from jsonl import rows_in, write
from scripted_critique import corpus_of, settings
from scripted_server import ScriptedServer

from fcjax.cli.requirements import asking_stages, needs_endpoint

RESPONSE = "Town 1 has 9 bridges. It has 14 schools. Is it old?"
RELATED = {
    "id": "related",
    "response": "The tower is high.",
    "atoms": [{"id": "a0", "text": "The tower is high."}],
    "contexts": [{"id": "c0", "text": "The tower is 330 m high."}],
    "relations": [{"source": "c0", "target": "a0", "type": "entailment", "probability": 0.9}],
}


@pytest.fixture
def run(tmp_path):
    """Runs the command with no endpoint in its environment, and a store of this test."""
    none = {"OPENAI_BASE_URL": "", "OPENAI_API_KEY": "", "FCJAX_MODEL": ""}
    none |= {"FCJAX_STORE": str(tmp_path / "store.sqlite"), "XDG_CACHE_HOME": str(tmp_path / "indexes")}

    def go(*args):
        return fcjax("critique", *args, **none)

    return go


def test_no_endpoint_is_needed_where_cases_have_relations_or_no_contexts(run, tmp_path):
    source = write(tmp_path / "in.jsonl", RELATED, {"id": "bare", "response": RESPONSE, "contexts": []})
    out = tmp_path / "out.jsonl"
    done = run(source, "-o", out, "--atomizer", "sentences", "--json")
    assert done.returncode == OK, done.stderr
    document = json.loads(done.stdout)
    assert (document["client"], document["endpoint"], document["store"]) == (None, None, None)
    assert not (tmp_path / "store.sqlite").exists()
    related, bare = rows_in(out)
    assert related["atoms"][0]["label"] == "supported"
    assert len(bare["atoms"]) == 2
    _, case = rows_in(tmp_path / "out.cases.jsonl")
    assert [atom["text"] for atom in case["atoms"]] == ["Town 1 has 9 bridges.", "It has 14 schools."]
    assert case["stages"]["atomize"] == {
        **{"atomizer": "sentences", "pronouns": "kept", "prompts": 0, "language": "en", "facts": 2}
    }
    first = out.read_bytes()
    assert run(source, "-o", out, "--atomizer", "sentences").returncode == OK
    assert out.read_bytes() == first
    shown = run(source, "--atomizer", "sentences", "--dry-run").stdout.decode()
    assert "atomize: no prompts (1 case)" in shown


def test_without_an_endpoint_atoms_and_contexts_are_found_and_relations_are_not(run, tmp_path):
    source = write(tmp_path / "in.jsonl", {"id": "bare", "response": RESPONSE})
    corpus, out = corpus_of(tmp_path), tmp_path / "out.jsonl"
    done = run(source, "-o", out, "--atomizer", "sentences", "--corpus", corpus)
    assert done.returncode == UNUSABLE
    assert "no model was given to relate the contexts to the atoms" in done.stderr.decode()
    only = ("--atomizer", "sentences", "--corpus", corpus, "--stages", "atomize,retrieve")
    done = run(source, "-o", out, *only)
    assert done.returncode == SOME_FAILED  # there are no posteriors
    (case,) = rows_in(tmp_path / "out.cases.jsonl")
    assert len(case["atoms"]) == 2
    assert case["contexts"]
    done = run(source, "-o", out, "--corpus", corpus)
    assert (done.returncode, "no endpoint given" in done.stderr.decode()) == (UNUSABLE, True)


def test_with_an_endpoint_only_relations_are_asked_for(tmp_path):
    source = write(tmp_path / "in.jsonl", model.case(1, 2))
    asked = []

    def answer(messages):
        asked.append(messages[0]["content"])
        return model.answer(messages)

    with ScriptedServer(answer, key=KEY) as server:
        options = ("--atomizer", "sentences", "--language", "en", "--corpus", corpus_of(tmp_path))
        done = fcjax("critique", source, "-o", tmp_path / "out.jsonl", *options, **settings(server, tmp_path))
    assert done.returncode == OK, done.stderr
    (case,) = rows_in(tmp_path / "out.cases.jsonl")
    assert len(asked) == len(case["relations"]) > 0
    assert not any("original" in atom for atom in case["atoms"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--language", "de"), "--language has no effect without --atomizer sentences"),
        (("--atomizer", "sentences", "--language", "xx"), "expected a code of two letters such as en, de or zh"),
        (("--atomizer", "sentences", "--no-revise"), "--no-revise has no effect with --atomizer sentences"),
        (
            ("--atomizer", "sentences", "--template", "revise=x.txt"),
            "--template has no effect with --atomizer sentences",
        ),
        (("--atomizer", "sentences", "--stages", "retrieve"), "--atomizer has no effect with a --stages list"),
        (
            ("--atomizer", "sentences", "--stages", "atomize,retrieve", "--model", "m"),
            "--model has no effect with stages that ask no model",
        ),
        (("--atomizer", "words"), "'words' is not one of 'model', 'sentences'"),
    ],
)
def test_options_without_effect_and_unknown_values_are_refused(run, tmp_path, options, message):
    source = write(tmp_path / "in.jsonl", {"id": "bare", "response": RESPONSE})
    done = run(source, "--dry-run", *options)
    assert done.returncode == UNUSABLE
    assert message in " ".join(done.stderr.decode().split())


def test_stages_that_ask():
    given = dict.fromkeys(("stages", "queries", "retriever", "corpus")) | {"no_revise": False, "summarise": False}
    sentences = given | {"atomizer": "sentences"}
    assert asking_stages(given | {"atomizer": "model"}) == ("atomize", "revise", "relate")
    assert asking_stages(sentences) == ("relate",)
    assert asking_stages(sentences | {"retriever": "wikipedia"}) == ("query", "relate")
    assert asking_stages(sentences | {"corpus": "x", "queries": "model", "summarise": True}, local_relations=True) == (
        *("query", "summarise"),
    )
    assert needs_endpoint(sentences)
    assert not needs_endpoint(sentences, local_relations=True)
    assert not needs_endpoint(sentences | {"stages": ("atomize", "retrieve")})
