"""Reading and writing of bytes: every odd file is told by name, nothing is held that need not be, nothing is lost."""

from __future__ import annotations

import gzip
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.errors import InputError, OutputError
from fcjax.io.files.objects import Row, read_objects, read_rows
from fcjax.io.files.results import ResultsWriter
from fcjax.io.files.streams import LineWriter, read_lines, replacing, write_lines

UNPRIVILEGED = 65534


def texts(path: Path, **options: int) -> list[bytes]:
    return [line.text for line in read_lines(path, **options)]


def values(path: Path) -> list[object]:
    items = list(read_objects(path))
    assert not any(item.faults for item in items)
    return [item.value for item in items]


def noise(count: int) -> list[bytes]:
    """Lines that compress badly, the same ones in every run."""
    source = random.Random(0)
    return [source.randbytes(40).hex().encode() for _ in range(count)]


# What cannot be read at all


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (gzip.compress(b"", mtime=0), "empty"),  # workers must collect the same name
        ('{"id": "ä"}\n'.encode("utf-16"), "UTF-16"),
        ('{"id": "a"}\n'.encode("utf-16-le"), "UTF-16"),
        ('{"id": "a"}\n'.encode("utf-16-be"), "UTF-16"),
        ('{"id": "a"}\n'.encode("utf-32"), "UTF-16 or UTF-32"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "binary"),
        (b"\x7fELF\x02\x01\x01" + bytes(9), "binary"),
        (bytes(range(1, 256)), "binary"),
        (b"PK\x03\x04\x14\x00", "zip"),
        (b"%PDF-1.7\n", "PDF"),
    ],
)
def test_a_file_that_is_no_text_is_told_by_name(tmp_path, content, says):
    path = tmp_path / "cases.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        list(read_lines(path))
    assert [fault.file for fault in caught.value.faults] == [str(path)]


def test_a_missing_file_and_a_folder_are_told_by_name(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        list(read_lines(tmp_path / "none.jsonl"))
    with pytest.raises(InputError, match="folder"):
        list(read_lines(tmp_path))


def test_only_blank_lines_hold_nothing(tmp_path):
    path = tmp_path / "blank.jsonl"
    path.write_bytes(b"\n  \r\n\n")
    with pytest.raises(InputError, match="blank"):
        list(read_objects(path))


# What is read with care


def test_a_byte_order_mark_and_windows_line_ends_are_no_content(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"b": 2}')
    assert [(line.number, line.text) for line in read_lines(path)] == [(1, b'{"a": 1}'), (3, b'{"b": 2}')]


def test_gzip_is_known_by_content_and_may_have_many_members(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_bytes(gzip.compress(b"1\n") + gzip.compress(b"2\n"))
    assert texts(path) == [b"1", b"2"]


def test_a_truncated_gzip_gives_its_complete_lines_then_a_fault(tmp_path):
    path = tmp_path / "cases.jsonl.gz"
    lines = noise(5000)
    packed = gzip.compress(b"\n".join(lines))
    path.write_bytes(packed[: len(packed) // 2])
    *good, last = read_lines(path)
    assert [line.text for line in good] == lines[: len(good)]
    assert len(good) > 1000
    assert last.fault is not None
    assert last.fault.line == len(good) + 1
    assert "the gzip data is cut off" in last.fault.message


@pytest.mark.parametrize("place", [0.5, -8])  # within the data; their checksum
def test_a_damaged_gzip_gives_a_fault(tmp_path, place):
    path = tmp_path / "cases.jsonl.gz"
    packed = gzip.compress(b"\n".join(noise(5000)))
    at = int(place * len(packed)) if place > 0 else len(packed) + place
    path.write_bytes(packed[:at] + b"\xff\xff\xff\xff" + packed[at + 4 :])
    *good, last = read_lines(path)
    assert good
    assert last.fault is not None
    assert "damaged" in last.fault.message


def test_a_line_beyond_the_limit_is_passed_over_without_being_held(tmp_path):
    path = tmp_path / "long.jsonl"
    with path.open("wb") as stream:
        stream.write(b'{"id": "before"}\n{"id": "')
        for _ in range(70):
            stream.write(b"x" * (1 << 20))
        stream.write(b'"}\n{"id": "after"}\n')
    tracemalloc.start()
    before, long, after = read_lines(path, limit=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (before.text, after.text, after.number) == (b'{"id": "before"}', b'{"id": "after"}', 3)
    assert long.fault is not None
    assert (long.fault.line, long.text) == (2, b"")
    assert "73,400,3" in long.fault.message
    assert peak < 8 << 20


@pytest.mark.parametrize("end", [b"", b"\n", b"\n2\n"])
@pytest.mark.parametrize("size", [63, 64, 65, 66, 1000])
def test_the_limit_counts_the_line_without_its_end(tmp_path, size, end):
    path = tmp_path / "lines"
    path.write_bytes(b"1" * size + end)
    first, *others = read_lines(path, limit=64)
    assert (first.fault is None) == (size <= 64)
    assert [line.text for line in others] == [b"2"] * end.count(b"2")


def test_memory_does_not_grow_with_the_number_of_lines(tmp_path):
    path = tmp_path / "many.jsonl.gz"

    def peak(lines: int) -> int:
        write_lines(path, (b'{"id": "%d", "response": "%s"}' % (i, b"x" * 1000) for i in range(lines)))
        tracemalloc.start()
        assert sum(1 for _ in read_objects(path)) == lines
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(20_000) < peak(2_000) + (1 << 20)


# Containers, told apart by content


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", '{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ("a.json", '{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ("a.json", '{"a": 1}', [{"a": 1}]),
        ("a.json", '{\n  "a": 1\n}\n', [{"a": 1}]),
        ("a.json", '{"a": 1,\n "b": 2}\n', [{"a": 1, "b": 2}]),
        ("a.json", '[{"a": 1}, {"b": 2}]', [{"a": 1}, {"b": 2}]),
        ("a.json", '\n[\n{"a": 1},\n{"b": 2}\n]\n', [{"a": 1}, {"b": 2}]),
        ("a.json", "[]", []),
        ("a.json", "\nnull\n", [None]),
        ("unnamed", '[\n  {\n    "a": 1\n  }\n]', [{"a": 1}]),
        ("unnamed", '{"a": "' + "x" * 600_000 + '"}\n{"b": 2}', [{"a": "x" * 600_000}, {"b": 2}]),
    ],
)
def test_lines_lists_and_objects_are_told_apart(tmp_path, name, content, expected):
    for suffix, packed in (("", content.encode()), (".gz", gzip.compress(content.encode()))):
        path = tmp_path / (name + suffix)
        path.write_bytes(packed)
        assert values(path) == expected


def test_a_broken_first_line_does_not_hide_the_others(tmp_path):
    path = tmp_path / "unnamed"
    for first in ('{"a": ', '{"a": 1', "[1, 2]"):
        path.write_text(f'{first}\n{{"b": 2}}\n')
        assert [item.value for item in read_objects(path)][1:] == [{"b": 2}]


def test_a_list_that_is_no_json_names_the_line(tmp_path):
    path = tmp_path / "cases.json"
    path.write_text('[\n{"a": 1},\n{"b": oops}\n]')
    with pytest.raises(InputError, match=r"cases\.json:3: not JSON"):
        list(read_objects(path))


def test_standard_input_is_read_plain_and_compressed():
    program = "from fcjax.io.files.objects import read_objects; print([item.value for item in read_objects('-')])"
    for content in (b'{"a": 1}\n{"b": 2}\n', gzip.compress(b'[{"a": 1}, {"b": 2}]')):
        run = subprocess.run([sys.executable, "-P", "-c", program], input=content, capture_output=True, check=True)
        assert run.stdout == b"[{'a': 1}, {'b': 2}]" + os.linesep.encode()


def test_standard_input_may_be_any_stream_of_bytes(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}\n')))
    assert [item.value for item in read_objects("-")] == [{"a": 1}]


# Faults of single values


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        (b'{"a": NaN}', "a", "a is NaN"),
        (b'{"a": [0, {"p": -Infinity}]}', "a[1].p", "p is -Infinity"),
        (b'{"a": 1e999}', "a", "a is Infinity"),
        (b'{"a": nope}', None, "not JSON"),
        (b'{"a": "\xff"}', None, "byte 0xff at position 8 is not UTF-8"),
        (b'{"a": ' + b"[" * 5000, None, "not JSON"),
        (b'{"a": 1} {"b": 2}', None, "not JSON"),
    ],
)
def test_what_is_not_json_is_told_with_its_field_where_it_has_one(tmp_path, text, field, says):
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b"{}\n" + text + b"\n{}\n")
    before, bad, after = read_objects(path)
    assert (before.value, after.value) == ({}, {})
    assert [fault.field for fault in bad.faults] == [field]
    assert says in bad.faults[0].message


HALVES = {
    "an escape": b'{"id": "s1", "response": "half \\ud83d", "\\udc00": ["\\uD83D\\uDE00"]}',
    "bytes": b'{"id": "s1", "response": "half \xed\xa0\xbd", "\xed\xb0\x80": ["\xed\xa0\xbd\xed\xb8\x80"]}',
}
WHOLE = {"id": "s1", "response": "half \ufffd", "\ufffd": ["\U0001f600"]}


@pytest.mark.parametrize("written", HALVES)
@pytest.mark.parametrize(("name", "around"), [("c.json", b"[%b, {}]"), ("c.jsonl", b"%b\n{}\n"), ("c", b"%b\n{}")])
def test_half_a_character_is_one_replaced_character(tmp_path, written, name, around):
    path = tmp_path / name
    path.write_bytes(around % HALVES[written])
    items = list(read_objects(path))
    assert [item.value for item in items] == [WHOLE, {}]
    assert [item.faults for item in items] == [(), ()]


def test_half_a_character_does_not_change_how_numbers_are_read(tmp_path):
    path = tmp_path / "c.jsonl"
    numbers = b"[18446744073709551615, -9223372036854775808, 123456789012345678901234567890]"
    path.write_bytes(b'{"a": "x", "n": %b}\n{"a": "x\\ud800", "n": %b}\n' % (numbers, numbers))
    whole, half = (item.value["n"] for item in read_objects(path))
    assert whole == half == [2**64 - 1, -(2**63), 123456789012345678901234567890.0]
    assert [type(number) for number in half] == [int, int, float]  # what a writer of JSON can write


def test_half_a_character_does_not_hide_a_fault(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"id": "x\\ud800", "p": NaN, "q": %b}\n{"a": "\\ud800\n' % (b"9" * 400))
    bad, broken = read_objects(path)
    assert bad.value["id"] == "x\ufffd"
    assert [fault.field for fault in bad.faults] == ["p", "q"]
    assert broken.value is None
    assert broken.faults


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"id": 0, broken', "0"),
        (b'{"query": "a \\" b, \\"id\\": 7", "n": 1, "id": "s1", "atoms": [}', "s1"),
        (b'{"id": "s\xff", "x": 1}', "2"),
        (b'{"id": 12', "2"),
        (b'{"id": ["a"], broken', "2"),
        (b'{"atoms": [{"id": "a0"}], broken', "2"),
        (b"broken", "2"),
    ],
)
def test_a_row_that_cannot_be_read_keeps_its_id_where_that_can(tmp_path, line, id):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"id": "first"}\n' + line + b"\n")
    rows = [Row(*parts) for parts in read_rows(path, lambda value, number: value)]
    assert [(row.id, row.value is None) for row in rows] == [("first", False), (id, True)]
    assert rows[1].faults[0].case == id


@given(st.binary(min_size=1, max_size=400))
def test_any_bytes_are_a_value_or_a_fault(content):
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with suppress(InputError):
            for item in read_objects(file.name, limit=100):
                assert item.value is not None or item.faults or b"null" in content


# Writing


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.json", "out.json.gz", "out"])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_every_container_reads_back_and_has_the_same_bytes_again(tmp_path, name, count):
    path = tmp_path / name
    lines = [b'{"a":%d}' % i for i in range(count)]
    assert write_lines(path, iter(lines)) == count
    first = path.read_bytes()
    assert write_lines(path, iter(lines)) == count
    assert path.read_bytes() == first
    assert os.listdir(tmp_path) == [name]
    if count or ".json" in path.suffixes:
        assert values(path) == [{"a": i} for i in range(count)]


def test_a_whole_file_takes_its_place_only_when_it_is_complete(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("old")

    def failing():
        yield b"1"
        yield b"2"
        yield b"3"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_lines(path, failing())
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.jsonl"]


def test_a_link_keeps_its_place_and_its_target_is_replaced(tmp_path):
    (tmp_path / "real.jsonl").write_text("old")
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    write_lines(tmp_path / "link.jsonl", [b"new"])
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real.jsonl").read_text() == "new\n"


def test_a_writer_keeps_what_it_is_told_to_and_appends(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"1\n2\nhal")
    writer = LineWriter(path, keep=4)
    writer.write(b"3")
    assert path.read_bytes() == b"1\n2\n3\n"  # before it is closed
    writer.close()


def test_a_killed_writer_leaves_complete_lines(tmp_path):
    path = tmp_path / "out.jsonl"
    program = (
        "import sys\nfrom fcjax.io.files.streams import LineWriter\nwriter = LineWriter(sys.argv[1])\n"
        "while True:\n    writer.write(b'x' * 5000)\n    print(flush=True)"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", program, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(100):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    lines = path.read_bytes().split(b"\n")
    assert len(lines) > 100
    assert set(lines[:-1]) == {b"x" * 5000}
    assert len(lines[-1]) < 5000


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told_with_what_to_do():
    writer = LineWriter("/dev/full")
    with pytest.raises(OutputError, match=r"/dev/full: cannot be written: No space left .* run the same command again"):
        writer.write(b"{}")
    with pytest.raises(OutputError, match="No space left"):
        write_lines("/dev/full", [b"{}"])
    assert os.path.exists("/dev/full")


def test_a_missing_folder_and_a_folder_as_output_are_told(tmp_path):
    with pytest.raises(OutputError, match="create the folder first"):
        LineWriter(tmp_path / "none" / "out.jsonl")
    with pytest.raises(OutputError, match="create the folder first"):
        write_lines(tmp_path / "none" / "out.jsonl", [b"{}"])
    with pytest.raises(OutputError, match="choose a file in this folder"):
        LineWriter(tmp_path)
    with pytest.raises(OutputError, match="choose a file in this folder"):
        write_lines(tmp_path, [b"{}"])


def _refusals(folder: str) -> str:
    """What both ways of writing say about a folder, joined."""
    said = []
    for write in (LineWriter, lambda path: write_lines(path, [b"{}"])):
        try:
            write(os.path.join(folder, "out.jsonl"))
            said.append("written")
        except OutputError as error:
            said.append(str(error))
    return "\n".join(said)


def test_a_read_only_folder_is_told():
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, whose parents another user may not pass
        os.chmod(folder, 0o555)
        if os.geteuid() != 0:
            said = _refusals(folder)
        else:  # the superuser may write everywhere: let a child become someone else
            receive, send = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.setgid(UNPRIVILEGED)
                    os.setuid(UNPRIVILEGED)
                    os.write(send, _refusals(folder).encode())
                finally:
                    os._exit(0)
            os.close(send)
            with os.fdopen(receive) as answer:
                said = answer.read()
            os.waitpid(child, 0)
        assert said.count("cannot be written: Permission denied; choose another output file") == 2


def test_standard_output_gets_the_bytes(capfdbinary):
    write_lines("-", [b"1", b"2"])
    with replacing("-") as stream:
        stream.write(b"3\n")
    writer = LineWriter("-")
    writer.write(b"4")
    writer.close()
    assert capfdbinary.readouterr().out == b"1\n2\n3\n4\n"


# Permissions and links


def test_a_draft_has_a_name_that_cannot_be_guessed_and_follows_no_link(tmp_path, monkeypatch):
    victim, out = tmp_path / "victim", tmp_path / "out.jsonl"
    victim.write_bytes(b"precious")
    (tmp_path / f".out.jsonl.{os.getpid()}.part").symlink_to(victim)
    with replacing(out) as stream:
        stream.write(b"row\n")
    assert (out.read_bytes(), victim.read_bytes()) == (b"row\n", b"precious")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 32)  # even if it were guessed
    (tmp_path / f".out.jsonl.{'0' * 32}.part").symlink_to(victim)
    with pytest.raises(OutputError), replacing(out) as stream:
        stream.write(b"other\n")
    assert (out.read_bytes(), victim.read_bytes()) == (b"row\n", b"precious")


@pytest.mark.parametrize(("before", "private", "after"), [
    (None, False, 0o644), (None, True, 0o600), (0o600, False, 0o600), (0o640, False, 0o640), (0o644, True, 0o600),
])  # fmt: skip
def test_a_file_that_is_replaced_keeps_its_permissions(before, private, after, tmp_path):
    out = tmp_path / "out"
    if before is not None:
        out.touch()
        out.chmod(before)
    mask = os.umask(0o022)
    try:
        with replacing(out, private=private):
            pass
    finally:
        os.umask(mask)
    assert out.stat().st_mode & 0o777 == after


def test_what_gathers_beside_a_packed_output_is_private_and_no_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "out.json.part").symlink_to(victim)
    with pytest.raises(OutputError):
        ResultsWriter(tmp_path / "out.json")
    assert victim.read_bytes() == b"precious"
    with ResultsWriter(tmp_path / "other.json"):
        assert (tmp_path / "other.json.part").stat().st_mode & 0o777 == 0o600
