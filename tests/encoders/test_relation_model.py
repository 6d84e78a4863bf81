"""The local relation model: what it says of pairs, in whatever company, and what it keeps in the store."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import model_folders as tiny
import numpy as np
import pytest

from fcjax.core.errors import InputError, SettingsError
from fcjax.encoders.network import Network
from fcjax.encoders.relation_model import LocalRelationModel, PairGroup, read_judgements
from fcjax.io.store import Store
from fcjax.io.training_state import WORK, TrainingState
from fcjax.stages.calibration import Calibration
from fcjax.stages.relate import Pair

READING = "relate.local/1"
PAIRS = [
    ("Town 1 has 12 parks.", "Town 1 has 9 parks."),
    ("The tower is high.", "It is not so."),
    ("Guide 1 says so: Town 2 has 12 wells. " * 4, "Town 2 has 12 wells."),
    ("no", "yes"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_folder(tmp_path_factory.mktemp("models") / "judge")


@pytest.fixture(scope="module")
def model(folder):
    return LocalRelationModel.open(folder)


def q_of(model, pairs=tuple(PAIRS)):
    return np.array([one.distribution for one in model.judge(pairs)])


def groups(pairs=tuple(PAIRS)):
    return [PairGroup((Pair(f"c{n}", f"a{n}", *pair),)) for n, pair in enumerate(pairs)]


def answers(model, asked=None):
    async def work():
        return await asyncio.gather(*(model.answer(group) for group in (groups() if asked is None else asked)))

    return [relation for found in asyncio.run(work()) for relation in found]


def test_labels_are_known_by_name_in_any_order(tmp_path):
    config = tiny.config_of()
    weights = tiny.weights_of(config)
    found = []
    for number, order in enumerate(((0, 1, 2), (2, 0, 1), (1, 2, 0))):
        names = [("ENTAILMENT", "Neutral", "contradiction")[place] for place in order]

        def change(tensors, order=order):
            for name in ("classifier.weight", "classifier.bias"):
                tensors[name] = np.ascontiguousarray(weights[name][list(order)])

        one = tiny.write_folder(tmp_path / str(number), labels=names, change=change)
        found.append(q_of(LocalRelationModel.open(one)))
    assert found[0] == pytest.approx(found[1], abs=2e-6)
    assert found[0] == pytest.approx(found[2], abs=2e-6)
    assert np.ptp(found[0], axis=1).min() > 0.01


def test_of_two_labels_the_other_is_neutral_and_never_a_contradiction(tmp_path):
    for number, labels in enumerate((("not_entailment", "entailment"), ("entailment", "not_entailment"))):
        made = LocalRelationModel.open(tiny.write_folder(tmp_path / str(number), labels=labels))
        q = q_of(made)
        assert q.sum(axis=1) == pytest.approx(1, abs=2e-6)
        assert q[:, 1] == pytest.approx(1e-6)  # by entailment, contradiction, neutral
        assert {str(one.type) for one in answers(made)} <= {"entailment", "neutral"}


def test_labels_without_a_meaning_are_refused(tmp_path):
    named = tiny.write_folder(tmp_path / "numbered", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    with pytest.raises(InputError, match="LABEL_0"):
        LocalRelationModel.open(named)
    bare = tiny.write_folder(tmp_path / "encoder", head=False)
    with pytest.raises(InputError, match="id2label"):
        LocalRelationModel.open(bare)


def test_a_pair_has_the_same_answer_in_any_company(model):
    chance = np.random.default_rng(0)
    pairs = [
        (" ".join(chance.choice(tiny.WORDS, chance.integers(3, 60))), f"Town {n} has {n % 90} parks.")
        for n in range(80)
    ]
    whole = model.judge(pairs)
    order = chance.permutation(len(pairs))
    assert [whole[place] for place in order] == model.judge([pairs[place] for place in order])
    assert whole[:12] == [model.judge([pair])[0] for pair in pairs[:12]]
    found = answers(model, groups(pairs))
    assert [one.distribution for one in found] == [one.distribution for one in whole]

    async def staggered():
        async def later(number, group):
            await asyncio.sleep(0.002 * (number % 7))
            return await model.answer(group)

        return await asyncio.gather(*(later(n, group) for n, group in enumerate(groups(pairs))))

    assert [relation for found in asyncio.run(staggered()) for relation in found] == found


def test_claims_are_never_cut(model):
    claim = "Town 1 has 12 parks. " * 100  # 600 tokens
    relation, short = answers(model, groups([("The tower is high.", claim), PAIRS[0]]))
    assert (relation.status, relation.type, relation.probability) == ("relation_failed", None, None)
    assert relation.extra["reason"].startswith("local model: the claim has 600 tokens; allowed: ")
    assert short.status == "ok"
    narrow = LocalRelationModel.open(model.folder, length=64)
    premise = "the tower is high . " * 30
    room = 64 - narrow.tokens.frame.size
    fits, over = (" ".join(["tower"] * (room - 32 + more)) for more in (0, 1))
    found = narrow.judge([(premise, fits), (premise, over), ("tower", over)])
    assert [one.distribution is None for one in found] == [False, True, False]  # beside a short passage there is room


@pytest.mark.parametrize("empty", ["", " \n\t", "\u200b", "\x00"])
def test_empty_texts_are_statuses(model, empty):
    passage, claim, fine = answers(model, groups([(empty, "It is high."), ("It is high.", empty), PAIRS[0]]))
    assert passage.status == claim.status == "relation_failed"
    assert passage.extra["reason"] == "local model: the passage has no text"
    assert claim.extra["reason"] == "local model: the claim has no text"
    assert fine.status == "ok"
    assert answers(model, []) == []
    assert model.judge([]) == []


def test_of_a_long_passage_the_window_nearest_to_the_claim_is_read(model):
    filler = "It is so: the tower is high. " * 60
    told = "Town 7 has 42 mills."
    passage = f"{filler}{told} {filler}"
    (found,) = answers(model, groups([(passage, told)]))
    start, end = found.extra["window"]
    assert told in passage[start:end]
    assert 0 < start < end < len(passage)
    (alone,) = model.judge([(passage[start:end], told)])
    assert alone.distribution == found.distribution
    assert alone.window is None
    (short,) = answers(model, groups([PAIRS[0]]))
    assert "window" not in short.extra


def test_texts_in_any_script(model):
    texts = ["Москва 東京 القاهرة", "\ud83d", "a\udc00b", "🗼🏰👩‍👩‍👧", "e\u0301", "x" * 3000, "\u202eabc", "İ" * 40]
    found = model.judge([(one, other) for one in texts for other in texts[:5]])
    assert all(one.distribution is None or abs(sum(one.distribution) - 1) < 1e-5 for one in found)
    assert sum(one.distribution is not None for one in found) > 30
    long = "🗼 tower \ud83d " * 300 + "Town 7 has 42 mills."
    start, end = model.judge([(long, "Town 7 has 42 mills.")])[0].window
    assert long[start:end].endswith("Town 7 has 42 mills.")


def test_logits_that_are_not_finite_are_statuses(folder, monkeypatch):
    made = LocalRelationModel.open(folder)
    run = Network.logits

    def broken(self, ids, mask, types):
        logits = np.array(run(self, ids, mask, types))
        logits[::2] = np.nan
        logits[1::4] = np.inf
        return logits

    monkeypatch.setattr(Network, "logits", broken)
    found = answers(made)
    failed = [one for one in found if one.status == "relation_failed"]
    assert failed
    assert {one.extra["reason"] for one in failed} == {"local model: the model gave no finite numbers"}
    assert all(one.type is None and one.distribution is None for one in failed)


@pytest.fixture
def calls(monkeypatch):
    """The rows of each call of the network."""
    seen, run = [], Network.logits
    monkeypatch.setattr(Network, "logits", lambda self, ids, *rest: seen.append(len(ids)) or run(self, ids, *rest))
    return seen


def test_the_store_keeps_answers_by_all_that_changes_them(tmp_path, folder, calls):
    with Store.open(tmp_path / "store.sqlite") as store:
        made = LocalRelationModel.open(folder, store=store)
        first = answers(made)
        assert len(calls) > 0
        calls.clear()
        assert answers(LocalRelationModel.open(folder, store=store)) == first
        assert calls == []
        other = tiny.write_folder(tmp_path / "other", seed=1)
        for opened in (
            LocalRelationModel.open(other, store=store),
            LocalRelationModel.open(folder, store=store, dtype="bfloat16"),
            LocalRelationModel.open(folder, store=store, length=128),
        ):
            calls.clear()
            found = answers(opened)
            assert calls
            calls.clear()
            assert answers(opened) == found
            assert calls == []
        assert answers(LocalRelationModel.open(folder, store=store)) == first


def test_a_store_that_is_damaged_or_readonly_is_no_hindrance(tmp_path, folder, calls):
    path = tmp_path / "store.sqlite"
    with Store.open(path) as store:
        first = answers(LocalRelationModel.open(folder, store=store))
    calls.clear()
    with Store.open(path, readonly=True) as store:
        made = LocalRelationModel.open(folder, store=store)
        assert answers(made) == first
        assert calls == []
        new = groups([("The tower is not high.", "It is high.")])
        assert answers(made, new)[0].status == "ok"
        assert answers(made, new)[0].status == "ok"
        assert len(calls) == 2  # nothing was kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        "[]",
        "[1]",
        "[[null]]",
        '[[{}, "", null]]',
        '[[[0.5], "", null]]',
        '[[["a", 0.5, 0.5], "", null]]',
        '[[[1.5, -0.5, 0.0], "", null]]',
        '[[[0.9, 0.9, 0.9], "", null]]',
        '[[[0.2, 0.3, 0.5], "", [1]]]',
        '[[[0.2, 0.3, 0.5], "", {"a": 1}]]',
        '[[[0.2, 0.3, 0.5], "", null], [[0.2, 0.3, 0.5], "", null]]',
    ],
)
def test_an_answer_that_cannot_be_read_is_a_miss(text):
    assert read_judgements(text, 1) is None


def test_answers_are_read_as_they_were_kept(model):
    found = model.judge([*PAIRS, ("", "x"), ("it is so . " * 300, "It is so.")])
    text = json.dumps([[one.distribution, one.why, one.window] for one in found])
    assert read_judgements(text, len(found)) == found


def test_a_run_that_is_cancelled_leaves_the_model_usable(folder):
    made = LocalRelationModel.open(folder)
    first = answers(made)

    async def cancelled():
        tasks = [asyncio.create_task(made.answer(group)) for group in groups()]
        await asyncio.sleep(0.002)
        for task in tasks[1:]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [relation.distribution for relation in found[0]] == [first[0].distribution]
        assert all(isinstance(one, asyncio.CancelledError) for one in found[1:])
        return [relation for group in groups() for relation in await made.answer(group)]

    assert asyncio.run(cancelled()) == first

    async def timed_out():
        async with asyncio.timeout(0.003):
            await asyncio.gather(*(made.answer(group) for group in groups()))
            await asyncio.sleep(1)

    for _ in range(3):
        with pytest.raises(TimeoutError):
            asyncio.run(timed_out())
    assert answers(made) == first


def test_one_loop_after_the_other_even_if_one_was_left_with_work(folder):
    made = LocalRelationModel.open(folder)
    first = answers(made)
    loop = asyncio.new_event_loop()
    left = [loop.create_task(made.answer(group)) for group in groups()]
    loop.run_until_complete(asyncio.sleep(0.0005))  # and never again
    assert answers(made) == first
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()
    assert answers(made) == first


def test_a_fault_in_a_run_is_that_of_its_questions_alone(folder, monkeypatch):
    made = LocalRelationModel.open(folder)
    first = answers(made)

    def broken(pairs):
        raise MemoryError("none left")

    monkeypatch.setattr(made, "judge", broken)
    with pytest.raises(MemoryError, match="none left"):
        answers(made)
    monkeypatch.undo()
    assert answers(made) == first


def calibration(judge, **more):
    values = {"model": judge.name, "style": "local", "template": READING, "temperature": 2.0} | more
    return Calibration(biases=(0.3, 0.2, -0.5), **values)


def test_a_calibration_of_the_model_is_applied_wherever_its_folder_was(tmp_path, folder, model):
    made = calibration(model, model=f"elsewhere@{model.name.rpartition('@')[2]}")
    opened = LocalRelationModel.open(folder, calibration=made)
    found = answers(opened)
    assert [one.distribution for one in found] == [made.apply(one.distribution) for one in answers(model)]
    assert answers(opened.uncalibrated()) == answers(model)
    other = LocalRelationModel.open(tiny.write_folder(tmp_path / "other", seed=1))
    for wrong in (calibration(other), calibration(model, style="pairwise"), calibration(model, template="x/1")):
        with pytest.raises(SettingsError, match="the calibration is of"):
            LocalRelationModel.open(folder, calibration=wrong)
    with pytest.raises(SettingsError, match="other@"):
        model.calibrated(calibration(other))


def test_the_calibration_in_the_folder_is_used_and_its_gate_holds(tmp_path, model):
    gate = {"passed": False, "verdict": "failed: worse than always answering neutral"}
    good = tiny.write_folder(tmp_path / "good", calibration=calibration(model).to_dict())
    opened = LocalRelationModel.open(good)
    assert opened.calibration == calibration(model)
    poor = tiny.write_folder(tmp_path / "poor", calibration=calibration(model, figures={"gate": gate}).to_dict())
    with pytest.raises(SettingsError, match="did not pass the gate"):
        LocalRelationModel.open(poor)
    assert LocalRelationModel.open(poor, force=True).calibration.doubt
    assert LocalRelationModel.open(poor, calibration=calibration(model)).calibration.temperature == 2.0
    broken = tiny.write_folder(tmp_path / "broken", calibration={"model": 1})
    with pytest.raises(InputError, match=r"calibration\.json.*model is 1"):
        LocalRelationModel.open(broken)


def test_copies_do_not_share_what_is_waiting(model):
    copy = replace(model, calibration=calibration(model))

    async def work():
        return await asyncio.gather(*(one.answer(group) for group in groups() for one in (model, copy)))

    found = asyncio.run(work())
    assert [one.distribution for (one,) in found[::2]] == [one.distribution for one in answers(model)]
    assert [one.distribution for (one,) in found[1::2]] == [one.distribution for one in answers(copy)]
    assert not model._waiting
    assert not copy._waiting


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pairs": False}, "post-processor"),
        ({"positions": 40}, "at most 40 tokens"),
        ({"change": lambda tensors: tensors["classifier.bias"].fill(np.nan)}, "NaN or infinite"),
    ],
)
def test_folders_that_cannot_relate_are_refused(tmp_path, given, message):
    with pytest.raises(InputError, match=message):
        LocalRelationModel.open(tiny.write_folder(tmp_path / "model", **given))


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    one = tiny.write_folder(tmp_path / "model")
    made = tiny.tokenizer()
    made.add_tokens(["more", "tokens"])
    made.save(str(one / "tokenizer.json"))
    with pytest.raises(InputError, match=r"largest id is \d+, and the model has \d+ embeddings"):
        LocalRelationModel.open(one)


def test_a_tokenizer_that_cuts_at_128_does_not_cut_here(tmp_path, model):
    cuts = LocalRelationModel.open(tiny.write_folder(tmp_path / "cuts", cuts=True))
    passage = "It is so: the tower is high. " * 25 + "Town 7 has 42 mills."
    pair = (passage, "Town 7 has 42 mills.")
    assert cuts.judge([pair]) == model.judge([pair])
    assert model.judge([pair])[0].window is None


@pytest.mark.parametrize("given", [{"length": 63}, {"length": 1.5}, {"batch_tokens": 0}, {"length": True}])
def test_numbers_out_of_range_are_refused(folder, given):
    with pytest.raises(SettingsError):
        LocalRelationModel.open(folder, **given)


def test_a_model_whose_training_is_unfinished_is_refused(tmp_path):
    folder = tiny.write_folder(tmp_path / "model")
    LocalRelationModel.open(folder)
    TrainingState(folder / WORK, {}).save({"a": np.zeros(1)}, {"step": 1})
    with pytest.raises(InputError, match="its training is unfinished, so it was not examined"):
        LocalRelationModel.open(folder)
    assert LocalRelationModel.open(folder, force=True).labels is not None
