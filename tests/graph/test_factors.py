"""The encoding `soft` (SPEC 2): tables, slopes, and the relations that make factors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import ANSWERS, atom, context, edge, settings_of, soft_graphs

from fcjax import infer
from fcjax.core.errors import InputError
from fcjax.core.records import Atom, Case, Context, Distribution, Relation, RelationType
from fcjax.graph.fact_graph import FactGraph
from fcjax.graph.factors import PRESETS, Encoding
from fcjax.io.files import parse_case


def soft(data: dict[str, Any], **priors: float) -> FactGraph:
    return FactGraph.from_dict(data, encoding="soft", **priors)


def pair(type: str, p: float, distribution: dict[str, float] | None = None) -> dict[str, Any]:
    """A context and what it says of an atom."""
    said = edge("c", "a", type, p) | ({} if distribution is None else {"distribution": distribution})
    return {"nodes": [context("c", 0.9), atom("a")], "edges": [said]}


def spread(entailment: float, contradiction: float, neutral: float) -> dict[str, float]:
    return dict(zip(ANSWERS, (entailment, contradiction, neutral), strict=True))


def solved(graph: FactGraph) -> oracle.Answer:
    return oracle.enumerate_states(oracle.weights(graph.ids, graph.unary, graph.ends, graph.tables))


@pytest.mark.parametrize(
    ("type", "distribution", "table"),
    [
        ("entailment", spread(0.7, 0.1, 0.2), [[1, 1], [0.3, 0.9]]),
        ("contradiction", spread(0.1, 0.7, 0.2), [[1, 1], [0.9, 0.3]]),
        ("neutral", spread(0.3, 0.1, 0.6), [[1, 1], [0.7, 0.9]]),
        ("equivalence", spread(0.7, 0.1, 0.2), [[1, 0.3], [0.3, 0.9]]),
        ("entailment", None, [[1, 1], [0.2, 0.9]]),
        ("contradiction", None, [[1, 1], [0.9, 0.2]]),
        ("neutral", None, [[1, 1], [0.9, 0.9]]),
        ("equivalence", None, [[1, 0.2], [0.2, 0.9]]),
    ],
)
def test_tables(type: str, distribution: dict[str, float] | None, table: list[list[float]]) -> None:
    """With a distribution it decides; with p = 0.8 alone the two other answers share 0.2."""
    assert soft(pair(type, 0.8, distribution)).tables[0] == pytest.approx(np.array(table))


@pytest.mark.parametrize("type", ANSWERS)
@pytest.mark.parametrize("answer", ["entailment", "contradiction"])
def test_a_certain_answer_is_the_hard_relation(type: str, answer: str) -> None:
    certain = spread(*(float(name == answer) for name in ANSWERS))
    hard = FactGraph.from_dict(pair(answer, 1.0), encoding="implication")
    assert solved(soft(pair(type, 0.8, certain))) == solved(hard)


@pytest.mark.parametrize("type", [*ANSWERS, "equivalence"])
def test_a_certain_neutral_is_no_relation(type: str) -> None:
    nothing = solved(soft({**pair(type, 0.8), "edges": []}))
    assert solved(soft(pair(type, 0.8, spread(0.0, 0.0, 1.0)))) == nothing


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(0, 1), st.floats(0, 1))
def test_a_lone_relation_has_the_closed_form_of_the_docs(pi: float, rho: float, first: float, second: float) -> None:
    e, c = first, (1 - first) * second
    data = pair("entailment", 0.8, spread(e, c, 1 - e - c))
    data["nodes"] = [context("c", pi), atom("a", rho)]
    true, false = rho * (1 - pi * c), (1 - rho) * (1 - pi * e)
    assert solved(soft(data)).p["a"] == pytest.approx(true / (true + false), abs=1e-12)


@given(soft_graphs())
def test_the_network_is_the_enumeration_over_variables_and_relations(data: dict[str, Any]) -> None:
    numbers = {key: data[key] for key in ("context_prior", "atom_prior")}
    expected, got = oracle.latent(data, **numbers), solved(FactGraph.from_dict(data, **settings_of(data)))
    assert got.log_z == pytest.approx(expected.log_z, abs=1e-6)
    assert got.p == pytest.approx(expected.p, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("type", [*ANSWERS, "equivalence"])
@pytest.mark.parametrize("distribution", [None, spread(0.5, 0.2, 0.3), spread(0.2, 0.0, 0.8), spread(0.1, 0.9, 0.0)])
def test_slopes_against_finite_differences(type: str, distribution: dict[str, float] | None) -> None:
    own = "entailment" if type == "equivalence" else type
    p = 0.6 if distribution is None else distribution[own]
    if distribution is not None and p == 0.0:
        return  # at an end there is no central difference; the slopes there are those of the influence's test

    def table(p: float) -> np.ndarray:
        q = distribution
        if q is not None:
            q = {name: p if name == own else share * (1 - p) / (1 - distribution[own]) for name, share in q.items()}
        return soft(pair(type, p, q)).tables[0]

    graph = soft(pair(type, p, distribution))
    assert graph.probabilities() == pytest.approx([p])
    assert graph.slopes()[0] == pytest.approx((table(p + 1e-4) - table(p - 1e-4)) / 2e-4, abs=1e-9)


def test_where_nothing_is_left_the_two_others_share_what_comes_free() -> None:
    graph = soft(pair("entailment", 1.0, spread(1.0, 0.0, 0.0)))
    assert graph.slopes()[0] == pytest.approx(np.array([[0, 0], [-1, 0.5]]))


@pytest.mark.parametrize("encoding", ["implication", "conditional"])
def test_the_other_encodings_do_not_read_the_distribution(encoding: Encoding) -> None:
    for type in ("entailment", "contradiction", "equivalence"):
        plain, distributed = pair(type, 0.8), pair(type, 0.8, spread(0.3, 0.3, 0.4))
        one, other = (FactGraph.from_dict(data, encoding=encoding) for data in (plain, distributed))
        assert (one.tables == other.tables).all()
        assert (one.slopes() == other.slopes()).all()
        assert other.probabilities() == [0.8]
    assert len(FactGraph.from_dict(pair("neutral", 0.8, spread(0.1, 0.1, 0.8)), encoding=encoding).ends) == 0


# The relations that make factors


def says(source: str, target: str, type: str, p: float, distribution: Distribution | None = None) -> Relation:
    return Relation(source=source, target=target, type=RelationType(type), probability=p, distribution=distribution)


def case(*relations: Relation, same: tuple[str, ...] = ()) -> Case:
    """An atom `a` and contexts c, d and e, those of `same` with one text."""
    contexts = tuple(Context(id=name, text="one" if name in same else f"text of {name}") for name in "cde")
    atoms = (Atom(id="a", text="A.", contexts=("c",)),)
    return Case(id="case", atoms=atoms, contexts=contexts, relations=relations)


def said(graph: FactGraph) -> list[tuple[str, str, str, float | None]]:
    return [(r.source, r.target, str(r.type), r.probability) for r in graph.relations]


def test_neutral_relations_make_factors_under_soft_alone() -> None:
    row = case(says("c", "a", "neutral", 0.8), says("d", "a", "entailment", 0.7))
    for encoding in get_args(Encoding):
        kept = said(FactGraph.from_case(row, encoding=encoding))
        assert kept == [("c", "a", "neutral", 0.8)] * (encoding == "soft") + [("d", "a", "entailment", 0.7)]


def test_versions_choose_the_same_relations_as_in_the_other_encodings_and_neutral_ones() -> None:
    row = case(
        says("c", "a", "neutral", 0.8),
        says("d", "a", "contradiction", 0.7),
        says("c", "d", "entailment", 0.6, (0.6, 0.3, 0.1)),
        says("d", "c", "entailment", 0.9, (0.9, 0.1, 0.0)),
        says("d", "e", "neutral", 0.8),
        says("e", "d", "entailment", 0.7),
        says("c", "e", "neutral", 0.7),
        says("e", "c", "contradiction", 0.8),
    )

    def kept(version: Any) -> list[tuple[str, str, str, float | None]]:
        return said(FactGraph.from_case(row, encoding="soft", version=version))

    own, others = ("c", "a", "neutral", 0.8), ("d", "a", "contradiction", 0.7)
    between = [("d", "c", "equivalence", 0.9), ("d", "e", "neutral", 0.8), ("e", "c", "contradiction", 0.8)]
    assert kept("FR1") == [own]
    assert kept("FR2") == [own, others]
    assert kept("FR3") == [own, others, *between]
    table = FactGraph.from_case(row, encoding="soft", version="FR3").tables[2]
    assert table == pytest.approx(np.array([[1, 0.1], [0.1, 0.9]]))  # of the more probable answer's distribution


def test_of_relations_that_merging_made_parallel_neutral_ones_win_over_each_other_only() -> None:
    pairs = says("c", "a", "neutral", 0.9), says("d", "a", "entailment", 0.4)
    assert said(FactGraph.from_case(case(*pairs, same=("c", "d")), encoding="soft")) == [("c", "a", "entailment", 0.4)]
    pairs = says("c", "a", "neutral", 0.6), says("d", "a", "neutral", 0.9)
    assert said(FactGraph.from_case(case(*pairs, same=("c", "d")), encoding="soft")) == [("c", "a", "neutral", 0.9)]


def test_release_cli_is_implication_with_the_releases_context_prior() -> None:
    assert PRESETS["release-cli"] == ("implication", 0.9)
    row = case(says("c", "a", "entailment", 0.9))
    graph = FactGraph.from_case(row, preset="release-cli")
    assert solved(graph).p["a"] == pytest.approx(5 / 6)


# As JSON


@given(soft_graphs())
def test_a_graph_as_json_is_the_same_graph(data: dict[str, Any]) -> None:
    graph = FactGraph.from_dict(data, **settings_of(data))
    again = FactGraph.from_dict(graph.to_dict(), **settings_of(data))
    assert again.relations == graph.relations
    assert (again.tables == graph.tables).all()
    assert [row["type"] for row in graph.to_dict()["edges"]] == [row["type"] for row in data["edges"]]
    net = FactGraph.from_model(graph.to_model())
    assert solved(net).p == pytest.approx(solved(graph).p, nan_ok=True)


@pytest.mark.parametrize(
    "value",
    [
        [0.7, 0.1, 0.2],
        {"entailment": 0.7, "contradiction": 0.3},
        spread(0.7, 0.1, 0.9),
        spread(1.6, -0.8, 0.2),
        "x",
        True,
    ],
)
def test_a_faulty_distribution_of_an_edge_is_the_fault_of_its_field(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        soft(pair("entailment", 0.7, value))
    assert [fault.field for fault in caught.value.faults] == ["edges[0].distribution"]
    assert "add up to 1" in str(caught.value)


@pytest.mark.parametrize("value", [(0.7, 0.3), (0.7, 0.1, 0.9), (1.6, -0.8, 0.2), (float("nan"),) * 3, [0.7, 0.1, 0.2]])
def test_a_faulty_distribution_of_a_relation_is_refused(value: Any) -> None:
    row = case(replace(says("c", "a", "entailment", 0.7), distribution=value))
    with pytest.raises(InputError, match=r"relations\[0\].*add up to 1"):
        FactGraph.from_case(row, encoding="soft")


@pytest.mark.parametrize("type", ["entailment", "contradiction"])
@pytest.mark.parametrize("preset", ["paper", "release", "release-cli"])
def test_an_answer_less_likely_than_not_does_not_say_the_opposite(type: str, preset: str) -> None:
    """0.41 is the likeliest of three; in a table of one probability it would refute what it is said to support."""
    told = {"entailment": 0.3, "contradiction": 0.3, "neutral": 0.29, type: 0.41}
    edge = {"source": "c", "target": "a", "type": type, "probability": 0.41, "distribution": told}
    data = {"id": "1", "atoms": [{"id": "a", "text": "A."}], "contexts": [{"id": "c", "text": "C."}]}
    unsure, given = (parse_case({**data, "relations": [one]}) for one in (edge, {**edge, "distribution": None}))
    (out,) = infer([FactGraph.from_case(unsure, preset=preset)])
    assert out.p["a"] == pytest.approx(0.5, abs=1e-12)
    (soft,) = infer([FactGraph.from_case(unsure, preset=preset, encoding="soft")])
    assert (soft.p["a"] > 0.5) is (type == "entailment")
    (bare,) = infer([FactGraph.from_case(given, preset=preset)])
    assert bare.p["a"] != pytest.approx(0.5, abs=1e-3)  # a probability that came with the case is used as it is
