"""One case that is asked about in rounds: not every pair, but those that could change a label (docs/adaptive.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fcjax.core.errors import InputError
from fcjax.core.prompts import PendingError
from fcjax.core.records import DISTRIBUTED, Case, Relation
from fcjax.critic.inquiry import Inquiry, all_pairs, found_for
from fcjax.critic.open_case import CaseQuestion, OpenCase, unusable
from fcjax.stages.pair_opinion import LEAST, Opinion, opinion_by_words
from fcjax.stages.relate import Agenda, Pair, RelationModel
from fcjax.stages.screen import Screen

if TYPE_CHECKING:
    from fcjax.critic.asker import Asker
    from fcjax.critic.relation_config import RelationConfig, RelationCounts

LARGE: Final = 3000
"""Pairs of a case, from which its rounds are worked out in a thread, while others are asked about."""

_compiled: Final[set[bool]] = set()  # empty until the engine has been used: its first use may take a minute


class AskedInRounds(OpenCase):
    """A case that is being asked about in rounds. `begin` it; then each of its questions goes through `answer`, and
    when the last one of a round has, the questions of the next are `ready`."""

    def __init__(self, case: Case, how: RelationConfig, wanted: bool = True):
        super().__init__(case, how, wanted)
        self.ready: list[CaseQuestion] = []
        self._inquiry: Inquiry | None = None
        self._relations: dict[int, Relation] = {}  # by the place of their pair
        self._places: dict[int, list[int]] = {}  # of each question in flight
        self._asked = 0
        self._all = 0  # prompts of asking all
        self._closed = False
        self.counted = False  # whether the stream knows that it is done
        self.first = 0  # pairs that the first opinion's model has answered

    @property
    def done(self) -> bool:
        return self._closed

    @property
    def left_out(self) -> int:
        """Pairs that were not asked about, or left out by screening, so far."""
        return super().left_out + (self._inquiry.left if self._inquiry else 0)

    async def begin(self, asker: Asker) -> None:
        """Form the first opinion, and make the questions of the first round."""
        if self._agenda is None:
            self._closed = True
            return
        how, agenda = self._how, self._agenda
        pairs = list(all_pairs(agenda))
        if how.screen is not None:
            self._screen = Screen(agenda, how.screen)
            pairs = list(self._screen.passed(pairs))
        open_ = [pair for pair in pairs if _key(agenda, pair) not in agenda.related]
        self._all = sum(1 for _ in how.model.questions(open_))
        answers = await self._by_first(open_, asker)
        opinion = opinion_by_words(pairs, found_for(agenda))
        if answers:
            opinion = _by_model(opinion, [answers.get((pair.source, pair.target)) for pair in pairs])
        pack = how.model.pack if isinstance(how.model, RelationModel) and how.model.style == "packed" else 1
        try:
            self._inquiry = Inquiry(
                agenda, pairs, opinion, how.graph, settle=how.settle, pack=pack, most=how.ask_at_most
            )
        except InputError as error:
            self.case, self._agenda, self._closed = unusable(self.case, *error.faults), None, True
            return
        for place, pair in enumerate(pairs):
            one = answers.get((pair.source, pair.target))
            if one is not None and one.distribution is not None and max(one.distribution) >= how.settle:
                self._inquiry.take(place, one, opinion=True)
                self._relations[place] = one
                self.first += 1
        await self._next_round()

    async def _by_first(self, pairs: list[Pair], asker: Asker) -> dict[tuple[str, str], Relation]:
        """The answers of the local model that stands before the endpoint's, by source and target; none without one."""
        if self._how.first is None:
            return {}
        model = self._how.first
        parts = await asyncio.gather(*(model.answer(one, asker.ask, asker.reject) for one in model.questions(pairs)))
        return {(one.source, one.target): one for part in parts for one in part if not one.status.failed}

    async def answer(self, asked: CaseQuestion, asker: Asker) -> list[Relation]:
        """The relations that answer a question, taken; none where the reply comes later, from a batch. Then the round
        is the last one of this run."""
        places = self._places[asked.place]  # they stay until they are answered: the last answer opens the next round
        relations: list[Relation] = []
        try:
            relations = await self._how.model.answer(asked.question, asker.ask, asker.reject)
        except PendingError:
            self.pends = True
        assert self._inquiry is not None  # else there were no questions
        for place, relation in zip(places, relations, strict=not self.pends):
            self._inquiry.take(place, relation)
            self._relations[place] = relation
        del self._places[asked.place]
        if not self._places and not asker.end:
            if self.pends:
                self._closed = True
            else:
                await self._next_round()
        return relations

    async def _next_round(self) -> None:
        assert self._inquiry is not None
        inquiry = self._inquiry
        large = len(inquiry.pairs) > LARGE or not _compiled
        prompts = await asyncio.to_thread(inquiry.round) if large else inquiry.round()
        _compiled.add(True)
        for places in prompts:
            for question in self._how.model.questions([inquiry.pairs[place] for place in places]):
                here, places = places[: len(question.pairs)], places[len(question.pairs) :]
                self._places[self._asked] = here
                self.ready.append(CaseQuestion(self, self._asked, question, last=False))
                self._asked += 1
        self._closed = not prompts

    def relations(self) -> list[Relation]:
        """The relations that were found, in the order of asking all."""
        return [relation for _, relation in sorted(self._relations.items())]

    def record(self) -> dict[str, Any]:
        """What is recorded of the asking: what was left out, and how sure the labels are against that."""
        assert self._inquiry is not None  # else there is no record
        more = {"first": self._how.first.named(None), "by_first": self.first} if self._how.first is not None else {}
        screened = super().left_out
        return {
            **({} if self._screen is None else {"screened": screened}),
            "prompts": self._asked,
            "prompts_of_all": self._all,
            **more,
            **self._inquiry.record(),
        }

    def count(self, counts: RelationCounts) -> None:
        """Add what was left out to the counts."""
        assert self._inquiry is not None  # else there is nothing to count
        counts.screened += super().left_out
        counts.not_asked[self._inquiry.opinion.name] += self._inquiry.left
        counts.prompts += self._asked
        counts.prompts_of_all += self._all


def _key(agenda: Agenda, pair: Pair) -> tuple[str, str]:
    return agenda.aliases.get(pair.source, pair.source), agenda.aliases.get(pair.target, pair.target)


def _by_model(words: Opinion, answers: list[Relation | None]) -> Opinion:
    """The opinion of a model, where it has one, in place of that by words."""
    mixed = np.einsum("c,cnk->nk", words.share, words.kinds)
    for place, one in enumerate(answers):
        if one is not None and one.distribution is not None:
            mixed[place] = LEAST + (1 - len(DISTRIBUTED) * LEAST) * np.array(one.distribution)
    return Opinion("local", mixed[None], np.ones(1))
