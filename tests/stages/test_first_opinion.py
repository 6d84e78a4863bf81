"""The first opinion on a pair from a cosine: its distributions, its JSON, and its fit to labelled pairs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fcjax.core.errors import InputError
from fcjax.evaluation.opinion_fit import cross_validated_opinion, fit_opinion
from fcjax.evaluation.vector_scaling import folds_of
from fcjax.stages.first_opinion import CosineOpinion

KNOWN = CosineOpinion(embedding="e", coefficients=((-1.0, -1.5, 2.5), (3.0, 2.0, -5.0), (2.0, -1.0, -1.0)), n_pairs=7)


def pairs_of(n, seed=0, opinion=KNOWN):
    """Cosines, and labels drawn from what the opinion says of them."""
    generator = np.random.default_rng(seed)
    cosines = generator.uniform(-0.2, 1, n)
    return cosines, np.array([generator.choice(3, p=q / q.sum()) for q in opinion.apply_all(cosines)])


def test_the_distribution_is_the_formula():
    for c in (-1.0, 0.0, 0.37, 1.0):
        weights = [np.exp(a + b * c + d * c * c) for a, b, d in zip(*KNOWN.coefficients, strict=True)]
        assert KNOWN.apply_all(np.array([c]))[0] == pytest.approx(np.array(weights) / sum(weights), abs=3e-6)
    found = KNOWN.apply_all(np.linspace(-1, 1, 50, dtype=np.float32))
    assert (found.shape, found.dtype) == ((50, 3), np.float64)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    assert KNOWN.apply_all(np.zeros(0)).shape == (0, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.1, -2.0])
def test_a_cosine_that_cannot_be_is_refused(bad):
    with pytest.raises(InputError, match="numbers from -1 to 1"):
        KNOWN.apply_all(np.array([0.5, bad]))
    with pytest.raises(InputError):
        fit_opinion(np.array([0.5, bad]), np.array([0, 1]), "e")


def test_rounding_beyond_1_is_no_fault():
    np.testing.assert_array_equal(KNOWN.apply_all(np.array([1.0000001])), KNOWN.apply_all(np.array([1.0])))


def test_a_cosine_beyond_those_that_were_fitted_counts_as_the_nearest():
    cosines, labels = pairs_of(50)
    made = fit_opinion(cosines, labels, "e")
    assert made.span == (cosines.min(), cosines.max())
    np.testing.assert_array_equal(made.apply_all(np.array([-1.0])), made.apply_all(np.array([cosines.min()])))
    assert CosineOpinion.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_json_is_read_back():
    assert CosineOpinion.from_dict(json.loads(json.dumps(KNOWN.to_dict()))) == KNOWN


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"embedding": ""}, "embedding"),
        ({"embedding": None}, "embedding"),
        ({"n_pairs": -1}, "n_pairs"),
        ({"span": [0.5]}, "span"),
        ({"span": [0.5, 0.1]}, "span"),
        ({"span": [-2, 0.1]}, "span"),
        ({"span": "no"}, "span"),
        ({"coefficients": None}, "coefficients"),
        ({"coefficients": KNOWN.to_dict()["coefficients"] | {"cosine": None}}, "cosine"),
        ({"coefficients": KNOWN.to_dict()["coefficients"] | {"square": [1, 2, 3]}}, "square"),
        (
            {"coefficients": KNOWN.to_dict()["coefficients"] | {"constant": {"entailment": float("nan")}}},
            "constant",
        ),
    ],
)
def test_faulty_json_is_refused_by_its_field(change, field):
    with pytest.raises(InputError) as caught:
        CosineOpinion.from_dict(KNOWN.to_dict() | change)
    assert [fault.field for fault in caught.value.faults] == [field]


@pytest.mark.parametrize("data", [None, [], "x"])
def test_what_is_no_object_is_refused(data):
    with pytest.raises(InputError, match="not an object"):
        CosineOpinion.from_dict(data)


def test_the_fit_recovers_known_distributions():
    cosines, labels = pairs_of(4000)
    made = fit_opinion(cosines, labels, "e")
    assert (made.embedding, made.n_pairs) == ("e", 4000)
    at = np.linspace(-0.2, 1, 25)
    np.testing.assert_allclose(made.apply_all(at), KNOWN.apply_all(at), atol=0.06)
    np.testing.assert_allclose(np.sum(made.coefficients, axis=1), 0, atol=1e-9)


def test_the_fit_does_not_depend_on_the_order_of_pairs():
    cosines, labels = pairs_of(200)
    order = np.random.default_rng(1).permutation(200)
    one, other = fit_opinion(cosines, labels, "e"), fit_opinion(cosines[order], labels[order], "e")
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-4)


@pytest.mark.parametrize(
    ("cosines", "labels"), [([], []), ([0.5], [0]), ([0.5] * 9, [0, 1, 2] * 3), ([0.1, 0.9] * 4, [2] * 8)]
)
def test_thin_or_equal_cosines_give_a_moderate_opinion(cosines, labels):
    made = fit_opinion(np.array(cosines, float), np.array(labels, np.int64), "e")
    q = made.apply_all(np.array([0.1, 0.5, 0.9]))
    assert np.isfinite(q).all()
    assert q.max() < 0.99


def test_a_pair_is_judged_without_its_own_label():
    cosines, labels = pairs_of(60)
    groups = [str(i) for i in range(60)]
    made = cross_validated_opinion(cosines, labels, groups)
    inside = folds_of(groups) == 1
    other = np.where(inside, (labels + 1) % 3, labels)
    again = cross_validated_opinion(cosines, other, groups)
    np.testing.assert_array_equal(made[inside], again[inside])
    assert not np.array_equal(made[~inside], again[~inside])
    assert cross_validated_opinion(cosines, labels, ["one"] * 60) is None
