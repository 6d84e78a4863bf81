"""What may be read off an answer, whatever rounding the sums behind it have (SPEC 4)."""

from __future__ import annotations

import numpy as np
from samples import atom, context, edge

from fcjax import Atom, Case, Context, FactGraph, InputError, Posterior, Relation, RelationType, Status, infer
from fcjax.inference.posterior import Solution


def test_probabilities_never_leave_the_unit_interval() -> None:
    nodes = [atom(name) for name in "abc"]
    graph = FactGraph.from_dict({"nodes": nodes, "edges": [edge("a", "b", "equivalence", 1.0)]})
    solution = Solution(
        node_ptr=[0, 3],
        p=np.array([1 + 4e-12, -4e-12, 0.25]),  # as far off as sums of float64 have been seen to be
        lower=None,
        upper=None,
        log_z=np.zeros(1),
        width=np.ones(1, np.int32),
        status=[Status.OK],
        method=["exact"],
        reason={},
        gap=np.zeros(1),
        rows=np.ones(1, np.int64),
        cutset=np.zeros(1, np.int32),
        factor_ptr=[0, 1],
        pairs=np.array([[[-4e-12, 0.0], [0.0, 1 + 4e-12]]]),
    )
    out = Posterior(graph, solution, 0)
    assert list(out.p.values()) == [1.0, 0.0, 0.25]
    assert out.pairs.tolist() == [[[0.0, 0.0], [0.0, 1.0]]]
    assert all(out.lower[name] <= out.p[name] <= out.upper[name] for name in "abc")


def test_evidence_that_contradicts_itself_names_both_ids() -> None:
    says = Relation(source="c", target="a", type=RelationType.ENTAILMENT, probability=1.0)
    case = Case(
        id="x",
        atoms=(Atom(id="a", text="same"), Atom(id="copy", text="same")),
        contexts=(Context(id="c", text="C"),),
        relations=(says,),
    )
    graph = FactGraph.from_case(case)
    wrong, right = infer([graph, graph], evidence=[{"c": True, "a": True, "copy": False}, {"a": True, "copy": True}])
    assert wrong.status == Status.INCONSISTENT
    assert "'a' is observed as true and 'copy' as false" in (wrong.reason or "")
    assert "entailment" not in (wrong.reason or "")  # which has no part in it
    assert right.status == Status.OK
    assert right.p["copy"] == 1.0


def test_a_graph_that_merges_nothing_says_what_clashes_as_before() -> None:
    nodes = [atom("a"), context("c", 0.9)]
    graph = FactGraph.from_dict({"nodes": nodes, "edges": [edge("c", "a", "entailment", 1.0)]})
    (out,) = infer([graph], evidence={"c": True, "a": False})
    assert "c entailment a" in (out.reason or "")


def test_answers_and_graphs_are_tables_in_a_notebook() -> None:
    nodes = [atom("<a>"), context("c", 0.9)]
    data = {"nodes": nodes, "edges": [edge("c", "<a>", "entailment", 0.9)]}
    graph = FactGraph.from_dict(data, encoding="conditional", context_prior=0.9)
    assert repr(graph) == "FactGraph(1 atom, 1 context, 1 factor)"
    page = graph._repr_html_()
    assert "<td>c</td><td>entailment</td><td>0.9</td><td>&lt;a&gt;</td>" in page
    out = infer([graph, InputError("no <graph>")])
    assert repr(out) == "Posteriors(2 graphs: 1 ok, 1 invalid_input)"
    page = out._repr_html_()
    assert "<td>0</td><td>ok</td><td>exact</td><td>1</td><td>2</td><td>0</td><td>0</td>" in page
    assert "no &lt;graph&gt;" in page
    many = infer([graph] * 60)._repr_html_()
    assert many.count("<tr>") == 1 + 50 + 1
    assert "and 10 more" in many
    bare = FactGraph.from_model(graph.to_model())
    assert repr(bare) == "FactGraph(2 variables, 1 factor)"
    assert "<td>0.5 0.5 0.1 0.9</td>" in bare._repr_html_()
