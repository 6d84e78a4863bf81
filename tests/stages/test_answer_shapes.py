"""Every stage reads every shape of answer, and asks again where an answer was visibly cut off."""

from __future__ import annotations

import asyncio
import json

import pytest

from fcjax.core.prompts import Reply
from fcjax.core.records import Case, RelationType, Status
from fcjax.evaluation.judge import Coverage
from fcjax.io.files import parse_case
from fcjax.stages.answers import is_cut
from fcjax.stages.atomize import Atomizer
from fcjax.stages.parsing.labels import read_labels
from fcjax.stages.parsing.list_parser import read_list, read_numbered
from fcjax.stages.query import QueryBuilder
from fcjax.stages.relate import Agenda, RelationModel, relate
from fcjax.stages.revise import Reviser
from fcjax.stages.summarise import Summariser

TOWNS = ["Town 1 has 9 bridges.", "Town 1 has 15 schools.", "Town 1 has 7 mills."]


def numbered(items: list[str]) -> dict[str, str]:
    """Answers about numbered items, in the shapes that models write."""
    pairs = list(enumerate(items, 1))
    plain = {str(i): item for i, item in pairs}
    return {
        "JSON": json.dumps(plain),
        "a fence and chatter": f"Sure, here it is:\n```json\n{json.dumps(plain, indent=2)}\n```\nAnything else?",
        "single quotes": repr(plain),
        "curly quotes": "{" + ", ".join(f"“{i}”: “{item}”" for i, item in pairs) + "}",
        "integer keys": repr(dict(pairs)),
        "named keys": json.dumps({f"claim {i}": item for i, item in pairs}),
        "a trailing comma": "{" + "".join(f'"{i}": "{item}",\n' for i, item in pairs) + "}",
        "a forgotten comma": "{" + "\n".join(f'"{i}": "{item}"' for i, item in pairs) + "}",
        "no braces": ",\n".join(f'"{i}": "{item}"' for i, item in pairs),
        "objects": json.dumps([{"id": i, "answer": item, "text": item} for i, item in pairs]),
        "objects in single quotes": repr([{"claim": i, "answer": item, "text": item} for i, item in pairs]),
        "objects by number": json.dumps({str(i): {"answer": item, "text": item} for i, item in pairs}),
        "an object a line": "\n".join(json.dumps({"id": i, "answer": item, "text": item}) for i, item in pairs),
        "under a key": json.dumps({"result": plain}),
        "a list per number": json.dumps({str(i): [item] for i, item in pairs}),
        "lists of a number and a text": json.dumps(pairs),
        "full-width punctuation": "{" + "，".join(f'"{i}"："{item}"' for i, item in pairs) + "}",
        "a list": json.dumps(items),
        "a list in curly quotes": "[" + ", ".join(f"“{item}”" for item in items) + "]",
        "lines": "\n".join(f"{i}. {item}" for i, item in pairs),
    }


SHAPES = [*numbered(["x"])]


class Script:
    """A model that gives its answers in order, the last one again and again, and keeps what it was asked."""

    def __init__(self, *answers: str):
        self.answers = list(answers)
        self.prompts: list[object] = []

    async def __call__(self, prompt: object) -> Reply:
        self.prompts.append(prompt)
        return Reply(text=self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


def towns(**more: object) -> Case:
    atoms = [{"id": f"a{i}", "text": text} for i, text in enumerate(TOWNS)]
    contexts = [{"id": "c0", "text": " ".join(TOWNS)}]
    return parse_case({"id": "x", "query": "What is in Town 1?", "response": " ".join(TOWNS)} | {
        "atoms": atoms, "contexts": contexts, **more
    })  # fmt: skip


def packed(script: Script) -> list[object]:
    model = RelationModel(style="packed")
    (question,) = model.questions(Agenda.of(towns(), "FR2").pairs())
    found = asyncio.run(relate(question, script))
    assert all((one.status is Status.OK) == (one.type is not None) for one in found)
    return [None if one.type is None else str(one.type) for one in found]


def revised(script: Script) -> list[object]:
    case = asyncio.run(Reviser().run(towns(), script))
    return [None if atom.original is None else atom.text for atom in case.atoms]


def queried(script: Script) -> list[object]:
    case = asyncio.run(QueryBuilder().run(towns(), script))
    return [atom.extra.get("query") for atom in case.atoms]


def covered(script: Script) -> list[object]:
    found = asyncio.run(Coverage().run("A text.", TOWNS, script))
    return [one.verdict for one in found.judgements]


def atomized(script: Script) -> list[object]:
    case = asyncio.run(Atomizer().run(Case(id="x", response=" ".join(TOWNS)), script))
    return [atom.text for atom in case.atoms]


STAGES = {
    "relate": (packed, ["entailment", "contradiction", "neutral"]),
    "revise": (revised, ["Town 1 in Spain has 9 bridges.", "Town 1 in Spain has 15 schools.", TOWNS[2]]),
    "query": (queried, ["Town 1 bridges", "Town 1 schools", "Town 1 mills"]),
    "judge": (covered, ["covered", "missing", "covered"]),
    "atomize": (atomized, TOWNS),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_reads_every_shape(stage, shape):
    run, answers = STAGES[stage]
    if (stage, shape) == ("atomize", "no braces"):
        pytest.skip("a list of facts has no numbers that tell such lines from prose")
    if stage == "relate" and shape.startswith("a list"):
        answers = ["neutral", "entailment", "neutral"]  # all labels in the order of the question are no answer
    script = Script(numbered(answers)[shape])
    assert run(script) == answers
    assert len(script.prompts) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"summary": "Town 1 has 9 bridges.", "confidence": 0.5}',
        "{'summary': 'Town 1 has 9 bridges.', 'confidence': 0.5}",
        "{“summary”: “Town 1 has 9 bridges.”, “confidence”: 0.5}",
        '```json\n{"Summary": "Town 1 has 9 bridges.", "confidence": "50 %",}\n```',
    ],
)
def test_a_summary_is_read_in_every_shape(text):
    script = Script(text)
    case = asyncio.run(Summariser().run(towns(), script))
    assert (case.contexts[0].text, len(script.prompts)) == (TOWNS[0], 1)


# Answers that were cut off though the server says `stop`


@pytest.mark.parametrize(
    "cut",
    [
        '["Town 1 has 9 bridges.", "Town 1 has 15 schools.", "Town 1 ',
        '["Town 1 has 9 bridges.", "Town 1 has 15 schools.",',
        '{"facts": ["Town 1 has 9 bridges.", "Town 1 has 15 schools."',
        '[{"fact": "Town 1 has 9 bridges."}, {"fact": "Town 1 has 15 schools."}, {"fact": "Tow',
        "['Town 1 has 9 bridges.', 'Town 1 has 15 schools.', 'Town",
        "```json\n[“Town 1 has 9 bridges.”, “Town 1 has 15 schools.”, “Town 1 has\n```",
    ],
)
def test_a_list_that_ends_in_the_middle_is_asked_for_again(cut):
    script = Script(cut, json.dumps(TOWNS))
    assert atomized(script) == TOWNS
    assert len(script.prompts) == 2
    always = Script(cut)
    case = asyncio.run(Atomizer().run(Case(id="x", response=" ".join(TOWNS)), always))
    assert [atom.text for atom in case.atoms] == TOWNS[:2]
    assert case.extra["stages"]["atomize"]["cut"] == 1
    assert len(always.prompts) == 4  # the last one is about what no fact covers
    assert always.prompts[-1].template == "atomize.rest/1"


def test_a_long_part_whose_list_ends_in_the_middle_is_divided():
    facts = [f"Town {i} has {i + 7} bridges." for i in range(60)]

    def answer(prompt: object) -> str:
        text = prompt.messages[0][1].partition("<text>")[2].partition("</text>")[0]
        found = json.dumps([fact for fact in facts if fact in text])
        return found if len(found) < 1000 else found[:1000]

    class Short(Script):
        async def __call__(self, prompt: object) -> Reply:
            return Reply(text=answer(prompt))

    case = asyncio.run(Atomizer().run(Case(id="x", response=" ".join(facts)), Short("")))
    assert [atom.text for atom in case.atoms] == facts


@pytest.mark.parametrize("stage", ["relate", "revise", "query", "judge"])
@pytest.mark.parametrize("shape", ["JSON", "single quotes", "curly quotes", "integer keys", "objects", "a list"])
def test_what_a_cut_answer_lacks_is_asked_for_again(stage, shape):
    run, answers = STAGES[stage]
    whole = numbered(answers)[shape]
    script = Script(whole[:-5], numbered(answers)["JSON"])
    assert run(script) == answers
    assert len(script.prompts) == 2


@pytest.mark.parametrize(
    "cut",
    [
        "At first it looks like [neutral]. But the numbers agree, so it is [entail",
        "It is not [neutral], since the numbers agree: [",
        '{"reason": "The answer is not [neutral]',
    ],
)
def test_a_label_before_an_end_in_the_middle_is_not_taken(cut):
    pair = next(Agenda.of(towns(), "FR2").pairs())
    (question,) = RelationModel().questions([pair])
    script = Script(cut, "[entailment]")
    (found,) = asyncio.run(relate(question, script))
    assert (found.type, len(script.prompts)) == (RelationType.ENTAILMENT, 2)


@pytest.mark.parametrize("cut", ['{"summary": "Town 1 has 9 bri', "{'summary': 'Town 1 has", '{"relevant": fal'])
def test_a_summary_that_ends_in_the_middle_is_asked_for_again(cut):
    script = Script(cut, '{"summary": "Town 1 has 9 bridges.", "confidence": 0.5}')
    case = asyncio.run(Summariser().run(towns(), script))
    assert (case.contexts[0].text, len(script.prompts)) == (TOWNS[0], 2)


def test_a_number_that_ends_in_the_middle_is_not_a_confidence():
    script = Script('{"summary": "Town 1 has 9 bridges.", "confidence": 0.')
    case = asyncio.run(Summariser().run(towns(), script))
    assert (case.contexts[0].text, case.contexts[0].summary_confidence) == (TOWNS[0], None)


def test_several_texts_for_one_number_are_not_read_as_those_of_all_items():
    answer = '{"1": ["entailment", "high"], "2": ["contradiction", "high"]}'
    assert read_labels(answer, 2) == {}
    assert read_numbered('{"1": ["a b", "c d"], "2": ["e f", "g h"]}', 2) == {}


@pytest.mark.parametrize("comma", ["，", "、", "， "])
def test_a_list_with_full_width_commas_has_all_its_items(comma):
    assert read_list(f'["{TOWNS[0]}"{comma}"{TOWNS[1]}"]') == TOWNS[:2]


def test_numbers_of_the_items_of_a_list_are_no_part_of_them():
    assert read_list(json.dumps([f"{i}. {town}" for i, town in enumerate(TOWNS, 1)])) == TOWNS
    assert read_list('["1. FC Koeln won.", "1. FC Koeln lost."]') == ["1. FC Koeln won.", "1. FC Koeln lost."]
    assert read_list('["1. FC Koeln won."]') == ["1. FC Koeln won."]


def test_a_backslash_before_a_letter_stays_where_it_is_no_escape():
    assert read_list(r'["$\alpha$ is in C:\Users.", "Of \[b\]."]') == [r"$\alpha$ is in C:\Users.", "Of [b]."]


@pytest.mark.parametrize("answer", ["[Entail\u00adment]", "[Entailment\u200b]", "\ufeff[\u200eEntailment]"])
def test_characters_without_a_shape_do_not_hide_a_label(answer):
    script = Script(answer)
    question = next(RelationModel().questions(Agenda.of(towns(), "FR2").pairs()))
    (found,) = asyncio.run(relate(question, script))
    assert found.type is RelationType.ENTAILMENT
    assert len(script.prompts) == 1


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ('["a", "b"]', False),
        ('["a", "b', True),
        ('["a", "b"', True),
        ('{"1": "a"', True),
        ('[["a"], ["b"', True),
        ('["a"] and then some', False),
        ('Draft: ["a"]. In full: ["a", "b', True),
        ("[entailment]", False),
        ("The interval [0, 1) is half open.", False),
        ("[", False),
        ("No list at all.", False),
        ("", False),
    ],
)
def test_what_is_visibly_cut(text, cut):
    assert is_cut(Reply(text=text)) == cut
    assert is_cut(Reply(text=text, finish="length"))
