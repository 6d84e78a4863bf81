"""What a client has done, and what a run would cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """What a client has done. `asked` = `answered` + all in `failed` + what is being asked."""

    asked: int = 0  # prompts given to the client
    answered: int = 0  # of these, the ones that got a reply, from wherever
    failed: Counter[str] = field(default_factory=Counter)  # prompts without an answer, by kind
    cache_hits: int = 0  # answers that came from the store
    shared: int = 0  # answers that came from another prompt's call
    sent: int = 0  # calls on the wire
    retries: int = 0  # of these, the ones after a failed one
    in_flight: int = 0  # calls that are on the wire now
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None  # US dollars, None where the price is unknown
    busy: float = 0.0  # seconds of all calls together
    seconds: float = 0.0  # from the first call's beginning to the last one's end
    unconstrained: str | None = None  # the server's words where it refused to constrain answers, which are free then

    @property
    def mean_concurrency(self) -> float:
        return self.busy / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a run would send, before anything is sent. Tokens and cost cover only the prompts that would be sent."""

    prompts: int = 0
    distinct: int = 0
    stored: int = 0  # of the distinct ones
    prompt_tokens: int = 0
    completion_tokens: int = 0  # at most: every answer as long as its max_tokens
    cost: float | None = 0.0  # US dollars, at most; None where the price is unknown

    @property
    def to_send(self) -> int:
        return self.distinct - self.stored
