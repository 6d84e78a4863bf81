"""CRITIC: a model searches for evidence on a response, criticises it by the results, and revises it, in iterations.

Follows Gou et al., "CRITIC: Large Language Models Can Self-Correct with Tool-Interactive Critiquing" (ICLR 2024), in
its form for free-form question answering: in each iteration the model asks for evidence, one query after the other,
criticises the plausibility and truthfulness of the answer, and gives a better one, from which the next iteration
starts. As there, up to 3 iterations, the best passage for a query cut to 400 characters, a repeated query moves on to
the next passage, and two iterations in a row without a change end it.

Differences: chat prompts without examples, one per step, where CRITIC continues one text with few-shot examples; up to
`queries` queries per iteration (7 interactions there); a critique that finds nothing wrong ends it, as an unchanged
answer does there. Prompts per iteration: one per query, 1 that says there is no other, 1 for the critique, 1 for the
revision.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from fcjax.core.checks import check_number
from fcjax.core.passages import Passage
from fcjax.core.prompts import Failure, Prompt, Reply
from fcjax.core.records import Case, Status
from fcjax.correction.baselines.evidence import NONE, found_for, listed, no_evidence, prompt_of, question_of, search_of
from fcjax.correction.baselines.rewriter import Rewriter, Work
from fcjax.correction.revision import ANSWER, editable
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.stages.answers import answers_to
from fcjax.stages.retrieve import Search
from fcjax.stages.templates import QUOTATION, Template, quoted

EVIDENCE: Final = 400
"""Characters of a passage in the prompt, as in CRITIC."""

_MATERIAL: Final = f"""\
{QUOTATION}

<question>
$question
</question>

<response>
$response
</response>

<evidence>
$evidence
</evidence>"""

QUERY: Final = Template(
    "baseline.critic.query/1",
    f"""\
A question and a response to it are given below, with the evidence that was found so far. What would you ask a search \
engine next, to find out whether the response is plausible and true?

{_MATERIAL}

Answer with one query between <query> and </query> and nothing else; with <query>none</query> if the evidence is \
enough to judge the response.""",
)

CRITIQUE: Final = Template(
    "baseline.critic.critique/1",
    f"""\
A question and a response to it are given below, with evidence that was searched for. What is wrong with the response? \
Consider, by the evidence, whether it is plausible as an answer to the question, and whether what it says is true.

{_MATERIAL}

Answer with a short critique between <critique> and </critique> and nothing else; with <critique>none</critique> if \
nothing is wrong.""",
)

REVISE: Final = Template(
    "baseline.critic.revise/1",
    f"""\
A question and a response to it are given below, with evidence that was searched for and a critique of the response. \
Give the most probable right response: correct what the critique finds wrong, by the evidence, and keep the language, \
the style and the form of the response.

{_MATERIAL}

<critique>
$critique
</critique>

{ANSWER}""",
)


class CriticBaseline(Rewriter):
    """Criticises by searching, and revises, up to `rounds` times."""

    name: ClassVar[str] = "critic"

    def __init__(
        self,
        critic: Critic,
        *,
        rounds: int = 3,
        queries: int = 3,
        max_tokens: int = 4096,
        client: Client | None = None,
        open_cases: int = 16,
    ):
        super().__init__(critic, client=client, open_cases=open_cases)
        check_number("rounds", rounds, 1, 1000, whole=True)
        check_number("queries", queries, 1, 1000, whole=True)
        check_number("max_tokens", max_tokens, 1, 2**31 - 1, whole=True)
        self.rounds, self.queries, self.max_tokens = rounds, queries, max_tokens

    def settings(self) -> dict[str, Any]:
        own = {"rounds": self.rounds, "queries": self.queries, "max_tokens": self.max_tokens}
        return {**super().settings(), **own}

    async def rewrite(self, case: Case, work: Work) -> None:
        search = search_of(self.critic, case)
        if search is None:
            work.give_up(Status.INVALID_INPUT, "the case has no `contexts`, and there is no source to search")
            return
        unchanged = 0
        for _ in range(self.rounds):
            queries: list[str] = []
            evidence = await self._evidence(case, work, search, queries)
            if isinstance(evidence, Failure):
                work.give_up(*_given_up(evidence), {"queries": queries})
                return
            texts = self._texts(case, work, evidence)
            critique = await _tagged(prompt_of(CRITIQUE, 1024, **texts), "critique", work)
            trace = {"queries": queries, "passages": len(evidence), "critique": critique}
            if isinstance(critique, Failure):
                work.give_up(*_given_up(critique), {**trace, "critique": None})
                return
            if _is_none(critique):
                work.leave("the critique finds nothing wrong", trace)
                return
            revised = await work.revised(prompt_of(REVISE, self.max_tokens, **texts, critique=quoted(critique)))
            unchanged = 0 if work.take(revised, trace) else unchanged + 1
            if revised.text is None or unchanged == 2:
                return

    async def _evidence(self, case: Case, work: Work, search: Search, queries: list[str]) -> list[Passage] | Failure:
        """The passages that the model's queries find; adds the queries to `queries`."""
        evidence: list[Passage] = []
        while len(queries) < self.queries:
            texts = self._texts(case, work, evidence)
            query = await _tagged(prompt_of(QUERY, 256, **texts), "query", work)
            if isinstance(query, Failure):
                return query
            if _is_none(query):
                break
            queries.append(query)
            found = await found_for(query, queries.count(query) + len(evidence), search, self.critic)
            if isinstance(found, Failure):
                return Failure("retrieval_failed", no_evidence(found))
            evidence += [one for one in found if one not in evidence][:1]
        return evidence

    def _texts(self, case: Case, work: Work, evidence: Sequence[Passage]) -> dict[str, str]:
        return {
            "question": question_of(case),
            "response": editable(work.response),
            "evidence": listed(evidence, EVIDENCE) if evidence else NONE,
        }


def _given_up(failure: Failure) -> tuple[Status, str]:
    if failure.kind == "retrieval_failed":
        return Status.RETRIEVAL_FAILED, failure.reason
    return Status.CORRECTION_FAILED, failure.reason


def _is_none(text: str) -> bool:
    return text.strip(" .\"'").casefold() in ("none", "nothing", "no", "n/a", "nothing is wrong")


async def _tagged(prompt: Prompt, tag: str, work: Work) -> str | Failure:
    """The text between tags in the reply to a prompt, or why there is none."""
    pattern = re.compile(rf"<\s*{tag}\s*>(.*?)<\s*/\s*{tag}\s*>", re.DOTALL | re.IGNORECASE)

    def read(reply: Reply) -> dict[int, str]:
        found = [text.strip() for text in pattern.findall(reply.text) if text.strip()]
        return {0: found[-1]} if found else {}

    def request(missing: Sequence[int]) -> str:
        return f"No {tag} could be read. Answer again, with it between <{tag}> and </{tag}> and nothing else."

    asked = await answers_to(prompt, 1, read, request, work.ask, work.reject, what=tag)
    return asked.answers[0] if asked.answers else Failure("unreadable", asked.why)
