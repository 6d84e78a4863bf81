"""The first look at a file of cases: which of them a run takes, and which stages each will go through."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice
from random import Random
from typing import Any, Final

import orjson

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import Fault, refuse_where_all_lack
from fcjax.core.prompts import Failure, Prompt
from fcjax.core.records import Case, Status
from fcjax.critic.critic import Critic
from fcjax.critic.relation_config import RelationConfig
from fcjax.critic.relation_stream import questions
from fcjax.io.files import CaseRow, case_to_dict, read_cases
from fcjax.io.files.digests import digest_of
from fcjax.io.files.spool import readable_twice
from fcjax.io.files.streams import Source, display_name
from fcjax.io.own_loop import OwnLoop, in_own_loop
from fcjax.io.stats import CostEstimate
from fcjax.runs.observer import Preview
from fcjax.scoring.score_cases import reason_of
from fcjax.stages.parsing.refusals import declines
from fcjax.stages.pipeline import STAGES, Pipeline, Stage, begun_from
from fcjax.stages.templates import Template


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which cases of a file a run takes, and from which stage on.

    The first `limit`, of these `sample` drawn with `seed` and kept in order; `from_stage` is the first stage that is
    done again (see `begun_from`). Raises `SettingsError`.
    """

    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    from_stage: Stage | None = None

    def __post_init__(self) -> None:
        check_number("limit", self.limit, 1, 2**63 - 1, whole=True, none=True)
        check_number("sample", self.sample, 1, 2**31 - 1, whole=True, none=True)
        check_choice("from_stage", self.from_stage, STAGES, none=True)

    def cases(self, path: str) -> Iterator[tuple[Case, tuple[Fault, ...], int | None]]:
        """Each case, the faults of the row where it is none, and its line."""
        rows: Iterator[CaseRow] = islice(read_cases(path), self.limit)
        if self.sample is not None:
            total = sum(1 for _ in islice(read_cases(path), self.limit))
            drawn = set(Random(self.seed).sample(range(total), min(self.sample, total)))
            rows = (row for i, row in enumerate(rows) if i in drawn)
        for row in rows:
            case = row.case
            if case is None:
                case = Case(id=row.id, status=Status.INVALID_INPUT, extra={"reason": reason_of(row.faults)})
            elif self.from_stage is not None:
                case = begun_from(case, self.from_stage)
            yield case, row.faults, row.line


def preview(path: str, critic: Critic, choice: Choice) -> Preview:
    """The first look at a file for a critic. Raises `InputError` where nothing can be done for any case."""

    def stages(case: Case, _: bool) -> Iterable[Stage]:
        return planned(critic.pipeline, case)

    return first_look(path, choice, critic.pipeline.lacks, stages, settings_of(critic, choice))


def first_look(
    path: str,
    choice: Choice,
    lacks: Callable[[Case], Fault | str | None],
    stages: Callable[[Case, bool], Iterable[Stage]] = lambda case, lacking: (),
    settings: dict[str, Any] | None = None,
) -> Preview:
    """The first look at the chosen cases of a file.

    `lacks(case)` says what a case lacks, if anything, and `stages(case, lacking)` which stages it will go through. The
    fingerprint is made from the cases and `settings`. Raises `InputError` where every case lacks something.
    """
    found, first = Preview(), None
    digest = hashlib.blake2b(orjson.dumps(settings), digest_size=16)
    for case, faults, line in choice.cases(path):
        lack = faults[0] if faults else lacks(case)
        if lack:
            fault = lack if isinstance(lack, Fault) else Fault(lack)
            found.lacking[found.cases] = fault.message
            first = first or replace(fault, file=display_name(path), line=fault.line or line, case=case.id)
        found.planned.update(stages(case, bool(lack)))
        digest.update(digest_of(orjson.dumps(case_to_dict(case))))
        found.cases += 1
    refuse_where_all_lack(first, len(found.lacking), found.cases, "row")
    found.fingerprint = digest.hexdigest()
    return found


def settings_of(critic: Critic, choice: Choice | None = None) -> dict[str, Any]:
    """All that changes what the stages make of a case, as JSON; templates by their names."""
    client, retriever, how = critic.client, critic.retriever, critic.how
    choice = choice or Choice()
    work = {stage: critic.pipeline.work(stage) for stage in STAGES[:-1] if critic.pipeline.may(stage)}
    return {
        "endpoint": None if client is None else client.endpoint,
        "model": None if client is None else client.model,
        "options": None if client is None else described(client.options),
        **({} if client is None or client.constrain == "auto" else {"constrain": client.constrain}),
        "retriever": None if retriever is None else retriever.name,
        "stages": {stage: described(how) for stage, how in work.items()},
        "relate": _relations(how) if critic.pipeline.may("relate") else None,
        "early_exit": described(critic.pipeline.early_exit),
        "from_stage": choice.from_stage,
    }


def _relations(how: RelationConfig) -> dict[str, Any]:
    """How relations are asked for; a calibration by its digest, and only where there is one."""
    calibration = how.model.calibration
    model = how.model.settings()
    if calibration is not None:
        model["calibration"] = calibration.digest
    return {"version": how.version, "model": model, "screen": described(how.screen), **how.asking()}


def planned(pipeline: Pipeline, case: Case) -> tuple[Stage, ...]:
    """The stages that a case will go through, as far as can be seen before the first: for a response that has no words,
    or only declines to answer, there is none after that."""
    stages = pipeline.plan(case)
    if case.atoms == ():
        return ()
    response = case.response or ""
    if "atomize" in stages and (declines(response) or not any(sign.isalnum() for sign in response)):
        return ("atomize",)
    return stages


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is known of a stage before a run: of the `cases` that will go through it, those that are `open` will ask
    what depends on the stages before. Repairs of answers come on top."""

    cases: int
    open: int
    asks: CostEstimate | None  # for the others; None where there are none, and for `retrieve`
    searches: int | None = None  # of `retrieve`, for the others


def estimate_file(
    source: Source,
    critic: Critic,
    choice: Choice | None = None,
    *,
    count_tokens: Callable[[Prompt], int] | None = None,
) -> tuple[Preview, dict[Stage, Prospect]]:
    """What a run will ask, per stage, as far as that does not depend on the stages before. Nothing is sent.

    Raises as `preview` does.
    """
    choice = choice or Choice()
    prospects: dict[Stage, Prospect] = {}
    with readable_twice(source) as path, OwnLoop() as loop:
        rehearsal = _Rehearsal(critic, loop)
        found = preview(path, critic, choice)
        ready: Counter[Stage] = Counter()
        for case, _, _ in choice.cases(path):
            ready.update(_ready(planned(critic.pipeline, case)))
        for stage in STAGES:
            if not (cases := found.planned[stage]):
                continue
            asks = searches = None
            those = (case for case, _, _ in choice.cases(path) if stage in _ready(planned(critic.pipeline, case)))
            if ready[stage] and stage == "retrieve":
                searches = sum(rehearsal.searches(case) for case in those)
            elif ready[stage] and critic.client is not None:
                prompts = (prompt for case in those for prompt in rehearsal.prompts(stage, case))
                asks = in_own_loop(critic.client.estimate(prompts, count_tokens=count_tokens))
            prospects[stage] = Prospect(cases, cases - ready[stage], asks, searches)
    return found, prospects


_FINDS: Final = ("atomize", "retrieve", "summarise")
"""Stages that decide how much those after them will ask: the others change the words of atoms and no more."""


def _ready(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Of the stages that a case will go through, those of which it is known what they will ask."""
    end = next((place for place, stage in enumerate(stages, 1) if stage in _FINDS), len(stages))
    return stages[:end]


class _Rehearsal:
    """Runs stages without a model and without a source of evidence, to see what they ask first."""

    def __init__(self, critic: Critic, loop: OwnLoop):
        self._pipeline, self._how, self._loop = critic.pipeline, critic.how, loop

    def prompts(self, stage: Stage, case: Case) -> Iterator[Prompt]:
        """What `stage` asks about a case."""
        if stage == "relate":
            if not self._how.model.asks:
                return iter(())
            return (question.prompt() for question in questions(case, self._how))
        asked: list[Prompt] = []

        async def ask(prompt: Prompt) -> Failure:
            asked.append(prompt)
            return _UNASKED

        self._loop.run(self._pipeline.work(stage).run(_without_failure(case), ask))
        return iter(asked)

    def searches(self, case: Case) -> int:
        """The number of searches for a case."""
        queries: list[str] = []

        async def search(query: str, k: int) -> Failure:
            queries.append(query)
            return _UNASKED

        self._loop.run(self._pipeline.retrieve.run(_without_failure(case), search))
        return len(queries)


_UNASKED: Final = Failure("unasked", "this is a rehearsal")


def _without_failure(case: Case) -> Case:
    """The case without an earlier failure: stages leave failed cases alone."""
    return replace(case, status=Status.OK)


def described(value: Any) -> Any:
    """A setting as JSON, the same in every process: records by their fields, templates by their names.

    Of a function, only its name is known, and what it is a method of.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Template):
        return value.name
    if is_dataclass(value):
        return {one.name: described(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): described(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, Set):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [described(one) for one in value]
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if callable(value) and hasattr(value, "__qualname__"):
        owner = getattr(value, "__self__", None)
        name = f"{value.__module__}.{value.__qualname__}"
        return name if owner is None else {"call": name, "of": described(owner)}
    return {"type": name, **{key: described(part) for key, part in sorted(getattr(value, "__dict__", {}).items())}}
