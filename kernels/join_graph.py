"""Beliefs of mini-buckets by message passing among them: iterative join-graph propagation.

The mini-buckets of an order are the clusters of a join graph: each is tied to the one that its message goes to, over
the variables that they share, and to the next one of its bucket, over the bucket's variable. Sum-product messages go
down the order and back up until they settle. Where no bucket is split this is a tree, and the beliefs are exact.
Elsewhere they are much nearer to the truth than the derivatives of a bound, which in a dense graph of conflicting
relations is loose by dozens of nats, but nothing is promised of them (SPEC 4).

Dechter, Kask and Mateescu, "Iterative Join-Graph Propagation", UAI 2002; Mateescu, Kask, Gogate and Dechter,
"Join-Graph Propagation Algorithms", JAIR 37, 2010.
"""

from __future__ import annotations

import math

import numpy as np

from fcjax.kernels.compilation import kernel

ROUNDS = 150  # down and up, at most
FEWEST = 5
WORK = 1e7  # entries of tables after which the rounds end: a second or less
DAMPING = 0.7
SETTLED = 3e-6  # change of a posterior at which messages have
FLOOR = -600.0  # log weights under the largest are raised to this, so that all stay finite


@kernel
def project(scope, size, other, count, at):
    """Where a table over `other[:count]` keeps each entry of one over `scope[:size]`, to `at [2**size]`."""
    at[0], j = 0, count - 1
    for i in range(size - 1, -1, -1):
        block, bit = 1 << (size - 1 - i), 0
        if j >= 0 and other[j] == scope[i]:
            bit = 1 << (count - 1 - j)
            j -= 1
        for x in range(block):
            at[block + x] = at[x] | bit


@kernel
def _normalise(message):
    """Scale to a largest entry of 1, in logarithms."""
    top = message.max()
    for x in range(len(message)):
        message[x] = max(message[x] - top, FLOOR)


@kernel
def _halves(full):
    """The log sums over both states of the first variable."""
    half = len(full) >> 1
    top, low, high = full.max(), 0.0, 0.0
    for x in range(half):
        low += math.exp(full[x] - top)
        high += math.exp(full[half + x] - top)
    least = math.exp(FLOOR)
    return math.log(max(low, least)), math.log(max(high, least))


@kernel
def _sideways(full, start, a, b, sent, answer):
    """Send cluster a's message on the bucket's variable to b; `answer` is b's to a, `sent` is renewed."""
    fresh = np.empty(2)
    fresh[0], fresh[1] = _halves(full[start[a] : start[a + 1]])
    fresh -= answer
    _normalise(fresh)
    half = (start[b + 1] - start[b]) >> 1
    for z in range(2):
        new = DAMPING * sent[z] + (1.0 - DAMPING) * fresh[z]
        begin = start[b] + z * half
        full[begin : begin + half] += new - sent[z]
        sent[z] = new


@kernel
def propagate(buckets, full, down, up):
    """Replace the log factors of all mini-buckets, `full [T]`, by their normalised beliefs.

    `T` counts the tables' entries, as in `minibucket.Tables`; `down`, `up [T / 2]` are workspace, for messages.
    """
    count, start = len(buckets.size), buckets.start
    for m in range(count):
        _normalise(full[start[m] : start[m + 1]])
    down[:], up[:] = 0.0, 0.0
    right, left = np.zeros((count, 2)), np.zeros((count, 2))  # to the next one, to the previous one
    at = np.empty(1 << buckets.scope.shape[1], np.int32)
    rest = np.empty(len(at))
    steps = len(buckets.first) - 1
    p, before = np.zeros(steps), np.full(steps, 2.0)
    for _ in range(max(FEWEST, min(ROUNDS, int(WORK / start[-1])))):
        for i in range(steps):
            a, b = buckets.first[i], buckets.first[i + 1]
            for m in range(a, b - 1):
                _sideways(full, start, m, m + 1, right[m], left[m + 1])
            for m in range(b - 1, a, -1):
                _sideways(full, start, m, m - 1, left[m], right[m - 1])
            for m in range(a, b):
                to = buckets.parent[m]
                if to < 0:
                    continue
                begin, half = start[m], (start[m + 1] - start[m]) >> 1
                sent, fresh = down[begin >> 1 : (begin >> 1) + half], rest[:half]
                for x in range(half):
                    low, high = full[begin + x], full[begin + half + x]
                    fresh[x] = max(low, high) + math.log1p(math.exp(-abs(low - high))) - up[(begin >> 1) + x]
                _normalise(fresh)
                for x in range(half):
                    fresh[x] = (1.0 - DAMPING) * (fresh[x] - sent[x])
                    sent[x] += fresh[x]
                project(buckets.scope[to], buckets.size[to], buckets.scope[m, 1:], buckets.size[m] - 1, at)
                for x in range(start[to + 1] - start[to]):
                    full[start[to] + x] += fresh[at[x]]
        for m in range(count - 1, -1, -1):
            to = buckets.parent[m]
            if to < 0:
                continue
            begin, half = start[m], (start[m + 1] - start[m]) >> 1
            sent, fresh = up[begin >> 1 : (begin >> 1) + half], rest[:half]
            theirs = full[start[to] : start[to + 1]]
            top = theirs.max()
            fresh[:] = 0.0
            project(buckets.scope[to], buckets.size[to], buckets.scope[m, 1:], buckets.size[m] - 1, at)
            for x in range(len(theirs)):
                fresh[at[x]] += math.exp(theirs[x] - top)
            for x in range(half):
                fresh[x] = math.log(max(fresh[x], math.exp(FLOOR))) - down[(begin >> 1) + x]
            _normalise(fresh)
            for x in range(half):
                change = (1.0 - DAMPING) * (fresh[x] - sent[x])
                sent[x] += change
                full[begin + x] += change
                full[begin + half + x] += change
        largest = 0.0
        for i in range(steps):
            low, high = _halves(full[start[buckets.first[i]] : start[buckets.first[i] + 1]])
            p[i] = 1.0 / (1.0 + math.exp(min(700.0, low - high)))
            largest = max(largest, abs(p[i] - before[i]))
        before[:] = p
        if largest < SETTLED:
            break
    for m in range(count):
        mine = full[start[m] : start[m + 1]]
        mine[:] = np.exp(mine - mine.max())
        mine /= mine.sum()
