"""Text scores: by hand, against the packages that compute them, and for texts without words."""

from __future__ import annotations

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from fcjax.core.errors import SettingsError
from fcjax.core.words import words
from fcjax.evaluation import optional as extras
from fcjax.evaluation.texts import bleu, rouge_l, text_scores, tokenizer_of


def test_rouge_l_by_hand():
    # the longest common subsequence of 5 and 6 words is "the cat the mat"
    precision, recall = 4 / 5, 4 / 6
    expected = 2 * precision * recall / (precision + recall)
    assert rouge_l("The cat near the mat", "the cat sat on the mat.") == pytest.approx(expected)


english = st.lists(st.sampled_from(["Radium", "was", "found", "in", "1898", "by", "Curie,", "not", "a-b"]), min_size=1)


@given(english.map(" ".join), english.map(" ".join))
def test_rouge_l_of_english_is_rouge_scores_own(candidate, reference):
    assert rouge_l(candidate, reference) == RougeScorer(["rougeL"]).score(reference, candidate)["rougeL"].fmeasure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's 3.5 °C!", ["it", "s", "3", "5", "c"]),
        ("镭于1898年发现", ["镭", "于", "1898", "年", "发", "现"]),
        ("Радий открыт", ["радий", "открыт"]),
        ("ラジウム", ["ラ", "ジ", "ウ", "ム"]),
        ("... !?", []),
    ],
)
def test_words_of_any_script(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [("镭是一种金属", "镭是一种元素", 4 / 6), ("Радий был открыт", "Радий открыт", 0.8)],
)
def test_rouge_l_of_other_scripts(candidate, reference, expected):
    assert rouge_l(candidate, reference) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        ("Radium was found in 1898.", "13a"),
        ("镭于1898年被发现。", "zh"),
        ("ラジウムは1898年に発見された。", "char"),
        ("เรเดียมถูกค้นพบในปี 1898", "char"),
        ("라듐은 1898년에 발견되었다.", "13a"),
        ("The sign 镭 means radium in Chinese", "13a"),
        ("", "13a"),
    ],
)
def test_the_script_chooses_the_tokenizer(text, tokenizer):
    assert tokenizer_of(text) == tokenizer


@pytest.mark.parametrize(
    ("candidate", "reference", "tokenizer"),
    [
        ("The cat sat on a mat.", "The cat sat on the mat.", "13a"),
        ("镭是一种银白色的金属。", "镭是一种白色的金属元素。", "zh"),
        ("ラジウムは金属である", "ラジウムは元素である", "char"),
    ],
)
def test_bleu_is_sacrebleus(candidate, reference, tokenizer):
    theirs = sacrebleu.sentence_bleu(candidate, [reference], tokenize=tokenizer).score / 100
    assert bleu(candidate, reference) == pytest.approx(theirs)
    assert 0 < theirs < 1


@pytest.mark.parametrize("score", [rouge_l, bleu])
def test_texts_without_words_have_defined_scores(score):
    assert score("", "") == score(" ... ", "") == 1.0
    assert score("", "a word") == score("a word", "") == 0.0
    assert score("Radium", "Radium") == 1.0
    assert score("The same longer text.", "The same longer text.") == 1.0
    assert score("no", "yes") == 0.0


def test_a_missing_text_has_no_scores():
    found = text_scores([("a b", "a b"), (None, "a b"), ("a b", None)])
    assert found == [{"rouge_l": 1.0, "bleu": 1.0}, None, None]


def test_an_error_about_a_missing_package_says_how_to_get_it():
    missing = r"a picture needs the package not_installed_here, .*pip install 'fcjax\[plots\]'"
    with pytest.raises(SettingsError, match=missing):
        extras.load("not_installed_here.figure", "plots", "a picture")


def test_a_broken_package_is_not_reported_as_missing(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import something_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="something_that_is_not_there"):
        extras.load("half_installed", "some", "this")
