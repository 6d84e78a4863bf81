"""The limits of inference on one graph."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cache
from math import ceil, isfinite
from typing import Any, Literal

from fcjax.core.checks import check_number

Effort = Literal["tight", "label", "fast"]
Backend = Literal["cpu", "xla"]
Method = Literal["wmb"]

EXACT_WIDTH = {"tight": 16, "label": 14, "fast": 10}  # where elimination costs about what a proof or an estimate does
CUTSET_WIDTH = {"tight": 10, "label": 10, "fast": 8}
AFFORDABLE_WIDTH = 21  # at which elimination takes a fraction of a second
LAST_WIDTH = 26  # up to which it is tried where a search failed, if it fits into the memory
COVER = {"tight": 26, "label": 26, "fast": 13}  # size of a vertex cover whose assignments are all summed over
MOST_COVER = 30  # that may be asked for: a minute for every 20 variables outside of it
WIDEST = 40  # that may be asked for: a table of 8 TiB
I_BOUND = 6  # FactReasoner's


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What inference may spend on one graph; pass it to `infer`.

    The defaults give the same results from run to run: `memory` is 1 GiB, less only on a machine that does not have
    2 GiB for each of its cores, and time is not measured. With `seconds`, the result of a proof depends on the speed of
    the machine. Raises `SettingsError` for values outside of what is allowed.
    """

    exact_width: int | None = None  # width, or vertex cover, up to which all is solved exactly; by the cost
    memory: int | None = None  # bytes for the tables of one graph; by default see `default_memory`
    rows: int = 1000  # sweeps that a proof may take, tightening steps included
    seconds: float | None = None  # time that a proof may take
    tail: float = 1e-3  # open mass over solved mass at which a proof is finished
    cutset_width: int | None = None  # width to which a cutset brings a wide graph; by the effort
    assignments: int = 16  # assignments that effort `fast` solves
    restarts: int = 64  # elimination orders tried for a wide graph, at most

    def __post_init__(self) -> None:
        inf = float("inf")
        for name, low, high, whole, none in (
            ("exact_width", 0, WIDEST, True, True),
            ("memory", 1, inf, False, True),
            ("rows", 2, inf, True, False),
            ("seconds", 0, inf, False, True),
            ("tail", 0, inf, False, False),
            ("cutset_width", 1, 24, True, True),
            ("assignments", 1, inf, True, False),
            ("restarts", 0, inf, True, False),
        ):
            check_number(name, getattr(self, name), low, high, whole=whole, none=none)

    def width(self, effort: str) -> int:
        """The width up to which a graph is eliminated without a search."""
        return EXACT_WIDTH[effort] if self.exact_width is None else self.exact_width

    @property
    def affordable(self) -> int:
        """The width up to which elimination is what a search must be as good as."""
        return AFFORDABLE_WIDTH if self.exact_width is None else self.exact_width

    @property
    def last(self) -> int:
        """The width up to which a graph is eliminated where a search failed."""
        return LAST_WIDTH if self.exact_width is None else self.exact_width

    def cover(self, effort: str) -> int:
        """The size of a vertex cover up to which all of its assignments are summed over."""
        return COVER[effort] if self.exact_width is None else min(self.exact_width, MOST_COVER)

    def falls_back(self, effort: str) -> bool:
        """Whether elimination follows where a search fails."""
        return effort != "fast" and self.last > self.width(effort)

    def rest_width(self, effort: str) -> int:
        """The width to which a cutset reduces a wide graph."""
        return min(self.width(effort), self.cutset_width or CUTSET_WIDTH[effort])

    def entries(self) -> float:
        """Table entries of 8 bytes that one graph may take."""
        return (self.memory or default_memory()) / 8

    def too_wide(self, width: int, cost: float, widest: int) -> str:
        """Why a graph is not eliminated: what elimination needs, what is allowed, what to change.

        `width` and `cost` (table entries) are those of the order that was found; where `cost` is infinite, none was,
        and `width` is a lower bound. `widest` is the width that is allowed.
        """
        bound = "" if isfinite(cost) else "at least "
        needs, allowed = 8 * (cost if isfinite(cost) else 2.0 ** min(width, 1000)), 8 * self.entries()
        found, remedies = [], []
        if width > widest:
            found.append(f"width {bound}{width}; allowed: {widest} (exact_width)")
            remedies.append(f"`exact_width` to {bound}{width}")
        if needs > allowed:
            found.append(f"{bound}{_size(needs)} for width {bound}{width}; allowed: {_size(allowed)} (memory)")
            remedies.append(f"`memory` to {bound}{_size(needs)}")
        if width > WIDEST:
            remedies = [f"the graph's width is over {WIDEST}, which no limit allows"]
        elif remedies:
            remedies = [f"raise {' and '.join(remedies)}"]
        return "; ".join([f"exact inference needs {', and '.join(found) or f'width {width}'}", *remedies])

    def resolved(self) -> dict[str, Any]:
        """The limits by name, with the default memory as a number."""
        return asdict(self) | {"memory": self.memory or default_memory()}


def _size(count: float) -> str:
    """A number of bytes, rounded up to a tenth of a MiB or GiB."""
    unit, name = (2**30, "GiB") if count >= 2**30 else (2**20, "MiB")
    value = ceil(10 * count / unit) / 10
    return f"{value:.1f} {name}" if value < 2**20 else f"{value:.0e} {name}"


@cache
def workers() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def default_memory() -> int:
    """Bytes for the tables of one graph: 1 GiB, halved until one for each of the machine's cores fit into half of it.

    It is the memory of the machine, not what is free at the moment: the same graphs must give the same answers later.
    """
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        machine = 8 * 2**30
    memory = 2**30
    while memory > 2**20 and 2 * memory * (os.cpu_count() or 1) > machine:
        memory //= 2
    return memory
