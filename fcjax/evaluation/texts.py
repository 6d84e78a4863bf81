"""Text similarity between a candidate and a reference: ROUGE-L and BLEU, both from 0 to 1.

The packages rouge-score and sacrebleu do the counting. This module adds what they leave open: how text of any script
is split into words, and what empty texts score.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable
from typing import Any, Literal

from fcjax.core.words import is_unspaced, words

Tokenizer = Literal["13a", "zh", "char"]


def tokenizer_of(text: str) -> Tokenizer:
    """The sacrebleu tokenizer that fits a text, by the script of most of its words.

    `zh` splits Chinese into characters, `char` any other script without spaces (Japanese too, whose own tokenizer needs
    a dictionary); `13a` is sacrebleu's default.
    """
    found = words(text)
    unspaced = [word for word in found if is_unspaced(word)]
    if 2 * len(unspaced) <= len(found):
        return "13a"
    return "zh" if all(_is_han(word) for word in unspaced) else "char"


def _is_han(word: str) -> bool:
    return unicodedata.name(word[0], "").startswith(("CJK ", "IDEOGRAPHIC "))


def rouge_l(candidate: str, reference: str) -> float:
    """The F measure of ROUGE-L over `words`. Two texts without words score 1; if only one has none, 0."""
    empty = _without_words(candidate, reference)
    return empty if empty is not None else float(_rouge().score(reference, candidate)["rougeL"].fmeasure)


def bleu(candidate: str, reference: str) -> float:
    """Sentence BLEU: up to 4-grams, exponential smoothing, without the orders that the text is too short for.

    The reference's script selects the tokenizer. Two texts without words score 1; if only one has none, 0.
    """
    empty = _without_words(candidate, reference)
    if empty is not None:
        return empty
    return min(float(_bleu(tokenizer_of(reference)).sentence_score(candidate, [reference]).score) / 100.0, 1.0)


def text_scores(pairs: Iterable[tuple[str | None, str | None]]) -> list[dict[str, float] | None]:
    """`rouge_l` and `bleu` of each (candidate, reference); None where either text is None, because it failed."""
    return [
        None
        if candidate is None or reference is None
        else {"rouge_l": rouge_l(candidate, reference), "bleu": bleu(candidate, reference)}
        for candidate, reference in pairs
    ]


def _without_words(candidate: str, reference: str) -> float | None:
    """The score if either text has no words; None if both have some."""
    one, other = bool(words(candidate)), bool(words(reference))
    return None if one and other else float(one == other)


class _Words:
    """`words` in the interface that rouge-score expects."""

    tokenize = staticmethod(words)


@functools.cache
def _rouge() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # takes a second to import

    return RougeScorer(["rougeL"], tokenizer=_Words())


@functools.cache
def _bleu(tokenizer: Tokenizer) -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize=tokenizer, effective_order=True)
