"""Relation models that always say the same: answers that pile up on one label beyond what the texts explain (SPEC 9).

Measured on people's stances (Factcheck-GPT): of the pairs whose passage has less than a fifth of the claim's content
words, hardly any is judged to support or to contradict the claim, and contradictions are one stance in eight. The
bounds below leave room for several times that, so that a model that reads is not suspected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from fcjax.core.records import Case, Relation, RelationType
from fcjax.core.word_overlap import shared
from fcjax.core.words import content_words

UNRELATED: Final = 0.2
"""Share of a claim's content words in a passage, below which the two are hardly about the same."""
MOST_OF_UNRELATED: Final = 0.3
"""Share of unrelated pairs that texts may explain to be judged other than neutral, at most."""
MOST_CONTRADICTIONS: Final = 0.6
"""Share of all answers that texts may explain to be contradictions, at most."""
LEVEL: Final = 1e-3
"""Probability, under these shares, below which a pile is called a collapse."""


@dataclass(slots=True)
class AnswerCounts:
    """How often a relation model gave each answer; `unrelated` are the pairs with few words in common."""

    labels: Counter[str]
    unrelated: int = 0
    judged_unrelated: int = 0  # of these, the ones that are not neutral

    @classmethod
    def of(cls, case: Case) -> AnswerCounts:
        """The answers of a model in a case, about contexts and atoms; relations that came with the case are nobody's
        answers, and have no `method`."""
        counts = cls(Counter())
        answers = [one for one in case.relations or () if one.method and not one.status.failed]
        if not answers:
            return counts
        atoms = {atom.id: atom.text for atom in case.atoms or ()}
        contexts = {context.id: content_words(context.evidence) for context in case.contexts or ()}
        for relation, atom, context in _pairs(answers, atoms, contexts):
            counts.labels[str(relation.type)] += 1
            if shared(atom, context) < UNRELATED:
                counts.unrelated += 1
                counts.judged_unrelated += relation.type is not RelationType.NEUTRAL
        return counts

    def __iadd__(self, other: AnswerCounts) -> AnswerCounts:
        self.labels += other.labels
        self.unrelated += other.unrelated
        self.judged_unrelated += other.judged_unrelated
        return self

    @property
    def collapse(self) -> str | None:
        """What piles up, in words; None where the texts may explain the answers."""
        n, contradictions = self.labels.total(), self.labels[RelationType.CONTRADICTION]
        if _tail(contradictions, n, MOST_CONTRADICTIONS) < LEVEL:
            return f"{contradictions} of {n} answers are contradictions"
        if _tail(self.judged_unrelated, self.unrelated, MOST_OF_UNRELATED) < LEVEL:
            return (
                f"{self.judged_unrelated} of {self.unrelated} passages with next to no words of a claim are said to "
                "support or contradict it"
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON."""
        labels = {str(label): self.labels[label] for label in RelationType if self.labels[label]}
        return {**labels, "unrelated": self.unrelated, "judged_unrelated": self.judged_unrelated}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AnswerCounts:
        """The counts of a row's diagnostics."""
        labels = {str(label): data[label] for label in RelationType if label in data}
        return cls(Counter(labels), data["unrelated"], data["judged_unrelated"])


REMEDY: Final = (
    "the relation model seems to say the same whatever it reads: examine and calibrate it (fcjax calibrate), or use "
    "another wording or model"
)


def _pairs(
    relations: Iterable[Relation], atoms: dict[str, str], contexts: dict[str, frozenset[str]]
) -> Iterable[tuple[Relation, str, frozenset[str]]]:
    """The relations between an atom and a context, with the atom's text and the context's words."""
    for relation in relations:
        for atom, context in ((relation.target, relation.source), (relation.source, relation.target)):
            if atom in atoms and context in contexts:
                yield relation, atoms[atom], contexts[context]
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
