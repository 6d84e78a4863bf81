"""Stages that ask for answers in a form, by a real client of a server that holds to it, ignores it, or cuts it off."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from scripted_server import ScriptedServer, unknown

from fcjax.core.prompts import AnswerForm, Prompt
from fcjax.core.records import Status
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.files import parse_case
from fcjax.io.store import Store
from fcjax.stages.answers import answers_to
from fcjax.stages.atomize import ATOMIZE, Atomizer
from fcjax.stages.parsing.labels import read_label
from fcjax.stages.query import QueryBuilder
from fcjax.stages.revise import Reviser

FACTS = ["Town 1 has 9 bridges.", "Town 1 has 15 schools."]
CASE = parse_case({"id": "one", "query": "What is in Town 1?", "response": " ".join(FACTS)})
ATOMS = parse_case(
    {"id": "one", "query": "What is in Town 1?", "atoms": [{"id": str(i), "text": t} for i, t in enumerate(FACTS)]}
)
LABELS = AnswerForm.one_of(("supported", "refuted", "unsupported", "supported in part"))


def run(stage, case, server, **more):
    async def go():
        async with Client(Endpoint(server.url, "scripted"), **more) as client:
            return await stage.run(case, client.ask, client.reject)

    return asyncio.run(go())


def schemas(server):
    formats = [body.get("response_format") for body in server.bodies]
    return [given and given["json_schema"]["schema"] for given in formats]


def texts(case):
    return [atom.text for atom in case.atoms]


def test_facts_are_asked_for_as_a_list():
    with ScriptedServer(lambda messages: FACTS[0], enforces=["response_format"]) as server:
        found = run(Atomizer(rest=None), CASE, server)
    assert (found.status, texts(found)) == (Status.OK, FACTS[:1])
    assert schemas(server) == [
        {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string", "enum": ["REFUSED"]}]}
    ]


@pytest.mark.parametrize("answer", ['"REFUSED"', '["REFUSED"]', "REFUSED"])
def test_a_refusal_in_json_is_one(answer):
    with ScriptedServer(lambda messages: answer) as server:
        assert run(Atomizer(), CASE, server).status is Status.REFUSED


@pytest.mark.parametrize("stage", [Reviser(), QueryBuilder()])
def test_numbered_texts_are_asked_for_by_their_numbers_and_then_for_those_that_are_missing(stage):
    replies = iter([json.dumps({"1": FACTS[0], "2": "Something else."}), json.dumps({"2": FACTS[1]})])
    with ScriptedServer(lambda messages: next(replies), enforces=["response_format"]) as server:
        found = run(stage, ATOMS, server)
    assert texts(found) == FACTS
    assert [schema["required"] for schema in schemas(server)] == [["1", "2"], ["2"]]
    assert all(list(schema["properties"]) == schema["required"] for schema in schemas(server))
    assert schemas(server)[1]["properties"] == {"2": {"type": "string"}}


@pytest.mark.parametrize("stage", [Atomizer, Reviser, QueryBuilder])
def test_another_wording_may_ask_for_another_form(stage):
    worded = stage().template
    own = replace(stage(), template=worded.reworded(worded.text + "\nOr as lines.", "own"))
    with ScriptedServer(lambda messages: json.dumps(FACTS)) as server:
        run(own, CASE if stage is Atomizer else ATOMS, server)
    assert schemas(server) == [None]


@pytest.mark.parametrize("server_is", ["ignoring", "refusing", "none"])
def test_the_same_atoms_where_forms_do_nothing(server_is):
    refuses = {"response_format": unknown("response_format")} if server_is == "refusing" else {}
    with ScriptedServer(lambda messages: json.dumps(FACTS), refuses=refuses) as server:
        found = run(Atomizer(), CASE, server, constrain="none" if server_is == "none" else "auto")
    assert texts(found) == FACTS
    assert found.extra["stages"]["atomize"]["prompts"] == 1


def test_a_list_that_is_cut_off_is_asked_for_again():
    def answer(messages):
        server.cut = None if server.calls > 1 else 40
        return json.dumps(FACTS)

    with ScriptedServer(answer, enforces=["response_format"]) as server:
        found = run(Atomizer(rest=None), CASE, server)
    assert found.status is Status.OK
    assert texts(found) == FACTS[:1]  # the part is too short to be divided: its complete facts are kept
    assert found.extra["stages"]["atomize"]["cut"] == 1


def judged(server, store=None, form=LABELS):
    async def go():
        prompt = Prompt(messages=(("user", "Is it so?"),), template="test/1", max_tokens=4, answer=form)
        async with Client(Endpoint(server.url, "scripted"), constrain="choice", store=store) as client:

            def read(reply):
                found = read_label(reply.text, reply.finish == "length")
                return {0: found.label} if found else {}

            return await answers_to(prompt, 1, read, lambda _: "Again.", client.ask, client.reject, what="label")

    return asyncio.run(go())


@pytest.mark.parametrize("cut", [4, 7, 9])
def test_a_choice_that_is_cut_off_is_no_verdict(cut, tmp_path):
    """`supported` may have become `supported in part`, and `support` is read as a label where it stands alone."""
    how = {"enforces": ["structured_outputs"], "cut": cut}
    with ScriptedServer(lambda messages: "supported in part", **how) as server, Store.open(tmp_path / "s") as store:
        found = judged(server, store)
        assert found.answers == {}
        assert found.why == f"unreadable: no label can be read in {'supported in part'[:cut]!r}"
        assert [body["max_tokens"] for body in server.bodies] == [4, 8, 4]  # the repair has more room
        judged(server, store)
        assert server.calls == 6  # none of them is served again


def test_a_choice_that_is_cut_off_once_is_asked_again():
    def answer(messages):
        server.cut = None if server.calls > 1 else 7
        return "refuted"

    with ScriptedServer(answer, enforces=["structured_outputs"]) as server:
        server.cut = 3
        assert judged(server).answers == {0: "contradiction"}


def test_a_whole_choice_at_the_limit_is_an_answer():
    with ScriptedServer(
        lambda messages: {"text": "refuted", "finish": "length"}, enforces=["structured_outputs"]
    ) as server:
        assert judged(server).answers == {0: "contradiction"}
        assert server.calls == 1


def test_a_free_answer_that_is_cut_off_after_its_label_is_read_as_ever():
    """The server ignores the field, and the model explains itself."""
    said = {"text": "Supported. The premise says that", "finish": "length"}
    with ScriptedServer(lambda messages: said) as server:
        assert judged(server).answers == judged(server, form=None).answers == {0: "entailment"}
        assert server.calls == 2


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        *[(text, True) for text in ("supp", "supported", '"supported', '"')],
        *[(text, False) for text in ("supported in part", "refuted", '"refuted"', "refuted in part", "Refu", "[refu")],
    ],
)
def test_what_begins_a_choice(text, begun):
    assert LABELS.is_begun(text) is begun


def test_the_template_asks_for_its_form():
    assert "as one JSON list of strings" in ATOMIZE.text
    assert "answer with the single word REFUSED" in ATOMIZE.text
