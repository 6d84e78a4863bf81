"""The examination of a relation model on labelled pairs, and its calibration (SPEC 9).

The model is asked as `relate` asks it: the same prompts, repairs, votes and keys in the store. A pair that fails is
counted, and is never an answer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from jaxtyping import Float, Int

from fcjax.core.errors import SettingsError, counted
from fcjax.core.records import DISTRIBUTED, Distribution, Relation
from fcjax.critic.asker import Asker, Cost, Meter
from fcjax.evaluation.baselines import Baselines, Embedder, baselines_of
from fcjax.evaluation.gate import FEWEST, Gate, gate_of
from fcjax.evaluation.label_shares import check_in_use, checked_shares
from fcjax.evaluation.relation_figures import Figures, answers_of, figures_of, surprises
from fcjax.evaluation.relation_pairs import LabelledPair, LabelledPairs, pairs_of
from fcjax.evaluation.reliability import exam_html, exam_lines
from fcjax.evaluation.vector_scaling import FOLDS, cross_validated, fit
from fcjax.io.own_loop import in_own_loop
from fcjax.io.window import Window
from fcjax.stages.calibration import Calibration, spread
from fcjax.stages.relate import Pair, Relater, RelationModel

if TYPE_CHECKING:
    from fcjax.io.client import Client
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.store import Store

_SAME: Final = 1e-6  # probabilities of answers no further apart than this do not tell the answers apart
_MOST: Final = 2 / 3  # of the answers; a label with more, and more than people's share of it, is a bias worth a word


@dataclass(frozen=True, eq=False, kw_only=True)
class Exam:
    """The result of examining a relation model: its figures as it is (`raw`), and once calibrated.

    `calibrated` is cross-validated by premise: each answer is calibrated by a fit to answers for other premises. Those
    of a calibration that the model had before are in `given`. `calibration` is fitted to all answers. Each is None
    where it does not exist; then `warnings` says why. The `gate` says whether the calibrated answers are better than
    the `baselines` by more than chance. No figure depends on the order of pairs.
    """

    model: str
    style: str
    template: str
    pairs: LabelledPairs
    relations: tuple[Relation, ...]  # of each pair, in their order, before any calibration
    cost: Cost
    raw: Figures | None
    calibrated: Figures | None
    given: Figures | None
    calibration: Calibration | None
    baselines: Baselines | None  # on the answered pairs
    gate: Gate
    folds: int
    methods: Mapping[str, int]  # answered pairs by where their probabilities come from
    failed: Mapping[str, int]  # pairs without an answer, by the kind of failure
    warnings: tuple[str, ...] = ()
    answered: tuple[LabelledPair, ...] = ()
    q: Float[np.ndarray, "N 3"] = field(default_factory=lambda: np.zeros((0, 3)))  # of the answered pairs
    labels: Int[np.ndarray, " N"] = field(default_factory=lambda: np.zeros(0, np.int64))  # places in `DISTRIBUTED`

    @property
    def n_failed(self) -> int:
        """Pairs without an answer."""
        return sum(self.failed.values())

    def to_dict(self) -> dict[str, Any]:
        """The examination as JSON (SPEC 9)."""
        return {
            "model": self.model,
            "style": self.style,
            "template": self.template,
            "n_pairs": len(self.pairs.pairs),
            "n_answered": len(self.answered),
            "n_failed": self.n_failed,
            "failed": dict(self.failed),
            "methods": dict(self.methods),
            "pairs": self.pairs.to_dict(),
            **self.figures(),
            "folds": self.folds,
            "calibration": None if self.calibration is None else self.calibration.to_dict() | {"figures": {}},
            "cost": self.cost.to_dict(),
            "warnings": list(self.warnings),
        }

    def figures(self) -> dict[str, Any]:
        """The figures, baselines and gate as JSON; `given` only where there are some."""
        found: dict[str, Figures | Baselines | None] = {"raw": self.raw, "calibrated": self.calibrated}
        found |= {"given": self.given} if self.given else {}
        found["baselines"] = self.baselines
        figures = {name: None if one is None else one.to_dict() for name, one in found.items()}
        return figures | {"gate": self.gate.to_dict()}

    def __repr__(self) -> str:
        return "\n".join(exam_lines(self))

    def _repr_html_(self) -> str:
        return exam_html(self)


async def ask_pairs(
    pairs: Sequence[LabelledPair],
    asker: Asker,
    model: Relater,
    *,
    window: int = 256,
    progress: Callable[[int], None] | None = None,
) -> list[Relation]:
    """The relation of each pair, in order, before any calibration. `progress(n)` is called when n more are done.

    Raises `BudgetError` where the budget is used up and `SettingsError` where the endpoint answers nothing at all, in
    both cases after the questions in flight have been answered.
    """
    found: list[Relation | None] = [None] * len(pairs)

    bare = model.uncalibrated()

    async def work(question: Any) -> list[Relation]:
        return [] if asker.end else await bare.answer(question, asker.ask, asker.reject)

    answers = Window(questions_of(pairs, bare), work, window)
    try:
        async for question, relations in answers:
            for pair, relation in zip(question.pairs, relations, strict=False):
                found[int(pair.target)] = relation
            if progress:
                progress(len(relations))
    finally:
        await answers.close()
    asker.raise_end()
    return [relation for relation in found if relation is not None]


def questions_of(pairs: Sequence[LabelledPair], model: Relater) -> Iterable[Any]:
    """The questions about pairs, whose targets are their places; pairs of one premise are adjacent, to be packed."""
    premises: dict[str, list[int]] = {}
    for place, pair in enumerate(pairs):
        premises.setdefault(pair.premise.strip(), []).append(place)
    asked = (
        Pair(f"premise {number}", str(place), premise, pairs[place].hypothesis)
        for number, (premise, places) in enumerate(premises.items())
        for place in places
    )
    return model.uncalibrated().questions(asked)


async def examine(
    pairs: LabelledPairs,
    client: Client | Asker | None,
    model: Relater | None = None,
    *,
    in_use: Distribution | None = None,
    embedder: Embedder | None = None,
    window: int = 256,
    progress: Callable[[int], None] | None = None,
) -> Exam:
    """Ask about every pair, and compare with people's labels.

    No client is needed for a model that asks none. Raises what `ask_pairs` raises, and before anything is asked what
    `checked_shares` and `check_in_use` raise.
    """
    model = RelationModel() if model is None else model
    if not hasattr(model, "answer") or isinstance(model, type):
        allowed = "a RelationModel, a LocalRelationModel, or None"
        raise SettingsError(f"the relation model is {model!r:.60}; allowed: {allowed}")
    if in_use is not None:
        in_use = checked_shares(in_use)
        check_in_use(pairs, in_use)
    asker = Meter(client if isinstance(client, Asker) else Asker(client))
    if model.calibration is not None:
        model.check(model.calibration, asker.model)
    relations = await ask_pairs(pairs.pairs, asker, model, window=window, progress=progress)
    name = model.named(asker.model)
    return judge(pairs, relations, model, name=name, cost=asker.cost, in_use=in_use, embedder=embedder)


def judge(
    pairs: LabelledPairs,
    relations: Sequence[Relation],
    model: Relater,
    *,
    name: str,
    cost: Cost | None = None,
    in_use: Distribution | None = None,
    embedder: Embedder | None = None,
) -> Exam:
    """The examination of the `relations` that the model of this `name` gave for each of `pairs`.

    The cosine that it has to beat is of the `embedder`'s vectors, by default of word counts. Raises `SettingsError`
    and `InputError` where `in_use` is not possible, and `SettingsError` where the embedder's vectors are not.
    """
    if in_use is not None:
        in_use = checked_shares(in_use)
        check_in_use(pairs, in_use)
    done = [(pair, one) for pair, one in zip(pairs.pairs, relations, strict=True) if not one.status.failed]
    failed = Counter(
        str(one.extra.get("reason", one.status)).partition(":")[0] for one in relations if one.status.failed
    )
    methods = Counter(str(one.method) for _, one in done)
    answered = tuple(pair for pair, _ in done)
    asked_labels = np.array([DISTRIBUTED.index(pair.label) for pair in answered], np.int64)
    asked_q = np.array([_distribution(one) for _, one in done]).reshape(-1, 3)
    # All figures are of the pairs in the order of their texts, so that the order in which they are given has no effect.
    order = sorted(range(len(done)), key=lambda i: (answered[i].premise.strip(), answered[i].hypothesis.strip()))
    ordered = [answered[i] for i in order]
    groups = [pair.premise.strip() for pair in ordered]
    answers = np.array([DISTRIBUTED.index(done[i][1].type) for i in order], np.int64)
    labels, q = asked_labels[order], asked_q[order]
    warnings = _warnings(pairs, methods, failed, groups)
    raw = calibrated = given = None
    baselines = baselines_of(ordered, labels, groups, embedder) if done else None
    calibration: Calibration | None = None
    gate = gate_of(None, None, baselines, groups)
    folds = min(FOLDS, len(set(groups)))
    if done:
        usable = _usable(q, answers)
        if not usable:
            warnings.append(_unusable(methods))
        raw = figures_of(q, answers, labels, groups, usable=usable)
        warnings += _biased(raw)
        base = Calibration(model=name, style=model.style, template=model.template_name)
        if len(set(labels.tolist())) > 1:
            made = cross_validated(base, q, labels, groups, temperature=usable)
            if made is not None:
                scaled_answers = answers_of(made, answers)
                calibrated = figures_of(made, scaled_answers, labels, groups)
                right = (scaled_answers == labels).astype(np.float64)
                gate = gate_of(surprises(made, labels), right, baselines, groups)
            calibration = replace(
                fit(base, q, labels, temperature=usable), n_pairs=len(done), shares=raw.shares, in_use=in_use
            )
        if model.calibration is not None:
            scaled = model.calibration.apply_all(q)
            given = figures_of(scaled, answers_of(scaled, answers), labels, groups)
    exam = Exam(
        model=name,
        style=model.style,
        template=model.template_name,
        pairs=pairs,
        relations=tuple(relations),
        cost=cost or Cost(),
        raw=raw,
        calibrated=calibrated,
        given=given,
        calibration=calibration,
        baselines=baselines,
        gate=gate,
        folds=folds if calibrated else 0,
        methods=dict(methods),
        failed=dict(failed),
        warnings=tuple(warnings),
        answered=answered,
        q=asked_q,
        labels=asked_labels,
    )
    return exam if calibration is None else replace(exam, calibration=replace(calibration, figures=exam.figures()))


def calibrate(
    pairs: LabelledPairs | str | os.PathLike[str] | Iterable[LabelledPair | Mapping[str, Any]],
    where: Endpoint | None = None,
    *,
    relate: Relater | None = None,
    in_use: Distribution | None = None,
    embedder: Embedder | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    replay: bool = False,
    window: int = 256,
) -> Exam:
    """The examination of a relation model on labelled pairs, and its calibration; also within a running event loop.

    `pairs` is a file (see `read_pairs`), or rows with premise, hypothesis and label. Asked is the endpoint `where`, by
    default the one that the environment names, as `relate` says (none, if that is a `LocalRelationModel`), with replies
    kept in `store` (by default the one that commands share; with `replay` it alone answers). `in_use` is the shares of
    entailment, contradiction and neutral where the calibration will be used, if they are known to differ from the
    pairs'. The `embedder` has `embed(texts)`, which gives normalised vectors, and a `name`; the model has to beat their
    cosine, by default that of word counts.

    Raises `SettingsError`, `InputError`, `BudgetError`, and `OutputError` where the store cannot be written.
    """
    from fcjax.io.client import Client
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.store import Store

    in_use = None if in_use is None else checked_shares(in_use)
    given = pairs_of(pairs)

    async def work() -> Exam:
        if relate is not None and not getattr(relate, "asks", True):
            return await examine(given, None, relate, in_use=in_use, embedder=embedder, window=window)
        async with AsyncExitStack() as opened:
            kept = store if isinstance(store, Store) else opened.enter_context(Store.open(store, readonly=replay))
            client = Client(where or Endpoint.from_env(), store=kept, replay=replay)
            client = await opened.enter_async_context(client)
            return await examine(given, client, relate, in_use=in_use, embedder=embedder, window=window)

    return in_own_loop(work())


def _distribution(relation: Relation) -> Distribution:
    if relation.distribution is not None:
        return relation.distribution
    assert relation.type is not None
    assert relation.probability is not None  # it has not failed
    return spread(relation.type, relation.probability)


def _usable(q: Float[np.ndarray, "N 3"], answers: Int[np.ndarray, " N"]) -> bool:
    """Whether the probabilities tell the answers apart: those of the answers themselves are not all the same."""
    own = np.take_along_axis(q, answers[:, None], axis=1)
    return bool(np.ptp(own) > _SAME) or len(q) == 1


def _unusable(methods: Mapping[str, int]) -> str:
    why = "no reply has logprobs" if set(methods) == {"default"} else "every answer has the same probability"
    advice = "" if set(methods) == {"local"} else " (--votes N asks several times instead)"
    return f"no usable probabilities: {why}; accuracy rests on the labels alone, and no temperature was fitted{advice}"


def _warnings(
    pairs: LabelledPairs, methods: Mapping[str, int], failed: Mapping[str, int], groups: Sequence[str]
) -> list[str]:
    found = []
    n, premises = len(groups), len(set(groups))
    if pairs.disputed:
        found.append(
            f"{counted(len(pairs.disputed), 'pair')} left out: given with different labels (such as "
            f"{pairs.disputed[0]!r:.60})"
        )
    if failed:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in failed.items())
        found.append(f"{counted(sum(failed.values()), 'pair')} without an answer, left out: {kinds}")
    if not n:
        return [*found, "no pair was answered: there are no figures"]
    if n < FEWEST:
        found.append(f"only {counted(n, 'answered pair')}: the figures are uncertain; use {FEWEST} or more, better 300")
    missing = [label for label in DISTRIBUTED if label not in pairs.labels]
    if len(missing) == 2:
        found.append("all pairs have one label: accuracy on them says little, and no calibration can be fitted")
    elif missing:
        found.append(f"no pair has the label {missing[0]}: its bias rests on the prior alone")
    if premises == 1:
        found.append("all pairs have one premise: no cross-validation and no intervals")
    elif premises < FOLDS:
        found.append(f"only {premises} premises: cross-validated by leaving out one at a time")
    if (assumed := methods.get("default", 0)) and set(methods) != {"default"}:
        found.append(
            f"{assumed:,} of {counted(n, 'answer')} have no logprobs: their probability is assumed, "
            "and shared by the other two labels"
        )
    return found


def _biased(raw: Figures) -> list[str]:
    share = max(raw.answered)
    place = raw.answered.index(share)
    if raw.n < 2 or share <= _MOST or share - raw.shares[place] <= 0.1:
        return []
    return [
        f"{share:.0%} of the answers are {DISTRIBUTED[place]}, and {raw.shares[place]:.0%} of people's labels: "
        "the model prefers this label; calibrate, or use another wording or model"
    ]
