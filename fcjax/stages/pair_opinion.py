"""First opinions: what a pair's answer will probably be, before any model is asked (docs/adaptive.md).

An opinion is a distribution over the answers for each pair. `opinion_by_words` has one of words alone: a multinomial
logistic regression on how much of a claim a passage covers, compared with the other passages and claims of the case.
What words do not tell is what kind of claim it is: one of which no passage says anything, one that passages support, or
one that they contradict. So there is an opinion for each kind, and the answers will tell which holds.

The coefficients were fitted to people's stances (Factcheck-GPT) by `benchmarks/adaptive.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float

from fcjax.core.words import content_words, words
from fcjax.stages.calibration import distributions
from fcjax.stages.relate import Pair

FEATURES: Final = (
    *("constant", "covered", "covered_squared", "own", "rank", "numbers", "behind_claim", "length", "content"),
    "relative",
)
"""What the regression reads of a pair; see `features`."""
COEFFICIENTS: Final = np.array(
    [
        [-2.495, -2.784, 5.279],  # constant
        [-1.165, -0.153, 1.318],  # covered
        [1.216, -0.615, -0.601],  # covered_squared
        [0.675, 0.409, -1.084],  # own
        [0.087, -0.076, -0.011],  # rank
        [-0.245, 0.634, -0.388],  # numbers
        [-0.148, -0.837, 0.985],  # behind_claim
        [0.124, -0.144, 0.021],  # length
        [1.115, 0.819, -1.934],  # content
        [0.527, 1.085, -1.612],  # relative
    ]
)
"""By `FEATURES` and `DISTRIBUTED`."""
SHIFTS: Final = np.array([[-0.851, -2.128, 0.0], [1.925, -1.14, 0.0], [-1.786, 2.117, 0.0]])
"""What is added to the scores for each kind of claim, by `DISTRIBUTED`."""
SHARES: Final = (0.326, 0.55, 0.124)
"""How common each kind of claim is."""
LEAST: Final = 1e-3
"""Of a probability: words are never surer."""

_K1: Final = 1.2  # of BM25
_B: Final = 0.75


class Opinion(NamedTuple):
    """A first opinion on `N` pairs: a distribution on each, for each of `C` kinds of claims, and the kinds' shares."""

    name: str
    kinds: Float[np.ndarray, "C N 3"]  # float64, columns by `DISTRIBUTED`
    share: Float[np.ndarray, " C"]  # float64


def opinion_by_words(pairs: Sequence[Pair], own: Mapping[str, Collection[str]]) -> Opinion:
    """The opinion by words on pairs of a context and an atom of one case. `own` has the contexts that were found for
    each atom, by ids."""
    return opinion_of(features(pairs, own), COEFFICIENTS, SHIFTS, np.array(SHARES))


def opinion_of(
    terms: Float[np.ndarray, "N F"],
    coefficients: Float[np.ndarray, "F 3"],
    shifts: Float[np.ndarray, "C 3"],
    share: Float[np.ndarray, " C"],
) -> Opinion:
    """The opinion by words on pairs with these features."""
    scores = terms @ coefficients
    kinds = [LEAST + (1 - 3 * LEAST) * distributions(scores + shift) for shift in shifts]
    return Opinion("words", np.stack(kinds), share)


def features(pairs: Sequence[Pair], own: Mapping[str, Collection[str]]) -> Float[np.ndarray, "N F"]:
    """The features of each pair, columns by `FEATURES`, float64.

    `covered`: the share of the claim's words that the passage has, each weighted by how few of the passages have it;
    `own`: whether the passage was found for the claim; `rank`: 1 / (1 + its place for the claim by BM25); `numbers`:
    the share of the claim's words with digits that the passage lacks; `behind_claim`: how much more it covers of the
    claim that it covers best; `length`: ln of the number of the claim's words; `content`: the share of the claim's
    content words, unweighted; `relative`: BM25 over that of the best passage.
    """
    if not pairs:
        return np.zeros((0, len(FEATURES)))
    premises = {pair.source: pair.premise for pair in pairs}
    claims = {pair.target: pair.hypothesis for pair in pairs}
    source = {name: number for number, name in enumerate(premises)}
    target = {name: number for number, name in enumerate(claims)}
    found = _scores(list(claims.values()), list(premises.values()))
    i = np.array([target[pair.target] for pair in pairs], np.int64)
    j = np.array([source[pair.source] for pair in pairs], np.int64)
    mine = np.array([pair.source in own.get(pair.target, ()) for pair in pairs], np.float64)
    places = np.argsort(np.argsort(-found.bm25, axis=1, kind="stable"), axis=1)
    best, top = found.covered.max(axis=0, initial=0.0), np.maximum(found.bm25.max(axis=1, initial=0.0), 1e-9)
    covered = found.covered[i, j]
    columns = (np.ones(len(pairs)), covered, covered**2, mine, 1 / (1 + places[i, j]), found.numbers[i, j])
    more = (best[j] - covered, found.length[i], found.content[i, j], found.bm25[i, j] / top[i])
    return np.stack([*columns, *more], axis=1)


class _Scores(NamedTuple):
    """Of `A` claims and `M` passages; see `features`."""

    covered: Float[np.ndarray, "A M"]
    bm25: Float[np.ndarray, "A M"]
    numbers: Float[np.ndarray, "A M"]
    content: Float[np.ndarray, "A M"]
    length: Float[np.ndarray, " A"]


def _scores(claims: Sequence[str], passages: Sequence[str]) -> _Scores:
    content = [sorted(content_words(claim)) for claim in claims]
    wanted = [sorted({*words(claim), *more}) for claim, more in zip(claims, content, strict=True)]
    rows = {word: row for row, word in enumerate(dict.fromkeys(word for one in wanted for word in one))}
    counts, sizes = np.zeros((len(rows), len(passages))), np.ones(len(passages))
    for j, passage in enumerate(passages):
        said = words(passage)
        sizes[j] = max(1, len(said))
        tally = Counter(word for word in said if word in rows)
        for word in content_words(passage) & rows.keys():
            tally.setdefault(word, 1)
        if tally:
            counts[[rows[word] for word in tally], j] = list(tally.values())
    has = (counts > 0).astype(np.float64)
    weight = np.log1p(len(passages) / (has.sum(axis=1) + 0.5))
    saturated = counts * (_K1 + 1) / (counts + _K1 * (1 - _B + _B * sizes / sizes.mean()))
    digits = np.array([any(sign.isdigit() for sign in word) for word in rows], bool)
    shape = len(claims), len(passages)
    made = _Scores(np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(len(claims)))
    for i, (all_, some) in enumerate(zip(wanted, content, strict=True)):
        if not all_:
            made.covered[i] = made.content[i] = 1.0
            continue
        its = np.array([rows[word] for word in all_], np.int64)
        w = weight[its]
        made.covered[i] = w @ has[its] / w.sum()
        made.bm25[i] = w @ saturated[its]
        made.length[i] = math.log(len(its))
        made.content[i] = has[[rows[word] for word in some]].mean(axis=0) if some else 1.0
        if digits[its].any():
            made.numbers[i] = 1 - has[its[digits[its]]].mean(axis=0)
    return made
