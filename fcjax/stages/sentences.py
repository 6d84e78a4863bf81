"""Atoms without a model: the sentences of a response, as it has them.

A sentence is an atom, and so are a list item and a row of a table. Markup is removed: list marks, heading marks,
emphasis, the pipes of a table, and code in fences as a whole. Nothing is reworded: "he" and "it" stay. Left out are
sentences that claim nothing, by the rule that coverage uses (`fcjax.stages.claim_words`).

Sentences are found by `sentencex`, whose time grows with the square of a text's length, so it is given at most `WINDOW`
characters at a time.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from fcjax.core.errors import SettingsError
from fcjax.core.languages import language_of, script_of
from fcjax.core.records import Case, Status
from fcjax.stages.answers import Ask, Reject
from fcjax.stages.atomize import LONGEST, ended, with_atoms, without_work
from fcjax.stages.chunks import chunks
from fcjax.stages.claim_words import claim_words
from fcjax.stages.claim_words import sentences as claiming
from fcjax.stages.traces import traced

WINDOW: Final = 2000
"""Characters in which sentences are looked for at once."""
_THREAD: Final = 20_000  # characters of a response that are too much for the event loop

_CODES: Final = (
    "am ar bg bn ca cs da de el en es fa fi fr gl gu he hi hu hy id it ja kk kn ko lt ml mr ms my nb nl nn no pa pl pt "
    "ro ru sa sk sr sv ta te th tr tt uk ur vi zh"
)
LANGUAGES: Final = tuple(_CODES.split())
"""Codes of ISO 639-1 that are accepted; those without rules of their own get a neighbour's, or the general ones."""

_BY_SCRIPT: Final = {
    **{"arabic": "ar", "armenian": "hy", "bengali": "bn", "chinese": "zh", "cyrillic": "ru", "devanagari": "hi"},
    **{"ethiopic": "am", "greek": "el", "gujarati": "gu", "gurmukhi": "pa", "hebrew": "he", "japanese": "ja"},
    **{"kannada": "kn", "korean": "ko", "malayalam": "ml", "myanmar": "my", "tamil": "ta", "telugu": "te"},
    "thai": "th",
}
_BY_WORDS: Final = {
    **{"german": "de", "french": "fr", "spanish": "es", "italian": "it", "portuguese": "pt", "dutch": "nl"},
    **{"swedish": "sv", "polish": "pl", "turkish": "tr", "ukrainian": "uk"},
}
_SEEN: Final = 20_000  # characters by which a language is guessed


def check_language(code: Any) -> None:
    """Raise `SettingsError` unless `code` is one of `LANGUAGES`, perhaps with a region or a script: pt-BR."""
    if not isinstance(code, str) or _base(code) not in LANGUAGES:
        raise SettingsError(
            f"language is {code!r:.60}; expected a code of two letters such as en, de or zh, perhaps with a region "
            f"(pt-BR); allowed: {', '.join(LANGUAGES)}"
        )


def _base(code: str) -> str:
    return re.split("[-_]", code.strip().lower(), maxsplit=1)[0]


def guessed_language(text: str) -> str:
    """The code of a text's language: by its script, then by its most common words; en where that is unclear."""
    text = text[:_SEEN]
    code = _BY_SCRIPT.get(script_of(text) or "", "en")
    return _BY_WORDS.get(language_of(text) or "", code) if code in ("en", "ru") else code


@dataclass(frozen=True, slots=True)
class SentenceAtomizer:
    """Takes the sentences of a response as its atoms; no model is asked.

    `language` is a code (see `LANGUAGES`) for all texts; None guesses it for each one, and by the script for passages
    in another. A sentence of more than `LONGEST` characters becomes several atoms. Raises `SettingsError`.
    """

    language: str | None = None

    def __post_init__(self) -> None:
        if self.language is not None:
            check_language(self.language)

    async def run(self, case: Case, ask: Ask | None = None, reject: Reject | None = None) -> Case:
        """The case with its atoms a0, a1, ... in the order of the response, exact duplicates dropped.

        Without any, they are (), and status and `reason` say why, as `Atomizer.run` does. The trace of the stage names
        the atomizer and the language. A case that has atoms, or has failed otherwise, comes back as it is.
        """
        trace: dict[str, Any] = {"atomizer": "sentences", "pronouns": "kept", "prompts": 0}
        if (done := without_work(case, trace)) is not None:
            return done
        response = case.response or ""
        trace["language"] = language = _base(self.language) if self.language else guessed_language(response)
        fixed = self.language is not None
        if len(response) > _THREAD:
            found = await asyncio.to_thread(sentences, response, language, fixed)
        else:
            found = sentences(response, language, fixed)
        texts = dict.fromkeys(found)
        trace |= {"facts": len(found), "duplicates": len(found) - len(texts)}
        case = replace(case, extra=traced(case, "atomize", trace))
        if not texts:
            return ended(case, Status.NO_ATOMS, "the response makes no factual claim", ())
        return with_atoms(case, texts)


def sentences(response: str, language: str, fixed: bool = True) -> list[str]:
    """The sentences of a response that can claim something, in order, without markup.

    `language` is a code of `LANGUAGES`; unless it is `fixed`, passages in another script are read by that script's.
    """
    text = _without_code(_SURROGATE.sub("\ufffd", response))
    script = None if fixed else script_of(text[:_SEEN])
    spans = claiming(text)
    ends = [end for _, end in spans]
    weighty = [word.start for start, end in spans for word in claim_words(text, start, end) if word.weight]

    def claims(start: int, end: int) -> bool:
        """Whether there is a word that can claim something, or more than one word of a sentence that can."""
        first = bisect_left(weighty, start)
        if first < len(weighty) and weighty[first] < end:
            return True
        span = bisect_right(ends, start)
        return span < len(spans) and spans[span][0] < end and len(text[start:end].split()) > 1

    found = [bare(text[start:end], row) for start, end, row in _units(text, language, script) if claims(start, end)]
    return [one for one in found if one]


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_FENCE: Final = re.compile(r"(?m)^[ \t]{0,12}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*$")
_PROSE: Final = frozenset(("markdown", "md", "text", "txt", "plaintext"))


def _without_code(text: str) -> str:
    """The text with spaces for what stands in fences of code; not for prose in a fence, nor a fence that never ends."""
    parts, after, opened = [], 0, None
    for match in _FENCE.finditer(text):
        if opened is None:
            opened = match
        elif match[1].startswith(opened[1]) and not match[2]:
            whole = not text[: opened.start()].strip() and not text[match.end() :].strip()
            prose = opened[2].lower() in _PROSE or (whole and not opened[2])
            parts.append(text[after : opened.start()])
            for start, end, kept in (
                (*opened.span(), False),
                (opened.end(), match.start(), prose),
                (*match.span(), False),
            ):
                parts.append(text[start:end] if kept else _NO_LINE_END.sub(" ", text[start:end]))
            after, opened = match.end(), None
    return "".join((*parts, text[after:]))


_NO_LINE_END: Final = re.compile(r"[^\n]")
_RULE: Final = re.compile(r"[\s|:+=*_-]*[-=*_]{2}[\s|:+=*_-]*")
_MARK: Final = re.compile(r"[-*+•‣▪·–—]\s+|[([]?[a-z][)]\s+|#{1,6}\s+|>\s*+")
_NUMBERED: Final = re.compile(r"\(?(\d{1,3})[.)]\s+")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_WRAPPED: Final = 40  # characters of a line that was broken to fit, at least
_CLOSED: Final = (".", "!", "?", ":", "…", "。", "！", "？", "؟", "।", "॥")


def _units(text: str, language: str, script: str | None) -> Iterator[tuple[int, int, bool]]:
    """Where the sentences, list items and rows of tables begin and end, in order; True for a row."""
    for start, end, row in _blocks(text):
        if row:
            for piece in chunks(text[start:end], LONGEST):
                yield start, start + len(piece), True
                start += len(piece)
            continue
        if end - start <= LONGEST and not _MAY_END.search(text, start, end - 1):
            yield start, end, False
            continue
        code = language
        if script is not None:
            other = script_of(text[start : min(end, start + WINDOW)])
            if other not in (script, None):
                code = _BY_SCRIPT.get(other or "", "en")
        yield from ((first, last, False) for first, last in _with_letters(text, _segments(text, start, end, code)))


_MAY_END: Final = re.compile(r"[^\w\s,'’-]")


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """The lines of a text without the marks before them, lines that were broken to fit put together; True for a row of
    a table."""
    paragraph: list[tuple[int, int]] = []
    table, number, place = False, 0, 0
    for line in _LINE.findall(text):
        start, end = place + len(line) - len(line.lstrip()), place + len(line.rstrip())
        place += len(line)
        if start >= end or _RULE.fullmatch(text, start, end):
            yield from _lines(text, paragraph)
            paragraph, table = [], start < end and "|" in line
            continue
        table = "|" in line and (table or text[start] == "|")
        if table:
            yield from _lines(text, paragraph)
            paragraph = []
            yield start, end, True
            continue
        begins = start
        while mark := _MARK.match(text, begins, end):
            begins = mark.end()
        item = _NUMBERED.match(text, begins, end)
        if item and int(item[1]) in (0, 1, number, number + 1):  # "12. Mai 1945 endete der Krieg" is no item
            begins, number = item.end(), int(item[1])
        if begins > start:
            yield from _lines(text, paragraph)
            paragraph = []
        if begins < end:
            paragraph.append((begins, end))
    yield from _lines(text, paragraph)


def _lines(text: str, paragraph: list[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """A paragraph as a whole where its lines were broken to fit, else line by line."""
    if (
        len(paragraph) > 1
        and all(end - start >= _WRAPPED for start, end in paragraph[:-1])
        and any(
            text[paragraph[i + 1][0]].islower() and text[end - 1] not in _CLOSED
            for i, (_, end) in enumerate(paragraph[:-1])
        )
    ):
        yield paragraph[0][0], paragraph[-1][1], False
        return
    for start, end in paragraph:
        yield start, end, False


def _segments(text: str, start: int, end: int, code: str) -> Iterator[tuple[int, int]]:
    """The sentences of a block; joined they are the block again."""
    segment = _segmenter()
    while start < end:
        window = _LINE_END.sub(" ", text[start : min(end, start + WINDOW)])
        last = start + WINDOW >= end
        parts = segment(code, window)
        if "".join(parts) != window:
            parts = [window]
        if len(parts) == 1 and not last:
            parts = chunks(window, LONGEST)
        for part in parts if last else parts[:-1]:  # the last one may continue
            for piece in chunks(part, LONGEST):
                yield start, start + len(piece)
                start += len(piece)


_LINE_END: Final = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def _segmenter() -> Callable[[str, str], list[str]]:
    import sentencex  # loaded where it is used: most runs ask a model

    segment: Callable[[str, str], list[str]] = sentencex.segment
    return segment


def _with_letters(text: str, parts: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of a block, those without a letter together with the next one: a number is no sentence."""
    begun: int | None = None  # where the parts without a letter begin
    last: tuple[int, int] | None = None
    stop = 0
    for start, end in parts:
        if begun is not None and end - begun > LONGEST:
            if last:
                yield last
            last, begun = (begun, start), None
        begun, stop = start if begun is None else begun, end
        if any(sign.isalpha() for sign in text[start:end]):
            if last:
                yield last
            last, begun = (begun, end), None
    if last and begun is not None and stop - last[0] <= LONGEST:
        last, begun = (last[0], stop), None
    if last:
        yield last
    if begun is not None:
        yield begun, stop


_STARS: Final = re.compile(r"\*+|(?<!\w)__(?=\w)|(?<=\w)__(?!\w)")
_PIPES: Final = re.compile(r"\s*(?<!\\)\|\s*")


def bare(text: str, row: bool = False) -> str:
    """A sentence without emphasis, with one space for each gap; the cells of a `row` are parted by `; `."""
    if row:
        text = "; ".join(cell for cell in _PIPES.split(text.strip()) if cell)
    return " ".join(_STARS.sub(_kept, text).split())


def _kept(match: re.Match[str]) -> str:
    """Stars that are signs of arithmetic; nothing of others."""
    text, (start, end) = match.string, match.span()
    before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
    arithmetic = before.isascii() and before.isalnum() and after.isascii() and after.isalnum()
    return match[0] if match[0][0] == "*" and ((before.isspace() and after.isspace()) or arithmetic) else ""
