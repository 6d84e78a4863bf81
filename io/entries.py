"""The contents of a store's rows: questions and answers as bytes.

There are two kinds of questions: prompts, to a model, and searches, in a source of evidence.

The bytes are compressed JSON: zlib halves a reply with logprobs in 0.1 ms, and its checksum finds damaged rows.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from types import UnionType
from typing import Any, Final

import orjson

from fcjax.core.checks import is_number
from fcjax.core.passages import Found, Passage
from fcjax.core.prompts import Failure, Prompt, Reply, Token, Usage

ANSWERED: Final = "answered"  # the status of a row whose reply is served; a failure's status is its kind
UNREADABLE: Final = "unreadable"  # a reply in which no answer was found: served in replay only
OUTDATED: Final = "outdated"  # a search that is too old: served in replay only
DAMAGED: Final = "damaged"  # a row whose bytes are damaged: never served

CHAT: Final = "chat"  # kinds of rows
SEARCH: Final = "search"

MOST: Final = 2**53
"""The largest number in a row: what JSON and SQLite both hold exactly."""

Answer = Reply | Failure | Found

_SENT: Final = tuple(name for name in Prompt.__dataclass_fields__ if name != "answer")

LARGEST: Final = 256 << 20
"""Bytes of a row's question or answer after decompression, at most: four times the largest response."""


class DamagedError(ValueError):
    """Bytes that hold no entry, as in a damaged file."""


class FieldError(DamagedError):
    """A field of an answer with a wrong type or out of range; the message begins with its name."""


def canonical(document: Any) -> bytes:
    """Canonical JSON, the same for equal documents: sorted keys, no spaces."""
    try:
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # half a surrogate pair in a text, which only the standard library escapes
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def question(prompt: Prompt) -> dict[str, Any]:
    """A prompt as JSON: every field that is sent. The form of its answer is sent as options, if at all."""
    return {name: getattr(prompt, name) for name in _SENT} | {"options": dict(prompt.options)}


def prompt_key(endpoint: str, model: str, prompt: Prompt) -> str:
    """The key of a prompt: 64 hex digits over all that changes its answer and nothing else.

    `endpoint` is a name without credentials, so that a new API key for the same service finds the old replies. Raises
    `TypeError` for an option that JSON cannot hold.
    """
    return _key({"endpoint": endpoint, "model": model, "prompt": question(prompt)})


def search_key(retriever: str, query: str, k: int) -> str:
    """The key of a search, as `prompt_key` is that of a prompt; `retriever` is the source's `name`."""
    return _key(search(retriever, query, k))


def search(retriever: str, query: str, k: int) -> dict[str, Any]:
    """A search as JSON."""
    return {"retriever": retriever, "query": query, "k": k}


def _key(asked: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(asked)).hexdigest()


def failed_status(failure: Failure) -> str:
    """The status of a failure's row: its kind, without lone surrogates, which a column of text cannot hold."""
    return failure.kind.encode("utf-8", "replace").decode()


def pack(document: dict[str, Any]) -> bytes:
    """The bytes of a JSON object. Raises `TypeError` for values that JSON cannot hold."""
    return zlib.compress(canonical(document), 1)


def pack_prompt(prompt: Prompt) -> bytes:
    """The bytes of a prompt. Raises `TypeError` for an option that JSON cannot hold."""
    return pack(question(prompt))


def pack_answer(answer: Answer) -> bytes:
    """The bytes of an answer."""
    return pack(_document(answer))


def unpack(packed: bytes) -> dict[str, Any]:
    """The JSON object that was packed. Raises `DamagedError`."""
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(packed, LARGEST)
        if not reader.eof:
            raise DamagedError(f"the data are cut off, or more than {LARGEST:,} bytes")
        document = orjson.loads(text) if b"\\ud" not in text else json.loads(text)
    except (zlib.error, ValueError, TypeError, RecursionError) as error:
        raise DamagedError(str(error)) from error
    if not isinstance(document, dict):
        raise DamagedError(f"a JSON {type(document).__name__}; allowed: an object")
    return document


def unpack_answer(packed: bytes) -> Reply | Failure:
    """The packed answer to a prompt. Raises `DamagedError`."""
    return read_answer(unpack(packed))


def unpack_found(packed: bytes) -> Found | Failure:
    """The packed result of a search. Raises `DamagedError`."""
    return read_found(unpack(packed))


def read_answer(document: dict[str, Any]) -> Reply | Failure:
    """The answer to a prompt from its JSON object. Raises `DamagedError`."""
    if "failed" in document:
        return _read_failure(document)
    try:
        tokens, usage = document["tokens"], document["usage"]
        read = {
            "tokens": tokens if tokens is None else tuple(map(_token, tokens)),
            "usage": usage if usage is None else Usage(*usage),
        }
        reply = Reply(**document | read)
        tokens = reply.tokens or ()
        "".join([token.text for token in tokens])  # raises `TypeError` for what is not text
        "".join([alternative for token in tokens for alternative, _ in token.top])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedError(str(error)) from error
    usage = reply.usage or Usage()
    for name in ("text", "finish"):
        _check(name, getattr(reply, name), str)
    for name in ("model", "reasoning"):
        _check(name, getattr(reply, name), str | None)
    for name, number in (("usage[0]", usage.prompt), ("usage[1]", usage.completion), ("attempts", reply.attempts)):
        _check_number(name, number, 0, whole=True)
    _check_number("seconds", reply.seconds, -MOST)
    _check_number("cost", 0 if reply.cost is None else reply.cost, -MOST)
    return reply


def read_found(document: dict[str, Any]) -> Found | Failure:
    """The result of a search from its JSON object. Raises `DamagedError`."""
    if "failed" in document:
        return _read_failure(document)
    try:
        found = tuple([Passage(**passage) for passage in document["found"]])
    except (KeyError, TypeError) as error:
        raise DamagedError(str(error)) from error
    for i, passage in enumerate(found):
        for name in Passage.__dataclass_fields__:
            _check(f"found[{i}].{name}", getattr(passage, name), str | None)
    return found


def _read_failure(document: dict[str, Any]) -> Failure:
    try:
        failure = Failure(document["failed"], document["reason"], document["attempts"])
    except KeyError as error:
        raise DamagedError(str(error)) from error
    _check("failed", failure.kind, str)
    _check("reason", failure.reason, str)
    _check_number("attempts", failure.attempts, 0, whole=True)
    return failure


def _check(name: str, value: Any, kind: type[str] | UnionType) -> None:
    """Raise `FieldError` unless a field is a string, or None where `kind` allows it."""
    if not isinstance(value, kind):
        raise FieldError(f"{name} is {_shown(value)}; allowed: a string")


def _check_number(name: str, value: Any, low: float, *, whole: bool = False) -> None:
    """Raise `FieldError` unless a field is a number from `low` to `MOST`."""
    if not is_number(value, low, MOST, whole=whole):
        what = "a whole number" if whole else "a number"
        raise FieldError(f"{name} is {_shown(value)}; allowed: {what} from {low} to {MOST}")


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except (RecursionError, ValueError):  # nested too deeply, or a number of more digits than Python writes
        return f"an unreadable {type(value).__name__}"


def _document(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, Failure):
        return {"failed": answer.kind, "reason": answer.reason, "attempts": answer.attempts}
    if isinstance(answer, tuple):
        return {"found": [_given(passage) for passage in answer]}
    document = {name: getattr(answer, name) for name in Reply.__dataclass_fields__}
    if answer.tokens is not None:
        document["tokens"] = [
            [
                token.text,
                _number(token.logprob),
                [[text, _number(logprob)] for text, logprob in token.top],
                None if token.raw is None else token.raw.hex(),
            ]
            for token in answer.tokens
        ]
    if answer.usage is not None:
        document["usage"] = [answer.usage.prompt, answer.usage.completion]
    return document


def _given(passage: Passage) -> dict[str, str]:
    fields = ((name, getattr(passage, name)) for name in Passage.__dataclass_fields__)
    return {name: value for name, value in fields if value is not None}


def _token(packed: list[Any]) -> Token:
    text, logprob, top, raw = packed
    return Token(
        text,
        None if logprob is None else float(logprob),
        tuple([(alternative, float(number)) for alternative, number in top]),
        None if raw is None else bytes.fromhex(raw),
    )


def _number(value: float | None) -> float | str | None:
    """JSON has no -inf, which is not the same as a missing logprob; `float` reads the word."""
    return value if value is None or math.isfinite(value) else str(value)
