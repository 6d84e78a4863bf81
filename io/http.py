"""One prompt over HTTP to an OpenAI-compatible endpoint, and its outcome."""

from __future__ import annotations

import asyncio
import os
import re
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson

from fcjax.core.checks import check_number
from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Prompt, Reply, Token
from fcjax.io.endpoint import Endpoint
from fcjax.io.outcome import Outcome, Refused, read_exception, read_response, whole

LARGEST: Final = 64 << 20
"""Bytes of a model's response at most, both as sent and after decompression: 32,000 tokens with all their logprobs."""
ENCODINGS: Final = {"Accept-Encoding": "gzip, deflate"}
"""The compressions that `read_body` reads."""
_SHORTEST: Final = 8  # characters of a secret that is removed from good replies
_JSON: Final = {"Content-Type": "application/json", **ENCODINGS}


class Transport(Protocol):
    """A way to reach a model. Retries, limits, sharing and the store are left to the client."""

    @property
    def name(self) -> str:
        """The endpoint in cache keys, without secrets."""

    @property
    def model(self) -> str: ...

    async def send(self, prompt: Prompt) -> Outcome:
        """Ask once. Raises only for bugs."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to connect, between two bytes from the server (before the first one, the model runs), and in total.

    Raises `SettingsError`.
    """

    connect: float = 15.0
    read: float = 300.0
    total: float = 600.0

    def __post_init__(self) -> None:
        for name in ("connect", "read", "total"):  # for aiohttp, 0 would be no limit at all
            check_number(f"timeout {name}", getattr(self, name), 0.001, 1e6)


class HttpTransport:
    """Chat completions over aiohttp, with as many connections as calls may be in flight at once."""

    def __init__(self, endpoint: Endpoint, *, connections: int = 64, timeouts: Timeouts | None = None):
        self.name, self.model = endpoint.name, endpoint.model
        self._endpoint, self._connections, self._timeouts = endpoint, connections, timeouts or Timeouts()
        self._session: aiohttp.ClientSession | None = None  # belongs to the loop that sends first

    async def send(self, prompt: Prompt) -> Outcome:
        body = body_bytes(request_body(self.model, prompt))
        try:
            if self._session is None:
                self._session = self._opened()
            async with self._session.post(self._endpoint.completions, data=body, allow_redirects=False) as response:
                content = await read_body(response, LARGEST)
            if content is None:
                return too_large(response.status, LARGEST)
        except Exception as error:
            outcome = read_exception(error)
        else:
            return read_discreetly(self._endpoint, response.status, response.headers, content)
        return replace(outcome, reason=self._endpoint.scrubbed(outcome.reason))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _opened(self) -> aiohttp.ClientSession:
        given = self._timeouts
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, ttl_dns_cache=300),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={**_JSON, **self._endpoint.headers},
            timeout=aiohttp.ClientTimeout(total=given.total, sock_connect=given.connect, sock_read=given.read),
            trust_env=behind_proxy(self._endpoint.completions),
            auto_decompress=False,  # `read_body` does it, within a limit
        )


async def read_body(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """The body of a response, decompressed; None where it has more than `most` bytes, as sent or decompressed.

    The session of `response` does not decompress by itself. Memory stays within about twice `most`. Raises
    `aiohttp.ClientPayloadError` for compressed data that are damaged or of an unknown kind, and what reading raises.
    """
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            return None
    encodings = [each.strip().lower() for each in response.headers.get("Content-Encoding", "").split(",")]
    for encoding in reversed([each for each in encodings if each not in ("", "identity")]):
        unpacked = await asyncio.to_thread(_unpacked, body, encoding, most)
        if unpacked is None:
            return None
        body = unpacked
    return bytes(body)


def _unpacked(body: bytearray, encoding: str, most: int) -> bytearray | None:
    """The decompressed bytes; None where they are more than `most`."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise aiohttp.ClientPayloadError(f"the response is compressed by {encoding!r:.40}; expected: gzip or deflate")
    bits = zlib.MAX_WBITS | 32  # gzip or zlib, as the header says
    if encoding == "deflate" and body and body[0] & 0x0F != 8:  # some servers leave the header of zlib out
        bits = -zlib.MAX_WBITS
    whole, rest = bytearray(), bytes(body)
    try:
        while rest:  # gzip may have several members
            reader = zlib.decompressobj(bits)
            whole += reader.decompress(rest, most + 1 - len(whole))
            if len(whole) > most:
                return None
            if not reader.eof:
                raise aiohttp.ClientPayloadError("the compressed response is cut off")
            rest = reader.unused_data if reader.unused_data.startswith(b"\x1f\x8b") else b""
    except zlib.error as error:
        raise aiohttp.ClientPayloadError(f"the compressed response is damaged ({error})") from error
    return whole


def too_large(status: int, most: int) -> Refused:
    """The outcome of a response that is larger than any answer."""
    return Refused("too_large", f"HTTP {status} with more than {most:,} bytes")


def read_discreetly(endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes) -> Outcome:
    """The outcome of a response, without the endpoint's secrets, should the server have repeated one."""
    now = time.time()
    outcome = read_response(status, headers, body, now=now)
    if isinstance(outcome, Reply):
        return without_secrets(outcome, endpoint.secrets)
    # Before the text is cut short: a part of a key would not be found.
    safe = read_response(status, headers, endpoint.scrubbed(body.decode("utf-8", "replace")).encode(), now=now)
    reason = outcome.reason if isinstance(safe, Reply) else safe.reason
    return replace(outcome, reason=endpoint.scrubbed(reason))


def without_secrets(reply: Reply, secrets: Iterable[str]) -> Reply:
    """A reply with `***` for each secret in its texts and tokens, since it is stored and shown.

    A secret of fewer than eight characters, or of letters only, is a placeholder such as EMPTY and may be a word of a
    good answer: it stays.
    """
    for secret in secrets:
        if len(secret) < _SHORTEST or secret.isalpha():
            continue
        texts = {name: getattr(reply, name) for name in ("text", "reasoning", "model", "finish")}
        found = {name: text.replace(secret, "***") for name, text in texts.items() if text and secret in text}
        reply = replace(reply, **found) if found else reply
        if reply.tokens is not None:
            reply = replace(reply, tokens=_tokens_without(reply.tokens, secret))
    return reply


def _tokens_without(tokens: tuple[Token, ...], secret: str) -> tuple[Token, ...] | None:
    """The tokens, one of which stands for each occurrence of a secret; None where its bytes cannot be cut out."""
    whole, raw = "".join([token.text for token in tokens]), secret.encode()
    if secret in whole:
        kept: list[Token] = []
        spans = iter([found.span() for found in re.finditer(re.escape(secret), whole)])
        span, place = next(spans, None), 0
        for token in tokens:
            start, place = place, place + len(token.text)
            left, text = start, ""
            while span is not None and span[0] < place:
                text += whole[left : span[0]] + ("***" if span[0] >= start else "")
                left = min(span[1], place)
                if span[1] > place:
                    break
                span = next(spans, None)
            text += whole[left:place]
            kept += [token] if text == token.text else [Token(text, token.logprob)] if text else []
        tokens = tuple(kept)
    if any(secret in text for token in tokens for text, _ in token.top):
        tokens = tuple(token._replace(top=tuple(one for one in token.top if secret not in one[0])) for token in tokens)
    if raw in b"".join([token.raw if token.raw is not None else token.text.encode() for token in tokens]):
        return None
    return tokens


def request_body(model: str, prompt: Prompt) -> dict[str, Any]:
    """The JSON of a request. An option that is None removes its field, for servers that refuse it.

    OpenAI's newer models take `max_completion_tokens` only, so as an option it replaces `max_tokens`, and refuse a
    temperature: the value "omit" removes it, as TOML has no None.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in prompt.messages],
        "max_tokens": prompt.max_tokens,
        "temperature": prompt.temperature,
    }
    if prompt.top_logprobs is not None:
        body["logprobs"] = True
        body["top_logprobs"] = prompt.top_logprobs
    if not prompt.options:
        return body
    if prompt.options.get("max_completion_tokens") is not None:
        del body["max_tokens"]
    body.update(prompt.options)
    if body["temperature"] == "omit":
        del body["temperature"]
    return {name: value for name, value in body.items() if value is not None}


def body_bytes(body: dict[str, Any]) -> bytes:
    """The bytes of a request's JSON."""
    try:
        return orjson.dumps(body)
    except TypeError:  # half a surrogate pair in a text
        return orjson.dumps(whole(body))


def behind_proxy(url: str) -> bool:
    """Whether requests to `url` go through a proxy that the environment names.

    The proxy is named by HTTP_PROXY or HTTPS_PROXY, by the scheme of `url`. This machine is always reached directly,
    and so are the hosts in NO_PROXY: names with all names below them, addresses, networks such as 10.99.0.0/16, and `*`
    for all. A network holds for addresses in a URL only: names are not resolved for it.

    Raises `SettingsError`, with the variable's name, for a proxy that cannot be used.
    """
    split = urlsplit(url)
    host = split.hostname or ""
    try:
        address = ip_address(host)
    except ValueError:  # a name
        address = None
    if host == "localhost" if address is None else address.is_loopback or _in_networks(address):
        return False
    proxy = getproxies().get(split.scheme)
    if proxy is None or proxy_bypass(host):
        return False
    _check_proxy(split.scheme, proxy)
    return True


def _in_networks(address: IPv4Address | IPv6Address) -> bool:
    """Whether NO_PROXY names a network that holds `address`; single hosts are looked up by aiohttp."""
    for entry in getproxies().get("no", "").split(","):
        try:
            if "/" in entry and address in ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False


def _check_proxy(scheme: str, proxy: str) -> None:
    try:
        split = urlsplit(proxy)
        usable = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:  # of the port
        usable = False
    if not usable:  # it is not repeated: it may hold a password
        name = next((name for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY") if name in os.environ), "")
        where = f"the environment variable {name}" if name else f"the system's {scheme} proxy"
        raise SettingsError(f"{where} is not a proxy URL; expected: http://HOST:PORT; change or unset it")
