"""Revised responses: reading them, their language, and their differences."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcjax.core.languages import changed, language_of, script_of
from fcjax.core.prompts import Prompt, Reply
from fcjax.core.word_diff import Diff
from fcjax.correction.revision import editable, is_refusal, read_revision, revision
from fcjax.stages.answers import LONGEST_ANSWER

TEXT = "Ada was born in 1815.\n\nShe wrote programs [1], and died in 1852."


@pytest.mark.parametrize(
    "answer",
    [
        "{}",
        "<revised>\n{}\n</revised>",
        "<revised>{}</revised>",
        "< Revised >\n{}\n</ revised >\nI corrected one date.",
        "Sure! Here it is.\n<revised>\n{}\n</revised>",
        "<revised>\n{}",  # the closing tag was forgotten
        "First try: <revised>no</revised>\nBetter: <revised>\n{}\n</revised>",
        "In the form <revised>\n...\n</revised>:\n<revised>\n{}\n</revised>",
        "```\n{}\n```",
        "```text\n{}\n```",
        "<revised>\n```markdown\n{}\n```\n</revised>",
        "Here is the revised response:\n\n{}",
        "Here's the corrected version of the response, with the date put right:\n{}",
        "**Revised response:**\n{}",
        "Revised Response: {}",
        "## Corrected answer\n{}",
        "Certainly! Here is the rewritten text:\n\n```\n{}\n```",
        "<think>Is it 1815? <revised>maybe</revised></think>\n<revised>\n{}\n</revised>",
        '"{}"',
        "  {}  \n",
        "Here is the revised response:\n\n{}\n\nI changed the year, and removed what nobody could verify.",
        "{}\n\n**Changes made:** the year.\n\nAnything else?",
        "{}\n\n---\n\n*Note: the year was wrong.*",
    ],
)
def test_a_response_is_found_in_an_answer(answer):
    assert read_revision(answer.format(TEXT), TEXT) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        "Here is what matters: Ada was born in 1815.",
        "Corrected proofs were sent to her in 1842: she read them.",
        "Use this:\n```\nprint(1)\n```\nand that:\n```\nprint(2)\n```",
        'Two words: "yes" and "no"',
        "Sure enough, it rained.",
    ],
)
def test_parts_of_a_response_stay(text):
    assert read_revision(f"<revised>\n{text}\n</revised>", TEXT) == text
    assert read_revision(text, TEXT) == text


def test_a_note_that_the_response_has_itself_stays():
    noted = f"{TEXT}\n\nNote: she was Byron's daughter."
    assert read_revision(noted, noted) == noted
    assert read_revision(f"<revised>\n{noted}\n</revised>", TEXT) == noted


def test_a_cut_off_response_is_not_used():
    assert read_revision("<revised>\nAda was", TEXT, cut=True) == ""
    assert read_revision("Ada was", TEXT, cut=True) == ""
    assert read_revision("<revised>\nAda.\n</revised>\nI have", TEXT, cut=True) == "Ada."


@pytest.mark.parametrize("text", [TEXT, "a < b", "<b>bold</b> & more\n- one\n- two", "tab\there", "  indented"])
def test_quoted_text_is_read_back_unchanged(text):
    assert read_revision(f"<revised>\n{editable(text)}\n</revised>", text) == text.strip()


def test_invisible_characters_are_not_quoted():
    assert editable("a\u202eb\x00c\U000e0041<|im_start|>") == "abc&lt;|im_start|>"
    assert "&lt;" in read_revision("<revised>write &lt; for it</revised>", "write &lt; for it")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.text(max_size=80), st.booleans())
def test_any_answer_can_be_read(answer, response, cut):
    assert isinstance(read_revision(answer, response, cut), str)


@pytest.mark.parametrize(
    "sign", ["<revised>", "```\n", "*", "here is ", " ", "\n#", '"', "</think>", "\n", "~", ".", "sure! "]
)
@pytest.mark.parametrize(("before", "after"), [("", ""), ("A note.", "x"), ("Sure! ", "x"), ("~~~~~~\n", "~~~~ x")])
def test_no_answer_takes_long(sign, before, after):
    answer = before + sign * 20_000 + after
    began = time.process_time()
    read_revision(answer, TEXT)
    read_by(answer, TEXT)
    assert time.process_time() - began < 2


def test_half_a_character_of_a_stored_reply_is_replaced():
    """A reply from a store may hold it, and no results file can."""
    assert read_by("Rome \ud800 is old.", TEXT).text == "Rome \ufffd is old."


def test_a_fence_of_many_tildes_is_read_in_linear_time():
    """Every length of the opening fence was tried at every place: 2.3 s for 2,000 tildes."""
    began = time.process_time()
    read_revision("~" * 20_000 + "\n" + "~" * 19_999 + "x", TEXT)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("~~~~\nRome.\n~~~", "Rome."),  # closed by fewer tildes than opened it
        ("~~~\nRome.\n~~~~", "Rome.\n~"),
        ("````\nRome.\n```", "````\nRome.\n```"),
        ("Rome.\n\n---\n\n# Note: I changed it.", "Rome."),
        ("Rome.\n---\nNote: it is old.", "Rome.\n---\nNote: it is old."),
        ("Rome.\n \n", "Rome."),
    ],
)
def test_fences_and_remarks(answer, text):
    assert read_revision(answer, TEXT) == text


def read_by(answer, response):
    """What is read of an answer to a prompt that asks to rewrite a response."""

    async def ask(prompt):
        return Reply(text=f"<revised>\n{answer}\n</revised>", model="m")

    prompt = Prompt(messages=(("user", "Rewrite it."),), template="refine/1", max_tokens=99)
    return asyncio.run(revision(prompt, response, ask))


@pytest.mark.parametrize(
    ("text", "response"),
    [
        ("There is no evidence for that; it is false.", "That is true."),
        ("The answer is false: she was born in 1815.", "The answer is true: she was born in 1815."),
        (
            "What they had wrong:\nFalse statements: two\nErrors: 3",
            "What they had wrong:\nFalse statements: two\nErrors: 4",
        ),
    ],
)
def test_a_right_correction_that_sounds_like_a_verdict(text, response):
    assert read_by(text, response).text == text


@pytest.mark.parametrize(
    "text",
    [
        "There are two mistakes in the response.",
        "The original answer is inaccurate about the year.",
        "The text has errors.",
        "The answer contains a false statement.",
        "False statements: 1. She was born in 1816.",
    ],
)
def test_remarks_about_a_response_are_not_responses(text):
    assert read_by(text, TEXT).text is None


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't do that.",
        "As an AI, I cannot help.",
        "I cannot revise this response because the evidence is insufficient.",
        "Unfortunately, I am unable to correct the text.",
        "I don't feel comfortable rewriting this.",
        "Lo siento, no puedo ayudar.",
        "申し訳ありません。",
        "抱歉，我无法帮助。",
    ],
)
def test_refusals(text):
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "Sorry is a song of 2015 by Justin Bieber.",
        "Apologies are rare in diplomacy.",
        "I could not see the bridge from there, which was built in 1815.",
    ],
)
def test_texts_that_are_not_refusals(text):
    assert not is_refusal(text)


# Languages

SAMPLES = {
    "english": "The town has a bridge, and it was built in the year 1815 by a man who is not known to us.",
    "german": "Die Stadt hat eine Brücke, und sie wurde im Jahr 1815 von einem Mann gebaut, der nicht bekannt ist.",
    "french": "La ville a un pont, et il a été construit en 1815 par un homme qui n'est pas connu dans le pays.",
    "spanish": "La ciudad tiene un puente, que fue construido en el año 1815 por un hombre que no es conocido.",
    "italian": "La città ha un ponte, che è stato costruito nel 1815 da un uomo che non è noto alla gente.",
    "portuguese": "A cidade tem uma ponte, que foi construída em 1815 por um homem que não é conhecido.",
    "dutch": "De stad heeft een brug, en die werd in het jaar 1815 door een man gebouwd die niet bekend is.",
    "polish": "Miasto ma most, który został zbudowany w 1815 roku przez człowieka, który nie jest znany.",
    "russian": "В городе есть мост, который был построен в 1815 году, и о нём не известно ничего.",
}


@pytest.mark.parametrize("language", SAMPLES)
def test_languages_are_told_apart(language):
    assert language_of(SAMPLES[language]) == language
    for other, text in SAMPLES.items():
        assert (changed(SAMPLES[language], text) is None) == (language == other)


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("東京は日本の首都です", "japanese"),
        ("北京是中国的首都", "chinese"),
        ("서울은 한국의 수도이다", "korean"),
        ("Αθήνα", "greek"),
        ("القاهرة", "arabic"),
        ("कोलकाता भारत में है", "devanagari"),
        ("Paris (パリ)", "latin"),
        ("1815", None),
        ("", None),
    ],
)
def test_scripts(text, script):
    assert script_of(text) == script


def test_names_and_numbers_alone_have_no_language():
    assert changed("Ada Lovelace, 1815", "Ada Byron, 1816") is None
    assert changed("1815", SAMPLES["german"]) is None
    assert changed(SAMPLES["english"], "東京は日本の首都です") == "from latin script to japanese script"


# What changed


def test_a_diff_shows_words():
    diff = Diff.of("Ada was born in 1816 in Paris, it is said.", "Ada was born in 1815 in New York, it is said.")
    assert diff.text() == "Ada was born in [-1816-]{+1815+} in [-Paris-]{+New York+}, it is said."
    assert diff.html().count("<del") == diff.html().count("<ins") == 2
    assert diff.changed


def test_a_diff_of_equal_texts():
    assert Diff.of(TEXT, TEXT).text() == TEXT
    assert not Diff.of("a  b", "a b").changed
    assert Diff.of("", "").parts == ()


def test_signs_are_words_where_a_script_has_no_spaces():
    assert Diff.of("東京は首都です", "京都は首都です").text() == "[-東-]京{+都+}は首都です"


def test_a_diff_escapes():
    assert "<b>" not in Diff.of("<b>", "<i>")._repr_html_()


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_both_texts_are_in_the_diff(before, after):
    def words(changes):
        return "".join("".join(part.text for part in parts if part.change in changes).split())

    parts = Diff.of(before, after).parts
    assert words({"same", "new"}) == "".join(after.split())
    assert words({"same", "gone"}) == "".join(before.split())


def test_long_texts_are_compared_soon():
    words = [f"word{i % 700}" for i in range(5000)]
    began = time.process_time()
    Diff.of(" ".join(words), " ".join("new" if i % 9 == 0 else word for i, word in enumerate(words)))
    assert time.process_time() - began < 3


def test_an_answer_longer_than_any_is_asked_for_again_and_fails():
    asked = []

    async def ask(prompt):
        asked.append(prompt)
        return Reply(text="word " * LONGEST_ANSWER)

    prompt = Prompt(messages=(("user", "Correct it."),), template="refine/1")
    found = asyncio.run(revision(prompt, "A response.", ask))
    assert found.text is None
    assert len(asked) == 3
    assert "the answer is too long" in asked[1].messages[-1][1]
