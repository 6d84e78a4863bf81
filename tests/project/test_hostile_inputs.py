"""A short run of the fuzz over all readers and of their times; `make fuzz` takes longer over both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
ENV = {**os.environ, "PYTHONSAFEPATH": "1"}


def run(script, *words):
    command = [sys.executable, str(FOLDER / script), *words]
    return subprocess.run(command, env=ENV, capture_output=True, text=True, check=False)


def test_no_reader_fails_on_a_hostile_input(tmp_path):
    done = run("fuzz_readers.py", "--inputs", "40", "--seed", "12", "--out", str(tmp_path))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = json.loads((tmp_path / "fuzz.json").read_text())["rows"]
    assert len(rows) > 40
    assert all(row["inputs"] == 40 and row["refused"] < 40 and not row["crashes"] for row in rows)


def test_an_input_is_repeated_by_its_number():
    done = run("fuzz_readers.py", "--reader", "plans", "--seed", "3", "--number", "40")
    again = run("fuzz_readers.py", "--reader", "plans", "--seed", "3", "--number", "40")
    size = done.stdout.split(",")[0]
    assert size.startswith("plans (YAML) 40: ")
    assert size == again.stdout.split(",")[0]


@pytest.mark.slow
def test_readers_take_twice_the_time_for_twice_the_text(tmp_path):
    """Of texts that are small, so that the test is short; `tests/stages/test_hostile_answers.py` has other readers."""
    names = ("UAI", "TOML", "priors", "responses", "headers", "revisions", "refusals", "corpus")
    chosen = [word for name in names for word in ("--reader", name)]
    done = run("linear_readers.py", "--largest", "0.2", "--screened", "1000", *chosen, "--out", str(tmp_path))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = json.loads((tmp_path / "linear.json").read_text())
    assert {row["reader"] for row in rows} >= {"UAI models", "headers", "responses of a model server"}
