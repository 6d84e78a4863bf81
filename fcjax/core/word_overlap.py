"""The word overlap of two texts: whether a model's text can be derived from the text that it was given.

It compares words, not meaning: enough to reject nonsense, another item's text, or one from the prompt's example.
"""

from __future__ import annotations

from fcjax.core.words import content_words


def shared(text: str, source: frozenset[str]) -> float:
    """The share, from 0 to 1, of a text's content words that are among those of `source`; 0 where it has none."""
    own = content_words(text)
    return len(own & source) / len(own) if own else 0.0


def alike(one: str, other: str) -> float:
    """The overlap of two texts, from 0 to 1 (the Jaccard index of their words)."""
    first, second = content_words(one), content_words(other)
    return len(first & second) / len(first | second) if first | second else 0.0
