"""The words of a text that can claim something, sentence by sentence, in any script.

Numbers weigh most, then names (words in capitals that do not begin a sentence), then other words of content. Function
words weigh nothing. Of scripts without spaces, the signs count, each by its pair with a neighbour.

Some sentences claim nothing: questions, headings, greetings, advice, and remarks about the answer itself. These, and
function words other than the most common ones of a dozen languages, are known for English only; elsewhere short words
are taken for function words.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

from fcjax.core.languages import COMMON
from fcjax.core.words import bare, is_unspaced, tokens

NUMBER: Final = 2.0
NAME: Final = 1.5
WORD: Final = 1.0
IDEOGRAPH: Final = 0.5  # a sign of Han or Katakana: about half a word
SIGN: Final = 0.25  # a sign of another script without spaces

_STEM: Final = 5  # letters that distinguish a word from others, whatever its ending
_SHORTEST: Final = 4  # letters of a word of content without a capital

_CARDINALS: Final = "two three four five six seven eight nine ten eleven twelve"
_ORDINALS: Final = "second third fourth fifth sixth seventh eighth ninth tenth"
_NUMERALS: Final = {
    word: str(number) for names in (_CARDINALS, _ORDINALS) for number, word in enumerate(names.split(), 2)
}

_ENGLISH: Final = """
    about above across after again against almost along already also although among amongst another anyone anything
    around because become becomes been before being below between both cannot could does doing done down during each
    either else even ever every everyone everything from further furthermore gets goes going gone hence here hers
    herself himself however indeed instead into itself just least less like likely made make makes making many maybe
    might more moreover most much must myself neither nevertheless nonetheless none often once one only onto other
    others otherwise ourselves over overall particularly perhaps possible possibly probably quite rather really same
    several shall should simply since some someone something sometimes somewhat still such than that their theirs them
    themselves then there thereby therefore these they thing things this those though through throughout thus together
    toward towards unless until upon used using usually various very well were what whatever when whenever where whereas
    whether which while whom whose will with within without would your yours yourself first following include includes
    included including according known additionally finally example examples instance important note addition result
    generally typically currently especially specifically hand turn case cases worth mind keep believed thought
    considered difficult exactly unclear have having total ranging idea suggests please hello dear sincerely regards
"""
_FUNCTION: Final = frozenset(word for words in (_ENGLISH, *COMMON.values()) for word in words.split())
_GRAMMAR: Final = frozenset("的了是在和与與及也有为為被将將其他她它这這那之就都而或把")  # signs of Chinese

_NUMBER: Final = re.compile(r"(\d+)(?:st|nd|rd|th|s)?")


class Word(NamedTuple):
    """A word, by its first and last place in the text. An atom has it if it has one of its `keys`."""

    start: int
    end: int
    keys: tuple[str, ...]
    weight: float


def claim_words(text: str, start: int, end: int) -> list[Word]:
    """The words of a sentence from `start` to `end` in `text`; those of weight 0 claim nothing."""
    found: list[Word] = []
    ours = _placed(text[start:end], start)
    for i, (place, token) in enumerate(ours):
        if not token[0].isalnum():
            continue
        stop = place + len(token)
        key, first, weight = _read(token)
        if not key:
            before = ours[i - 1][1] if i and ours[i - 1][0] + len(ours[i - 1][1]) == place else ""
            after = ours[i + 1][1] if i + 1 < len(ours) and ours[i + 1][0] == stop else ""
            pairs = [before + token] if before and is_unspaced(before) else []
            pairs += [token + after] if after and is_unspaced(after) else []
            found.append(Word(place, stop, tuple(pairs) or (token,), weight))
            continue
        found.append(Word(place, stop, (key,), weight if found else first))
    return found


@functools.lru_cache(maxsize=2**15)
def _read(token: str) -> tuple[str, float, float]:
    """The key of a word, its weight at the beginning of a sentence, and its weight elsewhere; no key of a sign."""
    if is_unspaced(token):
        weight = _weight_of_sign(token)
        return "", weight, weight
    word = unicodedata.normalize("NFKC", bare(token)).casefold() or token
    return _stem(word), _weight(token, word, begins=True), _weight(token, word, begins=False)


_LONGEST_NUMBER: Final = 64  # characters of a number whose groups of digits are put together


def _placed(text: str, start: int) -> list[tuple[int, str]]:
    """The tokens of a text with their places; groups of digits are one: 1,200 and 4.5. List numbers are left out."""
    place = start + len(text) - len(text.lstrip())
    found: list[tuple[int, str]] = []
    for token, space in tokens(text):
        if len(found) > 1 and token[0].isdigit() and found[-1][1] in ".," and found[-1][0] + 1 == place:
            before, number = found[-2]
            if number[-1].isdigit() and before + len(number) + 1 == place and len(number) < _LONGEST_NUMBER:
                found[-2:] = [(before, f"{number}{found[-1][1]}{token}")]
                place += len(token) + len(space)
                continue
        found.append((place, token))
        place += len(token) + len(space)
    numbered = len(found) > 2 and len(found[0][1]) < 3 and found[0][1].isdigit() and found[1][1] in (".", ")")
    return found[2:] if numbered else found


def _stem(word: str) -> str:
    if word in _NUMERALS:
        return _NUMERALS[word]
    if word[0].isdigit():
        number = _NUMBER.fullmatch(word)
        return number[1] if number else word.replace(",", "")
    if word.startswith("ال") and len(word) > _STEM:  # the article of Arabic
        word = word[2:]
    return word[:_STEM]


def _weight(token: str, word: str, *, begins: bool) -> float:
    if any(sign.isdigit() for sign in word):
        return NUMBER
    if word in _NUMERALS:
        return WORD
    if word in _FUNCTION:
        return 0.0
    if token[0].isupper() and not begins:
        return NAME
    return WORD if len(word) >= _SHORTEST else 0.0


def _weight_of_sign(sign: str) -> float:
    name = unicodedata.name(sign[0], "")
    if name.startswith("HIRAGANA") or sign in _GRAMMAR:
        return 0.0
    return IDEOGRAPH if name.startswith(("CJK", "KATAKANA")) else SIGN


_END: Final = re.compile(r"(?<![.!?؟।॥…])[.!?؟।॥…]++[\"'”’»)\]]*+(?=\s)|[。！？][」』”’）]*+|\n")
_ABBREVIATION: Final = re.compile(
    r"\b(?:[A-Z]|[A-Z]\.[A-Z]|[ei]\.[eg]|Dr|Mr|Mrs|Ms|St|Jr|Sr|Prof|vs|al|No|Inc|Ltd|Gen|Lt|Col|approx|ca)\.$"
)
_TURN: Final = re.compile(r";|\bbut\b|\bhowever\b|(?<=\d), ", re.IGNORECASE)  # where a remark may end


def sentences(text: str) -> list[tuple[int, int]]:
    """Where the sentences, list items and table rows that can claim something begin and end.

    A remark about the answer is left out up to where its sentence turns to its subject.
    """
    found = []
    spans = list(_spans(text))
    for i, (start, end) in enumerate(spans):
        if _is_heading(text, spans, i) or _is_question(text[start:end]):
            continue
        if not _REMARK.search(text[start:end]):
            found.append((start, end))
            continue
        for first, last in _turns(text, start, end):
            if not _REMARK.search(text[first:last]) and not _ADVICE.match(text[first:last]):
                found.append((first, last))
    return [(start, end) for start, end in found if not _ADVICE.match(text[start:end])]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """The sentences and lines of a text that have a letter or digit, trimmed."""
    start = 0
    ends = [match.end() for match in _END.finditer(text)]
    for end in (*ends, len(text)):
        tail = text[max(start, end - 8) : end]  # the part as a whole may be long, and its end be looked at often
        if end < len(text) and (_ABBREVIATION.search(tail) or (end - start < 8 and _ITEM.fullmatch(tail))):
            continue
        part = text[start:end]
        if any(sign.isalnum() for sign in part):
            first = start + len(part) - len(part.lstrip())
            yield first, first + len(part.strip())
        start = end


def _turns(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _TURN.finditer(text, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end


_ITEM: Final = re.compile(r"\s*\d{1,3}\.")
_CLOSING: Final = "\"'”’»)]」』*_ "
_MARKED: Final = re.compile(r"[-*+•–|]\s|\d{1,3}[.)]|\|")
_RULE: Final = re.compile(r"[\s|:+=-]*[-=]{2}[\s|:+=-]*")
_HEADING: Final = 8  # words that a heading has, at most
_NEAR: Final = 1000  # characters before and after a line that are looked at


def _is_question(sentence: str) -> bool:
    return sentence.rstrip(_CLOSING).endswith(("?", "？", "؟"))


def _is_heading(text: str, spans: list[tuple[int, int]], i: int) -> bool:
    """Whether a span is a heading, the head of a table, or the words that introduce a list."""
    start, end = spans[i]
    line = text[start:end]
    above = text[max(start - _NEAR, 0) : start].rstrip(" \t")
    if above[-1:] not in ("\n", ""):
        return False  # it stands within a line
    rest = text[end : end + _NEAR].lstrip(" \t")
    if rest[:1] not in ("\n", ""):
        return _ends_open(line)
    if line.startswith("#") or (line.startswith(("**", "__")) and line.endswith(("**", "__")) and line.count("**") < 3):
        return True
    below = rest[1:].partition("\n")[0]
    if ("-" in below and _RULE.fullmatch(below)) or ("==" in below and _RULE.fullmatch(below)):
        return True
    if _ends_open(line):
        return True
    alone = i + 1 < len(spans) and (not above or above.endswith("\n\n"))
    if not alone or _MARKED.match(line) or any(sign.isdigit() for sign in line):
        return False
    if line[-1] in ".!?…。！؟।॥" or len(line.split()) > _HEADING:
        return False
    return not below.strip() or below.rstrip().endswith((".", "。", "।"))


def _ends_open(line: str) -> bool:
    """Whether a line announces what follows, and says no number of it."""
    return line.rstrip(_CLOSING).endswith((":", "：")) and not any(sign.isdigit() for sign in line)


_REMARK: Final = re.compile(
    r"^\W*(?:here (?:is|are)\b|here['’]s\b|hi\b|hello\b|dear\b|sure\b|certainly[,!.]|of course[,!.]|thanks?\b|sorry\b"
    r"|what an? [^.!?]*!+$|let me know\b|feel free\b|is there anything\b|if you (?:have|need|would|want)\b"
    r"|please (?:let|feel|do not|don['’]t|provide|ask|contact|visit|consult|note)\b"
    r"|as an ai\b|as a (?:large )?language model\b)"
    r"|\bas of my (?:last |latest )?(?:knowledge|training|update)"
    r"|\bI (?:do not|don['’]t|cannot|can['’]t|could not|couldn['’]t|can only)\b"
    r"|\bI (?:hope|apologi[sz]e|would|recommend|suggest)\b"
    r"|\bI(?:['’]m| am) (?:sorry|afraid|unable|not (?:able|sure|aware|certain)|an? (?:AI|large|language)|just an?)\b",
    re.IGNORECASE,
)
_ADVICE: Final = re.compile(
    r"\W*(?:\d+[.)]\s*+)?(?:[\w ]{1,40}:\s*+)?(?:(?:finally|then|next|first|second|third|lastly|also|once|now),?\s++)?"
    r"(?:research|look|compare|choose|select|determine|discuss|ask|use|try|consider|check|make|ensure|evaluate|adjust"
    r"|start|begin|avoid|remember|set|get|go|visit|contact|shortlist|find|create|build|collect|gather|pick|take|add|mix"
    r"|stir|cook|place|put|read|write|learn|talk|speak|search|identify|split|test|define|decide|follow|do not|don['’]t"
    r"|be)\s++(?:the|a|an|your|you|for|at|to|it|them|their|some|any|all|each|online|on|in|out|up|sure|by|with|if"
    r"|whether|what|how|who|when|careful)\b",
    re.IGNORECASE,
)
