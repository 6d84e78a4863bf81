"""A source of evidence behind the store: results are kept on disk, and a run can be repeated without the source."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fcjax.core.checks import check_number
from fcjax.core.errors import SettingsError
from fcjax.core.passages import Found, Retriever
from fcjax.core.prompts import Failure
from fcjax.io.single_flight import SingleFlight
from fcjax.io.store import Store


@dataclass(slots=True)
class SearchStats:
    """Counts of searches. `asked` = `answered` + all in `failed` + those under way."""

    asked: int = 0
    answered: int = 0  # by the source, with passages or none
    failed: Counter[str] = field(default_factory=Counter)  # the others, by kind
    hits: int = 0  # answers that came from the store
    shared: int = 0  # answers that came from the same search under way
    sent: int = 0  # searches that the source itself was asked
    passages: int = 0  # in all answers


class Cached:
    """A `Retriever` that queries another one only for what is not in the store.

    A live run finds earlier results, unless they are older than `max_age` seconds, and journals failures beside them;
    only a replay, which never asks the source, is given those. Equal searches at the same time are one. What was found
    is on disk before it is returned. The store stays its owner's; the retriever is closed with this. Without a store it
    only shares and counts: enough for a source that is on disk itself, which a replay may ask as well.
    """

    def __init__(
        self,
        retriever: Retriever,
        store: Store | None,
        *,
        replay: bool = False,
        max_age: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        check_number("max_age", max_age, 0, none=True)
        if replay and store is None:
            raise SettingsError("replaying searches requires a store; specify the store of the run to repeat")
        self.stats = SearchStats()
        self._retriever, self._store, self._replay, self._max_age = retriever, store, replay, max_age
        self._clock = clock
        self._searches: SingleFlight[Found | Failure] = SingleFlight()

    @property
    def name(self) -> str:
        """The source's own name."""
        return self._retriever.name

    async def search(self, query: str, k: int) -> Found | Failure:
        """The `k` best passages, stored durably. Raises `OutputError` if the store cannot be written."""
        self.stats.asked += 1
        try:
            found = await self._searches.get(f"{k} {query}", lambda: self._answer(query, k))
        except BaseException:
            self.stats.asked -= 1
            raise
        finally:
            self.stats.shared = self._searches.shared
        if isinstance(found, Failure):
            self.stats.failed[found.kind] += 1
        else:
            self.stats.answered += 1
            self.stats.passages += len(found)
        return found

    async def close(self) -> None:
        """End the searches under way, and close the source."""
        await self._searches.close()
        await self._retriever.close()

    async def _answer(self, query: str, k: int) -> Found | Failure:
        name = self._retriever.name
        if self._store is None:
            self.stats.sent += 1
            return await self._retriever.search(query, k)
        kept = await self._store.get_found(name, query, k, replay=self._replay, max_age=self._max_age)
        if kept is not None:
            self.stats.hits += 1
            return kept
        if self._replay:
            return Failure(
                "replay_miss", f"the store has no answer from {name} to {query!r:.80}; run without replay to get one"
            )
        self.stats.sent += 1
        began = self._clock()
        found = await self._retriever.search(query, k)
        if isinstance(found, Failure) and not found.attempts:
            return found  # nothing was sent, so it says nothing of this search
        return await self._store.put_found(name, query, k, found, seconds=self._clock() - began)
