"""Results (SPEC 7): one JSON line per case, byte-for-byte reproducible, in a file that can be resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from fcjax.core.errors import Fault, InputError
from fcjax.io.files.objects import kind, read_objects
from fcjax.io.files.streams import LineWriter, Source, display_name, replacing, write_lines

DIGITS = 7
"""Decimals that numbers in results are rounded to (SPEC 7)."""


def encode_result(result: Mapping[str, Any]) -> bytes:
    """The line of a result, without the newline: keys in the given order, floats rounded to `DIGITS` decimals.

    NaN and infinities become null: JSON cannot express them.
    """
    return orjson.dumps(_rounded(result))


def _rounded(value: Any) -> Any:
    kind = type(value)  # exact types first: a results file is made of them, by the million
    if kind is float:
        return round(value, DIGITS) + 0.0  # minus zero becomes zero
    if kind is str or kind is int or value is None:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(part) for part in value]
    return _rounded(float(value)) if isinstance(value, float) else value


def read_results(path: Source) -> Iterator[dict[str, Any]]:
    """The results of a complete file, as a stream. Raises `InputError` at the first row that is not a result."""
    name = display_name(path)
    for item in read_objects(path):
        if item.faults:
            raise InputError(*(item.located(fault, name) for fault in item.faults))
        if not isinstance(item.value, dict):
            fault = Fault(f"the result is {kind(item.value)}; allowed: a JSON object")
            raise InputError(item.located(fault, name))
        yield item.value


@dataclass(frozen=True, slots=True)
class Finished:
    """One finished line of an interrupted results file."""

    result: dict[str, Any]
    end: int  # bytes from the start of the file to the end of this line


def read_finished(path: Source) -> Iterator[Finished]:
    """The finished results of a file that a stopped run may have left, in order; none if there is no file.

    A last line that was cut short is left out, and so is all that follows a line that is not a JSON object. Give the
    last `end` to `ResultsWriter` as `keep` to continue after it.
    """
    path, work, end = Path(path), working_file(path), 0
    if not work.is_file():
        if work == path or not path.is_file() or not path.stat().st_size:
            return
        for result in read_results(path):  # a complete file in another container than plain lines
            end += len(orjson.dumps(result)) + 1
            yield Finished(result, end)
        return
    with open(work, "rb") as stream:
        for line in stream:
            try:
                value = orjson.loads(line) if line.endswith(b"\n") else None
            except orjson.JSONDecodeError:
                value = None
            if not isinstance(value, dict):
                return
            end += len(line)
            yield Finished(value, end)


def working_file(path: Source) -> Path:
    """The file a run appends its lines to: the output itself if it has plain lines, else a file next to it."""
    path = Path(path)
    packed = path.suffix in (".gz", ".json")
    return path.with_name(path.name + ".part") if packed else path


class ResultsWriter:
    """Appends results to a file, one line each; it can continue a file that an earlier run has left.

    A name that ends in `.gz` or `.json` is written when the run is complete; until then the lines gather in a file of
    the same name with `.part` appended. Use it in a `with` block: a block that fails leaves the finished lines.
    Raises `OutputError`.
    """

    def __init__(self, path: Source, keep: int = 0):
        """`keep` is the `end` of the last line of `read_finished` that is to stay; what comes after it is dropped."""
        self._path = Path(path)
        self._work = working_file(path)
        if keep and not self._work.exists():
            with replacing(self._work, private=True) as lines:
                for finished in takewhile(lambda finished: finished.end <= keep, read_finished(path)):
                    lines.write(orjson.dumps(finished.result) + b"\n")
        self._lines = LineWriter(self._work, keep, private=self._work != self._path)

    def write(self, result: Mapping[str, Any]) -> None:
        """Append one result; it is in the file when the call returns."""
        self._lines.write(encode_result(result))

    def close(self, complete: bool = True) -> None:
        """Close the file; the lines of a `complete` run are moved to their final place."""
        self._lines.close()
        if complete and self._work != self._path:
            with open(self._work, "rb") as lines:
                write_lines(self._path, (line.rstrip(b"\n") for line in lines))
            self._work.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(complete=type is None)
