"""Relation models that always say the same: answers that pile up on one label beyond what the texts explain (SPEC 9).

Counted are claims, not pairs: what a model says of one claim by many passages is one thing that it says. Measured on
people's stances (Factcheck-GPT, claims of four content words or more with their own passages): where a passage has less
than a fifth of the claim's content words, 13 of 122 pairs are judged to support or contradict it; where it has nine in
ten, 3 of 61 are neutral; and one stance in nine is a contradiction. The bounds below leave room for several times that.
A model that says entailment of whatever has a claim's words cannot be told from one that reads.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fcjax.core.records import Case, Relation, RelationType
from fcjax.core.words import content_words, words

UNRELATED: Final = 0.2
"""Share of a claim's content words in a passage, below which the two are hardly about the same."""
ALIKE: Final = 0.9
"""The same, above which the passage speaks of the claim."""
WORDS: Final = 4
"""Content words that a claim has at least, for the passage to be said to speak of it."""
LEVEL: Final = 1e-3
"""Probability, if texts explained as much as they may, below which a pile is called a collapse."""


class Pile(NamedTuple):
    """A kind of answer that may pile up: the share of claims that texts may explain, at most, and what is said."""

    most: float
    words: str


PILES: Final = {
    "contradicted": Pile(0.6, "{count} of {n} claims are contradicted by most of their passages"),
    "unrelated": Pile(
        0.3, "of {count} of {n} claims, passages with next to none of their words are said to judge them"
    ),
    "alike": Pile(0.5, "of {count} of {n} claims, passages with all their words are said to leave them open"),
}


@dataclass(slots=True)
class AnswerCounts:
    """How often a relation model gave each answer; and by the keys of `PILES`, of how many claims that could be told,
    and of how many it was so."""

    labels: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    piled: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, case: Case) -> AnswerCounts:
        """The answers of a model in a case, about contexts and atoms; relations that came with the case are nobody's
        answers, and have no `method`."""
        counts = cls()
        answers = [one for one in case.relations or () if one.method and not one.status.failed]
        if not answers:
            return counts
        atoms = {atom.id: _Words.of(atom.text) for atom in case.atoms or ()}
        contexts = {context.id: _Words.of(context.evidence) for context in case.contexts or ()}
        said: defaultdict[str, defaultdict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
        for relation, atom, context in _pairs(answers, atoms, contexts):
            counts.labels[str(relation.type)] += 1
            claim, passage = atoms[atom], contexts[context]
            overlap = len(claim.content & passage.content) / len(claim.content) if claim.content else 0.0
            neutral = relation.type is RelationType.NEUTRAL
            said[atom]["contradicted"].append(relation.type is RelationType.CONTRADICTION)
            if overlap < UNRELATED and len(claim.small & passage.small) > 1:
                said[atom]["unrelated"].append(not neutral)
            elif overlap >= ALIKE and len(claim.content) >= WORDS:
                said[atom]["alike"].append(neutral)
        for piles in said.values():
            for name, those in piles.items():
                counts.asked[name] += 1
                counts.piled[name] += 2 * sum(those) > len(those)
        return counts

    def add(self, other: AnswerCounts) -> None:
        """Add the answers of another case."""
        self.labels += other.labels
        self.asked += other.asked
        self.piled += other.piled

    @property
    def collapse(self) -> str | None:
        """What piles up, in words; None where the texts may explain the answers."""
        for name, pile in PILES.items():
            n, count = self.asked[name], self.piled[name]
            if _tail(count, n, pile.most) < LEVEL:
                return pile.words.format(count=count, n=n)
        return None

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON: of each answer, and for each pile [claims of which it is so, claims]."""
        labels = {str(label): self.labels[label] for label in RelationType if self.labels[label]}
        return {**labels, **{name: [self.piled[name], self.asked[name]] for name in PILES if self.asked[name]}}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AnswerCounts:
        """The counts of a row's diagnostics."""
        counts = cls(Counter({str(label): data[label] for label in RelationType if label in data}))
        for name in PILES:
            if name in data:
                counts.piled[name], counts.asked[name] = data[name]
        return counts


REMEDY: Final = (
    "the relation model seems to say the same whatever it reads: examine and calibrate it (fcjax calibrate), or use "
    "another wording or model"
)


class _Words(NamedTuple):
    """The words of a text: those that carry content, and the short ones, several of which two texts share if they are
    in one language."""

    content: frozenset[str]
    small: frozenset[str]

    @classmethod
    def of(cls, text: str) -> _Words:
        return cls(content_words(text), frozenset(word for word in words(text) if len(word) <= 3 and word.isalpha()))


def _pairs(
    relations: Iterable[Relation], atoms: Collection[str], contexts: Collection[str]
) -> Iterable[tuple[Relation, str, str]]:
    """The relations between an atom and a context, with the ids of both."""
    for relation in relations:
        for atom, context in ((relation.target, relation.source), (relation.source, relation.target)):
            if atom in atoms and context in contexts:
                yield relation, atom, context
                break


def _tail(count: int, n: int, p: float) -> float:
    """P(X >= count) of a binomial variable of `n` draws with probability `p`."""
    if count <= n * p:
        return 1.0
    logs = [_log_choose(n, k) + k * math.log(p) + (n - k) * math.log1p(-p) for k in range(count, n + 1)]
    top = max(logs)
    return math.exp(top) * math.fsum(math.exp(one - top) for one in logs)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
