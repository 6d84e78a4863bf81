"""The text of a document from the web: HTML, PDF or plain text, in any encoding.

Everything here computes, and some parsers can be made to compute for hours: documents of strangers are read by way of
`extraction_workers`. All patterns take time that is linear in the text.
"""

from __future__ import annotations

import codecs
import io
import re
import time
from string import ascii_lowercase, digits
from typing import Final

from fcjax.core.words import mended

LONGEST: Final = 400_000
"""Characters of a document's text that are kept; books have more."""
PDF_PAGES: Final = 100
"""Pages of a PDF that are read."""

HTML: Final = "html"
PDF: Final = "pdf"
PLAIN: Final = "plain"

_HTML_TYPES: Final = ("text/html", "application/xhtml+xml")
_PLAIN_TYPES: Final = ("text/plain", "text/markdown", "text/x-markdown", "text/csv", "text/tab-separated-values")
_VAGUE_TYPES: Final = ("", "application/octet-stream", "binary/octet-stream", "application/force-download")
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_META: Final = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*(?:["']\s*)?([\w.:-]+)|<\?xml[^>]{0,100}encoding=["']([\w.-]+)""", re.I
)
# One comment: what it skips may be the end of a comment and the begin of the next. To repeat it, as several comments
# suggest, would take exponential time.
_MARKUP: Final = re.compile(
    rb"\A\s*(?:<!--.{0,2000}?-->\s*)?<(?:!doctype\s+html|html|head|body|meta|title)\b", re.I | re.S
)
_IN_TYPES: Final = frozenset(ascii_lowercase + digits + ".+-_")
_LONGEST_HEADER: Final = 1000
_DECLARATION: Final = re.compile(r"\A\s*<\?xml[^>]*\?>")
_PAID: Final = re.compile(r"""["']isAccessibleForFree["']\s*:\s*["']?false""", re.I)
# What a page says that is called otherwise on the wire: the web reads Latin 1 as Windows 1252, and so on.
_READ_AS: Final = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949"}
# What Python calls text encodings too, and no page is written in.
_NO_CHARSETS: Final = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")


class ExtractionError(ValueError):
    """A document from which no text can be extracted; the message says why."""


class ExtractionTimeoutError(ExtractionError):
    """A document that takes too much time."""


class OutOfTime(BaseException):
    """Raised by a timer in the midst of a document; not an `Exception`, which parsers catch."""


def content_type(header: str) -> tuple[str, str | None]:
    """The type of a Content-Type header, without parameters and in lower case, and its charset if it names one.

    A header that names no type has the type "". Comments are not read: parsers of mail headers, which aiohttp uses for
    this, descend into nested ones.
    """
    first, *parameters = header[:_LONGEST_HEADER].split(";")
    kind, slash, more = first.partition("(")[0].strip().lower().partition("/")
    declared = f"{kind}/{more}" if slash and kind and more and _IN_TYPES.issuperset(kind + more) else ""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return declared, value.strip(" \t\"'") or None
    return declared, None


def kind_of(content_type: str, head: bytes) -> str | None:
    """The kind of a document, by its declared type (without parameters) and first bytes; None if it has no text."""
    if head.lstrip()[:5] == b"%PDF-":
        return PDF
    if content_type == "application/pdf":
        return None  # it says so, and is none
    wide = head.startswith(tuple(bom for bom, _ in _BOMS[1:]))
    if b"\0" in head and not wide:
        return None
    if content_type in _HTML_TYPES:
        return HTML
    if content_type in _PLAIN_TYPES or content_type in _VAGUE_TYPES:
        return HTML if _MARKUP.match(head) else PLAIN
    return None


def text_of(kind: str, body: bytes, charset: str | None, deadline: float) -> tuple[str, str | None]:
    """The text of a document, and a note on it, such as that it is behind a paywall, or is not all there.

    `charset` is the one of the HTTP header; `deadline` is in seconds of `time.monotonic`, for documents of many pages.
    Raises `ExtractionError`.
    """
    if kind == PDF:
        text, note = _pdf(body, deadline)
    else:
        decoded = decode(body, charset, meta=kind == HTML)
        text, note = _html(decoded) if kind == HTML else (decoded, None)
    text = tidy(text)
    if not text:
        raise ExtractionError("it contains no text" + (f" ({note})" if note else ""))
    if len(text) > LONGEST:
        note = "; ".join(filter(None, (note, f"only the first {LONGEST:,} characters were read")))
    return text[:LONGEST], note


def decode(body: bytes, charset: str | None, *, meta: bool = False) -> str:
    """The text of bytes: UTF-8 where they are that, else by the header's charset, by what HTML says, or a guess.

    Bytes that read as UTF-8 and are more than ASCII are UTF-8, whatever a server claims of all its pages alike. Never
    raises: what cannot be read comes as a replacement character.
    """
    for bom, name in _BOMS:
        if body.startswith(bom):
            return body.decode(name, "replace")
    if not body.isascii():
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            if error.start >= len(body) - 3:  # cut in the middle of a character
                return body.decode(errors="replace")
    names = [charset]
    if meta and (declared := _META.search(body[:4096])):
        name = (declared[1] or declared[2]).decode("ascii", "replace")
        names.append(None if name.lower().startswith("utf-") else name)  # it was read as ASCII, and is not UTF-8
    for codec in map(_codec, names):
        if codec:
            return body.decode(codec, "replace")
    if body.isascii():
        return body.decode()
    from trafilatura.utils import detect_encoding

    guesses = filter(None, map(_codec, detect_encoding(body[:200_000])))
    return body.decode(next(guesses, "utf-8"), "replace")


def _codec(name: str | None) -> str | None:
    """Python's name of a charset; None for what is none."""
    try:
        found = codecs.lookup((name or "").strip(" \"'"))
    except (LookupError, ValueError):
        return None
    if not found._is_text_encoding or found.name in _NO_CHARSETS:
        return None
    return _READ_AS.get(found.name, found.name)


def _html(markup: str) -> tuple[str, str | None]:
    """The main text of a page; where that is not to be found, all of its text."""
    from trafilatura import extract, html2txt

    note = "the page is marked as paywalled" if _PAID.search(markup) else None
    markup = markup.lstrip("\ufeff")
    markup = _DECLARATION.sub("", markup)  # lxml refuses texts that declare an encoding
    try:
        text = extract(markup, include_comments=False, include_tables=True, favor_recall=True) or ""
    except MemoryError:
        raise
    except Exception:  # whatever a page's markup does to a parser, it is the page's fault
        text = ""
    if len(text) < 200:
        try:
            whole = html2txt(markup) or ""
        except MemoryError:
            raise
        except Exception:
            whole = ""
        text = whole if len(whole) > 2 * len(text) else text
    return text, note


def _pdf(body: bytes, deadline: float) -> tuple[str, str | None]:
    import logging

    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it reports every blemish of every file
    texts: list[str] = []
    length = 0
    note = None
    try:
        reader = PdfReader(io.BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ExtractionError("the PDF is encrypted")
        for number, page in enumerate(reader.pages):
            if number >= PDF_PAGES or length > LONGEST or time.monotonic() > deadline:
                note = f"only the first {number} pages of the PDF were read"
                break
            texts.append(page.extract_text() or "")
            length += len(texts[-1])
    except ExtractionError:
        raise
    except OutOfTime:
        if not any(text.strip() for text in texts):
            raise
        note = f"only the first {len(texts)} pages of the PDF were read"
    except Exception as error:  # damaged files make it raise nearly anything
        if not any(text.strip() for text in texts):
            if isinstance(error, MemoryError):
                raise
            raise ExtractionError(f"the PDF cannot be read ({type(error).__name__})") from error
        note = f"only the first {len(texts)} pages of the PDF could be read"
    return "\n\n".join(texts), note


def tidy(text: str) -> str:
    """The text without control characters, halves of characters and superfluous spaces."""
    text = _CONTROL.sub("", mended(text).replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n"))
    return _EMPTY_LINES.sub("\n\n", _SPACES.sub(" ", text)).strip()


_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ufeff\ufffe\uffff]")
_SPACES: Final = re.compile(r"[^\S\n]+")
_EMPTY_LINES: Final = re.compile(r" ?\n(?: ?\n)+ ?")
