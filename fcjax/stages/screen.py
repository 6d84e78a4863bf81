"""Screening: pairs whose texts have almost nothing in common are not asked about. Off by default.

The score is cheap and knows words only, no meaning: a context in another language, or one that says the same in other
words, scores low. Pairs that are left out are counted; they get no relation, not even a neutral one.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator

from fcjax.core.words import words
from fcjax.stages.relate import Agenda, Pair


class Screen:
    """Passes the pairs of one case that score at least `threshold`, and counts the others in `left_out`.

    A pair's score, from 0 to 1, is the share of the hypothesis' words that the premise has too, each word weighted by
    log(1 + N / (n + 0.5)), where n of the case's N contexts have it: names and numbers count, common words hardly.
    """

    def __init__(self, agenda: Agenda, threshold: float):
        self.threshold = threshold
        self.left_out = 0
        self._total = len(agenda.contexts)
        self._having = Counter(word for one in agenda.contexts.values() for word in screen_words(one.evidence))

    def passed(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs to ask about."""
        for pair in pairs:
            if self.score(pair) >= self.threshold:
                yield pair
            else:
                self.left_out += 1

    def score(self, pair: Pair) -> float:
        """How much of the hypothesis the premise covers; 1 if the hypothesis has no words."""
        wanted = {word: math.log1p(self._total / (self._having[word] + 0.5)) for word in screen_words(pair.hypothesis)}
        shared = sum(weight for word, weight in wanted.items() if word in screen_words(pair.premise))
        return shared / sum(wanted.values()) if wanted else 1.0


@functools.lru_cache(maxsize=1024)
def screen_words(text: str) -> frozenset[str]:
    """The distinct words of a text."""
    return frozenset(words(text))
