"""The client against a real server on loopback, in good and bad weather, with a real store."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import aclosing, closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import ScriptedServer, Weather

from fcjax.core.errors import OutputError, SettingsError
from fcjax.core.prompts import Failure, Prompt, Reply, Token, Usage
from fcjax.io.client import PATIENCE, Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.entries import unpack
from fcjax.io.http import Timeouts, without_secrets
from fcjax.io.outcome import Again, Refused, StepDown
from fcjax.io.pacing import Budget, Concurrency, RateLimit, Retry
from fcjax.io.store import Store

QUICK = Retry(attempts=8, first=0.01, longest=0.05)
KEY = "sk-very-secret-key"


def ask(text, **more):
    return Prompt(messages=(("user", text),), template="test/1", **more)


def client_of(server, **more):
    return Client(Endpoint(server.url, "scripted", server.key), **{"retry": QUICK, **more})


def answers(server, prompts, **more):
    """The answers in the order of the prompts, and the client's stats."""

    async def go():
        async with client_of(server, **more) as client:
            found = {i: answer async for (i, _), answer in client.ask_all(enumerate(prompts), prompt=lambda it: it[1])}
        return [found[i] for i in range(len(found))], client.stats

    return asyncio.run(go())


def echo(messages):
    return f"echo {messages[-1]['content']}"


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as opened:
        yield opened


# One prompt


def test_reply():
    with ScriptedServer(echo, key=KEY) as server:
        prompt = ask("one", max_tokens=9, temperature=0.5, top_logprobs=2, options={"seed": 7, "temperature": None})
        (reply,), stats = answers(server, [prompt], price=lambda usage: usage.prompt * 0.5 + usage.completion * 2.0)
    assert (reply.text, reply.model, reply.finish, reply.attempts) == ("echo one", "scripted", "stop", 1)
    assert [(token.text, token.logprob, len(token.top)) for token in reply.tokens] == [
        ("echo", -0.01, 2),
        (" one", -0.01, 2),
    ]
    assert reply.usage == Usage(0, 2)
    assert reply.cost == stats.cost == 4.0
    assert 0 < reply.seconds <= stats.seconds < 5
    assert list(server.bodies) == [
        {
            "model": "scripted",
            "messages": [{"role": "user", "content": "one"}],
            "max_tokens": 9,
            "logprobs": True,
            "top_logprobs": 2,
            "seed": 7,
        }
    ]


def test_half_a_character_is_sent_and_its_reply_is_stored(store):
    with ScriptedServer(lambda messages: "ok") as server:
        found, _ = answers(server, [ask("a\ud800b"), ask("c")], store=store)
    assert [reply.text for reply in found] == ["ok", "ok"]
    assert {body["messages"][0]["content"] for body in server.bodies} == {"a\ufffdb", "c"}


def test_usage_that_no_store_can_hold_is_none(store):
    body = {"choices": [{"message": {"content": "ok"}}], "usage": {"prompt_tokens": 2**63, "completion_tokens": -4}}
    with ScriptedServer(lambda messages: {"body": body}) as server:
        (reply,), stats = answers(server, [ask("one")], store=store)
    assert (reply.text, reply.usage) == ("ok", None)
    assert stats.completion_tokens == 1  # by estimate


def test_unknown_price_is_not_nought():
    with ScriptedServer(echo) as server:
        (reply,), stats = answers(server, [ask("one")])
    assert reply.cost is None
    assert stats.cost is None


def test_endpoint_options_belong_to_the_question(store):
    async def go(server, **options):
        async with Client(Endpoint(server.url, "scripted", options=options), store=store) as client:
            await client.ask(ask("one", options={"b": 2}))
            return client.stats.cache_hits

    with ScriptedServer(echo) as server:
        assert [asyncio.run(go(server, **options)) for options in ({"a": 1, "b": 1}, {"a": 1}, {})] == [0, 1, 0]
        assert server.bodies[0]["a"] == 1
        assert server.bodies[0]["b"] == 2


def test_options_for_models_that_refuse_max_tokens_and_temperature():
    options = {"max_completion_tokens": 20, "temperature": "omit"}
    with ScriptedServer(echo) as server:

        async def go():
            async with Client(Endpoint(server.url, "m", options=options), budget=Budget(tokens=500)) as client:
                return [await client.ask(ask("one")), await client.ask(ask("two"))], await client.estimate([ask("one")])

        found, estimate = asyncio.run(go())
    assert [reply.text for reply in found] == ["echo one", "echo two"]  # max_tokens' 512 would have passed the budget
    assert estimate.completion_tokens == 20
    assert set(server.bodies[0]) == {"model", "messages", "max_completion_tokens"}


def test_a_field_that_the_model_refuses_ends_the_run():
    told = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    refusal = {"status": 400, "body": {"error": {"message": told, "code": "unsupported_parameter"}}}
    with ScriptedServer(lambda messages: refusal) as server:
        found, stats = answers(server, [ask(str(i)) for i in range(50)], concurrency=2)
    assert stats.failed == {"unsupported": 50}
    assert stats.sent <= 2
    assert "set max_completion_tokens" in found[-1].reason


@pytest.mark.parametrize(
    "weather", ["429", "429 after 20ms", "500", "503", "529", "html", "garbage", "truncated", "reset"]
)
def test_trouble_that_passes(weather):
    with ScriptedServer(echo, weather=[weather] * 2) as server:
        (reply,), stats = answers(server, [ask("one")])
        assert (reply.text, reply.attempts) == ("echo one", 3)
        assert (stats.sent, stats.retries, server.calls) == (3, 2, 3)


def test_trouble_that_lasts():
    with ScriptedServer(weather=["500"] * 9) as server:
        (failure,), stats = answers(server, [ask("one")], retry=replace(QUICK, attempts=3))
        assert (failure.kind, failure.attempts, server.calls) == ("server_error", 3, 3)
    assert "HTTP 500: The server had an error; gave up after 3 attempts" in failure.reason
    assert stats.failed == {"server_error": 1}


def test_empty_answers_are_asked_again_once():
    with ScriptedServer(lambda messages: "", weather=["500"]) as server:
        (failure,), _ = answers(server, [ask("one")])
        assert (failure.kind, failure.attempts, server.calls) == ("empty", 3, 3)
    with ScriptedServer(lambda messages: "ok" if server.calls == 2 else "") as server:
        assert answers(server, [ask("one")])[0][0].text == "ok"


def test_server_that_hangs():
    with ScriptedServer(echo, weather=["hang"]) as server:
        (reply,), _ = answers(server, [ask("one")], timeouts=Timeouts(read=0.1))
    assert reply.attempts == 2


def test_server_that_is_away():
    with ScriptedServer() as server:
        pass
    (failure,), _ = answers(server, [ask("one")], retry=replace(QUICK, attempts=2))
    assert failure.kind == "connection"
    assert "cannot connect to 127.0.0.1" in failure.reason


def test_tls_to_a_server_that_has_none():
    with ScriptedServer() as server:

        async def go():
            async with Client(Endpoint(server.url.replace("http", "https"), "m")) as client:
                return await client.ask(ask("one"))

        assert asyncio.run(go()).kind == "tls"


def test_server_is_waited_for_as_it_asks():
    with ScriptedServer(echo, weather=["429 after 300ms"]) as server:
        began = time.perf_counter()
        answers(server, [ask("one")])
        assert time.perf_counter() - began > 0.3


def test_refusals_are_not_asked_again():
    answer = {"status": 400, "body": {"error": {"message": "too long", "code": "context_length_exceeded"}}}
    with ScriptedServer(lambda messages: answer if messages[-1]["content"] == "long" else "ok") as server:
        found, stats = answers(server, [ask("long"), ask("short")])
        assert server.asked == {"long": 1, "short": 1}
    assert found[0].kind == "context_overflow"
    assert isinstance(found[1], Reply)
    assert (stats.asked, stats.answered, stats.failed) == (2, 1, {"context_overflow": 1})


def test_key_is_in_no_reason():
    answer = {"status": 400, "body": {"error": {"message": f"you sent {KEY} and {KEY[:9]}"}}}
    with ScriptedServer(lambda messages: answer, key=KEY) as server:
        (failure,), _ = answers(server, [ask("one")])
    assert "***" in failure.reason
    assert "very" not in failure.reason


@pytest.mark.parametrize("before", [0, 30, 260, 280])  # also where the reason is cut short in the middle of it
@pytest.mark.parametrize("status", [200, 400])
def test_no_part_of_a_secret_is_in_a_reason(before, status):
    secret = "QzSecretKey1234567890abcdefghijkl"

    def answer(_):
        told = f"{'x' * before} {secret} query-secret"
        return {"status": status, "body": told.encode() if status == 200 else {"error": {"message": told}}}

    async def go():
        async with Client(Endpoint(server.url + "?token=query-secret", "m", secret), retry=Retry(attempts=1)) as client:
            return await client.ask(ask("one"))

    with ScriptedServer(answer) as server:
        failure = asyncio.run(go())
    assert failure.kind == ("unreadable" if status == 200 else "invalid_request")
    assert "QzS" not in failure.reason
    assert "query" not in failure.reason


def test_hopeless_endpoint_is_left_in_peace():
    with ScriptedServer(key=KEY) as server:

        async def go():
            async with Client(Endpoint(server.url, "m", "sk-wrong"), concurrency=4) as client:
                prompts = [ask(str(i)) for i in range(200)]
                return [answer async for _, answer in client.ask_all(prompts, prompt=lambda it: it)], client.stats

        found, stats = asyncio.run(go())
    assert {answer.kind for answer in found} == {"unauthorized"}
    assert len(found) == 200
    assert stats.sent <= 4
    assert "set OPENAI_API_KEY" in found[-1].reason


def test_prompts_that_a_stop_keeps_from_being_sent_are_not_charged():
    budget = Budget(prompts=100, tokens=100_000)
    with ScriptedServer(key=KEY) as server:

        async def go():
            async with Client(Endpoint(server.url, "m", "sk-wrong"), concurrency=1, budget=budget) as client:
                prompts = [ask(str(i)) for i in range(20)]
                return [answer async for _, answer in client.ask_all(prompts, prompt=lambda it: it)], client.stats

        found, stats = asyncio.run(go())
    assert len(found) == 20
    assert (stats.sent, budget.spent.prompts) == (1, 1)
    assert [failure.attempts for failure in found] == [1] + [0] * 19


def test_fewer_logprobs_where_the_server_gives_fewer(store):
    with ScriptedServer(echo, most_logprobs=2) as server:
        found, stats = answers(
            server, [ask("one", top_logprobs=20), ask("two", top_logprobs=20)], concurrency=1, window=1, store=store
        )
        assert [body["top_logprobs"] for body in server.bodies] == [20, 2, 2]  # the second prompt knows
        assert all(len(reply.tokens[0].top) == 2 for reply in found)
        again, stats = answers(server, [ask("one", top_logprobs=20)], store=store)
    assert stats.cache_hits == 1
    assert again == found[:1]


def test_no_logprobs_where_the_server_gives_none():
    refusal = {"status": 400, "body": {"error": {"message": "this model does not support logprobs"}}}
    with ScriptedServer(lambda messages: refusal if "logprobs" in server.bodies[-1] else "ok") as server:
        (reply,), _ = answers(server, [ask("one", top_logprobs=5)])
    assert reply.tokens is None
    assert reply.attempts == 2


def test_refusals_that_fewer_logprobs_do_not_help_cost_the_others_nothing():
    """A server that has something else against one prompt, and speaks of logprobs as it says so."""
    odd = {"status": 400, "body": {"error": {"message": "cannot parse 'the logprobs of a model'"}}}
    with ScriptedServer(lambda messages: odd if messages[-1]["content"] == "odd" else "ok") as server:
        found, _ = answers(server, [ask(text, top_logprobs=5) for text in ("odd", "even")], concurrency=1)
    assert (found[0].kind, found[1].text) == ("invalid_request", "ok")
    assert len(found[1].tokens[0].top) == 2


# Many prompts


def test_same_prompts_in_flight_share_a_call(store):
    with ScriptedServer(echo, delay=0.05) as server:
        found, stats = answers(server, [ask("one")] * 5 + [ask("one", sample=1)], store=store)
        assert server.calls == 2
    assert {reply.text for reply in found} == {"echo one"}
    assert (stats.asked, stats.answered, stats.shared, stats.sent) == (6, 6, 4, 2)


def test_call_whose_asker_is_cancelled_goes_on_for_the_others():
    async def go():
        async with client_of(server) as client:
            first, second, third = (asyncio.create_task(client.ask(ask("one"))) for _ in range(3))
            await asyncio.sleep(0.02)
            first.cancel()
            third.cancel()
            return await second, client.stats

    with ScriptedServer(echo, delay=0.1) as server:
        reply, stats = asyncio.run(go())
        assert server.calls == 1
    assert reply.text == "echo one"
    assert stats.asked == stats.answered == stats.shared == 1


def test_calls_on_the_wire_are_not_lost_when_the_run_is_stopped(store):
    """What the server was asked is in the store, and nothing is sent after the stop, not even where it had waited."""

    async def go():
        client = client_of(server, store=store, concurrency=4, window=16)
        async with client, aclosing(client.ask_all(map(str, range(100)), prompt=ask)) as stream:
            async for _ in stream:
                raise KeyError("stop")

    with ScriptedServer(echo, delay=0.1, spread=0.5) as server:
        with pytest.raises(KeyError):
            asyncio.run(go())
        sent = list(server.asked)
        assert 4 <= len(sent) <= 8
        again, stats = answers(server, [ask(text) for text in sent], store=store)
    assert stats.cache_hits == len(again) == len(sent)
    assert all(isinstance(answer, Reply) for answer in again)


@pytest.mark.parametrize("weather", ["500", "hang"])
def test_stop_waits_for_no_second_try_and_no_longer_than_its_grace(store, weather, monkeypatch):
    monkeypatch.setattr("fcjax.io.client.GRACE", 0.2)

    async def go():
        async with client_of(server, store=store, retry=Retry(first=0.3)) as client:
            asking = asyncio.create_task(client.ask(ask("one")))
            await asyncio.sleep(0.1)
            asking.cancel()
            return client

    with ScriptedServer(echo, weather=[weather]) as server:
        began = time.perf_counter()
        client = asyncio.run(go())
        assert time.perf_counter() - began < 2
        time.sleep(0.3)
        assert server.calls == 1
    assert (client.stats.asked, client.stats.in_flight) == (0, 0)


def test_prompt_that_nobody_waits_for_is_asked_anew(store):
    """A call that is given up while it backs off is joined by nobody."""

    async def go():
        async with client_of(server, store=store, retry=Retry(first=60)) as client:
            asking = asyncio.create_task(client.ask(ask("one")))
            await asyncio.sleep(0.1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            return await client.ask(ask("one"))

    with ScriptedServer(echo, weather=["500"]) as server:
        assert asyncio.run(go()).text == "echo one"


def test_no_slot_is_held_while_backing_off():
    """With one slot, a prompt that waits to be asked again lets the other ones through."""
    with ScriptedServer(echo, weather=["429 after 400ms"]) as server:
        order = []

        async def go():
            async with client_of(server, concurrency=1) as client:
                async for text, _ in client.ask_all(["first", "second", "third"], prompt=ask):
                    order.append(text)

        asyncio.run(go())
    assert order == ["second", "third", "first"]


def test_concurrency_is_that_of_the_slots():
    with ScriptedServer(echo, delay=0.02) as server:
        _, stats = answers(server, [ask(str(i)) for i in range(100)], concurrency=8)
        assert server.most_in_flight == 8
    assert 6 < stats.mean_concurrency <= 8


def test_overload_lowers_the_concurrency():
    slots = Concurrency(16, cool_down=60)
    with ScriptedServer(echo, weather=["503"] * 16) as server:
        answers(server, [ask(str(i)) for i in range(20)], concurrency=slots)
    assert slots.limit == 8


def test_nothing_is_made_ahead_of_the_window():
    made = 0

    def source():
        nonlocal made
        for i in range(1000):
            made += 1
            yield i

    async def go():
        taken = most_tasks = 0
        async with client_of(server, concurrency=2, window=8) as client:
            async with aclosing(client.ask_all(source(), prompt=lambda i: ask(str(i)))) as stream:
                async for _ in stream:
                    taken += 1
                    await asyncio.sleep(0.005)  # a slow consumer holds up the source
                    assert made <= taken + 8
                    most_tasks = max(most_tasks, len(asyncio.all_tasks()))
                    if taken == 40:
                        break
            await asyncio.sleep(0.02)
            assert len(asyncio.all_tasks()) == 1  # the workers are gone
        return most_tasks

    with ScriptedServer(echo) as server:
        assert asyncio.run(go()) <= 8 + 8 + 1 + 2  # workers, their calls, this one, and one a new connection
    assert made <= 48


def test_few_items_make_few_tasks():
    async def go():
        async with client_of(server) as client:
            async for _ in client.ask_all(["one"], prompt=ask):
                return len(asyncio.all_tasks())

    with ScriptedServer(echo) as server:
        assert asyncio.run(go()) <= 3


def test_source_may_be_asynchronous_and_slow():
    async def source():
        for i in range(20):
            await asyncio.sleep(0.001)
            yield str(i)

    async def go():
        async with client_of(server) as client:
            return {text: answer.text async for text, answer in client.ask_all(source(), prompt=ask)}

    with ScriptedServer(echo) as server:
        assert asyncio.run(go()) == {str(i): f"echo {i}" for i in range(20)}


def test_source_that_breaks_is_heard():
    def source():
        yield "one"
        raise KeyError("two")

    async def go():
        async with client_of(server) as client:
            async for _ in client.ask_all(source(), prompt=ask):
                pass

    with ScriptedServer(echo) as server, pytest.raises(KeyError, match="two"):
        asyncio.run(go())


def test_item_whose_work_is_cancelled_is_not_just_missing():
    class Cancels(Scripted):
        async def send(self, prompt):
            if prompt.messages[0][1] == "3":
                raise asyncio.CancelledError  # as a library may whose own scope ends
            return await super().send(prompt)

    async def go():
        async with Client(Cancels(), concurrency=2, window=2) as client:
            return [text async for text, _ in client.ask_all(map(str, range(10)), prompt=ask)]

    with pytest.raises(RuntimeError, match="cancelled"):
        asyncio.run(go())


def test_no_items():
    with ScriptedServer() as server:
        assert answers(server, [])[0] == []


# Limits


def test_request_rate():
    with ScriptedServer(echo) as server:
        began = time.perf_counter()
        answers(
            server, [ask(str(i)) for i in range(80)], rate=RateLimit(requests=2400)
        )  # 40 a second, one second slack
        assert time.perf_counter() - began > 0.9


def test_request_rate_holds_after_a_standstill():
    """Prompts that waited for slots while the server hung are not sent all at once when it goes on."""

    class Hangs(Scripted):
        def __init__(self):
            super().__init__()
            self.sent = []

        async def send(self, prompt):
            self.sent.append(time.monotonic())
            await asyncio.sleep(0.8 if len(self.sent) <= 4 else 0)
            return Reply(text="ok")

    async def go():
        transport = Hangs()
        async with Client(transport, concurrency=4, rate=RateLimit(requests=1200)) as client:  # 20 a second
            async for _ in client.ask_all(map(str, range(80)), prompt=ask):
                pass
        return transport.sent

    sent = asyncio.run(go())
    most = max(sum(first <= moment < first + 0.5 for moment in sent) for first in sent)
    assert most <= 10 + 20 + 2  # half a second's share, one second's slack, one piece


def test_token_rate_is_settled_by_usage():
    """Reserved are 10,000 tokens a prompt, used are 10: at the pace of the reservations this would take a minute."""
    with ScriptedServer(echo) as server:
        began = time.perf_counter()
        answers(server, [ask(str(i), max_tokens=10_000) for i in range(60)], rate=RateLimit(tokens=600_000))
        assert time.perf_counter() - began < 10


def test_budget_stops_cleanly_and_the_next_run_goes_on(store):
    prompts = [ask(str(i)) for i in range(50)]
    with ScriptedServer(echo, weather=["429"] * 5) as server:
        found, stats = answers(server, prompts, store=store, budget=Budget(prompts=20))
        assert stats.answered == server.answered.total() == 20
        assert stats.failed == {"budget": 30}
        assert "the budget of 20 prompts is used up" in next(it.reason for it in found if isinstance(it, Failure))
        found, stats = answers(server, prompts, store=store)
        assert all(isinstance(answer, Reply) for answer in found)
        assert stats.cache_hits == 20
        assert server.answered == {str(i): 1 for i in range(50)}


def test_budget_in_money_is_not_passed():
    price = 0.001  # dollars a token
    with ScriptedServer(echo) as server:
        budget = Budget(dollars=0.5)
        found, stats = answers(
            server, [ask(str(i), max_tokens=100) for i in range(500)], budget=budget,
            price=lambda usage: price * (usage.prompt + usage.completion),
        )  # fmt: skip
    assert stats.failed["budget"] > 0
    assert 0.35 < stats.cost <= 0.5  # up to the most that one prompt may cost
    assert stats.cost == pytest.approx(sum(reply.cost for reply in found if isinstance(reply, Reply)))


def test_settings_that_contradict_each_other():
    endpoint = Endpoint("http://h", "m")
    for settings, words in (
        ({"replay": True}, "a replay requires a store"),
        ({"budget": Budget(dollars=1)}, "price is unknown"),
        ({"window": 0}, "at least 1 prompt"),
        ({"concurrency": 0}, "at least 1"),
    ):
        with pytest.raises(SettingsError, match=words):
            Client(endpoint, **settings)


def test_estimate(store):
    async def go():
        async with client_of(server, store=store, price=lambda usage: usage.completion * 0.5) as client:
            await client.ask(ask("0"))
            return await client.estimate([ask("x" * 400, max_tokens=10), ask("0"), ask("1"), ask("1")])

    with ScriptedServer(echo) as server:
        estimate = asyncio.run(go())
        assert server.calls == 1
    assert (estimate.prompts, estimate.distinct, estimate.stored, estimate.to_send) == (4, 3, 1, 2)
    assert 100 <= estimate.prompt_tokens <= 130
    assert (estimate.completion_tokens, estimate.cost) == (522, 261.0)


# The store


def test_nothing_is_asked_twice(store):
    prompts = [ask(str(i), top_logprobs=2) for i in range(30)]
    with ScriptedServer(echo) as server:
        first, _ = answers(server, prompts, store=store)
        second, stats = answers(server, prompts, store=store)
        assert server.calls == 30
    assert second == first
    assert (stats.cache_hits, stats.sent, stats.answered) == (30, 0, 30)


def test_endpoints_that_differ_in_their_query_have_answers_of_their_own(store):
    with ScriptedServer(echo) as server:

        async def go(query):
            endpoint = Endpoint(f"{server.url}?deployment={query}", "scripted", server.key)
            async with Client(endpoint, retry=QUICK, store=store) as client:
                await client.ask(ask("?"))
            return client.stats.cache_hits

        assert [asyncio.run(go(query)) for query in ("a", "b", "a", "b")] == [0, 0, 1, 1]
        assert server.calls == 2


def test_a_full_store_ends_a_run_with_one_error(store):
    """Calls that were on the wire when the store failed leave no traceback behind."""
    store._writer.execute("PRAGMA max_page_count = 20")
    seen = []

    async def go(server):
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(context))
        async with client_of(server, store=store) as client:
            prompts = (ask(f"{i} {random.random()}" * 50) for i in range(3000))
            async for _ in client.ask_all(prompts, prompt=lambda it: it):
                pass

    full = pytest.raises(OutputError, match="the disk of the folder .* is full")
    with ScriptedServer(echo) as server, full as caught:
        asyncio.run(go(server))
    assert str(store.path) in str(caught.value)
    del caught
    gc.collect()
    assert seen == []


def test_replay_gives_replies_and_failures_without_a_server(store):
    def picky(messages):
        return {"text": "", "finish": "content_filter"} if messages[-1]["content"] == "bad" else "fine"

    with ScriptedServer(picky) as server:
        first, _ = answers(server, [ask("good"), ask("bad")], store=store)
    again, stats = answers(server, [ask("good"), ask("bad"), ask("new")], store=store, replay=True)
    assert again[:2] == first
    assert [type(answer) for answer in first] == [Reply, Failure]
    assert again[2].kind == "replay_miss"
    assert "test/1" in again[2].reason
    assert stats.sent == 0


def test_failures_are_asked_again_in_a_live_run(store):
    with ScriptedServer(echo, weather=["500", "500"]) as server:
        (first,), _ = answers(server, [ask("one")], store=store, retry=replace(QUICK, attempts=2))
        (second,), _ = answers(server, [ask("one")], store=store)
    assert (first.kind, second.text) == ("server_error", "echo one")


def test_billed_calls_of_no_use_are_in_the_stores_books(store):
    """A failure's tries and those before a reply: the store's sums are the client's."""

    def answer(messages):
        text = messages[-1]["content"]
        return "ok" if text == "late" and server.asked[text] == 3 else {"text": "half", "finish": "error"}

    with ScriptedServer(answer) as server:
        settings = {"retry": replace(QUICK, attempts=3), "price": lambda usage: usage.prompt * 0.5 + usage.completion}
        found, stats = answers(server, [ask("never"), ask("late")], store=store, **settings)
    assert [type(answer) for answer in found] == [Failure, Reply]
    query = "SELECT sum(prompt_tokens), sum(completion_tokens), sum(cost), count(cost) FROM entries"
    with closing(sqlite3.connect(store.path)) as books:
        (sums,) = books.execute(query).fetchall()
    assert sums == (stats.prompt_tokens, stats.completion_tokens, stats.cost, 2)
    assert stats.completion_tokens == 6  # one for every call


def test_no_secret_of_a_good_reply_reaches_the_store(tmp_path):
    pieces = ["[Neutral] ", "you sent x" + KEY[:4], KEY[4:9], KEY[9:] + KEY + "y ", "ok"]
    answer = {
        "text": "".join(pieces),
        "tokens": [(piece, -0.5, [(piece, -0.5), (f"say {KEY}", -2.0), ("no", -3.0)]) for piece in pieces],
        "message": {"reasoning_content": f"the key is {KEY}"},
    }
    with ScriptedServer(lambda messages: answer, key=KEY) as server, Store.open(tmp_path / "s") as store:
        (reply,), _ = answers(server, [ask("one", top_logprobs=3)], store=store)
        (again,), _ = answers(server, [ask("one", top_logprobs=3)], store=store, replay=True)
    assert reply == again
    assert reply.text == "[Neutral] you sent x******y ok"
    assert "".join(token.text for token in reply.tokens) == reply.text
    assert [token.text for token in reply.tokens] == ["[Neutral] ", "you sent x***", "***y ", "ok"]
    assert reply.tokens[0].top == (("[Neutral] ", -0.5), ("no", -3.0))
    assert reply.reasoning == "the key is ***"
    assert KEY not in repr(reply)


def test_a_placeholder_for_a_key_is_not_cut_out_of_a_good_reply():
    for key in ("EMPTY", "a", "anything"):
        with ScriptedServer(echo, key=key) as server:
            (reply,), _ = answers(server, [ask("EMPTY a anything")])
        assert reply.text == "echo EMPTY a anything"


def test_no_secret_reaches_the_store(tmp_path):
    answer = {"status": 400, "body": {"error": {"message": f"you sent {KEY}"}}}
    with ScriptedServer(lambda messages: answer, key=KEY) as server, Store.open(tmp_path / "s") as store:
        endpoint = Endpoint(server.url.replace("http://", "http://ann:password@") + "?token=query-secret", "m", KEY)

        async def go():
            async with Client(endpoint, store=store) as client:
                return await client.ask(ask("one"))

        assert isinstance(asyncio.run(go()), Failure)
    rows = sqlite3.connect(tmp_path / "s").execute("SELECT * FROM entries").fetchall()
    written = str([unpack(value) if isinstance(value, bytes) and len(value) > 32 else value for value in rows[0]])
    assert "you sent ***" in written
    for secret in (KEY, "password", "query-secret"):
        assert secret not in written


# Bad weather


def test_bad_weather_loses_nothing(store):
    """Every prompt is answered or failed with a reason, none is answered twice in the store, the totals add up."""
    n, weather = 400, Weather(too_many=0.2, hang=0.05, reset=0.03, garbage=0.02, seed=5)
    with ScriptedServer(echo, weather=weather, delay=0.002) as server:

        async def go():
            slots = Concurrency(32, cool_down=0.1)
            settings = {"store": store, "concurrency": slots, "timeouts": Timeouts(read=0.15)}
            async with client_of(server, **settings) as client:
                found = {}
                async for i, answer in client.ask_all(range(n), prompt=lambda i: ask(str(i))):
                    assert i not in found
                    found[i] = answer
                    if len(found) == n // 2:
                        await asyncio.to_thread(server.restart, 0.05)
                return found, client.stats

        found, stats = asyncio.run(go())
        assert len(found) == n
        assert all(it.text == f"echo {i}" if isinstance(it, Reply) else it.reason for i, it in found.items())
        assert stats.asked == n == stats.answered + stats.failed.total()
        assert stats.answered >= 0.99 * n
        assert server.calls <= stats.sent  # those that met the restart arrived nowhere
        assert stats.sent == n + stats.retries
        assert stats.in_flight == 0
        assert {"429", "hang", "reset", "garbage"} <= set(server.trouble)
        replayed, stats = answers(server, [ask(str(i)) for i in range(n)], store=store, replay=True)
    assert replayed == [found[i] for i in range(n)]
    assert store.stats.known == 0


# The client by itself


class Scripted:
    """A transport without a wire."""

    name, model = "scripted", "m"

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.closed = False

    async def send(self, prompt):
        await asyncio.sleep(0)
        return self.outcomes.pop(0) if self.outcomes else Reply(text=prompt.messages[0][1])

    async def close(self):
        self.closed = True


class WatchedClock:
    def __init__(self):
        self.slept = []

    def now(self):
        return float(sum(self.slept))

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await asyncio.sleep(0)


def test_other_transports_plug_in():
    transport = Scripted(Again("rate_limit", "slow down", 7.0), Again("timeout", "late"), Refused("refused", "no"))
    clock = WatchedClock()

    async def go():
        async with Client(transport, clock=clock, random=random.Random(1)) as client:
            return [await client.ask(ask("one")), await client.ask(ask("two"))]

    assert asyncio.run(go()) == [Failure("refused", "no", 3), Reply(text="two")]
    assert 7.0 <= clock.slept[0] <= 7.75
    assert 0.5 <= clock.slept[1] <= 1.0
    assert transport.closed


def test_failures_after_an_answer_stop_nothing():
    """20 more than `PATIENCE` fail at a service that has answered once, and each is sent."""

    class Fickle(Scripted):
        async def send(self, prompt):
            return await super().send(prompt) if prompt.messages[0][1] == "good" else Refused("invalid_request", "no")

    async def go(texts):
        async with Client(Fickle(), concurrency=1) as client:
            found = [await client.ask(ask(text)) for text in texts]
        return found, client.stats.sent, client.stopped, client.unreached

    bad = [f"bad {i}" for i in range(PATIENCE + 20)]
    found, sent, stopped, unreached = asyncio.run(go(["good", *bad, "good"]))
    assert [type(answer) for answer in found] == [Reply, *[Failure] * len(bad), Reply]
    assert (sent, stopped, unreached) == (len(found), None, None)
    found, sent, stopped, _ = asyncio.run(go([*bad, "good"]))  # without an answer, no more are sent
    assert (sent, stopped.kind, found[-1]) == (PATIENCE, "invalid_request", stopped)


def test_fewer_logprobs_where_the_server_gives_no_number():
    """Five, which most servers give, before none at all; later prompts start with what was given."""
    wanted = []

    class Few(Scripted):
        async def send(self, prompt):
            wanted.append(prompt.top_logprobs)
            too_many = prompt.top_logprobs is not None and prompt.top_logprobs > self.most
            return StepDown("too many logprobs") if too_many else Reply(text="ok")

    async def go(most):
        wanted.clear()
        transport = Few()
        transport.most = most
        async with Client(transport) as client:
            for text in ("one", "two"):
                assert isinstance(await client.ask(ask(text, top_logprobs=20)), Reply)
        return wanted.copy()

    assert asyncio.run(go(5)) == [20, 5, 5]
    assert asyncio.run(go(4)) == [20, 5, None, None]
    assert asyncio.run(go(20)) == [20, 20]


def test_only_a_live_run_marks_replies_as_unreadable(store):
    async def go(**settings):
        async with Client(Scripted(), store=store, **settings) as client:
            await client.ask(ask("one"))
            await client.reject(ask("one"))
            return client.stats.sent

    assert asyncio.run(go()) == 1
    assert asyncio.run(go()) == 1  # asked again, since it was rejected

    async def kept():
        async with Client(Scripted(), store=store) as client:
            await client.ask(ask("one"))

    asyncio.run(kept())
    assert asyncio.run(go(replay=True)) == 0
    assert asyncio.run(go()) == 0  # the replay has rejected nothing


def test_a_call_without_a_caller_is_not_tried_again(store):
    """It fails on the wire after its caller has gone: it was paid for and is recorded, but not repeated."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Scripted):
        sent = 0

        async def send(self, prompt):
            self.sent += 1
            arrived.set()
            await go_on.wait()
            return Again("server_error", "broken")

    async def go():
        async with Client(Slow(), store=store, retry=Retry(attempts=3, first=0.0)) as client:
            asking = asyncio.create_task(client.ask(ask("one")))
            await arrived.wait()
            asking.cancel()
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.sleep(0.1)
            return client._transport.sent

    assert asyncio.run(go()) == 1


def test_a_call_that_is_cancelled_on_the_wire_is_charged_as_a_prompt():
    """It may have been answered, and billed: the budget counts it as sent."""
    budget = Budget(prompts=2)

    class Hangs(Scripted):
        async def send(self, prompt):
            await asyncio.sleep(60)

    async def go():
        async with Client(Hangs(), budget=budget) as client:
            asking = asyncio.create_task(client.ask(ask("one")))
            while not client.stats.in_flight:
                await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.sleep(0.01)

    asyncio.run(go())
    assert budget.spent.prompts == 1


def test_memory_is_flat():
    """Prompts leave no objects behind; bytes over the wire are a matter of benchmarks/client.py."""

    async def go():
        counts = Counter()
        async with Client(Scripted(), window=16, concurrency=8) as client:
            done = 0
            async for _ in client.ask_all((str(i) for i in range(16_000)), prompt=ask):
                done += 1
                if done in (5_000, 15_000):
                    gc.collect()
                    counts[done] = len(gc.get_objects())
        return counts

    counts = asyncio.run(go())
    assert abs(counts[15_000] - counts[5_000]) < 200


@pytest.mark.slow
def test_benchmark_runs(root, tmp_path):
    script = str(root / "benchmarks" / "client.py")
    few = ["--prompts", "60", "--litellm", "0", "--memory", "200", "--runs", "1", "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, script, *few], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "client_full" in done.stdout
    (result,) = tmp_path.glob("*-client-*.json")
    assert json.loads(result.read_text())["speed"]["client_full"]["prompts_per_s"] > 0


@given(st.lists(st.text("ab1-", max_size=9), max_size=12))
def test_the_tokens_without_a_secret_are_the_text_without_it(pieces):
    secret = "a1-ba1-b"
    reply = Reply(text="".join(pieces), tokens=tuple(Token(piece, -1.0) for piece in pieces))
    for text in (reply.text, reply.text.replace("b", secret)):
        cut = without_secrets(replace(reply, text=text, tokens=tuple(Token(one, -1.0) for one in text)), [secret])
        assert cut.text == text.replace(secret, "***")
        assert "".join(token.text for token in cut.tokens) == cut.text
    cut = without_secrets(reply, [secret])
    assert "".join(token.text for token in cut.tokens) == cut.text
