"""Several devices give what one gives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import sys
import numpy as np
from encoders import random_inputs, random_network
from fcjax.encoders.devices import Devices

network = random_network("bert")
ids, mask, types = random_inputs("bert", (30, 17, 1, 9, 22, 5))
devices = Devices.all()
placed = devices.with_weights(network)
logits = np.asarray(placed.logits(*devices.shared(ids, mask, types)))
np.save(sys.argv[1], logits)
print(devices.count)
"""


@pytest.mark.slow
def test_several_devices_give_the_same_logits(tmp_path):
    import numpy as np

    found = []
    for count in (1, 3):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
        path = os.pathsep.join(one for one in sys.path if one)
        done = subprocess.run(
            [sys.executable, "-P", "-c", CODE, str(tmp_path / f"{count}.npy")],
            env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) == count
        found.append(np.load(tmp_path / f"{count}.npy"))
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)
