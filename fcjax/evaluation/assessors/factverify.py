"""FactVerify: each atom is supported, contradicted or left undecided by search results that are shown with their links.

Follows the assessor of this name beside FactReasoner (release 0.5), which has the three categories of VeriScore's
verification prompt and, as SAFE (Wei et al., "Long-form factuality in large language models", 2024), checks facts
against search results: supported needs everything in the claim to be supported and nothing contradicted; contradicted
needs a part that is contradicted and that nothing supports; a part that cannot be verified, a part on which results
disagree, or a name without a clear referent leaves it undecided. How far to trust a source is the model's to weigh.

Differences: evidence is the critic's for each atom, without searches in several steps as SAFE has them; the
prompt is ours, without examples. One prompt per atom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from fcjax.core.passages import Passage
from fcjax.core.prompts import Prompt
from fcjax.core.records import Atom, Case, Label
from fcjax.correction.baselines.evidence import EXCERPT, evidence_of, prompt_of
from fcjax.correction.verdicts import Vocabulary
from fcjax.evaluation.assessors.assessor import Assessor
from fcjax.evaluation.assessors.veriscore import CONTRADICTED, SUPPORTED, UNDECIDED
from fcjax.stages.templates import QUOTATION, Template, quoted

TEMPLATE: Final = Template(
    "baseline.factverify/1",
    f"""\
A claim and search results are given below. Judge whether the results support the claim, contradict it, or leave it \
undecided. Take into account by its link how far a source can be trusted.

supported: everything in the claim is supported by the results, and nothing in it is contradicted; some results may \
have nothing to do with it
contradicted: something in the claim is contradicted by results, and none supports that part
undecided: a part of the claim is neither supported nor contradicted, or results disagree about a part of it, or it is \
not clear whom or what the claim speaks of

{QUOTATION}

<claim>
$claim
</claim>

<search_results>
$results
</search_results>

Answer with the word that fits, in square brackets, and nothing else.""",
)


class FactVerify(Assessor):
    """Verdicts in the style of FactVerify."""

    name: ClassVar[str] = "factverify"
    verdicts: ClassVar[Vocabulary] = Vocabulary(
        {
            SUPPORTED: ("supported",),
            CONTRADICTED: ("contradicted", "refuted"),
            UNDECIDED: ("undecided", "inconclusive", "unverifiable"),
        }
    )
    labels: ClassVar[dict[str, Label]] = {
        SUPPORTED: Label.SUPPORTED,
        CONTRADICTED: Label.REFUTED,
        UNDECIDED: Label.UNVERIFIED,
    }
    without: ClassVar[str] = UNDECIDED

    def prompt(self, case: Case, atom: Atom, passages: Sequence[Passage]) -> Prompt:
        results = "\n".join(_result(number, one) for number, one in enumerate(passages, 1))
        return prompt_of(TEMPLATE, 128, claim=quoted(atom.text), results=results)


def _result(number: int, one: Passage) -> str:
    text = quoted(evidence_of(one))
    parts = (f"title: {quoted(one.title or '')}", f"content: {text[:EXCERPT]}", f"link: {quoted(one.link or '')}")
    return f"{number}. {'; '.join(parts)}"
