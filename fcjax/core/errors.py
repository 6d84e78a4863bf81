"""The exceptions of fcjax. A message says what was found, what is allowed, and what to change (SPEC 7)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fcjax.core.terminal import visible


class FcjaxError(Exception):
    """The base class of all fcjax exceptions."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of an input: where it is, what was found there, what is allowed (SPEC 7)."""

    message: str  # "probability is 1.2; allowed: a number from 0 to 1"
    file: str | None = None
    line: int | None = None  # counted from 1
    case: str | None = None  # the case's id
    field: str | None = None  # a path such as "relations[3].probability"

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        names = ", ".join(
            part for part in (f"case {self.case!r}" if self.case is not None else None, self.field) if part is not None
        )
        return visible(": ".join(part for part in (place, names, self.message) if part))


class InputError(FcjaxError, ValueError):
    """Input that cannot be used, with every fault that was found in it."""

    def __init__(self, *faults: Fault | str):
        self.faults = tuple(Fault(fault) if isinstance(fault, str) else fault for fault in faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class SettingsError(FcjaxError, ValueError):
    """An argument or option that is not allowed."""


class OutputError(FcjaxError, OSError):
    """An output that cannot be written: a folder that is missing or read-only, a full disk."""


class BudgetError(FcjaxError):
    """A run's budget is used up before its work is done. Answers up to then are kept."""


def refuse_where_all_lack(first: Fault | None, lacking: int, total: int, what: str) -> None:
    """Raise `InputError` if every row has a fault: the `first` one, and the number of other rows."""
    if first is not None and lacking == total:
        more = f" (and likewise for {counted(total - 1, f'other {what}')})" if total > 1 else ""
        raise InputError(replace(first, message=first.message + more))


def counted(count: int, what: str) -> str:
    """`no faults`, `1 fault`, `2 faults`, for messages."""
    return f"{count:,} {what}{'' if count == 1 else 's'}" if count else f"no {what}s"
