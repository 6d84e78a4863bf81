"""New texts for many atoms, requested in numbered packs, so that no atom gets another one's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fcjax.core.prompts import Prompt, Reply
from fcjax.core.records import Atom, Case
from fcjax.core.word_overlap import alike, shared
from fcjax.core.words import content_words
from fcjax.stages.answers import DIVISIBLE, Ask, Reject, answers_to, each, is_cut
from fcjax.stages.parsing.list_parser import own_words, read_numbered
from fcjax.stages.templates import quoted, unquoted

MISSING: Final = "missing"

_MOSTLY: Final = 0.5  # of the words of two texts

Doubt = Callable[[str, str], str | None]
"""Why a new text cannot be right for an atom with the given text; None where it can."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How atoms are asked about, up to `pack` of them in a prompt."""

    prompt: Callable[[Sequence[Atom]], Prompt]
    doubt: Doubt
    what: str  # is asked for: "rewritten statement"
    pack: int
    at_once: int

    async def texts(self, atoms: Sequence[Atom], ask: Ask, reject: Reject | None) -> Rewritten:
        """The new texts of atoms by their ids, and why others have none."""
        packs = [atoms[i : i + self.pack] for i in range(0, len(atoms), self.pack)]

        async def work(pack: Sequence[Atom]) -> Rewritten:
            return await self._texts(pack, ask, reject)

        done = Rewritten()
        for part in await each(work, packs, self.at_once):
            done.add(part)
        return done

    async def _texts(self, atoms: Sequence[Atom], ask: Ask, reject: Reject | None) -> Rewritten:
        prompt, refused = self.prompt(atoms), dict[int, str]()

        def read(reply: Reply) -> dict[int, str]:
            found = read_numbered(own_words(reply.text, prompt.messages[0][1]), len(atoms), is_cut(reply))
            texts = {number - 1: unquoted(text) for number, text in found.items()}
            doubts = {place: self._doubt(atoms, place, text) for place, text in texts.items() if text}
            refused.update({place: doubt for place, doubt in doubts.items() if doubt})
            return {place: texts[place] for place, doubt in doubts.items() if not doubt}

        def request(missing: Sequence[int]) -> str:
            numbers = ", ".join(str(place + 1) for place in missing)
            return (
                f"No {self.what} could be read for these numbers: {numbers}. Answer again for them, with one JSON "
                f"object from each number to its {self.what}, as a string, and nothing else."
            )

        asked = await answers_to(prompt, len(atoms), read, request, ask, reject, what=self.what)
        if asked.failure and asked.failure.kind in DIVISIBLE and len(atoms) > 1:
            done = await self._texts(atoms[: len(atoms) // 2], ask, reject)
            done.add(await self._texts(atoms[len(atoms) // 2 :], ask, reject))
            return done
        why = f"failed: {asked.why}" if asked.failure or not asked.answers else MISSING
        return Rewritten(
            {atom.id: asked.answers[place] for place, atom in enumerate(atoms) if place in asked.answers},
            {
                atom.id: f"failed: {refused[place]}" if place in refused else why
                for place, atom in enumerate(atoms)
                if place not in asked.answers
            },
        )

    def _doubt(self, atoms: Sequence[Atom], place: int, text: str) -> str | None:
        """Why a text is none for the atom at `place`: it says mostly what another atom says, and more of that than of
        this one. A short atom may well be in another's new text as a whole: names are filled in from there."""
        own, said = atoms[place].text, content_words(text)
        nearest = max(atoms, key=lambda atom: alike(atom.text, text))
        likeness = alike(nearest.text, text)
        if likeness > max(_MOSTLY, alike(own, text)) and shared(nearest.text, said) > shared(own, said):
            return f"the answer fits better for {nearest.id}"
        return self.doubt(own, text)


@dataclass(slots=True)
class Rewritten:
    """New texts by the ids of their atoms, and why other atoms have none."""

    texts: dict[str, str] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)

    def add(self, other: Rewritten) -> None:
        """Add the results for other atoms."""
        self.texts |= other.texts
        self.without |= other.without

    def counts(self) -> Mapping[str, int]:
        """For a stage's trace: how many atoms have no new text, by the first word of why."""
        missing = sum(why == MISSING for why in self.without.values())
        return {"done": len(self.texts), "missing": missing, "failed": len(self.without) - missing}


def usable(case: Case) -> list[Atom]:
    """The atoms whose text can be asked about."""
    return [atom for atom in case.atoms or () if not atom.status.failed and atom.text.strip()]


def numbered(atoms: Sequence[Atom]) -> str:
    """The atoms' texts, one per line, each with its number from 1."""
    return "\n".join(f"{number}. {quoted(atom.text)}" for number, atom in enumerate(atoms, 1))


def room(atoms: Sequence[Atom], most: int) -> int:
    """Tokens for this many texts of about this length, but at most `most`."""
    return min(256 + sum(48 + len(atom.text.encode("utf-8", "replace")) for atom in atoms), most)
