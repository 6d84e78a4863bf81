"""Verdicts from a model's answer: one, or one for each of several numbered items.

A verdict is in brackets, after a name ("Verdict: same"), on a line of its own or at the beginning. A word that is
negated, offered as a choice, or mentioned in a rationale does not count: an unclear answer is asked for again, never
guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from fcjax.stages.parsing.json_like import ends_in_bracket
from fcjax.stages.parsing.numbered import numbered_lines, numbered_values

_DECOR: Final = r"[\s*_`\"'“”‘’]*+"
_INLINE: Final = r"[ \t*_`\"'“”‘’]*+"
_FLAGS: Final = re.IGNORECASE | re.MULTILINE
_DENIAL: Final = re.compile(
    r"(?:\b(?:can)?not|n['’]t|\bnor?|\bnever|\brather than|\binstead of)[*_`\s\"]*\Z", re.IGNORECASE
)
_CHOICE: Final = re.compile(r"\W*(?:or|and|versus|vs\.?|/|,)?\W*", re.IGNORECASE)
_VERDICT_KEYS: Final = ("verdict", "label", "answer", "status", "judgement", "judgment")


@dataclass(frozen=True)
class Vocabulary:
    """The verdicts of a question, each with its spellings; case does not matter."""

    spellings: Mapping[str, tuple[str, ...]]
    _patterns: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        phrases = sorted((phrase for known in self.spellings.values() for phrase in known), key=len, reverse=True)
        phrase = "|".join(re.escape(one).replace(r"\ ", r"[\s_-]+") for one in phrases)
        word = rf"(?<![^\W_])(?P<word>{phrase})(?![^\W_])"
        named = r"(?:verdict|answer|label|judge?ment|conclusion|result)"
        patterns = (
            rf"[\[［【〔]{_DECOR}(?:(?:final\s+)?{named}\s*[:=])?{_DECOR}{word}{_DECOR}[.,:;!]?{_DECOR}[\]］】〕]",
            rf"\b{named}{_DECOR}(?:[:=]|\bis\b:?){_DECOR}[\[(]?{_DECOR}{word}",
            rf"^[ \t]*+(?:[-+>#•]+|\d+[.)])?{_INLINE}[(<]*+{_INLINE}{word}[)>]*+{_INLINE}[.!,;:|]*+{_INLINE}$",
            rf"\A{_DECOR}{word}{_DECOR}(?:[.,:;!(–—-]|\n)",
        )
        object.__setattr__(self, "_patterns", tuple(re.compile(one, _FLAGS) for one in patterns))

    def read(self, text: str, cut: bool = False) -> str | None:
        """The last clear verdict of an answer, in the clearest form that it has; None without one.

        In an answer that was `cut` off, or ends within a bracket, only a verdict at its beginning counts.
        """
        cut = cut or ends_in_bracket(text)
        for pattern in self._patterns:
            firm = list(self._firm(text, pattern))
            if firm:
                last = firm[-1]
                return None if cut and re.search(r"\w", text[: last.start()]) else self._meaning(last)
        return None

    def read_numbered(self, text: str, count: int, cut: bool = False) -> dict[int, str]:
        """The verdicts of an answer by number, from 1 to `count`; the last one for each number wins.

        It reads JSON of the shapes that `numbered_values` knows, with any text around it, and numbered lines. In an
        answer that was `cut` off, complete items count. If one has the number 0, none count: an answer that counts from
        0 means other items.
        """
        found: dict[int, str] = {}
        for item in (*numbered_lines(text, cut), *numbered_values(text, count, _VERDICT_KEYS)):
            if verdict := self.read(item.text):
                found[item.number] = verdict
        return {} if 0 in found else {number: found[number] for number in sorted(found) if number <= count}

    def _firm(self, text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """The matches that are answers: neither negated nor offered as one of several choices."""
        matches = list(pattern.finditer(text))
        offered: set[int] = set()
        for one, other in pairwise(matches):
            if _CHOICE.fullmatch(text[one.end() : other.start()]) and self._meaning(one) != self._meaning(other):
                offered |= {one.start(), other.start()}
        for match in matches:
            before = text[max(match.start("word") - 40, 0) : match.start("word")].rstrip("[［【〔( ")
            if match.start() not in offered and not _DENIAL.search(before):
                yield match

    def _meaning(self, match: re.Match[str]) -> str:
        said = " ".join(re.split(r"[\s_-]+", match["word"].lower()))
        return next(
            verdict
            for verdict, phrases in self.spellings.items()
            if said in (" ".join(re.split(r"[\s_-]+", phrase)) for phrase in phrases)
        )
