"""How close a text stays to another one: ROUGE-L, BLEU, and BLEURT where it is installed.

The counting is done by rouge-score and sacrebleu. What is ours is what they leave open: how texts of any script become
words, and what empty texts score. All scores of ROUGE-L and BLEU are from 0 to 1.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from fcjax.core.words import is_unspaced, words
from fcjax.evaluation.optional import load

Tokenizer = Literal["13a", "zh", "char"]


def tokenizer_of(text: str) -> Tokenizer:
    """The tokenizer of sacrebleu that fits a text, by the script that most of its words have.

    `zh` takes Chinese apart sign by sign, `char` every other script without spaces (Japanese too: its own needs a
    dictionary), `13a` is sacrebleu's default.
    """
    found = words(text)
    unspaced = [word for word in found if is_unspaced(word)]
    if 2 * len(unspaced) <= len(found):
        return "13a"
    return "zh" if all(_is_han(word) for word in unspaced) else "char"


def _is_han(word: str) -> bool:
    return unicodedata.name(word[0], "").startswith(("CJK ", "IDEOGRAPHIC "))


def rouge_l(candidate: str, reference: str) -> float:
    """The F measure of ROUGE-L over `words`. Two texts without words score 1, one without words 0."""
    empty = _without_words(candidate, reference)
    return empty if empty is not None else float(_rouge().score(reference, candidate)["rougeL"].fmeasure)


def bleu(candidate: str, reference: str) -> float:
    """Sentence BLEU: up to 4-grams, exponential smoothing, orders that the text is too short for left out.

    The reference's script chooses the tokenizer. Two texts without words score 1, one without words 0.
    """
    empty = _without_words(candidate, reference)
    if empty is not None:
        return empty
    return min(float(_bleu(tokenizer_of(reference)).sentence_score(candidate, [reference]).score) / 100.0, 1.0)


def corpus_bleu(pairs: Iterable[tuple[str, str]]) -> tuple[float | None, str]:
    """BLEU of many (candidate, reference) as one corpus, and sacrebleu's signature of how it was computed.

    Pairs of which a text has no words are left out; None where none is left. The script of all references chooses the
    tokenizer.
    """
    kept = [(candidate, reference) for candidate, reference in pairs if words(candidate) and words(reference)]
    metric = _bleu(tokenizer_of(" ".join(reference for _, reference in kept)), sentence=False)
    if not kept:
        return None, ""
    candidates, references = map(list, zip(*kept, strict=True))
    score = float(metric.corpus_score(candidates, [references]).score) / 100.0
    return min(score, 1.0), str(metric.get_signature())


class Bleurt:
    """BLEURT by the package bleurt-pytorch (the extra `bleurt`); `checkpoint` is a folder or a name that it can load.

    Loads on construction. Raises `SettingsError` where the package is missing.
    """

    def __init__(self, checkpoint: str = "lucadiliello/BLEURT-20", batch: int = 16) -> None:
        package = load("bleurt_pytorch", "bleurt", "BLEURT")
        self._torch = load("torch", "bleurt", "BLEURT")
        self._batch = batch
        self._tokenizer = package.BleurtTokenizer.from_pretrained(checkpoint)
        self._model = package.BleurtForSequenceClassification.from_pretrained(checkpoint).eval()

    def scores(self, candidates: Sequence[str], references: Sequence[str]) -> list[float]:
        """The score of each pair, about 0 to 1 but not bounded: it has no relative gain."""
        found: list[float] = []
        with self._torch.no_grad():
            for start in range(0, len(candidates), self._batch):
                part = slice(start, start + self._batch)
                batch = self._tokenizer(
                    list(references[part]),
                    list(candidates[part]),
                    padding="longest",
                    truncation=True,
                    max_length=512,
                    return_tensors="pt",
                )
                found += self._model(**batch).logits.flatten().tolist()
        return found


def text_scores(
    pairs: Iterable[tuple[str | None, str | None]], bleurt: Bleurt | None = None
) -> list[dict[str, float] | None]:
    """`rouge_l`, `bleu` and, where it is given, `bleurt` of each (candidate, reference).

    None for a pair of which a text is None: a failure has no score.
    """
    found: list[dict[str, float] | None] = []
    both: list[tuple[str, str, dict[str, float]]] = []
    for candidate, reference in pairs:
        if candidate is None or reference is None:
            found.append(None)
            continue
        scores = {"rouge_l": rouge_l(candidate, reference), "bleu": bleu(candidate, reference)}
        both.append((candidate, reference, scores))
        found.append(scores)
    if bleurt and both:
        learned = bleurt.scores([candidate for candidate, _, _ in both], [reference for _, reference, _ in both])
        for (_, _, scores), score in zip(both, learned, strict=True):
            scores["bleurt"] = score
    return found


def _without_words(candidate: str, reference: str) -> float | None:
    """The score where a text has no words; None where both have some."""
    one, other = bool(words(candidate)), bool(words(reference))
    return None if one and other else float(one == other)


class _Words:
    """`words` as rouge-score wants it."""

    tokenize = staticmethod(words)


@functools.cache
def _rouge() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # takes a second to import

    return RougeScorer(["rougeL"], tokenizer=_Words())


@functools.cache
def _bleu(tokenizer: Tokenizer, sentence: bool = True) -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize=tokenizer, effective_order=sentence)
