"""The sum over all assignments of a vertex cover (see `cover`) as compiled loops.

The bits of an assignment are cut into low, middle and high ones. f_i is a product over bits, so that for each state of
i a table of the low bits and two numbers, from tables of the middle and of the high bits, make its values in a block of
2**LOW assignments. A block's weights are products of those values, four at a time; after as many as could span `RANGE`
nats the exponents are taken out, state by state, so that nothing is ever lost to underflow. A variable of the rest
whose own products could span more is multiplied in by logarithms.

The first pass finds the mass of every block; the second one takes the posteriors from those blocks that matter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcjax.kernels import cover
from fcjax.kernels.compilation import kernel
from fcjax.kernels.cover import LOW, RANGE
from fcjax.kernels.logspace import log_add

LN2 = math.log(2.0)
NEGLIGIBLE = 1e-13  # of Z: the blocks that the second pass leaves out together have less
LEAST = 1e-300  # in place of a divisor of 0, whose dividend is 0 too


class Halves(NamedTuple):
    """The tables of one component; `X`, `Y` and `H` entries over the low, middle and high bits of `D`."""

    bits: np.ndarray  # [3] int64: how many low, middle and high bits
    linear: int  # variables of the rest that are multiplied in without logarithms: the first ones
    stop: np.ndarray  # [N] bool: whether the exponents are taken out after a variable
    low: np.ndarray  # [N, 2, X] float64, by state of the rest's variable
    middle: np.ndarray  # [Y, N, 2]
    high: np.ndarray  # [H, N, 2]
    log_low: np.ndarray  # [N, 2, X]: the logarithms, unaries included
    log_middle: np.ndarray  # [Y, N, 2]
    log_high: np.ndarray  # [H, N, 2]
    base: np.ndarray  # [X]: log weight of the factors among the low bits
    split: bool  # whether there are factors between low bits and others


class Sums(NamedTuple):
    """What the second pass adds up, over Z."""

    by_low: np.ndarray  # [X]
    cut: np.ndarray  # [D, D]: P(true, true) by bits, the lower one first, but among low bits
    rest: np.ndarray  # [N]: P(true)
    both: np.ndarray  # [N, D]: P(true, true), but for low bits
    both_low: np.ndarray  # [N, X]: P(true, low bits) of those that are wanted


@kernel
def _table(link, first, out):
    """out[x] = first + the sum over bits d of link[d, bit d of x]."""
    out[0] = first
    for d in range(len(link)):
        size = 1 << d
        for x in range(size):
            out[size + x] = out[x] + link[d, 1]
        for x in range(size):
            out[x] += link[d, 0]


@kernel
def order_rest(terms):
    """`terms` with those variables of the rest first that need no logarithms, and how many they are."""
    logged = cover.spans(terms) >= RANGE
    order = np.argsort(logged.astype(np.int8), kind="mergesort")
    ordered = cover.Terms(
        terms.cut, terms.rest[order], terms.unary[order], terms.link[order], terms.wanted[order], terms.first,
        terms.second, terms.table,
    )  # fmt: skip
    return ordered, len(order) - logged.sum()


@kernel
def prepare(terms, linear):
    """The tables of `terms`, as `order_rest` left them."""
    count, size = len(terms.rest), len(terms.cut)
    bits = np.empty(3, np.int64)
    bits[0] = min(LOW, size)
    bits[1] = (size - bits[0]) // 2
    bits[2] = size - bits[0] - bits[1]
    ends = np.zeros(4, np.int64)
    ends[1:] = np.cumsum(bits)
    log_low = np.empty((count, 2, 1 << bits[0]))
    log_middle, log_high = np.empty((1 << bits[1], count, 2)), np.empty((1 << bits[2], count, 2))
    line = np.empty(1 << bits.max())
    for i in range(count):
        for z in range(2):
            _table(terms.link[i, ends[0] : ends[1], z], terms.unary[i, z], log_low[i, z])
            _table(terms.link[i, ends[1] : ends[2], z], 0.0, line)
            log_middle[:, i, z] = line[: 1 << bits[1]]
            _table(terms.link[i, ends[2] : ends[3], z], 0.0, line)
            log_high[:, i, z] = line[: 1 << bits[2]]
    stop, spans, span = np.zeros(count, np.bool_), cover.spans(terms), 0.0
    for i in range(linear):
        span += spans[i] + LN2
        stop[i] = i + 1 == linear or span + spans[i + 1] + LN2 > RANGE
        if stop[i]:
            span = 0.0
    base = np.zeros(1 << bits[0])
    for t in range(len(terms.first)):
        a, b = terms.first[t], terms.second[t]
        if a < bits[0] and b < bits[0]:
            for x in range(len(base)):
                base[x] += terms.table[t, 2 * ((x >> a) & 1) + ((x >> b) & 1)]
    return Halves(
        bits, linear, stop, np.exp(log_low), np.exp(log_middle), np.exp(log_high), log_low, log_middle, log_high,
        base, cover.is_split(terms),
    )  # fmt: skip


@kernel
def entries(terms):
    """Table entries that `prepare` and the passes take."""
    size, count = len(terms.cut), len(terms.rest)
    low = min(LOW, size)
    middle = (size - low) // 2
    return 2.0 ** (size - low) + 2.0 * count * (2.5 * 2.0**low + 2.0 * 2.0**middle + 2.0 * 2.0 ** (size - low - middle))


@kernel
def _is_four(halves, i):
    """Whether variable i of the rest and the next three are multiplied together."""
    return i + 4 <= halves.linear and not (halves.stop[i] or halves.stop[i + 1] or halves.stop[i + 2])


@kernel(fastmath=True)
def _times_four(weight, low, i, number):
    """Multiply the values of four variables of the rest in."""
    a0, a1, b0, b1 = low[i, 0], low[i, 1], low[i + 1, 0], low[i + 1, 1]
    c0, c1, d0, d1 = low[i + 2, 0], low[i + 2, 1], low[i + 3, 0], low[i + 3, 1]
    p0, p1, q0, q1 = number[i, 0], number[i, 1], number[i + 1, 0], number[i + 1, 1]
    r0, r1, s0, s1 = number[i + 2, 0], number[i + 2, 1], number[i + 3, 0], number[i + 3, 1]
    for x in range(len(weight)):
        left = (a0[x] * p0 + a1[x] * p1) * (b0[x] * q0 + b1[x] * q1)
        right = (c0[x] * r0 + c1[x] * r1) * (d0[x] * s0 + d1[x] * s1)
        weight[x] *= left * right


@kernel(fastmath=True)
def _times(weight, low, i, number):
    a0, a1, p0, p1 = low[i, 0], low[i, 1], number[i, 0], number[i, 1]
    for x in range(len(weight)):
        weight[x] *= a0[x] * p0 + a1[x] * p1


@kernel
def _take_exponents(weight, exponent):
    """Bring each weight to [1, 2), by its bits; a weight of 0 stays."""
    pattern = weight.view(np.int64)
    for x in range(len(weight)):
        power = (pattern[x] >> 52) - 1023 if pattern[x] != 0 else 0
        exponent[x] += power
        pattern[x] -= power << 52


@kernel
def _split_log(value):
    """The number of [1, 2) and the power of 2 whose product is exp(value)."""
    if value == -math.inf:
        return 0.0, 0
    power = math.floor(value / LN2)
    return math.exp(value - power * LN2), np.int64(power)


@kernel
def _begin(halves, terms, block, log_base, weight, exponent):
    """A block's weights by the factors within the cover; returns the log weight of those among its own bits."""
    low, rest = halves.bits[0], 0.0
    log_base[:] = halves.base
    turned = np.zeros((low, 2))
    for t in range(len(terms.first)):
        a, b, table = terms.first[t] - low, terms.second[t] - low, terms.table[t]
        if a >= 0 and b >= 0:
            rest += table[2 * ((block >> a) & 1) + ((block >> b) & 1)]
        elif a >= 0 or b >= 0:
            for s in range(2):
                if a >= 0:
                    turned[b + low, s] += table[2 * ((block >> a) & 1) + s]
                else:
                    turned[a + low, s] += table[2 * s + ((block >> b) & 1)]
    if halves.split:
        for d in range(low):
            for x in range(len(log_base)):
                log_base[x] += turned[d, (x >> d) & 1]
    for x in range(len(weight)):
        weight[x], exponent[x] = _split_log(log_base[x])
    return rest


@kernel
def _weigh(halves, terms, block, number, log_number, plain, plain_exponent, log_base, weight, exponent):
    """The weights of a block, scaled to a sum of 1; returns the logarithm of what they summed to."""
    low, middle = halves.bits[0], halves.bits[1]
    at, above = block & ((1 << middle) - 1), block >> middle
    linear, count = halves.linear, len(terms.rest)
    if halves.split:
        log_scale = _begin(halves, terms, block, log_base, weight, exponent)
    else:
        weight[:], exponent[:] = plain, plain_exponent
        log_scale = 0.0
        for t in range(len(terms.first)):
            a, b = terms.first[t] - low, terms.second[t] - low
            if a >= 0:
                log_scale += terms.table[t, 2 * ((block >> a) & 1) + ((block >> b) & 1)]
    if log_scale == -math.inf:
        return -math.inf
    for i in range(linear):
        number[i, 0] = halves.middle[at, i, 0] * halves.high[above, i, 0]
        number[i, 1] = halves.middle[at, i, 1] * halves.high[above, i, 1]
    i = 0
    while i < linear:
        if _is_four(halves, i):
            _times_four(weight, halves.low, i, number)
            i += 4
        else:
            _times(weight, halves.low, i, number)
            i += 1
        if halves.stop[i - 1]:
            _take_exponents(weight, exponent)
    for i in range(linear, count):
        for z in range(2):
            log_number[i, z] = halves.log_middle[at, i, z] + halves.log_high[above, i, z]
        for x in range(len(weight)):
            value = log_add(halves.log_low[i, 0, x] + log_number[i, 0], halves.log_low[i, 1, x] + log_number[i, 1])
            fraction, power = _split_log(value)
            weight[x] *= 0.5 * fraction
            exponent[x] += power + 1
        _take_exponents(weight, exponent)
    largest = np.int64(-(2**62))
    for x in range(len(weight)):
        if weight[x] > 0.0:
            largest = max(largest, exponent[x])
    if largest == -(2**62):
        return -math.inf
    scale = log_base.view(np.int64)  # no longer needed: powers of 2, by their bits
    for x in range(len(weight)):
        scale[x] = max(0, 1023 + exponent[x] - largest) << 52
    total = _multiply(weight, log_base)
    weight /= total
    return log_scale + largest * LN2 + math.log(total)


@kernel(fastmath=True)
def _multiply(weight, scale):
    total = 0.0
    for x in range(len(weight)):
        weight[x] *= scale[x]
        total += weight[x]
    return total


@kernel
def _workspace(halves, terms):
    size, count = 1 << halves.bits[0], len(terms.rest)
    plain, plain_exponent = np.empty(size), np.empty(size, np.int64)
    for x in range(size):
        plain[x], plain_exponent[x] = _split_log(halves.base[x])
    return (
        np.empty((count, 2)), np.empty((count, 2)), plain, plain_exponent, np.empty(size), np.empty(size),
        np.empty(size, np.int64),
    )  # fmt: skip


@kernel
def masses(halves, terms, first, last, log_mass):
    """Write the logarithms of the masses of blocks `first:last` to `log_mass`."""
    number, log_number, plain, plain_exponent, log_base, weight, exponent = _workspace(halves, terms)
    for block in range(first, last):
        log_mass[block] = _weigh(
            halves, terms, block, number, log_number, plain, plain_exponent, log_base, weight, exponent
        )


@kernel(fastmath=True, divides=True)
def _share(weight, a0, a1, p0, p1, out):
    """Add P(variable true, low bits) of a block to `out`; returns the sum."""
    total = 0.0
    for x in range(len(weight)):
        true = a1[x] * p1
        value = weight[x] * true / (a0[x] * p0 + true + LEAST)
        out[x] += value
        total += value
    return total


@kernel(fastmath=True, divides=True)
def _sum_four(weight, low, i, number, totals):
    """The sums of `_share` for four variables, with one division and nothing written in the loop."""
    a0, a1, b0, b1 = low[i, 0], low[i, 1], low[i + 1, 0], low[i + 1, 1]
    c0, c1, d0, d1 = low[i + 2, 0], low[i + 2, 1], low[i + 3, 0], low[i + 3, 1]
    p0, p1, q0, q1 = number[i, 0], number[i, 1], number[i + 1, 0], number[i + 1, 1]
    r0, r1, s0, s1 = number[i + 2, 0], number[i + 2, 1], number[i + 3, 0], number[i + 3, 1]
    a_sum, b_sum, c_sum, d_sum = 0.0, 0.0, 0.0, 0.0
    for x in range(len(weight)):
        a, b, c, d = a1[x] * p1, b1[x] * q1, c1[x] * r1, d1[x] * s1
        fa, fb, fc, fd = a + a0[x] * p0, b + b0[x] * q0, c + c0[x] * r0, d + d0[x] * s0
        left, right = fa * fb, fc * fd
        share = weight[x] / (left * right + LEAST)
        for_left, for_right = share * right, share * left
        a_sum += a * fb * for_left
        b_sum += b * fa * for_left
        c_sum += c * fd * for_right
        d_sum += d * fc * for_right
    totals[i], totals[i + 1], totals[i + 2], totals[i + 3] = a_sum, b_sum, c_sum, d_sum


@kernel
def _log_share(weight, a0, a1, p0, p1, out):
    """The same, by logarithms."""
    total = 0.0
    for x in range(len(weight)):
        if weight[x] > 0.0 and a1[x] + p1 > -math.inf:
            value = weight[x] / (1.0 + math.exp(min(700.0, (a0[x] + p0) - (a1[x] + p1))))
            out[x] += value
            total += value
    return total


@kernel
def posteriors(halves, terms, first, last, log_mass, log_z):
    """The `Sums` over those of the blocks `first:last` that matter."""
    low, size, count = halves.bits[0], len(terms.cut), len(terms.rest)
    number, log_number, plain, plain_exponent, log_base, weight, exponent = _workspace(halves, terms)
    by_low, cut, rest = np.zeros(1 << low), np.zeros((size, size)), np.zeros(count)
    both, both_low = np.zeros((count, size)), np.zeros((count, 1 << low))
    least = log_z + math.log(NEGLIGIBLE / len(log_mass))
    ones, true = np.empty(size, np.int64), np.empty(count)
    for block in range(first, last):
        if not log_mass[block] >= least:
            continue
        _weigh(halves, terms, block, number, log_number, plain, plain_exponent, log_base, weight, exponent)
        mass, set_bits = math.exp(log_mass[block] - log_z), 0
        for x in range(len(weight)):
            weight[x] *= mass
            by_low[x] += weight[x]
        for d in range(low, size):
            if (block >> (d - low)) & 1:
                ones[set_bits] = d
                set_bits += 1
        for k in range(set_bits):
            for j in range(k + 1):
                cut[ones[j], ones[k]] += mass
        if halves.split:
            for d in range(low):
                within = 0.0
                for x in range(len(weight)):
                    within += weight[x] * ((x >> d) & 1)
                for k in range(set_bits):
                    cut[d, ones[k]] += within
        i = 0
        while i < count:
            if _is_four(halves, i) and not terms.wanted[i : i + 4].any():
                _sum_four(weight, halves.low, i, number, true)
                i += 4
            elif i < halves.linear:
                true[i] = _share(weight, halves.low[i, 0], halves.low[i, 1], number[i, 0], number[i, 1], both_low[i])
                i += 1
            else:
                true[i] = _log_share(
                    weight, halves.log_low[i, 0], halves.log_low[i, 1], log_number[i, 0], log_number[i, 1], both_low[i]
                )
                i += 1
        rest += true
        for k in range(set_bits):
            both[:, ones[k]] += true
    return Sums(by_low, cut, rest, both, both_low)


@kernel
def finish(low, sums):
    """Fill in what concerns low bits, which `by_low` and `both_low` hold; in place."""
    for x in range(len(sums.by_low)):
        for a in range(low):
            if (x >> a) & 1:
                for b in range(a, low):
                    if (x >> b) & 1:
                        sums.cut[a, b] += sums.by_low[x]
                for i in range(len(sums.rest)):
                    sums.both[i, a] += sums.both_low[i, x]
