"""The distribution that a relation keeps of its model's three answers (SPEC 9)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from jsonl import rows_in, write

import fcjax
from fcjax import FactGraph, InputError
from fcjax.io.files import case_to_dict, parse_case

ANSWERS = {"entailment": 0.7, "contradiction": 0.1, "neutral": 0.2}
TIE = {"entailment": 0.4, "contradiction": 0.2, "neutral": 0.4}


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
    thirds = {"entailment": 0.3333, "contradiction": 0.3333, "neutral": 0.3333}
    read = parse_case(case(distribution=thirds, probability=0.3333))
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


@pytest.mark.parametrize(
    ("relation", "field", "words"),
    [
        ({"type": "contradiction"}, "type", "the likeliest answer of the distribution is 'entailment'"),
        ({"type": "neutral", "probability": 0.2}, "type", "type is 'neutral'"),
        ({"probability": 0.1}, "probability", "probability is 0.1, and the distribution has 0.7 for 'entailment'"),
        ({"probability": 0.70001}, "probability", "allowed: the same number"),
        ({"type": "equivalence", "probability": 0.9}, "probability", "0.7 for 'entailment'"),
    ],
)
def test_a_type_or_probability_that_contradicts_the_distribution_is_refused(
    relation: dict[str, object], field: str, words: str
) -> None:
    data = case(distribution=ANSWERS, **relation)
    with pytest.raises(InputError, match=words) as caught:
        parse_case(data)
    assert [fault.field for fault in caught.value.faults] == [f"relations[0].{field}"]
    plain = parse_case({**data, "relations": [{**data["relations"][0], "distribution": None}]})  # type: ignore[index]
    assert plain.relations is not None
    by_hand = replace(plain, relations=(replace(plain.relations[0], distribution=(0.7, 0.1, 0.2)),))
    with pytest.raises(InputError, match=words) as caught:
        FactGraph.from_case(by_hand)
    assert [fault.field for fault in caught.value.faults] == [f"relations[0].{field}"]


@pytest.mark.parametrize(
    "relation",
    [
        {"probability": 0.7000005},
        {"type": "equivalence"},
        {
            "type": "neutral",
            "probability": 0.4,
            "distribution": {"entailment": 0.4, "contradiction": 0.2, "neutral": 0.4},
        },
        {"probability": 0.7 / 1.0009, "distribution": {**ANSWERS, "neutral": 0.2009}},
        {"probability": 0.7, "distribution": {**ANSWERS, "neutral": 0.2009}},
        {"type": None, "probability": None, "status": "relation_failed"},
    ],
)
def test_what_differs_by_rounding_or_on_a_tie_agrees(relation: dict[str, object]) -> None:
    read = parse_case(case(**{"distribution": ANSWERS, **relation}))
    assert read.relations is not None
    assert read.relations[0].distribution is not None


def test_a_row_that_contradicts_itself_is_no_verdict(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", case(distribution=ANSWERS, type="contradiction"), {**case(), "id": "2"})
    fcjax.score(source, tmp_path / "out.jsonl")
    bad, good = rows_in(tmp_path / "out.jsonl")
    assert (bad["status"], good["status"]) == ("invalid_input", "ok")
    assert "relations[0].type" in bad["reason"]
