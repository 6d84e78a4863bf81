"""Benchmarks of the engine: `python benchmarks/bench.py --help`; README.md beside this file says what is measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]  # this folder's modules, and the oracle

import growth  # noqa: E402
import machine  # noqa: E402
import proof  # noqa: E402
from speed import Plan, WrongAnswerError, measure  # noqa: E402
from workloads import SIZES, Workload, matrix  # noqa: E402

PARTS = ("speed", "growth", "proof")
HEAD = (
    f"{'workload':28} {'effort':6} {'graphs/s':>10} {'sweep':>6} {'exact':>6} {'cond.':>6} {'p50 width':>9} "
    f"{'certain':>8} {'error':>8} {'MiB':>6} {'pyAgrum ms':>10} {'ratio':>7}"
)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute or two on two cores")
    parser.add_argument("--sizes", default=",".join(SIZES), help="workload sizes, separated by commas")
    parser.add_argument("--presets", default="release,paper", help="presets, separated by commas")
    parser.add_argument("--seconds", type=float, default=1.5, help="aim for the time of one run")
    parser.add_argument("--most", type=int, default=50_000, help="graphs in one run, at most")
    parser.add_argument("--runs", type=int, default=5, help="runs, of which the median counts")
    parser.add_argument("--budget", type=float, help="seconds after which no further workload is begun")
    parser.add_argument("--check-width", type=int, default=14, help="widest graph whose answer is checked in float64")
    parser.add_argument("--proofs", type=int, default=20, help="wide graphs of each workload in the part `proof`")
    parser.add_argument("--largest-batch", type=int, default=100_000, help="of the part `growth`")
    parser.add_argument("--widest", type=int, default=24, help="width of the part `growth`")
    parser.add_argument("--backend", choices=("cpu", "xla"), help="of the sweep; by device when left out")
    parser.add_argument("--merlin", metavar="PATH", help="the merlin executable, to be run as a subprocess")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="folder of the results")
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}; seen: {', '.join(sorted(unknown))}")
    for given, allowed in ((chosen.sizes, SIZES), (chosen.presets, ("release", "paper"))):
        if unknown := set(given.split(",")) - set(allowed):
            parser.error(f"allowed: {', '.join(allowed)}; seen: {', '.join(sorted(unknown))}")
    if chosen.quick:
        chosen.sizes, chosen.presets, chosen.seconds, chosen.runs = "veli5,bio", "release", 0.2, 3
        chosen.proofs, chosen.largest_batch, chosen.widest, chosen.check_width = 2, 1000, 12, 10
    return chosen


def efforts(workload: Workload) -> tuple[str, ...]:
    """`tight` for all; the cheaper efforts where graphs are wide."""
    wide = workload.size == "biofr" and (workload.version == "FR3" or workload.cross >= 0.1)
    return ("tight", "label", "fast") if wide and workload.preset == "release" else ("tight",)


def line(row: dict[str, Any]) -> str:
    answers, peer, checked = row["answers"], row.get("peer"), row["checked"]
    error = max(checked["worst_exact"], checked["worst_conditioned"])
    return (
        f"{row['workload']:28} {row['effort']:6} {row['graphs_per_s']:10,.0f} {row['stages']['sweep']:6.0%} "
        f"{answers['exact']:6.0%} {answers['conditioned']:6.0%} {answers['width_p50']:9.0f} {answers['certain']:8.1%} "
        f"{error:8.0e} {row['peak_mib']:6.0f} "
        + (f"{peer['ms_per_graph']:10.1f} {peer['ratio']:7,.0f}" if peer else f"{'-':>10} {'-':>7}")
    )


def proof_line(row: dict[str, Any]) -> str:
    tight, label = row["tight"], row["label"]
    return (
        f"{row['workload']:28} {row['graphs']:3} wide graphs: gap closed {tight['gap_under_tail']:4.0%} "
        f"(worst {tight['gap_max']:.1e}), rows {tight['rows_p50']:.0f}, {tight['ms_per_graph']:.0f} ms; "
        f"labels certain {label['certain_labels']:6.2%}, rows {label['rows_p50']:.0f}, {label['ms_per_graph']:.0f} ms"
    )


def main() -> int:
    given = options()
    parts = given.parts or PARTS
    began = perf_counter()
    late = lambda: given.budget is not None and perf_counter() - began > given.budget  # noqa: E731
    plan = Plan(
        seconds=given.seconds,
        runs=given.runs,
        check_width=given.check_width,
        backend=given.backend,
        merlin=given.merlin,
    )
    result: dict[str, Any] = {"machine": machine.describe(), "arguments": sys.argv[1:], "speed": [], "proof": []}
    where = result["machine"]
    title = (
        f"{where['device']} ({where['platform']}), {where['cores']} cores, commit {where['commit']}, {where['date']}"
    )
    print(title)
    left = []
    if "speed" in parts:
        print(HEAD)
        for workload in matrix(tuple(given.sizes.split(",")), tuple(given.presets.split(","))):
            for effort in efforts(workload):
                if late():
                    left.append(f"{workload.name} {effort}")
                    continue
                try:
                    row = measure(workload, effort, plan)
                except WrongAnswerError as error:
                    print(f"wrong answer: {error}", file=sys.stderr)
                    return 1
                result["speed"].append(row)
                print(line(row), flush=True)
    if "proof" in parts:
        for workload in proof.WORKLOADS:
            if late():
                left.append(f"proof {workload.name}")
                continue
            result["proof"].append(proof.measure(workload, given.proofs, 1000, given.backend))
            print(proof_line(result["proof"][-1]), flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    stem = f"{where['date'][:10]}-{where['platform']}-{where['device'].lower().replace(' ', '-')}"
    if "growth" in parts and late():
        left.append("growth")
    elif "growth" in parts:
        result["by_batch"] = growth.by_batch(plan, given.largest_batch)
        result["by_width"] = growth.by_width(plan, range(4, given.widest + 1, 2), min(given.widest, 16))
        for row in result["by_batch"]:
            print(f"batch {row['batch']:7,}: {row['ms']:10.2f} ms, {row['ms'] / row['batch']:.4f} ms a graph")
        for row in result["by_width"]:
            peer = f", pyAgrum {row['pyagrum_ms']:.1f} ms" if "pyagrum_ms" in row else ""
            print(f"width {row['width']:2}: {row['ms']:10.3f} ms a graph{peer}")
        growth.plot(result["by_batch"], result["by_width"], title, given.out / f"{stem}.png")
    result["left_out"] = left
    if left:
        print(f"left out when the budget of {given.budget:.0f} s was spent: {'; '.join(left)}")
    path = given.out / f"{stem}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{perf_counter() - began:.0f} s; {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
