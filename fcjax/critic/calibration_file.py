"""The file of a relation model's calibration, as `fcjax calibrate` writes it (SPEC 9)."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace

import orjson

from fcjax.core.errors import Fault, InputError
from fcjax.io.files.small import read_small
from fcjax.stages.calibration import Calibration


def load_calibration(path: str | os.PathLike[str], *, force: bool = False) -> Calibration:
    """The calibration in a file, to be used.

    With `force`, also that of a relation model that did not pass the gate of its examination. One without a gate, as
    earlier versions wrote it, is accepted; of both there is a warning. Raises `SettingsError` where the gate was not
    passed, and `InputError`, which names the file.
    """
    calibration = replace(read_calibration(path), force=force)
    calibration.check_gate()
    if calibration.doubt:
        warnings.warn(f"{os.fspath(path)}: {calibration.doubt}", stacklevel=2)
    return calibration


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """The calibration in a file, whatever its gate says, plain or gzip-compressed as its name made `fcjax calibrate -o`
    write it. Raises `InputError`, which names the file."""
    name = os.fspath(path)
    try:
        return Calibration.from_dict(orjson.loads(read_small(name, gzipped=True)))
    except InputError as error:
        raise InputError(*(Fault(fault.message, file=name, field=fault.field) for fault in error.faults)) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        fault = f"cannot be read as a calibration: {why}; allowed: a file that `fcjax calibrate -o` writes"
        raise InputError(Fault(fault, file=name)) from None
