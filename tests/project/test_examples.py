"""The examples are valid, show what they are there to show, and come out as their human labels say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fcjax.core.records import Label, RelationType, Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.engine import infer
from fcjax.io.files import case_to_dict, read_cases

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "cases.jsonl"


@pytest.fixture(scope="module")
def cases():
    rows = list(read_cases(EXAMPLES))
    assert [str(fault) for row in rows for fault in row.faults] == []
    return {row.id: row.case for row in rows}


def test_claims_are_cases_without_their_relations(cases):
    claims = [row.case for row in read_cases(EXAMPLES.with_name("claims.jsonl"))]
    assert claims == [replace(cases[claim.id], relations=None) for claim in claims]
    assert len(claims) == 3


def solve(case, **settings):
    return infer([FactGraph.from_case(case, **settings)])[0]


def test_cases_are_kept_whole(cases):
    lines = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    assert len(cases) == len(lines) >= 15
    assert [json.loads(json.dumps(case_to_dict(case))) for case in cases.values()] == lines


@pytest.mark.parametrize("preset", ["paper", "release"])
@pytest.mark.parametrize("version", [None, "FR2", "FR3"])
def test_labels_agree_with_the_human_ones(cases, preset, version):
    """Whatever was decided was decided rightly; what the evidence cannot decide is left `unverified`."""
    decided = 0
    for case in cases.values():
        posterior = solve(case, preset=preset, version=version)
        if posterior.status.failed:
            continue
        for atom in case.atoms:
            label = posterior.label[atom.id]
            if atom.label is not None and label is not Label.UNVERIFIED:
                decided += 1
                assert (label is Label.SUPPORTED) == (atom.label == "S"), (
                    f"{case.id}, {atom.id}: {posterior.p[atom.id]}"
                )
                assert posterior.certain[atom.id]
    assert decided > 80


def test_agreeing_sources_say_more_than_one(cases):
    case = cases["eiffel-tower"]
    both = solve(case).p["a0"]
    one = solve(replace(case, relations=tuple(r for r in case.relations if r.source != "c1"))).p["a0"]
    assert both > one > 0.9


def test_conflicting_sources_lower_the_certainty(cases):
    case = cases["everest-height"]
    alone = replace(case, relations=tuple(r for r in case.relations if "c1" not in (r.source, r.target)))
    assert 0.5 < solve(case).p["a0"] < solve(alone).p["a0"]


def test_a_source_that_is_repeated_counts_once(cases):
    case = cases["great-wall-moon"]
    graph = FactGraph.from_case(case)
    assert graph.aliases == {"c1": "c0"}
    assert infer([graph])[0].label["a0"] is Label.REFUTED
    reworded = tuple(replace(c, text=f"{c.text} ({c.id})") for c in case.contexts)
    assert solve(replace(case, contexts=reworded)).label["a0"] is Label.SUPPORTED


def test_an_atom_that_is_repeated_is_merged(cases):
    posterior = solve(cases["frankenstein"])
    assert posterior.graph.aliases == {"a2": "a0"}
    assert posterior.p["a2"] == posterior.p["a0"]


def test_wrong_responses_have_a_correction(cases):
    wrong = [case for case in cases.values() if any(atom.label == "NS" for atom in case.atoms)]
    corrected = [case for case in wrong if case.extra.get("correction")]
    assert len(corrected) >= 10
    assert all(case.extra["correction"] != case.response for case in corrected)


@pytest.mark.parametrize("name", ["kepler", "wombat", "columbus"])
def test_nothing_is_decided_without_evidence_that_outweighs(cases, name):
    posterior = solve(cases[name])
    for atom in cases[name].atoms:
        assert posterior.label[atom.id] is Label.UNVERIFIED
        assert posterior.certain[atom.id]


def test_failures_are_in_the_input(cases):
    assert cases["grains-of-sand"].atoms == ()
    assert cases["panama-canal"].atoms[1].status is Status.RETRIEVAL_FAILED
    failed = [r for r in cases["penicillin"].relations if r.status is Status.RELATION_FAILED]
    assert [(r.target, r.probability) for r in failed] == [("a2", None)]


def test_sources_that_cannot_both_be_right(cases):
    posterior = solve(cases["kilimanjaro"])
    assert posterior.status is Status.INCONSISTENT
    assert "c0" in posterior.reason
    assert "c1" in posterior.reason


def test_a_source_of_its_own_prior(cases):
    case = cases["lightning"]
    equal = replace(case, contexts=tuple(replace(c, prior=None) for c in case.contexts))
    assert solve(case).label["a0"] is Label.REFUTED
    assert solve(equal).label["a0"] is Label.UNVERIFIED


def test_context_pairs_are_asked_in_both_orders(cases):
    case = cases["emperor-penguin"]
    graph = FactGraph.from_case(case, version="FR3")
    between = {frozenset((r.source, r.target)): r for r in graph.relations if r.target[0] == r.source[0] == "c"}
    asked = [(r.source, r.target) for r in case.relations if r.target[0] == r.source[0] == "c"]
    assert {(b, a) for a, b in asked} == set(asked)
    mutual = between[frozenset(("c0", "c1"))]
    assert (mutual.type, mutual.probability) == (RelationType.EQUIVALENCE, 0.9)
    assert frozenset(("c1", "c2")) not in between  # the neutral answer was the more probable one
    assert not any(r.source[0] == r.target[0] for r in FactGraph.from_case(case, version="FR2").relations)


def test_scripts_and_sizes(cases):
    text = {name: " ".join(atom.text for atom in case.atoms) for name, case in cases.items()}
    assert any("\u3040" <= letter <= "\u30ff" for letter in text["fuji"])
    assert any("\u0600" <= letter <= "\u06ff" for letter in text["ibn-khaldun"])
    assert len(cases["forty-elements"].atoms) == 40
    assert any(r.source[0] == r.target[0] == "a" for r in cases["largest-planet"].relations)
    assert all(context.evidence for case in cases.values() for context in case.contexts)


def test_every_case_is_explained(cases):
    explained = set(re.findall(r"`([a-z-]+)`", (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")))
    assert cases.keys() <= explained
