"""Benchmark of the critic: is the endpoint's window full while responses pass through all stages?

200 responses of 8 atoms, 3 passages per atom (24 contexts per case, FR2: 192 questions), with a scripted model in a
separate process and searches that take time as well. A second run has every reply in the store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]  # this folder's modules, and the scripted model's

import machine  # noqa: E402
from client import served  # noqa: E402
from scripted_model import Shelf, case, passages  # noqa: E402

from fcjax.critic.critic import Critic  # noqa: E402
from fcjax.io.client import Client  # noqa: E402
from fcjax.io.endpoint import Endpoint  # noqa: E402
from fcjax.io.retrievers.cached import Cached  # noqa: E402
from fcjax.io.store import Store  # noqa: E402
from fcjax.runs.critique_file import critique_file  # noqa: E402
from fcjax.stages.pipeline import Pipeline  # noqa: E402
from fcjax.stages.query import QueryBuilder  # noqa: E402
from fcjax.stages.relate import RelationModel  # noqa: E402

MODEL = HERE.parent / "tests" / "support" / "scripted_model.py"
ATOMS, COPIES = 8, 3


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few cases, about 15 seconds")
    parser.add_argument("--cases", type=int, help="[200, quick 30]")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--delay", type=float, default=0.25, help="seconds that a reply takes, plus or minus half")
    parser.add_argument("--search", type=float, default=0.2, help="seconds that a search takes")
    parser.add_argument("--style", choices=["pairwise", "packed"], default="pairwise")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="folder of the results")
    given = parser.parse_args()
    given.cases = given.cases or (30 if given.quick else 200)
    return given


def critiqued(url: str, given: argparse.Namespace, folder: Path, out: str, store: Store) -> dict[str, Any]:
    """One run over all cases, with its time, prompts and memory."""
    client = Client(Endpoint(url, "scripted"), store=store, concurrency=given.concurrency)
    critic = Critic(
        client,
        retrieve=Cached(Shelf(passages(given.cases, ATOMS + 1, COPIES), delay=given.search), store),
        relate=RelationModel(style=given.style),
        pipeline=Pipeline(query=QueryBuilder()),
        open_cases=64,
        window=4 * given.concurrency,
    )
    machine.forget_peak()
    began, cpu = perf_counter(), process_time()
    report = critique_file(folder / "in.jsonl", folder / out, critic)
    seconds, cpu = perf_counter() - began, process_time() - cpu
    asked, stats = report.relations.total(), client.stats
    if report.n_failed or asked != given.cases * ATOMS * ATOMS * COPIES:
        raise SystemExit(f"wrong answer: {asked} relations, {report.n_failed} failed")
    return {
        "seconds": seconds,
        "prompts": stats.asked,
        "prompts_per_s": stats.asked / seconds,
        "from_store": stats.cache_hits,
        "cpu_ms": 1e3 * cpu / stats.asked,
        "full": stats.mean_concurrency / given.concurrency,
        "busy": stats.busy / (seconds * given.concurrency),  # with the beginning and the end of the run
        "peak_mib": machine.peak_mib(),
    }


def warm_up(url: str) -> None:
    """Load the engine and compile what it needs."""
    client = Client(Endpoint(url, "scripted"))

    async def once() -> None:
        async with client:
            from fcjax.io.files import parse_case

            found = await Critic(client, retrieve=Shelf(passages(2, 3))).critique(parse_case(case(1)))
            if found.status != "ok":
                raise SystemExit(f"wrong answer: {found}")

    asyncio.run(once())


def main() -> int:
    given = options()
    with served(given.delay, MODEL) as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = (json.dumps(case(town, ATOMS)) for town in range(given.cases))
        (folder / "in.jsonl").write_text("".join(line + "\n" for line in lines))
        warm_up(url)
        with Store.open(folder / "store.sqlite") as store:
            rows = {run: critiqued(url, given, folder, f"{run}.jsonl", store) for run in ("live", "stored")}
        if (folder / "live.jsonl").read_bytes() != (folder / "stored.jsonl").read_bytes():
            raise SystemExit("wrong answer: the second run's results are others")
    print(f"{'run':8} {'seconds':>8} {'prompts':>8} {'prompts/s':>10} {'CPU ms':>7} {'full':>6} {'busy':>6} {'MiB':>6}")
    for run, row in rows.items():
        print(
            f"{run:8} {row['seconds']:8.1f} {row['prompts']:8,} {row['prompts_per_s']:10,.0f} {row['cpu_ms']:7.2f} "
            f"{row['full']:6.3f} {row['busy']:6.3f} {row['peak_mib']:6.0f}"
        )
    where = machine.describe()
    stem = f"{where['date'][:10]}-critic-{where['platform']}" + ("-quick" if given.quick else "")
    given.out.mkdir(parents=True, exist_ok=True)
    content = {"machine": where, "arguments": sys.argv[1:], "cases": given.cases, "runs": rows}
    (given.out / f"{stem}.json").write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
