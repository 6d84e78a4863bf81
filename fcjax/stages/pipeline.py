"""The stages of a case up to its relations, and which of them it still needs (SPEC 7).

Only what is missing is worked out: what a case brings along is used as it is. A case says itself how far it has come,
in its fields and in the traces under `stages`, so that a case that was saved can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from fcjax.core.checks import check_choice
from fcjax.core.errors import SettingsError
from fcjax.core.records import Atom, Case, Context, Status
from fcjax.stages.atomize import Atomizer
from fcjax.stages.query import QueryBuilder
from fcjax.stages.relate import Ask, Reject
from fcjax.stages.retrieve import EvidenceSearch, Search
from fcjax.stages.revise import Reviser
from fcjax.stages.sentences import SentenceAtomizer
from fcjax.stages.summarise import Summariser
from fcjax.stages.traces import related, traces, untraced, without

Stage = Literal["atomize", "revise", "query", "retrieve", "summarise", "relate"]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)

AtomizerName = Literal["model", "sentences"]

_NEEDED: Final = {
    "atomize": "no model was given to split the response into atoms",
    "retrieve": "no retriever was given to search for evidence (--corpus or --retriever on the command line)",
    "relate": "no model was given to relate the contexts to the atoms",
}

EarlyExit = Callable[[Stage, Case], str | None]
"""Looks at a case after each stage before `relate`; a text is the reason to stop, None continues."""
After = Callable[[Stage, Case], None]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """The stages before relations. None omits a stage; `stages` are those that may run, including relate.

    With the `atomizer` "sentences", atoms are the sentences of a response (see `SentenceAtomizer`), in `language` or
    the one that is guessed: no model is asked for them, `atomize` is not used, and they are not revised.

    Raises `SettingsError`.
    """

    atomize: Atomizer = field(default_factory=Atomizer)
    revise: Reviser | None = field(default_factory=Reviser)
    query: QueryBuilder | None = None  # without it, an atom's text is its query
    retrieve: EvidenceSearch = field(default_factory=EvidenceSearch)
    summarise: Summariser | None = None
    stages: Collection[Stage] = STAGES
    early_exit: EarlyExit | None = None
    asks: bool = True  # whether there is a model to ask
    searches: bool = True  # whether there is a source to search
    local_relations: bool = False  # whether relations need no model to ask
    atomizer: AtomizerName = "model"
    language: str | None = None  # a code such as "de", with the atomizer "sentences" only

    def __post_init__(self) -> None:
        check_choice("atomizer", self.atomizer, get_args(AtomizerName))
        if self.language is not None and self.atomizer != "sentences":
            raise SettingsError(
                f"language is {self.language!r:.60}, which has no effect with the atomizer 'model'; "
                "remove it, or use the atomizer 'sentences'"
            )
        splitter = SentenceAtomizer(self.language) if self.atomizer == "sentences" else None
        object.__setattr__(self, "_splitter", splitter)
        if unknown := [stage for stage in self.stages if stage not in STAGES]:
            raise SettingsError(f"stages has {unknown[0]!r:.60}; allowed: {', '.join(STAGES)}")
        may = {stage for stage in self.stages if self._is_possible(stage)}
        object.__setattr__(self, "_may", frozenset(may))

    def _is_possible(self, stage: Stage) -> bool:
        """Whether there is what a stage needs."""
        if stage == "retrieve":
            return self.searches
        if stage == "relate":
            return self.asks or self.local_relations
        return self.work(stage) is not None and (self.asks or (stage == "atomize" and self.atomizer == "sentences"))

    def work(self, stage: Stage) -> Any:
        """What does a stage before `relate`; None where the stage is omitted."""
        if self.atomizer == "sentences" and stage in ("atomize", "revise"):
            return self._splitter if stage == "atomize" else None  # type: ignore[attr-defined]
        return getattr(self, stage)

    def may(self, stage: Stage) -> bool:
        """Whether a stage can run."""
        return stage in self._may  # type: ignore[attr-defined]

    @property
    def asking(self) -> tuple[Stage, ...]:
        """The stages that can run and may ask a model, in order."""
        silent = {"retrieve"} | ({"atomize"} if self.atomizer == "sentences" else set())
        silent |= {"relate"} if self.local_relations else set()
        return tuple(stage for stage in STAGES if self.may(stage) and stage not in silent)

    def needs(self, stage: Stage, case: Case) -> bool:
        """Whether `case`, after the earlier stages, lacks the output of `stage`."""
        done = traces(case)
        match stage:
            case "atomize":
                return case.atoms is None
            case "revise":
                return "atomize" in done and "revise" not in done
            case "query":
                return "query" not in done and self.needs("retrieve", case)
            case "retrieve":
                failed = any(atom.status is Status.RETRIEVAL_FAILED for atom in case.atoms or ())
                return (case.contexts is None and case.relations is None) or (failed and "retrieve" in done)
            case "summarise":
                return "summarise" not in done and bool(case.contexts)
            case "relate":
                # Of relations that were asked for, pairs may be missing: for later contexts, or for another version.
                failed = any(relation.status.failed for relation in case.relations or ())
                return case.relations is None or failed or related(case) is not None

    def lacks(self, case: Case) -> str | None:
        """Why a case cannot go through the stages it needs; None if it can, or has already failed."""
        if case.status.failed and not _can_try_again(case):
            return None  # it has its reason
        if case.atoms is None and case.response is None:
            return "the case has neither `atoms` nor a `response` to take them from; add one of them"
        sought: tuple[tuple[Stage, str], ...]
        sought = ("atomize", "atoms"), ("retrieve", "contexts"), ("relate", "relations")
        for stage, what in sought:
            if stage in self.stages and not self.may(stage) and self._blank(stage, case):
                return f"the case has no `{what}`, and {_NEEDED[stage]}; add either one"
        return None

    def plan(self, case: Case) -> tuple[Stage, ...]:
        """The stages a case will go through, as far as known before the first; empty if a needed one is unavailable."""
        if (case.status.failed and not _can_try_again(case)) or self.lacks(case):
            return ()
        before = {"revise": "atomize", "summarise": "retrieve"}  # what these need is what the others will find
        planned: list[Stage] = []
        for stage in STAGES:
            if self.may(stage) and (self.needs(stage, case) or before.get(stage) in planned):
                planned.append(stage)
        return tuple(planned)

    def unfinished(self, case: Case) -> str | None:
        """Why a case has no posteriors after the stages that were to run; None if it has them."""
        gone = [stage for stage in STAGES if stage not in self.stages]
        for stage in ("atomize", "retrieve", "relate"):
            if self._blank(stage, case):
                why = f"the stage {stage} was left out" if stage in gone else _NEEDED[stage]
                return f"{why}, so there are no posteriors"
        return None

    @staticmethod
    def _blank(stage: Stage, case: Case) -> bool:
        """Whether a case has no answer at all to what `stage` finds out, and would have use for one."""
        match stage:
            case "atomize":
                return case.atoms is None
            case "retrieve":
                return case.atoms != () and case.contexts is None and case.relations is None
            case _:
                return case.atoms != () and case.contexts != () and case.relations is None

    async def prepare(
        self, case: Case, ask: Ask, search: Search, reject: Reject | None = None, after: After | None = None
    ) -> Case:
        """The case after the stages before `relate` that it needs; `after` is called after each one.

        A stage that fails as a whole ends it with the status that says so. Each runs once at most.
        """
        if self.lacks(case):
            return case
        case = _another_try(case)
        for stage in STAGES[:-1]:
            if case.status.failed or case.atoms == ():
                break
            if not (self.may(stage) and self.needs(stage, case)):
                continue
            match stage:
                case "retrieve":
                    case = await self.retrieve.run(case, search)
                    case = replace(case, extra=untraced(case, "summarise"))  # new contexts have no summary
                case _:
                    case = await self.work(stage).run(case, ask, reject)
            case = self.stopped(stage, case)
            if after:
                after(stage, case)
        return case

    def stopped(self, stage: Stage, case: Case) -> Case:
        """The case with the status `stopped`, if the early exit gives a reason for it after `stage`."""
        if case.status.failed or not self.early_exit or not (reason := self.early_exit(stage, case)):
            return case
        return replace(case, status=Status.STOPPED, extra={**case.extra, "reason": f"after {stage}: {reason}"})


def begun_from(case: Case, stage: Stage) -> Case:
    """The case as if `stage` and all later stages had never run.

    Before `atomize` there is the response alone. What the input brought along under the same names goes too. Contexts
    that were left out as irrelevant are gone for good: only retrieving finds them again. A response that has no atoms
    keeps its status, which says why, unless it is atomized anew.
    """
    if case.atoms == () and stage != "atomize":
        return case
    place = STAGES.index(stage)
    gone = STAGES[place:]
    case = replace(case, relations=None, status=Status.OK, extra=without(case, gone))
    if case.atoms is not None:
        case = replace(case, atoms=tuple(_atom_from(atom, gone) for atom in case.atoms))
    if "retrieve" in gone:
        case = replace(case, contexts=None)
    elif "summarise" in gone and case.contexts is not None:
        case = replace(case, contexts=tuple(_unsummarised(context) for context in case.contexts))
    return replace(case, atoms=None) if "atomize" in gone else case


def _atom_from(atom: Atom, gone: Iterable[Stage]) -> Atom:
    extra = dict(atom.extra)
    if "revise" in gone:
        extra.pop("revision", None)
        atom = replace(atom, text=atom.original or atom.text, original=None)
    if "query" in gone:
        extra.pop("query", None)
    if "retrieve" in gone:
        extra.pop("reason", None)
        status = Status.OK if atom.status in (Status.RETRIEVAL_FAILED, Status.NO_EVIDENCE) else atom.status
        atom = replace(atom, contexts=None, status=status)
    return replace(atom, extra=extra)


def _unsummarised(context: Context) -> Context:
    extra = {key: value for key, value in context.extra.items() if key not in ("full_text", "full_snippet", "summary")}
    if "full_text" not in context.extra:
        return replace(context, extra=extra)
    text, snippet = context.extra["full_text"], context.extra.get("full_snippet")
    return replace(context, text=text, snippet=snippet, summary_confidence=None, extra=extra)


def _another_try(case: Case) -> Case:
    """The case without a failure that another try may not meet."""
    if not _can_try_again(case):
        return case
    return replace(case, status=Status.OK, extra={key: value for key, value in case.extra.items() if key != "reason"})


def _can_try_again(case: Case) -> bool:
    return case.status in (Status.ATOMIZE_FAILED, Status.STOPPED)
