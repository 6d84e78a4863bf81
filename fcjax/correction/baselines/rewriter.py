"""Methods that rewrite a response without evaluating it before or after."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Final

from fcjax.core.prompts import Prompt
from fcjax.core.records import Case, Status
from fcjax.correction.guards import comparable
from fcjax.correction.method import CaseAskers, Method
from fcjax.correction.record import Correction, Round, Stop
from fcjax.correction.revision import Revision, revision
from fcjax.critic.critic import Critic

_DONE: Final = "the method is done"


class Rewriter(Method):
    """A method that makes one or more revisions without evaluating them.

    Every revision is kept, unless the reply cannot be a response. An error that ends the run is raised if no revision
    was kept before it.
    """

    async def _corrected(self, case: Case, askers: CaseAskers) -> Correction:
        work = Work(self, case, askers)
        await self.rewrite(case, work)
        correction = work.correction()
        if askers.end and not correction.changed:
            raise askers.end
        return correction

    @abstractmethod
    async def rewrite(self, case: Case, work: Work) -> None:
        """Rewrite the response of a case, which is not blank, and record the rounds in `work`."""


class Work:
    """The rounds of a method on one case so far."""

    def __init__(self, method: Method, case: Case, askers: CaseAskers):
        self.case, self.askers = case, askers
        self.critic: Critic = method.critic
        self.ask, self.reject = askers.writer.ask, askers.writer.reject
        self._method = method
        self.rounds = [Round(number=0, response=case.response, kept=True, why="as it came")]
        self._stop: Stop = "done"
        self._status, self._reason = Status.OK, _DONE

    @property
    def response(self) -> str:
        """The latest response that was kept."""
        kept = [one for one in self.rounds if one.kept]
        return kept[-1].response or ""

    async def revised(self, prompt: Prompt, statements: Collection[str] = ()) -> Revision:
        """The revision of the latest response that a prompt asks for."""
        return await revision(prompt, self.response, self.ask, self.reject, statements=statements)

    def take(self, found: Revision, trace: Mapping[str, Any] | None = None) -> bool:
        """End a round with a revision, which is kept if it changes the text; returns whether it does."""
        same = found.text is not None and comparable(found.text) == comparable(self.response)
        why = f"no revision: {found.why}" if found.text is None else "the revision is the same text" if same else "made"
        self._end(found.text, found.text is not None and not same, why, trace)
        if found.text is None:
            self.fail(Status.CORRECTION_FAILED, self.rounds[-1].why)
        elif same:
            self.stop("unchanged", why)
        else:
            self._stop, self._reason = "done", _DONE
        return self.rounds[-1].kept

    def leave(self, why: str, trace: Mapping[str, Any] | None = None, stop: Stop = "nothing_to_correct") -> None:
        """End a round without a revision, because the method leaves the response as it is."""
        self._end(None, False, why, trace)
        self.stop(stop, why)

    def give_up(self, status: Status, why: str, trace: Mapping[str, Any] | None = None) -> None:
        """End a failed round."""
        self._end(None, False, why, trace)
        self.fail(status, why)

    def stop(self, stop: Stop, why: str) -> None:
        self._stop, self._reason = stop, f"round {self.rounds[-1].number}: {why}"

    def fail(self, status: Status, why: str) -> None:
        self.stop("failed", why)
        self._status = status

    def _end(self, text: str | None, kept: bool, why: str, trace: Mapping[str, Any] | None) -> None:
        cost = self.askers.spent()
        number = len(self.rounds)
        self.rounds.append(Round(number=number, response=text, kept=kept, why=why, cost=cost, trace=trace or {}))
        self.askers.on_round(self.rounds[-1])

    def correction(self) -> Correction:
        return Correction(
            case=self.case,
            method=self._method.name,
            rounds=tuple(self.rounds),
            stop=self._stop,
            status=self._status,
            reason=self._reason,
            k=self.critic.settings.k,
        )
