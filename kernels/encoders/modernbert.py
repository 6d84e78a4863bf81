"""ModernBERT: rotary positions, local and global attention, gated inner layers (Warner et al. 2024; SPEC 9, Local)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from flax import nnx

from fcjax.kernels.encoders.parts import (
    ACTIVATIONS,
    MASKED,
    Dense,
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


def waves(length, size, theta):
    """Cosines and sines [2, length, size], float32, of the rotation of each position (Su et al. 2021)."""
    frequencies = 1.0 / theta ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size))
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies.astype(np.float32)
    angles = np.concatenate([angles, angles], axis=-1)
    return np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def rotated(x, wave):
    """Queries or keys [B, heads, L, d] turned by their positions, in float32; `wave` as of `waves`."""
    wide = x.astype(jnp.float32)
    half = x.shape[-1] // 2
    turned = jnp.concatenate([-wide[..., half:], wide[..., :half]], axis=-1)
    return (wide * wave[0] + turned * wave[1]).astype(x.dtype)


class Layer(nnx.Module):
    """Attention and a gated pair of dense layers, each on normalised features and added to them.

    The first layer does not normalise before its attention: the embeddings did.
    """

    def __init__(self, arch, *, first=False):
        bias = arch.attention_bias
        self.attention_norm = None if first else Norm(arch.hidden, arch.epsilon, bias=arch.norm_bias)
        self.qkv = Dense(arch.hidden, 3 * arch.hidden, bias=bias)
        self.mix = Dense(arch.hidden, arch.hidden, bias=bias)
        self.inner_norm = Norm(arch.hidden, arch.epsilon, bias=arch.norm_bias)
        self.wide = Dense(arch.hidden, 2 * arch.inner, bias=arch.inner_bias)
        self.narrow = Dense(arch.inner, arch.hidden, bias=arch.inner_bias)
        self.arch = arch

    def __call__(self, x, bias, wave, key):
        arch = self.arch
        attention_key, mix_key, inner_key = keys(key, 3)
        normal = x if self.attention_norm is None else self.attention_norm(x)
        q, k, v = split_heads(self.qkv(normal), arch.heads, 3)
        scores = scores_of(rotated(q, wave) * arch.head_size**-0.5, rotated(k, wave)) + bias
        mixed = self.mix(attend(scores, v, rate=arch.attention_dropout, key=attention_key))
        x = x + drop(mixed, arch.attention_dropout, mix_key)
        content, gate = jnp.split(self.wide(self.inner_norm(x)), 2, axis=-1)
        gated = ACTIVATIONS[arch.activation](content) * gate
        return x + self.narrow(drop(gated, arch.inner_dropout, inner_key))


class Embeddings(nnx.Module):
    """Words, normalised."""

    def __init__(self, arch):
        self.words = Table(arch.vocabulary, arch.hidden)
        self.norm = Norm(arch.hidden, arch.epsilon, bias=arch.norm_bias)
        self.rate = arch.embedding_dropout

    def __call__(self, ids, dtype, key):
        return drop(self.norm(self.words(ids, dtype)), self.rate, key)


class Encoder(nnx.Module):
    """Token ids to features; called as `bert.Encoder` is. Segment types are not read.

    With `every`, the last features of the list are those before the final norm.
    """

    def __init__(self, arch):
        self.embeddings = Embeddings(arch)
        self.first = Layer(arch, first=True)
        self.layers = stacked(lambda: Layer(arch), arch.layers - 1) if arch.layers > 1 else None
        self.norm = Norm(arch.hidden, arch.epsilon, bias=arch.norm_bias)
        self.arch = arch

    def __call__(self, ids, mask, types, *, dtype=jnp.float32, key=None, every=False):
        arch, length = self.arch, ids.shape[1]
        embedding_key, first_key, layer_key = keys(key, 3)
        embedded = self.embeddings(ids, dtype, embedding_key)
        turns = jnp.stack([waves(length, arch.head_size, theta) for theta in (arch.theta, arch.local_theta)])
        far = np.abs(np.arange(length)[:, None] - np.arange(length)) > arch.reach
        everywhere = masked(mask)

        def call(layer, x, local, key):
            bias = everywhere + jnp.where(jnp.logical_and(local, far), jnp.float32(MASKED), 0.0)
            return layer(x, bias, turns[local.astype(jnp.int32)], key)

        local = np.asarray(arch.local)
        x = call(self.first, embedded, local[0], first_key)
        seen = jnp.stack([embedded, x]) if every else None
        if self.layers is not None:
            x, all_ = through(self.layers, x, call, layer_key, each=local[1:], every=every)
            seen = jnp.concatenate([seen, all_]) if every else None
        return self.norm(x), seen
