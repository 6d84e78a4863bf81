"""`fcjax cache`, started as a user starts it, on stores that hold what runs leave behind."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fcjax.core.passages import Passage
from fcjax.core.prompts import Failure, Prompt, Reply, Token, Usage
from fcjax.io.entries import pack_answer
from fcjax.io.maintenance import import_rows
from fcjax.io.store import Store, prompt_key

SCRIPT = Path(sys.executable).with_name("fcjax")
OK, SOME_FAILED, UNUSABLE = 0, 1, 2
DAY = 86400.0

PRICED = Reply(
    text="[yes]", tokens=(Token("[yes]", -0.5, (("[no]", float("-inf")),)),), usage=Usage(100, 10), cost=0.25
)
FREE = Reply(text="yes", usage=Usage(50, 5))
ENTRIES = [  # template, model, days before the newest, outcome
    ("relate.pairwise/1", "small", 40, PRICED),
    ("relate.pairwise/1", "small", 30, Failure("refused", "no", 1)),
    ("relate.packed/1", "small", 20, PRICED),
    ("relate.packed/1", "large [v2]", 10, FREE),
    ("revise/3", "large [v2]", 0, FREE),
    ("revise/3", "large [v2]", 0, Failure("timeout", "too late", 5)),
]


@pytest.fixture
def store(tmp_path):
    return fill(tmp_path / "store.sqlite", newest=1_700_000_000.0)


def ask(i):
    """The prompt and key of the i-th of ENTRIES."""
    template, model, *_ = ENTRIES[i]
    prompt = Prompt(messages=(("user", f"question {i}"),), template=template)
    return prompt, prompt_key("http://127.0.0.1/v1", model, prompt)


def fill(path, newest):
    dates = iter([newest - days * DAY for _, _, days, _ in ENTRIES])

    async def main():
        with Store.open(path, clock=lambda: next(dates)) as store:
            for i, (_, model, _, outcome) in enumerate(ENTRIES):
                prompt, key = ask(i)
                await store.get(key)
                await store.put(key, prompt=prompt, endpoint="http://127.0.0.1/v1", model=model, outcome=outcome)
            for _ in range(2):
                await store.get(ask(0)[1])

    asyncio.run(main())
    return path


def cache(*args, **env):
    done = subprocess.run([SCRIPT, "cache", *map(str, args)], capture_output=True, timeout=60, env=os.environ | env)
    assert b"Traceback" not in done.stderr + done.stdout
    return done


def left(path):
    with sqlite3.connect(path) as connection:
        return [row[0] - 1 for row in connection.execute("SELECT id FROM entries ORDER BY id")]


def test_info_as_json(store):
    done = cache("info", "--store", store, "--check", "--json")
    assert done.returncode == OK, done.stderr
    found = json.loads(done.stdout)
    assert found["statuses"] == {"answered": 4, "refused": 1, "timeout": 1}
    assert (found["entries"], found["answered"], found["failed"]) == (6, 4, 2)
    assert (found["cost"], found["unpriced"]) == (0.5, 2)
    assert (found["prompt_tokens"], found["completion_tokens"]) == (300, 30)
    assert (found["hits"], found["misses"]) == (2, 6)
    assert (found["oldest"], found["newest"]) == ("2023-10-05T22:13:20+00:00", "2023-11-14T22:13:20+00:00")
    assert found["faults"] == []
    assert found["bytes"] == store.stat().st_size
    groups = {(group["model"], group["template"]): group for group in found["groups"]}
    assert groups["large [v2]", "revise/3"]["failed"] == 1
    assert groups["small", "relate.packed/1"]["cost"] == 0.25


def test_info_for_people(store):
    done = cache("info", FCJAX_STORE=str(store))
    shown = done.stdout.decode()
    assert done.returncode == OK, done.stderr
    assert "4 answered, 1 refused, 1 timeout" in shown
    assert "$0.5000 + 2 unpriced" in shown
    assert "large [v2]" in shown
    assert "unknown" in shown  # the cost of what has no price is not 0
    assert "\x1b" not in shown


def test_info_of_an_empty_store(tmp_path):
    Store.open(tmp_path / "new.sqlite").close()
    done = cache("info", "--store", tmp_path / "new.sqlite")
    assert done.returncode == OK
    assert b"no entries" in done.stdout


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--failures"], [0, 2, 3, 4]),
        (["--older", "25d"], [2, 3, 4, 5]),
        (["--older", "25d", "--failures"], [0, 2, 3, 4, 5]),
        (["--template", "relate.*"], [4, 5]),
        (["--template", "relate.packed/1", "--template", "revise/?"], [0, 1]),
        (["--model", "large [v2]"], [0, 1, 2]),
        (["--model", "large*", "--failures"], [0, 1, 2, 3, 4]),
        (["--model", "none"], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_prune_deletes_what_all_conditions_hold_for(tmp_path, options, kept):
    store = fill(tmp_path / "store.sqlite", newest=time.time())
    tried = cache("prune", "--store", store, *options, "--dry-run", "--json")
    assert json.loads(tried.stdout)["entries"] == 6 - len(kept)
    assert left(store) == [0, 1, 2, 3, 4, 5]
    done = cache("prune", "--store", store, *options)
    assert done.returncode == OK, done.stderr
    assert (b"no rows deleted" if len(kept) == 6 else b" deleted; ") in done.stdout
    assert left(store) == kept


def test_prune_gives_space_back_while_a_run_goes_on(tmp_path):
    async def main():
        with Store.open(tmp_path / "store.sqlite") as store:

            async def put(i):
                prompt = Prompt(messages=(("user", f"question {i}"),), template="old/1" if i < 1500 else "new/1")
                key, reply = prompt_key("e", "m", prompt), Reply(text=os.urandom(300).hex())
                return key, await store.put(key, prompt=prompt, endpoint="e", model="m", outcome=reply)

            await asyncio.gather(*map(put, range(1600)))
            done = await asyncio.to_thread(cache, "prune", "--store", store.path, "--template", "old/*", "--json")
            key, reply = await put(1600)
            assert await store.get(key) == reply
            return json.loads(done.stdout)

    found = asyncio.run(main())
    assert found["entries"] == 1500
    assert found["bytes_after"] < found["bytes_before"] / 5
    assert len(left(tmp_path / "store.sqlite")) == 101


def test_prune_needs_a_condition(store):
    done = cache("prune", "--store", store)
    assert done.returncode == UNUSABLE
    assert b"nothing is selected to prune" in done.stderr
    done = cache("prune", "--store", store, "--older", "3 months")
    assert done.returncode == UNUSABLE
    assert b"'3 months' is not an age; expected whole hours, days or weeks, such as 12h, 30d or 2w" in done.stderr
    assert len(left(store)) == 6


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_export_has_every_row_whole(store, tmp_path, name):
    done = cache("export", "--store", store, tmp_path / name)
    assert done.returncode == OK, done.stderr
    assert f"6 rows in {tmp_path / name}" in done.stdout.decode()
    content = (tmp_path / name).read_bytes()
    lines = [json.loads(line) for line in (gzip.decompress(content) if name.endswith("gz") else content).splitlines()]
    assert [line["prompt"]["messages"] for line in lines] == [[["user", f"question {i}"]] for i in range(6)]
    assert [line["status"] for line in lines] == ["answered", "refused", *["answered"] * 3, "timeout"]
    assert lines[0]["answer"]["tokens"] == [["[yes]", -0.5, [["[no]", "-inf"]], None]]
    assert lines[1]["answer"] == {"failed": "refused", "reason": "no", "attempts": 1}
    assert (lines[3]["cost"], lines[3]["source"], lines[3]["model"]) == (None, "http://127.0.0.1/v1", "large [v2]")
    assert lines[3]["key"] == ask(3)[1]


def test_export_never_writes_over_the_store(store):
    before = store.read_bytes()
    done = cache("export", "--store", store, store)
    assert (done.returncode, store.read_bytes()) == (UNUSABLE, before)
    assert b"is also the input" in done.stderr


def test_export_to_standard_output(store):
    assert len(cache("export", "--store", store, "-").stdout.splitlines()) == 6
    assert cache("export", "--store", store, "-", "--json").returncode == UNUSABLE


def test_export_leaves_damaged_rows_out_and_counts_them(store, tmp_path):
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE entries SET answer = x'00' WHERE id = 3")
        connection.execute("UPDATE entries SET status = 'damaged' WHERE id = 5")
    done = cache("export", "--store", store, tmp_path / "out.jsonl")
    assert done.returncode == SOME_FAILED
    assert b"2 rows could not be read" in done.stderr
    assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == 4


def test_a_spoilt_page_is_found_and_the_rest_exported(tmp_path):
    path = tmp_path / "store.sqlite"

    async def main():
        with Store.open(path) as store:
            for i in range(50):
                prompt = Prompt(messages=(("user", f"question {i}"),), template="t/1")
                reply = Reply(text=f"answer {i} " + os.urandom(500).hex())
                await store.put(prompt_key("e", "m", prompt), prompt=prompt, endpoint="e", model="m", outcome=reply)
                if i == 40:
                    spoilt = pack_answer(reply)
            return spoilt

    spoilt = asyncio.run(main())
    content = bytearray(path.read_bytes())
    start = content.index(spoilt) // 4096 * 4096
    content[start : start + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    found = cache("info", "--store", path, "--check")
    assert found.returncode != OK
    assert str(path).encode() in found.stderr
    done = cache("export", "--store", path, tmp_path / "out.jsonl", "--json")
    assert done.returncode == SOME_FAILED
    counts = json.loads(done.stdout)
    assert 0 < counts["damaged"] < 10
    assert counts["written"] + counts["damaged"] == 50


# ---- Searches, and stores as text.

HAND_MADE = [
    {
        "source": "http://127.0.0.1/v1",
        "model": "small",
        "prompt": {"messages": [["user", "question 0"]], "template": "relate.pairwise/1", "temperature": 0},
        "answer": {"text": "[yes]"},
    },
    {"kind": "search", "asked": {"retriever": "wiki", "query": "Rome?", "k": 3}, "answer": {"found": [{"text": "R."}]}},
    {
        "kind": "search",
        "asked": {"retriever": "wiki", "query": "Oslo?", "k": 3},
        "answer": {"failed": "timeout", "reason": "too late"},
    },
]


def write(path, lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def asked_of(path):
    """What a run gets from a store for the questions of HAND_MADE."""

    async def main():
        with Store.open(path) as store:
            return [
                await store.get(ask(0)[1]),
                await store.get_found("wiki", "Rome?", 3),
                await store.get_found("wiki", "Oslo?", 3),
                await store.get_found("wiki", "Oslo?", 3, replay=True),
            ]

    return asyncio.run(main())


def test_import_of_rows_made_by_hand(tmp_path):
    source, store = write(tmp_path / "rows.jsonl", HAND_MADE), tmp_path / "new" / "store.sqlite"
    done = cache("import", source, "--store", store)
    assert done.returncode == OK, done.stderr
    assert b"3 rows added" in done.stdout
    expected = [Reply(text="[yes]"), (Passage(text="R."),), None, Failure("timeout", "too late", 1)]
    assert asked_of(store) == expected
    again = cache("import", source, "--store", store, "--json")
    assert json.loads(again.stdout) == {"store": str(store), "added": 0, "known": 3, "n_faults": 0, "faults": []}
    assert asked_of(store) == expected


def test_export_and_import_give_the_same_store(store, tmp_path):
    cache("import", write(tmp_path / "rows.jsonl", HAND_MADE[1:]), "--store", store)
    for out, place in (("one.jsonl.gz", store), ("two.jsonl", tmp_path / "copy.sqlite")):
        if place != store:
            assert cache("import", tmp_path / "one.jsonl.gz", "--store", place, "--quiet").stdout == b""
        assert cache("export", tmp_path / out, "--store", place).returncode == OK
    one, two = gzip.decompress((tmp_path / "one.jsonl.gz").read_bytes()), (tmp_path / "two.jsonl").read_bytes()
    assert one == two
    assert len(one.splitlines()) == 8
    assert json.loads(one.splitlines()[6])["asked"] == {"retriever": "wiki", "query": "Rome?", "k": 3}


def test_import_leaves_what_is_answered_as_it_is(store, tmp_path):
    done = cache("import", write(tmp_path / "rows.jsonl", HAND_MADE), "--store", store)
    assert b"2 rows added; 1 already in the store" in done.stdout
    assert asked_of(store)[0] == PRICED


def test_import_from_standard_input(tmp_path):
    lines = "\n".join(map(json.dumps, HAND_MADE)).encode()
    command = [SCRIPT, "cache", "import", "-", "--store", tmp_path / "s.sqlite"]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=60)
    assert done.returncode == OK, done.stderr
    assert len(left(tmp_path / "s.sqlite")) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "the line is not JSON"),
        ("[1]", "is a JSON list; allowed: an object"),
        ({}, "prompt is None; allowed: an object"),
        ({"kind": "page"}, "kind is 'page'; allowed: chat or search"),
        (HAND_MADE[1] | {"promt": 1}, "the fields promt are unknown"),
        (HAND_MADE[1] | {"key": "00"}, "leave the key out"),
        (HAND_MADE[1] | {"answer": {}}, "answer is invalid"),
        (HAND_MADE[1] | {"answer": {"found": [{"url": "x"}]}}, "answer is invalid"),
        (HAND_MADE[1] | {"answer": {"found": [{"text": 3}]}}, "answer.found[0].text is 3; allowed: a string"),
        (HAND_MADE[1] | {"answer": {"found": None}}, "answer is invalid"),
        (HAND_MADE[1] | {"asked": {"retriever": "wiki", "query": "Rome?"}}, "the number k"),
        (HAND_MADE[1] | {"created": -1}, "created is -1; allowed"),
        (HAND_MADE[1] | {"status": 3}, "status is 3; allowed"),
        (HAND_MADE[2] | {"answer": {"failed": "timeout"}}, "answer is invalid"),
        (HAND_MADE[0] | {"model": ""}, "model is ''; allowed"),
        (HAND_MADE[0] | {"answer": {"text": None}}, "answer.text is None; allowed: a string"),
        (HAND_MADE[0] | {"answer": {"words": "x"}}, "answer is invalid"),
        (HAND_MADE[0] | {"prompt": {"messages": "hello", "template": "t/1"}}, "allowed: pairs of role"),
        (HAND_MADE[0] | {"prompt": {"messages": [["user", 3]], "template": "t/1"}}, "allowed: pairs of role"),
        (HAND_MADE[0] | {"prompt": {"messages": []}}, "prompt.template is None"),
        (HAND_MADE[0] | {"prompt": {"messages": [], "template": "t/1", "seed": 1}}, "prompt is invalid"),
        (HAND_MADE[0] | {"prompt": {"messages": [], "template": "t/1", "answer": {}}}, "prompt.answer is {}"),
        (HAND_MADE[0] | {"prompt": {"messages": [], "template": "t/1", "max_tokens": "9"}}, "prompt.max_tokens is '9'"),
        (HAND_MADE[0] | {"template": "other/1"}, "template is 'other/1', but the prompt's is"),
    ],
)
def test_a_line_that_is_no_row_is_told_and_the_others_are_taken(tmp_path, line, message):
    source = write(tmp_path / "rows.jsonl", [HAND_MADE[0], "", line, HAND_MADE[2]])
    done = import_rows(tmp_path / "s.sqlite", source)
    (fault,) = done.faults
    assert (fault.file, fault.line) == (str(source), 3)
    assert message in fault.message
    assert (done.added, len(left(tmp_path / "s.sqlite"))) == (2, 2)


def test_faults_of_an_import_are_told(tmp_path):
    source = write(tmp_path / "rows.jsonl", [HAND_MADE[0], *["{"] * 30])
    done = cache("import", source, "--store", tmp_path / "s.sqlite")
    assert done.returncode == SOME_FAILED
    assert f"error: {source}:2: the line is not JSON" in done.stderr.decode()
    assert b"and 10 more" in done.stderr
    assert b"1 row added" in done.stdout


def test_import_of_nothing_that_can_be_read_makes_no_store(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "picture.png").write_bytes(b"\x89PNG" + bytes(99))
    for name in ("empty.jsonl", "picture.png", "none.jsonl"):
        done = cache("import", tmp_path / name, "--store", tmp_path / "s.sqlite")
        assert done.returncode == UNUSABLE
        assert name.encode() in done.stderr
    assert not (tmp_path / "s.sqlite").exists()


def test_searches_are_shown_and_pruned_by_kind(store, tmp_path):
    cache("import", write(tmp_path / "rows.jsonl", HAND_MADE[1:]), "--store", store)
    found = json.loads(cache("info", "--store", store, "--json").stdout)
    (group,) = (group for group in found["groups"] if group["kind"] == "search")
    assert (group["source"], group["answered"], group["failed"], group["unpriced"]) == ("wiki", 1, 1, 0)
    assert (found["answered"], found["unpriced"]) == (5, 2)
    assert "wiki" in cache("info", "--store", store).stdout.decode()
    assert cache("prune", "--store", store, "--kind", "search").returncode == OK
    assert left(store) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("command", [["info"], ["prune", "--failures"], ["export", "-"]])
def test_no_store_is_told_and_none_is_made(tmp_path, command):
    done = cache(*command, "--store", tmp_path / "none.sqlite")
    assert done.returncode == UNUSABLE
    assert b"none.sqlite: there is no store there" in done.stderr
    (tmp_path / "notes.txt").write_text("hello, " * 100)
    done = cache(*command, "--store", tmp_path / "notes.txt")
    assert done.returncode == UNUSABLE
    assert b"not an SQLite database, so not an fcjax store" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
