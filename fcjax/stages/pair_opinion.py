"""First opinions: what a pair's answer will probably be, before any model is asked (docs/adaptive.md).

An opinion is a distribution over the answers. `opinions` has one of words alone: a multinomial logistic regression on
how much of the claim the passage covers, compared with the other passages and claims of its case. Its coefficients were
fitted to people's stances (`benchmarks/adaptive.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Float

from fcjax.core.words import content_words, words
from fcjax.stages.calibration import distributions
from fcjax.stages.relate import Agenda, Pair

FEATURES: Final = ("constant", "covered", "covered_squared", "own", "rank", "numbers", "behind_claim", "length", "content", "relative")
"""What the regression reads of a pair; see `features`."""
COEFFICIENTS: Final = np.zeros((len(FEATURES), 3))
SHIFTS: Final = np.zeros((3, 3))
SHARES: Final = np.ones(3) / 3
LEAST_WORDS: Final = 1e-3  # of a probability of an opinion by words: they are never sure

K1: Final = 1.2
B: Final = 0.75


def features(agenda: Agenda, pairs: Sequence[Pair]) -> Float[np.ndarray, "N F"]:
    """The features of each pair of a context and an atom, columns by `FEATURES`, float64.

    `covered`: the share of the claim's words that the passage has, each weighted by how few of the case's passages have
    it; `own`: whether the passage was found for the claim; `rank`: 1 / (1 + place among the passages by BM25 for the
    claim); `numbers`: the share of the claim's words with digits that the passage lacks; `behind_claim`: how much less
    it covers of this claim than of the case's claim that it covers best; `length`: ln of the claim's words.
    """
    sources = {name: j for j, name in enumerate(dict.fromkeys(pair.source for pair in pairs))}
    targets = {name: i for i, name in enumerate(dict.fromkeys(pair.target for pair in pairs))}
    premises = {pair.source: pair.premise for pair in pairs}
    claims = {pair.target: pair.hypothesis for pair in pairs}
    covered, bm25, numbers, length, content = _scores([claims[name] for name in targets], [premises[name] for name in sources])
    own_of = {atom.id: set(atom.contexts or ()) for atom in agenda.atoms.values()}
    i = np.array([targets[pair.target] for pair in pairs], np.int64)
    j = np.array([sources[pair.source] for pair in pairs], np.int64)
    own = np.array([pair.source in own_of[pair.target] for pair in pairs], np.float64)
    places = np.argsort(np.argsort(-bm25, axis=1, kind="stable"), axis=1)
    best = covered.max(axis=0, initial=0.0)
    c = covered[i, j]
    columns = (np.ones(len(pairs)), c, c**2, own, 1 / (1 + places[i, j]), numbers[i, j], best[j] - c, length[i],
        content[i, j], bm25[i, j] / np.maximum(1e-9, bm25.max(axis=1)[i]))
    return np.stack(columns, axis=1)


def _scores(claims: Sequence[str], passages: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each claim and passage: the weighted share of the claim's words, BM25, and the share of numbers that are
    missing; and of each claim the logarithm of its words."""
    wanted = [sorted(set(words(claim)) | content_words(claim)) for claim in claims]
    vocabulary = {word: v for v, word in enumerate(dict.fromkeys(word for one in wanted for word in one))}
    counts = np.zeros((len(vocabulary), len(passages)))
    sizes = np.ones(len(passages))
    for j, passage in enumerate(passages):
        found = words(passage)
        sizes[j] = max(1, len(found))
        tally = Counter(found)
        for word in content_words(passage):
            tally.setdefault(word, 1)
        for word in vocabulary.keys() & tally.keys():
            counts[vocabulary[word], j] = tally[word]
    has = counts > 0
    weight = np.log1p(len(passages) / (has.sum(axis=1) + 0.5))
    saturated = counts * (K1 + 1) / (counts + K1 * (1 - B + B * sizes / sizes.mean()))
    digits = np.array([any(sign.isdigit() for sign in word) for word in vocabulary], bool)
    n, m = len(claims), len(passages)
    covered, bm25, missing, length, content = np.zeros((n, m)), np.zeros((n, m)), np.zeros((n, m)), np.zeros(n), np.zeros((n, m))
    for i, one in enumerate(wanted):
        rows = np.array([vocabulary[word] for word in one], np.int64)
        if not len(rows):
            covered[i] = 1.0
            continue
        w = weight[rows]
        covered[i] = w @ has[rows] / w.sum()
        bm25[i] = w @ saturated[rows]
        length[i] = math.log(len(rows))
        ours = [vocabulary[word] for word in content_words(claims[i])]
        content[i] = has[ours].mean(axis=0) if ours else 1.0
        if digits[rows].any():
            missing[i] = 1 - has[rows[digits[rows]]].mean(axis=0)
    return covered, bm25, missing, length, content


def opinions(agenda: Agenda, pairs: Sequence[Pair]) -> Float[np.ndarray, "N 3"]:
    """The first opinion by words on each pair, columns by `DISTRIBUTED`, float64."""
    if not pairs:
        return np.zeros((0, 3))
    return opinions_of(features(agenda, pairs), COEFFICIENTS)


def opinions_of(terms: Float[np.ndarray, "N F"], coefficients: Float[np.ndarray, "F 3"]) -> Float[np.ndarray, "N 3"]:
    """The distributions of pairs with these features."""
    q = distributions(terms @ coefficients)
    found: Float[np.ndarray, "N 3"] = LEAST_WORDS + (1 - 3 * LEAST_WORDS) * q
    return found
