"""Scalars in the log domain. A weight of 0 is -inf, and nothing here makes a NaN of it."""

import math

from fcjax.kernels.compilation import kernel


@kernel
def log_add(a, b):
    """log(exp(a) + exp(b)); -inf where both are."""
    if a < b:
        a, b = b, a
    if b == -math.inf:
        return a
    return a + math.log1p(math.exp(b - a))
