"""Coverage in rows of results and in the summary: also of cases whose atoms are given, never of those without text."""

from __future__ import annotations

import json

from fcjax import score
from fcjax.io.files import parse_case
from fcjax.scoring.score_cases import feedback_of, job, posteriors, rows, with_feedback
from fcjax.scoring.settings import Settings
from fcjax.scoring.summary import Summary

RESPONSE = "Pride and Prejudice was published in 1813, with her name on the title page."
ATOM = {"id": "a", "text": "Pride and Prejudice was published in 1813."}
RELATED = {
    "atoms": [ATOM],
    "contexts": [{"id": "c", "text": "It came out in 1813."}],
    "relations": [{"source": "c", "target": "a", "type": "entailment", "probability": 0.9}],
}


def scored(*cases):
    settings = Settings()
    jobs = [job(parse_case({"id": f"case {i}", **one}), settings, coverage=True) for i, one in enumerate(cases)]
    made = list(rows(jobs, posteriors(jobs, settings), settings, coverage=True))
    json.dumps(made, allow_nan=False)
    return jobs, made


def test_a_row_has_the_coverage_of_its_response_before_the_feedback():
    jobs, (row,) = scored({"response": RESPONSE, **RELATED})
    assert row["coverage"]["uncovered"] == ["with her name on the title page."]
    assert row["coverage"]["n_uncovered"] == 1
    assert 0.5 < row["coverage"]["share"] < 1
    assert list(row)[-3:] == ["diagnostics", "coverage", "fingerprint"]
    (feedback,) = feedback_of(jobs, [row], Settings())
    assert list(with_feedback(row, feedback))[-3:] == ["coverage", "feedback", "fingerprint"]


def test_coverage_changes_nothing_else_of_a_row():
    _, (bare, with_text) = scored(RELATED, {"response": RESPONSE, **RELATED})
    assert "coverage" not in bare
    assert {**with_text, "id": bare["id"]} == {**bare, "coverage": with_text["coverage"]}


def test_cases_without_a_score_are_measured_where_their_atoms_are_known():
    _, made = scored(
        {"response": RESPONSE, "atoms": []},
        {"response": RESPONSE, "atoms": [], "status": "no_atoms"},
        {"response": RESPONSE, "status": "atomize_failed"},
        {"response": "I cannot tell you of Jane Austen.", "atoms": [], "status": "refused"},
    )
    assert [row.get("coverage", {}).get("share") for row in made] == [0.0, 0.0, None, None]
    assert [row["status"] for row in made] == ["no_atoms", "no_atoms", "atomize_failed", "refused"]


def test_the_summary_has_the_mean_share_and_the_number_of_passages():
    _, made = scored(
        {"response": RESPONSE, **RELATED},
        {"response": ATOM["text"], **RELATED},
        {"response": "Yes.", **RELATED},
        RELATED,
    )
    summary = Summary()
    for row in made:
        summary.add(row)
    share = made[0]["coverage"]["share"]
    found = summary.to_dict()["coverage"]
    assert found == {"share": round((share + 1) / 2, 7), "n": 2, "n_incomplete": 1, "n_uncovered": 1}
    assert made[2]["coverage"] == {"share": None, "n_uncovered": 0, "uncovered": []}


def test_without_responses_the_summary_says_nothing_of_coverage():
    _, made = scored(RELATED)
    summary = Summary()
    summary.add(made[0])
    assert "coverage" not in summary.to_dict()


def test_scoring_alone_does_not_measure_it(tmp_path):
    """It takes longer than the rest; feedback is for people who want to know what nobody checked."""
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"id": "1", "response": RESPONSE, **RELATED}) + "\n")
    for feedback in (False, True):
        score(source, tmp_path / "out.jsonl", feedback=feedback, overwrite=True)
        (row,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
        assert ("coverage" in row) is feedback
