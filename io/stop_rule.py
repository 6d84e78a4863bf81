"""When to stop sending requests: if every further request would fail too."""

from __future__ import annotations

from collections import Counter
from typing import Final

from fcjax.core.errors import BudgetError, FcjaxError, SettingsError, counted
from fcjax.core.prompts import Failure

HOPELESS: Final = frozenset({"unauthorized", "forbidden", "not_found", "tls", "quota", "unsupported"})
"""Refusals that every request would meet. Where one comes before the first answer, nothing more is sent."""
FRUITLESS: Final = frozenset({"connection", "dns", "timeout", "invalid_request", "rate_limit"})
"""Failures that need not be every request's. Where all of the first `patience` requests have met them, nothing more is
sent."""
UNREACHED: Final = frozenset({"connection", "dns", "timeout"})
"""Failures that say nothing about a request: where a whole run has met nothing else, the service was not reached."""


class StopRule:
    """Decides when to stop sending requests to a service, by how its requests failed.

    A used-up quota ends the asking at any time, a refusal of `HOPELESS` before the first answer; and, with `patience`,
    that many requests that all failed before it. `why` explains a stop in the reason of later failures.
    """

    def __init__(self, why: str, *, patience: int | None = None):
        self._why, self._patience = why, patience
        self._failed: Counter[str] = Counter()  # requests that failed before the first answer, by kind
        self._last = ""  # of their reasons
        self._reached = False
        self.stopped: Failure | None = None  # the failure of everything that is not sent any more

    def answered(self) -> None:
        """A request was answered."""
        self._reached = True

    def failed(self, kind: str, reason: str) -> None:
        """A request failed permanently."""
        if not self._reached:
            self._failed[kind] += 1
            self._last = reason
        if self.stopped is not None:
            return
        tried = self._failed.total()
        if kind == "quota" or (kind in HOPELESS and not self._reached):
            self.stopped = Failure(kind, f"{reason} ({self._why})")
        elif self._reached or self._patience is None or tried < self._patience:
            return
        elif FRUITLESS.issuperset(self._failed):
            seen = f"the first {tried} prompts have all failed, so no more are sent"
            self.stopped = Failure(kind, f"{seen}; the last: {reason}")

    @property
    def unreached(self) -> str | None:
        """Why there was no answer, if the service was never reached; None if it was, or may have been."""
        if self._reached or not self._failed or not UNREACHED.issuperset(self._failed):
            return None
        failed = counted(self._failed.total(), "prompt")
        return f"endpoint unreachable: {failed} failed; the last: {self._last}"


def end_of_run(failure: Failure, stopped: Failure | None) -> FcjaxError | None:
    """The error that ends a whole run after one prompt's `failure`; None where other prompts may still be answered.

    `stopped` is that of the client's `StopRule`. Any further prompt would only add failures to the results.
    """
    if failure.kind in ("budget", "quota"):  # the run's own, or the account's
        return BudgetError(failure.reason)
    return SettingsError(stopped.reason) if stopped is not None and stopped.kind != "quota" else None
