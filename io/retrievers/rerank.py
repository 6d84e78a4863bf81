"""Re-ranking by a small neural model on this machine; an extra, since it brings PyTorch along."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any, Final

from fcjax.core.errors import SettingsError

MODEL: Final = "cross-encoder/mmarco-mMiniLMv2-L12-H384-v1"
"""A small model that reads query and text together, trained on fourteen languages."""


class CrossEncoder:
    """A `Rerank` for `LocalCorpus.open(..., rerank=CrossEncoder())`, by a model of sentence-transformers.

    The model, a name at its hub or a folder, is loaded at the first query. `device` is PyTorch's (`cpu`, `cuda`), by
    default the fastest there is. Raises `SettingsError` where sentence-transformers is not installed.
    """

    def __init__(self, model: str = MODEL, *, device: str | None = None, batch: int = 32):
        if importlib.util.find_spec("sentence_transformers") is None:
            raise SettingsError('re-ranking needs sentence-transformers; install it by: pip install "fcjax[dense]"')
        self.name = f"cross-encoder:{model}"
        self._settings = (model, device, batch)
        self._model: Any = None

    def __call__(self, query: str, texts: Sequence[str]) -> list[float]:
        model, device, batch = self._settings
        if self._model is None:
            library = importlib.import_module("sentence_transformers")  # takes seconds, and is no dependency
            self._model = library.CrossEncoder(model, device=device)
        pairs = [(query, text) for text in texts]
        return [float(score) for score in self._model.predict(pairs, batch_size=batch, show_progress_bar=False)]
