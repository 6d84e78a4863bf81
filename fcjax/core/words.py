"""The words of a text, in any script: the one definition used for searching, comparing and counting.

A word is a run of letters and digits with the marks that belong to them (vowel signs, accents). In a script that is
written without spaces between words, a word is a sign: a letter with its marks. Characters that have no shape of their
own, such as a soft hyphen, are no part of a word and do not divide one.

Written without spaces are the scripts of `UNSPACED`. They are those that Unicode leaves to a dictionary when it looks
for words or line breaks (UAX 29, section 4; UAX 14, classes ID and SA), and Tibetan, Javanese and Balinese, which set
marks between syllables or phrases only. Korean has spaces. Decimal digits are read as numbers in every script.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from itertools import pairwise
from typing import Final

UNSPACED: Final = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"),
    *("Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese"),
)
"""The scripts without spaces between words, by Unicode's names."""

_STEM: Final = 5  # letters that distinguish a word from others, whatever its ending
_CONTENT: Final = 4  # letters of a word that carries content, at least

# Of formatting and direction; tags, the last ones, cannot be seen either. Then what shapes the letters beside it.
_FORMATS: Final = "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f"
_SHAPERS: Final = "\u034f\u17b4\u17b5\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f\U000e0080-\U000e0fff"
_INVISIBLE: Final = re.compile(f"[{_FORMATS}]+")
_IGNORED: Final = re.compile(f"[{_FORMATS}{_SHAPERS}]+")

_ASCII_WORD: Final = re.compile(r"[0-9A-Za-z]+")
_TOKEN: Final = re.compile(r"([^\W_]+|[^\s])(\s*)")
_LETTERS_AND_DIGITS: Final = re.compile(r"[^\W_]+")
_HAS_DIGIT: Final = re.compile(r"\d")


def without_invisible(text: str) -> str:
    """`text` without characters that have no shape: soft hyphens, zero-width spaces, byte order and direction marks.

    Joiners and variation selectors stay: Persian, Indic scripts and emoji are written with them.
    """
    return text if text.isascii() else _INVISIBLE.sub("", text)


def mended(text: str) -> str:
    """`text` with U+FFFD for each half of a character (a lone surrogate), which no file can hold."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def words(text: str) -> list[str]:
    """The words of a text in order, case folded; repeated words are repeated."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    folded, classes = text.casefold(), _classes()
    if not classes.special.search(folded):
        return _LETTERS_AND_DIGITS.findall(folded)
    if not classes.hidden.search(folded):
        return classes.letters.findall(folded)
    return classes.words.findall(_IGNORED.sub("", folded))


def runs(text: str) -> list[str]:
    """The words of a text, unchanged; adjacent signs of scripts without spaces form one run."""
    if text.isascii():
        return _ASCII_WORD.findall(text)
    classes = _classes()
    if not classes.special.search(text):
        return _LETTERS_AND_DIGITS.findall(text)
    return classes.runs.findall(_IGNORED.sub("", text))


def signs(run: str) -> list[str]:
    """The letters with their marks of a run of a script without spaces."""
    return _classes().sign.findall(run)


def has_unspaced(text: str) -> bool:
    """Whether any letter of a text is of a script without spaces between words."""
    return not text.isascii() and _classes().letter.search(text) is not None


def is_unspaced(run: str) -> bool:
    """Whether a run begins with a letter of a script without spaces between words."""
    return not run.isascii() and _classes().letter.match(run) is not None


def tokens(text: str) -> list[tuple[str, str]]:
    """A text in full: its words, and every other character by itself, each with the white space after it.

    Characters without a shape stay in their words; compare words by `bare`.
    """
    special = not text.isascii() and _classes().special.search(text)
    return (_classes().tokens if special else _TOKEN).findall(text.lstrip())


def bare(word: str) -> str:
    """A word without the characters that are no part of it."""
    return word if word.isascii() else _IGNORED.sub("", word)


@functools.lru_cache(maxsize=4096)
def content_words(text: str) -> frozenset[str]:
    """The words of a text that carry content: the first letters of longer ones, those with digits, and pairs of signs
    where a script has no spaces; all its words where it has none of these."""
    found: set[str] = set()
    rest: set[str] = set()
    for run in runs(unicodedata.normalize("NFKC", text).casefold()):
        if is_unspaced(run):
            own = signs(run)
            found.update(map("".join, pairwise(own)) if len(own) > 1 else own)
        elif _HAS_DIGIT.search(run):
            found.add(run)
        elif len(run) >= _CONTENT:
            found.add(run[:_STEM])
        else:
            rest.add(run)
    return frozenset(found or rest)


class _Classes:
    """Patterns over the classes of characters that words are made of.

    `regex` knows the scripts but takes several times as long as `re` to find words. It is asked once which characters
    are in the classes, within the Basic Multilingual Plane, for which `re` has fast tables.
    """

    def __init__(self) -> None:
        import regex  # type: ignore[import-untyped]  # it is loaded only for text beyond ASCII

        plane = "".join(map(chr, range(0x10000)))
        scripts = "".join(rf"\p{{Script={name}}}" for name in UNSPACED)
        # Marks that several scripts share are of none: the sign that closes 〆切, and the long vowel of コーヒー.
        letters = rf"[[{scripts}\u3006\u30fc\uff70]&&[\p{{L}}\p{{Nl}}]]+"
        unspaced = _ranges(regex.findall(letters, plane, regex.V1)) + "\U00020000-\U0003ffff"  # rare Han
        marks = _ranges(regex.findall(r"[\p{Mn}\p{Mc}]+", plane))
        sign = f"[{unspaced}][{marks}]*"
        # A run of letters and a run of marks have no character in common: there is one way to match.
        word = rf"[^\W_{unspaced}]+(?:[{marks}]+[^\W_{unspaced}]*)*"
        hidden = f"{marks}{_FORMATS}{_SHAPERS}"
        # Most texts need the slower patterns for nothing: they have no marks, or spaces only.
        self.special = re.compile(f"[{unspaced}{hidden}]")
        self.hidden = re.compile(f"[{hidden}]")
        self.letters = re.compile(rf"[{unspaced}]|[^\W_{unspaced}]+")
        self.letter = re.compile(f"[{unspaced}]")
        self.sign = re.compile(sign)
        self.words = re.compile(f"{sign}|{word}")
        self.runs = re.compile(f"[{unspaced}][{unspaced}{marks}]*|{word}")
        self.tokens = re.compile(
            rf"([{unspaced}][{hidden}]*|[^\W_{unspaced}]+(?:[{hidden}]+[^\W_{unspaced}]*)*|[^\s])(\s*)"
        )


@functools.cache
def _classes() -> _Classes:
    return _Classes()


def _ranges(found: list[str]) -> str:
    """Stretches of consecutive characters, as a character class has them."""
    return "".join(f"{stretch[0]}-{stretch[-1]}" for stretch in found)
