"""A retriever behind the store: nothing is searched twice or used before it is on disk, and a run can be repeated."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from fcjax.core.errors import SettingsError
from fcjax.core.passages import Passage
from fcjax.core.prompts import Failure
from fcjax.io.retrievers.cached import Cached
from fcjax.io.store import Store

ROME = (Passage(title="Rome", text="Rome is in Italy.", link="https://a.org/"), Passage(snippet="…", note="HTTP 403"))
LATE = Failure("timeout", "no answer in 60 s", 3)
UNSENT = Failure("unauthorized", "no more are sent", 0)


class Source:
    """A retriever whose answers are given by query, or in turn for `queue`."""

    def __init__(self, answers=(), name="source/1", delay=0.0):
        self.answers, self.name, self.delay = dict(answers), name, delay
        self.asked: list[tuple[str, int]] = []
        self.ended: list[str] = []
        self.closed = False

    async def search(self, query, k):
        self.asked.append((query, k))
        await asyncio.sleep(self.delay)
        answer = self.answers.get(query, ())
        answer = answer.pop(0) if isinstance(answer, list) else answer
        self.ended.append(query)
        if isinstance(answer, BaseException):
            raise answer
        return answer[:k] if isinstance(answer, tuple) else answer

    async def close(self):
        self.closed = True


def run(path, source, use, clock=None, **how):
    """What `use(cached)` comes to, with a store of its own."""

    async def main():
        with Store.open(path, **({"clock": clock} if clock else {})) as store:
            cached = Cached(source, store, **how)
            try:
                return await use(cached)
            finally:
                await cached.close()

    return asyncio.run(main())


def rows(path, columns="status"):
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT {columns} FROM entries ORDER BY id").fetchall()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def test_what_was_found_is_found_again_without_the_source(path):
    source = Source({"Rome?": ROME})
    for expected in ([("Rome?", 3)], [("Rome?", 3)]):
        assert run(path, source, lambda cached: cached.search("Rome?", 3)) == ROME
        assert source.asked == expected
    assert source.closed
    assert run(path, Source(), lambda cached: cached.search("Rome?", 3), replay=True) == ROME
    assert rows(path, "kind, status, source, model, template, cost, attempts") == [
        ("search", "answered", "source/1", "", "", None, 1)
    ]


def test_finding_nothing_is_an_answer(path):
    source = Source()
    for _ in range(2):
        assert run(path, source, lambda cached: cached.search("?", 3)) == ()
    assert len(source.asked) == 1


def test_a_key_is_the_source_the_query_and_k(path):
    async def use(cached):
        for query, k in (("a", 1), ("a", 2), ("b", 1), ("a", 1), ("1 a", 1)):
            await cached.search(query, k)

    one, other = Source(name="one"), Source(name="other")
    run(path, one, use)
    run(path, other, use)
    assert one.asked == other.asked == [("a", 1), ("a", 2), ("b", 1), ("1 a", 1)]
    assert len(set(rows(path, "key"))) == 8


def test_a_failure_is_journaled_and_served_in_replay_alone(path):
    source = Source({"Rome?": [LATE, LATE, ROME]})

    async def use(cached):
        return await cached.search("Rome?", 3)

    assert run(path, source, use) == LATE
    assert run(path, source, use, replay=True) == LATE
    assert run(path, source, use) == LATE
    assert run(path, source, use) == ROME
    assert run(path, source, use, replay=True) == ROME
    assert len(source.asked) == 3
    assert rows(path) == [("timeout",), ("timeout",), ("answered",)]


def test_a_replay_never_asks_the_source(path):
    source = Source({"Rome?": ROME})
    found = run(path, source, lambda cached: cached.search("Rome?", 3), replay=True)
    assert (found.kind, source.asked) == ("replay_miss", [])
    assert "source/1" in found.reason
    assert "Rome?" in found.reason


def test_what_was_never_sent_is_not_journaled(path):
    source = Source({"Rome?": UNSENT})
    assert run(path, source, lambda cached: cached.search("Rome?", 3)) == UNSENT
    assert rows(path) == []


def test_equal_searches_at_the_same_time_are_one(path):
    source = Source({"Rome?": ROME, "Oslo?": LATE}, delay=0.02)

    async def use(cached):
        found = await asyncio.gather(*(cached.search(query, 3) for query in ["Rome?", "Oslo?"] * 20))
        return found, cached.stats

    found, stats = run(path, source, use)
    assert found == [ROME, LATE] * 20
    assert sorted(source.asked) == [("Oslo?", 3), ("Rome?", 3)]
    assert (stats.asked, stats.answered, stats.failed, stats.sent) == (40, 20, {"timeout": 20}, 2)
    assert (stats.shared, stats.hits, stats.passages) == (38, 0, 40)


def test_hits_are_counted(path):
    async def use(cached):
        await cached.search("Rome?", 3)
        await cached.search("Rome?", 3)
        return cached.stats

    stats = run(path, Source({"Rome?": ROME}), use)
    assert (stats.asked, stats.answered, stats.hits, stats.sent) == (2, 2, 1, 1)


def test_a_result_is_on_disk_before_it_is_used(path):
    async def use(cached):
        await cached.search("Rome?", 3)
        return rows(path)

    assert run(path, Source({"Rome?": ROME}), use) == [("answered",)]


def test_what_another_process_found_first_stands(path):
    async def use(cached):
        with Store.open(path) as other:
            searching = asyncio.ensure_future(cached.search("Rome?", 3))
            await asyncio.sleep(0.01)
            await other.put_found("source/1", "Rome?", 3, ROME[:1])
            return await searching

    assert run(path, Source({"Rome?": ROME}, delay=0.1), use) == ROME[:1]


def test_old_results_are_found_anew_and_kept_for_replay(path):
    source = Source({"Rome?": [ROME, ROME[:1], LATE]})
    time = 1000.0

    def search(**how):
        return run(path, source, lambda cached: cached.search("Rome?", 3), clock=lambda: time, **how)

    assert search(max_age=60) == ROME
    time = 1050.0
    assert search(max_age=60) == ROME
    time = 1070.0
    assert search() == ROME
    assert search(max_age=60, replay=True) == ROME
    assert search(max_age=60) == ROME[:1]
    assert search(max_age=60) == ROME[:1]
    time = 1200.0
    assert search(max_age=60) == LATE
    assert rows(path) == [("outdated",), ("outdated",), ("timeout",)]
    assert search(replay=True) == LATE
    with pytest.raises(SettingsError, match="max_age is -1"):
        search(max_age=-1)


def test_one_who_leaves_hurts_nobody(path):
    source = Source({"Rome?": ROME}, delay=0.05)

    async def use(cached):
        one, two = (asyncio.ensure_future(cached.search("Rome?", 3)) for _ in range(2))
        await asyncio.sleep(0.01)
        one.cancel()
        found = await two
        alone = asyncio.ensure_future(cached.search("Oslo?", 3))
        await asyncio.sleep(0.01)
        alone.cancel()
        await asyncio.sleep(0.1)
        return found, cached.stats

    found, stats = run(path, source, use)
    assert found == ROME
    assert source.ended == ["Rome?"]  # nobody wanted to know about Oslo any more
    assert (stats.asked, stats.answered) == (1, 1)


def test_a_fault_of_the_program_is_raised_to_all_who_asked(path):
    source = Source({"Rome?": RuntimeError("a bug")}, delay=0.01)

    async def use(cached):
        return await asyncio.gather(*(cached.search("Rome?", 3) for _ in range(3)), return_exceptions=True)

    assert [str(error) for error in run(path, source, use)] == ["a bug"] * 3
    assert rows(path) == []


def test_closing_ends_what_is_under_way(path):
    source = Source(delay=60)

    async def use(cached):
        searching = asyncio.ensure_future(cached.search("Rome?", 3))
        await asyncio.sleep(0.01)
        await cached.close()
        with pytest.raises(asyncio.CancelledError):
            await searching

    run(path, source, use)
    assert source.ended == []
