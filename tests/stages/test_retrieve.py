"""The stage that looks for evidence: which contexts a case gets, and what it says where there are none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.errors import SettingsError
from fcjax.core.passages import Passage
from fcjax.core.prompts import Failure
from fcjax.core.records import Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.io.files.cases import case_to_dict, parse_case
from fcjax.stages.retrieve import EvidenceSearch

WALL = Passage(title="The wall", text="The wall is long.", link="https://a.example/wall")
MOON = Passage(title="The Moon", text="The Moon is far.", link="https://b.example/moon")


class Source:
    """Answers from a table, and remembers what it was asked."""

    def __init__(self, answers, default=()):
        self.answers, self.default, self.asked = answers, default, []

    async def __call__(self, query, k):
        self.asked.append((query, k))
        found = self.answers.get(query, self.default)
        return found if isinstance(found, Failure) else found[:k]


def case(*texts, **fields):
    atoms = [{"id": f"a{i}", "text": text} for i, text in enumerate(texts)]
    return parse_case({"id": "case", "atoms": atoms} | fields)


def retrieved(given, source, **how):
    return asyncio.run(EvidenceSearch(**how).run(given, source))


def test_identical_passages_are_one_context_and_every_atom_keeps_its_link():
    copy = Passage(title="A copy", text=" The wall is long. ", link="https://c.example/copy")
    found = retrieved(case("one", "two", "three"), Source({"one": (WALL, MOON), "two": (copy,), "three": (MOON,)}))
    assert [context.evidence for context in found.contexts] == ["The wall is long.", "The Moon is far."]
    assert [atom.contexts for atom in found.atoms] == [("c0", "c1"), ("c0",), ("c1",)]
    graph = FactGraph.from_case(found)
    assert graph.kinds.count("context") == 2


def test_equal_queries_are_searched_for_once():
    source = Source({}, (WALL,))
    found = retrieved(case("one", "one", "two"), source)
    assert sorted(source.asked) == [("one", 3), ("two", 3)]
    assert [atom.contexts for atom in found.atoms] == [("c0",)] * 3


def test_characters_without_a_shape_are_in_no_query_and_in_no_context():
    spiked = Passage(
        title="Do\u00adnau", text="Seit 18\u00ad98 \ud83d, می\u200cخواهم.", snippet="Donau\u200bschiff", link="a\u200bb"
    )
    source = Source({}, (spiked,))
    given = case("Donau\u00adschiff", "two", "three")
    atoms = (given.atoms[0], *(replace(atom, extra={"query": text}) for atom, text in zip(
        given.atoms[1:], ("zw\u200bei", "\u200b"), strict=True)))  # fmt: skip
    found = retrieved(replace(given, atoms=atoms), source)
    assert [query for query, _ in source.asked] == ["Donauschiff", "zwei", "three"]
    (context,) = found.contexts
    assert (context.title, context.snippet, context.link) == ("Donau", "Donauschiff", "a\u200bb")
    assert context.text == "Seit 1898 \ufffd, می\u200cخواهم."


def test_a_slow_search_keeps_no_others_waiting():
    done = []

    async def search(query, k):
        await asyncio.sleep(0.2 if query == "t0" else 0.0)
        done.append(query)
        return ()

    texts = [f"t{i}" for i in range(40)]
    found = asyncio.run(EvidenceSearch().run(case(*texts), search))
    assert done == [*texts[1:], "t0"]
    assert {atom.status for atom in found.atoms} == {Status.NO_EVIDENCE}


def test_the_query_of_an_atom_is_what_is_searched_for():
    asked = Source({}, (WALL,))
    retrieved(parse_case({"atoms": [{"id": "a", "text": "It is long.", "query": "length of the wall"}]}), asked)
    assert asked.asked == [("length of the wall", 3)]


def test_a_failed_search_is_not_the_same_as_no_evidence():
    found = retrieved(case("none", "down"), Source({"down": Failure("timeout", "no answer in 5 s")}))
    none, down = found.atoms
    assert (none.status, none.contexts) == (Status.NO_EVIDENCE, ())
    assert (down.status, down.contexts) == (Status.RETRIEVAL_FAILED, None)
    assert down.extra["reason"] == "timeout: no answer in 5 s"
    assert found.contexts == ()
    assert found.extra["stages"]["retrieve"] == {"queries": 2, "failed": 1}


def test_another_try_searches_for_what_had_failed_and_nothing_else():
    first = retrieved(case("one", "two"), Source({"one": (WALL,), "two": Failure("timeout", "slow")}))
    source = Source({"two": (WALL, MOON)})
    again = retrieved(first, source)
    assert source.asked == [("two", 3)]
    assert [(atom.status, atom.contexts) for atom in again.atoms] == [(Status.OK, ("c0",)), (Status.OK, ("c0", "c1"))]
    assert "reason" not in again.atoms[1].extra


def test_new_contexts_get_ids_that_nobody_has():
    atoms = [{"id": "c0", "text": "an atom with an odd id"}, {"id": "a", "text": "known", "contexts": ["c1"]}]
    given = parse_case({"atoms": atoms, "contexts": [{"id": "c1", "text": "The Moon is far."}]})
    found = retrieved(given, Source({}, (WALL, MOON)))
    assert [context.id for context in found.contexts] == ["c1", "c2"]
    assert found.atoms[0].contexts == ("c2", "c1")


def test_sources_that_are_not_allowed_make_room_for_others():
    source = Source({}, (WALL, MOON, Passage(text="More.", link="https://a.example/more")))
    found = retrieved(case("one"), source, k=2, allowed=lambda link: "a.example" in link)
    assert source.asked == [("one", 4)]
    assert [context.evidence for context in found.contexts] == ["The wall is long.", "More."]
    assert found.extra["stages"]["retrieve"] == {"queries": 1, "not_allowed": 1}


def test_a_source_may_have_a_prior_of_its_own():
    found = retrieved(case("one"), Source({}, (WALL, MOON)), prior=lambda link: 0.6 if "a.example" in link else None)
    assert [context.prior for context in found.contexts] == [0.6, None]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("wall", "copy", "prior"), [(0.6, 0.9, 0.9), (0.6, None, 0.6), (None, None, None)])
def test_the_same_words_at_two_places_keep_both_links_and_the_better_prior(order, wall, copy, prior):
    elsewhere = Passage(title="A copy", text=WALL.text, link="https://c.example/copy")
    priors = {WALL.link: wall, elsewhere.link: copy}
    places = (WALL, elsewhere)[::order]
    source = Source({"one": (*places, WALL), "two": places[:1]})
    found = retrieved(case("one", "two"), source, prior=priors.get)
    (context,) = found.contexts
    assert context.links == tuple(passage.link for passage in places)
    assert context.prior == prior
    assert case_to_dict(found)["contexts"][0]["links"] == [places[1].link]


def test_a_passage_without_a_word_is_no_evidence():
    found = retrieved(case("one"), Source({}, (Passage(title="Only a title", link="https://a.example"),)))
    assert (found.contexts, found.atoms[0].status) == ((), Status.NO_EVIDENCE)
    assert found.extra["stages"]["retrieve"] == {"queries": 1, "empty": 1}


def test_the_note_of_a_passage_stays_with_the_context():
    found = retrieved(case("one"), Source({}, (Passage(snippet="A bit.", note="the page answered 403"),)))
    assert case_to_dict(found)["contexts"][0]["note"] == "the page answered 403"


@pytest.mark.parametrize("k", [0, 1.5, "3", None])
def test_bad_settings(k):
    with pytest.raises(SettingsError, match="k is"):
        EvidenceSearch(k=k)


_passages = st.lists(st.sampled_from("abcdef"), max_size=4, unique=True).map(
    lambda names: tuple(Passage(text=name) for name in names)
)


@given(st.lists(st.one_of(_passages, st.just(Failure("timeout", "slow"))), min_size=1, max_size=6))
def test_whatever_is_found_makes_a_case(answers):
    """Every atom has what was found for it, every context is somebody's, and the case can be written and read."""
    texts = [f"atom {i}" for i in range(len(answers))]
    found = retrieved(case(*texts), Source(dict(zip(texts, answers, strict=True))))
    evidence = {context.id: context.evidence for context in found.contexts}
    assert len(set(evidence.values())) == len(evidence)
    for atom, answer in zip(found.atoms, answers, strict=True):
        if isinstance(answer, Failure):
            assert atom.status is Status.RETRIEVAL_FAILED
        else:
            assert [evidence[id] for id in atom.contexts] == [passage.text for passage in answer[:3]]
    assert {id for atom in found.atoms for id in atom.contexts or ()} == set(evidence)
    assert parse_case(case_to_dict(found)) == found
