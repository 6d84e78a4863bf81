"""Makes replies.jsonl out of answers.json: the store of a run that asked somebody who answers by hand.

    python -P examples/replies.py

To be run again when a template changes, since a reply belongs to one wording of its question.
"""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
from pathlib import Path

from fcjax.core.prompts import Prompt, Reply, Token, Usage
from fcjax.correction.factcorrector import Corrector
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.io.files import read_cases
from fcjax.io.maintenance import export
from fcjax.io.outcome import Outcome
from fcjax.io.retrievers.local import LocalCorpus
from fcjax.io.store import Store
from fcjax.stages.templates import quoted

HERE = Path(__file__).parent
ENDPOINT, MODEL = "http://written-by-hand.invalid/v1", "written-by-hand"


class Hand:
    """Answers what answers.json says."""

    name, model = ENDPOINT, MODEL

    def __init__(self) -> None:
        given = json.loads((HERE / "answers.json").read_text(encoding="utf-8"))
        rows = [json.loads(line) for line in (HERE / "responses.jsonl").read_text(encoding="utf-8").splitlines()]
        self._responses = {quoted(row["response"]): given["responses"][row["id"]] for row in rows}
        self._responses |= {quoted(text): given["corrected"][id] for id, text in given["corrections"].items()}
        self._corrections = {quoted(row["response"]): given["corrections"][row["id"]] for row in rows}
        texts = {}
        for line in (HERE / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
            document = json.loads(line)
            texts[document["title"]] = quoted(document["text"])
        self._neutral = given["neutral"]
        self.relations = {(texts[title], quoted(atom)): (label, p) for title, atom, label, p in given["relations"]}

    async def send(self, prompt: Prompt) -> Outcome:
        return self.reply([content for role, content in prompt.messages if role == "user"][-1])

    def reply(self, question: str) -> Reply:
        """The answer to a question of the stages atomize, revise, relate and refine."""
        if question.startswith("Passage: "):
            return self._relation(question)
        if "<false_statements>" in question:
            (revised,) = (text for response, text in self._corrections.items() if response in question)
            text = f"<revised>\n{revised}\n</revised>"
            return Reply(text=text, model=self.model, usage=Usage(len(question) // 4, len(text) // 4))
        (facts,) = (facts for response, facts in self._responses.items() if response in question)
        answer: list[str] | dict[str, str]
        if "<statements>" in question:
            answer = {str(number): revised for number, (_, revised) in enumerate(facts, 1)}
        else:
            answer = [fact for fact, _ in facts]
        text = json.dumps(answer, ensure_ascii=False, indent=1)
        return Reply(text=text, model=self.model, usage=Usage(len(question) // 4, len(text) // 4))

    async def close(self) -> None:
        pass

    def _relation(self, question: str) -> Reply:
        """A label with its probability as logprobs, from which that is read as it is from a model's."""
        label, p = next(
            (
                told
                for (premise, atom), told in self.relations.items()
                if question == f"Passage: {premise}\nClaim: {atom}"
            ),
            ("neutral", self._neutral),
        )
        other = "neutral" if label == "entailment" else "entailment"
        top = ((label, math.log(p)), (other, math.log1p(-p)))
        tokens = (Token("[", 0.0, (("[", 0.0),)), Token(label, math.log(p), top), Token("]", 0.0, (("]", 0.0),)))
        return Reply(text=f"[{label}]", tokens=tokens, model=self.model, usage=Usage(len(question) // 4, 3))


async def corrections(store: Store) -> None:
    """Put the three responses through critic and corrector, and leave in `store` what was asked for them."""
    cases = [row.case for row in read_cases(HERE / "responses.jsonl") if row.case]
    async with Client(Hand(), store=store, concurrency=1) as client:
        critic = Critic(client, retrieve=LocalCorpus.open(HERE / "corpus.jsonl"))
        async for found in Corrector(critic, open_cases=1).correct_many(cases):
            print(found)


def make(out: Path) -> None:
    """Write the replies to `out`, in the order of their questions and with a date that does not change."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.sqlite")
        with Store.open(path, clock=lambda: 0.0) as store:
            asyncio.run(corrections(store))
        export(path, out)
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line["seconds"] = line["answer"]["seconds"] = 0.0
    out.write_text("".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in lines), "utf-8")


if __name__ == "__main__":
    make(HERE / "replies.jsonl")
