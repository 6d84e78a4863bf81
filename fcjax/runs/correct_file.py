"""A file of responses through a method of correction: in order, to be stopped and gone on with at any moment.

A correction that is finished is in a journal beside the output, and every reply in the clients' store before it is
used: the same command takes up what is finished, asks nothing twice, and loses at most what was on the wire. The rows
wait on disk until all are there, since K, the median number of atoms of the original responses (SPEC 5), is known no
sooner.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from types import AsyncGeneratorType
from typing import IO, Any, Final, Protocol, cast

import orjson

from fcjax.core.records import Case, Status
from fcjax.correction.factcorrector import Corrector, failures
from fcjax.correction.method import Method
from fcjax.correction.record import Correction, Round, with_k
from fcjax.critic.asker import Cost
from fcjax.io.client import Client
from fcjax.io.files import case_to_dict, encode_result
from fcjax.io.files.digests import count_atoms, digest_of
from fcjax.io.files.journal import Journal
from fcjax.io.files.streams import Source, write_lines
from fcjax.runs.critique_file import cases_file, check_places, hold, is_stream, refuse_empty_replay, write_streamed
from fcjax.runs.input_scan import readable_twice
from fcjax.runs.preview import Choice, Preview, described, first_look, settings_of
from fcjax.scoring.measures import K, median_k
from fcjax.scoring.rows import Row
from fcjax.scoring.summary import has_failed
from fcjax.stages.pipeline import Stage

VERSION: Final = 1
"""Part of every fingerprint; raise it when the same case and settings come to give another row."""

_STAGE: Final = "correct"  # the one stage of the journal's entries
_ENDED: Final = (Status.OK, Status.NO_ATOMS, Status.REFUSED, Status.INVALID_INPUT)


@dataclass(slots=True)
class CorrectReport:
    """What a file came to; its numbers are those of the corrections, however often the run was stopped."""

    k: K = 1
    statuses: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    cost: Cost = field(default_factory=Cost)
    before: list[Row] = field(default_factory=list)  # id, status and measures of each original, as in results
    after: list[Row] = field(default_factory=list)  # the same of what came of it
    taken_up: int = 0  # corrections that an earlier run had finished
    to_try_again: int = 0  # corrections in which something failed, whatever came of them (see `is_whole`)

    def __len__(self) -> int:
        return self.statuses.total()

    @property
    def n_failed(self) -> int:
        """Cases that could not be corrected, whether there was anything to correct in them or not."""
        return sum(count for status, count in self.statuses.items() if has_failed(status))

    def add(self, row: Row) -> None:
        """Count the row of a correction in, by its own K."""
        self.statuses[row["status"]] += 1
        self.stops[row["stop"]] += 1
        self.changed += row["changed"]
        self.cost += Cost(**row["cost"])
        before, after = sides(row)
        self.before.append(before)
        self.after.append(after)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON; the comparison of before and after is not its own."""
        return {
            "n_cases": len(self),
            "n_failed": self.n_failed,
            "n_changed": self.changed,
            "statuses": dict(sorted(self.statuses.items())),
            "stops": dict(sorted(self.stops.items())),
            "k": self.k,
            "cost": self.cost.to_dict(),
        }


def sides(row: Row) -> tuple[Row, Row]:
    """What is compared of a correction: id, status and measures of the original and of the best response.

    A correction that failed has no second side, though its best response so far stands: a failure is no verdict. A
    method that evaluates nothing has neither (`measures` None, the status ok).
    """
    first, best = row["trajectory"][0], row["best"]
    before = {"id": row["id"], "status": first["status"] or Status.OK.value, "measures": first["measures"]}
    after = {"id": row["id"], "status": best["status"] or Status.OK.value, "measures": best["measures"]}
    return before, after if not has_failed(row["status"]) else after | {"status": row["status"], "measures": None}


class CorrectObserver(Protocol):
    """Someone who looks on while a file is corrected."""

    def begins(self, found: Preview) -> None:
        """The first look at the input is done."""

    def round(self, place: int, one: Round) -> None:
        """A round of a case is done; in no order of cases."""

    def case(self, row: Row, kept: bool) -> None:
        """The next case is finished, or was in an earlier run and is `kept`; its K is its own yet."""


def look(path: str, method: Method, choice: Choice) -> Preview:
    """The first look at a file; planned are the stages of the first evaluation. Raises `InputError` where nothing can
    be corrected."""

    def stages(case: Case, lacking: bool) -> Iterable[Stage]:
        return () if lacking or not isinstance(method, Corrector) else method.critic.pipeline.plan(case)

    return first_look(path, choice, all_settings(method, choice), partial(lacks, method), stages)


def lacks(method: Method, case: Case) -> str | None:
    """Why a method can do nothing about a case; None where it can try."""
    if case.status.failed:
        return None  # it has its reason
    if not (case.response or "").strip():
        return "the case has no `response` to correct; add one"
    return method.critic.pipeline.lacks(case) if isinstance(method, Corrector) else None


def all_settings(method: Method, choice: Choice | None = None) -> dict[str, Any]:
    """All that changes what becomes of a case, as JSON: the method's settings, the critic's, and who rewrites."""
    asked = method.writer
    writer = {"endpoint": asked.endpoint, "model": asked.model, "options": described(asked.options)}
    scoring = described(method.critic.settings.resolved())
    return {
        "corrections": VERSION,
        "method": described(method.settings()),
        "writer": writer,
        "critic": settings_of(method.critic, choice),
        "scoring": scoring,
    }


def correct_file(
    source: Source,
    out: Source,
    method: Method,
    choice: Choice | None = None,
    *,
    cases_out: Source | None = None,
    overwrite: bool = False,
    watch: CorrectObserver | None = None,
) -> CorrectReport:
    """Write what a method makes of every chosen case of a file to `out`: `Correction.row`, in the input's order.

    The cases with the best response in the place of their own go to `cases_out`: by default a file beside `out`,
    `results.corrected.jsonl` for `results.jsonl`, none where that is standard output. Both take their places when they
    are complete. Ids may repeat. The clients and the critic's source are closed in the end.

    What an earlier run with the same input and settings has finished is taken up from the journal beside `out`; a
    correction in which something failed is tried again. Raises as `critique_file` does.
    """
    choice = choice or Choice()
    if cases_out is None:
        cases_out = cases_file(out, "corrected")
    journal_out = None if is_stream(out) else f"{os.fspath(out)}.journal"
    check_places(source, out, cases_out, journal_out)
    with readable_twice(source) as path, ExitStack() as opened:
        found = look(path, method, choice)
        if watch:
            watch.begins(found)
        hold(opened, out, cases_out)
        journal = None
        if journal_out is not None:
            journal = opened.enter_context(Journal(journal_out, found.fingerprint, overwrite=overwrite))
        runner = opened.enter_context(asyncio.Runner())
        spool: IO[bytes] = opened.enter_context(
            tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(out)) if journal else None, prefix=".fcjax-")
        )
        report = CorrectReport()
        atoms: list[int] = []  # of the original responses, where they are known
        stream = cast("AsyncGeneratorType[_Finished, None]", _corrected(path, method, choice, journal, found, watch))

        def lines() -> Iterator[bytes]:
            while (done := runner.run(_next(stream))) is not None:
                if done.atoms is not None:
                    atoms.append(done.atoms)
                report.taken_up += done.kept
                report.to_try_again += not done.whole
                spool.write(orjson.dumps([done.row, done.digest]) + b"\n")
                if watch:
                    watch.case(done.row, done.kept)
                yield orjson.dumps(done.case)
            clients = _clients(method)
            for client in clients if not any(one.stats.answered for one in clients) else ():
                refuse_empty_replay(client, out, cases_out)

        write_streamed(cases_out, lines(), runner, stream)
        report.k = method.critic.settings.k or median_k(atoms)
        prefix = _prefix(method, report.k)
        spool.seek(0)
        write_lines(out, _rows(spool, report, prefix))
        if journal is not None:
            journal.remove()
    return report


@dataclass(frozen=True, slots=True)
class _Finished:
    """A correction as JSON: its row, by a K of its own, and the case with the best response."""

    row: Row
    case: Row
    atoms: int | None  # of the original response, merged duplicates once
    digest: str  # of the case as it was given
    kept: bool = False
    whole: bool = True

    @classmethod
    def of(cls, one: Correction) -> _Finished:
        first = one.rounds[0].critique
        atoms = None if first is None else count_atoms(case_to_dict(first.case))
        digest = digest_of(orjson.dumps(case_to_dict(one.case))).hex()
        return cls(one.row, case_to_dict(one.corrected), atoms, digest, whole=is_whole(one))

    def to_dict(self) -> dict[str, Any]:
        return {"row": self.row, "corrected": self.case, "atoms": self.atoms, "digest": self.digest}


def _prefix(method: Method, k: K) -> bytes:
    """What the rows of a file are made by: all settings with K; where a model was asked does not matter."""
    named = all_settings(method)
    for who in (named["writer"], named["critic"]):
        del who["endpoint"]
    return orjson.dumps([named, k if isinstance(k, str) else float(k)])


def _rows(spool: IO[bytes], report: CorrectReport, prefix: bytes) -> Iterator[bytes]:
    """The rows by the K of all of them, each with what it is made from."""
    for line in spool:
        row, digest = orjson.loads(line)
        row = with_k(row, report.k) | {
            "fingerprint": hashlib.blake2b(prefix + digest.encode(), digest_size=16).hexdigest()
        }
        report.add(row)
        yield encode_result(row)


async def _corrected(
    path: str, method: Method, choice: Choice, journal: Journal | None, found: Preview, watch: CorrectObserver | None
) -> AsyncGenerator[_Finished, None]:
    """What becomes of each case, in order: taken up from the journal, or made now and written there."""
    earlier = {place for place in range(found.cases) if _earlier(journal, place)}
    places: list[int] = []  # of the cases that are given to the method, in order

    def cases() -> Iterator[Case]:
        for place, (case, _, _) in enumerate(choice.cases(path)):
            if place not in earlier:
                places.append(place)
                yield case

    def told(number: int, one: Round) -> None:
        if watch:
            watch.round(places[number], one)

    async with AsyncExitStack() as opened:
        for client in _clients(method):
            await opened.enter_async_context(client)
        if method.critic.retriever:
            opened.push_async_callback(method.critic.retriever.close)
        stream = await opened.enter_async_context(aclosing(method.correct_many(cases(), on_round=told)))
        for place in range(found.cases):
            if place in earlier:
                yield cast("_Finished", _earlier(journal, place))
                continue
            done = _Finished.of(await anext(stream))
            if journal is not None and done.whole:
                journal.write(place, _STAGE, done.to_dict())
            yield done


def _earlier(journal: Journal | None, place: int) -> _Finished | None:
    """What an earlier run has finished of a case."""
    entries = journal.entries(place) if journal is not None else []
    if not entries:
        return None
    last = entries[-1].changed
    return _Finished(last["row"], last["corrected"], last["atoms"], last["digest"], kept=True)


def is_whole(one: Correction) -> bool:
    """Whether nothing has failed in a correction that may succeed another time."""
    parts = (found.critique for found in one.rounds if found.critique is not None)
    return one.status in _ENDED and not one.cost.failed and not any(failures(part) for part in parts)


def _clients(method: Method) -> list[Client]:
    """The critic's client and whoever rewrites, once if they are the same."""
    asked = (method.critic.client, method.writer)
    return list({id(client): client for client in asked if client is not None}.values())


async def _next(stream: AsyncGenerator[_Finished, None]) -> _Finished | None:
    return await anext(stream, None)
