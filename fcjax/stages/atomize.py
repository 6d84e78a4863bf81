"""Atomizing: what a response claims, one fact per atom (SPEC 1).

The facts are asked for as a list, and nothing but a list is taken for facts. What cannot come from the response, since
it has hardly a word in common with it, is left out; an answer that is mostly of that kind is rejected. Passages that no
fact covers (`fcjax.stages.coverage`) are asked about once more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fcjax.core.checks import check_number
from fcjax.core.prompts import AnswerForm, Prompt, Reply
from fcjax.core.records import Atom, Case, Status
from fcjax.core.word_overlap import shared
from fcjax.core.words import content_words, has_unspaced
from fcjax.stages.answers import AT_ONCE, DIVISIBLE, Ask, CountingAsk, Reject, answers_to, each, is_cut
from fcjax.stages.chunks import chunks
from fcjax.stages.coverage import coverage
from fcjax.stages.missing_facts import REST, missing, passages, rest_prompt
from fcjax.stages.parsing.list_parser import own_words, read_list
from fcjax.stages.parsing.refusals import declines
from fcjax.stages.templates import QUOTATION, Template, quoted, quoted_lines, unquoted
from fcjax.stages.traces import traced

ATOMIZE: Final = Template(
    "atomize/1",
    f"""\
Take apart what a text claims, so that every claim in it can be checked by itself. The text is a part of someone's \
answer to a question.

A fact is one short, complete sentence that makes one claim, which is either true or false.
- List every claim that the text makes, in its order. A sentence that makes several claims gives several facts.
- State each one as the text does, even if you know it to be wrong. Add nothing that the text does not say.
- Each fact must be clear to someone who reads nothing else: write names instead of "he", "it" or "the film". The \
question and what stands before and after the text are there to tell you what it speaks of; list no facts from them.
- A word, a number, a list or the row of a table answers the question: say in a sentence what it claims.
- Leave out greetings, questions, advice, opinions, and remarks about the answer itself.
- Write in the language of the text.

Example. The text "Marie and her sister moved to Lyon in 1902, where she opened a bakery. Do try it!" gives
["Marie moved to Lyon in 1902.", "Marie's sister moved to Lyon in 1902.", "Marie opened a bakery in Lyon."]

{QUOTATION}

<question>
$question
</question>

<before>
$before
</before>

<text>
$text
</text>

<after>
$after
</after>

Answer with the facts of the text as one JSON list of strings, and nothing else. If it claims nothing, answer []. If \
all that it does is to decline to answer the question, answer with the single word REFUSED.""",
)

_REQUEST: Final = (
    "No list of the text's facts could be read. Answer again, with one JSON list of strings, each of them a sentence "
    "that says what the text claims, and nothing else; with [] if it claims nothing."
)

_FORM: Final = AnswerForm.texts(instead="REFUSED")
"""What `ATOMIZE` asks for; another template may ask for another form."""
_REST_FORM: Final = AnswerForm.texts()
_SMALLEST: Final = 500  # characters; a shorter part is not divided again
LONGEST: Final = 600
"""Characters of a fact: a sentence, not a paragraph."""
_NONE: Final = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomizer:
    """Settings for extracting the facts of a response.

    A response is asked about in parts of at most `chunk` characters, each with `around` characters of what stands
    before it and half as many of what follows. `grounded` is the least share of a fact's words that the text or the
    question must have (see `likeness`); 0 lets all pass. `max_tokens` is the most that an answer may have; shorter
    parts may have fewer. `rest` asks once more about the passages of a part that no fact covers; None does not ask.
    Raises `SettingsError`.
    """

    template: Template = ATOMIZE
    rest: Template | None = REST
    chunk: int = 4000
    around: int = 600
    grounded: float = 0.3
    max_tokens: int = 4096
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        for name, least in (("chunk", 1), ("around", 0), ("max_tokens", 1), ("at_once", 1)):
            check_number(name, getattr(self, name), least, 2**31 - 1, whole=True)
        check_number("grounded", self.grounded, 0, 1)

    async def run(self, case: Case, ask: Ask, reject: Reject | None = None) -> Case:
        """The case with its atoms a0, a1, ... in the order of the response, exact duplicates dropped; those of passages
        that had to be asked about once more come last.

        Where there are none, they are (), the status says why (`no_atoms`, or `refused` where the response declines to
        answer), and `reason` in `extra` says so in words. Where a part of the response has no answer, the atoms are not
        known, and the status is `atomize_failed`. A case that has atoms, or has failed otherwise, comes back as it is.
        """
        trace: dict[str, Any] = {"template": self.template.name, "prompts": 0}
        if (done := without_work(case, trace)) is not None:
            return done
        response = case.response or ""
        counted = CountingAsk(ask)
        work = _Work(self, case.query or "", response, counted, reject)
        spans = _spans(response, 0, len(response), self.chunk)
        found = await each(work.facts, spans, self.at_once)
        parts = [part for those in found for part in those]
        if self.rest and not any(part.why or part.refused for part in parts):
            parts += await work.rest(spans, found, self.rest)
        return _with(replace(case, extra=traced(case, "atomize", trace | _told(parts, counted.prompts))), parts)


@dataclass(frozen=True, slots=True)
class _Part:
    """What was read about a part of a response; `why` says why nothing was."""

    facts: tuple[str, ...] = ()
    refused: bool = False
    cut: bool = False
    dropped: Counter[str] = field(default_factory=Counter)
    why: str | None = None
    passages: int = 0  # asked about once more
    lost: bool = False  # whether that question had no answer


@dataclass(frozen=True, slots=True)
class _Work:
    """The facts of one response."""

    how: Atomizer
    query: str
    response: str
    ask: Ask
    reject: Reject | None

    async def facts(self, span: tuple[int, int]) -> list[_Part]:
        """What a part claims; it is divided where it is too much for one answer."""
        start, end = span
        text = self.response[start:end]
        if not any(sign.isalnum() for sign in text):
            return [_Part()]
        before = self.response[max(start - self.how.around, 0) : start]
        after = self.response[end : end + self.how.around // 2]
        source = content_words(f"{self.query} {before}{text}{after}")
        prompt = Prompt(
            messages=(
                (
                    "user",
                    self.how.template.fill(
                        question=quoted(self.query) or _NONE,
                        before=quoted_lines(before) or _NONE,
                        text=quoted_lines(text),
                        after=quoted_lines(after) or _NONE,
                    ),
                ),
            ),
            template=self.how.template.name,
            max_tokens=min(512 + len(text.encode("utf-8", "replace")), self.how.max_tokens),
            answer=_FORM if self.how.template == ATOMIZE else None,
        )

        divisible = len(text) >= 2 * _SMALLEST
        partial: list[_Part] = []

        def read(reply: Reply) -> dict[int, _Part]:
            found = self.read(reply, prompt.messages[0][1], source)
            if 0 in found and found[0].cut and reply.finish != "length" and not divisible:
                partial.append(found.pop(0))  # asked for again, as it had room; kept in case that no answer is whole
            return found

        asked = await answers_to(prompt, 1, read, lambda _: _REQUEST, self.ask, self.reject, what="list of facts")
        part = asked.answers.get(0) or max(partial, key=lambda one: len(one.facts), default=_Part(why=asked.why))
        too_much = part.cut or (asked.failure is not None and asked.failure.kind in DIVISIBLE)
        if too_much and divisible:
            return [
                one for half in _spans(self.response, start, end, -(-len(text) // 2)) for one in await self.facts(half)
            ]
        return [part]

    async def rest(self, spans: list[tuple[int, int]], found: list[list[_Part]], template: Template) -> list[_Part]:
        """The facts of the passages that no fact covers; without an answer, none, which does not fail the case but
        makes the stage one to be repeated."""
        known = [[fact for part in parts for fact in part.facts] for parts in found]
        gaps = coverage(self.response, [fact for facts in known for fact in facts]).gaps

        async def asked(span: tuple[int, int]) -> _Part:
            text = self.response[max(span[0] - self.how.around, 0) : span[1]]
            left, mine = passages(self.response, gaps, span), known[spans.index(span)]
            prompt = rest_prompt(template, self.query, text, mine, left)
            most = min(512 + len(text.encode("utf-8", "replace")), self.how.max_tokens)
            form = _REST_FORM if template == REST else None
            prompt, source = replace(prompt, max_tokens=most, answer=form), content_words(f"{self.query} {text}")

            def read(reply: Reply) -> dict[int, _Part]:
                return self.read(reply, prompt.messages[0][1], source)

            answer = await answers_to(prompt, 1, read, lambda _: _REQUEST, self.ask, self.reject, what="list of facts")
            facts = missing(self.response[span[0] : span[1]], mine, answer.answers.get(0, _Part()).facts)
            return _Part(facts, passages=len(left), lost=answer.failure is not None)

        return await each(asked, [span for span in spans if passages(self.response, gaps, span)], self.how.at_once)

    def read(self, reply: Reply, prompt: str, source: frozenset[str]) -> dict[int, _Part]:
        """What an answer says; empty where it is not a list of facts."""
        text, cut = own_words(reply.text, prompt), is_cut(reply)
        items = read_list(text, cut)
        facts = [unquoted(item) for item in ([text] if items is None else items)]
        if facts and all(_REFUSED.fullmatch(fact) for fact in facts):
            return {0: _Part(refused=True)}
        doubts = [self.doubt(fact, source) for fact in facts]
        nothing = (
            _claims_nothing(fact) and (doubt or items is None) for fact, doubt in zip(facts, doubts, strict=True)
        )
        if not cut and all(nothing):
            return {0: _Part()}
        kept = tuple(fact for fact, doubt in zip(facts, doubts, strict=True) if not doubt)
        if items is None or 2 * len(kept) < len(facts) or not kept:
            return {}
        return {0: _Part(kept, cut=cut, dropped=Counter(doubt for doubt in doubts if doubt))}

    def doubt(self, fact: str, source: frozenset[str]) -> str | None:
        """Why a text cannot be a fact of the response; None where it can."""
        if len(fact) > LONGEST:
            return "too_long"
        if not _is_statement(fact):
            return "no_statement"
        return "ungrounded" if shared(fact, source) < self.how.grounded else None


def _with(case: Case, parts: list[_Part]) -> Case:
    """The case with the facts of all parts, or with the reason why there are none."""
    failed = [(number, part.why) for number, part in enumerate(parts, 1) if part.why]
    if failed:
        number, why = failed[0]
        where = f"part {number} of {len(parts)}: " if len(parts) > 1 else ""
        return ended(case, Status.ATOMIZE_FAILED, f"{where}{why}", None)
    facts = dict.fromkeys(fact for part in parts for fact in part.facts)
    if facts:
        return with_atoms(case, facts)
    if any(part.refused for part in parts):
        return ended(case, Status.REFUSED, "the response declines to answer", ())
    return ended(case, Status.NO_ATOMS, "the model found no factual claim in the response", ())


def _told(parts: list[_Part], prompts: int) -> dict[str, Any]:
    facts = [fact for part in parts for fact in part.facts]
    return {
        "prompts": prompts,
        "parts": sum(not part.passages for part in parts),
        "facts": len(facts),
        "duplicates": len(facts) - len(set(facts)),
        "dropped": dict(sum((part.dropped for part in parts), Counter[str]())),
        "cut": sum(part.cut for part in parts),
        "failed": sum(part.why is not None or part.lost for part in parts),
        "rest_failed": sum(part.lost for part in parts),
        "asked_again": sum(part.passages for part in parts),
        "added": sum(len(part.facts) for part in parts if part.passages),
    }


def without_work(case: Case, trace: Mapping[str, Any]) -> Case | None:
    """The case as it comes back where there is nothing to split, with the `trace` of the stage: it has atoms or has
    failed otherwise, or its response is missing, has no words, or declines to answer. None where there is."""
    if case.atoms is not None or (case.status.failed and case.status is not Status.ATOMIZE_FAILED):
        return case
    response = case.response
    if response is None:
        return ended(case, Status.INVALID_INPUT, "there is no response to extract facts from", None)
    if not any(sign.isalnum() for sign in response):
        case = replace(case, extra=traced(case, "atomize", trace))
        return ended(case, Status.NO_ATOMS, "the response has no words", ())
    if declines(response):
        case = replace(case, extra=traced(case, "atomize", trace))
        return ended(case, Status.REFUSED, "the response declines to answer", ())
    return None


def with_atoms(case: Case, texts: Iterable[str]) -> Case:
    """The case with an atom for each text, and without the failure of an earlier run."""
    atoms = tuple(Atom(id=f"a{i}", text=text) for i, text in enumerate(texts))
    extra = {key: value for key, value in case.extra.items() if key != "reason" or not case.status.failed}
    return replace(case, atoms=atoms, status=Status.OK, extra=extra)


def ended(case: Case, status: Status, reason: str, atoms: tuple[Atom, ...] | None) -> Case:
    """The case without atoms, with the status and the reason for that."""
    return replace(case, status=status, atoms=atoms, extra={**case.extra, "reason": reason})


def _spans(text: str, start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Where the pieces of a part of a text begin and end."""
    spans = []
    for piece in chunks(text[start:end], size):
        spans.append((start, start + len(piece)))
        start += len(piece)
    return spans


def _is_statement(text: str) -> bool:
    """Whether a text can be a sentence that claims something: a question cannot, nor a single word."""
    if text.endswith(("?", "？", "؟")) or not any(sign.isalpha() for sign in text):
        return False
    return len(text.split()) > 1 or (has_unspaced(text) and len(text) >= 3)


_REFUSED: Final = re.compile(r"[\W_]*(?:(?i:refus(?:ed|al))[\W_]*|REFUSED\b.{0,160})")
_NOTHING: Final = re.compile(
    r"\b(?:no|any|zero|without)\s+(?:\w+\s+)?(?:factual|verifiable|checkable|atomic)\s+"
    r"(?:\w+\s+)?(?:claims?|statements?|assertions?|content|information|facts?)\b"
    r"|\bno\s+(?:facts|claims)\b|^\W*(?:none|n/?a|nothing|no|empty)\W*$",
    re.IGNORECASE,
)
_REMARK: Final = 200  # characters of a remark that there are no facts, at most


def _claims_nothing(text: str) -> bool:
    """Whether a model says, in words, that there are no facts."""
    return len(text) <= _REMARK and _NOTHING.search(text) is not None
