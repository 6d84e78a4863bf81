"""Whether a server holds answers to a form, found out by asking for one that no free answer would have."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from fcjax.core.prompts import AnswerForm, Failure, Prompt, Reply
from fcjax.io.client import Client
from fcjax.io.constraints import Constrain, constraint

_CHOICES: Final = ("basalt-9", "granite-7")
_JSON: Final = AnswerForm.numbered((1,), _CHOICES)
_TEXT: Final = AnswerForm.one_of(_CHOICES)
_WAYS: Final[dict[str, tuple[AnswerForm, Constrain]]] = {  # the one to use goes first
    "choice": (_TEXT, "choice"),
    "guided_choice": (_TEXT, "guided_choice"),
    "grammar": (_TEXT, "grammar"),
    "auto": (_JSON, "auto"),
    "json_schema": (_TEXT, "json_schema"),  # last: quotes that a label was not asked for in may change it
}


@dataclass(frozen=True, slots=True)
class ConstraintFindings:
    """What a server does with each way to constrain answers: `enforced`, `ignored`, `refused` or `failed`."""

    ways: dict[str, str]

    @property
    def best(self) -> str:
        """The value of `--constrain` to use."""
        return next((way for way, found in self.ways.items() if found == "enforced"), "none")

    @property
    def json(self) -> bool:
        """Whether answers in JSON are constrained."""
        return self.ways["auto"] == "enforced"

    @property
    def words(self) -> str:
        """The findings as a sentence."""
        if self.best == "none":
            refused = "refused" in self.ways.values()
            why = "the server refuses to constrain them" if refused else "the server ignores the fields that do it"
            return f"answers are free: {why}; use --constrain none"
        labels = "JSON only" if self.best == "auto" else "labels and JSON" if self.json else "labels only"
        return f"the server can hold answers to their form ({labels}): use --constrain {self.best}; {self.seen}"

    @property
    def seen(self) -> str:
        """What was found of each way."""
        return ", ".join(f"{way} {found}" for way, found in self.ways.items())


async def find_constraints(client: Client) -> ConstraintFindings:
    """What the client's server does with each way to constrain answers, by one small prompt each."""
    return ConstraintFindings({way: await _find(client, *how) for way, how in _WAYS.items()})


async def _find(client: Client, form: AnswerForm, how: Constrain) -> str:
    prompt = Prompt(
        messages=(("user", "Is water wet? Answer yes or no."),),
        template="doctor.constrain/1",
        max_tokens=32,
        options=constraint(form, how),
    )
    answer = await client.ask(prompt)
    if isinstance(answer, Failure):
        return "refused" if answer.kind == "invalid_request" else "failed"
    return "enforced" if _is_held(answer, form) else "ignored"


def _is_held(reply: Reply, form: AnswerForm) -> bool:
    """Whether a reply is what only the form makes it; JSON strings are as good as plain ones."""
    if form.schema is None and reply.text.strip() in form.choices:
        return True
    try:
        value: Any = json.loads(reply.text)
    except (ValueError, RecursionError):
        return False
    if form.schema is not None:
        value = value.get("1") if isinstance(value, dict) and len(value) == 1 else None
    return value in _CHOICES
