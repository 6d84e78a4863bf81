"""The records of SPEC 1 and 7: the parts of a case, and the statuses, relation types and labels of its values.

Everything here is immutable and knows nothing of files, graphs or models. `None` in a field means "not known yet";
an empty tuple means "looked for, none found". Keys of a file that have no field of their own live in `extra`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

EPS = 1e-5
"""The one numerical tolerance (SPEC 3): exact posteriors are this close to the truth."""


class Status(StrEnum):
    """Why a value is present or missing (SPEC 3). A failure is never a verdict."""

    OK = "ok"
    NO_EVIDENCE = "no_evidence"
    NO_ATOMS = "no_atoms"
    REFUSED = "refused"
    ATOMIZE_FAILED = "atomize_failed"
    RETRIEVAL_FAILED = "retrieval_failed"
    RELATION_FAILED = "relation_failed"
    INCONSISTENT = "inconsistent"
    TOO_WIDE = "too_wide"
    INVALID_INPUT = "invalid_input"
    STOPPED = "stopped"
    CORRECTION_FAILED = "correction_failed"

    @property
    def failed(self) -> bool:
        """Whether the row has no value. Finding no evidence is an answer, not a failure: the atom is `unverified`."""
        return self not in (Status.OK, Status.NO_EVIDENCE)


class RelationType(StrEnum):
    """What a source says of a target (SPEC 1); `neutral` makes no factor."""

    ENTAILMENT = "entailment"
    CONTRADICTION = "contradiction"
    EQUIVALENCE = "equivalence"
    NEUTRAL = "neutral"


Distribution = tuple[float, float, float]
"""Probabilities of entailment, contradiction and neutral (`DISTRIBUTED`), which add up to 1 (SPEC 9)."""

DISTRIBUTED: Final = (RelationType.ENTAILMENT, RelationType.CONTRADICTION, RelationType.NEUTRAL)
"""The answers of a relation model, in the order of a `Distribution`."""


def by_label(numbers: Sequence[float]) -> dict[str, float]:
    """Three numbers in the order of `DISTRIBUTED`, by label, as files have them."""
    return dict(zip(map(str, DISTRIBUTED), numbers, strict=True))


class Label(StrEnum):
    """The label of a posterior (SPEC 3)."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    UNVERIFIED = "unverified"

    @classmethod
    def of(cls, p: float) -> Label:
        """The label of a posterior probability `p`; the tie band is `2 * EPS` wide on each side of one half."""
        if p > 0.5 + 2 * EPS:
            return cls.SUPPORTED
        if p < 0.5 - 2 * EPS:
            return cls.REFUTED
        return cls.UNVERIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class Atom:
    """One fact or claim of a response; a Boolean variable."""

    id: str
    text: str
    original: str | None = None
    label: str | None = None  # the human label, S or NS, where there is one
    contexts: tuple[str, ...] | None = None  # ids of the contexts retrieved for this atom
    status: Status = Status.OK
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A passage retrieved as evidence; a Boolean variable with its own prior, or the preset's where that is None.

    Where the text is a model's summary, `summary_confidence` scales that prior.
    """

    id: str
    title: str | None = None
    text: str | None = None
    snippet: str | None = None
    link: str | None = None
    prior: float | None = None
    summary_confidence: float | None = None
    status: Status = Status.OK
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def evidence(self) -> str:
        """What the relation model reads: snippet and text, joined; equal evidence makes two contexts duplicates."""
        parts = (part.strip() for part in (self.snippet or "", self.text or ""))
        return " ".join(part for part in parts if part)

    @property
    def links(self) -> tuple[str, ...]:
        """Where the passage was found: its `link`, and the `links` beside it of sources that have the same evidence."""
        others = self.extra.get("links")
        found = (self.link, *(others if isinstance(others, list) else ()))
        return tuple(dict.fromkeys(link for link in found if link and isinstance(link, str)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What `source` says of `target`, with the probability of that answer. `probability` is None where it failed."""

    source: str
    target: str
    type: RelationType | None
    probability: float | None
    status: Status = Status.OK
    method: str | None = None  # how the probability was found, e.g. "logprobs"
    distribution: Distribution | None = None  # of all three answers, where the model gave it
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One query, one response, and everything known about it."""

    id: str
    query: str | None = None
    response: str | None = None
    topic: str | None = None
    atoms: tuple[Atom, ...] | None = None
    contexts: tuple[Context, ...] | None = None
    relations: tuple[Relation, ...] | None = None
    status: Status = Status.OK
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkovModel:
    """A bare pairwise Markov network of two-state variables, as a UAI file holds it (SPEC 7).

    `factors` pairs a scope (one or two distinct variable indices; the last one moves fastest) with a flat table of
    2 or 4 values >= 0; `evidence` maps a variable's index to its observed state, 0 or 1.
    """

    names: tuple[str, ...]
    factors: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]
    evidence: Mapping[int, int] = field(default_factory=dict)
