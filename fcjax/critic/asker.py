"""Asking a model during a whole run, which ends where no other prompt would fare better; and what that costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from fcjax.core.errors import FcjaxError, SettingsError
from fcjax.core.prompts import Failure, Prompt, Reply
from fcjax.io.client import Client
from fcjax.io.stop_rule import end_of_run


class Asker:
    """Asks a client; `end` is the error that ends the run, once there is one (see `end_of_run`).

    Without a client, as where relations are read locally, nothing is to be asked: every prompt is a failure.
    """

    def __init__(self, client: Client | None):
        self.client = client
        self._end: FcjaxError | None = None

    @property
    def end(self) -> FcjaxError | None:
        return self._end

    @property
    def model(self) -> str | None:
        """The name of the model that is asked; None where none is."""
        return None if self.client is None else self.client.model

    def raise_end(self) -> None:
        """Raise the error that ends the run, once all that was asked is answered: `end`, or `SettingsError` where the
        endpoint was never reached, which with few prompts is only known then."""
        if self.end:
            raise self.end
        if self.client is not None and (why := self.client.unreached):
            raise SettingsError(why)

    async def ask(self, prompt: Prompt) -> Reply | Failure:
        if self.client is None:
            return Failure("no_model", "there is no endpoint to ask; name one with --base-url, or in where=")
        answer = await self.client.ask(prompt)
        if isinstance(answer, Failure) and self._end is None:
            self._end = end_of_run(answer, self.client.stopped)
        return answer

    async def reject(self, prompt: Prompt) -> None:
        if self.client is not None:
            await self.client.reject(prompt)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of prompts, wherever the replies came from: one from the store counts as when it was paid for, so that a
    run costs the same each time. Tokens are those that replies report."""

    prompts: int = 0
    failed: int = 0  # of these, the ones without a reply
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float | None = 0.0  # None where a price is not known

    def __add__(self, other: Cost) -> Cost:
        known = self.dollars is not None and other.dollars is not None
        return Cost(
            self.prompts + other.prompts,
            self.failed + other.failed,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            (self.dollars or 0.0) + (other.dollars or 0.0) if known else None,
        )

    @property
    def tokens(self) -> int:
        """Of prompts and replies together."""
        return self.prompt_tokens + self.completion_tokens

    def to_dict(self) -> dict[str, int | float | None]:
        """The cost as JSON, dollars to 9 digits."""
        return asdict(self) | {"dollars": None if self.dollars is None else round(self.dollars, 9)}

    @classmethod
    def of(cls, answer: Reply | Failure) -> Cost:
        """What one prompt cost."""
        if isinstance(answer, Failure):
            return cls(prompts=1, failed=1)
        usage = answer.usage
        return cls(1, 0, usage.prompt if usage else 0, usage.completion if usage else 0, answer.cost)


class Meter(Asker):
    """Asks through another asker, which knows when the run ends, and adds up the cost."""

    def __init__(self, asker: Asker):
        super().__init__(asker.client)
        self._asker = asker
        self.cost = Cost()

    @property
    def end(self) -> FcjaxError | None:
        return self._asker.end

    async def ask(self, prompt: Prompt) -> Reply | Failure:
        answer = await self._asker.ask(prompt)
        self.cost += Cost.of(answer)
        return answer
