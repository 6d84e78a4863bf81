"""The batch axis is shared out among devices, and nobody can tell from the answers."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import jax, numpy as np
from checks import preset
from samples import random_graph
from fcjax.engine import infer
from fcjax.kernels import sweep_xla

rng = np.random.default_rng(0)
graphs = [preset(random_graph(rng, atoms, 2 * atoms, 0.3), "release")[0] for atoms in (4, 6, 7, 8, 8, 9)]
out = infer(graphs, backend="xla")
once = max(sweep_xla.TRACES.values())
answers = [[list(row.p.values()), row.log_z] for row in out]
print(json.dumps({"devices": jax.local_device_count(), "traces": once, "answers": answers}))
"""


def answers(devices: int) -> dict:
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
    }
    environment["PYTHONPATH"] = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=500
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_four_devices_answer_as_one_does() -> None:
    one, four = answers(1), answers(4)
    assert (one["devices"], four["devices"]) == (1, 4)
    assert four["traces"] == 1
    assert four["answers"] == one["answers"]
