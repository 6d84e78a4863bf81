"""An encoder with its head: token ids to logits of classes, or to features (SPEC 9, Local)."""

from __future__ import annotations

import jax.numpy as jnp
from flax import nnx

from fcjax.kernels.encoders import bert, deberta, modernbert
from fcjax.kernels.encoders.architecture import Bert, DebertaV2, ModernBert, Roberta
from fcjax.kernels.encoders.parts import ACTIVATIONS, Dense, Norm, drop, keys, mean_pool, unit


class Head(nnx.Module):
    """Features [B, L, H] to logits [B, K], float32, as each family's `ForSequenceClassification` does it.

    All read the first token, ModernBERT also the mean of all where the folder says so.
    """

    def __init__(self, arch):
        bias = arch.head_bias if isinstance(arch, ModernBert) else True
        self.dense = Dense(arch.hidden, arch.hidden, bias=bias)
        self.norm = Norm(arch.hidden, arch.epsilon, bias=arch.norm_bias) if isinstance(arch, ModernBert) else None
        self.classes = Dense(arch.hidden, arch.classes)
        self.arch = arch

    def __call__(self, hidden, mask, key=None):
        arch, rate = self.arch, self.arch.classifier_dropout
        before, after = keys(key, 2)
        pooled = hidden[:, 0]
        activation, rate_before = "tanh", 0.0
        if isinstance(arch, Roberta):
            rate_before = rate
        elif isinstance(arch, DebertaV2):
            activation, rate_before = arch.pooler_activation, arch.pooler_dropout
        elif isinstance(arch, ModernBert):
            activation = arch.head_activation
            if arch.mean_pooling:
                pooled = mean_pool(hidden, mask).astype(hidden.dtype)
        pooled = ACTIVATIONS[activation](self.dense(drop(pooled, rate_before, before)))
        if self.norm is not None:
            pooled = self.norm(pooled)
        return self.classes(drop(pooled, rate, after)).astype(jnp.float32)


ENCODERS = {Bert: bert.Encoder, Roberta: bert.Encoder, DebertaV2: deberta.Encoder, ModernBert: modernbert.Encoder}


class Model(nnx.Module):
    """An encoder of any family, with a head or without.

    `ids`, `mask` (1: a token, 0: padding) and `types` (0: premise, 1: hypothesis, where the family has them) are [B, L]
    int32. Features are computed in `dtype`. A `key` switches dropout on, for training.
    """

    def __init__(self, arch, *, head=True, dtype="float32"):
        self.encoder = ENCODERS[type(arch)](arch)
        self.head = Head(arch) if head else None
        self.dtype = dtype
        self.arch = arch

    def __call__(self, ids, mask, types, *, key=None):
        """Logits [B, K], float32."""
        if key is None and isinstance(self.arch, Bert):  # the head reads the first token alone
            return self.head(self.encoder.first_token(ids, mask, types, dtype=self.dtype), mask)
        encoder_key, head_key = keys(key, 2)
        hidden, _ = self.encoder(ids, mask, types, dtype=self.dtype, key=encoder_key)
        return self.head(hidden, mask, head_key)

    def hidden(self, ids, mask, types):
        """Features [B, L, H], float32."""
        return self.encoder(ids, mask, types, dtype=self.dtype)[0].astype(jnp.float32)

    def every_hidden(self, ids, mask, types):
        """Features after the embeddings and after each layer, [layers + 1, B, L, H], float32."""
        return self.encoder(ids, mask, types, dtype=self.dtype, every=True)[1].astype(jnp.float32)

    def embed(self, ids, mask, types):
        """Mean of the tokens' features at length 1, [B, H], float32; zeros for a row with no token."""
        return unit(mean_pool(self.hidden(ids, mask, types), mask))
