"""What a caller hands over, looked at before any work: a name of a few, or a number within bounds."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from fcjax.errors import SettingsError


def check_choice(name: str, value: Any, allowed: Iterable[str], *, none: bool = False) -> None:
    """Raise `SettingsError` unless `value` is one of `allowed`, or None where `none` is."""
    allowed = tuple(allowed)
    if not (isinstance(value, str) and value in allowed) and not (none and value is None):
        names = ", ".join(map(repr, allowed)) + (" or None" if none else "")
        raise SettingsError(f"{name} is {value!r:.60}; allowed: {names}")


def is_number(value: Any, low: float, high: float = float("inf"), *, whole: bool = False) -> bool:
    """Whether `value` is a real number from `low` to `high`; truth values and NaN are none."""
    kind: Any = Integral if whole else Real
    return isinstance(value, kind) and not isinstance(value, bool) and bool(low <= value <= high)


def check_number(
    name: str, value: Any, low: float, high: float = float("inf"), *, whole: bool = False, none: bool = False
) -> None:
    """Raise `SettingsError` unless `is_number` holds, or `value` is None where `none` is."""
    if not is_number(value, low, high, whole=whole) and not (none and value is None):
        bounds = f"from {low}" + (f" to {high}" if high < float("inf") else "")
        allowed = f"a {'whole ' if whole else ''}number {bounds}{', or None' if none else ''}"
        raise SettingsError(f"{name} is {value!r:.60}; allowed: {allowed}")
