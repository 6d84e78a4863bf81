"""Pages of the web: a link in, the part of the page's text that best matches a query out, or why there is none.

The links come from strangers, so nothing behind our own wall is reached by them (see `addresses`), and neither size,
time, redirects nor a document's inside can cost more than a page is worth.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final, TypeVar
from urllib.parse import urljoin

import aiohttp
from yarl import URL

from fcjax.core.checks import check_number
from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Failure
from fcjax.io.outcome import Again, Refused, read_exception, retry_after, scrubbed
from fcjax.io.pacing import Clock, RealClock, Retry
from fcjax.io.retrievers.domains import Domains
from fcjax.io.retrievers.excerpts import LENGTH, excerpt
from fcjax.io.retrievers.extraction import PDF, ExtractionError, ExtractionTimeoutError, content_type, kind_of
from fcjax.io.retrievers.extraction_workers import WORKERS, Workers
from fcjax.io.retrievers.ssrf_guard import REFUSED, Guard, LinkError
from fcjax.io.retrievers.user_agent import user_agent as our_name
from fcjax.io.single_flight import SingleFlight

Result = TypeVar("Result")

VERSION: Final = 2
"""Counts up when the same page would give another text: a part of the keys under which results are stored."""
_KEPT: Final = 64  # documents in memory: the next query is mostly about the same subject
_SHUT: Final = {
    401: "it requires a login",
    402: "it is behind a paywall",
    403: "it blocks automated access",
    407: "a proxy requires a login",
    429: "it has received too many requests",
    451: "it is unavailable for legal reasons",
}
_PASSING: Final = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says about a query. `link` is its final address; `note` says what is missing."""

    link: str
    text: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class PageLimits:
    """What one page may cost. Times are in seconds, sizes in bytes as they are after decompression.

    Of HTML and plain text, the first `size` bytes are read; a PDF of more than `pdf_size` is of no use and left.
    `total` is for all of a page's redirects and tries, `extraction` for the work on it afterwards. Raises
    `SettingsError`.
    """

    size: int = 4 << 20
    pdf_size: int = 16 << 20
    redirects: int = 5
    connect: float = 10.0
    total: float = 30.0
    extraction: float = 15.0

    def __post_init__(self) -> None:
        for name in ("size", "pdf_size"):
            check_number(name, getattr(self, name), 1000, whole=True)
        check_number("redirects", self.redirects, 0, 20, whole=True)
        for name in ("connect", "total", "extraction"):  # for aiohttp, 0 would be no limit at all
            check_number(name, getattr(self, name), 0.001, 1e6)


_USUAL: Final = PageLimits()


class PageReader:
    """Reads pages. Use and close it in the same event loop; another may use it afterwards.

    `private` are networks that may be reached although they are not public, such as `10.20.0.0/16` for an intranet.
    A proxy of the environment is not used: behind one, names are resolved out of our sight, and the guard would only
    see the links' letters. Where there is no other way out, name it as `proxy`, and let it be one that keeps private
    networks closed. `concurrency` pages are on the wire at once, four of them at one host. A page is tried again as
    `retry` says. Raises `SettingsError`.
    """

    def __init__(
        self,
        *,
        length: int = LENGTH,
        limits: PageLimits | None = None,
        private: Iterable[str] = (),
        proxy: str | None = None,
        user_agent: str | None = None,
        concurrency: int = 16,
        retry: Retry | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ):
        check_number("length", length, 100, LENGTH, whole=True)
        check_number("concurrency", concurrency, 1, whole=True)
        if proxy is not None and URL(proxy).scheme not in ("http", "https"):
            raise SettingsError("proxy is not a URL; allowed: a URL beginning with http:// or https://")
        self._length, self._limits, self._proxy = length, limits or _USUAL, proxy
        self._guard = Guard.letting(private)
        self._agent = user_agent or f"Mozilla/5.0 (compatible; {our_name()})"
        self._concurrency = concurrency
        self._retry = retry or Retry(attempts=2, first=1.0, patience=10.0)
        self._clock, self._random = clock or RealClock(), random or Random()
        self._session: aiohttp.ClientSession | None = None  # belongs to the loop that reads first
        self._workers = Workers()
        self._make_room()
        self._read: SingleFlight[Page | Failure] = SingleFlight(_KEPT)

    @property
    def name(self) -> str:
        """The reader's name in cache keys, with everything that affects the text of a page."""
        limits = ((name, getattr(self._limits, name)) for name in ("size", "pdf_size", "redirects"))
        changed = [f"{name}={limit}" for name, limit in limits if limit != getattr(_USUAL, name)]
        changed += [f"private={network}" for network in self._guard.private]
        return ",".join([f"pages/{VERSION}", f"{self._length}", *changed])

    async def read(self, link: str, query: str, domains: Domains | None = None) -> Page | Failure:
        """The part of a page that best matches `query`, or why there is none. A page that fails raises nothing.

        Neither the link nor any of its redirects may lead to a domain that `domains` does not admit; such a domain is
        not contacted. Kinds of failure: `private` (the guard refused), `denied` (a domain), `bad_link`, `shut` (a
        login, a paywall, no programs), `not_found`, `unsupported` (no document with text), `too_large`, `redirects`,
        `unreadable`, `timeout`, `connection`, `dns`, `tls`, `server_error`.
        """
        admitted = domains if domains is not None and domains.restricted else None
        key = link if admitted is None else f"{admitted.name} {link}"
        found = await self._read.get(key, lambda: self._whole(link, admitted))
        if isinstance(found, Failure) or len(found.text) <= self._length:
            return found
        text = found.text
        best = await _in_thread(lambda: excerpt(text, query, self._length))
        return Page(found.link, best, found.note)

    async def close(self) -> None:
        """Stop all reads in progress."""
        await self._read.close()
        self._workers.close()
        if self._session is not None:
            await self._session.close()
            self._session = None
        self._make_room()

    def _make_room(self) -> None:
        """Semaphores, which belong to the loop that waits for them first."""
        self._slots = asyncio.Semaphore(self._concurrency)
        self._extracting = asyncio.Semaphore(WORKERS)

    async def _whole(self, link: str, domains: Domains | None) -> Page | Failure:
        """A page with all of its text."""
        try:
            async with self._slots, asyncio.timeout(self._limits.total):
                fetched = await self._fetched(link, domains)
        except TimeoutError:
            return Failure("timeout", f"the page did not load within {self._limits.total:g} s", 1)
        if isinstance(fetched, Failure):
            return fetched
        document = (fetched.kind, fetched.body, fetched.charset)
        try:
            async with self._extracting:
                text, note = await _in_thread(lambda: self._workers.text_of(*document, self._limits.extraction))
        except ExtractionTimeoutError as error:
            return Failure("timeout", str(error), 1)
        except ExtractionError as error:
            return Failure("unreadable", str(error), 1)
        except Exception as error:  # such as too many threads: that page's loss
            return Failure("unreadable", f"extracting the text failed ({type(error).__name__})", 1)
        if fetched.cut:
            note = "; ".join(filter(None, (note, f"only the first {self._limits.size:,} bytes were read")))
        return Page(fetched.link, text, note)

    async def _fetched(self, link: str, domains: Domains | None) -> _Fetched | Failure:
        """A page's bytes, in as many tries as it may take."""
        for attempt in count(1):
            outcome = await self._followed(link, domains)
            match outcome:
                case _Fetched():
                    return outcome
                case Refused(kind, reason):
                    return Failure(kind, reason, attempt)
                case Again(kind, reason, after):
                    wait = self._retry.delay(attempt, after, self._random)
                    if wait is None:
                        return Failure(kind, reason, attempt)
                    await self._clock.sleep(wait)
        raise AssertionError("unreachable")

    async def _followed(self, link: str, domains: Domains | None) -> _Fetched | Again | Refused:
        """What stands at the end of a link's redirects."""
        try:
            url = self._guard.check(link)
            for _ in range(self._limits.redirects + 1):
                if domains is not None and not domains.admits(str(url)):
                    return Refused("denied", f"{url.host} is not a domain that is allowed as evidence")
                outcome = await self._once(url)
                if not isinstance(outcome, str):
                    return outcome
                url = self._guard.check(urljoin(str(url), outcome))
        except LinkError as error:
            return Refused(error.kind, str(error))
        except ValueError as error:  # of a redirect to something else
            return Refused("bad_link", f"it redirects to something that is not a URL ({error})")
        return Refused("redirects", f"it redirects more than {self._limits.redirects} times")

    async def _once(self, url: URL) -> _Fetched | Again | Refused | str:
        """One request; where it is redirected, to where."""
        if self._session is None:
            self._session = self._opened()
        try:
            async with self._session.get(url, allow_redirects=False, proxy=self._proxy) as response:
                location = response.headers.get("location")
                if location is not None and response.status in _MOVED:
                    return location
                if response.status not in _GOOD:
                    return _trouble(response)
                return await self._body(response)
        except (aiohttp.InvalidURL, UnicodeError):
            return Refused("bad_link", "its host name is malformed")
        except aiohttp.ClientHttpProxyError as error:
            return Refused("connection", f"the proxy refused (HTTP {error.status})")
        except aiohttp.ClientConnectorError as error:
            if error.os_error.errno == REFUSED:
                return Refused("private", f"{url.host} is not on the public internet")
            return read_exception(error)
        except Exception as error:
            return read_exception(error)

    async def _body(self, response: aiohttp.ClientResponse) -> _Fetched | Refused:
        declared, charset = content_type(response.headers.get("content-type", ""))
        body = bytearray()
        kind = None
        most = self._limits.size
        cut = False
        async for chunk in response.content.iter_any():
            body += chunk
            if kind is None and len(body) >= _HEAD:
                if (kind := kind_of(declared, bytes(body[:_HEAD]))) is None:
                    break
                most = self._limits.pdf_size if kind == PDF else self._limits.size
            if len(body) > most:
                cut = True
                break
        kind = kind or kind_of(declared, bytes(body[:_HEAD]))
        if kind is None:
            return Refused("unsupported", f"it is {declared or 'binary'}; allowed: HTML, plain text and PDF")
        if cut and kind == PDF:
            return Refused("too_large", f"the PDF has more than {most:,} bytes")
        return _Fetched(str(response.url), kind, bytes(body[:most]), charset, cut)

    def _opened(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._concurrency,
            limit_per_host=_AT_ONE_HOST,
            ttl_dns_cache=300,
            socket_factory=self._guard.socket if self._proxy is None else None,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._agent, "Accept": _ACCEPT, "Accept-Language": "*"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect),
            max_line_size=32768,
            max_field_size=32768,
        )


@dataclass(frozen=True, slots=True)
class _Fetched:
    link: str
    kind: str
    body: bytes
    charset: str | None
    cut: bool  # at the limit


def _trouble(response: aiohttp.ClientResponse) -> Again | Refused:
    status = response.status
    words = f"HTTP {status}: {_SHUT.get(status) or scrubbed(response.reason or '') or 'no reason given'}"
    kind = "shut" if status in _SHUT else "server_error" if status >= 500 or status == 408 else "not_found"
    if status in _PASSING:
        return Again(kind, words, retry_after(response.headers, time.time()))
    return Refused(kind, words)


async def _in_thread(do: Callable[[], Result]) -> Result:
    """The result of `do`, run in its own thread.

    It is a daemon: a document that a parser does not get over is given up, and must not keep the program from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def tell(settle: Callable[[Any], None], value: Any) -> None:
        if not future.done():  # done: it was cancelled
            settle(value)

    def work() -> None:
        settle: Callable[[Any], None] = future.set_result
        try:
            value: Any = do()
        except Exception as error:
            settle, value = future.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, settle, value)

    threading.Thread(target=work, name="fcjax page", daemon=True).start()
    return await future


_MOVED: Final = (301, 302, 303, 307, 308)
_GOOD: Final = (200, 203)
_HEAD: Final = 1024  # bytes that show what a document is
_AT_ONE_HOST: Final = 4
_ACCEPT: Final = "text/html,application/xhtml+xml,application/pdf;q=0.9,text/plain;q=0.8,*/*;q=0.1"
