"""The first look at a file that the critic is to go through: which cases, and what is to be done for them."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import islice
from random import Random
from typing import Any

import orjson

from fcjax.arguments import check_choice, check_number
from fcjax.critic import Critic
from fcjax.errors import Fault, refuse_where_all_lack
from fcjax.io.files import CaseRow, case_to_dict, read_cases
from fcjax.io.files.streams import Source, display_name
from fcjax.io.stats import Estimate
from fcjax.prompts import Prompt
from fcjax.records import Case, Status
from fcjax.relating import questions
from fcjax.scoring import reason_of
from fcjax.stages.pipeline import STAGES, Stage, begun_from
from fcjax.stages.templates import Template
from fcjax.survey import digest_of, readable_twice


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which cases of a file, and from where on they are worked at.

    The first `limit`, of these `sample` drawn with `seed` and kept in order; `from_stage` says what is done anew (see
    `begun_from`). Raises `SettingsError`.
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


@dataclass(slots=True)
class Outlook:
    """What a first look at a file found."""

    cases: int = 0
    planned: Counter[Stage] = field(default_factory=Counter)  # cases that will go through each stage
    lacking: dict[int, str] = field(default_factory=dict)  # case (from 0) -> why nothing can be done for it
    fingerprint: str = ""  # of the cases, and of all that changes what the stages make of them


def outlook(path: str, critic: Critic, choice: Choice) -> Outlook:
    """The first look at a file. Raises `InputError` where nothing can be done for any case."""
    found, first = Outlook(), None
    digest = hashlib.blake2b(orjson.dumps(settings_of(critic, choice)), digest_size=16)
    for case, faults, line in choice.cases(path):
        lack = faults[0] if faults else None
        if lack is None and (why := critic.pipeline.lacks(case)):
            lack = Fault(why)
        if lack:
            found.lacking[found.cases] = lack.message
            first = first or replace(lack, file=display_name(path), line=lack.line or line, case=case.id)
        found.planned.update(critic.pipeline.plan(case))
        digest.update(digest_of(orjson.dumps(case_to_dict(case))))
        found.cases += 1
    refuse_where_all_lack(first, len(found.lacking), found.cases, "row")
    found.fingerprint = digest.hexdigest()
    return found


def settings_of(critic: Critic, choice: Choice | None = None) -> dict[str, Any]:
    """All that changes what the stages make of a case, as JSON; templates by their names."""
    client, retriever, how = critic.client, critic.retriever, critic.how
    choice = choice or Choice()
    work = {stage: getattr(critic.pipeline, stage) for stage in STAGES[:-1] if critic.pipeline.may(stage)}
    return {
        "endpoint": None if client is None else client.endpoint,
        "model": None if client is None else client.model,
        "options": None if client is None else described(client.options),
        "retriever": None if retriever is None else retriever.name,
        "stages": {stage: described(how) for stage, how in work.items()},
        "relate": described(how) if critic.pipeline.may("relate") else None,
        "early_exit": described(critic.pipeline.early_exit),
        "from_stage": choice.from_stage,
    }


def estimate_file(
    source: Source,
    critic: Critic,
    choice: Choice | None = None,
    *,
    count_tokens: Callable[[Prompt], int] | None = None,
) -> tuple[Outlook, Estimate | None]:
    """What is known of a run before it: the stages that cases will go through, and what relating those will ask that
    have their atoms and contexts already; None without a client. Nothing is sent. Raises as `outlook` does.
    """
    choice = choice or Choice()
    with readable_twice(source) as path:
        found = outlook(path, critic, choice)
        if critic.client is None:
            return found, None
        ready = (case for case, _, _ in choice.cases(path) if critic.pipeline.plan(case) == ("relate",))
        prompts = (question.prompt() for case in ready for question in questions(case, critic.how))
        return found, asyncio.run(critic.client.estimate(prompts, count_tokens=count_tokens))


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
