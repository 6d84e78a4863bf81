"""A local relation model: an encoder that reads a passage and a claim, on the device of the engine (SPEC 9, Local).

It stands where `RelationModel` stands, and needs no endpoint. Pairs from many cases are gathered while the device is
at work, and run together in batches of few shapes, in a thread of their own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import orjson
from jaxtyping import Float

from fcjax.core.checks import check_number, is_distribution
from fcjax.core.errors import Fault, InputError
from fcjax.core.prompts import Prompt, Reply
from fcjax.core.records import DISTRIBUTED, Distribution, Relation, RelationType, Status
from fcjax.encoders.batches import Batch, batches
from fcjax.encoders.config import LogitLabels, read_labels
from fcjax.encoders.encoder import Encoder
from fcjax.encoders.network import Dtype
from fcjax.encoders.tokens import Ids
from fcjax.encoders.windows import LEAST as LEAST_WINDOW
from fcjax.encoders.windows import beside
from fcjax.io.model_folder import CALIBRATION, ModelFolder, open_model
from fcjax.io.training_state import WORK, TrainingState
from fcjax.stages.answers import Ask, Reject
from fcjax.stages.calibration import LEAST, Calibration, likeliest
from fcjax.stages.relate import Pair, failed

if TYPE_CHECKING:
    from fcjax.io.store import Store

READING: Final = "relate.local/1"
"""How pairs are read: passages whole, of long ones the nearest window. Part of the key of every stored answer."""
ROUND: Final = 16
"""Batches of 128 tokens that are answered before what they said is stored, about."""


class Judgement(NamedTuple):
    """What the model says of one pair, before calibration."""

    distribution: Distribution | None  # None where there is none, and `why` says so
    why: str = ""
    window: tuple[int, int] | None = None  # the characters of the passage that were read, where it was not all


@dataclass(frozen=True, slots=True)
class PairGroup:
    """Pairs of one passage, which are answered and stored together."""

    pairs: tuple[Pair, ...]


_Waiting = tuple[tuple[Pair, ...], "asyncio.Future[list[Judgement]]"]


@dataclass(eq=False)
class LocalRelationModel(Encoder):
    """The relation model in a folder. Make it with `open`; use it in one event loop at a time."""

    labels: LogitLabels
    store: Store | None = None
    calibration: Calibration | None = None
    pack: int = 64  # pairs that are stored together, at most
    style: str = "local"
    template_name: str = READING
    # Of this object alone, so that a copy with another calibration begins with none:
    _waiting: list[_Waiting] = field(init=False, default_factory=list, repr=False)
    _runner: asyncio.Task[None] | None = field(init=False, default=None, repr=False)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None, repr=False)
    _judging: threading.Lock = field(init=False, default_factory=threading.Lock, repr=False)

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str] | ModelFolder,
        *,
        store: Store | None = None,
        calibration: Calibration | None = None,
        length: int = 512,
        dtype: Dtype | None = None,
        batch_tokens: int | None = None,
        force: bool = False,
    ) -> LocalRelationModel:
        """The model of a folder laid out as on Hugging Face's hub, or of a name there.

        Answers are kept in `store`, under a digest of the weights. `length` is the most tokens of a pair, special ones
        included; the model's own limit where that is less. `dtype` is float32 or bfloat16, by default bfloat16 on
        accelerators. A calibration that lies in the folder is used where none is given. Raises `InputError` where the
        folder lacks something or is of a kind that is not known, and `SettingsError`; unless with `force`, also where
        the calibration's gate was not passed or a training in the folder is unfinished.
        """
        check_number("length", length, 2 * LEAST_WINDOW, 1 << 15, whole=True)
        check_number("batch_tokens", batch_tokens, 1, 1 << 24, whole=True, none=True)
        folder = where if isinstance(where, ModelFolder) else open_model(where)
        if not force and TrainingState(folder.path / WORK, {}).exists:
            raise InputError(
                f"{folder.path}: its training is unfinished, so it was not examined; repeat the `fcjax train` that "
                "began it, or use force (--force)"
            )
        labels = read_labels(folder.config)
        made = cls(**cls.parts(folder, length, dtype, batch_tokens), labels=labels, store=store)
        if made.network.max_length < 2 * LEAST_WINDOW:
            found = f"the model reads at most {made.network.max_length} tokens"
            raise InputError(f"{folder.path}: {found}; allowed: a model of {2 * LEAST_WINDOW} or more")
        if not made.network.classes:
            found = "the weights have no classifier; expected a model for classification (`fcjax train` makes one)"
            raise InputError(Fault(found, file=str(folder.path)))
        if calibration is None and "calibration" in folder.extra:
            calibration = _calibration_in(folder)
        if calibration is None:
            return made
        return made.calibrated(replace(calibration, force=True) if force else calibration)

    @property
    def device(self) -> str:
        """The kind of device that it runs on."""
        import jax

        return str(jax.devices()[0].device_kind)

    @property
    def asks(self) -> bool:
        """That no language model is asked."""
        return False

    def settings(self) -> dict[str, Any]:
        """All that changes the answers, as JSON."""
        dtype = str(self.network.module.dtype)
        reading = {"reading": self.template_name, "length": self.length, "dtype": dtype}
        return {"style": self.style, "model": self.name, **reading}

    def named(self, endpoint_model: str | None) -> str:
        """The name that rows and calibrations have for the model; the endpoint's one does not matter."""
        return self.name

    @property
    def doubt(self) -> str:
        """What a run that uses the model without a calibration should warn of."""
        return (
            "the local model was not examined: it is unknown whether it is better than always giving the commonest "
            "label; measure and calibrate it with `fcjax calibrate`"
        )

    def check(self, calibration: Calibration, endpoint_model: str | None = None) -> None:
        """Raise `SettingsError` unless the calibration is of this model, wherever its folder was then."""
        same = calibration.model.rpartition("@")[2] == self.name.rpartition("@")[2]
        calibration.check(calibration.model if same else self.name, self.style, self.template_name)

    def uncalibrated(self) -> LocalRelationModel:
        """The same model, without its calibration."""
        return replace(self, calibration=None)

    def calibrated(self, calibration: Calibration) -> LocalRelationModel:
        """The same model, with this calibration. Raises `SettingsError` where it is another's, or its gate was not
        passed."""
        self.check(calibration)
        calibration.check_gate()
        return replace(self, calibration=calibration)

    def questions(self, pairs: Iterable[Pair]) -> Iterator[PairGroup]:
        """Groups of pairs that share a passage, one at a time."""
        for _, group in groupby(pairs, lambda pair: (pair.source, pair.kind)):
            while pack := tuple(islice(group, self.pack)):
                yield PairGroup(pack)

    async def answer(self, question: PairGroup, ask: Ask | None = None, reject: Reject | None = None) -> list[Relation]:
        """The relation of each pair, in order; no model is asked. See `stages.relate.relate` for what they hold."""
        found = await self._stored(question)
        if found is None:
            loop = asyncio.get_running_loop()
            if self._loop is not loop:  # what an earlier loop left behind when it ended
                self._loop, self._runner, self._waiting = loop, None, []
            result: asyncio.Future[list[Judgement]] = loop.create_future()
            self._waiting.append((question.pairs, result))
            if self._runner is None or self._runner.done():
                self._runner = asyncio.create_task(self._run())
            found = await result
            await self._keep(question, found)
        return [self._relation(pair, one) for pair, one in zip(question.pairs, found, strict=True)]

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Judgement]:
        """What the model says of each (premise, hypothesis), before calibration. Neither stores nor looks up.

        Threads take turns. Equal pairs have equal answers, whatever other pairs they come with.
        """
        with self._judging:
            return self._judge(pairs)

    def _judge(self, pairs: Sequence[tuple[str, str]]) -> list[Judgement]:
        frame, room = self.tokens.frame, self.length - self.tokens.frame.size
        premises = self.tokens.of(premise for premise, _ in pairs)
        claims = self.tokens.of(claim for _, claim in pairs)
        found: list[Judgement | None] = [None] * len(pairs)
        read: dict[int, tuple[int, int]] = {}  # the tokens of the premise that are read, by the pair's place
        for place, (premise, claim) in enumerate(zip(premises, claims, strict=True)):
            if not len(claim) or not len(premise):
                found[place] = Judgement(None, f"{'the claim' if len(premise) else 'the passage'} has no text")
            elif (span := beside(premise, claim, room)) is not None:
                read[place] = span
            else:
                found[place] = Judgement(
                    None, f"the claim has {len(claim)} tokens; allowed: {room - LEAST_WINDOW} beside a passage"
                )
        places = list(read)
        lengths = [read[place][1] - read[place][0] + len(claims[place]) + frame.size for place in places]
        for batch in batches(lengths, self.batch_tokens, self.length, self.devices.count):
            its = [places[i] for i in batch.places]
            rows = [(premises[i][slice(*read[i])], claims[i]) for i in its]
            for i, q in zip(its, self._distributions(batch, rows), strict=True):
                whole = read[i] == (0, len(premises[i]))
                window = None if whole else self.tokens.place(pairs[i][0], *read[i])
                if np.isfinite(q).all():
                    found[i] = Judgement((float(q[0]), float(q[1]), float(q[2])), window=window)
                else:
                    found[i] = Judgement(None, "the model gave no finite numbers", window)
        return [one for one in found if one is not None]

    def _distributions(self, batch: Batch, rows: list[tuple[Ids, Ids]]) -> Float[np.ndarray, "N 3"]:
        """The distributions of the rows of one batch, no probability below `LEAST`, rounded to 6 digits so that equal
        runs have equal files."""
        filled = self.tokens.filled(self.tokens.frame, rows, batch.rows, batch.length)
        logits = np.asarray(self.network.logits(*self.devices.shared(*filled)), np.float64)[: len(rows)]
        q = LEAST + (1 - len(DISTRIBUTED) * LEAST) * self.labels.distribution(logits)
        rounded: Float[np.ndarray, "N 3"] = np.round(q, 6)
        return rounded

    def _round(self) -> list[_Waiting]:
        """What is waiting, taken out, up to the pairs of `ROUND` batches: what is answered is soon stored."""
        most, count, pairs = max(64, ROUND * self.batch_tokens // 128), 0, 0
        while count < len(self._waiting) and pairs < most:
            pairs += len(self._waiting[count][0])
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    async def _run(self) -> None:
        """Answer what is waiting, round by round, until nothing is."""
        while self._waiting:
            await asyncio.sleep(0.001)  # the workers that were just given answers bring their next questions
            taken = self._round()
            pairs = [(pair.premise, pair.hypothesis) for group, _ in taken for pair in group]
            try:
                found = iter(await asyncio.to_thread(self.judge, pairs))
            except Exception as error:
                for _, result in taken:
                    if not result.done():
                        result.set_exception(error)
                continue
            except BaseException:  # the loop is about to end
                for _, result in (*taken, *self._waiting):
                    result.cancel()
                self._waiting = []
                raise
            for group, result in taken:
                its = list(islice(found, len(group)))
                if not result.done():
                    result.set_result(its)

    def _relation(self, pair: Pair, found: Judgement) -> Relation:
        extra = {} if found.window is None else {"window": list(found.window)}
        if found.distribution is None:
            one = failed(pair, f"local model: {found.why}")
            return replace(one, extra={**one.extra, **extra})
        q = found.distribution if self.calibration is None else self.calibration.apply(found.distribution)
        label, p = likeliest(q, RelationType.NEUTRAL)
        return Relation(
            source=pair.source,
            target=pair.target,
            type=label,
            probability=p,
            method="local",
            distribution=q,
            status=Status.OK,
            extra=extra,
        )

    def _prompt(self, group: PairGroup) -> Prompt:
        """The group as an entry of the store; nothing of it is ever sent."""
        texts = (("premise", group.pairs[0].premise), *(("hypothesis", pair.hypothesis) for pair in group.pairs))
        return Prompt(messages=texts, template=READING, max_tokens=self.length)

    async def _stored(self, group: PairGroup) -> list[Judgement] | None:
        if self.store is None:
            return None
        kept = await self.store.get(self._key(group))
        if not isinstance(kept, Reply):
            return None
        return read_judgements(kept.text, len(group.pairs))

    async def _keep(self, group: PairGroup, found: list[Judgement]) -> None:
        if self.store is None or self.store.readonly:
            return
        text = orjson.dumps([[one.distribution, one.why, one.window] for one in found]).decode()
        reply = Reply(text=text, model=self.name, finish="stop")
        await self.store.put(
            self._key(group), prompt=self._prompt(group), endpoint="local", model=self._model, outcome=reply, cost=0.0
        )

    @property
    def _model(self) -> str:
        return f"{self.folder.digest} {self.network.module.dtype}"

    def _key(self, group: PairGroup) -> str:
        from fcjax.io.store import prompt_key

        return prompt_key("local", self._model, self._prompt(group))


def read_judgements(text: str, count: int) -> list[Judgement] | None:
    """The judgements of a stored answer; None where it is none, as of a damaged store."""
    try:
        rows = orjson.loads(text)
        made = [
            Judgement(
                None if q is None else (float(q[0]), float(q[1]), float(q[2])),
                str(why),
                None if window is None else (int(window[0]), int(window[1])),
            )
            for q, why, window in rows
        ]
    except (ValueError, TypeError, LookupError):
        return None
    good = all(one.distribution is None or is_distribution(one.distribution) for one in made)
    return made if good and len(made) == count else None


def _calibration_in(folder: ModelFolder) -> Calibration:
    """The calibration that lies in the folder. Raises `InputError`."""
    try:
        return Calibration.from_dict(folder.extra["calibration"])
    except InputError as error:
        place = str(folder.path / CALIBRATION)
        raise InputError(*(replace(fault, file=place) for fault in error.faults)) from None
