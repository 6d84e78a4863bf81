"""Embeddings of passages and claims by a local encoder: mean-pooled, of length 1 (SPEC 9, Local)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from fcjax.core.checks import check_number
from fcjax.encoders.batches import batches
from fcjax.encoders.encoder import Encoder
from fcjax.encoders.network import Dtype
from fcjax.encoders.windows import spans
from fcjax.io.model_folder import ModelFolder


@dataclass(eq=False)
class Embedder(Encoder):
    """An encoder that embeds texts, one by one. Make it with `open`; a longer text is read in parts of `length`."""

    @classmethod
    def open(
        cls, where: str | os.PathLike[str] | ModelFolder, *, length: int = 256, dtype: Dtype | None = None
    ) -> Embedder:
        """The encoder of a folder laid out as on Hugging Face's hub, or of a name there.

        Raises `InputError` where the folder lacks something or is of a kind that is not known, and `SettingsError`.
        """
        check_number("length", length, 16, 1 << 15, whole=True)
        return cls(**cls.parts(where, length, dtype))

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "N H"]:
        """The embeddings of texts, float32, of length 1; zeros for a text without words.

        Equal texts are embedded once. A text that is longer than `length` tokens has the mean of its windows'.
        """
        distinct = list(dict.fromkeys(texts))
        frame, room = self.tokens.single, self.length - self.tokens.single.size
        parts: list[tuple[int, np.ndarray]] = []
        for place, ids in enumerate(self.tokens.of(distinct)):
            parts += [(place, ids[start:end]) for start, end in spans(len(ids), room) if end]
        sums = np.zeros((len(distinct), self.network.architecture.hidden), np.float32)
        lengths = [len(ids) + frame.size for _, ids in parts]
        for batch in batches(lengths, self.batch_tokens, self.length, self.devices.count):
            rows = [(parts[place][1],) for place in batch.places]
            filled = self.tokens.filled(frame, rows, batch.rows, batch.length)
            made = np.asarray(self.network.embed(*self.devices.shared(*filled)), np.float32)[: len(rows)]
            np.add.at(sums, [parts[place][0] for place in batch.places], made)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        whole = sums / np.where(norms > 0, norms, 1)
        where = {text: place for place, text in enumerate(distinct)}
        found: Float[np.ndarray, "N H"] = whole[[where[text] for text in texts]]
        return found
