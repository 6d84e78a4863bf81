"""Constrained answers against a server that honours, ignores or refuses each field, with a real store."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest
from scripted_server import ScriptedServer, unknown

from fcjax.core.errors import SettingsError
from fcjax.core.prompts import AnswerForm, Failure, Prompt, Reply
from fcjax.io.client import Client
from fcjax.io.constraints import FIELDS, Constrain, constraint, gbnf
from fcjax.io.endpoint import Endpoint
from fcjax.io.entries import prompt_key, question
from fcjax.io.pacing import Budget, Retry
from fcjax.io.store import Store

LABELS = AnswerForm.one_of(("[yes]", "[no]"))
NUMBERED = AnswerForm.numbered((1, 2), ("yes", "no"))
LIST = AnswerForm.texts(instead="NONE")
WAYS = get_args(Constrain)


def ask(text, form=None, **more):
    return Prompt(messages=(("user", text),), template="test/1", answer=form, **more)


def answers(server, prompts, **more):
    """The answers in the order of the prompts, one after the other, and the client's stats."""

    async def go():
        endpoint = Endpoint(server.url, "scripted", options=more.pop("options", {}))
        async with Client(endpoint, retry=Retry(attempts=2, first=0.01), **more) as client:
            return [await client.ask(prompt) for prompt in prompts], client.stats

    return asyncio.run(go())


def texts(server, prompts, **more):
    return [one.text if isinstance(one, Reply) else one.kind for one in answers(server, prompts, **more)[0]]


def sent(server):
    """The fields that constrain, by request."""
    return [{name: body[name] for name in FIELDS if name in body} for body in server.bodies]


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as opened:
        yield opened


# What is sent


def test_the_fields_of_each_way():
    json_form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": NUMBERED.schema}}
    for way in WAYS:
        assert constraint(NUMBERED, way) == ({} if way == "none" else {"response_format": json_form})
    labels = ["[yes]", "[no]"]
    as_json = {"name": "answer", "strict": True, "schema": {"type": "string", "enum": labels}}
    assert {way: constraint(LABELS, way) for way in WAYS} == {
        "auto": {},
        "none": {},
        "json_schema": {"response_format": {"type": "json_schema", "json_schema": as_json}},
        "choice": {"structured_outputs": {"choice": labels}},
        "guided_choice": {"guided_choice": labels},
        "grammar": {"grammar": 'root ::= "[yes]" | "[no]"'},
    }


def test_a_grammar_of_texts_with_quotes_and_lines():
    assert gbnf(['say "a\\b"', "two\nlines"]) == r'root ::= "say \"a\\b\"" | "two\nlines"'


def test_the_schema_of_a_numbered_answer():
    assert NUMBERED.schema == {
        "type": "object",
        "properties": {"1": {"type": "string", "enum": ["yes", "no"]}, "2": {"type": "string", "enum": ["yes", "no"]}},
        "required": ["1", "2"],
        "additionalProperties": False,
    }
    assert NUMBERED.only([2]) == AnswerForm.numbered((2,), ("yes", "no"))
    assert NUMBERED.only([7]) == NUMBERED
    assert LABELS.only([1]) == LABELS
    assert LIST.only([1]) == LIST
    assert [form.kind for form in (LABELS, NUMBERED, AnswerForm.texts(), LIST)] == ["choice", "object", "array", "any"]


@pytest.mark.parametrize("way", ["auto", "none", "json_schema", "choice", "guided_choice", "grammar"])
def test_a_prompt_without_a_form_is_sent_as_ever(way):
    with ScriptedServer() as server:
        texts(server, [ask("?")], constrain=way)
    assert list(server.bodies) == [
        {"model": "scripted", "messages": [{"role": "user", "content": "?"}], "max_tokens": 512, "temperature": 0.0}
    ]


def test_nothing_is_sent_where_nothing_is_wanted():
    with ScriptedServer() as server:
        texts(server, [ask("?", LABELS), ask("?", NUMBERED), ask("?", LIST)], constrain="none")
        texts(server, [ask("?", LABELS)], constrain="auto")
    assert sent(server) == [{}] * 4


@pytest.mark.parametrize("options", [{"response_format": {"type": "json_object"}}, {"grammar": 'root ::= "x"'}])
def test_what_the_user_constrains_is_left_to_them(options):
    with ScriptedServer() as server:
        texts(server, [ask("?", NUMBERED), ask("?", LABELS)], constrain="choice", options=options)
        texts(server, [ask("?", NUMBERED, options=options)])
    assert sent(server) == [options] * 3


def test_an_unknown_way_is_refused():
    with pytest.raises(SettingsError, match="constrain is 'regex'; allowed: 'auto', 'none', 'json_schema'"):
        Client(Endpoint("http://127.0.0.1:9/v1", "m"), constrain="regex")


# A server that honours, ignores, refuses


@pytest.mark.parametrize(
    ("way", "field", "answer"),
    [
        ("json_schema", "response_format", '"[yes]"'),
        ("choice", "structured_outputs", "[yes]"),
        ("guided_choice", "guided_choice", "[yes]"),
        ("grammar", "grammar", "[yes]"),
    ],
)
def test_a_choice_is_enforced(way, field, answer):
    with ScriptedServer(lambda messages: "Well, let me think.", enforces=[field]) as server:
        (reply,), stats = answers(server, [ask("?", LABELS, top_logprobs=2)], constrain=way)
    assert reply.text == answer
    assert reply.tokens  # logprobs come along
    assert stats.unconstrained is None
    assert [list(fields) for fields in sent(server)] == [[field]]


def test_json_is_enforced_by_default():
    with ScriptedServer(lambda messages: "Well, let me think.", enforces=["response_format"]) as server:
        found = texts(server, [ask("?", NUMBERED), ask("?", LIST)])
    assert found == ['{"1":"yes","2":"yes"}', '["Well, let me think."]']


def test_a_server_that_ignores_the_field_answers_freely_and_is_asked_once():
    with ScriptedServer(lambda messages: "I think yes.") as server:
        (reply,), stats = answers(server, [ask("?", NUMBERED)])
    assert (reply.text, reply.attempts, stats.sent, stats.unconstrained) == ("I think yes.", 1, 1, None)


REFUSALS = {
    "openai": unknown("response_format"),
    "openai, the type": (400, {"error": {"message": "Invalid parameter: 'response_format' of type 'json_schema' is not "
                                         "supported with this model.", "param": None, "code": None}}),
    "openai, the schema": (400, {"error": {"message": "Invalid schema for response_format 'answer': schema must be a "
                                           "JSON Schema of 'type: \"object\"'.", "param": "response_format"}}),
    "deepseek": (400, {"error": {"message": "This response_format type is unavailable now",
                                 "type": "invalid_request_error"}}),
    "fastapi": (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "response_format"],
                                  "msg": "Extra inputs are not permitted", "input": {}}]}),
    "llama.cpp": (400, {"error": {"code": 400, "message": "Failed to initialize samplers: failed to parse grammar"}}),
    "vllm": (400, {"object": "error", "message": "The provided JSON schema contains features not supported by "
                   "xgrammar."}),
    "a server in Python": (500, {"error": {"message": "json_schema is not supported"}}),
    "litellm": (400, {"error": {"message": "litellm.UnsupportedParamsError: groq does not support parameters: "
                                "['response_format']"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_a_server_that_refuses_is_asked_without_from_then_on(name, store):
    with ScriptedServer(lambda messages: "free", refuses={"response_format": REFUSALS[name]}) as server:
        prompts = [ask(text, NUMBERED) for text in ("one", "two", "three")]
        found, stats = answers(server, prompts, store=store)
        assert [list(fields) for fields in sent(server)] == [["response_format"], [], [], []]
        assert [reply.text for reply in found] == ["free"] * 3
        assert f"HTTP {REFUSALS[name][0]}" in stats.unconstrained
        assert (stats.asked, stats.answered, stats.failed.total(), stats.sent) == (3, 3, 0, 4)
        again, stats = answers(server, prompts, store=store)  # in a new run, too, nothing is asked or refused
    assert again == found
    assert (stats.cache_hits, stats.sent) == (3, 0)


def test_a_refused_request_counts_in_the_prompt_budget():
    with ScriptedServer(lambda messages: "free", refuses={"response_format": unknown("response_format")}) as server:
        budget = Budget(prompts=3)
        prompts = [ask(text, NUMBERED) for text in ("one", "two", "three")]
        assert texts(server, prompts, budget=budget) == ["free", "free", "budget"]
        assert (server.calls, budget.spent.prompts) == (3, 3)


def test_a_budget_that_ends_with_a_refusal_says_so():
    with ScriptedServer(lambda messages: "free", refuses={"response_format": unknown("response_format")}) as server:
        (failure,), stats = answers(server, [ask("one", NUMBERED)], budget=Budget(prompts=1))
        assert server.calls == 1
    assert failure.kind == "budget"
    assert "1 prompts is used up" in failure.reason
    assert dict(stats.failed) == {"budget": 1}


def test_a_refusal_of_one_kind_of_form_leaves_the_others():
    """As with OpenAI, which takes objects only."""
    how = {"refuses": {"structured_outputs": unknown("structured_outputs")}, "enforces": ["response_format"]}
    with ScriptedServer(lambda messages: "x", **how) as server:
        prompts = [ask("a", LABELS), ask("b", NUMBERED), ask("c", LABELS), ask("d", NUMBERED)]
        assert texts(server, prompts, constrain="choice") == ["x", '{"1":"yes","2":"yes"}'] * 2
    fields = [list(one) for one in sent(server)]
    assert fields == [["structured_outputs"], [], ["response_format"], [], ["response_format"]]


def test_many_prompts_at_once_are_each_refused_once_at_most():
    async def go(server):
        async with Client(Endpoint(server.url, "scripted"), concurrency=4) as client:
            prompts = (ask(str(number), NUMBERED) for number in range(40))
            found = [answer async for _, answer in client.ask_all(prompts, prompt=lambda one: one)]
            return found, client.stats

    with ScriptedServer(refuses={"response_format": unknown("response_format")}) as server:
        found, stats = asyncio.run(go(server))
    assert all(isinstance(one, Reply) for one in found)
    assert stats.answered == 40
    assert stats.sent <= 40 + 16  # those of the first window


def test_a_refusal_of_something_else_costs_the_others_nothing():
    """A server that has something against one prompt, and speaks of its form as it says so."""
    odd = {"status": 400, "body": {"error": {"message": "cannot parse 'the grammar of a model'"}}}
    with ScriptedServer(lambda messages: odd if messages[-1]["content"] == "odd" else "ok") as server:
        found, stats = answers(server, [ask("odd", NUMBERED), ask("even", NUMBERED)])
    assert (found[0].kind, found[1].text, stats.unconstrained) == ("invalid_request", "ok", None)
    assert [list(fields) for fields in sent(server)] == [["response_format"], [], ["response_format"]]


def test_options_of_the_user_that_are_refused_are_their_fault():
    with ScriptedServer(refuses={"response_format": unknown("response_format")}) as server:
        (failure,), _ = answers(server, [ask("?", NUMBERED)], options={"response_format": {"type": "json_object"}})
        assert server.calls == 1
    assert failure == Failure("invalid_request", "HTTP 400: Unknown parameter: 'response_format'.", 1)


def test_fewer_logprobs_and_no_constraint():
    with ScriptedServer(most_logprobs=2, refuses={"response_format": unknown("response_format")}) as server:
        found, _ = answers(server, [ask("a", NUMBERED, top_logprobs=5), ask("b", NUMBERED, top_logprobs=5)])
        assert server.calls <= 5
    assert [len(reply.tokens[0].top) for reply in found] == [2, 2]


# The store


def test_the_key_of_a_prompt_is_that_of_what_is_sent():
    plain = ask("?")
    assert prompt_key("e", "m", ask("?", NUMBERED)) == prompt_key("e", "m", plain)
    assert "answer" not in question(ask("?", NUMBERED))


@pytest.mark.parametrize("replay", [False, True])
def test_a_store_without_forms_is_served(replay, store):
    with ScriptedServer(lambda messages: "free", enforces=["response_format"]) as server:
        texts(server, [ask("?")], store=store)
        assert texts(server, [ask("?", NUMBERED), ask("?", LABELS)], store=store, replay=replay) == ["free"] * 2
        assert server.calls == 1


def test_a_constrained_answer_is_another_one(store):
    with ScriptedServer(lambda messages: "free", enforces=["response_format", "grammar"]) as server:
        both = [ask("?", LABELS), ask("?", NUMBERED)]
        assert texts(server, both, store=store, constrain="grammar") == ["[yes]", '{"1":"yes","2":"yes"}']
        assert texts(server, both, store=store, constrain="none") == ["free", "free"]
        assert server.calls == 3  # the two free ones are the same question
        assert texts(server, both, store=store, constrain="grammar") == ["[yes]", '{"1":"yes","2":"yes"}']
        assert texts(server, both, store=store, constrain="grammar", replay=True) == ["[yes]", '{"1":"yes","2":"yes"}']
        assert texts(server, both, store=store, constrain="none", replay=True) == ["free", "free"]
        assert server.calls == 3


def test_a_way_that_is_named_is_asked_for_though_a_free_answer_is_stored(store):
    with ScriptedServer(lambda messages: "free", enforces=["grammar"]) as server:
        texts(server, [ask("?", LABELS)], store=store)
        assert texts(server, [ask("?", LABELS)], store=store, constrain="grammar") == ["[yes]"]


def test_what_is_rejected_is_asked_again(store):
    prompt = ask("?", NUMBERED)

    async def go(server, **more):
        async with Client(Endpoint(server.url, "scripted"), store=store, **more) as client:
            reply = await client.ask(prompt)
            await client.reject(prompt)
            return reply.text

    replies = iter(("first", "second", "third"))
    with ScriptedServer(lambda messages: next(replies)) as server:
        assert asyncio.run(go(server, constrain="none")) == "first"
        assert asyncio.run(go(server)) == "second"  # the free one is rejected, too
        assert texts(server, [prompt], store=store, replay=True) == ["second"]
        assert asyncio.run(go(server)) == "third"


def test_an_estimate_counts_what_is_stored_in_either_form(store):
    async def estimate(server):
        async with Client(Endpoint(server.url, "scripted"), store=store) as client:
            return await client.estimate([ask(text, NUMBERED) for text in "abbc"])

    with ScriptedServer() as server:
        texts(server, [ask("a")], store=store)
        texts(server, [ask("b", NUMBERED)], store=store)
        found = asyncio.run(estimate(server))
    assert (found.prompts, found.distinct, found.stored, found.to_send) == (4, 3, 2, 1)
