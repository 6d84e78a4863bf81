"""Benchmark of the client: throughput compared with a bare aiohttp loop and litellm, CPU per prompt, pauses, memory.

All parts send to one scripted server, which runs as a separate process, at the same concurrency.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import aiohttp
import orjson

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # this folder's modules

import machine  # noqa: E402

from fcjax.core.prompts import Prompt, Reply  # noqa: E402
from fcjax.io.client import Client  # noqa: E402
from fcjax.io.endpoint import Endpoint  # noqa: E402
from fcjax.io.http import request_body  # noqa: E402
from fcjax.io.pacing import Budget, RateLimit  # noqa: E402
from fcjax.io.store import Store  # noqa: E402

SERVER = HERE.parent / "tests" / "support" / "scripted_server.py"
TEXT = "The premise states the same fact in other words, so the hypothesis follows. [Entailment]"
PREMISE = "The quick brown fox jumps over the lazy dog near the bank of the river. " * 12  # a context of 860 characters
MANY = 1e9  # a limit that is on but never reached


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few prompts, about 15 seconds")
    parser.add_argument("--prompts", type=int, help="prompts per run of the client and the bare loop [6000, quick 800]")
    parser.add_argument("--litellm", type=int, help="prompts for litellm, 0 leaves it out [600, quick 80]")
    parser.add_argument("--memory", type=int, help="prompts of the memory run, 0 leaves it out [100000, quick 2000]")
    parser.add_argument("--runs", type=int, help="runs of each, alternating; the median is reported [5, quick 3]")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument(
        "--delay", type=float, default=0.05, help="seconds that the server takes for a reply, plus or minus half"
    )
    parser.add_argument("--logprobs", type=int, default=5, help="alternatives per token")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="folder of the results")
    given = parser.parse_args()
    for name, whole, quick in (("prompts", 6000, 800), ("litellm", 600, 80), ("memory", 100_000, 2000), ("runs", 5, 3)):
        if getattr(given, name) is None:
            setattr(given, name, quick if given.quick else whole)
    return given


def prompts(count: int, logprobs: int, run: str) -> Iterator[Prompt]:
    """Relation prompts, all of them different."""
    for i in range(count):
        content = f"Premise: {PREMISE}\nHypothesis: run {run}, number {i}.\nAnswer with one label in brackets."
        yield Prompt(messages=(("user", content),), template="bench/1", max_tokens=64, top_logprobs=logprobs)


@contextlib.contextmanager
def served(delay: float, script: Path = SERVER, *more: str) -> Iterator[str]:
    """The URL of a server in a separate process."""
    command = [sys.executable, "-P", str(script), "--delay", str(delay), "--spread", "0.5", *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


class Pauses:
    """Measures how long the event loop delays a task that is due every millisecond."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        while True:
            before = perf_counter()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, perf_counter() - before - 0.001)


async def timed(count: int, work: Awaitable[int]) -> dict[str, float]:
    """Times `work`, which returns the number of prompts with an answer; ends the benchmark unless all have one."""
    pauses = Pauses()
    watcher = asyncio.create_task(pauses.watch())
    gc.collect()
    began, cpu = perf_counter(), process_time()
    answered = await work
    seconds, cpu = perf_counter() - began, process_time() - cpu
    watcher.cancel()
    if answered != count:
        raise SystemExit(f"wrong answer: {answered} of {count} prompts were answered")
    return {"prompts_per_s": count / seconds, "cpu_ms": 1e3 * cpu / count, "pause_ms": 1e3 * pauses.longest}


async def bare(url: str, asked: Iterator[Prompt], concurrency: int) -> int:
    """The smallest client: workers that post, read and parse, without limits, retries or records."""
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:

        async def worker() -> int:
            good = 0
            for prompt in asked:
                body = orjson.dumps(request_body("scripted", prompt))
                async with session.post(f"{url}/chat/completions", data=body) as response:
                    good += orjson.loads(await response.read())["choices"][0]["message"]["content"] == TEXT
            return good

        return sum(await asyncio.gather(*(worker() for _ in range(concurrency))))


async def ours(url: str, asked: Iterator[Prompt], concurrency: int, **settings: Any) -> int:
    async with Client(Endpoint(url, "scripted"), concurrency=concurrency, **settings) as client:
        return await good_ones(client.ask_all(asked, prompt=lambda prompt: prompt))


async def ours_in_full(url: str, asked: Iterator[Prompt], concurrency: int, *, store: Store) -> int:
    """With a store and all limits on."""
    limits = {"rate": RateLimit(requests=MANY, tokens=MANY), "budget": Budget(tokens=int(MANY))}
    return await ours(url, asked, concurrency, store=store, **limits)


@contextlib.contextmanager
def new_store() -> Iterator[Store]:
    """An empty store, opened and closed outside the timed part: closing writes its log back, once per run."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.sqlite") as store:
        yield store


async def good_ones(pairs: AsyncIterator[tuple[Prompt, Any]]) -> int:
    good = 0
    async for _, answer in pairs:
        good += isinstance(answer, Reply) and answer.text == TEXT and bool(answer.tokens)
    return good


async def by_litellm(url: str, asked: Iterator[Prompt], concurrency: int) -> int:
    import litellm

    async def worker() -> int:
        good = 0
        for prompt in asked:
            body = request_body("openai/scripted", prompt)
            answer = await litellm.acompletion(**body, api_base=url, api_key="none", num_retries=0)
            good += answer.choices[0].message.content == TEXT
        return good

    return sum(await asyncio.gather(*(worker() for _ in range(concurrency))))


def speed(url: str, given: argparse.Namespace, store: Store) -> dict[str, dict[str, float]]:
    """The median run of each client; the runs alternate, so that changes of the machine's speed affect all alike."""
    ways: dict[str, tuple[int, Callable[[str, Iterator[Prompt], int], Awaitable[int]]]] = {
        "bare": (given.prompts, bare),
        "client": (given.prompts, ours),
        "client_full": (given.prompts, partial(ours_in_full, store=store)),
    }
    if given.litellm:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        ways["litellm"] = (given.litellm, by_litellm)
    for name, (_, way) in ways.items():  # warm up: imports, connections, tables
        asyncio.run(timed(50, way(url, prompts(50, given.logprobs, f"{name}, warm up"), given.concurrency)))
    gc.collect()
    gc.freeze()  # else the collector scans litellm's million objects, 300 ms at a time
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for run, (name, (count, way)) in itertools.product(range(given.runs), ways.items()):
        asked = prompts(count, given.logprobs, f"{name} {run}")
        rows[name].append(asyncio.run(timed(count, way(url, asked, given.concurrency))))
    return {
        name: {field: statistics.median(row[field] for row in found) for field in found[0]}
        | {"longest_pause_ms": max(row["pause_ms"] for row in found)}
        for name, found in rows.items()
    }


def memory(url: str, given: argparse.Namespace) -> dict[str, float]:
    """Resident memory during one long run with the store and all limits on."""
    total = given.memory
    marks = {total // 5: 0.0, total: 0.0}

    def watched() -> Iterator[Prompt]:
        for i, prompt in enumerate(prompts(total, given.logprobs, "memory"), 1):
            if i in marks:
                gc.collect()
                marks[i] = resident_mib()
            yield prompt

    machine.forget_peak()
    with new_store() as store:
        row = asyncio.run(timed(total, ours_in_full(url, watched(), given.concurrency, store=store)))
    first, last = marks.values()
    slope = (last - first) / (0.8 * total) * 1e5
    return {"prompts": total, "mib": last, "peak_mib": machine.peak_mib(), "mib_per_100k": slope, **row}


def resident_mib() -> float:
    """The current resident memory on Linux, elsewhere the peak."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return machine.peak_mib()


def main() -> int:
    given = options()
    with served(given.delay, SERVER, "--text", TEXT) as url:
        held = memory(url, given) if given.memory else None  # first, before litellm is loaded
        with new_store() as store:
            rows = speed(url, given, store)
    print(f"{'way':12} {'prompts/s':>10} {'of bare':>8} {'CPU ms':>7} {'longest pause ms':>17}")
    for name, row in rows.items():
        share = row["prompts_per_s"] / rows["bare"]["prompts_per_s"]
        print(
            f"{name:12} {row['prompts_per_s']:10,.0f} {share:8.2f} {row['cpu_ms']:7.2f} {row['longest_pause_ms']:17.1f}"
        )
    if "litellm" in rows:
        print(f"client over litellm: {rows['client']['prompts_per_s'] / rows['litellm']['prompts_per_s']:.1f} times")
    if held:
        print(
            f"memory: {held['mib']:.0f} MiB after {held['prompts']:,} prompts, peak {held['peak_mib']:.0f}, "
            f"{held['mib_per_100k']:+.1f} MiB per 100,000 prompts"
        )
    where = machine.describe()
    stem = f"{where['date'][:10]}-client-{where['platform']}" + ("-quick" if given.quick else "")
    given.out.mkdir(parents=True, exist_ok=True)
    content = {"machine": where, "arguments": sys.argv[1:], "speed": rows, "memory": held}
    (given.out / f"{stem}.json").write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
