"""Adaptive asking against a real server on loopback: fewer prompts, the same bytes, and nothing left out in silence."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from jsonl import rows_in, write
from relations import case, client_of, judge
from scripted_server import ScriptedServer

from fcjax import score
from fcjax.core.errors import BudgetError, SettingsError
from fcjax.core.records import Relation, RelationType
from fcjax.critic.relation_config import RelationConfig, RelationCounts
from fcjax.critic.relation_stream import relate_cases
from fcjax.io.files import parse_case
from fcjax.io.pacing import Budget
from fcjax.io.store import Store
from fcjax.runs.relate_file import estimate_file, relate_file
from fcjax.stages.relate import RelationModel

TOWNS = ("Bergen", "Genoa", "Porto", "Vilnius")


def spread_case(id, atoms=3, others=14):
    """Claims of which each has a passage that says the same, among many on other things."""
    said = [f"{TOWNS[i % 4]} of {id} has {40 + i} painted bridges" for i in range(atoms)]
    rest = [f"Recipe {j}: boil lentils with onions for {j} minutes" for j in range(others)]
    return {
        "id": id,
        "atoms": [{"id": f"a{i}", "text": text, "contexts": [f"c{i}"]} for i, text in enumerate(said)],
        "contexts": [{"id": f"c{j}", "text": text} for j, text in enumerate([*said, *rest])],
    }


def adaptive(**more):
    style = more.pop("style", "pairwise")
    return RelationConfig(ask="adaptive", model=RelationModel(style=style), **more)


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(judge) as running:
        yield running


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.jsonl", *(spread_case(f"case {i}", 2 + i % 2) for i in range(6)))


def labels(path, tmp_path):
    score(path, tmp_path / "scores.jsonl", overwrite=True)
    return [[atom["label"] for atom in row["atoms"]] for row in rows_in(tmp_path / "scores.jsonl")]


@pytest.mark.parametrize("style", ["pairwise", "packed"])
def test_the_same_labels_for_fewer_prompts_at_every_concurrency(server, source, tmp_path, style):
    everything = relate_file(source, tmp_path / "all.jsonl", client_of(server), RelationConfig())
    found = {}
    for concurrency in (1, 16):
        out = tmp_path / f"{concurrency}.jsonl"
        counts = relate_file(source, out, client_of(server, concurrency=concurrency), adaptive(style=style), window=7)
        found[concurrency] = out.read_bytes()
    assert found[1] == found[16]
    assert labels(out, tmp_path) == labels(tmp_path / "all.jsonl", tmp_path)
    assert counts.pairs + counts.not_asked.total() == everything.pairs
    assert counts.prompts < counts.prompts_of_all
    for row in rows_in(out):
        left = row["relate"]["not_asked"]
        pairs = {(one["source"], one["target"]) for one in row["relations"]}
        assert pairs.isdisjoint((context, atom) for context, those in left.items() for atom in those)
        assert len(pairs) + sum(map(len, left.values())) == len(row["atoms"]) * len(row["contexts"])
        assert all(0 <= sum(q) <= 1 for those in left.values() for q in those.values())


def test_rows_say_how_sure_labels_are_against_what_was_left_out(server, source, tmp_path):
    relate_file(source, tmp_path / "out.jsonl", client_of(server), adaptive())
    score(tmp_path / "out.jsonl", tmp_path / "rows.jsonl")
    for row in rows_in(tmp_path / "rows.jsonl"):
        assert all(0.9 < atom["settled"] <= 1 and atom["status"] == "ok" for atom in row["atoms"])
        assert row["measures"]["n_failed"] == 0
    relate_file(source, tmp_path / "all.jsonl", client_of(server), RelationConfig())
    score(tmp_path / "all.jsonl", tmp_path / "rows.jsonl", overwrite=True)
    assert not any("settled" in atom for row in rows_in(tmp_path / "rows.jsonl") for atom in row["atoms"])


def test_asking_all_later_asks_only_what_is_missing(server, source, tmp_path):
    first = relate_file(source, tmp_path / "some.jsonl", client_of(server), adaptive())
    again = relate_file(tmp_path / "some.jsonl", tmp_path / "same.jsonl", client_of(server), adaptive())
    assert again.pairs == 0
    assert (tmp_path / "same.jsonl").read_bytes() == (tmp_path / "some.jsonl").read_bytes()
    rest = relate_file(tmp_path / "some.jsonl", tmp_path / "all.jsonl", client_of(server), RelationConfig())
    assert rest.pairs == first.not_asked.total() > 0
    assert not any("not_asked" in row["relate"] for row in rows_in(tmp_path / "all.jsonl"))


@pytest.mark.parametrize("most", [0, 1])
def test_a_limit_on_prompts_is_kept_and_what_is_open_is_said(server, source, tmp_path, most):
    counts = relate_file(source, tmp_path / "out.jsonl", client_of(server), adaptive(ask_at_most=most))
    assert (counts.prompts, counts.pairs) == (6 * most, 6 * most)
    assert estimate_file(source, client_of(server), adaptive(ask_at_most=most)).prompts == 6 * most
    score(tmp_path / "out.jsonl", tmp_path / "rows.jsonl")
    rows = rows_in(tmp_path / "rows.jsonl")
    assert [row["status"] for row in rows] == ["ok"] * 6
    open_ = [atom["settled"] for row in rows for atom in row["atoms"] if atom["label"] == "unverified"]
    assert open_
    assert max(open_) < 0.5  # a passage that says the same has not been read


def test_a_run_that_ends_in_any_round_goes_on_without_asking_twice(source, tmp_path):
    whole = tmp_path / "whole.jsonl"
    with ScriptedServer(judge) as server:
        relate_file(source, whole, client_of(server), adaptive())
        needed = server.calls
    with ScriptedServer(judge) as server, Store.open(tmp_path / "store.sqlite") as store:
        for _ in range(200):
            try:
                client = client_of(server, store=store, budget=Budget(prompts=7))
                relate_file(source, tmp_path / "parts.jsonl", client, adaptive())
                break
            except BudgetError:
                continue
        assert server.calls == needed
    assert (tmp_path / "parts.jsonl").read_bytes() == whole.read_bytes()


def test_an_opinion_that_is_wrong_everywhere_costs_more_and_is_found_out(server, tmp_path):
    """Every passage has a claim's words and contradicts all claims but one, where words foretell support."""
    source = write(tmp_path / "in.jsonl", *(case(f"case {i}", 3, 12) for i in range(3)))
    all_ = relate_file(source, tmp_path / "all.jsonl", client_of(server), RelationConfig())
    some = relate_file(source, tmp_path / "some.jsonl", client_of(server), adaptive())
    assert some.pairs > all_.pairs / 3
    assert labels(tmp_path / "some.jsonl", tmp_path) == labels(tmp_path / "all.jsonl", tmp_path)


def test_a_case_with_one_pair_and_one_without_any(server, tmp_path):
    source = write(tmp_path / "in.jsonl", case("one", 1, 1), case("none", 1, 0), case("no atoms", 0, 1))
    counts = relate_file(source, tmp_path / "out.jsonl", client_of(server), adaptive())
    assert (counts.pairs, counts.not_asked.total()) == (1, 0)
    one, none, empty = rows_in(tmp_path / "out.jsonl")
    assert [r["type"] for r in one["relations"]] == ["entailment"]
    assert one["relate"]["settled"] == {"a0": 1.0}
    assert none["relations"] == empty["relations"] == []


def test_a_bad_case_does_not_stop_the_others(server, tmp_path):
    unknown = Relation(source="c0", target="nobody", type=RelationType.NEUTRAL, probability=0.9)
    bad = replace(parse_case(spread_case("bad")), relations=(unknown,))
    cases = [parse_case(spread_case("x")), bad, parse_case(spread_case("y"))]

    async def related():
        counts = RelationCounts()
        stream = relate_cases(cases, client_of(server), adaptive(), counts=counts)
        return [one async for one in stream], counts

    found, counts = asyncio.run(related())
    assert [str(one.status) for one in found] == ["ok", "invalid_input", "ok"]
    assert "nobody" in found[1].extra["reason"]
    assert counts.cases == {"ok": 2, "invalid_input": 1}


def test_failed_pairs_stay_failures(tmp_path):
    def answer(messages):
        return "no idea" if "bridges" in messages[0]["content"].partition("</premise>")[0] else judge(messages)

    source = write(tmp_path / "in.jsonl", spread_case("x"))
    with ScriptedServer(answer) as server:
        counts = relate_file(source, tmp_path / "out.jsonl", client_of(server), adaptive())
    (row,) = rows_in(tmp_path / "out.jsonl")
    failed = {(r["source"], r["target"]) for r in row["relations"] if r.get("status") == "relation_failed"}
    assert counts.n_failed == len(failed) > 0
    assert failed.isdisjoint((c, a) for c, those in row["relate"]["not_asked"].items() for a in those)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ask": "some"}, "ask is 'some'; allowed: 'all', 'adaptive'"),
        ({"ask": "adaptive", "settle": 1.5}, "settle is 1.5"),
        ({"ask": "adaptive", "ask_at_most": -1}, "ask_at_most is -1"),
        ({"ask_at_most": 3}, "ask_at_most has no effect with ask='all'"),
        ({"ask": "adaptive", "version": "FR3"}, "version is 'FR3'"),
        ({"ask": "adaptive", "first": RelationModel()}, "has no calibration"),
    ],
)
def test_settings_that_cannot_be(wrong, said):
    with pytest.raises(SettingsError, match=said.replace("(", r"\(")):
        RelationConfig(**wrong)


class SureOfRecipes:
    """Stands for a calibrated local model: sure that recipes say nothing, and of nothing else."""

    calibration = object()
    style, template_name, asks = "local", "relate.local/1", False

    def named(self, endpoint_model):
        return "local@1"

    def questions(self, pairs):
        return iter([list(pairs)])

    async def answer(self, pairs, ask, reject=None):
        made = []
        for pair in pairs:
            q = (0.001, 0.001, 0.998) if "Recipe" in pair.premise else (0.5, 0.2, 0.3)
            label = RelationType.NEUTRAL if q[2] > 0.9 else RelationType.ENTAILMENT
            made.append(
                Relation(source=pair.source, target=pair.target, type=label, probability=max(q), method="local",
                         distribution=q)
            )  # fmt: skip
        return made


def test_a_local_model_answers_where_it_is_sure_and_the_other_where_it_is_not(server, source, tmp_path):
    counts = relate_file(source, tmp_path / "out.jsonl", client_of(server), adaptive(first=SureOfRecipes()))
    for row in rows_in(tmp_path / "out.jsonl"):
        atoms = len(row["atoms"])
        by = {name: [r for r in row["relations"] if r["method"] == name] for name in ("local", "logprobs")}
        assert len(by["local"]) == row["relate"]["by_first"] == 14 * atoms
        assert {r["type"] for r in by["local"]} == {"neutral"}
        assert {r["source"] for r in by["logprobs"]} <= {f"c{i}" for i in range(atoms)}
        assert len(by["logprobs"]) == row["relate"]["prompts"]
        assert (row["relate"]["first"], row["relate"]["model"]) == ("local@1", "scripted")
    assert counts.prompts == counts.methods["logprobs"] > 0
    assert labels(tmp_path / "out.jsonl", tmp_path) == [["supported"] * (2 + i % 2) for i in range(6)]
