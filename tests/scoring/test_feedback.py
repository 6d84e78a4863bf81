"""Feedback (SPEC 6): on graphs by hand, and properties of every case."""

from __future__ import annotations

import json
from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import TYPES

from fcjax.core.errors import SettingsError
from fcjax.core.limits import Limits
from fcjax.core.records import Label, RelationType, Status
from fcjax.graph.fact_graph import FactGraph
from fcjax.inference.engine import infer
from fcjax.inference.influence import influences
from fcjax.io.files import parse_case
from fcjax.scoring import feedback as module
from fcjax.scoring.feedback import feedback, feedbacks
from fcjax.scoring.findings import Feedback
from fcjax.scoring.rows import case_row, unscored_row

PRINT = "f" * 32


def says(source, target, type="entailment", probability=0.9, **more):
    return {"source": source, "target": target, "type": type, "probability": probability, **more}


def against(source, target, probability=0.9):
    return says(source, target, "contradiction", probability)


def case(atoms, contexts=(), relations=(), **more):
    """A case of bare ids; an atom or context may be a dict that says more."""
    return parse_case(
        {
            "id": "x",
            "atoms": [a if isinstance(a, dict) else {"id": a, "text": f"the claim of {a}"} for a in atoms],
            "contexts": [c if isinstance(c, dict) else {"id": c, "text": f"the text of {c}"} for c in contexts],
            "relations": list(relations),
            **more,
        }
    )


def scored(case, limits=None, effort="tight", **graph):
    built = FactGraph.from_case(case, **graph)
    (posterior,) = infer([built], effort, limits=limits)
    return case, built, case_row(case, built, posterior, k=2, version=graph.get("version"), fingerprint=PRINT)


def feedback_on(case, **graph):
    (found,) = feedbacks([scored(case, **graph)])
    return found


def names(findings):
    return [found.atom for found in findings]


def relations_of(finding):
    return [(given.source, given.target, str(given.type), given.probability) for given in finding.evidence]


# Algorithm 1, line by line: feedback = atoms labelled refuted or unverified, plus, for every refuted atom, all
# contexts connected to it in the graph with their relation types and probabilities.


def test_refuted_and_unverified_atoms_in_the_order_of_the_response():
    found = feedback_on(
        case(["s", "r", "u", "q"], ["c", "d", "e"], [says("c", "s"), against("d", "r"), against("e", "q", 0.7)])
    )
    assert names(found.findings) == ["r", "u", "q"]
    assert names(found.refuted) == ["r", "q"]
    assert names(found.unverified) == ["u"]
    assert (found.n_atoms, found.n_failed, found.status) == (4, 0, Status.OK)
    assert found.refuted[0].p == pytest.approx(0.108 / 1.008, abs=1e-6)  # 0.01 * 0.9 + 0.99 * 0.1 against 0.9
    assert found.refuted[0].certain
    assert found.refuted[0].lower < found.refuted[0].p < found.refuted[0].upper


def test_all_contexts_of_a_refuted_atom_and_no_others():
    relations = [
        against("c0", "a", 0.95),
        says("c1", "a", probability=0.6),
        says("a", "c2", probability=0.55),  # from the atom to the context
        says("a", "c3", "equivalence", 0.5),
        says("c4", "a", "neutral", 0.99),
        against("a", "c5", 0.8),
        against("c6", "b", 0.9),
        against("c7", "c0", 0.6),  # connected to a passage, not to the atom
    ]
    found = feedback_on(case(["a", "b"], [f"c{i}" for i in range(9)], relations))
    a, b = found.refuted
    assert {given.context for given in a.evidence} == {"c0", "c1", "c2", "c3", "c5"}
    assert sorted(relations_of(a)) == [
        ("a", "c2", "entailment", 0.55),
        ("a", "c3", "equivalence", 0.5),
        ("a", "c5", "contradiction", 0.8),
        ("c0", "a", "contradiction", 0.95),
        ("c1", "a", "entailment", 0.6),
    ]
    assert {given.context: given.says for given in a.evidence} == {
        "c0": "contradicts it",
        "c1": "entails it",
        "c2": "is entailed by it",
        "c3": "says the same",
        "c5": "contradicts it",
    }
    assert {given.context for given in a.by_side("against")} == {"c0", "c5"}
    assert {given.context for given in a.by_side("for")} == {"c1", "c2", "c3"}
    assert relations_of(b) == [("c6", "b", "contradiction", 0.9)]


def test_unverified_atoms_come_without_contexts():
    """For and against in equal parts: a tie."""
    found = feedback_on(case(["a"], ["c", "d"], [says("c", "a"), against("d", "a")], id="tie"), preset="release")
    assert names(found.unverified) == ["a"]
    assert found.unverified[0].evidence == ()
    assert found.order is None


def test_relations_between_atoms_are_not_evidence():
    found = feedback_on(case(["a", "b"], ["c"], [says("c", "a", probability=0.99), against("a", "b", 0.99)]))
    assert names(found.refuted) == ["b"]
    assert found.refuted[0].evidence == ()
    assert "No passage speaks of this statement itself" in found.text()


@pytest.mark.parametrize(
    ("version", "contexts"),
    [("FR1", {"c"}), ("FR2", {"c", "d"}), ("FR3", {"c", "d"}), (None, {"c", "d"})],
)
def test_the_graph_is_that_of_the_version(version, contexts):
    atoms = [{"id": "a", "text": "t", "contexts": ["c"]}]
    relations = [against("c", "a", 0.95), says("d", "a", probability=0.6), says("e", "d"), says("d", "e")]
    found = feedback_on(case(atoms, ["c", "d", "e"], relations), version=version)
    assert {given.context for given in found.refuted[0].evidence} == contexts
    assert [group.why for group in found.repeated] == (["equivalent"] if version == "FR3" else [])
    alike = {given.context: given.repeats for given in found.refuted[0].evidence}
    assert alike.get("d", ()) == (("e",) if version == "FR3" else ())


def test_failed_atoms_are_in_no_feedback():
    atoms = ["r", "lost", {"id": "f", "text": "t", "status": "refused"}]
    failed = says("c", "lost", None, None, status="relation_failed")
    found = feedback_on(case(atoms, ["c"], [against("c", "r"), failed]))
    assert names(found.findings) == ["r"]
    assert (found.n_atoms, found.n_failed) == (1, 2)
    assert "2 statements could not be assessed" in found.text()


def test_an_atom_without_evidence_is_unverified():
    found = feedback_on(case([{"id": "a", "text": "t", "contexts": []}], [], []))
    assert names(found.unverified) == ["a"]


def test_a_case_that_failed_has_no_verdict():
    contradiction = case(
        ["a"], [{"id": "c", "text": "t", "prior": 1.0}], [says("c", "a", probability=1.0), against("c", "a", 1.0)]
    )
    found = feedback_on(contradiction)
    assert (found.status, found.findings, found.n_atoms, found.n_failed) == (Status.INCONSISTENT, (), 0, 1)
    assert found.text().startswith("No verdict (inconsistent): ")
    assert "refuted" not in repr(found)

    row = unscored_row("x", Status.INVALID_INPUT, "line 3: no", PRINT, contradiction.atoms)
    (found,) = feedbacks([(contradiction, None, row)])
    assert (found.status, found.reason, found.n_failed) == (Status.INVALID_INPUT, "line 3: no", 1)
    assert found == feedback(contradiction, None, row)


def test_the_kept_atom_stands_for_its_merged_duplicates():
    atoms = [{"id": "a", "text": "same"}, {"id": "b", "text": "other"}, {"id": "a2", "text": "same "}]
    contexts = [
        {"id": "c", "text": "one text", "link": "http://first"},
        {"id": "d", "text": "one text", "title": "Second", "link": "http://second"},
        {"id": "e", "text": "one text", "link": "http://first", "links": ["http://third", 3]},
        {"id": "f", "text": "and another"},
    ]
    found = feedback_on(case(atoms, contexts, [against("d", "a2", 0.95), against("f", "a", 0.8), says("e", "b")]))
    (a,) = found.refuted
    assert (a.atom, a.duplicates) == ("a", ("a2",))
    assert found.n_atoms == 2
    c, f = sorted(a.evidence, key=lambda given: given.context)
    assert (c.context, c.source, c.target, c.probability) == ("c", "c", "a", 0.95)
    assert (c.title, c.links, c.link) == ("Second", ("http://first", "http://second", "http://third"), "http://first")
    assert c.repeats == ("d", "e")
    assert (f.context, f.title, f.links, f.link, f.repeats) == ("f", None, (), None, ())
    assert [(group.contexts, group.why) for group in found.repeated] == [(("c", "d", "e"), "same text")]


def test_passages_that_take_the_other_side_do_not_repeat_each_other():
    words = "the tower was opened to all of its visitors in the spring of the year after the exhibition had ended so it"
    contexts = [
        {"id": c, "text": f"{words} stands {end}"} for c, end in (("c", "330 m"), ("d", "500 m"), ("e", "331 m"))
    ]
    found = feedback_on(case(["a"], contexts, [against("c", "a", 0.95), says("d", "a", probability=0.6)]))
    assert [group.contexts for group in found.repeated] == [("c", "d", "e")]
    assert {given.context: given.repeats for given in found.refuted[0].evidence} == {"c": ("e",), "d": ("e",)}


# the order of the evidence


def weak_but_moving():
    """A passage that is hardly believed says more than one that is."""
    contexts = [{"id": "doubted", "text": "one", "prior": 0.1}, {"id": "believed", "text": "two", "prior": 0.99}]
    relations = [against("doubted", "a", 0.95), against("believed", "a", 0.9)]
    return case(["a"], contexts, relations)


def test_evidence_is_ordered_by_influence():
    parts = scored(weak_but_moving())
    (found,) = feedbacks([parts])
    assert found.order == "influence"
    assert [given.context for given in found.refuted[0].evidence] == ["believed", "doubted"]
    (influence,) = influences([parts[1]])
    truth = dict(zip([r.source for r in influence.relations], influence.values[0].tolist(), strict=True))
    assert {given.context: given.influence for given in found.refuted[0].evidence} == pytest.approx(truth, abs=1e-7)
    assert feedback(*parts, influence) == found


def test_without_influence_it_is_ordered_by_probability(monkeypatch):
    parts = scored(weak_but_moving())
    found = feedback(*parts)
    assert found.order == "probability"
    assert [given.context for given in found.refuted[0].evidence] == ["doubted", "believed"]
    assert {given.influence for given in found.refuted[0].evidence} == {None}
    monkeypatch.setattr(module, "WORK", 0)
    assert feedbacks([parts]) == [found]


def test_a_graph_too_wide_for_influence_is_ordered_by_probability():
    atoms = [f"a{i}" for i in range(6)]
    contexts = [f"c{i}" for i in range(8)]
    rng = np.random.default_rng(0)
    parts = scored(case(atoms, contexts, [against(c, a, float(rng.uniform(0.5, 1))) for c in contexts for a in atoms]))
    (by_influence,) = feedbacks([parts])
    (by_probability,) = feedbacks([parts], Limits(exact_width=3))
    assert (by_influence.order, by_probability.order) == ("influence", "probability")
    for found, other in zip(by_influence.refuted, by_probability.refuted, strict=True):
        assert {given.context for given in found.evidence} == set(contexts)
        moved = [abs(given.influence) for given in found.evidence]
        assert moved == sorted(moved, reverse=True)
        probable = [given.probability for given in other.evidence]
        assert probable == sorted(probable, reverse=True)
        assert {replace(given, influence=None) for given in found.evidence} == set(other.evidence)


def test_a_searched_graph_does_not_delay_a_run():
    """So wide that its influences would take minutes, if they were asked for."""
    rng = np.random.default_rng(0)
    atoms, contexts = [f"a{i}" for i in range(40)], [f"c{i}" for i in range(60)]
    relations = [
        says(c, a, str(rng.choice(TYPES[:2], p=[0.2, 0.8])), float(rng.uniform(0.5, 1)))
        for c in contexts
        for a in atoms
        if rng.random() < 0.5
    ]
    parts = scored(case(atoms, contexts, relations), effort="fast")
    assert parts[2]["diagnostics"]["method"] == "conditioned"
    begin = process_time()
    (found,) = feedbacks([parts])
    assert process_time() - begin < 2
    assert found.order == "probability"
    assert found.refuted


def test_relations_of_probability_0_and_1_have_an_influence():
    relations = [against("c", "a", 1.0), says("d", "a", probability=0.0), against("e", "a", 0.7)]
    parts = scored(case(["a"], ["c", "d", "e"], relations))
    (found,) = feedbacks([parts])
    (exact,) = influences([parts[1]])
    truth = dict(zip([r.source for r in exact.relations], exact.values[0].tolist(), strict=True))
    assert found.order == "influence"
    assert {given.context: given.influence for given in found.refuted[0].evidence} == pytest.approx(truth, abs=1e-5)


def test_neutral_relations_are_no_evidence_in_soft_and_the_others_have_their_influence():
    def distributed(name, type, *q):
        answers = zip(("entailment", "contradiction", "neutral"), q, strict=True)
        return says(name, "a", type, max(q), distribution=dict(answers))

    relations = [
        distributed("c", "contradiction", 0.0, 1.0, 0.0),
        distributed("d", "entailment", 0.6, 0.3, 0.1),
        distributed("e", "neutral", 0.1, 0.2, 0.7),
    ]
    parts = scored(case(["a"], ["c", "d", "e"], relations), encoding="soft")
    (found,) = feedbacks([parts])
    (exact,) = influences([parts[1]])
    assert [r.source for r in exact.relations] == ["c", "d", "e"]
    truth = dict(zip("cde", exact.values[0].tolist(), strict=True))
    del truth["e"]
    assert found.order == "influence"
    # the certain one is moved inside by a millionth
    assert {given.context: given.influence for given in found.refuted[0].evidence} == pytest.approx(truth, abs=5e-5)


def test_the_influence_of_another_graph_is_refused():
    parts = scored(weak_but_moving())
    _, other, _ = scored(case(["a"], ["c"], [against("c", "a")]))
    (influence,) = influences([other])
    with pytest.raises(SettingsError, match="1 relation from another graph"):
        feedback(*parts, influence)


def test_an_influence_of_other_atoms_orders_nothing():
    parts = scored(case(["a", "b"], ["c", "d"], [against("c", "a"), says("d", "b")]))
    (influence,) = influences([parts[1]], atoms=[["b"]])
    assert feedback(*parts, influence).order == "probability"


def test_many_cases_at_once_equal_each_alone():
    cases = [
        weak_but_moving(),
        case(["a"], ["c"], [says("c", "a")]),
        case([], [], []),
        case(["a", "b"], ["c", "d"], [against("c", "a"), against("d", "b"), says("d", "a", probability=0.6)]),
    ]
    parts = [scored(one) for one in cases]
    assert feedbacks(parts) == [feedbacks([one])[0] for one in parts]
    assert feedbacks([]) == []


# how it reads


def tower():
    return case(
        [
            {"id": "a0", "text": "The Eiffel Tower is 500 metres tall.", "original": "It is 500 metres tall."},
            {"id": "a1", "text": "The Eiffel Tower is popular."},
            {"id": "a2", "text": "The Eiffel Tower stands\nin Paris."},
        ],
        [
            {
                "id": "c0",
                "title": "Eiffel Tower",
                "link": "https://example.org/tower",
                "text": "A page about much else. " * 40 + "The tower is 330 metres\n\n tall <b>today</b>.",
            },
            {"id": "c1", "text": "500 metres, they say.\x07", "link": "javascript:alert(1)"},
        ],
        [against("c0", "a0", 0.98), says("c1", "a0", probability=0.6), says("c0", "a2")],
    )


def test_text():
    text = feedback_on(tower()).text(excerpt=60)
    assert text == (
        "3 statements: 1 refuted, 1 unverified, 1 supported\n"
        "\n"
        "Refuted statements:\n"
        "\n"
        "1. The Eiffel Tower is 500 metres tall.\n"
        "   In the response: It is 500 metres tall.\n"
        "   Probability of being true: 0.05\n"
        "   Contradicted by:\n"
        "   - [c0] Eiffel Tower, https://example.org/tower: contradicts it, probability 0.98\n"
        "     …much else. The tower is 330 metres tall <b>today</b>.\n"
        "   Entailed by:\n"
        "   - [c1] javascript:alert(1): entails it, probability 0.60\n"
        "     500 metres, they say.\n"
        "\n"
        "Unverified statements:\n"
        "\n"
        "2. The Eiffel Tower is popular.\n"
        "   Probability of being true: 0.50\n"
    )


def test_text_of_many_passages():
    contexts = [{"id": f"c{i}", "text": f"passage {i}"} for i in range(5)]
    both = [against(f"c{i}", "a") for i in range(5)] + [says("a", "c0", probability=0.5)]
    text = feedback_on(case(["a"], contexts, both)).text(most=2)
    assert "   - and 3 more\n" in text
    assert text.count("     passage 0\n") == 1  # it is on both sides
    assert "[c0] c0: is entailed by it, probability 0.50\n" in text
    assert (
        feedback_on(case(["a"], ["c"], [says("c", "a")])).text()
        == "1 statement: 0 refuted, 0 unverified, 1 supported\n"
    )
    assert Feedback().text() == "no statements: 0 refuted, 0 unverified, 0 supported\n"


def test_an_excerpt_is_where_the_passage_speaks_of_the_statement():
    long = "埃" * 700 + "埃菲尔铁塔高三百三十米。" + "塔" * 700
    found = feedback_on(case([{"id": "a", "text": "铁塔高五百米。"}], [{"id": "c", "text": long}], [against("c", "a")]))
    assert "铁塔高三百三十米" in found.text(excerpt=40)
    assert long in found.text(excerpt=None)


def test_labels_that_are_not_certain_show_their_interval():
    (a,) = feedback_on(weak_but_moving()).refuted
    found = Feedback(findings=(replace(a, p=0.499, lower=0.2, upper=0.9, certain=False),), n_atoms=1)
    assert "0.49900 (from 0.20 to 0.90: not certain)" in found.text()


def test_json():
    found = feedback_on(tower())
    row = found.to_dict()
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert list(row) == ["order", "findings", "contexts", "repeated"]
    assert row["order"] == "influence"
    assert [context["id"] for context in row["contexts"]] == ["c0", "c1"]
    assert row["contexts"][0]["links"] == ["https://example.org/tower"]
    assert row["contexts"][0]["text"].startswith("A page")
    assert "text" not in found.to_dict(texts=False)["contexts"][0]
    first = row["findings"][0]
    assert (first["atom"], first["label"], first["original"]) == ("a0", "refuted", "It is 500 metres tall.")
    assert first["evidence"][0]["type"] == "contradiction"
    assert first["evidence"][0]["side"] == "against"
    assert row["findings"][1]["evidence"] == []
    numbers = [given[key] for given in first["evidence"] for key in ("probability", "influence")] + [first["p"]]
    assert numbers == [round(number, 7) for number in numbers]


def test_a_notebook_shows_a_table_and_runs_nothing():
    found = feedback_on(tower())
    assert repr(found) == "Feedback(3 statements: 1 refuted, 1 unverified, 1 supported; 2 relations by influence)"
    page = found._repr_html_()
    assert page.count("<table>") == 1
    assert "href='https://example.org/tower'" in page
    assert "href='javascript" not in page
    assert "<b>today</b>" not in page
    assert "&lt;b&gt;today&lt;/b&gt;" in page
    assert "<script" not in feedback_on(case([{"id": "a", "text": "<script>"}], [], []))._repr_html_()
    many = feedback_on(case(["a"], [f"c{i}" for i in range(9)], [against(f"c{i}", "a") for i in range(9)]))
    assert "and 4 more" in many._repr_html_()


# what holds of every case


@st.composite
def cases(draw):
    atoms = [f"a{i}" for i in range(draw(st.integers(1, 5)))]
    contexts = [f"c{i}" for i in range(draw(st.integers(0, 5)))]
    texts = st.sampled_from(["one", "two", "three", "four", "five", "six"])
    ends = st.tuples(st.sampled_from(atoms + contexts), st.sampled_from(atoms + contexts)).filter(
        lambda pair: pair[0] != pair[1]
    )
    relations = []
    if len(atoms + contexts) > 1:
        for source, target in draw(st.lists(ends, max_size=12)):
            p = draw(st.sampled_from([0.0, 0.3, 0.5, 0.8, 0.9, 1.0]))
            kind = draw(st.sampled_from((*TYPES, "contradiction", "neutral", None)))
            failed = {"status": "relation_failed"} if kind is None else {}
            relations.append(says(source, target, kind, None if kind is None else p, **failed))
    own = st.lists(st.sampled_from(contexts), max_size=3, unique=True) if contexts else st.just([])
    return case(
        [{"id": a, "text": draw(texts), "contexts": draw(own)} for a in atoms],
        [{"id": c, "text": draw(texts), "link": draw(st.sampled_from([None, "l1", "l2"]))} for c in contexts],
        relations,
    )


@settings(max_examples=150, deadline=None)
@given(
    drawn=cases(),
    version=st.sampled_from([None, "FR1", "FR2", "FR3"]),
    encoding=st.sampled_from(["implication", "conditional", "soft"]),
)
def test_feedback_of_every_case(drawn, version, encoding):
    parts = _, graph, row = scored(drawn, version=version, encoding=encoding)
    (found,) = feedbacks([parts])
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.text()
    assert found._repr_html_()
    assert found.status == row["status"]
    by_id = {atom["id"]: atom for atom in row["atoms"]}
    wanted = [a["id"] for a in row["atoms"] if a["label"] in ("refuted", "unverified") and "duplicate_of" not in a]
    assert names(found.findings) == wanted  # so every refuted atom, and no supported, failed or merged one
    assert found.n_atoms + found.n_failed + sum("duplicate_of" in a for a in row["atoms"]) == len(row["atoms"])
    contexts = {context.id for context in drawn.contexts}
    for finding in found.findings:
        assert finding.label == by_id[finding.atom]["label"] == Label.of(finding.p)
        neighbours = sorted(
            (r.source, r.target, str(r.type), r.probability)
            for r in graph.relations
            if finding.atom in (r.source, r.target) and {r.source, r.target} & contexts and r.type != "neutral"
        )
        assert sorted(relations_of(finding)) == (neighbours if finding.label is Label.REFUTED else [])
        for evidence in finding.evidence:
            assert evidence.context in graph.ids
            assert evidence.type is not RelationType.NEUTRAL
            assert (evidence.influence is None) == (found.order == "probability")
    members = [name for group in found.repeated for name in group.contexts]
    assert len(members) == len(set(members))
    assert contexts.issuperset(members)
