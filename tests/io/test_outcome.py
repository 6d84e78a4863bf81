"""What a response says, shape by shape: as OpenAI, vLLM, llama.cpp, litellm's proxy and others write them."""

from __future__ import annotations

import json
import math
import ssl
import time
from types import SimpleNamespace

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.prompts import Reply, Token, Usage
from fcjax.io.outcome import Again, Refused, StepDown, read_exception, read_response, scrubbed

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def read(status, body, headers=None):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_response(status, headers or {}, body, now=NOW)


def chat(content="[Neutral]", finish="stop", usage=(7, 3), logprobs=None, **message):
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    counts = usage and {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return {"choices": [{**choice, "logprobs": logprobs}], "model": "m-1", "usage": counts}


def error(message, **codes):
    return {"error": {"message": message, **codes}}


REPLIES = {
    "plain": (chat(), {"text": "[Neutral]", "finish": "stop", "model": "m-1", "usage": Usage(7, 3), "tokens": None}),
    "cut off": (chat("The premise", "length"), {"text": "The premise", "finish": "length"}),
    "parts": (chat([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), {"text": "ab"}),
    "thinking parts": (chat([{"type": "thinking", "thinking": []}, {"type": "text", "text": "b"}]), {"text": "b"}),
    "legacy text": ({"choices": [{"text": "yes", "finish_reason": None}]}, {"text": "yes", "usage": None}),
    "no usage": (chat(usage=None), {"usage": None}),
    "reasoning_content": (chat("yes", reasoning_content="well"), {"text": "yes", "reasoning": "well"}),
    "reasoning": (chat("yes", reasoning="well"), {"text": "yes", "reasoning": "well"}),
    "think": (chat("<think>\nwell [Entailment]\n</think>\n\nyes"), {"text": "yes", "reasoning": "well [Entailment]"}),
    "think begun by the template": (chat("well</think>yes"), {"text": "yes", "reasoning": "well"}),
    "no think": (chat("<think>\n\n</think>\n\nyes"), {"text": "yes", "reasoning": None}),
    "null refusal": (chat("yes", refusal=None), {"text": "yes"}),
    "half a character": (b'{"choices": [{"message": {"content": "a\\ud83d"}}]}', {"text": "a\ufffd"}),
    "llama.cpp": (
        {**chat(), "timings": {"prompt_n": 7, "predicted_per_second": 40.0}, "object": "chat.completion"},
        {"text": "[Neutral]"},
    ),
}

PASSING = {
    "null content": (200, chat(None), "empty"),
    "empty content": (200, chat(" \n"), "empty"),
    "tool call": (200, chat(None, "tool_calls", tool_calls=[{"function": {"name": "f"}}]), "empty"),
    "finish error": (200, chat("half", "error"), "server_error"),
    "no choices": (200, {"choices": []}, "unreadable"),
    "null": (200, b"null", "unreadable"),
    "html for JSON": (200, b"<!doctype html><title>Sign in</title>", "unreadable"),
    "truncated JSON": (200, b'{"choices": [{"message": {"content": "[Ent', "unreadable"),
    "nothing": (200, b"", "unreadable"),
    "bytes": (200, b"\x00\xff\xfe", "unreadable"),
    "error as 200, upstream 502": (200, error("Upstream error", code=502), "server_error"),
    "error as 200, rate limit": (200, error("Provider returned error", code=429), "rate_limit"),
    "error in a choice": (200, {"choices": [{"error": {"code": 503, "message": "busy"}}]}, "overloaded"),
    "litellm timeout": (408, error("litellm.Timeout: APITimeoutError", type=None, code="408"), "timeout"),
    "conflict": (409, error("conflict"), "server_error"),
    "rate limit": (429, error("Rate limit reached for gpt-4o", code="rate_limit_exceeded"), "rate_limit"),
    "a bug of the server": (500, error("unsupported operand in LogprobsProcessor"), "server_error"),
    "bare 429": (429, b"", "rate_limit"),
    "Gemini's minute": (
        429,
        [error("You exceeded your current quota, please check your plan and billing details.\nPlease retry in 15.1s.")],
        "rate_limit",
    ),
    "litellm's deployments": (429, error("No deployments available for selected model"), "rate_limit"),
    "TGI overloaded": (429, {"error": "Model is overloaded", "error_type": "overloaded"}, "rate_limit"),
    "500": (500, error("The server had an error while processing your request"), "server_error"),
    "500 in words": (500, b"Internal Server Error", "server_error"),
    "litellm connection": (500, error("litellm.APIConnectionError: Connection error", code="500"), "server_error"),
    "502 in HTML": (502, b"<html><center><h1>502 Bad Gateway</h1></center></html>", "server_error"),
    "503": (503, error("That model is currently overloaded"), "overloaded"),
    "llama.cpp loading": (503, error("Loading model", type="unavailable_error", code=503), "overloaded"),
    "litellm's database is away": (503, error("unavailable", type="no_db_connection", code="503"), "overloaded"),
    "504": (504, b"upstream request timeout", "timeout"),
    "529": (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
}

REFUSED = {
    "refusal": (200, chat(None, refusal="I cannot help with that."), "refused"),
    "content filter as 200": (200, chat("Half an ans", "content_filter"), "content_filter"),
    "reasoning ate max_tokens": (200, chat(None, "length", reasoning_content="hmm"), "truncated"),
    "think ate max_tokens": (200, chat("<think>hmm", "length"), "truncated"),
    "only reasoning": (200, chat("", reasoning_content="yes"), "empty"),
    "only think": (200, chat("<think>hmm</think>"), "empty"),
    "old vLLM error as 200": (200, {"object": "error", "message": "bad", "code": 400}, "invalid_request"),
    "redirect": (301, b"", "not_found"),
    "invalid": (400, error("'messages' is too short", type="invalid_request_error"), "invalid_request"),
    "overflow": (
        400,
        error("This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
        "context_overflow",
    ),
    "llama.cpp overflow": (
        400,
        error("the request exceeds the available tokens", type="exceed_context_size_error", n_ctx=512, code=400),
        "context_overflow",
    ),
    "litellm overflow": (
        400,
        error("litellm.ContextWindowExceededError: litellm.BadRequestError: too long", code="400"),
        "context_overflow",
    ),
    "vLLM overflow": (
        400,
        {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested"},
        "context_overflow",
    ),
    "Anthropic overflow": (
        400,
        {"error": {"message": "prompt is too long: 210000 tokens > 200000"}},
        "context_overflow",
    ),
    "overflow as 500": (500, error("litellm.ContextWindowExceededError: x"), "context_overflow"),
    "too large": (413, b"<html>413 Request Entity Too Large</html>", "context_overflow"),
    "Azure's filter": (
        400,
        error("filtered", code="content_filter", innererror={"code": "ResponsibleAIPolicyViolation"}),
        "content_filter",
    ),
    "litellm's filter": (400, error("litellm.ContentPolicyViolationError: x"), "content_filter"),
    "moderated": (403, error("Your chosen model requires moderation; your input was flagged"), "content_filter"),
    "litellm's model": (400, error("/chat/completions: Invalid model name passed in model=gpt-x"), "not_found"),
    "litellm's budget": (400, error("ExceededBudget: over budget", type="budget_exceeded"), "quota"),
    "OpenAI's newer models": (
        400,
        error(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            type="invalid_request_error",
            param="max_tokens",
            code="unsupported_parameter",
        ),
        "unsupported",
    ),
    "OpenAI's newer models, temperature": (
        400,
        error(
            "Unsupported value: 'temperature' does not support 0 with this model. "
            "Only the default (1) value is supported.",
            param="temperature",
            code="unsupported_value",
        ),
        "unsupported",
    ),
    "wrong key": (401, error("Incorrect API key provided: sk-abc123def456", code="invalid_api_key"), "unauthorized"),
    "litellm's key": (
        401,
        error("Authentication Error, Invalid proxy server token", type="auth_error"),
        "unauthorized",
    ),
    "litellm's key, no database": (
        400,
        error("No connected db.", type="no_db_connection", param=None, code="400"),
        "unauthorized",
    ),
    "no credit": (402, error("Insufficient credits"), "quota"),
    "forbidden": (403, error("You are not allowed to sample from this model"), "forbidden"),
    "no model": (404, error("The model `x` does not exist", code="model_not_found"), "not_found"),
    "wrong path": (404, {"detail": "Not Found"}, "not_found"),
    "wrong method": (405, {"detail": "Method Not Allowed"}, "not_found"),
    "FastAPI": (
        422,
        {"detail": [{"loc": ["body", "max_tokens"], "msg": "Input should be an integer", "input": {"logprobs": True}}]},
        "invalid_request",
    ),
    "no billing": (429, error("You exceeded your current quota, please check your plan and billing details"), "quota"),
    "insufficient quota": (429, error("You exceeded your current quota", code="insufficient_quota"), "quota"),
    "over a minute's tokens": (429, error("Request too large for gpt-4 on tokens per min (TPM)"), "rate_limit"),
    "Gemini's list": (400, [{"error": {"code": 400, "message": "bad field", "status": "INVALID"}}], "invalid_request"),
    "not implemented": (501, error("not built with this"), "invalid_request"),
}

STEP_DOWN = {
    "OpenAI": ("Invalid value for 'top_logprobs': must be less than or equal to 20.", 20),
    "OpenAI, newer": ("Invalid 'top_logprobs': integer above maximum value. Expected a value <= 20, but got 30", 20),
    "vLLM": ("Requested sample logprobs of 30, which is greater than max allowed: 20", 20),
    "FastAPI's words": ("top_logprobs: Input should be less than or equal to 5", 5),
    "a range": ("top_logprobs must be between 0 and 8", 8),
    "none at all": ("Unsupported parameter: 'logprobs' is not supported with this model.", 0),
    "litellm": ("litellm.UnsupportedParamsError: groq does not support parameters: ['logprobs']", 0),
    "no number": ("top_logprobs is too large", None),
}


def test_enough_shapes():
    assert len(REPLIES) + len(PASSING) + len(REFUSED) + len(STEP_DOWN) >= 40


@pytest.mark.parametrize("shape", REPLIES)
def test_reply(shape):
    body, expected = REPLIES[shape]
    outcome = read(200, body)
    assert isinstance(outcome, Reply)
    assert {name: getattr(outcome, name) for name in expected} == expected


@pytest.mark.parametrize("shape", PASSING)
def test_passing_trouble(shape):
    status, body, kind = PASSING[shape]
    outcome = read(status, body)
    assert (type(outcome), outcome.kind) == (Again, kind)
    assert outcome.reason


@pytest.mark.parametrize("shape", REFUSED)
def test_refusal(shape):
    status, body, kind = REFUSED[shape]
    outcome = read(status, body)
    assert (type(outcome), outcome.kind) == (Refused, kind)
    assert outcome.reason


@pytest.mark.parametrize("shape", STEP_DOWN)
@pytest.mark.parametrize("status", [400, 422])
def test_step_down(shape, status):
    message, allowed = STEP_DOWN[shape]
    outcome = read(status, error(message, param="top_logprobs"))
    assert isinstance(outcome, StepDown)
    assert outcome.allowed == allowed


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"llm_provider-retry-after": "7"}, 7.0),
        ({"llm_provider-retry-after-ms": "70"}, 0.07),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers, seconds):
    for status in (429, 503):
        assert read(status, b"", headers).after == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 850ms.", 0.85),
        ("try again in 5 seconds.", 5.0),
        ("try again in 1m2.5s", 62.5),
        ("Please retry in 15.0029s.", 15.0029),
        ("no", None),
    ],
)
def test_wait_in_words(words, seconds):
    assert read(429, error(words)).after == seconds


def test_billed_tokens_of_useless_answers_are_kept():
    assert read(200, chat(None)).usage == Usage(7, 3)
    assert read(200, chat("x", "content_filter")).usage == Usage(7, 3)


def test_reasons_hold_no_keys_and_are_short():
    outcome = read(401, error("Incorrect API key provided: sk-proj-abcdef0123. Header: Bearer abcdef0123"))
    assert "abcdef" not in outcome.reason
    assert "OPENAI_API_KEY" in outcome.reason
    assert len(scrubbed("word " * 1000)) == 300
    assert scrubbed("a\x1b[2Jb\u202ec\n d") == "a [2Jb c d"


def entry(token, logprob, top=(), **more):
    return {"token": token, "logprob": logprob, "top_logprobs": top and [entry(*pair) for pair in top], **more}


def tokens(content, logprobs):
    return read(200, chat(content, logprobs=logprobs)).tokens


def test_logprobs_as_a_list_of_entries():
    content = [entry("[", -0.1, [("[", -0.1), ("(", -3.0)], bytes=[91]), entry("Neutral", -0.2, None), entry("]", 0)]
    assert tokens("[Neutral]", {"content": content}) == (
        Token("[", -0.1, (("[", -0.1), ("(", -3.0))),
        Token("Neutral", -0.2),
        Token("]", 0.0),
    )


def test_logprobs_as_legacy_lists():
    block = {"tokens": ["a", "b", "c"], "token_logprobs": [None, -0.5], "top_logprobs": [None, {"b": -0.5, "x": -1}]}
    assert tokens("abc", block) == (Token("a", None), Token("b", -0.5, (("b", -0.5), ("x", -1.0))), Token("c", None))


def test_logprobs_of_minus_infinity():
    body = b'{"choices": [{"message": {"content": "ab"}, "logprobs": {"content": [{"token": "a", "logprob": -Infinity},'
    outcome = read(
        200, body + b'{"token": "b", "logprob": -9999.0, "top_logprobs": [{"token": "c", "logprob": NaN}]}]}}]}'
    )
    assert outcome.tokens == (Token("a", -math.inf), Token("b", -math.inf))


def test_tokens_that_are_parts_of_characters():
    content = [
        entry("\ufffd", -0.1, bytes=[0xF0, 0x9F]),
        entry("<0x98>", -0.2, bytes=[0x98]),
        entry("bytes:\\x80", -0.3, bytes=[0x80]),
    ]
    assert [token.raw for token in tokens("😀", {"content": content})] == [b"\xf0\x9f", b"\x98", b"\x80"]


@pytest.mark.parametrize("block", [None, {}, [], {"content": None}, {"content": []}, {"tokens": None}, "x"])
def test_no_logprobs(block):
    assert tokens("yes", block) is None


def test_tokens_of_reasoning_are_left_out():
    content = [
        entry(text, -0.1) for text in ("<think>", "[", "Entailment", "]", "</think>", "\n\n", "[", "Neutral", "]")
    ]
    block = {"content": content}
    for body in (chat("<think>[Entailment]</think>\n\n[Neutral]", logprobs=block),
                 chat("[Neutral]", reasoning_content="[Entailment]", logprobs=block)):  # fmt: skip
        assert "".join(token.text for token in read(200, body).tokens) == "[Neutral]"


def connector(kind, *more):
    key = SimpleNamespace(host="h", port=1, ssl=True, is_ssl=True)
    return kind(key, *more)


@pytest.mark.parametrize(
    ("error", "expected", "kind"),
    [
        (TimeoutError(), Again, "timeout"),
        (aiohttp.SocketTimeoutError("read"), Again, "timeout"),
        (aiohttp.ConnectionTimeoutError("https://h/v1?key=secret"), Again, "timeout"),
        (aiohttp.ServerDisconnectedError(), Again, "connection"),
        (aiohttp.ClientOSError(104, "Connection reset by peer"), Again, "connection"),
        (ConnectionResetError(104, "Connection reset by peer"), Again, "connection"),
        (OSError(24, "Too many open files"), Again, "connection"),
        (connector(aiohttp.ClientConnectorError, OSError(111, "Connection refused")), Again, "connection"),
        (connector(aiohttp.ClientConnectorDNSError, OSError(-2, "Name or service not known")), Again, "dns"),
        (aiohttp.ClientPayloadError("not enough data"), Again, "unreadable"),
        (aiohttp.ClientResponseError(None, (), status=400, message="bad http"), Again, "unreadable"),
        (connector(aiohttp.ClientConnectorSSLError, ssl.SSLError(1, "wrong version number")), Refused, "tls"),
        (connector(aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError("expired")), Refused, "tls"),
        (aiohttp.InvalidURL("https://user:secret@"), Refused, "not_found"),
        (UnicodeError("encoding with 'idna' codec failed"), Refused, "not_found"),  # of the host a..b
    ],
)
def test_exceptions(error, expected, kind):
    outcome = read_exception(error)
    assert (type(outcome), outcome.kind) == (expected, kind)
    assert "secret" not in outcome.reason


def test_programming_errors_are_raised():
    with pytest.raises(KeyError):
        read_exception(KeyError("x"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["choices", "message", "content", "error", "code", "detail", "loc", "logprobs", "top_logprobs",
                         "tokens", "token", "logprob", "bytes", "usage", "prompt_tokens", "finish_reason", "text"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.integers(200, 599), JSON | JSON.map(lambda value: {"choices": [value]}) | JSON.map(lambda v: {"error": v}))
def test_any_json_has_an_outcome(status, value):
    outcome = read(status, json.dumps(value).encode())
    assert isinstance(outcome, Reply | Again | Refused | StepDown)
    assert not isinstance(outcome, Reply) or outcome.text.strip()


@given(st.integers(200, 599), st.binary(max_size=60), st.dictionaries(st.just("retry-after"), st.text(max_size=20)))
def test_any_bytes_have_an_outcome(status, body, headers):
    assert isinstance(read(status, body, headers), Again | Refused | StepDown)


# Hostile bytes: nothing raises, and nothing takes long.


def nested(depth):
    return "[" * depth + "]" * depth


HOSTILE = {
    "infinite code": (200, '{"error": {"code": 1e999}}', Again),
    "code of 5,000 digits": (200, '{"error": {"code": "%s"}}' % ("9" * 5000), Again),
    "limit of 5,000 digits": (400, '{"error": {"message": "top_logprobs: maximum of %s"}}' % ("9" * 5000), StepDown),
    "deep finish_reason": (
        200, '{"choices": [{"message": {"content": "a"}, "finish_reason": ' + nested(1000) + '}]}', Again
    ),
    "deep refusal": (200, '{"choices": [{"message": {"refusal": ' + nested(1000) + '}}]}', Again),
    "deep code": (500, '{"error": {"code": ' + nested(1000) + '}}', Again),
    "deep message": (500, '{"error": {"message": ' + nested(1000) + '}}', Again),
    "too deep for a parser": (200, nested(100_000), Again),
    "deep with NaN": (200, '{"x": NaN, "choices": ' + nested(5000) + '}', Again),
    "wait of 5,000 digits": (429, '{"error": "try again in %sm1s"}' % ("9" * 5000), Again),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_response_is_an_outcome(status, body, kind):
    began = time.process_time()
    assert isinstance(read(status, body.encode()), kind)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "value",
    ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 01 Jan 0001 00:00:00 +2359", "9" * 99 + "x", "\x00", "-1"],
)
def test_a_retry_after_that_is_no_time_is_ignored(value):
    assert read(429, b"{}", {"Retry-After": value}).after in (None, 0.0)


@pytest.mark.parametrize("unit", [" ", "<think>", "</think>", "\n", "<"])
def test_reasoning_is_separated_in_linear_time(unit):
    began = time.process_time()
    read(200, chat(unit * (400_000 // len(unit)) + "x"))
    assert time.process_time() - began < 2  # quadratic: minutes


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = (
    "choices message content text error code type param finish_reason usage prompt_tokens logprobs tokens top_logprobs"
)
ANY_ANSWER = st.recursive(
    ANY_JSON,
    lambda inner: st.dictionaries(st.sampled_from(NAMES.split()), inner, max_size=5) | st.lists(inner, max_size=3),
    max_leaves=30,
)


@given(st.sampled_from([200, 301, 400, 401, 403, 429, 500, 503]), ANY_ANSWER | st.binary(max_size=200), st.text())
def test_any_response_is_an_outcome(status, body, header):
    assert isinstance(read(status, body, {"Retry-After": header}), Reply | Again | Refused | StepDown)
