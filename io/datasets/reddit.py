"""Questions with answers from Reddit, from ELI5-Category and ELI5 (whose `askh` splits are AskHistorians).

A row has `q_id`, `title`, `selftext` (often empty), `category` or `subreddit`, and `answers`: an object of parallel
lists (`a_id`, `text`, `score`), or a list of objects with these fields. AskHistorians may also have rows with
`question` and `response`, as in VeriScore's files: these are questions with a model's response.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from fcjax.core.records import Case
from fcjax.io.datasets.rows import Fields, Origin, Unit, read_each
from fcjax.io.files.objects import Row
from fcjax.io.files.streams import Source

_KNOWN: Final = frozenset(
    [
        "q_id",
        "title",
        "selftext",
        "document",
        "subreddit",
        "category",
        "answers",
        "url",
        "title_urls",
        "selftext_urls",
        "answers_urls",
    ]
)
_PLAIN: Final = frozenset(("id", "question", "response", "answer", "model", "prompt_source", "abstained"))
_GONE: Final = ("", "[removed]", "[deleted]")


class _Answer(NamedTuple):
    id: str | None
    text: str
    score: float


def read_eli5(*paths: Source) -> Iterator[Row[Unit]]:
    """ELI5-Category's files (or ELI5's) as cases whose response is the answer with the most votes.

    It is also the `reference`; the category is the topic. A question whose answers were all removed is skipped.
    """
    return read_each("eli5", paths, _KNOWN, lambda row, origin: _question(row, origin, "eli5"))


def read_askhistorians(*paths: Source) -> Iterator[Row[Unit]]:
    """AskHistorians' questions: ELI5's rows of that subreddit, or rows with `question` and `response`.

    Rows that name another subreddit or `prompt_source` are skipped. With Reddit's answers the response is the one with
    the most votes; a row with a question alone becomes a case without a response.
    """
    return read_each("askhistorians", paths, _KNOWN | _PLAIN, _historians)


def _historians(row: Fields, origin: Origin) -> Unit:
    source = row.maybe("subreddit", "prompt_source")
    if source and not source.strip().lower().removeprefix("r/").startswith(("askh", "ask_h")):
        return Unit("", (), f"from {source.strip()}")
    if not row.has("question"):
        return _question(row, origin, "askhistorians")
    query = row.text("question")
    extra = {"source": "askhistorians"} | ({"model": model} if (model := row.maybe("model")) else {})
    id = f"askhistorians-{row.maybe('id') or f'{origin.label}-{origin.number}'}"
    case = Case(id=id, query=query, response=row.maybe("response", "answer"), topic="history", extra=extra)
    return Unit(query.strip(), (case,))


def _question(row: Fields, origin: Origin, name: str) -> Unit:
    id, title, more = row.text("q_id"), row.text("title"), row.maybe("selftext")
    best = max(_answers(row), key=lambda answer: answer.score, default=None)  # the first with the most votes
    row.check()
    if best is None:
        return Unit(id, (), "no answer is left")
    topic = row.maybe("category") or ("history" if name == "askhistorians" else None)
    gone = more is None or more.strip() in _GONE
    extra: dict[str, Any] = {"source": name, "score": best.score} | ({"a_id": best.id} if best.id else {})
    case = Case(
        id=f"{name}-{id}",
        query=title.strip() if gone else f"{title.strip()}\n\n{str(more).strip()}",
        response=best.text,
        topic=topic,
        extra=extra | {"reference": best.text},
    )
    return Unit(id, (case,))


def _answers(row: Fields) -> Iterator[_Answer]:
    """The answers that were not removed."""
    answers = row.values.get("answers")
    if isinstance(answers, dict):
        lists = Fields(answers, "answers.", row.faults)
        texts = lists.items("text")
        scores = lists.items("score", len(texts))
        ids = lists.items("a_id", len(texts)) if lists.has("a_id") else [None] * len(texts)
        rows = [dict(zip(("a_id", "text", "score"), one, strict=True)) for one in zip(ids, texts, scores, strict=False)]
    else:
        rows = row.items("answers")
    for i, values in enumerate(rows):
        one = Fields(values, f"answers[{i}].", row.faults)
        score: Any = one.values.get("score")
        if type(score) not in (int, float):
            one.lack(("score",), "a number") if score is None else one.wrong("score", "a number")
        elif (text := (one.maybe("text") or "").strip()) not in _GONE:
            yield _Answer(one.maybe("a_id"), text, score)
