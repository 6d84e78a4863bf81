"""Networks: the answers of transformers, tensors by its names and back, faults of tensors, heads, and compiled code."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from encoders import GOLDEN, TINY, golden, random_inputs, random_network
from flax import nnx

from fcjax import InputError, SettingsError
from fcjax.encoders import network as module_under_test
from fcjax.encoders.network import Network

TOLERANCE = 2e-5  # ten times the worst that was seen; the issue allows 1e-4


def test_every_family_has_answers():
    types = {golden(name).config["model_type"] for name in GOLDEN}
    assert types == {"bert", "roberta", "xlm-roberta", "deberta-v2", "modernbert"}


@pytest.mark.parametrize("name", GOLDEN)
def test_network_answers_as_transformers_does(name):
    model = golden(name)
    network = Network.of(model.config, model.tensors)
    tokens = model.answers["mask"] > 0
    layers = np.asarray(network.every_hidden(*model.inputs))
    assert len(layers) == model.config["num_hidden_layers"] + 1
    np.testing.assert_allclose(layers[-2][tokens], model.answers["last_layer"][tokens], atol=TOLERANCE)
    if "logits" in model.answers:
        assert network.classes == model.answers["logits"].shape[1]
        np.testing.assert_allclose(network.logits(*model.inputs), model.answers["logits"], atol=TOLERANCE)
    else:
        assert network.classes == 0
        found = np.asarray(network.hidden(*model.inputs))
        np.testing.assert_allclose(found[tokens], model.answers["hidden"][tokens], atol=TOLERANCE)


@pytest.mark.parametrize("name", GOLDEN)
def test_tensors_come_back_by_the_names_of_transformers(name):
    model = golden(name)
    written = Network.of(model.config, model.tensors).tensors()
    assert set(written) == set(model.tensors)
    for key, tensor in written.items():
        assert tensor.dtype in (np.float32, model.tensors[key].dtype)
        np.testing.assert_array_equal(tensor, model.tensors[key], err_msg=key)


def test_prefixes_and_old_names_of_norms_are_read():
    model = golden("bert")
    renamed = {
        name.removeprefix("bert.")
        .replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in model.tensors.items()
    }
    assert not set(renamed) & {name for name in model.tensors if name.startswith("bert.")}
    renamed["embeddings.position_ids"] = np.arange(64)
    renamed["cls.predictions.bias"] = np.full(3, np.nan, np.float32)  # a tensor that the network does not have
    found = Network.of(model.config, renamed).logits(*model.inputs)
    np.testing.assert_allclose(found, model.answers["logits"], atol=TOLERANCE)


def test_every_fault_of_the_tensors_is_named():
    model = golden("deberta-v3")
    tensors = dict(model.tensors)
    del tensors["deberta.encoder.rel_embeddings.weight"]
    tensors["deberta.encoder.layer.1.attention.self.key_proj.weight"] = np.zeros((16, 17), np.float32)
    broken = tensors["deberta.encoder.layer.2.output.dense.bias"].copy()
    broken[:2] = np.nan, np.inf
    tensors["deberta.encoder.layer.2.output.dense.bias"] = broken
    with pytest.raises(InputError) as caught:
        Network.of(model.config, tensors)
    assert sorted(str(fault) for fault in caught.value.faults) == [
        "encoder.layer.1.attention.self.key_proj.weight: "
        "found the shape (16, 17); expected (16, 16), as config.json says",
        "encoder.layer.2.output.dense.bias: found NaN or infinite numbers (2); expected none",
        "encoder.rel_embeddings.weight: the tensor is missing; expected one of shape (16, 16)",
    ]


@pytest.mark.parametrize("kind", ["bert", "roberta", "deberta-v3"])
def test_weights_of_more_layers_than_the_configuration_has_are_refused(kind):
    model = golden(kind)
    layers = model.config["num_hidden_layers"]
    with pytest.raises(
        InputError, match=f"num_hidden_layers: found {layers - 1} layers, and the weights have {layers}"
    ):
        Network.of({**model.config, "num_hidden_layers": layers - 1}, model.tensors)


def test_labels_and_classifier_must_agree():
    model = golden("bert")
    config = {**model.config, "id2label": {"0": "entailment", "1": "not_entailment"}}
    with pytest.raises(
        InputError, match=r"classifier.weight: found the shape \(3, 16\); expected \(2, 16\), one row per label"
    ):
        Network.of(config, model.tensors)


def test_a_folder_that_claims_a_head_must_have_it():
    model = golden("bert")
    tensors = {name: tensor for name, tensor in model.tensors.items() if not name.startswith("classifier")}
    with pytest.raises(InputError, match="classifier.weight: the tensor is missing"):
        Network.of(model.config, tensors)


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_a_fresh_head_is_seeded_and_leaves_the_encoder_alone(family):
    whole = random_network(family)
    inputs = random_inputs(family)
    encoder = {name: tensor for name, tensor in whole.tensors().items() if not name.startswith(("classifier", "head."))}
    alone = Network.of(TINY[family], encoder)
    assert alone.classes == 0
    with pytest.raises(SettingsError, match="no classification head"):
        alone.logits(*inputs)
    one, same, other = (alone.with_head(2, seed=seed) for seed in (0, 0, 1))
    assert one.classes == 2
    assert one.logits(*inputs).shape == (3, 2)
    np.testing.assert_array_equal(one.logits(*inputs), same.logits(*inputs))
    assert np.abs(one.logits(*inputs) - other.logits(*inputs)).max() > 1e-4
    np.testing.assert_array_equal(one.hidden(*inputs), whole.hidden(*inputs))
    assert set(one.tensors()) == set(whole.tensors())


def test_a_pooler_is_kept_for_a_fresh_head():
    model = golden("bert-alone")
    alone = Network.of(model.config, model.tensors)
    assert "pooler.dense.weight" in alone.tensors()
    headed = alone.with_head(3).tensors()
    np.testing.assert_array_equal(headed["bert.pooler.dense.weight"], model.tensors["pooler.dense.weight"])
    assert headed["classifier.weight"].std() == pytest.approx(0.02, rel=0.3)


def test_positions_that_can_be_used():
    lengths = {family: random_network(family).max_length for family in TINY}
    assert lengths == {"bert": 40, "roberta": 38, "deberta": 40, "deberta-conv": 40, "modernbert": 40}
    ids = np.full((1, 39), 5, np.int32)
    with pytest.raises(SettingsError, match="found an input of 39 tokens; expected at most 38"):
        random_network("roberta").logits(ids, ids, ids)


def test_weights_that_are_trained_count_at_once():
    network, inputs = random_network("bert"), random_inputs("bert")
    before = np.asarray(network.logits(*inputs))
    network.module.head.classes.bias[...] = network.module.head.classes.bias[...] + 1.0
    np.testing.assert_allclose(network.logits(*inputs), before + 1, atol=1e-5)


def test_networks_of_one_shape_share_compiled_code():
    inputs = random_inputs("bert")
    random_network("bert").logits(*inputs)
    compiled = module_under_test._compiled._cache_size()
    random_network("bert", seed=5).logits(*inputs)
    assert module_under_test._compiled._cache_size() == compiled


def test_weights_are_kept_and_computed_in_the_dtypes_asked_for():
    model = golden("roberta")
    small = Network.of(model.config, model.tensors, dtype="bfloat16")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(nnx.split(small.module)[1])} == {"bfloat16"}
    mixed = Network.of(model.config, model.tensors, dtype="bfloat16", weights="float32")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(nnx.split(mixed.module)[1])} == {"float32"}
    for network in (small, mixed):
        found = np.asarray(network.logits(*model.inputs))
        assert found.dtype == np.float32
        assert 0 < np.abs(found - model.answers["logits"]).max() < 0.1
    headed = small.with_head(2)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(nnx.split(headed.module)[1])} == {"bfloat16"}


def test_weights_can_be_placed_on_a_device():
    network, inputs = random_network("modernbert"), random_inputs("modernbert")
    device = jax.devices()[-1]
    placed = network.placed(device)
    assert {next(iter(leaf.devices())) for leaf in jax.tree.leaves(nnx.split(placed.module)[1])} == {device}
    np.testing.assert_array_equal(placed.logits(*inputs), network.logits(*inputs))
