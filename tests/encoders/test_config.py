"""config.json: families, faults, both spellings of ModernBERT, and which logit means what."""

from __future__ import annotations

import numpy as np
import pytest
from encoders import GOLDEN, TINY, golden

from fcjax import InputError
from fcjax.core.records import RelationType
from fcjax.encoders.config import LogitLabels, read_config, read_labels
from fcjax.kernels.encoders.architecture import DebertaV2, ModernBert, Roberta


def faults(config):
    with pytest.raises(InputError) as caught:
        read_config(config)
    return {fault.field: fault.message for fault in caught.value.faults}


def named(*names):
    return {"id2label": {str(number): name for number, name in enumerate(names)}}


@pytest.mark.parametrize("name", GOLDEN)
def test_configs_of_transformers_are_read(name):
    model = golden(name)
    found = read_config(model.config)
    assert found.vocabulary == model.config["vocab_size"]
    if "logits" in model.answers:
        assert found.classes == model.answers["logits"].shape[1]


def test_deberta_v3_as_the_hub_has_it():
    config = {
        "model_type": "deberta-v2",
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "layer_norm_eps": 1e-7,
        "max_relative_positions": -1,
        "position_biased_input": False,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "type_vocab_size": 0,
        "vocab_size": 128100,
    }
    found = read_config(config)
    assert isinstance(found, DebertaV2)
    assert (found.span, found.furthest, found.types, found.kernel, found.longest) == (256, 512, 0, 0, 512)
    assert found.content_to_position
    assert found.position_to_content
    assert found.share_projections
    assert found.norm_positions
    assert not found.absolute_positions


def test_roberta_counts_positions_after_padding():
    found = read_config({**TINY["roberta"], "max_position_embeddings": 514})
    assert isinstance(found, Roberta)
    assert found.longest == 512


def test_both_spellings_of_modernbert():
    older = {
        **TINY["modernbert"],
        "global_attn_every_n_layers": 2,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
    }
    newer = {
        **TINY["modernbert"],
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    }
    found = read_config(older)
    assert isinstance(found, ModernBert)
    assert found == read_config(newer)
    assert found.local == (False, True, False)
    assert (found.reach, found.theta, found.local_theta) == (4, 160000.0, 10000.0)
    assert read_config({**older, "local_rope_theta": None}).local_theta == 160000.0


@pytest.mark.parametrize("found", ["t5", None, 3])
def test_an_unknown_family_names_those_allowed(found):
    message = faults({**TINY["bert"], "model_type": found})["model_type"]
    assert message == f"found {found!r}; expected one of bert, roberta, xlm-roberta, deberta-v2, modernbert"


def test_all_faults_are_found_at_once():
    config = {**TINY["bert"], "hidden_size": 15, "vocab_size": "many", "hidden_act": "mish", "hidden_dropout_prob": 1.5}
    config |= {"position_embedding_type": "relative_key", "is_decoder": True, "add_cross_attention": True}
    config |= {"layer_norm_eps": float("nan"), "type_vocab_size": True}
    del config["intermediate_size"]
    found = faults(config)
    assert set(found) == {
        *("num_attention_heads", "vocab_size", "hidden_act", "hidden_dropout_prob", "position_embedding_type"),
        *("is_decoder", "add_cross_attention", "layer_norm_eps", "type_vocab_size", "intermediate_size"),
    }
    assert found["intermediate_size"] == "found nothing; expected a whole number from 1 to 2147483647"
    assert found["num_attention_heads"] == "found 2; expected a divisor of hidden_size, 15"
    assert found["position_embedding_type"].startswith("found 'relative_key'; expected 'absolute'")


@pytest.mark.parametrize(
    ("family", "changes", "field"),
    [
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings"),
        ("roberta", {"pad_token_id": None}, "pad_token_id"),
        ("deberta", {"pos_att_type": "p2p|c2p"}, "pos_att_type"),
        ("deberta", {"position_buckets": 80}, "position_buckets"),
        ("deberta", {"pooler_hidden_size": 8}, "pooler_hidden_size"),
        ("deberta-conv", {"conv_kernel_size": 4}, "conv_kernel_size"),
        ("deberta-conv", {"conv_groups": 3}, "conv_groups"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types"),
        ("modernbert", {"layer_types": ["full_attention", "linear", "full_attention"]}, "layer_types"),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling"),
        ("modernbert", {"num_attention_heads": 16}, "num_attention_heads"),
        ("modernbert", {"global_rope_theta": -1}, "global_rope_theta"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_parameters.full_attention.rope_type",
        ),
    ],
)
def test_options_that_are_not_supported(family, changes, field):
    assert set(faults({**TINY[family], **changes})) == {field}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("entailment", "neutral", "contradiction"), (0, 1, 2)),
        (("CONTRADICTION", "Neutral", "ENTAILMENT"), (2, 1, 0)),
        (("SUPPORTS", "REFUTES", "NOT ENOUGH INFO"), (0, 2, 1)),
        (("Refuted", "not_enough_info", "Supported"), (2, 1, 0)),
        (("False", "Neither", "True"), (2, 1, 0)),
        (("not_entailment", "entailment"), (1, 0, None)),
        (("supported", "unsupported"), (0, 1, None)),
        (("Entailment", "Not-Entailment"), (0, 1, None)),
        (("True", "False"), (0, 1, None)),
        (("neutral", "entailment"), (1, 0, None)),
    ],
)
def test_names_of_labels(names, expected):
    assert read_labels(named(*names)) == LogitLabels(*expected)
    backwards = {"label2id": {name: number for number, name in reversed(list(enumerate(names)))}}
    assert read_labels(backwards) == LogitLabels(*expected)


def test_numbers_of_labels_in_any_order():
    assert read_labels({"id2label": {2: "entailment", 0: "contradiction", 1: "neutral"}}) == LogitLabels(2, 1, 0)
    with pytest.raises(InputError, match=r"found the numbers \['1', '2'\]; expected 0 to 1"):
        read_labels({"id2label": {"1": "entailment", "2": "not_entailment"}})


@pytest.mark.parametrize(
    "names",
    [
        ("LABEL_0", "LABEL_1", "LABEL_2"),
        ("LABEL_0", "LABEL_1"),
        ("positive", "negative"),
        ("entailment", "entailment", "neutral"),
        ("entailment", "contradiction"),
        ("entailment", "neutral", "contradiction", "other"),
        ("entailment",),
    ],
)
def test_unknown_names_say_what_to_write(names):
    with pytest.raises(
        InputError, match='id2label: found the labels .* expected names such as .*"0": "entailment"'
    ) as caught:
        read_labels(named(*names))
    assert str(list(names)) in str(caught.value)


def test_labels_that_are_missing():
    with pytest.raises(InputError, match="id2label: found nothing; expected names such as"):
        read_labels({})


def test_distribution_is_in_the_order_of_the_relation_types():
    found = LogitLabels(2, 1, 0).distribution(np.log([[1.0, 2.0, 5.0], [6.0, 3.0, 1.0]]).astype(np.float32))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [[5 / 8, 1 / 8, 2 / 8], [0.1, 0.6, 0.3]], atol=1e-6)
    two = LogitLabels(1, 0).distribution(np.array([[0.0, np.log(3)], [1000.0, -1000.0]]))
    np.testing.assert_allclose(two, [[0.75, 0, 0.25], [0, 0, 1]], atol=1e-12)
    assert np.isnan(LogitLabels(1, 0).distribution(np.array([[np.nan, 1.0]]))).all()
    assert LogitLabels(1, 0).distribution(np.zeros((0, 2))).shape == (0, 3)
    with pytest.raises(ValueError, match=r"found logits of shape \(1, 2\); expected \(n, 3\)"):
        LogitLabels(2, 1, 0).distribution(np.zeros((1, 2)))


def test_logit_of_a_relation_type():
    three, two = LogitLabels(2, 1, 0), LogitLabels(1, 0)
    order = (RelationType.ENTAILMENT, RelationType.CONTRADICTION, RelationType.NEUTRAL)
    assert [three.index(relation) for relation in order] == [2, 0, 1]
    assert [two.index(relation) for relation in order] == [1, 0, 0]
