"""The parts of encoders: dense layers, norms, attention, dropout, stacks of equal layers, and pooling.

Layer norms, softmax and means are computed in float32 whatever the dtype of the features. Dropout is on where a key is
given, so the modules hold weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import jax
import jax.numpy as jnp
from flax import nnx

MASKED = -1e30
"""The score of a masked token. Finite, so that a row with no token at all gets equal weights, and not NaN."""


def gelu(x):
    """The exact GELU, in float32. By `erf`, as torch has it: `jax.nn.gelu` takes `erfc`, which costs more on CPUs."""
    wide = x.astype(jnp.float32)
    return (0.5 * wide * (1.0 + jax.lax.erf(wide * 0.5**0.5))).astype(x.dtype)


ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = MappingProxyType(
    {
        "gelu": gelu,
        "gelu_new": partial(jax.nn.gelu, approximate=True),
        "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
        "gelu_fast": partial(jax.nn.gelu, approximate=True),
        "relu": jax.nn.relu,
        "silu": jax.nn.silu,
        "swish": jax.nn.silu,
        "tanh": jnp.tanh,
    }
)
"""The activations by the names that a config.json has."""


class Dense(nnx.Module):
    """A dense layer: features [..., inputs] to [..., outputs], in the dtype of the features."""

    def __init__(self, inputs, outputs, *, bias=True):
        self.kernel = nnx.Param(jnp.zeros((inputs, outputs)))
        self.bias = nnx.Param(jnp.zeros(outputs)) if bias else None

    def __call__(self, x):
        y = x @ self.kernel[...].astype(x.dtype)
        return y if self.bias is None else y + self.bias[...].astype(x.dtype)


class Norm(nnx.Module):
    """Layer normalisation of features [..., size], computed in float32."""

    def __init__(self, size, epsilon, *, bias=True):
        self.scale = nnx.Param(jnp.ones(size))
        self.bias = nnx.Param(jnp.zeros(size)) if bias else None
        self.epsilon = epsilon

    def __call__(self, x):
        wide = x.astype(jnp.float32)
        centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
        variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
        y = centred * jax.lax.rsqrt(variance + self.epsilon) * self.scale[...].astype(jnp.float32)
        if self.bias is not None:
            y = y + self.bias[...].astype(jnp.float32)
        return y.astype(x.dtype)


class Table(nnx.Module):
    """Embeddings [rows, size] by index. An index that is too large reads the last row."""

    def __init__(self, rows, size):
        self.rows = nnx.Param(jnp.zeros((rows, size)))

    def __call__(self, index, dtype):
        return self.rows[...][index].astype(dtype)


class Feedforward(nnx.Module):
    """The two dense layers of a block."""

    def __init__(self, arch):
        self.wide = Dense(arch.hidden, arch.inner)
        self.narrow = Dense(arch.inner, arch.hidden)
        self.activation = arch.activation

    def __call__(self, x):
        return self.narrow(ACTIVATIONS[self.activation](self.wide(x)))


def drop(x, rate, key):
    """Dropout of features [...] at `rate`; `x` itself where `key` is None or the rate is 0."""
    if key is None or rate == 0:
        return x
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / (1 - rate), 0).astype(x.dtype)


def keys(key, number):
    """`number` keys from one, or as many None."""
    return (None,) * number if key is None else tuple(jax.random.split(key, number))


def split_heads(x, heads, parts):
    """Features [B, L, parts * size] as `parts` arrays [B, heads, L, size / heads]."""
    whole = x.reshape(*x.shape[:2], parts, heads, -1)
    return tuple(jnp.swapaxes(whole[:, :, part], 1, 2) for part in range(parts))


def scores_of(queries, keys_):
    """Dot products [B, heads, L, L], float32, of queries and keys [B, heads, L, d]."""
    return jnp.einsum("bhld,bhmd->bhlm", queries, keys_, preferred_element_type=jnp.float32)


def attend(scores, values, *, rate=0.0, key=None):
    """The values' means under attention.

    `scores`: [B, heads, L, L] float32, with masked tokens at `MASKED` or below. `values`: [B, heads, L, d]. Returns
    [B, L, heads * d] in the dtype of `values`. Sums are divided after the product with the values, where there are
    fewer numbers to divide.
    """
    weights = jnp.exp(scores - jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
    total = jnp.sum(weights, axis=-1, keepdims=True)
    weights = drop(weights, rate, key).astype(values.dtype)
    sums = jnp.einsum("bhlm,bhmd->bhld", weights, values, preferred_element_type=jnp.float32)
    means = jnp.swapaxes((sums / total).astype(values.dtype), 1, 2)
    return means.reshape(*means.shape[:2], -1)


def masked(mask):
    """What is added to the scores: 0 at tokens, `MASKED` at padding. [B, L] to [B, 1, 1, L], float32."""
    return jnp.where(mask.astype(bool), 0.0, MASKED).astype(jnp.float32)[:, None, None, :]


def stacked(make, number):
    """`number` layers of equal shape as one module, whose weights have a leading axis of that size."""
    graph, weights = nnx.split(make())
    return nnx.merge(graph, jax.tree.map(lambda array: jnp.broadcast_to(array, (number, *array.shape)), weights))


def through(layers, x, call, key, *, each=None, every=False):
    """Features after all layers of a `stacked` module, which is compiled once for all of them.

    `call(layer, x, own, key)` gives the features after one layer; `own` is that layer's part of `each`, arrays
    [layers, ...]. With `every`, also the features after each layer, [layers, B, L, H]; else None.
    """
    graph, weights = nnx.split(layers)
    number = jax.tree.leaves(weights)[0].shape[0]

    def body(x, part):
        layer, own, own_key = part
        x = call(nnx.merge(graph, layer), x, own, own_key)
        return x, (x if every else None)

    own_keys = None if key is None else jax.random.split(key, number)
    return jax.lax.scan(body, x, (weights, each, own_keys))


def mean_pool(hidden, mask):
    """Means over the tokens of every row: [B, L, H] and [B, L] to [B, H], float32. Zeros for a row with no token."""
    weights = mask.astype(jnp.float32)[:, :, None]
    total = jnp.sum(hidden.astype(jnp.float32) * weights, axis=1)
    return total / jnp.maximum(jnp.sum(weights, axis=1), 1.0)


def unit(vectors):
    """Vectors [B, H] at length 1; a vector of zeros stays one."""
    length = jnp.sqrt(jnp.sum(vectors * vectors, axis=-1, keepdims=True))
    return vectors / jnp.maximum(length, 1e-12)
