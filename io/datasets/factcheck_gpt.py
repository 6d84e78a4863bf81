"""Factcheck-GPT (Factcheck-Bench): responses with human labels of claims and of the stances of passages.

A row has `prompt`, `response`, `revised_response` and `sentences`: `sentence1`, `sentence2`, ..., each with lists that
run in parallel, one item per claim: `claims`, `claims_factuality_label` (true, false, "unknown"), `revised_claims`,
`auto_evidence` and `auto_evidence_url` (passages and their addresses), and `stance_claim_autoEvid`, the annotators'
stance of each passage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fcjax.core.errors import Fault
from fcjax.core.records import Atom, Case, Context, Relation, RelationType
from fcjax.io.datasets.rows import BLANKS, Fields, Origin, Unit, read_each
from fcjax.io.files.objects import Row, seen
from fcjax.io.files.streams import Source

STANCES: Final[dict[str, tuple[RelationType, float] | None]] = {
    "completely-support": (RelationType.ENTAILMENT, 0.95),
    "partially-support": (RelationType.ENTAILMENT, 0.75),
    "refute": (RelationType.CONTRADICTION, 0.95),
    "irrelevant": None,
}
"""The relation for each stance; an irrelevant passage has none."""

_KNOWN: Final = frozenset(("prompt", "response", "revised_response", "response_factuality", "sentences"))
_LABELS: Final[dict[Any, str | None]] = {True: "S", False: "NS", "true": "S", "false": "NS", "unknown": None}


def read_factcheck_gpt(*paths: Source) -> Iterator[Row[Unit]]:
    """Factcheck-GPT's file as cases with atoms, contexts and the annotators' stances as relations.

    A claim of unknown truth has no label. Passages of the same text are one context of the case, with the address of
    the first; a passage that occurs twice below one claim has two stances, and so two relations, which multiply. The
    annotators' correction of a claim is the atom's `revised`, and that of the response `revised_response`.
    """
    return read_each("fcgpt", paths, _KNOWN, _parse)


def _parse(row: Fields, origin: Origin) -> Unit:
    query, response = row.text("prompt"), row.text("response")
    build = _Build()
    sentences = row.values.get("sentences")
    if not isinstance(sentences, dict):
        row.lack(("sentences",), "an object of sentences") if sentences is None else row.wrong("sentences", "an object")
        sentences = {}
    for name, value in sentences.items():
        build.add(Fields(value, f"sentences.{name}.", row.faults))
    extra: dict[str, Any] = {"revised_response": revised} if (revised := row.maybe("revised_response")) else {}
    case = Case(
        id=f"fcgpt-{origin.index:03d}",
        query=query,
        response=response,
        atoms=tuple(build.atoms),
        contexts=tuple(build.contexts.values()),
        relations=tuple(build.relations),
        extra=extra,
    )
    return Unit(query.strip(), (case,))


class _Build:
    """The parts of a case, collected sentence by sentence."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.contexts: dict[str, Context] = {}  # by their text
        self.relations: list[Relation] = []

    def add(self, sentence: Fields) -> None:
        claims = sentence.items("claims")
        count = len(claims)
        if not count:  # an opinion, or no statement at all; its other lists may have any length
            return
        labels = sentence.items("claims_factuality_label", count)
        passages = sentence.items("auto_evidence", count)
        links = sentence.items("auto_evidence_url", count)
        stances = sentence.items("stance_claim_autoEvid", count)
        revised = sentence.items("revised_claims", optional=True)
        if sentence.faults:
            return
        for i, (claim, label) in enumerate(zip(claims, labels, strict=True)):
            sides = {"auto_evidence": passages[i], "auto_evidence_url": links[i], "stance_claim_autoEvid": stances[i]}
            own = Fields({"claims": claim, **sides}, f"{sentence.place}[{i}].", sentence.faults)
            text = own.text("claims")
            if type(label) not in (bool, str) or label not in _LABELS:
                seen_label = f'claims_factuality_label is {seen(label)}; allowed: true, false, "unknown"'
                own.faults.append(Fault(seen_label, field=f"{own.place}claims_factuality_label"))
                continue
            atom = f"a{len(self.atoms)}"
            extra = {"revised": revised[i]} if i < len(revised) and isinstance(revised[i], str) else {}
            contexts = self._relate(own, atom)
            self.atoms.append(Atom(id=atom, text=text, label=_LABELS[label], contexts=contexts, extra=extra))

    def _relate(self, claim: Fields, atom: str) -> tuple[str, ...]:
        """The contexts of a claim; adds the relations between them and the claim."""
        passages = claim.items("auto_evidence")
        links = claim.items("auto_evidence_url", len(passages))
        stances = claim.items("stance_claim_autoEvid", len(passages))
        found: dict[str, None] = {}
        for i, (passage, link, stance) in enumerate(zip(passages, links, stances, strict=False)):
            if not isinstance(passage, str) or passage.strip().lower() in BLANKS:
                continue
            link = link if isinstance(link, str) else None
            new = Context(id=f"c{len(self.contexts)}", title="", text=passage, link=link, snippet="")
            context = self.contexts.setdefault(passage, new)
            name = stance.strip().lower().replace("_", "-") if isinstance(stance, str) else stance
            if not isinstance(name, str) or (name not in STANCES and name not in BLANKS):
                allowed = ", ".join(map(seen, STANCES))
                fault = f"the stance is {seen(stance)}; allowed: {allowed}"
                claim.faults.append(Fault(fault, field=f"{claim.place}stance_claim_autoEvid[{i}]"))
            elif relation := STANCES.get(name):
                kind, p = relation
                self.relations.append(Relation(source=context.id, target=atom, type=kind, probability=p))
            found.setdefault(context.id)
        return tuple(found)
