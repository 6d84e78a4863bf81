"""The critic: responses in, posteriors and feedback out, in order, whatever fails on the way."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from dataclasses import replace

import orjson
import pytest
import scripted_model
from scripted_model import Shelf, passages
from scripted_server import ScriptedServer

import fcjax
from fcjax.core.errors import BudgetError, InputError, SettingsError
from fcjax.core.passages import Passage
from fcjax.critic.critic import AHEAD, CHUNK, Critic, critique
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.files.cases import case_to_dict, parse_case
from fcjax.io.own_loop import in_own_loop
from fcjax.io.pacing import Budget, Retry
from fcjax.io.store import Store
from fcjax.runs.score_file import score
from fcjax.scoring.settings import Settings
from fcjax.stages.pipeline import STAGES, Pipeline, begun_from
from fcjax.stages.query import QueryBuilder
from fcjax.stages.summarise import Summariser

TOWNS = 6


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(scripted_model.answer) as running:
        yield running


def town(number, **more):
    return parse_case(scripted_model.case(number, **more))


def run(server, cases, *, retrieve="shelf", concurrency=8, store=None, replay=False, budget=None, after=None, **how):
    """The critiques of `cases`, as a list."""

    async def found():
        source = Shelf(passages(TOWNS)) if retrieve == "shelf" else retrieve
        client = Client(
            Endpoint(server.url, "scripted"),
            concurrency=concurrency,
            store=store,
            replay=replay,
            budget=budget,
            retry=Retry(attempts=1),
        )
        async with client:
            critic = Critic(client, retrieve=source, **how)
            return [one async for one in critic.critique_many(cases, after=after)]

    return asyncio.run(found())


def labels(critique):
    return [atom["label"] for atom in critique.row["atoms"]]


def as_bytes(critiques):
    return [(orjson.dumps(case_to_dict(one.case)), orjson.dumps(one.row)) for one in critiques]


def test_a_bare_response_comes_to_posteriors_and_feedback(server):
    (found,) = run(server, [town(0)])
    assert labels(found) == ["supported", "refuted", "unverified"]
    assert [one.text for one in found.feedback.refuted] == [found.case.atoms[1].text]
    assert [one.text for one in found.feedback.unverified] == [found.case.atoms[2].text]
    assert found.case.atoms[2].status == "no_evidence"
    (refuted,) = found.feedback.refuted
    assert {evidence.type for evidence in refuted.evidence} == {"contradiction"}
    assert [evidence.influence for evidence in refuted.evidence] == sorted(
        (evidence.influence for evidence in refuted.evidence), key=lambda value: -abs(value)
    )
    assert found.row["feedback"] == found.feedback.to_dict()
    assert found.precision == pytest.approx(1 / 3, abs=1e-6)
    assert "refuted" in repr(found)
    assert found.case.atoms[1].text in found._repr_html_()


def test_the_stream_is_in_order_and_each_stage_is_told(server):
    seen = []
    cases = [town(i % TOWNS, id=str(i)) for i in range(40)]
    found = run(server, iter(cases), after=lambda place, stage, case: seen.append((place, stage, case.id)))
    assert [one.case.id for one in found] == [case.id for case in cases]
    assert all(str(place) == id for place, _, id in seen)
    for place in range(40):
        assert [stage for number, stage, _ in seen if number == place] == ["atomize", "revise", "retrieve", "relate"]


def test_cases_that_lack_nothing_do_not_run_ahead_of_the_engine(server):
    (whole,) = run(server, [town(0)])
    taken = given = most = 0

    def cases():
        nonlocal taken
        for i in range(600):
            taken += 1
            yield replace(whole.case, id=str(i))

    async def looked_at():
        nonlocal given, most
        async for _ in Critic(open_cases=1).critique_many(cases()):
            most = max(most, taken - given)
            given += 1

    asyncio.run(looked_at())
    assert given == 600
    assert most <= (AHEAD + 1) * CHUNK + 4 + 1


def test_results_depend_neither_on_concurrency_nor_on_replaying_them(server, tmp_path):
    cases = [town(i, atoms=4) for i in range(TOWNS)]
    how = {"pipeline": Pipeline(query=QueryBuilder(), summarise=Summariser())}
    with Store.open(tmp_path / "store.sqlite") as store:
        first = as_bytes(run(server, cases, store=store, **how))
        asked = server.calls
        for concurrency in (1, 3, 64):
            again = run(server, cases, store=store, replay=True, concurrency=concurrency, **how)
            assert as_bytes(again) == first
        assert server.calls == asked
    assert as_bytes(run(server, cases, concurrency=2, **how)) == first


def test_a_passage_for_many_atoms_is_one_variable(server):
    everything = Passage(
        text="Town 0 has 2 bridges. Town 0 has 7 schools. Town 0 has 12 mills.", link="https://a.example"
    )

    class One:
        name = "one"

        async def search(self, query, k):
            return (everything, replace(everything, link="https://copy.example"))

        async def close(self):
            pass

    (found,) = run(server, [town(0)], retrieve=One())
    assert [context.id for context in found.case.contexts] == ["c0"]
    assert [atom.contexts for atom in found.case.atoms] == [("c0",)] * 3
    assert found.row["diagnostics"]["n_variables"] == 4


def test_what_a_case_brings_along_is_used_as_it_is(server):
    given = town(1)
    (whole,) = run(server, [given])
    for stage, gone in (("relate", ["relate"]), ("retrieve", ["retrieve", "relate"])):
        seen = []
        case = begun_from(whole.case, stage)
        (again,) = run(server, [case], after=lambda place, stage, case, seen=seen: seen.append(stage))
        assert seen == gone
        assert again.row == whole.row
    before = server.calls
    (again,) = run(server, [whole.case], retrieve=None)
    assert (server.calls, again.row) == (before, whole.row)
    assert begun_from(whole.case, "atomize") == given


def test_searches_that_fail_are_no_verdict_and_are_made_again(server):
    source = Shelf(passages(TOWNS), broken=["schools"])
    (found,) = run(server, [town(0)], retrieve=source)
    assert [atom["status"] for atom in found.row["atoms"]] == ["ok", "retrieval_failed", "no_evidence"]
    assert found.row["atoms"][1]["p"] is None
    assert not found.feedback.refuted
    (again,) = run(server, [found.case])
    assert labels(again) == ["supported", "refuted", "unverified"]
    assert "reason" not in again.case.atoms[1].extra


def test_a_case_alone_has_the_row_of_a_file_of_it(server, tmp_path):
    """K too is that of its atoms, whatever failed on the way."""
    (found,) = run(server, [town(0)], retrieve=Shelf(passages(TOWNS), broken=["schools"]))
    cases = tmp_path / "cases.jsonl"
    cases.write_bytes(orjson.dumps(case_to_dict(found.case)))
    score(cases, tmp_path / "out.jsonl", Settings(version="FR2"), feedback=True)
    assert orjson.loads((tmp_path / "out.jsonl").read_bytes()) == found.row
    assert (found.row["measures"]["n_atoms"], found.row["measures"]["k"]) == (2, 3)


def test_what_is_found_at_another_try_is_summed_up_too(server):
    how = {"pipeline": Pipeline(summarise=Summariser())}
    (found,) = run(server, [town(0, atoms=4)], retrieve=Shelf(passages(TOWNS, 4), broken=["schools"]), **how)
    (whole,) = run(server, [town(0, atoms=4)], retrieve=Shelf(passages(TOWNS, 4)), **how)
    (again,) = run(server, [found.case], retrieve=Shelf(passages(TOWNS, 4)), **how)
    assert len(found.case.contexts) < len(again.case.contexts) == len(whole.case.contexts)
    assert all("full_text" in context.extra for context in again.case.contexts)
    assert {context.text for context in again.case.contexts} == {context.text for context in whole.case.contexts}
    assert labels(again) == labels(whole)


@pytest.mark.parametrize(
    ("response", "status"),
    [("", "no_atoms"), ("   \n", "no_atoms"), ("I'm sorry, but I can't help with that.", "refused")],
)
def test_responses_without_atoms_cost_nothing(server, response, status):
    before = server.calls
    (found,) = run(server, [town(0, response=response)])
    assert (found.status, found.row["measures"], server.calls) == (status, None, before)
    assert (found.feedback.findings, found.feedback.status) == ((), status)


def test_a_response_without_atoms_keeps_its_status_when_later_stages_are_done_anew(server):
    refused, empty = run(server, [town(0, response="I'm sorry, but I can't help with that."), town(1, response=" ")])
    for stage in STAGES[1:]:
        again = run(server, [begun_from(refused.case, stage), begun_from(empty.case, stage)])
        assert [one.row for one in again] == [refused.row, empty.row]
    assert begun_from(refused.case, "atomize").atoms is None


def test_nonsense_is_a_status_and_not_an_atom():
    with ScriptedServer(lambda messages: "lorem ipsum " * 5) as server:
        (found,) = run(server, [town(0)])
    assert (found.status, found.case.atoms) == ("atomize_failed", None)
    assert "lorem" in found.reason


def test_a_case_that_lacks_what_nobody_can_find_says_so_and_asks_nothing(server):
    before = server.calls
    bare, atoms_only = town(0), parse_case({"atoms": [{"id": "a", "text": "Town 0 has 2 bridges."}]})
    nothing = parse_case({"query": "What?"})
    found = run(server, [bare, atoms_only, nothing], retrieve=None)
    assert [one.status for one in found] == ["stopped", "stopped", "invalid_input"]
    assert ["retriever" in one.reason for one in found] == [True, True, False]
    assert "neither `atoms` nor a `response`" in found[2].reason
    assert server.calls == before


def test_stages_that_are_left_out_end_a_case_without_a_verdict(server):
    (found,) = run(server, [town(0)], pipeline=Pipeline(stages=("atomize", "revise")))
    assert (found.status, found.row["measures"]) == ("stopped", None)
    assert "retrieve was left out" in found.reason
    assert len(found.case.atoms) == 3
    (whole,) = run(server, [found.case])
    assert labels(whole) == ["supported", "refuted", "unverified"]


def test_a_case_for_which_nobody_was_there_is_taken_up_when_somebody_is(server):
    (found,) = run(server, [town(0)], retrieve=None)
    assert found.case.response == town(0).response
    (whole,) = run(server, [parse_case(case_to_dict(found.case))])
    assert as_bytes([whole]) == as_bytes(run(server, [town(0)]))


@pytest.mark.parametrize(
    "foreign",
    [
        *({"stages": value} for value in ("three", ["atomize"], {"atomize": True, "revise": "yes"})),
        *({"relate": value} for value in ("a cousin", {"version": "FR3"}, None)),
        {"stages": 3, "relate": [], "reason": "chosen by hand"},
    ],
)
def test_what_a_case_brings_along_under_our_names_is_kept_and_not_read(server, foreign):
    (plain,) = run(server, [town(0)])
    before = server.calls
    (found,) = run(server, [town(0, **foreign)])
    asked = server.calls - before
    assert found.row | {"fingerprint": ""} == plain.row | {"fingerprint": ""}
    assert {key: found.case.extra[key] for key in foreign} == foreign
    assert case_to_dict(begun_from(found.case, "atomize")) == case_to_dict(town(0, **foreign))
    before = server.calls
    (again,) = run(server, [parse_case(case_to_dict(found.case))])
    assert (server.calls, as_bytes([again])) == (before, as_bytes([found]))  # it knows how far it has come
    (anew,) = run(server, [begun_from(found.case, "revise")])
    assert (anew.row, server.calls - before) == (found.row, asked - 1)


def test_given_relations_are_all_there_is_whatever_stands_under_relate(server):
    (whole,) = run(server, [town(0)])
    given = replace(whole.case, relations=whole.case.relations[:1], extra={"relate": {"to": "the town"}})
    before = server.calls
    (found,) = run(server, [given])
    assert (found.case, server.calls) == (given, before)


def test_the_early_exit_says_how_far_a_case_goes(server):
    def exit_after(stage, case):
        return "town 1 is known" if stage == "retrieve" and case.id == "town 1" else None

    found = run(server, [town(0), town(1)], pipeline=Pipeline(early_exit=exit_after))
    assert [one.status for one in found] == ["ok", "stopped"]
    assert found[1].reason == "after retrieve: town 1 is known"
    assert found[1].case.relations is None


def test_bad_cases_end_nothing(server):
    twice = fcjax.Atom(id="a", text="Town 1 has 9 bridges.")
    broken = replace(town(1), atoms=(twice, replace(twice, text="Town 1 has 9 mills.")))
    cases = [
        town(0),
        replace(town(1), status=fcjax.Status.INVALID_INPUT, extra={"reason": "line 2 is no JSON"}),
        broken,
    ]
    found = run(server, cases, settings=Settings(version="FR1"))
    assert [one.status for one in found] == ["ok", "invalid_input", "invalid_input"]
    assert found[1].reason == "line 2 is no JSON"
    assert "allowed: a unique id" in found[2].reason


@pytest.mark.parametrize("version", ["FR1", "FR2", "FR3"])
def test_every_version(server, version):
    found = run(server, [town(i) for i in range(3)], settings=Settings(version=version, preset="release"))
    assert [labels(one) for one in found] == [["supported", "refuted", "unverified"]] * 3
    kinds = {(r.source[0], r.target[0]) for one in found for r in one.case.relations}
    assert kinds == ({("c", "a")} if version != "FR3" else {("c", "a"), ("c", "c")})


def test_a_budget_ends_the_run_with_what_was_done_told(server):
    seen = []
    with pytest.raises(BudgetError):
        run(
            server,
            [town(i) for i in range(TOWNS)],
            concurrency=1,
            budget=Budget(prompts=10),
            open_cases=1,
            after=lambda place, stage, case: seen.append((place, stage)),
        )
    assert seen[:3] == [(0, "atomize"), (0, "revise"), (0, "retrieve")]


def test_an_endpoint_that_nobody_can_use_ends_the_run():
    with ScriptedServer(scripted_model.answer, key="secret") as server, pytest.raises(SettingsError, match="API key"):
        run(server, [town(i) for i in range(TOWNS)])


def test_an_endpoint_that_dies_in_the_middle_leaves_statuses_and_no_verdicts():
    calls = 0

    def dies(messages):
        nonlocal calls
        calls += 1
        return (
            scripted_model.answer(messages) if calls <= 8 else {"status": 500, "body": {"error": {"message": "dead"}}}
        )

    with ScriptedServer(dies) as server:
        found = run(server, [town(i) for i in range(3)], concurrency=1, open_cases=1)
    assert len(found) == 3
    for one in found:
        assert one.status in ("ok", "atomize_failed", "relation_failed")
        for atom in one.row["atoms"]:
            assert (atom["label"] is None) == (atom["status"] not in ("ok", "no_evidence"))
    assert any(one.status == "atomize_failed" for one in found)


def test_synchronously_and_inside_a_running_loop(server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("FCJAX_MODEL", "scripted")
    monkeypatch.setenv("FCJAX_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes(b"".join(orjson.dumps({"text": one.text, "link": one.link}) + b"\n" for one in passages(1)))
    given = scripted_model.case(0)
    found = critique(given["response"], given["query"], retrieve=corpus)
    assert labels(found)[:2] == ["supported", "refuted"]
    asked = server.calls

    async def notebook():
        return fcjax.critique(given["response"], given["query"], retrieve=corpus)

    assert asyncio.run(notebook()).row == found.row
    assert server.calls == asked


def test_synchronously_with_a_source_whose_connections_belong_to_a_loop(server, tmp_path):
    class Connected(Shelf):
        loop = None

        async def search(self, query, k):
            self.loop = self.loop or asyncio.get_running_loop()
            assert self.loop is asyncio.get_running_loop()
            return await super().search(query, k)

        async def close(self):
            self.loop = None

    source, given = Connected(passages(1)), scripted_model.case(0)
    how = {"retrieve": source, "where": Endpoint(server.url, "scripted"), "store": tmp_path / "store.sqlite"}
    first = critique(given["response"], given["query"], **how)
    asked = source.searches
    for replay in (False, True):
        assert critique(given["response"], given["query"], replay=replay, **how).row == first.row
    assert source.searches == asked
    other = scripted_model.case(0, atoms=4)
    assert len(critique(other["response"], other["query"], **how).row["atoms"]) == 4
    assert source.searches > asked


def test_an_interrupt_in_a_notebook_ends_the_work():
    ended = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def notebook():
        return in_own_loop(work())

    loop = asyncio.new_event_loop()  # as a notebook's: Ctrl-C is not the loop's, but raised where the cell is
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(notebook())
    loop.close()
    assert ended == [True]
    assert time.monotonic() - began < 20


def test_synchronously_without_an_endpoint(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("FCJAX_STORE", str(tmp_path / "store.sqlite"))
    with pytest.raises((SettingsError, InputError)):
        critique("Town 0 has 2 bridges.")


def test_settings_that_are_wrong():
    with pytest.raises(SettingsError, match="open_cases"):
        Critic(open_cases=0)
    with pytest.raises(SettingsError, match="allowed: atomize, revise"):
        Pipeline(stages=("atomise",))
    assert STAGES[0] == "atomize"


def test_adaptive_asking_comes_to_the_same_labels_at_every_concurrency(server):
    cases = [town(number) for number in range(TOWNS)]
    everything = run(server, cases)
    found = [run(server, cases, concurrency=n, ask="adaptive", window=4 * n) for n in (1, 8)]
    assert as_bytes(found[0]) == as_bytes(found[1])
    assert [labels(one) for one in found[0]] == [labels(one) for one in everything]
    assert all("settled" in atom for one in found[0] for atom in one.row["atoms"])
