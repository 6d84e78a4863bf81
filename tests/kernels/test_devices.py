"""The batch axis is shared out among devices, and nobody can tell from the answers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json
import jax, numpy as np
from checks import preset
from samples import random_graph
from fcjax.inference.engine import infer
from fcjax.kernels import sweep_xla
from pytest import MonkeyPatch
from size_classes import traced_once

programs = traced_once(MonkeyPatch())
tiles, sweep = [], sweep_xla.sweep
sweep_xla.sweep = lambda *tile: tiles.append(sweep(*tile)) or tiles[-1]

rng = np.random.default_rng(0)
graphs = [preset(random_graph(rng, atoms, 2 * atoms, 0.3), "release")[0] for atoms in (4, 6, 7, 8, 8, 9)]
out = infer(graphs, backend="xla")
print(json.dumps({
    "devices": jax.local_device_count(),
    "parts": [[len(part.data) / len(tile.p) for part in tile.p.addressable_shards] for tile in tiles],
    "programs": len(programs),
    "answers": [[list(row.p.values()), row.log_z] for row in out],
}))
"""


def run(devices: int) -> dict:
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "support"),
    }
    command = [sys.executable, "-P", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_four_devices_answer_as_one_does() -> None:
    one, four = run(1), run(4)
    assert (one["devices"], four["devices"]) == (1, 4)
    assert four["parts"]
    assert all(parts == [0.25] * 4 for parts in four["parts"])
    assert 1 <= four["programs"] <= len(four["parts"])  # a second trace of one would have raised
    assert four["answers"] == one["answers"]
