"""Hostile files through the commands that read cases: bounds on time and memory, and faults that stay in their row."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time

import pytest
from command import OK, SCRIPT, SOME_FAILED, UNUSABLE, fcjax

CHILD = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, timeout=100)
sys.stdout.buffer.write(done.stdout + done.stderr)
print()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def measured(*args):
    """What a command prints, its exit code, its CPU time in seconds and the most memory that it held, in MB."""
    done = subprocess.run([sys.executable, "-P", "-c", CHILD, SCRIPT, *args], capture_output=True, check=True)
    said, _, last = done.stdout.decode().rstrip("\n").rpartition("\n")
    code, seconds, held = last.split()
    return said, int(code), float(seconds), int(held) / (1000 if sys.platform == "linux" else 1_000_000)


@pytest.mark.skipif(os.name != "posix", reason="the system does not measure processes")
@pytest.mark.parametrize("command", ["score", "validate"])
@pytest.mark.parametrize(
    ("name", "says"),
    [("numbers.json", "over 100,000 of them no objects"), ("numbers.jsonl", "[0] is NaN"),
     ("objects.json.gz", "too many values"), ("objects.jsonl.gz", "the line has 240,000,004 bytes")],
)  # fmt: skip
def test_large_lists_take_little_time_and_memory(name, says, command, tmp_path):
    """12 MB of NaN, and 233 kB of gzip that hold 80,000,000 objects."""
    path = tmp_path / name
    if name.startswith("numbers"):
        path.write_bytes(b"[" + b",".join([b"NaN"] * 3_000_000) + b"]\n")
    else:
        part = b"{}," * 4_000_000
        with gzip.open(path, "wb", 9) as stream:
            stream.write(b"[")
            for _ in range(20):
                stream.write(part)
            stream.write(b"{}]")
    said, code, seconds, held = measured(command, path)
    assert code == (UNUSABLE if command == "score" else SOME_FAILED)
    assert says in said
    assert len(said) < 50_000
    assert seconds < 10
    assert held < 500


CASE = {
    "atoms": [{"id": "a", "text": "A"}],
    "contexts": [{"id": "c", "text": "x"}],
    "relations": [{"source": "c", "target": "a", "type": "entailment", "probability": 0.9}],
}


@pytest.mark.parametrize("place", ["case", "atoms", "contexts", "relations", "graph"])
@pytest.mark.parametrize("levels", [241, 300, 900, 100_000])
def test_an_unknown_key_that_is_nested_deep_is_the_fault_of_its_row(levels, place, tmp_path):
    row = json.loads(json.dumps(CASE | {"id": "deep"}))
    if place == "graph":
        row = {"id": "deep", "nodes": [{"id": "a", "type": "atom"}], "edges": []}
    (row[place][0] if place in row else row)["extra"] = "DEEP"
    path, out = tmp_path / "cases.jsonl", tmp_path / "results.jsonl"
    deep = json.dumps(row).replace('"DEEP"', "[" * levels + "]" * levels)
    path.write_text(f"{deep}\n{json.dumps(CASE | {'id': 'good'})}\n")
    start = time.perf_counter()
    done = fcjax("score", path, "-o", out)
    checked = fcjax("validate", path, "--json")
    assert time.perf_counter() - start < 20
    first, second = map(json.loads, out.read_text().splitlines())
    assert (done.returncode, checked.returncode) == (SOME_FAILED, SOME_FAILED)
    assert (first["id"], first["status"]) == ("deep", "invalid_input") if levels < 1000 else first["status"]
    assert second["status"] == "ok"
    (fault,) = json.loads(checked.stdout)["files"][0]["faults"]
    if levels < 1000:
        assert "is nested too deep; allowed: at most 240 levels of lists and objects" in first["reason"]
        assert "is nested too deep; allowed: at most 240 levels of lists and objects" in fault["message"]


def test_a_key_that_is_nested_as_deep_as_it_may_be_is_scored(tmp_path):
    path, out = tmp_path / "cases.jsonl", tmp_path / "results.jsonl"
    text = json.dumps(CASE | {"id": "good", "extra": "DEEP"})
    path.write_text(text.replace('"DEEP"', "[" * 239 + "]" * 239) + "\n" + text + "\n")
    assert fcjax("score", path, "-o", out).returncode == OK
    first, second = map(json.loads, out.read_text().splitlines())
    assert first["atoms"] == second["atoms"]
