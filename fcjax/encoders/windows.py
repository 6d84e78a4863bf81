"""Long passages: which part of one speaks for it about a claim (SPEC 9, Local)."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import log
from typing import Final

import numpy as np
from jaxtyping import Int

Ids = Int[np.ndarray, " T"]


LEAST: Final = 32
"""Tokens of a passage that must fit beside a claim; else the claim is too long for the model."""


def beside(passage: Ids, claim: Ids, room: int) -> tuple[int, int] | None:
    """The part of a passage, as (start, end), that is read beside a claim where there is `room` for as many tokens of
    both: all of it, or the nearest window. None where the claim, which is never cut, leaves too little."""
    space = room - len(claim)
    return nearest(passage, claim, space) if space >= min(LEAST, len(passage)) else None


@lru_cache(maxsize=1024)
def spans(length: int, size: int) -> tuple[tuple[int, int], ...]:
    """Windows of `size` over `length` tokens, as (start, end): each overlaps the one before by half or more, and the
    last one ends with the text. One window where the text fits."""
    if length <= size:
        return ((0, length),)
    step = max(1, size // 2)
    starts = [*range(0, length - size, step), length - size]
    return tuple((start, start + size) for start in starts)


def nearest(passage: Ids, claim: Ids, size: int) -> tuple[int, int]:
    """The window of `size` of a passage that is nearest to a claim: the one with the most of the claim's tokens.

    A token counts the less the more often the passage has it. Of several windows, it is the first.
    """
    places = spans(len(passage), size)
    if len(places) == 1:
        return places[0]
    often = Counter(passage.tolist())
    weights = {token: log(1 + len(passage) / often[token]) for token in set(claim.tolist()) if token in often}
    if not weights:
        return places[0]
    return max(places, key=lambda place: sum(weights.get(token, 0.0) for token in set(passage[slice(*place)].tolist())))
