"""Optional dependencies: loaded on first use, or an error that says how to install them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fcjax.core.errors import SettingsError


def load(module: str, extra: str, wanted_by: str) -> Any:
    """The module of an optional dependency, listed in pyproject.toml under `extra`; `wanted_by` is named in the error.

    Raises `SettingsError` if the package is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the package is installed, but something that it imports is not
        package = module.partition(".")[0]
        fault = f"{wanted_by} needs the package {package}, which is not installed: pip install 'fcjax[{extra}]'"
        raise SettingsError(fault) from None
