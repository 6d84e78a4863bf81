"""Asking a model for a whole run, which ends where no other prompt would fare better."""

from __future__ import annotations

from fcjax.errors import BudgetError, FcjaxError, SettingsError
from fcjax.io.client import Client
from fcjax.prompts import Failure, Prompt, Reply


class Asker:
    """Asks a client; `end` is what ends the run, once there is a reason: it would only write failures from there on."""

    def __init__(self, client: Client):
        self.client = client
        self.end: FcjaxError | None = None

    async def ask(self, prompt: Prompt) -> Reply | Failure:
        answer = await self.client.ask(prompt)
        if isinstance(answer, Failure) and self.end is None:
            self.end = self._end_of_all(answer)
        return answer

    async def reject(self, prompt: Prompt) -> None:
        await self.client.reject(prompt)

    def _end_of_all(self, failure: Failure) -> FcjaxError | None:
        if failure.kind in ("budget", "quota"):  # the run's own, or the account's
            return BudgetError(failure.reason)
        stopped = self.client.stopped
        return SettingsError(stopped.reason) if stopped is not None and stopped.kind != "quota" else None
