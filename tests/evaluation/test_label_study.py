"""Labels, probabilities and feedback against human labels, by hand; cases in which FR2 and FR3 beat a stance count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fcjax.core.records import Atom, Case, Context, Relation, RelationType, Status
from fcjax.evaluation.label_study import (
    FeedbackQuality,
    LabelAgreement,
    agreements,
    majority,
    presets,
    scored,
    table,
    three_way_table,
)
from fcjax.scoring.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT / ".." / "shared" / "cases" / "factcheck_gpt.jsonl"
ENTAILS, CONTRADICTS = RelationType.ENTAILMENT, RelationType.CONTRADICTION


def relation(source, target, type, p):
    return Relation(source=source, target=target, type=type, probability=p)


def case(id, atoms, n_contexts, relations):
    """`atoms`: (human label, own contexts); contexts are c0, c1, ..."""
    return Case(
        id=id,
        atoms=tuple(
            Atom(id=f"a{i}", text=f"claim {i}", label=human, contexts=own) for i, (human, own) in enumerate(atoms)
        ),
        contexts=tuple(Context(id=f"c{i}", text=f"passage {i}") for i in range(n_contexts)),
        relations=tuple(relation(*one) for one in relations),
    )


CASES = [
    case(
        "one",
        [("S", ("c0", "c1")), ("NS", ("c2",)), ("S", ())],
        3,
        [("c0", "a0", ENTAILS, 0.9), ("c1", "a0", ENTAILS, 0.7), ("c2", "a1", CONTRADICTS, 0.9)],
    ),
    case(
        "two",
        [("NS", ("c0", "c1", "c2")), ("NS", ("c0",)), (None, ("c1",))],
        3,
        [
            ("c0", "a0", ENTAILS, 0.6),
            ("c1", "a0", ENTAILS, 0.6),
            ("c2", "a0", CONTRADICTS, 0.97),
            ("c1", "a2", ENTAILS, 0.9),
        ],
    ),
]


def labels(rows):
    return [[atom["label"] for atom in row["atoms"]] for row in rows]


def test_the_majority_counts_stances_and_not_their_probabilities():
    rows = majority(CASES)
    assert labels(rows) == [["supported", "refuted", "unverified"], ["supported", "unverified", "supported"]]
    assert [atom["p"] for atom in rows[0]["atoms"]] == [0.75, pytest.approx(1 / 3), 0.5]
    assert [atom["p"] for atom in rows[1]["atoms"]] == [0.6, 0.5, pytest.approx(2 / 3)]
    assert labels(scored(CASES, Settings())) == [
        ["supported", "refuted", "unverified"],
        ["refuted", "unverified", "supported"],  # two weak passages for, one strong against
    ]


def test_atoms_and_unrelated_passages_have_no_vote_in_the_majority():
    relations = [
        ("c0", "a0", ENTAILS, 0.9),
        ("a0", "a1", ENTAILS, 0.9),
        ("a1", "a2", CONTRADICTS, 0.9),
        ("c0", "c1", CONTRADICTS, 0.9),
    ]
    (row,) = majority([case("one", [(None, ("c0",)), (None, ("c1",)), (None, ())], 2, relations)])
    assert [atom["p"] for atom in row["atoms"]] == [pytest.approx(2 / 3), 0.5, 0.5]


def test_neutral_relations_have_no_vote_in_the_majority():
    relations = [("c0", "a0", RelationType.NEUTRAL, 0.9), ("c1", "a0", CONTRADICTS, 0.6)]
    (row,) = majority([case("one", [(None, ())], 2, relations)], Settings(encoding="soft"))
    assert row["atoms"][0]["p"] == pytest.approx(1 / 3)


def test_agreement_of_the_majority_by_hand():
    found = LabelAgreement.of(majority(CASES))
    assert found is not None
    assert (found.n_cases, found.n_atoms, found.n_failed) == (2, 5, 0)
    assert found.three_way == {
        "S": {"supported": 1, "refuted": 0, "unverified": 1},
        "NS": {"supported": 1, "refuted": 1, "unverified": 1},
    }
    value = {name: number["value"] for name, number in found.numbers.items()}
    assert value["accuracy"] == pytest.approx(3 / 5)
    assert value["f1_refuted"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1), abs=1e-7)
    squares = (1 - 0.75) ** 2 + (1 / 3) ** 2 + (1 - 0.5) ** 2 + 0.6**2 + 0.5**2
    assert value["brier"] == pytest.approx(squares / 5, abs=1e-6)
    # bins: 0.75 against 1; 1/3 against 0; 0.5 and 0.5 against 1 of 2; 0.6 against 0
    assert value["ece"] == pytest.approx((0.25 + 1 / 3 + 0.0 + 0.6) / 5, abs=1e-6)
    # Pr of labelled atoms: 1/3 against 2/3, and 1/2 against 0
    assert value["mae_precision"] == pytest.approx((1 / 3 + 1 / 2) / 2, abs=1e-6)


def test_feedback_quality_by_hand():
    found = LabelAgreement.of(majority(CASES)).feedback
    assert (found.n_false, found.n_true, found.n_failed) == (3, 2, 0)
    assert found.found == pytest.approx(2 / 3)  # one refuted and one unverified of three
    assert found.found_refuted == pytest.approx(1 / 3)
    assert found.mistaken == 0.5  # the claim that nothing was found on
    assert found.mistaken_refuted == 0.0
    better = LabelAgreement.of(scored(CASES, Settings())).feedback
    assert (better.found, better.found_refuted) == (1.0, pytest.approx(2 / 3))


def test_a_share_needs_claims_of_its_kind():
    none = {"supported": 0, "refuted": 0, "unverified": 0}
    found = FeedbackQuality.of({"S": {**none, "supported": 2}, "NS": none})
    assert (found.found, found.found_refuted) == (None, None)
    assert (found.mistaken, found.mistaken_refuted) == (0.0, 0.0)
    assert LabelAgreement.of(majority([case("x", [(None, ())], 0, [])])) is None


def test_failed_atoms_are_counted_but_in_no_share():
    failed = Case(
        id="failed",
        atoms=(
            Atom(id="a0", text="claim", label="NS", contexts=("c0",)),
            Atom(id="a1", text="other", label="NS", contexts=("c0",), status=Status.RETRIEVAL_FAILED),
        ),
        contexts=(Context(id="c0", text="passage"),),
        relations=(Relation(source="c0", target="a0", type=None, probability=None, status=Status.RELATION_FAILED),),
    )
    for rows in (majority([*CASES, failed]), scored([*CASES, failed], Settings())):
        found = LabelAgreement.of(rows)
        assert (found.n_atoms, found.n_failed) == (5, 2)
        assert found.feedback.n_failed == 2
        assert found.feedback.n_false == 3
        accuracy = found.numbers["accuracy"]
        assert accuracy["worst"] < accuracy["value"] < accuracy["best"]


def test_duplicates_count_once():
    twice = case("twice", [("NS", ("c0",)), ("NS", ("c0",))], 1, [("c0", "a0", CONTRADICTS, 0.9)])
    same = Case(
        id="twice",
        atoms=tuple(Atom(id=atom.id, text="claim", label="NS", contexts=("c0",)) for atom in twice.atoms),
        contexts=twice.contexts,
        relations=(*twice.relations, relation("c0", "a1", CONTRADICTS, 0.8)),
    )
    assert LabelAgreement.of(majority([same])).n_atoms == 1
    assert majority([same])[0]["atoms"][0]["p"] == pytest.approx(1 / 3)  # one stance, not two


# The claim's own passage is weakly for it; of the other claim's passages one is as weak, and one says outright that the
# claim is false. A count of its own passages, or of all, calls it supported.
NEEDS_FR2 = case(
    "FR2",
    [("NS", ("c0",)), ("S", ("c1", "c2"))],
    3,
    [
        ("c0", "a0", ENTAILS, 0.6),
        ("c1", "a0", ENTAILS, 0.55),
        ("c2", "a0", CONTRADICTS, 0.97),
        ("c1", "a1", ENTAILS, 0.9),
        ("c2", "a1", ENTAILS, 0.9),
    ],
)
# Two of the claim's three passages contradict it. Each of the two is contradicted by three passages, so that neither
# stands, and the third passage does.
NEEDS_FR3 = case(
    "FR3",
    [("S", ("c0", "c1", "c2"))],
    9,
    [
        ("c0", "a0", ENTAILS, 0.9),
        ("c1", "a0", CONTRADICTS, 0.8),
        ("c2", "a0", CONTRADICTS, 0.8),
        *((f"c{i}", f"c{1 + i % 2}", CONTRADICTS, 0.99) for i in range(3, 9)),
    ],
)


def first_label(rows):
    return rows[0]["atoms"][0]["label"]


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_fr2_is_right_where_a_count_and_fr1_are_wrong(preset):
    counts = [majority([NEEDS_FR2], Settings(version=version)) for version in ("FR1", "FR2", None)]
    assert [first_label(rows) for rows in counts] == ["supported"] * 3
    by_version = {
        version: first_label(scored([NEEDS_FR2], Settings(preset=preset, version=version)))
        for version in ("FR1", "FR2", "FR3")
    }
    assert by_version == {"FR1": "supported", "FR2": "refuted", "FR3": "refuted"}


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_fr3_is_right_where_a_count_and_fr2_are_wrong(preset):
    counts = [majority([NEEDS_FR3], Settings(version=version)) for version in ("FR1", "FR2", "FR3", None)]
    assert [first_label(rows) for rows in counts] == ["refuted"] * 4
    by_version = {
        version: first_label(scored([NEEDS_FR3], Settings(preset=preset, version=version)))
        for version in ("FR1", "FR2", "FR3")
    }
    assert by_version == {"FR1": "refuted", "FR2": "refuted", "FR3": "supported"}


def test_the_table_of_both_fixtures_shows_the_versions_apart():
    versions = {version: Settings(version=version) for version in ("FR1", "FR2", "FR3")}
    found = agreements([NEEDS_FR2, NEEDS_FR3], versions)
    accuracy = {name: one.numbers["accuracy"]["value"] for name, one in found.items()}
    third = pytest.approx(1 / 3, abs=1e-7)
    assert accuracy == {
        "majority of stances, FR1": third,
        "majority of stances, all relations": third,
        "FR1": third,
        "FR2": pytest.approx(2 / 3, abs=1e-7),
        "FR3": 1.0,
    }
    assert "| FR3 | 3 | 1.000 " in table(found).markdown()
    assert "| FR3 | 2 | 0 | 0 | 0 | 1 | 0 |" in three_way_table(found).markdown()


def test_a_run_without_human_labels_has_an_empty_row():
    found = agreements([case("x", [(None, ())], 0, [])], {})
    empty = [line for line in table(found).markdown().splitlines() if line.startswith("| majority")]
    assert [line.count("–") for line in empty] == [9, 9]
    assert three_way_table(found).csv().endswith(",,,,,,\n")


def write(path, cases):
    with open(path, "w", encoding="utf-8") as stream:
        for one in cases:
            row = {
                "id": one.id,
                "atoms": [
                    {"id": a.id, "text": a.text, "label": a.label, "contexts": list(a.contexts)} for a in one.atoms
                ],
                "contexts": [{"id": c.id, "text": c.text} for c in one.contexts],
                "relations": [
                    {"source": r.source, "target": r.target, "type": r.type, "probability": r.probability}
                    for r in one.relations
                ],
            }
            stream.write(json.dumps(row) + "\n")


def command(*arguments):
    script = [sys.executable, "-P", str(ROOT / "benchmarks" / "humans.py")]
    return subprocess.run([*script, *map(str, arguments)], capture_output=True, text=True)


def test_the_command_puts_the_tables_between_the_marks_and_changes_nothing_else(tmp_path):
    write(tmp_path / "cases.jsonl", CASES)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- humans: begin -->\nold\n<!-- humans: end -->\nafter\n", encoding="utf-8")
    done = command(tmp_path / "cases.jsonl", "--page", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- humans: begin -->\n")
    assert text.endswith("<!-- humans: end -->\nafter\n")
    assert "old" not in text
    assert "| majority of stances, FR1 | 5 | 0.600 " in text
    assert "claim 0" not in text
    assert command(tmp_path / "cases.jsonl", "--page", page).returncode == 0
    assert page.read_text(encoding="utf-8") == text


def test_the_command_leaves_the_page_unchanged_without_cases(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("as it was", encoding="utf-8")
    done = command(tmp_path / "missing.jsonl", "--page", page)
    assert done.returncode == 0
    assert "no such file" in done.stderr
    assert page.read_text(encoding="utf-8") == "as it was"
    write(tmp_path / "cases.jsonl", CASES)
    done = command(tmp_path / "cases.jsonl", "--page", page)
    assert done.returncode == 1
    assert "marks" in done.stderr


@pytest.mark.skipif(not SHARED.is_file(), reason="needs the shared cases")
def test_the_tables_of_the_docs_are_those_of_the_shared_cases():
    done = command(SHARED, "--page", "-")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
    assert len(presets()) == 4
