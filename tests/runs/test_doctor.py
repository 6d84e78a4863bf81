"""The doctor's findings on servers that lack this or that, and how `fcjax doctor` says them."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from command import OK, SOME_FAILED, UNUSABLE, fcjax
from scripted_server import ScriptedServer, completion, unknown

from fcjax.core.prompts import Failure
from fcjax.io.endpoint import Endpoint
from fcjax.io.models import ModelInfo, list_models
from fcjax.runs.doctor import accuracy_interval, examine
from fcjax.runs.probe_pairs import PROBE_PAIRS


def knows(messages):
    """A good model."""
    content = messages[0]["content"]
    if "<claims>" in content:
        return '{"1": "entailment", "2": "contradiction", "3": "neutral"}'
    for probe in PROBE_PAIRS:
        if f"\n{probe.hypothesis}\n" in content:
            return f"[{probe.label}]"
    answers = {"higher than": "entailment", "1921": "contradiction", "daughters": "neutral"}
    return f"[{next((label for words, label in answers.items() if words in content), 'neutral')}]"


def mostly_contradicts(messages):
    """Says contradiction of 12 pairs where that is wrong, and is right on the others."""
    wrong = [probe.hypothesis for probe in PROBE_PAIRS if probe.label != "contradiction"][:12]
    mistaken = any(f"\n{hypothesis}\n" in messages[0]["content"] for hypothesis in wrong)
    return "[contradiction]" if mistaken else knows(messages)


def without_logprobs(messages):
    return {"body": completion({"model": "scripted", "messages": messages}, {"text": knows(messages)})}


def without_alternatives(messages):
    text = knows(messages)
    return {"text": text, "tokens": [("[", -0.01, []), (text[1:], -0.2, [])]}


def reasons(messages):
    return {"text": knows(messages), "message": {"reasoning_content": "Let me think."}}


def says_its_context(messages):
    if messages[0]["content"] == "Say ok.":
        message = "This model's maximum context length is 2048 tokens. However, you requested 10000009 tokens."
        return {"status": 400, "body": {"error": {"message": message, "type": "BadRequestError"}}}
    return knows(messages)


def examined(server, **more):
    async def go():
        endpoint = Endpoint(server.url, "scripted", more.pop("key", None))
        return {found.name: found async for found in examine(endpoint, prompts=8, **more)}

    return asyncio.run(go())


def test_a_good_endpoint():
    with ScriptedServer(knows) as server:
        found = examined(server)
        assert server.calls == 10 + len(PROBE_PAIRS) + 8
    names = ["models", "answer", "labels", "logprobs", "judgement", "packed", "forms", "context", "speed"]
    assert list(found) == names
    verdicts = {name: str(finding.verdict) for name, finding in found.items()}
    assert verdicts == dict.fromkeys(found, "good") | {"context": "limited", "forms": "limited"}
    assert found["labels"].values == {"asked": 3, "read": 3, "right": 3}
    assert len(found["logprobs"].values["probabilities"]) == 3
    assert found["judgement"].values["accuracy"] == 1.0
    assert found["judgement"].values["said"] == {"entailment": 10, "contradiction": 10, "neutral": 10}
    assert found["speed"].values["answered"] == 8
    assert found["speed"].values["prompts_per_second"] > 1


@pytest.mark.parametrize(
    ("answer", "name", "verdict", "words"),
    [
        (without_logprobs, "logprobs", "limited", "not returned: use --votes N"),
        (without_alternatives, "logprobs", "limited", "without alternatives"),
        (reasons, "answer", "limited", "--max-tokens"),
        (says_its_context, "context", "limited", "only 2,048 tokens"),
        (lambda messages: "[neutral]", "labels", "limited", "1 are correct"),
        (lambda messages: "[neutral]", "judgement", "bad", "it says neutral 30 times, and 10 would be right"),
        (lambda messages: "well, well", "judgement", "bad", "none of the answers to 30 easy pairs can be read"),
        (mostly_contradicts, "judgement", "limited", "18 of 30 easy pairs"),
        (lambda messages: "[neutral]", "packed", "limited", "use --style pairwise"),
        (lambda messages: "well, well", "labels", "bad", "such as 'well, well'"),
        (lambda messages: {"status": 404, "body": {"error": "no such model"}}, "answer", "bad", "no such model"),
    ],
)
def test_what_is_missing_is_said_with_a_remedy(answer, name, verdict, words):
    with ScriptedServer(answer) as server:
        found = examined(server)
    assert found[name].verdict == verdict
    assert words in found[name].words


def test_probe_pairs_are_balanced_and_no_two_are_the_same():
    labels = [probe.label for probe in PROBE_PAIRS]
    assert {labels.count(label) for label in set(labels)} == {10}
    assert len({(probe.premise, probe.hypothesis) for probe in PROBE_PAIRS}) == 30


@pytest.mark.parametrize(("right", "count", "want"), [(10, 30, (0.1923, 0.5122)), (30, 30, (0.8865, 1.0))])
def test_the_interval_of_the_accuracy_is_wilsons(right, count, want):
    assert accuracy_interval(right, count) == pytest.approx(want, abs=1e-4)


@pytest.mark.parametrize(
    ("enforces", "use", "words"),
    [
        (
            ["response_format", "structured_outputs"],
            "choice",
            "(labels and JSON): use --constrain choice; choice en",
        ),
        (["response_format", "guided_choice"], "guided_choice", "use --constrain guided_choice"),
        (["response_format", "grammar"], "grammar", "use --constrain grammar; choice ignored, guided_choice ignored"),
        (["grammar"], "grammar", "(labels only): use --constrain grammar"),
        (["response_format"], "auto", "(JSON only): use --constrain auto"),
        ([], "none", "answers are free: the server ignores the fields that do it; use --constrain none"),
    ],
)
def test_the_way_to_constrain_answers_is_found(enforces, use, words):
    with ScriptedServer(knows, enforces=enforces) as server:
        found = examined(server)["forms"]
    assert (found.verdict, found.values["use"]) == ("good" if enforces else "limited", use)
    assert words in found.words


def test_a_server_that_takes_objects_only_or_nothing():
    fields = ("response_format", "structured_outputs", "guided_choice", "grammar")
    with ScriptedServer(knows, refuses={field: unknown(field) for field in fields}) as server:
        found = examined(server)["forms"]
    assert found.values == {"ways": dict.fromkeys(WAYS, "refused"), "use": "none"}
    assert "the server refuses to constrain them; use --constrain none" in found.words

    class Openai(ScriptedServer):
        async def _route(self, request):
            self.refuses = {field: unknown(field) for field in fields[1:]}
            body = json.loads(await request.read())
            if "enum" in body.get("response_format", {}).get("json_schema", {}).get("schema", {}):
                self.refuses |= {"response_format": unknown("response_format")}
            return await super()._route(request)

    with Openai(knows, enforces=["response_format"]) as server:
        found = examined(server)["forms"]
    assert found.values == {"ways": dict.fromkeys(WAYS, "refused") | {"auto": "enforced"}, "use": "auto"}
    assert "(JSON only): use --constrain auto" in found.words


WAYS = ("choice", "guided_choice", "grammar", "auto", "json_schema")


def test_after_no_answer_nothing_more_is_asked():
    with ScriptedServer(knows, key="sk-right-one") as server:
        found = examined(server, key="sk-wrong-one")
    assert list(found) == ["models", "answer"]
    assert "OPENAI_API_KEY" in found["answer"].words
    assert "sk-wrong" not in str(found)


def test_a_model_that_is_not_listed():
    with ScriptedServer(knows, models=[f"model-{i}" for i in range(9)]) as server:
        found = examined(server)["models"]
    assert found.verdict == "limited"
    assert "scripted is not listed (listed: model-0, model-1, model-2, model-3, model-4, ...)" in found.words


def test_an_endpoint_that_cannot_keep_up():
    with ScriptedServer(knows, weather=["ok"] * (10 + len(PROBE_PAIRS)) + ["429 after 20ms"] * 4) as server:
        found = examined(server)["speed"]
    assert found.verdict == "limited"
    assert "4 requests were repeated" in found.words


@pytest.mark.parametrize(
    ("entry", "context"),
    [
        ({}, None),
        ({"max_model_len": 4096}, 4096),
        ({"context_length": 8192, "meta": {"n_ctx": 1}}, 8192),
        ({"meta": {"n_ctx_train": 2048, "n_ctx": 512}}, 512),
        ({"meta": {"n_ctx_train": 2048}}, 2048),
        ({"max_model_len": "long", "meta": None}, None),
    ],
)
def test_the_context_size_has_many_names(entry, context):
    listing = {"object": "list", "data": [{"id": "m", **entry}]}
    assert listed(lambda server: listing) == (ModelInfo("m", context),)


@pytest.mark.parametrize("body", [{"detail": "Not Found"}, {"data": 3}, [], {"data": [{"name": "x"}]}])
def test_an_endpoint_that_lists_no_models(body):
    assert isinstance(listed(lambda server: body), Failure)


def listed(body):
    """What `list_models` makes of a listing."""
    from aiohttp import web

    async def go():
        async def answer(request):
            return web.json_response(body(request))

        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            return await list_models(Endpoint(f"http://127.0.0.1:{port}", "m"))
        finally:
            await runner.cleanup()

    return asyncio.run(go())


def test_the_command_says_it_in_words_and_in_json():
    with ScriptedServer(knows) as server:
        env = {"OPENAI_BASE_URL": server.url, "FCJAX_MODEL": "scripted"}
        told = fcjax("doctor", "--prompts", 4, **env)
        document = json.loads(fcjax("doctor", "--prompts", 4, "--json", **env).stdout)
    assert told.returncode == OK, told.stderr
    lines = told.stdout.decode().splitlines()
    assert lines[0] == f"scripted at {server.url}"
    assert [re.match(r"(good|limited|bad) +(\w+): +\S", line)[2] for line in lines[1:]] == [
        finding["name"] for finding in document["findings"]
    ]
    assert document["findings"][-1]["prompts"] == 4


def test_the_command_fails_where_something_will_not_work():
    with ScriptedServer(lambda messages: "well, well") as server:
        done = fcjax("doctor", "--prompts", 4, "--base-url", server.url, "--model", "scripted", "--timeout", 20)
    assert done.returncode == SOME_FAILED
    done = fcjax("doctor", "--base-url", server.url)
    assert done.returncode == UNUSABLE
    assert "no model given" in done.stderr.decode()


def test_answers_that_cannot_be_read_are_not_right():
    """Five of thirty are read, and right: that is no better than chance."""
    few = {f"\n{probe.hypothesis}\n" for probe in PROBE_PAIRS[:5]}
    with ScriptedServer(
        lambda messages: knows(messages) if any(text in messages[0]["content"] for text in few) else "well, well"
    ) as server:
        found = examined(server)["judgement"]
    assert (found.verdict, found.values["read"], found.values["right"]) == ("bad", 5, 5)
    assert "5 of 30 easy pairs" in found.words
    assert "25 answers cannot be read" in found.words
