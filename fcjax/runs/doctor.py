"""Whether an endpoint will do for relations, found out by asking it: what it can, how fast, and what to change."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Final

from fcjax.core.prompts import Failure, Prompt, Reply
from fcjax.core.records import DISTRIBUTED, RelationType
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.http import Timeouts, Transport
from fcjax.io.models import list_models
from fcjax.io.pacing import Retry
from fcjax.io.tokens import estimated_tokens
from fcjax.runs.constraint_check import find_constraints
from fcjax.runs.probe_pairs import PROBE_PAIRS
from fcjax.stages.relate import Pair, Question, RelationModel

_PREMISE: Final = (
    "The old lighthouse was built of granite in 1871. It is 41 metres high, and nobody has lived in it since 1960."
)
_KNOWN: Final = {  # what the premise says of each, beyond doubt
    "The lighthouse is higher than 40 metres.": RelationType.ENTAILMENT,
    "The lighthouse was built in 1921.": RelationType.CONTRADICTION,
    "The lighthouse keeper had three daughters.": RelationType.NEUTRAL,
}
_PASSAGE: Final = 4000  # characters that a context may have (SPEC 1)
_EXPECTED: Final = 0.8  # share of the probe pairs that a fit model judges correctly, at least
_CASE: Final = 26 * 53  # pairs of a long biography and its evidence


class Verdict(StrEnum):
    """What a finding means for relating."""

    GOOD = "good"
    LIMITED = "limited"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was found out, in words and numbers."""

    name: str
    verdict: Verdict
    words: str
    values: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON."""
        return {"name": self.name, "verdict": str(self.verdict), "words": self.words, **self.values}


async def examine(
    where: Endpoint | Transport,
    *,
    prompts: int = 32,
    concurrency: int = 16,
    max_tokens: int = 256,
    timeouts: Timeouts | None = None,
    random: Random | None = None,
) -> AsyncGenerator[Check, None]:
    """What can be found out about an endpoint by some `prompts` + 40 small prompts, as it is found out.

    Without an answer to the first prompt nothing more is asked. Nothing is stored.
    """
    context: int | None = None
    if isinstance(where, Endpoint):
        found, context = await _models(where)
        yield found
    client = Client(where, concurrency=concurrency, retry=Retry(attempts=3), timeouts=timeouts)
    async with client:
        model = RelationModel(max_tokens=max_tokens)
        questions = [Question((_pair(text),), model) for text in _KNOWN]
        replies = [await client.ask(questions[0].prompt())]
        yield _answer(replies[0])
        if isinstance(replies[0], Failure):
            return
        replies += [await client.ask(question.prompt()) for question in questions[1:]]
        yield _labels(questions, replies)
        yield _logprobs(questions, replies)
        yield await _judgement(client, model)
        pack = Question(tuple(map(_pair, _KNOWN)), RelationModel(style="packed", max_tokens=max_tokens))
        yield _packed(pack, await client.ask(pack.prompt()))
        yield await _forms(client)
        yield _context(context or await _context_by_refusal(client), max_tokens)
        yield await _speed(
            client, prompts, model, random or Random(), [r.seconds for r in replies if isinstance(r, Reply)]
        )


def _pair(hypothesis: str, premise: str = _PREMISE) -> Pair:
    return Pair("premise", "hypothesis", premise, hypothesis)


async def _models(endpoint: Endpoint) -> tuple[Check, int | None]:
    listed = await list_models(endpoint)
    if isinstance(listed, Failure):
        words = f"{endpoint.name} does not list its models ({listed.reason}); this alone is not a problem"
        return Check("models", Verdict.LIMITED, words), None
    names = [model.name for model in listed]
    values = {"models": names}
    for model in listed:
        if model.name == endpoint.model:
            return Check(
                "models", Verdict.GOOD, f"{endpoint.model} is one of {len(names)} listed", values
            ), model.context
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "none"
    words = f"{endpoint.model} is not listed (listed: {shown}); some servers answer to any name"
    only = listed[0].context if len(listed) == 1 else None
    return Check("models", Verdict.LIMITED, words, values), only


def _answer(reply: Reply | Failure) -> Check:
    if isinstance(reply, Failure):
        return Check("answer", Verdict.BAD, f"no answer: {reply.reason}", {"failure": reply.kind})
    values = {"seconds": round(reply.seconds, 3), "served": reply.model}
    if reply.reasoning:
        words = "the model reasons before it answers, which takes tokens and time: increase --max-tokens"
        return Check("answer", Verdict.LIMITED, words, values)
    return Check("answer", Verdict.GOOD, f"answered in {reply.seconds:.2f} s", values)


def _labels(questions: list[Question], replies: list[Reply | Failure]) -> Check:
    read = [
        question.read(reply)[0].label if isinstance(reply, Reply) and question.read(reply) else None
        for question, reply in zip(questions, replies, strict=True)
    ]
    count = sum(label is not None for label in read)
    right = sum(label is known for label, known in zip(read, _KNOWN.values(), strict=True))
    values = {"asked": len(read), "read": count, "right": right}
    if not count:
        shown = next((reply.text for reply in replies if isinstance(reply, Reply)), "")
        words = f"no label found in answers such as {shown[:80]!r}: relations would fail; use another model"
        return Check("labels", Verdict.BAD, words, values)
    words = f"{count} of {len(read)} answers can be read, {right} are correct (the questions are easy)"
    if count < len(read):
        words += "; unreadable answers are requested again, and may fail"
    if right < len(read):
        words += "; a stronger model may be worth its price"
    return Check("labels", Verdict.GOOD if right == len(read) else Verdict.LIMITED, words, values)


def _logprobs(questions: list[Question], replies: list[Reply | Failure]) -> Check:
    tokens = [token for reply in replies if isinstance(reply, Reply) for token in reply.tokens or ()]
    top = max((len(token.top) for token in tokens), default=0)
    answers = [q.read(r).get(0) for q, r in zip(questions, replies, strict=True) if isinstance(r, Reply)]
    probabilities = [round(answer.judged.p, 6) for answer in answers if answer and answer.judged is not None]
    values = {"top_logprobs": top, "probabilities": probabilities}
    remedy = "use --votes N to estimate probabilities from N more answers, or set a fixed one with --default P"
    if not tokens:
        return Check("logprobs", Verdict.LIMITED, f"not returned: {remedy}", values)
    if not probabilities:
        return Check("logprobs", Verdict.LIMITED, f"not returned for labels: {remedy}", values)
    if not top:
        words = "returned without alternatives: the remaining probability is assigned to the other labels"
        return Check("logprobs", Verdict.LIMITED, words, values)
    shown = ", ".join(f"{p:.4f}" for p in probabilities)
    words = f"{top} alternatives per token; label probabilities in this test: {shown}"
    return Check("logprobs", Verdict.GOOD, words, values)


async def _judgement(client: Client, model: RelationModel) -> Check:
    """Whether the model tells apart what a passage says, denies and leaves open, better than by chance."""
    questions = [Question((_pair(probe.hypothesis, probe.premise),), model) for probe in PROBE_PAIRS]
    said: dict[int, RelationType] = {}
    async for (place, question), answer in client.ask_all(
        enumerate(questions), prompt=lambda numbered: numbered[1].prompt()
    ):
        read = question.read(answer) if isinstance(answer, Reply) else {}
        said |= {place: read[0].label} if 0 in read else {}
    return judgement_of(said)


def judgement_of(said: Mapping[int, RelationType]) -> Check:
    """What the labels of the probe pairs say of a relation model; those by their place, without the unreadable ones."""
    asked = len(PROBE_PAIRS)
    if not said:
        words = "none of the answers to 30 easy pairs can be read: use another model"
        return Check("judgement", Verdict.BAD, words, {"asked": asked, "read": 0})
    right = sum(label is PROBE_PAIRS[place].label for place, label in said.items())
    low, high = accuracy_interval(right, asked)  # what cannot be read is not right
    counts = Counter(map(str, said.values()))
    most, often = counts.most_common(1)[0]
    values = {
        "asked": asked,
        "read": len(said),
        "right": right,
        "accuracy": round(right / asked, 4),
        "interval": [round(low, 4), round(high, 4)],
        "said": {str(label): counts[str(label)] for label in DISTRIBUTED},
    }
    words = f"{right} of {asked} easy pairs are judged correctly (95 % interval {low:.2f} to {high:.2f})"
    if unread := asked - len(said):
        words += f"; {unread} answers cannot be read"
    if often > len(said) / 2:
        words += f"; it says {most} {often} times, and 10 would be right"
    if low <= 1 / len(DISTRIBUTED):
        words += ": no better than chance; calibrate it (fcjax calibrate), or use another wording or model"
        return Check("judgement", Verdict.BAD, words, values)
    if right < _EXPECTED * asked:
        words += ": calibrate it before its verdicts are used (fcjax calibrate), or use a stronger model"
        return Check("judgement", Verdict.LIMITED, words, values)
    return Check("judgement", Verdict.GOOD, words, values)


def accuracy_interval(right: int, count: int) -> tuple[float, float]:
    """Wilson's (1927) interval of 95 % for the share of which `right` of `count` are a sample."""
    share, z = right / count, 1.959963984540054
    middle = share + z**2 / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max((middle - half) / (1 + z**2 / count), 0.0), min((middle + half) / (1 + z**2 / count), 1.0)


def _packed(question: Question, reply: Reply | Failure) -> Check:
    if isinstance(reply, Failure):
        return Check("packed", Verdict.LIMITED, f"no answer to a packed prompt: {reply.reason}; use --style pairwise")
    read = question.read(reply)
    right = sum(read[i].label is known for i, known in enumerate(_KNOWN.values()) if i in read)
    values = {"asked": len(_KNOWN), "read": len(read), "right": right}
    words = f"{len(read)} of {len(_KNOWN)} labels in a packed answer can be read, {right} are correct"
    if len(read) == right == len(_KNOWN):
        return Check("packed", Verdict.GOOD, f"{words}: --style packed will save prompts", values)
    return Check("packed", Verdict.LIMITED, f"{words}: use --style pairwise instead", values)


async def _forms(client: Client) -> Check:
    found = await find_constraints(client)
    verdict = Verdict.LIMITED if found.best == "none" else Verdict.GOOD
    return Check("forms", verdict, found.words, {"ways": found.ways, "use": found.best})


async def _context_by_refusal(client: Client) -> int | None:
    """The context size from the words with which an answer far beyond it is refused; None where it is not."""
    question = Prompt(messages=(("user", "Say ok."),), template="doctor.context/1", max_tokens=10_000_000)
    answer = await client.ask(question)
    found = _CONTEXT.search(answer.reason) if isinstance(answer, Failure) else None
    return int(found[1].replace(",", "")) if found else None


_CONTEXT: Final = re.compile(r"context (?:length|size|window)\D{1,30}([\d,]*\d)", re.IGNORECASE)


def _context(context: int | None, max_tokens: int) -> Check:
    model = RelationModel(max_tokens=max_tokens)
    passage = _pair("x" * 100, "x" * _PASSAGE)
    packed = RelationModel(style="packed", max_tokens=max_tokens)
    need = {
        "pairwise": _tokens(Question((passage,), model).prompt()),
        "packed": _tokens(Question((passage,) * packed.pack, packed).prompt()),
        "contexts": _tokens(Question((_pair("x" * _PASSAGE, "x" * _PASSAGE),), model).prompt()),
    }
    values = {"context": context, "needed": need}
    needs = (
        f"a long passage takes about {need['pairwise']:,} tokens with one atom, {need['packed']:,} with "
        f"{packed.pack}, {need['contexts']:,} with another passage (FR3)"
    )
    if context is None:
        return Check("context", Verdict.LIMITED, f"the endpoint does not report its context size; {needs}", values)
    if context >= max(need.values()):
        return Check("context", Verdict.GOOD, f"{context:,} tokens; {needs}", values)
    verdict = Verdict.LIMITED if context >= need["pairwise"] else Verdict.BAD
    words = (
        f"only {context:,} tokens: longer prompts fail with context_overflow; {needs}; serve the model with a longer "
        f"context"
    )
    return Check("context", verdict, words, values)


def _tokens(prompt: Prompt) -> int:
    return estimated_tokens(prompt) + prompt.max_tokens


async def _speed(client: Client, prompts: int, model: RelationModel, random: Random, alone: list[float]) -> Check:
    """Many prompts at once, none of which the server can have seen before."""
    numbers = (random.randrange(10**9) for _ in range(prompts))
    pairs = (_pair(f"Visitor {number} came.", f"Visitor {number} came by boat.") for number in numbers)
    stats = client.stats
    retries, failures, began = stats.retries, stats.failed.copy(), time.perf_counter()
    answered = 0
    async for _, answer in client.ask_all((Question((pair,), model) for pair in pairs), prompt=Question.prompt):
        answered += isinstance(answer, Reply)
    pace = answered / max(time.perf_counter() - began, 1e-9)
    failed = stats.failed - failures
    latency = statistics.median(alone)
    values = {
        "latency": round(latency, 3),
        "prompts": prompts,
        "answered": answered,
        "prompts_per_second": round(pace, 2),
        "repeated": stats.retries - retries,
        "failed": dict(failed),
    }
    if not answered:
        words = f"none of {prompts} concurrent prompts was answered ({', '.join(failed)}): lower --concurrency"
        return Check("speed", Verdict.BAD, words, values)
    words = (
        f"{latency:.2f} s for a single prompt, {pace:,.1f} prompts per second in parallel: a long case (26 atoms, 53 "
        f"contexts, FR2) takes about {_duration(_CASE / pace)} pairwise"
    )
    if failed or values["repeated"]:
        words += (
            f"; {failed.total()} of {prompts} failed and {values['repeated']} requests were repeated: "
            "lower --concurrency"
        )
        return Check("speed", Verdict.LIMITED, words, values)
    return Check("speed", Verdict.GOOD, words, values)


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
