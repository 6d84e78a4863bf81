"""A grid of correctors, models and data sets: its plan, its steps, its tables; against a real server on loopback."""

from __future__ import annotations

import asyncio
import csv
import math
import os
import stat
from pathlib import Path

import pytest
import scripted_model as model
import scripted_writer
from jsonl import rows_in, write
from scripted_server import ScriptedServer

from fcjax.core.errors import BudgetError, InputError, OutputError, SettingsError
from fcjax.evaluation import grid, rendering
from fcjax.evaluation.config import read_plan
from fcjax.evaluation.grid import run_grid
from fcjax.evaluation.layout import Cell
from fcjax.evaluation.rendering import render
from fcjax.evaluation.resources import RunBudget

KEY = "sk-a-secret-nobody-may-see"


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(scripted_writer.answer, key=KEY, models=("s", "l")) as running:
        yield running


@pytest.fixture(autouse=True)
def _anew(server, tmp_path, monkeypatch):
    server.asked.clear()
    server.answered.clear()
    server.answer = scripted_writer.answer
    monkeypatch.setenv("SOME_KEY", KEY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = ({"title": p.title, "text": p.text, "link": p.link} for p in model.passages(8, 4))
    write(tmp_path / "corpus.jsonl", *corpus)


def truth(town, atoms):
    return " ".join(f"Town {town} has {model.count(town, i)} {model.THINGS[i]}." for i in range(atoms))


def towns(*sizes):
    return [model.case(town, atoms, reference=truth(town, atoms)) for town, atoms in sizes]


def grid_of(server, tmp_path, correctors="[factcorrector, llm1]", more="", models=("small",), name="grid.yaml"):
    names = "\n".join(
        f'  - {{name: {one}, model: {one[0]}, base_url: "{server.url}", api_key_env: SOME_KEY, price: [1, 2]}}'
        for one in models
    )
    text = (
        f"data:\n  - {{path: towns.jsonl, corpus: corpus.jsonl}}\nmodels:\n{names}\ncorrectors: {correctors}\n{more}\n"
    )
    (tmp_path / name).write_text(text)
    return read_plan(tmp_path / name)


def cells(table):
    """The cells of a Markdown table by row and column."""
    lines = [
        [cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines() if line[:1] == "|"
    ]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_the_table_by_hand(server, tmp_path):
    """Town 1: one of 2 statements is false. Town 3: of 4, one is false and nobody tells of another. So K = 3.

    FactCorrector puts the false ones right and takes the other out: S/n goes from 1/2 to 2/2, and from 2/4 to 3/3.
    LLM1 puts the false ones right: to 2/2, and to 3/4.
    """
    write(tmp_path / "towns.jsonl", *towns((1, 2), (3, 4)))
    run_grid(grid_of(server, tmp_path), tmp_path / "out")
    found = render(tmp_path / "out", plots=False)
    fact, llm1 = cells(found.tables["comparison"].markdown())
    assert {name: text for name, text in fact.items() if not name.endswith("/ case")} == {
        "corrector": "factcorrector",
        "model": "small",
        "towns pairs": "2",
        "towns atoms": "3.0 → 2.5",
        "towns Pr": "0.500 → 1.000",
        "towns G(Pr)": "+0.667 ± 0.000",  # 2 * (1 - 1/2) / (1 + 1/2), twice; no variance, no test
        "towns R@K": "0.500 → 0.833",  # 1/3 and 2/3; 2/3 and 1
        "towns G(R@K)": "+0.533 ± 0.189",  # 2/3 and 0.4
        "towns F1@K": "0.486 → 0.900",  # 0.4 and 4/7; 0.8 and 1
        "towns G(F1@K)": "+0.606 ± 0.086\\*",  # 2/3 and 6/11; t = 29 with one degree of freedom, p = 0.011
        "towns V": "2.5 → 2.5",
        "towns G(V)": "+0.000 ± 0.000",
    }
    assert llm1["towns Pr"] == "0.500 → 0.875"
    assert llm1["towns G(Pr)"] == "+0.533 ± 0.189"  # 2/3 and 0.4
    assert llm1["towns F1@K"] == "0.486 → 0.829"  # 0.8 and 6/7
    assert llm1["towns atoms"] == "3.0 → 3.0"
    assert llm1["towns prompts / case"] == "1.0"
    rows = rows_in(tmp_path / "out/cells/towns/small/factcorrector/corrections.jsonl")
    spent = [row["cost"] for row in rows]
    assert fact["towns prompts / case"] == f"{sum(one['prompts'] for one in spent) / 2:.1f}"
    tokens = sum(one["prompt_tokens"] + one["completion_tokens"] for one in spent) / 2
    assert fact["towns tokens / case"] == f"{tokens:.0f}"
    dollars = sum(one["prompt_tokens"] * 1e-6 + one["completion_tokens"] * 2e-6 for one in spent) / 2
    assert fact["towns cost ($) / case"] == f"{dollars:.4f}"

    gains = {(row["corrector"], row["measure"]): row for row in cells(found.tables["gains"].markdown())}
    t = (0.4 + 3 / 7) / abs(0.4 - 3 / 7)
    assert gains["factcorrector", "F1@K"]["t"] == f"{t:.3f}"
    assert gains["factcorrector", "F1@K"]["p"] == f"{0.5 - math.atan(t) / math.pi:.4f}"
    assert gains["llm1", "Pr"]["t"] == "3.000"
    assert gains["factcorrector", "Pr"]["t"] == "–"
    with open(tmp_path / "out/tables/comparison.csv", newline="") as file:
        row = next(csv.DictReader(file))
    assert float(row["towns G(F1@K) mean"]) == pytest.approx((2 / 3 + 6 / 11) / 2, abs=1e-6)
    assert r"\begin{table}" in (tmp_path / "out/tables/comparison.tex").read_text()


def test_other_scores(server, tmp_path):
    """ROUGE-L, BLEU and the judge against references, C by 6 facts of the evidence, and FactScore."""
    write(tmp_path / "towns.jsonl", *towns((1, 2), (3, 4)), model.case(4, 2))
    more = "scores: {judge: small, facts: 6, contexts: 6, assessors: [factscore]}"
    run_grid(grid_of(server, tmp_path, "[llm1]", more), tmp_path / "out")
    found = render(tmp_path / "out", plots=False)
    (row,) = cells(found.tables["scores"].markdown())
    assert row["towns ROUGE-L"].endswith("→ 1.000")
    assert row["towns BLEU"].endswith("→ 1.000")
    assert row["towns same answer"] == "0.000 → 1.000"  # of the two with a reference
    assert row["towns FactScore"] == "0.500 → 0.917"
    (judged,) = cells(found.tables["judge"].markdown())
    assert (judged["same"], judged["different"], judged["failed"]) == ("0 → 2", "2 → 0", "0 → 0")
    facts = rows_in(tmp_path / "out/data/towns/small/facts.jsonl")
    assert all(1 <= len(one["facts"]) <= 6 for one in facts)
    covered = rows_in(tmp_path / "out/cells/towns/small/llm1/coverage.jsonl")
    assert all(0 <= one["measures"]["comprehensiveness"] <= 1 for one in covered)
    (main,) = cells(found.tables["comparison"].markdown())
    before, after = map(float, main["towns C"].split(" → "))
    assert before < after
    case = rows_in(tmp_path / "out/cells/towns/small/llm1/cases.jsonl")[1]
    assert case["before"]["equivalent"] == 0
    assert case["gains"]["equivalent"] == 2
    assert (case["before"]["factscore"], case["after"]["factscore"]) == (0.5, 0.75)
    for name in ("comparison", "gains", "scores", "judge", "endings"):  # cost stands in every table
        head = found.tables[name].markdown().split("\n\n")[1].splitlines()[0]
        assert all(what in head for what in ("prompts / case", "tokens / case", "cost ($) / case")), name


def test_assessors_judge_corrections_by_the_evidence_of_the_originals(server, tmp_path):
    """One atom, and one passage of its own that is for it beside one that is against it: what is unchanged stays."""
    text = "Town 1 has 99 bridges."
    contexts = [{"id": "own", "text": text}, {"id": "other", "text": truth(1, 1)}]
    atom = {"id": "a0", "text": text, "contexts": ["own"]}
    given = {"id": "town", "query": "How many?", "response": text, "atoms": [atom], "contexts": contexts}
    write(tmp_path / "towns.jsonl", given)
    shown = []

    def answer(messages):
        content = messages[0]["content"]
        if "Is the statement true by these passages alone?" in content:
            shown.append(content)
        if "by what you know" in content:
            return f"<revised>\n{text}{more}\n</revised>"
        return scripted_writer.answer(messages)

    server.answer = answer
    for more, prompts in (("", 1), (" Town 1 has 99 mills.", 2)):
        shown.clear()
        grid_of(server, tmp_path, "[llm1]", "critic: {version: FR1}\nscores: {assessors: [factscore]}")
        path = tmp_path / "grid.yaml"
        path.write_text(path.read_text().replace(", corpus: corpus.jsonl", ""))
        run_grid(read_plan(path), tmp_path / f"out{prompts}")
        assert len(shown) == prompts
        assert truth(1, 1) not in shown[0]  # the statement's own passage alone
        after = rows_in(tmp_path / f"out{prompts}/cells/towns/small/llm1/factscore.jsonl")
        before = rows_in(tmp_path / f"out{prompts}/data/towns/small/factscore.jsonl")
        assert (after == before) == (not more)


def test_the_judge_counts_the_same_cases_before_and_after(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2), (3, 4)))

    def answer(messages):
        if "by what you know" in messages[0]["content"] and "Town 3" in messages[0]["content"]:
            return "I'm sorry, I cannot help with that."
        return scripted_writer.answer(messages)

    server.answer = answer
    run_grid(grid_of(server, tmp_path, "[llm1]", "scores: {judge: small}"), tmp_path / "out")
    (judged,) = cells(render(tmp_path / "out", plots=False).tables["judge"].markdown())
    assert (judged["same"], judged["different"], judged["failed"]) == ("0 → 1", "1 → 0", "0 → 0")


def test_a_judge_without_verdicts_has_failed(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2), (3, 4)))
    server.answer = lambda messages: (
        "hm" if "<answer_1>" in messages[0]["content"] else scripted_writer.answer(messages)
    )
    report = run_grid(grid_of(server, tmp_path, "[llm1]", "scores: {judge: small}"), tmp_path / "out")
    assert report.failed == {"data/towns/small/judge.jsonl": 2, "cells/towns/small/llm1/judge.jsonl": 2}
    found = render(tmp_path / "out", plots=False)
    (judged,) = cells(found.tables["judge"].markdown())
    assert (judged["same"], judged["failed"]) == ("0 → 0", "2 → 2")
    server.answer = scripted_writer.answer
    again = run_grid(grid_of(server, tmp_path, "[llm1]", "scores: {judge: small}"), tmp_path / "out")
    assert (again.failed, again.steps - again.kept) == ({}, 2)


def test_against_human_labels(server, tmp_path):
    labelled = []
    for town in (2, 3):
        given = model.case(town, 3)
        texts = given["response"].rstrip(".").split(". ")
        human = ("S", "NS", "S")
        atoms = [{"id": text, "text": f"{text}.", "label": label} for text, label in zip(texts, human, strict=True)]
        labelled.append(given | {"atoms": atoms})
    write(tmp_path / "towns.jsonl", *labelled)
    run_grid(grid_of(server, tmp_path, "[llm1]"), tmp_path / "out")
    found = render(tmp_path / "out", plots=False)
    critic, baseline = cells(found.tables["humans"].markdown())
    assert critic["labels by"] == "towns: critic, small"
    assert baseline["labels by"] == "towns: majority of stances, small"
    assert critic["atoms"] == "6"
    assert critic["accuracy"].startswith("1.000")
    assert critic["false claims found"] == "1.000"


def test_finished_steps_are_kept_and_changed_ones_run_again(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2), (2, 3), (3, 4)))
    first = run_grid(grid_of(server, tmp_path), tmp_path / "out")
    calls = server.calls
    again = run_grid(grid_of(server, tmp_path), tmp_path / "out")
    assert (first.steps, first.kept, again.steps, again.kept) == (5, 0, 5, 5)
    other = run_grid(
        grid_of(server, tmp_path, "[{name: factcorrector, theta: 0.6}, llm1]"), tmp_path / "out"
    )  # the originals and LLM1 are as they were
    assert other.steps - other.kept == 2
    assert server.calls == calls
    write(tmp_path / "towns.jsonl", *towns((1, 2), (2, 3), (3, 4), (4, 2)))
    assert run_grid(grid_of(server, tmp_path), tmp_path / "out").kept == 0
    found = render(tmp_path / "out", plots=False)
    assert {one.comparison.n_cases for one in found.entries} == {4}


def test_another_version_of_the_results_uses_no_old_step(server, tmp_path, monkeypatch):
    write(tmp_path / "towns.jsonl", *towns((1, 2)))
    first = run_grid(grid_of(server, tmp_path), tmp_path / "out")
    calls = server.calls
    monkeypatch.setattr(grid, "RESULTS_VERSION", grid.RESULTS_VERSION + 1)
    again = run_grid(grid_of(server, tmp_path), tmp_path / "out")
    assert (again.steps, again.kept) == (first.steps, 0)
    assert server.calls == calls  # the replies are in the store


def test_the_critics_wording_and_length_of_answers_are_part_of_every_step(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2)))
    before = tmp_path / "out/data/towns/small/before.cases.jsonl"
    for more, template, most in (
        ("", "relate.pairwise/2", 256),
        ("critic: {wording: 1}", "relate.pairwise/1", 256),
        ("critic: {wording: '1', max_tokens: 77}", "relate.pairwise/1", 77),
    ):
        server.bodies.clear()
        report = run_grid(grid_of(server, tmp_path, "[llm1]", more=more), tmp_path / "out")
        assert report.kept == 0
        assert {row["relate"]["template"] for row in rows_in(before)} == {template}
        assert most in {body["max_tokens"] for body in server.bodies}
        assert run_grid(grid_of(server, tmp_path, "[llm1]", more=more), tmp_path / "out").kept == report.steps


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".jsonl", ".md", ".tex", ".csv")
    }


def test_a_run_stopped_anywhere_ends_with_the_same_files(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2), (2, 3), (3, 4), (4, 2)))
    more = "scores: {judge: small, facts: 4, contexts: 2, assessors: [factscore]}"
    plan = grid_of(server, tmp_path, more=more, models=("small", "large"))
    run_grid(plan, tmp_path / "calm")
    calls = server.calls
    server.asked.clear()
    stops = 0
    for _ in range(40):
        try:
            run_grid(plan, tmp_path / "out", budget=RunBudget(prompts=30))
            break
        except BudgetError:
            stops += 1
            done = render(tmp_path / "out", plots=False)
            assert len(done.missing) + len(done.entries) == 4
    assert stops > 5
    assert server.calls == calls  # nothing was asked twice
    for folder in ("calm", "out"):
        render(tmp_path / folder, plots=False)
    assert contents(tmp_path / "out") == contents(tmp_path / "calm")
    assert not list((tmp_path / "out").rglob("*.journal"))
    assert not list((tmp_path / "out").rglob("*.stages"))


@pytest.mark.parametrize("more", ["", "critic: {style: packed}"])
def test_files_of_another_plan_are_in_no_table(server, tmp_path, more):
    write(tmp_path / "towns.jsonl", *towns((1, 2), (2, 3), (3, 4)))
    run_grid(grid_of(server, tmp_path), tmp_path / "out")
    assert len(render(tmp_path / "out", plots=False).entries) == 2
    if not more:  # the data are others, the plan is the same
        write(tmp_path / "towns.jsonl", *towns((4, 2), (5, 3)))
    with pytest.raises(BudgetError):
        run_grid(grid_of(server, tmp_path, more=more), tmp_path / "out", budget=RunBudget(prompts=0))
    found = render(tmp_path / "out", plots=False)
    assert (found.entries, len(found.missing)) == ([], 2)
    assert "Not done yet: towns/small/factcorrector" in (tmp_path / "out" / "report.md").read_text()
    run_grid(grid_of(server, tmp_path, more=more), tmp_path / "out")
    assert len(render(tmp_path / "out", plots=False).entries) == 2


@pytest.mark.parametrize(
    ("caps", "left"),
    [({"prompts": 5}, [5, 4, 2]), ({"tokens": 100}, [100, 60, 10]), ({"dollars": 1.0}, [1.0, 0.75, 0.25])],
)
def test_every_step_gets_what_the_steps_before_it_have_left(caps, left):
    async def step(spends):
        budget = whole.left()
        for tokens, dollars in spends:
            assert await budget.hold(tokens, dollars)
            budget.spend(tokens, dollars)
            budget.release(tokens, dollars, sent=True)
        whole.count(budget, ())
        return budget

    (name,) = caps
    whole = RunBudget(**caps)
    steps = [asyncio.run(step(spends)) for spends in ([(40, 0.25)], [(20, 0.25), (30, 0.25)], [])]
    assert [getattr(budget, name) for budget in steps] == left


def test_replay_sends_nothing(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2), (3, 4)))
    more = f"store: {tmp_path}/replies.sqlite\nscores: {{judge: small, assessors: [factverify]}}"
    plan = grid_of(server, tmp_path, "[factcorrector, rac]", more)
    run_grid(plan, tmp_path / "out")
    calls, budget = server.calls, RunBudget()
    run_grid(plan, tmp_path / "again", replay=True, budget=budget)
    assert (server.calls, budget.sent) == (calls, 0)
    assert budget.hits > 0
    render(tmp_path / "out", plots=False)
    render(tmp_path / "again", plots=False)
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


def test_another_plan_does_not_use_the_journal(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns(*((town, 3) for town in range(1, 7))))
    with pytest.raises(BudgetError):
        run_grid(grid_of(server, tmp_path, "[factcorrector]"), tmp_path / "out", budget=RunBudget(prompts=160))
    assert [path.name for path in (tmp_path / "out").rglob("*.journal")] == ["corrections.jsonl.journal"]
    plan = grid_of(server, tmp_path, "[{name: factcorrector, rounds: 2}]")
    assert run_grid(plan, tmp_path / "out").n_failed == 0
    assert not list((tmp_path / "out").rglob("*.journal"))


def test_a_correction_that_failed_is_counted_and_tried_again(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2), (2, 3), (3, 4)))

    def silent(messages):
        content = messages[0]["content"]
        return "" if "<false_statements>" in content and "Town 3 " in content else scripted_writer.answer(messages)

    server.answer = silent
    plan = grid_of(server, tmp_path, "[factcorrector]")
    report = run_grid(plan, tmp_path / "out")
    assert report.n_failed == 1
    assert report.statuses == {"towns/small/factcorrector": {"ok": 2, "correction_failed": 1}}
    (row,) = cells(render(tmp_path / "out", plots=False).tables["comparison"].markdown())
    assert row["towns pairs"] == "2 (1 failed)"
    assert row["towns Pr"] == "0.583 → 1.000"  # of towns 1 and 2
    server.answer = scripted_writer.answer
    assert run_grid(plan, tmp_path / "out").n_failed == 0
    (row,) = cells(render(tmp_path / "out", plots=False).tables["comparison"].markdown())
    assert row["towns pairs"] == "3"


def test_a_revision_that_an_outage_left_unevaluated_is_tried_again(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2)))
    right = truth(1, 2).partition(". ")[2]  # what only the revision says

    def silent(messages):
        content = messages[0]["content"]
        return "hm" if f"<hypothesis>\n{right}" in content else scripted_writer.answer(messages)

    server.answer = silent
    plan, path = grid_of(server, tmp_path, "[factcorrector]"), "out/cells/towns/small/factcorrector/corrections.jsonl"
    run_grid(plan, tmp_path / "out")
    (row,) = rows_in(tmp_path / path)
    assert (row["status"], row["stop"], row["changed"]) == ("correction_failed", "failed", False)
    server.answer = scripted_writer.answer
    run_grid(plan, tmp_path / "out")
    (row,) = rows_in(tmp_path / path)
    assert (row["stop"], row["changed"]) == ("theta", True)


def test_faulty_rows_and_repeated_ids(server, tmp_path):
    write(tmp_path / "towns.jsonl", "{ no JSON", *towns((1, 2)), model.case(3, 4, id="town 1"), {"id": "none"})
    more = "scores: {judge: small, facts: 3, assessors: [factscore]}"
    report = run_grid(grid_of(server, tmp_path, more=more), tmp_path / "out")
    assert report.failed == {}
    found = render(tmp_path / "out", plots=False)
    fact, _ = cells(found.tables["comparison"].markdown())
    assert (fact["towns pairs"], fact["towns Pr"]) == ("2 (2 failed)", "0.500 → 1.000")
    assert [row["id"] for row in rows_in(tmp_path / "out/cells/towns/small/llm1/cases.jsonl")] == [
        *("1", "town 1", "town 1", "none")
    ]


def test_models_that_evaluate_and_models_that_rewrite(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2)))
    plan = grid_of(server, tmp_path, models=("small", "large"))
    assert [(cell.critic, cell.model) for cell in plan.cells()] == [("small", "small"), ("large", "large")] * 2
    plan = grid_of(
        server,
        tmp_path,
        "[factcorrector, {name: tuned, method: sft, model: large}]",
        "critic: {model: small, version: FR1, contexts: 2}",
        models=("small", "large"),
    )
    assert plan.cells() == [
        Cell(data="towns", critic="small", model="small", corrector="factcorrector"),
        Cell(data="towns", critic="small", model="large", corrector="factcorrector"),
        Cell(data="towns", critic="small", model="large", corrector="tuned"),
    ]
    run_grid(plan, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out/data/towns").iterdir()] == ["small"]
    by_model = {body["model"] for body in server.bodies if "<false_statements>" in body["messages"][0]["content"]}
    assert by_model == {"s", "l"}
    related = {body["model"] for body in list(server.bodies)[-40:] if "Passage: " in body["messages"][-1]["content"]}
    assert related <= {"s"}


def test_plots(server, tmp_path, monkeypatch):
    write(tmp_path / "towns.jsonl", *towns((1, 2), (3, 4)))
    run_grid(grid_of(server, tmp_path), tmp_path / "out")
    monkeypatch.setattr(rendering, "find_spec", lambda name: None)
    found = render(tmp_path / "out")
    assert (found.plots, "matplotlib is not installed" in found.note) == ([], True)
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    found = render(tmp_path / "out")
    assert found.note is None
    assert "plots/before-after-precision.png" in found.plots
    assert all((tmp_path / "out" / name).stat().st_size > 1000 for name in found.plots)


def test_no_file_has_the_key(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2)))
    run_grid(grid_of(server, tmp_path), tmp_path / "out")
    render(tmp_path / "out", plots=False)
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.skipif(os.name != "posix", reason="the system has no permissions of this kind")
def test_what_holds_texts_is_private_whatever_the_umask(server, tmp_path):
    write(tmp_path / "towns.jsonl", *towns((1, 2)))
    plan = grid_of(server, tmp_path, more="scores: {judge: small, facts: 3, assessors: [factscore]}")
    before = os.umask(0)
    try:
        run_grid(plan, tmp_path / "out")
        render(tmp_path / "out", plots=False)
    finally:
        os.umask(before)
    home = tmp_path / "out"
    modes = {str(path.relative_to(home)): stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}
    holding = {name: mode for name, mode in modes.items() if name.split("/")[0] not in ("tables", "report.md")}
    folders = {name for name in holding if (home / name).is_dir()}
    assert {"data/towns/small/before.cases.jsonl", "state.json", "plan.json", "replies.sqlite"} <= holding.keys()
    assert any(name.endswith("/corrections.corrected.jsonl") for name in holding)
    assert any(name.endswith("/cases.jsonl") for name in holding)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {name for name in folders if holding[name] != 0o700} == set()
    texts = {name for name in holding.keys() - folders if (home / name).stat().st_size}
    assert {name for name in texts if holding[name] != 0o600} == set()


BASE = """\
data: [{path: towns.jsonl, corpus: corpus.jsonl}]
models: [{name: small, model: s, base_url: "http://127.0.0.1:1/v1"}]
correctors: [llm1]
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty; allowed: keys with values"),
        ("- a", "the file is ['a']; allowed: keys with values"),
        ("data: [", "is not valid YAML"),
        (BASE + "metrics: []", "metrics is unknown; allowed: seed, store, data, models"),
        (BASE.replace("data:", "dat:"), "dat is unknown"),
        (BASE.replace("correctors: [llm1]", ""), "correctors is missing or empty; allowed: a list of at least one"),
        (BASE.replace("[llm1]", "llm1"), "correctors is 'llm1'; allowed: a list"),
        (BASE.replace("[llm1]", "[llm3]"), "correctors[0].name is 'llm3'; allowed: 'factcorrector', 'llm1'"),
        (BASE.replace("[llm1]", "[{name: x, method: llm3}]"), "correctors[0].method is 'llm3'; allowed: 'fact"),
        (BASE.replace("[llm1]", "[llm1, llm1]"), "correctors[1].name is 'llm1'; allowed: a unique name"),
        (BASE.replace("[llm1]", "[{name: llm1, theta: 1}]"), "correctors[0].theta is unknown; allowed: name"),
        (BASE.replace("[llm1]", "[{name: llm1, model: big}]"), "correctors[0].model is 'big'; allowed: 'small'"),
        (BASE.replace("[llm1]", "[{name: factcorrector, guards: {may_lose: 2}}]"), "[0].guards.may_lose is 2"),
        (BASE.replace("[llm1]", "[{name: factcorrector, guards: {size: 2}}]"), "correctors[0].guards.size is unknown"),
        (BASE.replace("[llm1]", "[{name: a/b, method: llm1}]"), "correctors[0].name is 'a/b'; allowed: up to 64"),
        (BASE.replace("towns.jsonl", "nowhere.jsonl"), "data[0].path is 'nowhere.jsonl'; allowed: a file of cases"),
        (BASE.replace("corpus.jsonl", "nothing"), "data[0].corpus is 'nothing'; allowed: a folder or file"),
        (BASE.replace("corpus:", "retriever: wikipedia, corpus:"), "data[0].corpus is 'corpus.jsonl'; allowed"),
        (BASE.replace("corpus:", "limit: 0, corpus:"), "data[0].limit is 0; allowed: a whole number from 1"),
        (BASE.replace("model: s", "model: s, api_key: sk-1"), "models[0].api_key is an API key; give the name"),
        (BASE.replace("model: s", "model: s, price: [1]"), "models[0].price is [1]; allowed: two numbers"),
        (BASE.replace("model: s", "model: s, corrects: maybe"), "models[0].corrects is 'maybe'; allowed: true"),
        (BASE.replace("model: s", "model: s, corrects: false"), "models is a list without a model that corrects"),
        (BASE + "critic: {model: x}", "critic.model is 'x'; allowed: 'small'"),
        (BASE + "critic: {preset: mine}", "critic.preset is 'mine'"),
        (BASE + "critic: {version: FR4}", "critic.version is 'FR4'; allowed: 'FR1'"),
        (BASE + "critic: {style: long}", "critic.style is 'long'"),
        (BASE + "scores: {assessors: [score]}", "scores.assessors[0] is 'score'; allowed: 'factscore'"),
        (BASE + "scores: {judge: gpt}", "scores.judge is 'gpt'; allowed: 'small'"),
        (BASE + "scores: {facts: -1}", "scores.facts is -1"),
    ],
)  # fmt: skip
def test_faults_of_a_plan_are_named(tmp_path, text, words):
    write(tmp_path / "towns.jsonl", *towns((1, 2)))
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(SettingsError) as error:
        read_plan(tmp_path / "grid.yaml")
    assert str(error.value).startswith(f"{tmp_path}/grid.yaml: ")
    assert words in str(error.value)
    assert "sk-1" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("model: s", "model: s, api_key_env: NOT_SET_ANYWHERE"),
            "small: the variable NOT_SET_ANYWHERE in api_key_env is not set",
        ),
        (("model: s", "model: s, options: {model: x}"), "the model small: options.model is set"),
        (("[llm1]", "[{name: factcorrector, theta: 2}]"), "correctors[0].theta is 2; allowed: a number"),
        (("[llm1]", "[{name: critic, rounds: 0}]"), "correctors[0].rounds is 0"),
        (("http://127.0.0.1:1/v1", "ftp://x"), "the model small: the base URL is invalid"),
    ],
)  # fmt: skip
def test_faults_are_raised_before_any_work(tmp_path, change, words):
    write(tmp_path / "towns.jsonl", *towns((1, 2)))
    (tmp_path / "grid.yaml").write_text(BASE.replace(*change))
    with pytest.raises(SettingsError, match=r"grid.yaml: ") as error:
        run_grid(read_plan(tmp_path / "grid.yaml"), tmp_path / "out")
    assert words in str(error.value)
    assert not list((tmp_path / "out").rglob("*.jsonl"))


def test_folders_without_an_evaluation(tmp_path):
    with pytest.raises(InputError, match="does not contain an evaluation"):
        render(tmp_path)
    write(tmp_path / "towns.jsonl", *towns((1, 2)))
    (tmp_path / "grid.yaml").write_text(BASE)
    for text in ("no JSON", "[1, 2]", "3"):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(OutputError, match="does not contain the state of an evaluation"):
            run_grid(read_plan(tmp_path / "grid.yaml"), tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.md").write_text("of a year's work")
    with pytest.raises(OutputError, match=r"contains report\.md but no evaluation"):
        run_grid(read_plan(tmp_path / "grid.yaml"), tmp_path / "mine")
    with pytest.raises(OutputError, match="the folder cannot be created"):
        run_grid(read_plan(tmp_path / "grid.yaml"), Path(tmp_path / "grid.yaml" / "out"))
