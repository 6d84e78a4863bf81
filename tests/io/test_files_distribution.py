"""The distribution that a relation keeps of its model's three answers (SPEC 9)."""

from __future__ import annotations

import pytest

from fcjax import InputError
from fcjax.io.files import case_to_dict, parse_case

ANSWERS = {"entailment": 0.7, "contradiction": 0.1, "neutral": 0.2}


def case(**relation: object) -> dict[str, object]:
    edge = {"source": "c", "target": "a", "type": "entailment", "probability": 0.7, **relation}
    return {
        "id": "1",
        "atoms": [{"id": "a", "text": "A."}],
        "contexts": [{"id": "c", "text": "C."}],
        "relations": [edge],
    }


def test_it_is_read_and_written_back() -> None:
    data = case(distribution=ANSWERS)
    read = parse_case(data)
    assert read.relations is not None
    assert read.relations[0].distribution == (0.7, 0.1, 0.2)
    assert case_to_dict(read) == data


def test_rounded_probabilities_are_scaled_to_add_up() -> None:
    read = parse_case(case(distribution={"entailment": 0.3333, "contradiction": 0.3333, "neutral": 0.3333}))
    assert read.relations is not None
    assert read.relations[0].distribution == pytest.approx((1 / 3, 1 / 3, 1 / 3), abs=1e-12)


@pytest.mark.parametrize(
    "value",
    [
        [0.7, 0.1, 0.2],
        {"entailment": 0.7, "contradiction": 0.3},
        {**ANSWERS, "equivalence": 0.0},
        {**ANSWERS, "neutral": 0.9},
        {**ANSWERS, "neutral": float("nan")},
        {**ANSWERS, "neutral": True},
        {**ANSWERS, "entailment": -0.7, "neutral": 1.6},
        {"entailment": 0.0, "contradiction": 0.0, "neutral": 0.0},
        "entailment",
    ],
)
def test_anything_else_is_the_fault_of_its_field(value: object) -> None:
    with pytest.raises(InputError) as caught:
        parse_case(case(distribution=value))
    assert [fault.field for fault in caught.value.faults] == ["relations[0].distribution"]
    assert "add up to 1" in str(caught.value)
