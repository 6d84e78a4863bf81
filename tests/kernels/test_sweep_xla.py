"""The sweep through XLA has the shapes and types that it states, and is compiled once per size class."""

from __future__ import annotations

import chex
import numpy as np
import pytest
from checks import preset
from samples import grid
from size_classes import traced_once

from fcjax import infer
from fcjax.kernels import sweep_xla


@pytest.mark.parametrize(("rows", "steps", "slots"), [(1, 3, 4), (4, 16, 6), (3, 5, 7)])
def test_shapes_and_types(rows: int, steps: int, slots: int) -> None:
    rng = np.random.default_rng(rows)
    unary = rng.uniform(0.1, 1.0, (rows, steps, 2)).astype(np.float32)
    factors = np.ones((rows, steps, 2, slots, 2), np.float32)
    swept = sweep_xla.sweep(unary, factors, np.full((rows, steps), -1, np.int32))
    chex.assert_shape(swept.log_scale, (rows,))
    chex.assert_shape(swept.p, (rows, steps))
    chex.assert_shape(swept.joint, (rows, steps, 2, slots))
    chex.assert_shape(swept.held, (rows,))
    chex.assert_type([swept.log_scale, swept.p, swept.joint], np.float32)
    chex.assert_type(swept.held, bool)
    chex.assert_tree_all_finite(swept)
    np.testing.assert_allclose(swept.p, unary[..., 1] / unary.sum(axis=2), rtol=1e-5)  # without neighbours


def test_rows_whose_small_entries_would_count_are_not_held() -> None:
    """A neighbour in slot 0 falls to 1e-42 of its other state, and the later factors raise it again.

    Entries under 1.2e-38 are flushed to 0 or lose digits. Where what counts later is 1e-33 of the largest product, a
    flushed entry may be over 1e-5 of it; at 1e-3, none is.
    """
    held = []
    for back in (1e-33, 1e-3):
        unary = np.full((1, 16, 2), 0.5, np.float32)
        factors = np.ones((1, 16, 2, 4, 2), np.float32)
        factors[0, :2, :, 0, 1] = 1e-21
        factors[0, 2, :, 0, 0] = back
        swept = sweep_xla.sweep(unary, factors, np.full((1, 16), -1, np.int32))
        held.append(bool(swept.held[0]))
    assert held == [False, True]


def test_one_trace_per_size_class(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [preset(grid(*size))[0] for size in ((3, 3), (4, 4), (3, 12), (5, 6))]
    programs = traced_once(monkeypatch)
    infer(graphs, backend="xla")
    made = len(programs)
    assert made >= 2
    infer(graphs[::-1], backend="xla")
    infer(graphs[1:3], backend="xla")
    assert len(programs) == made


def test_a_second_trace_of_a_size_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself: another dtype is another trace of the same shapes."""
    traced_once(monkeypatch)
    unary, factors = np.ones((1, 2, 2), np.float32), np.ones((1, 2, 2, 4, 2), np.float32)
    sweep_xla.sweep(unary, factors, np.full((1, 2), -1, np.int32))
    with pytest.raises(AssertionError, match="traced > 1 times"):
        sweep_xla.sweep(unary, factors, np.full((1, 2), -1, np.int16))
