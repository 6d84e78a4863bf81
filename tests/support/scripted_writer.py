"""The scripted model, which rewrites and judges too: by the passages that it is shown, or by what it knows."""

from __future__ import annotations

import json
import re

import scripted_model
from scripted_model import THINGS, count
from scripted_server import Messages

_CLAIM = re.compile(r"Town (\d+) has (\d+) (\w+)")


def answer(messages: Messages) -> str:
    """The right answer to a question of any stage, method or judge."""
    content = messages[0]["content"]
    told = dict(re.findall(r"^<(\w+)>\n(.*?)\n</\1>$", content, re.DOTALL | re.MULTILINE))
    if "false_statements" in told:
        return revised(rewritten(told["response"], told["passages"], told["unverified_statements"]))
    if "verified_facts" in told:
        return revised(rewritten(told["response"], told["verified_facts"]))
    if "[true]" in content:
        return "[true]" if scripted_model.relation(told["passages"], told["statement"]) == "entailment" else "[false]"
    if "statements" in told and "passages" in told:
        return numbered(told["statements"], lambda one: _VERDICTS[scripted_model.relation(told["passages"], one)])
    if "statement" in told and "passages" in told:
        return revised(rewritten(told["statement"], told["passages"]))
    if "evidence" in told:
        return "<query>none</query><critique>none</critique>"
    if "response" in told:
        return revised(rewritten(told["response"], told.get("passages")))
    if "answer_1" in told:
        return "[same]" if told["answer_1"] == told["answer_2"] else "[different]"
    if "facts" in told:
        return numbered(told["facts"], lambda one: "covered" if said(one) <= said(told["text"]) else "missing")
    if messages[-1]["content"].startswith("Question:"):
        return rewritten(messages[-1]["content"].partition("Answer:\n")[2], None)
    return scripted_model.answer(messages)


def said(text: str) -> set[tuple[str, ...]]:
    """What a text says of towns."""
    return set(_CLAIM.findall(text))


_VERDICTS = {"entailment": "true", "contradiction": "false", "neutral": "not mentioned"}


def rewritten(response: str, passages: str | None, unverified: str = "") -> str:
    """A response by what passages say, without what is unverified; without passages by what is true."""
    known = {(town, thing): number for town, number, thing in _CLAIM.findall(passages or "")}
    if passages is None:
        known = {
            (town, thing): str(count(int(town), THINGS.index(thing))) for town, _, thing in _CLAIM.findall(response)
        }
    dropped = {(town, thing) for town, _, thing in _CLAIM.findall(unverified)}
    claims = [
        f"Town {town} has {known.get((town, thing), number)} {thing}."
        for town, number, thing in _CLAIM.findall(response)
        if (town, thing) not in dropped
    ]
    return " ".join(claims)


def revised(text: str) -> str:
    return f"<revised>\n{text}\n</revised>"


def numbered(listed: str, verdict) -> str:
    parts = (line.partition(". ") for line in listed.splitlines())
    return json.dumps({number: verdict(text) for number, _, text in parts})
