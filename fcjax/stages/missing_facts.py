"""The facts that atomizing missed: what is asked about the passages that no fact covers, and which answers are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fcjax.core.prompts import Prompt
from fcjax.stages.coverage import Claims, Effort, Gap, TooMuchError, covered_by, keys_of
from fcjax.stages.templates import QUOTATION, Template, quoted, quoted_lines

REST: Final = Template(
    "atomize.rest/1",
    f"""\
A text, a part of someone's answer to a question, was taken apart into facts, so that every claim in it can be checked \
by itself. Some passages of the text may claim something that none of the facts says. List the facts that are missing.

A fact is one short, complete sentence that makes one claim, which is either true or false.
- List what the passages claim and no fact says yet. Repeat none of the facts that are there.
- State each claim as the text does, even if you know it to be wrong. Add nothing that the text does not say.
- Each fact must be clear to someone who reads nothing else: write names instead of "he", "it" or "the film". The \
question and the rest of the text are there to tell you what a passage speaks of.
- Leave out greetings, questions, advice, opinions, and remarks about the answer itself. A passage may claim nothing.
- Write in the language of the text.

Example. Of the text "Marie moved to Lyon in 1902, where she opened a bakery.", the fact "Marie moved to Lyon in \
1902." and the passage "she opened a bakery", missing is ["Marie opened a bakery in Lyon."]

{QUOTATION}

<question>
$question
</question>

<text>
$text
</text>

<facts>
$facts
</facts>

<passages>
$passages
</passages>

Answer with the missing facts as one JSON list of strings, and nothing else. If none is missing, answer [].""",
)

MOST_FACTS: Final = 100
"""The new facts of one part of a response that are compared with it: each comparison takes time."""
_MOST: Final = 40  # passages that a prompt asks about
_NONE: Final = "(none)"


def passages(response: str, gaps: Sequence[Gap], span: tuple[int, int]) -> list[str]:
    """The uncovered passages that begin within a part of a response, the first ones of many."""
    return [response[gap.start : gap.end] for gap in gaps if span[0] <= gap.start < span[1]][:_MOST]


def rest_prompt(template: Template, query: str, text: str, facts: Iterable[str], uncovered: Iterable[str]) -> Prompt:
    """What is asked about the uncovered passages of a text, of which `facts` are known."""
    content = template.fill(
        question=quoted(query) or _NONE,
        text=quoted_lines(text),
        facts="\n".join(map(quoted, facts)) or _NONE,
        passages="\n".join(map(quoted, uncovered)),
    )
    return Prompt(messages=(("user", content),), template=template.name)


def missing(response: str, known: Sequence[str], facts: Iterable[str]) -> tuple[str, ...]:
    """Those of `facts` that cover words of the response which `known` and the facts before leave uncovered.

    So none is kept that repeats another one in other words. Of many facts, the first ones are looked at, and no more
    than one `Effort` allows for them all. A fact without an uncovered word is not compared.
    """
    claims, effort = Claims.of(response), Effort()
    words = {(word.start, word.end): word.keys for part in claims.parts for word in part}
    keys, kept = [keys_of(fact) for fact in known], list[str]()
    try:
        left = _uncovered(claims, keys, effort)
        for fact in list(dict.fromkeys(facts))[:MOST_FACTS]:
            if not left:
                break
            own = keys_of(fact)
            if all(own.keys().isdisjoint(words[place]) for place in left):
                continue
            now = _uncovered(claims, [*keys, own], effort)
            if not left <= now:
                kept.append(fact)
                keys.append(own)
                left &= now
    except TooMuchError:
        pass  # the facts so far are kept
    return tuple(kept)


def _uncovered(claims: Claims, keys: Sequence[Mapping[str, float]], effort: Effort) -> set[tuple[int, int]]:
    return {word for gap in covered_by(claims, keys, effort).gaps for word in gap.words}
