"""A row of the store as a line of JSON, written by `fcjax cache export` or by hand.

    {"kind": "chat", "source": "http://127.0.0.1/v1", "model": "m", "prompt": {"messages": [["user", "?"]],
     "template": "relate.pairwise/1"}, "answer": {"text": "[Neutral]"}}
    {"kind": "search", "asked": {"retriever": "wikipedia/2:en:4000", "query": "Rome", "k": 3}, "answer": {"found":
     [{"title": "Rome", "text": "...", "link": "https://en.wikipedia.org/wiki/Rome"}]}}

A field that is left out has the default of a `Prompt`, a `Reply` or a `Passage`. The key follows from the question;
where it is given as well, it must match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fcjax.core.checks import is_number
from fcjax.core.prompts import Failure, Prompt
from fcjax.io.entries import (
    ANSWERED,
    CHAT,
    MOST,
    SEARCH,
    DamagedError,
    FieldError,
    failed_status,
    pack,
    pack_answer,
    pack_prompt,
    prompt_key,
    read_answer,
    read_found,
    search_key,
    unpack,
)

NAMES: Final = ("kind", "status", "source", "model", "template")
NUMBERS: Final = ("prompt_tokens", "completion_tokens", "cost", "seconds", "attempts", "created")

_ASKED: Final = {CHAT: "prompt", SEARCH: "asked"}
_WHOLE: Final = ("prompt_tokens", "completion_tokens", "attempts")
_MOST: Final = {"created": 253_402_300_799}  # the last second of the year 9999


class RowError(ValueError):
    """A line that is not a row; the message says what was found and what is allowed."""


def row_document(row: tuple[Any, ...]) -> dict[str, Any]:
    """A row, whose columns are the key, `NAMES`, `NUMBERS`, `asked` and `answer`, as JSON. Raises `DamagedError`."""
    key, *columns, asked, answer = row
    if not isinstance(key, bytes) or any(isinstance(value, bytes) for value in columns):
        raise DamagedError("a column has the wrong type")
    values = dict(zip((*NAMES, *NUMBERS), columns, strict=True))
    return {"key": key.hex(), **values, _ASKED.get(values["kind"], "asked"): unpack(asked), "answer": unpack(answer)}


def read_row(document: Any, now: float) -> dict[str, Any]:
    """The columns of a row, by name, and whether it is `dated`; `now` is the date of one that is not, in Unix time.

    Raises `RowError`.
    """
    try:
        row = _read_row(document, now)
    except RecursionError:
        raise RowError("the line is nested too deeply") from None
    for name in NAMES:
        if not _is_storable(row[name]):
            raise RowError(f"{name} is {row[name]!r:.60}; allowed: text without half characters")
    return row


def _read_row(document: Any, now: float) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise RowError(f"the line is a JSON {type(document).__name__}; allowed: an object")
    kind = document.get("kind", CHAT)
    if not isinstance(kind, str) or kind not in _ASKED:
        raise RowError(f"kind is {kind!r:.60}; allowed: {' or '.join(_ASKED)}")
    for name in (_ASKED[kind], "answer"):
        if not isinstance(document.get(name), dict):
            raise RowError(f"{name} is {document.get(name)!r:.60}; allowed: an object")
    known = {"key", *NAMES, *NUMBERS, _ASKED[kind], "answer"}
    if unknown := sorted(set(document) - known):
        raise RowError(f"the fields {', '.join(unknown):.200} are unknown; allowed: {', '.join(sorted(known))}")
    key, columns, attempts = (_chat if kind == CHAT else _search)(document)
    if document.get("key", key) != key:
        raise RowError(f"key is {document['key']!r:.80}, but the question's key is {key}; leave the key out")
    return {
        "key": bytes.fromhex(key),
        "kind": kind,
        **columns,
        **{name: _number(document, name) for name in ("prompt_tokens", "completion_tokens", "cost", "seconds")},
        "attempts": attempts if document.get("attempts") is None else _number(document, "attempts"),
        "created": now if document.get("created") is None else _number(document, "created"),
        "dated": document.get("created") is not None,
    }


def _chat(document: Mapping[str, Any]) -> tuple[str, dict[str, Any], int]:
    source, model = (_name(document, name) for name in ("source", "model"))
    prompt = _prompt(document["prompt"], hand_made="key" not in document)
    if document.get("template") not in (None, prompt.template):
        raise RowError(f"template is {document['template']!r:.80}, but the prompt's is {prompt.template!r}")
    whole = {"tokens": None, "usage": None, "attempts": 1} | document["answer"]
    answer = _answered(lambda: read_answer(whole))
    try:
        key, asked = prompt_key(source, model, prompt), pack_prompt(prompt)
    except TypeError as error:
        raise RowError(f"prompt is not JSON ({error!s:.200})") from error
    columns = {
        "status": _status(document, answer),
        "source": source,
        "model": model,
        "template": prompt.template,
        "asked": asked,
        "answer": pack_answer(answer),
    }
    return key, columns, answer.attempts


def _search(document: Mapping[str, Any]) -> tuple[str, dict[str, Any], int]:
    asked = document["asked"]
    retriever, query, k = (asked.get(name) for name in ("retriever", "query", "k"))
    if not (isinstance(retriever, str) and isinstance(query, str) and is_number(k, 1, whole=True)):
        raise RowError(f"asked is {dict(asked)!r:.120}; allowed: the strings retriever and query, and the number k")
    found = _answered(lambda: read_found({"attempts": 1} | document["answer"]))
    columns = {
        "status": _status(document, found),
        "source": retriever,
        "model": "",
        "template": "",
        "asked": pack({"retriever": retriever, "query": query, "k": k}),
        "answer": pack_answer(found),
    }
    return search_key(retriever, query, k), columns, found.attempts if isinstance(found, Failure) else 1


def _prompt(given: Mapping[str, Any], *, hand_made: bool) -> Prompt:
    messages = given.get("messages")
    pairs: list[tuple[str, str]] = []
    for message in messages if isinstance(messages, list) else [None]:
        match message:
            case [str(role), str(content)] | {"role": str(role), "content": str(content)}:
                pairs.append((role, content))
            case _:
                raise RowError(f"prompt.messages is {messages!r:.120}; allowed: pairs of role and content")
    if not isinstance(given.get("template"), str):
        raise RowError(f"prompt.template is {given.get('template')!r:.60}; allowed: a template's name and version")
    if "answer" in given:
        raise RowError(f"prompt.answer is {given['answer']!r:.60}; allowed: the fields of a prompt that are sent")
    try:
        prompt = Prompt(**{**given, "messages": tuple(pairs)})
    except TypeError as error:
        raise RowError(f"prompt is invalid ({error!s:.200}); allowed: the fields of a prompt") from error
    for name in ("max_tokens", "sample"):
        if not is_number(getattr(prompt, name), 0, whole=True):
            raise RowError(f"prompt.{name} is {getattr(prompt, name)!r:.60}; allowed: a whole number of 0 or more")
    if prompt.top_logprobs is not None and not is_number(prompt.top_logprobs, 0, MOST, whole=True):
        raise RowError(f"prompt.top_logprobs is {prompt.top_logprobs!r:.60}; allowed: a whole number of 0 or more")
    if not (is_number(prompt.temperature, 0) and isinstance(prompt.options, dict)):
        raise RowError("prompt.temperature or prompt.options is invalid; allowed: a number, an object")
    # A temperature written by hand as 0, and not 0.0, would be another key.
    return replace(prompt, temperature=float(prompt.temperature)) if hand_made else prompt


def _answered(read: Any) -> Any:
    try:
        return read()
    except FieldError as error:
        raise RowError(f"answer.{error}") from error
    except DamagedError as error:
        raise RowError(f"answer is invalid ({error!s:.200}); allowed: a reply, search results, or a failure") from error


def _status(document: Mapping[str, Any], answer: Any) -> str:
    """A row's status; what is stored for a failure follows from the failure."""
    if isinstance(answer, Failure):
        return failed_status(answer)
    status = document.get("status", ANSWERED)
    if not isinstance(status, str) or not status:
        raise RowError(f"status is {status!r:.60}; allowed: a word such as {ANSWERED}")
    return status


def _name(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise RowError(f"{name} is {value!r:.60}; allowed: a non-empty string")
    return value


def _number(document: Mapping[str, Any], name: str) -> Any:
    value = document.get(name)
    most = _MOST.get(name, MOST)
    if value is not None and not is_number(value, 0, most, whole=name in _WHOLE):
        raise RowError(f"{name} is {value!r:.60}; allowed: a number from 0 to {most}")
    return value


def _is_storable(text: str) -> bool:
    """Whether a column of text can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
