"""A relation model whose answers pile up on one label is caught, and nothing it says is called certain."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fcjax import FactGraph, infer
from fcjax.core.records import Case, RelationType
from fcjax.io.files import parse_case
from fcjax.scoring.collapse import AnswerCounts, _tail
from fcjax.scoring.rows import Row, case_row
from fcjax.scoring.score_cases import completed
from fcjax.scoring.summary import Summary

E, C, N = "entailment", "contradiction", "neutral"
ORCHESTRA = "In the hall, an orchestra played a symphony"


def case(
    answers: list[str], *, alike: bool = True, method: str | None = "logprobs", context: str | None = None
) -> Case:
    """One atom for each answer about it, by one context that has all of its words, or none of them."""
    claims = [f"tower{i} stands over village{i} in the valley{i}" for i in range(len(answers))]
    text = context or (". ".join(claims) if alike else ORCHESTRA)
    atoms = [{"id": f"a{i}", "text": f"The {claim}.", "contexts": ["c"]} for i, claim in enumerate(claims)]
    relations = [
        {"source": "c", "target": f"a{i}", "type": type, "probability": 0.9, **({"method": method} if method else {})}
        for i, type in enumerate(answers)
    ]
    data = {"id": "x", "atoms": atoms, "contexts": [{"id": "c", "text": text}], "relations": relations}
    return parse_case(data)


def row(of: Case) -> Row:
    graph = FactGraph.from_case(of)
    (posterior,) = infer([graph])
    return case_row(of, graph, posterior, k=1, version=None, fingerprint="")


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("p", [0.3, 0.6])
def test_the_tail_is_the_binomial_one(n: int, p: float) -> None:
    for count in range(math.floor(n * p) + 1, n + 1):
        want = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(count, n + 1))
        assert _tail(count, n, p) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    ("answers", "alike", "words"),
    [
        ([C] * 30, True, "30 of 30 claims are contradicted"),
        ([C] * 28 + [E, N], True, "28 of 30 claims are contradicted"),
        ([E] * 12, False, "of 12 of 12 claims, passages with next to none of their words"),
        ([C] * 6 + [E] * 6, False, "of 12 of 12 claims, passages with next to none of their words"),
        ([N] * 12, True, "of 12 of 12 claims, passages with all their words are said to leave them open"),
    ],
)
def test_a_pile_is_told_and_no_label_is_certain(answers: list[str], alike: bool, words: str) -> None:
    found = row(case(answers, alike=alike))
    assert found["status"] == "ok"
    assert words in found["diagnostics"]["collapse"]
    assert "fcjax calibrate" in found["diagnostics"]["collapse"]
    assert {atom["certain"] for atom in found["atoms"]} == {False}
    assert all(atom["label"] for atom in found["atoms"])


@pytest.mark.parametrize(
    ("answers", "alike"),
    [
        ([E] * 30, True),  # what the passage says word for word
        ([E, C] * 15, True),
        ([N] * 30, False),
        ([N] * 24 + [C] * 6, False),
        ([C] * 5, True),  # too few to tell
        ([E] * 5, False),
    ],
)
def test_answers_that_texts_explain_are_no_pile(answers: list[str], alike: bool) -> None:
    found = row(case(answers, alike=alike))
    assert "collapse" not in found["diagnostics"]
    judged = [atom for atom in found["atoms"] if atom["label"] != "unverified"]
    assert all(atom["certain"] for atom in judged)


def test_one_claim_that_many_passages_contradict_is_no_pile() -> None:
    contexts = [{"id": f"c{i}", "text": f"The Eiffel Tower in Paris, picture {i}"} for i in range(40)]
    relations = [
        {"source": f"c{i}", "target": "a", "type": C, "probability": 0.9, "method": "logprobs"} for i in range(40)
    ]
    atoms = [{"id": "a", "text": "The Eiffel Tower is in Berlin."}]
    found = row(parse_case({"id": "x", "atoms": atoms, "contexts": contexts, "relations": relations}))
    assert "collapse" not in found["diagnostics"]


def test_passages_in_another_language_are_not_unrelated() -> None:
    german = "Der Turm steht in der Stadt und ist hoch"
    assert "collapse" not in row(case([E] * 12, context=german))["diagnostics"]


def test_relations_that_came_with_the_case_are_nobodys_answers() -> None:
    found = row(case([C] * 30, method=None))
    assert "answers" not in found["diagnostics"]
    assert {atom["certain"] for atom in found["atoms"]} == {True}


def test_the_summary_pools_cases_that_are_too_small_alone() -> None:
    small = row(case([C] * 5))
    assert "collapse" not in small["diagnostics"]
    summary = Summary()
    for _ in range(8):
        summary.add(small)
    said: dict[str, Any] = summary.to_dict()["answers"]
    assert said[C] == 40
    assert said["n_collapsed"] == 0
    assert "40 of 40 claims are contradicted" in said["warning"]
    healthy = Summary()
    healthy.add(row(case([E] * 30)))
    assert healthy.to_dict()["answers"]["warning"] is None


def test_a_row_of_a_collapsed_run_has_no_certain_label() -> None:
    small = row(case([C] * 5))
    assert {atom["certain"] for atom in small["atoms"]} == {True}
    whole = completed(small, 1, "f", "40 of 40 claims are contradicted by most of their passages")
    assert {atom["certain"] for atom in whole["atoms"]} == {False}
    assert "fcjax calibrate" in whole["diagnostics"]["collapse"]
    given = row(case([C] * 5, method=None))
    assert completed(given, 1, "f", "40 of 40")["atoms"] == given["atoms"]  # it has no answers of a model


def test_counts_are_read_back_from_a_row() -> None:
    counts = AnswerCounts.of(case([E, C, N, N], alike=False))
    assert AnswerCounts.from_dict(counts.to_dict()) == counts
    assert counts.labels == {RelationType.ENTAILMENT: 1, C: 1, N: 2}
    assert counts.to_dict()["unrelated"] == [2, 4]
