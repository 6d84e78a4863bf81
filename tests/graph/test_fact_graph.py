"""Graph semantics of SPEC 2, seen from outside: what distribution does a case or a fact graph stand for?

A graph's arrays are given to the enumeration oracle and compared with the network that SPEC 2 asks for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given
from samples import atom, context, edge, fact_graphs, networks, settings_of

from fcjax import infer, most_probable
from fcjax.core.errors import InputError, SettingsError
from fcjax.core.records import Atom, Case, Context, MarkovModel, Relation, RelationType, Status
from fcjax.graph.fact_graph import FactGraph

B = 0.9  # the release's context prior


def answer(graph: FactGraph) -> oracle.Answer:
    """The exact answer for a built graph, merged duplicates included."""
    net = oracle.weights(graph.ids, graph.unary, graph.ends, graph.tables).observe(graph.evidence)
    log_z, p = oracle.enumerate_states(net)
    return oracle.Answer(log_z, p | {copy: p[kept] for copy, kept in graph.aliases.items()})


def same(graph: FactGraph, data: dict[str, Any], **priors: Any) -> None:
    """The graph stands for the same distribution as the fact graph `data`, up to and including Z."""
    expected = oracle.enumerate_states(oracle.network(data, **priors))
    got = answer(graph)
    assert got.log_z == pytest.approx(expected.log_z, abs=1e-9)
    assert {name: got.p[name] for name in expected.p} == pytest.approx(expected.p, abs=1e-12, nan_ok=True)


def says(source: str, target: str, type: str, p: float | None, status: Status = Status.OK) -> Relation:
    return Relation(source=source, target=target, type=RelationType(type), probability=p, status=status)


def case(atoms: str, contexts: str, *relations: Relation, **fields: Any) -> Case:
    """A case of atoms and contexts by name, each with a text of its own."""
    return Case(
        id="case",
        atoms=tuple(Atom(id=name, text=f"text of {name}") for name in atoms.split()),
        contexts=tuple(Context(id=name, text=f"text of {name}") for name in contexts.split()),
        relations=relations,
        **fields,
    )


# Factors and presets


@pytest.mark.parametrize(
    ("encoding", "type", "table"),
    [
        ("implication", "entailment", [[0.8, 0.8], [0.2, 0.8]]),
        ("implication", "contradiction", [[0.8, 0.8], [0.8, 0.2]]),
        ("implication", "equivalence", [[0.8, 0.2], [0.2, 0.8]]),
        ("conditional", "entailment", [[0.5, 0.5], [0.2, 0.8]]),
        ("conditional", "contradiction", [[0.5, 0.5], [0.8, 0.2]]),
        ("conditional", "equivalence", [[0.8, 0.2], [0.2, 0.8]]),
    ],
)
def test_factor_tables(encoding: str, type: str, table: list[list[float]]) -> None:
    graph = FactGraph.from_dict(
        {"nodes": [context("c", 0.9), atom("a")], "edges": [edge("c", "a", type, 0.8)]}, encoding=encoding
    )
    assert graph.tables[0] == pytest.approx(np.array(table))
    assert [graph.ids[v] for v in graph.ends[0]] == ["c", "a"]


@pytest.mark.parametrize(("other", "b"), [("context", 0.7), ("atom", 0.3)])
def test_b_is_the_context_prior_between_contexts_and_else_the_atom_prior(other: str, b: float) -> None:
    data = {
        "nodes": [context("c", 0.2), {"id": "x", "type": other, "probability": 0.6}],
        "edges": [edge("c", "x", "entailment", 0.8)],
    }
    graph = FactGraph.from_dict(data, encoding="conditional", context_prior=0.7, atom_prior=0.3)
    assert graph.tables[0] == pytest.approx(np.array([[1 - b, b], [0.2, 0.8]]))


def test_atom_to_atom_relations_use_the_atom_prior() -> None:
    data = {"nodes": [atom("a"), atom("b")], "edges": [edge("a", "b", "contradiction", 0.8)]}
    graph = FactGraph.from_dict(data, encoding="conditional", context_prior=0.7, atom_prior=0.3)
    assert graph.tables[0] == pytest.approx(np.array([[0.7, 0.3], [0.8, 0.2]]))


CHECKED = [  # SPEC 2, checked values: contexts' relations to the atom `a`, preset, P(a)
    ([("entailment", 0.9)], "release", 0.86),
    ([("contradiction", 0.9)], "release", 0.14),
    ([("entailment", 0.9), ("contradiction", 0.9)], "release", 0.5),
    ([("entailment", 0.9)] * 2, "release", 0.974183),
    ([("entailment", 0.9)] * 3, "release", 0.995704),
    ([("entailment", 0.9)] * 4, "release", 0.999298),
    ([("entailment", 0.9)] * 5, "release", 0.999886),
    ([("entailment", 0.8), ("contradiction", 0.9)], "paper", 0.317881),
]


@pytest.mark.parametrize(("relations", "preset", "p"), CHECKED)
def test_checked_values(relations: list[tuple[str, float]], preset: str, p: float) -> None:
    contexts = [f"c{i}" for i in range(len(relations))]
    row = case("a", " ".join(contexts), *(says(c, "a", *r) for c, r in zip(contexts, relations, strict=True)))
    assert answer(FactGraph.from_case(row, preset=preset)).p["a"] == pytest.approx(p, abs=1e-6)


def test_the_papers_second_example() -> None:
    relations = says("c1", "a", "entailment", 0.8), says("c2", "a", "contradiction", 0.9)
    row = case("a", "c1 c2 c3", *relations, says("c3", "c2", "contradiction", 0.9))
    assert answer(FactGraph.from_case(row)).p["a"] == pytest.approx(0.411596, abs=1e-6)


def test_paper_is_the_default_preset_and_every_number_can_be_set() -> None:
    row = case("a", "c", says("c", "a", "entailment", 0.8))
    data = {"nodes": [atom("a"), context("c", 0.99)], "edges": [edge("c", "a", "entailment", 0.8)]}
    same(FactGraph.from_case(row), data)
    same(FactGraph.from_case(row, preset="paper"), data)
    data["nodes"][1] = context("c", 0.9)
    same(FactGraph.from_case(row, preset="release"), data, encoding="conditional", context_prior=0.9)
    data["nodes"] = [atom("a", 0.3), context("c", 0.7)]
    graph = FactGraph.from_case(row, preset="paper", encoding="conditional", context_prior=0.7, atom_prior=0.3)
    same(graph, data, encoding="conditional", context_prior=0.7, atom_prior=0.3)


def test_a_context_may_carry_its_own_prior() -> None:
    contexts = (Context(id="c", text="x", prior=0.25), Context(id="d", text="y"), Context(id="e", text="z", prior=0.0))
    row = Case(id="1", atoms=(Atom(id="a", text="t"),), contexts=contexts, relations=())
    graph = FactGraph.from_case(row, preset="release")
    assert answer(graph).p == pytest.approx({"a": 0.5, "c": 0.25, "d": 0.9, "e": 0.0})


def test_a_summarys_confidence_scales_the_contexts_own_prior() -> None:
    own = Context(id="c", text="x", prior=0.5, summary_confidence=0.5)
    row = Case(id="1", atoms=(), contexts=(own, replace(own, id="d", text="y", prior=None)), relations=())
    graph = FactGraph.from_case(row, context_prior=0.9)
    assert answer(graph).p == pytest.approx({"c": 0.25, "d": 0.45})


def test_a_contexts_own_prior_is_not_b() -> None:
    """b is the default context prior, whatever the contexts' own priors are (SPEC 2)."""
    contexts = (Context(id="c", text="x", prior=0.25), Context(id="d", text="y", prior=0.35))
    row = Case(id="1", atoms=(), contexts=contexts, relations=(says("c", "d", "entailment", 0.8),))
    data = {"nodes": [context("c", 0.25), context("d", 0.35)], "edges": [edge("c", "d", "entailment", 0.8)]}
    same(FactGraph.from_case(row, preset="release"), data, encoding="conditional", context_prior=0.9)


def test_direction_matters_in_conditional_only() -> None:
    def p(source: str, target: str, preset: str) -> float:
        row = case("a b", "c d", says("c", "a", "entailment", 0.9), says(source, target, "contradiction", 0.8))
        return answer(FactGraph.from_case(row, preset=preset)).p["a"]

    assert p("c", "d", "paper") == pytest.approx(p("d", "c", "paper"), abs=1e-12)
    assert abs(p("c", "d", "release") - p("d", "c", "release")) > 1e-3


# The distribution of whole graphs


@given(fact_graphs(max_nodes=7, hard=True))
def test_from_dict_is_the_network_of_spec_2(data: dict[str, Any]) -> None:
    same(FactGraph.from_dict({k: data[k] for k in ("nodes", "edges")}, **settings_of(data)), data, **settings_of(data))


@given(networks(max_variables=6))
def test_bare_models_go_in_and_out(net: oracle.Network) -> None:
    factors: list[tuple[tuple[int, ...], tuple[float, ...]]] = []
    for v, row in enumerate(net.unary):
        factors.append(((v,), tuple(math.exp(x) for x in row)))
    factors += [(scope, tuple(math.exp(x) for x in table.ravel())) for scope, table in net.pairs]
    model = MarkovModel(names=net.ids, factors=tuple(factors), evidence={0: 1})
    graph = FactGraph.from_model(model)
    assert set(graph.kinds) == {"variable"}
    expected = oracle.enumerate_states(net.observe({"x0": True}))
    for built in (graph, FactGraph.from_model(graph.to_model())):
        got = answer(built)
        assert got.log_z == pytest.approx(expected.log_z, abs=1e-9)
        assert got.p == pytest.approx(expected.p, abs=1e-9, nan_ok=True)


def test_several_unary_factors_of_a_bare_model_multiply() -> None:
    model = MarkovModel(names=("x", "y"), factors=(((0,), (1.0, 3.0)), ((0,), (1.0, 2.0))))
    assert answer(FactGraph.from_model(model)).p == pytest.approx({"x": 6 / 7, "y": 0.5})


@pytest.mark.parametrize(
    ("tables", "log_z", "p"),
    [
        ([(1e-200, 3e-200), (1e-200, 1e-200)], math.log(4) - 400 * math.log(10), 0.75),
        ([(1e200, 1e200), (1e200, 1e200), (1e200, 3e200)], math.log(4) + 600 * math.log(10), 0.75),
        ([(1e-200, 1.0), (1e-200, 1.0), (1.0, 1e-200), (3.0, 1e-200)], math.log(4) - 400 * math.log(10), 0.25),
        ([(1e-200, 0.0), (1e-200, 1.0)], -400 * math.log(10), 0.0),
        ([(1e-320, 1.0)], 0.0, 1.0),
    ],
)
@pytest.mark.filterwarnings("error")
def test_unary_factors_of_a_bare_model_multiply_beyond_the_range_of_floats(
    tables: list[tuple[float, float]], log_z: float, p: float
) -> None:
    pair = ((0, 1), (1.0, 0.0, 0.0, 1.0))  # y is what x is
    model = MarkovModel(names=("x", "y"), factors=(*(((0,), table) for table in tables), pair))
    graph = FactGraph.from_model(model)
    for built in (graph, FactGraph.from_model(graph.to_model())):
        out = infer([built])[0]
        assert out.status == Status.OK
        assert out.log_z == pytest.approx(log_z, abs=1e-9)
        assert out.p["y"] == pytest.approx(p, abs=1e-12)
    (best,) = most_probable([graph])
    assert best.log_probability == pytest.approx(math.log(max(out.p["x"], 1 - out.p["x"])), abs=1e-9)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"names": ("x", "x")}, "names", "more than once"),
        ({"names": ("x", "")}, "names[1]", "non-empty string"),
        ({"names": ("x", ["y"])}, "names[1]", "non-empty string"),
        ({"evidence": {2: 1}}, "evidence", "a variable below 2"),
        ({"evidence": {-1: 1}}, "evidence", "a variable below 2"),
        ({"evidence": {0: 2}}, "evidence", "as 0 or 1"),
        ({"factors": (((0, 2), (1.0,) * 4),)}, "factors[0]", "below 2"),
        ({"factors": ((("x",), (1.0, 1.0)),)}, "factors[0]", "below 2"),
        ({"factors": (((0,), (1.0, "1")),)}, "factors[0]", "finite values"),
        ({"factors": (((0,), (1e-200, 1.0)),) * 2}, "variable 'x'", "e^921 apart"),
    ],
)
def test_a_bare_model_that_is_none_is_refused_by_name(change: dict[str, Any], field: str, message: str) -> None:
    fields: dict[str, Any] = {"names": ("x", "y"), "factors": (((0, 1), (1.0, 2.0, 3.0, 4.0)),), **change}
    with pytest.raises(InputError) as error:
        FactGraph.from_model(MarkovModel(**fields))
    (fault,) = error.value.faults
    assert fault.field == field
    assert message in fault.message


def test_factreasoners_names_are_accepted_and_defaults_fill_missing_priors() -> None:
    theirs = {
        "nodes": [{"id": "a", "type": "atom"}, {"id": "c", "type": "context"}],
        "edges": [{"from": "c", "to": "a", "relation": "entailment", "probability": 0.9, "link": "context_atom"}],
    }
    ours = {"nodes": [atom("a"), context("c", 0.9)], "edges": [edge("c", "a", "entailment", 0.9)]}
    same(
        FactGraph.from_dict(theirs, encoding="conditional", context_prior=0.9),
        ours,
        encoding="conditional",
        context_prior=0.9,
    )


@given(fact_graphs(max_nodes=6))
def test_to_dict_round_trip(data: dict[str, Any]) -> None:
    graph = FactGraph.from_dict({k: data[k] for k in ("nodes", "edges")}, **settings_of(data))
    again = FactGraph.from_dict(graph.to_dict(), **settings_of(data))
    assert answer(again).p == pytest.approx(answer(graph).p, abs=1e-12)


# Versions


def _versions() -> Case:
    """Two atoms with one own context each, relations of every kind."""
    return Case(
        id="case",
        atoms=(Atom(id="a", text="A", contexts=("c",)), Atom(id="b", text="B", contexts=("d",))),
        contexts=(Context(id="c", text="C"), Context(id="d", text="D")),
        relations=(
            says("c", "a", "entailment", 0.9),
            says("d", "a", "contradiction", 0.8),
            says("d", "b", "entailment", 0.7),
            says("b", "c", "contradiction", 0.6),  # from an atom to a context that is not its own
            says("c", "d", "entailment", 0.95),
            says("a", "b", "entailment", 0.85),
        ),
    )


@pytest.mark.parametrize(
    ("version", "kept"),
    [("FR1", [0, 2]), ("FR2", [0, 1, 2, 3]), ("FR3", [0, 1, 2, 3, 4]), (None, [0, 1, 2, 3, 4, 5])],
)
def test_versions_choose_relations(version: Any, kept: list[int]) -> None:
    row = _versions()
    assert row.relations is not None
    edges = [edge(r.source, r.target, str(r.type), r.probability or 0) for r in (row.relations[i] for i in kept)]
    data = {"nodes": [atom("a"), atom("b"), context("c", 0.99), context("d", 0.99)], "edges": edges}
    same(FactGraph.from_case(row, version=version), data)


def test_fr1_without_the_atoms_own_contexts_is_a_clear_error() -> None:
    with pytest.raises(InputError, match="contexts"):
        FactGraph.from_case(case("a", "c", says("c", "a", "entailment", 0.9)), version="FR1")


BOTH_ORDERS = [  # answers of (c, d) and of (d, c), and the relation that SPEC 2 makes of them
    (("entailment", 0.7), ("entailment", 0.9), ("c", "d", "equivalence", 0.9)),
    (("entailment", 0.9), ("entailment", 0.7), ("c", "d", "equivalence", 0.9)),
    (("entailment", 0.9), ("entailment", 0.9), ("c", "d", "equivalence", 0.9)),
    (("entailment", 0.9), ("contradiction", 0.7), ("c", "d", "entailment", 0.9)),
    (("entailment", 0.7), ("contradiction", 0.9), ("d", "c", "contradiction", 0.9)),
    (("entailment", 0.8), ("contradiction", 0.8), ("d", "c", "contradiction", 0.8)),
    (("contradiction", 0.8), ("entailment", 0.8), ("d", "c", "entailment", 0.8)),
    (("contradiction", 0.6), ("contradiction", 0.8), ("d", "c", "contradiction", 0.8)),
    (("equivalence", 0.6), ("equivalence", 0.8), ("d", "c", "equivalence", 0.8)),
    (("neutral", 0.9), ("entailment", 0.7), None),
    (("neutral", 0.7), ("entailment", 0.9), ("d", "c", "entailment", 0.9)),
    (("entailment", 0.8), ("neutral", 0.8), None),
    (("neutral", 0.8), ("entailment", 0.8), ("d", "c", "entailment", 0.8)),
    (("neutral", 0.8), ("neutral", 0.9), None),
]


@pytest.mark.parametrize(("forward", "reverse", "expected"), BOTH_ORDERS)
@pytest.mark.parametrize("reverse_first", [False, True])
def test_fr3_makes_one_relation_of_both_orders(
    forward: tuple[str, float], reverse: tuple[str, float], expected: Any, reverse_first: bool
) -> None:
    """Forward is the order in which the contexts stand in the case, wherever the answers stand among the relations."""
    both = [says("c", "d", *forward), says("d", "c", *reverse)]
    row = case("a", "c d", says("c", "a", "entailment", 0.9), *(both[::-1] if reverse_first else both))
    edges = [edge("c", "a", "entailment", 0.9)] + ([edge(*expected)] if expected else [])
    data = {"nodes": [atom("a"), context("c", 0.9), context("d", 0.9)], "edges": edges}
    same(FactGraph.from_case(row, preset="release", version="FR3"), data, encoding="conditional", context_prior=0.9)


def test_fr3_a_failed_answer_leaves_the_other_order() -> None:
    both = says("c", "d", "entailment", 0.6), says("d", "c", "contradiction", 0.9, Status.RELATION_FAILED)
    data = {"nodes": [context("c", 0.99), context("d", 0.99)], "edges": [edge("c", "d", "entailment", 0.6)]}
    same(FactGraph.from_case(case("", "c d", *both), version="FR3"), data)


# Duplicates, repeats, failures


def _texts(atoms: dict[str, str], contexts: dict[str, tuple[str, str]], *relations: Relation) -> Case:
    return Case(
        id="case",
        atoms=tuple(Atom(id=name, text=text) for name, text in atoms.items()),
        contexts=tuple(Context(id=name, snippet=s, text=t) for name, (s, t) in contexts.items()),
        relations=relations,
    )


def test_duplicate_atoms_are_one_variable() -> None:
    row = _texts(
        {"a": "same", "b": "other", "a2": "same"},
        {"c": ("", "C"), "d": ("", "D")},
        says("c", "a", "entailment", 0.9),
        says("d", "a2", "entailment", 0.8),
    )
    graph = FactGraph.from_case(row)
    assert dict(graph.aliases) == {"a2": "a"}
    edges = [edge("c", "a", "entailment", 0.9), edge("d", "a", "entailment", 0.8)]
    nodes = [atom("a"), atom("b"), context("c", 0.99), context("d", 0.99)]
    same(graph, {"nodes": nodes, "edges": edges})
    assert answer(graph).p["a2"] == answer(graph).p["a"]


def test_duplicate_contexts_are_those_with_equal_evidence() -> None:
    """Snippet and text joined as the relation model reads them, so a snippet may stand for a text."""
    row = _texts(
        {"a": "A"},
        {"c": ("the snippet", "the text"), "d": ("", "the snippet the text"), "e": ("the text", "the snippet")},
        *(says(name, "a", "entailment", 0.9) for name in "cde"),
    )
    graph = FactGraph.from_case(row)
    assert dict(graph.aliases) == {"d": "c"}
    edges = [edge("c", "a", "entailment", 0.9), edge("e", "a", "entailment", 0.9)]
    same(graph, {"nodes": [atom("a"), context("c", 0.99), context("e", 0.99)], "edges": edges})


def test_empty_contexts_are_never_duplicates() -> None:
    row = _texts({"a": "A"}, {"c": ("", ""), "d": ("", " ")}, *(says(name, "a", "entailment", 0.9) for name in "cd"))
    graph = FactGraph.from_case(row)
    assert not graph.aliases
    edges = [edge(name, "a", "entailment", 0.9) for name in "cd"]
    same(graph, {"nodes": [atom("a"), context("c", 0.99), context("d", 0.99)], "edges": edges})


@pytest.mark.parametrize("first", [0.9, 0.6])
def test_of_relations_made_parallel_by_merging_the_most_probable_is_kept(first: float) -> None:
    row = _texts(
        {"a": "A"},
        {"c": ("", "same"), "d": ("", "same")},
        says("c", "a", "entailment", first),
        says("d", "a", "contradiction", 0.7),
    )
    kept = ("entailment", 0.9) if first == 0.9 else ("contradiction", 0.7)
    same(FactGraph.from_case(row), {"nodes": [atom("a"), context("c", 0.99)], "edges": [edge("c", "a", *kept)]})


@pytest.mark.parametrize("order", [1, -1])
def test_a_neutral_answer_about_a_duplicate_says_nothing_against_a_statement(order: int) -> None:
    answers = [
        says("c", "a", "neutral", 0.99),
        says("d", "a", "entailment", 0.6),
        says("e", "a", "neutral", 0.95),
        says("e", "b", "neutral", 0.95),
    ]
    same_text = dict.fromkeys(("c", "d", "e"), ("", "same"))
    row = _texts({"a": "A", "b": "B"}, same_text, *answers[::order])
    expected = [edge("c", "a", "entailment", 0.6)]
    same(FactGraph.from_case(row), {"nodes": [atom("a"), atom("b"), context("c", 0.99)], "edges": expected})


def test_relations_that_the_input_repeats_multiply() -> None:
    repeated = says("c", "a", "entailment", 0.9)
    edges = [edge("c", "a", "entailment", 0.9)] * 3
    data = {"nodes": [atom("a"), context("c", 0.99)], "edges": edges}
    same(FactGraph.from_case(case("a", "c", repeated, repeated, repeated)), data)
    same(FactGraph.from_dict(data), data)


def test_a_relation_between_copies_of_one_text_says_nothing() -> None:
    row = _texts({"a": "A"}, {"c": ("", "same"), "d": ("", "same")}, says("c", "d", "contradiction", 0.9))
    same(FactGraph.from_case(row), {"nodes": [atom("a"), context("c", 0.99)], "edges": []})


def test_fr1_counts_the_contexts_of_a_duplicate_as_the_atoms_own() -> None:
    atoms = (Atom(id="a", text="same", contexts=("c",)), Atom(id="a2", text="same", contexts=("d2",)))
    contexts = (
        Context(id="c", text="C"),
        Context(id="d", text="D"),
        Context(id="d2", text="D"),
        Context(id="e", text="E"),
    )
    relations = tuple(says(name, "a", "entailment", 0.9) for name in ("c", "d", "e"))
    graph = FactGraph.from_case(Case(id="1", atoms=atoms, contexts=contexts, relations=relations), version="FR1")
    nodes = [atom("a"), *(context(name, 0.99) for name in "cde")]
    same(graph, {"nodes": nodes, "edges": [edge("c", "a", "entailment", 0.9), edge("d", "a", "entailment", 0.9)]})


def test_neutral_and_failed_relations_make_no_factor() -> None:
    failed = Relation(source="d", target="a", type=None, probability=None, status=Status.RELATION_FAILED)
    row = case("a", "c d e", says("c", "a", "entailment", 0.9), failed, says("e", "a", "neutral", 0.99))
    graph = FactGraph.from_case(row)
    assert len(graph.relations) == len(graph.tables) == 1
    nodes = [atom("a"), *(context(name, 0.99) for name in "cde")]
    same(graph, {"nodes": nodes, "edges": [edge("c", "a", "entailment", 0.9)]})


def test_an_empty_case_is_an_empty_graph() -> None:
    graph = FactGraph.from_case(Case(id="1", atoms=(), contexts=(), relations=()))
    assert len(graph) == 0
    assert graph.tables.shape == (0, 2, 2)


# Bad input


@pytest.mark.parametrize(
    "p", [1.2, -0.1, math.nan, math.inf, None, "0.9", True], ids=["1.2", "-0.1", "nan", "inf", "null", "string", "true"]
)
def test_a_bad_probability_names_the_field_and_what_was_seen(p: Any) -> None:
    nodes = [atom("a"), context("c", 0.9)]
    with pytest.raises(InputError) as error:
        FactGraph.from_dict({"nodes": nodes, "edges": [edge("c", "a", "entailment", p)]})
    assert error.value.faults[0].field == "edges[0].probability"
    assert repr(p) in str(error.value)


@pytest.mark.parametrize("p", [1.2, math.nan])
def test_a_bad_probability_in_a_case_names_the_case(p: float) -> None:
    with pytest.raises(InputError, match=r"'case'.*relations"):
        FactGraph.from_case(case("a", "c", says("c", "a", "entailment", p)))


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ({"edges": [edge("c", "x", "entailment", 0.9)]}, "edges[0].target"),
        ({"edges": [edge("c", "c", "entailment", 0.9)]}, "edges[0]"),
        ({"edges": [edge("c", "a", "supports", 0.9)]}, "edges[0].type"),
        ({"nodes": [atom("a"), atom("a")]}, "nodes"),
        ({"nodes": [{"id": "a", "type": "claim"}]}, "nodes[0].type"),
        ({"nodes": [{"id": "", "type": "atom"}]}, "nodes[0].id"),
        ({"nodes": [{"id": 7, "type": "atom"}]}, "nodes[0].id"),
        ({"nodes": [{"type": "atom"}]}, "nodes[0].id"),
        ({"nodes": None}, "nodes"),
        ({"nodes": [[]]}, "nodes"),
        ({"edges": {}}, "edges"),
    ],
)
def test_faults_of_a_fact_graph_name_their_field(broken: dict[str, Any], field: str) -> None:
    data: dict[str, Any] = {"nodes": [atom("a"), context("c", 0.9)], "edges": []}
    with pytest.raises(InputError) as error:
        FactGraph.from_dict({**data, **broken})
    assert field in [fault.field for fault in error.value.faults]


def test_every_fault_is_reported_at_once() -> None:
    nodes = [atom("a", 1.5), context("c", math.nan)]
    with pytest.raises(InputError) as error:
        FactGraph.from_dict({"nodes": nodes, "edges": [edge("c", "a", "entailment", 2), edge("c", "x", "odd", 0.5)]})
    assert len(error.value.faults) >= 4


@pytest.mark.parametrize(
    "row",
    [
        case("a", "c", says("c", "x", "entailment", 0.9)),
        case("a", "c", says("c", "c", "entailment", 0.9)),
        case("a a", "c"),
        case("a", "a"),
        # the atom `b` is merged into `a`, and `b` is a context too
        Case(id="case", atoms=(Atom(id="a", text="t"), Atom(id="b", text="t")), contexts=(Context(id="b", text="u"),)),
        Case(id="case", atoms=(), contexts=(Context(id="c", text="t", prior=1.5),), relations=()),
        *(
            Case(id="case", atoms=(Atom(id="a", text="t", contexts=own),), contexts=contexts, relations=())
            for own, contexts in (
                (("c", "d"), (Context(id="c", text="u"),)),
                (("c",), ()),
                (("c",), None),
                (("a",), ()),
            )
        ),
    ],
    ids=[
        *("unknown id", "self-relation", "two atoms of one id", "atom and context of one id", "merged", "bad prior"),
        *("unknown context", "no such context", "contexts not known", "an atom for a context"),
    ],
)
def test_bad_cases_are_refused_by_name(row: Case) -> None:
    with pytest.raises(InputError, match="case"):
        FactGraph.from_case(row)


HOSTILE: list[Any] = [["a"], {}, 7, None, b"a", "", math.nan, np.zeros(2), object()]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: type(value).__name__)
def test_values_of_any_type_are_told_by_field(value: Any) -> None:
    for data, field in (
        ({"nodes": [{"id": value, "type": "atom"}], "edges": []}, "nodes[0].id"),
        ({"nodes": [{"id": "a", "type": value}], "edges": []}, "nodes[0].type"),
        ({"nodes": [atom("a")], "edges": [edge(value, "a", "entailment", 0.5)]}, "edges[0].source"),
        ({"nodes": [atom("a")], "edges": [edge("a", "a", value, 0.5)]}, "edges[0].type"),
        ({"nodes": value, "edges": []}, "nodes"),
    ):
        with pytest.raises(InputError) as error:
            FactGraph.from_dict(data)
        assert field in [fault.field for fault in error.value.faults]
    with pytest.raises(InputError):
        FactGraph.from_dict(value)
    good = says("c", "a", "entailment", 0.9)
    for row, field in (
        (case("a", "c", replace(good, source=value)), "relations[0].source"),
        (case("a", "c", replace(good, type=value)), "relations[0]"),
        (case("a", "c", replace(good, probability=value)), "relations[0]"),
        (case("a", "c", replace(good, status=value)), "relations[0].status"),
        (replace(case("a", "c"), atoms=(Atom(id=value, text="t"),)), "atoms[0].id"),
        (replace(case("a", "c"), contexts=(Context(id=value, text="t"),)), "contexts[0].id"),
        (replace(case("a", "c"), relations=(value,)), "relations[0]"),
        (value, "case"),
    ):
        with pytest.raises(InputError) as error:
            FactGraph.from_case(row)
        assert field in [fault.field for fault in error.value.faults]
    for name in ("preset", "encoding", "context_prior", "atom_prior", "version"):
        if value is not None or name in ("preset", "atom_prior"):
            with pytest.raises(SettingsError, match=f"{name} is .*allowed"):
                FactGraph.from_case(case("a", "c"), **{name: value})


@pytest.mark.parametrize(
    "choice",
    [{"preset": "papers"}, {"version": "FR4"}, {"encoding": "table"}, {"context_prior": 1.5}, {"atom_prior": -1.0}],
)
def test_unknown_settings_say_what_is_allowed(choice: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="allowed"):
        FactGraph.from_case(case("a", "c"), **choice)
