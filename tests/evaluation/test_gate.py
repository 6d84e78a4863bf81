"""The baselines of an examination and its gate (SPEC 9), on drawn data of known truth."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from biased_model import NAMES, distorted

import fcjax
from fcjax.core.errors import SettingsError
from fcjax.core.records import Relation, RelationType, Status
from fcjax.evaluation.baselines import auc, embedded_cosines, word_cosines
from fcjax.evaluation.relation_exam import judge
from fcjax.evaluation.relation_pairs import LabelledPair, LabelledPairs
from fcjax.stages.calibration import Calibration
from fcjax.stages.relate import RelationModel


class Plane:
    """An embedding whose cosines are known: those of the angles that stand in the texts."""

    name = "plane"

    def __init__(self):
        self.texts = []

    def embed(self, texts):
        self.texts += texts
        angles = np.array([math.acos(float(text.split("@")[1])) if "@" in text else 0.0 for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def exam_of(q, labels, *, per_premise=2, cosines=None, embedder=None, order=None, answers=None, name="m"):
    """The examination of a model that answered with the distributions `q`."""
    pairs, relations = [], []
    for i, (row, label) in enumerate(zip(q, labels, strict=True)):
        at = "" if cosines is None else f" @{float(cosines[i])!r}"
        pairs.append(LabelledPair(f"p{i}", f"premise {i // per_premise}", f"claim {i}{at}", RelationType(NAMES[label])))
        best = int(np.argmax(row)) if answers is None else int(answers[i])
        relations.append(
            Relation(
                source="c", target="a", type=RelationType(NAMES[best]), probability=float(row[best]),
                distribution=tuple(map(float, row)), method="logprobs",
            )
        )  # fmt: skip
    order = range(len(pairs)) if order is None else order
    given = LabelledPairs.of([pairs[i] for i in order])
    return judge(given, [relations[i] for i in order], RelationModel(), name=name, embedder=embedder)


def drawn(n, shares=(0.2, 0.17, 0.63), seed=0):
    """Labels in these shares."""
    return np.random.default_rng(seed).choice(3, n, p=shares)


def usable(exam):
    RelationModel(calibration=exam.calibration)


def test_an_informative_model_passes():
    exam = exam_of(*distorted(300))
    gate = exam.gate
    assert (gate.passed, gate.status, gate.pairs_needed, gate.n_pairs) == (True, "passed", None, 300)
    assert gate.log_loss.keys() == {"commonest", "cosine"}
    for key, margin in gate.log_loss.items():
        loss = getattr(exam.baselines, key).log_loss
        assert margin.difference == pytest.approx(loss - exam.calibrated.log_loss)
        assert 0 < margin.low < margin.difference < margin.high
    found = exam.to_dict()
    assert found["gate"]["passed"] is True
    assert found["gate"] == exam.calibration.figures["gate"]
    assert found["baselines"] == exam.calibration.figures["baselines"]
    usable(exam)
    assert exam.calibration.doubt is None


@pytest.mark.parametrize("seed", range(4))
def test_random_answers_are_refused(seed):
    generator = np.random.default_rng(seed)
    exam = exam_of(generator.dirichlet([0.5] * 3, 300), drawn(300, seed=seed + 50))
    assert not exam.gate.passed
    with pytest.raises(SettingsError, match=r"did not pass the gate.*log loss \d\.\d+ against \d\.\d+.*--force"):
        usable(exam)
    usable_by_force = replace(exam.calibration, force=True)
    assert RelationModel(calibration=usable_by_force).calibration == exam.calibration
    assert "although the gate was not passed" in usable_by_force.doubt


@pytest.mark.parametrize("shares", [(0.2, 0.17, 0.63), (1 / 3, 1 / 3, 1 / 3), (0.45, 0.42, 0.13)])
@pytest.mark.parametrize(("constant", "seed"), [(0, 0), (2, 1), (2, 2)])
def test_constant_answers_are_refused(shares, constant, seed):
    """They are as good as the labels' shares once calibrated, and no better."""
    row = [0.05, 0.05, 0.05]
    row[constant] = 0.9
    exam = exam_of(np.array([row] * 300), drawn(300, shares, seed))
    assert not exam.gate.passed
    assert exam.gate.log_loss["commonest"].difference == pytest.approx(0, abs=0.01)


def test_a_model_that_is_worse_than_always_neutral_is_said_to_be():
    """Without usable probabilities no temperature can be fitted, and answers at random are taken as 90 % sure."""
    answers = np.random.default_rng(1).integers(0, 3, 300)
    q = np.full((300, 3), 0.05)
    q[np.arange(300), answers] = 0.9
    exam = exam_of(q, drawn(300))
    assert exam.raw.log_loss is None
    assert exam.gate.status == "failed"
    assert exam.gate.log_loss["commonest"].high < -0.1
    assert exam.gate.accuracy.high < 0
    assert re.search(r"worse than always answering neutral: log loss 1\.\d+ against 0\.8\d+, by -", exam.gate.verdict)
    assert "less often right than always answering neutral: accuracy 0." in exam.gate.verdict


def test_a_model_that_is_worse_than_the_cosine_is_refused():
    labels = np.array([0, 2] * 150)
    generator = np.random.default_rng(0)
    cosines = np.clip(np.where(labels == 0, 0.8, 0.2) + generator.normal(size=300) * 0.1, -1, 1)
    weak = np.where(labels == 0, 0.75, 0.25)
    q = np.stack([weak, np.full(300, 0.02), 0.98 - weak], axis=1)
    flip = generator.random(300) < 0.25
    q[flip] = q[flip][:, ::-1]
    plain = exam_of(q, labels, cosines=cosines)
    assert plain.gate.passed  # the words say nothing
    assert plain.baselines.cosine.of == "word counts"
    embedder = Plane()
    exam = exam_of(q, labels, cosines=cosines, embedder=embedder)
    assert exam.gate.status == "failed"
    assert "worse than the cosine of plane" in exam.gate.verdict
    assert exam.gate.log_loss["commonest"].low > 0
    assert exam.gate.log_loss["cosine"].high < 0
    cosine = exam.to_dict()["baselines"]["cosine"]
    assert (cosine["embedding"], cosine["auc"] > 0.99, cosine["accuracy"] > 0.95) == ("plane", True, True)
    assert len(embedder.texts) == len(set(embedder.texts)) == 450  # 150 premises, 300 hypotheses, each once


def test_ten_pairs_show_nothing():
    labels = np.arange(10) % 3
    q = np.full((10, 3), 0.01)
    q[np.arange(10), labels] = 0.98
    exam = exam_of(q, labels, per_premise=1)
    assert (exam.gate.status, exam.gate.passed, exam.gate.pairs_needed) == ("not shown", False, 300)
    assert "10 answered pairs of 10 premises, too few to tell" in exam.gate.verdict
    with pytest.raises(SettingsError, match="not shown"):
        usable(exam)


def test_few_premises_show_nothing_with_many_pairs():
    exam = exam_of(*distorted(300), per_premise=60)
    assert exam.gate.status == "not shown"
    assert "300 answered pairs of 5 premises, too few to tell" in exam.gate.verdict


def test_a_slightly_better_model_is_not_shown_and_the_pairs_that_help_are_named():
    labels = np.arange(60) % 3
    q = np.full((60, 3), 0.32)
    generator = np.random.default_rng(6)
    wrong = (labels + generator.integers(1, 3, 60)) % 3
    q[np.arange(60), np.where(generator.random(60) < 0.5, labels, wrong)] = 0.36
    exam = exam_of(q, labels, per_premise=1)
    assert exam.gate.status == "not shown"
    assert exam.gate.pairs_needed > 60
    assert f"about {exam.gate.pairs_needed:,} pairs could show it" in exam.gate.verdict
    # The number is of the right size: the same data that often, in other premises, do show it.
    times = math.ceil(1.5 * exam.gate.pairs_needed / 60)
    assert exam_of(np.tile(q, (times, 1)), np.tile(labels, times), per_premise=1).gate.passed


@pytest.mark.parametrize(("label", "per_premise"), [(2, 2), (0, 1), (2, 60)])
def test_one_label_or_one_premise_shows_nothing(label, per_premise):
    exam = exam_of(np.full((60, 3), 1 / 3), np.full(60, label), per_premise=per_premise)
    assert exam.gate.status == "not shown"
    assert "60 answered pairs of one premise or one label cannot be cross-validated" in exam.gate.verdict
    assert exam.baselines.commonest.accuracy == 1
    assert exam.baselines.cosine.auc is None
    assert exam.calibration is None
    assert exam._repr_html_()
    one = exam_of(*distorted(60), per_premise=60)
    assert (one.gate.status, one.baselines.commonest.log_loss, one.baselines.cosine.accuracy) == (
        "not shown",
        None,
        None,
    )
    assert "log loss -" in repr(one)


def test_nothing_answered_shows_nothing():
    pairs = LabelledPairs.of([LabelledPair("p", "premise", "claim", RelationType.NEUTRAL)])
    failed = Relation(source="c", target="a", type=None, probability=None, status=Status.RELATION_FAILED)
    exam = judge(pairs, [failed], RelationModel(), name="m")
    assert (exam.baselines, exam.gate.status) == (None, "not shown")
    assert "no pair was answered" in exam.gate.verdict
    assert exam.to_dict()["baselines"] is None
    assert exam._repr_html_()


@pytest.mark.parametrize("seed", range(2))
def test_the_figures_do_not_depend_on_the_order_of_pairs(seed):
    q, labels = distorted(90, seed)
    cosines = np.random.default_rng(seed).uniform(0, 1, 90)
    order = np.random.default_rng(seed + 1).permutation(90)
    one = exam_of(q, labels, cosines=cosines, embedder=Plane(), per_premise=3)
    other = exam_of(q, labels, cosines=cosines, embedder=Plane(), per_premise=3, order=order)
    assert one.figures() == other.figures()
    assert one.calibration == other.calibration
    np.testing.assert_array_equal(one.labels[order], other.labels)  # these are in the order of the pairs


def test_a_model_that_is_seldom_right_is_refused_though_its_probabilities_are_good():
    """Its answers are below the commonest label by more than chance; with them the network would be built."""
    exam = exam_of(*distorted(300))
    accuracy = exam.gate.accuracy
    assert accuracy.difference == pytest.approx(exam.calibrated.accuracy - exam.baselines.commonest.accuracy)
    from fcjax.evaluation.gate import gate_of

    commonest = exam.baselines.commonest
    good = commonest.losses - 0.5
    groups = [str(i) for i in range(300)]
    cosine = replace(exam.baselines.cosine, losses=commonest.losses)
    baselines = replace(exam.baselines, cosine=cosine)
    assert gate_of(good, commonest.right, baselines, groups).passed
    poor = gate_of(good, np.zeros(300), baselines, groups)
    assert poor.status == "failed"
    assert "less often right than always answering" in poor.verdict


def test_the_commonest_label_by_hand():
    labels = np.array([2] * 63 + [0] * 20 + [1] * 17)
    exam = exam_of(np.full((100, 3), 1 / 3) + np.linspace(0, 1e-3, 100)[:, None] * [1, -1, 0], labels, per_premise=1)
    found = exam.to_dict()["baselines"]["commonest"]
    entropy = -sum(p * math.log(p) for p in (0.63, 0.2, 0.17))
    assert found["label"] == "neutral"
    assert found["accuracy"] == 0.63
    assert found["macro_f1"] == pytest.approx(2 * 63 / 163 / 3, abs=1e-6)
    assert entropy < found["log_loss"] < entropy + 0.05


def pair(premise, hypothesis):
    return LabelledPair("p", premise, hypothesis, RelationType.NEUTRAL)


def test_word_cosines_are_of_words_whatever_their_case():
    cosines = word_cosines(
        [
            pair("The tower was built", "the TOWER was built."),
            pair("a b", "c d"),
            pair("東京", "東京"),
            pair("x y", "…"),
        ]
    )
    assert cosines[0] == pytest.approx(1)
    assert cosines[2] == pytest.approx(1)
    assert cosines[[1, 3]].tolist() == [0, 0]


def test_word_cosines_by_hand():
    # Texts: "a a b", "a c" and "d". a is in two of three, the others in one.
    a, rare = math.log(4 / 3) + 1, math.log(4 / 2) + 1
    one = ((1 + math.log(2)) * a, rare)
    other = (a, rare)
    want = one[0] * other[0] / (math.hypot(*one) * math.hypot(*other))
    assert word_cosines([pair("a a b", "a c"), pair("a c", "d")]) == pytest.approx([want, 0])


def test_the_area_by_hand():
    scores, labels = np.array([0.9, 0.4, 0.5, 0.4, 0.1, 0.99]), np.array([0, 0, 2, 2, 2, 1])
    assert auc(scores, labels) == pytest.approx((3 + 1.5) / 6)
    assert auc(scores[:2], labels[:2]) is None


class Wrong:
    name = "wrong"

    def __init__(self, made):
        self.made = made

    def embed(self, texts):
        return self.made(len(texts))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda n: np.ones((n + 1, 2)) / math.sqrt(2), "of shape (3, 2) for 2 texts"),
        (lambda n: np.ones(n), "of shape (2,) for 2 texts"),
        (lambda n: np.ones((n, 3)), "a vector of length 1.732 for"),
        (lambda n: np.full((n, 3), np.nan), "a vector of length nan for"),
    ],
)
def test_an_embedding_that_cannot_be_used_is_named(made, words):
    with pytest.raises(SettingsError, match=re.escape(words)):
        embedded_cosines([pair("a", "b")], Wrong(made))


def test_texts_without_content_have_no_cosine():
    zeros = Wrong(lambda n: np.zeros((n, 4), np.float32))
    assert embedded_cosines([pair("a", "b")], zeros).tolist() == [0]


def test_everything_is_shown():
    exam = exam_of(*distorted(90))
    shown, page = repr(exam), exam._repr_html_()
    for words in ("cosine of word counts", "AUC, entailment against neutral", "gate passed: better than always answer"):
        assert words in shown
        assert words in page
    assert f"{exam.baselines.cosine.log_loss:.3f}" in page


# The file


OLD = Calibration(model="m", style="pairwise", template=RelationModel().template.name, temperature=2.0)


def file_of(tmp_path, calibration):
    import orjson

    path = tmp_path / "calibration.json"
    path.write_bytes(orjson.dumps(calibration.to_dict()))
    return path


def test_a_file_whose_gate_was_not_passed_is_refused_with_the_figures(tmp_path):
    exam = exam_of(np.random.default_rng(0).dirichlet([1] * 3, 90), drawn(90))
    path = file_of(tmp_path, exam.calibration)
    with pytest.raises(
        SettingsError, match=r"always answering neutral: log loss \d.*--force \(in Python: force=True\)"
    ):
        fcjax.load_calibration(path)
    with pytest.warns(UserWarning, match="used although the gate was not passed"):
        kept = fcjax.load_calibration(path, force=True)
    assert kept == exam.calibration
    assert RelationModel(calibration=kept).calibration is kept
    assert "force" not in kept.to_dict()


def test_a_file_without_a_gate_is_accepted_with_one_warning(tmp_path):
    with pytest.warns(UserWarning, match="the calibration has no gate") as caught:
        assert fcjax.load_calibration(file_of(tmp_path, OLD)) == OLD
    assert len(caught) == 1


@pytest.mark.parametrize("gate", [None, True, {}, {"passed": "yes", "verdict": ""}, {"passed": True}])
def test_a_faulty_gate_is_named(tmp_path, gate):
    with pytest.raises(fcjax.InputError, match=r"figures\.gate is"):
        fcjax.load_calibration(file_of(tmp_path, replace(OLD, figures={"gate": gate})))
