"""Which relations of a case make factors: duplicates merged, pairs chosen by the graph version (SPEC 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from fcjax.core.errors import Fault, InputError
from fcjax.core.records import Case, Relation, RelationType

Version = Literal["FR1", "FR2", "FR3"]
Kind = Literal["atom", "context", "variable"]


def merge(texts: Iterable[tuple[str, str]], aliases: dict[str, str]) -> list[str]:
    """The ids that are kept, the first of each text; the others go to `aliases`. Empty texts are never duplicates."""
    first: dict[str, str] = {}
    kept = []
    for name, text in texts:
        original = first.setdefault(text, name) if text else name
        if original == name:
            kept.append(name)
        else:
            aliases[name] = original
    return kept


Answers = dict[tuple[str, str], list[Relation]]  # the answers on each ordered pair of variables; repeats multiply


def merge_parallel(relations: Iterable[Relation], aliases: Mapping[str, str], *, neutral: bool = False) -> Answers:
    """The answers on each ordered pair of kept variables; of pairs that merging made one, the most probable wins.

    Neutral answers win over nothing but each other: the first of them, or the most probable where they make factors
    (`neutral`).
    """

    def rank(relation: Relation) -> float:
        if relation.type is not RelationType.NEUTRAL:
            return p_of(relation)
        return p_of(relation) - 2.0 if neutral else -1.0

    asked: dict[tuple[str, str], dict[tuple[str, str], list[Relation]]] = {}
    for relation in relations:
        if relation.status.failed:
            continue
        source, target = relation.source, relation.target
        pair = (aliases.get(source, source), aliases.get(target, target))
        if pair[0] == pair[1]:
            continue  # a statement on two copies of one text
        moved = relation if pair == (source, target) else replace(relation, source=pair[0], target=pair[1])
        asked.setdefault(pair, {}).setdefault((source, target), []).append(moved)
    return {pair: max(groups.values(), key=lambda group: max(map(rank, group))) for pair, groups in asked.items()}


def p_of(relation: Relation) -> float:
    assert relation.probability is not None  # only failed relations lack one, and they were left out
    return relation.probability


def own_contexts(case: Case, aliases: Mapping[str, str]) -> dict[str, set[str]]:
    """The contexts of each kept atom, its duplicates' included (FR1)."""
    own: dict[str, set[str]] = {}
    for i, atom in enumerate(case.atoms or ()):
        if atom.contexts is None and case.contexts and not atom.status.failed:
            fault = "contexts is missing; FR1 pairs an atom with its own contexts only, so each atom must list them"
            raise InputError(Fault(fault, case=case.id, field=f"atoms[{i}].contexts"))
        kept = own.setdefault(aliases.get(atom.id, atom.id), set())
        kept.update(aliases.get(name, name) for name in atom.contexts or ())
    return own


def select(
    answers: Answers,
    kinds: Mapping[str, Kind],
    version: Version | None,
    own: Mapping[str, set[str]],
    *,
    neutral: bool = False,
) -> list[Relation]:
    """The relations that `version` asks for in the order of the input, neutral ones only where they make factors."""
    order = {name: i for i, name in enumerate(kinds)}
    chosen: list[Relation] = []
    for (source, target), group in answers.items():
        pair = {kinds[source], kinds[target]}
        if version is None:
            chosen += group
        elif pair == {"atom", "context"}:
            atom, context = (source, target) if kinds[source] == "atom" else (target, source)
            if version != "FR1" or context in own[atom]:
                chosen += group
        elif pair == {"context"} and version == "FR3":
            reverse = answers.get((target, source), [])
            if order[source] < order[target]:
                chosen += _both_orders(group, reverse)
            elif not reverse:
                chosen += group
    return [relation for relation in chosen if neutral or not says_nothing(relation)]


def says_nothing(relation: Relation) -> bool:
    """Whether a relation makes no factor where that has one probability only: neutral ones, and answers of a model that
    are less likely than not. Of three labels, the likeliest may have 0.4; as the probability of an entailment, that
    would speak against what it is said to support. The encoding `soft` takes such an answer for what it is worth."""
    unsure = relation.distribution is not None and p_of(relation) < 0.5
    return relation.type is RelationType.NEUTRAL or unsure


def _both_orders(forward: list[Relation], reverse: list[Relation]) -> list[Relation]:
    """One answer for each question that was asked in both orders (SPEC 2, FR3); unpaired answers stand as they are."""
    paired = min(len(forward), len(reverse))
    chosen = []
    for there, back in zip(forward[:paired], reverse[:paired], strict=True):
        better = there if p_of(there) > p_of(back) else back
        if there.type is back.type is RelationType.ENTAILMENT:
            better = replace(better, type=RelationType.EQUIVALENCE)
        chosen.append(better)
    return chosen + forward[paired:] + reverse[paired:]
