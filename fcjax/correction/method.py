"""A method of correction: a case in, a correction out; many at once, in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fcjax.core.checks import check_number
from fcjax.core.errors import FcjaxError, SettingsError
from fcjax.core.prompts import PendingError
from fcjax.core.records import Case, Status
from fcjax.correction.record import Correction, Round, not_started
from fcjax.critic.asker import Asker, Cost, Meter
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.io.window import in_order

OnRound = Callable[[int, Round], None]
"""Is called with the number of a case, from 0, and each of its rounds as it ends."""


@dataclass(slots=True)
class CaseAskers:
    """The askers of one case: the critic's, and the rewriting model's, which may be the same."""

    critic: Meter
    writer: Meter
    on_round: Callable[[Round], None]
    _spent: Cost = field(default_factory=Cost)

    @property
    def end(self) -> FcjaxError | None:
        """The error that ends the run; None while it can continue."""
        return self.critic.end or self.writer.end

    def spent(self) -> Cost:
        """The cost since the last call of this method."""
        total = self.critic.cost if self.writer is self.critic else self.critic.cost + self.writer.cost
        since = Cost(
            total.prompts - self._spent.prompts,
            total.failed - self._spent.failed,
            total.prompt_tokens - self._spent.prompt_tokens,
            total.completion_tokens - self._spent.completion_tokens,
            None if total.dollars is None or self._spent.dollars is None else total.dollars - self._spent.dollars,
        )
        self._spent = total
        return since


class Method(ABC):
    """Corrects responses with a critic's client, source of evidence and stages.

    `client` rewrites, if that is another model than the critic's. At most `open_cases` cases are open at once. Use it
    in one event loop; it closes neither the clients nor the source of evidence. Raises `SettingsError`.
    """

    name: ClassVar[str]

    def __init__(self, critic: Critic, *, client: Client | None = None, open_cases: int = 16):
        check_number("open_cases", open_cases, 1, 4096, whole=True)
        if not isinstance(critic, Critic):
            raise SettingsError(f"critic is {critic!r:.60}; allowed: Critic(client, ...)")
        writer = client or critic.client
        if writer is None:
            raise SettingsError(
                f"{self.name} needs a model, but the critic has no client; give it a client, or pass `client`"
            )
        self.critic = critic
        self.writer: Client = writer
        self._open = open_cases

    @abstractmethod
    async def _corrected(self, case: Case, askers: CaseAskers) -> Correction:
        """The correction of one case with a response. Raises only if nothing was done yet and nothing can be."""

    async def _correction(self, case: Case, askers: CaseAskers) -> Correction:
        """The correction of one case, which may lack a response."""
        if (case.response or "").strip():
            return await self._corrected(case, askers)
        known = case.extra.get("reason") if case.status.failed else None
        reason = known if isinstance(known, str) and known else "the case has no response to correct"
        return not_started(case, self.name, Status.INVALID_INPUT, reason)

    def settings(self) -> dict[str, Any]:
        """Everything that changes a correction apart from the critic's settings and the models, as JSON."""
        return {"method": self.name}

    async def correct(self, case: Case) -> Correction:
        """The correction of one case. If the run must end (see `correct_many`) during it, the best response so far is
        kept, and the status says so; before its first evaluation, the error is raised."""
        return await self._correction(case, self._case_askers(*self._shared_askers(), lambda _: None))

    async def correct_many(
        self, cases: Iterable[Case] | AsyncIterable[Case], *, on_round: OnRound | None = None
    ) -> AsyncGenerator[Correction, None]:
        """The corrections of a stream of cases, in order, a bounded number at a time. Ids may repeat.

        Raises `BudgetError` when the budget is used up and `SettingsError` when an endpoint answers nothing at all;
        corrections that are unfinished by then are not yielded.
        """
        shared = self._shared_askers()

        async def work(place: int, case: Case) -> Correction:
            report = (lambda one: on_round(place, one)) if on_round else (lambda _: None)
            try:
                return await self._correction(case, self._case_askers(*shared, report))
            except PendingError as error:
                return not_started(case, self.name, Status.STOPPED, str(error))

        def ended() -> FcjaxError | None:
            return next((asker.end for asker in shared if asker.end), None)

        async for correction in in_order(cases, work, self._open, ended):
            yield correction

    def _shared_askers(self) -> tuple[Asker, Asker]:
        critic = Asker(self.critic.client or self.writer)
        return critic, critic if self.writer is critic.client else Asker(self.writer)

    @staticmethod
    def _case_askers(critic: Asker, writer: Asker, on_round: Callable[[Round], None]) -> CaseAskers:
        meter = Meter(critic)
        return CaseAskers(meter, meter if writer is critic else Meter(writer), on_round)
