"""Documents made to take all time or memory: patterns are linear, and parsers run in processes that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from contextlib import closing, contextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pdfs import pdf
from pypdf import PdfWriter
from pypdf.generic import ArrayObject, DecodedStreamObject, DictionaryObject, NameObject, NumberObject, StreamObject
from served import served

from fcjax.core.prompts import Failure
from fcjax.io.retrievers import corpus, excerpts, extraction, ssrf_guard, words
from fcjax.io.retrievers.excerpts import excerpt
from fcjax.io.retrievers.extraction import (
    HTML,
    LONGEST,
    PDF,
    PLAIN,
    ExtractionError,
    ExtractionTimeoutError,
    content_type,
    decode,
    kind_of,
    text_of,
    tidy,
)
from fcjax.io.retrievers.extraction_workers import GRACE, MEMORY, MEMORY_PER_BYTE, Workers
from fcjax.io.retrievers.local import LocalCorpus
from fcjax.io.retrievers.pages import PageLimits, PageReader

STORY = "Marie Curie was born in Warsaw in 1867 and won two Nobel Prizes."
ATTRIBUTES = b"<html><body><p " + b" ".join(b"a%d=b" % i for i in range(400_000)) + b">hello</p>"


@contextmanager
def within(seconds):
    """Fail after some seconds, also in the midst of a pattern."""

    def alarm(number, frame):
        raise AssertionError(f"it takes over {seconds} s")

    previous = signal.signal(signal.SIGALRM, alarm)
    outer = signal.setitimer(signal.ITIMER_REAL, seconds)  # the limit of the whole test
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, *outer)


# ---- Patterns.

PATTERNS = [
    pytest.param(pattern, id=f"{module.__name__.rsplit('.', 1)[1]}.{name}")
    for module in (corpus, excerpts, extraction, ssrf_guard, words)
    for name, pattern in vars(module).items()
    if isinstance(pattern, re.Pattern)
]
REPEATED = (
    *("<!---->", "<!--", "-->", "<!-- a --> ", "<meta", "<meta charset=", "charset=", "charset", "<?xml"),
    *("<?xml encoding=", " ", "\n", " \n", "\n \n", "\t\n ", "\u3000", "a", "a ", "1", "1,234", ".", "1.", ". "),
    *("!'\")]", "<", ">", "?>", "=", "'", "'isAccessibleForFree'", "'isAccessibleForFree':", "\u0301", "e\u0301"),
    *("\uac00", "\uac00a", "\u0661", "\x00", "<title", "<title>", "<html", "<!doctype ", "a.", "-", "_", "\ufeff"),
    "\u3002",
)
BEFORE = ("", "<!--", "<meta charset=", "<meta charset = '", "<?xml ", "<!doctype", "'isAccessibleForFree'", "a", ".")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_takes_time_that_is_linear_in_the_worst_text(pattern):
    """From 64 characters to 64 kB: quadratic patterns take over a minute, linear ones some ms."""
    for before in BEFORE:
        for repeated in REPEATED:
            for size in (64, 1024, 16_384, 65_536):
                text = before + repeated * (size // len(repeated)) + "x"
                given = text if isinstance(pattern.pattern, str) else text.encode()
                with within(1.0):
                    pattern.sub("" if isinstance(given, str) else b"", given)
                    pattern.match(given)
                    pattern.fullmatch(given)


def test_all_patterns_are_timed():
    assert len(PATTERNS) >= 16


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("text/html", ("text/html", None)),
        ("Text/HTML ; Charset=UTF-8", ("text/html", "UTF-8")),
        ('text/plain;format=flowed; charset="iso-8859-2"', ("text/plain", "iso-8859-2")),
        ("application/xhtml+xml;charset=", ("application/xhtml+xml", None)),
        ("text/html (a comment); charset=utf-8", ("text/html", "utf-8")),
        ("text/htm" + "(" * 300, ("text/htm", None)),  # aiohttp's reader of such a header ends in a RecursionError
        ("(" * 30_000, ("", None)),
        ("text", ("", None)),
        ("text/", ("", None)),
        ("/html", ("", None)),
        ("text/html\x00", ("", None)),
        ("té/html", ("", None)),
        ("", ("", None)),
    ],
)
def test_a_content_type_is_read_whatever_the_header(header, expected):
    assert content_type(header) == expected


@given(st.text())
def test_any_header_has_a_content_type(header):
    declared, charset = content_type(header)
    assert declared == "" or declared.count("/") == 1
    assert charset is None or charset in header


def test_a_page_of_comments_is_sniffed_at_once():
    with within(1.0):
        for head in (b"<!---->" * 140, b"<!-- -->" * 128, b" " * 1024, b"<!--" * 256, b"<!---->\n" * 128):
            assert kind_of("text/plain", head) == PLAIN
            assert kind_of("text/plain", head[:1000] + b"<html>") == (
                HTML if b"-->" in head or head.isspace() else PLAIN
            )


PIECES = st.sampled_from(
    [b"<!--", b"-->", b"--", b">", b" ", b"\n", b"a", b"<html>", b"<HEAD ", b"<p>", b"<!doctype html"]
)


@given(st.lists(PIECES, max_size=8))
def test_markup_is_recognised_as_by_the_pattern_that_it_replaces(pieces):
    former = rb"\s*(?:<!--.{0,2000}?-->\s*)*<(?:!doctype\s+html|html|head|body|meta|title)\b"
    head = b"".join(pieces)
    assert (kind_of("text/plain", head) == HTML) == bool(re.match(former, head, re.IGNORECASE | re.DOTALL))


@pytest.mark.parametrize(
    "text",
    [
        "w1\n" * 130_000,
        "e\u0300\u0316" * 130_000,
        ". " * 200_000,
        "a" * 400_000,
        "w1 w2 w3 w4. " * 30_000,
        " \n" * 200_000,
    ],
)
def test_the_longest_texts_are_tidied_and_cut_in_seconds(text):
    with within(20.0):
        excerpt(tidy(text), " ".join(f"w{i}" for i in range(1000)))


def test_an_encoding_is_guessed_in_seconds():
    with within(10.0):
        decode(bytes(range(128, 256)) * 32_768, None)


# ---- Processes.


def paragraphs(text):
    return f"<!doctype html><html><body><article><p>{text}</p></article></body></html>".encode()


def slow_pdf(*, first=STORY, operators=3_000_000):
    """A small PDF whose second page takes minutes."""
    writer = PdfWriter()
    font = DictionaryObject({NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1")})
    font[NameObject("/BaseFont")] = NameObject("/Helvetica")
    for content in (
        f"BT /F1 12 Tf 50 700 Td ({first}) Tj ET".encode(),
        b"BT /F1 12 Tf " + b"(a)Tj " * operators + b"ET",
    ):
        page = writer.add_blank_page(600, 800)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = StreamObject()
        stream._data = zlib.compress(content, 9)
        stream[NameObject("/Filter")] = NameObject("/FlateDecode")
        page[NameObject("/Contents")] = stream
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def processes(workers):
    return [worker._process for worker in workers._all]


def test_a_page_that_takes_too_long_is_killed_and_the_others_are_read():
    """400,000 attributes took over 110 s in a thread that could not be stopped."""

    def page(request):
        body = ATTRIBUTES if "bad" in request.path else paragraphs(STORY)
        return web.Response(body=body, headers={"Content-Type": "text/html"})

    async def main():
        async with served(page) as server:
            reader = PageReader(private=("127.0.0.0/8",), limits=PageLimits(extraction=2.0, size=8 << 20))
            try:
                paths = ("bad", "bad?2", "bad?3", "good", "good?2")
                return await asyncio.gather(*(reader.read(f"{server.url}/{path}", "Curie") for path in paths))
            finally:
                await reader.close()

    begin = time.monotonic()
    found = asyncio.run(main())
    assert time.monotonic() - begin < 40
    for failure in found[:3]:
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.reason) == ("timeout", "extracting the text took over 2 s")
    assert [STORY in page.text for page in found[3:]] == [True, True]


def test_a_deadline_falls_within_a_page_of_a_pdf_and_keeps_the_pages_before():
    body = slow_pdf()
    assert len(body) < 60_000
    with closing(Workers(1)) as workers:
        begin = time.monotonic()
        text, note = workers.text_of(PDF, body, None, 2.0)
        assert time.monotonic() - begin < 20
    assert text.strip() == STORY
    assert note == "only the first 1 pages of the PDF were read"


def test_a_pdf_of_the_web_that_is_cut_at_its_time_has_a_note():
    async def main():
        async with served(
            lambda _: web.Response(body=slow_pdf(), headers={"Content-Type": "application/pdf"})
        ) as server:
            reader = PageReader(private=("127.0.0.0/8",), limits=PageLimits(extraction=2.0))
            try:
                return await reader.read(f"{server.url}/slow", "Curie")
            finally:
                await reader.close()

    found = asyncio.run(main())
    assert found.text.strip() == STORY
    assert found.note == "only the first 1 pages of the PDF were read"


def test_a_text_that_is_cut_has_a_note():
    assert text_of(PLAIN, b"x" * LONGEST, None, math.inf) == ("x" * LONGEST, None)
    assert text_of(PLAIN, b"x" * (LONGEST + 1), None, math.inf) == (
        "x" * LONGEST,
        "only the first 400,000 characters were read",
    )
    text, note = text_of(PDF, pdf(*["y" * 100_000] * 6), None, math.inf)
    assert len(text) == LONGEST
    assert note == "only the first 5 pages of the PDF were read; only the first 400,000 characters were read"


def nested_forms(levels, *, copies=10):
    """A PDF of a page that draws a form, which draws ten others, and so on: `copies ** levels` in 4 kB."""
    writer = PdfWriter()
    font = DictionaryObject({NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1")})
    font[NameObject("/BaseFont")] = NameObject("/Helvetica")
    fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
    form, content, names = None, b"BT /F1 9 Tf (a)Tj ET", DictionaryObject()
    for level in range(levels + 1):
        if level:
            names = DictionaryObject({NameObject(f"/X{i}"): form for i in range(copies)})
            content = b" ".join(b"/X%d Do" % i for i in range(copies))
        drawn = DecodedStreamObject()
        drawn.set_data(content)
        drawn[NameObject("/Type")], drawn[NameObject("/Subtype")] = NameObject("/XObject"), NameObject("/Form")
        drawn[NameObject("/BBox")] = ArrayObject([NumberObject(n) for n in (0, 0, 600, 800)])
        drawn[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts, NameObject("/XObject"): names})
        form = writer._add_object(drawn)
    page, shown = writer.add_blank_page(600, 800), DecodedStreamObject()
    shown.set_data(b"/X0 Do")
    names = DictionaryObject({NameObject("/X0"): form})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts, NameObject("/XObject"): names})
    page[NameObject("/Contents")] = writer._add_object(shown)
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


WITHOUT_END = {
    "10^6 attributes": (HTML, b"<html><body><p " + b" ".join(b"a%d=b" % i for i in range(1_000_000)) + b">hello</p>"),
    "10^9 forms": (PDF, nested_forms(9)),
}


@pytest.mark.parametrize(("kind", "body"), WITHOUT_END.values(), ids=WITHOUT_END)
def test_a_document_ends_at_its_limit_and_a_second_whatever_its_size(kind, body):
    assert len(body) < (10 << 20 if kind == HTML else 4500)
    with closing(Workers(1)) as workers:
        workers.text_of(PLAIN, b"x", None, 5.0)
        begin = time.monotonic()
        if kind == HTML:
            with pytest.raises(ExtractionTimeoutError, match="^extracting the text took over 2 s$"):
                workers.text_of(kind, body, None, 2.0)
        else:  # of a PDF, what was read up to the limit may be kept
            with contextlib.suppress(ExtractionTimeoutError):
                workers.text_of(kind, body, None, 2.0)
        assert time.monotonic() - begin < 2.0 + GRACE + 1.0  # the last one for a busy machine
        assert workers.text_of(PLAIN, b"y", None, 5.0) == ("y", None)


def test_a_corpus_has_a_deadline_for_each_pdf(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "_SECONDS", 2.0)
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "slow.pdf").write_bytes(slow_pdf())
    (folder / "blank.pdf").write_bytes(slow_pdf(first=""))
    (folder / "good.html").write_bytes(paragraphs("The Vasa sank in Stockholm."))
    begin = time.monotonic()
    opened = LocalCorpus.open(folder, index=tmp_path / "index")
    assert time.monotonic() - begin < 40
    assert [hit.link for hit in opened.find("Curie", 1)] == ["slow.pdf"]
    assert [hit.link for hit in opened.find("Vasa", 1)] == ["good.html"]
    told = "\n".join(map(str, opened.faults))
    assert "only the first 1 pages" in told
    assert "extracting the text took over 2 s" in told


def test_a_worker_that_dies_is_replaced_and_those_of_a_closed_pool_end():
    with closing(Workers(1)) as workers:
        assert processes(workers) == []  # none before it is needed
        assert workers.text_of(PLAIN, b"one", None, 5.0) == ("one", None)
        (first,) = processes(workers)
        first.kill()
        first.wait()
        assert workers.text_of(PLAIN, b"two", None, 5.0) == ("two", None)
        (second,) = processes(workers)
        with pytest.raises(ExtractionError, match="no text"):
            workers.text_of(PLAIN, b"  ", None, 5.0)
        assert processes(workers) == [second]  # a document without text is not a worker's end

        killed = threading.Timer(1.0, second.kill)
        killed.start()
        with pytest.raises(ExtractionError, match=r"died \(signal 9\)"):
            workers.text_of(HTML, ATTRIBUTES, None, 30.0)
        killed.join()
        assert workers.text_of(PLAIN, b"three", None, 5.0) == ("three", None)
        (third,) = processes(workers)
    assert third.returncode is not None
    assert workers.text_of(PLAIN, b"four", None, 5.0) == ("four", None)  # it may be used again
    (fourth,) = processes(workers)
    workers.close()
    assert fourth.returncode is not None


def test_closing_gives_up_what_is_being_parsed():
    workers = Workers(1)
    closed = threading.Timer(1.0, workers.close)
    closed.start()
    begin = time.monotonic()
    with pytest.raises(ExtractionError):
        workers.text_of(HTML, ATTRIBUTES, None, 60.0)
    assert time.monotonic() - begin < 20
    closed.join()


def test_a_document_without_an_end_is_told_as_such():
    with closing(Workers(1)) as workers, pytest.raises(ExtractionTimeoutError, match="over 0.5 s"):
        workers.text_of(HTML, ATTRIBUTES, None, 0.5)


@pytest.mark.skipif(sys.platform != "linux", reason="limits are read from /proc")
def test_a_worker_has_limits_of_memory_and_time_and_is_small():
    with closing(Workers(1)) as workers:
        body = paragraphs(STORY)
        workers.text_of(HTML, body, None, 7.0)
        (process,) = processes(workers)
        limits = dict(
            re.findall(r"^Max (address space|cpu time|core file size) +(\d+)", read(process, "limits"), re.MULTILINE)
        )
        assert int(limits["address space"]) == MEMORY + MEMORY_PER_BYTE * len(body)
        assert 8 <= int(limits["cpu time"]) <= 12
        assert limits["core file size"] == "0"
        assert int(re.search(r"VmHWM:\s+(\d+)", read(process, "status"))[1]) < 200_000  # kB


TOO_LARGE = {  # documents, and the memory in MiB beside 32 bytes per byte that is too little for them
    "cells": (b"<html><body><table>" + b"<td>a" * 800_000, 150),  # 4 MB that take 1.2 GB
    "paragraphs": (b"<html><body>" + b"<p>hello world</p>" * 600_000, 100),
}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limit, or another")
@pytest.mark.parametrize(("body", "memory"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_document_that_needs_too_much_memory_is_refused_as_such_and_the_next_is_read(body, memory):
    """Parsers hide that they were denied memory: it read "it contains no text"."""
    limit = memory + (MEMORY_PER_BYTE * len(body) >> 20)
    with closing(Workers(1, memory=memory << 20)) as workers:
        workers.text_of(PLAIN, b"x", None, 5.0)
        (process,) = processes(workers)
        peak = Peak(process)
        begin = time.monotonic()
        with pytest.raises(ExtractionError, match=f"^extracting the text needs more than {limit} MiB of memory$"):
            workers.text_of(HTML, body, None, 30.0)
        assert time.monotonic() - begin < 31
        assert peak.stop() < (limit + 16) << 10
        assert STORY in workers.text_of(HTML, paragraphs(STORY), None, 15.0)[0]
        with pytest.raises(ExtractionError, match="^it contains no text$"):  # not the fault of the document before
            workers.text_of(HTML, b"<html><body></body></html>", None, 15.0)


class Peak(threading.Thread):
    """The largest size of a process while it runs, in kB."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self._process, self._ends, self._most = process, threading.Event(), 0
        self.start()

    def run(self):
        while not self._ends.wait(0.01):
            with contextlib.suppress(OSError):
                found = re.search(r"VmPeak:\s+(\d+)", read(self._process, "status"))
                self._most = int(found[1]) if found else self._most

    def stop(self):
        self._ends.set()
        self.join()
        assert self._most
        return self._most


def read(process, name):
    with open(f"/proc/{process.pid}/{name}") as file:
        return file.read()


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are read from /proc")
def test_workers_leave_no_pipes_open():
    def opened():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for _ in range(3):
        with closing(Workers(2)) as workers:
            workers.text_of(PLAIN, b"x", None, 5.0)
            with pytest.raises(ExtractionTimeoutError):
                workers.text_of(HTML, ATTRIBUTES, None, 0.2)
    assert opened() <= before


def test_a_worker_imports_little():
    code = "import sys, pypdf, trafilatura, fcjax.io.retrievers.extraction_workers; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncio", "jax", "aiohttp", "numba", "litellm"}.intersection(loaded)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limit, or another")
def test_a_worker_ends_although_its_program_was_killed():
    code = (
        "import threading, time; from fcjax.io.retrievers.extraction_workers import Workers; workers = Workers(1)\n"
        "workers.text_of('plain', b'x', None, 2.0); (worker,) = workers._all; print(worker._process.pid, flush=True)\n"
        "body = b'<html><body><p ' + b' '.join(b'a%d=b' % i for i in range(400_000)) + b'>'\n"
        "threading.Timer(1.0, print, ['now'], {'flush': True}).start(); workers.text_of('html', body, None, 2.0)"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True) as program:
        pid = int(program.stdout.readline())
        assert program.stdout.readline() == "now\n"
        program.kill()
    end = time.monotonic() + 60
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.1)
    assert not is_running(pid)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_script_does_at_its_top_is_done_once(tmp_path):
    """A worker does not import the program's main module, which need not be guarded by its name."""
    script = tmp_path / "script.py"
    script.write_text(
        "from fcjax.io.retrievers.extraction_workers import Workers\n"
        "print('top')\nworkers = Workers(1)\nprint(workers.text_of('plain', b'x', None, 5.0))\n"
    )
    done = subprocess.run([sys.executable, "-P", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("top\n('x', None)\n", "")
