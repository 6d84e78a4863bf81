"""The measures of SPEC 5, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.records import Label
from fcjax.scoring import human_labels as agreement
from fcjax.scoring.human_labels import LabelledAtom
from fcjax.scoring.measures import (
    AtomCounts,
    case_measures,
    comprehensiveness,
    f1_at_k,
    k_of,
    median_k,
    precision,
    recall_at_k,
    relative_gain,
)

S, R, U = Label.SUPPORTED, Label.REFUTED, Label.UNVERIFIED


def test_precision_recall_and_f1_of_three_supported_among_four_with_k_six():
    assert precision(3, 4) == 0.75
    assert recall_at_k(3, 6) == 0.5
    assert f1_at_k(3, 4, 6) == pytest.approx(2 * 0.75 * 0.5 / 1.25)


def test_recall_never_exceeds_one():
    assert recall_at_k(9, 6) == 1.0


def test_f1_is_zero_if_nothing_is_supported():
    assert f1_at_k(0, 4, 6) == 0.0


def test_without_atoms_there_are_no_measures():
    assert precision(0, 0) is None
    assert f1_at_k(0, 0, 6) is None
    assert case_measures(AtomCounts.of([]), 6) is None


def test_k_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        recall_at_k(3, 0.5)


@pytest.mark.parametrize(
    ("counts", "k"),
    [([3], 3), ([2, 9, 4], 4), ([4, 5], 4.5), ([0, 0, 0], 1), ([0, 1], 1), ([], 1), ([7, 1, 2, 9], 4.5)],
)
def test_k_is_the_median_number_of_atoms_and_at_least_one(counts, k):
    assert median_k(counts) == k


@pytest.mark.parametrize(("n", "k"), [(0, 1), (1, 1), (3, 1), (4, 2), (9, 4)])
def test_the_releases_k_is_half_the_atoms_of_each_response(n, k):
    assert k_of("release", n) == k
    assert k_of(6, n) == 6


def test_entropies_of_two_atoms():
    found = case_measures(AtomCounts.of([(0.5, U, False), (0.9, S, True)]), 2)
    assert found is not None
    assert found["e_measure"] == pytest.approx((0.5 * math.log10(2) - 0.9 * math.log10(0.9)) / 2)
    assert found["entropy"] == pytest.approx(0.5 * math.log(2) - 0.9 * math.log(0.9))
    assert found["avg_entropy"] == pytest.approx(found["entropy"] / 2)
    assert found["norm_entropy"] == pytest.approx(1 - 0.9 * math.log2(0.9) - 0.1 * math.log2(0.1))
    assert found["avg_norm_entropy"] == pytest.approx(found["norm_entropy"] / 2)


def test_certain_atoms_have_no_entropy():
    found = case_measures(AtomCounts.of([(0.0, R, True), (1.0, S, True)]), 2)
    assert found is not None
    assert [found[name] for name in ("e_measure", "entropy", "norm_entropy", "avg_norm_entropy")] == [0, 0, 0, 0]


def test_counts_of_a_case():
    atoms = [(0.9, S, True), (0.8, S, True), (0.1, R, True), (0.5, U, False), (0.5, U, True)]
    found = case_measures(AtomCounts.of(atoms), 4)
    assert found is not None
    expected = {"n_atoms": 5, "n_supported": 2, "n_refuted": 1, "n_unverified": 2, "verifiability": 4, "k": 4}
    assert found.items() >= expected.items()
    assert found["precision"] == 0.4
    assert found["recall_at_k"] == 0.5
    assert found["verifiability_share"] == 0.8


def test_worst_and_best_measures_with_failed_atoms():
    tally = AtomCounts.of([(0.9, S, True), (0.1, R, True)])
    worst, best = case_measures(tally.worst(2), 3), case_measures(tally.best(2), 3)
    assert worst is not None
    assert best is not None
    assert (worst["precision"], best["precision"]) == (0.25, 0.75)
    assert (worst["recall_at_k"], best["recall_at_k"]) == (pytest.approx(1 / 3), 1.0)
    assert (worst["verifiability_share"], best["verifiability_share"]) == (0.5, 1.0)
    assert worst["norm_entropy"] == pytest.approx(tally.norm_entropy + 2)


probabilities = st.floats(0, 1)
atoms = st.lists(st.tuples(probabilities, st.booleans()).map(lambda a: (a[0], Label.of(a[0]), a[1])), max_size=6)


@given(atoms.filter(len), atoms, st.integers(1, 9))
def test_measures_stay_between_worst_and_best_whatever_the_failed_atoms_are(seen, lost, k):
    tally = AtomCounts.of(seen)
    truth = case_measures(AtomCounts.of(seen + lost), k)
    worst, best = case_measures(tally.worst(len(lost)), k), case_measures(tally.best(len(lost)), k)
    assert truth is not None
    assert worst is not None
    assert best is not None
    for name in ("precision", "recall_at_k", "f1_at_k", "e_measure", "entropy", "avg_norm_entropy", "verifiability"):
        low, high = sorted((worst[name], best[name]))
        assert low - 1e-9 <= truth[name] <= high + 1e-9, name


def test_comprehensiveness_is_the_share_that_is_covered():
    assert comprehensiveness(3, 1) == 0.75
    assert comprehensiveness(0, 4) == 0.0
    assert comprehensiveness(0, 0) is None


def test_relative_gain():
    assert relative_gain(0.75, 0.25) == 1.0
    assert relative_gain(0.25, 0.75) == -1.0
    assert relative_gain(0.5, 0.0) == 2.0
    assert relative_gain(0.0, 0.0) == 0.0


LABELLED = [
    [LabelledAtom(0.9, S, "S"), LabelledAtom(0.8, S, "NS"), LabelledAtom(0.5, U, "S")],
    [LabelledAtom(0.1, R, "NS"), LabelledAtom(0.5, U, "NS"), LabelledAtom(0.2, R, "S")],
]


def totals(*cases, failed=()):
    return np.sum([agreement.case_sums(case) for case in cases] + [agreement.case_sums([], f) for f in failed], axis=0)


def test_agreement_with_human_labels_by_hand():
    found = agreement.agreement(totals(*LABELLED))
    # S called S: 1, S called NS: 2, NS called S: 1, NS called NS: 2
    assert found["accuracy"] == pytest.approx(3 / 6)
    assert found["f1_supported"] == pytest.approx(2 * 1 / (2 * 1 + 2 + 1))
    assert found["f1_refuted"] == pytest.approx(2 * 2 / (2 * 2 + 2 + 1))
    # Pr is 2/3 and 0, the shares of human S are 2/3 and 1/3
    assert found["mae_precision"] == pytest.approx((0 + 1 / 3) / 2)
    assert found["brier"] == pytest.approx((0.01 + 0.64 + 0.25 + 0.01 + 0.25 + 0.64) / 6)
    # bins [0.1, 0.2): 0.1 against 0; [0.2, 0.3): 0.2 against 1; [0.5, 0.6): 1.0 against 1; [0.8, 0.9), [0.9, 1]
    assert found["ece"] == pytest.approx((0.1 + 0.8 + 0.0 + 0.8 + 0.1) / 6)


def test_three_way_table_and_its_counts():
    sums = totals(*LABELLED)
    assert agreement.three_way(sums) == {
        "S": {"supported": 1, "refuted": 1, "unverified": 1},
        "NS": {"supported": 1, "refuted": 1, "unverified": 1},
    }
    assert agreement.counts(sums) == {"n_atoms": 6, "n_cases": 2, "n_failed": 0}


def test_without_labels_there_is_no_agreement():
    sums = totals([])
    assert not sums.any()
    assert all(np.isnan(value) for value in agreement.agreement(sums).values())


judged = st.lists(
    st.tuples(probabilities, st.sampled_from(agreement.HUMAN)).map(lambda a: LabelledAtom(a[0], Label.of(a[0]), a[1])),
    max_size=5,
)


@given(judged.filter(len), judged)
def test_agreement_stays_between_its_extremes_whatever_failed_atoms_turn_out_to_be(seen, lost):
    truth = agreement.agreement(totals(seen + lost))
    sums = np.array(agreement.case_sums(seen, [atom.human for atom in lost]))
    worst, best = agreement.extremes(sums)
    for name in agreement.NAMES:
        if not np.isnan(truth[name]):
            ends = [end for end in (worst[name], best[name]) if not np.isnan(end)]
            assert min(ends) - 1e-9 <= truth[name] <= max(ends) + 1e-9, name
