"""What two texts have in common, by their words: whether a model's text can come from the one it was given.

It knows words only, no meaning: enough to tell nonsense, another item's text, or one out of the prompt's example.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Final

_TELLING: Final = 4  # letters of a word that is not in every text
_STEM: Final = 5  # letters that tell a word from others, whatever its ending


@functools.lru_cache(maxsize=4096)
def content_words(text: str) -> frozenset[str]:
    """The telling words of a text: the first letters of longer ones, those with digits, and pairs of signs where a
    script has no spaces; where a text has none of these, all its words."""
    text = unicodedata.normalize("NFKC", text).casefold()
    bare = "".join(sign if unicodedata.category(sign)[0] in "LMN" else " " for sign in text)
    found, rest = set(), set()
    for run in _RUNS.findall(bare):
        if _UNSPACED.match(run):
            found |= {run[i : i + 2] for i in range(max(len(run) - 1, 1))}
        elif _NUMBERED.search(run):
            found.add(run)
        elif len(run) >= _TELLING:
            found.add(run[:_STEM])
        else:
            rest.add(run)
    return frozenset(found or rest)


_SIGNS: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_UNSPACED: Final = re.compile(f"[{_SIGNS}]")
_NUMBERED: Final = re.compile(r"\d")
_RUNS: Final = re.compile(f"[{_SIGNS}]+|[^\\s{_SIGNS}]+")


def shared(text: str, source: frozenset[str]) -> float:
    """The share, from 0 to 1, of a text's words that are among those of `source`; 0 where it has none."""
    own = content_words(text)
    return len(own & source) / len(own) if own else 0.0


def alike(one: str, other: str) -> float:
    """How much two texts have in common of what either says, from 0 to 1 (Jaccard's index of their words)."""
    first, second = content_words(one), content_words(other)
    return len(first & second) / len(first | second) if first | second else 0.0
