"""The store: what it holds is what was put, through crashes, other processes and spoilt files."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fcjax.core.errors import InputError, OutputError
from fcjax.core.passages import Passage
from fcjax.core.prompts import Failure, Prompt, Reply, Token, Usage
from fcjax.io.entries import DamagedError, pack_answer, pack_prompt, question, unpack, unpack_answer, unpack_found
from fcjax.io.maintenance import export, import_rows
from fcjax.io.schema import connect
from fcjax.io.store import Store, prompt_key

INF = float("inf")
YES = Reply(
    text="[yes]",
    tokens=(Token("[", -0.25, (("[", -0.25), ("(", -INF))), Token("", None, (), b"\xf0\x9f")),
    model="m-2026",
    usage=Usage(12, 3),
    cost=0.25,
    seconds=0.5,
    attempts=2,
    reasoning="hm",
)
NO = replace(YES, text="[no]", tokens=None)
REFUSED = Failure("refused", "the model would not say", 1)


def ask(text="?", **more):
    return Prompt(messages=(("system", "Say."), ("user", text)), template="test/1", **more)


def key(prompt):
    return prompt_key("local", "m", prompt)


async def put(store, prompt, outcome):
    return await store.put(key(prompt), prompt=prompt, endpoint="local", model="m", outcome=outcome)


def with_store(path, use, **how):
    """What `use(store)` comes to in an event loop of its own."""

    async def main():
        with Store.open(path, **how) as store:
            return await use(store)

    return asyncio.run(main())


def rows(path, columns="status"):
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT {columns} FROM entries ORDER BY id").fetchall()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "store.sqlite"


# ---- What is put is what is got.

numbers = st.floats(allow_nan=False)
texts = st.text(st.characters(codec=None), max_size=20)  # half surrogate pairs too
tokens = st.builds(
    Token,
    texts,
    st.none() | numbers,
    st.lists(st.tuples(texts, numbers), max_size=3).map(tuple),
    st.none() | st.binary(max_size=4),
)
counts = st.integers(0, 2**53)
replies = st.builds(
    Reply,
    text=texts,
    tokens=st.none() | st.lists(tokens, max_size=4).map(tuple),
    finish=texts,
    model=st.none() | texts,
    usage=st.none() | st.builds(Usage, counts, counts),
    cost=st.none() | st.floats(0, 1e9),
    seconds=st.floats(0, 1e9),
    attempts=counts,
    reasoning=st.none() | texts,
)
failures = st.builds(Failure, texts, texts, counts)


@given(replies | failures)
def test_any_answer_survives_packing(answer):
    assert unpack_answer(pack_answer(answer)) == answer


options = st.none() | texts
found = st.lists(
    st.builds(Passage, title=options, text=options, snippet=options, link=options, note=options), max_size=3
).map(tuple)


@given(found | failures)
def test_anything_found_survives_packing(answer):
    assert unpack_found(pack_answer(answer)) == answer


@given(texts, st.dictionaries(texts, st.none() | texts | counts, max_size=3))
def test_any_prompt_survives_packing(text, options):
    prompt = ask(text, options=options)
    document = question(prompt) | {"messages": [list(message) for message in prompt.messages]}
    assert unpack(pack_prompt(prompt)) == document


@given(replies | failures, st.data())
def test_a_flipped_bit_never_changes_an_answer(answer, data):
    packed = bytearray(pack_answer(answer))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(DamagedError):
        assert unpack_answer(bytes(packed)) == answer  # a bit of padding may not matter


def test_a_key_is_all_that_changes_the_answer_and_nothing_else():
    base = ask(options={"stop": ["\n"], "seed": 1})
    others = [
        replace(base, messages=(("user", "Say."), ("user", "?"))),
        replace(base, messages=(*base.messages, ("user", "?"))),
        replace(base, template="test/2"),
        replace(base, max_tokens=5),
        replace(base, temperature=0.1),
        replace(base, top_logprobs=5),
        replace(base, sample=1),
        replace(base, options={"stop": ["\n"], "seed": 2}),
        replace(base, options={}),
    ]
    keys = [key(base), *map(key, others), prompt_key("elsewhere", "m", base), prompt_key("local", "n", base)]
    assert len(set(keys)) == len(keys)
    assert key(replace(base, options={"seed": 1, "stop": ["\n"]})) == key(base)
    # The key is on people's disks: a change here asks and pays for everything again.
    assert key(ask()) == "45db6f00ac51e5a0c352747eb25d7201d71ad81ab302eb441a4d31c909db4915"


def test_put_and_get(path):
    async def use(store):
        assert await store.get(key(ask())) is None
        assert await put(store, ask(), YES) == YES
        assert await store.get(key(ask())) == YES
        assert (store.stats.hits, store.stats.misses, store.stats.stored) == (1, 1, 1)

    with_store(path, use, clock=lambda: 86400.0)

    async def again(store):
        return await store.get(key(ask()))

    assert with_store(path, again) == YES
    columns = (
        "kind, status, source, model, template, prompt_tokens, completion_tokens, cost, seconds, attempts, created"
    )
    assert rows(path, columns) == [("chat", "answered", "local", "m", "test/1", 12, 3, 0.25, 0.5, 2, 86400.0)]
    with sqlite3.connect(path) as connection:
        assert dict(connection.execute("SELECT name, value FROM counts")) == {"hits": 2, "misses": 1}


def test_what_nobody_was_told_is_null(path):
    with_store(path, lambda store: put(store, ask(), Reply(text="yes")))
    assert rows(path, "cost, prompt_tokens, completion_tokens") == [(None, None, None)]


def test_failures_are_kept_and_served_in_replay_alone(path):
    late = Failure("timeout", "no answer in 60 s", 5)

    async def use(store):
        await put(store, ask(), REFUSED)
        await put(store, ask(), late)
        seen = [await store.get(key(ask())), await store.get(key(ask()), replay=True)]
        await put(store, ask(), YES)
        return [*seen, await store.get(key(ask())), await store.get(key(ask()), replay=True)]

    assert with_store(path, use) == [None, late, YES, YES]
    assert rows(path) == [("refused",), ("timeout",), ("answered",)]


def test_a_rejected_reply_is_asked_again_but_replayed(path):
    async def use(store):
        await put(store, ask(), NO)
        await store.reject(key(ask()))
        seen = [await store.get(key(ask())), await store.get(key(ask()), replay=True)]
        await put(store, ask(), YES)
        return [*seen, await store.get(key(ask())), await store.get(key(ask()), replay=True)]

    assert with_store(path, use) == [None, NO, YES, YES]
    assert rows(path) == [("unreadable",), ("answered",)]


def test_the_first_reply_stands(path):
    async def use(store):
        with Store.open(path) as other:
            await put(other, ask(), YES)
            assert await put(store, ask(), NO) == YES
            assert await other.get(key(ask())) == YES
        return store.stats

    stats = with_store(path, use)
    assert (stats.stored, stats.known) == (0, 1)
    assert len(rows(path)) == 1


# ---- Searches.

ROME = (Passage(title="Rome", text="Rome is in Italy.", link="https://a.org/"), Passage(snippet="s", note="HTTP 403"))


def test_what_was_found_comes_back_whole(path):
    async def use(store):
        seen = [await store.get_found("wiki", "Rome?", 3)]
        seen += [await store.put_found("wiki", "Rome?", 3, ROME, seconds=0.5), await store.put_found("wiki", "", 1, ())]
        seen += [await store.get_found("wiki", "Rome?", 3), await store.get_found("wiki", "", 1)]
        return seen + [await store.get_found(*other) for other in (("wiki", "Rome?", 2), ("w", "Rome?", 3))]

    assert with_store(path, use, clock=lambda: 86400.0) == [None, ROME, (), ROME, (), None, None]
    columns = "kind, status, source, model, template, prompt_tokens, cost, seconds, attempts, created"
    assert rows(path, columns)[0] == ("search", "answered", "wiki", "", "", None, None, 0.5, 1, 86400.0)


def test_prompts_and_searches_share_a_store_and_its_books(path):
    async def use(store):
        await put(store, ask(), YES)
        await store.put_found("wiki", "?", 3, REFUSED)
        await store.put_found("wiki", "?", 3, ROME)
        assert await store.put_found("wiki", "?", 3, ()) == ROME
        assert await store.get(key(ask())) == YES
        assert await store.get_found("wiki", "?", 3) == ROME
        return store.stats

    stats = with_store(path, use)
    assert (stats.stored, stats.known, stats.hits) == (3, 1, 2)
    assert rows(path, "kind, status") == [("chat", "answered"), ("search", "refused"), ("search", "answered")]


def test_a_damaged_search_is_made_again(path):
    async def use(store):
        await store.put_found("wiki", "?", 3, ROME)
        spoil(path, "answer", pack_answer(YES), "id = 1")  # a sound answer, but to a prompt
        assert await store.get_found("wiki", "?", 3) is None
        assert await store.put_found("wiki", "?", 3, ROME) == ROME
        assert await store.get_found("wiki", "?", 3) == ROME

    with_store(path, use)
    assert rows(path) == [("damaged",), ("answered",)]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, replies | failures | found), max_size=6))
def test_a_store_survives_export_and_import(tmp_path_factory, entries):
    folder = tmp_path_factory.mktemp("stores")

    async def fill(store):
        for text, outcome in entries:
            if isinstance(outcome, tuple):
                await store.put_found("wiki", text, 3, outcome)
            else:
                await put(store, ask(text, options={"x": text}), outcome)

    dates = itertools.count(1.0)
    with_store(folder / "one", fill, clock=lambda: next(dates))
    export(folder / "one", folder / "rows.jsonl")
    if not entries:
        return
    for known in (0, len(rows(folder / "one"))):
        done = import_rows(folder / "two", folder / "rows.jsonl")
        assert (done.known, done.faults) == (known, ())
    columns = "key, kind, status, source, model, template, cost, seconds, attempts, created, asked, answer"
    assert rows(folder / "two", columns) == rows(folder / "one", columns)


def test_a_failure_whose_kind_has_half_a_character_is_kept(path):
    """Found by the test above: a column of text cannot hold it."""
    half = Failure("\ud800", "why", 1)

    async def use(store):
        await put(store, ask(), half)
        return await store.get(key(ask()), replay=True)

    assert with_store(path, use) == half
    assert rows(path) == [("?",)]
    export(path, path.parent / "rows.jsonl")
    assert import_rows(path.parent / "two", path.parent / "rows.jsonl").added == 1
    assert rows(path.parent / "two") == [("?",)]


# ---- The event loop and the writer.


def test_many_puts_share_a_commit(path):
    async def use(store):
        await asyncio.gather(*(put(store, ask(str(i)), YES) for i in range(500)))
        return store.stats

    stats = with_store(path, use)
    assert stats.stored == 500
    assert stats.commits < 50


def test_an_option_that_is_no_json_is_its_own_fault_only(path):
    bad = ask(options={"seed": object()})
    with pytest.raises(TypeError):
        key(bad)

    async def use(store):
        puts = [
            store.put(f"{i:064x}", prompt=p, endpoint="e", model="m", outcome=YES) for i, p in enumerate([ask(), bad])
        ]
        return await asyncio.gather(*puts, return_exceptions=True)

    good, error = with_store(path, use)
    assert good == YES
    assert isinstance(error, TypeError)


def test_a_cancelled_put_hurts_nobody(path):
    async def use(store):
        one = asyncio.ensure_future(put(store, ask("1"), YES))
        two = asyncio.ensure_future(put(store, ask("2"), YES))
        await asyncio.sleep(0)
        one.cancel()
        assert await two == YES
        assert one.cancelled()
        assert await put(store, ask("3"), YES) == YES

    with_store(path, use)
    assert len(rows(path)) == 3  # a cancelled caller's reply was paid for, too


def test_the_loop_goes_on_while_another_process_writes(path):
    async def use(store):
        await put(store, ask("before"), YES)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(put(store, ask(), YES))
        pauses = []
        for _ in range(40):
            start = time.perf_counter()
            assert await store.get(key(ask("before"))) == YES
            await asyncio.sleep(0.005)
            pauses.append(time.perf_counter() - start)
        assert not waiting.done()
        holder.execute("COMMIT")
        holder.close()
        assert await waiting == YES
        return pauses

    assert sorted(with_store(path, use))[-3] < 0.05  # a busy machine may owe us one or two


def test_a_lock_that_stays_is_told(path, monkeypatch):
    monkeypatch.setattr("fcjax.io.schema.PATIENCE", 0.1)

    async def use(store):
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(OutputError, match="another process has kept the store locked"):
            await put(store, ask(), YES)
        holder.execute("ROLLBACK")
        holder.close()
        assert await put(store, ask(), YES) == YES

    with_store(path, use)


def test_a_closed_store_says_so(path):
    async def use(store):
        store.close()
        store.close()
        with pytest.raises(RuntimeError, match="is closed"):
            await put(store, ask(), YES)

    with_store(path, use)


# ---- Other processes, and their ends. Each is a real one that imports the store and nothing else of ours.

WORKER = """
import asyncio, random, sys
from fcjax.io.store import Store, prompt_key
from fcjax.core.prompts import Prompt, Reply

async def main(path, name, first, last, limit):
    if limit:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with Store.open(path) as store:
        async def one(i):
            prompt = Prompt(messages=(("user", str(i)),), template="test/1")
            key = prompt_key("local", "m", prompt)
            if await store.get(key) is None:
                reply = Reply(text=f"{name} {i} " + random.randbytes(500).hex())
                await store.put(key, prompt=prompt, endpoint="local", model="m", outcome=reply)
            print(i, flush=True)
        todo = iter(range(first, last))
        async def worker():
            for i in todo:
                await one(i)
        await asyncio.gather(*(worker() for _ in range(16)))
path, name, *numbers = sys.argv[1:]
asyncio.run(main(path, name, *map(int, numbers)))
"""


def worker(path, name, first, last, limit=0):
    return subprocess.Popen(
        [sys.executable, "-P", "-c", WORKER, str(path), name, str(first), str(last), str(limit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_eight_processes_share_a_store(path):
    """They race to make the file, and for the same 300 questions."""
    workers = [worker(path, f"w{i}", 0, 300) for i in range(8)]
    for each in workers:
        said, complaint = each.communicate(timeout=120)
        assert (each.returncode, complaint) == (0, "")
        assert sorted(map(int, said.split())) == list(range(300))
    assert rows(path) == [("answered",)] * 300
    assert len(set(rows(path, "key"))) == 300


def test_a_killed_process_loses_nothing_that_was_acknowledged(path):
    draw = random.Random(4)
    told: set[int] = set()
    for round_ in range(8):
        each = worker(path, f"w{round_}", 0, 100_000)
        for line in itertools.islice(each.stdout, 1 + len(told) + draw.randrange(200)):
            told.add(int(line))
        each.kill()
        told.update(int(line) for line in each.stdout.read().splitlines(keepends=True) if line.endswith("\n"))
        each.wait()
        each.stderr.close()
    assert len(told) > 100

    async def use(store):
        return [await store.get(key(Prompt(messages=(("user", str(i)),), template="test/1"))) for i in told]

    found = with_store(path, use)
    assert [int(reply.text.split()[1]) for reply in found] == list(told)
    assert len(set(rows(path, "key"))) == len(rows(path))


@pytest.mark.skipif(os.name != "posix", reason="a limit on the size of files")
def test_a_full_disk_is_told_and_keeps_what_was_stored(path):
    each = worker(path, "w", 0, 100_000, limit=300_000)
    said, complaint = each.communicate(timeout=60)
    assert each.returncode == 1
    assert "fcjax.core.errors.OutputError" in complaint
    assert f"{path}: the store cannot be used" in complaint
    told = [int(line) for line in said.split()]
    assert told

    async def use(store):
        return [await store.get(key(Prompt(messages=(("user", str(i)),), template="test/1"))) for i in told]

    assert None not in with_store(path, use)


def test_every_commit_is_durable_in_a_power_cut(path):
    """NORMAL (1) would leave the last commits in the system's memory; what a run has used could then be lost."""
    for _ in range(2):  # a new store and one that is there
        with contextlib.closing(connect(path)) as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ---- Spoilt and foreign files.


def spoil(path, column, value, where="1"):
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE entries SET {column} = ? WHERE {where}", (value,))
    connection.close()


@pytest.mark.parametrize("value", [b"", b"rubbish", b"x\x9c\x03\x00\x00\x00\x00\x01", "text", 7])
@pytest.mark.parametrize("looked_up_first", [True, False])
def test_a_damaged_row_is_a_miss_and_can_be_answered_again(path, value, looked_up_first):
    async def use(store):
        await put(store, ask("1"), YES)
        await put(store, ask("2"), YES)
        spoil(path, "answer", value, "id = 1")
        if looked_up_first:
            assert await store.get(key(ask("1"))) is None
            assert await store.get(key(ask("1")), replay=True) is None
            assert (store.stats.damaged, store.stats.misses, store.stats.hits) == (2, 2, 0)  # per look-up
        assert await put(store, ask("1"), NO) == NO
        assert await store.get(key(ask("1"))) == NO
        assert await store.get(key(ask("2"))) == YES

    with_store(path, use)
    assert rows(path) == [("damaged",), ("answered",), ("answered",)]


def other_database(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE entries (id INTEGER, key BLOB, status TEXT, answer BLOB)")
    connection.close()


def newer_store(path):
    Store.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def spoilt_store(path):
    Store.open(path).close()
    content = bytearray(path.read_bytes())
    content[100:200] = b"\xa5" * 100  # the tree of the tables
    path.write_bytes(content)


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("id,text\n1,hello\n"), "not an SQLite database, so not an fcjax store"),
        (lambda path: path.write_bytes(b"\x1f\x8b" + bytes(9000)), "not an SQLite database, so not an fcjax store"),
        (other_database, "a database of another program, so not an fcjax store"),
        (newer_store, "the store has format 99, but this fcjax reads format 1; upgrade fcjax"),
        (spoilt_store, "the store is damaged .*; move it away"),
    ],
    ids=["text", "binary", "database", "newer", "spoilt"],
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path, make, message, readonly):
    path = tmp_path / "file"
    make(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=message) as caught:
        Store.open(path, readonly=readonly)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


async def fill(store):
    await asyncio.gather(*(put(store, ask(str(i)), replace(YES, text=str(i) * 50)) for i in range(200)))


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.9])
def test_a_store_that_lost_its_end_is_refused(path, share):
    with_store(path, fill)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match="the store is damaged"):
        Store.open(path)


def test_a_spoilt_page_spoils_its_own_rows_only(path):
    with_store(path, fill)
    content = bytearray(path.read_bytes())
    start = content.rindex(pack_answer(replace(YES, text="150" * 50))) // 4096 * 4096
    content[start : start + 4096] = b"\xa5" * 4096
    path.write_bytes(content)

    async def read(store):
        return [await store.get(key(ask(str(i)))) for i in range(200)], store.stats.damaged

    found, damaged = with_store(path, read)
    assert found[150] is None
    assert found.count(None) == damaged < 50
    assert all(reply is None or reply.text == str(i) * 50 for i, reply in enumerate(found))


def test_a_missing_store_is_not_made_for_reading(path):
    with pytest.raises(InputError, match="there is no store there"):
        Store.open(path, readonly=True)
    assert not path.parent.exists()


def test_a_place_where_no_file_can_be_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot create a store there"):
        Store.open(tmp_path / "file" / "store.sqlite")
    with pytest.raises(OutputError, match="the store cannot be opened"):
        Store.open(tmp_path)


def test_an_empty_file_becomes_a_store(tmp_path):
    path = tmp_path / "made by mktemp"
    path.touch()
    assert with_store(path, lambda store: put(store, ask(), YES)) == YES


def test_reading_only_reads(path):
    with_store(path, lambda store: put(store, ask(), YES))
    before = path.read_bytes()

    async def use(store):
        assert await store.get(key(ask())) == YES
        with pytest.raises(RuntimeError, match="opened read-only"):
            await put(store, ask("2"), YES)

    with_store(path, use, readonly=True)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_store_in_a_folder_that_cannot_be_written_is_read():
    with tempfile.TemporaryDirectory() as folder:  # not pytest's, which nobody else may enter
        path = Path(folder) / "store.sqlite"
        with_store(path, lambda store: put(store, ask(), YES))
        path.chmod(0o644)  # a new store is its user's alone
        Path(folder).chmod(0o555)
        reading, writing = os.pipe()
        if not (child := os.fork()):  # a process of its own, whose rights can be dropped
            try:
                os.setuid(65534)
                said = repr(with_store(path, lambda store: store.get(key(ask())), readonly=True))
            except BaseException as error:
                said = repr(error)
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as stream:
            assert stream.read() == repr(YES)
        os.waitpid(child, 0)


def test_only_this_user_may_read_a_store(tmp_path):
    path = tmp_path / "new" / "folder" / "store.sqlite"
    before = os.umask(0)
    try:
        connection = connect(path)
        connection.execute("PRAGMA user_version")
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    assert {folder.stat().st_mode & 0o777 for folder in (path.parent, path.parent.parent)} == {0o700}
    connection.close()
