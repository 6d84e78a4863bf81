"""The methods of comparison: each end to end, with its prompts in order and its result."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
import scripted_model
from scripted_model import THINGS, Shelf, count, passages
from scripted_server import ScriptedServer

from fcjax.core.errors import BudgetError, SettingsError
from fcjax.core.records import Status
from fcjax.correction.baselines import METHODS, method_of
from fcjax.correction.baselines.critic import CriticBaseline
from fcjax.correction.baselines.llm1 import LLM1
from fcjax.correction.baselines.llm2 import LLM2
from fcjax.correction.baselines.rac import RAC
from fcjax.correction.baselines.sft import SFT
from fcjax.correction.factcorrector import Corrector
from fcjax.critic.critic import Critic
from fcjax.evaluation.assessors import ASSESSORS, assessor_of
from fcjax.evaluation.assessors.factscore import FactScore
from fcjax.evaluation.assessors.factverify import FactVerify
from fcjax.evaluation.assessors.veriscore import VeriScore
from fcjax.io.client import Client
from fcjax.io.datasets.finetune import SYSTEM
from fcjax.io.endpoint import Endpoint
from fcjax.io.files import parse_case
from fcjax.io.pacing import Budget, Retry
from fcjax.scoring.settings import Settings
from fcjax.stages.pipeline import Pipeline

TOWN = 3
RIGHT = {thing: count(TOWN, i) for i, thing in enumerate(THINGS)}
QUERY = f"How many bridges has Town {TOWN}?"


def says(*things, **numbers):
    claims = {thing: RIGHT[thing] for thing in things} | numbers
    return " ".join(f"Town {TOWN} has {number} {thing}." for thing, number in claims.items())


FIRST = says("bridges", schools=1, parks=7)  # right, wrong, not told by the sources
BEST = says("bridges", "schools", parks=7)


def case(response=FIRST, **more):
    return parse_case({"id": "town", "query": QUERY, "response": response, **more})


class Noting(Client):
    """A client that notes what it is asked, by the names of the templates."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.names: list[str] = []

    async def ask(self, prompt):
        self.names.append(
            prompt.template.partition("/")[0].removeprefix("baseline.") + prompt.template.partition("/")[2][1:]
        )
        return await super().ask(prompt)


class Model:
    """Answers the stages as the scripted model does, and what is asked besides by the first key that the prompt has."""

    def __init__(self, **replies):
        self.replies = {
            key.replace("_", " "): list(value) if isinstance(value, tuple) else value for key, value in replies.items()
        }
        self.asked: list[list[dict[str, str]]] = []

    def __call__(self, messages):
        self.asked.append(messages)
        content = messages[0]["content"]
        for key, reply in self.replies.items():
            if key in content:
                reply = reply.pop(0) if isinstance(reply, list) else reply
                return reply(content) if callable(reply) else reply
        return scripted_model.answer(messages)

    def told(self, key):
        """What stood between tags in the last prompt that has `key`."""
        content = next(m[-1]["content"] for m in reversed(self.asked) if key in m[0]["content"])
        return dict(re.findall(r"^<(\w+)>\n(.*?)\n</\1>$", content, re.DOTALL | re.MULTILINE))


def shelf(**more):
    return Shelf(passages(TOWN + 1, 4, **more))


def run(made, model, given=None, *, retrieve=None, client=None):
    """What a method or assessor makes of a case, and the names of the prompts that it asked."""

    async def inner():
        async with Noting(Endpoint(server.url, "scripted"), retry=Retry(attempts=1), **(client or {})) as asked:
            settings = Settings(version="FR1")
            critic = Critic(
                asked,
                retrieve=shelf() if retrieve is None else retrieve or None,
                settings=settings,
                pipeline=Pipeline(revise=None),
            )
            method = made(critic)
            work = method.correct if hasattr(method, "correct") else method.assess
            return await work(given or case()), asked.names

    with ScriptedServer(model) as server:
        found, names = asyncio.run(inner())
    assert found.cost.prompts == len(names)
    return found, names


def revised(text):
    return f"<revised>\n{text}\n</revised>"


# LLM1, LLM2, SFT: one prompt


def test_llm1_asks_once_and_shows_no_evidence():
    model = Model(by_what_you_know=revised(BEST))
    looked = shelf()
    found, names = run(LLM1, model, retrieve=looked)
    assert names == ["llm1"]
    assert looked.searches == 0
    assert (found.response, found.status, found.stop, found.method) == (BEST, Status.OK, "done", "llm1")
    assert model.told("by what you know") == {"question": QUERY, "response": FIRST, "revised": "..."}
    assert [one.kept for one in found.rounds] == [True, True]
    assert found.rounds[1].precision is None


def test_llm2_shows_what_was_found_for_the_question():
    model = Model(found_for_the_question=revised(BEST))
    looked = shelf()
    found, names = run(lambda critic: LLM2(critic, k=1), model, retrieve=looked)
    assert (names, looked.searches) == (["llm2"], 1)
    assert model.told("found for the question")["passages"] == f"P1 (Town {TOWN}): Guide 0 says so: {says('bridges')}"
    assert found.response == BEST
    assert found.rounds[1].trace == {"passages": 1}


def test_llm2_takes_the_contexts_of_a_case():
    contexts = [{"id": f"c{i}", "text": says(thing)} for i, thing in enumerate(("schools", "bridges"))]
    model = Model(found_for_the_question=revised(BEST))
    looked = shelf()
    run(lambda critic: LLM2(critic, k=1), model, case(contexts=contexts), retrieve=looked)
    assert looked.searches == 0
    assert model.told("found for the question")["passages"] == f"P1: {says('bridges')}"


@pytest.mark.parametrize("method", [LLM2, CriticBaseline, RAC])
def test_a_response_without_any_source_stands(method):
    found, names = run(method, Model(), retrieve=False)
    assert (found.response, found.status, names) == (FIRST, Status.INVALID_INPUT, [])
    assert "source" in found.reason or "retriever" in found.reason


def test_a_search_that_fails():
    found, names = run(LLM2, Model(), retrieve=Shelf([], broken=["bridges"]))
    assert (found.response, found.status, names) == (FIRST, Status.RETRIEVAL_FAILED, [])
    assert "403" in found.reason


def test_sft_has_the_conversation_of_the_training_files():
    model = Model(You_correct_answers=BEST)
    found, names = run(SFT, model)
    assert names == ["sft"]
    assert [turn["role"] for turn in model.asked[0]] == ["system", "user"]
    assert model.asked[0][0]["content"] == SYSTEM
    assert model.asked[0][1]["content"] == f"Question:\n{QUERY}\n\nAnswer:\n{FIRST}"
    assert found.response == BEST
    model = Model(Be_right=BEST)
    assert run(lambda critic: SFT(critic, system="Be right."), model)[0].response == BEST


@pytest.mark.parametrize("method", [LLM1, LLM2, SFT])
@pytest.mark.parametrize("reply", ["", "I'm sorry, but I cannot help with that.", FIRST])
def test_replies_that_change_nothing(method, reply):
    found, _ = run(method, lambda messages: reply)
    same = reply == FIRST
    assert found.response == FIRST
    assert (found.status, found.stop) == ((Status.OK, "unchanged") if same else (Status.CORRECTION_FAILED, "failed"))


# RAC


def verdicts(*given):
    return json.dumps({str(number): verdict for number, verdict in enumerate(given, 1)})


def test_rac_verifies_then_corrects_then_rewrites():
    model = Model(
        numbered_statements=verdicts("true", "false", "not mentioned"),
        a_false_statement=revised(says("schools")),
        verified_facts_are=revised(BEST),
    )
    looked = shelf()
    found, names = run(RAC, model, retrieve=looked)
    assert names == ["atomize", "rac.verify", "rac.correct", "rac.rewrite"]
    assert looked.searches == 3
    assert found.response == BEST
    assert found.rounds[1].trace == {"statements": 3, "true": 1, "false": 1, "not mentioned": 1, "corrected": 1}
    told = model.told("numbered statements")
    assert told["statements"].splitlines()[1] == f"2. {says(schools=1)}"
    assert len(told["passages"].splitlines()) == 4  # two for each of two statements
    told = model.told("a false statement")
    assert told["statement"] == says(schools=1)
    assert all("schools" in line for line in told["passages"].splitlines())
    facts = model.told("verified facts are")["verified_facts"].splitlines()
    assert facts == [f"1. {says('bridges')}", f"2. {says('schools')}", f"3. {says(parks=7)}"]


def test_rac_can_leave_out_what_is_not_mentioned():
    model = Model(
        numbered_statements=verdicts("true", "false", "not mentioned"),
        a_false_statement=("I cannot help with this statement.",) * 3,  # then it is left out as well
        verified_facts_are=revised(says("bridges")),
    )
    found, names = run(lambda critic: RAC(critic, unmentioned=False), model)
    assert model.told("verified facts are")["verified_facts"] == f"1. {says('bridges')}"
    assert found.rounds[1].trace["corrected"] == 0
    assert names.count("rac.rewrite") == 1


@pytest.mark.parametrize("reply", [verdicts("true", "false"), "They are fine."])
def test_rac_keeps_the_response_where_the_counts_do_not_match(reply):
    found, names = run(RAC, Model(numbered_statements=reply))
    assert (found.response, found.status, found.stop) == (FIRST, Status.OK, "unchanged")
    assert "for 3 statements" in found.reason
    assert set(names) <= {"atomize", "rac.verify", "rac.verify repair/1"}


def test_rac_without_an_answer_has_failed():
    model = Model(numbered_statements=lambda content: {"body": {"error": {"message": "no"}}, "status": 500})
    found, _ = run(RAC, model)
    assert (found.response, found.status) == (FIRST, Status.CORRECTION_FAILED)


def test_rac_leaves_a_response_without_false_statements_alone():
    found, names = run(RAC, Model(numbered_statements=verdicts("true", "true", "not mentioned")))
    assert (found.response, found.status, found.stop) == (FIRST, Status.OK, "nothing_to_correct")
    assert names == ["atomize", "rac.verify"]


def test_rac_with_a_statement_whose_search_failed_keeps_the_response():
    found, _ = run(RAC, Model(numbered_statements=verdicts("true", "false")), retrieve=Shelf([], broken=["parks"]))
    assert (found.response, found.status) == (FIRST, Status.CORRECTION_FAILED)
    assert "2 verdicts for 3 statements" in found.reason


def test_rac_uses_the_contexts_of_a_case():
    given = case(
        atoms=[{"id": "a0", "text": says(schools=1), "contexts": ["c0"]}],
        contexts=[{"id": "c0", "text": says("schools")}],
    )
    replies = {"numbered_statements": verdicts("false"), "a_false_statement": revised(says("schools"))}
    _, names = run(RAC, Model(**replies, verified_facts_are=revised(BEST)), given, retrieve=False)
    assert names == ["rac.verify", "rac.correct", "rac.rewrite"]


# CRITIC


def test_critic_searches_criticises_and_revises():
    model = Model(
        ask_a_search_engine=(
            f"<query>bridges of Town {TOWN}</query>",
            f"<query>schools of Town {TOWN}</query>",
            "<query>none</query>",
        ),
        What_is_wrong=("<critique>There are other schools.</critique>",),
        a_critique_of=revised(BEST),
    )
    looked = shelf()
    found, names = run(lambda critic: CriticBaseline(critic, rounds=1), model, retrieve=looked)
    assert names == ["critic.query"] * 3 + ["critic.critique", "critic.revise"]
    assert looked.searches == 2
    assert found.response == BEST
    assert found.rounds[1].trace["queries"] == [f"bridges of Town {TOWN}", f"schools of Town {TOWN}"]
    told = model.told("a critique of")
    assert told["critique"] == "There are other schools."
    assert [re.search(r"(\w+)\.$", line)[1] for line in told["evidence"].splitlines()] == ["bridges", "schools"]


def test_critic_continues_from_the_last_revision_until_nothing_is_wrong():
    model = Model(
        ask_a_search_engine="<query>none</query>",
        What_is_wrong=("<critique>wrong</critique>", "<critique>None.</critique>"),
        a_critique_of=(revised(BEST),),
    )
    found, names = run(CriticBaseline, model)
    assert names == ["critic.query", "critic.critique", "critic.revise", "critic.query", "critic.critique"]
    assert model.told("What is wrong")["response"] == BEST
    assert (found.response, found.stop) == (BEST, "nothing_to_correct")
    assert [one.kept for one in found.rounds] == [True, True, False]


def test_critic_ends_after_two_iterations_without_a_change():
    model = Model(
        ask_a_search_engine="<query>none</query>",
        What_is_wrong="<critique>wrong</critique>",
        a_critique_of=revised(FIRST),
    )
    found, names = run(lambda critic: CriticBaseline(critic, rounds=9), model)
    assert names.count("critic.revise") == 2
    assert (found.response, found.stop) == (FIRST, "unchanged")


def test_critic_is_done_after_a_last_iteration_with_a_change():
    model = Model(
        ask_a_search_engine="<query>none</query>",
        What_is_wrong="<critique>wrong</critique>",
        a_critique_of=(revised(FIRST), revised(BEST)),
    )
    found, _ = run(lambda critic: CriticBaseline(critic, rounds=2), model)
    assert (found.response, found.stop, found.reason) == (BEST, "done", "the method is done")


def test_critic_moves_on_to_the_next_passage():
    again = f"<query>bridges of Town {TOWN}</query>"
    model = Model(ask_a_search_engine=again, What_is_wrong="<critique>none</critique>")
    found, names = run(lambda critic: CriticBaseline(critic, queries=2), model)
    evidence = model.told("What is wrong")["evidence"].splitlines()
    assert [re.search(r"Guide \d", line)[0] for line in evidence] == ["Guide 0", "Guide 1"]
    assert names == ["critic.query", "critic.query", "critic.critique"]
    assert found.rounds[1].trace["passages"] == 2


def test_critic_shows_another_passage_where_two_queries_find_the_same_one():
    queries = (f"<query>bridges of Town {TOWN}</query>", f"<query>How many bridges has Town {TOWN}?</query>")
    model = Model(ask_a_search_engine=queries, What_is_wrong="<critique>none</critique>")
    found, _ = run(lambda critic: CriticBaseline(critic, queries=2), model)
    evidence = model.told("What is wrong")["evidence"].splitlines()
    assert [re.search(r"Guide \d", line)[0] for line in evidence] == ["Guide 0", "Guide 1"]
    assert found.rounds[1].trace["passages"] == 2


def test_critic_reports_what_failed():
    found, _ = run(CriticBaseline, Model(ask_a_search_engine="hm"))
    assert (found.response, found.status) == (FIRST, Status.CORRECTION_FAILED)
    model = Model(ask_a_search_engine="<query>bridges</query>")
    found, _ = run(CriticBaseline, model, retrieve=Shelf([], broken=["bridges"]))
    assert (found.response, found.status) == (FIRST, Status.RETRIEVAL_FAILED)


# All methods


REPLIES = {
    "by what you know": revised(BEST),
    "found for the question": revised(BEST),
    "You correct answers": BEST,
    "numbered statements": verdicts("true", "false", "not mentioned"),
    "a false statement": revised(says("schools")),
    "verified facts are": revised(BEST),
    "ask a search engine": "<query>none</query>",
    "What is wrong": "<critique>wrong</critique>",
    "a critique of": revised(BEST),
    "was found out about": revised(BEST),
}


def test_the_number_of_prompts_is_reported_beside_the_others():
    found = {name: run(method, Model(**REPLIES))[0] for name, method in METHODS.items()}
    assert all(one.response == BEST for one in found.values())
    assert {name: one.cost.prompts for name, one in found.items()} == {
        "factcorrector": (1 + 2 + 2) + 1 + (1 + 2 + 2),  # evaluate: atomize, 2 contexts for each of 2 atoms; refine
        "llm1": 1,
        "llm2": 1,
        "rac": 1 + 1 + 1 + 1,  # atomize, verify, correct one, rewrite
        "critic": 3 * 3,  # query, critique, revise, where the last two change nothing
        "sft": 1,
    }
    assert all(json.loads(json.dumps(one.row))["best"]["response"] == BEST for one in found.values())
    assert all(one.cost.tokens > 0 for one in found.values())


@pytest.mark.parametrize("name", METHODS)
def test_every_method_streams_in_order(name):
    async def inner():
        async with Client(Endpoint(server.url, "scripted")) as client:
            critic = Critic(client, retrieve=shelf(), settings=Settings(version="FR1"), pipeline=Pipeline(revise=None))
            method = method_of(name)(critic, open_cases=3)
            cases = [case(FIRST + " " * i) for i in range(8)] + [case(None), case("")]
            return [one async for one in method.correct_many(cases)]

    with ScriptedServer(Model(**REPLIES)) as server:
        found = asyncio.run(inner())
    assert [one.case.response for one in found] == [FIRST + " " * i for i in range(8)] + [None, ""]
    assert [one.response for one in found] == [BEST] * 8 + [None, ""]
    assert [one.status for one in found[8:]] == [Status.INVALID_INPUT] * 2


@pytest.mark.parametrize("name", METHODS)
def test_every_method_ends_with_its_budget(name):
    with pytest.raises(BudgetError):
        run(METHODS[name], Model(**REPLIES), client={"budget": Budget(prompts=0)})


def test_names():
    assert list(METHODS) == ["factcorrector", "llm1", "llm2", "rac", "critic", "sft"]
    assert (method_of("rac"), method_of("factcorrector"), assessor_of("veriscore")) == (RAC, Corrector, VeriScore)
    with pytest.raises(SettingsError, match="'llm1'"):
        method_of("llm3")
    with pytest.raises(SettingsError, match="'factscore'"):
        assessor_of("score")


# Assessors


def judge(content):
    """What a model says of a claim by the passages: it tells the verdict of the scripted world."""
    told = dict(re.findall(r"^<(\w+)>\n(.*?)\n</\1>$", content, re.DOTALL | re.MULTILINE))
    claim = told.get("statement") or told["claim"]
    sources = " ".join(told.get(tag, "") for tag in ("passages", "knowledge", "search_results"))
    said = scripted_model.relation(sources, claim)
    words = {"entailment": "supported", "contradiction": "contradicted", "neutral": "undecided"}
    if "<statement>" in content and "[true]" in content:
        return "[true]" if said == "entailment" else "[false]"
    return f"The passages say this and that.\n[{words[said]}]"


JUDGE = {"[true]": judge, "[undecided]": judge, "claim and search results": judge}


@pytest.mark.parametrize(
    ("assessor", "expected"),
    [
        (FactScore, ["supported", "not supported", "not supported"]),
        (VeriScore, ["supported", "contradicted", "undecided"]),
        (FactVerify, ["supported", "contradicted", "undecided"]),
    ],
)
def test_verdicts(assessor, expected):
    found, names = run(assessor, Model(**JUDGE))
    assert [atom["verdict"] for atom in found.row["atoms"]] == expected
    assert names == ["atomize", *[assessor.name] * 2]  # nothing is asked where there are no passages
    assert found.precision == pytest.approx(1 / 3)
    assert found.row["measures"] | {"n_atoms": 3, "n_supported": 1, "k": 3} == found.row["measures"]
    assert found.row["atoms"][2]["status"] == "no_evidence"
    assert found.row["cost"]["prompts"] == 3
    assert "Pr 0.33" in repr(found)


@pytest.mark.parametrize(
    ("assessor", "expected"),
    [
        (FactScore, ["supported", "unverified", "unverified"]),
        (VeriScore, ["supported", "refuted", "unverified"]),
        (FactVerify, ["supported", "refuted", "unverified"]),
    ],
)
def test_labels_are_compared_as_the_critics(assessor, expected):
    found, _ = run(assessor, Model(**JUDGE))
    assert [atom["label"] for atom in found.row["atoms"]] == expected


def test_factverify_shows_links():
    model = Model(**JUDGE)
    run(FactVerify, model)
    assert f"link: https://source0.example/town{TOWN}/bridges" in "".join(m[0]["content"] for m in model.asked)


def test_a_failed_verdict_has_no_label():
    def sometimes(content):
        return "hm" if "schools" in content else judge(content)

    found, _ = run(VeriScore, Model(**{"[undecided]": sometimes}))
    failed = found.row["atoms"][1]
    assert (failed["verdict"], failed["label"], failed["status"]) == (None, None, "relation_failed")
    measures = found.row["measures"]
    assert (measures["n_atoms"], measures["n_failed"], measures["precision"]) == (2, 1, 0.5)
    assert (measures["precision_worst"], measures["precision_best"]) == (0.3333333, 0.6666667)
    found, _ = run(VeriScore, Model(**{"[undecided]": "hm"}), case(says("bridges")))
    assert (found.status, found.row["measures"]) == ("relation_failed", None)


def test_duplicates_are_asked_about_once():
    atoms = [{"id": f"a{i}", "text": says("bridges"), "contexts": ["c0"]} for i in range(2)]
    given = case(atoms=atoms, contexts=[{"id": "c0", "text": says("bridges")}])
    found, names = run(FactScore, Model(**JUDGE), given)
    assert names == ["factscore"]
    assert found.row["atoms"][1]["duplicate_of"] == "a0"
    assert found.row["measures"]["n_atoms"] == 1


@pytest.mark.parametrize("name", ASSESSORS)
def test_every_assessor_streams_in_order(name):
    async def inner():
        async with Client(Endpoint(server.url, "scripted")) as client:
            critic = Critic(client, retrieve=shelf(), pipeline=Pipeline(revise=None))
            cases = [case(), case("Hello!", atoms=[]), case(None), case(BEST)]
            return [one async for one in assessor_of(name)(critic, open_cases=2).assess_many(cases)]

    with ScriptedServer(Model(**JUDGE)) as server:
        found = asyncio.run(inner())
    assert [one.status for one in found] == ["ok", "no_atoms", "invalid_input", "ok"]
    assert found[3].precision > found[0].precision


def test_an_assessor_needs_a_client():
    with pytest.raises(SettingsError, match="client"):
        FactScore(Critic())


@pytest.mark.parametrize("name", ASSESSORS)
def test_every_assessor_ends_with_its_budget(name):
    with pytest.raises(BudgetError):
        run(ASSESSORS[name], Model(**JUDGE), client={"budget": Budget(prompts=1)})
