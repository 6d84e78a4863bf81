"""Adaptive asking against asking all: prompts, and labels that differ (docs/adaptive.md).

The handed Factcheck-GPT cases as bare responses over their own corpus: each claim gets its best passages by BM25, the
graph is FR2, and people's stances are the model: a pair with a stance gets it, all others are neutral. The opinion by
words is fitted to the half of the cases that a case is not in. No model is asked. `--fit` prints the coefficients of a
fit to all cases, as `fcjax/stages/pair_opinion.py` has them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import orjson
from scipy.optimize import minimize
from scipy.special import logsumexp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # this folder's modules

import machine  # noqa: E402

from fcjax.core.records import DISTRIBUTED, Case, Context, Label, Relation, RelationType  # noqa: E402
from fcjax.critic.inquiry import Inquiry, found_for  # noqa: E402
from fcjax.inference.engine import infer  # noqa: E402
from fcjax.io.files import read_cases  # noqa: E402
from fcjax.io.retrievers.local import LocalCorpus  # noqa: E402
from fcjax.scoring.settings import Settings  # noqa: E402
from fcjax.stages.pair_opinion import Opinion, features, opinion_of  # noqa: E402
from fcjax.stages.relate import Agenda, Pair  # noqa: E402

CASES = HERE.parents[1] / "shared" / "cases" / "factcheck_gpt.jsonl"
SETTLE = (0.95, 0.98, 0.985, 0.99, 0.995)
FLIPPED = 0.1
SETTINGS = Settings(version="FR2")
NEUTRAL = (RelationType.NEUTRAL, 0.9)


@dataclass(frozen=True)
class Bare:
    """A response over the corpus, its pairs, and what the model would say of each."""

    case: Case
    agenda: Agenda
    pairs: list[Pair]
    said: list[tuple[RelationType, float]]

    @property
    def half(self) -> int:
        return hashlib.sha256(self.case.id.encode()).digest()[0] % 2

    def answer(self, place: int) -> Relation:
        (type, p), pair = self.said[place], self.pairs[place]
        return Relation(source=pair.source, target=pair.target, type=type, probability=p, method="people")

    def labels(self, places: Sequence[int]) -> dict[str, Label]:
        """The labels with the answers at these places."""
        case = replace(self.case, relations=tuple(self.answer(place) for place in places))
        found = infer([SETTINGS.graph(case)])[0]
        return {atom: Label.of(found.p[atom]) for atom in dict.fromkeys(pair.target for pair in self.pairs)}

    def flipped(self, draw: np.random.Generator) -> Bare:
        """The same with one in ten answers another one."""
        said = []
        for one in self.said:
            others = [type for type in DISTRIBUTED if type is not one[0]]
            said.append((others[int(draw.integers(2))], 0.9) if draw.random() < FLIPPED else one)
        return replace(self, said=said)


def bare_cases(path: Path, folder: Path) -> Callable[[int], list[Bare]]:
    """The cases with k passages a claim, by k."""
    cases = [row.value for row in read_cases(path) if row.value is not None]
    texts = dict.fromkeys(context.text for case in cases for context in case.contexts or () if context.text)
    place = folder / "passages.jsonl"
    place.write_bytes(b"".join(orjson.dumps({"text": text, "link": str(i)}) + b"\n" for i, text in enumerate(texts)))
    corpus = LocalCorpus.open(place, chunk=4000, index=folder / "indexes")

    def bare(case: Case, k: int) -> Bare:
        text = {context.id: context.evidence for context in case.contexts or ()}
        claims = {atom.id: atom.text.strip() for atom in case.atoms or ()}
        stances = {
            (claims[one.target], text[one.source]): (one.type, one.probability)
            for one in case.relations or ()
            if one.type is not None and one.probability is not None
        }
        ids: dict[str, str] = {}
        atoms = []
        for atom in case.atoms or ():
            found = [passage.text for passage in corpus.find(atom.text, k)]
            own = dict.fromkeys(ids.setdefault(text, f"c{len(ids)}") for text in found)
            atoms.append(replace(atom, contexts=tuple(own)))
        contexts = tuple(Context(id=name, text=text) for text, name in ids.items())
        made = replace(case, atoms=tuple(atoms), contexts=contexts, relations=None)
        agenda = Agenda.of(made, "FR2")
        pairs = list(agenda.pairs())
        said = [stances.get((pair.hypothesis.strip(), pair.premise), NEUTRAL) for pair in pairs]
        return Bare(made, agenda, pairs, said)

    return lambda k: [one for case in cases if (one := bare(case, k)).pairs]


def terms(one: Bare) -> np.ndarray:
    return features(one.pairs, found_for(one.agenda))


Fit = tuple[np.ndarray, np.ndarray, np.ndarray]  # coefficients, shifts, shares


def fit(cases: Sequence[Bare], kinds: int = 3) -> Fit:
    """The regression of the opinion by words, with the kind of each claim summed out, by maximum likelihood with small
    Gaussian priors."""
    x = np.concatenate([terms(one) for one in cases])
    y = np.array([DISTRIBUTED.index(type) for one in cases for type, _ in one.said])
    names = [(n, pair.target) for n, one in enumerate(cases) for pair in one.pairs]
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    claim, n = np.array([number[name] for name in names]), len(number)
    middle, width = x.mean(axis=0), x.std(axis=0)
    middle[0], width[0] = 0.0, 1.0
    z, count, right = (x - middle) / width, x.shape[1], np.eye(3)[y]

    def parts(w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return w[: 3 * count].reshape(count, 3), w[3 * count : -kinds].reshape(kinds, 2), w[-kinds:]

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        slope, shift, share = parts(w)
        base, logs, q = z @ slope, np.zeros((n, kinds)), []
        for k in range(kinds):
            score = base + np.array([*shift[k], 0.0])
            score = score - logsumexp(score, axis=1, keepdims=True)
            q.append(np.exp(score))
            logs[:, k] = np.bincount(claim, score[np.arange(len(y)), y], n)
        joint = logs + share - logsumexp(share)
        total = logsumexp(joint, axis=1)
        kind = np.exp(joint - total[:, None])
        by_slope, by_shift = slope / 9, shift / 4
        for k in range(kinds):
            off = (q[k] - right) * kind[claim, k][:, None]
            by_slope = by_slope + z.T @ off
            by_shift[k] += off[:, :2].sum(axis=0)
        by_share = n * np.exp(share - logsumexp(share)) - kind.sum(axis=0) + 0.1 * share
        prior = (slope**2).sum() / 18 + (shift**2).sum() / 8 + 0.05 * (share**2).sum()
        return prior - total.sum(), np.concatenate([by_slope.ravel(), by_shift.ravel(), by_share])

    start = np.zeros(3 * count + 3 * kinds)
    start[3 * count : -kinds] = np.array([[-1, -1], [1, -1], [-1, 1]]).ravel()[: 2 * kinds]
    slope, shift, share = parts(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000}).x)
    slope = slope / width[:, None]
    slope[0] -= middle[1:] @ slope[1:]
    return slope, np.column_stack([shift, np.zeros(kinds)]), np.exp(share - logsumexp(share))


def adaptive(one: Bare, opinion: Opinion, settle: float, pack: int) -> tuple[Inquiry, list[int], int, float]:
    """The inquiry about a case when it has ended, the places asked, its rounds, and the CPU seconds of choosing."""
    began = process_time()
    inquiry = Inquiry(one.agenda, one.pairs, opinion, SETTINGS, settle=settle, pack=pack)
    seconds, asked, rounds = process_time() - began, [], 0
    while True:
        began = process_time()
        prompts = inquiry.round()
        seconds += process_time() - began
        if not prompts:
            return inquiry, asked, rounds, seconds
        rounds += 1
        for place in (place for prompt in prompts for place in prompt):
            inquiry.take(place, one.answer(place))
            asked.append(place)


def run(cases: Sequence[Bare], fits: dict[int, Fit], settle: float, pack: int) -> dict[str, Any]:
    """What adaptive asking costs over all cases, and what it misses."""
    found: dict[str, Any] = dict.fromkeys(("pairs", "prompts", "asked", "atoms", "differ", "refuted", "rounds"), 0)
    sure: list[tuple[float, bool]] = []
    seconds = 0.0
    for one in cases:
        began = process_time()
        opinion = opinion_of(terms(one), *fits[1 - one.half])
        seconds += process_time() - began
        inquiry, asked, rounds, more = adaptive(one, opinion, settle, pack)
        seconds += more
        mine, all_ = one.labels(asked), one.labels(range(len(one.pairs)))
        settled = inquiry.record()["settled"]
        found["pairs"] += len(one.pairs)
        found["prompts"] += inquiry.prompts
        found["asked"] += len(asked)
        found["rounds"] = max(found["rounds"], rounds)
        for atom, label in mine.items():
            found["atoms"] += 1
            found["differ"] += label is not all_[atom]
            found["refuted"] += label is Label.REFUTED and all_[atom] is Label.SUPPORTED
            sure.append((settled[atom], label is not all_[atom]))
    found["foretold"] = sum(1 - p for p, _ in sure)
    for least in (0.9, 0.99):
        those = [changed for p, changed in sure if p >= least]
        found[f"settled_{least}"], found[f"changed_{least}"] = len(those), sum(those)
    return found | {"cpu_ms": 1e3 * seconds / max(1, found["prompts"]), "settle": settle, "pack": pack}


def by_order(cases: Sequence[Bare], column: str, depth: int) -> dict[str, Any]:
    """Asking the best `depth` passages of each claim by one feature, and no others."""
    from fcjax.stages.pair_opinion import FEATURES

    found: dict[str, Any] = dict.fromkeys(("pairs", "prompts", "atoms", "differ", "refuted"), 0)
    for one in cases:
        value = terms(one)[:, FEATURES.index(column)]
        places: list[int] = []
        for atom in dict.fromkeys(pair.target for pair in one.pairs):
            its = [place for place, pair in enumerate(one.pairs) if pair.target == atom]
            places += sorted(its, key=lambda place: (-value[place], place))[:depth]
        mine, all_ = one.labels(places), one.labels(range(len(one.pairs)))
        found["pairs"] += len(one.pairs)
        found["prompts"] += len(places)
        found["atoms"] += len(mine)
        found["differ"] += sum(label is not all_[atom] for atom, label in mine.items())
        found["refuted"] += sum(
            label is Label.REFUTED and all_[atom] is Label.SUPPORTED for atom, label in mine.items()
        )
    return found | {"order": column, "depth": depth}


def reports(cases: Callable[[int], list[Bare]]) -> Iterator[dict[str, Any]]:
    fits = {half: fit([one for one in cases(10) if one.half == half]) for half in (0, 1)}
    adaptive(cases(3)[0], opinion_of(terms(cases(3)[0]), *fits[0]), 0.9, 1)  # compiled once
    for k in (3, 10):
        for column in ("covered", "rank"):
            for depth in (3, 6, 10, 15):
                yield {"passages": k, "model": "people", **by_order(cases(k), column, depth)}
        for pack in (1, 16):
            for settle in SETTLE:
                yield {"passages": k, "model": "people", **run(cases(k), fits, settle, pack)}
    for k in (3, 10):
        draw = np.random.default_rng(0)
        erring = [one.flipped(draw) for one in cases(k)]
        for pack in (1, 16):
            yield {"passages": k, "model": "people, a tenth flipped", **run(erring, fits, 0.99, pack)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES, metavar="FILE", help="cases with human relations")
    parser.add_argument("--fit", action="store_true", help="print the coefficients of a fit to all cases")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="folder of the results")
    given = parser.parse_args()
    if not given.cases.is_file():
        print(f"{given.cases}: no such file; name a file of cases with --cases", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        made = bare_cases(given.cases, Path(folder))
        kept = {k: made(k) for k in (3, 10)}
    if given.fit:
        for name, numbers in zip(("COEFFICIENTS", "SHIFTS", "SHARES"), fit(kept[10]), strict=True):
            print(name, np.round(numbers, 3).tolist())
        return 0
    rows = []
    for row in reports(partial(dict.__getitem__, kept)):
        rows.append(row)
        print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}))
    where = machine.describe()
    given.out.mkdir(parents=True, exist_ok=True)
    name = f"{where['date'][:10]}-adaptive-{where['platform']}.json"
    (given.out / name).write_text(json.dumps({"machine": where, "runs": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
