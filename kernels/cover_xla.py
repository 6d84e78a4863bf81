"""The sum over all assignments of a vertex cover (see `cover`) as one jitted program, for any device of XLA.

The bits of an assignment are cut in two halves. For each state of a variable of the rest, a table over the low half and
one over the high half hold its factors' log weights, and its values for a tile of assignments are sums of one row and
one column. All is done in float64 logarithms, which no weights can leave. The first pass finds the largest weight, the
second one sums weights relative to it. Padding is inert: a spare variable of the cover has the weights 1/2, and one of
the rest too, and neither has factors.
"""

from __future__ import annotations

from importlib import import_module
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fcjax.kernels.cover import Terms

SIZES = (8, 12, 16, 18, 20, 22, 24, 26, 28, 30)  # of covers, that programs are compiled for
STEP = 16  # programs are compiled for multiples of this many variables of the rest and factors within the cover
TILE = 20  # bits of the assignments that are in work together
_one_at_a_time = Lock()  # two threads would trace one size class twice


class Swept(NamedTuple):
    """Sums over all assignments relative to the largest weight; `X` and `H` are entries of the halves."""

    log_top: Float[Array, ""]  # of the largest weight
    total: Float[Array, ""]
    by_low: Float[Array, " X"]
    by_high: Float[Array, " H"]
    across: Float[Array, "high low"]  # of both bits
    both_low: Float[Array, "N X"]  # with the variable of the rest true
    both_high: Float[Array, "H N"]


def _bits(first: Any, count: int, bits: int) -> Int[Array, "count bits"]:
    return (first + jnp.arange(count)[:, None]) >> jnp.arange(bits) & 1


def _half(link: Float[Array, "N D 2 2"]) -> Float[Array, "N 2 X"]:
    """The sum of the entries that each assignment picks."""
    out = jnp.zeros((*link.shape[:1], 2, 1), link.dtype)
    for d in range(link.shape[1]):  # its bit becomes the highest one
        out = jnp.concatenate([out + link[:, d, :, :1], out + link[:, d, :, 1:]], axis=-1)
    return out


@jax.jit
def sweep(
    unary: Float[Array, "N 2"],
    link: Float[Array, "N D 2 2"],
    first: Int[Array, " T"],
    second: Int[Array, " T"],
    table: Float[Array, "T 4"],
) -> Swept:
    """Sum over all assignments; the arguments are those of `cover.Terms`, `D` even, in float64."""
    size = link.shape[1]
    low = high = size // 2
    rows = 1 << max(0, min(high, TILE - low))
    low_log, high_log = _half(link[:, :low]) + unary[:, :, None], _half(link[:, low:])
    low_bits = _bits(0, 1 << low, low)

    def states(bits: Array, term: Array, offset: int) -> Array:
        """The state of a factor's variable, 0 where the variable is in the other half."""
        at = term - offset
        inside = (at >= 0) & (at < bits.shape[1])
        return jnp.where(inside, jnp.take(bits, jnp.clip(at, 0, bits.shape[1] - 1), axis=1), 0)

    def weigh(start: Array) -> Array:
        """The log weights of a tile."""
        high_bits = _bits(start, rows, high)

        def within(t: Array, weight: Array) -> Array:
            one = states(high_bits, first[t], low)[:, None] + states(low_bits, first[t], 0)[None, :]
            two = states(high_bits, second[t], low)[:, None] + states(low_bits, second[t], 0)[None, :]
            return weight + table[t][2 * one + two]

        def across(i: Array, weight: Array) -> Array:
            pair = [_outer(i, start, z) for z in range(2)]
            return weight + jnp.logaddexp(pair[0], pair[1])

        weight = jax.lax.fori_loop(0, len(first), within, jnp.zeros((rows, 1 << low), unary.dtype))
        return jax.lax.fori_loop(0, len(unary), across, weight)

    def _outer(i: Array, start: Array, z: int) -> Array:
        return jax.lax.dynamic_slice_in_dim(high_log[i, z], start, rows)[:, None] + low_log[i, z][None, :]

    starts = jnp.arange(0, 1 << high, rows)
    top = jax.lax.map(lambda start: jnp.max(weigh(start)), starts).max()

    def add(sums: tuple[Array, ...], start: Array) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
        weight = jnp.exp(weigh(start) - jnp.where(top > -jnp.inf, top, 0.0))

        def share(i: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
            false, true = _outer(i, start, 0), _outer(i, start, 1)
            part = jnp.where(weight > 0, weight * jnp.exp(true - jnp.logaddexp(false, true)), 0.0)
            return found[0].at[i].add(part.sum(axis=0)), found[1].at[:, i].set(part.sum(axis=1))

        by_low, across, both_low = sums
        both_low, both_high = jax.lax.fori_loop(
            0, len(unary), share, (both_low, jnp.zeros((rows, len(unary)), unary.dtype))
        )
        by_bit = jnp.matmul(weight, low_bits.astype(weight.dtype), precision=jax.lax.Precision.HIGHEST)
        high_bits = _bits(start, rows, high).astype(weight.dtype)
        across = across + jnp.matmul(high_bits.T, by_bit, precision=jax.lax.Precision.HIGHEST)
        return (by_low + weight.sum(axis=0), across, both_low), (weight.sum(axis=1), both_high)

    nothing = (jnp.zeros(1 << low), jnp.zeros((high, low)), jnp.zeros((len(unary), 1 << low)))
    (by_low, across, both_low), (by_high, both_high) = jax.lax.scan(
        add, jax.tree.map(lambda x: x.astype(unary.dtype), nothing), starts
    )
    return Swept(
        top, by_high.sum(), by_low, by_high.reshape(-1), across, both_low, both_high.reshape(1 << high, len(unary))
    )


def float64() -> Any:
    """The context in which JAX has float64; it was experimental before JAX 0.8."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return import_module("jax.experimental").enable_x64()


def pad(terms: Terms) -> tuple[np.ndarray, ...]:
    """The arguments of `sweep` for one component, padded to its size class."""
    count, size, factors = len(terms.rest), len(terms.cut), len(terms.first)
    wide = next(s for s in SIZES if s >= size)
    rows, terms_in = -(-count // STEP) * STEP, -(-(factors + wide - size) // STEP) * STEP
    half = np.log(0.5)
    unary, link = np.full((rows, 2), half), np.zeros((rows, wide, 2, 2))
    unary[:count], link[:count, :size] = terms.unary, terms.link
    first, second, table = np.zeros(terms_in, np.int32), np.zeros(terms_in, np.int32), np.zeros((terms_in, 4))
    first[:factors], second[:factors], table[:factors] = terms.first, terms.second, terms.table
    spare = slice(factors, factors + wide - size)
    first[spare] = second[spare] = np.arange(size, wide)
    table[spare] = half
    return unary, link, first, second, table


def solve(terms: Terms) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sum over all assignments on JAX's default device, in float64.

    Returns log Z, and P(true) of the cover `[D]` and the rest `[N]`, P(true, true) within the cover `[D, D]` and of the
    rest and the cover `[N, D]`; nothing of these means anything where log Z is -inf.
    """
    with float64(), _one_at_a_time:
        swept = Swept(*map(np.asarray, sweep(*pad(terms))))  # type: ignore[arg-type]
    count, size = len(terms.rest), len(terms.cut)
    low, high = int(swept.by_low.size).bit_length() - 1, int(swept.by_high.size).bit_length() - 1
    low_bits = np.arange(1 << low)[:, None] >> np.arange(low) & 1
    high_bits = np.arange(1 << high)[:, None] >> np.arange(high) & 1
    total = swept.total if swept.total > 0 else 1.0
    cut = np.zeros((low + high, low + high))
    cut[:low, :low] = low_bits.T @ (low_bits * swept.by_low[:, None])
    cut[low:, low:] = high_bits.T @ (high_bits * swept.by_high[:, None])
    cut[:low, low:] = swept.across.T
    cut = (cut / total)[:size, :size]
    both = np.concatenate([swept.both_low @ low_bits, swept.both_high.T @ high_bits], axis=1)[:count, :size] / total
    with np.errstate(divide="ignore"):
        log_z = float(swept.log_top + np.log(swept.total))
    rest = np.asarray(swept.both_low).sum(axis=1)[:count] / total
    return log_z, np.diag(cut).copy(), rest, cut, both
