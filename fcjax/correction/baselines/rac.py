"""RAC: statement by statement, retrieve, verify, correct; then the response is rewritten by what was verified.

Follows Li and Flanigan, "RAC: Efficient LLM Factuality Correction with Retrieval Augmentation" (Findings of EMNLP
2025): the response is taken apart into facts, one prompt says of each whether the passages make it true, false or do
not mention it, every false one is corrected by a prompt of its own, and a last prompt corrects the response by the
facts that are verified. As there, a response whose statements do not all have a verdict is left as it is, and so is one
without a false statement. A search or an endpoint that fails is a failure, not one of these.

Differences: the facts are those of the critic's stages and passages are looked for by statement, where RAC has
one set of passages for a question; an answer that cannot be read is asked for once more and drawn afresh once; the
wording is ours. Statements that are not mentioned count among the facts unless `unmentioned` is False (RAC has both).

Prompts: those of the stages that take the response apart, 1, one for each false statement, and 1 if there is any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from fcjax.core.checks import check_number
from fcjax.core.errors import counted
from fcjax.core.prompts import Reply
from fcjax.core.records import Atom, Case, Status
from fcjax.correction.baselines.evidence import listed, passages_of, prepared, prompt_of, question_of
from fcjax.correction.baselines.rewriter import Rewriter, Work
from fcjax.correction.revision import ANSWER, Revision, editable, revision
from fcjax.correction.verdicts import Vocabulary
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.stages.answers import AT_ONCE, Asked, answers_to, each, is_cut
from fcjax.stages.templates import QUOTATION, Template, quoted

TRUE, FALSE, UNMENTIONED = "true", "false", "not mentioned"
VERDICTS: Final = Vocabulary(
    {
        TRUE: ("true", "supported", "correct"),
        FALSE: ("false", "contradicted", "incorrect"),
        UNMENTIONED: ("not mentioned", "unmentioned", "not mention"),
    }
)

VERIFY: Final = Template(
    "baseline.rac.verify/1",
    f"""\
A question, passages and $count numbered statements from a response to the question are given below. Decide for each \
statement, by the passages alone, whether it is true.

true: the passages say the same
false: the passages say something else about it
not mentioned: the passages do not say

{QUOTATION}

<question>
$question
</question>

<passages>
$passages
</passages>

<statements>
$statements
</statements>

Answer with one JSON object and nothing else, in which the number of every statement, from "1" to "$count", has its \
verdict as a string.""",
)

CORRECT: Final = Template(
    "baseline.rac.correct/1",
    f"""\
A question, passages and a false statement from a response to the question are given below. Write the statement once \
more, in its language, so that it is right by what the passages say, as one short sentence.

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

{ANSWER}""",
)

REWRITE: Final = Template(
    "baseline.rac.rewrite/1",
    f"""\
A question, a response to it and verified facts are given below. Correct the response so that it agrees with the \
verified facts. Keep all else as it is, word for word where that is possible: order, language, style and form. Do not \
speak of the facts as such.

{QUOTATION}

<question>
$question
</question>

<response>
$response
</response>

<verified_facts>
$facts
</verified_facts>

{ANSWER}""",
)


class RAC(Rewriter):
    """Corrects false statements one by one, then the response by the verified ones."""

    name: ClassVar[str] = "rac"

    def __init__(
        self,
        critic: Critic,
        *,
        unmentioned: bool = True,
        max_tokens: int = 4096,
        client: Client | None = None,
        open_cases: int = 16,
    ):
        super().__init__(critic, client=client, open_cases=open_cases)
        check_number("max_tokens", max_tokens, 1, 2**31 - 1, whole=True)
        self.unmentioned, self.max_tokens = bool(unmentioned), max_tokens

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "unmentioned": self.unmentioned, "max_tokens": self.max_tokens}

    async def rewrite(self, case: Case, work: Work) -> None:
        case = await prepared(self.critic, case, work.askers.critic)
        if case.status.failed or not case.atoms:
            why = case.extra.get("reason") or "the response has no atoms"
            status = case.status if case.status.failed else Status.NO_ATOMS
            work.give_up(status, f"it cannot be taken apart: {why}")
            return
        atoms = [atom for atom in case.atoms if not atom.status.failed]
        asked = await self._verdicts(case, atoms, work)
        verdicts = [asked.answers[place] for place in sorted(asked.answers)]
        trace = {"statements": len(case.atoms), **{one: verdicts.count(one) for one in (TRUE, FALSE, UNMENTIONED)}}
        if len(verdicts) < len(case.atoms):
            seen = f"{counted(len(verdicts), 'verdict')} for {counted(len(case.atoms), 'statement')}"
            kept = f"{seen}{f' ({asked.why})' if asked.why else ''}: the response is kept"
            if len(atoms) == len(case.atoms) and asked.why.startswith("unreadable: "):
                work.leave(kept, trace, "unchanged")
            else:  # an outage, not an answer of the model
                work.give_up(Status.CORRECTION_FAILED, kept, trace)
            return
        false = [atom for atom, verdict in zip(atoms, verdicts, strict=True) if verdict == FALSE]
        if not false:
            work.leave("no statement is false", trace)
            return
        corrected = dict(zip([atom.id for atom in false], await self._corrections(case, false, work), strict=True))
        facts = []
        for atom, verdict in zip(atoms, verdicts, strict=True):
            text = corrected[atom.id].text if verdict == FALSE else atom.text
            if text and (verdict != UNMENTIONED or self.unmentioned):
                facts.append(text)
        trace["corrected"] = sum(one.text is not None for one in corrected.values())
        listing = "\n".join(f"{number}. {quoted(fact)}" for number, fact in enumerate(facts, 1))
        texts = {"question": question_of(case), "response": editable(work.response), "facts": listing}
        revised = await work.revised(prompt_of(REWRITE, self.max_tokens, **texts), [atom.text for atom in false])
        work.take(revised, trace)

    async def _verdicts(self, case: Case, atoms: Sequence[Atom], work: Work) -> Asked[str]:
        """The verdicts on statements by index, and why any are missing."""
        if not atoms:
            return Asked({}, "no statement has evidence that could be looked for")
        passages = {one: None for atom in atoms for one in passages_of(case, atom)}
        prompt = prompt_of(
            VERIFY,
            256 + 24 * len(atoms),
            question=question_of(case),
            passages=listed(passages),
            statements="\n".join(f"{number}. {quoted(atom.text)}" for number, atom in enumerate(atoms, 1)),
            count=str(len(atoms)),
        )

        def read(reply: Reply) -> dict[int, str]:
            found = VERDICTS.read_numbered(reply.text, len(atoms), is_cut(reply))
            return {number - 1: verdict for number, verdict in found.items()}

        def request(missing: Sequence[int]) -> str:
            numbers = ", ".join(str(place + 1) for place in missing)
            return (
                f"No verdict could be read for these numbers: {numbers}. Answer again for them, with one JSON object "
                f"from each number to its verdict and nothing else. The verdicts: {', '.join(VERDICTS.spellings)}."
            )

        return await answers_to(prompt, len(atoms), read, request, work.ask, work.reject, what="verdict")

    async def _corrections(self, case: Case, atoms: Sequence[Atom], work: Work) -> list[Revision]:
        """The correction of each false statement, or why there is none."""

        async def correct(atom: Atom) -> Revision:
            texts = {"passages": listed(passages_of(case, atom)), "statement": quoted(atom.text)}
            prompt = prompt_of(CORRECT, 512, question=question_of(case), **texts)
            return await revision(prompt, atom.text, work.ask, work.reject)

        return await each(correct, atoms, AT_ONCE)
