"""Where fcjax keeps its own files between runs."""

from __future__ import annotations

import os
from pathlib import Path

from fcjax.core.errors import SettingsError


def cache_folder() -> Path:
    """The user's cache folder: `fcjax` in XDG_CACHE_HOME, or in `.cache` of the home folder.

    Nothing is created. Raises `SettingsError` where neither is known.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # others are to be ignored, says the XDG specification
        return Path(given) / "fcjax"
    try:
        return Path.home() / ".cache" / "fcjax"
    except RuntimeError:
        raise SettingsError(
            "there is no home folder for caches; set XDG_CACHE_HOME to a writable folder "
            "(for the store alone: FCJAX_STORE or --store to a file)"
        ) from None
