"""Which question gets the best answers: wordings that differ in kind, asked about pairs that people labelled.

    python -P benchmarks/wordings.py PAIRS.jsonl --base-url URL --model NAME [--only NAME ...] [--out FILE]

Prints a Markdown table: accuracy as asked and calibrated (cross-validated by premise), expected calibration error, the
share of each answer, prompts and tokens per pair. Choose a wording on one set of pairs and report it on another.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from fcjax.core.prompts import Prompt, Reply
from fcjax.core.records import DISTRIBUTED, Distribution, Relation
from fcjax.critic.asker import Asker, Meter
from fcjax.evaluation.relation_exam import ask_pairs, judge
from fcjax.evaluation.relation_pairs import LabelledPair, LabelledPairs, read_pairs
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.store import Store
from fcjax.stages.calibration import likeliest
from fcjax.stages.relate import RelationModel
from fcjax.stages.templates import Template
from fcjax.stages.wordings import PAIRWISE_2, WORDINGS

Odds = tuple[float, ...]
Way = Callable[[Asker, LabelledPair], Awaitable[Distribution | None]]

TEXTS = "Passage: {premise}\n\nClaim: {hypothesis}\n\n"


async def odds(asker: Asker, name: str, message: str, words: tuple[str, ...]) -> Odds | None:
    """How probable each of `words` is as the first token of the answer, all beginnings summed, normalised."""
    prompt = Prompt(messages=(("user", message),), template=f"wording.{name}/1", max_tokens=2, top_logprobs=20)
    answer = await asker.ask(prompt)
    if not isinstance(answer, Reply) or not answer.tokens:
        return None
    found = dict.fromkeys(words, 0.0)
    for text, logprob in answer.tokens[0].top:
        said = re.sub(r"\W", "", text.lower())
        meant = [word for word in words if said and word.startswith(said)]
        if len(meant) == 1:
            found[meant[0]] += math.exp(logprob)
    total = sum(found.values())
    return tuple(p / total for p in found.values()) if total > 0 else None


def plain(name: str, question: str, words: tuple[str, str, str], places: tuple[int, int, int] = (0, 1, 2)) -> Way:
    """One question whose answer is one of three words; `places` says where entailment, contradiction, neutral stand."""

    async def ask(asker: Asker, pair: LabelledPair) -> Distribution | None:
        filled = (TEXTS + question).format(premise=pair.premise, hypothesis=pair.hypothesis)
        found = await odds(asker, name, filled, words)
        return None if found is None else (found[places[0]], found[places[1]], found[places[2]])

    return ask


async def two_questions(asker: Asker, pair: LabelledPair) -> Distribution | None:
    """Does it support the claim, and does it contradict it: two questions with yes or no."""
    texts = TEXTS.format(premise=pair.premise, hypothesis=pair.hypothesis)
    found = []
    for verb in ("support", "contradict"):
        question = f"{texts}Does the passage {verb} the claim? Answer yes or no."
        found.append(await odds(asker, f"{verb}s", question, ("yes", "no")))
    if found[0] is None or found[1] is None:
        return None
    yes, no = found[0][0], found[1][0]
    weights = (yes * (1 - no), no * (1 - yes), (1 - yes) * (1 - no))
    total = sum(weights)
    return None if total <= 0 else (weights[0] / total, weights[1] / total, weights[2] / total)


async def two_steps(asker: Asker, pair: LabelledPair) -> Distribution | None:
    """Whether the passage says anything of the claim, and then which way."""
    texts = TEXTS.format(premise=pair.premise, hypothesis=pair.hypothesis)
    asked = "Does the passage say whether the claim is true or false? Answer yes or no."
    says = await odds(asker, "says", texts + asked, ("yes", "no"))
    way = await odds(asker, "way", texts + "By the passage, is the claim true or false? One word.", ("true", "false"))
    return None if says is None or way is None else (says[0] * way[0], says[0] * way[1], says[1])


def examples_in_one_message() -> Template:
    """The worked examples of the newest wording as text, in one message."""
    worked = "\n\n".join(
        f"{PAIRWISE_2.fill(**dict(example.texts))}\n\nAnswer: {example.answer}" for example in PAIRWISE_2.examples
    )
    text = f"{PAIRWISE_2.system}\n\n{worked}\n\n{PAIRWISE_2.text}\n\nAnswer:"
    return Template("wording.examples_in_one_message/1", text, labels=PAIRWISE_2.labels)


SRU, ABC = ("supported", "refuted", "unknown"), ("a", "b", "c")
OTHERS: Mapping[str, Way] = {
    "true, false or neither": plain(
        "tfn", "Is the claim True, False, or Neither, by the passage alone? Answer with one word.",
        ("true", "false", "neither"),
    ),
    "supported, refuted, or unknown": plain(
        "sru", "By the passage alone, is the claim supported, refuted, or unknown? Answer with one word.", SRU
    ),
    "the same in another order": plain(
        "urs", "By the passage alone, is the claim unknown, refuted, or supported? Answer with one word.", SRU
    ),
    "letters": plain(
        "abc",
        "Does the passage say that the claim is true?\nA. Yes, it does.\nB. No, it says otherwise.\n"
        "C. It does not say.\nAnswer with the letter only.",
        ABC,
    ),
    "two yes-no questions": two_questions,
    "does it say, and which way": two_steps,
}  # fmt: skip
OURS: Mapping[str, RelationModel] = {
    "version 1": RelationModel(**WORDINGS["1"]._asdict()),
    "version 1, packed": RelationModel(style="packed", **WORDINGS["1"]._asdict()),
    "worked examples in one message": RelationModel(pairwise=examples_in_one_message()),
    "version 2": RelationModel(),
    "version 2, packed": RelationModel(style="packed"),
}


async def asked(pairs: LabelledPairs, asker: Meter, name: str) -> str:
    """The row of one wording."""
    if name in OURS:
        model = replace(OURS[name], max_tokens=8 if OURS[name].style == "pairwise" else 64)
        relations = await ask_pairs(pairs.pairs, asker, model)
    else:
        model, relations = RelationModel(), []
        limit = asyncio.Semaphore(8)

        async def one(place: int, pair: LabelledPair) -> Relation | None:
            async with limit:
                q = await OTHERS[name](asker, pair)
            if q is None:
                return None
            label, p = likeliest(q, DISTRIBUTED[0])
            return Relation(source="p", target=str(place), type=label, probability=p, method="logprobs", distribution=q)

        made = await asyncio.gather(*(one(place, pair) for place, pair in enumerate(pairs.pairs)))
        kept = [place for place, relation in enumerate(made) if relation is not None]
        relations = [relation for relation in made if relation is not None]
        pairs = replace(pairs, pairs=tuple(pairs.pairs[place] for place in kept))
    exam = judge(pairs, relations, model, name=name, cost=asker.cost)
    cells = ["-"] * 4
    if exam.raw and exam.calibrated:
        raw, scaled = exam.raw.to_dict(), exam.calibrated.to_dict()
        said = np.bincount(exam.q.argmax(axis=1), minlength=3) / len(exam.q)
        cells = [
            _with_interval(raw, "accuracy"),
            _with_interval(scaled, "accuracy"),
            f"{raw['ece']['value'] if isinstance(raw['ece'], dict) else raw['ece']:.3f}",
            " / ".join(f"{share:.2f}" for share in said),
        ]
    n = max(len(pairs.pairs), 1)
    prompts, tokens = exam.cost.prompts / n, exam.cost.tokens / n
    return f"| {name} | {' | '.join(cells)} | {prompts:.2f} | {tokens:.0f} | {exam.n_failed} |"


def _with_interval(figures: dict[str, object], name: str) -> str:
    value = figures[name]
    if isinstance(value, dict):
        return f"{value['value']:.3f} ({value['low']:.2f} to {value['high']:.2f})"
    return f"{value:.3f}"


async def run(given: argparse.Namespace) -> None:
    pairs = read_pairs(given.pairs)
    with Store.open(given.store) as store:
        async with Client(Endpoint(given.base_url, given.model), store=store, concurrency=given.concurrency) as client:
            lines = [
                f"{len(pairs.pairs)} pairs, {given.model}", "",
                "| wording | accuracy as asked | calibrated | calibration error as asked | "
                "entailment / contradiction / neutral | prompts per pair | tokens per pair | failed |",
                "|---|---|---|---|---|---|---|---|",
            ]  # fmt: skip
            print("\n".join(lines), flush=True)
            for name in given.only or [*OTHERS, *OURS]:
                lines.append(await asked(pairs, Meter(Asker(client)), name))
                print(lines[-1], flush=True)
    if given.out:
        Path(given.out).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pairs")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--store", help="file of replies; the one that commands share by default")
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=[*OTHERS, *OURS])
    parser.add_argument("--out")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
