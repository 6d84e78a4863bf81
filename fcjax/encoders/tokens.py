"""Texts as token ids: every text is tokenised once, and pairs are put together from ids.

What a model's tokenizer puts around and between the two texts of a pair, and their token types, is read off a pair that
it encodes itself, so that no family needs a rule of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from jaxtyping import Int

from fcjax.core.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = Int[np.ndarray, " T"]  # int32

KEPT: Final = 1 << 24
"""Tokens that are remembered at most; then all are forgotten: a run comes back to a text soon, or not at all."""
PLACED: Final = 64
"""Texts whose tokens' places are remembered at most: a long passage is read beside one claim after another."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens before, between and after two texts, and the types of all."""

    first: Ids
    middle: Ids
    last: Ids
    types: tuple[int, int, int, int, int]  # of `first`, the premise, `middle`, the hypothesis, `last`

    @property
    def size(self) -> int:
        """Special tokens."""
        return len(self.first) + len(self.middle) + len(self.last)

    def fill(self, ids: Ids, types: Ids, premise: Ids, hypothesis: Ids) -> int:
        """Write a pair into the beginning of `ids` and `types`; returns its length."""
        at = 0
        for part, kind in zip((self.first, premise, self.middle, hypothesis, self.last), self.types, strict=True):
            ids[at : at + len(part)] = part
            types[at : at + len(part)] = kind
            at += len(part)
        return at


@dataclass(frozen=True, slots=True)
class SingleFrame:
    """The special tokens around one text."""

    first: Ids
    last: Ids

    @property
    def size(self) -> int:
        """Special tokens."""
        return len(self.first) + len(self.last)

    def fill(self, ids: Ids, types: Ids, text: Ids) -> int:
        """Write a text into the beginning of `ids`; returns its length."""
        at = 0
        for part in (self.first, text, self.last):
            ids[at : at + len(part)] = part
            at += len(part)
        return at


@dataclass(slots=True, eq=False)
class Tokens:
    """A tokenizer that remembers what it has tokenised. Raises `InputError` where it makes no pairs."""

    tokenizer: Tokenizer
    pad: int  # the id that fills rows up
    frame: Frame = field(init=False)
    single: SingleFrame = field(init=False)
    _ids: dict[str, Ids] = field(init=False, default_factory=dict)
    _offsets: dict[str, list[tuple[int, int]]] = field(init=False, default_factory=dict)
    _kept: int = field(init=False, default=0)
    _lock: Lock = field(init=False, default_factory=Lock)  # models with other calibrations share this

    def __post_init__(self) -> None:
        self.frame, self.single = _frame(self.tokenizer), _single(self.tokenizer)

    def of(self, texts: Iterable[str]) -> list[Ids]:
        """The ids of each text, without special tokens, int32; those that are new are tokenised side by side."""
        with self._lock:
            return self._of(list(texts))

    def _of(self, texts: list[str]) -> list[Ids]:
        new = [text for text in dict.fromkeys(texts) if text not in self._ids]
        if self._kept > KEPT:
            self.forget()
            new = list(dict.fromkeys(texts))
        if new:
            encoded = self.tokenizer.encode_batch([_clean(text) for text in new], add_special_tokens=False)
            for text, one in zip(new, encoded, strict=True):
                self._ids[text] = ids = np.array(one.ids, np.int32)
                self._kept += len(ids)
        return [self._ids[text] for text in texts]

    def filled(
        self, frame: Frame | SingleFrame, rows: Sequence[tuple[Ids, ...]], count: int, length: int
    ) -> tuple[Int[np.ndarray, "B L"], Int[np.ndarray, "B L"], Int[np.ndarray, "B L"]]:
        """Ids, mask and types of a batch of `count` rows of `length` tokens; spare rows and tokens are masked."""
        ids = np.full((count, length), self.pad, np.int32)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, texts in enumerate(rows):
            mask[row, : frame.fill(ids[row], types[row], *texts)] = 1
        return ids, mask, types

    def forget(self) -> None:
        """Forget all texts."""
        self._ids.clear()
        self._kept = 0

    def place(self, text: str, start: int, end: int) -> tuple[int, int]:
        """The characters of a text that its tokens from `start` to `end` are of."""
        if (offsets := self._offsets.get(text)) is None:
            if len(self._offsets) == PLACED:
                self._offsets.clear()
            offsets = self.tokenizer.encode(_clean(text), add_special_tokens=False).offsets
            self._offsets[text] = offsets
        return offsets[start][0], offsets[end - 1][1]


def _clean(text: str) -> str:
    """The text without halves of surrogate pairs, which UTF-8 cannot hold; as many characters as before."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def _frame(tokenizer: Tokenizer) -> Frame:
    encoded = tokenizer.encode("a", "b", add_special_tokens=True)
    ids, types = np.array(encoded.ids, np.int32), list(encoded.type_ids)
    whose = list(encoded.sequence_ids)
    ours = [place for place, text in enumerate(whose) if text == 0]
    theirs = [place for place, text in enumerate(whose) if text == 1]
    if not ours or not theirs or ours[-1] > theirs[0]:
        raise InputError("the tokenizer makes no pairs of texts; allowed: a tokenizer.json of an encoder for pairs")
    a, b, c, d = ours[0], ours[-1] + 1, theirs[0], theirs[-1] + 1
    if a == 0 and b == c and d == len(ids):
        raise InputError(
            "the tokenizer puts nothing around and between the two texts of a pair, so that a model cannot tell them "
            "apart; allowed: a tokenizer.json with its post-processor (saved with the model that it belongs to)"
        )

    def kind(start: int, end: int, default: int) -> int:
        return int(types[start]) if start < end else default

    pair = (kind(a, b, 0), kind(c, d, 1))
    return Frame(
        ids[:a],
        ids[b:c],
        ids[d:],
        (kind(0, a, pair[0]), pair[0], kind(b, c, pair[0]), pair[1], kind(d, len(ids), pair[1])),
    )


def _single(tokenizer: Tokenizer) -> SingleFrame:
    encoded = tokenizer.encode("a", add_special_tokens=True)
    ids: Any = np.array(encoded.ids, np.int32)
    ours = [place for place, text in enumerate(encoded.sequence_ids) if text == 0]
    return SingleFrame(ids[: ours[0]], ids[ours[-1] + 1 :]) if ours else SingleFrame(ids[:0], ids[:0])
