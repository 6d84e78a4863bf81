"""Log probabilities of a reply's tokens, in all the shapes that servers give them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import accumulate, zip_longest
from typing import Any, Final

from fcjax.prompts import Token

_NEVER: Final = -9999.0  # how OpenAI and vLLM write -inf


def read_logprobs(block: Any) -> tuple[Token, ...] | None:
    """Tokens of a choice's `logprobs`, or None where there are none.

    Reads the chat form (`content`, a list of entries with `token`, `logprob`, `bytes`, `top_logprobs`) and the legacy
    one of text completions (parallel lists `tokens`, `token_logprobs`, `top_logprobs`). Entries that cannot be read
    keep their place, since the text is the tokens joined.
    """
    if not isinstance(block, Mapping):
        return None
    if isinstance(content := block.get("content"), list):
        tokens = tuple(_token(entry) for entry in content if isinstance(entry, Mapping))
    else:
        columns = [block.get(name) for name in ("tokens", "token_logprobs", "top_logprobs")]
        texts, logprobs, tops = (column if isinstance(column, list) else [] for column in columns)
        rows = zip_longest(texts, logprobs[: len(texts)], tops[: len(texts)])
        tokens = tuple(Token(_text(text), _number(logprob), _top(top)) for text, logprob, top in rows)
    return tokens or None


def of_answer(tokens: tuple[Token, ...], answer: str) -> tuple[Token, ...]:
    """The tokens of `answer`, where the model's reasoning or white space stood before it; all where it is not found."""
    ends = list(accumulate(len(token.text) for token in tokens))
    start = "".join(token.text for token in tokens).rfind(answer)
    if start <= 0:
        return tokens
    return tuple(token for token, end in zip(tokens, ends, strict=True) if end > start)


def _token(entry: Mapping[str, Any]) -> Token:
    text, raw = _text(entry.get("token")), _bytes(entry.get("bytes"))
    return Token(
        text,
        _number(entry.get("logprob")),
        _top(entry.get("top_logprobs")),
        raw if raw is not None and raw != text.encode() else None,
    )


def _top(given: Any) -> tuple[tuple[str, float], ...]:
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(given, list):
        pairs = ((entry.get("token"), entry.get("logprob")) for entry in given if isinstance(entry, Mapping))
    elif isinstance(given, Mapping):  # the legacy form
        pairs = given.items()
    return tuple(
        (text, number) for text, given in pairs if isinstance(text, str) and (number := _number(given)) is not None
    )


def _text(given: Any) -> str:
    return given if isinstance(given, str) else ""


def _number(given: Any) -> float | None:
    """A logprob, or None for what is no number; a float that is a little over 0 by rounding is 0."""
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        return None
    return -math.inf if given <= _NEVER else 0.0 if given > 0 else float(given)


def _bytes(given: Any) -> bytes | None:
    try:
        return bytes(given) if isinstance(given, list) else None
    except (TypeError, ValueError):  # not numbers from 0 to 255
        return None
