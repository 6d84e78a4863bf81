"""SFT: one call to an endpoint that serves a model fine-tuned to correct.

The baseline of this name in the FactCorrector paper (2026, section 6). The conversation is the one of the training
files that `fcjax data finetune --no-feedback` writes from corrections, so that the prompts are those of the training;
a model of another training can have another `system` text. The reply is the response: there are no tags. One prompt.
"""

from __future__ import annotations

from typing import Any, ClassVar

from fcjax.core.checks import check_number
from fcjax.core.prompts import Prompt
from fcjax.core.records import Case
from fcjax.correction.baselines.rewriter import Rewriter, Work
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.io.datasets.finetune import messages


class SFT(Rewriter):
    """A fine-tuned corrector; `client` is that of its endpoint."""

    name: ClassVar[str] = "sft"

    def __init__(
        self,
        critic: Critic,
        *,
        system: str | None = None,
        max_tokens: int = 4096,
        client: Client | None = None,
        open_cases: int = 16,
    ):
        super().__init__(critic, client=client, open_cases=open_cases)
        check_number("max_tokens", max_tokens, 1, 2**31 - 1, whole=True)
        self.system, self.max_tokens = system, max_tokens

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "system": self.system, "max_tokens": self.max_tokens}

    def prompt(self, case: Case) -> Prompt:
        """The conversation of the training, up to the model's answer."""
        turns = [(turn["role"], turn["content"]) for turn in messages(case.query, case.response or "")]
        if self.system is not None:
            turns[0] = ("system", self.system)
        return Prompt(messages=tuple(turns), template="baseline.sft/1", max_tokens=self.max_tokens)

    async def rewrite(self, case: Case, work: Work) -> None:
        work.take(await work.revised(self.prompt(case)))
