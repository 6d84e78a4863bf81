"""Searching for evidence: the passages for each atom become the contexts of its case (SPEC 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Final

from fcjax.core.checks import check_number
from fcjax.core.passages import Found, Passage
from fcjax.core.prompts import Failure
from fcjax.core.records import Atom, Case, Context, Status
from fcjax.core.words import mended, without_invisible
from fcjax.stages.answers import each
from fcjax.stages.traces import traced

Search = Callable[[str, int], Awaitable[Found | Failure]]
Link = str | None

AT_ONCE: Final = 8  # searches of one case


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSearch:
    """How evidence is searched for: `k` passages per atom. The source is chosen elsewhere.

    `allowed` says by its link whether a passage may be used, and `prior` how far its source is trusted (or None).
    Raises `SettingsError`.
    """

    k: int = 3
    allowed: Callable[[Link], bool] | None = None
    prior: Callable[[Link], float | None] | None = None

    def __post_init__(self) -> None:
        check_number("k", self.k, 1, 1000, whole=True)

    async def run(self, case: Case, search: Search) -> Case:
        """The case with contexts for every atom that has none, or whose retrieval has failed before.

        The query is the atom's `query`, or else its text; equal ones are searched for once. Passages with the same
        evidence are one context, linked to each atom that they were found for (SPEC 2); the links of further sources
        are under `links`, and the prior is the highest that is known of them. An atom for which nothing was
        found has the status `no_evidence`, one whose search failed `retrieval_failed` and the reason in `extra`.
        """
        wanted = {atom.id: query_of(atom) for atom in case.atoms or () if self.lacking(atom)}
        queries = list(dict.fromkeys(wanted.values()))
        most = self.k if self.allowed is None else 2 * self.k  # some will be left out

        async def found(query: str) -> Found | Failure:
            return await search(query, most)

        answers = await each(found, queries, AT_ONCE)
        return self._with(case, wanted, dict(zip(queries, answers, strict=True)))

    @staticmethod
    def lacking(atom: Atom) -> bool:
        """Whether an atom's evidence has yet to be searched for."""
        return atom.status is Status.RETRIEVAL_FAILED or (atom.contexts is None and not atom.status.failed)

    def _with(self, case: Case, wanted: dict[str, str], answers: dict[str, Found | Failure]) -> Case:
        contexts = {context.id: context for context in case.contexts or ()}
        known = {context.evidence: context.id for context in reversed(contexts.values()) if context.evidence}
        taken = contexts.keys() | {atom.id for atom in case.atoms or ()}
        fresh = (id for id in (f"c{number}" for number in count()) if id not in taken)
        totals: Counter[str] = Counter(queries=len(answers))
        atoms: list[Atom] = []
        for atom in case.atoms or ():
            if atom.id not in wanted:
                atoms.append(atom)
                continue
            answer = answers[wanted[atom.id]]
            extra = {key: value for key, value in atom.extra.items() if key != "reason"}
            if isinstance(answer, Failure):
                totals["failed"] += 1
                extra["reason"] = _whole(f"{answer.kind}: {answer.reason}")
                atoms.append(replace(atom, status=Status.RETRIEVAL_FAILED, extra=extra))
                continue
            own: dict[str, None] = {}
            for passage in islice(self._usable(answer, totals), self.k):
                context = self._context("", passage)
                if (id := known.get(context.evidence)) is None:
                    id = known[context.evidence] = next(fresh)
                    contexts[id] = replace(context, id=id)
                else:
                    contexts[id] = _also_at(contexts[id], context)
                own[id] = None
            status = Status.OK if own else Status.NO_EVIDENCE
            atoms.append(replace(atom, contexts=tuple(own), status=status, extra=extra))
        return replace(
            case, atoms=tuple(atoms), contexts=tuple(contexts.values()), extra=traced(case, "retrieve", dict(totals))
        )

    def _usable(self, found: Found, totals: Counter[str]) -> Iterator[Passage]:
        for passage in found:
            if not self._context("", passage).evidence:
                totals["empty"] += 1
            elif self.allowed is not None and not self.allowed(passage.link):
                totals["not_allowed"] += 1
            else:
                yield passage

    def _context(self, id: str, passage: Passage) -> Context:
        return Context(
            id=id,
            title=_whole(passage.title),
            text=_whole(passage.text),
            snippet=_whole(passage.snippet),
            link=None if passage.link is None else mended(passage.link),
            prior=None if self.prior is None else self.prior(passage.link),
            extra={} if passage.note is None else {"note": _whole(passage.note)},
        )


def _also_at(context: Context, other: Context) -> Context:
    """The context, whose evidence another source has too: as far to be trusted as the one that is trusted most."""
    if other.link is None or other.link in context.links:
        return context
    links = [*context.links[1 if context.link else 0 :], other.link]
    priors = [prior for prior in (context.prior, other.prior) if prior is not None]
    return replace(context, prior=max(priors, default=None), extra={**context.extra, "links": links})


def query_of(atom: Atom) -> str:
    """The search query for an atom."""
    query = atom.extra.get("query")
    own = without_invisible(query) if isinstance(query, str) else ""
    return own if own.strip() else without_invisible(atom.text)


def _whole(text: str | None) -> str | None:
    """A source's text without halves of characters, and without characters that have no shape."""
    return None if text is None else without_invisible(mended(text))
