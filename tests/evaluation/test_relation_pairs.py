"""Labelled pairs: what is read as one, and what is refused or left out by name (SPEC 9)."""

from __future__ import annotations

import gzip
import json

import pytest
from jsonl import write

from fcjax import InputError
from fcjax.core.records import RelationType
from fcjax.evaluation.relation_pairs import LabelledPair, label_of, pairs_of, read_pairs

ENTAILMENT, CONTRADICTION, NEUTRAL = RelationType.ENTAILMENT, RelationType.CONTRADICTION, RelationType.NEUTRAL


def row(label="entailment", premise="p", hypothesis="h", **more):
    return {"premise": premise, "hypothesis": hypothesis, "label": label, **more}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("entailment", ENTAILMENT),
        ("ENTAILMENT", ENTAILMENT),
        (" Contradiction ", CONTRADICTION),
        ("SUPPORTS", ENTAILMENT),
        ("Supported", ENTAILMENT),
        ("REFUTES", CONTRADICTION),
        ("refuted", CONTRADICTION),
        ("NOT ENOUGH INFO", NEUTRAL),
        ("NOT_ENOUGH_INFO", NEUTRAL),
        ("not-enough-info", NEUTRAL),
        ("neutral", NEUTRAL),
    ],
)
def test_labels_are_read_as_data_sets_write_them(text, label):
    assert label_of(text) is label


@pytest.mark.parametrize("value", ["Widerspruch", "蕴含", "yes", "", None, True, [], {}, "equivalence"])
def test_another_label_is_refused_with_the_allowed_ones(value):
    with pytest.raises(InputError, match="allowed: entailment, contradiction or neutral") as caught:
        label_of(value)
    assert caught.value.faults[0].field == "label"
    assert "different data sets" not in str(caught.value)


@pytest.mark.parametrize("value", [0, 1, 2, "0", -1, 1.0])
def test_numbers_are_refused_as_they_mean_different_labels(value):
    with pytest.raises(InputError, match="means different labels in different data sets"):
        label_of(value)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_is_read_in_order(tmp_path, zipped):
    rows = [row(id="x", page="P"), row("REFUTES", hypothesis="other"), row("neutral", premise="q", id=7)]
    path = write(tmp_path / "pairs.jsonl", *rows)
    if zipped:
        zipped_path = tmp_path / "pairs.jsonl.gz"
        zipped_path.write_bytes(gzip.compress(path.read_bytes()))
        path = zipped_path
    found = read_pairs(path)
    assert found.pairs == (
        LabelledPair("x", "p", "h", ENTAILMENT),
        LabelledPair("2", "p", "other", CONTRADICTION),
        LabelledPair("7", "q", "h", NEUTRAL),
    )
    assert (found.n_given, found.n_repeated, found.n_faulty, found.disputed) == (3, 0, 0, ())
    assert pairs_of(rows).pairs == found.pairs
    assert pairs_of(found.pairs).pairs == found.pairs


@pytest.mark.parametrize(
    ("bad", "field", "message"),
    [
        ({"premise": "p", "hypothesis": "h"}, "label", "label is missing"),
        (row(label=None), "label", "label is null"),
        (row(label="oui"), "label", 'label is "oui"'),
        (row(premise=" "), "premise", 'premise is " "'),
        (row(hypothesis=""), "hypothesis", 'hypothesis is ""'),
        ({"hypothesis": "h", "label": "neutral"}, "premise", "premise is missing"),
        ({"claim": "h", "evidence": "p", "label": "neutral"}, "premise", "the row has claim, evidence, label"),
        ([1], None, "allowed: a JSON object"),
    ],
)
def test_a_bad_row_is_counted_and_the_others_are_used(tmp_path, bad, field, message):
    found = read_pairs(write(tmp_path / "pairs.jsonl", row(), json.dumps(bad)))
    assert (len(found.pairs), found.n_faulty) == (1, 1)
    fault = next(one for one in found.faults if one.field == field)
    assert message in fault.message
    assert (fault.file, fault.line) == (str(tmp_path / "pairs.jsonl"), 2)
    with pytest.raises(InputError, match="allowed"):  # and alone, the file is refused
        read_pairs(write(tmp_path / "bad.jsonl", json.dumps(bad)))


def test_doubled_pairs_count_once_and_contradicting_labels_leave_the_pair_out(tmp_path):
    rows = [
        row(id="a"),
        row("SUPPORTS", premise=" p ", id="b"),
        row("neutral", hypothesis="g", id="c"),
        row("refutes", hypothesis="g", id="d"),
        row("neutral", hypothesis="f", id="e"),
    ]
    found = read_pairs(write(tmp_path / "pairs.jsonl", *rows))
    assert [pair.id for pair in found.pairs] == ["a", "e"]
    assert (found.n_given, found.n_repeated, found.disputed) == (5, 2, ("c",))
    with pytest.raises(InputError, match="each pair has several labels"):
        read_pairs(write(tmp_path / "bad.jsonl", *rows[2:4]))


def case(*relations, **more):
    return {
        "id": "k",
        "atoms": [{"id": "a0", "text": "claim"}, {"id": "a1", "text": "other"}],
        "contexts": [{"id": "c0", "text": "passage", "snippet": "snip"}, {"id": "c1", "text": ""}],
        "relations": [{"source": "c0", "target": "a0", "probability": 0.95, **one} for one in relations],
        **more,
    }


def test_cases_give_the_relations_of_people_alone(tmp_path):
    rows = [
        case(
            {"type": "entailment"},
            {"type": "neutral", "target": "a1"},
            {"type": "contradiction", "target": "a1", "method": "logprobs"},
            {"type": None, "probability": None, "status": "relation_failed", "target": "a1"},
            {"type": "equivalence", "target": "a1"},
            {"type": "contradiction", "source": "c1", "target": "a1"},
        ),
        case(),
        row("contradiction"),
    ]
    found = read_pairs(write(tmp_path / "cases.jsonl", *rows))
    assert found.pairs == (
        LabelledPair("k: c0 to a0", "snip passage", "claim", ENTAILMENT),
        LabelledPair("k: c0 to a1", "snip passage", "other", NEUTRAL),
        LabelledPair("3", "p", "h", CONTRADICTION),
    )
    assert (found.n_without, found.n_equivalent, found.n_faulty) == (1, 1, 0)
    with pytest.raises(InputError, match="cases with relations by people"):
        read_pairs(write(tmp_path / "none.jsonl", case()))


def test_rows_in_memory_are_refused_by_their_number():
    with pytest.raises(InputError, match='pair 2.*label is "oui"'):
        pairs_of([row(), row("oui")])
    with pytest.raises(InputError, match="no labelled pairs"):
        pairs_of([])
    with pytest.raises(InputError, match="no such file"):
        pairs_of("missing.jsonl")
