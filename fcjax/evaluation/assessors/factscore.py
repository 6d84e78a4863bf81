"""FactScore: each atom is supported by the knowledge source, or it is not.

Follows Min et al., "FActScore: Fine-grained Atomic Evaluation of Factual Precision in Long Form Text Generation" (EMNLP
2023), in its form with retrieval and a language model: the k passages for a fact are shown, and the model says whether
the fact is true or false; precision is the share of true ones.

Differences: passages are those of the critic's source for each atom, of whatever page, where FActScore searches
the Wikipedia page of the topic; verdicts are read from words, not from the logits of True and False, and are not joined
with a nonparametric probability; there is no penalty for short responses (R@K stands for that); the wording is ours. An
atom without passages is not supported. One prompt per atom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from fcjax.core.passages import Passage
from fcjax.core.prompts import Prompt
from fcjax.core.records import Atom, Case, Label
from fcjax.correction.baselines.evidence import listed, prompt_of, question_of
from fcjax.correction.verdicts import Vocabulary
from fcjax.evaluation.assessors.assessor import Assessor
from fcjax.stages.templates import QUOTATION, Template, quoted

SUPPORTED, NOT_SUPPORTED = "supported", "not supported"

TEMPLATE: Final = Template(
    "baseline.factscore/1",
    f"""\
Passages about the topic of a question are given below, and a statement. Is the statement true by these passages alone?

{QUOTATION}

<question>
$question
</question>

<passages>
$passages
</passages>

<statement>
$statement
</statement>

Answer [true] if the passages support the statement and [false] if they do not, with the brackets and nothing else.""",
)


class FactScore(Assessor):
    """Verdicts in the style of FActScore."""

    name: ClassVar[str] = "factscore"
    verdicts: ClassVar[Vocabulary] = Vocabulary(
        {SUPPORTED: ("true", "supported"), NOT_SUPPORTED: ("false", "not supported", "unsupported")}
    )
    labels: ClassVar[dict[str, Label]] = {SUPPORTED: Label.SUPPORTED, NOT_SUPPORTED: Label.UNVERIFIED}
    without: ClassVar[str] = NOT_SUPPORTED

    def prompt(self, case: Case, atom: Atom, passages: Sequence[Passage]) -> Prompt:
        texts = {"passages": listed(passages), "statement": quoted(atom.text)}
        return prompt_of(TEMPLATE, 128, question=question_of(case), **texts)
