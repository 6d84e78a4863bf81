"""The frontier sweep as a compiled loop, one row at a time with its table in cache.

At step i the table T runs over the frontier. With A_z(x) = unary_i(z) prod_u f_iu(z, x_u), the step is
`T'(x) = T(x, 0) A_0(x) + T(x, 1) A_1(x)` where variable i holds a bit of T, and `T(x) (A_0(x) + A_1(x))` where it does
not; neighbours that enter the frontier are bits that T is constant along. Bits are sorted by elimination step, latest
lowest, so that the variable at hand always holds the top bit and a step reads two contiguous halves.

This is variable elimination along a path decomposition (Bodlaender 1998, see `plan`; Dechter 1999, see `reduce`), known
as the transfer matrix method in physics. That the transposed steps give every marginal at once is Darwiche, "A
Differential Approach to Inference in Bayesian Networks", Journal of the ACM 50, 2003.

The same linear steps, transposed and run backwards from a table of ones, give every posterior. A is built as an outer
product of a high and a low half of the bits. Tables are rescaled by their sum (which compiles to vector instructions;
a maximum does not); what was flushed to 0 at any step can move a posterior by no more than (entries) * tiny / S, where
S is the inner product of T' and the backward table, both of sum 1 before the step. So a row whose S falls under
`steps * entries * tiny / 1e-9` somewhere is reported as not held by the number format, and is left to `sweep_log`.
"""

from __future__ import annotations

import math

import numpy as np

from fcjax.kernels.compilation import kernel

TINY = float(np.finfo(np.float64).tiny)
LOW_BITS = 6  # bits of the inner loop, at least where there are as many


@kernel(fastmath=True)
def spread(out, bits, start, arc_at, arc, z, first):
    """out[x] = first * prod over `bits` positions from `start` of the factor value at that bit of x."""
    out[0] = first
    for b in range(bits):
        size = 1 << b
        k = arc_at[start + b]
        if k < 0:
            for x in range(size):
                out[size + x] = out[x]
        else:
            low, high = arc[k, 2 * z], arc[k, 2 * z + 1]
            for x in range(size):
                out[size + x] = out[x] * high
            for x in range(size):
                out[x] = out[x] * low


@kernel
def offsets(out, bits, start, entered, stride):
    """out[x] = where the old table keeps x's entry, without bits that have just entered. Returns the next stride."""
    out[0] = 0
    for b in range(bits):
        size = 1 << b
        if entered[start + b]:
            for x in range(size):
                out[size + x] = out[x]
        else:
            for x in range(size):
                out[size + x] = out[x] + stride
            stride *= 2
    return stride


@kernel(fastmath=True)
def _forward(old, new, high_count, low_count, h0, h1, l0, l1, base, offset, top_half, plain):
    """One step; `plain` says that the low bits of old and new table agree. Returns the sum of the new table."""
    total = old[0] * 0
    for h in range(high_count):
        start, w0, w1 = base[h], h0[h], h1[h]
        out = new[h * low_count : (h + 1) * low_count]
        if plain:
            t0, t1 = old[start : start + low_count], old[start + top_half : start + top_half + low_count]
            for x in range(low_count):
                value = t0[x] * (w0 * l0[x]) + t1[x] * (w1 * l1[x])
                out[x] = value
                total += value
        else:
            t0, t1 = old[start:], old[start + top_half :]
            for x in range(low_count):
                value = t0[offset[x]] * (w0 * l0[x]) + t1[offset[x]] * (w1 * l1[x])
                out[x] = value
                total += value
    return total


@kernel(fastmath=True)
def _backward(old, b_new, b_old, high_count, low_count, h0, h1, l0, l1, base, offset, top_half, plain, rows0, rows1):
    """The transposed step: fills `b_old`, and the sums over the low bits of T A_z B in `rows0`, `rows1`.

    Returns the sum of `b_old`.
    """
    total = old[0] * 0
    for h in range(high_count):
        start, w0, w1 = base[h], h0[h], h1[h]
        b = b_new[h * low_count : (h + 1) * low_count]
        sum0, sum1 = old[0] * 0, old[0] * 0
        if plain and top_half > 0:
            t0, t1 = old[start : start + low_count], old[start + top_half : start + top_half + low_count]
            o0, o1 = b_old[start : start + low_count], b_old[start + top_half : start + top_half + low_count]
            for x in range(low_count):
                c0, c1 = b[x] * (w0 * l0[x]), b[x] * (w1 * l1[x])
                o0[x] += c0
                o1[x] += c1
                total += c0 + c1
                sum0 += t0[x] * c0
                sum1 += t1[x] * c1
        elif plain:
            t0, o0 = old[start : start + low_count], b_old[start : start + low_count]
            for x in range(low_count):
                c0, c1 = b[x] * (w0 * l0[x]), b[x] * (w1 * l1[x])
                o0[x] += c0 + c1
                total += c0 + c1
                sum0 += t0[x] * c0
                sum1 += t0[x] * c1
        else:
            for x in range(low_count):
                at = start + offset[x]
                c0, c1 = b[x] * (w0 * l0[x]), b[x] * (w1 * l1[x])
                sum0 += old[at] * c0
                sum1 += old[at + top_half] * c1
                b_old[at] += c0
                b_old[at + top_half] += c1
                total += c0 + c1
        rows0[h], rows1[h] = sum0, sum1
    return total


@kernel(fastmath=True)
def _columns(old, b_new, high_count, low_count, h0, h1, l0, l1, base, offset, top_half, cols0, cols1):
    """Sums over the high bits of T A_z B."""
    cols0[:low_count] = 0
    cols1[:low_count] = 0
    for h in range(high_count):
        start, w0, w1 = base[h], h0[h], h1[h]
        b = b_new[h * low_count : (h + 1) * low_count]
        for x in range(low_count):
            at = start + offset[x]
            cols0[x] += old[at] * (b[x] * w0)
            cols1[x] += old[at + top_half] * (b[x] * w1)
    for x in range(low_count):
        cols0[x] *= l0[x]
        cols1[x] *= l1[x]


@kernel(fastmath=True)
def _bit_sum(values, bits, b):
    """The sum of the 2**bits values whose index has bit b."""
    total, size = values[0] * 0, 1 << b
    for block in range(size, 1 << bits, 2 * size):
        for x in range(block, block + size):
            total += values[x]
    return total


@kernel
def _halves(bits):
    """How many low and high bits a table is split into."""
    low = min(bits, max(LOW_BITS, bits // 2))
    return low, bits - low


@kernel
def _prepare(i, new, steps, arcs, arc, unary, top, scale, lanes, index, entered, arc_at):
    """A_0 and A_1 of a step as outer products of high and low bits, and where the old table keeps each entry.

    `scale` goes into the high half. Returns whether the low bits of the old and the new table agree.
    """
    h0, h1, l0, l1 = lanes[0], lanes[1], lanes[2], lanes[3]
    arc_at[:new] = -1
    entered[:new] = False
    for k in arcs:
        arc_at[steps.arc_bit[k]] = k
        entered[steps.arc_bit[k]] = steps.arc_opens[k]
    low, high = _halves(new)
    spread(l0, low, 0, arc_at, arc, 0, 1.0)
    spread(l1, low, 0, arc_at, arc, 1, 1.0)
    spread(h0, high, low, arc_at, arc, 0, scale * math.exp(unary[i, 0] - top))
    spread(h1, high, low, arc_at, arc, 1, scale * math.exp(unary[i, 1] - top))
    plain = True
    for b in range(low):
        plain = plain and not entered[b]
    stride = offsets(index[1], low, 0, entered, 1)
    offsets(index[0], high, low, entered, stride)
    return plain


@kernel
def sweep_row(steps, first, last, arc, arc_scale, unary, wanted, p, joint, stack, one, two, lanes, index):
    """Sweep one row over steps `first:last` there and back; returns (log_z, whether the number format held it).

    `arc`, `arc_scale` are the weights of all arcs of `steps`, `unary [last - first, 2]` this row's own. Writes P(true)
    of each step's variable to `p [last - first]`, and to `joint [A, 4]` the joint posterior of the arcs that are
    `wanted`, by [state of the step's variable][state of the later one]. Workspace: `stack` for all tables and one entry
    more, `one` and `two` for the largest table, `lanes [8, n]` and `index [2, n]` for the larger half of the bits; the
    number format is that of `stack`.
    """
    count = last - first
    h0, h1, l0, l1 = lanes[0], lanes[1], lanes[2], lanes[3]
    rows0, rows1, cols0, cols1 = lanes[4], lanes[5], lanes[6], lanes[7]
    base, offset = index[0], index[1]
    entered, arc_at = np.empty(64, np.bool_), np.empty(64, np.int64)
    log_z, scale, width = 0.0, 1.0, 0
    stack[0] = 1
    totals = np.ones(count + 1)
    at, size = 0, 0  # where the current table starts, and the bits that it has
    for i in range(count):
        new = steps.bits[first + i]
        width = max(width, new)
        arcs = range(steps.arc_ptr[first + i], steps.arc_ptr[first + i + 1])
        top = max(unary[i, 0], unary[i, 1])
        if top == -math.inf:
            return -math.inf, False
        log_z += top
        for k in arcs:
            log_z += arc_scale[k]
        plain = _prepare(i, new, steps, arcs, arc, unary, top, scale, lanes, index, entered, arc_at)
        low, high = _halves(new)
        half = (1 << size) >> 1 if steps.held[first + i] else 0
        old = stack[at : at + (1 << size)]
        at += 1 << size
        out = stack[at : at + (1 << new)]
        total = _forward(old, out, 1 << high, 1 << low, h0, h1, l0, l1, base, offset, half, plain)
        size = new
        totals[i + 1] = total
        if not total > 0:
            return -math.inf, False
        log_z += math.log(total)
        scale = 1.0 / total
    floor = TINY * count * 2.0**width * 1e9
    b_new, b_old = one, two
    b_new[0] = 1
    scale = 1.0
    for i in range(count - 1, -1, -1):
        new = steps.bits[first + i]
        size = steps.bits[first + i - 1] if i > 0 else 0
        at -= 1 << size
        arcs = range(steps.arc_ptr[first + i], steps.arc_ptr[first + i + 1])
        top = max(unary[i, 0], unary[i, 1])
        plain = _prepare(i, new, steps, arcs, arc, unary, top, scale, lanes, index, entered, arc_at)
        low, high = _halves(new)
        half = (1 << size) >> 1 if steps.held[first + i] else 0
        old = stack[at : at + (1 << size)]
        b_old[: 1 << size] = 0
        total = _backward(
            old, b_new, b_old, 1 << high, 1 << low, h0, h1, l0, l1, base, offset, half, plain, rows0, rows1
        )  # fmt: skip
        w0, w1 = 0.0, 0.0
        for h in range(1 << high):
            w0 += rows0[h]
            w1 += rows1[h]
        whole = w0 + w1
        if not whole > floor * max(1.0, totals[i]):
            return log_z, False
        p[i] = w1 / whole
        summed = False
        for k in arcs:
            if not wanted[k]:
                continue
            b = steps.arc_bit[k]
            if b >= low:
                s0, s1 = _bit_sum(rows0, high, b - low), _bit_sum(rows1, high, b - low)
            else:
                if not summed:
                    _columns(old, b_new, 1 << high, 1 << low, h0, h1, l0, l1, base, offset, half, cols0, cols1)
                    summed = True
                s0, s1 = _bit_sum(cols0, low, b), _bit_sum(cols1, low, b)
            joint[k, 0], joint[k, 1] = max(0.0, w0 - s0) / whole, s0 / whole
            joint[k, 2], joint[k, 3] = max(0.0, w1 - s1) / whole, s1 / whole
        scale = 1.0 / total
        b_new, b_old = b_old, b_new
    return log_z, True


@kernel
def half_size(width):
    """Entries of the larger half of a table of `width` bits."""
    low, high = _halves(width)
    return 1 << max(low, high)


@kernel
def sweep(steps, weights, wanted, chosen):
    """Sweep the `chosen [G]` of the planned graphs; `wanted [A]` says whose joint posteriors are needed.

    Returns log_z `[G]` of the cores (0 where there is none), `p [C]`, `joint [A, 4]`, and `held [G]`: False where the
    number format did not hold the row.
    """
    graphs = len(steps.width)
    log_z, held = np.zeros(graphs), np.ones(graphs, np.bool_)
    p, joint = np.full(len(steps.variable), math.nan), np.full((len(steps.arc_to), 4), math.nan)
    entries, width = 1.0, 0
    for g in range(graphs):
        if chosen[g]:
            entries, width = max(entries, steps.cost[g]), max(width, steps.width[g])
    stack = np.empty(np.int64(entries) + 1, np.float64)
    one, two = np.empty(1 << width, np.float64), np.empty(1 << width, np.float64)
    lanes, index = np.empty((8, half_size(width)), np.float64), np.empty((2, half_size(width)), np.int64)
    for g in range(graphs):
        first, last = steps.step_ptr[g], steps.step_ptr[g + 1]
        if chosen[g] and last > first:
            log_z[g], held[g] = sweep_row(
                steps, first, last, weights.arc, weights.arc_scale, weights.unary[first:last], wanted, p[first:last],
                joint, stack, one, two, lanes, index,
            )  # fmt: skip
    return log_z, p, joint, held
