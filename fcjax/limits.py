"""What inference may spend on one graph."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Literal

from fcjax.errors import SettingsError

Effort = Literal["tight", "label", "fast"]
Backend = Literal["cpu", "xla"]
Method = Literal["wmb"]

EXACT_WIDTH = {"tight": 16, "label": 14, "fast": 10}  # where elimination costs about what a proof or an estimate does
CUTSET_WIDTH = {"tight": 10, "label": 10, "fast": 8}
AFFORDABLE_WIDTH = 21  # elimination takes a fraction of a second
I_BOUND = 6  # FactReasoner's


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What inference may spend on one graph; pass it to `infer`.

    Raises `SettingsError` for values outside of what is allowed.
    """

    exact_width: int | None = None  # width up to which elimination is exact, where the memory allows; by the cost
    memory: int | None = None  # bytes for the tables of one graph; by default an eighth of the free memory a worker
    rows: int = 1000  # sweeps that a proof may take, tightening steps included
    seconds: float | None = None  # time that a proof may take
    tail: float = 1e-3  # open mass over solved mass at which a proof is finished
    cutset_width: int | None = None  # width to which a cutset brings a wide graph; by the effort
    assignments: int = 16  # assignments that effort `fast` solves
    restarts: int = 64  # elimination orders tried for a wide graph, at most

    def __post_init__(self) -> None:
        for name, low, high in (
            ("exact_width", 0, 40),
            ("memory", 1, None),
            ("rows", 2, None),
            ("seconds", 0, None),
            ("tail", 0, None),
            ("cutset_width", 1, 24),
            ("assignments", 1, None),
            ("restarts", 0, None),
        ):
            value = getattr(self, name)
            if value is not None and not (low <= value and (high is None or value <= high)):
                allowed = f"a number from {low}" + (f" to {high}" if high is not None else "")
                raise SettingsError(f"{name} is {value!r}; allowed: {allowed}")

    def width(self, effort: str) -> int:
        """The width up to which a graph is eliminated at once."""
        return EXACT_WIDTH[effort] if self.exact_width is None else self.exact_width

    @property
    def affordable(self) -> int:
        """The width up to which a graph is eliminated where nothing cheaper does."""
        return AFFORDABLE_WIDTH if self.exact_width is None else self.exact_width

    def rest_width(self, effort: str) -> int:
        """The width to which a cutset brings a wide graph."""
        return min(self.width(effort), self.cutset_width or CUTSET_WIDTH[effort])

    def entries(self) -> float:
        """Table entries of 8 bytes that one graph may take."""
        return (self.memory or _free_memory() // (8 * workers())) / 8


@cache
def workers() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _free_memory() -> int:
    """Bytes that the machine had free when first asked."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30
