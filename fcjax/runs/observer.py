"""What a run over a file reports while it works: what it found first, then each case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcjax.core.records import Case
    from fcjax.correction.record import Round
    from fcjax.scoring.rows import Row
    from fcjax.stages.pipeline import Stage


@dataclass(slots=True)
class Preview:
    """What a first look at a file found."""

    cases: int = 0
    lacking: dict[int, str] = field(default_factory=dict)  # case (from 0) -> why nothing can be done for it
    planned: Counter[Stage] = field(default_factory=Counter)  # cases that will go through each stage
    pairs: int = 0  # of `relate_file`: to be asked about, before any screening
    fingerprint: str = ""  # of the cases, and of all that changes what the stages make of them


class RunObserver:
    """Watches a run over a file. Every method does nothing: override those that are needed.

    `begins` comes first, from every run. Methods are called one at a time; `stage`, `pairs` and `round` from another
    thread where the caller's thread has a running event loop.
    """

    def begins(self, found: Preview) -> None:
        """The first look at the input is done."""

    def stage(self, stage: Stage, case: Case, kept: bool) -> None:
        """`critique_file`: a case has been through a stage, or was in an earlier run (`kept`). In no order of cases."""

    def pairs(self, count: int) -> None:
        """`relate_file`: this many more pairs have been asked about, or left out by screening."""

    def round(self, place: int, one: Round) -> None:
        """`correct_file`: a round of case `place`, from 0, is done. In no order of cases."""

    def case(self, finished: Any, kept: bool) -> None:
        """The next case is finished, or was in an earlier run (`kept`).

        `finished` is the `Case` of `relate_file`, the `Critique` of `critique_file`, and the row of `correct_file`, by
        a K of its own.
        """

    def row(self, row: Row, kept: bool) -> None:
        """The next row of the results is written, or was by an earlier run (`kept`); K is known in it."""
