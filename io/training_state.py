"""The state of a training on disk: what it goes on from after it was killed.

Two files take turns, so that one is always whole: arrays first, then a small JSON file that names them takes the place
of the last one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from fcjax.core.errors import InputError, OutputError, SettingsError

if TYPE_CHECKING:
    import numpy as np

STATE: Final = "state.json"
WORK: Final = "training"
"""The folder inside of a model's folder that a killed training resumes from; it is removed in the end."""


@dataclass(frozen=True)
class TrainingState:
    """The state in a folder, of the training that a fingerprint names."""

    folder: Path
    fingerprint: Mapping[str, Any]

    def load(self, like: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The arrays and numbers that were saved last; None where nothing was.

        Raises `SettingsError` where they are of another training, and `InputError` where they cannot be read or are not
        `like` these arrays.
        """
        from safetensors.numpy import load_file

        path = self.folder / STATE
        if not path.exists():
            return None
        try:
            found = orjson.loads(path.read_bytes())
            kept, name, numbers = found["fingerprint"], str(found["arrays"]), dict(found["numbers"])
            same = orjson.dumps(kept, option=orjson.OPT_SORT_KEYS) == self._print()
            arrays = load_file(self.folder / Path(name).name) if same else {}
        except Exception as error:  # of the packages' own kinds, too
            raise InputError(
                f"{path}: the state of the training cannot be read ({error!s:.200}); use --overwrite to start over"
            ) from error
        if not same:
            raise SettingsError(
                f"{self.folder} holds an unfinished training with other settings, pairs or another base; repeat the "
                "command that began it, use --overwrite to start over, or write to another folder"
            )
        if {name: (array.shape, str(array.dtype)) for name, array in arrays.items()} != {
            name: (array.shape, str(array.dtype)) for name, array in like.items()
        }:
            raise InputError(f"{path}: the arrays are of another model; use --overwrite to start over")
        return arrays, numbers

    def save(self, arrays: Mapping[str, Any], numbers: Mapping[str, Any]) -> None:
        """Save the state durably, and drop the one before. Raises `OutputError`."""
        import numpy as np
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"arrays-{numbers['step']}.safetensors"
            save_file({key: np.asarray(array) for key, array in arrays.items()}, self.folder / name)
            _durable(self.folder / name)
            part = self.folder / f".{STATE}.part"
            document = {"fingerprint": dict(self.fingerprint), "arrays": name, "numbers": dict(numbers)}
            part.write_bytes(orjson.dumps(document))
            _durable(part)
            os.replace(part, self.folder / STATE)
            _durable(self.folder)
            for old in self.folder.glob("arrays-*.safetensors"):
                if old.name != name:
                    old.unlink()
        except (OSError, SafetensorError) as error:  # the second of a full disk, too
            why = getattr(error, "strerror", None) or error
            raise OutputError(
                f"cannot save the training to {self.folder}: {why}; free some space, or write elsewhere"
            ) from error

    @property
    def exists(self) -> bool:
        """Whether a state was saved, of whatever training, and not dropped since."""
        return (self.folder / STATE).exists()

    def drop(self) -> None:
        """Remove what was saved, and the folder where it is empty then; first of all what names the rest."""
        with suppress(OSError):
            for old in (self.folder / STATE, self.folder / f".{STATE}.part", *self.folder.glob("arrays-*.safetensors")):
                old.unlink(missing_ok=True)
            self.folder.rmdir()

    def _print(self) -> bytes:
        return orjson.dumps(dict(self.fingerprint), option=orjson.OPT_SORT_KEYS)


def _durable(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
