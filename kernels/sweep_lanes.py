"""The frontier sweep over several rows of one structure at once: the same order and factors, unaries of their own.

A table holds `L` lanes side by side, so that whatever depends on the structure (which entry goes where, the products
of the factors) is worked out once, and the loops over lanes are vectors. The steps are those of `sweep_cpu`; bits under
the lowest one that has just entered the frontier stand together in the old and the new table, with their lanes one
contiguous run. What the number format does not hold is reported for each lane, by the same rule.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcjax.kernels.compilation import kernel
from fcjax.kernels.sweep_cpu import TINY, offsets, spread

LANES = 8  # rows of a sweep, at most
RUN_BITS = 5  # bits of a run, at most


class Program(NamedTuple):
    """One order's `R` steps with their factors. A_z of a step is the outer product of `high` and `low`."""

    bits: np.ndarray  # [R] int64: of the table after the step
    held: np.ndarray  # [R] bool: whether the step's variable has the top bit of the table before
    run_bits: np.ndarray  # [R] int64
    low_at: np.ndarray  # [R + 1] int64: where a step's part of `low` starts
    high_at: np.ndarray  # [R + 1] int64: of `high` and `base`
    low: np.ndarray  # [2, *] float64: products of the factors over the bits of a run, for z = 0, 1
    high: np.ndarray  # [2, *] float64: and over the other bits
    base: np.ndarray  # [*] int64: where a run starts in the table before the step
    arc_bit: np.ndarray  # [A] int64: the later variable's bit
    arc_ptr: np.ndarray  # [R + 1] int64
    log_scale: float  # of all factors together
    entries: int  # of all tables together
    largest: int  # of them


class SweepBuffers(NamedTuple):
    """What a sweep takes, for `LANES` rows."""

    stack: np.ndarray  # all tables
    back: np.ndarray  # [2, *]: backward tables, of the step and of the one before
    total: np.ndarray  # [R + 1, LANES]: sums of the tables
    coefficient: np.ndarray  # [2, *]: a run's factors with the unaries of the lanes
    sums: np.ndarray  # [5, *]: of a run


@kernel
def lay(steps, arc, arc_scale):
    """The program of one graph's steps; `arc [A, 4]` and `arc_scale [A]` as in `layout.Weights`."""
    count = len(steps.variable)
    bits, run_bits = steps.bits.astype(np.int64), np.zeros(count, np.int64)
    low_at, high_at = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    entered, arc_at = np.empty(64, np.bool_), np.empty(64, np.int64)
    for i in range(count):
        run_bits[i] = min(bits[i], RUN_BITS)
        for k in range(steps.arc_ptr[i], steps.arc_ptr[i + 1]):
            if steps.arc_opens[k]:
                run_bits[i] = min(run_bits[i], np.int64(steps.arc_bit[k]))
        low_at[i + 1] = low_at[i] + (1 << run_bits[i])
        high_at[i + 1] = high_at[i] + (1 << (bits[i] - run_bits[i]))
    low, high = np.empty((2, low_at[count])), np.empty((2, high_at[count]))
    base = np.empty(high_at[count], np.int64)
    entries, largest = 1, 1
    for i in range(count):
        arc_at[: bits[i]] = -1
        entered[: bits[i]] = False
        for k in range(steps.arc_ptr[i], steps.arc_ptr[i + 1]):
            arc_at[steps.arc_bit[k]] = k
            entered[steps.arc_bit[k]] = steps.arc_opens[k]
        run, rest = run_bits[i], bits[i] - run_bits[i]
        for z in range(2):
            spread(low[z, low_at[i] :], run, 0, arc_at, arc, z, 1.0)
            spread(high[z, high_at[i] :], rest, run, arc_at, arc, z, 1.0)
        offsets(base[high_at[i] :], rest, run, entered, 1 << run)
        entries += 1 << bits[i]
        largest = max(largest, 1 << bits[i])
    return Program(
        bits, steps.held, run_bits, low_at, high_at, low, high, base, steps.arc_bit.astype(np.int64), steps.arc_ptr,
        arc_scale.sum(), entries, largest,
    )  # fmt: skip


@kernel
def workspace(program):
    run = LANES << RUN_BITS
    return SweepBuffers(
        np.empty(max(program.entries, 2 * program.largest) * LANES), np.empty((2, program.largest * LANES)),
        np.empty((len(program.bits) + 1, LANES)), np.empty((2, run)), np.empty((5, run)),
    )  # fmt: skip


@kernel(fastmath=True)
def _forward(old, new, runs, run, lanes, c0, c1, high, base, half, total):
    """One step; `total [run]` becomes the sum of the new table's runs."""
    total[:run] = 0.0
    for h in range(runs):
        w0, w1, start = high[0, h], high[1, h], base[h] * lanes
        t0, t1 = old[start : start + run], old[start + half : start + half + run]
        out = new[h * run : (h + 1) * run]
        for j in range(run):
            value = t0[j] * (w0 * c0[j]) + t1[j] * (w1 * c1[j])
            out[j] = value
            total[j] += value


@kernel(fastmath=True)
def _backward(old, b_new, b_old, runs, run, lanes, c0, c1, high, base, half, sum0, sum1, total):
    """The transposed step: adds to `b_old`; sums over all runs of T A_z B in `sum0`, `sum1`, and of B's in `total`."""
    for sums in (sum0, sum1, total):
        sums[:run] = 0.0
    for h in range(runs):
        w0, w1, start = high[0, h], high[1, h], base[h] * lanes
        b = b_new[h * run : (h + 1) * run]
        t0, o0 = old[start : start + run], b_old[start : start + run]
        for j in range(run):
            c = b[j] * (w0 * c0[j])
            o0[j] += c
            total[j] += c
            sum0[j] += t0[j] * c
        t1, o1 = old[start + half : start + half + run], b_old[start + half : start + half + run]
        for j in range(run):
            c = b[j] * (w1 * c1[j])
            o1[j] += c
            total[j] += c
            sum1[j] += t1[j] * c


@kernel(fastmath=True)
def _high_sums(old, b_new, runs, run, lanes, c0, c1, high, base, half, bit, sum0, sum1):
    """Sums of T A_z B over the runs whose index has `bit`."""
    sum0[:run] = 0.0
    sum1[:run] = 0.0
    for h in range(runs):
        if (h >> bit) & 1:
            w0, w1, start = high[0, h], high[1, h], base[h] * lanes
            b, t0 = b_new[h * run : (h + 1) * run], old[start : start + run]
            for j in range(run):
                sum0[j] += t0[j] * (b[j] * (w0 * c0[j]))
            t1 = old[start + half : start + half + run]
            for j in range(run):
                sum1[j] += t1[j] * (b[j] * (w1 * c1[j]))


@kernel
def _coefficients(program, i, unary, lanes, scale, out):
    """The factors of step i over a run, with the unaries of the lanes, the larger one scaled to `scale`."""
    first = program.low_at[i]
    entries = 1 << program.run_bits[i]
    for lane in range(lanes):
        difference = unary[lane, i, 1] - unary[lane, i, 0]
        u0 = scale[lane] * (math.exp(-difference) if difference > 0 else 1.0)
        u1 = scale[lane] * (math.exp(difference) if difference < 0 else 1.0)
        for x in range(entries):
            out[0, x * lanes + lane] = u0 * program.low[0, first + x]
            out[1, x * lanes + lane] = u1 * program.low[1, first + x]


@kernel
def sweep(program, unary, lanes, keep, work, log_z, held):
    """Sweep `lanes` rows forward; `unary [L, R, 2]` are logarithms.

    Writes log Z of the lanes to `log_z [L]`, and to `held [L]` whether the number format has held them. With `keep` the
    tables are kept for `sweep_back`; without, two of them take turns, which stay in cache.
    """
    scale = np.ones(LANES)
    log_z[:lanes] = program.log_scale
    held[:lanes] = True
    work.stack[:lanes] = 1.0
    work.total[0, :lanes] = 1.0
    at, size = 0, 0
    for i in range(len(program.bits)):
        for lane in range(lanes):
            top = max(unary[lane, i, 0], unary[lane, i, 1])
            if not top > -math.inf:
                held[lane] = False
            log_z[lane] += top
        _coefficients(program, i, unary, lanes, scale, work.coefficient)
        run, first, last = lanes << program.run_bits[i], program.high_at[i], program.high_at[i + 1]
        half = (lanes << size) >> 1 if program.held[i] else 0
        old = work.stack[at : at + (lanes << size)]
        if keep:
            at += lanes << size
        else:
            at = lanes * program.largest - at
        size = program.bits[i]
        new = work.stack[at : at + (lanes << size)]
        _forward(
            old, new, last - first, run, lanes, work.coefficient[0], work.coefficient[1],
            program.high[:, first:last], program.base[first:last], half, work.sums[0],
        )  # fmt: skip
        for lane in range(lanes):
            total = _lane_sum(work.sums[0], run, lanes, lane, -1)
            work.total[i + 1, lane] = total
            if total > 0:
                log_z[lane] += math.log(total)
                scale[lane] = 1.0 / total
            else:
                held[lane] = False
                scale[lane] = 0.0


@kernel
def sweep_back(program, unary, lanes, work, wanted, p, joint, held):
    """The way back of the rows that `sweep` has just swept.

    Writes P(true) of each step's variable to `p [L, R]`, and to `joint [L, A, 4]` the joint posterior of the `wanted`
    arcs, by [state of the step's variable][state of the later one]. Lanes that the number format did not hold become
    False in `held`.
    """
    count = len(program.bits)
    floor = TINY * count * program.largest * 1e9
    scale, whole, w0, w1 = np.ones(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    at = lanes * (program.entries - ((1 << program.bits[count - 1]) if count > 0 else 1))
    b_new, b_old = work.back[0], work.back[1]
    b_new[:lanes] = 1.0
    for i in range(count - 1, -1, -1):
        size = program.bits[i - 1] if i > 0 else 0
        at -= lanes << size
        _coefficients(program, i, unary, lanes, scale, work.coefficient)
        c0, c1 = work.coefficient[0], work.coefficient[1]
        run, first, last = lanes << program.run_bits[i], program.high_at[i], program.high_at[i + 1]
        half = (lanes << size) >> 1 if program.held[i] else 0
        old = work.stack[at : at + (lanes << size)]
        high, base = program.high[:, first:last], program.base[first:last]
        b_old[: lanes << size] = 0.0
        sum0, sum1 = work.sums[0], work.sums[1]
        _backward(old, b_new, b_old, last - first, run, lanes, c0, c1, high, base, half, sum0, sum1, work.sums[4])
        for lane in range(lanes):
            w0[lane] = _lane_sum(sum0, run, lanes, lane, -1)
            w1[lane] = _lane_sum(sum1, run, lanes, lane, -1)
            whole[lane] = w0[lane] + w1[lane]
            if not whole[lane] > floor * max(1.0, work.total[i, lane]):
                held[lane] = False
            p[lane, i] = w1[lane] / whole[lane] if held[lane] else math.nan
        for k in range(program.arc_ptr[i], program.arc_ptr[i + 1]):
            if not wanted[k]:
                continue
            bit = program.arc_bit[k]
            part0, part1 = sum0, sum1
            if bit >= program.run_bits[i]:
                part0, part1 = work.sums[2], work.sums[3]
                _high_sums(
                    old, b_new, last - first, run, lanes, c0, c1, high, base, half, bit - program.run_bits[i], part0,
                    part1,
                )  # fmt: skip
                bit = -1
            for lane in range(lanes):
                if held[lane]:
                    s0, s1 = _lane_sum(part0, run, lanes, lane, bit), _lane_sum(part1, run, lanes, lane, bit)
                    joint[lane, k, 0], joint[lane, k, 1] = max(0.0, w0[lane] - s0) / whole[lane], s0 / whole[lane]
                    joint[lane, k, 2], joint[lane, k, 3] = max(0.0, w1[lane] - s1) / whole[lane], s1 / whole[lane]
        for lane in range(lanes):
            total = _lane_sum(work.sums[4], run, lanes, lane, -1)
            scale[lane] = 1.0 / total if total > 0 else 0.0
        b_new, b_old = b_old, b_new


@kernel
def _lane_sum(values, run, lanes, lane, bit):
    """The sum of one lane of a run; with `bit` >= 0 only of entries whose index has that bit."""
    total = 0.0
    for x in range(run // lanes):
        if bit < 0 or (x >> bit) & 1:
            total += values[x * lanes + lane]
    return total
