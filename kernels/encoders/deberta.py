"""DeBERTa-v2 and v3: attention that reads contents and relative positions apart (He et al. 2021; SPEC 9, Local)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from fcjax.kernels.encoders.parts import (
    ACTIVATIONS,
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


def bucketed(distance, buckets, furthest):
    """Signed buckets [N] int64 of signed distances [N] int: exact up to half of `buckets`, logarithmic beyond.

    In float32, as the models were trained with it: the bounds of the buckets depend on the rounding.
    """
    half = buckets // 2
    size = np.where(np.abs(distance) < half, half - 1, np.abs(distance)).astype(np.float32)
    scale = np.log(np.float32((furthest - 1) / half))
    steps = np.ceil(np.log(size / np.float32(half)) / scale * np.float32(half - 1)) + half
    return np.where(size <= half, distance, steps * np.sign(distance)).astype(np.int64)


def rows_at(distance, arch):
    """The row of the table of relative positions for each signed distance (query minus key)."""
    bucket = distance
    if arch.buckets > 0:
        bucket = bucketed(distance, arch.buckets, arch.furthest)
    return np.clip(bucket + arch.span, 0, 2 * arch.span - 1)


def slid(scores):
    """Scores by distance as scores by key: [..., L, 2L] to [..., L, L], where [i, j] is the old [i, j - i + L - 1].

    Row i starts L - 1 - i entries late. Read as rows of 2L - 1 entries, the same numbers stand in line, so there is no
    gather.
    """
    length = scores.shape[-2]
    flat = scores.reshape(*scores.shape[:-2], 2 * length * length)
    flat = flat[..., length - 1 : length - 1 + length * (2 * length - 1)]
    return flat.reshape(*scores.shape[:-2], length, 2 * length - 1)[..., :length]


class Embeddings(nnx.Module):
    """Words, and where the model has them positions and segment types; padding is zeros."""

    def __init__(self, arch):
        self.words = Table(arch.vocabulary, arch.embedding)
        self.positions = Table(arch.positions, arch.embedding) if arch.absolute_positions else None
        self.types = Table(arch.types, arch.embedding) if arch.types else None
        self.projection = Dense(arch.embedding, arch.hidden, bias=False) if arch.embedding != arch.hidden else None
        self.norm = Norm(arch.hidden, arch.epsilon)
        self.rate = arch.dropout

    def __call__(self, ids, mask, types, dtype, key):
        x = self.words(ids, dtype)
        if self.positions is not None:
            x = x + self.positions(jnp.arange(ids.shape[1]), dtype)
        if self.types is not None:
            x = x + self.types(types, dtype)
        if self.projection is not None:
            x = self.projection(x)
        return drop(self.norm(x) * mask.astype(dtype)[:, :, None], self.rate, key)


class Attention(nnx.Module):
    """Scores of content to content, content to position and position to content, summed.

    Positions are projected once for all rows of the batch, and only those that an input of this length can have.
    """

    def __init__(self, arch):
        self.qkv = Dense(arch.hidden, 3 * arch.hidden)
        apart = arch.relative and not arch.share_projections
        self.position_key = Dense(arch.hidden, arch.hidden) if apart and arch.content_to_position else None
        self.position_query = Dense(arch.hidden, arch.hidden) if apart and arch.position_to_content else None
        self.arch = arch

    def __call__(self, x, bias, table, key):
        arch, length = self.arch, x.shape[1]
        position_key, attention_key = keys(key, 2)
        scale = (arch.head_size * (1 + arch.content_to_position + arch.position_to_content)) ** -0.5
        q, k, v = split_heads(self.qkv(x), arch.heads, 3)
        q = q * scale
        scores = scores_of(q, k) + bias
        if arch.relative:
            distance = np.arange(2 * length) - (length - 1)
            low, high = rows_at(np.array([1 - length, length]), arch)
            table = drop(table, arch.dropout, position_key)[low : high + 1].astype(x.dtype)
            if arch.content_to_position:
                rows = self._positions(table, self.position_key, 1)[:, rows_at(-distance, arch) - low]
                scores = scores + slid(_against(q, rows))
            if arch.position_to_content:
                rows = self._positions(table, self.position_query, 0)[:, rows_at(distance, arch) - low]
                scores = scores + jnp.swapaxes(slid(_against(k, rows * scale)), 2, 3)
        return attend(scores, v, rate=arch.attention_dropout, key=attention_key)

    def _positions(self, table, projection, part):
        """Projected positions [heads, rows, d]; `part` of the contents' projection where the two are shared."""
        if projection is None:
            wanted = slice(part * self.arch.hidden, (part + 1) * self.arch.hidden)
            projected = table @ self.qkv.kernel[...][:, wanted].astype(table.dtype)
            projected = projected + self.qkv.bias[...][wanted].astype(table.dtype)
        else:
            projected = projection(table)
        return split_heads(projected[None], self.arch.heads, 1)[0][0]


def _against(contents, positions):
    """Dot products [B, heads, L, N], float32, of contents [B, heads, L, d] and positions [heads, N, d]."""
    return jnp.einsum("bhld,hnd->bhln", contents, positions, preferred_element_type=jnp.float32)


class Layer(nnx.Module):
    """Disentangled attention and two dense layers, each followed by a residual sum and a norm."""

    def __init__(self, arch):
        self.attention = Attention(arch)
        self.mix = Dense(arch.hidden, arch.hidden)
        self.attention_norm = Norm(arch.hidden, arch.epsilon)
        self.feedforward = Feedforward(arch)
        self.output_norm = Norm(arch.hidden, arch.epsilon)
        self.rate = arch.dropout

    def __call__(self, x, bias, table, key):
        attention_key, mix_key, output_key = keys(key, 3)
        mixed = self.mix(self.attention(x, bias, table, attention_key))
        x = self.attention_norm(x + drop(mixed, self.rate, mix_key))
        return self.output_norm(x + drop(self.feedforward(x), self.rate, output_key))


class Convolution(nnx.Module):
    """A convolution over the embeddings, added to the features after the first layer (v2 xlarge and xxlarge)."""

    def __init__(self, arch):
        self.kernel = nnx.Param(jnp.zeros((arch.kernel, arch.hidden // arch.groups, arch.hidden)))
        self.bias = nnx.Param(jnp.zeros(arch.hidden))
        self.norm = Norm(arch.hidden, arch.epsilon)
        self.arch = arch

    def __call__(self, embedded, x, mask, key):
        tokens = mask.astype(x.dtype)[:, :, None]
        side = (self.arch.kernel - 1) // 2
        y = jax.lax.conv_general_dilated(
            embedded,
            self.kernel[...].astype(x.dtype),
            window_strides=(1,),
            padding=[(side, side)],
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=self.arch.groups,
        )
        y = (y + self.bias[...].astype(x.dtype)) * tokens
        y = ACTIVATIONS[self.arch.kernel_activation](drop(y, self.arch.dropout, key))
        return self.norm(x + y) * tokens


class Encoder(nnx.Module):
    """Token ids to features; called as `bert.Encoder` is."""

    def __init__(self, arch):
        self.embeddings = Embeddings(arch)
        self.first = Layer(arch) if arch.kernel else None  # the convolution follows it
        self.convolution = Convolution(arch) if arch.kernel else None
        rest = arch.layers - bool(arch.kernel)
        self.layers = stacked(lambda: Layer(arch), rest) if rest else None
        self.positions = Table(2 * arch.span, arch.hidden) if arch.relative else None
        self.position_norm = Norm(arch.hidden, arch.epsilon) if arch.norm_positions else None

    def __call__(self, ids, mask, types, *, dtype=jnp.float32, key=None, every=False):
        embedding_key, first_key, kernel_key, layer_key = keys(key, 4)
        x = self.embeddings(ids, mask, types, dtype, embedding_key)
        bias, table, seen = masked(mask), None, [x]
        if self.positions is not None:
            table = self.positions.rows[...]
            if self.position_norm is not None:
                table = self.position_norm(table)
        if self.first is not None:
            x = self.convolution(x, self.first(x, bias, table, first_key), mask, kernel_key)
            seen.append(x)
        seen = jnp.stack(seen) if every else None
        if self.layers is not None:
            x, all_ = through(
                self.layers, x, lambda layer, x, _, key: layer(x, bias, table, key), layer_key, every=every
            )
            seen = jnp.concatenate([seen, all_]) if every else None
        return x, seen
