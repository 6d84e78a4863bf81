"""Benchmark of the local corpus: its recall of human evidence, and its speed.

Evidence: each claim of a file of cases searches all passages of the file for those that people marked as supporting it.
Speed: synthetic passages, with word frequencies by Zipf's law.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import orjson

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # this folder's modules

import machine  # noqa: E402

from fcjax.core.records import Case, RelationType  # noqa: E402
from fcjax.io.files import read_cases  # noqa: E402
from fcjax.io.retrievers import index  # noqa: E402
from fcjax.io.retrievers.local import LocalCorpus  # noqa: E402

CASES = HERE.parents[1] / "shared" / "cases" / "factcheck_gpt.jsonl"
DEPTHS = (1, 3, 5, 10)
WORDS = 60_000  # of the synthetic language
LENGTH = 90  # words of a synthetic passage


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few synthetic passages, some seconds")
    parser.add_argument("--cases", type=Path, default=CASES, metavar="FILE", help="cases with human relations")
    parser.add_argument("--passages", type=int, help="synthetic ones [50000, quick 5000]")
    parser.add_argument("--queries", type=int, help="of the speed run [2000, quick 200]")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="folder of the results")
    given = parser.parse_args()
    for name, whole, quick in (("passages", 50_000, 5000), ("queries", 2000, 200)):
        if getattr(given, name) is None:
            setattr(given, name, quick if given.quick else whole)
    return given


def evidence(path: Path, folder: Path) -> dict[str, Any]:
    """Recall of a claim's own passages: of those marked as entailing it, and of all that were retrieved for it."""
    cases = [row.value for row in read_cases(path) if row.value is not None]
    texts = list(dict.fromkeys(context.text for case in cases for context in case.contexts or () if context.text))
    place = folder / "evidence.jsonl"
    place.write_bytes(b"".join(orjson.dumps({"text": text, "link": str(i)}) + b"\n" for i, text in enumerate(texts)))
    corpus = LocalCorpus.open(place, chunk=4000, index=folder / "indexes")
    number = {text: i for i, text in enumerate(texts)}
    marked: list[tuple[str, set[int]]] = []
    own: list[tuple[str, set[int]]] = []
    for case in cases:
        for query, supporting, all_own in claims(case):
            marked.append((query, {number[text] for text in supporting}))
            own.append((query, {number[text] for text in all_own}))
    return {
        "passages": corpus.size,
        "claims": len(own),
        "supporting": recall(corpus, marked),
        "all_own": recall(corpus, own),
        "settings": {"k1": index.K1, "b": index.B, "format": index.FORMAT},
    }


def claims(case: Case) -> Iterator[tuple[str, set[str], set[str]]]:
    """Each claim's text, the passages that are marked as entailing it, and all that were retrieved for it."""
    text = {context.id: context.text for context in case.contexts or () if context.text}
    for atom in case.atoms or ():
        supporting = {
            text[relation.source]
            for relation in case.relations or ()
            if relation.target == atom.id and relation.type is RelationType.ENTAILMENT and relation.source in text
        }
        yield atom.text, supporting, {text[name] for name in atom.contexts or () if name in text}


def recall(corpus: LocalCorpus, asked: list[tuple[str, set[int]]]) -> dict[str, Any]:
    """The mean share of the wanted passages among the first k, over the claims that have any."""
    asked = [(query, wanted) for query, wanted in asked if wanted]
    if not asked:
        raise SystemExit("no claim of these cases has a passage to be found; name others with --cases")
    found = [[int(passage.link) for passage in corpus.find(query, max(DEPTHS))] for query, _ in asked]
    shares = {
        k: [len(wanted.intersection(best[:k])) / len(wanted) for (_, wanted), best in zip(asked, found, strict=True)]
        for k in DEPTHS
    }
    # At most k of n can be among the first k.
    most = {k: statistics.mean(min(1.0, k / len(wanted)) for _, wanted in asked) for k in DEPTHS}
    return {
        "claims": len(asked),
        "wanted": sum(len(wanted) for _, wanted in asked),
        "recall": {str(k): statistics.mean(shares[k]) for k in DEPTHS},
        "error": {str(k): statistics.pstdev(shares[k]) / len(asked) ** 0.5 for k in DEPTHS},
        "most": {str(k): most[k] for k in DEPTHS},
        "any": {str(k): statistics.mean(share > 0 for share in shares[k]) for k in DEPTHS},
    }


def speed(count: int, queries: int, folder: Path) -> dict[str, Any]:
    """Times of a first and a second opening, and of queries from the words of passages, which they must find."""
    place = folder / "synthetic.jsonl"
    asked = synthetic(place, count, queries)
    machine.forget_peak()
    corpus, indexing = timed(lambda: LocalCorpus.open(place, index=folder / "indexes"))
    peak = machine.peak_mib()
    name = corpus.name
    sleep(2.1)  # the times of a newer file do not prove that it is unchanged
    LocalCorpus.open(place, index=folder / "indexes")
    corpus, opening = timed(lambda: LocalCorpus.open(place, index=folder / "indexes"))
    if corpus.name != name or corpus.size != count:
        raise SystemExit(f"wrong answer: {corpus.size:,} of {count:,} passages, or another name on reopening")
    times, hits = [], 0
    for link, query in asked:
        found, seconds = timed(lambda query=query: corpus.find(query, 5))
        times.append(seconds)
        hits += link in [passage.link for passage in found]
    if hits < 0.95 * len(asked):
        raise SystemExit(f"wrong answer: only {hits} of {len(asked)} passages were found by some of their words")

    async def all_at_once() -> None:
        await asyncio.gather(*(corpus.search(query, 5) for _, query in asked))
        await corpus.close()

    _, together = timed(lambda: asyncio.run(all_at_once()))
    return {
        "passages": count,
        "text_mib": place.stat().st_size / 2**20,
        "index_mib": sum(file.stat().st_size for file in (folder / "indexes").rglob("*.npy")) / 2**20,
        "indexing_s": indexing,
        "peak_mib": peak,
        "reopening_s": opening,
        "queries": len(asked),
        "query_ms_p50": 1e3 * statistics.median(times),
        "query_ms_worst": 1e3 * max(times),
        "queries_per_s": len(asked) / together,
    }


def synthetic(place: Path, count: int, queries: int) -> list[tuple[str, str]]:
    """Writes passages; returns queries of 12 words, each with the link of the passage that it was taken from."""
    draw = np.random.default_rng(0)
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
    words = ["".join(syllables[(i // 80**j) % 80] for j in range(2 + (i >= 6400))) for i in range(WORDS)]
    worth = 1 / (np.arange(WORDS) + 2.7)
    ids = draw.choice(WORDS, (count, LENGTH), p=worth / worth.sum())
    texts = [" ".join(words[i] for i in row) for row in ids.tolist()]
    lines = (orjson.dumps({"text": text, "link": str(n)}) + b"\n" for n, text in enumerate(texts))
    place.write_bytes(b"".join(lines))
    picked = draw.choice(count, queries).tolist()
    return [(str(n), " ".join(texts[n].split()[20:32])) for n in picked]


def timed(do: Callable[[], Any]) -> tuple[Any, float]:
    began = perf_counter()
    return do(), perf_counter() - began


def main() -> int:
    given = options()
    found = None
    with tempfile.TemporaryDirectory() as folder:
        if given.cases.exists():
            found = evidence(given.cases, Path(folder))
            for name in ("supporting", "all_own"):
                row = found[name]
                print(f"{name}: {row['claims']} claims, {row['wanted']} passages of {found['passages']:,}")
                for k in map(str, DEPTHS):
                    share, error, most = (row[field][k] for field in ("recall", "error", "most"))
                    print(f"  recall@{k:2} {share:.3f} +- {error:.3f}, at most {most:.3f}; any {row['any'][k]:.3f}")
        else:
            print(f"{given.cases} does not exist, so recall is not measured; name a file of cases with --cases")
        fast = speed(given.passages, given.queries, Path(folder))
    print(
        f"{fast['passages']:,} passages: indexed in {fast['indexing_s']:.1f} s, peak {fast['peak_mib']:.0f} MiB, "
        f"reopened in {fast['reopening_s']:.2f} s; {fast['queries_per_s']:,.0f} queries/s, "
        f"{fast['query_ms_p50']:.1f} ms each, the worst {fast['query_ms_worst']:.1f} ms"
    )
    where = machine.describe()
    stem = f"{where['date'][:10]}-retrieval-{where['platform']}" + ("-quick" if given.quick else "")
    given.out.mkdir(parents=True, exist_ok=True)
    content = {"machine": where, "arguments": sys.argv[1:], "evidence": found, "speed": fast}
    (given.out / f"{stem}.json").write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
