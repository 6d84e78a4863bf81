"""Bodies without end, and small ones that unpack to gigabytes: a failure, in bounded time and memory."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import time
import zlib

import pytest
from aiohttp import web
from served import served

from fcjax.core.prompts import Failure, Prompt, Reply
from fcjax.io import http, models
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.models import list_models
from fcjax.io.outcome import Refused
from fcjax.io.pacing import Retry
from fcjax.io.retrievers import api
from fcjax.io.retrievers.api import SearchApi

ONCE = Retry(attempts=1)
PROMPT = Prompt(messages=(("user", "?"),), template="test/1")
REPLY = json.dumps({"choices": [{"message": {"content": "yes"}}], "data": [{"id": "m"}]}).encode()


def bomb(size=4 << 30):
    """Gzip of `size` zero bytes, without ever holding them."""
    pack = zlib.compressobj(9, wbits=31)
    block = bytes(1 << 20)
    head = b"".join(pack.compress(block) for _ in range(64))
    member = head + pack.flush()
    return member * (size // (64 << 20))


async def endless(request):
    response = web.StreamResponse()
    await response.prepare(request)
    block = b" " * (1 << 20)
    try:
        while True:
            await response.write(block)
    except ConnectionError:
        return response


def packed(content, encoding):
    return lambda request: web.Response(body=content, headers={"Content-Encoding": encoding})


async def model(url):
    async with Client(Endpoint(url, "m"), retry=ONCE) as client:
        return await client.ask(PROMPT)


async def listed(url):
    return await list_models(Endpoint(url, "m"))


async def searched(url):
    service = SearchApi(url, retry=ONCE)
    try:
        return await service.call("/search")
    finally:
        await service.close()


def asked(ask, route):
    async def main():
        async with served(route) as server:
            return await ask(server.url)

    return asyncio.run(main())


@pytest.mark.parametrize("ask", [model, listed, searched])
@pytest.mark.parametrize(
    "route", [endless, packed(bomb(), "gzip"), packed(gzip.compress(bomb(), mtime=0), "gzip, gzip")]
)
def test_more_than_any_answer_is_a_failure(ask, route):
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    found = asked(ask, route)
    assert isinstance(found, Failure)
    assert found.kind == "too_large"
    assert "more than" in found.reason
    assert time.perf_counter() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


@pytest.mark.parametrize("ask", [model, listed, searched])
@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (gzip.compress(REPLY, mtime=0), "gzip"),
        (gzip.compress(REPLY[:9], mtime=0) + gzip.compress(REPLY[9:], mtime=0) + bytes(8), "x-gzip"),
        (zlib.compress(REPLY), "deflate"),
        (zlib.compress(REPLY, wbits=-15), "Deflate"),
        (gzip.compress(zlib.compress(REPLY), mtime=0), "deflate, gzip"),
        (REPLY, "identity"),
    ],
)
def test_compressed_answers_are_read(ask, content, encoding):
    found = asked(ask, packed(content, encoding))
    assert not isinstance(found, Failure)
    if isinstance(found, Reply):
        assert found.text == "yes"


@pytest.mark.parametrize("ask", [model, listed, searched])
@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (gzip.compress(REPLY, mtime=0)[:-12], "gzip"),
        (b"\x1f\x8bno", "gzip"),
        (REPLY, "gzip"),
        (REPLY, "br"),
        (b"", "deflate"),
    ],
)
def test_damaged_compression_is_unreadable(ask, content, encoding):
    found = asked(ask, packed(content, encoding))
    assert isinstance(found, Failure)
    assert found.kind == "unreadable"


def test_the_largest_answer_is_read(monkeypatch):
    for module, name in ((http, "LARGEST"), (models, "_LARGEST"), (api, "_MOST")):
        monkeypatch.setattr(module, name, len(REPLY))
        for route in (packed(REPLY, "identity"), packed(zlib.compress(REPLY), "deflate")):
            assert all(not isinstance(asked(ask, route), Failure) for ask in (model, listed, searched))
    for module, name in ((http, "LARGEST"), (models, "_LARGEST"), (api, "_MOST")):
        monkeypatch.setattr(module, name, len(REPLY) - 1)
    for ask in (model, listed, searched):
        assert asked(ask, packed(REPLY, "identity")).kind == "too_large"
    assert isinstance(http.too_large(200, 5), Refused)


@pytest.mark.parametrize(
    "body",
    [
        b'{"data": [{"id": %s}]}' % (b"[" * 1000 + b"]" * 1000),
        b'{"choices": [{"message": {"content": "yes"}}]}',
        b'{"data": 5}',
        b'{"data": ["m"]}',
        b'{"data": [[1]]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_not_a_list_of_models_is_a_failure(body):
    found = asked(listed, packed(body, "identity"))
    assert isinstance(found, Failure)
    assert found.kind == "unreadable" or "HTTP 200" in found.reason
