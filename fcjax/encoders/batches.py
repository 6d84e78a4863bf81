"""Rows of different lengths in batches of few shapes, so that few programs are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LENGTHS: Final = (
    *range(16, 161, 16),
    *(192, 224, 256, 320, 384, 512, 768, 1024, 2048, 4096, 8192),
)
"""The lengths of batches, in tokens: a row goes to the first that holds it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that run together: their places, in a batch of `rows` rows of `length` tokens. Spare rows are masked."""

    places: tuple[int, ...]
    rows: int
    length: int


def batches(lengths: Sequence[int], tokens: int, longest: int, devices: int = 1) -> list[Batch]:
    """Batches of about `tokens` tokens for rows of these lengths (at most `longest`), long ones first. The rows of each
    are a multiple of `devices`.

    All batches of a length have one size: there is one compiled program for each length in use, and a row has the same
    numbers to the last bit, whatever other rows it runs with. Another size gives other last bits.
    """
    groups: dict[int, list[int]] = {}
    for place, length in enumerate(lengths):
        groups.setdefault(bucket(length, longest), []).append(place)
    made = []
    for length, places in sorted(groups.items(), reverse=True):
        places.sort(key=lambda place: lengths[place])
        rows = max(1, tokens // length // devices) * devices
        made += [Batch(tuple(places[at : at + rows]), rows, length) for at in range(0, len(places), rows)]
    return made


def bucket(length: int, longest: int, lengths: Sequence[int] = LENGTHS) -> int:
    """The length of the batch for a row of `length` tokens."""
    return next((size for size in lengths if length <= size <= longest), longest)
