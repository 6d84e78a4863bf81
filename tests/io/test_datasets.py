"""Public data sets as cases: rows in the documented formats, written here, and faults of other rows."""

from __future__ import annotations

import asyncio
import gzip
import io
import json

import pytest
from dataset_rows import BIO, CHECKED, CLAIMS, QUESTION, TABLE, THREAD, answer
from hypothesis import given
from hypothesis import strategies as st
from samples import SHARED
from scripted_server import ScriptedServer

from fcjax.core.errors import InputError, SettingsError
from fcjax.core.prompts import Failure, Reply
from fcjax.core.records import Case, RelationType
from fcjax.evaluation.falsify import falsify
from fcjax.io.client import Client
from fcjax.io.datasets import (
    BuildReport,
    Selection,
    read_askhistorians,
    read_conflictbank,
    read_eli5,
    read_factcheck_gpt,
    read_factool,
    read_factscore,
    read_wikicontradict,
    selected,
)
from fcjax.io.datasets.selection import SPLITS, Splitter, is_drawn
from fcjax.io.endpoint import Endpoint
from fcjax.io.files import case_to_dict, read_cases
from fcjax.io.files.validate import Notice, validate
from fcjax.io.store import Store
from fcjax.stages.falsify import Falsifier


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def read(reader, path, *rows, **options):
    """The cases of rows in one file, and the faults as (line, field, message)."""
    found = list(reader(write(path, *rows) if rows else path, **options))
    faults = [(fault.line, fault.field, fault.message) for row in found for fault in row.faults]
    return [case for row in found if row.value for case in row.value.cases], faults


def test_factscore(tmp_path):
    bare = {"topic": "Bo", "output": "Bo sings."}
    silent = BIO | {"output": " ", "annotations": None}
    (labelled, plain), faults = read(read_factscore, tmp_path / "ChatGPT.jsonl", BIO, bare, silent)
    assert faults == []
    assert (labelled.id, labelled.query) == ("factscore-ChatGPT-1", "Tell me a bio of Ada Byron.")
    assert [(atom.id, atom.text, atom.label) for atom in labelled.atoms] == [
        ("a0", "Ada Byron was a painter.", "NS"),
        ("a1", "Ada Byron was born in 1815.", "S"),
    ]
    assert labelled.atoms[1].original == "She was born in 1815."
    assert labelled.extra["irrelevant_facts"] == 1
    assert (plain.id, plain.query, plain.atoms) == ("factscore-ChatGPT-2", "Tell me a bio of Bo.", None)
    rows = list(read_factscore(tmp_path / "ChatGPT.jsonl"))
    assert rows[2].value.skipped == "the model gave no output"


def test_a_key_that_is_nested_too_deep_to_be_written_is_the_fault_of_its_row(tmp_path):
    nested = [json.loads("[" * levels + "]" * levels) for levels in (239, 240)]
    cases, faults = read(read_factscore, tmp_path / "rows.jsonl", *(BIO | {"cat": cat} for cat in nested))
    assert [case_to_dict(case)["cat"] for case in cases] == nested[:1]
    assert faults == [(2, "cat", "cat is nested too deep; allowed: at most 240 levels of lists and objects")]


def test_factool(tmp_path):
    (case,), faults = read(read_factool, tmp_path / "qa.jsonl", CLAIMS)
    assert faults == []
    assert (case.id, case.query) == ("factool-qa-1", "Which planet has most moons?")
    assert [(atom.text, atom.label) for atom in case.atoms] == [("Jupiter has most moons.", "S"), ("It has 79.", "NS")]
    science = CLAIMS | {"claims": [{"paper_title": "Random Forests", "paper_pub_year": "2001", "label": True}]}
    _, faults = read(read_factool, tmp_path / "science.jsonl", science)
    assert faults[0][:2] == (1, "claims[0].claim")
    assert "claim is missing" in faults[0][2]
    assert "the row has paper_title, paper_pub_year, label" in faults[0][2]


def test_factcheck_gpt(tmp_path):
    (case,), faults = read(read_factcheck_gpt, tmp_path / "bench.jsonl", CHECKED)
    assert faults == []
    assert case_to_dict(case) == {
        "id": "fcgpt-000",
        "query": "Who was the oldest judge?",
        "response": CHECKED["response"],
        "atoms": [
            {
                "id": "a0",
                "text": "The oldest judge was Roy.",
                "label": "NS",
                "contexts": ["c0", "c1", "c2"],
                "revised": "The oldest judge was Ann.",
            },
            {"id": "a1", "text": "Roy was a judge.", "label": "S", "contexts": ["c1"], "revised": "Roy was a judge."},
            {"id": "a2", "text": "Roy was born in 1898.", "contexts": []},
        ],
        "contexts": [
            {"id": "c0", "title": "", "text": "Ann was the oldest.", "snippet": "", "link": "http://a"},
            {"id": "c1", "title": "", "text": "Roy sat in court.", "snippet": "", "link": "http://r"},
            {"id": "c2", "title": "", "text": "Cats purr.", "snippet": "", "link": "http://c"},
        ],
        "relations": [
            {"source": "c0", "target": "a0", "type": "contradiction", "probability": 0.95},
            {"source": "c1", "target": "a0", "type": "entailment", "probability": 0.75},
            {"source": "c1", "target": "a1", "type": "entailment", "probability": 0.95},
        ],
        "revised_response": "It was Judge Ann.",
    }


@pytest.mark.parametrize(
    ("field", "value", "place", "said"),
    [
        ("claims_factuality_label", [False], "sentences.sentence1.claims_factuality_label", "has 1 items; allowed: 2"),
        ("claims_factuality_label", ["maybe", True], "sentences.sentence1.[0].claims_factuality_label", '"maybe"'),
        (
            "stance_claim_autoEvid",
            [["denies", "refute", "refute"], ["refute", "refute"]],
            "sentences.sentence1.[0].stance_claim_autoEvid[0]",
            '"denies"; allowed: "completely-support"',
        ),
        ("auto_evidence", None, "sentences.sentence1.auto_evidence", "allowed: a list of 2"),
    ],
)
def test_faults_of_factcheck_gpt_name_the_field(tmp_path, field, value, place, said):
    row = json.loads(json.dumps(CHECKED))
    row["sentences"]["sentence1"][field] = value
    cases, faults = read(read_factcheck_gpt, tmp_path / "bench.jsonl", CHECKED, row, CHECKED)
    assert [case.id for case in cases] == ["fcgpt-000", "fcgpt-002"]
    assert faults[0][:2] == (2, place)
    assert said in faults[0][2]


def test_factcheck_gpt_gives_the_published_cases(tmp_path):
    path = SHARED / "cases" / "factcheck_gpt.jsonl"
    if not path.exists():
        pytest.skip("needs the shared cases")
    stances = {("entailment", 0.95): "completely-support", ("entailment", 0.75): "partially-support"}
    for line in path.read_text(encoding="utf-8").splitlines():
        wanted = json.loads(line)
        passages = {context["id"]: context for context in wanted["contexts"]}
        atoms = wanted["atoms"]
        beside = {}  # the passages of each atom with their stances; one that stands there twice has two relations
        for atom in atoms:
            said = {context: [] for context in atom["contexts"]}
            for one in wanted["relations"]:
                if one["target"] == atom["id"]:
                    said[one["source"]].append(stances.get((one["type"], one["probability"]), "refute"))
            beside[atom["id"]] = [(c, told) for c, all_ in said.items() for told in all_ or ["irrelevant"]]
        labels = {"S": True, "NS": False}
        sentence = {
            "claims": [atom["text"] for atom in atoms],
            "claims_factuality_label": [labels.get(atom.get("label"), "unknown") for atom in atoms],
            "revised_claims": [atom["revised"] for atom in atoms],
            "auto_evidence": [[passages[c]["text"] for c, _ in beside[atom["id"]]] for atom in atoms],
            "auto_evidence_url": [[passages[c]["link"] for c, _ in beside[atom["id"]]] for atom in atoms],
            "stance_claim_autoEvid": [[told for _, told in beside[atom["id"]]] for atom in atoms],
        }
        released = {"prompt": wanted["query"], "response": wanted["response"], "sentences": {"sentence1": sentence}}
        released["revised_response"] = wanted["revised_response"]
        (case,), faults = read(read_factcheck_gpt, tmp_path / "bench.jsonl", released)
        found = case_to_dict(case)
        key = lambda one: (one["target"], one["source"])  # noqa: E731
        assert faults == []
        assert sorted(found.pop("relations"), key=key) == sorted(wanted.pop("relations"), key=key)
        assert found | {"id": wanted["id"]} == {
            **wanted,
            "atoms": [{k: v for k, v in atom.items() if v is not None} for atom in atoms],
        }


def test_eli5_takes_the_answer_with_the_most_votes(tmp_path):
    more = THREAD | {"q_id": "q2", "selftext": "Asked by my son.", "answers": [{"text": "So.", "score": 1}]}
    gone = THREAD | {"q_id": "q3", "answers": {"a_id": ["x"], "text": ["[deleted]"], "score": [1]}}
    (case, other), faults = read(read_eli5, tmp_path / "train.json", json.dumps([THREAD, more, gone]))
    assert faults == []
    assert (case.id, case.query, case.topic) == ("eli5-5lcjq6", "Why is the sky blue?", "Physics")
    assert case.response == case.extra["reference"] == "Short waves scatter more."
    assert (case.extra["a_id"], case.extra["score"]) == ("y", 40)
    assert other.query == "Why is the sky blue?\n\nAsked by my son."


def test_the_first_of_two_answers_with_as_many_votes_wins(tmp_path):
    tied = THREAD | {"answers": {"text": ["One.", "Two."], "score": [5, 5]}}
    (case,), _ = read(read_eli5, tmp_path / "t.jsonl", tied)
    assert case.response == "One."


def test_askhistorians_reads_reddit_and_veriscore(tmp_path):
    asked = THREAD | {"subreddit": "AskHistorians"}
    model = {"question": "Who built it?", "response": "Bo did.", "model": "gpt", "prompt_source": "askhist"}
    other = {"question": "How?", "response": "So.", "prompt_source": "ShareGPT"}
    path = write(tmp_path / "h.jsonl", asked, THREAD, model, other, {"question": "When?"})
    report = BuildReport()
    cases = list(selected(read_askhistorians(path), Selection(), report))
    assert [case.id for case in cases] == ["askhistorians-5lcjq6", "askhistorians-h-3", "askhistorians-h-5"]
    assert [case.response for case in cases] == ["Short waves scatter more.", "Bo did.", None]
    assert report.skipped == {"from explainlikeimfive": 1, "from ShareGPT": 1}


def test_conflictbank_questions(tmp_path):
    (true, false), faults = read(read_conflictbank, tmp_path / "qa.jsonl", QUESTION, relations=0.9)
    assert faults == []
    assert (true.id, true.atoms[0].label) == ("conflictbank-qa-1-true", "S")
    assert (false.id, false.response) == ("conflictbank-qa-1-misinformation", "Ada was born in Paris.")
    assert (false.atoms[0].label, false.extra["reference"]) == ("NS", "Ada was born in London.")
    assert [context.text for context in false.contexts] == ["London records name Ada.", "Paris papers name Ada."]
    assert [relation.type for relation in true.relations] == [RelationType.ENTAILMENT, RelationType.CONTRADICTION]
    assert [relation.type for relation in false.relations] == [RelationType.CONTRADICTION, RelationType.ENTAILMENT]
    cases, _ = read(read_conflictbank, tmp_path / "qa.jsonl", conflicts=("temporal", "semantic"), claims="false")
    assert [case.id for case in cases] == ["conflictbank-qa-1-temporal", "conflictbank-qa-1-semantic"]
    assert cases[0].relations is None
    twice = {k: v for k, v in QUESTION.items() if k != "misinformation_conflict_evidence"}
    twice["misinformation_conflict_evidence_evidence"] = "Paris papers name Ada."
    cases, faults = read(read_conflictbank, tmp_path / "twice.jsonl", twice)
    assert (len(cases), faults) == (2, [])
    with pytest.raises(SettingsError, match="conflicts is 'lies'"):
        read_conflictbank(tmp_path / "qa.jsonl", conflicts=("lies",))


def test_conflictbank_pairs(tmp_path):
    def row(category, claim, subject="Ada", **more):
        return {"id": 1, "subject": subject, "category": category, "claim": claim, "evidence": f"So: {claim}", **more}

    rows = (
        row("misinformation_conflict", "Ada is French."),
        row("default", "Ada is English."),
        row("default", "Bo is Swiss.", subject="Bo"),
        row("misinformation_conflict", "Cy is Danish.", subject="Cy"),
        row("gossip", "Di sings.", subject="Di"),
        "nonsense",
        row("default", "Ed is Irish.", subject="Ed"),
        row("misinformation_conflict", "Ed is Welsh.", subject="Ed"),
    )
    cases, faults = read(read_conflictbank, tmp_path / "pairs.jsonl", *rows)
    assert [case.response for case in cases] == ["Ada is English.", "Ada is French.", "Ed is Irish.", "Ed is Welsh."]
    assert [line for line, *_ in faults] == [4, 5, 6]
    assert [field for _, field, _ in faults[:2]] == ["category", "category"]


def test_conflictbank_reads_files_of_both_kinds_and_standard_input_once(tmp_path, monkeypatch):
    pair = {"id": 1, "subject": "Ada", "category": "default", "claim": "Yes.", "evidence": "So."}
    lie = pair | {"category": "misinformation_conflict", "claim": "No."}
    (tmp_path / "b").mkdir()
    paths = [write(tmp_path / "qa.jsonl", QUESTION), write(tmp_path / "b" / "qa.jsonl", pair, lie)]
    cases = list(selected(read_conflictbank(*paths), Selection()))
    label = tmp_path.name
    assert [case.id for case in cases] == [
        f"conflictbank-{label}-qa-1-true",
        f"conflictbank-{label}-qa-1-misinformation",
        "conflictbank-b-qa-1-true",
        "conflictbank-b-qa-1-misinformation",
    ]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(paths[1].read_bytes())))
    found = list(selected(read_conflictbank("-"), Selection()))
    assert [case.id for case in found] == ["conflictbank-stdin-1-true", "conflictbank-stdin-1-misinformation"]


def test_wikicontradict(tmp_path):
    path = tmp_path / "wiki.csv"
    path.write_text(TABLE + "8,too,short\n", encoding="utf-8")
    rows = list(read_wikicontradict(path))
    one, two = rows[0].value.cases
    assert (one.id, two.id) == ("wikicontradict-7-1", "wikicontradict-7-2")
    assert (one.response, two.response, one.atoms) == ("761", "700", None)
    assert one.contexts[0].text == 'There were "761" survivors,\nsome say.'
    assert (one.contexts[0].title, one.contexts[0].link) == ("Lusitania", "http://w")
    assert one.extra["other_answer"] == "700"
    assert (rows[1].faults[0].line, rows[1].faults[0].message) == (
        4,
        "the line has 3 fields; allowed: 12, as in the header",
    )
    packed = tmp_path / "wiki.csv.gz"
    packed.write_bytes(gzip.compress(TABLE.encode()))
    assert [row.value.cases for row in read_wikicontradict(packed)] == [rows[0].value.cases]


READERS = {
    "factscore": (read_factscore, BIO, ["topic", "output"]),
    "factool": (read_factool, CLAIMS, ["prompt", "response", "claims"]),
    "factcheck_gpt": (read_factcheck_gpt, CHECKED, ["prompt", "response", "sentences"]),
    "eli5": (read_eli5, THREAD, ["q_id", "title", "answers"]),
    "conflictbank": (read_conflictbank, QUESTION, ["default_claim", "misinformation_conflict_evidence"]),
}


@pytest.mark.parametrize("name", READERS)
def test_missing_and_unknown_fields_are_named(tmp_path, name):
    reader, good, needed = READERS[name]
    path = tmp_path / "rows.jsonl"
    write(path, good, "{broken", 7, *({k: v for k, v in good.items() if k != key} for key in needed))
    rows = list(reader(path))
    assert [bool(row.faults) for row in rows] == [False, True, True] + [True] * len(needed)
    for row, key in zip(rows[3:], needed, strict=True):
        (fault,) = row.faults
        assert (fault.file, fault.line, fault.field) == (str(path), row.number, key)
        assert f"{key} " in fault.message
    write(path, good | {"surprise": 1})
    (row,) = reader(path)
    assert row.value.unknown == ("surprise",)


@pytest.mark.parametrize("name", READERS)
@given(value=st.none() | st.integers() | st.text(max_size=3) | st.lists(st.none() | st.text(max_size=2), max_size=2))
def test_no_value_of_any_field_ends_the_reading(tmp_path_factory, name, value):
    reader, good, _ = READERS[name]
    path = tmp_path_factory.getbasetemp() / f"{name}.jsonl"
    write(path, *(good | {key: value} for key in good), good | {"q_id": "last"})
    rows = list(reader(path))
    assert len(rows) == len(good) + 1
    assert rows[-1].value is not None
    assert all(bool(row.faults) != (row.value is not None) for row in rows)


@pytest.mark.parametrize("name", READERS)
def test_cases_are_valid_and_ids_unique(tmp_path, name):
    reader, good, _ = READERS[name]
    rows = [good | ({"q_id": f"q{i}"} if "q_id" in good else {}) for i in range(3)]
    a, b = write(tmp_path / "a.jsonl", *rows), write(tmp_path / "b.jsonl", *rows[:0], rows[0] | {"q_id": "z"})
    cases = list(selected(reader(a, b), Selection()))
    assert len({case.id for case in cases}) == len(cases) >= 4
    out = tmp_path / "cases.jsonl"
    write(out, *map(case_to_dict, cases))
    assert [fault for fault in validate(out) if not isinstance(fault, Notice)] == []
    assert [row.case for row in read_cases(out)] == cases


def test_a_repeated_id_is_a_fault(tmp_path):
    _, faults = read(read_eli5, tmp_path / "t.jsonl", THREAD, THREAD)
    assert faults[0][0] == 2
    assert "t.jsonl:1; allowed: a unique id" in faults[0][2]


def test_files_of_one_name_are_labelled_by_their_folders(tmp_path):
    (tmp_path / "labeled").mkdir()
    (tmp_path / "unlabeled").mkdir()
    paths = [write(tmp_path / part / "GPT.jsonl", BIO) for part in ("labeled", "unlabeled")]
    ids = [case.id for case in selected(read_factscore(*paths), Selection())]
    assert ids == ["factscore-labeled-GPT-1", "factscore-unlabeled-GPT-1"]
    with pytest.raises(SettingsError, match="2 files are called"):
        list(read_factscore(paths[0], paths[0]))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        list(read_factscore(tmp_path / "none.jsonl"))


def many(tmp_path, count, **more):
    rows = [THREAD | {"q_id": f"q{i}"} | more for i in range(count)]
    return write(tmp_path / "many.jsonl", *rows)


def chosen(path, *selection):
    return [case.id for case in selected(read_eli5(path), Selection(*selection))]


@given(st.integers(0, 10**6))
def test_splits_have_exact_shares(seed):
    splitter = Splitter(seed)
    found = [splitter.of(f"g{i}") for i in range(100)]
    assert [found.count(split) for split in SPLITS] == [80, 10, 10]
    assert all(found[i : i + 10].count("test") == 1 for i in range(0, 100, 10))
    assert [splitter.of(f"g{i}") for i in range(100)] == found


@given(st.integers(0, 10**6))
def test_one_of_every_two_cases_is_drawn(seed):
    drawn = [is_drawn(seed, i) for i in range(40)]
    assert all(drawn[i] != drawn[i + 1] for i in range(0, 40, 2))


def test_splits_are_disjoint_and_depend_on_the_seed_alone(tmp_path):
    path = many(tmp_path, 50)
    parts = [set(chosen(path, None, 3, split)) for split in SPLITS]
    assert [len(part) for part in parts] == [40, 5, 5]
    assert set.union(*parts) == set(chosen(path))
    assert [set(chosen(path, None, 3, split)) for split in SPLITS] == parts
    assert [set(chosen(path, None, 4, split)) for split in SPLITS] != parts
    cases = list(selected(read_eli5(path), Selection(seed=3, split="all")))
    assert {case.id for case in cases if case.extra["split"] == "test"} == parts[2]
    longer = many(tmp_path, 60)
    assert parts[2] < set(chosen(longer, None, 3, "test"))


def test_a_limit_takes_the_first_and_with_a_seed_a_sample(tmp_path):
    path = many(tmp_path, 50)
    everything = chosen(path)
    assert chosen(path, 7) == everything[:7]
    drawn = chosen(path, 7, 1)
    assert drawn == chosen(path, 7, 1) != everything[:7]
    assert len(drawn) == 7
    assert sorted(drawn, key=everything.index) == drawn
    assert chosen(path, 7, 2) != drawn
    assert chosen(path, 7, 1, "train") == chosen(path, 7, 1, "train")
    assert chosen(path, 1000) == everything


def test_a_limit_ends_the_reading(tmp_path):
    report = BuildReport()
    list(selected(read_eli5(many(tmp_path, 50)), Selection(limit=3), report))
    assert report.rows == 3


def test_cases_of_one_group_share_a_split(tmp_path):
    path = write(tmp_path / "bio.jsonl", *(BIO | {"topic": f"T{i % 20}"} for i in range(100)))
    cases = list(selected(read_factscore(path), Selection(split="all")))
    splits = {(case.topic, case.extra["split"]) for case in cases}
    assert len(cases) == 100
    assert len(splits) == len({topic for topic, _ in splits}) == 20  # one split per topic
    assert len({split for _, split in splits}) > 1


def test_bad_selections_are_refused():
    for bad in ({"limit": 0}, {"seed": -1}, {"split": "dev"}):
        with pytest.raises(SettingsError):
            Selection(**bad)


RIGHT = Case(id="c", query="Why [so]?", response="Light scatters <more> at\n\n400 nm.")


def run_falsifier(*texts, case=RIGHT, **options):
    """What comes of scripted replies, the prompts that were asked, and those that were rejected."""
    asked, rejected, replies = [], [], list(texts)

    async def ask(prompt):
        asked.append(prompt)
        reply = replies.pop(0)
        return reply if isinstance(reply, (Failure, Reply)) else Reply(text=reply)

    async def reject(prompt):
        rejected.append(prompt)

    return asyncio.run(Falsifier(**options).run(case, ask, reject)), asked, rejected


def test_a_wrong_answer_takes_the_place_of_the_right_one():
    found, asked, rejected = run_falsifier("Sure! <wrong>Light scatters &lt;less> at\n\n900 nm.</wrong>")
    assert found.response == "Light scatters <less> at\n\n900 nm."
    assert found.extra["stages"]["falsify"] == {"template": "falsify/1", "errors": 3, "prompts": 1}
    assert (len(asked), rejected) == (1, [])
    assert "Light scatters &lt;more> at\n\n400 nm." in asked[0].messages[0][1]
    assert "Why (so)?" in asked[0].messages[0][1]


@pytest.mark.parametrize(
    "reply",
    [
        "I cannot help with that.",
        "<wrong> </wrong>",
        f"<wrong>{RIGHT.response}</wrong>",
        "<wrong>" + "long " * 100 + "</wrong>",
        Reply(text="<wrong>Light sca</wrong>", finish="length"),
    ],
    ids=["refusal", "nothing", "unchanged", "too long", "cut off"],
)
def test_after_a_useless_reply_the_model_is_asked_again_then_sampled_afresh(reply):
    good = "<wrong>Light scatters less at 900 nm.</wrong>"
    found, asked, rejected = run_falsifier(reply, good)
    assert found.response == "Light scatters less at 900 nm."
    assert [prompt.template for prompt in asked] == ["falsify/1", "falsify/1 repair/1"]
    assert rejected == []
    found, asked, rejected = run_falsifier(reply, reply, reply)
    assert (found.kind, len(asked), rejected) == ("unreadable", 3, asked)
    assert asked[2].temperature == 1.0


def test_a_refused_prompt_is_not_repeated():
    refused = Failure("refused", "no", 1)
    assert run_falsifier(refused)[:1] == (refused,)


def test_bad_falsifiers_are_refused():
    for bad in ({"errors": 0}, {"ratio": 0.5}, {"max_tokens": 0}):
        with pytest.raises(SettingsError):
            Falsifier(**bad)


def test_half_of_a_stream_is_made_wrong_in_order_and_once(tmp_path):
    cases = [Case(id=f"c{i}", query="?", response=f"It is number {i} of them.") for i in range(20)]
    seed = next(seed for seed in range(99) if is_drawn(seed, 2))

    def run(server):
        with Store.open(tmp_path / "s.sqlite") as store:
            return falsify(cases, Client(Endpoint(server.url, "m"), store=store), seed=seed, window=4)

    with ScriptedServer(answer) as server:
        found = run(server)
        assert [one.case.id for one in found] == [case.id for case in cases]
        wrong = [one.case for one in found if one.case.extra.get("answer") == "wrong"]
        right = [one.case for one in found if one.case.extra.get("answer") == "right"]
        assert (len(wrong), len(right)) == (9, 10)
        assert all("letter" in case.response for case in wrong)
        assert all("number" in case.response for case in right)
        assert found[2].failure.kind == "unreadable"
        calls = server.calls
        again = run(server)
        assert again == found
        assert server.calls == calls + 3  # only what was rejected is asked again
