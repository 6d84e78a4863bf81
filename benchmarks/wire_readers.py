"""Clients that read from a server on loopback which sends any bytes, and documents in worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from pdfs import pdf
from reply_readers import (
    COMPLETIONS,
    HEADERS,
    LABELS,
    LISTS,
    LOOP,
    SEARCHES,
    VERDICTS,
    Reader,
    headers,
    on_text,
    outcome,
    relations,
    reply_of,
    revisions,
    run,
    searches,
    stages,
    wire,
)

from fcjax.core.prompts import Prompt
from fcjax.io.endpoint import Endpoint
from fcjax.io.http import HttpTransport, Timeouts
from fcjax.io.models import list_models
from fcjax.io.pacing import Retry
from fcjax.io.retrievers.excerpts import excerpt
from fcjax.io.retrievers.extraction import HTML, PDF, PLAIN, ExtractionError, decode, text_of
from fcjax.io.retrievers.extraction_workers import Workers
from fcjax.io.retrievers.pages import PageLimits, PageReader
from fcjax.io.retrievers.serper import Serper
from fcjax.io.retrievers.wikipedia import Wikipedia
from fcjax.stages.parsing.json_like import nodes_in
from fcjax.stages.parsing.labels import read_label, read_labels
from fcjax.stages.parsing.list_parser import own_words, read_fields, read_list, read_numbered
from fcjax.stages.parsing.refusals import declines
from fcjax.stages.summarise import read_summary

TIMES: Final = Timeouts(connect=2.0, read=2.0, total=3.0)
ONCE: Final = Retry(attempts=1)
PAGE: Final = (
    "<!doctype html><html><head><title>Rome</title><meta charset='utf-8'><script>x()</script></head><body><h1>Rome</h1>"
    + "<p>Rome is an old city on the Tiber, and it was founded in 753 BC, says the legend. <b>Bold</b> &amp; more.</p>"
    * 6
    + "<table><tr><td>a</td><td>b</td></tr></table><ul><li>one</li></ul><!-- no --></body></html>"
)
PAGES: Final = (
    PAGE.encode(),
    PAGE.replace("utf-8", "iso-8859-1").replace("old", "öld").encode("latin-1"),
    b"\xff\xfe" + PAGE.encode("utf-16-le"),
    b"<?xml version='1.0' encoding='utf-8'?>" + PAGE.encode(),
    b"Rome is old.\n\nIt is a city.",
)


class Wire:
    """A server on loopback that answers every request with the same bytes and closes the connection."""

    def __init__(self) -> None:
        self._answer = b""
        self._asked = 0
        limits = PageLimits(total=5.0, extraction=10.0)
        self._pages = PageReader(private=["127.0.0.0/8"], limits=limits, retry=ONCE)
        server = LOOP.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._answer)
            await writer.drain()
        writer.close()

    def client(self, data: bytes) -> None:
        """A model's answer, and its list of models."""
        self._answer = data
        endpoint = Endpoint(f"{self.url}/v1", "m", "sk-secret-12345")

        async def ask() -> None:
            transport = HttpTransport(endpoint, timeouts=TIMES)
            try:
                await transport.send(Prompt(messages=(("user", "?"),), template="t/1"))
            finally:
                await transport.close()
            await list_models(endpoint, timeout=3.0)

        run(ask())

    def search(self, data: bytes) -> None:
        """Searches of Serper and Wikipedia."""
        self._answer = data

        async def ask() -> None:
            for retriever in (
                Serper("0123456789abcdef", base_url=self.url, retry=ONCE, timeouts=TIMES),
                Wikipedia(base_url=self.url, retry=ONCE, timeouts=TIMES),
            ):
                try:
                    await retriever.search("Rome is old", 3)
                finally:
                    await retriever.close()

        run(ask())

    def page(self, data: bytes) -> None:
        """A page of the web, which is read in a worker process."""
        self._answer = data

        self._asked += 1
        run(self._pages.read(f"{self.url}/{self._asked}", "Rome is old"))


WORKERS: Final = Workers(1)


def html(data: bytes) -> None:
    """A page's text, and the part of it that answers a query."""
    text, _ = text_of(HTML, data, None, time.monotonic() + 10)
    excerpt(text, "Rome is old", 300)


def plain(data: bytes) -> None:
    for charset in (None, "utf-16", "cp1252", "utf-7", "idna"):
        decode(data, charset, meta=True)
    text, _ = text_of(PLAIN, data, None, time.monotonic() + 10)
    excerpt(text, "Rome is old", 300)


def in_worker(data: bytes) -> None:
    """A document in a worker process; it may take 10 seconds."""
    WORKERS.text_of(PDF if data.lstrip()[:5] == b"%PDF-" else HTML, data, None, 10.0)


def readers() -> list[Reader]:
    """All readers of replies, responses and documents."""
    server = Wire()
    documents = [pdf("Rome is old."), *PAGES]
    pages = [wire(200, page, header) for page in PAGES[:3] for header in HEADERS[1:]]
    return [
        Reader(
            "labels", on_text(lambda text: (read_label(text), read_label(text, True), read_labels(text, 5))), LABELS
        ),
        Reader("relations with logprobs", relations, LABELS),
        Reader("lists", on_text(lambda text: (read_list(text), read_list(text, True), read_numbered(text, 5))), LISTS),
        Reader("JSON-like", on_text(lambda text: (nodes_in(text), read_fields(text, ("summary",)))), LISTS + LABELS),
        Reader("summaries", lambda data: read_summary(reply_of(data)), LISTS),
        Reader("verdicts", on_text(lambda text: (VERDICTS.read(text), VERDICTS.read_numbered(text, 5))), LABELS),
        Reader("revisions", revisions, LISTS),
        Reader(
            "refusals", on_text(lambda text: (declines(text), own_words(text, "Take apart what a text says."))), LISTS
        ),
        Reader("stages", stages, LISTS + LABELS),
        Reader("responses of a model server", outcome, COMPLETIONS, share=2.0),
        Reader("headers", headers, COMPLETIONS),
        Reader("responses of search services", searches, SEARCHES),
        Reader("model server on loopback", server.client, COMPLETIONS),
        Reader("search services on loopback", server.search, SEARCHES),
        Reader("pages on loopback", server.page, pages, elsewhere=True),
        Reader("HTML", html, PAGES, (ExtractionError,)),
        Reader("plain text", plain, PAGES, (ExtractionError,)),
        Reader("PDF and HTML in a worker", in_worker, documents, (ExtractionError,), 2.0, True),
    ]
