"""A file of cases through the engine: in order, in bounded memory, stopped and resumed at any moment.

Cases go through in chunks that depend on their position alone. While a worker thread runs the engine on one chunk, this
thread reads the next and writes the one before. A finished row is in the file before the next one is begun, and its
fingerprint says what it was made from: the same command keeps the rows that are its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from fcjax.core.errors import Fault, InputError, OutputError, SettingsError, counted
from fcjax.core.records import Case, Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.io.files import (
    Format,
    ResultsWriter,
    encode_result,
    graph_to_case,
    read_cases,
    read_finished,
    read_graphs,
    read_results,
    read_uai,
)
from fcjax.io.files.cases import parse_row
from fcjax.io.files.factreasoner import parse_graph_row
from fcjax.io.files.formats import is_graph
from fcjax.io.files.objects import Row as FileRow
from fcjax.io.files.objects import read_rows
from fcjax.io.files.results import working_file
from fcjax.io.files.streams import Source, display_name, output_name, refuse_input
from fcjax.runs.file_run import begin_run
from fcjax.runs.input_scan import InputScan, scan_input
from fcjax.runs.observer import RunObserver
from fcjax.scoring.rows import Row, unscored_row
from fcjax.scoring.score_cases import Fingerprints, Job, feedback_of, job, posteriors, reason_of, rows, with_feedback
from fcjax.scoring.settings import Settings
from fcjax.scoring.summary import Summary

if TYPE_CHECKING:
    from fcjax.inference.posterior import Posterior

CHUNK: Final = 512
"""Cases per call of the engine."""


def score(
    source: Source,
    out: Source | None = None,
    settings: Settings | None = None,
    *,
    overwrite: bool = False,
    limit: int | None = None,
    observer: RunObserver | None = None,
    feedback: bool = False,
) -> Summary:
    """Score the first `limit` cases of a file, write one row per case to `out` (SPEC 7), and summarise them.

    What an earlier run with the same input and settings left in `out` is kept, and the file ends up as if it had never
    stopped. A case that cannot be scored gets a row that says why. With `feedback` the rows also have the feedback for
    a corrector (SPEC 6). Raises `InputError` where nothing can be read or no case can be scored, `SettingsError`, and
    `OutputError` where `out` cannot be written, is in use, or holds something else and `overwrite` is not set.
    """
    settings = settings or Settings()
    if out is not None:
        refuse_input(working_file(out), source)
    with (
        begin_run(source, out, lambda path: scan_input(path, limit), observer, appends=True) as run,
        ExitStack() as opened,
    ):
        path, found = run.path, run.found
        settings = replace(settings, k=found.k if settings.k is None else settings.k)
        prints = Fingerprints(settings, feedback=feedback)
        summary = Summary(settings.k or 1)

        def print_of(i: int) -> str:
            return prints.of(found.digest(i))

        def id_of(i: int) -> str:
            return next(islice(_read(path, settings), i, None)).id

        def report(row: Row, kept: bool) -> None:
            summary.add(row)
            run.observer.row(row, kept)

        kept = end = 0
        if out is not None and not (overwrite or os.fspath(out) == "-"):
            for kept, (row, end) in enumerate(_kept_rows(out, print_of, found.cases, id_of), 1):  # noqa: B007
                report(row, kept=True)
        write = None if out is None else opened.enter_context(ResultsWriter(out, end)).write
        for row in _score_from(path, kept, settings, found, print_of, feedback):
            if write:
                write(row)
            report(row, kept=False)
    return summary


def _score_from(
    path: str, first: int, settings: Settings, found: InputScan, print_of: Callable[[int], str], feedback: bool
) -> Iterator[Row]:
    """The rows from case `first` on. Its whole chunk is done, as in any other run, so that the rows are the same."""
    if first == found.cases:
        return
    begin = first - first % CHUNK
    jobs = (
        _job(row, settings, found.lacking.get(i), print_of(i), feedback)
        for i, row in enumerate(islice(_read(path, settings), begin, found.cases), begin)
    )
    skip = first - begin
    for row in _through_engine(jobs, settings, feedback):
        if skip:
            skip -= 1
        else:
            yield row


def _read(path: str, settings: Settings) -> Iterator[FileRow[Case]]:
    """The cases of a file, of fact graphs too."""

    def parse(value: Any, number: int) -> Case:
        if isinstance(value, dict) and is_graph(value):
            return graph_to_case(parse_graph_row(value, number), number, atom_prior=settings.atom_prior)
        return parse_row(value, number)

    return (FileRow(*parts) for parts in read_rows(path, parse))


def _job(row: FileRow[Case], settings: Settings, lack: str | None, fingerprint: str, coverage: bool) -> Job | Row:
    """The job that a row of the input makes, or its result where the engine has nothing to do."""
    if row.value is None:
        return unscored_row(row.id, Status.INVALID_INPUT, reason_of(row.faults), fingerprint)
    return job(row.value, settings, lack, fingerprint, coverage=coverage)


def _through_engine(jobs: Iterator[Job | Row], settings: Settings, feedback: bool) -> Iterator[Row]:
    """The rows of `jobs`, in order."""

    def finished(chunk: list[Job | Row], solved: Future[list[Posterior]]) -> Iterator[Row]:
        made = rows(chunk, solved.result(), settings, coverage=feedback)
        if not feedback:
            return made
        listed = list(made)
        return map(with_feedback, listed, feedback_of(chunk, listed, settings))

    worker = ThreadPoolExecutor(1, thread_name_prefix="fcjax-score")
    try:
        before = None
        while chunk := list(islice(jobs, CHUNK)):
            solved = worker.submit(posteriors, chunk, settings)
            if before:
                yield from finished(*before)
            before = chunk, solved
        if before:
            yield from finished(*before)
    finally:
        worker.shutdown(wait=False, cancel_futures=True)  # an interrupt does not wait for the engine


def _kept_rows(
    out: Source, print_of: Callable[[int], str], total: int, id_of: Callable[[int], str]
) -> Iterator[tuple[Row, int]]:
    """The finished rows that an earlier run left in `out`, each with where it ends in the file.

    Raises `OutputError` before the first one where the file, or the one where its lines gather, holds anything that is
    not this run's own. `id_of` gives the id of case `i`: a line that was cut short must be that case's.
    """
    remedy = "specify another file, or overwrite it (--overwrite)"
    work = working_file(out)
    end = 0

    def check(rows: Iterable[Row], name: str) -> int:
        count = 0
        try:
            for count, row in enumerate(rows, 1):
                if count > total:
                    raise OutputError(
                        f"{name}: contains more results than the {counted(total, 'case')} of this run; {remedy}"
                    )
                if row.get("fingerprint") != print_of(count - 1):
                    what = "is not a result of this input with these settings"
                    raise OutputError(f"{name}: line {count} {what}; {remedy}")
        except InputError as error:
            raise OutputError(f"{name}: is not a results file; {remedy}") from error
        return count

    def finished_rows() -> Iterator[Row]:
        nonlocal end
        for finished in read_finished(out):
            end = finished.end
            yield finished.result

    if work.is_file():
        if work != Path(out) and os.path.isfile(out):  # both are there, so each must be ours
            check(read_results(out), output_name(out))
        count = check(finished_rows(), output_name(work))
        with open(work, "rb") as stream:
            stream.seek(end)
            rest = stream.read()
        if rest and not (count < total and _is_cut_short(rest, id_of(count), print_of(count))):
            raise OutputError(f"{output_name(work)}: line {count + 1} is not a result of this run; {remedy}")
    else:
        count = check(finished_rows(), output_name(out))
    for finished in islice(read_finished(out), count):
        yield finished.result, finished.end


def _is_cut_short(rest: bytes, id: str, fingerprint: str) -> bool:
    """Whether what stands after the last finished line is the beginning of one particular row, and nothing more."""
    try:
        row = orjson.loads(rest)
    except orjson.JSONDecodeError:
        begins = encode_result({"id": id, "status": ""}).removesuffix(b'"}')
        return b"\n" not in rest and rest[: len(begins)] == begins[: len(rest)]
    return b"\n" not in rest and isinstance(row, dict) and row.get("fingerprint") == fingerprint


def one_graph(source: Source, format: Format, settings: Settings, case_id: str | None = None) -> FactGraph:
    """The graph of the one case, fact graph or UAI model that a file holds, or of the case `case_id`.

    Raises `InputError` where there is none, or more than one, and `SettingsError` for other formats.
    """
    if format == "uai":
        return FactGraph.from_model(read_uai(source))
    if format not in ("cases", "problem", "graph"):
        raise SettingsError(
            f"{display_name(source)}: cannot build a graph from {format}; allowed: cases, problem, graph, uai"
        )
    rows: Iterator[FileRow[Any]] = read_graphs(source) if format == "graph" else read_cases(source)
    named = (row for row in rows if case_id in (None, row.id))
    row, other = next(named, None), next(named, None)
    if row is None or other is not None:
        seen = "no case" if row is None else "several cases"
        having = "" if case_id is None else f" with the id {case_id!r}"
        fault = f"the file has {seen}{having}; allowed: one (select it with --case ID)"
        raise InputError(Fault(fault, file=display_name(source)))
    if row.value is None:
        raise row.error
    if format != "graph":
        return settings.graph(row.value)
    return FactGraph.from_dict(row.value, **settings.numbers())
