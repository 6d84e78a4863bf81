"""Scalars in the log domain, for the other kernels to inline. A weight of 0 is -inf; nothing here makes a NaN of it."""

import math

from numba import njit


@njit(cache=True, nogil=True)
def add(a, b):
    """log(exp(a) + exp(b)); -inf where both are."""
    if a < b:
        a, b = b, a
    if b == -math.inf:
        return a
    return a + math.log1p(math.exp(b - a))


@njit(cache=True, nogil=True)
def true_share(false, true):
    """exp(true) / (exp(false) + exp(true)); 0 where both are -inf (the caller then weighs it by 0)."""
    if true == -math.inf:
        return 0.0
    if false == -math.inf:
        return 1.0
    difference = true - false
    if difference >= 0:
        return 1.0 / (1.0 + math.exp(-difference))
    weight = math.exp(difference)
    return weight / (1.0 + weight)
