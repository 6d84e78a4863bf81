"""One run over a file of cases: the sequence that scoring, relating, critiquing and correcting a file share.

The outputs are checked, the input is made readable more than once, the first look is taken, the outputs are locked, and
the journal of an earlier run is opened. Then cases come out of an asynchronous stream, in order; their rows wait on
disk until K, the median number of atoms of the whole file (SPEC 5), is known.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from fcjax.core.errors import InputError, OutputError, counted
from fcjax.core.prompts import PendingError
from fcjax.io.files import encode_result
from fcjax.io.files.journal import Journal
from fcjax.io.files.locks import locked
from fcjax.io.files.spool import Spool, readable_twice
from fcjax.io.files.streams import (
    Source,
    check_folder,
    drop_drafts,
    is_stream,
    output_name,
    refuse_input,
    write_lines,
)
from fcjax.io.own_loop import OwnLoop
from fcjax.runs.observer import Preview, RunObserver
from fcjax.scoring.measures import K, median_k
from fcjax.scoring.rows import Row

if TYPE_CHECKING:
    from fcjax.core.passages import Retriever
    from fcjax.io.client import Client

Found = TypeVar("Found", bound=Preview)
Item = TypeVar("Item")

_CONTAINERS: Final = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished case as JSON, and its row as far as it is known without K; None where a run writes cases only."""

    case: bytes
    row: bytes | None = None
    digest: bytes = b""  # of the case that the row's fingerprint rests on
    atoms: int | None = None  # that K is made from


@dataclass(slots=True)
class FileRun(Generic[Found]):
    """A run over a file that has begun (see `begin_run`)."""

    path: str  # of the input, readable any number of times
    found: Found
    journal: Journal | None
    observer: RunObserver
    _out: Source | None
    _cases_out: Source | None
    _loop: OwnLoop
    _spool: Spool
    _private: bool

    def write_cases(
        self,
        items: AsyncGenerator[Item, None],
        finish: Callable[[int, Item], Finished],
        clients: Iterable[Client],
        retriever: Retriever | None = None,
        *,
        has_answers: Callable[[], bool] = lambda: True,
    ) -> None:
        """Write the case of every item, by `finish(place, item)`, and keep its row until `write_rows`.

        Clients and retriever are closed in the end, and a half-written file is dropped. Raises `InputError` where a
        replay that has no answer at all would take a file's place: without any reply, or, where `has_answers()` is
        false in the end, without one that could be read; and `PendingError` where replies come later, from a batch.
        """
        asked = list(clients)
        stream = cast("AsyncGeneratorType[Item, None]", _with_resources(items, asked, retriever))

        def lines() -> Iterator[bytes]:
            place = 0
            while (item := self._loop.run(_next(stream))) is not None:
                done = finish(place, item)
                if done.row is not None:
                    self._spool.add(done.row, done.digest, done.atoms)
                place += 1
                yield done.case
            if pending := max((client.pending for client in asked), default=0):
                raise PendingError(f"{counted(pending, 'prompt')} to be answered by a batch")
            self._refuse_empty_replay(asked, has_answers)

        try:
            if self._cases_out is None:
                deque(lines(), maxlen=0)
            else:
                write_lines(self._cases_out, lines(), private=self._private)
        finally:
            if not stream.ag_running:  # else a second interrupt came while it was ending, and the loop ends it
                self._loop.run(stream.aclose())

    def k(self, given: K | None) -> K:
        """K as it is `given`, or else by all cases that are finished."""
        return given or median_k(self._spool.atoms)

    def write_rows(self, complete: Callable[[Row, bytes], Row]) -> None:
        """Write the results, by `complete(row, digest)` with the digest of the case; then the run is complete."""
        assert self._out is not None

        def lines() -> Iterator[bytes]:
            for waiting, digest in self._spool:
                row = complete(waiting, digest)
                self.observer.row(row, kept=False)
                yield encode_result(row)

        write_lines(self._out, lines(), private=self._private)
        if self.journal is not None:
            self.journal.remove()

    def _refuse_empty_replay(self, clients: list[Client], has_answers: Callable[[], bool]) -> None:
        """Raise where a replay without any answer would take the place of a file."""
        asked = sum(client.stats.asked for client in clients)
        if not asked or any(client.stats.sent for client in clients):
            return
        if any(client.stats.answered for client in clients) and has_answers():
            return
        for out in (self._out, self._cases_out):
            if out is not None and os.path.isfile(out):
                seen = f"the store has no answer to any of {counted(asked, 'prompt')}, so the file is unchanged"
                raise InputError(f"{output_name(out)}: {seen}; use the model and settings of the run to be repeated")


@contextmanager
def begin_run(
    source: Source,
    out: Source | None,
    first_look: Callable[[str], Found],
    observer: RunObserver | None,
    *,
    cases_out: Source | None = None,
    journal: str | None = None,
    overwrite: bool = False,
    appends: bool = False,
    private: bool = False,
) -> Iterator[FileRun[Found]]:
    """Begin a run: `first_look(path)` says what is there to do, and `observer` hears of it.

    Results go to `out` and cases to `cases_out`, where these are not None; both take their places when they are
    complete, unless the run `appends`; only this user may read them if they are `private`. `journal` is the ending
    of the journal's name beside `out`; there is none beside a stream. Raises `OutputError` where an output is the
    input, or another output, cannot be written, or is in use by another run, and where the journal is another run's
    and `overwrite` is not set; and what `first_look` raises.
    """
    observer = observer or RunObserver()
    outs = [one for one in (out, cases_out) if one is not None]
    beside = None if journal is None or out is None or is_stream(out) else f"{os.fspath(out)}{journal}"
    _check_outputs(source, outs if beside is None else [*outs, beside], appends)
    with readable_twice(source) as path, ExitStack() as opened:
        found = first_look(path)
        observer.begins(found)
        for one in outs:
            opened.enter_context(locked(one))
            if not (appends or is_stream(one)):
                drop_drafts(one)  # of runs that were killed
        kept = folder = None
        if beside is not None:
            kept = opened.enter_context(Journal(beside, found.fingerprint, overwrite=overwrite))
            folder = os.path.dirname(os.path.realpath(cast("Source", out)))
        loop, spool = opened.enter_context(OwnLoop()), opened.enter_context(Spool(folder))
        yield FileRun(path, found, kept, observer, out, cases_out, loop, spool, private)


def cases_file(out: Source, name: str = "cases") -> Path | None:
    """Where the cases go whose rows go to `out`: `results.jsonl` has `results.cases.jsonl` beside it."""
    if is_stream(out):
        return None
    path = Path(out)
    zipped = ".gz" if path.suffix == ".gz" else ""
    stem, ending = os.path.splitext(path.name.removesuffix(".gz"))
    if ending not in _CONTAINERS:
        stem, ending = stem + ending, ".jsonl"
    return path.with_name(f"{stem}.{name}{ending}{zipped}")


def _check_outputs(source: Source, outs: list[Source], appends: bool) -> None:
    """Raise before any work where the outputs cannot be written, or are each other or the input."""
    for one in outs:
        refuse_input(one, source)
        if not (appends and os.path.isfile(one)):
            check_folder(one)
    names = [os.path.realpath(one) for one in outs if os.fspath(one) != "-"]
    if len(set(names)) < len(names) or [os.fspath(one) for one in outs].count("-") > 1:
        raise OutputError(
            f"{output_name(outs[0])}: results and cases cannot go to the same file; specify two different files"
        )


async def _with_resources(
    items: AsyncGenerator[Item, None], clients: list[Client], retriever: Retriever | None
) -> AsyncGenerator[Item, None]:
    """The items of a stream, with what makes them open for as long."""
    async with AsyncExitStack() as opened:
        for client in clients:
            await opened.enter_async_context(client)
        if retriever is not None:
            opened.push_async_callback(retriever.close)
        stream = await opened.enter_async_context(aclosing(items))
        async for item in stream:
            yield item


async def _next(stream: AsyncGenerator[Item, Any]) -> Item | None:
    return await anext(stream, None)
