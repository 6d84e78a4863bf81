"""The progress of a grid: which steps are done, what they report, and who observes them."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from fcjax.core.errors import OutputError
from fcjax.io.files.streams import replacing
from fcjax.runs.observer import RunObserver
from fcjax.scoring.summary import has_failed


class GridObserver(Protocol):
    """Is called as a grid runs."""

    def begins(self, steps: int) -> None:
        """The grid has this many steps, done before or not."""

    def starts(self, name: str) -> None:
        """A step starts that was not done before."""

    def case(self) -> None:
        """A case of the step that started last is done."""

    def step(self, name: str, kept: bool, failed: int) -> None:
        """A step is done, or is `kept` from an earlier run; in `failed` of its cases something failed."""


class CaseObserver(RunObserver):
    """Reports every finished case of a file that is critiqued or corrected to the observer of the grid."""

    def __init__(self, observer: GridObserver | None):
        self._observer = observer

    def case(self, finished: Any, kept: bool) -> None:
        if self._observer:
            self._observer.case()


@dataclass(slots=True)
class GridReport:
    """The result of a run of a grid."""

    steps: int = 0
    kept: int = 0  # steps that were done before
    failed: dict[str, int] = field(default_factory=dict)  # failures by step
    statuses: dict[str, Counter[str]] = field(default_factory=dict)  # of the corrections, by cell

    @property
    def n_failed(self) -> int:
        """The failures of all steps, and the cases that could not be corrected."""
        lost = sum(count for found in self.statuses.values() for status, count in found.items() if has_failed(status))
        return sum(self.failed.values()) + lost


class GridState:
    """The steps that are done, by name, each with the fingerprint of what it was made from; kept in a file."""

    def __init__(self, path: Path):
        self._path = path
        self._done: dict[str, str] = {}
        if path.is_file():
            try:
                self._done = dict(orjson.loads(path.read_bytes()))
            except (OSError, ValueError, TypeError) as error:
                raise OutputError(
                    f"{path}: does not contain the state of an evaluation; specify another folder"
                ) from error

    def has(self, name: str, fingerprint: str) -> bool:
        return self._done.get(name) == fingerprint

    def note(self, name: str, fingerprint: str | None) -> None:
        """Note that a step is done, or with None that it is not."""
        self._done.pop(name, None)
        if fingerprint is not None:
            self._done[name] = fingerprint
        with replacing(self._path, private=True) as out:
            out.write(orjson.dumps(self._done, option=orjson.OPT_INDENT_2))


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def drop_journal_of_others(journal: Path, fingerprint: str) -> None:
    """Delete the journal of a run with other settings; its replies are in the store."""
    if journal.is_file():
        with open(journal, "rb") as lines:
            if fingerprint.encode() not in lines.readline():
                journal.unlink()
