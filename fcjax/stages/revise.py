"""Revising: each atom is reworded to be clear by itself, with names instead of pronouns (SPEC 1)."""

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
from fcjax.stages.chunks import chunks
from fcjax.stages.rewriting import Rewriting, numbered, room, usable
from fcjax.stages.templates import QUOTATION, Template, quoted, quoted_lines
from fcjax.stages.traces import traced

REVISE: Final = Template(
    "revise/1",
    f"""\
Numbered statements were taken from someone's answer to a question. Reword each one where it must be, so that it is \
clear to someone who has seen neither the question nor the answer.

- Where a statement says "he", "it", "the film", "that year", "there" or the like, write the name or the date that the \
answer gives for it. Write out a name that is cut short.
- Change nothing else. The statement must claim what it claimed before, even if you know that to be wrong; add \
nothing, and leave nothing out.
- A statement that is clear already stays as it is.
- Write in the language of the statement.

Example. In an answer about the singer Ana Lima, "She left the band in 2004." becomes "Ana Lima left the band Vento \
in 2004.", if the answer names the band.

{QUOTATION}

<question>
$question
</question>

<answer>
$answer
</answer>

<statements>
$statements
</statements>

Answer with one JSON object and nothing else, in which the number of every statement, from "1" to "$count", has the \
reworded statement as a string.""",
)

_KEPT: Final = 0.3  # the least share of a statement's words that its rewording has
_TIMES, _MORE = 4, 200  # a rewording may have this many times the characters, and these besides


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviser:
    """How atoms are reworded: up to `pack` per prompt, with at most about `excerpt` characters of the response.

    Of a longer response, its beginning and what is most like the atoms are shown. `max_tokens` is the most that an
    answer may have; fewer atoms may have fewer. Raises `SettingsError`.
    """

    template: Template = REVISE
    pack: int = 16
    excerpt: int = 6000
    max_tokens: int = 4096
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        for name in ("pack", "excerpt", "max_tokens", "at_once"):
            check_number(name, getattr(self, name), 1, 2**31 - 1, whole=True)

    async def run(self, case: Case, ask: Ask, reject: Reject | None = None) -> Case:
        """The case with the atoms' texts reworded, each one's former text as its `original`.

        An atom whose rewording is missing, or cannot be right, keeps its text and says why as `revision` in `extra`.
        Atoms that have an `original` have been through this and are left as they are.
        """
        atoms = [atom for atom in usable(case) if atom.original is None]
        counted = CountingAsk(ask)

        def prompt(pack: Sequence[Atom]) -> Prompt:
            return self.prompt(case, pack)

        rewriting = Rewriting(prompt, doubt, "reworded statement", self.pack, self.at_once)
        done = await rewriting.texts(atoms, counted, reject)
        revised = []
        for atom in case.atoms or ():
            extra = {key: value for key, value in atom.extra.items() if key != "revision"}
            if text := done.texts.get(atom.id):
                atom = replace(atom, text=text, original=atom.text, extra=extra)
            elif why := done.without.get(atom.id):
                atom = replace(atom, extra={**extra, "revision": why})
            revised.append(atom)
        trace = {"template": self.template.name, "prompts": counted.prompts, **done.counts()}
        atoms_now = None if case.atoms is None else tuple(revised)
        return replace(case, atoms=atoms_now, extra=traced(case, "revise", trace))

    def prompt(self, case: Case, atoms: Sequence[Atom]) -> Prompt:
        """What is asked about some atoms of a case."""
        content = self.template.fill(
            question=quoted(case.query or "") or "(not known)",
            answer=quoted_lines(self._excerpt(case.response or "", atoms)) or "(not known)",
            statements=numbered(atoms),
            count=str(len(atoms)),
        )
        form = AnswerForm.numbered(range(1, len(atoms) + 1)) if self.template == REVISE else None
        return Prompt(
            messages=(("user", content),),
            template=self.template.name,
            max_tokens=room(atoms, self.max_tokens),
            answer=form,
        )

    def _excerpt(self, response: str, atoms: Sequence[Atom]) -> str:
        """What of a response is shown beside these atoms, which come from about one place in it."""
        if len(response) <= self.excerpt:
            return response
        wanted = frozenset().union(*(content_words(atom.text) for atom in atoms))
        beginning, *others = chunks(response, max(self.excerpt // 3, 1))
        alike = [len(wanted & content_words(piece)) for piece in others]
        best = max(range(len(others) - 1), key=lambda i: alike[i] + alike[i + 1], default=0)
        return "\n(…)\n".join((beginning, "".join(others[best : best + 2])))


def doubt(statement: str, text: str) -> str | None:
    """Why a text cannot be a rewording of a statement."""
    if len(text) > _TIMES * len(statement) + _MORE:
        return "it is far longer"
    return "it says something else" if shared(statement, content_words(text)) < _KEPT else None
