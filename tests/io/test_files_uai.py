"""UAI models and evidence: what is read and written, what is refused by name, and that pyAgrum reads the same."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import SHARED

from fcjax.core.errors import InputError
from fcjax.core.records import MarkovModel
from fcjax.graph.fact_graph import FactGraph
from fcjax.io.files import read_evidence, read_graphs, read_uai, write_evidence, write_uai

TEXT = """c a comment, as the competitions' files have them
MARKOV
3
2 2 2
3
1 0
2 2 1
2 0 1

2
 0.25 0.75

4
 1 2
 3 0

4 1e-3 1.5 0 7
"""


def saved(folder: Path, text: str, name: str = "model.uai") -> Path:
    (folder / name).write_text(text)
    return folder / name


def the_fault(path: Path) -> Any:
    with pytest.raises(InputError) as caught:
        read_uai(path)
    (fault,) = caught.value.faults
    assert fault.file == str(path)
    return fault


def test_a_model_is_read_as_it_stands(tmp_path):
    model = read_uai(saved(tmp_path, TEXT))
    assert model.names == ("x0", "x1", "x2")
    assert model.factors == (
        ((0,), (0.25, 0.75)),
        ((2, 1), (1.0, 2.0, 3.0, 0.0)),
        ((0, 1), (1e-3, 1.5, 0.0, 7.0)),
    )
    assert model.evidence == {}


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "says"),
    [
        ("MARKOV", "BAYES", 2, None, "the network is of type BAYES; allowed: MARKOV"),
        ("MARKOV", "MRF", 2, None, "the file begins with 'MRF'; allowed: MARKOV"),
        ("2 2 2\n", "2 3 2\n", 4, "variable 1", "the variable has 3 states; allowed: 2"),
        ("2 2 2\n", "2 2 1\n", 4, "variable 2", "the variable has 1 states; allowed: 2"),
        ("2 2 1\n", "3 2 1 0\n", 7, "factor 1", "the factor is over 3 variables; allowed: 1 or 2"),
        ("2 2 1\n", "0\n", 7, "factor 1", "the factor is over 0 variables; allowed: 1 or 2"),
        ("2 2 1\n", "2 2 2\n", 7, "factor 1", "the factor is over variable 2 twice; allowed: two different variables"),
        ("2 2 1\n", "2 2 3\n", 7, "factor 1", "a variable in the scope is '3'; allowed: a whole number from 0 to 2"),
        ("2 2 1\n", "2 2 x\n", 7, "factor 1", "a variable in the scope is 'x'"),
        ("2\n 0.25", "4\n 0.25", 10, "factor 0", "the table has 4 entries; allowed: 2"),
        ("4\n 1 2", "2\n 1 2", 13, "factor 1", "the table has 2 entries; allowed: 4"),
        (" 3 0", " 3 -1", 15, "factor 1", "table entry 3 is -1; allowed: a number of at least 0"),
        (" 3 0", " 3 nan", 15, "factor 1", "table entry 3 is nan"),
        (" 3 0", " 3 inf", 15, "factor 1", "table entry 3 is inf"),
        (" 3 0", " 3 one", 15, "factor 1", "table entry 3 is one"),
        ("0 7\n", "0\n", 17, "factor 2", "the file ends where table entry 3 is expected"),
        ("0 7\n", "0 7\n8\n", 18, None, "'8' follows the end of the model; allowed: nothing more"),
        ("MARKOV\n3\n", "MARKOV\n-3\n", 3, None, "the number of variables is '-3'; allowed: a whole number from 0"),
        ("MARKOV\n3\n", "MARKOV\n" + "9" * 5000 + "\n", 3, None, "the number of variables is"),
        ("0.75", "0.75²", 11, None, "the line contains non-ASCII characters"),
    ],
)
def test_what_is_wider_or_wrong_is_refused_by_name(tmp_path, old, new, line, field, says):
    assert TEXT.count(old) == 1
    fault = the_fault(saved(tmp_path, TEXT.replace(old, new)))
    assert (fault.line, fault.field) == (line, field)
    assert fault.message.startswith(says)


def test_an_empty_model_file_is_told(tmp_path):
    assert "empty" in the_fault(saved(tmp_path, "")).message
    assert "the file ends where the word MARKOV is expected" in the_fault(saved(tmp_path, "c only a comment\n")).message


# Names


def test_names_are_kept_beside_whatever_they_are(tmp_path):
    names = ("a 0", 'quo"te\n', "日本", "x1")
    path = tmp_path / "model.uai"
    write_uai(path, MarkovModel(names=names, factors=()))
    assert read_uai(path).names == names
    assert (tmp_path / "model.uai.names").read_text().splitlines()[0] == '"a 0"'


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        ('"a"\n"b"\n', "2 names, 2 of them different; allowed: 3 different names"),
        ('"a"\n"b"\n"a"\n', "3 names, 2 of them different"),
        ('"a"\nb\n"c"\n', "names:2: the line is not a name; allowed: a JSON string"),
        ('"a"\n""\n"c"\n', "names:2: the line is not a name"),
    ],
)
def test_names_that_do_not_fit_are_told(tmp_path, beside, says):
    path = saved(tmp_path, TEXT)
    saved(tmp_path, beside, "model.uai.names")
    with pytest.raises(InputError, match=says):
        read_uai(path)


# Evidence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 0 1 2 0\n", {0: 1, 2: 0}),
        ("2\n0 1\n2 0", {0: 1, 2: 0}),
        ("1\n2 0 1 2 0\n", {0: 1, 2: 0}),
        ("0\n", {}),
        ("1\n0\n", {}),
        ("1 0 0", {0: 0}),
        ("1\n1 0 0", {0: 0}),
    ],
)
def test_both_styles_of_evidence_are_read(tmp_path, text, expected):
    path = saved(tmp_path, text, "model.uai.evid")
    assert read_evidence(path, 3) == expected
    assert read_uai(saved(tmp_path, TEXT), path).evidence == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("2\n1 0 1\n2 0 1 1 0\n3", "the file has 2 samples or a word too many; allowed: one sample"),
        ("1 3 0", "an observed variable is '3'; allowed: a whole number from 0 to 2"),
        ("1 1 2", "variable 1: the observed state is '2'; allowed: a whole number from 0 to 1"),
        ("2 1 0 1 1", "variable 1: the variable is observed twice"),
        ("2 1 0", "the file ends where an observed variable is expected"),
        ("1 1 0 2 0", "'2' follows the end"),
    ],
)
def test_evidence_that_does_not_fit_is_told(tmp_path, text, says):
    path = saved(tmp_path, text, "model.uai.evid")
    with pytest.raises(InputError, match=says):
        read_evidence(path, 3)


# There and back


@st.composite
def models(draw: st.DrawFn) -> MarkovModel:
    count = draw(st.integers(1, 5))
    factors = []
    for _ in range(draw(st.integers(0, 6))):
        scope = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=min(2, count), unique=True))
        weights = st.floats(0, 1e300, allow_subnormal=True)
        factors.append((tuple(scope), tuple(draw(weights) for _ in range(2 ** len(scope)))))
    names = draw(st.lists(st.text(min_size=1), min_size=count, max_size=count, unique=True))
    evidence = draw(st.dictionaries(st.integers(0, count - 1), st.integers(0, 1)))
    return MarkovModel(names=tuple(names), factors=tuple(factors), evidence=evidence)


@given(models())
def test_a_model_written_and_read_again_is_the_same_model(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("uai") / "model.uai"
    write_uai(path, model)
    beside = path.with_name("model.uai.evid")
    assert beside.exists() == bool(model.evidence)
    assert read_uai(path, beside if model.evidence else None) == model


def test_evidence_goes_where_it_is_told_to(tmp_path):
    path, evidence = tmp_path / "model.uai", tmp_path / "seen.evid"
    write_uai(path, MarkovModel(names=("a", "b"), factors=(), evidence={1: 0}), evidence)
    assert evidence.read_text() == "1 1 0\n"
    write_evidence(evidence, {})
    assert read_evidence(evidence) == {}


def joint(model: MarkovModel, states: tuple[int, ...]) -> float:
    return math.prod(
        table[states[scope[0]] if len(scope) == 1 else 2 * states[scope[0]] + states[scope[1]]]
        for scope, table in model.factors
    )


def test_pyagrum_reads_the_same_model(tmp_path):
    """Scopes fall here, and there is no comment to skip.

    pyAgrum takes the smallest variable for the fastest, where the format says the last; in falling scopes they are one.
    """
    gum = pytest.importorskip("pyagrum")
    text = TEXT.partition("\n")[2].replace("2 0 1\n", "2 2 0\n")
    model = read_uai(saved(tmp_path, text))
    write_uai(tmp_path / "written.uai", model)
    weights = {states: joint(model, states) for states in itertools.product((0, 1), repeat=3)}
    total = sum(weights.values())
    for name in ("model.uai", "written.uai"):
        inference = gum.ShaferShenoyMRFInference(gum.loadMRF(str(tmp_path / name)))
        inference.makeInference()
        for v in range(3):
            expected = sum(weight for states, weight in weights.items() if states[v]) / total
            assert inference.posterior(v)[1] == pytest.approx(expected, abs=1e-9)


def test_a_fact_graph_as_uai_means_the_same_to_pyagrum(tmp_path):
    gum = pytest.importorskip("pyagrum")
    file = SHARED / "cases" / "fact_graph.json"
    if not file.exists():
        pytest.skip("needs ../shared/cases/fact_graph.json")
    (row,) = read_graphs(file)
    assert row.graph is not None  # its edges run from later to earlier nodes: falling scopes
    graph = FactGraph.from_dict(row.graph, encoding="conditional", context_prior=0.9)
    write_uai(tmp_path / "graph.uai", graph.to_model())
    again = FactGraph.from_model(read_uai(tmp_path / "graph.uai"))
    assert (again.ids, again.unary.tolist(), again.tables.tolist()) == (
        graph.ids,
        graph.unary.tolist(),
        graph.tables.tolist(),
    )
    inference = gum.ShaferShenoyMRFInference(gum.loadMRF(str(tmp_path / "graph.uai")))
    inference.makeInference()
    assert inference.posterior(graph.ids.index("a1"))[1] == pytest.approx(0.919149, abs=1e-6)  # SPEC 2
