"""FactCorrector: a response is rewritten by the critic's feedback as long as that improves it (SPEC 6, Algorithm 1).

Evaluate Pr(y). While Pr(y) < theta and rounds remain: feedback, y' = refine(y, feedback), evaluate Pr(y'); y' is kept
only if Pr rises, else the loop ends. The result is the best response, which need not be the last.

The same critic evaluates a revision, which has atoms of its own. An atom in the same words as one of the previous
response has the evidence of that one; evidence for the others is searched for. If the case came with contexts, or there
is no source, all rounds are judged by the same contexts.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from fcjax.core.checks import check_number
from fcjax.core.errors import FcjaxError, SettingsError
from fcjax.core.passages import Retriever
from fcjax.core.records import Case, Status
from fcjax.correction.evidence_reuse import EvidenceReuse, was_searched_for
from fcjax.correction.guards import Guards, comparable
from fcjax.correction.method import CaseAskers, Method
from fcjax.correction.record import Correction, Round, Stop, not_started, precision_of
from fcjax.correction.refine import Refiner
from fcjax.critic.asker import Asker
from fcjax.critic.critic import Critic, Critique, case_of, with_critic
from fcjax.io.client import Client
from fcjax.io.own_loop import in_own_loop
from fcjax.stages.traces import without

if TYPE_CHECKING:
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.store import Store


class Corrector(Method):
    """Corrects responses by Algorithm 1 (SPEC 6).

    A response with Pr of at least `theta` stays as it is; at most `rounds` revisions are tried, one by default. `pool`
    keeps all contexts found so far as candidates for the atoms of a revision, not only those of the atoms that it
    keeps; this favours corrections, which then have more evidence. Raises `SettingsError`.
    """

    name: ClassVar[str] = "factcorrector"

    def __init__(
        self,
        critic: Critic,
        refiner: Refiner | None = None,
        *,
        theta: float = 1.0,
        rounds: int = 1,
        guards: Guards | None = None,
        pool: bool = False,
        client: Client | None = None,
        open_cases: int = 16,
    ):
        super().__init__(critic, client=client, open_cases=open_cases)
        check_number("theta", theta, 0, 1)
        check_number("rounds", rounds, 0, 1000, whole=True)
        for name, given, kind in (("refiner", refiner, Refiner), ("guards", guards, Guards)):
            if not (given is None or isinstance(given, kind)):
                raise SettingsError(f"{name} is {given!r:.60}; allowed: {kind.__name__}(...) or None")
        self.refiner, self.guards = refiner or Refiner(), guards or Guards()
        self.theta, self.rounds, self.pool = float(theta), rounds, bool(pool)

    def settings(self) -> dict[str, Any]:
        """Everything that changes a correction apart from the critic's settings and the models, as JSON."""
        refiner = {**asdict(self.refiner), "template": self.refiner.template.name}
        own = {"theta": self.theta, "rounds": self.rounds, "pool": self.pool}
        return {"method": self.name, **own, "refiner": refiner, "guards": asdict(self.guards)}

    async def _corrected(self, case: Case, askers: CaseAskers) -> Correction:
        assert case.response is not None
        first = await self.critic.using(asker=askers.critic).critique(case)
        begun = Round(
            number=0, response=case.response, kept=True, why="as it came", cost=askers.spent(), critique=first
        )
        askers.on_round(begun)
        if begun.precision is None:
            return not_started(case, self.name, Status(first.status), first.reason or "it has no measures", begun)
        rounds = [begun]
        seen = {comparable(case.response)}
        stop, why, status = self._goal(begun, 0), "", Status.OK
        while stop is None:
            one, stop, status = await self._round(rounds, seen, case, askers)
            rounds.append(one)
            askers.on_round(one)
            why = f"round {one.number}: {one.why}"
            if stop is None and (stop := self._goal(one, one.number)):
                why = ""
        best = max((one for one in rounds if one.kept), key=lambda one: one.number)
        return Correction(
            case=case,
            method=self.name,
            rounds=tuple(rounds),
            stop=stop,
            status=status,
            reason=why or self._reached(stop, best),
            k=self.critic.settings.k,
            fingerprint=self._fingerprint(first),
        )

    def _goal(self, best: Round, number: int) -> Stop | None:
        """Why there is no other round; None if there is one."""
        assert best.precision is not None
        if best.precision >= self.theta:
            return "theta"
        if best.feedback is None or not best.feedback.findings:
            return "nothing_to_correct"
        return "rounds" if number >= self.rounds else None

    def _reached(self, stop: Stop, best: Round) -> str:
        match stop:
            case "theta":
                return f"Pr {best.precision:.4g} has reached theta, {self.theta:g}"
            case "nothing_to_correct":
                return "no statement is refuted or unverified"
            case _:
                return f"{self.rounds} of {self.rounds} rounds are done"

    async def _round(
        self, rounds: list[Round], seen: set[str], case: Case, askers: CaseAskers
    ) -> tuple[Round, Stop | None, Status]:
        """One pass of the loop: the round, why it is the last one if it is, and the status."""
        best, first, number = rounds[-1], case.response or "", len(rounds)
        assert best.critique is not None
        assert best.feedback is not None
        text: str | None = None
        critique: Critique | None = None

        def done(kept: bool, why: str) -> Round:
            return Round(number=number, response=text, kept=kept, why=why, cost=askers.spent(), critique=critique)

        try:
            y = replace(best.critique.case, response=best.response)
            refined = await self.refiner.run(y, best.feedback, askers.writer.ask, askers.writer.reject)
            text = refined.text
            if text is None:
                return done(False, f"no revision: {refined.why}"), "failed", Status.CORRECTION_FAILED
            if comparable(text) == comparable(best.response or ""):
                return done(False, "the revision is the same text"), "unchanged", Status.OK
            if fault := self.guards.fault(text, first, seen):
                return done(False, fault), "guard", Status.OK
            seen.add(comparable(text))
            critique = await evaluation(self.critic, text, best.critique.case, askers.critic, pool=self.pool)
            return await self._judged(best, critique, done, askers)
        except FcjaxError as error:  # the run ends here, and the rounds so far are kept
            return done(False, f"it was cut short: {error}"), "failed", Status.CORRECTION_FAILED

    async def _judged(
        self, best: Round, critique: Critique, done: Callable[[bool, str], Round], askers: CaseAskers
    ) -> tuple[Round, Stop | None, Status]:
        """Whether a revision is kept: Pr rises, no more of it has failed than before, and no guard refuses it."""
        assert best.critique is not None
        status = Status(critique.status)
        if critique.row["measures"] is None:
            why = f"it cannot be evaluated: {status}: {critique.reason}"
            if status in (Status.NO_ATOMS, Status.REFUSED):
                return done(False, f"the revision has no atoms ({critique.reason})"), "no_gain", Status.OK
            return done(False, why), "failed", Status.CORRECTION_FAILED
        failed, before = failures(critique), failures(best.critique)
        if failed > before:
            why = f"{failed} of its atoms and relations failed, {before} before"
            return done(False, why), "failed", Status.CORRECTION_FAILED
        old, new = best.precision or 0.0, precision_of(critique) or 0.0
        change = f"Pr {old:.4g} -> {new:.4g}"
        if new <= old:
            return done(False, f"{change}: it does not rise"), "no_gain", Status.OK
        ask, reject = askers.critic.ask, askers.critic.reject
        if loss := await self.guards.loss(best.critique, critique, self.critic.how.model, ask, reject):
            one = done(False, f"{change}, but {loss.why}")
            return (one, "guard", Status.OK) if loss.known else (one, "failed", Status.CORRECTION_FAILED)
        return done(True, change), None, Status.OK

    def _fingerprint(self, first: Critique) -> str:
        """The fingerprint of the row: of the settings and of the first critique."""
        named = orjson.dumps([self.settings(), first.row["fingerprint"]], option=orjson.OPT_SORT_KEYS)
        return hashlib.blake2b(named, digest_size=16).hexdigest()


async def evaluation(
    critic: Critic, response: str, known: Case, asker: Asker | None = None, *, pool: bool = False
) -> Critique:
    """The critique of another response to the query of `known` (see `reevaluation_inputs`)."""
    critic, case = reevaluation_inputs(critic, response, known, pool=pool)
    return await critic.using(asker=asker).critique(case)


def reevaluation_inputs(critic: Critic, response: str, known: Case, *, pool: bool = False) -> tuple[Critic, Case]:
    """The critic and the case with which to evaluate another response to the query of `known`, a case that `critic`
    has processed: statements that are the same keep their evidence (see `EvidenceReuse`)."""
    found = critic.retriever is not None and was_searched_for(known)
    retrieve = EvidenceReuse.after(critic.pipeline.retrieve, known, pool=pool, searches=found)
    pipeline = replace(critic.pipeline, retrieve=retrieve, searches=True)
    case = Case(id=known.id, query=known.query, response=response, topic=known.topic, extra=without(known))
    return critic.using(pipeline=pipeline), case


def failures(critique: Critique) -> int:
    """The number of failed atoms and relations of a critique."""
    measures, diagnostics = critique.row["measures"] or {}, critique.row["diagnostics"]
    return int(measures.get("n_failed", 0)) + int(diagnostics.get("n_failed_relations", 0))


def correct(
    response: str | Case,
    query: str | None = None,
    *,
    retrieve: Retriever | str | os.PathLike[str] | None = None,
    where: Endpoint | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    replay: bool = False,
    theta: float = 1.0,
    rounds: int = 1,
    guards: Guards | None = None,
    refiner: Refiner | None = None,
    **critic: Any,
) -> Correction:
    """The correction of one response, or of a case that has parts already; also within a running event loop.

    `theta`, `rounds`, `guards` and `refiner` are those of `Corrector`; `retrieve`, `where`, `store` and `replay` are as
    in `fcjax.critique`, and other arguments go to `Critic`. Raises the same errors as that.
    """
    case = case_of(response, query)

    async def corrected(critic: Critic) -> Correction:
        return await Corrector(critic, refiner, theta=theta, rounds=rounds, guards=guards).correct(case)

    return in_own_loop(with_critic(corrected, retrieve, where, store, replay, **critic))
