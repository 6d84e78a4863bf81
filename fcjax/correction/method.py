"""A method of correction: a case in, a correction out; many at once, in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fcjax.core.checks import check_number
from fcjax.core.errors import FcjaxError, SettingsError
from fcjax.core.records import Case, Status
from fcjax.correction.record import Correction, Round, not_started
from fcjax.critic.asker import Asker, Cost, Meter
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.io.window import in_order

Told = Callable[[int, Round], None]
"""Is told of every round of case i, from 0, as it is done."""


@dataclass(slots=True)
class Askers:
    """The askers of one case: the critic's and its stages', and the one of whoever rewrites, which may be the same."""

    critic: Meter
    writer: Meter
    told: Callable[[Round], None]
    _spent: Cost = field(default_factory=Cost)

    @property
    def end(self) -> FcjaxError | None:
        """What ends the run, once there is a reason."""
        return self.critic.end or self.writer.end

    def spent(self) -> Cost:
        """What was asked since the last time that this was asked for."""
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
    """Corrects responses with what a critic has: its client, its source of evidence and its stages.

    `client` is whom the rewriting is asked of, where that is another model than the critic's. At most `open_cases`
    cases are under way at once. Use it in one event loop; the clients and the source stay their owner's. Raises
    `SettingsError`.
    """

    name: ClassVar[str]

    def __init__(self, critic: Critic, *, client: Client | None = None, open_cases: int = 16):
        check_number("open_cases", open_cases, 1, 4096, whole=True)
        if not isinstance(critic, Critic):
            raise SettingsError(f"critic is {critic!r:.60}; allowed: Critic(client, ...)")
        writer = client or critic.client
        if writer is None:
            raise SettingsError(
                f"{self.name} rewrites with a model, and there is none to ask; give the critic a client"
            )
        self.critic = critic
        self.writer: Client = writer
        self._open = open_cases

    @abstractmethod
    async def _corrected(self, case: Case, asking: Askers) -> Correction:
        """The correction of one case with a response. Raises only where nothing was done yet and nothing can be."""

    async def _begun(self, case: Case, asking: Askers) -> Correction:
        """The correction of one case, if it has a response."""
        if (case.response or "").strip():
            return await self._corrected(case, asking)
        known = case.extra.get("reason") if case.status.failed else None
        reason = known if isinstance(known, str) and known else "the case has no response to correct"
        return not_started(case, self.name, Status.INVALID_INPUT, reason)

    def settings(self) -> dict[str, Any]:
        """All that changes what a case comes out as, as JSON, beside the critic's settings and the models."""
        return {"method": self.name}

    async def correct(self, case: Case) -> Correction:
        """The correction of one case. Where the run must end (see `correct_many`) in the middle of it, the best so far
        is kept, and the status says so; before its first evaluation, what ends it is raised."""
        return await self._begun(case, self._asking(*self._askers(), lambda _: None))

    async def correct_many(
        self, cases: Iterable[Case] | AsyncIterable[Case], *, told: Told | None = None
    ) -> AsyncGenerator[Correction, None]:
        """The corrections of a stream of cases, in order, with a bounded number under way. Ids may repeat.

        Raises `BudgetError` where the budget is used up and `SettingsError` where an endpoint answers nothing at all;
        the corrections that were not finished then are not among those that came before.
        """
        askers = self._askers()

        async def work(place: int, case: Case) -> Correction:
            tell = (lambda one: told(place, one)) if told else (lambda _: None)
            return await self._begun(case, self._asking(*askers, tell))

        def ended() -> FcjaxError | None:
            return next((asker.end for asker in askers if asker.end), None)

        async for correction in in_order(cases, work, self._open, ended):
            yield correction

    def _askers(self) -> tuple[Asker, Asker]:
        critic = Asker(self.critic.client or self.writer)
        return critic, critic if self.writer is critic.client else Asker(self.writer)

    @staticmethod
    def _asking(critic: Asker, writer: Asker, told: Callable[[Round], None]) -> Askers:
        meter = Meter(critic)
        return Askers(meter, meter if writer is critic else Meter(writer), told)
