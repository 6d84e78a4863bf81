"""The fit of a calibration and its figures (SPEC 9), against oracles by hand and known distortions."""

from __future__ import annotations

import numpy as np
import pytest
from biased_model import BIASES, TEMPERATURE, distorted
from hypothesis import given, settings
from hypothesis import strategies as st

from fcjax.evaluation.relation_figures import answers_of, figures_of, macro_f1
from fcjax.evaluation.vector_scaling import BIAS_SD, LOG_TEMPERATURE_SD, cross_validated, fit, folds_of
from fcjax.stages.calibration import Calibration

BASE = Calibration(model="m", style="pairwise", template="relate.pairwise/1")


def posterior(calibration, q, labels):
    """The negative log posterior by SPEC 9's formula, one answer at a time."""
    total = 0.0
    for row, label in zip(q, labels, strict=True):
        scores = np.log(row) / calibration.temperature + calibration.biases
        total += np.log(np.exp(scores).sum()) - scores[label]
    prior = np.log(calibration.temperature) ** 2 / LOG_TEMPERATURE_SD**2
    return total + (prior + sum(b * b for b in calibration.biases) / BIAS_SD**2) / 2


def test_the_fit_recovers_a_known_distortion():
    q, labels = distorted(2000)
    made = fit(BASE, q, labels)
    assert made.temperature == pytest.approx(TEMPERATURE, rel=0.1)
    assert made.biases == pytest.approx(BIASES, abs=0.15)
    assert sum(made.biases) == pytest.approx(0, abs=1e-12)


def test_the_fit_is_an_optimum():
    q, labels = distorted(60, seed=3)
    made = fit(BASE, q, labels)
    best = posterior(made, q, labels)
    generator = np.random.default_rng(0)
    for _ in range(200):
        step = generator.normal(size=3) * 0.05
        biases = np.array(made.biases) + step - step.mean()
        other = Calibration(
            model="m", style="pairwise", template="t",
            temperature=made.temperature * np.exp(generator.normal() * 0.05), biases=tuple(biases),
        )  # fmt: skip
        assert posterior(other, q, labels) >= best - 1e-6


def test_calibration_mends_log_loss_and_calibration_error_out_of_fold():
    q, labels = distorted(2000, seed=1)
    groups = [str(i // 2) for i in range(2000)]
    answers = q.argmax(axis=1)
    raw = figures_of(q, answers, labels, groups, resamples=50)
    made = cross_validated(BASE, q, labels, groups)
    scaled = figures_of(made, answers_of(made, answers), labels, groups, resamples=50)
    assert scaled.log_loss < 0.6 * raw.log_loss
    assert scaled.ece < 0.05 < 0.2 < raw.ece
    assert scaled.accuracy > raw.accuracy + 0.05
    assert scaled.ece < 1.6 * scaled.ece_by_chance
    assert scaled.mean == pytest.approx(scaled.shares, abs=0.01)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_calibrated_answers_are_hardly_changed(seed):
    generator = np.random.default_rng(seed)
    q = generator.dirichlet([0.8] * 3, 1500)
    labels = np.array([generator.choice(3, p=p) for p in q])
    made = fit(BASE, q, labels)
    assert made.temperature == pytest.approx(1, abs=0.2)
    assert made.biases == pytest.approx((0, 0, 0), abs=0.3)
    assert np.abs(made.apply_all(q) - q).max() < 0.1


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_a_few_answers_that_are_all_right_do_not_make_it_certain(labels):
    q = np.full((len(labels), 3), 0.1)
    q[np.arange(len(labels)), labels] = 0.8
    made = fit(BASE, q, np.array(labels))
    assert 0.3 < made.temperature < 1.5
    assert max(map(abs, made.biases)) < 3


def test_without_a_temperature_the_biases_alone_are_fitted():
    q, labels = distorted(300)
    made = fit(BASE, q, labels, temperature=False)
    assert made.temperature == 1
    assert made.biases[1] > 0.5


def test_folds_keep_groups_together_and_do_not_depend_on_the_order():
    groups = [f"g{i % 23}" for i in range(100)]
    folds = folds_of(groups)
    assert set(folds) == set(range(5))
    for group in set(groups):
        assert len({fold for fold, one in zip(folds, groups, strict=True) if one == group}) == 1
    backwards = folds_of(groups[::-1])[::-1]
    np.testing.assert_array_equal(folds, backwards)
    assert np.bincount(folds_of(sorted(set(groups)))).max() == 5  # of 23 groups
    assert sorted(folds_of(["a", "b", "c"])) == [0, 1, 2]  # fewer than five: one at a time


def test_an_answer_is_calibrated_without_its_own_label():
    q, labels = distorted(40)
    groups = [str(i) for i in range(40)]
    made = cross_validated(BASE, q, labels, groups)
    folds = folds_of(groups)
    other = labels.copy()
    other[folds == 2] = (other[folds == 2] + 1) % 3
    again = cross_validated(BASE, q, other, groups)
    np.testing.assert_array_equal(made[folds == 2], again[folds == 2])
    assert not np.array_equal(made[folds == 1], again[folds == 1])
    assert cross_validated(BASE, q, labels, ["one"] * 40) is None


# Figures


def one_sided(p, answer):
    rest = (1 - p) / 2
    return [p if i == answer else rest for i in range(3)]


def test_calibration_error_by_hand():
    # 30 answers in 15 bins of 2, from the least probable on: |mean p - share right| of each.
    p = np.linspace(0.4, 0.98, 30)
    generator = np.random.default_rng(0)
    answers, right = generator.integers(0, 3, 30), generator.random(30) < 0.6
    labels = np.where(right, answers, (answers + 1) % 3)
    order = generator.permutation(30)
    q = np.array([one_sided(p[i], answers[i]) for i in order])
    found = figures_of(q, answers[order], labels[order], [str(i) for i in range(30)], resamples=20)
    by_hand = sum(
        2 / 30 * abs((p[k] + p[k + 1]) / 2 - (int(right[k]) + int(right[k + 1])) / 2) for k in range(0, 30, 2)
    )
    assert found.ece == pytest.approx(by_hand)
    assert [one.n for one in found.bins] == [2] * 15
    assert found.accuracy == pytest.approx(right.mean())


def test_equally_probable_answers_count_alike_whatever_their_order():
    answers = np.zeros(40, np.int64)
    q = np.array([one_sided(0.9, 0)] * 40)
    for labels in (np.array([0] * 20 + [1] * 20), np.array([0, 1] * 20)):
        found = figures_of(q, answers, labels, [str(i) for i in range(40)], resamples=20)
        assert found.ece == pytest.approx(0.4)


def test_macro_f1_and_confusion_by_hand():
    labels = np.array([0, 0, 0, 1, 1, 2])
    answers = np.array([0, 0, 1, 1, 2, 2])
    q = np.array([one_sided(0.8, a) for a in answers])
    found = figures_of(q, answers, labels, list("abcdef"), resamples=20)
    assert found.confusion == ((2, 1, 0), (0, 1, 1), (0, 0, 1))
    assert found.macro_f1 == pytest.approx((4 / 5 + 2 / 4 + 2 / 3) / 3)
    assert found.accuracy == pytest.approx(4 / 6)
    assert found.log_loss == pytest.approx(-(4 * np.log(0.8) + 2 * np.log(0.1)) / 6)
    assert macro_f1(np.array([[[3.0, 0, 0], [0, 0, 0], [0, 0, 0]]])) == pytest.approx([1.0])  # others: not given


def test_intervals_draw_the_pairs_of_a_premise_together():
    generator = np.random.default_rng(0)
    per_premise = 20
    right = np.repeat(generator.random(30) < 0.5, per_premise)  # all pairs of a premise are right, or none
    answers = np.zeros(600, np.int64)
    labels = np.where(right, 0, 1)
    q = np.array([one_sided(0.6, 0)] * 600)
    together = figures_of(q, answers, labels, [str(i // per_premise) for i in range(600)])
    apart = figures_of(q, answers, labels, [str(i) for i in range(600)])
    widths = [one.intervals["accuracy"][1] - one.intervals["accuracy"][0] for one in (together, apart)]
    assert widths[0] == pytest.approx(widths[1] * np.sqrt(per_premise), rel=0.3)
    assert figures_of(q, answers, labels, ["one"] * 600).intervals == {}
    assert together == figures_of(q, answers, labels, [str(i // per_premise) for i in range(600)])  # seeded


def test_figures_without_usable_probabilities_are_those_of_labels():
    labels = np.array([0, 1, 2, 0])
    q = np.array([one_sided(0.9, a) for a in labels])
    found = figures_of(q, labels, labels, list("abcd"), usable=False, resamples=20)
    assert (found.log_loss, found.ece, found.ece_by_chance, found.bins) == (None, None, None, ())
    assert found.accuracy == found.macro_f1 == 1
    assert found.intervals.keys() == {"accuracy", "macro_f1"}
