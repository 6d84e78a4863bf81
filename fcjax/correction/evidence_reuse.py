"""Evidence for a revised response: the evidence of statements that it keeps is used again (SPEC 6).

A response and its revision are thus judged by the same evidence where they say the same, and a search that fails, or
finds something else the second time, moves no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fcjax.core.records import Atom, Case, Status
from fcjax.stages.pipeline import begun_from
from fcjax.stages.retrieve import EvidenceSearch, Search
from fcjax.stages.traces import traced, traces


def statement_key(text: str) -> str:
    """A text that is equal for two statements in the same words: without case, spacing and end marks."""
    return " ".join(text.casefold().split()).rstrip(" .!。")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceReuse(EvidenceSearch):
    """Searches as `EvidenceSearch` does, for the atoms that `known`, a case with contexts, does not have. Make it with
    `after`.

    With `pool`, all contexts of `known` stay candidates for every atom, else only those of the atoms that are the same.
    Without `searches`, there is no search: the contexts of `known` are all there are, for new atoms too.
    """

    known: Case = field(default_factory=lambda: Case(id="known"))
    pool: bool = False
    searches: bool = True

    @classmethod
    def after(cls, how: EvidenceSearch, known: Case, *, pool: bool = False, searches: bool = True) -> EvidenceReuse:
        """The search of `how`, with the evidence that was found for `known`."""
        given = {one.name: getattr(how, one.name) for one in fields(EvidenceSearch)}
        return cls(**given, known=begun_from(known, "summarise"), pool=pool, searches=searches)

    async def run(self, case: Case, search: Search) -> Case:
        """The case with contexts for its atoms (see `EvidenceSearch.run`)."""
        before: dict[str, Atom] = {}
        for atom in self.known.atoms or ():
            if not atom.status.failed:
                before.setdefault(statement_key(atom.text), atom)
        known = self.known.contexts or ()
        everything = tuple(context.id for context in known)
        atoms = [self._found_before(atom, before, everything) for atom in case.atoms or ()]
        wanted = {id for atom in atoms for id in atom.contexts or ()}
        whole = self.pool or not self.searches
        contexts = tuple(context for context in known if whole or context.id in wanted)
        reused = sum(statement_key(atom.text) in before for atom in atoms)
        case = replace(case, atoms=tuple(atoms), contexts=contexts)
        if self.searches:
            case = await EvidenceSearch.run(self, case, search)
        return replace(
            case, extra=traced(case, "retrieve", {**_trace(case), "reused": reused, "given": not self.searches})
        )

    def _found_before(self, atom: Atom, before: Mapping[str, Atom], everything: tuple[str, ...]) -> Atom:
        twin = before.get(statement_key(atom.text))
        if twin is not None and twin.contexts is not None:
            return replace(atom, contexts=twin.contexts, status=twin.status)
        if self.searches:
            return atom
        return replace(atom, contexts=everything, status=Status.OK if everything else Status.NO_EVIDENCE)


def was_searched_for(case: Case) -> bool:
    """Whether the contexts of a case come from a search; otherwise the input had them."""
    return bool(_trace(case)) and not _trace(case).get("given")


def _trace(case: Case) -> dict[str, Any]:
    return traces(case).get("retrieve", {})
