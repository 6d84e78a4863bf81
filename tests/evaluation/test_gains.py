"""Gains, tests and comparisons, by hand and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fcjax.core.records import Label
from fcjax.evaluation.comparison import Comparison, pair_rows
from fcjax.evaluation.gains import SAME, Span, Spread, bootstrap, gain, gain_span, paired_test
from fcjax.scoring.measures import AtomCounts, case_measures

S, R, U = Label.SUPPORTED, Label.REFUTED, Label.UNVERIFIED


def row(id, supported=0, refuted=0, unverified=0, *, k=4, n_failed=0, **more):
    """A result row of a case with so many atoms."""
    atoms = [(0.9, S, True)] * supported + [(0.1, R, True)] * refuted + [(0.5, U, False)] * unverified
    measures = case_measures(AtomCounts.of(atoms), k)
    assert measures is not None
    return {"id": id, "status": "ok", "atoms": [], "measures": measures | {"n_failed": n_failed} | more}


def lost(id, status="refused"):
    return {"id": id, "status": status, "atoms": [], "measures": None}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(0.25, 0.75, 1.0), (0.75, 0.25, -1.0), (0.5, 0.5, 0.0), (0.0, 0.3, 2.0), (0.3, 0.0, -2.0), (0.0, 0.0, 0.0)],
)
def test_gain_by_hand(before, after, expected):
    assert gain(before, after) == expected


@pytest.mark.parametrize(("before", "after"), [(None, 1.0), (1.0, None), (math.nan, 1.0), (1.0, math.inf)])
def test_a_gain_needs_both_scores(before, after):
    assert gain(before, after) is None


@pytest.mark.parametrize(("before", "after"), [(-0.1, 0.5), (0.5, -0.1)])
def test_scores_below_zero_have_no_gain(before, after):
    with pytest.raises(ValueError, match="at least 0"):
        gain(before, after)


scores = st.floats(0, 1)


@given(scores, scores, scores, scores, scores, scores)
def test_a_gain_lies_within_its_span(a, b, c, d, e, f):
    before, after = sorted((a, b, c)), sorted((d, e, f))
    span = gain_span(Span(before[1], before[0], before[2]), Span(after[1], after[0], after[2]))
    low, high = span.low - 1e-12, span.high + 1e-12  # rounding may put equal gains in either order
    assert span.low >= -2
    assert low <= span.value <= high
    assert span.high <= 2


def test_the_span_of_an_unknown_count():
    assert gain_span(Span.at(3.0), Span(None, 0.0, math.inf)) == Span(None, -2.0, 2.0)
    assert gain_span(Span(None, 0.0, math.inf), Span.at(3.0)) == Span(None, -2.0, 2.0)


def test_mean_and_standard_deviation_by_hand():
    found = Spread.of([Span.at(1.0), Span.at(2.0), Span.at(6.0), Span(None, 0.0, 9.0)])
    assert (found.n, found.n_failed, found.mean) == (3, 1, 3.0)
    assert found.sd == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert (found.worst, found.best) == (9 / 4, 18 / 4)
    assert 1.0 <= found.low < 3.0 < found.high <= 6.0


def test_one_score_has_a_mean_and_no_spread():
    found = Spread.of([Span.at(0.5)])
    assert found == Spread(1, 0, 0.5, None, None, None, 0.5, 0.5)


def test_no_scores_have_no_numbers():
    assert Spread.of([]) == Spread()
    assert Spread.of([Span(None, 0.0, 1.0)]) == Spread(0, 1, worst=0.0, best=1.0)
    assert Spread.of([Span(None, 0.0, math.inf)]).best is None


@pytest.mark.parametrize("n", [2, 7, 200, 5000])
def test_the_bootstrap_interval_is_the_quantiles_of_the_means_of_seeded_draws(n):
    values = np.random.default_rng(3).normal(0.2, 1.0, n)
    draw, size = np.random.default_rng(0), max(1, 4_000_000 // n)  # drawn in parts, which bounds the memory
    parts = [min(size, 1000 - start) for start in range(0, 1000, size)]
    means = np.concatenate([values[draw.integers(0, n, (part, n))].mean(1) for part in parts])
    expected = np.quantile(means, (0.025, 0.975))
    assert bootstrap(values.tolist()) == pytest.approx(tuple(expected), rel=1e-14)
    assert bootstrap(values.tolist()) == bootstrap(values.tolist())


def test_the_bootstrap_interval_needs_two_values():
    assert bootstrap([]) == bootstrap([1.0]) == (None, None)
    assert bootstrap([0.5, 0.5, 0.5]) == (0.5, 0.5)


def test_paired_test_by_hand():
    before, after = [0.2, 0.4, 0.6, 0.8], [0.5, 0.5, 0.9, 0.8]
    differences = np.array([0.3, 0.1, 0.3, 0.0])
    t = differences.mean() / (differences.std(ddof=1) / 2)
    found = paired_test(before, after)
    assert found.n == 4
    assert found.t == pytest.approx(t)
    assert found.p == pytest.approx(stats.t.sf(t, 3))
    assert found.marks == ("*" if found.p < 0.05 else "")


pairs = st.lists(st.tuples(scores, scores), min_size=2, max_size=12)


@given(pairs)
def test_the_paired_test_is_scipys(drawn):
    before, after = zip(*drawn, strict=True)
    found = paired_test(before, after)
    if np.ptp(np.subtract(after, before)) <= SAME:
        assert (found.t, found.p) == (None, None)
        assert "needs variance" in found.reason
    else:
        theirs = stats.ttest_rel(after, before, alternative="greater")
        assert (found.t, found.p) == (theirs.statistic, theirs.pvalue)


def test_a_loss_is_not_significant_however_large():
    found = paired_test([0.8, 0.9, 0.7, 0.8], [0.1, 0.1, 0.2, 0.0])
    assert found.t < 0
    assert found.p > 0.99
    assert found.marks == ""


def test_marks_by_level():
    before = [0.10, 0.21, 0.30, 0.42, 0.50, 0.61]
    assert paired_test(before, [one + 0.3 + 0.001 * i for i, one in enumerate(before)]).marks == "***"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ([], [], "0 of 2 pairs"),
        ([0.1], [0.9], "1 of 2 pairs"),
        ([0.1, None, 0.2], [0.9, 0.3, math.nan], "1 of 2 pairs"),
        ([0.1, 0.2], [0.1, 0.2], "no pair differs"),
        ([0.1, 0.2, 0.3], [0.2, 0.3, 0.4], "every pair differs by the same 0.1"),
    ],
)
def test_a_test_that_is_not_defined_has_no_number_and_a_reason(before, after, reason):
    found = paired_test(before, after)
    assert (found.t, found.p, found.marks) == (None, None, "")
    assert reason in found.reason


def test_rounding_does_not_count_as_variance():
    """1/3 -> 2/3 and 2/3 -> 1: the same difference twice, which is not the same in 7 digits."""
    old = [row("a", 1, 2, k=3, precision=0.3333333), row("b", 2, 1, k=3, precision=0.6666667)]
    new = [row("a", 2, 1, k=3, precision=0.6666667), row("b", 3, 0, k=3)]
    for measure in ("precision", "recall_at_k"):
        change = Comparison.of(old, new)[measure]
        assert (change.test.t, change.before.mean) == (None, pytest.approx(0.5, abs=1e-12))
    assert paired_test([0.3333333, 0.6666667, 0.5], [0.6666667, 1.0, 0.8333333]).t is None  # as of any other score


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError):
        paired_test([0.1, 0.2], [0.1])


# Two runs, by hand.

BEFORE = [row("a", 1, 3), row("b", 2, 2), row("c", 0, 2), row("d", 3, 1), row("e", 1, 1), lost("f", "no_atoms")]
AFTER = [row("a", 3, 1), row("b", 3, 1), row("c", 1, 1), row("d", 3, 1), lost("e"), row("f", 1, 0)]


def test_a_comparison_by_hand():
    found = Comparison.of(BEFORE, AFTER)
    assert (found.n_cases, found.n_failed, found.n_partly_failed, found.n_no_atoms) == (6, 1, 0, 1)
    change = found["precision"]
    assert change.scores == (("a", 0.25, 0.75), ("b", 0.5, 0.75), ("c", 0.0, 0.5), ("d", 0.75, 0.75))
    assert (change.n, change.n_unmeasured) == (4, 1)
    assert change.before.mean == pytest.approx(1.5 / 4)
    assert change.after.mean == pytest.approx(2.75 / 4)
    gains = [1.0, 0.4, 2.0, 0.0]
    assert change.gain.mean == pytest.approx(np.mean(gains))
    assert change.gain.sd == pytest.approx(np.std(gains, ddof=1))
    # case e had Pr = 0.5; what failed afterwards may be anything from 0 (G = -2) to 1 (G = 2/3)
    assert change.gain.worst == pytest.approx((sum(gains) - 2) / 5)
    assert change.gain.best == pytest.approx((sum(gains) + 2 / 3) / 5)
    assert change.gain.n_failed == 1
    theirs = stats.ttest_rel([0.75, 0.75, 0.5, 0.75], [0.25, 0.5, 0.0, 0.75], alternative="greater")
    assert change.test.p == theirs.pvalue
    assert found["n_atoms"].before.mean == 14 / 4


def test_a_measure_that_was_not_taken_has_no_numbers():
    change = Comparison.of(BEFORE, AFTER)["comprehensiveness"]
    assert change.n == 0
    assert change.n_unmeasured == 6
    assert change.gain.mean is None
    assert change.test.p is None


def test_a_correction_is_measured_at_the_k_of_its_original():
    found = Comparison.of([row("a", 2, 2, k=8)], [row("a", 4, 0, k=4)])
    assert found["recall_at_k"].scores == (("a", 0.25, 0.5),)
    assert found["f1_at_k"].scores[0][2] == pytest.approx(2 * 0.5 / 1.5)
    assert Comparison.of([row("a", 2, 2, k=8)], [row("a", 4, 0, k=4)], k=4)["recall_at_k"].scores == (("a", 0.5, 1.0),)


def test_partly_failed_cases_count_with_their_remaining_atoms_and_widen_the_limits():
    found = Comparison.of([row("a", 1, 1)], [row("a", 1, 0, n_failed=1)])
    assert found.n_partly_failed == 1
    change = found["precision"]
    assert change.scores == (("a", 0.5, 1.0),)
    assert (change.after.worst, change.after.best) == (0.5, 1.0)
    assert (change.gain.worst, change.gain.best) == (0.0, pytest.approx(2 / 3))


def test_further_measures_come_with_their_limits():
    before = [row("a", 1, comprehensiveness=0.5)]
    after = [row("a", 1, comprehensiveness=None, comprehensiveness_worst=0.0, comprehensiveness_best=1.0)]
    change = Comparison.of(before, after)["comprehensiveness"]
    assert change.n == 0
    assert (change.gain.n_failed, change.gain.worst, change.gain.best) == (1, -2.0, pytest.approx(2 / 3))


def test_rows_pair_by_id_in_any_order_and_equal_ids_in_theirs():
    before = [row("a", 1), row("b", 2), row("a", 3)]
    after = [row("a", 4), row("c", 5), row("a", 6), row("b", 7)]
    paired = [tuple(one and one["measures"]["n_supported"] for one in pair) for pair in pair_rows(before, after)]
    assert paired == [(1, 4), (2, 7), (3, 6), (None, 5)]
    assert Comparison.of(before, after).n_failed == 1


def test_a_comparison_of_no_rows():
    found = Comparison.of([], [])
    assert found.n_cases == 0
    assert found["precision"].gain.mean is None
    assert "0 cases" in repr(found)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=5))
def test_no_number_of_a_comparison_is_nan(drawn):
    def made(id, supported, refuted):
        return row(id, supported, refuted) if supported + refuted else lost(id, "no_atoms")

    before = [made(i, one[0], one[1]) for i, one in enumerate(drawn)]
    after = [made(i, one[2], one[3]) for i, one in enumerate(drawn)]

    def numbers(value):
        if isinstance(value, dict):
            for part in value.values():
                yield from numbers(part)
        elif isinstance(value, float):
            yield value

    assert all(math.isfinite(number) for number in numbers(Comparison.of(before, after).to_dict()))
