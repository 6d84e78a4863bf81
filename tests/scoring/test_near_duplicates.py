"""Sources that repeat each other: identical, nearly identical, contained, equivalent."""

from __future__ import annotations

import random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.records import Context, Relation, RelationType
from fcjax.scoring.near_duplicates import Repeat, repeats

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "st", "ria", "lo", "mek")]


def page(seed: int, words: int = 120) -> list[str]:
    return random.Random(seed).choices(WORDS, k=words)


def chinese(seed: int, letters: int = 300) -> str:
    return "".join(chr(code) for code in random.Random(seed).choices(range(0x4E00, 0x6E00), k=letters))


def thai(seed: int, letters: int = 300) -> str:
    return "".join(chr(code) for code in random.Random(seed).choices(range(0x0E01, 0x0E2E), k=letters))


def found(*texts, relations=()):
    contexts = [Context(id=f"c{i}", text=text) for i, text in enumerate(texts)]
    return repeats(contexts, relations)


def equivalent(source, target, probability=0.95, type=RelationType.EQUIVALENCE):
    return Relation(source=source, target=target, type=type, probability=probability)


def test_different_texts_do_not_repeat_each_other():
    assert found(*(" ".join(page(i)) for i in range(6)), *(chinese(i) for i in range(3))) == ()
    assert found() == ()
    assert found("", "", " ") == ()


def test_the_same_text_is_what_a_graph_merges():
    contexts = [Context(id="a", text="t"), Context(id="b", snippet="t"), Context(id="c"), Context(id="d", text="t ")]
    assert repeats(contexts) == (Repeat(("a", "b", "d"), "same text"),)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (" ".join(page(1)), " ".join([*page(1)[:-2], "another", "end"])),
        (" ".join(page(1)), " -- ".join(page(1)).upper() + "!"),
        (chinese(1), chinese(1)[:-10] + chinese(2, 10)),
        (chinese(1), "。".join(chinese(1)[i : i + 20] for i in range(0, 300, 20))),
        (thai(3), thai(3) + "ก"),
        ("Größe und Straße " * 3 + "noch etwas", "größe und STRASSE " * 3 + "noch etwas"),
        ("The tower is 330 metres tall.", "the tower is 330 metres tall"),
    ],
)
def test_nearly_the_same_text(one, other):
    assert found(" ".join(page(9)), one, " ".join(page(8)), other) == (Repeat(("c1", "c3"), "nearly the same text"),)


def test_texts_that_share_half_are_not_nearly_the_same():
    assert found(" ".join(page(1) + page(2)), " ".join(page(1) + page(3))) == ()


def test_an_excerpt_goes_with_the_first_text_that_contains_it():
    excerpt = page(1, 30)
    whole, other = [*page(2), *excerpt, *page(3)], [*page(4), *excerpt]
    texts = [" ".join(words) for words in (page(5), excerpt, whole, other)]
    assert found(*texts) == (Repeat(("c1", "c2"), "one contains the other"),)
    assert found(chinese(2) + chinese(1, 40) + chinese(3), chinese(1, 40)) == (
        Repeat(("c0", "c1"), "one contains the other"),
    )


def test_a_headline_is_no_excerpt():
    headline = page(1, 8)
    assert found(" ".join(headline), " ".join([*headline, *page(2)])) == ()


def test_equivalent_contexts():
    texts = [" ".join(page(i)) for i in range(4)]
    relations = [
        equivalent("c0", "c2"),
        equivalent("c1", "c3", 0.6),
        equivalent("c1", "c2", type=RelationType.ENTAILMENT),
        equivalent("c0", "atom"),
    ]
    assert found(*texts, relations=relations) == (Repeat(("c0", "c2"), "equivalent"),)


def test_a_group_has_the_loosest_of_its_ties():
    near = " ".join(page(1)), " ".join([*page(1), "more"])
    texts = [near[0], " ".join(page(2)), near[0], near[1], " ".join(page(3)), " ".join(page(2))]
    assert found(*texts) == (
        Repeat(("c0", "c2", "c3"), "nearly the same text"),
        Repeat(("c1", "c5"), "same text"),
    )
    assert found(*texts, relations=[equivalent("c5", "c3")]) == (Repeat(("c0", "c1", "c2", "c3", "c5"), "equivalent"),)


def test_a_sample_of_long_texts_is_enough():
    long = page(1, 3000)
    changed = list(long)
    for i in range(0, 3000, 100):
        changed[i] = "changed"  # 5 shingles in 100
    half = list(long)
    for i in range(0, 3000, 10):
        half[i] = "changed"
    assert found(" ".join(long), " ".join(changed), " ".join(half)) == (Repeat(("c0", "c1"), "nearly the same text"),)


@given(st.lists(st.text(max_size=60), max_size=8), st.randoms())
def test_of_all_texts(texts, shuffle):
    groups = found(*texts)
    members = [name for group in groups for name in group.contexts]
    assert len(members) == len(set(members))
    assert all(len(group.contexts) > 1 for group in groups)
    assert [group.contexts for group in groups] == sorted(group.contexts for group in groups)
    assert groups == found(*texts)
    same = {frozenset(g.contexts) for g in found(*texts, *texts)}
    for i, text in enumerate(texts):  # a copy of each text joins it
        if text.strip():
            assert any({f"c{i}", f"c{i + len(texts)}"} <= group for group in same)


@pytest.mark.parametrize(
    "text", [lambda i: " ".join(page(i, 900)), lambda i: chinese(i, 4000)], ids=["words", "letters"]
)
def test_two_hundred_pages_take_no_time(text):
    """Some 30 ms of words, 80 ms of letters, on a core that is not busy."""
    contexts = [Context(id=f"c{i}", text=text(i)) for i in range(200)]
    seconds = []
    for _ in range(3):
        begin = process_time()
        assert repeats(contexts) == ()
        seconds.append(process_time() - begin)
    assert min(seconds) < 0.5
