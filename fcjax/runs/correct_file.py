"""A file of responses through a method of correction: in order, stopped and resumed at any moment.

A finished correction is in a journal beside the output, and every reply is in the clients' store before it is used: the
same command resumes after the last finished correction and asks nothing twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson

from fcjax.core.records import Case, Status
from fcjax.correction.factcorrector import Corrector, failures
from fcjax.correction.method import Method
from fcjax.correction.record import Correction, Round, with_k
from fcjax.critic.asker import Cost
from fcjax.io.client import Client
from fcjax.io.files import case_to_dict
from fcjax.io.files.digests import count_atoms, digest_of
from fcjax.io.files.journal import Journal
from fcjax.io.files.streams import Source
from fcjax.runs.file_run import FileRun, Finished, begin_run, cases_file
from fcjax.runs.observer import Preview, RunObserver
from fcjax.runs.preview import Choice, described, first_look, settings_of
from fcjax.scoring.measures import K
from fcjax.scoring.rows import Row
from fcjax.scoring.summary import has_failed
from fcjax.stages.pipeline import Stage

VERSION: Final = 1
"""Part of every fingerprint; raise it when the same case and settings give another row than before."""

_STAGE: Final = "correct"  # the one stage of the journal's entries
_ENDED: Final = (Status.OK, Status.NO_ATOMS, Status.REFUSED, Status.INVALID_INPUT)


@dataclass(slots=True)
class CorrectReport:
    """The totals of a file. They are the same however often the run was stopped and resumed."""

    k: K = 1
    statuses: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    cost: Cost = field(default_factory=Cost)
    before: list[Row] = field(default_factory=list)  # id, status and measures of each original, as in results
    after: list[Row] = field(default_factory=list)  # the same of its best response
    resumed: int = 0  # corrections that an earlier run had finished
    to_try_again: int = 0  # corrections in which something failed, whatever their status (see `is_whole`)

    def __len__(self) -> int:
        return self.statuses.total()

    @property
    def n_failed(self) -> int:
        """Cases that could not be corrected, whether or not they needed to be."""
        return sum(count for status, count in self.statuses.items() if has_failed(status))

    def add(self, row: Row) -> None:
        """Count the row of one correction, with the K that it has."""
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
    """The two sides of a comparison: id, status and measures of the original and of the best response.

    A correction that failed has no measures on the second side, though its best response so far stands: a failure
    is not a verdict. A method that evaluates nothing has them on neither side (`measures` None, the status ok).
    """
    first, best = row["trajectory"][0], row["best"]
    before = {"id": row["id"], "status": first["status"] or Status.OK.value, "measures": first["measures"]}
    after = {"id": row["id"], "status": best["status"] or Status.OK.value, "measures": best["measures"]}
    return before, after if not has_failed(row["status"]) else after | {"status": row["status"], "measures": None}


def look(path: str, method: Method, choice: Choice) -> Preview:
    """The first look at a file; planned are the stages of the first evaluation. Raises `InputError` where nothing can
    be corrected."""

    def stages(case: Case, lacking: bool) -> Iterable[Stage]:
        return () if lacking or not isinstance(method, Corrector) else method.critic.pipeline.plan(case)

    return first_look(path, choice, partial(lacks, method), stages, all_settings(method, choice))


def lacks(method: Method, case: Case) -> str | None:
    """Why a method can do nothing about a case; None where it can try."""
    if case.status.failed:
        return None  # it has its reason
    if not (case.response or "").strip():
        return "the case has no `response` to correct; add one"
    return method.critic.pipeline.lacks(case) if isinstance(method, Corrector) else None


def all_settings(method: Method, choice: Choice | None = None) -> dict[str, Any]:
    """All that changes the correction of a case, as JSON: the settings of the method and the critic, and the writer."""
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
    observer: RunObserver | None = None,
    private: bool = False,
) -> CorrectReport:
    """Write the correction of every chosen case of a file to `out`: `Correction.row`, in the input's order.

    The cases, each with the best response in place of its own, go to `cases_out`: by default a file beside `out`,
    `results.corrected.jsonl` for `results.jsonl`, none where that is standard output. Both take their places when they
    are complete. Ids may repeat. The clients and the critic's source are closed in the end. It works in a running
    event loop, too. Only this user may read the files if they are `private`.

    What an earlier run with the same input and settings has finished is read from the journal beside `out`; a
    correction in which something failed is repeated. Raises as `critique_file` does.
    """
    choice = choice or Choice()
    report = CorrectReport()
    with begin_run(
        source,
        out,
        lambda path: look(path, method, choice),
        observer,
        cases_out=cases_file(out, "corrected") if cases_out is None else cases_out,
        journal=".journal",
        overwrite=overwrite,
        private=private,
    ) as run:

        def finish(_: int, done: _Corrected) -> Finished:
            report.resumed += done.kept
            report.to_try_again += not done.whole
            run.observer.case(done.row, done.kept)
            return Finished(orjson.dumps(done.case), orjson.dumps(done.row), bytes.fromhex(done.digest), done.atoms)

        run.write_cases(_corrections(run, method, choice), finish, _clients(method), method.critic.retriever)

        report.k = run.k(method.critic.settings.k)
        prefix = _prefix(method, report.k)

        def complete(row: Row, digest: bytes) -> Row:
            made_from = hashlib.blake2b(prefix + digest.hex().encode(), digest_size=16)
            row = with_k(row, report.k) | {"fingerprint": made_from.hexdigest()}
            report.add(row)
            return row

        run.write_rows(complete)
    return report


@dataclass(frozen=True, slots=True)
class _Corrected:
    """A correction as JSON: its row, with a K of its own, and the case with the best response."""

    row: Row
    case: Row
    atoms: int | None  # of the original response, merged duplicates once
    digest: str  # of the case as it was given
    kept: bool = False  # from an earlier run
    whole: bool = True

    @classmethod
    def of(cls, one: Correction) -> _Corrected:
        first = one.rounds[0].critique
        atoms = None if first is None else count_atoms(case_to_dict(first.case))
        digest = digest_of(orjson.dumps(case_to_dict(one.case))).hex()
        return cls(one.row, case_to_dict(one.corrected), atoms, digest, whole=is_whole(one))

    @classmethod
    def kept_in(cls, journal: Journal | None, place: int) -> _Corrected | None:
        """The correction of a case that an earlier run has finished."""
        entries = journal.entries(place) if journal is not None else []
        if not entries:
            return None
        last = entries[-1].changed
        return cls(last["row"], last["corrected"], last["atoms"], last["digest"], kept=True)

    def to_dict(self) -> dict[str, Any]:
        return {"row": self.row, "corrected": self.case, "atoms": self.atoms, "digest": self.digest}


def _prefix(method: Method, k: K) -> bytes:
    """What the rows of a file are made from: all settings and K, but not where the models were asked."""
    named = all_settings(method)
    for asked in (named["writer"], named["critic"]):
        del asked["endpoint"]
    return orjson.dumps([named, k if isinstance(k, str) else float(k)])


async def _corrections(run: FileRun[Preview], method: Method, choice: Choice) -> AsyncGenerator[_Corrected, None]:
    """The correction of each case, in order: from the journal, or made now and written there."""
    journal = run.journal
    kept = {place for place in range(run.found.cases) if _Corrected.kept_in(journal, place)}
    places: list[int] = []  # of the cases that are given to the method, in order

    def cases() -> Iterator[Case]:
        for place, (case, _, _) in enumerate(choice.cases(run.path)):
            if place not in kept:
                places.append(place)
                yield case

    def on_round(number: int, one: Round) -> None:
        run.observer.round(places[number], one)

    async with aclosing(method.correct_many(cases(), on_round=on_round)) as stream:
        for place in range(run.found.cases):
            if (done := _Corrected.kept_in(journal, place)) is None:
                done = _Corrected.of(await anext(stream))
                if journal is not None and done.whole:
                    journal.write(place, _STAGE, done.to_dict())
            yield done


def is_whole(one: Correction) -> bool:
    """Whether nothing has failed in a correction that may succeed another time."""
    parts = (found.critique for found in one.rounds if found.critique is not None)
    return one.status in _ENDED and not one.cost.failed and not any(failures(part) for part in parts)


def _clients(method: Method) -> list[Client]:
    """The clients of the critic and of the writer, once if they are the same."""
    asked = (method.critic.client, method.writer)
    return list({id(client): client for client in asked if client is not None}.values())
