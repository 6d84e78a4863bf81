"""Which tensors of a Hugging Face state dict hold which weights, and in which layout.

transformers keeps dense kernels as [outputs, inputs] and convolutions as [outputs, inputs, width]; ours are
[inputs, outputs] and [width, inputs, outputs]. Queries, keys and values are one dense layer here, as in ModernBERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fcjax.kernels.encoders.architecture import Architecture, DebertaV2, ModernBert, Roberta

PREFIXES = ("bert.", "roberta.", "deberta.", "model.")
"""What the names of an encoder's tensors begin with where it has a head."""


@dataclass(frozen=True)
class Weight:
    """One of our weights: its path in the module, and the tensors that hold it.

    `names`: per layer (one where the weight is not stacked) the tensors whose outputs stand side by side in it.
    """

    path: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    layers: bool = False

    def tensors(self, value: np.ndarray) -> dict[str, np.ndarray]:
        """The weight `value` as the named tensors, in transformers' layout."""
        found = {}
        for layer, names in zip(value if self.layers else [value], self.names, strict=True):
            for name, part in zip(names, np.split(layer, len(names), axis=-1), strict=True):
                found[name] = np.ascontiguousarray(self._turned(part))
        return found

    def value(self, tensors: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        """The weight of the tensors, given per layer and in the order of `names`."""
        layers = [np.concatenate([self._turned(part) for part in parts], axis=-1) for parts in tensors]
        return np.stack(layers) if self.layers else layers[0]

    def shapes(self, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor where the weight has `shape`."""
        own = tuple(shape[1:] if self.layers else shape)
        parts = len(self.names[0])
        part = (*own[:-1], own[-1] // parts)
        return {name: part[::-1] if self._is_kernel else part for names in self.names for name in names}

    @property
    def _is_kernel(self) -> bool:
        return self.path[-1] == "kernel"

    def _turned(self, array: np.ndarray) -> np.ndarray:
        """Between the two layouts of a kernel, either way; other weights are the same in both."""
        return array.T if self._is_kernel else array


LEAVES = {"kernel": "weight", "scale": "weight", "rows": "weight", "bias": "bias"}

BERT_LAYER: dict[str, tuple[str, ...]] = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "mix": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feedforward.wide": ("intermediate.dense",),
    "feedforward.narrow": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}
DEBERTA_LAYER: dict[str, tuple[str, ...]] = {
    **{ours: theirs for ours, theirs in BERT_LAYER.items() if ours != "qkv"},
    "attention.qkv": ("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
    "attention.position_key": ("attention.self.pos_key_proj",),
    "attention.position_query": ("attention.self.pos_query_proj",),
}
MODERNBERT_LAYER: dict[str, tuple[str, ...]] = {
    "attention_norm": ("attn_norm",),
    "qkv": ("attn.Wqkv",),
    "mix": ("attn.Wo",),
    "inner_norm": ("mlp_norm",),
    "wide": ("mlp.Wi",),
    "narrow": ("mlp.Wo",),
}
EMBEDDINGS = {
    "embeddings.words": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
}
DEBERTA_OUTSIDE = {
    **EMBEDDINGS,
    "embeddings.projection": "embeddings.embed_proj",
    "convolution": "encoder.conv.conv",
    "convolution.norm": "encoder.conv.LayerNorm",
    "positions": "encoder.rel_embeddings",
    "position_norm": "encoder.LayerNorm",
}
MODERNBERT_OUTSIDE = {
    "embeddings.words": "embeddings.tok_embeddings",
    "embeddings.norm": "embeddings.norm",
    "norm": "final_norm",
}


def prefix_of(arch: Architecture) -> str:
    """What transformers puts before the names of an encoder's tensors where it has a head."""
    if isinstance(arch, ModernBert):
        return "model."
    if isinstance(arch, DebertaV2):
        return "deberta."
    return "roberta." if isinstance(arch, Roberta) else "bert."


def weight_at(path: tuple[str, ...], arch: Architecture) -> Weight:
    """The tensors of the weight at `path` of a `Model`, by their names without the encoder's prefix."""
    part, *inside, leaf = path
    end = LEAVES[leaf]
    if part == "head":
        return Weight(path, ((f"{_head(inside[0], arch)}.{end}",),))
    if inside[0] not in ("layers", "first"):
        outside = EMBEDDINGS
        if isinstance(arch, DebertaV2):
            outside = DEBERTA_OUTSIDE
        elif isinstance(arch, ModernBert):
            outside = MODERNBERT_OUTSIDE
        return Weight(path, ((f"{outside['.'.join(inside)]}.{end}",),))
    table, folder = BERT_LAYER, "encoder.layer"
    if isinstance(arch, DebertaV2):
        table = DEBERTA_LAYER
    elif isinstance(arch, ModernBert):
        table, folder = MODERNBERT_LAYER, "layers"
    peeled = isinstance(arch, ModernBert) or (isinstance(arch, DebertaV2) and arch.kernel > 0)
    stack = inside[0] == "layers"
    numbers = range(int(peeled), arch.layers) if stack else range(1)
    ours = table[".".join(inside[1:])]
    return Weight(path, tuple(tuple(f"{folder}.{n}.{name}.{end}" for name in ours) for n in numbers), layers=stack)


def _head(ours: str, arch: Architecture) -> str:
    """The name of a part of the head."""
    if isinstance(arch, Roberta):
        return {"dense": "classifier.dense", "classes": "classifier.out_proj"}[ours]
    if isinstance(arch, ModernBert):
        return {"dense": "head.dense", "norm": "head.norm", "classes": "classifier"}[ours]
    return {"dense": "pooler.dense", "classes": "classifier"}[ours]
