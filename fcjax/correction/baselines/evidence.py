"""Evidence for the methods of comparison: passages for a query or a statement, and their form in a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from fcjax.core.passages import Found, Passage
from fcjax.core.prompts import Failure, Prompt
from fcjax.core.records import Atom, Case, Context, Status
from fcjax.critic.asker import Asker
from fcjax.critic.critic import Critic
from fcjax.stages.answers import reason
from fcjax.stages.retrieve import Search
from fcjax.stages.screen import screen_words
from fcjax.stages.templates import Template, quoted

NONE: Final = "(none)"
EXCERPT: Final = 1200
"""Characters of a passage in a prompt."""


def prompt_of(template: Template, max_tokens: int, **texts: str) -> Prompt:
    """The prompt of a template filled with texts, at temperature 0."""
    content = template.fill(**texts)
    return Prompt(messages=(("user", content),), template=template.name, max_tokens=max_tokens)


def question_of(case: Case) -> str:
    """The query as a quotation."""
    return quoted(case.query or NONE)


def search_of(critic: Critic, case: Case) -> Search | None:
    """The search for evidence on a case: in its own contexts if it has any, else in the critic's source; None without
    either."""
    if case.contexts is not None:
        return _ContextSearch(case.contexts)
    return None if critic.retriever is None else critic.retriever.search


async def found_for(query: str, k: int, search: Search, critic: Critic) -> Found | Failure:
    """The `k` best passages for a query that have a text and that the critic's pipeline allows."""
    allowed = critic.pipeline.retrieve.allowed
    found = await search(query, k if allowed is None else 2 * k)
    if isinstance(found, Failure):
        return found
    usable = (one for one in found if evidence_of(one) and (allowed is None or allowed(one.link)))
    return tuple(usable)[:k]


class _ContextSearch:
    """A search in a case's own contexts, by the words that they share with the query."""

    def __init__(self, contexts: Iterable[Context]):
        self._passages = [
            Passage(title=one.title, text=one.text, snippet=one.snippet, link=one.link)
            for one in contexts
            if one.evidence and not one.status.failed
        ]

    async def __call__(self, query: str, k: int) -> Found | Failure:
        wanted = screen_words(query)
        order = sorted(self._passages, key=lambda one: -len(wanted & screen_words(f"{one.title} {evidence_of(one)}")))
        return tuple(order[:k])


def evidence_of(passage: Passage) -> str:
    """The text of a passage, chosen as for a context (SPEC 2)."""
    return Context(id="", text=passage.text, snippet=passage.snippet).evidence


def listed(passages: Iterable[Passage], excerpt: int = EXCERPT) -> str:
    """Passages as numbered quotations, one per line."""
    lines = []
    for number, one in enumerate(passages, 1):
        text = quoted(evidence_of(one))
        title = f" ({quoted(one.title)})" if one.title else ""
        lines.append(f"P{number}{title}: {text if len(text) <= excerpt else text[: excerpt - 1] + '…'}")
    return "\n".join(lines) or NONE


def no_evidence(failure: Failure) -> str:
    """The message of a failed search."""
    return f"the search failed: {reason(failure)}"


async def prepared(critic: Critic, case: Case, asker: Asker) -> Case:
    """The case with atoms and contexts, from the critic's stages before the relations."""
    pipeline = replace(critic.pipeline, stages=("atomize", "revise", "query", "retrieve"))
    if lack := pipeline.lacks(case):
        return replace(case, status=Status.INVALID_INPUT, extra={**case.extra, "reason": lack})
    search = critic.retriever.search if critic.retriever else _nowhere
    return await pipeline.prepare(case, asker.ask, search, asker.reject)


async def _nowhere(query: str, k: int) -> Failure:
    return Failure("unsupported", "there is no source to search")


def passages_of(case: Case, atom: Atom) -> tuple[Passage, ...]:
    """The passages of an atom; all of the case's if it has no list of its own."""
    own = None if atom.contexts is None else set(atom.contexts)
    return tuple(
        Passage(title=one.title, text=one.text, snippet=one.snippet, link=one.link)
        for one in case.contexts or ()
        if one.evidence and not one.status.failed and (own is None or one.id in own)
    )
