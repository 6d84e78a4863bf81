"""Atoms as sentences: found in every script and form, as the response has them, and none that claims something lost."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcjax.core.errors import SettingsError
from fcjax.core.records import Atom, Case, Status
from fcjax.critic.critic import Critic, critique
from fcjax.runs.preview import settings_of
from fcjax.stages.atomize import LONGEST
from fcjax.stages.coverage import Claims, keys_of
from fcjax.stages.pipeline import Pipeline
from fcjax.stages.sentences import LANGUAGES, SentenceAtomizer, guessed_language, sentences


def atoms(response, language=None):
    case = asyncio.run(SentenceAtomizer(language).run(Case(id="x", response=response)))
    return [atom.text for atom in case.atoms]


def lost(response, found):
    """The words of a response that can claim something, and stand in no atom."""
    known = {key for text in found for key in keys_of(text)}
    words = [word for part in Claims.of(response).parts for word in part if word.weight]
    missed = [word for word in words if known.isdisjoint(word.keys)]
    # The number of a list item is a mark, though coverage counts it behind another mark ("- 1. Text").
    numbers = {match.start(1) for match in re.finditer(r"(?<![^\s(>])(\d{1,3})[.)]\s", response)}
    return [response[word.start : word.end] for word in missed if word.start not in numbers]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("Dr. Eiffel built it in 1889. It is 330.5 m high, e.g. with its mast.", 2),
        ('"It is high." He said so. "Why?" she asked him.', 3),
        ("Die Brücke wurde z. B. am 3. Mai 1894 eröffnet. Sie ist 300 Meter lang.", 2),
        ("La tour Eiffel est à Paris. M. Eiffel l'a construite en 1889.", 2),
        ("他出生于1912年。他死于1950年！", 2),
        ("東京は日本の首都です。人口は約1400万人です。", 2),
        ("ولدت ماري في وارسو عام 1867. وفازت بجائزة نوبل.", 2),
        ("ताजमहल आगरा में है। इसे शाहजहाँ ने बनवाया था।", 2),
        ("서울은 한국의 수도이다. 인구는 940만 명이다.", 2),
        ("Москва основана в 1147 году. Её мэр Собянин.", 2),
        ("The bridge is long 😀. It opened in 1990! 🎉", 2),
        ("Tokyo is large. 東京は日本の首都です。人口は多い。 وقد كبرت المدينة. It grew.", 5),
    ],
)
def test_sentences_of_every_script(response, expected):
    found = atoms(response)
    assert len(found) == expected
    assert " ".join(found).replace(" ", "") in response.replace("🎉", "").replace(" ", "") + "🎉"
    assert lost(response, found) == []


def test_marks_of_lists_tables_and_headings_are_removed_and_code_is_left_out():
    response = """Sure! Here is an overview.

## The tower of Paris

The **Eiffel Tower** is in *Paris*. Who built it? It has 5 * 3 = 15 rooms.
- **Height:** 330 m
* Lyon
1. The first floor has 3 shops. The second has none.
2) It opened in 1889
12. Mai 1945 endete der Krieg.
> It is quoted often.

| City | Population |
|------|-----------:|
| Paris | 2,100,000 |
| Lyon | 500,000 |

```python
print("The code claims nothing.")
```
Let me know if you need more."""
    assert atoms(response) == [
        "The Eiffel Tower is in Paris.",
        "It has 5 * 3 = 15 rooms.",
        "Height: 330 m",
        "Lyon",
        "The first floor has 3 shops.",
        "The second has none.",
        "It opened in 1889",
        "12. Mai 1945 endete der Krieg.",
        "It is quoted often.",
        "Paris; 2,100,000",
        "Lyon; 500,000",
    ]


def test_prose_in_a_fence_and_a_fence_that_never_ends_are_read():
    claim = "The tower opened in 1889."
    assert (
        atoms(f"```markdown\n{claim}\n```") == atoms(f"```\n{claim}\n```") == atoms(f"```python\n\n{claim}") == [claim]
    )
    assert atoms(f"{claim}\n```\nx = 1\n```") == [claim]


def test_lines_that_were_broken_to_fit_are_one_sentence():
    wrapped = (
        "The tower was designed by a company that belonged to Gustave\n"
        "Eiffel and it was the tallest structure in the world until\n"
        "the Chrysler Building was completed. It is of iron."
    )
    assert atoms(wrapped) == [wrapped.replace("\n", " ")[: wrapped.index(" It is")], "It is of iron."]
    lines = "The bridge across the river has 14 pillars\nThe hall of the old town has 3 doors"
    assert atoms(lines) == lines.split("\n")


@pytest.mark.parametrize(
    ("response", "status", "reason"),
    [
        ("", Status.NO_ATOMS, "the response has no words"),
        (" 😀 ... \n", Status.NO_ATOMS, "the response has no words"),
        ("Hello! How are you?", Status.NO_ATOMS, "the response makes no factual claim"),
        ("Yes.", Status.NO_ATOMS, "the response makes no factual claim"),
        ("I'm sorry, but I cannot help with that.", Status.REFUSED, "the response declines to answer"),
        (None, Status.INVALID_INPUT, "there is no response to extract facts from"),
    ],
)
def test_without_atoms_the_status_says_why(response, status, reason):
    case = asyncio.run(SentenceAtomizer().run(Case(id="x", response=response)))
    assert (case.status, case.extra["reason"]) == (status, reason)
    assert case.atoms == (None if response is None else ())


def test_the_trace_says_what_was_done_and_atoms_that_are_there_stay():
    case = asyncio.run(SentenceAtomizer().run(Case(id="x", response="Er lief. Das ist die Stadt. Er lief.")))
    assert [atom.id for atom in case.atoms] == ["a0", "a1"]
    assert case.extra["stages"]["atomize"] == {
        **{"atomizer": "sentences", "pronouns": "kept", "prompts": 0, "language": "de", "facts": 3, "duplicates": 1}
    }
    given_atoms = Case(id="x", response="It ran.", atoms=(Atom(id="b", text="It stood."),))
    assert asyncio.run(SentenceAtomizer().run(given_atoms)) is given_atoms


def test_languages():
    assert guessed_language("他出生于1912年。") == "zh"
    assert guessed_language("The tower is of iron and it was built in the year 1889.") == "en"
    assert guessed_language("12345") == "en"
    for code in (*LANGUAGES, "pt-BR", "EN_gb"):
        assert atoms("The bridge is 300 m long.", code) == ["The bridge is 300 m long."]
    for code in ("xx", "english", "", 5, "e\nn"):
        with pytest.raises(SettingsError, match="expected a code of two letters such as en, de or zh"):
            SentenceAtomizer(code)


@pytest.mark.parametrize(
    "pattern",
    [
        "The tower was built in 1889 in Paris. ",
        *("a", "Dr. ", "他出生。", "“a. ", "A. B. ", "*a ", "- ", "'a. b' ", "| a ", "```\n", "aa bb\n", "1. "),
    ],
)
def test_long_texts_take_time_in_proportion(pattern):
    took = []
    for size in (50_000, 200_000):
        text = (pattern * size)[:size]
        start = time.process_time()
        found = sentences(text, "en", False)
        took.append(time.process_time() - start)
        assert all(len(one) <= LONGEST for one in found)
    assert took[1] < 10 * took[0] + 1


_PIECES = st.sampled_from(
    [
        *(
            "The tower is 330 m high. ",
            "Dr. Smith met Mr. Jones",
            "他出生于1912年。",
            "It opened in 1889! ",
            "\n",
            "\n\n",
        ),
        *("- ", "1. ", "| Paris | 12 |", "|---|---|", "**Lyon** ", "# Heading", "> ", "ताजमहल आगरा में है। ", " ", "a*b "),
        *(
            '"It is so," ',
            "“",
            "(",
            ")",
            "...",
            "😀",
            "وقد كبرت المدينة. ",
            "U.S. Army",
            "\r\n",
            "\u2028",
            "\x85",
            "; ",
        ),
    ]
)


def _plain(text):
    return re.sub(r"[\s|;*_#>\-\x1c-\x1f]+", "", text)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.lists(_PIECES, max_size=30).map("".join), st.text(max_size=200)))
def test_every_atom_is_in_the_response_in_order_and_no_claim_is_lost(response):
    response = response.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    found = sentences(response, "en", False)
    assert found == sentences(response, "en", False)
    whole, place = _plain(response), 0
    for text in found:
        assert text == text.strip() != ""
        place = whole.index(_plain(text), place) + len(_plain(text))
    assert lost(response, found) == []


def never(*_):
    raise AssertionError("a model was asked")


def test_the_pipeline_asks_no_model_for_sentences():
    pipeline = Pipeline(atomizer="sentences", language="en", stages=("atomize", "revise", "query", "retrieve"))
    assert pipeline.asking == ()
    assert "revise" not in pipeline.plan(Case(id="x", response="It is big."))
    case = asyncio.run(pipeline.prepare(Case(id="x", response="It is big.", contexts=()), never, never))
    assert [atom.text for atom in case.atoms] == ["It is big."]
    assert list(case.extra["stages"]) == ["atomize"]
    alone = Pipeline(atomizer="sentences", asks=False, searches=False)
    assert [stage for stage in ("atomize", "revise", "relate") if alone.may(stage)] == ["atomize"]
    assert Pipeline(atomizer="sentences").asking == ("relate",)
    assert Pipeline().asking == ("atomize", "revise", "relate")


def test_settings_of_a_pipeline():
    for wrong in ({"atomizer": "words"}, {"language": "en"}, {"atomizer": "sentences", "language": "xx"}):
        with pytest.raises(SettingsError):
            Pipeline(**wrong)
    found = settings_of(Critic(pipeline=Pipeline(atomizer="sentences", language="de")))
    assert found["stages"] == {"atomize": {"language": "de"}}
    assert settings_of(Critic())["stages"] == {}


def test_a_critique_in_python_needs_no_endpoint(monkeypatch, tmp_path):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "FCJAX_MODEL"):
        monkeypatch.delenv(name, raising=False)
    store = tmp_path / "store.sqlite"
    pipeline = Pipeline(atomizer="sentences", stages=("atomize", "retrieve"))
    case = Case(id="x", response="The tower is 330 m high. It opened in 1889.", contexts=())
    found = critique(case, store=store, pipeline=pipeline)
    assert (found.status, len(found.case.atoms)) == ("ok", 2)
    assert not store.exists()
