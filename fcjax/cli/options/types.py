"""Types of option values: files, counts, sizes, K."""

from __future__ import annotations

import errno
import math
import os
from typing import Any, Final

import click

_STANDARD_OUTPUT: Final = frozenset(("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"))


class Output(click.Path):
    """The name of a file to write; the system's names of standard output are read as `-`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the file name is empty; expected a file, or - for standard output", param, ctx)
        if os.fspath(value) in _STANDARD_OUTPUT:
            return "-"
        try:
            os.stat(value)
        except OSError as error:
            if error.errno == errno.ELOOP:
                self.fail(f"{os.fspath(value)!r} is a symbolic link to itself; specify another file", param, ctx)
        return super().convert(value, param, ctx)


class Amount(click.FloatRange):
    """A finite number in a range. Click's own range accepts NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not finite; expected a finite number", param, ctx)
        return number


INPUT: Final = click.Path(exists=True, dir_okay=False, allow_dash=True)
OUTPUT: Final = Output(dir_okay=False, allow_dash=True)
FILE: Final = click.Path(exists=True, dir_okay=False)
COUNT: Final = click.IntRange(1, 2**31 - 1)
"""From one up to what a request's fields and a counter can hold."""
PRICES: Final = (Amount(0, 1e6), Amount(0, 1e6))
WEB: Final = ("serper", "wikipedia")
"""Retrievers that search the web."""
GRAPH_VERSIONS: Final = click.Choice(["FR1", "FR2", "FR3"])


def size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Bytes; K, M or G after the number stand for powers of 1024."""
    if value is None:
        return None
    text = value.strip().upper().removesuffix("B").removesuffix("I")
    power = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    try:
        return int(float(text[:-1] if power else text) * 2**power)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is not a size; expected a number of bytes, or a size such as 500M or 2G"
        ) from None


def number_k(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    """K of SPEC 5: a number of at least 1, or `release`."""
    if value is None or value == "release":
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 1 <= number < math.inf:
        raise click.BadParameter(f"found {value!r}; expected a number of at least 1, or 'release'")
    return int(number) if number.is_integer() else number
