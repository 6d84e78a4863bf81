"""A case's record of its own processing: each stage under `stages`, the relation model under `relate`.

A case may bring along something else by these names. Nothing is read from that, it is written back as it came (SPEC
7), and what is said here goes under `fcjax_stages` and `fcjax_relate`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from fcjax.core.checks import is_number
from fcjax.core.records import Case

_RELATED: Final = ("model", "version", "style")  # what a record of relating has at least


def traces(case: Case) -> dict[str, dict[str, Any]]:
    """The trace of each stage, by its name."""
    found = case.extra.get(_stages(case))
    return found if isinstance(found, dict) else {}


def related(case: Case) -> dict[str, Any] | None:
    """The settings the relations were made with; None if they came with the input, or are not known."""
    found = case.extra.get(_relate(case))
    return found if isinstance(found, dict) else None


class AskedInRounds(NamedTuple):
    """What a record of adaptive asking says: the `opinion` that left out `left` pairs, the prompts that were sent and
    those of asking all, and by atom how sure its label is against what was left out."""

    opinion: str
    left: int
    prompts: int
    prompts_of_all: int
    settled: Mapping[str, float]


def asked_in_rounds(case: Case) -> AskedInRounds | None:
    """The record of adaptive asking of a case; None where all was asked, or where it is not as it was written."""
    record = related(case) or {}
    opinion, left, settled = (record.get(name) for name in ("opinion", "not_asked", "settled"))
    numbers = [record.get(name) for name in ("prompts", "prompts_of_all")]
    if not (isinstance(opinion, str) and isinstance(left, dict) and isinstance(settled, dict)):
        return None
    known = all(isinstance(targets, dict) for targets in left.values())
    if not known or not all(is_number(one, 0, 2**53, whole=True) for one in numbers):
        return None
    sure = {name: float(p) for name, p in settled.items() if is_number(p, 0, 1)}
    return AskedInRounds(opinion, sum(map(len, left.values())), int(numbers[0] or 0), int(numbers[1] or 0), sure)


def traced(case: Case, stage: str, trace: Mapping[str, Any]) -> dict[str, Any]:
    """The case's `extra` with the trace of a stage added; empty values and zeros are left out."""
    kept = {key: value for key, value in trace.items() if value or key == "prompts"}
    return {**case.extra, _stages(case): {**traces(case), stage: kept}}


def untraced(case: Case, stage: str) -> dict[str, Any]:
    """The case's `extra` without the trace of `stage`."""
    left = {name: trace for name, trace in traces(case).items() if name != stage}
    return {**case.extra, _stages(case): left} if stage in traces(case) else dict(case.extra)


def with_related(case: Case, done: Mapping[str, Any]) -> dict[str, Any]:
    """The case's `extra` with the settings its relations were made with."""
    return {**case.extra, _relate(case): dict(done)}


def without(case: Case, stages: Collection[str] | None = None) -> dict[str, Any]:
    """The case's `extra` without any trace of `stages` (all by default), of relating, and of failures."""
    gone = {_stages(case), _relate(case)} | ({"reason"} if case.status.failed else set())
    extra = {key: value for key, value in case.extra.items() if key not in gone}
    left = {name: trace for name, trace in traces(case).items() if stages is not None and name not in stages}
    return extra | {_stages(case): left} if left else extra


def _stages(case: Case) -> str:
    found = case.extra.get("stages", {})
    ours = isinstance(found, dict) and all(isinstance(trace, dict) for trace in found.values())
    return "stages" if ours else "fcjax_stages"


def _relate(case: Case) -> str:
    found = case.extra.get("relate", _RELATED)
    ours = found is _RELATED or (isinstance(found, dict) and found.keys() >= set(_RELATED))
    return "relate" if ours else "fcjax_relate"
