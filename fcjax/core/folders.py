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


def private_folder(folder: Path) -> None:
    """Make a folder that holds prompts, replies or passages: nobody but this user can enter it, whatever the umask.

    Folders above it that are missing are made likewise; one that exists stays as it is. Raises `OSError`.
    """
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
