"""`jax.grad` of log Z and of posteriors, against JAX's own derivative of plain enumeration and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import preset
from samples import clique, star

from fcjax.differentiable import LogWeights, log_weights, log_z, posteriors

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
    value, expected = function(weights), plain(weights)
    assert np.allclose(value, expected, atol=1e-5, rtol=1e-5)
    direction = jnp.asarray(np.random.default_rng(0).normal(size=value.shape), value.dtype)
    mine = jax.jit(jax.grad(lambda w: (function(w) * direction).sum()))(weights)
    theirs = jax.grad(lambda w: (plain(w) * direction).sum())(weights)
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
