"""Small encoders: those whose answers transformers gave (tests/golden/encoders), and random ones of every family."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from fcjax.encoders.config import read_config
from fcjax.encoders.network import Network
from fcjax.kernels.encoders.model import Model

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "encoders"
GOLDEN = tuple(sorted(path.stem for path in FOLDER.glob("*.npz")))
"""The models of `benchmarks/encoder_parity.py --golden`, which says how they were made."""

_SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "id2label": {"0": "entailment", "1": "neutral", "2": "contradiction"},
}
TINY: dict[str, dict[str, Any]] = {
    "bert": {**_SIZES, "model_type": "bert"},
    "roberta": {**_SIZES, "model_type": "roberta", "pad_token_id": 1, "type_vocab_size": 1},
    "deberta": {
        **_SIZES,
        "model_type": "deberta-v2",
        "relative_attention": True,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
    },
    "deberta-conv": {
        **_SIZES,
        "model_type": "deberta-v2",
        "relative_attention": True,
        "max_relative_positions": 6,
        "pos_att_type": ["p2c", "c2p"],
        "conv_kernel_size": 3,
        "embedding_size": 8,
    },
    "modernbert": {**_SIZES, "model_type": "modernbert", "local_attention": 8, "pad_token_id": 0, "mlp_dropout": 0.1},
}
"""A config.json per family."""


@dataclass(frozen=True)
class Golden:
    """A model, its inputs, and what transformers answered."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    answers: dict[str, np.ndarray]

    @property
    def inputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.answers["ids"], self.answers["mask"], self.answers["types"]


@cache
def golden(name: str) -> Golden:
    """A model by its name in `GOLDEN`."""
    with np.load(FOLDER / f"{name}.npz") as stored:
        parts: dict[str, dict[str, np.ndarray]] = {"tensor": {}, "answer": {}}
        for key in stored.files:
            kind, _, rest = key.partition(".")
            if kind in parts:
                parts[kind][rest] = stored[key]
        return Golden(json.loads(str(stored["config"])), parts["tensor"], parts["answer"])


def random_network(family: str, *, seed: int = 0, deviation: float = 0.2, **changes: Any) -> Network:
    """A network of `TINY` with normal weights, which are added to a norm's ones."""
    abstract = nnx.eval_shape(lambda: Model(read_config({**TINY[family], **changes})))
    graph, weights = nnx.split(abstract)
    chance = np.random.default_rng(seed)
    drawn = {}
    for path, leaf in nnx.to_flat_state(weights):
        value = (path[-1] == "scale") + deviation * chance.standard_normal(leaf.shape)
        drawn[path] = leaf.replace(jax.device_put(value.astype(np.float32)))
    return Network(nnx.merge(graph, nnx.from_flat_state(drawn)))


def random_inputs(family: str, lengths: tuple[int, ...] = (30, 17, 1), width: int = 30) -> tuple[np.ndarray, ...]:
    """Ids, mask and types of rows with so many tokens."""
    chance = np.random.default_rng(1)
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int32)
    ids = chance.integers(5, 50, mask.shape).astype(np.int32)
    pad = TINY[family].get("pad_token_id", 0)
    types = mask * (np.arange(width) > width // 3) * (family == "bert")
    return np.where(mask > 0, ids, pad).astype(np.int32), mask, types.astype(np.int32)
