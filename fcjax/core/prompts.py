"""Prompts to a language model and its replies: the records passed between the stages and the client.

A stage makes a `Prompt` and reads a `Reply`; a client turns the one into the other. Neither knows of the other's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form that the wording of a prompt asks for: one of `choices`, word for word, or JSON that fits `schema`.

    A client may have the server hold its model to the form. That restricts the answer and does not explain it: the
    wording must ask for the same. Make it with `one_of`, `numbered` or `texts`.
    """

    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None

    @classmethod
    def one_of(cls, choices: Iterable[str]) -> Self:
        """One of these texts and nothing else, without quotes round it."""
        return cls(tuple(choices))

    @classmethod
    def numbered(cls, numbers: Iterable[int], choices: Sequence[str] = ()) -> Self:
        """A JSON object from each of the numbers to a string, which is one of `choices` where there are any."""
        value = {"type": "string", "enum": list(choices)} if choices else {"type": "string"}
        keys = [str(number) for number in numbers]
        schema = {"type": "object", "properties": dict.fromkeys(keys, value), "required": keys}
        return cls(schema={**schema, "additionalProperties": False})

    @classmethod
    def texts(cls, instead: str | None = None) -> Self:
        """A JSON list of strings, or the word `instead` as a JSON string."""
        schema: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
        return cls(schema={"anyOf": [schema, {"type": "string", "enum": [instead]}]} if instead else schema)

    @property
    def kind(self) -> str:
        """What kind of form it is: `choice`, or the type of the JSON: `object`, `array`, `any`.

        A server that takes one kind may refuse another: OpenAI takes objects only.
        """
        return str(self.schema.get("type", "any")) if self.schema is not None else "choice"

    def only(self, numbers: Iterable[int]) -> Self:
        """The form of an answer about these numbers only; the same form where it has none."""
        if self.schema is None or self.kind != "object":
            return self
        keys = [key for number in numbers if (key := str(number)) in self.schema["properties"]]
        properties = {key: self.schema["properties"][key] for key in keys}
        return replace(self, schema={**self.schema, "properties": properties, "required": keys}) if keys else self

    def is_begun(self, text: str) -> bool:
        """Whether a text is the beginning of a choice and may not be the whole one, with or without quotes round it.

        An answer that was cut off there is not known.
        """
        said = text.strip().strip('"').strip()
        return any(choice.startswith(said) and choice != said for choice in self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt for a chat model, with everything that affects its answer.

    `template` names the template and its version (`relate.pairwise/1`), so that a new wording is a new question;
    `sample` distinguishes repeated draws of one question. `options` are further fields of the request's body, such as
    `response_format`, and belong to the question as well. `answer` is the form that the messages ask for: what a client
    makes of it becomes part of the options, and so of the question, where the server is asked to hold to it.
    """

    messages: tuple[tuple[str, str], ...]  # (role, content)
    template: str
    max_tokens: int = 512
    temperature: float = 0.0
    top_logprobs: int | None = None  # alternatives wanted beside every token's logprob; None asks for no logprobs
    sample: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    answer: AnswerForm | None = None


class Token(NamedTuple):
    """One token of a reply; logprobs are natural logs. `raw` are its bytes where text cannot hold them.

    A tuple, since a reply has hundreds and a frozen dataclass takes four times as long to make.
    """

    text: str
    logprob: float | None  # None where the server gave none, -inf where it said so
    top: tuple[tuple[str, float], ...] = ()  # the likeliest tokens at this place and their logprobs
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a call was billed for."""

    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's answer: never an error, and never empty.

    `text` is the answer without its reasoning. `tokens` are None where no logprobs came. `cost` is in US dollars, None
    where the price is unknown; `seconds` is the time of the call that succeeded, `attempts` counts it and the failed
    ones before it.
    """

    text: str
    tokens: tuple[Token, ...] | None = None
    finish: str = "stop"  # `length` where the answer was cut off
    model: str | None = None  # as the server names it
    usage: Usage | None = None
    cost: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    reasoning: str | None = None


class PendingError(Exception):
    """The reply to a prompt comes later, from a batch file. Asking raises it, so that nothing is made of a prompt that
    has neither a reply nor failed: what depends on the reply waits."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a prompt has no reply. A failure is never a verdict (SPEC 3).

    `kind` is one word for counting (`refused`, `content_filter`, `context_overflow`, `rate_limit`, `timeout`,
    `unauthorized`, `not_found`, `budget`, `replay_miss`, ...); `reason` says it in full, without secrets.
    """

    kind: str
    reason: str
    attempts: int = 0
