"""The calibration of a relation model: what it does to a distribution, and its file (SPEC 9)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax import InputError, SettingsError
from fcjax.core.records import DISTRIBUTED, RelationType
from fcjax.critic.calibration_file import load_calibration
from fcjax.stages.calibration import Calibration, likeliest, spread

OF = {"model": "m", "style": "pairwise", "template": "relate.pairwise/2"}
WHOLE = Calibration(
    **OF, temperature=1.7, biases=(0.4, -0.9, 0.5), n_pairs=300, shares=(0.3, 0.3, 0.4), in_use=(0.2, 0.1, 0.7),
    figures={"raw": {"accuracy": 0.5}, "gate": {"passed": True, "verdict": "passed: better"}},
)  # fmt: skip

weights = st.tuples(*[st.floats(1e-4, 1)] * 3)


@given(weights)
def test_it_is_the_formula_of_the_specification(w: tuple[float, float, float]) -> None:
    q = tuple(x / sum(w) for x in w)
    scores = [
        math.exp(math.log(x) / 1.7 + b) * use / share
        for x, b, use, share in zip(q, WHOLE.biases, (0.2, 0.1, 0.7), (0.3, 0.3, 0.4), strict=True)
    ]
    assert WHOLE.apply(q) == pytest.approx([x / sum(scores) for x in scores], abs=3e-6)


@given(weights)
def test_without_an_effect_nothing_changes(w: tuple[float, float, float]) -> None:
    q = tuple(x / sum(w) for x in w)
    assert Calibration(**OF).apply(q) == pytest.approx(q, abs=3e-6)


@pytest.mark.parametrize("q", [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (1e-300, 1.0, 0.0)])
def test_certain_answers_stay_inside_of_0_and_1(q: tuple[float, float, float]) -> None:
    extreme = Calibration(**OF, temperature=1e-3, biases=(500.0, -1000.0, 500.0))
    for one in (Calibration(**OF), WHOLE, extreme):
        made = one.apply(q)
        assert sum(made) == pytest.approx(1, abs=1e-12)
        assert min(made) >= 1e-6
        assert max(made) <= 1 - 1e-6


def test_many_at_once_are_each_alone() -> None:
    q = np.random.default_rng(0).dirichlet([1, 1, 1], 50)
    want = np.array([WHOLE.apply(tuple(row)) for row in q])
    np.testing.assert_allclose(WHOLE.apply_all(q), want, rtol=0, atol=0)


def test_the_file_is_read_back(tmp_path: Any) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(orjson.dumps(WHOLE.to_dict()))
    assert load_calibration(path) == WHOLE
    assert load_calibration(path).digest == WHOLE.digest


def test_the_digest_is_of_what_has_an_effect() -> None:
    def digest(**changes: Any) -> str:
        return Calibration.from_dict({**WHOLE.to_dict(), "digest": None, **changes}).digest

    assert digest(figures={}) == digest(n_pairs=7) == WHOLE.digest
    for key, value in (("model", "other"), ("temperature", 1.8), ("in_use", None)):
        assert digest(**{key: value}) != WHOLE.digest


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"temperature": 0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"biases": None}, "biases"),
        ({"biases": {"entailment": 1.0}}, "biases"),
        ({"biases": {label: float("inf") for label in map(str, DISTRIBUTED)}}, "biases"),
        ({"shares": [0.3, 0.3, 0.4]}, "shares"),
        ({"n_pairs": -1}, "n_pairs"),
        ({"shares": dict.fromkeys(map(str, DISTRIBUTED), 0.5)}, "shares"),
        ({"in_use": dict.fromkeys(map(str, DISTRIBUTED), 0.0)}, "in_use"),
        ({"shares": None}, "in_use"),
        ({"model": ""}, "model"),
        ({"template": 2}, "template"),
        ({"temperature": 1.2}, "digest"),  # changed by hand
    ],
)
def test_a_faulty_file_is_refused_by_its_field(tmp_path: Any, changes: dict[str, Any], field: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(orjson.dumps({**WHOLE.to_dict(), **changes}))  # which writes NaN as null
    with pytest.raises(InputError) as caught:
        load_calibration(path)
    assert [(fault.file, fault.field) for fault in caught.value.faults] == [(str(path), field)]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        *(({"temperature": t}, "temperature") for t in (0, -1.0, float("nan"), float("inf"), "1", True)),
        *(({"biases": b}, "biases") for b in ((1, 2), (float("nan"), 0, 0), (1e4, 0, 0), "abc", None, [0, 0, 0])),
        *(({"shares": s}, "shares") for s in ((0, 0, 0), (0.5, 0.5), (-0.5, 0.5, 1.0))),
        ({"in_use": (float("nan"), 0.5, 0.5)}, "in_use"),
        ({"shares": None}, "in_use"),
        ({"n_pairs": "300"}, "n_pairs"),
        *(({key: value}, key) for key in OF for value in ("", None)),
    ],
)
def test_one_made_by_hand_is_checked_too(changes: dict[str, Any], field: str) -> None:
    # A negative temperature would turn every answer round, and 0 or NaN make probabilities that are none.
    with pytest.raises(SettingsError, match=f"^{field} is .*allowed"):
        replace(WHOLE, **changes)


def test_whole_numbers_are_kept_as_others() -> None:
    made = Calibration(**OF, temperature=2, biases=(1, -1, 0), shares=(1, 0, 0), in_use=(0, 1, 0))
    assert Calibration.from_dict(orjson.loads(orjson.dumps(made.to_dict()))) == made
    assert made.digest == Calibration(**OF, temperature=2.0, biases=(1.0, -1.0, 0.0), shares=(1.0, 0.0, 0.0),
                                      in_use=(0.0, 1.0, 0.0)).digest  # fmt: skip
    narrow = Calibration(**OF, temperature=np.float64(2), biases=tuple(np.array([1.0, -1.0, 0.0])))
    assert narrow.digest == Calibration(**OF, temperature=2.0, biases=(1.0, -1.0, 0.0)).digest


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 5000, b"{}"])
def test_what_is_no_calibration_is_said_to_be_none(tmp_path: Any, content: bytes) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="allowed"):
        load_calibration(path)
    with pytest.raises(InputError, match="cannot be read"):
        load_calibration(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("used", "named"),
    [
        (("other", "pairwise", "relate.pairwise/2"), "model 'm', and this run uses 'other'"),
        (("m", "packed", "relate.packed/2"), "style 'pairwise', and this run uses 'packed'"),
        (("m", "pairwise", "relate.pairwise/1"), "wording 'relate.pairwise/2', and this run uses 'relate.pairwise/1'"),
    ],
)
def test_another_models_answers_are_refused_by_name(used: tuple[str, str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        WHOLE.check(*used)


def test_spread_and_likeliest() -> None:
    assert spread(RelationType.CONTRADICTION, 0.6) == pytest.approx((0.2, 0.6, 0.2))
    assert likeliest((0.2, 0.5, 0.3), RelationType.NEUTRAL) == (RelationType.CONTRADICTION, 0.5)
    for label in DISTRIBUTED:
        assert likeliest((1 / 3, 1 / 3, 1 / 3), label) == (label, 1 / 3)
        assert likeliest((1 / 3, 1 / 3 + 1e-15, 1 / 3), label)[0] is label  # a tie, but for rounding
