"""A model makes half of a stream of right answers wrong, many at once, in order (the recipe of Veli5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from fcjax.core.prompts import Failure
from fcjax.core.records import Case
from fcjax.critic.asker import Asker
from fcjax.io.client import Client
from fcjax.io.datasets.selection import is_drawn
from fcjax.io.own_loop import in_own_loop
from fcjax.io.window import Window
from fcjax.stages.falsify import Falsifier

RIGHT, WRONG = "right", "wrong"


class FalsifiedCase(NamedTuple):
    """A finished case, or the case as given and the reason why there is no wrong answer."""

    case: Case
    failure: Failure | None = None


def falsify(
    cases: Iterable[Case],
    client: Client,
    how: Falsifier | None = None,
    *,
    seed: int = 0,
    window: int = 256,
    progress: Callable[[int], None] | None = None,
) -> list[FalsifiedCase]:
    """All cases, in order; of every two in a row, the seed draws one whose response is made wrong.

    Each has `right` or `wrong` under `answer`. Replies are in the client's store before they are used, so that the same
    call resumes after a stop. Raises `BudgetError` when the budget is used up, `SettingsError` when the endpoint
    answers nothing at all.
    """
    return in_own_loop(_falsify(cases, client, how or Falsifier(), seed, window, progress))


async def _falsify(
    cases: Iterable[Case],
    client: Client,
    how: Falsifier,
    seed: int,
    window: int,
    progress: Callable[[int], None] | None,
) -> list[FalsifiedCase]:
    asker = Asker(client)

    async def work(item: tuple[int, Case]) -> FalsifiedCase:
        place, case = item
        if not is_drawn(seed, place):
            return FalsifiedCase(replace(case, extra={**case.extra, "answer": RIGHT}))
        found = await how.run(case, asker.ask, asker.reject)
        if isinstance(found, Failure):
            return FalsifiedCase(case, found)
        return FalsifiedCase(replace(found, extra={**found.extra, "answer": WRONG}))

    async def items() -> AsyncIterator[tuple[int, Case]]:
        for item in enumerate(cases):
            if asker.end:
                return
            yield item

    found: dict[int, FalsifiedCase] = {}
    answers = Window(items(), work, window)
    async with client:
        try:
            async for (place, _), outcome in answers:
                found[place] = outcome
                if progress:
                    progress(1)
        finally:
            await answers.close()
    if asker.end:
        raise asker.end
    return [found[place] for place in sorted(found)]
