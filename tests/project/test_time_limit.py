"""The time limit of every test: one that hangs fails, with a traceback, and those after it run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HANGS = """\
import asyncio, threading, time, signal

def test_waits_for_a_lock():
    threading.Semaphore(0).acquire()

def test_waits_in_an_event_loop():
    async def wait():
        await asyncio.Event().wait()
    asyncio.run(wait())

def test_handles_every_exception():
    while True:
        try:
            time.sleep(60)
        except Exception:
            pass

def test_leaves_no_timer_behind():
    assert signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL

def test_is_quick():
    time.sleep(0.01)
"""


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_a_test_that_hangs_fails_and_the_next_one_runs(root: Path, tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "conftest.py").write_text((root / "tests" / "conftest.py").read_text())
    (tmp_path / "test_hangs.py").write_text(HANGS)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", *workers, "test_hangs.py"]
    env = {**os.environ, "FCJAX_TEST_SECONDS": "1"}
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert "3 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("OverTime: the test has run past its time limit of 1 s") >= 3
    assert "threading.Semaphore(0).acquire()" in done.stdout  # where it hung
