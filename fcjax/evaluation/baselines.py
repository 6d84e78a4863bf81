"""What a relation model has to beat: always the commonest label, and the cosine of an embedding (see `gate`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from jaxtyping import Float, Int

from fcjax.core.errors import SettingsError
from fcjax.core.records import DISTRIBUTED, RelationType
from fcjax.core.words import words
from fcjax.evaluation.opinion_fit import cross_validated_opinion
from fcjax.evaluation.relation_figures import macro_f1, surprises
from fcjax.evaluation.relation_pairs import LabelledPair
from fcjax.evaluation.vector_scaling import cross_validated
from fcjax.stages.calibration import Calibration

WORD_COUNTS: Final = "word counts"
"""The name of the embedding that is used without an `Embedder`: word counts weighted by rarity (TF-IDF)."""
NUMBERS: Final = ("accuracy", "macro_f1", "log_loss", "auc")
"""The numbers of a `Baseline`."""
_DIGITS: Final = 7


class Embedder(Protocol):
    """What turns texts into vectors, such as `fcjax.encoders.embedder.Embedder`."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "N H"]:
        """A vector per text, float32, of length 1; all 0 for a text without content."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Baseline:
    """How N pairs are answered without a relation model. A number is None where it does not exist.

    `log_loss` is cross-validated by premise, in nats, as are `accuracy` and `macro_f1` of the cosine. `auc` is the
    chance that the cosine of an entailed pair is above that of a neutral one.
    """

    name: str  # "always neutral", "cosine of word counts"
    of: str  # the label, or the name of the embedding
    accuracy: float | None
    macro_f1: float | None
    log_loss: float | None
    auc: float | None = None
    losses: Float[np.ndarray, " N"] | None = None  # of each pair
    right: Float[np.ndarray, " N"] | None = None  # 1 where the answer is people's label, else 0

    def to_dict(self) -> dict[str, Any]:
        """The numbers as JSON, to 7 digits."""
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return {name: None if value is None else round(value, _DIGITS) for name, value in numbers.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class Baselines:
    """The baselines of an examination, on the pairs that the relation model answered."""

    commonest: Baseline
    cosine: Baseline

    def __iter__(self) -> Iterator[Baseline]:
        yield from (self.commonest, self.cosine)

    def to_dict(self) -> dict[str, Any]:
        """The baselines as JSON."""
        commonest = {"label": self.commonest.of, **self.commonest.to_dict()}
        del commonest["auc"]
        return {"commonest": commonest, "cosine": {"embedding": self.cosine.of, **self.cosine.to_dict()}}


def baselines_of(
    pairs: Sequence[LabelledPair],
    labels: Int[np.ndarray, " N"],
    groups: Sequence[str],
    embedder: Embedder | None = None,
) -> Baselines:
    """The baselines of N >= 1 pairs with their labels' places in `DISTRIBUTED` and their premises' names.

    Raises `SettingsError` where the embedder's vectors have another shape, or are not normalised.
    """
    name = WORD_COUNTS if embedder is None else str(embedder.name)
    cosines = word_cosines(pairs) if embedder is None else embedded_cosines(pairs, embedder)
    return Baselines(commonest=_commonest(labels, groups), cosine=_cosine(name, cosines, labels, groups))


def word_cosines(pairs: Sequence[LabelledPair]) -> Float[np.ndarray, " N"]:
    """The cosine of premise and hypothesis of each pair as vectors of word counts, float64; 0 where one has no words.

    A word that occurs n times in a text counts (1 + ln n) (1 + ln((1 + T) / (1 + t))), where t of the T different texts
    have it: frequent words count less.
    """
    texts = {text: Counter(words(text)) for text in sorted({text for pair in pairs for text in _texts(pair)})}
    having = Counter(word for counts in texts.values() for word in counts)
    rarity = {word: math.log((1 + len(texts)) / (1 + count)) + 1 for word, count in having.items()}
    vectors = {
        text: {word: (1 + math.log(count)) * rarity[word] for word, count in counts.items()}
        for text, counts in texts.items()
    }
    lengths = {text: math.sqrt(math.fsum(x * x for x in vector.values())) for text, vector in vectors.items()}

    def cosine(one: str, other: str) -> float:
        if not (lengths[one] and lengths[other]):
            return 0.0
        return min(_product(vectors[one], vectors[other]) / (lengths[one] * lengths[other]), 1.0)

    return np.array([cosine(*_texts(pair)) for pair in pairs], np.float64)


def embedded_cosines(pairs: Sequence[LabelledPair], embedder: Embedder) -> Float[np.ndarray, " N"]:
    """The cosine of premise and hypothesis of each pair, float64; every text is embedded once.

    Raises `SettingsError` where the vectors have another shape, or are not normalised.
    """
    texts = sorted({text for pair in pairs for text in _texts(pair)})  # in whatever order the pairs are
    place = {text: i for i, text in enumerate(texts)}
    vectors = np.asarray(embedder.embed(texts), np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise SettingsError(
            f"the embedding {embedder.name!r:.60} gave an array of shape {vectors.shape} for {len(texts):,} texts; "
            f"expected ({len(texts)}, H)"
        )
    lengths = np.linalg.norm(vectors, axis=1)
    bad = ~((np.abs(lengths - 1) < 1e-2) | (lengths == 0))  # also where one is not a number
    if bad.any():
        raise SettingsError(
            f"the embedding {embedder.name!r:.60} gave a vector of length {lengths[bad][0]:.4g} for "
            f"{texts[int(bad.argmax())]!r:.60}; expected length 1, or 0 for a text without content"
        )
    sides = np.array([[place[text] for text in _texts(pair)] for pair in pairs]).reshape(-1, 2)
    products = np.einsum("ij,ij->i", vectors[sides[:, 0]], vectors[sides[:, 1]])
    norms = lengths[sides[:, 0]] * lengths[sides[:, 1]]
    found: Float[np.ndarray, " N"] = np.clip(products / np.where(norms > 0, norms, 1), -1, 1)
    return found


def auc(scores: Float[np.ndarray, " N"], labels: Int[np.ndarray, " N"]) -> float | None:
    """The chance that the score of an entailed pair is above that of a neutral one, ties counted half; None where
    there is none of either."""
    entailed = scores[labels == DISTRIBUTED.index(RelationType.ENTAILMENT)]
    neutral = np.sort(scores[labels == DISTRIBUTED.index(RelationType.NEUTRAL)])
    if not (len(entailed) and len(neutral)):
        return None
    below = np.searchsorted(neutral, entailed, "left") + np.searchsorted(neutral, entailed, "right")
    return float(below.sum() / 2 / (len(entailed) * len(neutral)))


def _commonest(labels: Int[np.ndarray, " N"], groups: Sequence[str]) -> Baseline:
    """Always the commonest label; its probabilities are the labels' shares among the pairs of the other folds, by the
    fit of a calibration to answers that say nothing, so that a model that says nothing fares just as well."""
    place = int(np.bincount(labels, minlength=3).argmax())
    nothing = Calibration(model=WORD_COUNTS, style="none", template="none")
    q = cross_validated(nothing, np.full((len(labels), 3), 1 / 3), labels, groups, temperature=False)
    answers = np.full(len(labels), place)
    return _baseline(f"always {DISTRIBUTED[place]}", str(DISTRIBUTED[place]), answers, q, labels)


def _cosine(
    name: str, cosines: Float[np.ndarray, " N"], labels: Int[np.ndarray, " N"], groups: Sequence[str]
) -> Baseline:
    q = cross_validated_opinion(cosines, labels, groups)
    answers = None if q is None else q.argmax(axis=1)
    return _baseline(f"cosine of {name}", name, answers, q, labels, auc(cosines, labels))


def _baseline(
    name: str,
    of: str,
    answers: Int[np.ndarray, " N"] | None,
    q: Float[np.ndarray, "N 3"] | None,
    labels: Int[np.ndarray, " N"],
    auc: float | None = None,
) -> Baseline:
    losses = None if q is None else surprises(q, labels)
    accuracy = f1 = right = None
    if answers is not None:
        confusion = np.zeros((3, 3))
        np.add.at(confusion, (labels, answers), 1.0)
        right = (answers == labels).astype(np.float64)
        accuracy, f1 = float(right.mean()), float(macro_f1(confusion[None])[0])
    loss = None if losses is None else float(losses.mean())
    return Baseline(
        name=name, of=of, accuracy=accuracy, macro_f1=f1, log_loss=loss, auc=auc, losses=losses, right=right
    )


def _texts(pair: LabelledPair) -> tuple[str, str]:
    return pair.premise.strip(), pair.hypothesis.strip()


def _product(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return math.fsum(weight * other[word] for word, weight in one.items() if word in other)
