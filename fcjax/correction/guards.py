"""Guards: changes that make a revision unacceptable, however well it scores.

Deleting everything doubtful would raise the precision to 1; a translation or an essay may score well, but is not a
correction.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import SettingsError, counted
from fcjax.core.languages import changed
from fcjax.core.records import Atom, Label, Relation, RelationType
from fcjax.correction.evidence_reuse import statement_key
from fcjax.critic.critic import Critique
from fcjax.stages.answers import Ask, Reject, shown
from fcjax.stages.relate import Pair, Relater, RelationModel

Matching = Literal["relation", "text"]

SLACK: Final = 200
"""Characters that a revision may have beyond the limit by the length of the first response, so that a word can become
a sentence."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a revision is refused: for a `known` loss, or because the relation model gave no answer."""

    why: str
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """The reasons to refuse a revision, each of which None or False switches off.

    `supported`: it loses more than the share `may_lose` of the supported atoms. With `text`, an atom is kept if an atom
    of the revision has the same text; with `relation`, the default, also if the revision entails it, which the relation
    model is asked about the rest. `oscillation`: the text was there before. `shortest` and `longest`: its length as a
    multiple of that of the first response. `language`: its script or language is not that of the first response. Raises
    `SettingsError`.
    """

    supported: Matching | None = "relation"
    may_lose: float = 0.0
    oscillation: bool = True
    shortest: float | None = 0.5
    longest: float | None = 2.0
    language: bool = True

    def __post_init__(self) -> None:
        check_choice("supported", self.supported, get_args(Matching), none=True)
        check_number("may_lose", self.may_lose, 0, 1)
        check_number("shortest", self.shortest, 0, 1, none=True)
        check_number("longest", self.longest, 1, none=True)
        for name in ("oscillation", "language"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(f"{name} is {getattr(self, name)!r:.60}; allowed: True or False")

    def fault(self, text: str, first: str, seen: Collection[str]) -> str | None:
        """Why a revision is refused without a prompt, by the `first` response and the `comparable` texts `seen` since.

        None if it is not.
        """
        if self.oscillation and comparable(text) in seen:
            return "oscillation: the text was there before"
        length, original = len(text.strip()), len(first.strip())
        if self.shortest is not None and length < self.shortest * original:
            return f"length: {length:,} characters of {original:,}, less than {self.shortest:g} times as many"
        if self.longest is not None and length > self.longest * original + SLACK:
            return f"length: {length:,} characters instead of {original:,}, more than {self.longest:g} times as many"
        if self.language and (how := changed(first, text)):
            return f"language: {how}"
        return None

    async def loss(
        self, before: Critique, after: Critique, model: Relater, ask: Ask, reject: Reject | None = None
    ) -> Loss | None:
        """Why a revision is refused for losing atoms that were supported `before`; None if it is not.

        An atom without an answer of the relation model is neither known to be kept nor known to be lost.
        """
        atoms = supported(before)
        if self.supported is None or not atoms:
            return None
        # The words before decontextualising, "He was born in 1879", may be about another person in the revision.
        originals = self.supported == "text"
        there = {text for atom in after.case.atoms or () for text in _words_of(atom, originals)}
        missing = [atom for atom in atoms if not _words_of(atom, originals) & there]
        most = self.may_lose * len(atoms)
        unknown: list[Atom] = []
        if self.supported == "relation" and len(missing) > most:
            found = await _related(missing, after.case.response or "", model, ask, reject)
            unknown = [atom for atom in missing if found[atom.id].status.failed]
            missing = [
                atom for atom in missing if found[atom.id].type is not RelationType.ENTAILMENT and atom not in unknown
            ]
        all_of_them = counted(len(atoms), "supported statement")
        if len(missing) > most:
            why = f"supported: {len(missing)} of {all_of_them} lost, such as {shown(missing[0].text)}"
            return Loss(why, known=True)
        if len(missing) + len(unknown) > most:
            seen = f"{len(unknown)} of {all_of_them}, such as {shown(unknown[0].text)}"
            return Loss(f"supported: unknown whether it keeps {seen}", known=False)
        return None


def comparable(text: str) -> str:
    """A text that is equal for two responses that differ in white space only."""
    return " ".join(text.split())


def _words_of(atom: Atom, originals: bool) -> set[str]:
    """The keys of an atom, of which atoms in the same words share one."""
    return {statement_key(atom.text), *([statement_key(atom.original)] if originals and atom.original else [])}


def supported(critique: Critique) -> list[Atom]:
    """The supported atoms of a critique, merged duplicates once."""
    labels = {atom["id"]: atom["label"] for atom in critique.row["atoms"] if "duplicate_of" not in atom}
    return [atom for atom in critique.case.atoms or () if labels.get(atom.id) == Label.SUPPORTED]


async def _related(
    atoms: list[Atom], response: str, model: Relater, ask: Ask, reject: Reject | None
) -> dict[str, Relation]:
    """The relations between a response and atoms, by the atoms' ids; a language model is asked in packs."""
    pairs = [Pair("response", atom.id, response, atom.text) for atom in atoms]
    model = model.uncalibrated()
    if isinstance(model, RelationModel):
        model = replace(model, style="packed", votes=0)
    found = [one for question in model.questions(pairs) for one in await model.answer(question, ask, reject)]
    return {relation.target: relation for relation in found}
