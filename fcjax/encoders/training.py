"""Fine-tuning of an encoder on labelled pairs, such that a killed run resumes (SPEC 8, 9).

Everything that happens follows from the pairs, the plan and the base: the order of batches, dropout and the schedule
are functions of the seed and the step. The state is saved now and then, and the same weights come out however often a
run was stopped, on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from time import monotonic
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Float, Int

from fcjax.core.checks import check_number
from fcjax.core.errors import InputError, SettingsError, counted
from fcjax.encoders.batches import bucket
from fcjax.encoders.network import Network
from fcjax.encoders.tokens import Ids, Tokens
from fcjax.encoders.windows import beside
from fcjax.io.training_state import TrainingState

LENGTHS: Final = (64, 96, 128, 192, 256, 384, 512)
"""The lengths of batches in tokens: one program is compiled for each that occurs."""
SHUFFLED: Final = 32
"""Batches whose rows are sorted by length together, so that little is padding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """How to train. Raises `SettingsError`.

    `batch` pairs a step; the learning rate rises over the share `warmup` of all steps and then falls to 0. Every
    `evaluate_every` steps (by default 4 times an epoch) the held-out pairs are read, and after `patience` evaluations
    without a lower loss training ends; the weights of the lowest loss are the result. With `balanced`, all labels count
    the same, however many pairs they have.
    """

    epochs: float = 3.0
    batch: int = 32
    learning_rate: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    length: int = 256  # tokens of a pair, special ones included
    freeze_embeddings: bool = False
    balanced: bool = True
    patience: int = 4
    evaluate_every: int | None = None
    save_every: int = 200  # steps
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("epochs", self.epochs, 0.001, 1000)
        check_number("learning_rate", self.learning_rate, 1e-9, 1)
        for name in ("warmup", "weight_decay"):
            check_number(name, getattr(self, name), 0, 1)
        for name, low, high in (("batch", 1, 1 << 16), ("length", 64, 1 << 15), ("patience", 1, 1 << 20)):
            check_number(name, getattr(self, name), low, high, whole=True)
        check_number("evaluate_every", self.evaluate_every, 1, 1 << 31, whole=True, none=True)
        check_number("save_every", self.save_every, 1, 1 << 31, whole=True)
        check_number("seed", self.seed, 0, 2**31 - 1, whole=True)


SAVE_AFTER: Final = 60.0
"""Seconds after which the state is saved, however few steps that were."""


@dataclass(slots=True)
class Progress:
    """Where a training is."""

    step: int = 0
    steps: int = 0  # in all, if it is not ended early
    held_out_loss: float = float("inf")  # the lowest so far
    best_step: int = 0
    history: list[tuple[int, float, float]] = field(default_factory=list)  # step, training loss, held-out loss
    saved: int = 0  # steps that a state on disk holds


@dataclass(frozen=True, slots=True)
class Rows:
    """Pairs as token ids, premise and claim, and their labels. Of a long premise, it is the nearest window."""

    pairs: list[tuple[Ids, Ids]]
    labels: Int[np.ndarray, " N"]

    @classmethod
    def of(cls, tokens: Tokens, pairs: Sequence[tuple[str, str]], labels: Sequence[int], length: int) -> Rows:
        """Raises `InputError` where no pair can be used: texts without words, or claims that are too long."""
        premises, claims = tokens.of([p for p, _ in pairs]), tokens.of([c for _, c in pairs])
        made, kept = [], []
        for premise, claim, label in zip(premises, claims, labels, strict=True):
            if len(premise) and len(claim) and (span := beside(premise, claim, length - tokens.frame.size)):
                made.append((premise[slice(*span)], claim))
                kept.append(label)
        if not made:
            raise InputError(f"none of {counted(len(pairs), 'pair')} has words and fits into {length} tokens")
        return cls(made, np.array(kept, np.int32))

    def sizes(self, special: int) -> Int[np.ndarray, " N"]:
        return np.array([len(premise) + len(claim) + special for premise, claim in self.pairs])


class Trainer:
    """Trains a network with a head of as many classes as there are labels."""

    def __init__(self, network: Network, tokens: Tokens, plan: TrainingPlan, train: Rows, held_out: Rows):
        self.network, self.tokens, self.plan, self.train, self.held_out = network, tokens, plan, train, held_out
        self._longest = min(plan.length, network.max_length)
        self._per_epoch = -(-len(train.pairs) // plan.batch)  # batches, and so steps
        steps = max(1, round(plan.epochs * self._per_epoch))
        self.progress = Progress(steps=steps)
        self._evaluate_every = plan.evaluate_every or max(1, self._per_epoch // 4)
        counts = np.bincount(train.labels, minlength=network.classes)
        weights = (
            len(train.labels) / (network.classes * np.maximum(counts, 1)) if plan.balanced else np.ones_like(counts)
        )
        graph, weights_of = nnx.split(network.module)
        trained, frozen = _parted(weights_of, plan.freeze_embeddings)
        trained = jax.tree.map(jnp.copy, trained)  # steps use up what they are given, and the network is the caller's
        schedule = optax.warmup_cosine_decay_schedule(
            0.0, plan.learning_rate, max(1, round(plan.warmup * steps)), max(2, steps), 0.0
        )
        self._optimiser = optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.adamw(schedule, b2=0.98, weight_decay=plan.weight_decay, mask=_decayed),
        )
        self._state: Any = (trained, self._optimiser.init(trained))
        self._frozen, self._graph = frozen, graph
        self._step = jax.jit(
            partial(_step, graph, self._optimiser, jnp.asarray(weights, jnp.float32)), donate_argnums=(0,)
        )
        self._losses = jax.jit(partial(_losses, graph))
        self._best: Any = None
        self._recent: list[Any] = []  # losses since the last evaluation

    def run(
        self,
        state: TrainingState | None = None,
        on_step: Callable[[Progress], None] = lambda _: None,
    ) -> Network:
        """The network with the weights of the lowest held-out loss. A `state` is resumed, and saved now and then.

        Raises `OutputError` where the state cannot be written, `InputError` and `SettingsError` where it cannot be
        resumed, and `SettingsError` where the loss is not finite.
        """
        done = self.progress
        if state is not None:
            self.resume(state)
        key = jax.random.key(self.plan.seed)
        recent: list[Any] = self._recent
        done.saved, last = done.step, monotonic()
        while done.step < done.steps and not self._is_over():
            for places in self._batches(done.step):
                if done.step >= done.steps or self._is_over():
                    break
                batch = self._filled(self.train, places, self.plan.batch)
                self._state, loss = self._step(self._state, self._frozen, batch, jax.random.fold_in(key, done.step))
                recent.append(loss)
                done.step += 1
                if done.step % self._evaluate_every == 0 or done.step == done.steps:
                    self._evaluate(recent)
                    recent = []
                if state is not None and (done.step % self.plan.save_every == 0 or monotonic() - last > SAVE_AFTER):
                    recent = [float(one) for one in recent]
                    state.save(self._leaves(), self._numbers(recent))
                    done.saved, last = done.step, monotonic()
                on_step(done)
        if state is not None and done.saved != done.step:  # what follows may be killed too
            state.save(self._leaves(), self._numbers([]))
        trained = self._best if self._best is not None else self._state[0]
        return Network(nnx.merge(self._graph, trained, self._frozen))

    def resume(self, state: TrainingState) -> None:
        """Resume from a state, where one was saved. Raises `InputError` and `SettingsError` where that is not possible;
        nothing has changed then."""
        if (kept := state.load(self._leaves())) is None:
            return
        try:
            self._restore(*kept)
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{state.folder}: the state of the training cannot be read ({error!r:.80}); use --overwrite to start "
                "over"
            ) from error

    def _is_over(self) -> bool:
        """Whether `patience` evaluations have brought no lower loss."""
        done = self.progress
        since = sum(step > done.best_step for step, _, _ in done.history)
        return since >= self.plan.patience

    def _evaluate(self, recent: list[Any]) -> None:
        done = self.progress
        loss = self.loss(self.held_out)
        training = float(np.mean([float(one) for one in recent])) if recent else float("nan")
        if not np.isfinite(loss):
            raise SettingsError(
                f"the loss on held-out pairs is {loss} at step {done.step}; use a lower --learning-rate"
            )
        done.history.append((done.step, training, loss))
        if loss < done.held_out_loss:
            done.held_out_loss, done.best_step = loss, done.step
            self._best = jax.tree.map(jnp.copy, self._state[0])

    def loss(self, rows: Rows) -> float:
        """The mean loss on rows in nats, without dropout and label weights."""
        total, order = 0.0, np.argsort(rows.sizes(self.tokens.frame.size), kind="stable")
        for start in range(0, len(order), 4 * self.plan.batch):
            batch = self._filled(rows, order[start : start + 4 * self.plan.batch], 4 * self.plan.batch)
            total += float(self._losses(self._state[0], self._frozen, batch))
        return total / len(rows.pairs)

    def _batches(self, step: int) -> list[Int[np.ndarray, " N"]]:
        """The batches that are left of the epoch that a step is in. Rows of like lengths are together."""
        size = self.plan.batch
        epoch, at = divmod(step, self._per_epoch)
        chance = np.random.default_rng((self.plan.seed, epoch))
        order, sizes = chance.permutation(len(self.train.pairs)), self.train.sizes(0)
        made: list[Int[np.ndarray, " N"]] = []
        for start in range(0, len(order), SHUFFLED * size):
            some = order[start : start + SHUFFLED * size]
            some = some[np.argsort(sizes[some], kind="stable")]
            made += [some[begin : begin + size] for begin in range(0, len(some), size)]
        mixed = chance.permutation(len(made))
        return [made[place] for place in mixed][at:]

    def _filled(self, rows: Rows, places: Any, count: int) -> dict[str, np.ndarray]:
        """A batch of `count` rows; spare ones have the weight 0."""
        frame, pairs = self.tokens.frame, [rows.pairs[place] for place in places]
        size = max(len(premise) + len(claim) for premise, claim in pairs) + frame.size
        ids, mask, types = self.tokens.filled(frame, pairs, count, bucket(size, self._longest, LENGTHS))
        labels, real = np.zeros(count, np.int32), np.zeros(count, np.float32)
        labels[: len(pairs)], real[: len(pairs)] = rows.labels[places], 1
        return {"ids": ids, "mask": mask, "types": types, "labels": labels, "real": real}

    def _leaves(self) -> dict[str, Any]:
        """All arrays that training resumes from, by name."""
        parts = {"now": self._state, "best": self._state[0] if self._best is None else self._best}
        return {
            f"{part}.{number:05d}": leaf
            for part, tree in parts.items()
            for number, leaf in enumerate(jax.tree.leaves(tree))
        }

    def _numbers(self, recent: list[Any]) -> dict[str, Any]:
        done = self.progress
        return {
            "step": done.step,
            "held_out_loss": done.held_out_loss if np.isfinite(done.held_out_loss) else None,
            "best_step": done.best_step,
            "history": done.history,
            "recent": recent,
        }

    def _restore(self, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> None:
        def tree(part: str, like: Any) -> Any:
            leaves, shape = jax.tree.flatten(like)
            found = [jnp.asarray(arrays[f"{part}.{number:05d}"], leaf.dtype) for number, leaf in enumerate(leaves)]
            return jax.tree.unflatten(shape, found)

        lowest, done = numbers["held_out_loss"], self.progress
        best = None if lowest is None else tree("best", self._state[0])
        now = tree("now", self._state)
        history = [(int(step), _number(training), float(held_out)) for step, training, held_out in numbers["history"]]
        recent = [_number(one) for one in numbers.get("recent", ())]
        done.step, done.best_step = int(numbers["step"]), int(numbers["best_step"])
        done.history, done.held_out_loss = history, float("inf") if lowest is None else float(lowest)
        self._best, self._state, self._recent = best, now, recent

    def fingerprint(self) -> dict[str, Any]:
        """All that decides the weights that come out, but for the base's own, as JSON."""
        return {
            "plan": asdict(self.plan),
            "n_train": len(self.train.pairs),
            "n_held_out": len(self.held_out.pairs),
            "classes": self.network.classes,
            "made_with": {name: version(name) for name in ("jax", "jaxlib", "flax", "optax", "fcjax")},
            "platform": jax.default_backend(),
        }


def _number(kept: float | None) -> float:
    """A loss of a saved state, where NaN is null."""
    return float("nan") if kept is None else float(kept)


def _decayed(weights: Any) -> Any:
    """Whether weight decay applies: to matrices, and not to biases and norms, which in stacked layers have two axes."""

    def is_matrix(path: Any, _: Any) -> bool:
        return any(getattr(part, "key", None) in ("kernel", "rows") for part in path)

    return jax.tree_util.tree_map_with_path(is_matrix, weights)


def _parted(weights: Any, freeze: bool) -> tuple[Any, Any]:
    """The weights that are trained, and those that are not: the embeddings, where they are frozen."""

    def is_frozen(path: Any, _: Any) -> bool:
        return freeze and any("embed" in str(part) for part in path)

    frozen, trained = nnx.split_state(weights, is_frozen, ...)
    return trained, frozen


def _scores(graph: Any, trained: Any, frozen: Any, batch: dict[str, Any], key: Any) -> Float[Any, " B"]:
    """The loss of each row in nats."""
    module = nnx.merge(graph, trained, frozen)
    logits = module(batch["ids"], batch["mask"], batch["types"], key=key)
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])


def _step(graph: Any, optimiser: Any, weights: Any, state: Any, frozen: Any, batch: dict[str, Any], key: Any) -> Any:
    """One step: the new state, and the loss before it."""
    trained, moments = state
    each = weights[batch["labels"]] * batch["real"]

    def loss(trained: Any) -> Any:
        return (_scores(graph, trained, frozen, batch, key) * each).sum() / jnp.maximum(each.sum(), 1e-6)

    value, slopes = jax.value_and_grad(loss)(trained)
    changes, moments = optimiser.update(slopes, moments, trained)
    return (optax.apply_updates(trained, changes), moments), value


def _losses(graph: Any, trained: Any, frozen: Any, batch: dict[str, Any]) -> Any:
    return (_scores(graph, trained, frozen, batch, None) * batch["real"]).sum()


def held_out_of(groups: Sequence[str], share: float, seed: int) -> Int[np.ndarray, " N"]:
    """1 for the pairs that are held out: all those of a `share` of the premises, rounded, but at least one premise;
    which ones follows from a hash of premise and seed.

    Raises `SettingsError` where that is none or all.
    """
    import hashlib

    def lot(group: str) -> float:
        digest = hashlib.blake2b(f"{seed} {group}".encode(errors="replace"), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64

    premises = sorted(set(groups), key=lambda group: (lot(group), group))
    chosen = set(premises[: max(1, round(share * len(premises)))] if 0 < share < 1 else ())
    out = np.array([group in chosen for group in groups], np.int64)
    if not 0 < out.sum() < len(out):
        raise SettingsError(
            f"{counted(int(out.sum()), 'pair')} of {len(out):,} would be held out; give pairs of more premises, or "
            "another --held-out"
        )
    return out
