"""`jax.grad` of log Z and of posteriors, against JAX's own derivative of plain enumeration and finite differences."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import preset
from samples import TYPES, atom, clique, context, edge, star

from fcjax import FactGraph, Limits, infer
from fcjax.inference.grad import LogWeights, log_weights, log_z, posteriors

GRAPHS = [preset(clique(5), "paper")[0], preset(star(3), "release")[0]]
VARIABLES = [len(graph) for graph in GRAPHS]
FACTORS = [len(graph.ends) for graph in GRAPHS]


def states(count: int) -> np.ndarray:
    return (np.arange(2**count)[:, None] >> np.arange(count)) & 1


def enumerated(weights: LogWeights, g: int) -> tuple[jax.Array, jax.Array]:
    """(log Z, P(true)) of graph g by adding up all states, in JAX."""
    x = states(VARIABLES[g])
    unary = weights.unary[sum(VARIABLES[:g]) : sum(VARIABLES[: g + 1])]
    tables = weights.tables[sum(FACTORS[:g]) : sum(FACTORS[: g + 1])]
    total = unary[np.arange(VARIABLES[g]), x].sum(axis=1)
    for f, (s, t) in enumerate(GRAPHS[g].ends.tolist()):
        total = total + tables[f][x[:, s], x[:, t]]
    return jax.scipy.special.logsumexp(total), jax.nn.softmax(total) @ x


def plain_log_z(weights: LogWeights) -> jax.Array:
    return jnp.stack([enumerated(weights, g)[0] for g in range(len(GRAPHS))])


def plain_posteriors(weights: LogWeights) -> jax.Array:
    return jnp.concatenate([enumerated(weights, g)[1] for g in range(len(GRAPHS))])


@pytest.mark.parametrize(("ours", "plain"), [(log_z, plain_log_z), (posteriors, plain_posteriors)])
def test_values_and_derivatives_are_those_of_enumeration(ours: object, plain: object) -> None:
    weights = log_weights(GRAPHS)
    function = ours(GRAPHS)
    value, expected = function(weights), jax.jit(plain)(weights)
    assert np.allclose(value, expected, atol=1e-5, rtol=1e-5)
    direction = np.random.default_rng(0).normal(size=value.shape).astype(value.dtype)
    mine, theirs = (jax.jit(jax.grad(lambda w, f=f: (f(w) * direction).sum()))(weights) for f in (function, plain))
    for a, b in zip(mine, theirs, strict=True):
        assert np.allclose(a, b, atol=2e-5)
        assert np.abs(b).max() > 1e-3  # there was something to find


def test_a_step_along_the_gradient_raises_the_posterior() -> None:
    weights = log_weights(GRAPHS)
    function = posteriors(GRAPHS)
    gradient = jax.grad(lambda w: function(w)[0])(weights)
    step = jax.tree.map(lambda w, g: w + 1e-2 * g, weights, gradient)
    rise = float(function(step)[0] - function(weights)[0])
    squared = sum(float((g**2).sum()) for g in gradient)
    assert rise == pytest.approx(1e-2 * squared, rel=0.05, abs=1e-6)


def test_evidence_has_no_gradient_and_failed_rows_have_none_to_give() -> None:
    observed = replace(GRAPHS[0], evidence={GRAPHS[0].ids[0]: True})
    torn = FactGraph.from_dict(
        {"nodes": [atom("a"), context("c", 1.0)], "edges": [edge("c", "a", kind, 1.0) for kind in TYPES[:2]]}
    )
    wide, _ = preset(clique(9))
    batch, limits = [observed, torn, wide], Limits(exact_width=5)
    weights = log_weights(batch)
    value = log_z(batch, limits)(weights)
    assert value[0] == pytest.approx(infer([observed])[0].log_z, abs=1e-5)
    assert value[1] == -jnp.inf
    assert jnp.isnan(value[2])
    ours, theirs = log_z(batch, limits), log_z([observed])
    mine = jax.grad(lambda w: ours(w)[0])(weights)
    alone = jax.grad(lambda w: theirs(w)[0])(log_weights([observed]))
    assert np.array_equal(mine.unary[: len(observed)], alone.unary)
    assert mine.unary[0].tolist() == [0.0, 1.0]


def test_many_weights_at_once() -> None:
    weights = log_weights(GRAPHS[1:])
    shifted = jax.tree.map(lambda w: jnp.stack([w, 0.5 * w]), weights)
    function = posteriors(GRAPHS[1:])
    each = [function(jax.tree.map(lambda w, i=i: w[i], shifted)) for i in range(2)]
    assert np.array_equal(jax.vmap(function)(shifted), jnp.stack(each))
    assert not np.allclose(each[0], each[1], atol=1e-3)
