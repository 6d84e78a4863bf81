"""The words of a text, as an index knows them: in any script, and no language needs to be named.

Letters lose their case, their width and the marks that writers leave out at will (accents, Hebrew points, Arabic vowel
signs). Where words are not set apart by spaces, and in Korean, whose words end in particles, single signs and pairs of
neighbours stand for them. Plurals in -s go with their singulars, which is a gain in English and no harm elsewhere.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from typing import Final

VERSION: Final = 1  # counts up when a text gets other words than before
LONGEST: Final = 40  # characters of a word that count; what is longer is data, not language

# Marks that are left out as often as written: Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowel signs.
_LEFT_OUT: Final = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]+")
_OTHER_DIGIT: Final = re.compile(r"(?![0-9])\d")  # in Arabic, Hindi, Thai: 0 to 9 as well
# Thai, Lao, Burmese, Khmer, kana, Han, Hangul.
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_UNSPACED_FAR: Final = "\U00020000-\U0003ffff"

_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
_THOUSANDS: Final = re.compile(r"(?<=\d)[.,](?=\d{3}(?!\d))")  # 1,234,567 and 1.234.567 are 1234567
_RUNS: Final = re.compile(f"[{_UNSPACED}{_UNSPACED_FAR}]+|[^{_UNSPACED}{_UNSPACED_FAR}]+")
_IS_UNSPACED: Final = re.compile(f"[{_UNSPACED}{_UNSPACED_FAR}]")


def words(text: str) -> list[str]:
    """The words of a text in their order, repeated ones repeated."""
    if text.isascii():
        return [word[:LONGEST] for word in _ASCII_WORD.findall(_THOUSANDS.sub("", text.lower()))]
    plain = _LEFT_OUT.sub("", unicodedata.normalize("NFKD", text.casefold()))
    plain = _OTHER_DIGIT.sub(lambda found: str(unicodedata.digit(found[0])), unicodedata.normalize("NFC", plain))
    found = []
    for word in _any_word().findall(_THOUSANDS.sub("", plain)):
        if not word.isascii() and _IS_UNSPACED.search(word):
            found += _signs(word)
        else:
            found.append(word[:LONGEST])
    return found


@functools.lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The word without a plural's -s, by the rules of Harman (1991): `cities` city, `judges` judge, `glass` glass."""
    if len(word) < 4 or word[-1] != "s" or word[-2] in "su" or not (word.isascii() and word.isalpha()):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word if word[-4] in "ae" else word[:-3] + "y"
    return word if word.endswith("is") else word[:-1]


def _signs(word: str) -> list[str]:
    """What stands for the words of a run without spaces: its signs, and its pairs of neighbours."""
    found = []
    for run in _RUNS.findall(word):
        if _IS_UNSPACED.match(run):
            found += [*run, *map("".join, itertools.pairwise(run))]
        else:
            found.append(run[:LONGEST])
    return found


@functools.cache
def _any_word() -> re.Pattern[str]:
    """Letters and digits, with the marks that are part of a letter: vowel signs in Hindi, tone marks in Thai."""
    marks = "".join(sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign) in ("Mn", "Mc"))
    return re.compile(f"[^\\W_]+(?:[{marks}]+[^\\W_]*)*")
