"""The sweep through XLA, held to one compile per size class by chex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chex
import jax

from fcjax.kernels import sweep_xla


def traced_once(monkeypatch: Any) -> dict[tuple[int, ...], Callable[..., sweep_xla.Swept]]:
    """Replace `sweep_xla.sweep` by one program per size class, whose second trace is an error.

    Returns the programs by the shape of their factors (B, C, 2, W, 2); it grows as sweeps are made.
    """
    chex.clear_trace_counter()
    whole = sweep_xla.sweep.__wrapped__
    programs: dict[tuple[int, ...], Callable[..., sweep_xla.Swept]] = {}

    def program(size: tuple[int, ...]) -> Callable[..., sweep_xla.Swept]:
        def sweep(unary: jax.Array, factors: jax.Array, closes: jax.Array) -> sweep_xla.Swept:
            return whole(unary, factors, closes)

        sweep.__name__ = "sweep_" + "_".join(map(str, size))  # chex counts by name
        return jax.jit(chex.assert_max_traces(sweep, n=1))

    def sweep(unary: jax.Array, factors: jax.Array, closes: jax.Array) -> sweep_xla.Swept:
        if factors.shape not in programs:
            programs[factors.shape] = program(factors.shape)
        return programs[factors.shape](unary, factors, closes)

    monkeypatch.setattr(sweep_xla, "sweep", sweep)
    return programs
