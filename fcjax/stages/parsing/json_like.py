"""JSON as models write it: objects and lists within a text, including typical errors.

It is read token by token in one pass, so that nothing takes long to read, and the complete items of a broken or
unfinished list are kept. What is JSON is read as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from fcjax.core.words import mended

Scalar = str | float | bool | None

_LITERAL: Final = r"true|false|null|None|True|False"
_STOP: Final = rf"(?=[ \t\r]*+(?:[\]}}:：\n]|\Z|[,，、]\s*+(?:[\"'“”„‘’‚\[{{\]}}]|-?\d|{_LITERAL}|\Z))|\s*+[\]}}:：])"
"""What follows the quote that ends a string, and not one within it."""


def _string(opening: str, closing: str) -> str:
    # Groups are repeated without possession, which Python's re gets wrong before 3.11.5: each begins with another sign
    # than what stands before it, so there is one way to match only.
    inner = rf"[^{closing}\\\n]*+"
    return rf"[{opening}]{inner}(?:(?:\\.|[{closing}](?!{_STOP})){inner})*[{closing}]{_STOP}"


_STRING: Final = "|".join(_string(*pair) for pair in (('"', '"'), ("'", "'"), ("“”„", "“”"), ("‘’‚", "‘’")))
_OTHERS: Final = (
    r"(?P<space>[\s`;]++)|(?P<mark>[\[\]{}:,：，、])|(?P<number>-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?)(?!\w)"
    r"|(?P<word>(?:true|false|null|none|True|False|None)\b)|(?P<key>[^\W\d]\w{0,40}+)(?=\s*+[:：])|(?P<junk>\w++|.)"
)
_TOKEN: Final = re.compile(rf"(?P<string>{_STRING})|(?P<unclosed>[\"'“”„‘’‚][^\n]*+)|{_OTHERS}", re.DOTALL)
_TOKEN_AFTER_JUNK: Final = re.compile(_OTHERS, re.DOTALL)  # a quote is an apostrophe there
_OPENING: Final = re.compile(r"[\[{]")
_WORDS: Final = {"true": True, "false": False}
_CUT: Final = ("unclosed", "number")  # values that may have gone on where a text ends with them
_NOTHING_MORE: Final = re.compile(r"[\s`.eE+-]*+")
_DEEPEST: Final = 64  # brackets within brackets


@dataclass(slots=True)
class Node:
    """An object or list of JSON."""

    opened: str  # [ or {
    start: int
    end: int = 0  # 0 where it was not closed
    entries: list[tuple[str | None, Scalar | Node]] = field(default_factory=list)  # a key, in an object, and its value
    spans: list[tuple[int, int]] = field(default_factory=list)  # where each value stands in the text, quotes included
    key: str | None = None  # of the value to come
    tainted: bool = False  # with words that are not JSON: what is quoted among them does not count

    def add(self, value: Scalar | Node, start: int, end: int = 0) -> None:
        """Take in a value under the key that was read before it."""
        self.entries.append((self.key, value))
        self.spans.append((start, end))

    def within(self) -> Iterator[Node]:
        """The node, and all below it."""
        yield self
        for _, value in self.entries:
            if isinstance(value, Node):
                yield from value.within()


def nodes_in(text: str) -> list[Node]:
    """The objects and lists in a text, in order, those within others left to them."""
    tops: list[Node] = []
    frames: list[Node] = []
    pattern, place, raw = _TOKEN, 0, ""
    while place < len(text):
        if not frames:
            opening = _OPENING.search(text, place)
            if not opening:
                break
            frames, place, pattern = [Node(opening[0], opening.start())], opening.end(), _TOKEN
            tops.append(frames[0])
            continue
        token = pattern.match(text, place)
        assert token  # of one character, if nothing else
        frame, kind, place = frames[-1], token.lastgroup, token.end()
        if kind == "mark":
            pattern = _TOKEN
            if token[0] in "[{" and len(frames) < _DEEPEST:
                inner = Node(token[0], token.start())
                frame.add(inner, token.start())
                frames.append(inner)
            elif token[0] in "]}":
                _close(frames, "[" if token[0] == "]" else "{", place)
            elif token[0] in ":：" and frame.entries and not isinstance(frame.entries[-1][1], Node):
                frame.entries.pop()
                frame.spans.pop()
                frame.key = raw
            elif token[0] in ",，、":
                frame.key = None
        elif kind == "junk":
            pattern = _TOKEN_AFTER_JUNK
            frame.tainted |= token[0][0].isalnum()
        elif kind != "space" and not (kind in _CUT and _NOTHING_MORE.fullmatch(text, place)):
            value, raw = _scalar(token)
            frame.add(value, token.start(), token.end())
            frame.key = None
    return tops


def is_cut(text: str) -> bool:
    """Whether a text ends within a list or object that has begun to hold something: it was cut off there."""
    tops = nodes_in(text)
    if not tops or tops[-1].end:
        return False
    return not tops[-1].tainted and any(
        isinstance(value, str) or (isinstance(value, Node) and value.entries) for _, value in tops[-1].entries
    )


def ends_in_bracket(text: str) -> bool:
    """Whether a text ends within a square bracket: an answer in brackets was cut off there."""
    return _OPEN_BRACKET.search(text) is not None


_OPEN_BRACKET: Final = re.compile(r"[\[［【〔][^\]］】〕]{0,80}\Z")


def _close(frames: list[Node], opened: str, place: int) -> None:
    """Close the innermost node that `opened` with this bracket, and those within it; a stray bracket closes none."""
    if any(frame.opened == opened for frame in frames):
        while frames:
            frame = frames.pop()
            frame.end = place
            if frame.opened == opened:
                break
        if frames:
            frames[-1].key = None


def _scalar(token: re.Match[str]) -> tuple[Scalar, str]:
    """A token's value, and how it reads as a key."""
    text = token[0]
    match token.lastgroup:
        case "number":
            return float(text), text
        case "word":
            return _WORDS.get(text.lower()), text
        case "key":
            return text, text
        case "unclosed":  # its quote was forgotten: the line ends it
            text = text[1:].rstrip(" \t\r,").rstrip("\"'“”‘’")
        case _:
            text = _unescaped(text)
    return text, text


def _unescaped(literal: str) -> str:
    """The text that a string stands for."""
    body = literal[1:-1]
    if "\\" not in body:
        return body
    try:
        text = json.loads(f'"{body}"', strict=False)
    except ValueError:  # with quotes in it, or escapes that JSON has not
        text = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], _unknown(escape)), body)
    return mended(str(text))


def _unknown(escape: re.Match[str]) -> str:
    """What an escape that JSON has not stands for: a sign for itself; before a letter, as in LaTeX, nothing is one."""
    return escape[0] if escape[1].isalnum() else escape[1]


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
