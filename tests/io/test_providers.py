"""litellm as a way to models: the real one, with its own mock responses, and its table of prices."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from scripted_server import ScriptedServer

from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Prompt, Reply, Usage
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.http import Timeouts
from fcjax.io.maintenance import export
from fcjax.io.outcome import Again, Refused, StepDown
from fcjax.io.providers import LitellmTransport, Price, count_tokens, price, price_at
from fcjax.io.store import Store

MODEL = "anthropic/claude-sonnet-4-5"


def ask(mock, **more):
    return Prompt(messages=(("user", "Is it so?"),), template="test/1", options={"mock_response": mock, **more})


def send(prompt, model=MODEL, **settings):
    async def main():
        transport = LitellmTransport(model, **settings)
        try:
            return await transport.send(prompt)
        finally:
            await transport.close()

    return asyncio.run(main())


def test_a_reply():
    reply = send(ask("[yes]"))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.finish, reply.usage, reply.tokens) == ("[yes]", "stop", Usage(10, 20), None)


@pytest.mark.parametrize(
    ("mock", "outcome", "kind"),
    [
        ("litellm.RateLimitError", Again, "rate_limit"),
        ("litellm.InternalServerError", Again, "server_error"),
        ("litellm.ContextWindowExceededError", Refused, "context_overflow"),
        (ValueError("a bug"), Again, "server_error"),
    ],
)
def test_errors_are_outcomes(mock, outcome, kind):
    found = send(ask(mock))
    assert isinstance(found, outcome)
    assert found.kind == kind
    assert found.reason


@pytest.mark.parametrize(
    ("name", "outcome", "kind"),
    [
        ("AuthenticationError", Refused, "unauthorized"),
        ("PermissionDeniedError", Refused, "forbidden"),
        ("NotFoundError", Refused, "not_found"),
        ("ContentPolicyViolationError", Refused, "content_filter"),
        ("BadRequestError", Refused, "invalid_request"),
        ("Timeout", Again, "timeout"),
        ("ServiceUnavailableError", Again, "overloaded"),
        ("APIConnectionError", Again, "server_error"),
    ],
)
def test_litellms_own_exceptions_keep_their_meaning(name, outcome, kind):
    """litellm has no mock of these: it raises what it is given."""
    import httpx
    import litellm

    how = {"message": "no", "model": "m", "llm_provider": "anthropic"}
    if name == "PermissionDeniedError":
        how["response"] = httpx.Response(403, request=httpx.Request("POST", "http://127.0.0.1"))
    found = send(ask(getattr(litellm, name)(**how)))
    assert (type(found), found.kind) == (outcome, kind)


def test_no_logprobs_from_this_provider_is_a_step_down():
    prompt = Prompt(messages=(("user", "?"),), template="test/1", top_logprobs=5, options={"mock_response": "yes"})
    found = send(prompt)
    assert isinstance(found, StepDown)
    assert found.allowed == 0


def test_a_missing_key_is_told(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    found = send(Prompt(messages=(("user", "?"),), template="test/1"))
    assert isinstance(found, Refused)
    assert found.kind == "unauthorized"
    assert "ANTHROPIC_API_KEY" in found.reason


def test_secrets_stay_out_of_names_and_reasons():
    key, address = "very-odd-secret", "https://user:very-odd-secret@127.0.0.1:1/v1?key=very-odd-secret"
    transport = LitellmTransport(MODEL, api_key=key, api_base=address)
    assert transport.name == "litellm+https://127.0.0.1:1/v1"
    assert key not in repr(transport)
    found = send(ask(ValueError(f"cannot use {key}")), api_key=key)
    assert isinstance(found, Again)
    assert key not in found.reason
    assert "cannot use ***" in found.reason


def test_keys_of_the_environment_stay_out_of_reasons(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "QzVeryOddSecret")
    for before in (0, 270, 290):  # also where the reason is cut short in the middle of it
        found = send(ask(ValueError(f"{'x' * before} QzVeryOddSecret")))
        assert "Qz" not in found.reason


def test_a_model_without_a_provider_is_told():
    with pytest.raises(SettingsError, match="'nosuch' does not name a provider; allowed: PROVIDER/MODEL"):
        LitellmTransport("nosuch")


def test_prices_come_from_the_table_or_are_unknown():
    known = price("gpt-4o")
    assert known == price("openai/gpt-4o") == Price(2.5e-6, 1e-5)  # OpenAI's list price, unchanged since October 2024
    assert known(Usage(1_000_000, 100_000)) == pytest.approx(3.5)
    assert price("someone/gpt-4o") is None
    assert price("my-own-model") is None
    assert price("sample_spec") is None


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("https://api.openai.com/v1", True),
        ("https://api.openai.com/v1?region=eu", True),
        ("https://api.openai.com.example.org/v1", False),
        ("http://localhost:8000/v1", False),
    ],
)
def test_list_prices_hold_at_openais_own_endpoint_and_through_litellm(url, known):
    assert (price_at(Endpoint(url, "gpt-4o").name, "gpt-4o") is not None) == known
    assert price_at(LitellmTransport("openai/gpt-4o", api_base=url).name, "openai/gpt-4o") == price("gpt-4o")


def test_prices_agree_with_litellm():
    import litellm

    for model in ("gpt-4o-mini", "anthropic/claude-sonnet-4-5", "azure/gpt-4o"):
        whole = litellm.cost_per_token(model=model, prompt_tokens=1000, completion_tokens=100)
        assert price(model)(Usage(1000, 100)) == pytest.approx(sum(whole))


def test_tokens_are_counted_without_a_network():
    prompt = Prompt(messages=(("system", "Be brief."), ("user", "hello " * 100)), template="test/1")
    assert 100 < count_tokens("gpt-4o", prompt) < 130
    assert 100 < count_tokens("meta-llama/Llama-3-8B", prompt) < 130


def test_a_price_does_not_load_litellm(tmp_path):
    code = "import sys; from fcjax.io.providers import price; print(price('gpt-4o'), 'litellm' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "Price(prompt=2.5e-06, completion=1e-05) False"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, True, "1"])
def test_prices_and_timeouts_that_make_no_sense(wrong):
    with pytest.raises(SettingsError, match="price of a completion token is .*allowed"):
        Price(1e-6, wrong)
    for name in ("connect", "read", "total"):
        with pytest.raises(SettingsError, match=f"timeout {name} is .*allowed"):
            Timeouts(**{name: wrong})


KEY, OTHER = "sk-live-0123456789abcdef", "QzVeryOddSecret4711"


def indiscreet(messages):
    """A good reply of a server that repeats the key it was called with, and one of the environment."""
    text = f"[yes] {KEY} and {OTHER}"
    tokens = [("[", -0.1, []), ("yes", -0.2, [(KEY, -3.0), ("no", -2.0)]), ("]", -0.1, []), (" ", -0.1, [])]
    tokens += [(KEY[:9], -0.1, []), (KEY[9:], -0.1, []), (" and ", -0.1, []), (OTHER, -0.1, [])]
    return {"text": text, "tokens": tokens, "message": {"reasoning_content": f"The key is {KEY}, not {OTHER}."}}


def test_keys_that_a_reply_repeats_are_neither_returned_nor_stored(monkeypatch, tmp_path):
    """Through the real litellm, from a server on loopback."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OTHER)
    prompt = Prompt(messages=(("user", "Is it so?"),), template="test/1", top_logprobs=5)

    async def main(server):
        transport = LitellmTransport("openai/scripted", api_key=KEY, api_base=server.url)
        with Store.open(tmp_path / "store") as store:
            async with Client(transport, store=store) as client:
                return await client.ask(prompt)

    with ScriptedServer(indiscreet, key=KEY) as server:
        reply = asyncio.run(main(server))
        assert server.calls == 1
    assert isinstance(reply, Reply), reply
    assert (reply.text, reply.reasoning) == ("[yes] *** and ***", "The key is ***, not ***.")
    assert [token.text for token in reply.tokens] == ["[", "yes", "]", " ", "***", " and ", "***"]
    assert reply.tokens[1].top == (("no", -2.0),)
    export(tmp_path / "store", tmp_path / "rows.jsonl")
    rows = (tmp_path / "rows.jsonl").read_text()
    for kept in (repr(reply), rows):
        assert "[yes] *** and ***" in kept
        assert not any(secret in kept for secret in (KEY, KEY[9:], OTHER))


@pytest.mark.parametrize("status", [400, 500])
def test_keys_that_an_error_of_a_server_repeats_stay_out_of_reasons(status):
    def answer(messages):
        return {"status": status, "body": {"error": {"message": f"cannot use {KEY} here", "code": None}}}

    prompt = Prompt(messages=(("user", "Is it so?"),), template="test/1")
    with ScriptedServer(answer, key=KEY) as server:
        found = send(prompt, "openai/scripted", api_key=KEY, api_base=server.url)
    assert isinstance(found, (Refused, Again))
    assert "cannot use *** here" in found.reason
