"""Options of inference, and the engine's limits by their options' names."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from fcjax.cli.command import ENGINE, option, options
from fcjax.cli.options.types import size

if TYPE_CHECKING:
    from fcjax.core.limits import Limits

_engine = partial(option, section=ENGINE)

LIMITS: Final = {
    "exact_width": "limit_width",
    "memory": "memory",
    "rows": "rows",
    "seconds": "seconds",
    "tail": "tail",
}
"""Fields of `Limits`, and the parameters that set them."""


def _method(_: click.Context, __: click.Parameter, value: str) -> str | None:
    return None if value == "auto" else value


engine_options = options(
    _engine(
        "--effort",
        type=click.Choice(["tight", "label", "fast"]),
        default="tight",
        show_default=True,
        help="What to compute for graphs too wide for exact inference. tight: narrow proven intervals; label: certain "
        "labels; fast: an estimate without a proof.",
    ),
    _engine(
        "--memory",
        callback=size,
        metavar="SIZE",
        help="Maximum memory for the tables of one graph, e.g. 500M. [default: 1G, or less on a small machine]",
    ),
    _engine(
        "--limit-width",
        type=click.IntRange(0, 40),
        metavar="N",
        help="Maximum induced width, or size of the smaller side, for exact inference. [default: depends on --effort]",
    ),
    _engine(
        "--backend",
        type=click.Choice(["cpu", "xla"]),
        help="Inference backend. [default: xla on an accelerator, else cpu]",
    ),
    _engine("--rows", type=click.IntRange(2), metavar="N", help="Maximum sweeps per proof. [default: 1000]"),
    _engine(
        "--seconds",
        type=click.FloatRange(0),
        metavar="S",
        help="Maximum seconds per proof. Results for wide graphs may then vary between runs. [default: no limit]",
    ),
    _engine(
        "--tail",
        type=click.FloatRange(0),
        metavar="GAP",
        help="Gap at which a proof stops: ratio of open to solved probability mass. [default: 0.001]",
    ),
    _engine(
        "--method",
        type=click.Choice(["auto", "wmb"]),
        default="auto",
        show_default=True,
        callback=_method,
        help="auto: exact inference, or proven intervals for wide graphs. wmb: FactReasoner's weighted mini-buckets, "
        "for comparison; labels are then never certain.",
    ),
    _engine(
        "--i-bound",
        type=click.IntRange(1, 20),
        metavar="N",
        default=6,
        show_default=True,
        help="Variables per mini-bucket of --method wmb, minus one.",
    ),
)
"""How to infer: arguments of `infer`, and those that `inference_limits` takes out. Rarely used ones come last."""


def inference_limits(parameters: dict[str, Any]) -> Limits:
    """The engine's limits; their parameters are taken out of `parameters`."""
    from fcjax.core.limits import Limits

    given = {field: parameters.pop(parameter) for field, parameter in LIMITS.items()}
    return Limits(**{field: bound for field, bound in given.items() if bound is not None})


_MENTION: Final = re.compile(rf"`({'|'.join(LIMITS)})`|(?<=\()({'|'.join(LIMITS)})(?=\))|\b(exact_width)\b")


def with_option_names(reason: str) -> str:
    """The engine's reason with the names of limits replaced by those of the options."""

    def option_of(found: re.Match[str]) -> str:
        return "--" + LIMITS[next(filter(None, found.groups()))].replace("_", "-")

    return _MENTION.sub(option_of, reason)
