"""Prompts to a language model and its replies: the records passed between the stages and the client.

A stage makes a `Prompt` and reads a `Reply`; a client turns the one into the other. Neither knows of the other's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt for a chat model, with everything that affects its answer.

    `template` names the template and its version (`relate.pairwise/1`), so that a new wording is a new question;
    `sample` distinguishes repeated draws of one question. `options` are further fields of the request's body, such as
    `response_format`, and belong to the question as well.
    """

    messages: tuple[tuple[str, str], ...]  # (role, content)
    template: str
    max_tokens: int = 512
    temperature: float = 0.0
    top_logprobs: int | None = None  # alternatives wanted beside every token's logprob; None asks for no logprobs
    sample: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a prompt has no reply. A failure is never a verdict (SPEC 3).

    `kind` is one word for counting (`refused`, `content_filter`, `context_overflow`, `rate_limit`, `timeout`,
    `unauthorized`, `not_found`, `budget`, `replay_miss`, ...); `reason` says it in full, without secrets.
    """

    kind: str
    reason: str
    attempts: int = 0
