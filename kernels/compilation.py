"""How kernels are compiled: by numba, with the machine code cached on disk if a writable folder is found.

numba looks for that folder in this order: NUMBA_CACHE_DIR, `__pycache__` beside the source, the user's cache folder.
Where none of them can be written, or the disk is full, kernels are compiled anew in every process: the answers are the
same, and one warning is logged.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, TypeVar

from numba import njit
from numba.core.caching import FunctionCache

Function = TypeVar("Function", bound=Callable[..., Any])

UNCACHED: list[str] = []
"""Why kernels of this process are not kept on disk; the first reason was logged."""

_log = logging.getLogger(__name__)


def kernel(function: Function | None = None, *, fastmath: bool = False, divides: bool = False) -> Any:
    """Compile a function without Python's lock. A decorator: `@kernel`, or `@kernel(fastmath=True)`.

    With `divides`, a division is not checked for a divisor of 0, a branch that would keep a loop from vector
    instructions.
    """
    if function is None:
        return partial(kernel, fastmath=fastmath, divides=divides)
    errors: Literal["numpy", "python"] = "numpy" if divides else "python"
    compiled: Any = njit(nogil=True, fastmath=fastmath, error_model=errors)(function)
    try:
        compiled._cache = KernelCache(function)  # what `cache=True` does, with our own class
    except (OSError, RuntimeError):
        beside = Path(function.__code__.co_filename).parent / "__pycache__"
        warn_uncached(f"neither {beside} nor the user's cache folder is writable")
    return compiled


class KernelCache(FunctionCache):
    """numba's cache of one function, for which a disk that fails is a miss.

    Raises `RuntimeError` where no folder can be written.
    """

    def __init__(self, function: Callable[..., Any]):
        source = Path(function.__code__.co_filename)
        if not _has_home() and not os.access(source.parent, os.W_OK):
            raise RuntimeError("there is no home folder")  # numba would make a folder named "~"
        super().__init__(function)

    def load_overload(self, signature: Any, target: Any) -> Any:
        try:
            return super().load_overload(signature, target)
        except (OSError, EOFError, UnpicklingError) as error:
            warn_uncached(f"{self.cache_path}: {error}")
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        try:
            super().save_overload(signature, result)
        except (OSError, EOFError, UnpicklingError) as error:
            warn_uncached(f"{self.cache_path}: {error}")


def _has_home() -> bool:
    """Whether numba finds a cache folder that does not depend on where the package is installed."""
    given = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return bool(given) or os.path.expanduser("~") != "~"


def warn_uncached(reason: str) -> None:
    """Log, once in a process, that compiled kernels are not kept."""
    UNCACHED.append(reason)
    if len(UNCACHED) == 1:
        _log.warning(
            "fcjax cannot keep its compiled kernels on disk, so each run compiles them again (%s); "
            "set NUMBA_CACHE_DIR to a writable folder with 20 MB free",
            reason,
        )
