"""The journal of a run: entries come back by case, cut lines are dropped, another run's are refused."""

from __future__ import annotations

import json
import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.errors import OutputError
from fcjax.io.files.journal import Journal, JournalEntry


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.jsonl.stages"


def fill(path, *entries, run="a run"):
    with Journal(path, run) as journal:
        for case, *entry in entries:
            journal.write(case, *entry)


def test_entries_come_back_by_case_in_order(path):
    fill(
        path,
        (2, "atomize", {"atoms": [{"id": "a0", "text": "Wärme"}]}),
        (0, "atomize", {"atoms": []}),
        (2, "retrieve", {"contexts": []}, ["reason"]),
    )
    fill(path, (2, "relate", {"relations": [0.1]}))
    with Journal(path, "a run") as journal:
        assert journal.entries(1) == journal.entries(7) == []
        assert journal.entries(0) == [JournalEntry("atomize", {"atoms": []})]
        assert [entry.stage for entry in journal.entries(2)] == ["atomize", "retrieve", "relate"]
        assert journal.entries(2)[1] == JournalEntry("retrieve", {"contexts": []}, ("reason",))


def test_what_this_run_writes_is_the_next_ones(path):
    fill(path, (0, "atomize", {}))
    with Journal(path, "a run") as journal:
        journal.write(0, "revise", {})
        assert [entry.stage for entry in journal.entries(0)] == ["atomize"]
        assert path.read_bytes().count(b"\n") == 3  # and yet it is in the file at once


def test_an_entry_changes_its_fields_and_no_others():
    entry = JournalEntry("atomize", {"atoms": [1], "extra": None}, ("reason", "status"))
    before = {"id": "x", "status": "atomize_failed", "reason": "?", "atoms": None, "more": 1}
    assert entry.applied(before) == {"id": "x", "atoms": [1], "more": 1, "extra": None}
    assert list(entry.applied(before)) == ["id", "atoms", "more", "extra"]


@given(data=st.data())
def test_a_file_cut_at_any_byte_keeps_its_whole_entries(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("journal") / "stages"
    fill(path, *((i % 3, "retrieve", {"text": "é" * i}) for i in range(6)))
    whole = path.read_bytes()
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    path.write_bytes(cut)
    kept = max(cut.count(b"\n") - 1, 0)
    with Journal(path, "a run") as journal:
        assert sum(len(journal.entries(case)) for case in range(3)) == kept
        journal.write(5, "relate", {})
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == kept + 2
    assert all(json.loads(line) for line in lines)
    assert path.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[: kept + 1]))


def test_what_follows_a_line_that_is_no_entry_is_dropped(path):
    fill(path, (0, "atomize", {}))
    broken_lines = (
        *(b"\0\0\0\n", b'{"case": -1}\n', b'["case"]\n', b"{}\n", b'{"case":0,"stage":"revise"}\n'),
        *(b'{"case":0,"stage":"revise","set":[1]}\n', b'{"case":0,"stage":5,"set":{}}\n'),
        *(b'{"case":"0","stage":"revise","set":{}}\n', b'{"case":0,"stage":"revise","set":{},"gone":5}\n'),
        b'{"case":99999999999,"stage":"revise","set":{}}\n',
    )
    for broken in broken_lines:
        path.write_bytes(path.read_bytes() + broken + b'{"case":0,"stage":"revise","set":{}}\n')
        with Journal(path, "a run") as journal:
            assert journal.entries(0) == [JournalEntry("atomize", {})]
        assert path.read_bytes().count(b"\n") == 2


def test_another_runs_journal_is_refused_and_left_alone(path):
    fill(path, (0, "atomize", {}))
    before = path.read_bytes()
    with pytest.raises(OutputError, match=r"of another run, .* start over with --overwrite \(overwrite=True\)"):
        Journal(path, "another run")
    assert path.read_bytes() == before
    with Journal(path, "another run", overwrite=True) as journal:
        assert journal.entries(0) == []
    with Journal(path, "another run") as journal:
        assert journal.entries(0) == []


@pytest.mark.parametrize("content", [b"precious\n", b"precious", b"{}\n", b"\n"])
def test_what_is_no_journal_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(OutputError, match=r"is not a run's journal.*; move it, or choose another output"):
        Journal(path, "a run")
    assert path.read_bytes() == content


def test_a_journal_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(OutputError, match="create the folder first"):
        Journal(tmp_path / "nowhere" / "stages", "a run")
    with pytest.raises(OutputError):
        Journal(tmp_path, "a run")


def test_it_goes_when_the_run_is_complete(path):
    journal = Journal(path, "a run")
    journal.write(0, "atomize", {})
    journal.remove()
    assert not path.exists()
    journal.remove()


def test_memory_is_bounded(path):
    """Two entries each of 20,000 cases, of 1 kB: a few numbers are held of each."""
    entry = ("retrieve", {"contexts": ["x" * 1000]})
    fill(path, *((i // 2, *entry) for i in range(40_000)))
    tracemalloc.start()
    with Journal(path, "a run") as journal:
        assert len(journal.entries(0)) == len(journal.entries(19_999)) == 2
        assert tracemalloc.get_traced_memory()[1] < 40_000 * 64
    tracemalloc.stop()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("content", [None, b"", b"precious"])
def test_a_link_under_its_name_is_not_followed(content, overwrite, path, tmp_path):
    victim = tmp_path / "victim"
    if content is not None:
        victim.write_bytes(content)
    path.symlink_to(victim)
    with pytest.raises(OutputError):
        Journal(path, "a run", overwrite=overwrite)
    assert (victim.read_bytes() if victim.exists() else None) == content


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_pipe_under_its_name_is_not_waited_for(overwrite, path):
    os.mkfifo(path)
    with pytest.raises(OutputError):
        Journal(path, "a run", overwrite=overwrite)


def test_only_this_user_may_read_it(path):
    before = os.umask(0)
    try:
        fill(path, (0, "atomize", {}))
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)  # an earlier version's
        fill(path, (0, "atomize", {}))
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
