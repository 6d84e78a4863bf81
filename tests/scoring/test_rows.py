"""Result rows (SPEC 3, 7) and the summary of a data set, from cases through the real engine."""

from __future__ import annotations

import json
import math

import pytest

from fcjax.core.limits import Limits
from fcjax.core.records import Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.engine import infer
from fcjax.io.files import parse_case
from fcjax.scoring.rows import case_row, rounded, rounded_down, rounded_up, unscored_row
from fcjax.scoring.summary import Summary


def says(source, target, type="entailment", probability=0.9, **more):
    return {"source": source, "target": target, "type": type, "probability": probability, **more}


def failed(source, target, status="relation_failed"):
    return says(source, target, None, None, status=status)


def case(atoms, contexts=(), relations=(), **more):
    """A case of bare ids; an atom or context may be a dict that says more."""
    return parse_case(
        {
            "id": "x",
            "atoms": [a if isinstance(a, dict) else {"id": a, "text": f"text of {a}"} for a in atoms],
            "contexts": [c if isinstance(c, dict) else {"id": c, "text": f"text of {c}"} for c in contexts],
            "relations": list(relations),
            **more,
        }
    )


def row_of(case, k=2, limits=None, **graph):
    built = FactGraph.from_case(case, **graph)
    (posterior,) = infer([built], limits=limits)
    row = case_row(case, built, posterior, k=k, version=graph.get("version"), fingerprint="f" * 32)
    json.dumps(row, allow_nan=False)  # a row is JSON as it stands
    return row


def atom_of(row, id):
    return next(atom for atom in row["atoms"] if atom["id"] == id)


def test_a_row_has_the_keys_of_the_specification_in_its_order():
    row = row_of(case(["a"], ["c"], [says("c", "a")]))
    assert list(row) == ["id", "status", "reason", "atoms", "measures", "diagnostics", "fingerprint"]
    assert list(row["atoms"][0]) == ["id", "p", "lower", "upper", "label", "certain", "status", "evidence"]
    named = {"precision", "recall_at_k", "f1_at_k", "e_measure", "entropy", "verifiability"}
    counts = {"n_atoms", "n_supported", "n_refuted", "n_unverified", "n_failed"}
    assert row["measures"].keys() >= named | counts
    assert row["diagnostics"].keys() >= {"method", "width", "log_z"}


def test_posteriors_labels_and_measures_of_the_papers_first_example():
    row = row_of(case(["a"], ["c1", "c2"], [says("c1", "a", "entailment", 0.8), says("c2", "a", "contradiction", 0.9)]))
    atom = row["atoms"][0]
    assert atom["p"] == pytest.approx(0.317881, abs=1e-6)
    assert atom["lower"] == pytest.approx(atom["p"] - 1e-5, abs=2e-7)
    assert atom["upper"] == pytest.approx(atom["p"] + 1e-5, abs=2e-7)
    assert (atom["label"], atom["certain"], atom["status"]) == ("refuted", True, "ok")
    assert row["measures"]["precision"] == 0.0
    assert row["measures"]["n_refuted"] == 1


def test_numbers_have_seven_digits_and_intervals_are_rounded_outward():
    assert rounded(0.12345678) == 0.1234568
    assert str(rounded(-1e-12)) == "0.0"
    assert rounded_down(0.12345678) == 0.1234567
    assert rounded_up(0.12345671) == 0.1234568
    assert rounded_down(0.5) == rounded_up(0.5) == 0.5
    row = row_of(case(["a"], ["c"], [says("c", "a", probability=0.87654)]))
    for key in ("p", "lower", "upper"):
        assert row["atoms"][0][key] == round(row["atoms"][0][key], 7)


def test_evidence_is_the_strongest_relations_on_each_side():
    supporting = [says(f"c{i}", "a", "entailment", 0.5 + i / 100) for i in range(5)]
    against = [says("d0", "a", "contradiction", 0.7), says("a", "d1", "contradiction", 0.8)]
    both = [says("e", "a", "equivalence", 0.52), says("n", "a", "neutral", 0.99)]
    contexts = [*(f"c{i}" for i in range(5)), "d0", "d1", "e", "n"]
    evidence = row_of(case(["a"], contexts, supporting + against + both))["atoms"][0]["evidence"]
    assert [(e["source"], e["target"], e["side"]) for e in evidence] == [
        ("c4", "a", "for"),
        ("c3", "a", "for"),
        ("c2", "a", "for"),
        ("a", "d1", "against"),
        ("d0", "a", "against"),
    ]
    assert [e["probability"] for e in evidence] == [0.54, 0.53, 0.52, 0.8, 0.7]


def test_neutral_answers_are_not_evidence_and_the_atom_is_unverified():
    atom = row_of(case(["a"], ["c"], [says("c", "a", "neutral", 0.9)]))["atoms"][0]
    assert (atom["label"], atom["status"], atom["evidence"]) == ("unverified", "ok", [])
    assert atom["p"] == pytest.approx(0.5)


def test_soft_moves_an_atom_by_neutral_answers_but_counts_them_as_no_evidence():
    unsure = says("c", "a", "neutral", 0.6, distribution={"entailment": 0.3, "contradiction": 0.1, "neutral": 0.6})
    row = row_of(case(["a", "b"], ["c", "d"], [unsure, says("d", "b", "neutral", 0.9)]), encoding="soft")
    a, b = row["atoms"]
    true, false = 1 - 0.99 * 0.1, 1 - 0.99 * 0.3
    assert a["p"] == pytest.approx(true / (true + false), abs=1e-6)
    assert (a["label"], a["status"], a["evidence"]) == ("supported", "ok", [])  # SPEC 3: outside of the tie band
    assert (b["p"], b["label"]) == (0.5, "unverified")  # with p alone, the two others are equal
    assert (row["measures"]["verifiability"], row["measures"]["n_unverified"]) == (0, 1)
    failing = row_of(case(["a"], ["c", "d"], [unsure, failed("d", "a")]), encoding="soft")
    assert failing["atoms"][0]["status"] == "relation_failed"


@pytest.mark.parametrize(
    "no_contexts",
    [
        case([{"id": "a", "text": "t", "contexts": []}, "b"], ["c"], [says("c", "b")]),
        case(["a", {"id": "b", "text": "u", "status": "ok"}], [], []),
    ],
)
def test_an_atom_without_evidence_is_unverified_and_counts(no_contexts):
    row = row_of(no_contexts)
    assert (atom_of(row, "a")["status"], atom_of(row, "a")["label"]) == ("no_evidence", "unverified")
    assert row["measures"]["n_atoms"] == 2


def test_an_atom_with_failed_relations_has_no_verdict_and_does_not_count():
    row = row_of(case(["a", "b"], ["c"], [failed("c", "a"), says("c", "b")]))
    atom = atom_of(row, "a")
    assert [atom[key] for key in ("p", "lower", "upper", "label", "certain")] == [None] * 5
    assert (atom["status"], atom["failed_relations"]) == ("relation_failed", 1)
    measures = row["measures"]
    assert (row["status"], measures["n_atoms"], measures["n_failed"], measures["n_unverified"]) == ("ok", 1, 1, 0)
    assert (measures["precision"], measures["precision_worst"], measures["precision_best"]) == (1.0, 0.5, 1.0)


def test_an_atom_with_some_failed_relations_and_some_evidence_is_ok():
    atom = row_of(case(["a"], ["c", "d"], [failed("c", "a", "refused"), says("d", "a")]))["atoms"][0]
    assert (atom["status"], atom["label"], atom["failed_relations"]) == ("ok", "supported", 1)


def test_a_neutral_answer_does_not_make_up_for_a_failed_one():
    atom = row_of(case(["a", "b"], ["c", "d"], [failed("c", "a"), says("d", "a", "neutral"), says("d", "b")]))["atoms"][
        0
    ]
    assert atom["status"] == "relation_failed"


def test_a_failed_relation_that_the_version_does_not_ask_for_does_not_count():
    atoms = [{"id": "a", "text": "t", "contexts": ["d"]}, {"id": "b", "text": "u", "contexts": ["d"]}]
    given = case(atoms, ["c", "d"], [failed("c", "a"), failed("c", "d"), says("d", "b")])
    assert atom_of(row_of(given), "a")["status"] == "relation_failed"
    assert atom_of(row_of(given, version="FR2"), "a")["status"] == "relation_failed"
    assert atom_of(row_of(given, version="FR1"), "a")["status"] == "ok"


@pytest.mark.parametrize(
    ("atom", "context"),
    [
        ({"id": "a", "text": "t", "status": "retrieval_failed"}, {"id": "c", "text": "u"}),
        ({"id": "a", "text": "t", "contexts": ["c"]}, {"id": "c", "status": "retrieval_failed"}),
    ],
)
def test_an_atom_with_failed_retrieval_has_no_verdict(atom, context):
    row = row_of(case([atom, "b"], [context, "d"], [says("d", "b")]))
    assert (atom_of(row, "a")["status"], atom_of(row, "a")["p"]) == ("retrieval_failed", None)
    assert row["measures"]["n_failed"] == 1


@pytest.mark.parametrize("version", [None, "FR2", "FR3"])
def test_without_lists_of_their_own_all_contexts_are_those_of_each_atom(version):
    lost, other = {"id": "c", "status": "retrieval_failed"}, {"id": "d", "text": "u", "status": "retrieval_failed"}
    row = row_of(case(["a", "b"], [lost, other], []), version=version)
    assert [(one["status"], one["label"]) for one in row["atoms"]] == [("retrieval_failed", None)] * 2
    assert (row["status"], row["measures"]) == ("retrieval_failed", None)
    answered = row_of(case(["a"], [lost, "d"], [says("d", "a", "neutral", 0.9)]), version=version)
    assert (answered["atoms"][0]["status"], answered["atoms"][0]["label"]) == ("ok", "unverified")
    mixed = row_of(case([{"id": "a", "text": "t", "contexts": []}, "b"], [lost, other], []), version=version)
    assert [one["status"] for one in mixed["atoms"]] == ["no_evidence", "retrieval_failed"]


def test_a_case_whose_atoms_all_failed_has_their_status_and_no_measures():
    row = row_of(case(["a", "b"], ["c"], [failed("c", "a"), failed("c", "b")]))
    assert (row["status"], row["measures"]) == ("relation_failed", None)
    assert "2 relation_failed" in row["reason"]


def test_a_duplicate_names_the_kept_atom_and_does_not_count():
    copies = [{"id": "a", "text": "same"}, {"id": "b", "text": " same "}, {"id": "d", "text": "other"}]
    row = row_of(case(copies, ["c"], [says("c", "b"), says("c", "d", "contradiction")]))
    a, b = atom_of(row, "a"), atom_of(row, "b")
    assert b["duplicate_of"] == "a"
    assert "duplicate_of" not in a
    assert (a["p"], a["label"], a["status"]) == (b["p"], b["label"], b["status"])
    assert [e["target"] for e in a["evidence"]] == ["a"]
    assert (row["measures"]["n_atoms"], row["measures"]["n_duplicates"]) == (2, 1)
    assert row["measures"]["precision"] == 0.5


def test_an_atom_fails_only_if_all_of_its_copies_do():
    copies = [{"id": "a", "text": "same", "status": "retrieval_failed"}, {"id": "b", "text": "same"}]
    row = row_of(case(copies, ["c"], [says("c", "b")]))
    assert [atom["status"] for atom in row["atoms"]] == ["ok", "ok"]
    assert row["measures"]["n_atoms"] == 1


def test_no_atoms_no_measures():
    row = row_of(case([], ["c"]))
    assert (row["status"], row["atoms"], row["measures"]) == ("no_atoms", [], None)


def test_an_inconsistent_case_names_the_relations_that_clash():
    row = row_of(
        case(
            ["a"],
            [{"id": "c", "text": "t", "prior": 1.0}],
            [says("c", "a", p, 1.0) for p in ("entailment", "contradiction")],
        )
    )
    assert (row["status"], row["measures"]) == ("inconsistent", None)
    assert "c entailment a" in row["reason"]
    assert "c contradiction a" in row["reason"]
    atom = row["atoms"][0]
    assert (atom["p"], atom["label"], atom["status"]) == (None, None, "inconsistent")
    assert row["diagnostics"]["log_z"] is None


def test_human_labels_are_in_the_rows():
    row = row_of(case([{"id": "a", "text": "t", "label": "ns"}, {"id": "b", "text": "u", "label": "maybe"}, "d"]))
    assert [atom.get("human") for atom in row["atoms"]] == ["NS", None, None]


def test_the_releases_k_follows_the_number_of_atoms():
    relations = [says("c", name) for name in "abde"]
    measures = row_of(case("abde", ["c"], relations), k="release")["measures"]
    assert (measures["k"], measures["recall_at_k"]) == (2, 1.0)


def summed(*rows, k=2):
    summary = Summary(k)
    for row in rows:
        summary.add(row)
    return summary.to_dict()


GOOD = row_of(case([{"id": "a", "text": "t", "label": "S"}, "b"], ["c"], [says("c", "a"), says("c", "b")]))
BAD = row_of(
    case([{"id": "a", "text": "t", "label": "S"}, "b"], ["c"], [says("c", "a", "contradiction"), says("c", "b")])
)
PARTLY = row_of(case([{"id": "a", "text": "t", "label": "NS"}, "b"], ["c"], [failed("c", "a"), says("c", "b")]))
UNREADABLE = unscored_row("x", Status.INVALID_INPUT, "not JSON", "")
REFUSED = unscored_row("x", Status.REFUSED, "refused", "", case(["a", "b", "d"]).atoms)
EMPTY = unscored_row("x", Status.NO_ATOMS, "no atoms", "")


def test_means_have_their_counts():
    summary = summed(GOOD, BAD, PARTLY, UNREADABLE, EMPTY)
    assert summary["statuses"] == {"invalid_input": 1, "no_atoms": 1, "ok": 3}
    assert (summary["n_cases"], summary["n_scored"], summary["n_failed"]) == (5, 3, 1)
    precision = summary["means"]["precision"]
    assert precision["value"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert (precision["n"], precision["n_failed"], precision["n_partly_failed"]) == (3, 1, 1)


def test_worst_and_best_count_failed_cases_and_atoms_in_but_not_responses_without_atoms():
    precision = summed(GOOD, BAD, PARTLY, UNREADABLE, EMPTY)["means"]["precision"]
    assert precision["worst"] == pytest.approx((1 + 0.5 + 0.5 + 0) / 4)
    assert precision["best"] == pytest.approx((1 + 0.5 + 1 + 1) / 4)


def test_worst_and_best_of_a_sum_are_unknown_without_the_number_of_atoms():
    known, unknown = summed(GOOD, REFUSED)["means"], summed(GOOD, UNREADABLE)["means"]
    assert known["verifiability"]["best"] == pytest.approx((2 + 3) / 2)
    assert known["entropy"]["worst"] == pytest.approx((GOOD["measures"]["entropy"] + 3 / math.e) / 2)
    assert unknown["verifiability"]["best"] is None
    assert unknown["verifiability"]["worst"] == 1.0
    assert unknown["entropy"]["worst"] is None
    assert (unknown["recall_at_k"]["worst"], unknown["recall_at_k"]["best"]) == (0.5, 1.0)


def test_micro_numbers_are_over_atoms():
    micro = summed(GOOD, BAD, PARTLY)["micro"]["precision"]
    assert micro["value"] == pytest.approx(4 / 5)
    assert (micro["worst"], micro["best"]) == (pytest.approx(4 / 6), pytest.approx(5 / 6))


def test_against_human_labels():
    human = summed(GOOD, BAD, PARTLY)["human_labels"]
    assert (human["n_atoms"], human["n_cases"], human["n_failed"]) == (2, 2, 1)
    assert human["accuracy"]["value"] == 0.5
    assert (human["accuracy"]["worst"], human["accuracy"]["best"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert human["three_way"]["S"] == {"supported": 1, "refuted": 1, "unverified": 0}
    assert human["f1_refuted"]["value"] == 0.0


def test_without_human_labels_there_is_nothing_to_compare_with():
    assert summed(row_of(case(["a"])))["human_labels"] is None


def test_a_summary_of_failures_only_has_no_values_and_no_nan():
    summary = summed(UNREADABLE, REFUSED)
    assert summary["means"]["precision"]["value"] is None
    assert (summary["means"]["precision"]["worst"], summary["means"]["precision"]["best"]) == (0.0, 1.0)
    json.dumps(summary, allow_nan=False)


def test_a_summary_has_a_one_line_repr():
    assert repr(Summary()) == "Summary(no cases)"
    found = Summary(3)
    found.add(unscored_row("x", Status.REFUSED, "no", ""))
    assert repr(found) == "Summary(1 case: 1 refused; K = 3)"
    found.add(row_of(case(["a"], ["c"], [says("c", "a")])))
    assert repr(found) == "Summary(2 cases: 1 ok, 1 refused; mean precision 1.000; K = 3)"


def test_a_summary_of_nothing():
    summary = summed()
    assert (summary["n_cases"], summary["means"]["precision"]["value"]) == (0, None)
    json.dumps(summary, allow_nan=False)


def test_intervals_are_seeded_enclose_the_mean_and_shrink_with_the_number_of_cases():
    few, again, many = summed(*[GOOD, BAD] * 5), summed(*[GOOD, BAD] * 5), summed(*[GOOD, BAD] * 200)
    assert few == again
    low, high = few["means"]["precision"]["low"], few["means"]["precision"]["high"]
    assert low < 0.75 < high
    # the standard error of a mean of n values of 0.5 and 1 is 0.25 / sqrt(n)
    width = many["means"]["precision"]["high"] - many["means"]["precision"]["low"]
    assert width == pytest.approx(2 * 1.96 * 0.25 / math.sqrt(400), rel=0.15)
    assert width < (high - low) / 3


def test_one_case_has_no_interval():
    precision = summed(GOOD)["means"]["precision"]
    assert (precision["value"], precision["low"], precision["high"]) == (1.0, None, None)


def test_a_graph_beyond_the_limit_of_exact_inference_has_proved_verdicts():
    names = [f"c{i}" for i in range(8)]
    pairs = [says(x, y, "contradiction", 0.6 + i / 100) for i, x in enumerate(names) for y in names[i + 1 :]]
    given = case(["a"], names, [*pairs, says("c0", "a")])
    exact = row_of(given, version="FR3")
    row = row_of(given, limits=Limits(exact_width=2), version="FR3")
    assert (exact["diagnostics"]["method"], exact["diagnostics"]["width"]) == ("exact", 7)
    assert (row["diagnostics"]["method"], row["diagnostics"]["width"]) == ("conditioned", 7)
    assert (row["status"], row["reason"], row["atoms"][0]["label"]) == ("ok", None, "supported")
    assert row["diagnostics"]["rows"] > 1
    assert row["atoms"][0]["p"] == pytest.approx(exact["atoms"][0]["p"], abs=1e-5)
    assert row["atoms"][0]["lower"] <= exact["atoms"][0]["p"] <= row["atoms"][0]["upper"]


def test_a_graph_beyond_all_limits_has_no_verdicts():
    """Each of 26 atoms related to each of 53 contexts: width 26, whatever the order."""
    atoms, contexts = [f"a{i}" for i in range(26)], [f"c{j}" for j in range(53)]
    types = ("entailment", "contradiction")
    pairs = [
        says(c, a, types[(i * j) % 2], 0.6 + (i + j) / 400) for i, a in enumerate(atoms) for j, c in enumerate(contexts)
    ]
    row = row_of(case(atoms, contexts, pairs), limits=Limits(exact_width=20, rows=20))
    assert (row["status"], row["measures"]) == ("too_wide", None)
    assert row["reason"].startswith("exact inference needs width 26; allowed: 20 (exact_width)")
    assert {(atom["p"], atom["label"], atom["status"]) for atom in row["atoms"]} == {(None, None, "too_wide")}
    assert row["diagnostics"]["width"] >= 26
