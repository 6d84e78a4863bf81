"""QueryBuilder: search queries to find out whether an atom is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fcjax.core.checks import check_number
from fcjax.core.prompts import AnswerForm, Prompt
from fcjax.core.records import Atom, Case
from fcjax.core.word_overlap import shared
from fcjax.core.words import content_words
from fcjax.stages.answers import AT_ONCE, Ask, CountingAsk, Reject
from fcjax.stages.rewriting import Rewriting, numbered, room, usable
from fcjax.stages.templates import QUOTATION, Template, quoted
from fcjax.stages.traces import traced

QUERY: Final = Template(
    "query/1",
    f"""\
For each of the numbered claims below, write what to type into a search engine to find out whether it is true. The \
claims come from an answer to the question that is quoted first.

- Name whom or what the claim is about, in full, and the point that is to be checked.
- Write a few words, not a sentence, without quotation marks and without search operators.
- The search must find what speaks against the claim as well as what speaks for it: do not presume that it is true.
- Write in the language of the claim.

Example. "Ana Lima was born in Porto in 1961." becomes "Ana Lima singer birthplace date of birth".

{QUOTATION}

<question>
$question
</question>

<claims>
$claims
</claims>

Answer with one JSON object and nothing else, in which the number of every claim, from "1" to "$count", has its search \
query as a string.""",
)

_LONGEST: Final = 300  # characters
_GROUNDED: Final = 0.2  # the least share of a query's words that the claim has


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBuilder:
    """How atoms become queries: up to `pack` per prompt. `max_tokens` is the longest answer allowed.

    Raises `SettingsError`.
    """

    template: Template = QUERY
    pack: int = 16
    max_tokens: int = 2048
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        for name in ("pack", "max_tokens", "at_once"):
            check_number(name, getattr(self, name), 1, 2**31 - 1, whole=True)

    async def run(self, case: Case, ask: Ask, reject: Reject | None = None) -> Case:
        """The case with a `query` in the `extra` of each atom; existing ones are left unchanged.

        An atom without a usable one gets none: its text is what is searched for then, and the trace counts it.
        """
        atoms = [atom for atom in usable(case) if not atom.extra.get("query")]
        counted = CountingAsk(ask)

        def prompt(pack: Sequence[Atom]) -> Prompt:
            return self.prompt(case, pack)

        done = await Rewriting(prompt, doubt, "search query", self.pack, self.at_once).texts(atoms, counted, reject)
        trace = {"template": self.template.name, "prompts": counted.prompts, **done.counts()}
        extra = traced(case, "query", trace)
        if case.atoms is None:
            return replace(case, extra=extra)
        queried = (
            replace(atom, extra={**atom.extra, "query": done.texts[atom.id]}) if atom.id in done.texts else atom
            for atom in case.atoms
        )
        return replace(case, atoms=tuple(queried), extra=extra)

    def prompt(self, case: Case, atoms: Sequence[Atom]) -> Prompt:
        """What is asked about some atoms of a case."""
        content = self.template.fill(
            question=quoted(case.query or "") or "(not known)", claims=numbered(atoms), count=str(len(atoms))
        )
        form = AnswerForm.numbered(range(1, len(atoms) + 1)) if self.template == QUERY else None
        return Prompt(
            messages=(("user", content),),
            template=self.template.name,
            max_tokens=room(atoms, self.max_tokens),
            answer=form,
        )


def doubt(claim: str, query: str) -> str | None:
    """Why a text cannot be the query for a claim."""
    if len(query) > _LONGEST:
        return "it is too long"
    return "it is about something else" if shared(query, content_words(claim)) < _GROUNDED else None
