"""Files through a method of correction: order, K, stops and goings on; against a real server on loopback."""

from __future__ import annotations

import json

import pytest
import scripted_model as model
import scripted_writer
from jsonl import rows_in, write
from relations import client_of
from scripted_model import Shelf
from scripted_server import ScriptedServer, Weather

from fcjax.core.errors import BudgetError, InputError, OutputError
from fcjax.correction.baselines import METHODS
from fcjax.correction.baselines.llm1 import LLM1
from fcjax.correction.factcorrector import Corrector
from fcjax.critic.asker import Cost
from fcjax.critic.critic import Critic
from fcjax.evaluation.comparison import Comparison
from fcjax.io.pacing import Budget, Retry
from fcjax.io.retrievers.cached import Cached
from fcjax.io.store import Store
from fcjax.runs.correct_file import CorrectReport, all_settings, correct_file, sides
from fcjax.runs.critique_file import critique_file
from fcjax.runs.file_run import cases_file
from fcjax.scoring.settings import Settings

TOWNS = 8


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.jsonl", *(model.case(town, 1 + town % 4) for town in range(TOWNS)))


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(scripted_writer.answer) as running:
        yield running


@pytest.fixture(autouse=True)
def _anew(server):
    server.asked.clear()
    server.answered.clear()
    server.answer = scripted_writer.answer


def shelf(**more):
    return Shelf(model.passages(TOWNS, 4), **more)


def method_of(server, kind=Corrector, retrieve=None, settings=None, **more):
    asking = {name: more.pop(name) for name in ("store", "concurrency", "budget", "replay", "retry") if name in more}
    critic = Critic(client_of(server, **asking), retrieve=retrieve or shelf(), settings=settings)
    return kind(critic, **more)


def files(out):
    return out.read_bytes(), cases_file(out, "corrected").read_bytes()


def test_responses_become_corrections(server, source, tmp_path):
    out, retrieve = tmp_path / "out.jsonl", shelf()
    report = correct_file(source, out, method_of(server, retrieve=retrieve))
    rows, cases = rows_in(out), rows_in(tmp_path / "out.corrected.jsonl")
    assert [row["id"] for row in rows] == [case["id"] for case in cases] == [f"town {i}" for i in range(TOWNS)]
    assert [case["response"] for case in cases] == [row["best"]["response"] for row in rows]
    # Town 3 has four claims: the second is false, and nobody tells of the fourth
    right = [f"Town 3 has {model.count(3, i)} {model.THINGS[i]}." for i in range(3)]
    assert rows[3]["best"]["response"] == " ".join(right)
    assert [part["measures"]["precision"] for part in rows[3]["trajectory"]] == [0.5, 1.0]
    assert set(cases[3]) == {"id", "query", "response"}
    assert (report.statuses, report.stops, report.changed) == ({"ok": TOWNS}, {"theta": TOWNS}, 6)
    assert report.cost.prompts == sum(row["cost"]["prompts"] for row in rows)
    assert retrieve.closed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.corrected.jsonl", "out.jsonl"]


def test_k_is_the_median_of_the_original_responses(server, source, tmp_path):
    """1, 2, 3 and 4 atoms, twice each: K = 2.5, before and after, whatever the corrections have."""
    report = correct_file(source, tmp_path / "out.jsonl", method_of(server))
    rows = rows_in(tmp_path / "out.jsonl")
    assert report.k == 2.5
    parts = [part["measures"] for row in rows for part in (row["best"], *row["trajectory"])]
    assert {measures["k"] for measures in parts} == {2.5}
    assert [part["measures"]["recall_at_k"] for part in rows[3]["trajectory"]] == [0.8, 1.0]  # 2 / 2.5; 3 of 2.5
    fixed = correct_file(source, tmp_path / "other.jsonl", method_of(server, settings=Settings(k=4)))
    assert fixed.k == 4
    assert [part["measures"]["recall_at_k"] for part in rows_in(tmp_path / "other.jsonl")[3]["trajectory"]] == [
        0.5,
        0.75,
    ]
    correct_file(source, tmp_path / "release.jsonl", method_of(server, settings=Settings(k="release")))
    town = rows_in(tmp_path / "release.jsonl")[3]  # 4 atoms, then 3: K of both is 4 // 2
    assert [part["measures"]["k"] for part in (town["best"], *town["trajectory"])] == [2, 2, 2]
    prints = [[row["fingerprint"] for row in rows_in(tmp_path / name)] for name in ("out.jsonl", "other.jsonl")]
    assert len({*prints[0], *prints[1]}) == 2 * TOWNS


def test_gains_worked_by_hand(server, tmp_path):
    """Two responses of two and four statements: Pr 1/2 -> 1 and 2/4 -> 3/3, K = 3."""
    source = write(tmp_path / "in.jsonl", model.case(1, 2), model.case(3, 4))
    report = correct_file(source, tmp_path / "out.jsonl", method_of(server))
    found = Comparison.of(report.before, report.after)
    assert report.k == 3
    assert found["precision"].before.mean == 0.5
    assert found["precision"].after.mean == 1.0
    assert found["precision"].gain.mean == pytest.approx(2 * 0.5 / 1.5)
    # R@3: min(1/3, 1) -> 2/3 and 2/3 -> 1
    assert found["recall_at_k"].before.mean == pytest.approx(0.5, abs=1e-6)
    assert found["recall_at_k"].after.mean == pytest.approx(5 / 6, abs=1e-6)
    assert found["recall_at_k"].gain.mean == pytest.approx((2 / 3 + 0.4) / 2, abs=1e-6)
    # F1@3: 2 * 1/2 * 1/3 / (5/6) = 0.4 -> 0.8, and 2 * 1/2 * 2/3 / (7/6) = 4/7 -> 1
    assert found["f1_at_k"].before.mean == pytest.approx((0.4 + 4 / 7) / 2, abs=1e-6)
    assert found["f1_at_k"].after.mean == pytest.approx(0.9, abs=1e-6)
    assert (found["n_atoms"].before.mean, found["n_atoms"].after.mean) == (3, 2.5)
    assert found["verifiability"].before.mean == 2.5


def test_two_cases_with_one_id_are_two_cases(server, tmp_path):
    one, other = model.case(1, 2), model.case(2, 3, id="town 1")
    source = write(tmp_path / "in.jsonl", one, other, one)
    correct_file(source, tmp_path / "out.jsonl", method_of(server))
    rows = rows_in(tmp_path / "out.jsonl")
    assert [row["id"] for row in rows] == ["town 1"] * 3
    assert [row["response"] for row in rows] == [one["response"], other["response"], one["response"]]
    assert rows[0] == rows[2]
    assert rows[0]["best"]["response"] != rows[1]["best"]["response"]


def test_rows_that_cannot_be_corrected_keep_their_places(server, tmp_path):
    bad = ["{ no JSON", {"id": "none"}, {"id": "blank", "response": "  "}, {"id": "failed", "status": "refused"}]
    source = write(tmp_path / "in.jsonl", bad[0], model.case(1, 2), *bad[1:], model.case(2, 3))
    report = correct_file(source, tmp_path / "out.jsonl", method_of(server))
    rows = rows_in(tmp_path / "out.jsonl")
    assert [row["status"] for row in rows] == ["invalid_input", "ok", *["invalid_input"] * 3, "ok"]
    assert [row["best"]["response"] for row in rows[2:5]] == [None, "  ", None]
    assert report.n_failed == 4
    found = Comparison.of(report.before, report.after)
    assert (found.n_cases, found.n_failed, found["precision"].n) == (6, 4, 2)
    assert report.k == 2.5


def test_what_nobody_can_correct_is_an_error_before_any_work(server, tmp_path):
    source = write(tmp_path / "in.jsonl", {"id": "a"}, {"id": "b"})
    with pytest.raises(InputError, match=r"in.jsonl:1: case 'a': the case has no `response` .*1 other row"):
        correct_file(source, tmp_path / "out.jsonl", method_of(server))
    bare = Critic(client_of(server))
    source = write(tmp_path / "in.jsonl", model.case(1))
    with pytest.raises(InputError, match="no retriever was given to search for evidence"):
        correct_file(source, tmp_path / "out.jsonl", Corrector(bare))
    correct_file(source, tmp_path / "out.jsonl", LLM1(Critic(client_of(server))))  # it needs no evidence
    assert rows_in(tmp_path / "out.jsonl")[0]["changed"]


def test_what_the_critic_has_found_is_used(server, source, tmp_path):
    critique_file(source, tmp_path / "found.jsonl", method_of(server).critic)
    critique = server.calls
    correct_file(source, tmp_path / "whole.jsonl", method_of(server))
    whole = server.calls - critique
    before, retrieve = server.calls, shelf()
    correct_file(tmp_path / "found.cases.jsonl", tmp_path / "out.jsonl", method_of(server, retrieve=retrieve))
    assert server.calls - before == whole - critique  # the first evaluations are not asked for again
    best = [[row["best"]["response"] for row in rows_in(tmp_path / name)] for name in ("whole.jsonl", "out.jsonl")]
    assert best[0] == best[1]
    assert retrieve.searches == 6  # for the statements that were put right


@pytest.mark.parametrize("name", METHODS)
def test_every_method_does_files(server, source, tmp_path, name):
    out = tmp_path / "out.jsonl"
    report = correct_file(source, out, method_of(server, METHODS[name]))
    assert (report.statuses, len(report)) == ({"ok": TOWNS}, TOWNS)
    assert {row["method"] for row in rows_in(out)} == {name}
    if name != "factcorrector":
        assert all(row["measures"] is None for row in (*report.before, *report.after))


def test_the_same_answer_at_every_concurrency_and_in_replay(server, source, tmp_path):
    made = []
    with Store.open(tmp_path / "store") as store:
        for concurrency in (1, 16):
            weather = Weather(too_many=0.1, reset=0.05, garbage=0.05, seed=concurrency)
            with ScriptedServer(scripted_writer.answer, weather=weather, delay=0.002, spread=0.9) as stormy:
                out = tmp_path / f"{concurrency}.jsonl"
                method = method_of(
                    stormy,
                    retrieve=Cached(shelf(delay=0.001), store),
                    concurrency=concurrency,
                    store=store if concurrency > 1 else None,
                    retry=Retry(attempts=20, first=0.01, longest=0.05),
                    open_cases=concurrency,
                    rounds=2,
                )
                correct_file(source, out, method)
                made.append(files(out))
        gone = Cached(Shelf(()), store, replay=True)
        method = method_of(stormy, retrieve=gone, store=store, replay=True, concurrency=1, open_cases=3, rounds=2)
        correct_file(source, tmp_path / "replay.jsonl", method)
        assert method.critic.client.stats.sent == 0
        made.append(files(tmp_path / "replay.jsonl"))
    assert len(set(made)) == 1


def test_a_run_that_stops_goes_on_where_it_was(server, source, tmp_path):
    calm, out = tmp_path / "calm.jsonl", tmp_path / "out.jsonl"
    with Store.open(tmp_path / "calm") as store:
        correct_file(source, calm, method_of(server, store=store))
    calls = server.calls
    server.asked.clear()
    kept = []
    with Store.open(tmp_path / "store") as store:
        for budget in (5, 40, 60, 80, 300):
            method = method_of(server, store=store, budget=Budget(prompts=budget), open_cases=2)
            try:
                report = correct_file(source, out, method)
                kept.append(report.resumed)
            except BudgetError:
                assert out.with_name("out.jsonl.journal").exists()
                assert not out.exists()
                assert not cases_file(out, "corrected").exists()
    assert kept
    assert kept[0] > 0
    assert files(out) == files(calm)
    assert not out.with_name("out.jsonl.journal").exists()
    assert server.calls == calls


def test_what_failed_before_a_stop_is_tried_again(server, source, tmp_path):
    def silent(messages):
        content = messages[0]["content"]
        return "" if "<false_statements>" in content and "Town 1 " in content else scripted_writer.answer(messages)

    server.answer = silent
    out = tmp_path / "out.jsonl"
    with Store.open(tmp_path / "store") as store:
        with pytest.raises(BudgetError):
            correct_file(source, out, method_of(server, store=store, budget=Budget(prompts=150), open_cases=1))
        lines = rows_in(out.with_name("out.jsonl.journal"))[1:]
        assert len(lines) >= 3
        assert 1 not in [line["case"] for line in lines]
        server.answer = scripted_writer.answer
        report = correct_file(source, out, method_of(server, store=store))
    assert report.resumed == len(lines)
    assert (report.statuses, report.stops) == ({"ok": TOWNS}, {"theta": TOWNS})


def test_a_correction_that_failed_is_no_verdict(server, source, tmp_path):
    server.answer = lambda messages: (
        "" if "<false_statements>" in messages[0]["content"] else scripted_writer.answer(messages)
    )
    report = correct_file(source, tmp_path / "out.jsonl", method_of(server))
    assert report.statuses == {"ok": 2, "correction_failed": 6}
    row = rows_in(tmp_path / "out.jsonl")[3]
    assert row["best"]["response"] == row["response"]
    before, after = sides(row)
    assert (before["measures"]["precision"], after["measures"], after["status"]) == (0.5, None, "correction_failed")
    found = Comparison.of(report.before, report.after)
    assert (found.n_failed, found["precision"].n) == (6, 2)


def test_a_journal_of_another_run_is_not_written_over(server, source, tmp_path):
    out = tmp_path / "out.jsonl"
    with pytest.raises(BudgetError):
        correct_file(source, out, method_of(server, budget=Budget(prompts=60), open_cases=1))
    for other in ({"theta": 0.5}, {"rounds": 2}, {"settings": Settings(preset="release")}, {"kind": LLM1}):
        with pytest.raises(OutputError, match="another run"):
            correct_file(source, out, method_of(server, **other))
    correct_file(source, out, method_of(server, rounds=2), overwrite=True)
    assert len(rows_in(out)) == TOWNS
    with pytest.raises(OutputError, match="is also the input"):
        correct_file(source, source, method_of(server))
    with pytest.raises(OutputError, match="same file"):
        correct_file(source, out, method_of(server), cases_out=out)


def test_a_replay_without_answers_takes_no_place(server, source, tmp_path):
    out = write(tmp_path / "out.jsonl", "kept")
    with Store.open(tmp_path / "store") as store, pytest.raises(InputError, match="the store has no answer"):
        correct_file(source, out, method_of(server, store=store, replay=True))
    assert out.read_text() == "kept\n"


def test_settings_hold_all_that_changes_the_answer(server):
    made = [
        method_of(server),
        method_of(server, theta=0.5),
        method_of(server, pool=True),
        method_of(server, LLM1),
        method_of(server, settings=Settings(context_prior=0.5)),
        method_of(server, client=client_of(server, concurrency=1)),
    ]
    assert len({json.dumps(all_settings(method), sort_keys=True) for method in made}) == 5  # the last one is the first
    assert all_settings(made[0]) == all_settings(made[5])


def test_what_killed_runs_left_half_written_goes(server, source, tmp_path):
    for name in (".out.jsonl.123.part", ".out.corrected.jsonl.45.part", ".other.jsonl.123.part"):
        (tmp_path / name).write_text("{")
    correct_file(source, tmp_path / "out.jsonl", method_of(server))
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == [".other.jsonl.123.part"]


def test_a_report_of_nothing():
    report = CorrectReport()
    assert (len(report), report.n_failed, report.cost) == (0, 0, Cost())
