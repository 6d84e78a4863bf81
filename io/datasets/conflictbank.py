"""ConflictBank: claims of Wikidata with evidence for them, and claims that conflict with them with their own evidence.

Its questions (`CB_qa`) have `question`, `default_claim`, `default_evidence` and the same two for each conflict, such as
`misinformation_conflict_claim` and `misinformation_conflict_evidence`. Its pairs (`CB_claim_evidence`) have one row per
claim: `id`, `subject`, `category` (`default`, `misinformation_conflict`, ...), `claim`, `evidence`; rows of the same
fact are adjacent, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

from fcjax.core.checks import check_choice, check_number
from fcjax.core.errors import Fault
from fcjax.core.records import Atom, Case, Context, Relation, RelationType
from fcjax.io.datasets.rows import Fields, Origin, Unit, parse_each, read_items
from fcjax.io.files.objects import Item, Row
from fcjax.io.files.streams import Source

CONFLICTS: Final = ("misinformation", "temporal", "semantic")
CLAIMS: Final = ("both", "true", "false")
_PARTS: Final = ("default", *(f"{name}_conflict" for name in CONFLICTS))
_KNOWN: Final = frozenset(
    [
        "id",
        "question",
        "subject",
        "relation",
        "object",
        "replaced_object",
        "category",
        "claim",
        "evidence",
        "options",
        "correct_option",
        "replace_option",
        "uncertain_option",
        "misinformation_conflict_evidence_evidence",
    ]
).union(f"{part}_{what}" for part in _PARTS for what in ("claim", "evidence"))


class _Claim(NamedTuple):
    text: str
    evidence: str


def read_conflictbank(
    *paths: Source,
    conflicts: Sequence[str] = ("misinformation",),
    claims: str = "both",
    relations: float | None = None,
) -> Iterator[Row[Unit]]:
    """ConflictBank's files as cases of one claim, its atom, with the evidence for it and against it as contexts.

    Each fact gives the true claim (labelled S) and, for each of `conflicts`, the false one (labelled NS, with the true
    one as `reference`), or only one of the two kinds by `claims`. A false claim's contexts are the true claim's
    evidence and its own; the true claim's are its own and that of all conflicts. With a probability for `relations`,
    each evidence entails its own claim and contradicts the other: it was generated so, and has not been checked. Raises
    `SettingsError`.
    """
    for name in conflicts:
        check_choice("conflicts", name, CONFLICTS)
    check_choice("claims", claims, CLAIMS)
    check_number("relations", relations, 0, 1, none=True)
    how = _How(tuple(dict.fromkeys(conflicts)), claims, relations)
    return _read(paths, how)


class _How(NamedTuple):
    conflicts: tuple[str, ...]
    claims: str
    relations: float | None

    def unit(self, id: str, question: str | None, found: dict[str, _Claim], group: str) -> Unit:
        """The cases of a fact, from its claims by their part."""
        true = found["default"]
        false = {name: found[part] for name in self.conflicts if (part := f"{name}_conflict") in found}
        cases = []
        if self.claims != "false":
            cases.append(self._case(f"{id}-true", question, true, "S", {"default": true, **false}))
        if self.claims != "true":
            for name, claim in false.items():
                case = self._case(f"{id}-{name}", question, claim, "NS", {"default": true, name: claim}, true.text)
                cases.append(case)
        return Unit(group, tuple(cases))

    def _case(
        self,
        id: str,
        question: str | None,
        claim: _Claim,
        label: str,
        evidence: dict[str, _Claim],
        reference: str | None = None,
    ) -> Case:
        contexts = [
            Context(id=f"c{i}", text=one.evidence, extra={"evidence_of": name})
            for i, (name, one) in enumerate(evidence.items())
        ]
        relations = None
        if self.relations is not None:
            relations = tuple(
                Relation(
                    source=context.id,
                    target="a0",
                    type=RelationType.ENTAILMENT if one is claim else RelationType.CONTRADICTION,
                    probability=float(self.relations),
                )
                for context, one in zip(contexts, evidence.values(), strict=True)
            )
        atom = Atom(id="a0", text=claim.text, label=label, contexts=tuple(context.id for context in contexts))
        return Case(
            id=id,
            query=question,
            response=claim.text,
            atoms=(atom,),
            contexts=tuple(contexts),
            relations=relations,
            extra={"source": "conflictbank", "reference": reference or claim.text},
        )


def _read(paths: Sequence[Source], how: _How) -> Iterator[Row[Unit]]:
    """Questions, one per row; pairs, which have a `category`, grouped by fact."""
    for _, rows in groupby(read_items(paths), lambda read: read[0].label):  # the kind of rows is that of the file
        first = next(rows)
        items = chain([first], rows)  # noqa: B031 - the rest of it
        if isinstance(first[2].value, dict) and "category" in first[2].value:
            yield from _pairs(items, how)
        else:
            yield from parse_each("conflictbank", items, _KNOWN, lambda row, origin: _question(row, origin, how))


def _question(row: Fields, origin: Origin, how: _How) -> Unit:
    id = f"conflictbank-{origin.label}-{origin.number}"
    found = {"default": _Claim(row.text("default_claim"), row.text("default_evidence"))}
    for name in how.conflicts:
        part = f"{name}_conflict"
        evidence = row.text(f"{part}_evidence", f"{part}_evidence_evidence")  # repeated in the release
        found[part] = _Claim(row.text(f"{part}_claim"), evidence)
    question, group = row.maybe("question"), f"{row.maybe('subject')}/{row.maybe('relation')}"
    row.check()
    return how.unit(id, question, found, group if row.has("subject") else id)


def _pairs(items: Iterable[tuple[Origin, str, Item]], how: _How) -> Iterator[Row[Unit]]:
    def fact(read: tuple[Origin, str, Item]) -> Any:
        value = read[2].value
        return (value.get("id"), value.get("subject")) if isinstance(value, dict) else (None, read[0].index)

    for (_, subject), rows in groupby(items, fact):
        found: dict[str, _Claim] = {}
        faults: list[Fault] = []
        unknown: dict[str, None] = {}
        first: tuple[Origin, str, Item] | None = None
        for origin, file, item in rows:
            first = first or (origin, file, item)
            row = Fields(item.value) if item.value is not None or not item.faults else Fields({}, faults=[])
            part = row.text("category") if not item.faults else ""
            if part and part not in _PARTS:
                row.wrong("category", f"one of {', '.join(_PARTS)}")
            claim = _Claim(row.text("claim"), row.text("evidence")) if not item.faults else None
            wrong = item.faults or tuple(row.faults)
            faults += (item.located(fault, file) for fault in wrong)
            if claim and not wrong:
                found.setdefault(part, claim)
            unknown |= dict.fromkeys(key for key in row.values if key not in _KNOWN)
        assert first is not None
        origin, file, item = first
        id = f"conflictbank-{origin.label}-{origin.number}"
        wanted = [f"{name}_conflict" for name in how.conflicts]
        unit = None
        if not faults and "default" not in found:
            lack = "no adjacent row has the category default; allowed: all rows of a fact together"
            faults.append(item.located(Fault(lack, field="category"), file, id))
        elif not faults and not any(part in found for part in wanted):
            unit = Unit(str(subject), (), "no conflict of the requested kind")
        elif not faults:
            unit = how.unit(id, None, found, str(subject))
        if unit is not None:
            unit = Unit(unit.group, unit.cases, unit.skipped, tuple(unknown))
        yield Row(origin.number, id, unit, tuple(faults), item.line)
