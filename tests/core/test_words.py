"""Words of any script: one definition, and every use of words agrees with it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.prompts import Reply
from fcjax.core.records import Case, Context
from fcjax.core.word_diff import Diff
from fcjax.core.words import bare, content_words, has_unspaced, mended, tokens, without_invisible, words
from fcjax.evaluation.texts import rouge_l, tokenizer_of
from fcjax.io.retrievers.words import words as index_words
from fcjax.scoring.near_duplicates import SHINGLE, repeats
from fcjax.stages.atomize import Atomizer
from fcjax.stages.retrieve import query_of
from fcjax.stages.screen import screen_words
from fcjax.stages.templates import on_one_line, quoted

TEXTS = {
    "Burmese": ("မြန်မာနိုင်ငံ ၁၉၄၈", ["မြ", "န်", "မာ", "နို", "င်", "ငံ", "၁၉၄၈"]),
    "Thai": ("กรุงเทพ มีที่ ๒๕", ["ก", "รุ", "ง", "เ", "ท", "พ", "มี", "ที่", "๒๕"]),
    "Lao": ("ປະເທດລາວ", ["ປ", "ະ", "ເ", "ທ", "ດ", "ລ", "າ", "ວ"]),
    "Khmer": ("ភ្នំពេញ", ["ភ្", "នំ", "ពេ", "ញ"]),
    "Tibetan": ("བོད་ཡིག", ["བོ", "ད", "ཡི", "ག"]),
    "Chinese": ("镭于1898年发现。", ["镭", "于", "1898", "年", "发", "现"]),
    "rare Han": ("\U00020bb7野家", ["\U00020bb7", "野", "家"]),
    "Japanese": ("コーヒーを、人々", ["コ", "ー", "ヒ", "ー", "を", "人", "々"]),
    "Korean": ("서울은 수도이다.", ["서울은", "수도이다"]),
    "Hindi": ("हिन्दी भाषा है।", ["हिन्दी", "भाषा", "है"]),
    "Arabic": ("العَرَبِيّة لغة", ["العَرَبِيّة", "لغة"]),
    "Persian": ("می‌خواهم بروم", ["میخواهم", "بروم"]),
    "Russian": ("Радий открыт в 1898-м", ["радий", "открыт", "в", "1898", "м"]),
    "English": ("It's 3.5 °C, snake_case!", ["it", "s", "3", "5", "c", "snake", "case"]),
    "French": ("L’été à Orléans", ["l", "été", "à", "orléans"]),
    "decomposed": ("cafe\u0301 noir", ["cafe\u0301", "noir"]),
    "signs and words": ("iPhone手机2", ["iphone", "手", "机", "2"]),
    "emoji": ("1️⃣ 👩‍🚀 ❤️ yes", ["1", "yes"]),
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_words_of_a_text(language):
    text, expected = TEXTS[language]
    assert words(text) == expected
    assert words(f"({text})\n") == expected


def atoms_of(text):
    async def ask(prompt):
        return Reply(text=json.dumps([text]))

    return asyncio.run(Atomizer().run(Case(id="x", response=text), ask)).atoms


@pytest.mark.parametrize("language", ["Burmese", "Thai", "Lao", "Khmer", "Tibetan", "Chinese", "Japanese", "English"])
def test_every_use_of_words_has_the_same_ones(language):
    text, expected = TEXTS[language]
    assert screen_words(text) == set(expected)
    shown = [bare(word).casefold() for word, _ in tokens(text)]
    assert [word for word in shown if word in expected] == expected
    unspaced = language != "English"
    assert has_unspaced(text) == unspaced
    assert tokenizer_of(text) == {"English": "13a", "Chinese": "zh"}.get(language, "char")
    assert rouge_l(" ".join(expected), text) == 1.0
    signs = [word for word in expected if has_unspaced(word)]
    if unspaced:
        assert [word for word in index_words(text) if word in signs] == list(index_words(" ".join(signs)))
        assert all(set(map(has_unspaced, pair)) for pair in content_words(text))
        assert {pair for pair in content_words(text) if has_unspaced(pair)} <= {
            one + other for one, other in pairwise(signs)
        }
        assert [atom.text for atom in atoms_of(text)] == [text]


@pytest.mark.parametrize("language", ["Burmese", "Thai", "Chinese", "English"])
def test_near_duplicates_are_counted_by_the_same_words(language):
    text, expected = TEXTS[language]
    n = len(expected)
    # Copies of n words in two texts, and c words that they do not share, of which no shingle is common: the first
    # c that makes them too different is the same for every script.
    for c in range(1, 40):
        contexts = [Context(id=mark, text=" ".join([*[text] * 4, *[f"{mark}{i}" for i in range(c)]])) for mark in "ab"]
        common = len({tuple((expected * 5)[i : i + SHINGLE]) for i in range(4 * n - SHINGLE + 1)})
        assert bool(repeats(contexts)) == (common >= 0.8 * (common + 2 * c)), c


def test_a_difference_is_by_words_and_signs():
    assert repr(Diff.of("မြန်မာ", "မြန်မီ")) == "မြန်[-မာ-]{+မီ+}"
    assert repr(Diff.of("हिन्दी भाषा", "हिन्दी भाषी")) == "हिन्दी [-भाषा-]{+भाषी+}"
    assert repr(Diff.of("the cat_sat", "the dog_sat")) == "the [-cat-]{+dog+}_sat"


# Characters without a shape

INVISIBLE = ["\u00ad", "\u200b", "\ufeff", "\u2060", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u061c"]
JOINERS = ["\u200c", "\u200d"]


@pytest.mark.parametrize("mark", [*INVISIBLE, *JOINERS])
def test_a_character_without_a_shape_does_not_divide_words(mark):
    text = f"18{mark}98 Donau{mark}dampfschiff ру{mark}да 東{mark}京"
    plain = text.replace(mark, "")
    assert words(text) == words(plain)
    assert index_words(text) == index_words(plain)
    assert content_words(text) == content_words(plain)
    assert screen_words(text) == screen_words(plain)
    assert rouge_l(text, plain) == 1.0
    assert not Diff.of(text, plain).changed
    long = " ".join(f"word{i}" for i in range(20))
    contexts = [Context(id="a", text=f"{long} {text}"), Context(id="b", text=f"{plain} {long} more words of its own")]
    contexts += [Context(id="c", text=f"{long} {plain}")]
    assert repeats(contexts)[0].contexts[:1] == ("a",)
    assert "c" in repeats(contexts)[0].contexts


@pytest.mark.parametrize("mark", INVISIBLE)
def test_prompts_and_queries_are_without_characters_that_have_no_shape(mark):
    assert quoted(f"18{mark}98") == on_one_line(f"{mark}18{mark}98") == "1898"
    assert on_one_line(f"a {mark} b{mark}\nc") == "a b c"

    class Named:
        extra = {"query": f"Donau{mark}dampfschiff"}  # noqa: RUF012
        text = ""

    assert query_of(Named()) == "Donaudampfschiff"


@pytest.mark.parametrize("text", ["می‌خواهم", "क्‍ष", "👩‍🚀", "❤️"])
def test_joiners_that_scripts_need_are_kept_where_a_text_is_shown(text):
    assert without_invisible(text) == quoted(text) == text


@given(st.text())
def test_no_text_breaks_the_words(text):
    found = words(text)
    assert all(found)
    assert words(" ".join(found)) == found
    assert "".join(word + space for word, space in tokens(text)) == text.lstrip()
    mended(text).encode()


def test_ascii_needs_no_table_of_scripts():
    code = "import sys, fcjax.core.words as w; w.words('Plain text'); print('regex' in sys.modules)"
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True)
    assert run.stdout.split() == [b"False"]
