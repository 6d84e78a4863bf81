"""Packages that only a few people need: loaded on first use, or a clear word on how to get them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fcjax.core.errors import SettingsError


def load(module: str, extra: str, wanted_by: str) -> Any:
    """The module of an optional dependency. Raises `SettingsError` where it is not installed.

    `extra` is the name under which pyproject.toml lists it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, and something that it needs is not
        package = module.partition(".")[0]
        fault = f"{wanted_by} needs the package {package}, which is not installed: pip install 'fcjax[{extra}]'"
        raise SettingsError(fault) from None
