"""Getting readable answers from a model: a prompt is sent, repaired once and drawn afresh once if needed.

A stage says what to ask and how to read it; how the answer is obtained is the same for all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from fcjax.core.prompts import Failure, PendingError, Prompt, Reply
from fcjax.stages.parsing.json_like import is_cut as ends_early
from fcjax.stages.templates import quoted

Ask = Callable[[Prompt], Awaitable[Reply | Failure]]
Reject = Callable[[Prompt], Awaitable[None]]

DRAWN_AT: Final = 1.0
"""The temperature of repeated draws; a question is first asked at 0. Draw 0 is a retry's, votes count from 1."""

DIVISIBLE: Final = frozenset({"context_overflow", "content_filter"})
"""Failures that a smaller question may not meet."""

AT_ONCE: Final = 8
"""How many prompts of one case a stage may have in flight at once; the client has its own limits."""

LONGEST_ANSWER: Final = 1 << 18
"""Characters of a reply that is read: some 64,000 tokens. Readers take time linear in them, in the event loop."""

_EXCERPT: Final = 1000  # characters of an unreadable answer that a repair quotes

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """The result of a prompt: its answers by place, from 0, and why some are missing."""

    answers: Mapping[int, T]
    why: str = ""
    failure: Failure | None = None  # of the first prompt; then there are no answers


async def answers_to(
    prompt: Prompt,
    count: int,
    read: Callable[[Reply], Mapping[int, T]],
    request: Callable[[Sequence[int]], str],
    ask: Ask,
    reject: Reject | None = None,
    *,
    what: str,
) -> Asked[T]:
    """The answers to a prompt that asks for `count` answers.

    What `read` cannot find in the reply is asked for once more, with the reply quoted and the `request` for the missing
    places, whose numbers in the form of the answer count from 1, then by one fresh draw of the whole prompt. Where some
    are missing still, the prompts whose replies were of no use are passed to `reject`, so that they are not served as
    answers again. `what` names in a reason what could not be read.
    """
    reply = await ask(prompt)
    if isinstance(reply, Failure):
        return Asked({}, reason(reply), reply)
    answers = dict(read(reply) if is_readable(prompt, reply) else {})
    useless = [] if answers else [prompt]
    why = f"unreadable: no {what} can be read in {shown(reply.text)}"
    for attempt in ("repair", "draw"):
        if missing := [i for i in range(count) if i not in answers]:
            again = _repair(prompt, reply, request(missing), missing) if attempt == "repair" else draw(prompt, 0)
            other = await ask(again)
            if isinstance(other, Reply):
                more = read(other) if is_readable(again, other) else {}
                useless += [] if any(i in more for i in missing) else [again]
                answers = {**more, **answers}
            else:
                why = reason(other)
    if reject and len(answers) < count:
        for one in useless:
            await reject(one)
    return Asked(answers, why)


def is_readable(prompt: Prompt, reply: Reply) -> bool:
    """Whether a reply can be read: not where it is longer than any answer, nor where it was cut off within one of the
    choices that its prompt allows, since it could have become another one."""
    return len(reply.text) <= LONGEST_ANSWER and not (
        reply.finish == "length" and prompt.answer is not None and prompt.answer.is_begun(reply.text)
    )


def _repair(prompt: Prompt, reply: Reply, request: str, missing: Sequence[int]) -> Prompt:
    """The prompt to repair an answer that could not, or not fully, be read."""
    said = quoted(reply.text)[:_EXCERPT] or "(nothing)"
    return replace(
        prompt,
        messages=(*prompt.messages, ("assistant", said), ("user", request)),
        template=f"{prompt.template} repair/1",
        max_tokens=prompt.max_tokens * (2 if reply.finish == "length" else 1),
        answer=prompt.answer.only(place + 1 for place in missing) if prompt.answer else None,
    )


def is_cut(reply: Reply) -> bool:
    """Whether a reply was cut off: the server says so, or its list or object does not end."""
    return reply.finish == "length" or ends_early(reply.text)


def draw(prompt: Prompt, sample: int) -> Prompt:
    """The prompt for another draw, at a higher temperature."""
    return replace(prompt, sample=sample, temperature=DRAWN_AT)


def reason(failure: Failure) -> str:
    """A failure on one line, its kind first."""
    return f"{failure.kind}: {failure.reason}"


def shown(text: str) -> str:
    """The beginning of a text, for a reason."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else line[:79] + "…") if line else "an empty answer"


class CountingAsk:
    """An `Ask` that counts what is asked."""

    def __init__(self, ask: Ask):
        self._ask = ask
        self.prompts = 0

    async def __call__(self, prompt: Prompt) -> Reply | Failure:
        self.prompts += 1
        return await self._ask(prompt)


async def each(work: Callable[[Item], Awaitable[Result]], items: Sequence[Item], at_once: int) -> list[Result]:
    """The result of `work` for each item, in order, with up to `at_once` in progress.

    Where one raises, those that have begun are waited for, since their replies are paid for, and no others begin. Where
    one waits for a batch, the others are worked on all the same, so that their prompts go into the same batch.
    """
    waiting = deque(enumerate(items))
    pending: list[PendingError] = []
    done: dict[int, Result] = {}

    async def worker() -> None:
        while waiting:
            place, item = waiting.popleft()
            try:
                done[place] = await work(item)
            except PendingError as error:
                pending.append(error)
            except BaseException:
                waiting.clear()
                raise

    workers = [worker() for _ in range(min(at_once, len(items)))]
    for outcome in await asyncio.gather(*workers, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
    if pending:
        raise pending[0]
    return [done[place] for place in range(len(items))]
