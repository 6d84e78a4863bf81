"""Cases in and out: what a row may hold, what is said about one that may not, and that nothing is lost on the way."""

from __future__ import annotations

import copy
import gzip
import json
import math
import time
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import SHARED

from fcjax.core.errors import InputError
from fcjax.core.records import Case, RelationType, Status
from fcjax.io.files import case_to_dict, objects, parse_case, read_cases, write_cases

ROW: dict[str, Any] = {
    "id": "case",
    "query": "Who?",
    "response": "She did.",
    "topic": "history",
    "atoms": [
        {"id": "a0", "text": "She did.", "original": "did", "label": "S", "contexts": ["c0", "c1"]},
        {"id": "a1", "text": "It rained.", "contexts": []},
    ],
    "contexts": [
        {"id": "c0", "title": "T", "text": "long", "snippet": "short", "link": "http://localhost", "prior": 0.7},
        {"id": "c1"},
    ],
    "relations": [
        {"source": "c0", "target": "a0", "type": "entailment", "probability": 0.9, "method": "logprobs"},
        {"source": "c1", "target": "a0", "type": None, "probability": None, "status": "relation_failed"},
        {"source": "c0", "target": "c1", "type": "neutral", "probability": 1},
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """`ROW` with one value changed; a path such as "relations[0].probability"."""
    row = copy.deepcopy(ROW)
    *parts, last = path.replace("[", ".").replace("]", "").split(".")
    here: Any = row
    for part in parts:
        here = here[int(part) if isinstance(here, list) else part]
    if value is MISSING:
        del here[last]
    else:
        here[int(last) if isinstance(here, list) else last] = value
    return row


MISSING = object()


def faults(row: Any) -> list[tuple[str | None, str]]:
    with pytest.raises(InputError) as caught:
        parse_case(row)
    return [(fault.field, fault.message) for fault in caught.value.faults]


def the_fault(row: Any) -> tuple[str | None, str]:
    (fault,) = faults(row)
    return fault


# What is read


def test_every_field_is_read():
    case = parse_case(ROW)
    assert (case.id, case.query, case.response, case.topic, case.status) == (
        "case",
        "Who?",
        "She did.",
        "history",
        "ok",
    )
    assert case.atoms is not None
    assert case.atoms[0].contexts == ("c0", "c1")
    assert (case.atoms[0].original, case.atoms[0].label) == ("did", "S")
    assert case.contexts is not None
    assert (case.contexts[0].prior, case.contexts[0].evidence) == (0.7, "short long")
    assert case.relations is not None
    first, failed, neutral = case.relations
    assert (first.source, first.target, first.type, first.probability) == ("c0", "a0", RelationType.ENTAILMENT, 0.9)
    assert first.method == "logprobs"
    assert (failed.type, failed.probability, failed.status) == (None, None, Status.RELATION_FAILED)
    assert (neutral.type, neutral.probability) == (RelationType.NEUTRAL, 1.0)
    assert type(neutral.probability) is float
    assert hash(case.atoms[0].id) is not None
    assert case == parse_case(copy.deepcopy(ROW))


def test_missing_is_not_known_and_empty_is_none_found():
    case = parse_case({"id": "x", "atoms": [], "contexts": [], "relations": []})
    assert (case.atoms, case.contexts, case.relations) == ((), (), ())
    for row in ({"id": "x"}, {"id": "x", "atoms": None, "contexts": None, "relations": None}):
        case = parse_case(row)
        assert (case.atoms, case.contexts, case.relations, case.query) == (None, None, None, None)
    atom, other = parse_case(changed("atoms[0].contexts", MISSING)).atoms or ()
    assert (atom.contexts, other.contexts) == (None, ())


def test_factreasoners_names_are_read():
    case = parse_case({"input": "Q", "output": "R"})
    assert (case.query, case.response, case.extra) == ("Q", "R", {})
    assert parse_case({"query": None, "input": "Q"}).query == "Q"
    assert parse_case({"query": "own", "input": "Q"}).query == "own"


@pytest.mark.parametrize("spelling", ["Entailment", "ENTAILMENT", " entailment "])
def test_a_type_is_read_in_any_spelling_and_written_in_one(spelling):
    case = parse_case(changed("relations[0].type", spelling))
    assert case_to_dict(case)["relations"][0]["type"] == "entailment"


def test_the_names_of_graph_files_are_read_in_relations():
    row = copy.deepcopy(ROW)
    row["relations"] = [{"from": "c0", "to": "a0", "relation": "contradiction", "probability": 0.9, "link": "x"}]
    (relation,) = parse_case(row).relations or ()
    assert (relation.source, relation.target, relation.type) == ("c0", "a0", RelationType.CONTRADICTION)
    assert relation.extra == {"link": "x"}


@pytest.mark.parametrize(
    ("id", "expected"), [("x", "x"), (7, "7"), (MISSING, "5"), (None, "5"), (" ", " "), ("né\n", "né\n")]
)
def test_a_case_without_an_id_has_its_number_for_one(id, expected):
    assert parse_case(changed("id", id), 5).id == expected


@pytest.mark.parametrize("label", ["s", "ns", "IR", "", None])
def test_labels_are_kept_and_the_two_known_ones_written_alike(label):
    (atom, _) = parse_case(changed("atoms[0].label", label)).atoms or ()
    assert atom.label == {"s": "S", "ns": "NS"}.get(label, label)


ODD = ["]", '"quoted"', "two\nlines", "{{x}}", "\\", "a\u2028b", "日本語", "مرحبا", "\x00", "{'a': 1}", "a" * 5000]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_odd_texts_come_through_a_file_unchanged(tmp_path, text):
    row = changed("atoms[0].text", text)
    row["query"] = row["contexts"][0]["text"] = row["my " + text] = text
    for name in ("cases.jsonl", "cases.jsonl.gz", "cases.json"):
        write_cases(tmp_path / name, [parse_case(row)])
        (again,) = read_cases(tmp_path / name)
        assert again.case == parse_case(row)


# Nothing is lost


def test_unknown_keys_are_kept_at_every_level():
    row = copy.deepcopy(ROW)
    for holder in (row, row["atoms"][0], row["contexts"][0], row["relations"][0]):
        holder["revised"] = {"deep": [1, None, "x"]}
    assert case_to_dict(parse_case(row)) == row | {
        "relations": [row["relations"][0], row["relations"][1], row["relations"][2] | {"probability": 1.0}]
    }


_texts = st.one_of(st.none(), st.text(max_size=8))
_prior = st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0, 1]))
_status = st.sampled_from([None, "ok", "refused", "retrieval_failed"])
_more = st.dictionaries(
    st.sampled_from(["revised", "cat", "x y"]), st.one_of(st.integers(-(2**63), 2**64 - 1), st.text(), st.none())
)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    atoms = [f"a{i}" for i in range(draw(st.integers(0, 4)))]
    contexts = [f"c{i}" for i in range(draw(st.integers(0, 4)))]
    ids = atoms + contexts
    relations = []
    if len(ids) > 1:
        for _ in range(draw(st.integers(0, 5))):
            source, target = draw(st.lists(st.sampled_from(ids), min_size=2, max_size=2, unique=True))
            answer = {"type": draw(st.sampled_from(list(map(str, RelationType)))), "probability": draw(st.floats(0, 1))}
            failed = {"type": None, "probability": None, "status": "relation_failed"}
            relations.append(
                {"source": source, "target": target, **draw(st.sampled_from([answer, failed])), **draw(_more)}
            )
    atom_rows = [
        {
            "id": id,
            "text": draw(st.text(min_size=1, max_size=8).filter(str.strip)),
            "original": draw(_texts),
            "label": draw(st.sampled_from([None, "S", "NS"])),
            "contexts": draw(st.one_of(st.none(), st.lists(st.sampled_from(contexts)) if contexts else st.just([]))),
            "status": draw(_status),
            **draw(_more),
        }
        for id in atoms
    ]
    context_rows = [
        {"id": id, "text": draw(_texts), "snippet": draw(_texts), "prior": draw(_prior), **draw(_more)}
        for id in contexts
    ]
    lists = {"atoms": atom_rows, "contexts": context_rows, "relations": relations}
    return {"id": draw(st.text(min_size=1)), "query": draw(_texts), "status": draw(_status), **lists, **draw(_more)}


@given(rows())
def test_a_case_written_and_read_again_is_the_same_case(row):
    case = parse_case(row)
    text = orjson.dumps(case_to_dict(case))
    assert parse_case(orjson.loads(text)) == case
    assert orjson.dumps(case_to_dict(parse_case(orjson.loads(text)))) == text


# What is refused


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "0.9", 1.2, -0.1, True, False, [], {}])
@pytest.mark.parametrize("place", ["relations[0].probability", "contexts[0].prior"])
def test_a_probability_is_a_number_from_0_to_1(place, value):
    field, message = the_fault(changed(place, value))
    assert field == place
    assert f"is {json.dumps(value)}; allowed: a number from 0 to 1" in message


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, 5e-324])
def test_both_ends_are_probabilities(value):
    assert (parse_case(changed("relations[0].probability", value)).relations or ())[0].probability == value


@pytest.mark.parametrize(("value", "says"), [(None, "null"), (MISSING, "missing")])
def test_only_a_failed_relation_may_lack_a_probability_or_a_type(value, says):
    field, message = the_fault(changed("relations[0].probability", value))
    assert field == "relations[0].probability"
    assert f"probability is {says}" in message
    assert "if the status is a failure" in message
    field, message = the_fault(changed("relations[0].type", value))
    assert field == "relations[0].type"
    assert message.startswith(f"type is {says}; allowed")
    row = changed("relations[1].status", "ok")
    assert [field for field, _ in faults(row)] == ["relations[1].type", "relations[1].probability"]
    row = changed("relations[1].probability", 1.2)
    assert the_fault(row)[0] == "relations[1].probability"


@pytest.mark.parametrize(
    ("place", "value", "field", "says"),
    [
        ("relations[0].source", "c9", "relations[0].source", 'source is "c9"; allowed: the id of an atom or context'),
        ("relations[0].target", None, "relations[0].target", "target is null"),
        ("relations[0].target", ["a0"], "relations[0].target", 'target is ["a0"]'),
        ("relations[0].target", "c0", "relations[0]", 'source and target are both "c0"; allowed: two different ids'),
        ("relations[0].type", "supports", "relations[0].type", 'type is "supports"; allowed: "entailment", "contra'),
        ("relations[0].type", 3, "relations[0].type", "type is 3"),
        ("relations[0].status", "lost", "relations[0].status", 'status is "lost"; allowed: "ok", '),
        ("relations[0].method", 3, "relations[0].method", "method is 3; allowed: a string, or null"),
        ("relations[0]", "c0 entails a0", "relations[0]", 'the entry is "c0 entails a0"; allowed: a JSON object'),
        ("relations", {"c0": "a0"}, "relations", "relations is an object; allowed: a list of objects, or null"),
        ("atoms[1].text", MISSING, "atoms[1].text", "text is missing; allowed: a non-empty string"),
        ("atoms[1].text", "", "atoms[1].text", 'text is ""'),
        ("atoms[1].text", " \n", "atoms[1].text", "text is "),
        ("atoms[1].text", 5, "atoms[1].text", "text is 5"),
        ("atoms[1].id", MISSING, "atoms[1].id", "id is missing; allowed: a non-empty string"),
        ("atoms[1].id", 1, "atoms[1].id", "id is 1; allowed: a non-empty string"),
        ("atoms[1].id", "a0", "atoms[1].id", 'id is "a0", already the id of another atom; allowed: a unique id'),
        ("atoms[1].id", "c1", "atoms[1].id", 'id is "c1", already the id of another context'),
        ("atoms[1].label", 1, "atoms[1].label", "label is 1; allowed: a string, or null"),
        ("atoms[1].contexts", "c0", "atoms[1].contexts", 'contexts is "c0"; allowed: a list of context ids, or null'),
        ("atoms[1].contexts", ["c0", "c7"], "atoms[1].contexts[1]", 'the entry is "c7"; allowed: the id of one of the'),
        ("atoms[1].contexts", ["a0"], "atoms[1].contexts[0]", 'the entry is "a0"'),
        ("atoms[1].contexts", [["c0"]], "atoms[1].contexts[0]", 'the entry is ["c0"]'),
        ("contexts[0].text", ["x"], "contexts[0].text", 'text is ["x"]; allowed: a string, or null'),
        ("contexts[0].status", 1, "contexts[0].status", "status is 1"),
        ("query", 5, "query", "query is 5; allowed: a string, or null"),
        ("topic", {}, "topic", "topic is {}"),
        ("id", "", "id", 'id is ""; allowed: a non-empty string'),
        ("id", True, "id", "id is true"),
        ("status", "?", "status", 'status is "?"'),
    ],
)
def test_a_fault_names_its_field_what_was_seen_and_what_is_allowed(place, value, field, says):
    got, message = the_fault(changed(place, value))
    assert got == field
    assert message.startswith(says)
    assert "allowed: " in message


@pytest.mark.parametrize(("row", "seen"), [([ROW], "a list"), (3, "3"), (None, "null"), ("x", '"x"')])
def test_a_case_is_an_object(row, seen):
    assert the_fault(row) == (None, f"the case is {seen}; allowed: a JSON object")


def test_all_faults_of_a_row_are_told_and_a_bad_atom_is_still_known():
    row = changed("relations[0].probability", "0.9")
    row["atoms"][0]["text"] = ""
    row["contexts"][1]["prior"] = 2
    assert {field for field, _ in faults(row)} == {"atoms[0].text", "contexts[1].prior", "relations[0].probability"}


def test_a_long_value_is_cut_short_in_a_message():
    assert len(the_fault(changed("relations[0].type", "x" * 10_000))[1]) < 200


# Files


def test_bad_rows_carry_their_faults_and_end_nothing(tmp_path):
    path = tmp_path / "cases.jsonl"
    good = json.dumps(ROW)
    bad = [
        '{"id": "x", ',
        "[1, 2]",
        "17",
        json.dumps(changed("relations[0].probability", math.nan)),
        json.dumps(changed("relations[0].probability", "0.9")),
        json.dumps(ROW | {"more": math.inf}),
        "null",
    ]
    path.write_text("\n".join([good, *(line for text in bad for line in (text, "", good))]))
    found = list(read_cases(path))
    assert [row.case is not None for row in found] == [True] + [False, True] * len(bad)
    assert all((row.case is None) == bool(row.faults) for row in found)
    broken, listed, number, not_finite, text, extra, null = found[1::2]
    assert [row.number for row in found[1::2]] == [2 + 3 * i for i in range(len(bad))]
    assert {(fault.file, fault.line) for row in found[1::2] for fault in row.faults} == {
        (str(path), 2 + 3 * i) for i in range(len(bad))
    }
    assert [row.id for row in found[1::2]] == ["x", "5", "8", "case", "case", "case", "20"]
    assert "not JSON" in str(broken.error)
    for row, seen in ((listed, "a list"), (number, "17"), (null, "null")):
        assert f"the case is {seen}" in str(row.error)
    for row, seen in ((not_finite, "NaN"), (text, '"0.9"')):
        assert [fault.field for fault in row.faults] == ["relations[0].probability"]
        assert f"is {seen}; allowed" in str(row.error)
    assert [fault.field for fault in extra.faults] == ["more"]
    expected = (
        f"{path}:14: case 'case', relations[0].probability: probability is \"0.9\"; allowed: a number from 0 to 1"
    )
    assert str(text.error).startswith(expected)


def test_the_items_of_a_list_are_named_by_their_index(tmp_path):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([ROW, changed("relations[0].probability", math.nan), [], {"query": "x"}], indent=1))
    good, bad, listed, unnamed = read_cases(path)
    assert good.case == parse_case(ROW)
    assert [(fault.line, fault.field) for fault in bad.faults] == [(None, "[1].relations[0].probability")]
    assert [fault.field for fault in listed.faults] == ["[2]"]
    assert unnamed.case == Case(id="4", query="x")


def test_a_case_of_ten_thousand_atoms_takes_time_in_proportion(tmp_path):
    def row(count: int) -> dict[str, Any]:
        atoms = [{"id": f"a{i}", "text": f"fact {i}", "contexts": [f"c{i}"]} for i in range(count)]
        contexts = [{"id": f"c{i}", "text": f"text {i}"} for i in range(count)]
        relations = [
            {"source": f"c{i}", "target": f"a{i}", "type": "entailment", "probability": 0.9} for i in range(count)
        ]
        return {"id": "big", "atoms": atoms, "contexts": contexts, "relations": relations}

    path = tmp_path / "big.jsonl"
    path.write_bytes(orjson.dumps(row(10_000)))
    start = time.process_time()
    (found,) = read_cases(path)
    assert found.case is not None
    assert len(found.case.atoms or ()) == 10_000
    assert time.process_time() - start < 5  # a quadratic pass takes minutes


def test_memory_does_not_grow_with_the_number_of_cases(tmp_path):
    def peak(count: int) -> int:
        path = tmp_path / "cases.jsonl"
        case = parse_case(ROW)
        tracemalloc.start()
        write_cases(path, (case for _ in range(count)))
        assert sum(row.case is not None for row in read_cases(path)) == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(6_000) < peak(600) + (1 << 19)


@pytest.mark.parametrize("name", ["factcheck_gpt.jsonl", "flaherty_google.json", "flaherty_wikipedia.json"])
def test_real_cases_are_read_and_written_back_whole(tmp_path, name):
    path = SHARED / "cases" / name
    if not path.exists():
        pytest.skip(f"needs ../shared/cases/{name}")
    text = path.read_text()
    originals = list(map(json.loads, text.splitlines())) if name.endswith("l") else [json.loads(text)]
    write_cases(tmp_path / "again.jsonl", (row.case for row in read_cases(path) if row.case is not None))
    again = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    assert len(again) == len(originals)
    for one, other in zip(originals, again, strict=True):
        renamed = {{"input": "query", "output": "response"}.get(key, key): value for key, value in one.items()}
        renamed["atoms"] = [{key: v for key, v in atom.items() if v is not None} for atom in one["atoms"]]
        assert other == {"id": "1"} | renamed


# Hostile rows


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [250, 255, 300, 990, 1015, 2000, 100_000])
@pytest.mark.parametrize(
    "path",
    ["id", "status", "query", "extra", "atoms[0].id", "atoms[0].status", "atoms[0].extra", "contexts[0].prior",
     "relations[0].type", "relations[0].probability", "relations[0].source", "relations[0].extra", "atoms[0].contexts"],
)  # fmt: skip
def test_what_is_nested_deep_is_the_fault_of_its_row(path, levels, tmp_path):
    deep = json.dumps(changed(path, "DEEP")).replace('"DEEP"', "[" * levels + "]" * levels)
    source = tmp_path / "cases.jsonl"
    source.write_text(f"{deep}\n{json.dumps(ROW)}\n")
    first, second = read_cases(source)
    assert first.case is None
    assert first.faults
    assert all(len(str(fault)) < 1000 for fault in first.faults)
    assert second.case == parse_case(ROW)


def test_what_is_nested_as_deep_as_it_may_be_is_written_again(tmp_path):
    row = ROW | {"extra": nested(240 - 1)}
    source = tmp_path / "cases.jsonl"
    source.write_text(json.dumps(row) + "\n")
    (read,) = read_cases(source)
    assert read.case is not None
    assert orjson.loads(orjson.dumps(case_to_dict(read.case)))["extra"] == row["extra"]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_the_faults_of_numbers_are_capped(name, tmp_path):
    source = tmp_path / name
    source.write_text('{"id": "1", "extra": [' + ",".join(["NaN"] * 3_000_000) + "]}\n")
    start = time.process_time()
    (row,) = read_cases(source)
    assert time.process_time() - start < 10
    assert len(row.faults) == 101
    assert row.faults[0].field == "extra[0]"
    assert row.faults[-1].message == "2,999,900 more numbers are not finite; allowed: finite numbers"


@pytest.mark.parametrize("name", ["a.json", "a.jsonl.gz", "a.json.gz"])
@pytest.mark.parametrize("part", ["{},", "[],"])
def test_the_number_of_objects_is_bounded(name, part, tmp_path):
    """64 MB that would take 1.5 GB."""
    text = ("[" + part * 9_000_000 + "{}]").encode()
    source = tmp_path / name
    source.write_bytes(gzip.compress(text, 1) if name.endswith(".gz") else text)
    start = time.process_time()
    if "jsonl" in name:
        (row,) = read_cases(source)
        assert "too many values" in row.faults[0].message
    else:
        with pytest.raises(InputError, match="too many values"):
            next(read_cases(source))
    assert time.process_time() - start < 10


def test_a_long_value_is_quoted_without_being_written_whole():
    start = time.process_time()
    assert objects.seen("\n" * 50_000_000) == json.dumps("\n" * 60)[:57] + "..."
    assert objects.seen([{"a": [1, 2]}] * 5_000_000) == json.dumps([{"a": [1, 2]}] * 10)[:57] + "..."
    assert time.process_time() - start < 2


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_values_are_quoted_as_json(value):
    text = json.dumps(value, ensure_ascii=False)
    assert objects.seen(value) == (text if len(text) <= 60 else text[:57] + "...")
