"""Training: what is learned, that it can be stopped at any step, and what a state that does not fit is."""

from __future__ import annotations

from dataclasses import replace

import model_folders as tiny
import numpy as np
import pytest

from fcjax.core.errors import InputError, OutputError, SettingsError
from fcjax.encoders.encoder import tokens_of
from fcjax.encoders.network import Network
from fcjax.encoders.training import Rows, Trainer, TrainingPlan, held_out_of
from fcjax.io.model_folder import open_model
from fcjax.io.training_state import TrainingState

PLAN = TrainingPlan(epochs=2, batch=8, learning_rate=3e-3, length=64, save_every=5, evaluate_every=5, patience=100)


def toy(n, seed=0):
    """Pairs whose label is told by one word: entailment (0), contradiction (1), or neutral (2)."""
    chance = np.random.default_rng(seed)
    pairs, labels = [], []
    for number in range(n):
        label = int(chance.integers(3))
        word = ("yes", "no", "guide")[label]
        pairs.append((f"Town {number % 90} has {chance.integers(10, 99)} wells {word}.", "It is high."))
        labels.append(label)
    return pairs, labels


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return open_model(
        tiny.write_folder(tmp_path_factory.mktemp("models") / "base", head=False, positions=64, initializer_range=0.1)
    )


@pytest.fixture
def trainer(base):
    """Makes a trainer of toy pairs, or of those given."""

    def make(plan=PLAN, train=None, held_out=None, n=64):
        network = Network.of(base.config, base.tensors()).with_head(3, seed=plan.seed)
        tokens = tokens_of(base, network)
        rows = [Rows.of(tokens, *given, 64) for given in (train or toy(n), held_out or toy(24, seed=1))]
        return Trainer(network, tokens, plan, *rows)

    return make


def same(one, other):
    left, right = one.tensors(), other.tensors()
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


class StoppedError(Exception):
    pass


def stop_at(*steps):
    left = list(steps)

    def on_step(done):
        if left and done.step == left[0]:
            left.pop(0)
            raise StoppedError

    return on_step


def test_a_toy_task_is_learned(trainer):
    made = trainer(replace(PLAN, epochs=8), n=128)
    before = made.loss(made.held_out)
    network = made.run()
    assert made.progress.held_out_loss < 0.5 * before
    assert made.progress.history[-1][1] < made.progress.history[0][1]
    held = made.held_out
    batch = made._filled(held, range(len(held.pairs)), len(held.pairs))
    said = np.asarray(network.logits(batch["ids"], batch["mask"], batch["types"])).argmax(axis=1)
    assert (said == held.labels).mean() > 0.8


def test_the_same_seed_gives_the_same_weights(trainer):
    first = trainer().run()
    assert same(first, trainer().run())
    assert not same(first, trainer(replace(PLAN, seed=1)).run())


@pytest.mark.parametrize("evaluate_every", [7])
def test_stopped_anywhere_the_weights_and_figures_are_those_of_one_run(trainer, tmp_path, evaluate_every):
    plan = replace(PLAN, evaluate_every=evaluate_every)
    whole = trainer(plan)
    network = whole.run()
    state = TrainingState(tmp_path / "work", whole.fingerprint())
    steps = (3, 8, 11, 15)
    for step in steps:
        with pytest.raises(StoppedError):
            trainer(plan).run(state, stop_at(step))
    last = trainer(plan)
    assert same(last.run(state), network)
    np.testing.assert_allclose(last.progress.history, whole.progress.history)
    assert last.progress.best_step == whole.progress.best_step
    again = trainer(plan)  # it was not dropped: nothing is left to do
    assert same(again.run(state, stop_at(16)), network)
    assert state.exists
    state.drop()
    assert not (tmp_path / "work").exists()


def test_frozen_embeddings_stay(trainer):
    made = trainer(replace(PLAN, freeze_embeddings=True))
    before = {name: tensor.copy() for name, tensor in made.network.tensors().items()}
    after = made.run().tensors()
    assert before.keys() == after.keys()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed
    assert not any("embeddings" in name for name in changed)
    assert any("classifier" in name for name in changed)
    free = trainer().run().tensors()
    assert not np.array_equal(
        free["bert.embeddings.word_embeddings.weight"], before["bert.embeddings.word_embeddings.weight"]
    )


def test_a_state_of_another_training_is_refused_and_a_damaged_one_is_said(trainer, tmp_path):
    made = trainer()
    state = TrainingState(tmp_path / "work", made.fingerprint())
    made.run(state)
    other = TrainingState(tmp_path / "work", made.fingerprint() | {"pairs": "other"})
    with pytest.raises(SettingsError, match="an unfinished training with other settings, pairs or another base"):
        trainer().run(other)
    path = tmp_path / "work" / "state.json"
    whole = path.read_bytes()
    (arrays,) = (tmp_path / "work").glob("arrays-*.safetensors")
    for content in (
        *(b"", b"{", b"[]", b"{}", whole[:-10], whole.replace(arrays.name.encode(), b"arrays-9.safetensors")),
        *(whole.replace(b'"step"', b'"stop"'), whole.replace(b'"recent":[', b'"recent":[[],')),
        *(whole.replace(b'"history":[[', b'"history":[1,['), whole.replace(b'"history":', b'"history":1,"old":')),
    ):
        assert content != whole
        path.write_bytes(content)
        with pytest.raises(InputError, match="the state of the training cannot be read"):
            trainer().run(state)
    path.write_bytes(whole)
    content = arrays.read_bytes()
    arrays.write_bytes(content[:-8])
    with pytest.raises(InputError, match="the state of the training cannot be read"):
        trainer().run(state)
    arrays.write_bytes(content)
    trainer().run(state)


def test_a_state_that_cannot_be_saved_is_said(trainer, tmp_path):
    (tmp_path / "file").write_text("")
    made = trainer()
    with pytest.raises(OutputError, match="cannot save the training"):
        made.run(TrainingState(tmp_path / "file", made.fingerprint()))
    (tmp_path / "work" / "arrays-5.safetensors").mkdir(parents=True)
    made = trainer()
    with pytest.raises(OutputError, match="cannot save the training"):
        made.run(TrainingState(tmp_path / "work", made.fingerprint()))


def test_a_loss_that_is_not_finite_ends_the_training(trainer, base):
    made = trainer()
    weights = base.tensors()
    weights["encoder.layer.1.output.LayerNorm.weight"] = np.full(16, 3e38, np.float32)
    network = Network.of(base.config, weights).with_head(3)
    broken = Trainer(network, made.tokens, made.plan, made.train, made.held_out)
    with pytest.raises(SettingsError, match="loss on held-out pairs is (nan|inf) at step 5"):
        broken.run()


def test_few_pairs_and_labels_that_do_not_occur(trainer):
    one = [("The tower is high.", "It is high.")] * 3, [0, 0, 0]
    made = trainer(replace(PLAN, epochs=1), train=one, held_out=one)
    assert np.isfinite(made.loss(made.run() and made.held_out))
    assert made.progress.steps == 1


def test_a_state_is_saved_after_some_time_however_few_the_steps(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr("fcjax.encoders.training.SAVE_AFTER", -1.0)
    state, seen = TrainingState(tmp_path / "training", {}), []

    def stop(progress):
        seen.append(progress.saved)
        if progress.step == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        trainer(replace(PLAN, save_every=1000)).run(state, stop)
    assert seen == [1, 2, 3]
    assert state.exists


def test_early_stopping_keeps_the_best_weights(trainer):
    made = trainer(replace(PLAN, learning_rate=0.5, epochs=20, evaluate_every=1, patience=2))
    network = made.run()
    done = made.progress
    assert done.step == done.best_step + 2 < done.steps
    assert done.held_out_loss == min(loss for _, _, loss in done.history)
    fresh = trainer(replace(PLAN, learning_rate=0.5, epochs=20, evaluate_every=1, patience=2))
    assert fresh.loss(fresh.held_out) > 0
    again = Trainer(network, made.tokens, made.plan, made.train, made.held_out)
    assert again.loss(again.held_out) == pytest.approx(done.held_out_loss, rel=1e-5)


def test_pairs_without_words_or_with_claims_that_are_too_long_are_left_out(base):
    tokens = tokens_of(base, Network.of(base.config, base.tensors()))
    pairs = [("The tower is high.", "It is high."), ("", "x"), ("x", " "), ("It is so.", "tower " * 70)]
    rows = Rows.of(tokens, [*pairs, ("tower " * 200, "It is high.")], [0, 1, 2, 0, 1], 64)
    assert rows.labels.tolist() == [0, 1]
    assert max(rows.sizes(tokens.frame.size)) <= 64
    with pytest.raises(InputError, match="none of 3 pairs has words and fits into 64 tokens"):
        Rows.of(tokens, pairs[1:], [0, 1, 2], 64)


def test_whole_premises_are_held_out():
    groups = [f"premise {n // 4}" for n in range(400)]
    out = held_out_of(groups, 0.2, 0)
    assert out.mean() == 0.2
    assert held_out_of([f"premise {n}" for n in range(4)], 0.1, 0).sum() == 1  # one at least
    assert all(len(set(out[start : start + 4].tolist())) == 1 for start in range(0, 400, 4))
    assert np.array_equal(out, held_out_of(groups, 0.2, 0))
    assert not np.array_equal(out, held_out_of(groups, 0.2, 1))
    for given in (["one"] * 10, []):
        with pytest.raises(SettingsError, match="would be held out"):
            held_out_of(given, 0.5, 0)


@pytest.mark.parametrize(
    "given",
    [
        *({"epochs": 0}, {"batch": 0}, {"learning_rate": float("nan")}, {"length": 16}, {"seed": -1}, {"warmup": 2}),
        *({"patience": 0}, {"save_every": 0}, {"evaluate_every": 0}, {"batch": 1.5}),
    ],
)
def test_plans_out_of_range_are_refused(given):
    with pytest.raises(SettingsError, match=next(iter(given))):
        TrainingPlan(**given)
