"""Google's results through Serper (serper.dev), with the text of the pages they link to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from fcjax.core.checks import check_number
from fcjax.core.errors import SettingsError
from fcjax.core.passages import Found, Passage
from fcjax.core.prompts import Failure
from fcjax.io.http import Timeouts
from fcjax.io.outcome import Again, Refused
from fcjax.io.pacing import Clock, Concurrency, RateLimit, Retry
from fcjax.io.retrievers.api import SearchApi
from fcjax.io.retrievers.domains import Domains
from fcjax.io.retrievers.pages import PageReader
from fcjax.io.retrievers.user_agent import user_agent

SERPER: Final = "https://google.serper.dev"
_VERSION: Final = 2  # counts up when the same results would give other passages
_PRICED_ALIKE: Final = 10  # results that cost no more than one
_MOST: Final = 100
_REMEDIES: Final = {
    "unauthorized": "set SERPER_API_KEY to a key that serper.dev accepts",
    "forbidden": "set SERPER_API_KEY to a key that serper.dev accepts",
    "quota": "the account at serper.dev has no credit left",
    "not_found": "check the base URL",
}


class Serper:
    """A `Retriever` over Google's results.

    `pages` reads the pages behind the links; without it the snippets are all. A page that cannot be read leaves its
    snippet and a note; only a search that fails is a failure. Pages of denied `domains` are passed over, and the next
    results take their places. `country` and `language` are Google's `gl` and `hl`, such as `de`. The key is the
    environment's SERPER_API_KEY by default; with `replay` none is needed, as nothing can be sent. It closes `pages`.

    Raises `SettingsError` where there is no key, or for an argument outside of what is allowed.
    """

    def __init__(
        self,
        key: str | None = None,
        *,
        pages: PageReader | None = None,
        domains: Domains | None = None,
        country: str | None = None,
        language: str | None = None,
        base_url: str = SERPER,
        replay: bool = False,
        concurrency: int | Concurrency = 8,
        rate: RateLimit | None = None,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ):
        key = (os.environ.get("SERPER_API_KEY", "") if key is None else key).strip()
        if not key and not replay:
            raise SettingsError("no key for Serper; set SERPER_API_KEY to your serper.dev key")
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise SettingsError("the key for Serper contains invalid characters; set SERPER_API_KEY again")
        for name, value in (("country", country), ("language", language)):
            if value is not None and not (value.isascii() and value.replace("-", "").isalpha() and len(value) <= 10):
                raise SettingsError(f"{name} is {value!r:.60}; allowed: a code such as 'de'")
        self._pages, self._domains, self._replay = pages, domains or Domains(), replay
        self._where = {name: value for name, value in (("gl", country), ("hl", language)) if value is not None}
        self._api = SearchApi(
            base_url,
            judge=_judge,
            headers={"X-API-KEY": key, "User-Agent": user_agent()},
            secret=key or None,
            remedies=_REMEDIES,
            concurrency=concurrency,
            rate=rate,
            retry=retry,
            timeouts=timeouts,
            clock=clock,
            random=random,
        )

    @property
    def name(self) -> str:
        """The source's name in cache keys, with everything that affects its results, but without the key."""
        parts = [f"serper/{_VERSION}"]
        parts += [self._api.base_url] if self._api.base_url != SERPER else []
        parts += [f"{name}={value}" for name, value in self._where.items()]
        parts += [self._pages.name] if self._pages is not None else []
        parts += [self._domains.name] if self._domains.restricted else []
        return " ".join(parts)

    @property
    def sent(self) -> int:
        """The number of calls sent so far, not counting pages."""
        return self._api.sent

    async def search(self, query: str, k: int) -> Found | Failure:
        """The `k` best passages, 100 at most; an answer box comes first, a knowledge graph's entry last."""
        check_number("k", k, 1, whole=True)
        if self._replay:
            return Failure("replay_miss", "a replay sends no requests")
        if not query.strip():
            return Failure("invalid_request", "the query is empty")
        # Results that are passed over have others behind them at no further cost.
        asked = {"q": query.strip(), "num": min(max(k, _PRICED_ALIKE), _MOST), **self._where}
        document = await self._api.call("/search", json=asked)
        if isinstance(document, Failure):
            return document
        hits = [hit for hit in passages(document) if self._domains.admits(hit.link)][:k]
        if self._pages is None:
            return tuple(hit for hit in hits if hit.snippet)
        reader = self._pages
        read = await asyncio.gather(*(with_page(reader, hit, query, self._domains) for hit in hits))
        return tuple(hit for hit in read if hit.text or hit.snippet)

    async def close(self) -> None:
        await self._api.close()
        if self._pages is not None:
            await self._pages.close()


async def with_page(reader: PageReader, hit: Passage, query: str, domains: Domains | None = None) -> Passage:
    """A search result with what its page says, or with a note why there is no more than the snippet."""
    if hit.link is None:
        return hit
    page = await reader.read(hit.link, query, domains)
    if isinstance(page, Failure):
        note = f"the page could not be read: {page.reason}"
        return Passage(title=hit.title, snippet=hit.snippet, link=hit.link, note=note)
    return Passage(title=hit.title, text=page.text, snippet=hit.snippet, link=hit.link, note=page.note)


def passages(document: dict[str, Any]) -> list[Passage]:
    """The passages that a result page of Serper holds, without the pages' texts; what is malformed is left out."""
    found: dict[str, Passage] = {}
    for title, snippet, link in (*_box(document), *_organic(document), *_graph(document)):
        if link is None and not snippet:
            continue
        found.setdefault(link or snippet or "", Passage(title=title, snippet=snippet, link=link))
    return list(found.values())


_Hit = tuple[str | None, str | None, str | None]


def _box(document: dict[str, Any]) -> Iterator[_Hit]:
    """Google's direct answer, with the sentence that it was taken from."""
    box = document.get("answerBox")
    if not isinstance(box, dict):
        return
    answer, snippet = _text(box.get("answer")), _text(box.get("snippet"))
    words = f"{answer}. {snippet}" if answer and snippet and answer not in snippet else snippet or answer
    if words:
        yield _text(box.get("title")), words, _text(box.get("link"))


def _organic(document: dict[str, Any]) -> Iterator[_Hit]:
    results = document.get("organic")
    for result in results if isinstance(results, list) else ():
        if isinstance(result, dict) and (link := _text(result.get("link"))):
            yield _text(result.get("title")), _text(result.get("snippet")), link


def _graph(document: dict[str, Any]) -> Iterator[_Hit]:
    """What Google's knowledge graph says of the subject."""
    entry = document.get("knowledgeGraph")
    if isinstance(entry, dict) and (description := _text(entry.get("description"))):
        yield _text(entry.get("title")), description, _text(entry.get("descriptionLink"))


def _text(value: Any) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _judge(status: int, document: Any) -> Again | Refused | None:
    """Serper says `{"message": "Not enough credits", "statusCode": 400}`.

    An object without any part of a result page is not an answer: it would count as finding no evidence.
    """
    if not isinstance(document, dict) or (status == 200 and _has_results(document)):
        return None
    message = document.get("message")
    words = f"HTTP {status}: {message}"
    if isinstance(message, str) and "credit" in message.lower():
        return Refused("quota", words)
    if isinstance(message, str) and status in (401, 403):
        return Refused("unauthorized", words)
    if status == 200:
        return Again("unreadable", words if message else "HTTP 200 with an object that is not a results page")
    return None


def _has_results(document: dict[str, Any]) -> bool:
    organic = isinstance(document.get("organic"), list | None)
    return organic and not _RESULTS.isdisjoint(document)


_RESULTS: Final = frozenset(("searchParameters", "organic", "answerBox", "knowledgeGraph"))
