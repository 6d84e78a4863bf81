"""The outcome of a call to a chat completions endpoint: pure functions from a response, or an exception.

Retrying, waiting and giving up are the client's. Reasons are the server's words, cut short, with everything that looks
like a key removed.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
import orjson

from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Reply, Usage
from fcjax.io.logprobs import of_answer, read_logprobs


@dataclass(frozen=True, slots=True)
class Again:
    """A temporary failure. `after` is the time in seconds that the server asks to wait."""

    kind: str
    reason: str
    after: float | None = None
    usage: Usage | None = None  # of an answer that cannot be used, but was billed


@dataclass(frozen=True, slots=True)
class Refused:
    """A permanent failure: a retry would fail the same way."""

    kind: str
    reason: str
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class StepDown:
    """The server refuses a part of the request that can be left out: its `kind`.

    `top_logprobs`: more alternatives per token were requested than the server provides; `allowed` is how many it gives,
    0 where it gives no logprobs at all, None where it does not say. `constraint`: it does not constrain answers, or not
    in this way.
    """

    reason: str
    allowed: int | None = None
    kind: str = "top_logprobs"


Outcome = Reply | Again | Refused | StepDown

REMEDIES: Final = {
    "unauthorized": "set OPENAI_API_KEY to a key that this endpoint accepts",
    "forbidden": "use a key with access to this model",
    "quota": "the account has no credit or budget left",
    "not_found": "check the base URL and the model's name",
    "context_overflow": "shorten the prompt, lower max_tokens, or serve the model with a longer context",
    "truncated": "raise max_tokens",
    "unsupported": 'set max_completion_tokens = 2000 and temperature = "omit" under [options] in a config file',
    "tls": "check the certificate, and whether the URL should begin with http:// or https://",
}
"""What to change, by kind of refusal."""

# Patterns in `code`, `type`, `param` or the message. Servers agree on these words more than on status codes.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|contextwindowexceeded|maximum context length|context (?:size|window)"
    r"|context length|prompt is too long|input is too long|string_above_max_length|too many (?:input )?tokens"
)
_FILTER = re.compile(
    r"content_filter|content[_ ]?policy|contentpolicyviolation|responsible_?ai_?policy|content management policy"
    r"|input was flagged|data_inspection_failed|safety system"
)
_QUOTA = re.compile(r"insufficient_quota|exceededbudget|budget_exceeded|credit balance|payment required")
_PARAMETER = re.compile(r"use \W?max_completion_tokens|temperature\W? does not support")
_BILLING = re.compile(r"billing")  # Gemini uses it where a minute's share is used up, with a time to wait
_REFUSALS = (
    ("context_overflow", _OVERFLOW),
    ("content_filter", _FILTER),
    ("quota", _QUOTA),
    ("quota", _BILLING),
    ("unsupported", _PARAMETER),
)
_NO_MODEL = re.compile(r"model_not_found|invalid model name|model\W.{0,80}(?:does not exist|not found)")
_LOGPROBS = re.compile(r"logprobs")
_UNSUPPORTED = re.compile(r"support|unknown|unrecognized|not allowed|not permitted|extra|unexpected")
_LACKING = re.compile(r"not (?:yet )?(?:support|implement)")
_MOST = re.compile(
    r"(?:max(?:imum)?(?: allowed| value)?(?: of| is)?|less than or equal to|at most|<=|between 0 and|\[0,)\D{0,3}(\d+)"
)
_CONSTRAINT = re.compile(  # the fields, and what servers call their contents
    r"response[_ ]?format|json[_ ]?schema|structured[_ ]outputs?|guided[_ ](?:choice|json|decoding|generation|grammar)"
    r"|grammar|schema for response"
)
_DIGITS: Final = 9  # of a number in a message, at most; one with more is not a limit
_WAIT = re.compile(r"(?:try again|retry) in (?:(\d+)m)?([\d.]+) ?(ms|s)")
_SECRET = re.compile(r"\b(?:sk|pk|gsk|hf|xai|pplx|nvapi|key)[-_][\w*.-]{4,}|\bAIza[\w-]{8,}|\bBearer\s+\S+", re.I)
_THOUGHT = re.compile(r"\s*+<think(?:ing)?>")
_THOUGHT_ENDS: Final = ("</think>", "</thinking>")

_BY_STATUS: Final = {
    401: "unauthorized", 402: "quota", 403: "forbidden", 404: "not_found", 405: "not_found", 410: "not_found",
    413: "context_overflow",
}  # fmt: skip
_PASSING: Final = {408: "timeout", 409: "server_error", 425: "server_error", 429: "rate_limit", 503: "overloaded",
                   504: "timeout", 524: "timeout", 529: "overloaded"}  # fmt: skip
_RETRY_HEADERS: Final = (
    ("retry-after-ms", 1e-3),
    ("retry-after", 1.0),
    ("llm_provider-retry-after-ms", 1e-3),  # a litellm proxy passes its provider's headers on so
    ("llm_provider-retry-after", 1.0),
)


def read_response(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Outcome:
    """The outcome of a response, whatever its bytes.

    `now` is Unix time in seconds, for a `retry-after` that is a date.
    """
    try:
        return _read_content(status, headers, parsed(body), body, now)
    except RecursionError:
        return Again("unreadable", _TOO_DEEP)


def read_parsed(status: int, content: Any) -> Outcome:
    """The outcome of a response whose JSON is parsed and whose headers are not known, as batches hand it over."""
    try:
        is_completion = isinstance(content, dict) and "choices" in content
        shown = b"" if is_completion or content is None else str(content).encode("utf-8", "replace")
        return _read_content(status, {}, content, shown, 0.0)
    except RecursionError:
        return Again("unreadable", _TOO_DEEP)


_TOO_DEEP: Final = "the response is JSON that is nested too deeply"


def _read_content(status: int, headers: Mapping[str, str], content: Any, body: bytes, now: float) -> Outcome:
    if status < 300:
        if not isinstance(content, dict):
            return Again("unreadable", f"HTTP {status} with {_excerpt(body)} instead of a chat completion")
        choices = content.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            content = {**content, "error": choices[0].get("error") or content.get("error")}
            if not content["error"]:
                return _read_choice(content, choices[0])
        if not (content.get("error") or content.get("object") == "error"):
            return Again("unreadable", f"HTTP {status} with {_excerpt(body)} instead of a chat completion")
        status = _inner_status(content)
    return _read_failure(status, headers, content, body, now)


def read_exception(error: BaseException) -> Again | Refused:
    """The outcome of an exception of aiohttp or the system; raises all other ones."""
    match error:
        case TimeoutError():  # with aiohttp's own
            return Again("timeout", "the server did not answer in time")
        case SettingsError():  # of the environment, such as a proxy that cannot be used
            return Refused("not_found", str(error))
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return _refused("tls", f"the secure connection failed ({type(error).__name__})")
        case aiohttp.ClientConnectorDNSError():
            return Again("dns", f"the name {error.host} cannot be resolved")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | UnicodeError():  # of a name that is none
            return _refused("not_found", "the base URL is invalid")
        case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            return Again("unreadable", f"the response was cut off or is not HTTP ({type(error).__name__})")
        case aiohttp.ClientConnectorError():
            return Again("connection", f"cannot connect to {error.host}:{error.port} ({error.os_error.strerror})")
        case aiohttp.ClientConnectionError() | OSError():
            return Again("connection", f"the connection was lost ({type(error).__name__})")
    raise error


def scrubbed(words: str, *, most: int = 300) -> str:
    """`words` on one line of at most `most` printable characters, without what looks like a key."""
    printable = "".join(sign if sign.isprintable() else " " for sign in words)  # no terminal's commands
    line = _SECRET.sub("***", " ".join(printable.split()))
    return line if len(line) <= most else line[: most - 3] + "..."


def _read_choice(content: dict[str, Any], choice: dict[str, Any]) -> Reply | Again | Refused:
    given = choice.get("message")
    message: dict[str, Any] = given if isinstance(given, dict) else {}
    finish = str(choice.get("finish_reason") or "stop")
    usage = _usage(content.get("usage"))
    if finish == "content_filter":
        return Refused("content_filter", "the provider's filter cut off the answer", usage)
    if refusal := message.get("refusal"):
        return Refused("refused", scrubbed(f"the model refused: {refusal}"), usage)
    if finish == "error":
        return Again("server_error", "the server stopped in the middle of the answer", None, usage)
    thought, text = _apart(_text(message.get("content")) or _text(choice.get("text")))
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning")) or thought or None
    if not text.strip():
        if finish == "length":
            return _refused("truncated", "max_tokens was used up before the answer began", usage)
        if reasoning:
            return Refused("empty", "the model reasoned and gave no answer; check the server's reasoning parser", usage)
        return Again("empty", f"an empty answer (finish_reason {finish})", None, usage)
    tokens = read_logprobs(choice.get("logprobs"))
    model = content.get("model")
    return Reply(
        text=text,
        tokens=of_answer(tokens, text) if tokens else None,
        finish=finish,
        model=model if isinstance(model, str) else None,
        usage=usage,
        reasoning=reasoning,
    )


def _read_failure(
    status: int, headers: Mapping[str, str], content: Any, body: bytes, now: float
) -> Again | Refused | StepDown:
    words, codes = _error(content)
    reason = scrubbed(f"HTTP {status}: {words or _excerpt(body)}")
    clues = f"{codes} {words}".lower()
    after = retry_after(headers, now)
    if after is None:
        after = _wait_in_words(clues)
    if status == 429:
        if _QUOTA.search(clues) or (after is None and _BILLING.search(clues)):
            return _refused("quota", reason)
        if "request too large" in clues:  # for a whole minute's tokens
            return Refused("rate_limit", reason)
    elif status < 400:
        return _refused("not_found", f"HTTP {status}: the endpoint has moved; redirects are not followed")
    elif status in (400, 403, 413, 422, 500):
        if _LOGPROBS.search(clues) and (status != 500 or _MOST.search(clues) or _LACKING.search(clues)):
            return StepDown(reason, _most_logprobs(clues))
        for kind, clue in _REFUSALS:
            if clue.search(clues):
                return _refused(kind, reason)
        if status == 400 and _NO_MODEL.search(clues):
            return _refused("not_found", reason)
        if status == 400 and "no_db_connection" in clues:  # a wrong key, from a litellm proxy without a database
            return _refused("unauthorized", reason)
    if _CONSTRAINT.search(clues) and (status in (400, 422, 501) or (status == 500 and _LACKING.search(clues))):
        return StepDown(reason, kind="constraint")
    if status in _PASSING or (status >= 500 and status != 501):
        return Again(_PASSING.get(status, "server_error"), reason, after)
    return _refused(_BY_STATUS.get(status, "invalid_request"), reason)


def _refused(kind: str, reason: str, usage: Usage | None = None) -> Refused:
    remedy = REMEDIES.get(kind)
    return Refused(kind, f"{reason}; {remedy}" if remedy else reason, usage)


def _error(content: Any) -> tuple[str, str]:
    """The message of an error, and its codes, in any of the shapes that servers and proxies use."""
    if isinstance(content, list) and content:  # Gemini wraps it so
        content = content[0]
    if not isinstance(content, dict):
        return "", ""
    error = content.get("error")
    inner: dict[str, Any] = error if isinstance(error, dict) else content
    words = error if isinstance(error, str) else inner.get("message") or inner.get("detail") or inner.get("msg") or ""
    if isinstance(words, list):  # FastAPI's faults, which repeat the whole request in `input`
        faults = [fault for fault in words if isinstance(fault, dict)]
        words = "; ".join(f"{fault.get('loc')}: {fault.get('msg')}" for fault in faults)
    if not isinstance(words, str):
        words = json.dumps(words)
    codes = (inner.get(name) for name in ("code", "type", "param", "status", "error_type", "innererror"))
    return words, " ".join(str(code) for code in codes if code is not None)


def _inner_status(content: dict[str, Any]) -> int:
    """The status of an error that came with status 200."""
    error = content.get("error")
    code = (error if isinstance(error, dict) else content).get("code")
    try:
        status = int(code)  # type: ignore[arg-type]  # anything else is caught
    except (TypeError, ValueError, OverflowError):  # the last one for 1e999
        return 500
    return status if 400 <= status < 600 else 500


def _most_logprobs(clues: str) -> int | None:
    if (found := _MOST.search(clues)) and len(found[1]) <= _DIGITS:
        return int(found[1])
    return 0 if _UNSUPPORTED.search(clues) else None


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a response asks to wait; `now` is Unix time in seconds, as it may name a date."""
    given = {name.lower(): value.strip() for name, value in headers.items()}
    for name, unit in _RETRY_HEADERS:
        value = given.get(name, "")
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value) * unit
        try:
            date = parsedate_to_datetime(value)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):  # not a date, or one of a year that no calendar has
            continue
        return max(0.0, seconds - now)
    return None


def _wait_in_words(clues: str) -> float | None:
    """Seconds of "Please try again in 1m2.5s"."""
    if not (found := _WAIT.search(clues)):
        return None
    minutes, number, unit = found.groups()
    try:
        return 60.0 * int(minutes or 0) + float(number) * (1e-3 if unit == "ms" else 1.0)
    except ValueError:  # 1.2.3
        return None


def _apart(text: str) -> tuple[str, str]:
    """Reasoning and answer of a text with `<think>`, whose beginning some chat templates swallow."""
    begun = _THOUGHT.match(text)
    start = begun.end() if begun else 0
    place, mark = max((text.rfind(mark), mark) for mark in _THOUGHT_ENDS)
    if place >= 0:
        return text[start:place].strip(), text[place + len(mark) :].strip()
    return (text.strip(), "") if begun else ("", text)


def _text(given: Any) -> str:
    """A message's content: a text, or a list of parts."""
    if isinstance(given, list):
        return "".join(part["text"] for part in given if isinstance(part, dict) and isinstance(part.get("text"), str))
    return given if isinstance(given, str) else ""


def _usage(given: Any) -> Usage | None:
    if not isinstance(given, dict):
        return None
    prompt, completion = (_count(given.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    return None if prompt is None and completion is None else Usage(prompt or 0, completion or 0)


def _count(given: Any) -> int | None:
    """A number of tokens; None for impossible ones: the store's columns, and sums of them, have a limit."""
    return given if isinstance(given, int) and 0 <= given < 2**40 else None


def parsed(body: bytes) -> Any:
    """The JSON of a body, None where it is none."""
    try:
        return orjson.loads(body)
    except ValueError:
        pass
    try:  # servers in Python write -Infinity and halves of characters
        return whole(json.loads(body.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def whole(value: Any) -> Any:
    """`value` with lone surrogates replaced, as they can be neither sent nor stored."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole(each) for each in value]
    if isinstance(value, dict):
        return {whole(name): whole(each) for name, each in value.items()}
    return value


def _excerpt(body: bytes) -> str:
    if not body.strip():
        return "an empty body"
    return repr(body[:80].decode("utf-8", "replace"))
