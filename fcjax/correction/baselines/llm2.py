"""LLM2: a model corrects a response by passages that were retrieved for the question.

The baseline of this name in the FactCorrector paper (2026, section 6): one retrieval for the question, not for each
statement, and no verdicts; the wording is ours. For a case with contexts of its own, those that fit its question best.
One prompt.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from fcjax.core.checks import check_number
from fcjax.core.prompts import Failure
from fcjax.core.records import Case, Status
from fcjax.correction.baselines.evidence import found_for, listed, no_evidence, prompt_of, question_of, search_of
from fcjax.correction.baselines.rewriter import Rewriter, Work
from fcjax.correction.revision import ANSWER, editable
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.stages.templates import QUOTATION, Template

LLM2_TEMPLATE: Final = Template(
    "baseline.llm2/1",
    f"""\
A question, a response to it and passages that were found for the question are given below. Correct every factual \
error in the response by what the passages say. Keep all else as it is, word for word where that is possible: order, \
language, style, form and about the length. Do not speak of the passages. If nothing in the response is wrong, repeat \
it unchanged.

{QUOTATION}

<question>
$question
</question>

<response>
$response
</response>

<passages>
$passages
</passages>

{ANSWER}""",
)


class LLM2(Rewriter):
    """Corrects by the `k` best passages for the question."""

    name: ClassVar[str] = "llm2"
    template: Template = LLM2_TEMPLATE
    max_tokens: int = 4096

    def __init__(self, critic: Critic, *, k: int = 5, client: Client | None = None, open_cases: int = 16):
        super().__init__(critic, client=client, open_cases=open_cases)
        check_number("k", k, 1, 1000, whole=True)
        self.k = k

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "k": self.k}

    async def rewrite(self, case: Case, work: Work) -> None:
        search = search_of(self.critic, case)
        if search is None:
            work.give_up(Status.INVALID_INPUT, "the case has no `contexts`, and there is no source to search")
            return
        found = await found_for(case.query or work.response, self.k, search, self.critic)
        if isinstance(found, Failure):
            work.give_up(Status.RETRIEVAL_FAILED, no_evidence(found))
            return
        texts = {"question": question_of(case), "response": editable(work.response), "passages": listed(found)}
        revised = await work.revised(prompt_of(self.template, self.max_tokens, **texts))
        work.take(revised, {"passages": len(found)})
