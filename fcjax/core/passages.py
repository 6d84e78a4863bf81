"""Passages and sources of evidence: the records passed between the stages and the retrievers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fcjax.core.prompts import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A piece of evidence as returned by a source; it becomes a context of a case (SPEC 1).

    `text` is at most 4,000 characters. `note` says why the text is not what it could be: a page behind a paywall, of
    which only the snippet is known.
    """

    title: str | None = None
    text: str | None = None
    snippet: str | None = None
    link: str | None = None
    note: str | None = None


Found = tuple[Passage, ...]
"""The passages for a query, the best one first; empty where the source has none. That is an answer, not a failure."""


class Retriever(Protocol):
    """A source of evidence. Use and close it in the same event loop."""

    @property
    def name(self) -> str:
        """The source's name in cache keys and records, with everything that affects its results; no secrets."""

    async def search(self, query: str, k: int) -> Found | Failure:
        """The `k` best passages, or why there is no answer. Raises only for bugs."""

    async def close(self) -> None: ...
