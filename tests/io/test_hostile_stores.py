"""Stores and imports that fcjax has not written: a fault of the row, a miss, or not a store; never a hang."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
import tracemalloc
import zlib

import pytest

from fcjax.core.errors import InputError, OutputError
from fcjax.core.prompts import Prompt, Reply
from fcjax.io import entries, schema
from fcjax.io.maintenance import export, import_rows, inventory, prune
from fcjax.io.store import Store, prompt_key

GOOD = {
    "source": "s",
    "model": "m",
    "prompt": {"messages": [["user", "?"]], "template": "t/1"},
    "answer": {"text": "a"},
}
PROMPT = Prompt(messages=(("user", "?"),), template="t/1")
SEARCH = {"kind": "search", "asked": {"retriever": "r", "query": "q", "k": 1}, "answer": {"found": []}}
DEEP = "[" * 1000 + "]" * 1000


def answer(**fields):
    return json.dumps(GOOD | {"answer": {"text": "a"} | fields})


def row(**fields):
    return json.dumps(GOOD | fields)


LINES = [
    '{"kind": []}',
    row(kind={}),
    '{"kind": %s}' % DEEP,  # noqa: UP031
    json.dumps(GOOD).replace('"t/1"', f'"t/1", "options": {{"a": {DEEP}}}'),
    "[" * 100_000,
    row(created=9007199254740992),
    row(created=1e300),
    row(created="x"),
    row(attempts=[]),
    row(status="\ud800"),
    row(source="\ud800"),
    row(model="\ud800"),
    row(prompt={"messages": [["user", "?"]], "template": "\ud800"}),
    row(prompt={"messages": [["user", "?"]], "template": "t/1", "top_logprobs": [1]}),
    answer(usage=[2**70, 1]),
    answer(usage=["x", 1]),
    answer(seconds="x"),
    answer(attempts="x"),
    answer(attempts=2**70),
    answer(finish=[]),
    answer(cost=[]),
    answer(model=5),
    answer(reasoning={}),
    answer(tokens=[[1, 1, [], None]]),
    answer(tokens=[["a", -1, [[1, 1]], None]]),
    answer(tokens=[["a", -1, [], 5]]),
    row(answer={"failed": "x", "reason": "y", "attempts": "z"}),
    row(answer={"failed": [], "reason": "y", "attempts": 1}),
    json.dumps(SEARCH | {"asked": {"retriever": "\ud800", "query": "q", "k": 1}}),
    json.dumps(SEARCH | {"answer": {"found": [{"text": 5}]}}),
    json.dumps(SEARCH | {"answer": {"found": 5}}),
]


@pytest.mark.parametrize("line", LINES, ids=[line[:20] + line[-40:] for line in LINES])
def test_an_import_of_odd_types_is_the_fault_of_its_row(tmp_path, line):
    (tmp_path / "rows.jsonl").write_text(f"{line}\n{json.dumps(GOOD)}\n")
    done = import_rows(tmp_path / "store", tmp_path / "rows.jsonl")
    assert (done.added, [fault.line for fault in done.faults]) == (1, [1])
    assert inventory(tmp_path / "store")["entries"] == 1
    assert export(tmp_path / "store", tmp_path / "out.jsonl").written == 1


@pytest.fixture
def store(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(GOOD) + "\n")
    import_rows(tmp_path / "store", tmp_path / "rows.jsonl")
    return tmp_path / "store"


def spoilt(path, *statements):
    with sqlite3.connect(path, isolation_level=None) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def looked_up(path, **how):
    async def main():
        with Store.open(path) as opened:
            found = await opened.get(prompt_key("s", "m", PROMPT), **how)
            if found is None and not how:
                reply = Reply(text="new")
                assert (
                    await opened.put(
                        prompt_key("s", "m", PROMPT), prompt=PROMPT, endpoint="s", model="m", outcome=reply
                    )
                    == reply
                )
            return found

    return asyncio.run(main())


def packed(text):
    return f"x'{zlib.compress(text.encode()).hex()}'"


ANSWERS = {
    "text": "'words'",
    "number": "5",
    "not UTF-8": "CAST(x'ff' AS TEXT)",
    "deep": packed(DEEP),
    "deep with an escape": packed('{"a": "\\ud800", "b": %s}' % DEEP),  # noqa: UP031
    "odd text": packed('{"text": [], "tokens": null, "usage": null}'),
    "odd tokens": packed('{"text": "a", "tokens": [5], "usage": null}'),
    "a logprob of 400 digits": packed('{"text": "a", "tokens": [["a", %s, [], null]], "usage": null}' % ("9" * 400)),
    "odd seconds": packed('{"text": "a", "tokens": null, "usage": null, "seconds": "x"}'),
    "odd failure": packed('{"failed": [], "reason": 5, "attempts": null}'),
    "cut off": packed('{"text": "a"}')[:-9] + "'",
}


@pytest.mark.parametrize("value", ANSWERS.values(), ids=ANSWERS)
def test_a_row_of_odd_types_is_a_miss(store, value):
    spoilt(store, f"UPDATE entries SET answer = {value}")
    assert looked_up(store, replay=True) is None
    assert looked_up(store) is None  # and a new answer is stored
    assert looked_up(store).text == "new"


def test_what_unpacks_to_more_than_any_row_is_a_miss(store, monkeypatch):
    monkeypatch.setattr(entries, "LARGEST", 1 << 20)
    pack = zlib.compressobj(9)
    content = b'{"text": "' + b"".join([b"a" * (1 << 20)] * 64) + b'"}'
    spoilt(store, f"UPDATE entries SET answer = x'{(pack.compress(content) + pack.flush()).hex()}'")
    assert looked_up(store, replay=True) is None


@pytest.mark.parametrize("column", ["kind", "status", "source", "template", "asked", "created", "prompt_tokens", "key"])
@pytest.mark.parametrize("value", ["x'ff00'", "CAST(x'ff' AS TEXT)", "1e300", "9223372036854775807", "'words'"])
def test_columns_of_odd_types_end_no_command(store, column, value):
    spoilt(store, f"UPDATE entries SET {column} = {value}", "UPDATE counts SET value = 'x'")
    json.dumps(inventory(store, check=True))
    export(store, store.with_name("out.jsonl"))
    looked_up(store)
    prune(store, models=["*"])


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
COLUMNS = (
    "id, key, kind, status, source, model, template, prompt_tokens, completion_tokens, cost, seconds, attempts, "
    "created, asked, answer"
)
SCHEMAS = {
    "endless view": [
        "DROP TABLE entries",
        f"CREATE VIEW entries ({COLUMNS}) AS {ENDLESS} {'i, ' * 14} i FROM n",
    ],
    "endless trigger": [
        f"CREATE TRIGGER t AFTER INSERT ON entries BEGIN SELECT count(*) FROM ({ENDLESS} i FROM n); END",
    ],
    "another view": ["CREATE VIEW v AS SELECT 1"],
    "no counts": ["DROP TABLE counts"],
    "other columns": ["ALTER TABLE entries DROP COLUMN cost"],
    "a generated column": ["ALTER TABLE counts ADD COLUMN more GENERATED ALWAYS AS (value + 1)"],
    "no index": ["DROP INDEX answered"],
}


@pytest.mark.parametrize("statements", SCHEMAS.values(), ids=SCHEMAS)
def test_a_store_with_another_schema_is_refused_before_it_is_used(store, statements):
    spoilt(store, *statements)
    began = time.perf_counter()
    for use in (inventory, looked_up, lambda path: import_rows(path, store.with_name("rows.jsonl"))):
        with pytest.raises(InputError, match="so not an fcjax store"):
            use(store)
    assert time.perf_counter() - began < 5


def test_a_further_index_and_statistics_of_sqlite_are_no_fault(store):
    spoilt(store, "CREATE INDEX mine ON entries (model)", "ANALYZE")
    assert looked_up(store).text == "a"


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_a_named_pipe_is_not_waited_for(store, suffix):
    place = store.with_name(store.name + suffix)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    began = time.perf_counter()
    for use in (inventory, looked_up):
        with pytest.raises(InputError, match="not a regular file"):
            use(store)
    assert time.perf_counter() - began < 5


# ---- Imports.

FAULTY = (
    '{"kind": []}',
    json.dumps(SEARCH | {"created": 9007199254740992}),
    '{"created": 9007199254740992}',
    "[",
    '{"%s": 1}' % ("x" * 3000),
    row(prompt={"messages": [], "template": "t/1", "y" * 3000: 1}),
)


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
def test_a_million_faulty_rows_are_counted_in_bounded_time_and_memory(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes((FAULTY[0] + "\n" + FAULTY[1] + "\n").encode() * 500_000)
    command = [*("cache", "import", tmp_path / "rows.jsonl", "--store", tmp_path / "store", "--json")]
    # What `wait4` says of a child includes the memory of the process that started it.
    code = "import shutil, sys; from fcjax.__main__ import main; place = sys.argv.pop()\ntry: main()\n"
    code += "finally: shutil.copyfile('/proc/self/status', place)"
    began = time.monotonic()
    with open(tmp_path / "out.json", "wb") as out, open(tmp_path / "errors", "wb") as errors:
        words = [sys.executable, "-P", "-c", code, *map(str, command), str(tmp_path / "status")]
        process = subprocess.run(words, stdout=out, stderr=errors, check=False)
    assert time.monotonic() - began < 120
    assert process.returncode == 1, (tmp_path / "errors").read_text()
    assert int(re.search(r"VmHWM:\s+(\d+)", (tmp_path / "status").read_text())[1]) < 150_000  # kB
    found = json.loads((tmp_path / "out.json").read_bytes())
    assert (found["added"], found["n_faults"], len(found["faults"])) == (0, 1_000_000, 1000)
    lines = (tmp_path / "errors").read_text().splitlines()
    assert len(lines) == 21
    assert lines[1].endswith(":2: created is 9007199254740992; allowed: a number from 0 to 253402300799")
    assert lines[-1] == "fcjax: error: and 999,980 more"


def test_faults_of_an_import_are_short_whatever_the_row(tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join((*FAULTY, json.dumps(GOOD))) + "\n")
    done = import_rows(tmp_path / "store", tmp_path / "rows.jsonl")
    assert (done.added, done.n_faults, [fault.line for fault in done.faults]) == (1, 6, [1, 2, 3, 4, 5, 6])
    assert max(len(fault.message) for fault in done.faults) < 500


def test_long_rows_of_an_import_are_not_held_by_the_thousand(tmp_path):
    long = json.dumps(GOOD | {"answer": {"text": "a" * (8 << 20)}})
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt", compresslevel=1) as rows:
        rows.writelines(f"{long}\n" for _ in range(60))  # 480 MB
    tracemalloc.start()
    try:
        done = import_rows(tmp_path / "store", tmp_path / "rows.jsonl.gz")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (done.added, done.known) == (1, 59)
    assert peak < 250 << 20  # of 480 MB


@pytest.mark.parametrize("content", [b"no database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_no_connection_to_a_damaged_store_stays_open(content, tmp_path, monkeypatch):
    made = []
    connect = schema._connect

    def counted(*where):
        made.append(connect(*where))
        return made[-1]

    monkeypatch.setattr(schema, "_connect", counted)
    (tmp_path / "store").write_bytes(content)
    with pytest.raises((InputError, OutputError)):
        Store.open(tmp_path / "store", readonly=True)
    assert made
    for connection in made:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
