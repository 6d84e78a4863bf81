"""Relations for a file of cases, asked of a model: in order and in bounded memory.

What was answered is in the client's store, and that is all there is to going on after a stop: the same command asks the
store first, and the endpoint for what is missing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import islice
from types import AsyncGeneratorType
from typing import Protocol, cast

import orjson

from fcjax.core.errors import Fault, InputError, counted, refuse_where_all_lack
from fcjax.core.prompts import Prompt
from fcjax.core.records import Case
from fcjax.critic.relation_stream import RelationConfig, RelationCounts, is_ready, questions, relate_cases, unusable
from fcjax.graph.selection import Version
from fcjax.io.client import Client
from fcjax.io.files import case_to_dict, read_cases
from fcjax.io.files.streams import Source, check_folder, display_name, output_name, refuse_input, write_lines
from fcjax.io.stats import CostEstimate
from fcjax.runs.input_scan import readable_twice
from fcjax.stages.relate import Agenda


class RelateObserver(Protocol):
    """Someone who looks on while a file is related."""

    def begins(self, found: RelatePreview) -> None:
        """The first look at the input is done."""

    def pairs(self, count: int) -> None:
        """So many more pairs have been asked about, or left out by screening."""

    def case(self, case: Case) -> None:
        """The next case is written."""


def relate_file(
    source: Source,
    out: Source,
    client: Client,
    how: RelationConfig | None = None,
    *,
    window: int = 256,
    limit: int | None = None,
    watch: RelateObserver | None = None,
) -> RelationCounts:
    """Write the first `limit` cases of a file to `out`, with their relations, in the input's order.

    `out` takes its place when it is complete. A row that is no case becomes a case with the status `invalid_input`.
    Raises `InputError` where nothing can be read, no case has atoms and contexts, or a replay that has no answer at all
    would take the place of a file; `OutputError`, and what `relate_cases` raises.
    """
    how, tally = how or RelationConfig(), RelationCounts()
    refuse_input(out, source)
    check_folder(out)
    with readable_twice(source) as path, asyncio.Runner() as runner:
        found = relate_preview(path, how.version, limit)
        if watch:
            watch.begins(found)
        progress = watch.pairs if watch else None

        async def related() -> AsyncGenerator[Case, None]:
            cases = relate_cases(_cases(path, limit), client, how, window=window, tally=tally, progress=progress)
            async with client, aclosing(cases):
                async for case in cases:
                    yield case

        stream = cast("AsyncGeneratorType[Case, None]", related())

        def lines() -> Iterator[bytes]:
            while (case := runner.run(_next(stream))) is not None:
                yield orjson.dumps(case_to_dict(case))
                if watch:
                    watch.case(case)
            if not client.stats.sent and 0 < tally.pairs == tally.n_failed and os.path.isfile(out):
                seen = f"the store has an answer to none of {counted(tally.pairs, 'pair')}, so it is left as it was"
                raise InputError(f"{output_name(out)}: {seen}; use the model and settings of the run to be repeated")

        try:
            write_lines(out, lines())
        finally:
            if not stream.ag_running:  # else a second interrupt came while it was ending, and the runner ends it
                runner.run(stream.aclose())
    return tally


async def _next(stream: AsyncIterator[Case]) -> Case | None:
    return await anext(stream, None)


def estimate_file(
    source: Source,
    client: Client,
    how: RelationConfig | None = None,
    *,
    limit: int | None = None,
    count_tokens: Callable[[Prompt], int] | None = None,
) -> CostEstimate:
    """What relating the first `limit` cases of a file would ask for. Repairs and votes come on top. Nothing is sent."""
    how = how or RelationConfig()
    with readable_twice(source) as path:
        relate_preview(path, how.version, limit)
        prompts = (question.prompt() for case in _cases(path, limit) for question in questions(case, how))
        return asyncio.run(client.estimate(prompts, count_tokens=count_tokens))


def _cases(path: str, limit: int | None) -> Iterator[Case]:
    return (row.case or unusable(Case(id=row.id), *row.faults) for row in islice(read_cases(path), limit))


@dataclass(slots=True)
class RelatePreview:
    """What a first pass over a file found."""

    cases: int = 0
    pairs: int = 0  # to be asked about, before any screening
    lacking: dict[int, str] = field(default_factory=dict)  # case (from 0) -> why nothing can be asked about it


def relate_preview(path: str, version: Version, limit: int | None) -> RelatePreview:
    """The outlook on the first `limit` cases of a file. Raises `InputError` where no case can be asked about."""
    found = RelatePreview()
    first: Fault | None = None
    for row in islice(read_cases(path), limit):
        faults = row.faults
        if row.case is not None:
            try:
                faults = _lack(row.case)
                found.pairs += sum(1 for _ in Agenda.of(row.case, version).pairs()) if is_ready(row.case) else 0
            except InputError as error:
                faults = error.faults
        if faults:
            found.lacking[found.cases] = faults[0].message
            first = first or replace(faults[0], file=display_name(path), line=row.line, case=row.id)
        found.cases += 1
    refuse_where_all_lack(first, len(found.lacking), found.cases, "row")
    return found


def _lack(case: Case) -> tuple[Fault, ...]:
    """The stages that a case lacks before anything can be asked about it; nothing where it has failed before."""
    if case.status.failed or is_ready(case):
        return ()
    if case.atoms is None:
        lack = "the case has no `atoms`: the stages atomize and retrieve are missing; add what they would find"
    else:
        lack = "the case has no `contexts`: the stage retrieve is missing; add what it would find"
    return (Fault(lack),)
