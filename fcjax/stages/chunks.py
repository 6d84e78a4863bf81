"""Pieces of a long text, none longer than a model should be given, in any script.

A piece ends where a paragraph, a line, a sentence or a word ends, if there is such a place near its end; no sign that
a reader sees as one is cut in two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

_ENDS: Final = tuple(
    re.compile(pattern)
    for pattern in (r"\n[^\S\n]*+\n\s*+", r"\n\s*+", r"[.!?؟।॥…]['\"”’»)\]]*+\s++|[。！？][」』”’）]*+\s*+", r"\s++")
)
"""What a piece had best end with, the best first."""


def chunks(text: str, size: int) -> list[str]:
    """The text in pieces of at most `size` characters and of about the same length; joined they are the text again."""
    return list(_chunks(text, size))


def _chunks(text: str, size: int) -> Iterator[str]:
    start = 0
    while (rest := len(text) - start) > size:
        aim = -(-rest // -(-rest // size))  # what all that are to come would have
        yield text[start : (end := _end(text, start, aim, size))]
        start = end
    if rest:
        yield text[start:]


def _end(text: str, start: int, aim: int, size: int) -> int:
    """Where a piece ends that begins at `start`, should have `aim` characters, and may have `size`."""
    low, high = start + max(aim * 2 // 3, 1), start + min(aim * 4 // 3, size)
    for pattern in _ENDS:
        ends = [match.end() for match in pattern.finditer(text, low, high)]
        if ends := [end for end in ends if end < len(text) and _is_boundary(text, end)]:
            return min(ends, key=lambda end: abs(end - start - aim))
    for end in range(start + aim, max(start + aim - _LONGEST_SIGN, start), -1):
        if _is_boundary(text, end):
            return end
    return start + aim


_LONGEST_SIGN: Final = 64  # characters; the longest sign that is kept whole


def _is_boundary(text: str, place: int) -> bool:
    """Whether `place` is not within a sign (by the main rules for grapheme clusters of Unicode)."""
    before, after = text[place - 1], text[place]
    if after in _JOINS or before in _JOINERS or unicodedata.category(after)[0] == "M":
        return False
    if "\ud800" <= before <= "\udbff" or unicodedata.combining(before) == _VIRAMA:
        return False
    if _is_flag(before) and _is_flag(after):
        run = 1
        while run < place and _is_flag(text[place - 1 - run]):
            run += 1
        return run % 2 == 0
    return not ("\u1100" <= before <= "\u11ff" and "\u1100" <= after <= "\u11ff")  # the letters of a Korean syllable


_JOINERS: Final = frozenset("\u200d\r")  # CR: a line end of two characters
_JOINS: Final = frozenset("\u200c\u200d\ufe0e\ufe0f\u20e3") | {chr(code) for code in range(0x1F3FB, 0x1F400)}
_VIRAMA: Final = 9  # the combining class of what ties two consonants of an Indic script into one


def _is_flag(sign: str) -> bool:
    return "\U0001f1e6" <= sign <= "\U0001f1ff"  # two of these letters are a flag
