"""Wikipedia through its API: the articles that match a query, and the best-matching part of each.

One call finds the articles and one more for each gets its text, since the API gives whole texts one at a time. The
etiquette of Wikimedia is kept: a User-Agent that names us, few calls at once, and waiting where the servers lag.
"""

from __future__ import annotations

import asyncio
import re
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
from fcjax.io.retrievers.excerpts import LENGTH, excerpt
from fcjax.io.retrievers.extraction import tidy
from fcjax.io.retrievers.user_agent import user_agent as our_name
from fcjax.io.single_flight import SingleFlight

_VERSION: Final = 2  # counts up when the same articles would give other passages
_QUERY: Final = 300  # characters; the API refuses longer ones
_MOST: Final = 40
_KEPT: Final = 256  # articles in memory: the next query is mostly about the same subject
_SPARE: Final = 3  # further hits, for pages that only list what a word may mean
_LANGUAGE: Final = re.compile(r"[a-z]{2,12}(-[a-z]{2,8}){0,2}")
_LAG: Final = "5"  # seconds that the servers' copies may lag behind before we wait
_ANSWERS: Final = frozenset(("query", "batchcomplete", "continue"))  # keys of an answer to a query
_BUSY: Final = (
    "maxlag",
    "readonly",
    "ratelimited",
    "toomany",
    "too-busy",
    "timeout",
    "timed-out",
    "internal_api_error",
)


class Wikipedia:
    """A `Retriever` over the articles of one language's Wikipedia.

    `user_agent` goes in front of our own name; Wikimedia asks for an address there by which you can be reached.
    `base_url` is another wiki's, up to and without `/api.php`. Raises `SettingsError`.
    """

    def __init__(
        self,
        language: str = "en",
        *,
        user_agent: str | None = None,
        base_url: str | None = None,
        length: int = LENGTH,
        concurrency: int | Concurrency = 4,
        rate: RateLimit | None = None,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ):
        if not _LANGUAGE.fullmatch(language):
            raise SettingsError(f"language is {language!r:.60}; allowed: the code of a Wikipedia, such as 'en' or 'de'")
        check_number("length", length, 100, LENGTH, whole=True)
        agent = " ".join(filter(None, (user_agent, our_name())))
        if not (agent.isascii() and agent.isprintable()):
            raise SettingsError(f"user_agent is {user_agent!r:.60}; allowed: printable ASCII characters")
        self._language, self._length, self._elsewhere = language, length, base_url is not None
        self._api = SearchApi(
            base_url or f"https://{language}.wikipedia.org/w",
            judge=_judge,
            headers={"User-Agent": agent},
            concurrency=concurrency,
            rate=rate,
            retry=retry,
            timeouts=timeouts,
            clock=clock,
            random=random,
        )
        self._texts: SingleFlight[str | Failure] = SingleFlight(_KEPT, keep=lambda text: isinstance(text, str))

    @property
    def name(self) -> str:
        """The source's name in cache keys, with everything that affects its results."""
        place = f" {self._api.base_url}" if self._elsewhere else ""
        return f"wikipedia/{_VERSION}:{self._language}:{self._length}{place}"

    @property
    def sent(self) -> int:
        """The number of calls sent so far."""
        return self._api.sent

    async def search(self, query: str, k: int) -> Found | Failure:
        """Passages of the `k` best articles, of 40 at most. If the text of one cannot be had, the search has failed."""
        check_number("k", k, 1, whole=True)
        k = min(k, _MOST)
        query = _shortened(query)
        if not query:
            return Failure("invalid_request", "the query is empty")
        document = await self._api.call(
            "/api.php",
            params=_COMMON
            | {
                "generator": "search",
                "gsrsearch": query,
                "gsrlimit": str(k + _SPARE),
                "gsrnamespace": "0",
                "prop": "info|pageprops",
                "inprop": "url",
                "ppprop": "disambiguation",
            },
        )
        if isinstance(document, Failure):
            return document
        hits = _hits(document)[:k]
        passages: list[Passage] = []
        for hit, text in zip(hits, await asyncio.gather(*map(self._text, hits)), strict=True):
            if isinstance(text, Failure):
                return text
            if text:
                best = await asyncio.to_thread(excerpt, text, query, self._length)
                title, link = (
                    value if isinstance(value := hit.get(key), str) else None for key in ("title", "fullurl")
                )
                passages.append(Passage(title=title, text=best, link=link))
        return tuple(passages)

    async def close(self) -> None:
        await self._texts.close()
        await self._api.close()

    async def _text(self, hit: dict[str, Any]) -> str | Failure:
        """The whole plain text of an article."""
        number = str(hit["pageid"])
        return await self._texts.get(number, lambda: self._asked_text(number))

    async def _asked_text(self, number: str) -> str | Failure:
        wanted = {"pageids": number, "prop": "extracts", "explaintext": "1", "exsectionformat": "plain"}
        document = await self._api.call("/api.php", params=_COMMON | wanted)
        if isinstance(document, Failure):
            return document
        pages = _pages(document)
        texts = [text for page in pages if isinstance(text := page.get("extract"), str)]
        if not texts and not any(page.get("missing") for page in pages):
            return Failure("unreadable", f"article {number} came without its text (the API's `extracts`)", 1)
        return tidy("\n".join(texts))


_COMMON: Final = {"action": "query", "format": "json", "formatversion": "2", "maxlag": _LAG, "redirects": "1"}


def _shortened(query: str) -> str:
    """A query of a length that the API takes, ending with a whole word."""
    query = " ".join(query.split())
    return query if len(query) <= _QUERY else query[: _QUERY + 1].rpartition(" ")[0][:_QUERY] or query[:_QUERY]


def _hits(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The articles that were found, the best one first, without the pages that only list what a word may mean."""
    found = [page for page in _pages(document) if isinstance(page.get("pageid"), int) and not page.get("missing")]
    found = [page for page in found if not _only_lists(page)]
    return sorted(found, key=lambda page: page["index"] if isinstance(page.get("index"), int) else _MOST * 2)


def _only_lists(page: dict[str, Any]) -> bool:
    """Whether a page only lists what a word may mean."""
    properties = page.get("pageprops")
    return isinstance(properties, dict) and "disambiguation" in properties


def _listed(document: dict[str, Any]) -> Any:
    query = document.get("query")
    return query.get("pages") if isinstance(query, dict) else None


def _pages(document: dict[str, Any]) -> list[dict[str, Any]]:
    pages = _listed(document)
    return [page for page in pages if isinstance(page, dict)] if isinstance(pages, list) else []


def _judge(status: int, document: Any) -> Again | Refused | None:
    """MediaWiki reports errors with status 200: `{"error": {"code": "maxlag", "info": "Waiting for ..."}}`."""
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if not isinstance(error, dict):
        # Anything else than an answer would count as finding no evidence.
        if status == 200 and (_ANSWERS.isdisjoint(document) or not isinstance(_listed(document), list | None)):
            return Again("unreadable", "HTTP 200 with an object that is not a MediaWiki query result")
        return None
    code = str(error.get("code"))
    words = f"HTTP {status}: {code}: {error.get('info')}"
    if any(word in code for word in _BUSY):
        return Again("rate_limit" if "rate" in code or "toomany" in code else "overloaded", words)
    return Refused("invalid_request", words)
