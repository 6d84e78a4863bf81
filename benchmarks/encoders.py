"""Benchmark of local relation models: beside transformers with torch, and what they do to the event loop.

    python -P benchmarks/encoders.py --torch OTHER/bin/python --folder MODEL [--cases FILE]

transformers and torch live in an environment of their own, whose interpreter `--torch` names; this script runs itself
there. Both take turns in one run, on the same threads.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # this folder's modules

import machine  # noqa: E402

CASES = HERE.parents[1] / "shared" / "cases" / "factcheck_gpt.jsonl"
PARTS = ("ready", "end", "host", "loop", "relate")
LENGTHS = (64, 128, 256, 512)  # of the part `ready`
LOOP_BATCH = 32  # of the usual loop
TOLERANCE = 2e-4  # between the probabilities of both
REST = 0.3  # seconds between turns, so that the threads of one have stopped spinning when the other begins
OPEN_CASES = 64


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} [all]")
    parser.add_argument("--torch", metavar="PYTHON", help="the interpreter that has transformers and torch")
    parser.add_argument("--folder", type=Path, required=True, metavar="MODEL", help="a classifier of pairs, three-way")
    parser.add_argument("--cases", type=Path, default=CASES, metavar="FILE", help="cases with passages and claims")
    parser.add_argument("--first", type=int, metavar="N", help="cases of the parts end and relate [3 and all]")
    parser.add_argument("--tokens", type=int, default=4096, help="in a batch of the part ready [4096]")
    parser.add_argument("--claims", type=int, metavar="N", help="of each case in the parts loop and relate [all]")
    parser.add_argument("--turns", type=int, default=5, help="runs of each, alternating [5]")
    parser.add_argument("--threads", type=int, help="cores that each may use [all]")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="folder of the results")
    given = parser.parse_args()
    given.parts = given.parts or list(PARTS)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"found the parts {sorted(unknown)}; expected some of {', '.join(PARTS)}")
    if not given.torch and {"ready", "end"} & set(given.parts):
        parser.error("the parts ready and end need --torch")
    return given


# ---- the other environment


def serve(folder: str, threads: int) -> None:
    """Answer jobs, one JSON object per line: the times of a forward pass, or of the usual loop over pairs."""
    import torch
    import transformers

    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))
    torch.set_num_threads(threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({**versions, "attention": model.config._attn_implementation}), flush=True)

    def ready(path: str) -> tuple[Meter, Any]:
        data = np.load(path)
        given = {
            "input_ids": torch.tensor(data["ids"]).long(),
            "attention_mask": torch.tensor(data["mask"]).long(),
            "token_type_ids": torch.tensor(data["types"]).long(),
        }
        with Meter() as meter:
            logits = model(**given).logits
        return meter, logits

    def pairs(path: str, by_length: bool) -> tuple[Meter, Any]:
        texts = json.loads(Path(path).read_text())
        with Meter() as meter:
            order = list(range(len(texts)))
            if by_length:
                order.sort(key=lambda i: len(texts[i][0]) + len(texts[i][1]), reverse=True)
            made = []
            for at in range(0, len(order), LOOP_BATCH):
                batch = [texts[i] for i in order[at : at + LOOP_BATCH]]
                given = tokenizer(
                    [premise for premise, _ in batch],
                    [claim for _, claim in batch],
                    padding=True,
                    truncation=True,
                    max_length=512,
                    return_tensors="pt",
                )
                made.append(model(**given).logits.softmax(-1))
            found = torch.empty(len(texts), made[0].shape[1])
            found[order] = torch.cat(made)
        return meter, found

    with torch.no_grad():
        for line in sys.stdin:
            job = json.loads(line)
            machine.forget_peak()
            meter, found = ready(job["path"]) if job["what"] == "ready" else pairs(job["path"], job["by_length"])
            np.save(job["path"] + ".out.npy", found.numpy())
            print(json.dumps({**meter.to_dict(), "peak_mib": machine.peak_mib()}), flush=True)


class Meter:
    """Wall and CPU seconds of a block; CPU is that of all threads of the process."""

    wall = cpu = 0.0

    def __enter__(self) -> Meter:
        self._began, self._used = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._began, time.process_time() - self._used

    def to_dict(self) -> dict[str, float]:
        return {"wall_s": self.wall, "cpu_s": self.cpu}


class Other:
    """The process in the other environment."""

    def __init__(self, given: argparse.Namespace, threads: int):
        command = [given.torch, "-P", __file__, "--serve", str(given.folder.resolve()), str(threads)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
        environment.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.versions = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process with transformers ended early; its error is above")
        return dict(json.loads(line))

    def do(self, what: str, path: Path, **job: Any) -> tuple[dict[str, float], np.ndarray]:
        """Its times, and the array that it made."""
        time.sleep(REST)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, "path": str(path), **job}) + "\n")
        self._process.stdin.flush()
        times = self._read()
        return times, np.load(str(path) + ".out.npy")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# ---- our own


class Compiles:
    """Programs that JAX compiled, and the seconds that it took."""

    def __init__(self) -> None:
        import jax

        self.number, self.seconds = 0, 0.0
        jax.monitoring.register_event_duration_secs_listener(self._count)

    def _count(self, event: str, seconds: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            self.number, self.seconds = self.number + 1, self.seconds + seconds

    def take(self) -> dict[str, float]:
        """Those since the last call."""
        found = {"compiles": self.number, "compile_s": self.seconds}
        self.number, self.seconds = 0, 0.0
        return found


def compare(rows: list[tuple[dict[str, float], dict[str, float]]], pairs: int) -> dict[str, Any]:
    """Rates and ratios of turns (ours, theirs): the median, with the least and the most."""
    found: dict[str, Any] = {}
    for kind in ("wall_s", "cpu_s"):
        ratios = sorted(theirs[kind] / ours[kind] for ours, theirs in rows)
        best = [min(side[kind] for side in sides) for sides in zip(*rows, strict=True)]
        found[f"ratio_{kind[:-2]}"] = {
            "median": statistics.median(ratios),
            "least": ratios[0],
            "most": ratios[-1],
            "of_best": best[1] / best[0],
        }
        for place, name in enumerate(("fcjax", "transformers")):
            found[f"{name}_pairs_per_{kind}"] = pairs / statistics.median(turn[place][kind] for turn in rows)
    return found


def ready_tokens(model: Any, other: Other, given: argparse.Namespace, folder: Path, save: Any) -> None:
    """The network alone, on batches of full rows of several lengths."""
    import jax

    chance = np.random.default_rng(0)
    made = []
    for rows, length in ((max(1, given.tokens // length), length) for length in LENGTHS):
        if length > model.network.max_length:
            continue
        ids = chance.integers(1000, model.network.architecture.vocabulary, (rows, length)).astype(np.int32)
        data = {"ids": ids, "mask": np.ones_like(ids), "types": np.zeros_like(ids)}
        data["types"][:, length * 3 // 4 :] = 1
        path = folder / f"ready-{length}.npz"
        np.savez(path, **data)
        turns = []
        for turn in range(given.turns + 1):
            time.sleep(REST)
            with Meter() as meter:
                mine = jax.block_until_ready(model.network.logits(data["ids"], data["mask"], data["types"]))
            theirs, logits = other.do("ready", path)
            if turn:
                turns.append((meter.to_dict(), theirs))
            elif not np.abs(np.asarray(mine) - logits).max() < 1e-3:
                raise SystemExit(f"wrong answer: logits differ by {np.abs(np.asarray(mine) - logits).max():.1e}")
        row = {"rows": rows, "tokens": length, **compare(turns, rows), "turns": turns}
        print_row(f"ready {rows:3} x {length:3}", row)
        made.append(row)
        save(ready=made)


def end_to_end(model: Any, other: Other, given: argparse.Namespace, folder: Path, compiles: Compiles) -> dict[str, Any]:
    """From texts to distributions, over all pairs of a few cases (FR2), beside the usual loop, sorted and not."""
    pairs = [(pair.premise, pair.hypothesis) for case in cases_of(given, "FR2")[: given.first or 3] for pair in case]
    path = folder / "pairs.json"
    path.write_text(json.dumps(pairs))
    lengths = [
        len(premise) + len(claim) + model.tokens.frame.size
        for premise, claim in zip(*(model.tokens.of(side) for side in zip(*pairs, strict=True)), strict=True)
    ]
    made: dict[str, Any] = {"pairs": len(pairs), "tokens_mean": statistics.mean(lengths), "tokens_most": max(lengths)}
    compiles.take()
    turns: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {"unsorted": [], "sorted": []}
    model.network.logits(*np.zeros((3, 1, 16), np.int32))
    order = [model.labels.entailment, model.labels.contradiction, model.labels.neutral]
    other.do("pairs", path, by_length=True)
    for turn in range(given.turns + 1):
        model.tokens.forget()
        machine.forget_peak()
        time.sleep(REST)
        with Meter() as meter:
            found = model.judge(pairs)
        ours = {**meter.to_dict(), "peak_mib": machine.peak_mib()}
        if not turn:
            made["first"] = {**ours, **compiles.take()}
            continue
        for name in turns:
            theirs, shares = other.do("pairs", path, by_length=name == "sorted")
            turns[name].append((ours, theirs))
            worst = np.abs(np.array([one.distribution for one in found]) - shares[:, order]).max()
            if not worst < TOLERANCE and max(lengths) <= model.length:
                raise SystemExit(f"wrong answer: probabilities differ by {worst:.1e}")
            made["difference"] = float(worst)
    made["again"] = compiles.take()
    print(f"{len(pairs)} pairs of {made['tokens_mean']:.0f} tokens; first run {made['first']}; then {made['again']}")
    for name, rows in turns.items():
        made[name] = {
            **compare(rows, len(pairs)),
            "fcjax_peak_mib": max(ours["peak_mib"] for ours, _ in rows),
            "transformers_peak_mib": max(theirs["peak_mib"] for _, theirs in rows),
            "turns": rows,
        }
        print_row(f"end, {name}", made[name])
    return made


def cases_of(given: argparse.Namespace, version: Any) -> list[list[Any]]:
    """The pairs of each case, without the relations that it has."""
    from fcjax.io.files import read_cases
    from fcjax.stages.relate import Agenda

    cases = (row.value for row in read_cases(given.cases) if row.value is not None)
    return [list(Agenda.of(replace(case, relations=()), version).pairs()) for case in cases]


class Still:
    """In the place of a network, without its work: what is left is the host's."""

    def __init__(self, network: Any):
        self.max_length, self.module, self._classes = network.max_length, network.module, network.classes

    def logits(self, ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> np.ndarray:
        return np.zeros((len(ids), self._classes), np.float32)


def host(model: Any, given: argparse.Namespace) -> dict[str, float]:
    """CPU seconds of the host for pairs of FR2: putting known texts together, and tokenising new ones."""
    pairs = [(pair.premise, pair.hypothesis) for case in cases_of(given, "FR2")[:12] for pair in case]
    texts = {text for pair in pairs for text in pair}
    still = replace(model, network=Still(model.network), batch_tokens=65536)
    assembling, tokenising = [], []
    for _ in range(given.turns):
        model.tokens.forget()
        with Meter() as meter:
            tokens = sum(map(len, model.tokens.of(texts)))
        tokenising.append(meter.cpu)
        with Meter() as meter:
            still.judge(pairs)
        assembling.append(meter.cpu)
    # The usual way tokenises both texts of every pair.
    with Meter() as meter:
        model.tokens.tokenizer.encode_batch(pairs[:1000])
    found = {
        "pairs": len(pairs),
        "texts": len(texts),
        "assembled_per_cpu_s": len(pairs) / statistics.median(assembling),
        "tokens_per_cpu_s": tokens / statistics.median(tokenising),
        "pairs_per_cpu_s": len(pairs) / (statistics.median(assembling) + statistics.median(tokenising)),
        "tokenised_pairs_per_cpu_s": min(1000, len(pairs)) / meter.cpu,
    }
    print(f"host: {found}")
    return found


def event_loop(given: argparse.Namespace) -> dict[str, Any]:
    """The longest wait of a task that is due every millisecond, with `OPEN_CASES` cases under way, from a cold start
    and again."""
    from client import Pauses

    from fcjax.critic.asker import Asker
    from fcjax.critic.relation_stream import RelationConfig, RelationCounts, relate_cases
    from fcjax.encoders.relation_model import LocalRelationModel

    cases = bare_cases(given)
    cases = [replace(case, id=f"{case.id}-{i}") for i, case in enumerate((cases * OPEN_CASES)[:OPEN_CASES])]

    async def run() -> dict[str, Any]:
        pauses, counts = Pauses(), RelationCounts()
        watcher = asyncio.create_task(pauses.watch())
        with Meter() as meter:
            async for _ in relate_cases(cases, Asker(None), how, window=OPEN_CASES, counts=counts):
                pass
        watcher.cancel()
        return {"pause_ms": 1e3 * pauses.longest, "pairs": counts.pairs, "failed": counts.n_failed, **meter.to_dict()}

    # A model of its own with another size of batches, so that nothing is compiled yet.
    model = LocalRelationModel.open(given.folder, batch_tokens=4000)
    how = RelationConfig(version="FR1", model=model)
    made = {"cases": OPEN_CASES, "cold": asyncio.run(run()), "warm": asyncio.run(run()), "idle": asyncio.run(idle())}
    print(f"event loop, {OPEN_CASES} cases: {made}")
    return made


async def idle() -> dict[str, float]:
    """The same wait while nothing is under way: what the machine itself does."""
    from client import Pauses

    pauses = Pauses()
    watcher = asyncio.create_task(pauses.watch())
    await asyncio.sleep(5)
    watcher.cancel()
    return {"pause_ms": 1e3 * pauses.longest}


def relate(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The command, twice with stores of their own and once more with the second's: wall time, and equal bytes."""
    made: dict[str, Any] = {}
    source = folder / "bare.jsonl"
    pairs = bare(given, source)
    digests = []
    for name, store in (("first", "a"), ("second", "b"), ("stored", "b")):
        out = folder / f"{name}.jsonl"
        command = [sys.executable, "-P", "-m", "fcjax", "relate", str(source), "-o", str(out), "--graph", "FR1"]
        command += ["--relation-model", str(given.folder), "--store", str(folder / f"{store}.sqlite")]
        began, used = time.perf_counter(), os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall, now = time.perf_counter() - began, os.times()
        cpu = now.children_user + now.children_system - used.children_user - used.children_system
        digests.append(hashlib.sha256(out.read_bytes()).hexdigest())
        made[name] = {"wall_s": wall, "cpu_s": cpu, "pairs_per_s": pairs / wall}
    made |= {"pairs": pairs, "two_stores_equal": digests[0] == digests[1], "stored_equal": digests[1] == digests[2]}
    print(f"relate: {made}")
    return made


def bare_cases(given: argparse.Namespace) -> list[Any]:
    """The cases without their relations, with the first claims of each."""
    from fcjax.io.files import read_cases

    cases = (row.value for row in read_cases(given.cases) if row.value is not None)
    return [replace(case, relations=(), atoms=case.atoms and case.atoms[: given.claims]) for case in cases]


def bare(given: argparse.Namespace, out: Path) -> int:
    """Write the first cases without relations; returns the number of pairs of FR1."""
    import orjson

    from fcjax.io.files import case_to_dict
    from fcjax.stages.relate import Agenda

    cases = bare_cases(given)[: given.first]
    out.write_bytes(b"".join(orjson.dumps(case_to_dict(case)) + b"\n" for case in cases))
    return sum(1 for case in cases for _ in Agenda.of(case, "FR1").pairs())


def print_row(name: str, row: dict[str, Any]) -> None:
    rates = [row[f"{side}_pairs_per_{kind}"] for kind in ("wall_s", "cpu_s") for side in ("fcjax", "transformers")]
    text = "{:.1f} and {:.1f} pairs per second, {:.1f} and {:.1f} per CPU second".format(*rates)
    for kind in ("wall", "cpu"):
        ratio = row[f"ratio_{kind}"]
        text += "; {} {:.2f} ({:.2f}-{:.2f}, of best {:.2f})".format(kind, *ratio.values())
    print(f"{name:16} {text}", flush=True)


@contextlib.contextmanager
def other_process(given: argparse.Namespace, threads: int) -> Iterator[Other]:
    other = Other(given, threads)
    try:
        yield other
    finally:
        other.close()


def main() -> int:
    given = options()
    cores = sorted(os.sched_getaffinity(0))
    threads = given.threads or len(cores)
    os.sched_setaffinity(0, set(cores[:threads]))  # before JAX makes its threads
    from fcjax.encoders.relation_model import LocalRelationModel

    content: dict[str, Any] = {"machine": machine.describe(), "threads": threads, "parts": given.parts}
    stem = f"{content['machine']['date'][:10]}-encoders-{content['machine']['platform']}"
    given.out.mkdir(parents=True, exist_ok=True)

    def save(**found: Any) -> None:
        content.update(found)
        (given.out / f"{stem}.json").write_text(json.dumps(content, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        compiles = Compiles()
        model = LocalRelationModel.open(given.folder, force=True)
        save(model=model.name.rpartition("@")[2])
        if "host" in given.parts:
            save(host=host(model, given))
        if {"ready", "end"} & set(given.parts):
            with other_process(given, threads) as other:
                save(other=other.versions)
                if "ready" in given.parts:
                    ready_tokens(model, other, given, folder, save)
                if "end" in given.parts:
                    save(end=end_to_end(model, other, given, folder, compiles))
        if "loop" in given.parts:
            save(loop=event_loop(given))
        if "relate" in given.parts:
            save(relate=relate(given, folder))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
