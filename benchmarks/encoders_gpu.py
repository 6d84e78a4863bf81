"""Encoders on GPUs, on paper: FLOPs, bytes and launches per batch, and the rates that they allow. No GPU is needed.

    JAX_PLATFORMS=cpu python -P benchmarks/encoders_gpu.py --spec A100.txtpb --spec H100.txtpb [--host RESULT.json]

Each spec is a GPU's target config, as XLA has it in xla/backends/gpu/target_config/specs, with `driver_version` in its
`gpu_device_info`. The environment needs jax, the plugin jax-cuda12-plugin with jax-cuda12-pjrt, and ptxas (package
nvidia-cuda-nvcc-cu12). Nothing is run, so the rates are bounds, and a real GPU, which also tunes its kernels, may have
another program.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # this folder's modules

import machine  # noqa: E402

TOKENS = 65536  # in a batch, as LocalRelationModel has it on GPUs
LENGTHS = (128, 256)
UTILISATION = 0.4  # of the peak in bfloat16, for matrix products of these sizes
LAUNCH = 3e-6  # seconds between the starts of two kernels
PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12}  # dense bfloat16 FLOP/s, from NVIDIA's data sheets
SIZES = {
    "MiniLM-L6": {
        "model_type": "bert",
        "vocab_size": 30522,
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "max_position_embeddings": 512,
        "num_labels": 3,
    },
    "DeBERTa-v3-small": {
        "model_type": "deberta-v2",
        "vocab_size": 128100,
        "hidden_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "type_vocab_size": 0,
        "num_labels": 3,
    },
}


def analytic(arch: Any, length: int) -> float:
    """FLOPs of one pair: the matrix products of all layers, 2 for each multiply and add.

    DeBERTa's products of contents with 2L relative positions, twice, come on top of BERT's of queries and keys, and of
    weights and values; its positions are projected once for a batch and left out.
    """
    dense = 2 * length * (4 * arch.hidden**2 + 2 * arch.hidden * arch.inner)
    attention = 2 * 2 * length * length * arch.hidden
    relative = getattr(arch, "content_to_position", False) + getattr(arch, "position_to_content", False)
    return float(arch.layers * (dense + attention + relative * 2 * length * 2 * length * arch.hidden))


# ---- what a compiled program does

BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "f64": 8}
FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "while", "after-all", "iota"}
SHAPE = re.compile(rf"\b({'|'.join(BYTES)})\[([\d,]*)\]")


class Op(NamedTuple):
    """One instruction of an optimised HLO module."""

    name: str
    type: str
    kind: str
    operands: list[str]
    attributes: str
    root: bool


def shape(text: str) -> list[int]:
    found = SHAPE.search(text)
    return [int(size) for size in found[2].split(",") if size] if found else []


def size(text: str) -> int:
    """Bytes of all arrays of a type, without the workspace of a library's call (an s8 array)."""
    return sum(
        BYTES[kind] * math.prod(int(n) for n in dims.split(",") if n)
        for kind, dims in SHAPE.findall(text)
        if kind != "s8"
    )


def parse(text: str) -> tuple[dict[str, dict[str, Op]], str]:
    """The computations of a module, and the name of the first that runs."""
    found: dict[str, dict[str, Op]] = {}
    entry, ops = "", {}
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$", line):
            ops = found.setdefault(head[2], {})
            entry = head[2] if head[1] else entry
        elif made := re.match(r"\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)", line):
            depth, end = 1, 0
            while end < len(made[5]) and depth:
                depth += {"(": 1, ")": -1}.get(made[5][end], 0)
                end += 1
            operands = re.findall(r"%([\w.\-]+)", made[5][: end - 1])
            ops[made[2]] = Op(made[2], made[3], made[4], operands, made[5][end:], bool(made[1]))
    return found, entry


class Cost(NamedTuple):
    """What a program does."""

    flops: float = 0
    bytes: float = 0
    launches: int = 0

    def plus(self, other: Cost, times: int = 1) -> Cost:
        return Cost(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))


def cost(text: str) -> Cost:
    """FLOPs of matrix products, bytes of memory and launches of kernels, with loops as often as they run.

    A kernel reads its operands once (only the slice where it slices one) and writes its results once. What the caches
    save is left out.
    """
    computations, entry = parse(text)

    def called(op: Op, name: str) -> str | None:
        found = re.search(rf"\b{name}=%?([\w.\-]+)", op.attributes)
        return found[1] if found else None

    @cache
    def flops(name: str) -> float:
        ops, total = computations[name], 0.0
        for op in ops.values():
            if op.kind in ("fusion", "call") and (inner := called(op, "calls") or called(op, "to_apply")):
                total += flops(inner)
            elif op.kind == "dot" or (op.kind == "custom-call" and "gemm" in op.attributes):
                sizes = shape(ops[op.operands[0]].type)
                given = re.search(r'lhs_contracting_dim(?:ension)?s"?[=:][{\[]"?(\d+)', op.attributes)
                total += 2 * math.prod(shape(op.type)) * (sizes[int(given[1])] if given else 0)
        return total

    def traffic(op: Op, ops: dict[str, Op]) -> float:
        inner = computations.get(called(op, "calls") or "", {}) if op.kind == "fusion" else {}
        if not inner:
            return size(op.type) + sum(size(ops[name].type) for name in op.operands if name in ops)
        total = 0
        for one in inner.values():
            if one.kind == "parameter":
                users = [user for user in inner.values() if one.name in user.operands]
                sliced = users and all(user.kind in ("dynamic-slice", "slice", "gather") for user in users)
                total += sum(size(user.type) for user in users) if sliced else size(one.type)
        return total + size(op.type)

    def run(name: str) -> Cost:
        ops, total = computations[name], Cost()
        for op in ops.values():
            if op.kind == "while":
                times = re.search(r'known_trip_count":\{"n":"(\d+)"', op.attributes)
                total = total.plus(run(str(called(op, "body"))), int(times[1]) if times else 1)
            elif op.kind in ("call", "async-start") and (inner := called(op, "to_apply") or called(op, "calls")):
                total = total.plus(run(inner))
            elif op.kind not in FREE and not op.kind.endswith("-done"):
                own = flops(called(op, "calls")) if op.kind == "fusion" else flops_of_one(op, ops)
                total = total.plus(Cost(own, traffic(op, ops), 1))
        return total

    def flops_of_one(op: Op, ops: dict[str, Op]) -> float:
        if op.kind == "dot" or (op.kind == "custom-call" and "gemm" in op.attributes):
            sizes = shape(ops[op.operands[0]].type)
            given = re.search(r'lhs_contracting_dim(?:ension)?s"?[=:]\s*[{\[]"?(\d+)', op.attributes)
            return 2 * math.prod(shape(op.type)) * (sizes[int(given[1])] if given else 0)
        return 0.0

    return run(entry)


def compiled(arch: Any, length: int, spec: str) -> tuple[str, float, Any]:
    """The optimised program of one batch for a GPU, the seconds that it took, and its memory."""
    import jax
    import jax.numpy as jnp
    from flax import nnx
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    from fcjax.kernels.encoders.model import Model

    topology = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=spec)
    place = SingleDeviceSharding(topology.devices[0])
    graph, weights = nnx.split(nnx.eval_shape(lambda: Model(arch, dtype="bfloat16")))
    weights = jax.tree.map(lambda one: jax.ShapeDtypeStruct(one.shape, jnp.bfloat16, sharding=place), weights)
    given = jax.ShapeDtypeStruct((TOKENS // length, length), jnp.int32, sharding=place)

    def logits(weights: Any, ids: Any, mask: Any, types: Any) -> Any:
        return nnx.merge(graph, weights)(ids, mask, types)

    began = time.perf_counter()
    made = jax.jit(logits).lower(weights, given, given, given).compile()
    return made.as_text(), time.perf_counter() - began, made.memory_analysis()


def number(spec: str, name: str) -> float:
    found = re.search(rf"\b{name}: (\d+)", spec)
    if not found:
        raise SystemExit(f"the spec has no {name}; expected the target config of a GPU, as XLA has it")
    return float(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--spec", action="append", type=Path, required=True, metavar="FILE", help="a GPU's target config"
    )
    parser.add_argument("--host", type=Path, metavar="FILE", help="a result of encoders.py with its part host")
    parser.add_argument("--hlo", type=Path, metavar="DIR", help="keep the programs in this folder")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="folder of the results")
    given = parser.parse_args()
    from fcjax.encoders.config import read_config

    host = json.loads(given.host.read_text())["host"] if given.host else None
    rows = []
    for place in given.spec:
        spec = place.read_text()
        gpu = re.search(r'device_description_str: "(.*)"', spec)
        name = gpu[1] if gpu else place.stem
        peak = next(peak for known, peak in PEAKS.items() if known in name)
        for model, config in SIZES.items():
            for length in LENGTHS:
                arch, pairs = read_config(config), TOKENS // length
                text, seconds, memory = compiled(arch, length, spec)
                if given.hlo:
                    given.hlo.mkdir(parents=True, exist_ok=True)
                    (given.hlo / f"{place.stem}-{model}-{length}.hlo.txt").write_text(text)
                whole = cost(text)
                bounds = {
                    "flops": pairs / (whole.flops / (UTILISATION * peak)),
                    "bandwidth": pairs / (whole.bytes / number(spec, "memory_bandwidth")),
                    "launches": pairs / (whole.launches * LAUNCH),
                }
                rate = min(bounds.values())
                row = {
                    "gpu": name,
                    "model": model,
                    "tokens": length,
                    "rows": pairs,
                    "gflop_per_pair": {"analytic": analytic(arch, length) / 1e9, "compiled": whole.flops / pairs / 1e9},
                    "mb_per_pair": whole.bytes / pairs / 1e6,
                    "launches": whole.launches,
                    "temp_mib": memory.temp_size_in_bytes / 2**20,
                    "compile_s": seconds,
                    "pairs_per_s": {key: round(value) for key, value in bounds.items()},
                    "limit": min(bounds, key=lambda key: bounds[key]),
                }
                if host:
                    row["host_cores"] = rate / host["assembled_per_cpu_s"]
                rows.append(row)
                print(json.dumps(row), flush=True)
    where = machine.describe()
    content = {
        "machine": where,
        "settings": {"tokens": TOKENS, "utilisation": UTILISATION, "launch_s": LAUNCH, "peaks": PEAKS, "host": host},
        "rows": rows,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{where['date'][:10]}-encoders-paper.json").write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
