"""Batches on all devices: each device has the weights, and takes its share of a batch's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fcjax.encoders.network import Network


@dataclass(frozen=True)
class Devices:
    """The devices of the default platform."""

    count: int
    _rows: NamedSharding | None = None  # None for a single device
    _whole: NamedSharding | None = None

    @classmethod
    def all(cls) -> Devices:
        """All devices of the default platform that belong to this process."""
        found = jax.local_devices()
        if len(found) == 1:
            return cls(1)
        mesh = Mesh(np.array(found), ("rows",))
        return cls(len(found), NamedSharding(mesh, PartitionSpec("rows")), NamedSharding(mesh, PartitionSpec()))

    def with_weights(self, network: Network) -> Network:
        """The network with its weights on every device."""
        return network if self._whole is None else network.placed(self._whole)

    def shared(self, *arrays: np.ndarray) -> tuple[Any, ...]:
        """Arrays whose rows are shared by the devices; their number is a multiple of `count`."""
        return arrays if self._rows is None else tuple(jax.device_put(array, self._rows) for array in arrays)
