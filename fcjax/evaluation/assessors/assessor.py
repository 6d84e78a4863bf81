"""Assessors that ask a model for a verdict on each atom from its passages, without a graph or probabilities. Atoms and
contexts are those of the critic's stages, so that the comparison is of the method alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fcjax.core.checks import check_number
from fcjax.core.errors import SettingsError
from fcjax.core.passages import Passage
from fcjax.core.prompts import Prompt, Reply
from fcjax.core.records import Atom, Case, Label, Status
from fcjax.correction.baselines.evidence import passages_of, prepared
from fcjax.correction.verdicts import Vocabulary
from fcjax.critic.asker import Asker, Cost, Meter
from fcjax.critic.critic import Critic
from fcjax.graph.selection import merge
from fcjax.io.window import in_order
from fcjax.scoring.measures import f1_at_k, k_of, precision, recall_at_k
from fcjax.scoring.rows import DIGITS, Row
from fcjax.stages.answers import AT_ONCE, Asked, answers_to, each, is_cut


@dataclass(frozen=True, eq=False, slots=True)
class Assessment:
    """An assessor's verdicts on a case: `row` is like a results row (SPEC 7), with a `verdict` per atom, without
    probabilities, and with the `cost`."""

    case: Case
    row: Row
    cost: Cost

    @property
    def status(self) -> str:
        return str(self.row["status"])

    @property
    def precision(self) -> float | None:
        """The share of the atoms that are supported; None without verdicts."""
        measures = self.row["measures"]
        return None if measures is None else float(measures["precision"])

    def __repr__(self) -> str:
        if self.row["measures"] is None:
            return f"Assessment({self.case.id!r}: {self.status}: {self.row['reason']})"
        counts: dict[str, int] = {}
        for atom in self.row["atoms"]:
            if "duplicate_of" not in atom:
                name = atom["verdict"] or atom["status"]
                counts[name] = counts.get(name, 0) + 1
        totals = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"Assessment({self.case.id!r}: Pr {self.precision:.2f}: {totals}; {self.cost.prompts:,} prompts)"


class Assessor(ABC):
    """Asks for verdicts, one prompt an atom, with what a critic has: its client, source and stages.

    At most `open_cases` cases are under way at once. Raises `SettingsError`.
    """

    name: ClassVar[str]
    verdicts: ClassVar[Vocabulary]
    labels: ClassVar[dict[str, Label]]
    """The label that corresponds to each verdict."""
    without: ClassVar[str]
    """The verdict on an atom without passages, which takes no prompt."""

    def __init__(self, critic: Critic, *, open_cases: int = 16):
        check_number("open_cases", open_cases, 1, 4096, whole=True)
        if critic.client is None:
            raise SettingsError(f"{self.name} needs a model, but the critic has no client; give it a client")
        self.critic, self._client, self._open = critic, critic.client, open_cases

    @abstractmethod
    def prompt(self, case: Case, atom: Atom, passages: Sequence[Passage]) -> Prompt:
        """The question about one atom."""

    async def assess(self, case: Case) -> Assessment:
        """The verdicts on one case. Raises as `assess_many` does."""
        asker = Asker(self._client)
        found = await self._assessed(case, asker)
        if asker.end:
            raise asker.end
        return found

    async def assess_many(self, cases: Iterable[Case] | AsyncIterable[Case]) -> AsyncGenerator[Assessment, None]:
        """The verdicts on a stream of cases, in order, a bounded number at a time.

        Raises `BudgetError` when the budget is used up and `SettingsError` when the endpoint answers nothing at all.
        """
        asker = Asker(self._client)

        async def work(place: int, case: Case) -> Assessment:
            return await self._assessed(case, asker)

        async for found in in_order(cases, work, self._open, lambda: asker.end):
            yield found

    async def _assessed(self, case: Case, asker: Asker) -> Assessment:
        meter = Meter(asker)
        case = await prepared(self.critic, case, meter)
        if case.status.failed or not case.atoms:
            status = case.status if case.status.failed else Status.NO_ATOMS
            reason = case.extra.get("reason") or "the response has no atoms"
            atoms = [_atom_row(atom, None, status) for atom in case.atoms or ()]
            return Assessment(case, self._row(case, status, reason, atoms, meter.cost), meter.cost)
        aliases: dict[str, str] = {}
        merge(((atom.id, atom.text.strip()) for atom in case.atoms), aliases)
        unique = [atom for atom in case.atoms if atom.id not in aliases]

        async def verdict(atom: Atom) -> tuple[str | None, Status, str]:
            return await self._verdict(case, atom, meter)

        found = dict(zip((atom.id for atom in unique), await each(verdict, unique, AT_ONCE), strict=True))
        rows = []
        for atom in case.atoms:
            said, status, why = found[aliases.get(atom.id, atom.id)]
            row = _atom_row(atom, said, status, self.labels.get(said or ""))
            rows.append(row | ({"reason": why} if why else {}))
            if atom.id in aliases:
                rows[-1]["duplicate_of"] = aliases[atom.id]
        failed = [status for _, status, _ in found.values() if status.failed]
        status, reason = Status.OK, None
        if len(failed) == len(unique):
            status, reason = failed[0], "every atom failed"
        return Assessment(case, self._row(case, status, reason, rows, meter.cost), meter.cost)

    async def _verdict(self, case: Case, atom: Atom, meter: Meter) -> tuple[str | None, Status, str]:
        """The verdict on an atom, its status, and the reason if there is none."""
        if atom.status.failed:
            return None, atom.status, str(atom.extra.get("reason", ""))
        passages = passages_of(case, atom)
        if not passages:
            return self.without, Status.NO_EVIDENCE, ""
        asked = await self._asked(self.prompt(case, atom, passages), meter)
        if not asked.answers:
            return None, Status.RELATION_FAILED, asked.why
        return asked.answers[0], Status.OK, ""

    async def _asked(self, prompt: Prompt, meter: Meter) -> Asked[str]:
        def read(reply: Reply) -> dict[int, str]:
            verdict = self.verdicts.read(reply.text, is_cut(reply))
            return {0: verdict} if verdict else {}

        def request(missing: Sequence[int]) -> str:
            allowed = ", ".join(self.verdicts.spellings)
            return f"No verdict could be read. Answer again, with one verdict in brackets and nothing else: {allowed}."

        return await answers_to(prompt, 1, read, request, meter.ask, meter.reject, what="verdict")

    def _row(self, case: Case, status: Status, reason: str | None, atoms: list[Row], cost: Cost) -> Row:
        return {
            "id": case.id,
            "status": str(status),
            "reason": reason,
            "assessor": self.name,
            "atoms": atoms,
            "measures": None if status.failed else _measures(atoms, self.critic.settings.k),
            "cost": cost.to_dict(),
        }


def _atom_row(atom: Atom, verdict: str | None, status: Status, label: Label | None = None) -> Row:
    row: Row = {"id": atom.id, "verdict": verdict, "label": None if label is None else str(label), "p": None}
    row["status"] = str(status)
    if atom.label is not None:
        row["human"] = atom.label
    return row


def _measures(atoms: Sequence[Row], k: Any) -> dict[str, float]:
    """The measures of SPEC 5 that need no probabilities; failed atoms and duplicates do not count in n."""
    counted = [atom["label"] for atom in atoms if "duplicate_of" not in atom and atom["label"] is not None]
    n, n_supported = len(counted), counted.count(Label.SUPPORTED)
    n_failed = sum(atom["label"] is None and "duplicate_of" not in atom for atom in atoms)
    k = k_of(n if k is None else k, n)
    measures = {
        "precision": precision(n_supported, n) or 0.0,
        "recall_at_k": recall_at_k(n_supported, k),
        "f1_at_k": f1_at_k(n_supported, n, k) or 0.0,
        "k": k,
        "n_atoms": n,
        "n_supported": n_supported,
        "n_refuted": counted.count(Label.REFUTED),
        "n_unverified": counted.count(Label.UNVERIFIED),
        "n_failed": n_failed,
        "precision_worst": precision(n_supported, n + n_failed) or 0.0,
        "precision_best": precision(n_supported + n_failed, n + n_failed) or 0.0,
    }
    return {name: round(value, DIGITS) for name, value in measures.items()}
