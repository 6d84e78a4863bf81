"""WikiContradict: questions on which two passages of Wikipedia contradict each other, with the answer by each of them.

The table of its release has `question_ID`, `question`, `context1`, `context2`, `answer1`, `answer2`, `contradictType`,
`samepassage`, `WikipediaArticleTitle` and `url` (and `merged_context`, `ref_answer`, which repeat these).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fcjax.core.records import Case, Context
from fcjax.io.datasets.rows import Fields, Origin, Unit, read_each
from fcjax.io.files.objects import Row
from fcjax.io.files.streams import Source

_KNOWN: Final = frozenset(
    [
        "question_ID",
        "question",
        "context1",
        "context2",
        "answer1",
        "answer2",
        "contradictType",
        "samepassage",
        "merged_context",
        "ref_answer",
        "WikipediaArticleTitle",
        "url",
    ]
)


def read_wikicontradict(*paths: Source) -> Iterator[Row[Unit]]:
    """WikiContradict's table (.csv, or the same rows as JSON) as cases: two per question, one for each answer.

    Both have both passages as contexts. The answers are a few words that need the question, so there are no atoms yet;
    neither is false: `answer_of` names the context that supports it, and `other_answer` is that of the other context.
    Questions on one article go into the same split.
    """
    return read_each("wikicontradict", paths, _KNOWN, _parse)


def _parse(row: Fields, origin: Origin) -> Unit:
    question, title, url = row.text("question"), row.given("WikipediaArticleTitle"), row.given("url")
    texts = row.text("context1"), row.text("context2")
    answers = row.text("answer1"), row.text("answer2")
    kind = row.given("contradictType")
    row.check()
    id = f"wikicontradict-{row.given('question_ID') or origin.number}"
    contexts = tuple(Context(id=f"c{i}", title=title, text=text, link=url) for i, text in enumerate(texts))
    cases = []
    for i, answer in enumerate(answers):
        extra: dict[str, Any] = {"source": "wikicontradict", "answer_of": f"c{i}", "other_answer": answers[1 - i]}
        extra |= {"contradiction": kind} if kind else {}
        one = Case(id=f"{id}-{i + 1}", query=question, response=answer, topic=title, contexts=contexts, extra=extra)
        cases.append(one)
    return Unit(title or id, tuple(cases))
