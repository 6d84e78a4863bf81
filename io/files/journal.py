"""The journal of a run: what each stage changed in each case, so that a stopped run can be resumed.

A file of lines. The first says what the run is of; each of the others has the fields of one case that one stage has
changed, and those alone. Each line is handed to the system before the next one is written, so that a process which
is killed loses at most one line.
"""

from __future__ import annotations

import stat
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson

from fcjax.core.errors import OutputError
from fcjax.io.files.streams import LineWriter, Source, output_name

VERSION: Final = 1
_AHEAD: Final = 1 << 24  # cases that may lie between one with an entry and the next; a number beyond is damage
_BEGINNING: Final = b'{"journal":'


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What a stage has changed in a case, by the names that its fields have in a file of cases."""

    stage: str
    changed: Mapping[str, Any]
    gone: tuple[str, ...] = ()

    def applied(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The case, as JSON, after the stage."""
        return {key: value for key, value in {**record, **self.changed}.items() if key not in self.gone}


def _case_of(line: bytes) -> int:
    """The place of the case that an entry is about; -1 for a line that is not an entry."""
    try:
        entry = orjson.loads(line) if line.endswith(b"\n") else None
    except orjson.JSONDecodeError:
        return -1
    if not isinstance(entry, dict) or type(case := entry.get("case")) is not int:
        return -1
    gone = entry.get("gone", [])
    whole = isinstance(entry.get("stage"), str) and isinstance(entry.get("set"), dict) and isinstance(gone, list)
    return case if whole and all(isinstance(name, str) for name in gone) else -1


class Journal:
    """The journal at `path` of the run with this `fingerprint`; entries of an earlier run are kept.

    In memory it holds two numbers per entry. A last line that was cut short, and everything after a line which is not
    an entry, is dropped. Use it in a `with` block, by one run at a time.

    Raises `OutputError` where the file is another run's or not a journal, and `overwrite` is not set; and where it
    cannot be written.
    """

    def __init__(self, path: Source, fingerprint: str, *, overwrite: bool = False):
        self._path = Path(path)
        self._last = array("q")  # [case] the number of its last entry, or -1
        self._before = array("q")  # [entry] the number of the same case's entry before it, or -1
        self._offset = array("q")  # [entry] where it begins in the file
        header = orjson.dumps({"journal": VERSION, "fingerprint": fingerprint})
        end = 0 if overwrite else self._look(header)
        self._lines = LineWriter(path, keep=end, private=True)
        try:
            if not end:
                self._lines.write(header)
            self._file = open(path, "rb")
        except BaseException:
            self._lines.close()
            raise

    def _look(self, header: bytes) -> int:
        """Find the entries that are there; returns where the last one ends."""
        try:
            if not stat.S_ISREG(self._path.lstat().st_mode):  # a link may lead to another's file, a pipe never ends
                raise OutputError(f"{output_name(self._path)}: is a link, or not a regular file; remove it")
        except FileNotFoundError:
            return 0
        except NotADirectoryError:
            return 0  # opening it says so
        try:
            with open(self._path, "rb") as lines:
                first = lines.readline()
                if first != header + b"\n":
                    self._check_beginning(first, header)
                    return 0
                end = len(first)
                for line in lines:
                    case = _case_of(line)
                    if not 0 <= case < len(self._last) + _AHEAD:
                        break
                    self._add(case, end)
                    end += len(line)
                return end
        except OutputError:
            raise
        except OSError as error:
            raise OutputError(f"{output_name(self._path)}: cannot be read: {error.strerror or error}") from error

    def _check_beginning(self, first: bytes, header: bytes) -> None:
        """Raise unless the file was cut short in its first line."""
        if (first.startswith(_BEGINNING) or _BEGINNING.startswith(first)) and not first.endswith(b"\n"):
            return
        if first.startswith(_BEGINNING):
            seen = "contains the stages of another run, with different input or settings"
            remedy = "use those to resume it, choose another output, or start over with --overwrite (overwrite=True)"
        else:
            seen = "is not a run's journal, which is kept under this name until the run is complete"
            remedy = "move it, or choose another output; --overwrite (overwrite=True) would replace it"
        raise OutputError(f"{output_name(self._path)}: {seen}; {remedy}")

    def _add(self, case: int, offset: int) -> None:
        if case >= len(self._last):
            self._last.extend([-1] * (case + 1 - len(self._last)))
        self._before.append(self._last[case])
        self._last[case] = len(self._offset)
        self._offset.append(offset)

    def entries(self, case: int) -> list[JournalEntry]:
        """The entries of an earlier run about a case, by its place from 0, in order."""
        found: list[JournalEntry] = []
        number = self._last[case] if case < len(self._last) else -1
        while number >= 0:
            self._file.seek(self._offset[number])
            line = orjson.loads(self._file.readline())
            found.append(JournalEntry(line["stage"], line["set"], tuple(line.get("gone", ()))))
            number = self._before[number]
        return found[::-1]

    def write(self, case: int, stage: str, changed: Mapping[str, Any], gone: Iterable[str] = ()) -> None:
        """Write what a stage has changed in a case, for later runs: `entries` of this run does not see it."""
        line = {"case": case, "stage": stage, "set": changed}
        if names := list(gone):
            line["gone"] = names
        self._lines.write(orjson.dumps(line))

    def close(self) -> None:
        self._file.close()
        self._lines.close()

    def remove(self) -> None:
        """Close the journal and delete it: the run is complete."""
        self.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
