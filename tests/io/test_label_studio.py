"""Corrections as training and annotation data; annotations as a table, checked by hand."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from dataset_rows import CORRECTED, EXPORT, FEEDBACK, annotation, exported
from hypothesis import given
from hypothesis import strategies as st
from nltk.metrics.agreement import AnnotationTask
from nltk.metrics.distance import binary_distance, interval_distance

from fcjax.core.errors import InputError
from fcjax.evaluation.annotator_study import study
from fcjax.evaluation.inter_rater import (
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
    pairwise_kappa,
    percent_agreement,
)
from fcjax.io.datasets import BuildReport, Selection
from fcjax.io.datasets.corrections import in_words, parse_correction
from fcjax.io.datasets.finetune import SYSTEM, chosen, conversation, conversations, messages
from fcjax.io.datasets.label_studio import COMPARISONS, RATINGS, interface, read_annotations, tasks

WORDS = """\
1. [refuted] Ada was born in 1816.
   - contradiction (0.90): Ada: Born in 1815.
2. [unverified] She liked tea."""


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_correctors_row_is_read():
    found = parse_correction(CORRECTED)
    assert (found.query, found.response) == ("When was Ada born?", "Ada was born in 1816. She liked tea.")
    assert found.corrected == "Ada was born in 1815."
    assert found.feedback == WORDS == in_words(found.statements)
    assert [one.label for one in found.statements] == ["refuted", "unverified"]


@pytest.mark.parametrize("key", ["best", "corrected", "correction", "revised_response", "revised", "reference"])
def test_rows_that_people_put_together_are_read(key):
    row = {"input": "Q?", "output": "No.", key: "Yes.", "feedback": " Wrong. ", "atoms": [{"text": "x", "label": "S"}]}
    found = parse_correction(row, 5)
    assert (found.id, found.query, found.response, found.corrected) == ("5", "Q?", "No.", "Yes.")
    assert (found.feedback, found.statements[0].text) == ("Wrong.", "x")


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"response": "x"}, "best"),
        ({"corrected": "x"}, "response"),
        ({"response": "x", "best": {"precision": 1}}, "best.response"),
        ({"response": "x", "best": "y", "feedback": [1]}, "feedback"),
        ({"response": "x", "best": "y", "feedback": {"findings": [{"label": "refuted"}]}}, "feedback.findings[0].text"),
    ],
)
def test_faults_of_corrections_name_the_field(row, field):
    with pytest.raises(InputError) as caught:
        parse_correction(row)
    assert [fault.field for fault in caught.value.faults] == [field]


def test_feedback_says_what_passages_say_and_long_ones_are_cut():
    long = FEEDBACK | {"contexts": [FEEDBACK["contexts"][0] | {"text": "word " * 1000}]}
    words = parse_correction(CORRECTED | {"feedback": long}).feedback
    assert 500 < max(map(len, words.splitlines())) < 560
    given = [{"type": "contradiction", "title": "Ada", "text": "Born in 1815.", "probability": 0.9}]
    by_hand = {"findings": [FEEDBACK["findings"][0] | {"evidence": given}, FEEDBACK["findings"][1]]}
    assert parse_correction(CORRECTED | {"feedback": by_hand}).feedback == WORDS


def test_a_conversation_has_system_user_and_assistant():
    row = conversation(parse_correction(CORRECTED))
    assert [turn["role"] for turn in row["messages"]] == ["system", "user", "assistant"]
    assert row["messages"][0]["content"] == SYSTEM
    assert row["messages"][1]["content"] == (
        "Question:\nWhen was Ada born?\n\nAnswer:\nAda was born in 1816. She liked tea.\n\nFeedback:\n" + WORDS
    )
    assert row["messages"][2]["content"] == "Ada was born in 1815."
    bare = conversation(parse_correction(CORRECTED), feedback=False)
    assert "Feedback" not in bare["messages"][1]["content"]
    assert messages(None, "x")[1]["content"] == "Answer:\nx"


def test_rows_to_learn_nothing_from_are_left_out_and_counted(tmp_path):
    same = CORRECTED | {"id": "same", "best": {"response": "Ada was born in 1816.  She liked tea."}}
    failed = {"id": "no", "status": "refused", "response": "x"}
    path = write(tmp_path / "c.jsonl", CORRECTED, same, failed, {"id": "bad"})
    report = BuildReport()
    assert len(list(conversations(path, None, report))) == 1
    assert report.skipped == {"nothing was changed": 1, "its status is refused": 1}
    assert (report.rows, report.bad, report.faults[0].line) == (4, 1, 4)
    assert len(list(conversations(path, unchanged=True))) == 2
    cut_short = CORRECTED | {"status": "correction_failed"}  # as `fcjax correct` writes it: the best so far is there
    write(path, CORRECTED, cut_short)
    assert len(list(conversations(path, None, report := BuildReport(), unchanged=True))) == 1
    assert report.skipped == {"its status is correction_failed": 1}


def test_splits_of_conversations(tmp_path):
    path = write(tmp_path / "c.jsonl", *(CORRECTED | {"id": f"c{i}"} for i in range(20)))
    parts = {
        split: [one.id for one in chosen(path, Selection(seed=1, split=split), BuildReport(), unchanged=False)]
        for split in ("train", "validation", "test")
    }
    assert {split: len(ids) for split, ids in parts.items()} == {"train": 16, "validation": 2, "test": 2}
    assert len(set.union(*map(set, parts.values()))) == 20


def many(count=40):
    return [parse_correction(CORRECTED | {"id": f"c{i}"}) for i in range(count)]


def test_tasks_hide_which_answer_is_the_corrected_one():
    found = [task["data"] for task in tasks(many(), seed=1)]
    sides = {data["corrected_is"] for data in found}
    assert sides == {"A", "B"}
    for data in found:
        corrected, original = (data["a"], data["b"])[:: 1 if data["corrected_is"] == "A" else -1]
        assert (corrected, original) == ("Ada was born in 1815.", CORRECTED["response"])
    assert found == [task["data"] for task in tasks(many(), seed=1)]
    assert found != [task["data"] for task in tasks(many(), seed=2)]
    assert found[0]["statements"][0] == {
        "text": "Ada was born in 1816.",
        "label": "refuted",
        "evidence": "contradiction: Born in\n1815.",
    }


def test_the_interface_shows_fields_of_the_tasks_and_never_which_is_which():
    view = ET.fromstring(interface())
    data = next(tasks(many(1)))["data"]
    shown = {element.get("value", "")[1:] for element in view.iter("Text")}
    assert {name for name in shown if "[" not in name} <= data.keys()
    assert {name for name in shown if "[" in name} == {"statements[{{idx}}].text", "statements[{{idx}}].evidence"}
    assert "corrected_is" not in interface()
    assert "label" not in interface()
    names = [element.get("name") for element in view.iter() if element.get("name")]
    assert len(names) == len(set(names))
    controls = [element for element in view.iter() if element.get("toName")]
    assert {element.get("toName") for element in controls} <= set(names)
    rated = {element.get("name") for element in view.iter("Rating")}
    assert rated == {f"{name}_{side}" for name in RATINGS for side in "AB"}
    assert set(COMPARISONS) <= set(names)
    assert "Repeater" not in interface(statements=False)


def read(tmp_path, document):
    path = tmp_path / "export.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    rows = list(read_annotations(path))
    return [one for row in rows for one in row.value or ()], [fault for row in rows for fault in row.faults]


def test_the_study_of_an_export_by_hand(tmp_path):
    judgements, faults = read(tmp_path, EXPORT)
    assert faults == []
    found = study(judgements)
    assert (found.tasks, found.annotators) == (2, 3)
    factuality, preferred = found.criteria
    assert (factuality.name, factuality.tasks, factuality.judgements) == ("factuality", 2, 8)
    assert factuality.corrected == pytest.approx((4.5 + 2.5) / 2)  # of task two B is the corrected one
    assert factuality.original == pytest.approx((2 + 3.5) / 2)
    assert (factuality.wins, factuality.ties, factuality.losses) == (0.5, 0.0, 0.5)
    assert factuality.agreement.units == 4
    assert factuality.agreement.percent == pytest.approx(1 / 4)  # only B of task one was rated alike
    assert (preferred.name, preferred.original) == ("preferred", None)
    assert (preferred.wins, preferred.ties, preferred.losses) == (0.5, 0.0, 0.5)
    assert preferred.agreement.percent == 0.5
    refuted, unverified = found.verdicts
    assert (refuted.label, refuted.statements) == ("refuted", 2)
    assert refuted.shares == {"true": 0.0, "false": 0.5, "cannot tell": 0.5}  # task two is a tie
    assert unverified.shares == {"true": 0.5, "false": 0.0, "cannot tell": 0.5}
    table = found.to_markdown()
    assert "| factuality | 2 | 2.75 | 3.50 | 50% | 0% | 50% | 25% |" in table
    assert "| refuted | 2 | 0% | 50% | 50% |" in table
    assert json.loads(json.dumps(found.to_dict()))["criteria"][0]["name"] == "factuality"


EMPTY = {"id": 2, "completed_by": 1, "was_cancelled": False, "result": []}
COMMENT = annotation(1, {}, "A") | {"result": annotation(1, {}, "A")["result"][-1:]}
REAL, OTHER = annotation(1, {}, "A"), annotation(1, {}, "B")
EARLY, LATE = "2026-11-30T09:00:00.000000Z", "2026-11-30T11:30:00+02:00"  # 9:00 and 9:30


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ([REAL, EMPTY], "corrected"),
        ([EMPTY, REAL], "corrected"),
        ([REAL | {"updated_at": EARLY}, EMPTY | {"updated_at": LATE}], "corrected"),
        ([REAL, COMMENT], "corrected"),
        ([REAL, OTHER], "original"),
        ([REAL | {"updated_at": LATE}, OTHER | {"updated_at": EARLY}], "corrected"),
        ([REAL | {"updated_at": EARLY}, OTHER | {"updated_at": LATE}], "original"),
        ([REAL | {"created_at": LATE}, OTHER | {"created_at": EARLY}], "corrected"),
        ([REAL | {"created_at": EARLY, "updated_at": LATE}, OTHER | {"created_at": LATE[:-6]}], "original"),
        ([REAL | {"created_at": LATE}, OTHER], "original"),
        ([REAL | {"created_at": LATE}, OTHER | {"created_at": "yesterday"}], "original"),
        ([REAL | {"updated_at": LATE}, OTHER | {"updated_at": LATE}], "original"),
    ],
)
def test_an_empty_annotation_does_not_count_and_the_latest_real_one_does(tmp_path, annotations, expected):
    judgements, faults = read(tmp_path, [exported("one", "A", *annotations)])
    assert faults == []
    assert [(one.annotator, one.value) for one in judgements] == [("1", expected)]


def test_a_task_with_empty_annotations_alone_has_no_judgements(tmp_path):
    assert read(tmp_path, [exported("one", "A", EMPTY, COMMENT)]) == ([], [])


def test_tasks_of_one_id_are_numbered_and_their_judgements_stay_apart(tmp_path):
    rows = [parse_correction(CORRECTED | {"id": id}) for id in ("x", "x", "x#2", "y", "x")]
    found = list(tasks(rows, seed=1))
    assert [task["data"]["id"] for task in found] == ["x", "x#2", "x#2#2", "y", "x#3"]
    first = next(tasks(rows[:1], seed=1))
    assert found[0] == first
    for task in found:
        task["annotations"] = [annotation(1, {}, task["data"]["corrected_is"])]
    judgements, faults = read(tmp_path, found)
    assert faults == []
    assert study(judgements).tasks == 5


def test_conversations_of_one_id_are_all_kept_in_one_split(tmp_path):
    ids = [f"c{i % 10}" for i in range(30)]
    path = write(tmp_path / "c.jsonl", *(CORRECTED | {"id": id} for id in ids))
    assert len(list(conversations(path))) == 30
    parts = [
        [one.id for one in chosen(path, Selection(seed=1, split=split), BuildReport(), unchanged=False)]
        for split in ("train", "validation", "test")
    ]
    assert [len(found) for found in parts] == [24, 3, 3]
    assert [len(set(found)) for found in parts] == [8, 1, 1]


def test_cancelled_annotations_do_not_count_and_the_last_of_two_does(tmp_path):
    first = annotation(1, {"factuality_A": 1}, "B")
    last = annotation(1, {"factuality_A": 5}, "A")
    skipped = annotation(2, {"factuality_A": 1}, "B", was_cancelled=True)
    judgements, faults = read(tmp_path, [exported("one", "A", first, last, skipped)])
    assert faults == []
    assert [(one.annotator, one.value, one.side) for one in judgements] == [
        ("1", 5.0, "corrected"),
        ("1", "corrected", None),
    ]


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({"factuality_A": 3}, "[0].data"),
        (exported("x", "C", annotation(1, {}, "A")), "[0].data.corrected_is"),
        (exported("x", "A", annotation(None, {}, "A")), "[0].annotations[0].completed_by"),
        (
            exported("x", "A", annotation(1, {"factuality_A": 9}, "A")),
            "[0].annotations[0].result[0].value.rating",
        ),
        (exported("x", "A", annotation(1, {}, "Both")), "[0].annotations[0].result[0].value.choices"),
    ],
)
def test_faults_of_an_export_name_the_field(tmp_path, task, field):
    judgements, faults = read(tmp_path, [task, EXPORT[0]])
    assert [fault.field for fault in faults] == [field]
    assert {one.task for one in judgements} == {"one"}


# Published examples: Cohen's 2 x 2 table of 50 grant proposals; Fleiss (1971) as in its usual worked example of 14
# raters; Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section C, and its interval value.
FLEISS = [
    (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
]  # fmt: skip
KRIPPENDORFF = [
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
]


def test_agreement_equals_published_examples():
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)
    units = []
    for counts in FLEISS:
        ratings = [float(value) for value, count in enumerate(counts) for _ in range(count)]
        units.append({f"r{i}": rating for i, rating in enumerate(ratings)})
    assert percent_agreement(units) == pytest.approx(0.378, abs=5e-4)
    assert fleiss_kappa(units) == pytest.approx(0.210, abs=5e-4)
    columns = zip(*(row.split() for row in KRIPPENDORFF), strict=True)
    units = [{f"r{i}": float(x) for i, x in enumerate(column) if x != "."} for column in columns]
    assert krippendorff_alpha(units) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(units, "interval") == pytest.approx(0.849, abs=5e-4)


three_raters = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=2, max_size=12)


@given(three_raters)
def test_agreement_equals_nltks(ratings):
    units = [{f"r{i}": float(x) for i, x in enumerate(row)} for row in ratings]
    triples = [(name, str(item), value) for item, unit in enumerate(units) for name, value in unit.items()]
    nominal, interval = AnnotationTask(triples, binary_distance), AnnotationTask(triples, interval_distance)
    if (alpha := krippendorff_alpha(units)) is not None:
        assert alpha == pytest.approx(nominal.alpha())
        assert krippendorff_alpha(units, "interval") == pytest.approx(interval.alpha())
        # With as many ratings per unit, alpha is Fleiss' kappa corrected for the sample's size.
        kappa, n = fleiss_kappa(units), len(triples)
        assert kappa is not None
        assert alpha == pytest.approx(kappa + (1 - kappa) / n)
    first, second, _ = zip(*ratings, strict=True)
    if (cohen := cohen_kappa(first, second)) is not None:
        assert cohen == pytest.approx(nominal.kappa_pairwise("r0", "r1"))


def test_agreement_needs_two_ratings_and_more_than_one_value():
    for measure in (percent_agreement, pairwise_kappa, fleiss_kappa, krippendorff_alpha):
        assert measure([]) is None
        assert measure([{"a": 1.0}, {"b": 2.0}]) is None
    same = [{"a": "x", "b": "x"}] * 3
    assert percent_agreement(same) == 1
    assert pairwise_kappa(same) is fleiss_kappa(same) is krippendorff_alpha(same) is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=20))
def test_agreement_stays_in_its_bounds(pairs):
    units = [{"a": float(a), "b": float(b)} for a, b in pairs]
    equal = sum(a == b for a, b in pairs) / len(pairs)
    assert percent_agreement(units) == pytest.approx(equal)
    for kappa in (pairwise_kappa(units), fleiss_kappa(units), krippendorff_alpha(units)):
        assert kappa is None or (-1.001 <= kappa <= 1 and (kappa == pytest.approx(1)) == (equal == 1))


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 10])
def test_a_statement_whose_number_is_none_has_no_judgement(digits, tmp_path):
    row = exported("one", "A", annotation(1, {"factuality_A": 5}, "A", ["false"]))
    row["annotations"][0]["result"][2]["from_name"] = f"statement_{digits}"
    (found,) = read_annotations(write(tmp_path / "export.jsonl", row))
    assert not found.faults
    assert [one.criterion for one in found.value] == ["factuality", "preferred"]
