"""Tokens of a call: the estimate before it is made, and the number billed after it."""

from __future__ import annotations

from fcjax.core.prompts import Prompt, Reply, Usage
from fcjax.io.outcome import Outcome, StepDown


def estimated_tokens(prompt: Prompt) -> int:
    """Tokens of a prompt, estimated at four bytes per token plus each message's overhead. Not a bound."""
    return sum(len(content.encode("utf-8", "replace")) // 4 + 5 for _, content in prompt.messages) + 3


def longest_answer(prompt: Prompt) -> int:
    """Tokens of the longest answer requested: options replace the prompt's own `max_tokens`."""
    given = (prompt.options.get(name) for name in ("max_completion_tokens", "max_tokens"))
    return next((most for most in given if isinstance(most, int)), prompt.max_tokens)


def billed(outcome: Outcome, expected: Usage) -> Usage:
    """Tokens of a call: as reported by the server, estimated where a reply has none, zero for a call that failed."""
    match outcome:
        case StepDown():
            return Usage()
        case Reply(usage=None):
            return Usage(expected.prompt, len(outcome.text.encode("utf-8", "replace")) // 4 + 1)
    return outcome.usage or Usage()
