"""Labels in a model's answer: which one it gives, where, and with what probability.

A label is entailment, contradiction or neutral, in any case of letters and in the spellings of `SPELLINGS`. No two
labels have spellings that begin with the same letter: the first letter of a label identifies it.
"""

from __future__ import annotations

import bisect
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from fcjax.core.prompts import Reply, Token
from fcjax.core.records import DISTRIBUTED, Distribution, RelationType
from fcjax.stages.parsing.json_like import ends_in_bracket
from fcjax.stages.parsing.numbered import NumberedText, numbered_lines, numbered_values

SPELLINGS: Final = {
    RelationType.ENTAILMENT: (
        *("entailments", "entailment", "entails", "entailed", "entailing", "entail"),
        *("supports", "supported", "supporting", "support", "true"),
    ),
    RelationType.CONTRADICTION: (
        *("contradictions", "contradiction", "contradicts", "contradicted", "contradicting", "contradictory"),
        *("contradict", "conflicts", "conflict", "refutes", "refuted", "refute", "false"),
    ),
    RelationType.NEUTRAL: ("neutral", "neither", "unrelated", "undetermined", "unknown"),
}
"""The labels of the relation model, and the words that are read as each."""

NEVER_CERTAIN: Final = 1e-6
"""A probability read from a model stays this far from 0 and 1: two certain answers could contradict each other."""

LEAST_MASS: Final = 1e-3
"""Probability of all labels together, below which a reply says nothing about them."""

_LABELS: Final = {spelling: label for label, spellings in SPELLINGS.items() for spelling in spellings}


class FoundLabel(NamedTuple):
    """A label in a text, and where its word stands there, in characters."""

    label: RelationType
    start: int
    end: int


# What may stand round a label: white space, markdown, quotes, escapes. Repeated possessively (*+) here and below, so
# that no answer takes long to read.
_DECOR: Final = r"[\s*_`\"'“”‘’\\]*+"
_INLINE: Final = r"[ \t*_`\"'“”‘’\\]*+"
_END: Final = r"(?![^\W_])"
_WORD: Final = rf"(?P<label>(?a:{'|'.join(_LABELS)})){_END}"  # ASCII: else a long s is an s
_NAMES: Final = r"(?:label|answer|relation(?:ship)?|verdict|conclusion|classification|result)"
_FLAGS: Final = re.IGNORECASE | re.MULTILINE

_BRACKETED: Final = re.compile(
    rf"(?:[\[［【〔]|\\boxed\{{(?:\\text\{{)?){_DECOR}(?:(?:final\s+)?{_NAMES}\s*[:=])?{_DECOR}{_WORD}"
    rf"{_DECOR}[.,:;!]?{_DECOR}[\]］】〕}}]",
    _FLAGS,
)
_NAMED: Final = re.compile(rf"\b{_NAMES}{_DECOR}(?:[:=]|\bis\b:?){_DECOR}[\[(]?{_DECOR}{_WORD}", _FLAGS)
_ALONE: Final = re.compile(
    rf"^[ \t]*+(?:[-+>#•]+|\d+[.)])?{_INLINE}[\[({{<]*+{_INLINE}{_WORD}[\])}}>]*+{_INLINE}[.!,;:|]*+{_INLINE}$", _FLAGS
)
_OPENING: Final = re.compile(
    rf"\A{_DECOR}{_WORD}{_DECOR}(?:[.,:;!(–—-]|\n)(?!{_DECOR}(?:no|none|false)\b(?!\s+\w))", re.IGNORECASE
)
_SCORED: Final = re.compile(rf"{_WORD}{_DECOR}[:=(–—-]+{_DECOR}(?:\d|yes\b|no\b|true\b|false\b)", re.IGNORECASE)

_QUOTATION: Final = re.compile(
    r'"[^"\n]*"|“[^”\n]*”|«[^»\n]*»|<(premise|hypothesis|claims?)>(?:(?!<\1>).)*?</\1>', re.IGNORECASE | re.DOTALL
)
_QUOTING: Final = re.compile(r'["“«]|<(?:premise|hypothesis|claims?)>', re.IGNORECASE)
_WORD_SIGN: Final = re.compile(r"\w")
_DENIAL: Final = re.compile(
    r"(?:\b(?:can)?not|n['’]t|\bnor?|\bnever|\brather than|\binstead of)[*_`]*\s+(?:be\s+)?(?:an?\s+|the\s+)?[*_`\"]*$",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(  # after it, on its line, in small letters: the next sentence may begin so
    rf"[\])}}]*{_INLINE}(?:(?:is|was|would|can|could|should)(?: not|n['’]t)|cannot|does(?: not|n['’]t) follow)\b"
)
_OR: Final = rf"{_DECOR}(?:[,/|]|,?\s*\b(?:or|and|versus|vs\.?)){_DECOR}(?:\bor\b)?{_DECOR}"
_CHOICE: Final = re.compile(_OR, re.IGNORECASE)
_ANOTHER: Final = re.compile(rf"[\])}}]?{_OR}[\[(]?{_DECOR}(?:{'|'.join(_LABELS)}){_END}", re.IGNORECASE)


def read_label(text: str, cut: bool = False) -> FoundLabel | None:
    """The label that an answer gives; None if it gives no clear one.

    It is the last label in square brackets. Not counted are labels that are denied ("not [entailment]", "[entailment]
    cannot be"), offered as a choice ("[entailment] or [neutral]"), or part of a longer quotation. An answer without
    any may name its label ("Answer: neutral", `"label": "neutral"`), else give it a line of its own, else begin with it
    ("Neutral. The premise ...") unless it says no then ("Entailment: no") or scores one label after the other. A label
    anywhere else is part of a rationale and is passed over. Of an answer that was `cut` off, or ends within a
    bracket, only a label at its beginning counts: the model had not come to its end.
    """
    cut = cut or ends_in_bracket(text)
    quotations = _Quotations(text)
    for pattern in (_BRACKETED, _NAMED, _ALONE, _OPENING):
        for match in reversed(list(_firm(text, pattern))):
            if not quotations.hold(match):
                if cut and re.search(r"\w", text[: match.start()]):
                    return None
                return FoundLabel(_LABELS[match["label"].lower()], *match.span("label"))
    return None


def _firm(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """The matches that are answers: neither denied nor one of several that are offered as a choice."""
    matches = list(pattern.finditer(text))
    if pattern is _OPENING and len({_LABELS[one["label"].lower()] for one in _SCORED.finditer(text)}) > 1:
        return  # a table of all labels
    offered = set()
    for one, other in pairwise(matches):
        between = text[one.end() : other.start()]
        listed = _CHOICE.fullmatch(between) or (pattern is _ALONE and not between.strip())
        if listed and _LABELS[one["label"].lower()] is not _LABELS[other["label"].lower()]:
            offered |= {one.start(), other.start()}
    for match in matches:
        end = match.end("label")
        choice = match.start() in offered or _ANOTHER.match(text, end)
        denied = _DENIED.match(text, end) or _DENIAL.search(text[max(match.start() - 40, 0) : match.start()])
        if not choice and not denied:
            yield match


class _Quotations:
    """The quotations in a text, found in time linear in it."""

    def __init__(self, text: str):
        self._text = text
        self._spans: list[tuple[int, int]] = []
        self._words: dict[int, int] = {}  # where the first word of a quotation begins, by its start
        place = 0
        unclosed: dict[str, int] = {}  # how far a mark is known not to be closed
        while opening := _QUOTING.search(text, place):
            start, mark = opening.start(), opening[0]
            place = start + 1
            if start < unclosed.get(mark, 0):
                continue
            if quotation := _QUOTATION.match(text, start):
                self._spans.append(quotation.span())
                place = quotation.end()
            elif len(mark) == 1:
                line = text.find("\n", start)
                unclosed[mark] = line if line >= 0 else len(text)

    def hold(self, match: re.Match[str]) -> bool:
        """Whether a match is part of a quotation that says more than the match itself."""
        number = bisect.bisect_right(self._spans, (match.start(), len(self._text))) - 1
        if number < 0 or match.end() > self._spans[number][1]:
            return False
        start, end = self._spans[number]
        if start not in self._words:
            word = _WORD_SIGN.search(self._text, start, end)
            self._words[start] = word.start() if word else end
        return self._words[start] < match.start() or bool(_WORD_SIGN.search(self._text, match.end(), end))


# Packed answers: one label for each of several numbered claims.

_LABEL_KEYS: Final = ("label", "answer", "relation", "relationship", "verdict", "type", "classification", "judgement")


def read_labels(text: str, count: int, cut: bool = False) -> dict[int, FoundLabel]:
    """The labels of a packed answer by the number of the claim, from 1 to `count`; the last one of each claim wins.

    Read are JSON in any shape that `numbered_values` knows, with or without a fence and chatter round it, and numbered
    lines (`1. [neutral]`). Where an answer is `cut` off, its complete items count. None
    do where one has the number 0: who counts from there means another claim by each number.
    """
    values = numbered_values(text, count, _LABEL_KEYS, booleans=True)
    found = _labels_of(numbered_lines(text, cut), text) | _labels_of(values, text)
    return {} if 0 in found else {number: label for number, label in found.items() if 1 <= number <= count}


def _labels_of(items: Iterable[NumberedText], text: str) -> dict[int, FoundLabel]:
    """The labels that numbered texts give; the last one of each number wins."""
    found: dict[int, FoundLabel] = {}
    placed: list[FoundLabel] = []
    for item in items:
        if label := read_label(text[item.start : item.end]):
            label = FoundLabel(label.label, label.start + item.start, label.end + item.start)
            found[item.number] = label
            placed += [label] if item.placed else []
    if placed and [text[one.start : one.end].lower() for one in placed] == [*SPELLINGS]:
        # All names of labels in their order are more likely a list of them.
        return {number: label for number, label in found.items() if label not in placed}
    return found


# Probabilities.


class Judged(NamedTuple):
    """How probable a model makes its answer: the probability of the label that it gave, and of all three where the
    server lists alternatives, else None."""

    p: float
    distribution: Distribution | None


def judged(reply: Reply, found: FoundLabel) -> Judged | None:
    """The model's probabilities of the three labels, where it gave `found`, a label in `reply.text` (SPEC 9).

    Let the label's region begin at the bracket or quote that opens it, or at its word where it has none. The tokens
    are walked from the one that holds this place up to the first one with which only one label is still possible;
    `own` is the product of their probabilities. At each of these tokens, every alternative that the server lists is
    put in the chosen token's place: where the letters so far then begin one label, or where the alternative is
    a shorter beginning of the same text (a tokenizer gives a text one way, so what follows it is another label), its
    probability, times that of the walk before it, is added to that label's. So all spellings of a label count
    together, however brackets and words are split into tokens. The sums are normalised over the three labels;
    alternatives that begin no label do not count, nor do labels that are not listed.

    Where no alternatives are listed, p = own: what the model has not given to this answer counts as another label's.
    p keeps a distance of `NEVER_CERTAIN` from 0 and 1. None where there are no logprobs, where they contradict the
    answer (-inf for a token that was chosen, NaN), where the answer is not made of the tokens, or where all labels
    together have next to no probability: a server that forces a label shows what the model would have said freely.
    """
    tokens = reply.tokens or ()
    pieces = [_bytes(token) for token in tokens]
    whole = b"".join(pieces)
    begin = _place(whole, reply.text, _region(reply.text, found.start))
    if begin is None:
        return None
    own, others = 1.0, 0.0  # others: of the other labels together
    sums = dict.fromkeys(DISTRIBUTED, 0.0)
    listed = False
    end = 0
    for token, piece in zip(tokens, pieces, strict=True):
        start, end = end, end + len(piece)
        if end <= begin:
            continue
        before = whole[begin:start].decode(errors="replace")  # of the region; empty where the region begins in here
        lead = whole[start:begin].decode(errors="replace")  # of this token, before the region
        own_text = whole[start:].decode(errors="replace")
        chosen, alternatives = _odds(token)
        if chosen is None:
            return None
        for text, p in alternatives.items():
            listed = True
            meant = _possible(before + text.removeprefix(lead))
            if len(meant) == 1:
                sums[next(iter(meant))] += own * p
            if (len(meant) == 1 and meant != {found.label}) or (text and len(meant) > 1 and own_text.startswith(text)):
                others += own * p
        own *= chosen
        meant = _possible(whole[begin:end].decode(errors="replace"))
        if len(meant) < 2:
            sums[found.label] += own
            mass = sums[found.label] + others
            if meant != {found.label} or not sums[found.label] > 0 or mass < LEAST_MASS:
                return None
            if not listed:
                return Judged(_bounded(own), None)
            return _normalised(sums, found.label, others)
    return None


def _normalised(sums: Mapping[RelationType, float], label: RelationType, others: float) -> Judged:
    """The probabilities of the labels, where `others` is all that is not `label`'s: some of it belongs to no one label
    more than to another, and is shared in proportion to the rest."""
    p = _bounded(sums[label] / (sums[label] + others))
    rest = {one: weight for one, weight in sums.items() if one is not label}
    total = sum(rest.values())
    shares = {one: weight / total if total > 0 else 0.5 for one, weight in rest.items()}
    entailment, contradiction, neutral = (p if one is label else (1 - p) * shares[one] for one in DISTRIBUTED)
    return Judged(p, (entailment, contradiction, neutral))


def _bounded(p: float) -> float:
    return min(max(p, NEVER_CERTAIN), 1 - NEVER_CERTAIN)


def _place(whole: bytes, text: str, start: int) -> int | None:
    """Where the text from `start` on begins in the tokens' bytes; None where it is not made of them.

    Some servers give tokens that are parts of a character as U+FFFD, so that what stands before the label need not add
    up to the answer. Then the rest of the answer is looked for from the end, with any bytes in place of its characters
    beyond ASCII.
    """
    answer = whole.rfind(_unmarked(_encoded(text)))  # the last one: a model's reasoning comes before
    if answer >= 0:
        return answer + len(_unmarked(_encoded(text[:start])))
    rest = _BEYOND_ASCII.split(_unmarked(_encoded(text[start:])).lstrip(_BYTES_BEYOND_ASCII))
    if not rest[0]:
        return None
    found = [match.start() for match in re.finditer(_BEYOND_ASCII.pattern.join(map(re.escape, rest)), whole)]
    return found[-1] if found else None


_BYTES_BEYOND_ASCII: Final = bytes(range(0x80, 0x100))
_BEYOND_ASCII: Final = re.compile(rb"[\x80-\xff]++")


def _region(text: str, start: int) -> int:
    """Where the brackets, quotes and markdown that open the word at `start` begin."""
    opening = _OPENING_MARKS.search(text, max(start - 16, 0), start)
    return opening.start() if opening else start


_OPENERS: Final = r"[\[［【〔({<*_`\"'“‘\\]"
_OPENING_MARKS: Final = re.compile(rf"(?:{_OPENERS}[ \t]*)+\Z")
_MARKS: Final = ((b"\xc4\xa0", b" "), (b"\xe2\x96\x81", b" "), (b"\xc4\x8a", b"\n"))  # of tokenizers, for white space


def _encoded(text: str) -> bytes:
    """UTF-8, with `?` for half of a character, which a reply from a store may hold."""
    return text.encode(errors="replace")


def _unmarked(text: bytes) -> bytes:
    """Text without the marks that some servers leave in tokens."""
    for mark, meaning in _MARKS:
        text = text.replace(mark, meaning)
    return text


def _bytes(token: Token) -> bytes:
    return token.raw if token.raw is not None else _unmarked(_encoded(token.text))


def _odds(token: Token) -> tuple[float | None, Mapping[str, float]]:
    """The probability of the token that was chosen, and of each alternative; None where it is not known."""
    listed = {_unmarked(_encoded(text)).decode(): logprob for text, logprob in token.top}
    chosen = listed.pop(_unmarked(_encoded(token.text)).decode(), None)
    chosen = token.logprob if token.logprob is not None else chosen
    if chosen is None or math.isnan(chosen):
        return None, {}
    odds = {text: math.exp(min(logprob, 0.0)) for text, logprob in listed.items() if not math.isnan(logprob)}
    return math.exp(min(chosen, 0.0)), odds


@functools.lru_cache(maxsize=4096)  # the same few tokens compete in every answer
def _possible(text: str) -> frozenset[RelationType]:
    """The labels that a text may be the beginning of; all of them where it has no letters yet."""
    match = _BEGINNING.match(text)
    assert match  # it matches the empty text
    word = match["word"].lower()
    if match.end() < len(text):  # the word has ended
        return frozenset({_LABELS[word]} if word in _LABELS else ())
    return frozenset(label for spelling, label in _LABELS.items() if spelling.startswith(word))


_BEGINNING: Final = re.compile(rf"(?:{_OPENERS}|\s)*(?P<word>[^\W\d_]*)")
