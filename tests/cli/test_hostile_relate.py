"""`fcjax relate` over stores and servers with what cannot be read: never exit 70, and the next run works."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
import zlib
from contextlib import closing

import pytest
from command import KEY, OK, SOME_FAILED, UNUSABLE, environment, fcjax
from jsonl import rows_in, write
from relations import case, judge
from scripted_server import ScriptedServer

from fcjax.io.entries import unpack

NUMBER = "9" * 5000
DEEP = "[" * 1000 + "]" * 1000
SECONDS = 30.0  # of one run, on a busy machine; it takes about 2


@pytest.fixture
def server():
    with ScriptedServer(judge, key=KEY) as running:
        yield running


@pytest.fixture
def run(server, tmp_path):
    """Runs the command with the server and a store of this test, within a limit of time."""

    def go(*args, **env):
        began = time.monotonic()
        done = fcjax("relate", *args, **environment(server, tmp_path) | env)
        assert time.monotonic() - began < SECONDS
        return done

    return go


def failed(path):
    """The failed pairs of an output, with their reasons, by target."""
    relations = [relation for row in rows_in(path) for relation in row["relations"]]
    return {one["target"]: one["reason"] for one in relations if one.get("status") == "relation_failed"}


# ---- Stores.


def packed(text):
    return f"answer = x'{zlib.compress(text.encode()).hex()}'"


def reply(**fields):
    """A packed reply; a field is given as it is written in JSON."""
    written = {"text": '"[entailment]"', "tokens": "null", "usage": "null"} | fields
    return packed("{" + ", ".join(f'"{name}": {value}' for name, value in written.items()) + "}")


UNREADABLE = {
    "text of 5,000 digits": reply(text=NUMBER),
    "text nested 1,000 deep": reply(text=DEEP),
    "no text": packed('{"tokens": null, "usage": null}'),
    "finish nested 1,000 deep": reply(finish=DEEP),
    "1e999 seconds": reply(seconds="1e999"),
    "infinite seconds": reply(seconds="Infinity"),
    "usage of 5,000 digits": reply(usage=f"[{NUMBER}, 1]"),
    "tokens of odd types": reply(tokens="[5]"),
    "a logprob of 5,000 digits": reply(tokens=f'[["a", {NUMBER}, [], null]]'),
    "alternatives nested 1,000 deep": reply(tokens=f'[["a", -1, {DEEP}, null]]'),
    "half a character in a number": reply(cost='"\\ud800"'),
    "attempts of 5,000 digits": reply(attempts=NUMBER),
    "attempts of an odd type": reply(attempts='"x"'),
    "an unknown field": reply(more="1"),
    "failure of code 1e999": packed('{"failed": 1e999, "reason": "HTTP 200", "attempts": 1}'),
    "failure with odd types": packed('{"failed": [], "reason": 5, "attempts": null}'),
    "a list": packed("[]"),
    "not JSON": packed("\0"),
    "cut off": packed('{"text": "a"}')[:-9] + "'",
    "not compressed": "answer = x'00ff00'",
    "a text": "answer = 'words'",
    "a number": "answer = 5",
    "text that is not UTF-8": "answer = CAST(x'ff' AS TEXT)",
    "a key of an odd type": "key = 'words'",
    "another key": "key = x'00'",
}
"""What is a miss: the changes that are made to the row of a pair."""

READABLE = {
    "a kind of an odd type": "kind = x'ff00'",
    "a date of an odd type": "created = 'words'",
    "a date past all calendars": "created = 1e300",
    "odd numbers": "prompt_tokens = 'x', completion_tokens = 9223372036854775807, cost = x'ff', attempts = 1e300",
    "names that are not UTF-8": "source = CAST(x'ff' AS TEXT), model = x'ff', template = CAST(x'ff' AS TEXT)",
    "a question of an odd type": "asked = 'words'",
}
"""What is served all the same: the answer and its key are whole."""

SPOILT = UNREADABLE | READABLE


def spoil(store, changes):
    """Change the row of each pair: those of atom i as the i-th of `changes` says."""
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        rows = {
            unpack(asked)["messages"][-1][1].split("</hypothesis>")[0].split()[-1]: number
            for number, asked in connection.execute("SELECT id, asked FROM entries").fetchall()
        }
        assert len(rows) == len(changes) + 1
        for i, change in enumerate(changes):
            connection.execute(f"UPDATE entries SET {change} WHERE id = ?", (rows[str(i)],))


def test_replies_of_a_store_that_cannot_be_read_are_asked_for_again_and_fail_their_pair_in_a_replay(
    run, server, tmp_path
):
    store, good, out = (tmp_path / name for name in ("store.sqlite", "good.jsonl", "out.jsonl"))
    source = write(tmp_path / "in.jsonl", case("x", len(SPOILT) + 1, 1))
    assert run(source, "-o", good).returncode == OK
    asked = server.calls
    assert asked == len(SPOILT) + 1
    spoil(store, SPOILT.values())
    unread = {f"a{i}" for i in range(len(UNREADABLE))}
    for _ in range(2):  # the first one changes nothing for the second
        done = run(source, "-o", out, "--replay")
        assert (done.returncode, server.calls) == (SOME_FAILED, asked), done.stderr
        assert failed(out).keys() == unread
        assert {reason.partition(":")[0] for reason in failed(out).values()} == {"replay_miss"}
    done = run(source, "-o", out)
    assert (done.returncode, server.calls - asked) == (OK, len(UNREADABLE)), done.stderr
    assert out.read_bytes() == good.read_bytes()
    for more in ([], ["--replay"]):
        done = run(source, "-o", out, *more)
        assert (done.returncode, server.calls - asked) == (OK, len(UNREADABLE)), done.stderr
        assert out.read_bytes() == good.read_bytes()
    assert fcjax("cache", "info", "--check", "--json", "--store", store).returncode == OK
    assert fcjax("cache", "export", tmp_path / "rows.jsonl", "--store", store).returncode == SOME_FAILED
    assert fcjax("cache", "prune", "--failures", "--store", store).returncode == OK
    done = run(source, "-o", out)
    assert (done.returncode, out.read_bytes()) == (OK, good.read_bytes())


def test_a_stored_text_that_an_older_version_could_not_read_is_repaired_live_and_fails_its_pairs_in_a_replay(
    run, server, tmp_path
):
    """Numbers of 5,000 digits, in the reply to a packed prompt."""
    store, good, out = (tmp_path / name for name in ("store.sqlite", "good.jsonl", "out.jsonl"))
    source = write(tmp_path / "in.jsonl", case("x", 2, 1), case("y", 1, 1))
    packs = ("--style", "packed")
    assert run(source, "-o", good, *packs).returncode == OK
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("UPDATE entries SET " + reply(text=f'"{NUMBER}. [neutral]"') + " WHERE id = 1")
    for _ in range(2):
        done = run(source, "-o", out, *packs, "--replay")
        assert (done.returncode, server.calls) == (SOME_FAILED, 2), done.stderr
        assert failed(out)
    for more in ([], [], ["--replay"]):
        done = run(source, "-o", out, *packs, *more)
        assert (done.returncode, server.calls) == (OK, 3), done.stderr  # the repair is stored beside the reply
        assert out.read_bytes() == good.read_bytes()


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
COLUMNS = (
    "id, key, kind, status, source, model, template, prompt_tokens, completion_tokens, cost, seconds, attempts, "
    "created, asked, answer"
)


def test_a_store_whose_entries_are_a_view_is_refused_in_one_line_until_it_is_moved_away(run, server, tmp_path):
    store, out = tmp_path / "store.sqlite", tmp_path / "out.jsonl"
    source = write(tmp_path / "in.jsonl", case("x", 2, 1))
    assert run(source, "-o", out).returncode == OK
    shutil.copy(store, tmp_path / "good.sqlite")
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("DROP TABLE entries")
        connection.execute(f"CREATE VIEW entries ({COLUMNS}) AS {ENDLESS} {'i, ' * 14} i FROM n")
    before = store.read_bytes()
    for more in ([], ["--replay"], ["--dry-run"]):
        done = run(source, "-o", out, *more)
        assert done.returncode == UNUSABLE
        assert "a database with views or triggers, so not an fcjax store" in done.stderr.decode()
        assert len(done.stderr.decode().splitlines()) == 1
    assert (store.read_bytes(), server.calls) == (before, 2)
    shutil.copy(tmp_path / "good.sqlite", store)
    assert run(source, "-o", out).returncode == OK
    assert server.calls == 2


def test_a_store_of_damaged_pages_is_never_a_bug(run, server, tmp_path):
    """Bytes of the file are overwritten: the row's own, then whole pages of tables and indexes."""
    store, good, out = (tmp_path / name for name in ("store.sqlite", "good.jsonl", "out.jsonl"))
    source = write(tmp_path / "in.jsonl", case("x", 2, 1))
    assert run(source, "-o", good).returncode == OK
    whole = store.read_bytes()
    size = int.from_bytes(whole[16:18], "big")
    for page in range(1, len(whole) // size):
        for log in ("-wal", "-shm"):
            store.with_name(store.name + log).unlink(missing_ok=True)
        store.write_bytes(whole[: page * size] + b"\xa5" * size + whole[(page + 1) * size :])
        for more in (["--replay"], []):
            done = run(source, "-o", out, *more)
            assert done.returncode in ((OK, SOME_FAILED, UNUSABLE) if more else (OK, UNUSABLE)), done.stderr
            if done.returncode == UNUSABLE:
                assert "the store is damaged" in done.stderr.decode()
            elif done.returncode == OK:
                assert out.read_bytes() == good.read_bytes()


# ---- Servers.


def body(text, status=200, **headers):
    return {"body": text.encode(), "status": status, "headers": headers}


def chosen(finish='"stop"', content='"[entailment]"', logprobs="null", **more):
    fields = {
        "choices": f'[{{"message": {{"content": {content}}}, "finish_reason": {finish}, "logprobs": {logprobs}}}]'
    }
    return body("{" + ", ".join(f'"{name}": {value}' for name, value in (fields | more).items()) + "}")


FAILING = {
    "a label of 5,000 digits": f"{NUMBER}. [neutral]".replace("[neutral]", "neutral or entailment"),
    "an error of code 1e999": body('{"error": {"code": 1e999}}'),
    "an error of 5,000 digits": body(f'{{"error": {{"code": "{NUMBER}"}}}}'),
    "an enormous maximum": body(f'{{"error": {{"message": "top_logprobs: maximum of {NUMBER}"}}}}', 400),
    "a small maximum for ever": body('{"error": {"message": "top_logprobs: maximum of 3"}}', 400),
    "finish_reason nested 1,000 deep": chosen(finish=DEEP),
    "content nested 1,000 deep": chosen(content=DEEP),
    "a refusal nested 1,000 deep": body(f'{{"choices": [{{"message": {{"refusal": {DEEP}}}}}]}}'),
    "an error nested 1,000 deep": body(f'{{"error": {{"message": {DEEP}}}}}', 500),
    "JSON nested 100,000 deep": body("[" * 100_000),
    "no bytes": body(""),
    "bytes that are not UTF-8": {"body": b"\xff\xfe\x00"},
    "a wait of 5,000 digits": body(f'{{"error": "try again in {NUMBER}m1s"}}', 429),
    "a date past all calendars": body("{}", 429, **{"Retry-After": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}),
    "an unknown compression": body("{}", **{"Content-Encoding": "x"}),
    "spaces": " " * 200_000 + "x",
    "usage of more digits than JSON readers take": chosen(
        usage=f'{{"prompt_tokens": {NUMBER}, "completion_tokens": -1}}'
    ),
    "a redirect": body("{}", 307, Location="http://127.0.0.1:1/"),
}
"""Replies to a prompt whose pair fails."""

READ = {
    "usage of impossible numbers": chosen(usage='{"prompt_tokens": 99999999999999999, "completion_tokens": -1}'),
    "usage of odd types": chosen(usage='{"prompt_tokens": 1e300, "completion_tokens": []}'),
    "logprobs nested 1,000 deep": chosen(logprobs=DEEP),
    "logprobs of odd types": chosen(
        logprobs='{"content": [{"token": 5, "logprob": "x", "bytes": [999], "top_logprobs": [5]}]}'
    ),
    "a logprob of 400 digits": chosen(
        logprobs='{"content": [{"token": "[entailment]", "logprob": -%s, "top_logprobs": []}]}' % ("9" * 400)
    ),
    "a model of an odd type": chosen(model="[]"),
    "spaces around the label": chosen(content=json.dumps("[entailment]" + " " * 200_000)),
}
"""Replies with a label and odd fields."""


def test_each_hostile_reply_of_a_server_is_a_failed_pair_and_the_next_run_works(run, server, tmp_path):
    store, good, out = (tmp_path / name for name in ("good.sqlite", "good.jsonl", "out.jsonl"))
    replies = list((FAILING | READ).values())
    source = write(tmp_path / "in.jsonl", case("x", len(replies) + 1, 1))
    assert run(source, "-o", good, FCJAX_STORE=str(store)).returncode == OK

    def answer(messages):
        number = int(messages[0]["content"].split("</hypothesis>")[0].split()[-1])
        return replies[number] if number < len(replies) else judge(messages)

    server.answer = answer
    bad = {f"a{i}" for i in range(len(FAILING))}
    hostile = ("--tries", 2, "--concurrency", 4)
    for _ in range(2):
        done = run(source, "-o", out, *hostile)
        assert done.returncode == SOME_FAILED, done.stderr
        assert failed(out).keys() == bad
        assert max(map(len, failed(out).values())) < 1000
    done = run(source, "-o", out, "--replay")
    assert done.returncode == SOME_FAILED
    assert failed(out).keys() == bad
    assert fcjax("cache", "export", tmp_path / "rows.jsonl", "--store", tmp_path / "store.sqlite").returncode == OK
    server.answer = judge
    done = run(source, "-o", out)
    assert (done.returncode, failed(out)) == (OK, {}), done.stderr
    done = run(source, "-o", out, "--replay")
    assert (done.returncode, failed(out)) == (OK, {}), done.stderr
