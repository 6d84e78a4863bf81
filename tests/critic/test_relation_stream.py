"""Relations for a file: order, resuming by the store, budgets, failures; against a real server on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

import pytest
from jsonl import rows_in, write
from relations import QUICK, case, client_of, judge
from samples import SHARED
from scripted_server import ScriptedServer, Weather

from fcjax import score
from fcjax.core.errors import BudgetError, InputError, OutputError, SettingsError
from fcjax.critic.relation_stream import RelationConfig, RelationCounts, relate_cases
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.files import parse_case, read_cases
from fcjax.io.files.locks import locked
from fcjax.io.outcome import Refused
from fcjax.io.pacing import Budget, Retry
from fcjax.io.store import Store
from fcjax.runs.relate_file import estimate_file, relate_file
from fcjax.stages.calibration import Calibration
from fcjax.stages.relate import RelationModel
from fcjax.stages.wordings import PAIRWISE


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.jsonl", *(case(f"case {i}", 1 + i % 3, 1 + i % 2) for i in range(12)))


def types(row):
    return [(r["source"], r["target"], r["type"]) for r in row["relations"]]


@pytest.mark.parametrize("style", ["pairwise", "packed"])
def test_every_case_gets_its_relations_in_order(tmp_path, style):
    source = write(tmp_path / "in.jsonl", case("x"), case("y", 3, 1, topic="kept", more=[1.23456789012]))
    with ScriptedServer(judge) as server:
        how = RelationConfig(model=RelationModel(style=style))
        counts = relate_file(source, tmp_path / "out.jsonl", client_of(server), how)
    x, y = rows_in(tmp_path / "out.jsonl")
    assert types(x) == [
        ("c0", "a0", "entailment"),
        ("c0", "a1", "contradiction"),
        ("c1", "a0", "contradiction"),
        ("c1", "a1", "entailment"),
    ]
    assert types(y) == [("c0", "a0", "entailment"), ("c0", "a1", "contradiction"), ("c0", "a2", "contradiction")]
    assert all(r["method"] == "logprobs" and 0.5 < r["probability"] < 1 for r in x["relations"])
    assert (y["topic"], y["more"]) == ("kept", [1.23456789012])
    named = {"model": "scripted", "version": "FR2", "style": style, "template": f"relate.{style}/2"}
    assert y["relate"] == named | {"asked": 3, "failed": 0}
    assert counts.to_dict() == {
        "n_cases": 2,
        "statuses": {"ok": 2},
        "n_pairs": 7,
        "types": {"entailment": 3, "contradiction": 4},
        "methods": {"logprobs": 7},
        "n_failed": 0,
        "failed": {},
        "n_given": 0,
        "n_earlier": 0,
        "n_screened": 0,
        "skipped": {},
    }


def test_the_order_is_the_inputs_whatever_is_slow(tmp_path, source):
    with ScriptedServer(judge, weather=Weather(too_many=0.3, reset=0.1, garbage=0.1, seed=3)) as server:
        relate_file(source, tmp_path / "out.jsonl", client_of(server), window=5)
    rows = rows_in(tmp_path / "out.jsonl")
    assert [row["id"] for row in rows] == [f"case {i}" for i in range(12)]
    assert all(row["relate"]["failed"] == 0 and row["relations"] for row in rows)


def test_running_again_asks_nothing_twice(tmp_path, source):
    with ScriptedServer(judge) as server, Store.open(tmp_path / "store") as store:
        relate_file(source, tmp_path / "one.jsonl", client_of(server, store=store))
        calls = server.calls
        again = client_of(server, store=store)
        relate_file(source, tmp_path / "two.jsonl", again)
        assert server.calls == calls == again.stats.cache_hits
        server.stop()
        relate_file(source, tmp_path / "three.jsonl", client_of(server, store=store, replay=True))
        server.start()
    one = (tmp_path / "one.jsonl").read_bytes()
    assert one == (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "three.jsonl").read_bytes()


def test_a_run_that_stops_at_its_budget_is_gone_on_with(tmp_path, source):
    with ScriptedServer(judge) as server, Store.open(tmp_path / "store") as store:
        out = tmp_path / "out.jsonl"
        with pytest.raises(BudgetError, match="20 prompts"):
            relate_file(source, out, client_of(server, store=store, budget=Budget(prompts=20)))
        assert not out.exists()
        assert server.calls == 20
        counts = relate_file(source, out, client_of(server, store=store))
        assert server.calls == counts.pairs == sum(len(row["relations"]) for row in rows_in(out))
        assert max(server.asked.values()) == 1


def test_relations_that_are_there_are_not_asked_for_again(tmp_path, source):
    with ScriptedServer(judge) as server:
        relate_file(source, tmp_path / "one.jsonl", client_of(server))
        calls = server.calls
        counts = relate_file(tmp_path / "one.jsonl", tmp_path / "two.jsonl", client_of(server))
        assert server.calls == calls
        assert (counts.pairs, counts.given) == (0, calls)
        assert list(map(types, rows_in(tmp_path / "two.jsonl"))) == list(map(types, rows_in(tmp_path / "one.jsonl")))
        own = RelationConfig(version="FR3")
        counts = relate_file(tmp_path / "one.jsonl", tmp_path / "three.jsonl", client_of(server), own)
        assert counts.pairs == 6 * 2  # both orders of two contexts in every other case


def test_the_record_is_of_the_run_that_asked(tmp_path):
    source, model = write(tmp_path / "in.jsonl", case("x")), RelationModel(style="packed")
    with ScriptedServer(judge) as server:
        relate_file(source, tmp_path / "one.jsonl", client_of(server), RelationConfig(model=model))
        other = Client(Endpoint(server.url, "another"), retry=QUICK)
        relate_file(tmp_path / "one.jsonl", tmp_path / "two.jsonl", other)
        assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
        other = Client(Endpoint(server.url, "another"), retry=QUICK)
        relate_file(tmp_path / "one.jsonl", tmp_path / "three.jsonl", other, RelationConfig(version="FR3"))
    (record,) = (row["relate"] for row in rows_in(tmp_path / "three.jsonl"))
    assert (record["model"], record["version"], record["asked"]) == ("another", "FR3", 2)


def test_rows_that_cannot_be_asked_about_come_through(tmp_path):
    source = write(
        tmp_path / "in.jsonl",
        "{not json",
        case("good", 1, 1),
        {"id": "early", "response": "not atomized yet"},
        case("gone", 1, 1, status="refused", reason="the provider would not"),
        case("wrong", 1, 1, relations=[{"source": "c0", "target": "a9", "type": "neutral", "probability": 2}]),
        case("empty", 0, 0),
        case("mute", 1, 0) | {"contexts": [{"id": "c0", "text": " "}]},
    )
    with ScriptedServer(judge) as server:
        counts = relate_file(source, tmp_path / "out.jsonl", client_of(server))
        assert server.calls == 1
    rows = rows_in(tmp_path / "out.jsonl")
    assert [(row["id"], row.get("status"), row.get("relations") and len(row["relations"])) for row in rows] == [
        ("1", "invalid_input", None),
        ("good", None, 1),
        ("early", None, None),
        ("gone", "refused", None),
        ("wrong", "invalid_input", None),
        ("empty", None, []),
        ("mute", None, []),
    ]
    assert "not JSON" in rows[0]["reason"]
    assert "relations[0].target" in rows[4]["reason"]
    assert "line 5" in rows[4]["reason"] or rows[4]["reason"].startswith("5")
    assert rows[6]["relate"]["skipped"] == {"c0": "it has no text"}
    assert counts.cases == {"ok": 4, "invalid_input": 2, "refused": 1}
    assert counts.skipped == {"it has no text": 1}


def test_fr1_without_own_contexts_is_a_status_of_the_case(tmp_path):
    bare = case("bare", 1, 1)
    del bare["atoms"][0]["contexts"]
    source = write(tmp_path / "in.jsonl", bare, case("good", 2, 2))
    with ScriptedServer(judge) as server:
        relate_file(source, tmp_path / "out.jsonl", client_of(server), RelationConfig(version="FR1"))
    first, second = rows_in(tmp_path / "out.jsonl")
    assert first["status"] == "invalid_input"
    assert "atoms[0].contexts" in first["reason"]
    assert len(second["relations"]) == 2


def test_a_file_in_which_nothing_can_be_related_is_an_error(tmp_path):
    source = write(tmp_path / "in.jsonl", {"id": "x"}, {"id": "y", "atoms": [{"id": "a", "text": "t"}]})
    with ScriptedServer(judge) as server:
        with pytest.raises(InputError, match="run the stages atomize and retrieve.*1 other row"):
            relate_file(source, tmp_path / "out.jsonl", client_of(server))
        with pytest.raises(OutputError, match="is also the input"):
            relate_file(source, source, client_of(server))
        with pytest.raises(OutputError, match="its folder does not exist"):
            relate_file(source, tmp_path / "nowhere" / "out.jsonl", client_of(server))
        with pytest.raises(InputError, match="not JSON"):
            relate_file(write(tmp_path / "bad.jsonl", "{not json"), tmp_path / "out.jsonl", client_of(server))
    assert server.calls == 0


def test_failures_are_counted_and_no_verdicts(tmp_path):
    def moody(messages):
        if "says 1\n</hypothesis>" in messages[0]["content"]:
            return {"status": 400, "body": {"error": {"message": "flagged", "code": "content_filter"}}}
        return "no idea" if "says 0\n</hypothesis>" in messages[0]["content"] else judge(messages)

    source = write(tmp_path / "in.jsonl", case("x", 3, 1))
    with ScriptedServer(moody) as server, Store.open(tmp_path / "store") as store:
        counts = relate_file(source, tmp_path / "out.jsonl", client_of(server, store=store))
        assert server.calls == 3 + 1 + 1
        (row,) = rows_in(tmp_path / "out.jsonl")
        assert [r.get("status", "ok") for r in row["relations"]] == ["relation_failed", "relation_failed", "ok"]
        assert [r["type"] for r in row["relations"]] == [None, None, "contradiction"]
        assert "no idea" in row["relations"][0]["reason"]
        assert row["relations"][1]["reason"].startswith("content_filter")
        assert (counts.n_failed, row["relate"]["failed"]) == (2, 2)
        assert counts.failed == {"unreadable": 1, "content_filter": 1}
        # Replayed as it was; asked again for what failed when it is run live.
        relate_file(source, tmp_path / "again.jsonl", client_of(server, store=store, replay=True))
        assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
        server.answer = judge
        relate_file(source, tmp_path / "mended.jsonl", client_of(server, store=store))
        assert server.calls == 5 + 2
    assert all("status" not in r for r in rows_in(tmp_path / "mended.jsonl")[0]["relations"])


def test_an_endpoint_that_turns_everyone_away_ends_the_run(tmp_path, source):
    with ScriptedServer(judge, key="sk-right") as server, pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        relate_file(source, tmp_path / "out.jsonl", client_of(server))
    assert not (tmp_path / "out.jsonl").exists()


REFUSED = {"status": 400, "body": {"error": {"message": "unknown field", "type": "invalid_request_error"}}}
FLAGGED = {"status": 400, "body": {"error": {"message": "flagged", "code": "content_filter"}}}


@pytest.mark.parametrize("trouble", ["away", "429", "invalid_request"])
def test_an_endpoint_that_answers_no_prompt_ends_the_run(tmp_path, trouble):
    source, out = write(tmp_path / "in.jsonl", *(case(f"case {i}", 3, 3) for i in range(40))), tmp_path / "out.jsonl"
    out.write_text("of before")
    weather = ["429"] * 1000 if trouble == "429" else ()
    with ScriptedServer(lambda messages: REFUSED, weather=weather) as server:
        if trouble == "away":
            server.stop()
        client = client_of(server, retry=Retry(attempts=2, first=0.01, longest=0.01), concurrency=4)
        with pytest.raises(SettingsError, match="the first 20 prompts have all failed, so no more are sent; the last"):
            relate_file(source, out, client, window=16)
        assert client.stats.sent < 2 * (20 + 16)
        if trouble == "away":
            server.start()
    assert out.read_text() == "of before"


@pytest.mark.parametrize("once", [FLAGGED, "[neutral]"])
def test_an_endpoint_that_answers_anything_is_asked_on(tmp_path, once):
    source = write(tmp_path / "in.jsonl", *(case(f"case {i}", 3, 3) for i in range(10)))
    with ScriptedServer(lambda messages: once if server.calls == 1 else REFUSED) as server:
        counts = relate_file(source, tmp_path / "out.jsonl", client_of(server, concurrency=1))
    assert (counts.pairs, counts.failed["invalid_request"]) == (90, 89)


def test_two_runs_never_write_to_one_file(tmp_path, source):
    out = tmp_path / "out.jsonl"
    with ScriptedServer(judge) as server:
        with locked(out), pytest.raises(OutputError, match="another run is writing to it"):
            relate_file(source, out, client_of(server))
        assert server.calls == 0
        relate_file(source, out, client_of(server))


def test_a_replay_without_any_answer_takes_no_files_place(tmp_path, source):
    with ScriptedServer(judge) as server, Store.open(tmp_path / "store") as store:
        relate_file(source, tmp_path / "out.jsonl", client_of(server, store=store))
        before = (tmp_path / "out.jsonl").read_bytes()
        packed = RelationConfig(model=RelationModel(style="packed"))
        with pytest.raises(InputError, match=r"out\.jsonl: the store has no answer to any of \d+ prompts"):
            relate_file(source, tmp_path / "out.jsonl", client_of(server, store=store, replay=True), packed)
        assert (tmp_path / "out.jsonl").read_bytes() == before
        wider = RelationConfig(version="FR3")  # some answers are there: what is missing is a failure in its place
        counts = relate_file(source, tmp_path / "out.jsonl", client_of(server, store=store, replay=True), wider)
        assert 0 < counts.failed["replay_miss"] < counts.pairs


def test_a_replay_of_replies_without_an_answer_takes_no_files_place(tmp_path, source):
    out = tmp_path / "out.jsonl"
    with ScriptedServer(lambda messages: "I cannot say.") as server, Store.open(tmp_path / "store") as store:
        counts = relate_file(source, tmp_path / "live.jsonl", client_of(server, store=store))
        assert 0 < counts.failed["unreadable"] == counts.pairs
        out.write_text("of before")
        with pytest.raises(InputError, match=r"out\.jsonl: the store has no answer to any of \d+ prompts"):
            relate_file(source, out, client_of(server, store=store, replay=True))
    assert out.read_text() == "of before"


def test_it_ends_the_run_too_where_other_failures_came_before():
    class Away:
        name, model = "away", "m"
        sent = 0

        async def send(self, prompt):
            self.sent += 1
            if self.sent == 1:
                await asyncio.sleep(0.01)  # so that the same question of another case shares the call
                return Refused("context_overflow", "too long")
            return Refused("unauthorized", "who are you")

        async def close(self):
            pass

    same = [parse_case(case("same", 1, 1)), parse_case(case("same", 1, 1))]
    others = [parse_case(case(f"other {i}", 1, 1)) for i in range(5)]

    async def go():
        async with Client(Away()) as client:
            async for _ in relate_cases([*same, *others], client, RelationConfig(), window=2):
                pass

    with pytest.raises(SettingsError, match="who are you"):
        asyncio.run(go())


def test_screening_is_counted(tmp_path):
    apart = case("x", 1, 2)
    apart["contexts"][1]["text"] = "something else entirely"
    source = write(tmp_path / "in.jsonl", apart)
    with ScriptedServer(judge) as server:
        counts = relate_file(source, tmp_path / "out.jsonl", client_of(server), RelationConfig(screen=0.3))
        assert server.calls == 1
    (row,) = rows_in(tmp_path / "out.jsonl")
    assert (counts.screened, row["relate"]["screened"], len(row["relations"])) == (1, 1, 1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"version": "fr3"}, "version is 'fr3'; allowed: 'FR1', 'FR2', 'FR3'"),
        ({"version": "FR9"}, "version is 'FR9'; allowed: 'FR1'"),
        ({"version": None}, "version is None; allowed: 'FR1'"),
        ({"screen": 2}, "screen is 2; allowed: a number from 0 to 1, or None"),
        ({"screen": "0.1"}, "screen is '0.1'; allowed: a number"),
    ],
)
def test_settings_that_make_no_sense(wrong, words):
    with pytest.raises(SettingsError, match=words):
        RelationConfig(**wrong)


def test_the_window_stays_full_across_cases(tmp_path):
    cases = [parse_case(case(f"case {i}", 2, 1)) for i in range(40)]
    with ScriptedServer(judge, delay=0.05) as server:

        async def go():
            async with client_of(server, concurrency=16) as client:
                return [one.id async for one in relate_cases(cases, client, RelationConfig(), window=20)]

        assert asyncio.run(go()) == [f"case {i}" for i in range(40)]
        assert server.most_in_flight == 16


def test_no_more_cases_are_open_than_the_window(tmp_path):
    opened = Counter()

    def cases():
        for i in range(200):
            opened["taken"] += 1
            yield parse_case(case(f"case {i}", 1, i % 2))

    with ScriptedServer(judge) as server:

        async def go():
            written = 0
            async with client_of(server) as client:
                async for _ in relate_cases(cases(), client, RelationConfig(), window=7):
                    written += 1
                    assert opened["taken"] <= written + 7 + 1
            return written

        assert asyncio.run(go()) == 200


def test_leaving_early_leaves_nothing_behind():
    cases = (parse_case(case(f"case {i}")) for i in range(1000))
    with ScriptedServer(judge) as server:

        async def go():
            async with client_of(server) as client:
                stream = relate_cases(cases, client, RelationConfig(), window=8)
                await anext(stream)
                await stream.aclose()
            return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

        assert asyncio.run(go()) == []


def test_an_estimate_sends_nothing(tmp_path, source):
    with ScriptedServer(judge) as server, Store.open(tmp_path / "store") as store:
        client = client_of(server, store=store)
        found = estimate_file(source, client)
        assert server.calls == 0
        counts = relate_file(source, tmp_path / "out.jsonl", client_of(server, store=store))
        assert (found.prompts, found.to_send, found.stored) == (counts.pairs, server.calls, 0)
        after = estimate_file(source, client_of(server, store=store))
        assert (after.prompts, after.to_send) == (counts.pairs, 0)
        assert estimate_file(source, client_of(server), limit=1).prompts == 1


def test_compressed_and_listed_outputs(tmp_path, source):
    with ScriptedServer(judge) as server:
        for name in ("out.json", "out.jsonl.gz"):
            relate_file(source, tmp_path / name, client_of(server))
            assert [row.id for row in read_cases(tmp_path / name)] == [f"case {i}" for i in range(12)]


def test_a_real_case(tmp_path):
    path = SHARED / "cases" / "flaherty_google.json"
    if not path.exists():
        pytest.skip("needs ../shared/cases/flaherty_google.json")
    with ScriptedServer(judge) as server:
        client = client_of(server, concurrency=32)
        counts = relate_file(path, tmp_path / "out.jsonl", client, RelationConfig(model=RelationModel(style="packed")))
    (row,) = rows_in(tmp_path / "out.jsonl")
    assert len(row["relations"]) == counts.pairs > 1000
    assert isinstance(counts, RelationCounts)
    assert counts.n_failed == 0
    assert server.calls < counts.pairs / 8


def test_a_dead_endpoint_takes_no_files_place_however_few_the_prompts(tmp_path):
    source, out = write(tmp_path / "in.jsonl", case("one", 2, 1)), tmp_path / "out.jsonl"
    out.write_text("earlier\n")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        client = Client(Endpoint(f"http://127.0.0.1:{nobody.getsockname()[1]}", "m"), retry=Retry(attempts=1))
        with pytest.raises(SettingsError, match="endpoint unreachable: 2 prompts failed"):
            relate_file(source, out, client, RelationConfig())
    assert out.read_text() == "earlier\n"


def test_relations_of_another_calibration_are_not_claimed(tmp_path):
    """Kept relations stay what they are: the record names both runs, and no row rests on the second calibration."""
    given = {"source": "c0", "target": "a0", "type": "entailment", "probability": 0.7, "method": "logprobs"}
    before = {"model": "other", "version": "FR2", "style": "pairwise", "template": "relate.pairwise/1"}
    source = write(tmp_path / "in.jsonl", case("x", 2, 1, relations=[given], relate=before))
    of = Calibration(model="scripted", style="pairwise", template=PAIRWISE.name, temperature=2.0)
    with ScriptedServer(judge) as server:
        counts = relate_file(source, tmp_path / "out.jsonl", client_of(server), RelationConfig(calibration=of))
    assert counts.to_dict()["n_earlier"] == 1
    (row,) = rows_in(tmp_path / "out.jsonl")
    assert row["relate"]["calibration"] == of.digest
    assert row["relate"]["asked"] == 1
    assert row["relate"]["earlier"] == {key: before[key] for key in ("model", "style", "template")}
    score(tmp_path / "out.jsonl", tmp_path / "scored.jsonl")
    (scored,) = rows_in(tmp_path / "scored.jsonl")
    assert "calibration" not in scored["diagnostics"]
    again = write(tmp_path / "again.jsonl", {**row, "atoms": [*row["atoms"], {"id": "new", "text": "x says 0"}]})
    with ScriptedServer(judge) as server:
        counts = relate_file(again, tmp_path / "more.jsonl", client_of(server), RelationConfig(calibration=of))
    assert counts.earlier == 1
    (more,) = rows_in(tmp_path / "more.jsonl")
    assert more["relate"]["earlier"] == row["relate"]["earlier"]  # it does not grow
    unknown = write(tmp_path / "unknown.jsonl", case("x", 2, 1, relations=[given]))
    with ScriptedServer(judge) as server:
        relate_file(unknown, tmp_path / "known.jsonl", client_of(server), RelationConfig(calibration=of))
    assert rows_in(tmp_path / "known.jsonl")[0]["relate"]["earlier"] == {}


def test_cases_that_keep_relations_of_another_model_are_counted_though_nothing_is_asked(tmp_path):
    source = write(tmp_path / "in.jsonl", case("x"), case("y"), case("z", relations=[]))
    known, of = tmp_path / "known.jsonl", Calibration(model="scripted", style="pairwise", template=PAIRWISE.name)
    with ScriptedServer(judge) as server:
        assert relate_file(source, known, client_of(server)).earlier == 0
        for how, earlier in (
            (RelationConfig(), 0),
            (RelationConfig(calibration=of), 3),
            (RelationConfig(model=RelationModel(style="packed")), 3),
        ):
            counts = relate_file(known, tmp_path / "again.jsonl", client_of(server), how)
            assert (counts.pairs, counts.earlier) == (0, earlier)
