"""BERT, MiniLM, RoBERTa and XLM-RoBERTa (SPEC 9, Local)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from fcjax.kernels.encoders.architecture import Roberta
from fcjax.kernels.encoders.parts import (
    Dense,
    Feedforward,
    Norm,
    Table,
    attend,
    drop,
    keys,
    masked,
    scores_of,
    split_heads,
    stacked,
    through,
)


class Embeddings(nnx.Module):
    """Words, positions and segment types, summed and normalised."""

    def __init__(self, arch):
        self.words = Table(arch.vocabulary, arch.hidden)
        self.positions = Table(arch.positions, arch.hidden)
        self.types = Table(arch.types, arch.hidden)
        self.norm = Norm(arch.hidden, arch.epsilon)
        self.arch = arch

    def __call__(self, ids, types, dtype, key):
        if isinstance(self.arch, Roberta):  # as fairseq counts: padding has the position `pad`, tokens those after it
            tokens = (ids != self.arch.pad).astype(jnp.int32)
            places = jnp.cumsum(tokens, axis=1) * tokens + self.arch.pad
        else:
            places = jnp.arange(ids.shape[1])
        x = self.words(ids, dtype) + self.types(types, dtype) + self.positions(places, dtype)
        return drop(self.norm(x), self.arch.dropout, key)


class Layer(nnx.Module):
    """Attention and two dense layers, each followed by a residual sum and a norm."""

    def __init__(self, arch):
        self.qkv = Dense(arch.hidden, 3 * arch.hidden)
        self.mix = Dense(arch.hidden, arch.hidden)
        self.attention_norm = Norm(arch.hidden, arch.epsilon)
        self.feedforward = Feedforward(arch)
        self.output_norm = Norm(arch.hidden, arch.epsilon)
        self.arch = arch

    def __call__(self, x, bias, key):
        q, k, v = split_heads(self.qkv(x), self.arch.heads, 3)
        return self._rest(x, q, k, v, bias, key)

    def first_token(self, x, bias):
        """What the layer makes of the first token alone, [B, 1, H]: a head needs no more of the last layer."""
        heads, hidden = self.arch.heads, self.arch.hidden
        kernel, shift = self.qkv.kernel[...].astype(x.dtype), self.qkv.bias[...].astype(x.dtype)
        (q,) = split_heads(x[:, :1] @ kernel[:, :hidden] + shift[:hidden], heads, 1)
        k, v = split_heads(x @ kernel[:, hidden:] + shift[hidden:], heads, 2)
        return self._rest(x[:, :1], q, k, v, bias, None)

    def _rest(self, x, q, k, v, bias, key):
        arch = self.arch
        attention_key, mix_key, output_key = keys(key, 3)
        scores = scores_of(q * arch.head_size**-0.5, k) + bias
        mixed = self.mix(attend(scores, v, rate=arch.attention_dropout, key=attention_key))
        x = self.attention_norm(x + drop(mixed, arch.dropout, mix_key))
        return self.output_norm(x + drop(self.feedforward(x), arch.dropout, output_key))


class Encoder(nnx.Module):
    """Token ids to features.

    Call with `ids`, `mask`, `types` [B, L] int32; returns the features [B, L, H] in `dtype` and, with `every`, those
    after the embeddings and each layer, [layers + 1, B, L, H]. A `key` switches dropout on.
    """

    def __init__(self, arch):
        self.embeddings = Embeddings(arch)
        self.layers = stacked(lambda: Layer(arch), arch.layers)
        self.arch = arch

    def __call__(self, ids, mask, types, *, dtype=jnp.float32, key=None, every=False):
        embedding_key, layer_key = keys(key, 2)
        x = self.embeddings(ids, types, dtype, embedding_key)
        bias = masked(mask)
        last, all_ = through(self.layers, x, lambda layer, x, _, key: layer(x, bias, key), layer_key, every=every)
        return last, (jnp.concatenate([x[None], all_]) if every else None)

    def first_token(self, ids, mask, types, *, dtype=jnp.float32):
        """The last features of the first token, [B, 1, H], without dropout."""
        x, bias = self.embeddings(ids, types, dtype, None), masked(mask)
        graph, weights = nnx.split(self.layers)

        def layer(place):
            return nnx.merge(graph, jax.tree.map(lambda array: array[place], weights))

        number = self.arch.layers - 1
        if number:  # over places, because slices of the weights would be copies
            x, _ = jax.lax.scan(lambda x, place: (layer(place)(x, bias, None), None), x, jnp.arange(number))
        return layer(number).first_token(x, bias)
