"""The language of a text, judged by its script and most common words: enough to detect a change of language."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Final

_GROUPS: Final = {
    "HIRAGANA": "japanese",
    "KATAKANA": "japanese",
    "KATAKANA-HIRAGANA": "japanese",
    "HANGUL": "korean",
    "CJK": "chinese",
    "LATIN": "latin",
    "FULLWIDTH": "latin",
}
_KANA: Final = 0.1  # of the letters of a text in the scripts of East Asia: then it is Japanese

COMMON: Final = {
    "english": "the of and to in is was that for with as by from are were which this his her it on at be not",
    "german": "der die das und ist ein eine nicht mit von zu den im auf für wurde sich auch als dem des einer war sind",
    "french": "le les des est et une dans pour que qui sur avec par plus du au aux ne pas sont cette été il elle",
    "spanish": "el los las y es una en por que con para del se su fue como más son no al este esta ha sus",
    "italian": "il gli di che è una per con del della sono nel non si dei alla anche come più fu nella era le",
    "portuguese": "o os as e é uma em por que com para do da dos das não se foi como mais ao na no são seu",
    "dutch": "de het een en van is in op te dat die voor met zijn niet aan door ook als werd was naar bij wordt",
    "swedish": "och att det som en är av för med på den till inte ett om har de i var sig från blev vid",
    "polish": "w i na się z do jest nie to że o jak po za od przez był była oraz roku ale dla który są",
    "turkish": "ve bir bu için ile olarak da de en çok daha olan gibi sonra kadar ancak tarafından olduğu",
    "russian": "в и на с не что он по как это из был за для от его она к также года или но был была",
    "ukrainian": "в і на з не що він по як це із був за для від його вона та також року або але була",
}
_LANGUAGES: Final[dict[str, frozenset[str]]] = {name: frozenset(words.split()) for name, words in COMMON.items()}
_WORD: Final = re.compile(r"[^\W\d_]+")
_LEAST: Final = 0.12  # of its words that are a language's commonest, in a text that is in it
_LEAD: Final = 1.5  # times as many as of any other language


def script_of(text: str) -> str | None:
    """The script of most of a text's letters, or None. Japanese, Chinese and Korean count as scripts."""
    counts: Counter[str] = Counter()
    for sign in text:
        if sign.isalpha():
            name = unicodedata.name(sign, "").partition(" ")[0]
            counts[_GROUPS.get(name, name.lower())] += 1
    if counts["japanese"] >= _KANA * (counts["japanese"] + counts["chinese"]) > 0:
        counts["japanese"] += counts.pop("chinese", 0)
    return max(counts, key=lambda name: counts[name]) if counts.total() else None


def language_of(text: str) -> str | None:
    """The language of a text's most common words; None if that is unclear."""
    words = _WORD.findall(text.casefold())
    if not words:
        return None
    shares = {name: sum(word in common for word in words) / len(words) for name, common in _LANGUAGES.items()}
    first, second = sorted(shares, key=lambda name: -shares[name])[:2]
    clear = shares[first] >= _LEAST and shares[first] >= _LEAD * shares[second]
    return first if clear else None


def changed(before: str, after: str) -> str | None:
    """How the language of a text differs from that of another, in words; None if it does not, or that is unclear."""
    scripts = script_of(before), script_of(after)
    if scripts[0] != scripts[1] and None not in scripts:
        return f"from {scripts[0]} script to {scripts[1]} script"
    languages = language_of(before), language_of(after)
    if languages[0] != languages[1] and None not in languages:
        return f"from {languages[0]} to {languages[1]}"
    return None
