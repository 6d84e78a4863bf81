"""What every test may use."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 300.0
"""The time limit of a test, and of the set-up and tear-down of its fixtures; `slow` tests have three times as long.
FCJAX_TEST_SECONDS changes it; 0 means no limit."""
GRACE = 30.0
"""Seconds after which a test that has survived its limit is interrupted again. After two of them the process ends."""

# A background job of a shell ignores SIGINT, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests, workers and the commands that they start compile the same programs; JAX reads this when it is imported.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# Most of their time would go to optimising programs that run for milliseconds; `make parity` runs them optimised.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# The machine's speed is no property of the code; CI draws the same examples every time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project."""
    return ROOT


class OverTime(BaseException):
    """A test has run past its time limit. Not an `Exception`, so that no code under test handles it."""


@contextmanager
def time_limit(seconds: float, grace: float, stderr: int) -> Iterator[None]:
    """Raise `OverTime` in the main thread after `seconds`, and again after each `grace`.

    A process that does not come back to Python even then, such as one that hangs in a compiled loop or waits for a
    thread, writes the stacks of all threads to the file descriptor `stderr` and ends.
    """
    if not seconds or threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(*_: object) -> None:
        overtime.append(True)
        raise OverTime(f"the test has run past its time limit of {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    faulthandler.dump_traceback_later(seconds + 2 * grace, exit=True, file=stderr)
    signal.setitimer(signal.ITIMER_REAL, seconds, grace)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


overtime: list[bool] = []
"""An entry for each `OverTime`."""

_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)  # before a test's output is captured


def pytest_unconfigure(config: pytest.Config) -> None:
    if overtime:  # the exit of the interpreter may wait for a thread that hangs
        faulthandler.dump_traceback_later(GRACE, exit=True, file=config.stash[_STDERR])


@contextmanager
def _limit_of(item: pytest.Item) -> Iterator[None]:
    seconds = float(os.environ.get("FCJAX_TEST_SECONDS", SECONDS)) * (3 if item.get_closest_marker("slow") else 1)
    with time_limit(seconds, GRACE, item.config.stash[_STDERR]):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _limit_of(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _limit_of(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with _limit_of(item):
        yield
