"""Tables and plots: one by hand in all three formats, and texts with the special characters of a format."""

from __future__ import annotations

import csv
import io
import math
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.errors import OutputError, SettingsError
from fcjax.core.records import Label
from fcjax.core.terminal import visible
from fcjax.evaluation import plots
from fcjax.evaluation.comparison import Comparison
from fcjax.evaluation.report import GridEntry, RunCost, comparison_table
from fcjax.evaluation.tables import BeforeAfter, Column, CountOf, Interval, MeanGain, Number, Table, shown
from fcjax.scoring.measures import AtomCounts, case_measures


def row(id, supported, refuted, k=4):
    atoms = [(0.9, Label.SUPPORTED, True)] * supported + [(0.1, Label.REFUTED, True)] * refuted
    measures = case_measures(AtomCounts.of(atoms), k)
    assert measures is not None
    return {"id": id, "status": "ok", "atoms": [], "measures": measures | {"n_failed": 0}}


LOST = {"id": "e", "status": "refused", "atoms": [], "measures": None}
BEFORE = [row("a", 1, 3), row("b", 2, 2), row("c", 1, 3), row("d", 2, 2), row("e", 1, 1)]
AFTER = [row("a", 3, 1), row("b", 3, 1), row("c", 3, 1), row("d", 3, 1), LOST]
# Pr 0.25, 0.5, 0.25, 0.5 -> 0.75: differences 0.5, 0.25, 0.5, 0.25, mean 0.375, sd 0.144, t = 5.196, p = 0.0069 with
# 3 degrees of freedom; G = 1, 0.4, 1, 0.4: mean 0.7, sd 0.346. K = 4 and 4 atoms: R@K = F1@K = Pr.
ENTRIES = [
    GridEntry("FactCorrector", "model_a", "Bio", Comparison.of(BEFORE, AFTER), RunCost(5, 60, 12345, 0.0123)),
    GridEntry("RAC", "model_a", "Bio", Comparison.of(BEFORE, BEFORE), RunCost(5, 10, 500)),
    GridEntry("FactCorrector", "model_a", "ELI5", Comparison.of(BEFORE[:1], AFTER[:1])),
]


def test_the_table_by_hand_as_markdown():
    text = comparison_table(ENTRIES, ("precision", "verifiability"), "Corrections").markdown()
    lines = text.splitlines()
    assert lines[0] == "Corrections"
    assert lines[2] == (
        "| corrector | model | Bio pairs | Bio atoms | Bio Pr | Bio G(Pr) | Bio V | Bio G(V) | Bio prompts / case | "
        "Bio tokens / case | Bio cost ($) / case | ELI5 pairs | ELI5 atoms | ELI5 Pr | ELI5 G(Pr) | ELI5 V | "
        "ELI5 G(V) | ELI5 prompts / case | ELI5 tokens / case | ELI5 cost ($) / case |"
    )
    assert lines[4] == (
        r"| FactCorrector | model\_a | 4 (1 failed) | 4.0 → 4.0 | 0.375 → 0.750 | +0.700 ± 0.346\*\* | 4.0 → 4.0 | "
        "+0.000 ± 0.000 | 12.0 | 2469 | 0.0025 | 1 | 4.0 → 4.0 | 0.250 → 0.750 | +1.000 | 4.0 → 4.0 | +0.000 | "
        "– | – | – |"
    )
    assert lines[5] == (
        r"| RAC | model\_a | 5 | 3.6 → 3.6 | 0.400 → 0.400 | +0.000 ± 0.000 | 3.6 → 3.6 | +0.000 ± 0.000 | 2.0 | 100 | "
        "– | – | – | – | – | – | – | – | – | – |"
    )
    assert "one-sided paired t-test" in text


def test_the_same_table_as_latex():
    lines = comparison_table(ENTRIES, ("precision",), "Pr & cost").latex().splitlines()
    assert lines[:5] == [
        r"\begin{table}",
        r"\centering",
        r"\caption{Pr \& cost}",
        r"\begin{tabular}{llrrrrrrrrrrrrrr}",
        r"\toprule",
    ]
    assert lines[5] == r"\multicolumn{2}{c}{} & \multicolumn{7}{c}{Bio} & \multicolumn{7}{c}{ELI5} \\"
    assert lines[6] == r"\cmidrule(lr){3-9} \cmidrule(lr){10-16}"
    assert lines[9] == (
        r"FactCorrector & model\_a & 4 (1 failed) & 4.0 $\rightarrow$ 4.0 & 0.375 $\rightarrow$ 0.750 & "
        r"$+0.700$ $\pm$ 0.346** & 12.0 & 2469 & 0.0025 & 1 & 4.0 $\rightarrow$ 4.0 & 0.250 $\rightarrow$ 0.750 & "
        r"$+1.000$ & -- & -- & -- \\"
    )
    assert lines[-1] == r"\end{table}"


def test_the_same_table_as_csv():
    lines = list(csv.DictReader(io.StringIO(comparison_table(ENTRIES, ("precision",)).csv())))
    first, second = lines
    assert (first["corrector"], first["model"]) == ("FactCorrector", "model_a")
    assert (first["Bio pairs"], first["Bio pairs failed"]) == ("4", "1")
    assert (first["Bio Pr before"], first["Bio Pr after"]) == ("0.375", "0.75")
    assert (first["Bio G(Pr) mean"], first["Bio G(Pr) sd"], first["Bio G(Pr) p"]) == ("0.7", "0.3464102", "0.00692")
    assert (first["Bio tokens / case"], first["Bio cost ($) / case"]) == ("2469.0", "0.00246")
    assert (second["Bio G(Pr) mean"], second["Bio G(Pr) p"], second["ELI5 Pr before"]) == ("0.0", "", "")


def test_two_entries_for_one_cell_are_refused():
    with pytest.raises(ValueError, match="two entries for RAC, model_a, Bio"):
        comparison_table([ENTRIES[1], ENTRIES[1]])


def test_notes_count_what_the_pairs_lack():
    empty = {"id": "a", "status": "no_atoms", "atoms": [], "measures": None}
    partly = row("b", 1, 1)
    partly["measures"]["n_failed"] = 1
    found = Comparison.of([row("a", 1, 1), row("b", 1, 1)], [empty, partly])
    text = comparison_table([GridEntry("x", "y", "z", found)]).markdown()
    assert "1 of the pairs have a response without atoms" in text
    assert "1 of the pairs lack some of their atoms" in text


@pytest.mark.parametrize(
    ("value", "digits", "sign", "expected"),
    [
        (0.12345, 3, False, "0.123"),
        (-0.0001, 3, False, "0.000"),
        (-0.0001, 3, True, "+0.000"),
        (0.25, 2, True, "+0.25"),
        (None, 3, False, None),
        (math.nan, 3, False, None),
        (math.inf, 3, False, None),
    ],
)
def test_numbers_have_one_form(value, digits, sign, expected):
    assert shown(value, digits, sign) == expected


@pytest.mark.parametrize(
    ("cell", "text", "values"),
    [
        (Number(1.23456789, 2), "1.23", (1.2345679,)),
        (Number(math.nan), None, (None,)),
        (BeforeAfter(0.5, None), None, (0.5, None)),
        (Interval(0.5, 0.25, 0.75, 2), "0.50 (0.25–0.75)", (0.5, 0.25, 0.75)),
        (Interval(0.5, None, None, 2), "0.50", (0.5, None, None)),
        (MeanGain(-0.5, 0.1, 0.9), "-0.500 ± 0.100", (-0.5, 0.1, 0.9)),
        (MeanGain(0.5, None, math.nan, "*"), "+0.500*", (0.5, None, None)),
        (MeanGain(None, None), None, (None, None, None)),
        (CountOf(3, 0), "3", (3, 0)),
    ],
)
def test_cells(cell, text, values):
    assert (cell.text, cell.values) == (text, values)
    assert len(cell.names) == len(values)


NASTY = 'a|b *c* _d_ `e` <f> [g](h) & 50% $x$ #1 {i} ~j ^k \\l "m", n\nsecond line'


def test_texts_stay_texts_in_every_format():
    table = Table((Column("name|x", "group_1"), Column("n")), ((NASTY, 1),), caption="50% & more_")
    markdown = table.markdown()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in markdown.splitlines()[2:]}) == 1
    assert r"a\|b \*c\* \_d\_ \`e\` \<f\> \[g\](h)" in markdown
    latex = table.latex()
    assert r"a\textbar{}b *c* \_d\_" in latex
    assert r"\& 50\% \$x\$ \#1 \{i\} \textasciitilde{}j \textasciicircum{}k \textbackslash{}l" in latex
    rows = list(csv.reader(io.StringIO(table.csv())))
    assert rows == [["group_1 name|x", "n"], [NASTY, "1"]]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4), st.text(max_size=10))
def test_any_text_comes_back_from_csv_and_makes_no_column_in_markdown(names, head):
    table = Table((Column("first"), Column("second")), tuple((name, 1) for name in names))
    read = [row[0] for row in csv.reader(io.StringIO(table.csv(), newline=""))][1:]
    texts = [visible(re.sub("\r\n?", "\n", name), keep="\n\t") for name in names]
    for found, text in zip(read, texts, strict=True):
        assert found in (text, f"'{text}")  # a text that a spreadsheet would calculate begins with a quotation mark
        assert found == text or text.lstrip()[:1] in "=+-@＝＋－＠" or text[0] == "\t"
    lines = table.markdown().split("\n")
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines[: 2 + len(names)]] == [3] * (2 + len(names))


def test_a_table_is_saved_by_its_name(tmp_path):
    table = comparison_table(ENTRIES)
    for suffix, text in ((".md", table.markdown()), (".tex", table.latex()), (".csv", table.csv())):
        path = tmp_path / f"table{suffix}"
        table.save(path)
        assert path.read_text(encoding="utf-8") == text
    with pytest.raises(SettingsError, match=r"\.md, \.tex, \.csv"):
        table.save(tmp_path / "table.doc")
    with pytest.raises(OutputError):
        table.save(tmp_path / "no folder" / "table.md")


def test_columns_have_one_kind_of_cell():
    table = Table((Column("x"),), ((Number(1.0),), (BeforeAfter(1.0, 2.0),)))
    with pytest.raises(ValueError, match="'x' has cells of 2 kinds"):
        table.csv()


DRAWINGS = [plots.before_after, plots.gains_by_model]


@pytest.mark.parametrize("draw", DRAWINGS)
def test_plots(draw, tmp_path):
    pytest.importorskip("matplotlib")
    entries = [*ENTRIES, GridEntry("$x$ <&", "model_b", "Bio", Comparison.of([], []))]
    for name in ("one.svg", "two.svg", "one.png"):
        draw(entries, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert svg == (tmp_path / "two.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg
    for text in ("Bio", "ELI5", "FactCorrector"):
        assert text in svg
    with pytest.raises(SettingsError, match=r"\.png or \.svg"):
        draw(entries, tmp_path / "one.jpg")
    with pytest.raises(OutputError):
        draw(entries, tmp_path / "no folder" / "one.svg")


def test_a_scatter_has_a_point_for_every_pair(tmp_path):
    pytest.importorskip("matplotlib")
    plots.before_after(ENTRIES[:1], tmp_path / "one.svg")
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    points = re.search(r'<g id="PathCollection_1">(.*?)\n   </g>', svg, re.DOTALL)[1]
    assert points.count("<use ") == 4
    assert "FactCorrector, model_a (4)" in svg


def test_a_plot_without_points_is_empty(tmp_path):
    pytest.importorskip("matplotlib")
    for draw in DRAWINGS:
        draw([], tmp_path / "empty.png")
        assert (tmp_path / "empty.png").stat().st_size > 0


def test_without_matplotlib_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SettingsError, match=r"needs the package matplotlib.*pip install 'fcjax\[plots\]'"):
        plots.before_after(ENTRIES, tmp_path / "one.png")
    assert not (tmp_path / "one.png").exists()
