"""Refining: a model rewrites a response by the critic's feedback (SPEC 6, y' = refine(y, feedback))."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fcjax.core.checks import check_number
from fcjax.core.prompts import Failure, Prompt, Reply
from fcjax.core.records import Case
from fcjax.correction.revision import ANSWER, Revision, editable, revision
from fcjax.scoring.findings import Evidence, Feedback, Finding
from fcjax.stages.answers import Ask, Reject
from fcjax.stages.templates import QUOTATION, Template, quoted

REFINE: Final = Template(
    "refine/1",
    f"""\
A question and a response to it are given below, with what was found out about the response: statements of it that are \
false, each with the passages that contradict or entail it, and statements that nobody could verify. Rewrite the \
response so that it is right.

1. Put every false statement right by what the passages say. The probabilities say how sure it is that a passage \
contradicts or entails the statement; where passages disagree, go by the more probable ones. Where they do not say \
what is right, take the statement out.
2. Take out every unverified statement.
3. Take out or put right what rests on a false or unverified statement, wherever in the response it stands.
4. Keep all else as it is, word for word where that is possible: order, language, style, form and about the length. \
Add nothing that the response does not need.
5. Do not speak of passages, probabilities, statements or corrections: the reader has seen none of them.

{QUOTATION}

<question>
$question
</question>

<response>
$response
</response>

<false_statements>
$false
</false_statements>

<unverified_statements>
$unverified
</unverified_statements>

<passages>
$passages
</passages>

{ANSWER}""",
)

NONE: Final = "(none)"
SHORTER: Final = 4
"""A prompt that is too long for the model is sent once more, with passages this many times shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refiner:
    """The prompt that asks for a rewritten response.

    It has all passages connected to a false statement (SPEC 6), up to `excerpt` characters of each. Raises
    `SettingsError`.
    """

    template: Template = REFINE
    max_tokens: int = 4096
    temperature: float = 0.0
    excerpt: int = 1200

    def __post_init__(self) -> None:
        check_number("max_tokens", self.max_tokens, 1, 2**31 - 1, whole=True)
        check_number("temperature", self.temperature, 0, 10)
        check_number("excerpt", self.excerpt, 1, 2**31 - 1, whole=True)

    def prompt(self, case: Case, feedback: Feedback, excerpt: int | None = None) -> Prompt:
        """The prompt for a case with a response, from the feedback on it."""
        passages = _Passages(self.excerpt if excerpt is None else excerpt)
        false = "\n".join(line for n, one in enumerate(feedback.refuted, 1) for line in _false(n, one, passages))
        unverified = "\n".join(f"{n}. {_said(one)}" for n, one in enumerate(feedback.unverified, 1))
        content = self.template.fill(
            question=quoted(case.query or NONE),
            response=editable(case.response or ""),
            false=false or NONE,
            unverified=unverified or NONE,
            passages="\n".join(passages.lines()) or NONE,
        )
        return Prompt(
            messages=(("user", content),),
            template=self.template.name,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
        )

    async def run(self, case: Case, feedback: Feedback, ask: Ask, reject: Reject | None = None) -> Revision:
        """The response of `case`, rewritten by `feedback`, or why there is none. No reply makes it raise."""
        statements = [text for found in feedback.findings for text in (found.text, found.original) if text]
        too_long = False

        async def asked(prompt: Prompt) -> Reply | Failure:
            nonlocal too_long
            answer = await ask(prompt)
            too_long = isinstance(answer, Failure) and answer.kind == "context_overflow"
            return answer

        response = case.response or ""
        found = await revision(self.prompt(case, feedback), response, asked, reject, statements=statements)
        if found.text is None and too_long:
            prompt = self.prompt(case, feedback, max(self.excerpt // SHORTER, 1))
            found = await revision(prompt, response, ask, reject, statements=statements)
        return found


def _false(number: int, found: Finding, passages: _Passages) -> Iterator[str]:
    """The lines on a false statement: the evidence against it, then for it."""
    yield f"{number}. {_said(found)}"
    yield f"   probability of being true: {found.p:.2f}"
    for side, title in (("against", "contradicted by"), ("for", "entailed by")):
        ours = [
            f"{passages.name(one)} (probability {one.probability:.2f})" for one in found.evidence if one.side == side
        ]
        if ours:
            yield f"   {title}: {', '.join(ours)}"


def _said(found: Finding) -> str:
    """A statement, with its words in the response if those differ."""
    text, original = quoted(found.text), quoted(found.original or found.text)
    return text if text == original else f"{text} (in the response: {original})"


class _Passages:
    """Numbers the passages that are cited, P1, P2, ..., in order of first use."""

    def __init__(self, excerpt: int):
        self._excerpt = excerpt
        self._known: dict[str, Evidence] = {}

    def name(self, given: Evidence) -> str:
        self._known.setdefault(given.context, given)
        return f"P{list(self._known).index(given.context) + 1}"

    def lines(self) -> Iterator[str]:
        for number, given in enumerate(self._known.values(), 1):
            text = quoted(given.text)
            short = text if len(text) <= self._excerpt else text[: self._excerpt - 1] + "…"
            title = f" ({quoted(given.title)})" if given.title else ""
            yield f"P{number}{title}: {short}"
