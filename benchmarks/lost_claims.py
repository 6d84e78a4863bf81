"""Whether lost claims are noticed, on responses whose atoms are people's: `python benchmarks/lost_claims.py [CASES]`.

Coverage is measured with all atoms of a response, then with each atom left out in turn: the loss is noticed where words
are reported as uncovered that were not before. The thresholds of `fcjax.stages.coverage` were chosen on one half of
the cases (by a hash of their ids). The tables hold numbers only, none of the texts.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fcjax.core.records import Case
from fcjax.io.files import read_cases
from fcjax.stages.claim_words import claim_words, sentences
from fcjax.stages.coverage import coverage

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT.parent / "shared" / "cases" / "factcheck_gpt.jsonl"


@dataclass(slots=True)
class Counts:
    """Sums over responses. Words are weighed; an atom has words of its own if no other atom has all of its words."""

    responses: int = 0
    words: float = 0.0
    covered: float = 0.0
    taken: float = 0.0  # words of sentences of which atoms cover at least half
    taken_covered: float = 0.0
    passages: int = 0  # uncovered with all atoms
    incomplete: int = 0  # responses that have some
    own: int = 0  # atoms with a word that no other atom has
    own_noticed: int = 0
    repeated: int = 0  # the other atoms
    repeated_noticed: int = 0

    def add(self, case: Case) -> None:
        """Count a case that has a response and atoms."""
        response, atoms = case.response or "", [atom.text for atom in case.atoms or ()]
        gaps = coverage(response, atoms).gaps
        lost = {word for gap in gaps for word in gap.words}
        for span in sentences(response):
            words = claim_words(response, *span)
            weight = sum(word.weight for word in words)
            covered = sum(word.weight for word in words if (word.start, word.end) not in lost)
            self.words += weight
            self.covered += covered
            if 2 * covered >= weight:
                self.taken += weight
                self.taken_covered += covered
        self.responses += 1
        self.passages += len(gaps)
        self.incomplete += bool(gaps)

        keys = [{key for word in claim_words(text, 0, len(text)) if word.weight for key in word.keys} for text in atoms]
        for i, own in enumerate(keys):
            left = coverage(response, atoms[:i] + atoms[i + 1 :]).gaps
            noticed = not {word for gap in left for word in gap.words} <= lost
            if own <= set().union(*keys[:i], *keys[i + 1 :]):
                self.repeated += 1
                self.repeated_noticed += noticed
            else:
                self.own += 1
                self.own_noticed += noticed


def half(id: str) -> int:
    """The half of the cases that a case is in: 0, on which the thresholds were chosen, or 1."""
    return hashlib.sha256(id.encode()).digest()[0] % 2


def measured(cases: Iterable[Case]) -> tuple[Counts, Counts]:
    """The counts of each half of the cases that have a response and atoms."""
    counts = Counts(), Counts()
    for case in cases:
        if case.response and case.atoms:
            counts[half(case.id)].add(case)
    return counts


def table(counts: tuple[Counts, Counts]) -> str:
    """The counts as a Markdown table."""
    rows = {
        "responses": lambda one: f"{one.responses}",
        "words that claim something, covered by all atoms": lambda one: _share(one.covered, one.words),
        "the same, in sentences covered at least by half": lambda one: _share(one.taken_covered, one.taken),
        "losses noticed": lambda one: _share(one.own_noticed + one.repeated_noticed, one.own + one.repeated),
        "of atoms with a word that no other atom has": lambda one: _share(one.own_noticed, one.own),
        "of atoms whose words others have, too": lambda one: _share(one.repeated_noticed, one.repeated),
        "passages reported with all atoms, per response": lambda one: f"{one.passages / max(one.responses, 1):.2f}",
        "responses with such a passage": lambda one: _share(one.incomplete, one.responses),
    }
    lines = ["| | chosen on | held out |", "|---|---|---|"]
    lines += [f"| {what} | {' | '.join(map(shown, counts))} |" for what, shown in rows.items()]
    return "\n".join(lines)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.3f} ({part:g} of {whole:g})" if whole else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, nargs="?", default=CASES, help="cases with responses and atoms")
    parser.add_argument("--limit", type=int, help="measure the first cases only")
    chosen = parser.parse_args()
    if not chosen.cases.is_file():
        print(f"{chosen.cases}: no such file; nothing was measured", file=sys.stderr)
        return 0
    cases = [row.value for row in read_cases(chosen.cases) if row.value is not None]
    print(table(measured(cases[: chosen.limit])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
