"""VeriScore: each atom is supported, contradicted or left undecided by the search results.

Follows Song, Kim and Iyyer, "VeriScore: Evaluating the Factuality of Verifiable Claims in Long-Form Text Generation"
(Findings of EMNLP 2024), with the wording of the task as FactBench (Bayat et al., 2024) and FactReasoner's own baseline
have it: the model sums up what the passages say, weighs them, and ends with one of three verdicts.

Differences: the atoms are those of the critic's stages, where VeriScore extracts verifiable claims only; three
verdicts are kept apart, where VeriScore's score joins contradicted and undecided as not supported (its precision is the
same); the prompt is ours, without its examples. One prompt per atom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from fcjax.core.passages import Passage
from fcjax.core.prompts import Prompt
from fcjax.core.records import Atom, Case, Label
from fcjax.correction.baselines.evidence import listed, prompt_of
from fcjax.correction.verdicts import Vocabulary
from fcjax.evaluation.assessors.assessor import Assessor
from fcjax.stages.templates import QUOTATION, Template, quoted

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"

TEMPLATE: Final = Template(
    "baseline.veriscore/1",
    f"""\
Pieces of knowledge and a statement are given below. Find out what the knowledge says of the statement.

1. Go through the knowledge piece by piece, and sum up what each one says that bears on the statement.
2. Weigh it: does it imply the statement, does it contradict it, or is it not enough to tell?
3. Say the statement once more, and then your verdict.

{QUOTATION}

<knowledge>
$passages
</knowledge>

<statement>
$statement
</statement>

End with the verdict on a line of its own, in square brackets: [supported] if the knowledge supports the statement, \
[contradicted] if it contradicts the statement, [undecided] if it is not enough to tell.""",
)


class VeriScore(Assessor):
    """Verdicts in the style of VeriScore."""

    name: ClassVar[str] = "veriscore"
    verdicts: ClassVar[Vocabulary] = Vocabulary(
        {
            SUPPORTED: ("supported", "supports"),
            CONTRADICTED: ("contradicted", "contradicts", "refuted"),
            UNDECIDED: ("undecided", "unverifiable", "inconclusive", "not enough"),
        }
    )
    labels: ClassVar[dict[str, Label]] = {
        SUPPORTED: Label.SUPPORTED,
        CONTRADICTED: Label.REFUTED,
        UNDECIDED: Label.UNVERIFIED,
    }
    without: ClassVar[str] = UNDECIDED

    def prompt(self, case: Case, atom: Atom, passages: Sequence[Passage]) -> Prompt:
        return prompt_of(TEMPLATE, 1024, passages=listed(passages), statement=quoted(atom.text))
