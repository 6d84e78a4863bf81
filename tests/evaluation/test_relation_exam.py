"""The examination of a relation model on a server of known bias (SPEC 9)."""

from __future__ import annotations

import asyncio
import json
import math
import re

import biased_model
import pytest
from jsonl import write
from scripted_server import ScriptedServer

import fcjax
from fcjax import Calibration, InputError, RelationModel, SettingsError
from fcjax.evaluation.label_shares import check_in_use, checked_shares
from fcjax.evaluation.relation_exam import examine
from fcjax.evaluation.relation_pairs import pairs_of
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.pacing import Budget, Retry
from fcjax.io.store import Store

QUICK = Retry(attempts=2, first=0.01, longest=0.02)


def exam_of(rows, answer, model=None, **more):
    """The examination of a scripted server."""

    async def work():
        async with Client(Endpoint(server.url, "scripted"), retry=QUICK, concurrency=16) as client:
            return await examine(pairs_of(rows), client, model, **more)

    with ScriptedServer(answer) as server:
        return asyncio.run(work())


def rows_of(*labels, per_premise=1):
    return [
        {"premise": f"premise {i // per_premise}", "hypothesis": f"claim {i}", "label": label}
        for i, label in enumerate(labels)
    ]


def balanced(n):
    return rows_of(*(biased_model.NAMES[i % 3] for i in range(n)))


def test_a_biased_model_is_measured_and_mended():
    exam = exam_of(biased_model.pairs(600), biased_model.answer)
    assert (exam.raw.n, exam.n_failed, exam.methods) == (600, 0, {"logprobs": 600})
    assert exam.calibrated.log_loss < 0.7 * exam.raw.log_loss
    assert exam.calibrated.ece < 0.5 * exam.raw.ece
    assert exam.calibrated.accuracy > exam.raw.accuracy
    low, high = exam.calibrated.intervals["accuracy"]
    assert exam.raw.accuracy < low < exam.calibrated.accuracy < high
    assert exam.calibration.temperature == pytest.approx(biased_model.TEMPERATURE, rel=0.2)
    assert exam.calibration.biases == pytest.approx(biased_model.BIASES, abs=0.3)
    assert exam.calibration.n_pairs == 600
    assert exam.calibration.shares == pytest.approx(exam.raw.shares)
    assert exam.raw.mean[1] < 0.15 < 0.3 < exam.raw.shares[1]  # the model does not like contradictions
    assert exam.calibrated.mean == pytest.approx(exam.raw.shares, abs=0.03)
    assert exam.cost.prompts == 600
    assert exam.warnings == ()


def test_the_calibration_is_kept_with_its_figures_and_used_by_the_relation_model(tmp_path):
    rows = biased_model.pairs(60)
    exam = exam_of(rows, biased_model.answer, in_use=(0.2, 0.1, 0.7))
    path = write(tmp_path / "calibration.json", json.dumps(exam.calibration.to_dict()))
    kept = fcjax.load_calibration(path)
    assert kept == exam.calibration
    assert kept.in_use == (0.2, 0.1, 0.7)
    assert kept.figures == exam.figures()
    again = exam_of(rows, biased_model.answer, RelationModel(calibration=kept))
    assert again.raw == exam.raw  # measured without it
    assert again.given.log_loss != again.raw.log_loss
    assert "given" in again.to_dict()
    assert "given" not in exam.to_dict()


def test_a_calibration_of_another_model_is_refused_before_anything_is_asked():
    other = Calibration(model="other", style="pairwise", template=RelationModel().template.name)
    with pytest.raises(SettingsError, match="of model 'other', and this run uses 'scripted'"):
        exam_of(balanced(3), biased_model.answer, RelationModel(calibration=other))


def test_packed_prompts_hold_the_hypotheses_of_one_premise():
    asked = []

    def answer(messages):
        claims = re.search(r"<claims>\n(.*?)\n</claims>", messages[0]["content"], re.DOTALL)[1].splitlines()
        asked.append(len(claims))
        return json.dumps({line.partition(". ")[0]: "neutral" for line in claims})

    rows = rows_of(*["neutral", "entailment"] * 10, per_premise=5)
    rows = rows[::2] + rows[1::2]  # the pairs of a premise need not be adjacent
    exam = exam_of(rows, answer, RelationModel(style="packed", pack=4))
    assert sorted(asked) == [1] * 4 + [4] * 4
    assert exam.raw.accuracy == 0.5
    assert (exam.style, exam.template) == ("packed", RelationModel(style="packed").template.name)


def test_failed_pairs_are_counted_and_are_no_answers():
    def answer(messages):
        number = int(re.search(r"claim (\d+)", messages[0]["content"])[1])
        if number % 3 == 0:
            return {"text": "I would rather not say."}
        return f"[{biased_model.NAMES[number % 3]}]"

    exam = exam_of(balanced(60), answer)
    assert (exam.n_failed, len(exam.answered), exam.raw.n) == (20, 40, 40)
    assert exam.raw.accuracy == 1
    assert exam.failed == {"unreadable": 20}
    assert any("20 pairs without an answer, left out" in one for one in exam.warnings)
    assert exam.calibration.n_pairs == 40
    nothing = exam_of(balanced(6), lambda messages: "no")
    assert (nothing.raw, nothing.calibrated, nothing.calibration) == (None, None, None)
    assert "no pair was answered" in nothing.warnings[-1]
    assert nothing.to_dict()["raw"] is None
    assert "6 failed" in repr(nothing)
    assert nothing._repr_html_()


MANY = biased_model.pairs(40)
ZERO = {"text": "[neutral]", "tokens": [("[", 0.0, []), ("neutral", 0.0, []), ("]", 0.0, [])]}
EQUAL = ZERO | {
    "tokens": [("[", 0.0, []), ("neutral", -1.0, [(name, -1.0) for name in biased_model.NAMES]), ("]", 0.0, [])]
}
NEVER = ZERO | {"tokens": [("[", -9e99, []), ("neutral", -9e99, [("neutral", -9e99)]), ("]", -9e99, [])]}


@pytest.mark.parametrize("reply", [ZERO, EQUAL, NEVER], ids=["zero", "equal", "never"])
def test_logprobs_without_meaning_are_said_to_be_unusable(reply):
    exam = exam_of(balanced(60), lambda messages: reply)
    assert (exam.raw.log_loss, exam.raw.ece) == (None, None)
    assert exam.raw.accuracy == pytest.approx(1 / 3)
    assert exam.calibration.temperature == 1
    assert any("no usable probabilities" in one for one in exam.warnings)
    assert any("100% of the answers are neutral" in one for one in exam.warnings)
    assert "log loss -" in repr(exam)


def test_without_logprobs_the_labels_alone_are_judged():
    def answer(messages):
        number = int(re.search(r"claim (\d+)", messages[0]["content"])[1])
        text = f"[{biased_model.NAMES[number % 3 if number % 2 else 1]}]"
        return {"body": {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}}

    exam = exam_of(balanced(60), answer)
    assert exam.methods == {"default": 60}
    assert exam.raw.log_loss is None
    assert exam.calibration.temperature == 1
    assert exam.calibration.biases[1] < 0  # the label that is given too often
    assert any("no reply has logprobs" in one for one in exam.warnings)
    assert (exam.q.max(axis=1) == 0.9).all()  # spread: the assumed probability, the rest shared


@pytest.mark.parametrize(
    ("rows", "said", "cross_validated"),
    [
        (biased_model.pairs(10), "only 10 answered pairs", True),
        (biased_model.pairs(8), "only 4 premises: cross-validated by leaving out one at a time", True),
        (biased_model.pairs(8, per_premise=8), "all pairs have one premise", False),
        ([row for row in biased_model.pairs(90) if row["label"] != "neutral"], "no pair has the label neutral", True),
        ([row for row in biased_model.pairs(90) if row["label"] == "neutral"], "all pairs have one label", False),
        ([*MANY, MANY[0] | {"label": "neutral"}, MANY[0] | {"label": "refutes"}], "given with different labels", True),
    ],
)
def test_thin_data_is_said_to_be_thin(rows, said, cross_validated):
    exam = exam_of(rows, biased_model.answer)
    assert any(said in one for one in exam.warnings), exam.warnings
    assert (exam.calibrated is not None) == cross_validated
    assert exam.raw is not None
    if exam.calibration is not None:
        assert 0.3 < exam.calibration.temperature < 5
        assert max(map(abs, exam.calibration.biases)) < 4
        assert all(math.isfinite(p) for p in exam.calibration.apply((0.2, 0.3, 0.5)))
    assert exam._repr_html_()


def test_calibrate_asks_an_endpoint_and_its_store_answers_again(tmp_path):
    rows = biased_model.pairs(60)
    with ScriptedServer(biased_model.answer) as server, Store.open(tmp_path / "store.sqlite") as store:
        where = Endpoint(server.url, "scripted")
        exam = fcjax.calibrate(rows, where, store=store)
        assert server.calls == 60
        again = fcjax.calibrate(write(tmp_path / "pairs.jsonl", *rows), where, store=store)
        assert server.calls == 60
    assert again.to_dict()["raw"] == exam.to_dict()["raw"]
    assert again.calibration == exam.calibration
    shown = repr(exam)
    assert shown.startswith("Exam('scripted', relate.pairwise/")
    assert "60 pairs, 0 failed" in shown
    assert re.search(r"raw +accuracy 0\.\d{3} \(0\.\d{3} to 0\.\d{3}\)", shown)
    page = exam._repr_html_()
    assert page.count("<polyline") == 2
    assert "calibration error" in page


def test_names_cannot_act_in_html():
    async def work():
        async with Client(Endpoint(server.url, "<script>x</script>"), retry=QUICK) as client:
            return await examine(pairs_of(balanced(3)), client)

    with ScriptedServer(lambda messages: "[neutral]") as server:
        assert "<script>" not in asyncio.run(work())._repr_html_()


def test_a_budget_ends_the_examination():
    async def work():
        async with Client(Endpoint(server.url, "scripted"), budget=Budget(prompts=5), concurrency=2) as client:
            await examine(pairs_of(biased_model.pairs(40)), client)

    with ScriptedServer(biased_model.answer) as server, pytest.raises(fcjax.BudgetError):
        asyncio.run(work())
    assert server.calls <= 5


def test_labels_in_use_occur_among_the_pairs():
    pairs = pairs_of(rows_of("entailment", "contradiction", "entailment", "contradiction"))
    for good in ((0.5, 0.5, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)):
        check_in_use(pairs, good)
    for bad, share in (((0.2, 0.1, 0.7), "0.7"), ((0.5, 0.499, 0.001), "0.001")):
        with pytest.raises(InputError, match=f"in use, {share} of the labels are neutral, and no pair has that label"):
            check_in_use(pairs, bad)


def test_a_label_in_use_without_pairs_ends_before_anything_is_asked():
    async def work(shares):
        async with Client(Endpoint(server.url, "scripted"), retry=QUICK) as client:
            return await examine(pairs, client, in_use=shares)

    pairs = pairs_of([row for row in biased_model.pairs(60) if row["label"] != "neutral"])
    with ScriptedServer(biased_model.answer) as server:
        with pytest.raises(InputError, match="no pair has that label"):
            asyncio.run(work((0.2, 0.1, 0.7)))
        assert server.calls == 0
        assert asyncio.run(work((0.9, 0.1, 0.0))).calibration.in_use == (0.9, 0.1, 0.0)


@pytest.mark.parametrize(
    "shares", [(0.5, 0.5), (0.5, 0.5, 0.5), (1.2, -0.2, 0.0), ("a", 0, 1), (math.nan, 0, 1), 1, {}]
)
def test_shares_in_use_add_up_to_one(shares):
    with pytest.raises(SettingsError, match="three numbers that add up to 1"):
        checked_shares(shares)
    with pytest.raises((SettingsError, InputError)):
        fcjax.calibrate([], in_use=shares)


@pytest.mark.parametrize("given", [None, 5, object()])
def test_what_holds_no_pairs_is_refused(given):
    with pytest.raises(InputError, match="allowed: a file, LabelledPairs, or rows"):
        fcjax.calibrate(given)


def test_a_relation_model_by_its_style_alone_is_refused(tmp_path):
    with ScriptedServer(biased_model.answer) as server:
        with pytest.raises(SettingsError, match="allowed: a RelationModel"):
            fcjax.calibrate(
                biased_model.pairs(4), Endpoint(server.url, "scripted"), relate="packed", store=tmp_path / "s.sqlite"
            )
        assert server.calls == 0
