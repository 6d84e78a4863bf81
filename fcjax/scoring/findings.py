"""The findings of a critic on one response, as records, as JSON, as text and as a table (SPEC 6)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from fcjax.core.errors import counted
from fcjax.core.records import Label, RelationType, Status
from fcjax.scoring.near_duplicates import Repeat
from fcjax.scoring.rows import Side, side_of

Order = Literal["influence", "probability"]

EXCERPT: Final = 300  # characters of a passage that are shown
SHOWN: Final = 5  # passages of a statement in a notebook's table


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One relation between a refuted atom and a passage. Its ends are the graph's variables: for a passage that was
    found more than once, the kept copy, with the links of all.
    """

    context: str  # its id
    source: str
    target: str
    type: RelationType
    probability: float
    influence: float | None = None  # dP(atom) / dp; None if unknown
    title: str | None = None
    links: tuple[str, ...] = ()
    text: str = field(default="", repr=False)  # the text that the relation model read
    repeats: tuple[str, ...] = ()  # ids of contexts that repeat it, without those on the other side of this atom

    @property
    def link(self) -> str | None:
        return self.links[0] if self.links else None

    @property
    def side(self) -> Side:
        return side_of(self.type)

    @property
    def says(self) -> str:
        """The relation of the passage to the statement, as text: "contradicts it"."""
        if self.type is RelationType.ENTAILMENT:
            return "entails it" if self.source == self.context else "is entailed by it"
        return "contradicts it" if self.type is RelationType.CONTRADICTION else "says the same"

    @property
    def name(self) -> str:
        """The passage's title and links, or its id."""
        return _line(", ".join(part for part in (self.title, *self.links) if part)) or self.context


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A refuted atom, with all passages connected to it, or an unverified one. Numbers are those of the row."""

    atom: str  # its id
    text: str
    label: Label
    p: float
    lower: float
    upper: float
    certain: bool
    original: str | None = None  # the text before it was revised
    duplicates: tuple[str, ...] = ()  # ids of merged atoms of the same text
    evidence: tuple[Evidence, ...] = ()

    def by_side(self, side: Side) -> tuple[Evidence, ...]:
        """The passages `for` or `against` the statement."""
        return tuple(given for given in self.evidence if given.side == side)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Feedback:
    """The findings on one response, in the order of its atoms; `status` and `reason` are those of the case's row.

    `order` is what the evidence is sorted by, the largest first: how much a relation moves the atom (|dP / dp|), or its
    probability if that is unknown; None without evidence.
    """

    findings: tuple[Finding, ...] = ()
    repeated: tuple[Repeat, ...] = ()
    order: Order | None = None
    n_atoms: int = 0  # with a label, without duplicates
    n_failed: int = 0  # atoms without a label
    status: Status = Status.OK
    reason: str | None = None

    @property
    def refuted(self) -> tuple[Finding, ...]:
        return tuple(found for found in self.findings if found.label is Label.REFUTED)

    @property
    def unverified(self) -> tuple[Finding, ...]:
        return tuple(found for found in self.findings if found.label is Label.UNVERIFIED)

    def to_dict(self, *, texts: bool = True) -> dict[str, Any]:
        """The feedback as JSON, numbers with 7 digits; every passage once, with its text if `texts` is set."""
        passages = {given.context: given for found in self.findings for given in found.evidence}
        return {
            "order": self.order,
            "findings": [_finding_row(found) for found in self.findings],
            "contexts": [
                {"id": given.context, "title": given.title, "links": list(given.links)}
                | ({"text": given.text} if texts else {})
                for given in passages.values()
            ],
            "repeated": [{"contexts": list(group.contexts), "why": group.why} for group in self.repeated],
        }

    def text(self, *, excerpt: int | None = EXCERPT, most: int | None = None) -> str:
        """The feedback as plain text, for a person or a refiner: one line per fact, passage or statement.

        `excerpt` is the number of characters shown of a passage, from the part about the statement (None: all); `most`
        is the number of passages shown per side of a statement.
        """
        return "\n".join(self._lines(excerpt, most)) + "\n"

    def _lines(self, excerpt: int | None, most: int | None) -> Iterator[str]:
        yield self._headline()
        number = 0
        for title, findings in (("Refuted statements", self.refuted), ("Unverified statements", self.unverified)):
            if not findings:
                continue
            yield from ("", f"{title}:")
            for found in findings:
                number += 1
                yield from ("", f"{number}. {_line(found.text)}")
                if found.original and _line(found.original) != _line(found.text):
                    yield f"   In the response: {_line(found.original)}"
                yield f"   Probability of being true: {_spread(found)}"
                if found.label is Label.REFUTED:
                    yield from _passages(found, excerpt, most)
        if self.repeated:
            yield from ("", "Passages that repeat each other:")
            yield from (f"   {', '.join(map(_line, group.contexts))} ({group.why})" for group in self.repeated)

    def _headline(self) -> str:
        failed = f"; {counted(self.n_failed, 'statement')} could not be assessed" if self.n_failed else ""
        if self.status.failed:
            return f"No verdict ({self.status}): {_line(self.reason or 'no reason given')}{failed}"
        refuted, unverified = len(self.refuted), len(self.unverified)
        supported = self.n_atoms - refuted - unverified
        counts = f"{refuted} refuted, {unverified} unverified, {supported} supported"
        return f"{counted(self.n_atoms, 'statement')}: {counts}{failed}"

    def __repr__(self) -> str:
        passages = sum(len(found.evidence) for found in self.findings)
        evidence = f"; {counted(passages, 'relation')} by {self.order}" if self.order else ""
        return f"Feedback({self._headline()}{evidence})"

    def _repr_html_(self) -> str:
        rows = "".join(_finding_html(found) for found in (*self.refuted, *self.unverified))
        head = "<tr><th>label</th><th>P(true)</th><th>statement and passages</th></tr>" if rows else ""
        groups = "; ".join(f"{', '.join(group.contexts)} ({group.why})" for group in self.repeated)
        note = f"<p>Passages that repeat each other: {html.escape(groups)}</p>" if groups else ""
        caption = f"<caption style='text-align:left'>{html.escape(self._headline())}</caption>"
        return f"<table>{caption}{head}{rows}</table>{note}"


def _finding_row(found: Finding) -> dict[str, Any]:
    return {
        "atom": found.atom,
        "text": found.text,
        "original": found.original,
        "label": str(found.label),
        "p": found.p,
        "lower": found.lower,
        "upper": found.upper,
        "certain": found.certain,
        "duplicates": list(found.duplicates),
        "evidence": [
            {
                "context": given.context,
                "source": given.source,
                "target": given.target,
                "type": str(given.type),
                "probability": given.probability,
                "influence": given.influence,
                "side": given.side,
                "repeats": list(given.repeats),
            }
            for given in found.evidence
        ],
    }


def _passages(found: Finding, excerpt: int | None, most: int | None) -> Iterator[str]:
    """The lines on a refuted statement's evidence: first against it, then for it."""
    if not found.evidence:
        yield "   No passage speaks of this statement itself; it follows from what is known of others."
    shown: set[str] = set()
    sides: tuple[tuple[Side, str], ...] = (("against", "Contradicted by:"), ("for", "Entailed by:"))
    for side, title in sides:
        ours = found.by_side(side)
        if ours:
            yield f"   {title}"
        for given in ours[:most]:
            yield f"   - [{_line(given.context)}] {given.name}: {given.says}, probability {_short(given.probability)}"
            if given.repeats:
                yield f"     the same in {', '.join(map(_line, given.repeats))}"
            if given.context not in shown:
                shown.add(given.context)
                yield f"     {extract(given.text, found.text, excerpt)}"
        if len(ours) > len(ours[:most]):
            yield f"   - and {len(ours) - len(ours[:most])} more"


def _finding_html(found: Finding) -> str:
    color = "#c0392b" if found.label is Label.REFUTED else "#b7950b"
    passages = "".join(_evidence_html(given, found.text) for given in found.evidence[:SHOWN])
    more = len(found.evidence) - SHOWN
    passages += f"<li>and {more} more</li>" if more > 0 else ""
    listed = f"<ul style='margin:0.3em 0 0 1.2em;padding:0'>{passages}</ul>" if passages else ""
    return (
        f"<tr style='vertical-align:top'><td style='border-left:4px solid {color};color:{color}'>{found.label}</td>"
        f"<td>{html.escape(_spread(found))}</td>"
        f"<td style='text-align:left'><b>{html.escape(_line(found.text))}</b>{listed}</td></tr>"
    )


def _evidence_html(given: Evidence, about: str) -> str:
    name = html.escape(_line(given.title or given.link or given.context))
    if given.link and given.link.lower().startswith(("http://", "https://")):
        name = f"<a href='{html.escape(given.link)}' rel='noopener noreferrer'>{name}</a>"
    same = f"; the same in {html.escape(', '.join(given.repeats))}" if given.repeats else ""
    says = f"{given.says} ({_short(given.probability)})"
    return f"<li>{says}: {name}{same}<br><small>{html.escape(extract(given.text, about, EXCERPT))}</small></li>"


def _spread(found: Finding) -> str:
    """P(true), with its interval if the label is not certain."""
    unsure = "" if found.certain else f" (from {_short(found.lower)} to {_short(found.upper)}: not certain)"
    return _short(found.p) + unsure


def _short(p: float) -> str:
    """A probability with 2 digits, or with 5 if 2 would round it to 0, 0.5 or 1."""
    short = f"{p:.2f}"
    return short if p in (0.0, 0.5, 1.0) or short not in ("0.00", "0.50", "1.00") else f"{p:.5f}"


def _line(text: str) -> str:
    """A text on one line, without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def extract(text: str, about: str, length: int | None) -> str:
    """The part of a text, `length` characters long, that has the most of the words of `about`."""
    text = _line(text)
    if length is None or len(text) <= length:
        return text
    room = max(length - 2, 1)  # for the dots
    words = {piece.casefold() for piece in _pieces(about) if len(piece) > 3 or not piece.isascii()}
    found = [(at.start(), word) for word in words for at in re.finditer(re.escape(word), text, re.IGNORECASE)]
    found.sort()
    begin, most = 0, 0
    for i, (start, _) in enumerate(found):
        inside = {word for at, word in found[i:] if at + len(word) <= start + room}
        if len(inside) > most:
            begin, most = start, len(inside)
    begin = min(max(0, begin - room // 4), len(text) - room)
    if begin and (space := text.find(" ", begin, begin + 20)) >= 0:
        begin = space + 1
    shown = text[begin : begin + room].strip()
    return ("\N{HORIZONTAL ELLIPSIS}" if begin else "") + shown + "\N{HORIZONTAL ELLIPSIS}" * (begin + room < len(text))


def _pieces(text: str) -> Iterator[str]:
    """The words of a text; of a word in Chinese characters and the like, which is a phrase, every two letters."""
    for word in re.findall(r"\w+", text):
        if max(word) < "\u2e80":
            yield word
        else:
            yield from (word[i : i + 2] for i in range(max(len(word) - 1, 1)))
