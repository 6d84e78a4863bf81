"""The part of a long text that best matches a query."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from fcjax.io.retrievers.words import stem, words

LENGTH: Final = 4000
"""Characters that a passage's text has at most (SPEC 1)."""

_PIECE: Final = 500  # characters of a piece at most; an excerpt begins where one does


def excerpt(text: str, query: str, length: int = LENGTH) -> str:
    """The part of `text`, of at most `length` characters, with the most words of the query; on a tie, the first.

    A word counts the more, the fewer pieces of the text have it, and its repetitions count for less and less. Lines
    and sentences stay whole where they are short enough.
    """
    text = text.strip()
    if len(text) <= length:
        return text
    pieces = list(_pieces(text, min(_PIECE, length)))
    wanted = set(map(stem, words(query)))
    found = [Counter(word for word in map(stem, words(text[start:end])) if word in wanted) for start, end in pieces]
    spread = Counter(word for counts in found for word in counts)
    weight = {word: math.log(1 + len(pieces) / count) for word, count in spread.items()}
    inside: Counter[str] = Counter()
    best, at, last = -1.0, 0, 0
    for first, (start, _) in enumerate(pieces):
        while last < len(pieces) and pieces[last][1] - start <= length:
            inside.update(found[last])
            last += 1
        score = sum(weight[word] * count / (count + 0.5) for word, count in inside.items() if count)
        if score > best + 1e-9:
            best, at = score, start
        if last == len(pieces):
            break
        inside.subtract(found[first])
    end = max(end for _, end in pieces if end - at <= length)
    return text[at:end].strip()


def _pieces(text: str, most: int) -> Iterable[tuple[int, int]]:
    """Where the text's pieces begin and end: lines, or sentences, words or stretches of those that are too long."""
    start = 0
    while start < len(text):
        end = min(start + most, len(text))
        line = text.find("\n", start, end) + 1
        if not line and end < len(text):
            window = text[start:end]
            ends = [mark.end() for mark in _SENTENCE.finditer(window)]
            line = start + (ends[-1] if ends else window.rfind(" ") + 1)
        cut = line if line > start else end
        yield start, cut
        start = cut


_SENTENCE: Final = re.compile(r"[.!?\u2026][\"'\u201d\u2019)\]]*\s|[\u3002\uff01\uff1f\u0964\u06d4]")
