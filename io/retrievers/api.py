"""A search service on the web: one JSON document per call, with retries after temporary failures, within limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Failure
from fcjax.io.http import ENCODINGS, Timeouts, behind_proxy, read_body, too_large
from fcjax.io.outcome import Again, Refused, read_exception, retry_after, scrubbed
from fcjax.io.pacing import Clock, Concurrency, RateLimit, RealClock, Retry
from fcjax.io.stop_rule import StopRule

Judge = Callable[[int, Any], Again | Refused | None]
"""What a service's own words for trouble mean, from a status and the document; None where there is no trouble."""

_MOST: Final = 16 << 20  # bytes of an answer, as sent and after decompression
_BY_STATUS: Final = {401: "unauthorized", 402: "quota", 403: "forbidden", 404: "not_found", 405: "not_found"}
_PASSING: Final = {408: "timeout", 425: "server_error", 429: "rate_limit", 503: "overloaded", 504: "timeout"}


class SearchApi:
    """Calls one service. `remedies` say what to change, by kind of refusal; `secret` never leaves but as a header.

    Retries are drawn with `random` and timed by `clock`. No slot is held in back-off. Use it in one event loop, and
    close it in the same.
    """

    def __init__(
        self,
        base_url: str,
        *,
        judge: Judge = lambda status, document: None,
        headers: Mapping[str, str] | None = None,
        secret: str | None = None,
        remedies: Mapping[str, str] | None = None,
        concurrency: int | Concurrency = 8,
        rate: RateLimit | None = None,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ):
        self.base_url = checked_base(base_url)
        self.sent = 0  # calls on the wire
        self._judge, self._headers, self._secret, self._remedies = judge, headers or {}, secret, remedies or {}
        self._slots = concurrency if isinstance(concurrency, Concurrency) else Concurrency(concurrency, clock=clock)
        self._rate = rate or RateLimit(clock=clock)
        self._retry = retry or Retry(attempts=5, patience=60.0)
        self._timeouts = timeouts or Timeouts(connect=10.0, read=30.0, total=60.0)
        self._clock, self._random = clock or RealClock(), random or Random()
        self._session: aiohttp.ClientSession | None = None  # belongs to the loop that calls first
        self._rule = StopRule("an earlier search failed this way, so no more are sent")

    async def call(
        self, path: str, *, json: Mapping[str, Any] | None = None, params: Mapping[str, str] | None = None
    ) -> dict[str, Any] | Failure:
        """The JSON object that `path` returns, by POST if `json` is given, or why there is none."""
        for attempt in count(1):
            async with self._slots:
                await self._rate.reserve(0)  # not before: turns that wait for slots would be taken all at once
                if self._rule.stopped is not None:
                    return self._rule.stopped
                self.sent += 1
                outcome = await self._once(path, json, params)
            match outcome:
                case dict():
                    self._rule.answered()
                    self._slots.succeeded()
                    return outcome
                case Refused(kind, reason):
                    return self._failed(kind, reason, attempt)
                case Again(kind, reason, after):
                    if kind in ("rate_limit", "overloaded"):
                        self._slots.overloaded()
                    wait = self._retry.delay(attempt, after, self._random)
                    if wait is None:
                        return self._failed(
                            kind, f"{reason}; gave up after {attempt} attempts; run again later", attempt
                        )
                    await self._clock.sleep(wait)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _failed(self, kind: str, reason: str, attempts: int) -> Failure:
        remedy = self._remedies.get(kind)
        reason = f"{reason}; {remedy}" if remedy else reason
        self._rule.failed(kind, reason)
        return Failure(kind, reason, attempts)

    async def _once(
        self, path: str, json: Mapping[str, Any] | None, params: Mapping[str, str] | None
    ) -> dict[str, Any] | Again | Refused:
        url, method = self.base_url + path, "GET" if json is None else "POST"
        body = None if json is None else orjson.dumps(json)
        try:
            if self._session is None:
                self._session = self._opened()
            async with self._session.request(method, url, data=body, params=params, allow_redirects=False) as response:
                content = await read_body(response, _MOST)
                return self._read(response.status, response.headers, content)
        except Exception as error:
            return read_exception(error)

    def _read(self, status: int, headers: Mapping[str, str], content: bytes | None) -> dict[str, Any] | Again | Refused:
        """What a response says; a pure function but for the time."""
        if content is None:
            return too_large(status, _MOST)
        try:
            document = orjson.loads(content)
        except ValueError:
            document = None
        after = retry_after(headers, time.time())
        try:
            judged = self._judge(status, document)
        except RecursionError:
            return Again("unreadable", f"HTTP {status} with JSON that is nested too deeply", after)
        if judged is not None:
            words = self._scrubbed(judged.reason)
            return Refused(judged.kind, words) if isinstance(judged, Refused) else Again(judged.kind, words, after)
        if status == 200:
            if isinstance(document, dict):
                return document
            return Again("unreadable", f"HTTP 200 with {self._excerpt(content)} instead of a JSON object")
        words = f"HTTP {status}: {self._excerpt(content)}"
        if status in _PASSING or (status >= 500 and status != 501):
            return Again(_PASSING.get(status, "server_error"), words, after)
        if 300 <= status < 400:
            return Refused("not_found", f"HTTP {status}: the service has moved; redirects are not followed")
        return Refused(_BY_STATUS.get(status, "invalid_request"), words)

    def _scrubbed(self, words: str) -> str:
        """Without our key, should the service have repeated it; before words are cut short."""
        return scrubbed(words.replace(self._secret, "***") if self._secret else words, most=200)

    def _excerpt(self, content: bytes) -> str:
        return repr(self._scrubbed(content[:2000].decode("utf-8", "replace"))) if content.strip() else "an empty body"

    def _opened(self) -> aiohttp.ClientSession:
        given = self._timeouts
        headers = {"Content-Type": "application/json", "Accept": "application/json", **ENCODINGS, **self._headers}
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ttl_dns_cache=300),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=given.total, sock_connect=given.connect, sock_read=given.read),
            trust_env=behind_proxy(self.base_url),
            auto_decompress=False,  # `read_body` does it, within a limit
        )


def checked_base(url: str) -> str:
    """A service's address without the trailing slash. Raises `SettingsError`, without repeating a password."""
    url = url.strip().rstrip("/")
    try:
        split = urlsplit(url)
        usable = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in split.netloc or split.query or split.fragment:
        raise SettingsError("base_url is invalid; allowed: http(s)://host/path without login or query")
    return url
