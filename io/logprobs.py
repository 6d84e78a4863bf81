"""Log probabilities of a reply's tokens, in all the formats that servers use.

This is most of the work of reading a reply, so it is written for speed: a token in some 2 microseconds.
"""

from __future__ import annotations

import math
from itertools import accumulate, zip_longest
from typing import Any, Final

from fcjax.core.prompts import Token

_NEVER: Final = -9999.0  # how OpenAI and vLLM write -inf


def read_logprobs(block: Any) -> tuple[Token, ...] | None:
    """Tokens of a choice's `logprobs`, or None where there are none.

    Reads the chat form (`content`, a list of entries with `token`, `logprob`, `bytes`, `top_logprobs`) and the legacy
    one of text completions (parallel lists `tokens`, `token_logprobs`, `top_logprobs`). Tokens whose numbers cannot be
    read keep their place, since the text is the tokens joined.
    """
    if not isinstance(block, dict):
        return None
    content = block.get("content")
    if isinstance(content, list):
        tokens = tuple([_token(entry) for entry in content if isinstance(entry, dict)])
    else:
        columns = [block.get(name) for name in ("tokens", "token_logprobs", "top_logprobs")]
        texts, logprobs, tops = (column if isinstance(column, list) else [] for column in columns)
        rows = zip_longest(texts, logprobs[: len(texts)], tops[: len(texts)])
        tokens = tuple([Token(_text(text), _number(logprob), _top(top)) for text, logprob, top in rows])
    return tokens or None


def fewer_alternatives(asked: int, allowed: int | None) -> int:
    """How many alternatives a token to ask for after `asked` were too many: as allowed, else five, else none."""
    if allowed is not None and allowed < asked:
        return allowed
    return 5 if asked > 5 else 0


def of_answer(tokens: tuple[Token, ...], answer: str) -> tuple[Token, ...]:
    """The tokens of `answer`, where the model's reasoning or white space stood before it; all where it is not found."""
    start = "".join([token.text for token in tokens]).rfind(answer)
    if start <= 0:
        return tokens
    ends = accumulate(len(token.text) for token in tokens)
    return tuple(token for token, end in zip(tokens, ends, strict=True) if end > start)


def _token(entry: dict[str, Any]) -> Token:
    text = _text(entry.get("token"))
    return Token(text, _number(entry.get("logprob")), _top(entry.get("top_logprobs")), _raw(entry.get("bytes"), text))


def _top(given: Any) -> tuple[tuple[str, float], ...]:
    if isinstance(given, list):
        try:
            pairs = [(entry["token"], entry["logprob"]) for entry in given]
        except (KeyError, TypeError):
            pairs = [(entry.get("token"), entry.get("logprob")) for entry in given if isinstance(entry, dict)]
    elif isinstance(given, dict):  # the legacy form
        pairs = list(given.items())
    else:
        return ()
    for text, logprob in pairs:
        if type(text) is not str or type(logprob) is not float or not _NEVER < logprob <= 0.0:
            break
    else:  # nearly always
        return tuple(pairs)
    numbers = [(text, _number(logprob)) for text, logprob in pairs if isinstance(text, str)]
    return tuple([(text, number) for text, number in numbers if number is not None])


def _text(given: Any) -> str:
    return given if isinstance(given, str) else ""


def _number(given: Any) -> float | None:
    """A logprob, or None for a value that is not a number; one that is slightly over 0 by rounding is 0."""
    if type(given) is float and _NEVER < given <= 0.0:  # nearly always
        return given
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        return None
    return -math.inf if given <= _NEVER else 0.0 if given > 0 else float(given)


def _raw(given: Any, text: str) -> bytes | None:
    """A token's bytes where its text cannot hold them."""
    if not isinstance(given, list):
        return None
    try:
        raw = bytes(given)
    except (TypeError, ValueError):  # not numbers from 0 to 255
        return None
    return raw if raw != text.encode() else None
