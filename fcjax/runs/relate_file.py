"""Relations for a file of cases, asked of a model: in order and in bounded memory.

What was answered is in the client's store, and nothing more is needed to resume: the same command asks the store first,
and the endpoint for what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import orjson

from fcjax.core.errors import Fault, InputError
from fcjax.core.prompts import Prompt
from fcjax.core.records import Case
from fcjax.critic.asker import Asker
from fcjax.critic.open_case import is_ready, unusable
from fcjax.critic.relation_config import RelationConfig, RelationCounts
from fcjax.critic.relation_stream import questions, relate_cases
from fcjax.graph.selection import Version
from fcjax.io.client import Client
from fcjax.io.files import case_to_dict, read_cases
from fcjax.io.files.spool import readable_twice
from fcjax.io.files.streams import Source
from fcjax.io.own_loop import in_own_loop
from fcjax.io.stats import CostEstimate
from fcjax.runs.file_run import Finished, begin_run
from fcjax.runs.observer import Preview, RunObserver
from fcjax.runs.preview import Choice, first_look
from fcjax.stages.relate import Agenda


def relate_file(
    source: Source,
    out: Source,
    client: Client | None,
    how: RelationConfig | None = None,
    *,
    window: int = 256,
    limit: int | None = None,
    observer: RunObserver | None = None,
) -> RelationCounts:
    """Write the first `limit` cases of a file to `out`, with their relations, in the input's order.

    `out` takes its place when it is complete. A row that holds no case becomes a case with the status `invalid_input`.
    The client is closed in the end; a local relation model needs none. It works in a running event loop, too. Raises
    `InputError` where nothing can be read, no case has atoms and contexts, or a replay that has no answer at all would
    take the place of a file; `OutputError`, and what `relate_cases` raises.
    """
    how, counts = how or RelationConfig(), RelationCounts()

    def look(path: str) -> Preview:
        return _preview(path, how.version, limit)

    with begin_run(source, None, look, observer, cases_out=out) as run:

        def finish(_: int, case: Case) -> Finished:
            run.observer.case(case, kept=False)
            return Finished(orjson.dumps(case_to_dict(case)))

        cases = _cases(run.path, limit)
        related = relate_cases(cases, Asker(client), how, window=window, counts=counts, progress=run.observer.pairs)
        run.write_cases(related, finish, [client] if client else [], has_answers=lambda: counts.n_failed < counts.pairs)
    return counts


def estimate_file(
    source: Source,
    client: Client | None,
    how: RelationConfig | None = None,
    *,
    limit: int | None = None,
    count_tokens: Callable[[Prompt], int] | None = None,
) -> CostEstimate:
    """What relating the first `limit` cases of a file would ask for. Repairs and votes come on top. Nothing is sent."""
    how = how or RelationConfig()
    with readable_twice(source) as path:
        _preview(path, how.version, limit)
        if client is None or not how.model.asks:
            return CostEstimate()
        prompts = (question.prompt() for case in _cases(path, limit) for question in questions(case, how))
        return in_own_loop(client.estimate(prompts, count_tokens=count_tokens))


def _cases(path: str, limit: int | None) -> Iterator[Case]:
    return (row.case or unusable(Case(id=row.id), *row.faults) for row in islice(read_cases(path), limit))


def _preview(path: str, version: Version, limit: int | None) -> Preview:
    """The first look at the first `limit` cases of a file. Raises `InputError` where no case can be asked about."""
    pairs = 0

    def lacks(case: Case) -> Fault | str | None:
        nonlocal pairs
        if case.status.failed:
            return None  # it has its reason
        if case.atoms is None:
            return "the case has no `atoms`; run the stages atomize and retrieve first, or add atoms and contexts"
        if not is_ready(case):
            return "the case has no `contexts`; run the stage retrieve first, or add contexts"
        try:
            pairs += sum(1 for _ in Agenda.of(case, version).pairs())
        except InputError as error:
            return error.faults[0]
        return None

    found = first_look(path, Choice(limit=limit), lacks)
    found.pairs = pairs
    return found
