"""Files through the critic: order, what the results rest on, stops and goings on; against a real server on loopback."""

from __future__ import annotations

import gzip
import json
import threading
from dataclasses import replace
from typing import get_args

import pytest
import scripted_model as model
from jsonl import rows_in, write
from relations import client_of
from scripted_model import Shelf
from scripted_server import ScriptedServer, Weather

from fcjax.core.errors import BudgetError, InputError, OutputError, SettingsError
from fcjax.core.passages import Passage
from fcjax.core.prompts import Failure
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.io.constraints import Constrain
from fcjax.io.endpoint import Endpoint
from fcjax.io.files.journal import Journal
from fcjax.io.files.locks import locked
from fcjax.io.pacing import Budget, Retry
from fcjax.io.retrievers.cached import Cached
from fcjax.io.retrievers.domains import Domains
from fcjax.io.store import Store
from fcjax.runs.critique_file import critique_file
from fcjax.runs.file_run import cases_file
from fcjax.runs.observer import RunObserver
from fcjax.runs.preview import Choice, preview, settings_of
from fcjax.runs.score_file import score
from fcjax.scoring.settings import Settings
from fcjax.stages.pipeline import Pipeline
from fcjax.stages.query import QueryBuilder
from fcjax.stages.relate import RelationModel
from fcjax.stages.retrieve import EvidenceSearch
from fcjax.stages.summarise import Summariser

TOWNS = 12
EVERYTHING = Pipeline(query=QueryBuilder(), summarise=Summariser())


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.jsonl", *(model.case(town, 1 + town % 4) for town in range(TOWNS)))


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(model.answer) as running:
        yield running


@pytest.fixture(autouse=True)
def _anew(server):
    server.asked.clear()
    server.answered.clear()
    server.answer = model.answer


def shelf(**more):
    return Shelf(model.passages(TOWNS, 4), **more)


def critic_of(server, retrieve=None, **more):
    settings = {name: more.pop(name) for name in ("store", "concurrency", "budget", "replay", "retry") if name in more}
    return Critic(client_of(server, **settings), retrieve=retrieve or shelf(), **more)


def files(out):
    return out.read_bytes(), cases_file(out).read_bytes()


def stages_file(out):
    return out.with_name(out.name + ".stages")


def test_a_response_becomes_posteriors_and_feedback(server, source, tmp_path):
    out, retrieve = tmp_path / "out.jsonl", shelf()
    report = critique_file(source, out, critic_of(server, retrieve))
    rows, cases = rows_in(out), rows_in(tmp_path / "out.cases.jsonl")
    assert [row["id"] for row in rows] == [case["id"] for case in cases] == [f"town {i}" for i in range(TOWNS)]
    assert [atom["label"] for atom in rows[3]["atoms"]] == ["supported", "refuted", "supported", "unverified"]
    assert [finding["atom"] for finding in rows[3]["feedback"]["findings"]] == ["a1", "a3"]
    assert {row["measures"]["k"] for row in rows} == {2.5}  # the median of 1, 2, 3 and 4 atoms, three times each
    assert cases[3]["stages"].keys() == {"atomize", "revise", "retrieve"}
    assert (report.summary.k, report.summary.statuses, report.n_failed) == (2.5, {"ok": TOWNS}, 0)
    assert report.stages["retrieve"]["queries"] == 30
    assert report.relations == {
        "neutral": 102,
        "entailment": 36,
        "contradiction": 18,
    }  # two contexts a claim, but the fourth
    assert retrieve.closed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.cases.jsonl", "out.jsonl"]


@pytest.mark.parametrize(
    ("settings", "pipeline"),
    [
        (Settings(), None),
        (Settings(preset="release", version="FR3", k=7), EVERYTHING),
        (Settings(version="FR1", k="release", method="wmb"), Pipeline(revise=None)),
        (Settings(encoding="conditional", context_prior=0.7), Pipeline(stages=("atomize", "retrieve"))),
    ],
)
def test_scoring_the_cases_again_gives_the_same_bytes(server, tmp_path, settings, pipeline):
    given = {"id": "given", "response": "?", "atoms": [{"id": "a", "text": "Town 1 has 9 mills."}], "contexts": []}
    source = write(
        tmp_path / "in.jsonl",
        *(model.case(town, 2 + town % 3) for town in range(4)),
        given,
        "{ no JSON",
        {"id": "nothing"},
        {"id": "bad", "response": 7},
        {"id": "", "response": "x"},
        {"id": "empty", "response": " "},
        {"id": "refused", "response": "I'm sorry, but I can't help with that."},
        {"id": "failed", "response": "x", "status": "refused", "reason": "by hand"},
    )
    critic = critic_of(server, shelf(broken=["mills"]), settings=settings, pipeline=pipeline)
    report = critique_file(source, tmp_path / "out.jsonl", critic)
    summary = score(tmp_path / "out.cases.jsonl", tmp_path / "again.jsonl", critic.settings, feedback=True)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert summary.to_dict() == report.summary.to_dict()
    rows = {row["id"]: row for row in rows_in(tmp_path / "out.jsonl")}
    assert len(rows) == 12
    statuses = {id: row["status"] for id, row in rows.items() if not id.startswith("town")}
    left = {"given": "ok", "6": "invalid_input", "nothing": "invalid_input", "bad": "invalid_input"}
    assert statuses == left | {"9": "invalid_input", "empty": "no_atoms", "refused": "refused", "failed": "refused"}
    assert "neither `atoms` nor a `response`" in rows["nothing"]["reason"]
    assert rows["failed"]["reason"] == "by hand"
    mills = rows["town 1"]["atoms"][2]
    if pipeline is None:
        assert (mills["status"], mills["p"], mills["label"]) == ("retrieval_failed", None, None)
        assert report.failed == {"retrieve": {"forbidden": 2}}
    if settings.encoding == "conditional":
        assert rows["town 0"]["status"] == "stopped"
        assert "the stage relate was left out" in rows["town 0"]["reason"]


def test_the_same_answer_at_every_concurrency_and_in_replay(server, source, tmp_path):
    """All stages, in bad weather, with searches that take their time; then without a server and without a source."""
    made = []
    with Store.open(tmp_path / "store") as store:
        for concurrency in (1, 5, 64):
            weather = Weather(too_many=0.1, reset=0.05, garbage=0.05, seed=concurrency)
            with ScriptedServer(model.answer, weather=weather, delay=0.002, spread=0.9) as stormy:
                out = tmp_path / f"{concurrency}.jsonl"
                retrieve = shelf(delay=0.001 * (concurrency % 3))
                retrieve = Cached(retrieve, store) if concurrency == 64 else retrieve
                critic = critic_of(
                    stormy,
                    retrieve,
                    pipeline=EVERYTHING,
                    concurrency=concurrency,
                    store=store if concurrency == 64 else None,
                    retry=Retry(attempts=20, first=0.01, longest=0.05),
                    open_cases=1 + concurrency // 2,
                    window=concurrency,
                )
                critique_file(source, out, critic)
                made.append(files(out))
        # The store holds the replies of the last server.
        for again in range(2):
            out = tmp_path / f"replay {again}.jsonl"
            gone = Cached(Shelf(()), store, replay=True)
            critic = critic_of(stormy, gone, pipeline=EVERYTHING, store=store, replay=True, concurrency=1 + 30 * again)
            critique_file(source, out, critic)
            made.append(files(out))
            assert critic.client.stats.sent == 0
    assert len(set(made)) == 1


def test_a_run_that_stops_goes_on_where_it_was(server, source, tmp_path):
    calm, out = tmp_path / "calm.jsonl", tmp_path / "out.jsonl"
    critique_file(source, calm, critic_of(server, pipeline=EVERYTHING))
    calls, searches = server.calls, 0
    server.asked.clear()
    with Store.open(tmp_path / "store") as store:
        for budget in (3, 20, 40, 60, 100):
            retrieve = shelf()
            critic = critic_of(server, retrieve, pipeline=EVERYTHING, store=store, budget=Budget(prompts=budget))
            try:
                report = critique_file(source, out, critic)
            except BudgetError:
                assert stages_file(out).exists()
                assert not out.exists()
                assert not cases_file(out).exists()
            searches += retrieve.searches
        assert report.resumed > 0
    assert files(out) == files(calm)
    assert not stages_file(out).exists()
    assert server.calls == calls
    assert searches < 30 + 5 * TOWNS  # without a journal, every run would search for all that it comes to


def test_what_failed_before_a_stop_is_tried_again(server, source, tmp_path):
    calm, out = tmp_path / "calm.jsonl", tmp_path / "out.jsonl"
    critique_file(source, calm, critic_of(server))
    with Store.open(tmp_path / "store") as store:
        bad = shelf(broken=["mills", "schools"])
        with pytest.raises(BudgetError):
            critique_file(source, out, critic_of(server, bad, store=store, budget=Budget(prompts=50)))
        with open(stages_file(out)) as lines:
            stages = [json.loads(line).get("stage") for line in lines]
        assert stages.count("atomize") == TOWNS
        assert 0 < stages.count("retrieve") < TOWNS  # those without mills and schools
        report = critique_file(source, out, critic_of(server, store=store))
    assert report.n_failed == 0
    assert files(out) == files(calm)


def test_what_an_early_exit_stopped_is_stopped_again(server, source, tmp_path):
    def few(stage, case):
        return "too few atoms" if stage == "revise" and len(case.atoms) < 3 else None

    pipeline, out = Pipeline(early_exit=few), tmp_path / "out.jsonl"
    with Store.open(tmp_path / "store") as store:
        critic = critic_of(server, store=store, pipeline=pipeline, budget=Budget(prompts=80))
        with pytest.raises(BudgetError):
            critique_file(source, out, critic)
        critique_file(source, out, critic_of(server, store=store, pipeline=pipeline))
    statuses = [(row["status"], row["reason"]) for row in rows_in(out)]
    assert statuses[:2] == [("stopped", "after revise: too few atoms")] * 2
    assert statuses[2:4] == [("ok", None)] * 2


def test_a_journal_of_another_run_is_never_mixed_in(server, source, tmp_path):
    out = tmp_path / "out.jsonl"
    with pytest.raises(BudgetError):
        critique_file(source, out, critic_of(server, budget=Budget(prompts=30)))
    kept = stages_file(out).read_bytes()
    endpoint = Endpoint(server.url, critic_of(server).client.model)
    other = write(tmp_path / "other.jsonl", *(model.case(town, 2) for town in range(TOWNS)))
    for changed in (
        lambda: (other, critic_of(server), None),
        lambda: (source, critic_of(server), Choice(limit=TOWNS - 1)),
        lambda: (source, critic_of(server), Choice(from_stage="revise")),
        lambda: (source, Critic(Client(replace(endpoint, options={"seed": 7})), retrieve=shelf()), None),
        lambda: (source, critic_of(server, relate=RelationModel(style="packed")), None),
        lambda: (source, critic_of(server, settings=Settings(version="FR1")), None),
        lambda: (source, critic_of(server, pipeline=Pipeline(retrieve=EvidenceSearch(k=2))), None),
        lambda: (source, critic_of(server, pipeline=Pipeline(revise=None)), None),
    ):
        given, critic, choice = changed()
        with pytest.raises(OutputError, match="stages of another run.*--overwrite"):
            critique_file(given, out, critic, choice)
        assert stages_file(out).read_bytes() == kept
        assert not out.exists()
    critique_file(other, out, critic_of(server), overwrite=True)
    assert [len(row["atoms"]) for row in rows_in(out)] == [2] * TOWNS


def test_scoring_settings_do_not_end_a_journal(server, source, tmp_path):
    out = tmp_path / "out.jsonl"
    with pytest.raises(BudgetError):
        critique_file(source, out, critic_of(server, budget=Budget(prompts=30)))
    report = critique_file(source, out, critic_of(server, settings=Settings(preset="release", k=3)))
    assert report.resumed > 0


def test_settings_are_described_alike_in_every_process(server):
    def described(**domains):
        lists = Domains(**domains)
        retrieve = EvidenceSearch(allowed=lists.admits, prior=lists.prior)
        return json.dumps(settings_of(critic_of(server, pipeline=replace(EVERYTHING, retrieve=retrieve))))

    names = [f"n{i}.example" for i in range(20)]
    one = described(allow=names, priors={"b.example": 0.5, "a.example": 0.25})
    assert one == described(allow=names[::-1], priors={"a.example": 0.25, "b.example": 0.5})
    assert one != described(allow=names, priors={"a.example": 0.25, "b.example": 0.75})
    assert one != described(allow=names[1:], priors={"b.example": 0.5, "a.example": 0.25})
    assert " at 0x" not in one
    assert "atomize/1" in one


def test_how_answers_are_constrained_is_a_setting_of_the_stages(server, source):
    def critic(constrain):
        return Critic(Client(Endpoint(server.url, "scripted"), constrain=constrain), retrieve=shelf())

    assert "constrain" not in settings_of(critic("auto"))  # as in journals from before there was a choice
    ways = [way for way in get_args(Constrain) if way != "auto"]
    assert [settings_of(critic(way))["constrain"] for way in ways] == ways
    prints = {preview(str(source), critic(way), Choice()).fingerprint for way in get_args(Constrain)}
    assert len(prints) == len(get_args(Constrain))


def test_a_journal_that_makes_no_case_is_passed_over(server, source, tmp_path):
    calm, out = tmp_path / "calm.jsonl", tmp_path / "out.jsonl"
    critique_file(source, calm, critic_of(server))
    with pytest.raises(BudgetError):
        critique_file(source, out, critic_of(server, budget=Budget(prompts=1), concurrency=1, open_cases=1))
    header = json.loads(stages_file(out).read_bytes().partition(b"\n")[0])
    with Journal(stages_file(out), header["fingerprint"]) as journal:
        journal.write(1, "revise", {"atoms": [{"id": "a0", "text": " "}]})
    critique_file(source, out, critic_of(server))
    assert files(out) == files(calm)


def test_only_one_run_at_a_time_writes_to_a_file(server, source, tmp_path):
    out = tmp_path / "out.jsonl"
    with locked(out), pytest.raises(OutputError, match="another run is writing to it"):
        critique_file(source, out, critic_of(server))
    with locked(cases_file(out)), pytest.raises(OutputError, match="another run is writing to it"):
        critique_file(source, out, critic_of(server))
    assert server.calls == 0


def test_a_file_in_which_nothing_can_be_done_is_an_error_before_any_work(server, tmp_path):
    out = tmp_path / "out.jsonl"
    source = write(tmp_path / "in.jsonl", {"id": "x", "query": "?"}, "{", {"id": "y"})
    with pytest.raises(InputError, match=r"in.jsonl:1: case 'x': .*add one of them \(and likewise for 2 other rows\)"):
        critique_file(source, out, critic_of(server))
    bare = write(tmp_path / "bare.jsonl", model.case(1))
    with pytest.raises(InputError, match="no retriever was given"):
        critique_file(bare, out, Critic(client_of(server)))
    with pytest.raises(InputError, match="no model was given"):
        critique_file(bare, out, Critic(retrieve=shelf()))
    with pytest.raises(InputError, match="no such file"):
        critique_file(tmp_path / "none.jsonl", out, critic_of(server))
    assert server.calls == 0
    assert not list(tmp_path.glob("out*"))


def test_places_that_cannot_be_written_are_told_before_any_work(server, source, tmp_path):
    def tries(out, words, **more):
        with pytest.raises(OutputError, match=words):
            critique_file(source, out, critic_of(server), **more)

    tries(source, "is also the input")
    tries(tmp_path / "out.jsonl", "is also the input", cases_out=source)
    tries(tmp_path / "out.jsonl", "cannot go to the same file", cases_out=tmp_path / "out.jsonl")
    tries("-", "cannot go to the same file", cases_out="-")
    tries(tmp_path / "nowhere" / "out.jsonl", "does not exist")
    tries(tmp_path / "out.jsonl", "does not exist", cases_out=tmp_path / "nowhere" / "cases.jsonl")
    assert server.calls == 0


def test_which_cases_and_from_where(server, source, tmp_path):
    out = tmp_path / "out.jsonl"

    def ids(**choice):
        critique_file(source, out, critic_of(server), Choice(**choice))
        return [row["id"] for row in rows_in(out)]

    assert ids(limit=2) == ["town 0", "town 1"]
    drawn = ids(sample=5, seed=3)
    assert drawn == ids(sample=5, seed=3) == sorted(drawn, key=lambda id: int(id.split()[1]))
    assert len(set(drawn)) == 5
    assert drawn != ids(sample=5, seed=4)
    assert set(ids(sample=3, limit=4)) < {f"town {i}" for i in range(4)}
    assert len(ids(sample=99)) == TOWNS
    for wrong in ({"limit": 0}, {"sample": 0}, {"from_stage": "score"}):
        with pytest.raises(SettingsError):
            Choice(**wrong)


@pytest.mark.parametrize("stage", ["atomize", "revise", "query", "retrieve", "summarise", "relate"])
def test_stages_that_are_done_anew_ask_what_they_asked_before(server, source, tmp_path, stage):
    with Store.open(tmp_path / "store") as store:
        critique_file(source, tmp_path / "one.jsonl", critic_of(server, pipeline=EVERYTHING, store=store))
        calls, retrieve = server.calls, shelf()
        critic = critic_of(server, retrieve, pipeline=EVERYTHING, store=store)
        critique_file(tmp_path / "one.cases.jsonl", tmp_path / "two.jsonl", critic, Choice(from_stage=stage))
        assert critic.client.stats.asked > 0
        assert (retrieve.searches > 0) == (stage in ("atomize", "revise", "query", "retrieve"))
        assert server.calls == calls
    assert files(tmp_path / "two.jsonl") == files(tmp_path / "one.jsonl")


def test_containers_and_standard_output(server, source, tmp_path, capfdbinary):
    critique_file(source, tmp_path / "out.jsonl", critic_of(server))
    rows, cases = files(tmp_path / "out.jsonl")
    critique_file(source, tmp_path / "out.json.gz", critic_of(server))
    packed = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))
    assert packed == [json.loads(line) for line in rows.splitlines()]
    with gzip.open(tmp_path / "out.cases.json.gz") as stream:
        assert json.load(stream) == [json.loads(line) for line in cases.splitlines()]
    critique_file(source, "-", critic_of(server))
    assert capfdbinary.readouterr().out == rows
    critique_file(source, "-", critic_of(server), cases_out=tmp_path / "cases.jsonl")
    assert (tmp_path / "cases.jsonl").read_bytes() == cases
    assert not list(tmp_path.glob("*.stages"))


@pytest.mark.parametrize(
    ("out", "cases"),
    [
        ("results.jsonl", "results.cases.jsonl"),
        ("results.jsonl.gz", "results.cases.jsonl.gz"),
        ("results.json", "results.cases.json"),
        ("results", "results.cases.jsonl"),
        ("results.v2", "results.v2.cases.jsonl"),
        ("a.b/results.txt.gz", "a.b/results.txt.cases.jsonl.gz"),
    ],
)
def test_the_name_of_the_cases(out, cases):
    assert str(cases_file(out)) == cases
    assert cases_file("-") is None
    assert cases_file("/dev/null") is None


def test_a_source_with_halves_of_characters_ends_nothing(server, tmp_path):
    """No file can hold them: a page that was cut in the middle of one may."""
    source = write(tmp_path / "in.jsonl", model.case(0, 2))
    link, note = "https://cut.example/\udfff", "HTTP 403: \ud83d"
    half = Passage(title="cut \ud83d", text="Town 0 has 2 bridges. \ud83d", link=link, note=note)

    class Source(Shelf):
        async def search(self, query, k):
            return Failure("broken", "\ud83d", 1) if "schools" in query else await super().search(query, k)

    report = critique_file(source, tmp_path / "out.jsonl", critic_of(server, Source([half])))
    assert report.summary.statuses == {"ok": 1}
    (case,) = rows_in(tmp_path / "out.cases.jsonl")
    assert (case["contexts"][0]["title"], case["contexts"][0]["note"]) == ("cut \ufffd", "HTTP 403: \ufffd")
    assert case["atoms"][1]["reason"] == "broken: \ufffd"


def test_a_dead_endpoint_ends_the_run_and_the_journal_stays(server, source, tmp_path):
    out = tmp_path / "out.jsonl"
    with (
        ScriptedServer(model.answer, key="right") as locked_up,
        pytest.raises(SettingsError, match="Incorrect API key"),
    ):
        critique_file(source, out, critic_of(locked_up))
    assert stages_file(out).exists()
    assert not out.exists()


def test_an_endpoint_that_dies_in_the_middle_leaves_statuses_not_verdicts(source, tmp_path):
    out = tmp_path / "out.jsonl"
    with ScriptedServer(model.answer, weather=["ok"] * 80 + ["500"] * 100_000) as dying:
        critic = critic_of(dying, retry=Retry(attempts=2, first=0.001, longest=0.002))
        report = critique_file(source, out, critic)
    rows = rows_in(out)
    assert len(rows) == TOWNS
    statuses = {row["status"] for row in rows}
    assert statuses & {"relation_failed", "atomize_failed"}
    assert statuses <= {"ok", "relation_failed", "atomize_failed"}
    for row in rows:
        lost = [atom for atom in row["atoms"] if atom["status"] not in ("ok", "no_evidence")]
        assert all(atom["p"] is None and atom["label"] is None for atom in lost)
    assert report.n_failed > 0


def test_a_replay_without_any_answer_takes_no_files_place(server, source, tmp_path):
    out = tmp_path / "out.jsonl"
    critique_file(source, out, critic_of(server))
    before = files(out)
    with Store.open(tmp_path / "store") as store, pytest.raises(InputError, match="no answer to any of .* unchanged"):
        critique_file(source, out, critic_of(server, store=store, replay=True))
    assert files(out) == before


@pytest.mark.parametrize("hook", ["stage", "case", "row"])
def test_an_observer_that_fails_leaves_nothing_open(server, source, tmp_path, hook):
    out, order, others = tmp_path / "out.jsonl", [], set(threading.enumerate())

    class Watched(Shelf):
        async def close(self):
            order.append("source")

    def fail(self, *args, **more):
        raise ZeroDivisionError

    failing = type("Failing", (RunObserver,), {hook: fail})()
    with Store.open(tmp_path / "store") as store:
        others |= set(threading.enumerate())
        critic = critic_of(server, Watched(model.passages(TOWNS, 4)), store=store)
        send_last = critic.client._transport.close

        async def close():
            order.append("client")
            await send_last()

        critic.client._transport.close = close
        with pytest.raises(ZeroDivisionError):
            critique_file(source, out, critic, observer=failing)
        assert order == ["source", "client"]
        for thread in (one for one in set(threading.enumerate()) - others if one.name.startswith("fcjax")):
            thread.join(10)  # the engine's, which is not waited for
            assert not thread.is_alive(), thread
        assert (out.exists(), stages_file(out).exists()) == (False, True)
        critique_file(source, out, critic_of(server, store=store))  # neither lock nor journal is held
    assert [row["status"] for row in rows_in(out)] == ["ok"] * TOWNS


def test_an_observer_sees_every_stage_once(server, source, tmp_path):
    seen, out = [], tmp_path / "out.jsonl"

    class Observer(RunObserver):
        def begins(self, found):
            self.planned = dict(found.planned)

        def stage(self, stage, case, kept):
            seen.append((case.id, stage, kept))

        def case(self, finished, kept):
            seen.append((finished.case.id, "case", False))

        def row(self, row, kept):
            seen.append((row["id"], "row", False))

    observer = Observer()
    with Store.open(tmp_path / "store") as store:
        critic = critic_of(server, store=store, pipeline=EVERYTHING, budget=Budget(prompts=80))
        with pytest.raises(BudgetError):
            critique_file(source, out, critic, observer=observer)
        first = [one for one in seen if one[1] not in ("case", "row")]
        seen.clear()
        critique_file(source, out, critic_of(server, store=store, pipeline=EVERYTHING), observer=observer)
    assert observer.planned == dict.fromkeys(("atomize", "revise", "query", "retrieve", "summarise", "relate"), TOWNS)
    assert len({one[:2] for one in seen}) == len(seen)
    assert {one[:2] for one in seen if one[2]} == {one[:2] for one in first}
    assert [one[0] for one in seen if one[1] == "row"] == [f"town {i}" for i in range(TOWNS)]


def test_the_endpoints_window_stays_full(tmp_path):
    """A small version of benchmarks/critic.py: 24 cases of 6 atoms and 15 contexts, 16 calls at once."""
    source = write(tmp_path / "in.jsonl", *(model.case(town, 6) for town in range(24)))
    with ScriptedServer(model.answer, delay=0.05, spread=0.5) as slow:
        critic = critic_of(slow, Shelf(model.passages(24, 6, 3)), concurrency=16, window=64)
        report = critique_file(source, tmp_path / "out.jsonl", critic)
    assert report.relations.total() == 24 * 6 * 15
    assert critic.client.stats.mean_concurrency >= 0.85 * 16
