"""Summarising: a context is reduced to what it says about the atoms it was found for, or left out (SPEC 1)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fcjax.core.checks import check_number, is_number
from fcjax.core.prompts import Prompt, Reply
from fcjax.core.records import Atom, Case, Context, Status
from fcjax.core.word_overlap import shared
from fcjax.core.words import content_words
from fcjax.graph.selection import merge
from fcjax.stages.answers import AT_ONCE, Ask, CountingAsk, Reject, answers_to, each, is_cut
from fcjax.stages.parsing.json_like import Scalar
from fcjax.stages.parsing.labels import NEVER_CERTAIN
from fcjax.stages.parsing.list_parser import own_words, read_fields
from fcjax.stages.rewriting import usable
from fcjax.stages.templates import QUOTATION, Template, quoted, quoted_lines, unquoted
from fcjax.stages.traces import traced

SUMMARISE: Final = Template(
    "summarise/1",
    f"""\
Sum up what a passage says about some claims, for someone who will judge the claims by your summary alone.

- Keep all that speaks for or against a claim, or bears on whether it is true: names, dates, numbers, and what is said \
of them. Leave out the rest.
- Say only what the passage says. Do not say whether a claim is true, do not repeat a claim that the passage says \
nothing about, and add nothing that you know from elsewhere.
- Write a few plain sentences that are clear by themselves, in the language of the passage.
- Where the passage says nothing at all that bears on any of the claims, the summary is the word "irrelevant".

{QUOTATION}

<title>
$title
</title>

<passage>
$passage
</passage>

<claims>
$claims
</claims>

Answer with one JSON object and nothing else, in which "summary" has the summary as a string, and "confidence" a \
number from 0 to 1: how sure you are that the summary is true to the passage.""",
)

_REQUEST: Final = (
    "No summary of the passage could be read. Answer again, with one JSON object and nothing else, in which "
    '"summary" has what the passage says about the claims, or "irrelevant", and "confidence" a number from 0 to 1.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summariser:
    """How contexts are summarised: one per prompt, for up to `claims` of the atoms it was found for.

    `grounded` is the least share of a summary's words that the passage must have; 0 lets all pass. `top_logprobs` asks
    for the probabilities of tokens, for answers that state no confidence; None does not. Raises `SettingsError`.
    """

    template: Template = SUMMARISE
    claims: int = 32
    grounded: float = 0.3
    max_tokens: int = 1024
    top_logprobs: int | None = 1
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        for name in ("claims", "max_tokens", "at_once"):
            check_number(name, getattr(self, name), 1, 2**31 - 1, whole=True)
        check_number("top_logprobs", self.top_logprobs, 0, 2**31 - 1, whole=True, none=True)
        check_number("grounded", self.grounded, 0, 1)

    async def run(self, case: Case, ask: Ask, reject: Reject | None = None) -> Case:
        """The case with each context's text replaced by its summary, which is then its only evidence.

        The former text and snippet are `full_text` and `full_snippet` in its `extra`. `summary_confidence` is what the
        answer states, else the geometric mean of the probabilities of the summary's tokens, else None. A context that
        is irrelevant goes, and the trace names it; an atom that has none left has the status `no_evidence`. A context
        whose summary failed stays as it was, and says why as `summary` in `extra`. Contexts with the same evidence are
        asked about once, for the atoms of them all. Left as they are: contexts that have a summary, that have failed,
        or that no atom or already a relation speaks of.
        """
        aliases: dict[str, str] = {}
        contexts = [one for one in case.contexts or () if not one.status.failed and "full_text" not in one.extra]
        merge(((context.id, context.evidence) for context in contexts), aliases)
        related = {end for relation in case.relations or () for end in (relation.source, relation.target)}
        kept = related | {aliases[id] for id in related if id in aliases}  # that relations speak of
        jobs = []
        for context in contexts:
            atoms = _atoms_of(context.id, case, aliases)
            alone = context.id not in aliases and aliases.get(context.id, context.id) not in kept
            if alone and context.evidence and atoms:
                jobs.append((context, atoms))
        counted = CountingAsk(ask)

        async def work(job: tuple[Context, list[Atom]]) -> _Summary | str:
            return await self._summary(*job, counted, reject)

        found = await each(work, jobs, self.at_once)
        outcomes = {context.id: outcome for (context, _), outcome in zip(jobs, found, strict=True)}
        of = {context.id: outcomes.get(aliases.get(context.id, context.id)) for context in contexts}
        gone = [id for id, outcome in of.items() if isinstance(outcome, _Summary) and outcome.text is None]
        trace = {
            "template": self.template.name,
            "prompts": counted.prompts,
            "done": sum(isinstance(outcome, _Summary) and outcome.text is not None for outcome in of.values()),
            "irrelevant": len(gone),
            "removed": gone,
            "failed": sum(isinstance(outcome, str) for outcome in of.values()),
        }
        case = replace(case, extra=traced(case, "summarise", trace))
        if case.contexts is None:
            return case
        left = (_summed_up(context, of.get(context.id)) for context in case.contexts if context.id not in gone)
        return replace(case, contexts=tuple(left), atoms=_without(case.atoms, frozenset(gone)))

    async def _summary(
        self, context: Context, atoms: Sequence[Atom], ask: Ask, reject: Reject | None
    ) -> _Summary | str:
        """The summary of a context, or why there is none."""
        prompt, source = self.prompt(context, atoms), content_words(f"{context.title or ''} {context.evidence}")

        def read(reply: Reply) -> dict[int, _Summary]:
            found = read_summary(reply, prompt.messages[0][1])
            if found and found.text is not None and shared(found.text, source) < self.grounded:
                return {}
            return {0: found} if found else {}

        asked = await answers_to(prompt, 1, read, lambda _: _REQUEST, ask, reject, what="summary of the passage")
        return asked.answers.get(0, asked.why)

    def prompt(self, context: Context, atoms: Sequence[Atom]) -> Prompt:
        """What is asked about a context."""
        nearest = sorted(atoms, key=lambda atom: -shared(atom.text, content_words(context.evidence)))[: self.claims]
        chosen = {atom.id for atom in nearest}
        content = self.template.fill(
            title=quoted(context.title or "") or "(none)",
            passage=quoted_lines(context.evidence),
            claims="\n".join(f"- {quoted(atom.text)}" for atom in atoms if atom.id in chosen),
        )
        return Prompt(
            messages=(("user", content),),
            template=self.template.name,
            max_tokens=self.max_tokens,
            top_logprobs=self.top_logprobs,
        )


class _Summary(NamedTuple):
    """What an answer says about a passage; no text if it is irrelevant."""

    text: str | None
    confidence: float | None


def read_summary(reply: Reply, prompt: str = "") -> _Summary | None:
    """The summary in an answer, or that there is nothing to summarise; None if it says neither."""
    text = own_words(reply.text, prompt)
    fields = read_fields(text, ("summary", "relevant"))
    if not fields and not is_cut(reply) and (labelled := _LABELLED.search(text)):
        fields = {"summary": labelled["summary"], "confidence": labelled["confidence"]}
    summary = fields.get("summary")
    if fields.get("relevant") is False or _IRRELEVANT.fullmatch(summary if isinstance(summary, str) else text):
        return _Summary(None, None)
    if not isinstance(summary, str) or not (said := unquoted(summary)):
        return None
    stated = _confidence(fields.get("confidence"))
    return _Summary(said, _likelihood(reply, summary) if stated is None else stated)


_IRRELEVANT: Final = re.compile(
    r"[\W_]*(?:the (?:passage|text|context) is )?(?:irrelevant|not relevant)(?: to the claims?)?[\W_]*", re.IGNORECASE
)
_LABELLED: Final = re.compile(
    r"^[*_# ]*summary[*_ ]*:[*_ ]*(?P<summary>[^\n]+(?:\n(?![*_# ]*confidence)[^\n]+)*)"
    r"(?:\s*^[*_# ]*confidence[*_ ]*:[*_ ]*(?P<confidence>[\d.]+[ ]?%?))?",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER: Final = re.compile(r"\s*+(\d{1,3}(?:\.\d{1,12})?|\.\d{1,12})\s*+(%?)\s*+")


def _confidence(value: Scalar) -> float | None:
    """A confidence that was stated: a number from 0 to 1, or a percentage. None is taken for certain to be wrong."""
    percent = False
    if isinstance(value, str) and (match := _NUMBER.fullmatch(value)):
        value, percent = float(match[1]), bool(match[2])
    if not is_number(value, 0, 100) or not isinstance(value, float):
        return None
    share = value / 100 if percent or value > 10 else value  # 8 may be out of ten, or out of a hundred
    return max(share, NEVER_CERTAIN) if share <= 1 else None


def _likelihood(reply: Reply, summary: str) -> float | None:
    """The geometric mean of the probabilities of the summary's tokens, or of all, where it cannot be found in them."""
    tokens = reply.tokens or ()
    start = "".join(token.text for token in tokens).rfind(summary)
    end, logprobs = 0, []
    for token in tokens:
        before, end = end, end + len(token.text)
        if start < 0 or (end > start and before < start + len(summary)):
            logprobs.append(token.logprob)
    if not logprobs or not all(logprob is not None and math.isfinite(logprob) for logprob in logprobs):
        return None
    mean = sum(min(logprob, 0.0) for logprob in logprobs if logprob is not None) / len(logprobs)
    return max(math.exp(mean), NEVER_CERTAIN)


def _atoms_of(id: str, case: Case, aliases: dict[str, str]) -> list[Atom]:
    """The atoms that point to a context or a duplicate of it; all, where none says what it points to."""
    atoms = usable(case)
    if all(atom.contexts is None for atom in atoms):
        return atoms
    return [atom for atom in atoms if any(aliases.get(name, name) == id for name in atom.contexts or ())]


def _summed_up(context: Context, outcome: _Summary | str | None) -> Context:
    extra = {key: value for key, value in context.extra.items() if key != "summary"}
    if isinstance(outcome, str):
        return replace(context, extra={**extra, "summary": f"failed: {outcome}"})
    if outcome is None:
        return context
    extra["full_text"] = context.text
    if context.snippet is not None:
        extra["full_snippet"] = context.snippet
    return replace(context, text=outcome.text, snippet=None, summary_confidence=outcome.confidence, extra=extra)


def _without(atoms: tuple[Atom, ...] | None, gone: frozenset[str]) -> tuple[Atom, ...] | None:
    """The atoms without these contexts in their lists; those that have none left have no evidence."""
    if atoms is None or not gone:
        return atoms
    left = []
    for atom in atoms:
        if gone & set(atom.contexts or ()):
            own = tuple(name for name in atom.contexts or () if name not in gone)
            nothing = not own and atom.status is Status.OK
            atom = replace(atom, contexts=own, status=Status.NO_EVIDENCE if nothing else atom.status)
        left.append(atom)
    return tuple(left)
