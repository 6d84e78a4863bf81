"""Results files: the same bytes for the same results, and a run that stops anywhere can be gone on with."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.errors import InputError, OutputError
from fcjax.io.files import ResultsWriter, encode_result, read_finished, read_results

NAMES = ["results.jsonl", "results.jsonl.gz", "results.json", "results.json.gz"]
RESULTS: list[dict[str, Any]] = [{"id": f"case {i}", "p": i / 7, "text": "é\n{{x}}]"} for i in range(6)]


def write(path: Any, results: list[dict[str, Any]], keep: int = 0) -> None:
    with ResultsWriter(path, keep) as writer:
        for result in results:
            writer.write(result)


def write_and_stop(path: Any, results: list[dict[str, Any]], keep: int = 0) -> None:
    with suppress(KeyboardInterrupt), ResultsWriter(path, keep) as writer:
        for result in results:
            writer.write(result)
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", NAMES)
def test_results_are_read_back_rounded(tmp_path, name):
    write(tmp_path / name, RESULTS)
    expected = [result | {"p": round(result["p"], 7)} for result in RESULTS]
    assert list(read_results(tmp_path / name)) == expected
    assert [finished.result for finished in read_finished(tmp_path / name)] == expected
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("done", range(7))
def test_a_stopped_run_gone_on_with_gives_the_same_bytes(tmp_path, name, done):
    whole, stopped = tmp_path / name, tmp_path / ("again." + name)
    write(whole, RESULTS)
    write_and_stop(stopped, RESULTS[:done])
    finished = list(read_finished(stopped))
    assert [line.result["id"] for line in finished] == [result["id"] for result in RESULTS[:done]]
    write(stopped, RESULTS[done:], keep=finished[-1].end if finished else 0)
    assert stopped.read_bytes() == whole.read_bytes()
    assert len(os.listdir(tmp_path)) == 2


@given(st.data())
def test_a_file_cut_at_any_byte_keeps_its_complete_lines(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "results.jsonl"
    write(path, RESULTS)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    finished = list(read_finished(path))
    assert len(finished) == whole[:cut].count(b"\n")
    write(path, RESULTS[len(finished) :], keep=finished[-1].end if finished else 0)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("rest", [b'{"id": "x"', b'{"id": "x"}', b"\x00\x00\x00\n" + b'{"id": "x"}\n', b"17\n", b"\n"])
def test_what_follows_a_line_that_is_no_result_is_dropped(tmp_path, rest):
    path = tmp_path / "results.jsonl"
    write(path, RESULTS[:2])
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    finished = list(read_finished(path))
    assert finished[-1].end == len(whole)
    write(path, [], keep=finished[-1].end)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("name", NAMES)
def test_some_of_a_complete_file_can_be_kept(tmp_path, name):
    write(tmp_path / name, RESULTS)
    second = list(read_finished(tmp_path / name))[1]
    write(tmp_path / name, RESULTS[4:], keep=second.end)
    assert [result["id"] for result in read_results(tmp_path / name)] == ["case 0", "case 1", "case 4", "case 5"]
    write(tmp_path / name, RESULTS[:1])
    assert [result["id"] for result in read_results(tmp_path / name)] == ["case 0"]


@pytest.mark.parametrize("name", NAMES[1:])  # plain lines are appended in place
def test_the_last_complete_file_stays_until_the_next_one_is(tmp_path, name):
    write(tmp_path / name, RESULTS)
    whole = (tmp_path / name).read_bytes()
    write_and_stop(tmp_path / name, RESULTS[:2])
    assert (tmp_path / name).read_bytes() == whole


def test_there_is_nothing_finished_where_there_is_no_file(tmp_path):
    assert list(read_finished(tmp_path / "none.jsonl")) == []
    assert list(read_finished(tmp_path / "none.jsonl.gz")) == []
    (tmp_path / "empty.jsonl").touch()
    assert list(read_finished(tmp_path / "empty.jsonl")) == []


def test_a_folder_that_is_missing_is_told(tmp_path):
    with pytest.raises(OutputError, match="create the folder first"):
        ResultsWriter(tmp_path / "none" / "results.jsonl.gz")


def test_standard_output_gets_each_line_at_once(capfdbinary):
    with ResultsWriter("-") as writer:
        writer.write({"id": "a"})
        assert capfdbinary.readouterr().out == b'{"id":"a"}\n'


def test_a_row_that_is_no_result_is_told(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"id": "a"}\nno\n')
    with pytest.raises(InputError, match=r"results\.jsonl:2: not JSON"):
        list(read_results(path))


_numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), _numbers, st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), _json))
def test_a_line_says_the_same_after_it_was_read(result):
    line = encode_result(result)
    assert b"\n" not in line
    assert encode_result(json.loads(line)) == line


def test_numbers_have_seven_digits_and_no_minus_zero():
    line = encode_result({"p": 1 / 3, "list": [0.1 + 0.2, -1e-9, 1e-8], "n": 10**15, "sure": True, "z": -441.123456789})
    assert line == b'{"p":0.3333333,"list":[0.3,0.0,0.0],"n":1000000000000000,"sure":true,"z":-441.1234568}'


def test_what_is_no_number_becomes_null():
    assert encode_result({"a": math.nan, "b": [math.inf]}) == b'{"a":null,"b":[null]}'
