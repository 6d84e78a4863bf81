"""Encoders by themselves: padding changes nothing, empty rows are finite, dropout, gradients, and their parts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from encoders import TINY, random_inputs, random_network
from flax import nnx

from fcjax.kernels.encoders.deberta import bucketed, slid
from fcjax.kernels.encoders.modernbert import waves
from fcjax.kernels.encoders.parts import ACTIVATIONS, MASKED, Norm, attend, drop, masked, mean_pool, unit

FAMILIES = sorted(TINY)


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_and_other_rows_change_nothing(family):
    network, (ids, mask, types) = random_network(family), random_inputs(family)
    together = np.asarray(network.logits(ids, mask, types))
    wide = [
        np.pad(array, ((0, 0), (0, 7)), constant_values=pad)
        for array, pad in ((ids, ids[2, -1]), (mask, 0), (types, 0))
    ]
    np.testing.assert_allclose(network.logits(*wide), together, atol=2e-5)
    alone = network.logits(ids[1:2, :17], mask[1:2, :17], types[1:2, :17])
    np.testing.assert_allclose(alone, together[1:2], atol=2e-5)
    assert np.abs(together - together[0]).max() > 0.01  # rows differ, so the comparison can fail


@pytest.mark.parametrize("family", FAMILIES)
def test_what_stands_in_padding_is_not_read(family):
    network, (ids, mask, types) = random_network(family), random_inputs(family)
    before = np.asarray(network.logits(ids, mask, types))
    pad = TINY[family].get("pad_token_id", 0)
    other = np.where(mask > 0, ids, 7 if family != "roberta" else pad).astype(np.int32)
    np.testing.assert_allclose(network.logits(other, mask, types), before, atol=2e-5)
    assert np.abs(np.asarray(network.logits(np.where(mask > 0, 7, ids), mask, types)) - before).max() > 0.01


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_with_no_token_is_finite_and_leaves_the_others_alone(family, dtype):
    network = random_network(family)
    network.module.dtype = dtype
    ids, mask, types = random_inputs(family)
    full = np.asarray(network.logits(ids, mask, types))
    mask[1] = 0
    emptied = np.asarray(network.logits(ids, mask, types))
    assert np.isfinite(emptied).all()
    np.testing.assert_allclose(emptied[[0, 2]], full[[0, 2]], atol=1e-6)
    assert np.isfinite(network.hidden(ids, mask, types)).all()
    vectors = np.asarray(network.embed(ids, mask, types))
    np.testing.assert_array_equal(vectors[1], 0)
    np.testing.assert_allclose(np.linalg.norm(vectors[[0, 2]], axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_is_near(family):
    network, inputs = random_network(family, deviation=0.1), random_inputs(family)
    exact = np.asarray(network.logits(*inputs))
    network.module.dtype = "bfloat16"
    rounded = np.asarray(network.logits(*inputs))
    assert rounded.dtype == np.float32
    assert 0 < np.abs(rounded - exact).max() < 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_needs_a_key(family):
    module, inputs = random_network(family).module, random_inputs(family)
    graph, weights = nnx.split(module)
    run = jax.jit(lambda key: nnx.merge(graph, weights)(*inputs, key=key))
    calm, one, two = (np.asarray(run(key)) for key in (None, jax.random.key(0), jax.random.key(1)))
    np.testing.assert_array_equal(one, run(jax.random.key(0)))
    assert np.abs(one - calm).max() > 1e-3
    assert np.abs(one - two).max() > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_finite_and_reach_every_weight(family):
    module, (ids, mask, types) = random_network(family).module, random_inputs(family)
    graph, weights = nnx.split(module, nnx.Param)

    def loss(weights, mask):
        logits = nnx.merge(graph, weights)(ids, mask, types)
        return jnp.mean(jax.nn.log_softmax(logits)[:, 0])

    gradient = jax.jit(jax.grad(loss))
    for path, leaf in nnx.to_flat_state(gradient(weights, mask)):
        size = np.abs(leaf[...]).max()
        assert np.isfinite(size), path
        assert size > 0, path
    mask[1] = 0
    emptied = jax.tree.leaves(gradient(weights, mask))
    assert all(np.isfinite(leaf).all() for leaf in emptied)


@pytest.mark.parametrize("family", FAMILIES)
def test_more_layers_are_no_more_to_compile(family):
    inputs = random_inputs(family)
    sizes = set()
    for layers in (4, 9):
        graph, weights = nnx.split(random_network(family, num_hidden_layers=layers).module)
        traced = jax.make_jaxpr(lambda weights, graph=graph: nnx.merge(graph, weights)(*inputs))(weights)
        sizes.add(str(traced).count("dot_general"))
    assert len(sizes) == 1


def test_slid_reads_scores_by_distance():
    scores = np.random.default_rng(0).normal(size=(2, 3, 5, 10)).astype(np.float32)
    found = np.asarray(slid(jnp.asarray(scores)))
    for i in range(5):
        for j in range(5):
            np.testing.assert_array_equal(found[..., i, j], scores[..., i, j - i + 4])


def test_buckets_are_exact_nearby_and_logarithmic_beyond():
    distance = np.arange(-511, 512)
    found = bucketed(distance, 256, 512)
    np.testing.assert_array_equal(found, -found[::-1])
    np.testing.assert_array_equal(found[np.abs(distance) <= 128], distance[np.abs(distance) <= 128])
    assert (np.diff(found) >= 0).all()
    # 128 + ceil(127 ln(x / 128) / ln(511 / 128)), the formula of the paper's code, by hand for three distances
    assert [int(found[511 + x]) for x in (129, 200, 511)] == [129, 169, 255]


def test_waves_turn_by_position_over_wavelength():
    wave = waves(50, 8, 100.0)
    assert wave.shape == (2, 50, 8)
    np.testing.assert_allclose(wave[0, 7], np.cos(7 * 100.0 ** -np.array([0, 0.25, 0.5, 0.75] * 2)), atol=1e-6)
    np.testing.assert_allclose(wave[1, 7], np.sin(7 * 100.0 ** -np.array([0, 0.25, 0.5, 0.75] * 2)), atol=1e-6)


def test_attention_is_the_mean_under_softmax():
    chance = np.random.default_rng(0)
    scores, values = chance.normal(size=(2, 3, 4, 4)) * 30, chance.normal(size=(2, 3, 4, 5))
    mask = np.array([[1, 1, 1, 0], [0, 0, 0, 0]])
    found = attend(jnp.asarray(scores, jnp.float32) + masked(jnp.asarray(mask)), jnp.asarray(values, jnp.float32))
    assert found.shape == (2, 4, 15)
    assert np.isfinite(found).all()
    kept = np.exp(scores[0] - scores[0].max(-1, keepdims=True)) * mask[0]
    expected = (kept / kept.sum(-1, keepdims=True)) @ values[0]
    np.testing.assert_allclose(found[0].reshape(4, 3, 5).transpose(1, 0, 2), expected, atol=1e-5)
    np.testing.assert_allclose(found[1, 0].reshape(3, 5), values[1].mean(1), atol=1e-5)  # equal weights
    assert float(masked(jnp.zeros((1, 1)))[0, 0, 0, 0]) == np.float32(MASKED)


def test_mean_pool_and_unit_vectors():
    hidden = jnp.asarray([[[1.0, 2.0], [3.0, 6.0], [50.0, 50.0]], [[9.0, 9.0]] * 3])
    pooled = mean_pool(hidden, jnp.asarray([[1, 1, 0], [0, 0, 0]]))
    np.testing.assert_allclose(pooled, [[2, 4], [0, 0]])
    np.testing.assert_allclose(unit(pooled), [[0.2**0.5, 0.8**0.5], [0, 0]], atol=1e-6)


def test_norm_is_computed_in_float32():
    x = jnp.asarray([[1000.0, 1004.0, 1008.0, 1012.0]])
    expected = np.array([[-3.0, -1.0, 1.0, 3.0]]) / 5**0.5
    np.testing.assert_allclose(Norm(4, 1e-12)(x), expected, atol=1e-5)
    rounded = Norm(4, 1e-12)(x.astype(jnp.bfloat16))
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_allclose(rounded.astype(jnp.float32), expected, rtol=2**-8)


def test_gelu_is_exact():
    x = jnp.linspace(-6, 6, 101)
    np.testing.assert_allclose(ACTIVATIONS["gelu"](x), jax.nn.gelu(x, approximate=False), atol=1e-6)
    assert np.abs(ACTIVATIONS["gelu"](x) - ACTIVATIONS["gelu_new"](x)).max() > 1e-4


def test_dropout_keeps_the_mean():
    dropped = np.asarray(drop(jnp.ones(100_000), 0.25, jax.random.key(0)))
    np.testing.assert_allclose(np.unique(dropped), [0, 4 / 3], rtol=1e-6)
    assert dropped.mean() == pytest.approx(1, abs=0.01)
