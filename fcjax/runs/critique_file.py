"""A file of responses through the critic: in order, in bounded memory, to be stopped and gone on with at any moment.

What each stage finds is in a journal beside the output before the case goes on, and every reply in the client's store
before it is used: the same command takes up each case where it was, and loses at most what was on the wire. The
results wait on disk until all are there, since K is known no sooner.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import AsyncGeneratorType
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, cast

import orjson

from fcjax.core.errors import InputError, OutputError, counted
from fcjax.core.records import Case, RelationType, Status
from fcjax.critic.critic import Critic, Critique
from fcjax.io.files import case_to_dict, encode_result
from fcjax.io.files.digests import DIGEST_SIZE, count_atoms, digest_of
from fcjax.io.files.journal import Journal
from fcjax.io.files.streams import Source, check_folder, drop_drafts, output_name, refuse_input, write_lines
from fcjax.runs.checkpoint import Checkpoint
from fcjax.runs.input_scan import readable_twice
from fcjax.runs.preview import Choice, Preview, preview
from fcjax.runs.score_file import locked
from fcjax.scoring.measures import K, median_k
from fcjax.scoring.rows import Row
from fcjax.scoring.score_cases import Fingerprints, completed
from fcjax.scoring.summary import Summary
from fcjax.stages.pipeline import Stage
from fcjax.stages.traces import traces

if TYPE_CHECKING:
    from fcjax.io.client import Client

_CONTAINERS: Final = (".jsonl", ".ndjson", ".json")


@dataclass(slots=True)
class CritiqueReport:
    """What a file came to; its numbers are those of the cases, however often the run was stopped."""

    summary: Summary
    stages: dict[str, Counter[str]] = field(default_factory=dict)  # what the traces of each stage add up to
    relations: Counter[str] = field(default_factory=Counter)  # answered, by type
    failed: dict[str, Counter[str]] = field(default_factory=dict)  # searches and relations that failed, by kind
    repeated: int = 0  # contexts that repeat another one of their case
    taken_up: int = 0  # stages of cases that an earlier run had been through

    def add(self, critique: Critique) -> None:
        """Count a case in; its row is counted when K is known."""
        case = critique.case
        for stage, trace in traces(case).items():
            sums = self.stages.setdefault(stage, Counter())
            sums.update({name: number for name, number in trace.items() if type(number) is int})
        for relation in case.relations or ():
            if relation.status.failed:
                self._fail("relate", relation.extra.get("reason"))
            else:
                self.relations[str(relation.type or RelationType.NEUTRAL)] += 1
        for atom in case.atoms or ():
            if atom.status is Status.RETRIEVAL_FAILED:
                self._fail("retrieve", atom.extra.get("reason"))
        self.repeated += sum(len(repeat.contexts) - 1 for repeat in critique.feedback.repeated)

    def _fail(self, stage: str, reason: Any) -> None:
        kind = reason.partition(":")[0] if isinstance(reason, str) else "unknown"
        self.failed.setdefault(stage, Counter())[kind] += 1

    @property
    def n_failed(self) -> int:
        """Cases that failed, and searches and relations that others lack."""
        return self.summary.n_failed + sum(kinds.total() for kinds in self.failed.values())

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return self.summary.to_dict() | {
            "stages": {stage: dict(sums) for stage, sums in self.stages.items()},
            "relations": dict(self.relations),
            "failed": {stage: dict(kinds) for stage, kinds in self.failed.items()},
            "n_repeated_sources": self.repeated,
        }


class CritiqueObserver(Protocol):
    """Someone who looks on while a file is critiqued."""

    def begins(self, found: Preview) -> None:
        """The first look at the input is done."""

    def stage(self, stage: Stage, case: Case, kept: bool) -> None:
        """A case has been through a stage, or had been in an earlier run and was `kept`."""

    def case(self, critique: Critique) -> None:
        """The next case is finished."""

    def row(self, row: Row) -> None:
        """The next case's row is written, in which K is known."""


def critique_file(
    source: Source,
    out: Source,
    critic: Critic,
    choice: Choice | None = None,
    *,
    cases_out: Source | None = None,
    overwrite: bool = False,
    watch: CritiqueObserver | None = None,
) -> CritiqueReport:
    """Write the row of every chosen case of a file to `out` (SPEC 7), with feedback, in the input's order.

    The cases, with all that was found out about them, go to `cases_out`: by default a file beside `out` (see
    `cases_file`), none where that is standard output. `fcjax.score` makes the same rows of them. Both files take their
    places when they are complete. A row that is no case has the status `invalid_input`. Once work has begun, the
    critic's client and its retriever are closed in the end.

    What an earlier run with the same input and settings has left in the journal beside `out` is taken up; a stage in
    which something failed is done again. Raises `OutputError` where that journal is another run's and `overwrite` is
    not set, where another run is writing, or where a file cannot be written; `InputError` where nothing can be read,
    nothing can be done for any case, or a replay that has no answer at all would take a file's place; and what
    `Critic.critique_many` raises. In all these cases the journal stays.
    """
    choice = choice or Choice()
    if cases_out is None:
        cases_out = cases_file(out)
    stages_out = None if is_stream(out) else f"{os.fspath(out)}.stages"
    check_places(source, out, cases_out, stages_out)
    with readable_twice(source) as path, ExitStack() as opened:
        found = preview(path, critic, choice)
        if watch:
            watch.begins(found)
        hold(opened, out, cases_out)
        journal = None
        if stages_out is not None:
            journal = opened.enter_context(Journal(stages_out, found.fingerprint, overwrite=overwrite))
        runner = opened.enter_context(asyncio.Runner())
        spool = opened.enter_context(_Spool(None if stages_out is None else os.path.dirname(os.path.realpath(out))))
        report = CritiqueReport(Summary())

        def told(stage: Stage, case: Case, kept: bool) -> None:
            report.taken_up += kept
            if watch:
                watch.stage(stage, case, kept)

        records = Checkpoint(journal, told)
        stream = cast("AsyncGeneratorType[Critique, None]", _critiqued(path, critic, choice, records))

        def lines() -> Iterator[bytes]:
            while (critique := runner.run(_next(stream))) is not None:
                record = case_to_dict(critique.case)
                line = orjson.dumps(record)
                spool.add(critique.row, digest_of(line), count_atoms(record))
                report.add(critique)
                if watch:
                    watch.case(critique)
                yield line
            refuse_empty_replay(critic.client, out, cases_out)

        write_streamed(cases_out, lines(), runner, stream)
        k = critic.settings.k or median_k(spool.atoms)
        prints = Fingerprints(replace(critic.settings, k=k), feedback=True)
        report.summary = Summary(k)
        write_lines(out, _finished_rows(spool, k, prints, report.summary, watch))
        if journal is not None:
            journal.remove()
    return report


def _finished_rows(
    spool: _Spool, k: K, prints: Fingerprints, summary: Summary, watch: CritiqueObserver | None
) -> Iterator[bytes]:
    for row, digest in spool:
        row = completed(row, k, prints.of(digest))
        summary.add(row)
        if watch:
            watch.row(row)
        yield encode_result(row)


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


class _Spool:
    """Rows that wait for K, on disk."""

    def __init__(self, folder: str | None):
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, prefix=".fcjax-")
        self._digests = bytearray()
        self.atoms: list[int] = []  # numbers of atoms, where they are known

    def add(self, row: Row, digest: bytes, atoms: int | None) -> None:
        self._file.write(encode_result(row) + b"\n")
        self._digests += digest
        if atoms is not None:
            self.atoms.append(atoms)

    def __iter__(self) -> Iterator[tuple[Row, bytes]]:
        self._file.seek(0)
        for i, line in enumerate(self._file):
            yield orjson.loads(line), bytes(self._digests[i * DIGEST_SIZE : (i + 1) * DIGEST_SIZE])

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


async def _critiqued(path: str, critic: Critic, choice: Choice, records: Checkpoint) -> AsyncGenerator[Critique, None]:
    cases = (records.taken_up(place, case) for place, (case, _, _) in enumerate(choice.cases(path)))
    async with AsyncExitStack() as opened:
        if critic.client:
            await opened.enter_async_context(critic.client)
        if critic.retriever:
            opened.push_async_callback(critic.retriever.close)
        stream = await opened.enter_async_context(aclosing(critic.critique_many(cases, after=records.after)))
        place = 0
        async for critique in stream:
            records.forget(place)
            place += 1
            yield critique


async def _next(stream: AsyncGenerator[Critique, None]) -> Critique | None:
    return await anext(stream, None)


def is_stream(out: Source) -> bool:
    """Whether an output is standard output, a pipe or a device, which nothing can stand beside."""
    return os.fspath(out) == "-" or (os.path.exists(out) and not os.path.isfile(out) and not os.path.isdir(out))


def check_places(source: Source, out: Source, cases_out: Source | None, stages_out: Source | None) -> None:
    """Raise before any work where the outputs cannot be written, or are each other or the input."""
    written = [one for one in (out, cases_out, stages_out) if one is not None]
    for one in written:
        refuse_input(one, source)
        if os.fspath(one) != "-":
            check_folder(one)
    names = [os.path.realpath(one) for one in written if os.fspath(one) != "-"]
    if len(set(names)) < len(names) or [os.fspath(one) for one in written].count("-") > 1:
        raise OutputError(f"{output_name(out)}: results and cases cannot go to the same file; name another one")


def hold(opened: ExitStack, *outs: Source | None) -> None:
    """Lock outputs for as long as `opened` is, and remove what runs that were killed have left beside them."""
    for out in outs:
        if out is not None:
            opened.enter_context(locked(out))
            if not is_stream(out):
                drop_drafts(out)


def write_streamed(
    out: Source | None, lines: Iterator[bytes], runner: asyncio.Runner, stream: AsyncGeneratorType[Any, None]
) -> None:
    """Write the lines that `runner` gets out of `stream`, if they have a place, and end the stream whatever comes."""
    try:
        if out is None:
            deque(lines, maxlen=0)
        else:
            write_lines(out, lines)
    finally:
        if not stream.ag_running:  # else a second interrupt came while it was ending, and the runner ends it
            runner.run(stream.aclose())


def refuse_empty_replay(client: Client | None, *outs: Source | None) -> None:
    """Raise where a replay without any answer would take the place of a file."""
    if client is None or client.stats.sent or client.stats.answered or not client.stats.asked:
        return
    for out in outs:
        if out is not None and os.path.isfile(out):
            seen = f"the store answers none of {counted(client.stats.asked, 'prompt')}, so it is left as it was"
            raise InputError(f"{output_name(out)}: {seen}; use the model and settings of the run to be repeated")
