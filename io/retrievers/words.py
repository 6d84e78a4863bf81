"""The words of a text as an index uses them, in any script, without knowing the language.

They are the words of `core.words`, made alike where writers differ: letters lose their case, their width and the marks
that are optional (accents, Hebrew points, Arabic vowel signs). In scripts without spaces, and in Korean, whose words
end in particles, single signs and pairs of neighbours stand for words. Plurals in -s go with their singulars, which
helps in English and does no harm in other languages.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from itertools import pairwise
from typing import Final

from fcjax.core.words import has_unspaced, is_unspaced, runs, signs

VERSION: Final = 2  # counts up when a text gets other words than before
LONGEST: Final = 40  # characters of a word that count; what is longer is data, not language

# Marks that are left out as often as written: Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowel signs.
_LEFT_OUT: Final = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]+")
_OTHER_DIGIT: Final = re.compile(r"(?![0-9])\d")  # in Arabic, Hindi, Thai: 0 to 9 as well
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
_THOUSANDS: Final = re.compile(r"(?<=\d)[.,](?=\d{3}(?!\d))")  # 1,234,567 and 1.234.567 are 1234567
_KOREAN: Final = re.compile("[\uac00-\ud7a3]")
_KOREAN_OR_NOT: Final = re.compile("[\uac00-\ud7a3]+|[^\uac00-\ud7a3]+")


def words(text: str) -> list[str]:
    """The words of a text in their order, repeated ones repeated."""
    if text.isascii():
        return [word[:LONGEST] for word in _ASCII_WORD.findall(_THOUSANDS.sub("", text.lower()))]
    plain = _LEFT_OUT.sub("", unicodedata.normalize("NFKD", text.casefold()))
    plain = _OTHER_DIGIT.sub(lambda found: str(unicodedata.digit(found[0])), unicodedata.normalize("NFC", plain))
    plain = _THOUSANDS.sub("", plain)
    if not has_unspaced(plain) and not _KOREAN.search(plain):
        return [run[:LONGEST] for run in runs(plain)]
    found: list[str] = []
    for run in runs(plain):
        if run.isascii():
            found.append(run[:LONGEST])
        elif is_unspaced(run):
            found += _with_pairs(signs(run))
        elif not _KOREAN.search(run):
            found.append(run[:LONGEST])
        else:
            for part in _KOREAN_OR_NOT.findall(run):
                found += _with_pairs(list(part)) if _KOREAN.match(part) else [part[:LONGEST]]
    return found


@functools.lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The word without a plural's -s, by the rules of Harman (1991): `cities` city, `judges` judge, `glass` glass."""
    if len(word) < 4 or word[-1] != "s" or word[-2] in "su" or not (word.isascii() and word.isalpha()):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word if word[-4] in "ae" else word[:-3] + "y"
    return word if word.endswith("is") else word[:-1]


def _with_pairs(own: list[str]) -> list[str]:
    """What stands for the words of a run of signs: each of them, and each pair of neighbours."""
    return [*own, *map("".join, pairwise(own))]
