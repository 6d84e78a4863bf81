"""Rows of public data sets in their documented formats, a correction, and a Label Studio export."""

from __future__ import annotations

from dataclasses import replace

from fcjax.core.records import Label, RelationType
from fcjax.scoring.findings import Evidence, Feedback, Finding

BIO = {
    "input": "Question: Tell me a bio of Ada Byron.",
    "output": "Ada Byron was a painter. She was born in 1815.",
    "topic": "Ada Byron",
    "cat": ["rare", "Europe"],
    "annotations": [
        {
            "text": "Ada Byron was a painter.",
            "is-relevant": True,
            "model-atomic-facts": [{"text": "Ada Byron was a painter."}],
            "human-atomic-facts": [
                {"text": "Ada Byron was a painter.", "label": "NS"},
                {"text": "Ada Byron was.", "label": "IR"},
            ],
        },
        {"text": "Thanks.", "is-relevant": False, "model-atomic-facts": [], "human-atomic-facts": None},
        {
            "text": "She was born in 1815.",
            "is-relevant": True,
            "model-atomic-facts": [],
            "human-atomic-facts": [{"text": "Ada Byron was born in 1815.", "label": "S"}],
        },
    ],
}


CLAIMS = {
    "prompt": "Which planet has most moons?",
    "response": "Jupiter has most, 79.",
    "claims": [{"claim": "Jupiter has most moons.", "label": True}, {"claim": "It has 79.", "label": False}],
    "label": False,
    "entry_point": None,
}


CHECKED = {
    "prompt": "Who was the oldest judge?",
    "response": "It was Judge Roy. I think so. He was born in 1898.",
    "revised_response": "It was Judge Ann.",
    "response_factuality": False,
    "sentences": {
        "sentence1": {
            "text": "It was Judge Roy.",
            "claims": ["The oldest judge was Roy.", "Roy was a judge."],
            "auto_evidence": [["Ann was the oldest.", "Roy sat in court.", "Cats purr."], ["Roy sat in court.", "NA"]],
            "auto_evidence_url": [["http://a", "http://r", "http://c"], ["http://r2", "NA"]],
            "stance_claim_autoEvid": [["refute", "partially-support", "irrelevant"], ["completely-support", "NA"]],
            "claims_factuality_label": [False, True],
            "revised_claims": ["The oldest judge was Ann.", "Roy was a judge."],
        },
        "sentence2": {"text": "I think so.", "claims": [], "revised_claims": ["NA"]},
        "sentence3": {
            "text": "He was born in 1898.",
            "claims": ["Roy was born in 1898."],
            "auto_evidence": [[]],
            "auto_evidence_url": [[]],
            "stance_claim_autoEvid": [[]],
            "claims_factuality_label": ["unknown"],
            "revised_claims": [],
        },
    },
}


THREAD = {
    "q_id": "5lcjq6",
    "title": "Why is the sky blue?",
    "selftext": "",
    "category": "Physics",
    "subreddit": "explainlikeimfive",
    "answers": {
        "a_id": ["x", "y", "z"],
        "text": ["It is not.", "Short waves scatter more.", "[removed]"],
        "score": [3, 40, 900],
        "text_urls": [[], [], []],
    },
    "title_urls": [],
    "selftext_urls": [],
}


QUESTION = {
    "subject": "Ada",
    "relation": "P19",
    "question": "Where was Ada born?",
    "options": ["London", "Paris", "uncertain", "Rome"],
    "correct_option": "A",
    "default_claim": "Ada was born in London.",
    "default_evidence": "London records name Ada.",
    "misinformation_conflict_claim": "Ada was born in Paris.",
    "misinformation_conflict_evidence": "Paris papers name Ada.",
    "temporal_conflict_claim": "In 2027 Ada was born in Rome.",
    "temporal_conflict_evidence": "A later source names Rome.",
    "semantic_conflict_claim": "Ada, the city, is in Oslo.",
    "semantic_conflict_evidence": "A map of Oslo.",
}


TABLE = (
    "question_ID,question,context1,context2,answer1,answer2,contradictType,samepassage,merged_context,ref_answer,"
    "WikipediaArticleTitle,url\n"
    '7,How many survived?,"There were ""761"" survivors,\nsome say.",Only 700 lived.,761,700,Explicit,Same,m,761|700,'
    "Lusitania,http://w\n"
)


AGAINST = Evidence(
    context="c0",
    source="c0",
    target="a0",
    type=RelationType.CONTRADICTION,
    probability=0.9,
    influence=-0.4,
    title="Ada",
    links=("http://a",),
    text="Born in\n1815.",
)


BORN = Finding(
    atom="a0", text="Ada was born in 1816.", label=Label.REFUTED, p=0.02, lower=0.02, upper=0.02, certain=True
)


TEA = Finding(atom="a1", text="She liked tea.", label=Label.UNVERIFIED, p=0.5, lower=0.5, upper=0.5, certain=True)

FEEDBACK = Feedback(findings=(replace(BORN, evidence=(AGAINST,)), TEA), n_atoms=2).to_dict()


CORRECTED = {
    "id": "ada",
    "query": "When was Ada born?",
    "status": "ok",
    "response": "Ada was born in 1816. She liked tea.",
    "best": {"response": "Ada was born in 1815.", "precision": 1.0},
    "trajectory": [],
    "feedback": FEEDBACK,
    "atoms": [{"id": "a0", "p": 0.02}],
}


def annotation(who, ratings, preferred, verdicts=(), **more):
    """An annotation as Label Studio exports it; `ratings` by the name of the control."""
    result = [
        {"from_name": name, "to_name": "x", "type": "rating", "value": {"rating": rating}, "id": name}
        for name, rating in ratings.items()
    ]
    choices = {"preferred": preferred} | {f"statement_{i}": verdict for i, verdict in enumerate(verdicts)}
    result += [
        {"from_name": name, "to_name": "x", "type": "choices", "value": {"choices": [choice]}, "id": name}
        for name, choice in choices.items()
    ]
    result.append({"from_name": "comment", "to_name": "x", "type": "textarea", "value": {"text": ["Hm."]}, "id": "t"})
    return {"id": 1, "completed_by": who, "was_cancelled": False, "result": result, **more}


def exported(id, side, *annotations):
    data = {"id": id, "query": "?", "a": "x", "b": "y", "corrected_is": side}
    data["statements"] = [{"text": "s", "label": "refuted", "evidence": ""}, {"text": "t", "label": "unverified"}]
    return {"id": 7, "data": data, "annotations": list(annotations), "predictions": []}


EXPORT = [
    exported(
        "one",
        "A",
        annotation(1, {"factuality_A": 5, "factuality_B": 2}, "A", ["false", "true"]),
        annotation(2, {"factuality_A": 4, "factuality_B": 2}, "A", ["false", "cannot tell"]),
    ),
    exported(
        "two",
        "B",
        annotation(1, {"factuality_A": 3, "factuality_B": 3}, "Neither", ["true", "true"]),
        annotation({"id": 2, "email": "b@x"}, {"factuality_A": 4, "factuality_B": 2}, "A", ["false", "true"]),
    ),
]


def answer(messages):
    """A wrong answer for every question but the third one."""
    text = messages[0]["content"].partition("<answer>\n")[2].partition("\n</answer>")[0]
    return "I refuse." if "number 2 " in text else f"<wrong>{text.replace('number', 'letter')}</wrong>"
