"""What a row of the store holds: questions and answers as bytes.

JSON, compressed: zlib halves a reply with logprobs for 0.1 ms, and its checksum tells a damaged row from a sound one.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import Any, Final

import orjson

from fcjax.prompts import Failure, Prompt, Reply, Token, Usage

ANSWERED: Final = "answered"  # the status of a row whose reply is served; a failure's status is its kind
UNREADABLE: Final = "unreadable"  # a reply in which nobody could find an answer: served in replay only
DAMAGED: Final = "damaged"  # a row whose bytes are spoilt: never served


class DamagedError(ValueError):
    """Bytes that hold no entry: a file was spoilt."""


def canonical(document: Any) -> bytes:
    """JSON of which equal documents have the same: sorted keys, no spaces."""
    try:
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # half a surrogate pair in somebody's text, which only the standard library escapes
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def question(prompt: Prompt) -> dict[str, Any]:
    """A prompt as JSON, with every field."""
    return {name: getattr(prompt, name) for name in Prompt.__dataclass_fields__} | {"options": dict(prompt.options)}


def pack_prompt(prompt: Prompt) -> bytes:
    """The bytes of a prompt. Raises `TypeError` for an option that JSON does not know."""
    return zlib.compress(canonical(question(prompt)), 1)


def pack_answer(answer: Reply | Failure) -> bytes:
    """The bytes of an answer."""
    return zlib.compress(canonical(_document(answer)), 1)


def unpack(packed: bytes) -> dict[str, Any]:
    """The JSON object that was packed. Raises `DamagedError`."""
    try:
        text = zlib.decompress(packed)
        document = orjson.loads(text) if b"\\ud" not in text else json.loads(text)
    except (zlib.error, ValueError, TypeError) as error:
        raise DamagedError(str(error)) from error
    if not isinstance(document, dict):
        raise DamagedError(f"a JSON {type(document).__name__}; allowed: an object")
    return document


def unpack_answer(packed: bytes) -> Reply | Failure:
    """The answer that was packed. Raises `DamagedError`."""
    document = unpack(packed)
    try:
        if "failed" in document:
            return Failure(document["failed"], document["reason"], document["attempts"])
        tokens, usage = document["tokens"], document["usage"]
        read = {
            "tokens": tokens if tokens is None else tuple(map(_token, tokens)),
            "usage": usage if usage is None else Usage(*usage),
        }
        return Reply(**document | read)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(str(error)) from error


def _document(answer: Reply | Failure) -> dict[str, Any]:
    if isinstance(answer, Failure):
        return {"failed": answer.kind, "reason": answer.reason, "attempts": answer.attempts}
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


def _token(packed: list[Any]) -> Token:
    text, logprob, top, raw = packed
    return Token(
        text,
        None if logprob is None else float(logprob),
        tuple([(alternative, float(number)) for alternative, number in top]),
        None if raw is None else bytes.fromhex(raw),
    )


def _number(value: float | None) -> float | str | None:
    """JSON has no -inf, and a logprob that is -inf is not one that is missing; `float` reads the word."""
    return value if value is None or math.isfinite(value) else str(value)
