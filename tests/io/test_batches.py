"""Batch files: what a run lacks is written, outputs of all kinds are taken in, nothing is lost or asked twice."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from batch_answers import (
    BatchServer,
    answer_file,
    expired,
    failed,
    failed_in_vllm,
    last_round,
    line,
    output_file,
    output_of,
)
from jsonl import rows_in, write
from served import served

from fcjax.core.errors import InputError, OutputError, SettingsError
from fcjax.core.prompts import AnswerForm, Failure, PendingError, Prompt, Reply, Usage
from fcjax.io.batches.book import Book
from fcjax.io.batches.collector import Collector
from fcjax.io.batches.errands import ErrandError, Errands
from fcjax.io.batches.outputs import import_outputs, output_files
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.http import request_body
from fcjax.io.maintenance import inventory
from fcjax.io.store import Store, prompt_key

WHERE = Endpoint("http://127.0.0.1:9/v1", "scripted")
PROMPTS = [Prompt(messages=(("user", f"question {i:02d}"),), template="test/1", max_tokens=16) for i in range(8)]


def answer(messages):
    return f"answer to {messages[-1]['content']}"


class Run:
    """Rounds of a run that asks all of some prompts, in a folder of its own."""

    def __init__(self, tmp_path, prompts=PROMPTS, where=WHERE, **client):
        self.folder, self.store, self.prompts = tmp_path / "batch", tmp_path / "store.sqlite", prompts
        self.where, self.client = where, client

    def round(self, *, tries=8, **limits):
        """Ask for everything; the answers where nothing is lacking, else what was written."""
        with Collector.open(self.folder, tries=tries) as collector:
            answers = asyncio.run(self._asked(collector))
            return collector.write(**limits) if collector.lacking else answers

    async def _asked(self, collector):
        with Store.open(self.store) as store:
            async with Client(self.where, store=store, batch=collector, **self.client) as client:
                found = await asyncio.gather(*map(client.ask, self.prompts), return_exceptions=True)
        assert all(isinstance(one, Reply | Failure | PendingError) for one in found), found
        return found

    def take(self, *files, **more):
        return import_outputs(self.store, files or output_files(self.folder), self.folder, **more)

    def answered(self, **how):
        """The last round's files, answered and imported."""
        return self.take(*[answer_file(file, answer, **how) for file in last_round(self.folder)])


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def texts(answers):
    return [one.text if isinstance(one, Reply) else one.kind for one in answers]


GOOD = [f"answer to question {i:02d}" for i in range(8)]


def test_a_request_is_what_the_client_would_send(tmp_path):
    prompts = [
        Prompt(
            messages=(("system", "be brief"), ("user", "é\ud800?")), template="t/1", top_logprobs=5, temperature=1.0
        ),
        Prompt(messages=(("user", "one"),), template="t/2", options={"seed": 3}, answer=AnswerForm.numbered([1])),
    ]
    where = replace(WHERE, options={"max_completion_tokens": 50, "temperature": "omit"})
    run = Run(tmp_path, prompts, where)
    run.round()
    (file,) = last_round(run.folder)
    first, second = rows_in(file)
    assert {(one["method"], one["url"]) for one in (first, second)} == {("POST", "/v1/chat/completions")}
    assert first["body"] == {
        "model": "scripted",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "é�?"}],
        "logprobs": True,
        "top_logprobs": 5,
        "max_completion_tokens": 50,
    }
    held = {**prompts[1].options, **where.options, "response_format": second["body"]["response_format"]}
    assert second["body"] == request_body("scripted", replace(prompts[1], options=held))
    assert second["body"]["response_format"]["json_schema"]["schema"]["required"] == ["1"]
    key = prompt_key(WHERE.name, "scripted", replace(prompts[1], options=held, answer=None))
    assert second["custom_id"] == f"1-{key[:40]}"


def test_files_are_the_same_whatever_the_order_and_keep_to_their_limits(run, tmp_path):
    written = run.round(requests=3)
    assert [part.requests for part in written.parts] == [3, 3, 2]
    assert (written.round, written.requests, written.is_new) == (1, 8, True)
    before = [file.read_bytes() for file in last_round(run.folder)]
    assert stat.S_IMODE(os.stat(last_round(run.folder)[0]).st_mode) == 0o600
    run.prompts = PROMPTS[::-1] + PROMPTS[:2]
    again = run.round(requests=3)
    assert (again.round, again.is_new) == (1, False)
    assert [file.read_bytes() for file in last_round(run.folder)] == before
    size = len(before[0]) // 3
    small = run.round(size=2 * size)
    assert [part.requests for part in small.parts] == [2] * 4
    assert all(part.bytes == part.path.stat().st_size <= 2 * size for part in small.parts)
    assert [part.requests for part in run.round(size=1).parts] == [1] * 8
    assert len(last_round(run.folder)) == 8
    run.round()
    assert len(last_round(run.folder)) == 1, "files of other limits are gone"
    assert rows_in(last_round(run.folder)[0])[0]["custom_id"].startswith("1-")


def test_replies_are_stored_as_if_the_endpoint_had_answered(run):
    run.round()
    done = run.answered()
    assert (done.added, done.known, done.n_faults, done.failed.total(), done.missing) == (8, 0, 0, 0, [])
    answers = run.round()
    assert texts(answers) == GOOD
    assert (answers[0].usage, answers[0].model, answers[0].attempts) == (Usage(2, 4), "scripted", 1)
    again = run.take(*map(output_file, last_round(run.folder)))
    assert (again.added, again.known, again.n_faults) == (0, 8, 0)


def test_the_price_of_a_reply(run):
    run.round()
    run.take(answer_file(*last_round(run.folder), answer), price=lambda name, model: lambda usage: 0.5 * usage.prompt)
    assert {one.cost for one in run.round()} == {1.0}


def test_errors_and_what_is_missing_are_asked_for_in_the_next_files(run):
    run.round(requests=3)
    first, second, _ = last_round(run.folder)
    done = run.take(answer_file(first, answer, fails=lambda n: n == 1), answer_file(second, answer, fails=bool,
                                                                                 as_failed=expired))  # fmt: skip
    assert (done.added, dict(done.failed)) == (3, {"server_error": 1, "expired": 2})
    assert done.missing == [("round-001-part-003.jsonl", 2, 2)]
    written = run.round(requests=3)
    assert (written.round, written.requests, written.again) == (2, 5, {"server_error": 1, "expired": 2})
    assert written.unimported == ["round-001-part-003.jsonl"]
    assert {one["custom_id"][:2] for file in last_round(run.folder) for one in rows_in(file)} == {"2-"}
    run.answered(fails=lambda n: n == 0)
    written = run.round()
    assert (written.unimported, written.again.total()) == (["round-001-part-003.jsonl"], written.requests)
    run.answered()
    assert texts(run.round()) == GOOD


def test_an_output_that_is_cut_off(run):
    run.round()
    out = answer_file(*last_round(run.folder), answer)
    out.write_bytes(out.read_bytes()[:-100])
    done = run.take(out)
    assert (done.added, done.n_faults, done.missing) == (7, 1, [("round-001-part-001.jsonl", 1, 8)])
    assert "line 8" in str(done.faults[0]) or ":8:" in str(done.faults[0])
    assert "may be cut off" in str(done.faults[0])
    assert run.round().requests == 1


def test_lines_that_are_of_no_use(run, tmp_path):
    run.round()
    (file,) = last_round(run.folder)
    one, two, three = rows_in(file)[:3]
    good = output_of(one, answer)
    lines = [
        "not JSON",
        "[1]",
        {**good, "custom_id": 7},
        {**good, "custom_id": "1-" + 40 * "0"},
        {**good, "custom_id": "2" + one["custom_id"][1:]},
        {**good, "response": None},
        {**good, "response": {"status_code": "200"}},
        good,
        good,
        output_of(one, lambda messages: "another"),
        failed(one),
        failed(two),
        output_of(two, answer),
        {**output_of(three, answer), "response": {"status_code": 200, "body": {"choices": []}}},
    ]
    done = run.take(write(run.folder / "out.jsonl", *lines))
    words = [fault.message for fault in done.faults]
    assert [fault.line for fault in done.faults] == [1, 2, 3, 4, 5, 6, 7, 10, 11]
    assert "is not JSON" in words[0]
    assert "JSON list" in words[1]
    assert "custom_id is 7" in words[2]
    assert "the output of another run?" in words[3]
    assert "neither a response nor an error" in words[5]
    assert "status_code is '200'" in words[6]
    assert "another reply already" in words[7]
    assert "a reply already, which is kept, and not this error" in words[8]
    assert (done.added, done.known, dict(done.failed)) == (2, 1, {"server_error": 1, "unreadable": 1})
    written = run.round()
    assert (written.requests, dict(written.again)) == (6, {"unreadable": 1})
    run.answered()
    assert texts(run.round()) == GOOD


def test_the_output_of_another_run(run, tmp_path):
    run.round()
    other = Run(tmp_path / "other", [replace(one, max_tokens=17) for one in PROMPTS])
    other.round()
    done = run.take(answer_file(*last_round(other.folder), answer))
    assert (done.added, done.n_faults) == (0, 8)
    assert run.round().requests == 8
    with pytest.raises(InputError, match="holds no batch.sqlite; give the folder"):
        import_outputs(run.store, [], tmp_path)


def test_a_refusal_of_the_prompt_is_its_failure_and_not_asked_again(run):
    run.round()
    overflow = "This model's maximum context length is 8192 tokens"
    run.answered(fails=lambda n: n == 2, as_failed=lambda one: failed_in_vllm(one, 400, overflow))
    answers = run.round()
    assert texts(answers) == [*GOOD[:2], "context_overflow", *GOOD[3:]]
    assert overflow in answers[2].reason


def test_a_request_that_is_invalid_for_all_is_no_answer(run):
    def invalid(request):
        return failed(request, 400, "you sent nonsense")

    run.round()
    run.answered(fails=lambda n: True, as_failed=invalid)
    written = run.round()
    assert (written.round, written.again) == (2, {"invalid_request": 8})
    run.answered(fails=lambda n: n == 0, as_failed=invalid)
    assert texts(run.round()) == ["invalid_request", *GOOD[1:]]


def test_failures_that_pass_are_given_up_after_some_tries(run):
    run.prompts = PROMPTS[:2]
    for _ in range(2):
        run.round(tries=2)
        run.answered(fails=lambda n: n == 0)
        run.take()  # once more: no further try
    assert run.round(tries=3).again == {"server_error": 1}
    assert texts(run.round(tries=2)) == ["server_error", GOOD[1]]


def test_two_empty_answers_are_enough(run):
    run.prompts = PROMPTS[:1]
    for _ in range(2):
        run.round()
        run.take(answer_file(*last_round(run.folder), lambda messages: ""))
    assert texts(run.round()) == ["empty"]


def test_an_error_that_is_imported_twice_counts_once(run):
    run.round()
    done = run.answered(fails=lambda n: n == 0)
    again = run.take(output_file(*last_round(run.folder)))
    assert (done.failed.total(), again.failed.total(), again.known) == (1, 0, 8)
    assert inventory(run.store)["failed"] == 1


def test_fewer_prompts_than_the_last_round_had_are_a_round_of_their_own(run):
    """Some were answered by other means, or belong to cases that are gone: the files of before may be on their way."""
    run.round()
    before = last_round(run.folder)[0].read_bytes()
    run.prompts = PROMPTS[:3]
    written = run.round()
    assert (written.round, written.requests, written.is_new) == (2, 3, True)
    assert (run.folder / "round-001-part-001.jsonl").read_bytes() == before


def test_fewer_alternatives_and_free_answers_where_the_server_refuses(tmp_path):
    prompts = [replace(one, top_logprobs=20) for one in PROMPTS[:3]]
    prompts += [replace(PROMPTS[3], answer=AnswerForm.numbered([1]))]
    run = Run(tmp_path, prompts)
    run.round()

    def refused(request):
        word = "top_logprobs: must be less than or equal to 4" if "logprobs" in request["body"] else "response_format?"
        return failed(request, 400, word)

    done = run.answered(fails=lambda n: True, as_failed=refused)
    assert dict(done.failed) == {"top_logprobs": 3, "constraint": 1}
    written = run.round()
    bodies = [one["body"] for file in last_round(run.folder) for one in rows_in(file)]
    assert [body.get("top_logprobs") for body in bodies] == [4, 4, 4, None]
    assert all("response_format" not in body for body in bodies)
    assert written.requests == 4
    run.answered()
    answers = run.round()
    assert texts(answers) == GOOD[:4]
    assert len(answers[0].tokens[0].top) == 2


def test_a_reply_that_could_not_be_read_is_rejected_when_the_run_is_complete(run):
    class Rejecting(Run):
        async def _asked(self, collector):
            with Store.open(self.store) as store:
                async with Client(self.where, store=store, batch=collector) as client:
                    found = await asyncio.gather(*map(client.ask, self.prompts), return_exceptions=True)
                    await client.reject(self.prompts[0])
            return found

    rejecting = Rejecting(run.folder.parent)
    rejecting.round()
    rejecting.answered(fails=lambda n: n == 1)
    assert rejecting.round().requests == 1, "the reply is read in every round"
    rejecting.answered()
    assert texts(rejecting.round()) == GOOD
    run.round()
    assert [one["body"]["messages"][0]["content"] for one in rows_in(*last_round(run.folder))] == ["question 00"]
    first = sorted(run.folder.glob("round-001-*.output.jsonl"))
    assert run.take(*first).added == 0, "an old output does not bring the rejected reply back"
    assert run.round().requests == 1


def test_prompts_of_two_models_are_in_files_of_their_own(tmp_path):
    run, other = Run(tmp_path), Run(tmp_path, where=replace(WHERE, model="large"))
    with Collector.open(run.folder) as collector:
        for one in (run, other):
            asyncio.run(one._asked(collector))
        written = collector.write()
    assert [part.requests for part in written.parts] == [8, 8]
    assert [{one["body"]["model"] for one in rows_in(part.path)} for part in written.parts] == [{"large"}, {"scripted"}]
    for part in written.parts:
        other.take(answer_file(part.path, answer))
    assert texts(other.round()) == texts(run.round()) == GOOD


def test_a_killed_round_leaves_nothing_to_be_asked_twice(run, monkeypatch):
    run.round(requests=3)
    run.answered(fails=lambda n: n == 0)
    before = sorted(path.name for path in run.folder.iterdir())
    written = []
    write_files = Collector._write

    def killed(self, *args):
        write_files(self, *args)
        written.extend(path.read_bytes() for path in last_round(run.folder))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Collector, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            run.round(requests=3)
    assert Book.open(run.folder).round == 1
    run.round(requests=3)
    assert [path.read_bytes() for path in last_round(run.folder)] == written
    assert [name for name in before if name.startswith("round-001")] == [
        path.name for path in sorted(run.folder.iterdir()) if path.name.startswith("round-001")
    ]


def test_a_folder_is_of_one_run_at_a_time_and_no_other_file_is_taken_for_its_book(run, tmp_path):
    run.round()
    with Collector.open(run.folder), pytest.raises(OutputError, match="another run is writing"):
        run.take(*last_round(run.folder))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "batch.sqlite").write_text("not a database at all, but long enough to be taken for one")
    with pytest.raises(InputError, match="choose another folder"):
        Book.open(tmp_path / "foreign")
    Store.open(tmp_path / "swapped" / "batch.sqlite").close()
    with pytest.raises(InputError, match="is no book of batch files"):
        Book.open(tmp_path / "swapped")


def test_a_batch_needs_a_store(run):
    with Collector.open(run.folder) as collector, pytest.raises(SettingsError, match="and so does a batch"):
        Client(WHERE, batch=collector)


# Errands


@asynccontextmanager
async def errands(run, routes):
    async with served(routes) as server:
        with Book.open(run.folder) as book:
            async with Errands(book, Endpoint(f"{server.url}/v1", "any", "sk-key-of-tests"), delay=0.001) as one:
                yield one


def do(run, routes, *names):
    async def main():
        async with errands(run, routes) as one:
            return [await getattr(one, name)() for name in names]

    return asyncio.run(main())


def test_files_go_to_a_server_and_come_back(run):
    server = BatchServer(answer, key="sk-key-of-tests", looks=2)
    server.fails = lambda n: n == 1
    run.round(requests=5)
    submitted, again, looked = do(run, server, "submit", "submit", "look")
    assert ([part.name for part in submitted], again) == ([path.name for path in last_round(run.folder)], [])
    assert [part.state for part in looked] == ["validating", "validating"]
    assert list(server.files.values()) == [path.read_bytes() for path in last_round(run.folder)]
    written = run.round(requests=5)
    assert (written.parts, written.under_way) == ([], 8)
    (files,) = do(run, server, "fetch")
    assert [path.name for path in files] == [
        f"round-001-part-00{n}.{what}.jsonl" for n in (1, 2) for what in ("output", "errors")
    ]
    assert run.round().under_way == 8, "fetched, and not imported"
    done = run.take()
    assert (done.added, dict(done.failed)) == (6, {"server_error": 2})
    written = run.round()
    assert (written.round, written.requests, written.under_way) == (2, 2, 0)
    server.fails = lambda n: False
    do(run, server, "submit", "look", "fetch")
    run.take()
    assert texts(run.round()) == GOOD
    assert len(server.batches) == 3


@pytest.mark.parametrize("trouble", [503, "lost"])
def test_a_batch_whose_answer_is_lost_is_not_created_twice(run, trouble):
    server = BatchServer(answer)
    server.trouble["POST", "/v1/batches"] = [trouble]
    run.round()
    if trouble == "lost":
        do(run, server, "submit")
    else:
        with pytest.raises(ErrandError, match="POST /batches: HTTP 503: trouble; run the same command"):
            do(run, server, "submit")
        do(run, server, "submit")
    assert (len(server.batches), len([one for one in server.requests if one == ("POST", "/v1/files")])) == (1, 1)


def test_a_submission_that_was_killed_looks_for_its_batch(run):
    server = BatchServer(answer)
    run.round()
    do(run, server, "submit")
    with Book.open(run.folder) as book:
        book.note(1, batch=None, state="creating")  # killed before the answer was noted
    do(run, server, "submit")
    assert len(server.batches) == 1
    with Book.open(run.folder) as book:
        assert book.parts()[0].batch == "batch-0"


def test_passing_trouble_is_waited_for_and_a_wrong_key_is_not(run):
    server = BatchServer(answer)
    run.round()
    server.trouble["GET", "/v1/batches/batch-0"] = [500, 429]
    do(run, server, "submit", "look")
    assert not server.trouble["GET", "/v1/batches/batch-0"]
    with Book.open(run.folder) as book:
        book.note(1, batch=None, file=None, state=None)
    with pytest.raises(ErrandError, match="Incorrect API key"):
        do(run, BatchServer(answer, key="another"), "submit", "look")


def test_a_batch_that_is_refused_is_asked_again(run):
    server = BatchServer(answer)
    server.refuses = "line 1: the model does not exist"
    run.round()
    do(run, server, "submit")
    ((), parts) = do(run, server, "fetch", "look")
    assert (parts[0].state, parts[0].note, parts[0].imported) == ("failed", server.refuses, True)
    assert run.round().round == 2


def test_a_server_that_takes_no_batches(run):
    from aiohttp import web

    run.round()
    with pytest.raises(ErrandError, match="POST /files: HTTP 404"):
        do(run, {}, "submit")
    with pytest.raises(ErrandError, match="is this a Batches API"):
        do(run, {"/v1/files": lambda request: web.Response(text="hello")}, "submit")
    with pytest.raises(ErrandError, match="expected: letters"):
        do(run, {"/v1/files": lambda request: web.json_response({"id": "../../etc"})}, "submit")
    last_round(run.folder)[0].write_text("changed")
    with pytest.raises(ErrandError, match="is not as it was written"):
        do(run, BatchServer(answer), "submit")


def test_json_of_a_line_is_read_as_a_response_is(run):
    """Infinities, as Python writes them, and half surrogate pairs."""
    run.prompts = PROMPTS[:1]
    run.round()
    (request,) = rows_in(*last_round(run.folder))
    body = output_of(request, answer)["response"]["body"]
    body["choices"][0]["message"]["content"] = "so\ud800"
    body["choices"][0]["logprobs"] = {"content": [{"token": "so", "logprob": float("-inf"), "top_logprobs": []}]}
    run.take(write(run.folder / "out.jsonl", json.dumps(line(request, 200, body))))
    (reply,) = run.round()
    assert (reply.text, reply.tokens[0].logprob) == ("so�", float("-inf"))
