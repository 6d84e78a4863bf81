"""Benchmarks of the engine: `python benchmarks/bench.py --help`; README.md describes what is measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]  # this folder's modules, and the oracle

import growth  # noqa: E402
import machine  # noqa: E402
import proof  # noqa: E402
from speed import Plan, WrongAnswerError, measure  # noqa: E402
from workloads import SIZES, Workload, matrix  # noqa: E402

PARTS = ("speed", "growth", "proof")
QUICK = {  # the defaults of --quick
    "sizes": "veli5,bio", "presets": "release", "seconds": 0.2, "runs": 3, "check_width": 10,
    "proofs": 2, "largest_batch": 1000, "widest": 12,
}  # fmt: skip
HEAD = (
    f"{'workload':28} {'effort':6} {'graphs/s':>10} {'sweeps':>6} {'exact':>6} {'cond.':>6} {'p50 width':>9} "
    f"{'certain':>8} {'error':>8} {'MiB':>6} {'pyAgrum ms':>10} {'ratio':>7}"
)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes, one or two minutes on two cores")
    parser.add_argument("--sizes", default=",".join(SIZES), help="workload sizes, separated by commas")
    parser.add_argument("--presets", default="release,paper", help="presets, separated by commas")
    parser.add_argument("--seconds", type=float, default=1.5, help="target time of one run")
    parser.add_argument("--most", type=int, default=50_000, help="maximum number of graphs in one run")
    parser.add_argument("--runs", type=int, default=5, help="number of runs, of which the median is reported")
    parser.add_argument("--budget", type=float, help="seconds after which no further workload starts")
    parser.add_argument("--check-width", type=int, default=14, help="widest graph whose answer is checked in float64")
    parser.add_argument("--proofs", type=int, default=20, help="wide graphs of each workload in the part `proof`")
    parser.add_argument("--largest-batch", type=int, default=100_000, help="largest batch of the part `growth`")
    parser.add_argument("--widest", type=int, default=24, help="largest width of the part `growth`")
    parser.add_argument("--backend", choices=("cpu", "xla"), help="backend of the sweep [by device]")
    parser.add_argument("--merlin", metavar="PATH", help="the merlin executable, which runs as a subprocess")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="folder of the results")
    parser.set_defaults(**(QUICK if "--quick" in sys.argv else {}))
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}; seen: {', '.join(sorted(unknown))}")
    for given, allowed in ((chosen.sizes, SIZES), (chosen.presets, ("release", "paper"))):
        if unknown := set(given.split(",")) - set(allowed):
            parser.error(f"allowed: {', '.join(allowed)}; seen: {', '.join(sorted(unknown))}")
    return chosen


def efforts(workload: Workload) -> tuple[str, ...]:
    """`tight` for all; the cheaper efforts too for workloads with wide graphs."""
    wide = workload.size == "biofr" and (workload.version == "FR3" or workload.cross >= 0.1)
    return ("tight", "label", "fast") if wide and workload.preset == "release" else ("tight",)


def line(row: dict[str, Any]) -> str:
    answers, peer, checked = row["answers"], row.get("peer"), row["checked"]
    error = max(checked["worst_exact"], checked["worst_conditioned"])
    return (
        f"{row['workload']:28} {row['effort']:6} {row['graphs_per_s']:10,.0f} {row['solving']:6.0%} "
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


class Record:
    """The results so far, written to disk after every row, so that an interrupted run keeps them."""

    def __init__(self, folder: Path, given: argparse.Namespace):
        self.machine = machine.describe()
        where = self.machine
        stem = f"{where['date'][:10]}-{where['platform']}-{where['device'].lower().replace(' ', '-')}"
        if given.quick:
            stem += "-quick"
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.picture = folder / f"{stem}.json", folder / f"{stem}.png"
        device = f"{where['device']} ({where['platform']}), {where['cores']} cores"
        self.title = f"{device}, commit {where['commit']}, {where['date']}"
        self.rows: dict[str, list[Any]] = {part: [] for part in ("speed", "proof", "by_batch", "by_width", "left_out")}

    def add(self, part: str, *rows: Any) -> None:
        self.rows[part] += rows
        content = {"machine": self.machine, "arguments": sys.argv[1:], **self.rows}
        self.path.write_text(json.dumps(content, indent=1) + "\n")


def main() -> int:
    given = options()
    parts = given.parts or PARTS
    began = perf_counter()
    record = Record(given.out, given)
    print(record.title)

    def late(what: str) -> bool:
        if given.budget is None or perf_counter() - began <= given.budget:
            return False
        record.add("left_out", what)
        return True

    plan = Plan(
        seconds=given.seconds,
        runs=given.runs,
        most=given.most,
        checked=8 if given.quick else 16,
        check_width=given.check_width,
        peer=12 if given.quick else 40,
        backend=given.backend,
        merlin=given.merlin,
    )
    if "speed" in parts:
        print(HEAD)
        for workload in matrix(tuple(given.sizes.split(",")), tuple(given.presets.split(","))):
            for effort in efforts(workload):
                if late(f"{workload.name} {effort}"):
                    continue
                try:
                    row = measure(workload, effort, plan)
                except WrongAnswerError as error:
                    print(f"wrong answer: {error}", file=sys.stderr)
                    return 1
                record.add("speed", row)
                print(line(row), flush=True)
    if "proof" in parts:
        for workload in proof.WORKLOADS:
            if not late(f"proof {workload.name}"):
                row = proof.measure(workload, given.proofs, given.backend)
                record.add("proof", row)
                print(proof_line(row), flush=True)
    if "growth" in parts and not late("growth"):
        for row in growth.by_batch(plan, given.largest_batch):
            record.add("by_batch", row)
            each = row["ms"] / row["batch"]
            print(f"batch {row['batch']:7,}: {row['ms']:10.2f} ms, {each:.4f} ms per graph", flush=True)
        for row in growth.by_width(plan, range(4, given.widest + 1, 2), min(given.widest, 16)):
            record.add("by_width", row)
            peer = f", pyAgrum {row['pyagrum_ms']:.1f} ms" if "pyagrum_ms" in row else ""
            print(f"width {row['width']:2}: {row['ms']:10.3f} ms per graph{peer}", flush=True)
        growth.plot(record.rows["by_batch"], record.rows["by_width"], record.title, record.picture)
    if record.rows["left_out"]:
        print(f"left out because the budget of {given.budget:.0f} s was used up: {'; '.join(record.rows['left_out'])}")
    print(f"{perf_counter() - began:.0f} s; {record.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
