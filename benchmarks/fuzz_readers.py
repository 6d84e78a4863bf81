"""A fuzz over all readers of bytes from outside: replies, responses, pages, files.

    python -P benchmarks/fuzz_readers.py --minutes 20 --seed 0 --out fuzz

Each reader gets a share of the time. Its inputs are seeded mutations of valid ones, so that input 17 of a reader and a
seed is always the same. A crash is any exception that the reader does not declare, or more than `--seconds` for one
input; its input is written to the output folder, with the command that repeats it. Exit code 1 if there was any. Times
are CPU time, since a busy machine would be taken for a slow reader; of readers in other processes, they are wall time.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import shlex
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]

import file_readers  # noqa: E402
import wire_readers  # noqa: E402
from machine import forget_peak, peak_mib  # noqa: E402
from mutations import mutated  # noqa: E402
from reply_readers import Reader  # noqa: E402

SECONDS: Final = 12.0
"""Seconds that an input may take; pages and PDFs have a deadline of 10 of their own."""
WALL: Final = 5
"""Times as long as that, by the clock on the wall, an input is given up."""
MEMORY: Final = 6 << 30  # bytes of address space
_KEPT: Final = 20  # crashes of a reader that are written
_STUCK: Final = 60.0  # seconds until a reader that no signal reaches ends the program


class TooSlowError(BaseException):
    """An input takes too long. Not an `Exception`, which readers may catch."""


@dataclass
class Crash:
    """An input that a reader fails on."""

    reader: str
    number: int
    error: str
    where: str
    seconds: float
    bytes: int


@dataclass
class Row:
    """The result of one reader. `refused` counts the inputs with an exception that the reader declares."""

    reader: str
    inputs: int = 0
    refused: int = 0
    seconds: float = 0.0
    largest: int = 0  # bytes
    slowest: float = 0.0  # seconds
    slowest_bytes: int = 0
    slowest_number: int = -1
    peak_mib: float = 0.0
    crashes: list[Crash] = field(default_factory=list)
    n_crashes: int = 0


def readers(names: Sequence[str] = ()) -> list[Reader]:
    """All readers, or those whose name contains one of `names`."""
    found = [*wire_readers.readers(), *file_readers.readers()]
    return [one for one in found if not names or any(name in one.name for name in names)]


def input_of(reader: Reader, seed: int, number: int) -> bytes:
    """An input of a reader; the first ones are the valid inputs themselves."""
    if number < len(reader.seeds):
        return reader.seeds[number]
    return mutated(Random(f"{seed} {reader.name} {number}"), reader.seeds)


def tried(reader: Reader, data: bytes, seconds: float) -> tuple[bool, BaseException | None, float]:
    """Whether a reader takes an input, what it raises otherwise, and the seconds that it took."""
    error: BaseException | None = None
    clock = time.perf_counter if reader.elsewhere else time.process_time
    began = clock()
    with _deadline(WALL * seconds):
        try:
            reader.read(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as raised:
            error = raised
    return error is None, error, clock() - began


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"over {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fuzzed(
    reader: Reader,
    seed: int,
    *,
    until: float = float("inf"),
    inputs: int | None = None,
    seconds: float = SECONDS,
    out: Path | None = None,
) -> Row:
    """Try `inputs` inputs on a reader, or as many as fit until the time `until` of `time.monotonic`."""
    row, seen = Row(reader.name), Counter[str]()
    current = None if out is None else open(out / "current-input", "wb", buffering=0)
    forget_peak()
    began = time.monotonic()
    number = 0
    while (inputs is None or number < inputs) and time.monotonic() < until:
        data = input_of(reader, seed, number)
        if current is not None:  # what is left there if the process dies
            current.seek(0)
            current.truncate()
            current.write(f"{reader.name} {seed} {number}\n".encode() + data)
        faulthandler.dump_traceback_later(_STUCK + WALL * seconds, exit=True)
        fine, error, took = tried(reader, data, seconds)
        faulthandler.cancel_dump_traceback_later()
        row.inputs += 1
        row.largest = max(row.largest, len(data))
        if took > row.slowest:
            row.slowest, row.slowest_bytes, row.slowest_number = took, len(data), number
        if isinstance(error, reader.errors):
            row.refused += 1
        if took > seconds or not (fine or isinstance(error, reader.errors)):
            row.n_crashes += 1
            crash = Crash(
                reader.name, number, f"{type(error).__name__}: {error!s:.200}", _where(error), took, len(data)
            )
            seen[crash.where] += 1
            if seen[crash.where] <= 3 and len(row.crashes) < _KEPT:
                row.crashes.append(crash)
                if out is not None:
                    _write(out, crash, data, seed, error)
        number += 1
    row.seconds, row.peak_mib = time.monotonic() - began, peak_mib()
    if current is not None:
        current.close()
    return row


def _where(error: BaseException | None) -> str:
    """The last place of ours in a traceback."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    ours = [frame for frame in frames if "/benchmarks/" not in frame.filename and "site-packages" not in frame.filename]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {type(error).__name__}" if ours else "too slow"


def _write(out: Path, crash: Crash, data: bytes, seed: int, error: BaseException | None) -> None:
    name = "".join(sign if sign.isalnum() else "-" for sign in crash.reader)
    path = out / f"crash-{name}-{crash.number}"
    path.with_suffix(".input").write_bytes(data)
    repeat = ["python", "-P", "benchmarks/fuzz_readers.py", "--reader", crash.reader, "--seed", str(seed)]
    lines = [shlex.join([*repeat, "--number", str(crash.number)])]
    lines += traceback.format_exception(error)[-40:] if error else [f"{crash.seconds:.1f} s"]
    path.with_suffix(".txt").write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")


def table(rows: Sequence[Row]) -> str:
    """The results as Markdown."""
    lines = [
        "| reader | inputs | refused | crashes | slowest | its size | largest | peak memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total = Row("all")
    for row in rows:
        total.inputs, total.refused = total.inputs + row.inputs, total.refused + row.refused
        total.n_crashes += row.n_crashes
        total.largest, total.peak_mib = max(total.largest, row.largest), max(total.peak_mib, row.peak_mib)
        if row.slowest > total.slowest:
            total.slowest, total.slowest_bytes = row.slowest, row.slowest_bytes
    for row in (*rows, total):
        lines.append(
            f"| {row.reader} | {row.inputs:,} | {row.refused:,} | {row.n_crashes} | {row.slowest:.3f} s "
            f"| {row.slowest_bytes:,} B | {row.largest:,} B | {row.peak_mib:.0f} MiB |"
        )
    return "\n".join(lines) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    chosen = readers(options.reader)
    if not chosen:
        print(f"--reader is {options.reader}; allowed: part of a reader's name", file=sys.stderr)
        return 2
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        if options.number is not None:
            return _once(chosen[0], options)
        options.out.mkdir(parents=True, exist_ok=True)
        began, shares = time.monotonic(), sum(one.share for one in chosen)
        rows: list[Row] = []
        done = 0.0
        for reader in chosen:
            done += reader.share
            until = began + 60 * options.minutes * done / shares if options.inputs is None else float("inf")
            limits: dict[str, Any] = {"until": until, "inputs": options.inputs, "seconds": options.seconds}
            rows.append(fuzzed(reader, options.seed, out=options.out, **limits))
            print(table(rows[-1:]).splitlines()[2], flush=True)
            (options.out / "fuzz.md").write_text(table(rows))
            record = {"seed": options.seed, "minutes": (time.monotonic() - began) / 60, "rows": list(map(asdict, rows))}
            (options.out / "fuzz.json").write_text(json.dumps(record, indent=1, ensure_ascii=True) + "\n")
        (options.out / "current-input").unlink()
    finally:
        file_readers.clean_up()
        wire_readers.WORKERS.close()
    print(table(rows))
    return 1 if any(row.n_crashes for row in rows) else 0


def _once(reader: Reader, options: argparse.Namespace) -> int:
    data = input_of(reader, options.seed, options.number)
    fine, error, took = tried(reader, data, options.seconds)
    print(f"{reader.name} {options.number}: {len(data):,} bytes, {took:.3f} s")
    if error is not None:
        traceback.print_exception(error)
    return 0 if fine or isinstance(error, reader.errors) else 1


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="time for all readers together")
    parser.add_argument("--inputs", type=int, help="inputs per reader, instead of a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that one input may take")
    parser.add_argument("--reader", action="append", default=[], help="only readers with this in their name")
    parser.add_argument("--number", type=int, help="only this input of the first reader")
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "fuzz")
    return parser.parse_args(words)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads and loops of clients are left behind
