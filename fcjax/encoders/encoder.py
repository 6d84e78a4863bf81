"""An encoder of a folder at work: its network on the devices, its tokenizer, and the sizes of its batches."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import jax

from fcjax.core.errors import Fault, InputError
from fcjax.encoders.devices import Devices
from fcjax.encoders.network import Dtype, Network
from fcjax.encoders.tokens import Tokens
from fcjax.io.model_folder import TOKENIZER, ModelFolder, open_model

TOKENS: Final = {"cpu": 1024, "gpu": 65536, "tpu": 65536}
"""Tokens in a batch, by the platform of the device. All batches have as many, so that a few pairs cost a whole one; on
CPUs more tokens are not faster."""


@dataclass(eq=False)
class Encoder:
    """What a relation model and an embedder have in common."""

    folder: ModelFolder
    network: Network
    tokens: Tokens
    length: int  # tokens of a row, special ones included, at most
    batch_tokens: int
    devices: Devices

    @staticmethod
    def parts(
        where: str | os.PathLike[str] | ModelFolder, length: int, dtype: Dtype | None, batch_tokens: int | None = None
    ) -> dict[str, Any]:
        """The fields of the encoder in a folder, or of a name on the hub; by default in bfloat16 on accelerators.

        Raises `InputError` where the folder lacks something or is of a kind that is not known, and `SettingsError`.
        """
        folder = where if isinstance(where, ModelFolder) else open_model(where)
        platform, devices = jax.default_backend(), Devices.all()
        dtype = dtype or ("float32" if platform == "cpu" else "bfloat16")
        network = Network.of(folder.config, folder.tensors(), dtype=dtype)
        return {
            "folder": folder,
            "network": devices.with_weights(network),
            "tokens": tokens_of(folder, network),
            "length": min(length, network.max_length),
            "batch_tokens": batch_tokens or devices.count * TOKENS.get(platform, TOKENS["gpu"]),
            "devices": devices,
        }

    @property
    def name(self) -> str:
        """The folder's name and digest."""
        return self.folder.name


def tokens_of(folder: ModelFolder, network: Network) -> Tokens:
    """The tokenizer of a folder. Raises `InputError`, also where it has tokens that the network has no embedding of."""
    made = folder.tokenizer()
    most, room = max(made.get_vocab(with_added_tokens=True).values(), default=0), network.architecture.vocabulary
    if most >= room:
        raise InputError(
            Fault(
                f"the tokenizer's largest id is {most}, and the model has {room} embeddings; allowed: the tokenizer "
                "that the model was trained with",
                file=str(folder.path / TOKENIZER),
            )
        )
    return Tokens(made, pad=network.architecture.pad)
