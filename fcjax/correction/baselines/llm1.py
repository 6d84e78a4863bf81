"""LLM1: a model corrects a response from its own knowledge.

The baseline of this name in the FactCorrector paper (2026, section 6). The prompt asks to correct factual errors and
has the question and the response only; its wording is ours. One prompt.
"""

from __future__ import annotations

from typing import ClassVar, Final

from fcjax.core.records import Case
from fcjax.correction.baselines.evidence import prompt_of, question_of
from fcjax.correction.baselines.rewriter import Rewriter, Work
from fcjax.correction.revision import ANSWER, editable
from fcjax.stages.templates import QUOTATION, Template

LLM1_TEMPLATE: Final = Template(
    "baseline.llm1/1",
    f"""\
A question and a response to it are given below. Correct every factual error in the response by what you know. Keep \
all else as it is, word for word where that is possible: order, language, style, form and about the length. If \
nothing in it is wrong, repeat it unchanged.

{QUOTATION}

<question>
$question
</question>

<response>
$response
</response>

{ANSWER}""",
)


class LLM1(Rewriter):
    """Corrects by the model's own knowledge."""

    name: ClassVar[str] = "llm1"
    template: Template = LLM1_TEMPLATE
    max_tokens: int = 4096

    async def rewrite(self, case: Case, work: Work) -> None:
        texts = {"question": question_of(case), "response": editable(work.response)}
        work.take(await work.revised(prompt_of(self.template, self.max_tokens, **texts)))
