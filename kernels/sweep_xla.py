"""The frontier sweep as one jitted program per size class, for any device that XLA supports.

A tile of `B` rows shares a `Shape` of `W` slots and `C` steps. Every variable of the frontier has a slot of the table
T [B, 2**W] for as long as it is there; T is constant along free slots. At the step of variable v

    T <- T * (A_0 + A_1),  A_z(x) = unary_v(z) prod_slots factor_z(x_slot)

and where v itself holds a slot, A_z has the indicator [x_slot = z] there and v is summed out by `T(x) += T(x ^ slot)`.
A_z is an outer product of a high and a low half of the slots. The transposed steps, run backwards from a table of ones,
give the posteriors. Padding is inert: a spare step has A_0 = A_1 = 1/2 and closes nothing, a spare row has spare steps.

Topology is data: one compile serves a whole size class. Tables are float32 and rescaled by their largest entry at
every step; `held` is False for rows where flushed entries could have mattered, by the rule of `sweep_cpu`.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from fcjax.kernels import layout
from fcjax.kernels.plan import Steps

TINY = float(np.finfo(np.float32).tiny)


class Swept(NamedTuple):
    """What a sweep says of `B` rows; `P` in the tile is over `C` steps."""

    log_scale: Float[Array, " B"]  # natural logarithm of what the steps' tables were scaled down by
    p: Float[Array, "B C"]  # P(true) of each step's variable
    joint: Float[Array, "B C 2 W"]  # P(variable = z, slot's variable = true)
    held: Bool[Array, " B"]


def _outer_factors(
    unary: Float[Array, "B 2"], factors: Float[Array, "B 2 W 2"], low: int
) -> tuple[Float[Array, "B 2 high"], Float[Array, "B 2 low"]]:
    """A_z as (high half, low half): A_z(x) = high[z, x >> low] * low[z, x & mask]."""

    def product(values: Array, slots: range) -> Array:
        for slot in slots:  # the slot's bit becomes the highest one
            values = jnp.concatenate([values * factors[:, :, slot, :1], values * factors[:, :, slot, 1:]], axis=-1)
        return values

    width = factors.shape[2]
    return product(unary[:, :, None], range(low, width)), product(jnp.ones_like(unary)[:, :, None], range(low))


def _fold(table: Float[Array, "B X"], closes: Int[Array, " B"]) -> Float[Array, "B X"]:
    """Sum each row along its closing slot, and leave it constant there; -1 leaves a row as it is."""
    entries = jnp.arange(table.shape[1], dtype=jnp.int32)
    partner = entries[None, :] ^ jnp.where(closes < 0, 0, 1 << jnp.maximum(closes, 0))[:, None]
    return table + jnp.where(closes[:, None] < 0, 0, jnp.take_along_axis(table, partner, axis=1))


def _rescale(table: Float[Array, "B X"]) -> tuple[Float[Array, "B X"], Float[Array, " B"]]:
    top = jnp.max(table, axis=1)
    safe = jnp.where(top > 0, top, 1)
    return table / safe[:, None], jnp.log(top)


@jax.jit
def sweep(unary: Float[Array, "B C 2"], factors: Float[Array, "B C 2 W 2"], closes: Int[Array, "B C"]) -> Swept:
    """Sweep a tile there and back.

    `unary` and `factors` are weights of largest entry 1 (`factors[b, c, z, slot]` by the state of the slot's variable,
    1 where the slot is not a neighbour's), `closes` the slot of the step's own variable, or -1.
    """
    rows, steps, _, width, _ = factors.shape
    low = (width + 1) // 2

    def products(step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        high_half, low_half = _outer_factors(step[0], step[1], low)
        return tuple((high_half[:, z, :, None] * low_half[:, z, None, :]).reshape(rows, 1 << width) for z in range(2))  # type: ignore[return-value]

    def forward(table: Array, step: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        a0, a1 = products(step)
        after, log_top = _rescale(_fold(table * (a0 + a1), step[2]))
        return after, (table, log_top)

    def backward(table: Array, step: tuple[tuple[Array, Array, Array], Array]) -> tuple[Array, tuple[Array, ...]]:
        a0, a1 = products(step[0])
        table = _fold(table, step[0][2])
        w = jnp.stack([step[1] * table * a0, step[1] * table * a1], axis=1)
        grid = w.reshape(rows, 2, 1 << (width - low), 1 << low)
        by_high, by_low = grid.sum(axis=3), grid.sum(axis=2)
        exactly = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)  # accelerators round matmuls otherwise
        with_bit = jnp.concatenate([exactly(by_low, _bits(low)), exactly(by_high, _bits(width - low))], axis=-1)
        mass = by_high.sum(axis=2)
        whole = mass.sum(axis=1)
        safe = jnp.where(whole > 0, whole, 1)
        before, _ = _rescale(table * (a0 + a1))
        return before, (mass[:, 1] / safe, with_bit / safe[:, None, None], whole)

    ones = jnp.ones((rows, 1 << width), unary.dtype)
    by_step = jax.tree.map(lambda values: jnp.moveaxis(values, 1, 0), (unary, factors, closes))
    last, (tables, log_tops) = jax.lax.scan(forward, ones, by_step)
    _, (p, joint, whole) = jax.lax.scan(backward, ones, (by_step, tables), reverse=True)
    floor = TINY * steps * 2.0**width * 1e7
    held = jnp.all(whole > floor, axis=0) & (last[:, 0] > 0)
    return Swept(
        log_tops.sum(axis=0),
        jnp.moveaxis(p, 0, 1),
        jnp.moveaxis(joint, 0, 1),
        held,
    )


def _bits(count: int) -> Float[np.ndarray, "X W"]:
    """Row x holds the bits of x."""
    return ((np.arange(1 << count)[:, None] >> np.arange(count)) & 1).astype(np.float32)


SLOT_CLASSES = (4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26)
LEAST_STEPS = 16
MOST_ROWS = 1024
_one_at_a_time = Lock()  # two threads would trace one size class twice


class SizeClass(NamedTuple):
    """The static shape of a tile: what one compile serves."""

    rows: int  # B
    slots: int  # W
    steps: int  # C

    @classmethod
    def of(cls, slots: int, steps: int, tile_bytes: int, devices: int) -> SizeClass:
        """The least class that holds a row; as many rows as have their tables in `tile_bytes` on each device."""
        w = next(size for size in SLOT_CLASSES if size >= slots)
        c = max(LEAST_STEPS, 1 << (steps - 1).bit_length())
        rows = tile_bytes // (4 * c << w)
        return cls(devices << (max(1, min(rows, MOST_ROWS)).bit_length() - 1), w, c)


def sweep_planned(
    steps: Steps, weights: layout.Weights, chosen: Bool[np.ndarray, " G"], tile_bytes: int = 2**27
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`sweep_cpu.sweep` on JAX's devices: the same arguments, the same results, padded into size classes.

    A tile's rows are shared out among all local devices.
    """
    devices = jax.local_devices()
    by_row = NamedSharding(Mesh(np.array(devices), ("rows",)), PartitionSpec("rows"))
    graphs = len(steps.width)
    log_z, held = np.zeros(graphs), np.ones(graphs, bool)
    p, joint = np.full(len(steps.variable), np.nan), np.full((len(steps.arc_to), 4), np.nan)
    counts, slots = np.diff(steps.step_ptr), layout.slot_counts(steps)
    members: dict[SizeClass, list[int]] = {}
    for g in np.flatnonzero(chosen & (counts > 0)).tolist():
        members.setdefault(SizeClass.of(int(slots[g]), int(counts[g]), tile_bytes, len(devices)), []).append(g)
    running = []  # the device works on one tile while the host fills the next
    for size in sorted(members):
        for start in range(0, len(members[size]), size.rows):
            part = np.array(members[size][start : start + size.rows])
            unary = np.full((size.rows, size.steps, 2), 0.5, np.float32)
            factors = np.ones((size.rows, size.steps, 2, size.slots, 2), np.float32)
            closes = np.full((size.rows, size.steps), -1, np.int32)
            scale = layout.fill_tile(steps, weights, part, unary, factors, closes)
            with _one_at_a_time:
                tile = jax.device_put((unary, factors, closes), by_row)
                running.append((part, scale, sweep(*tile)))
    for part, scale, swept in running:
        log_z[part] = scale + np.asarray(swept.log_scale, np.float64)[: len(part)]
        held[part] = np.asarray(swept.held)[: len(part)]
        layout.empty_tile(steps, weights, part, np.asarray(swept.p), np.asarray(swept.joint), p, joint)
    return log_z, p, joint, held
