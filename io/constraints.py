"""Constrained answers: how a server is asked to hold its model to the form that a prompt asks for.

The fields differ by server, and most servers ignore the ones that they do not know. Measured with llama.cpp, and as
documented by the others:

| field | for | taken by |
|---|---|---|
| `response_format` with a JSON schema | JSON | OpenAI (objects only), vLLM, SGLang, llama.cpp |
| `structured_outputs.choice` | choices | vLLM |
| `guided_choice` | choices | vLLM before 0.12 |
| `grammar` (GBNF) | choices | llama.cpp |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, Self, get_args

from fcjax.core.checks import check_choice
from fcjax.core.prompts import AnswerForm, Prompt

Constrain = Literal["auto", "none", "json_schema", "choice", "guided_choice", "grammar"]
"""What is constrained, and how.

JSON is constrained by `response_format` with all but `none`. A choice in plain text is constrained by the field that
the word stands for. `json_schema` makes it a JSON string: the quotes, which the prompt did not ask for, can change the
answer (a 0.5 B model's `[contradiction]` became `"[entailment]"`), so it is for those who have compared. `auto` leaves
choices free, since no field that keeps them as they are is common to all servers.
"""

FIELDS: Final = ("response_format", "structured_outputs", "guided_choice", "guided_json", "grammar", "json_schema",
                 "guided_regex", "guided_grammar", "regex", "ebnf")  # fmt: skip
"""Fields of a request that constrain the answer. Servers refuse two of them at once."""


class Question(NamedTuple):
    """A prompt as it is sent, and where its answer is stored."""

    sent: Prompt  # without a form, which is among its options
    key: str  # of what is sent
    keys: tuple[str, ...]  # under which an answer may be found, the best one first
    free: Prompt  # the prompt without a constraint
    constrained: str = ""  # the kind of form that the server is asked to hold the answer to; "" where it is free

    @classmethod
    def of(cls, free: Prompt, key: Callable[[Prompt], str]) -> Self:
        """The question of a prompt without a constraint; `key` gives a prompt's key in the store."""
        own = key(free)
        return cls(free, own, (own,), free)


class Constraints:
    """What a client asks its server to constrain, and what the server refuses.

    `options` are the endpoint's, which belong to every question. Raises `SettingsError` for an unknown `how`.
    """

    def __init__(
        self, how: Constrain, options: Mapping[str, Any], key: Callable[[Prompt], str], *, replay: bool = False
    ):
        check_choice("constrain", how, get_args(Constrain))
        self.refused: set[str] = set()  # kinds of forms that the server does not hold answers to
        self._how, self._options, self._key, self._replay = how, options, key, replay

    def question(self, given: Prompt) -> Question:
        """The prompt with the endpoint's options, and its answer constrained where that is wanted and not refused.

        The fields that constrain it are options, and so belong to the question. A stored answer without them is as good
        to a replay, and to `auto`, as it is paid for; a way that was chosen by name is asked for.
        """
        free, form = given, given.answer
        if self._options or form is not None:
            free = replace(given, options={**self._options, **given.options}, answer=None)
        fields = {} if form is None or is_constrained(free.options) else constraint(form, self._how)
        question = Question.of(free, self._key)
        if form is None or not fields:
            return question
        held = replace(free, options={**free.options, **fields})
        keys = self._key(held), question.key
        if form.kind in self.refused:
            return question._replace(keys=keys)
        either = self._replay or self._how == "auto"
        return Question(held, keys[0], keys if either else keys[:1], free, form.kind)


def constraint(form: AnswerForm, how: Constrain) -> dict[str, Any]:
    """The fields that hold an answer to its form; none where it is left free."""
    if how == "none" or (how == "auto" and form.schema is None):
        return {}
    if form.schema is not None:
        return _json(form.schema)
    match how:
        case "choice":
            return {"structured_outputs": {"choice": list(form.choices)}}
        case "guided_choice":
            return {"guided_choice": list(form.choices)}
        case "grammar":
            return {"grammar": gbnf(form.choices)}
    return _json({"type": "string", "enum": list(form.choices)})


def is_constrained(options: Mapping[str, Any]) -> bool:
    """Whether a request's options constrain the answer already."""
    return any(options.get(name) is not None for name in FIELDS)


def gbnf(choices: Sequence[str]) -> str:
    """The grammar of one of these texts, in llama.cpp's notation."""
    return "root ::= " + " | ".join(f'"{"".join(_ESCAPES.get(sign, sign) for sign in choice)}"' for choice in choices)


_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    named = {"name": "answer", "strict": True, "schema": dict(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}
