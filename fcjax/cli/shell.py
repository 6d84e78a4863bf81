"""What the commands of the command line share: options, messages, exit codes."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from fcjax.core.errors import Fault, FcjaxError
from fcjax.core.errors import counted as counted

if TYPE_CHECKING:
    from fcjax.core.limits import Limits

OK, SOME_FAILED, UNUSABLE, BROKEN, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 70, 130, 141
"""The exit codes."""


class _Output(click.Path):
    """The name of a file that is to be written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the name is empty; allowed: a file, or - for standard output", param, ctx)
        try:
            os.stat(value)
        except OSError as error:
            if error.errno == errno.ELOOP:
                self.fail(f"{os.fspath(value)!r} is a link that leads to itself", param, ctx)
        return super().convert(value, param, ctx)


INPUT = click.Path(exists=True, dir_okay=False, allow_dash=True)
OUTPUT = _Output(dir_okay=False, allow_dash=True)

_FAULTS_SHOWN = 20

Command = TypeVar("Command", bound=Callable[..., Any])


class Commands(click.Group):
    """A group of commands; whatever goes wrong in one of them ends in one clear message and an exit code."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends nothing
        with _told():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        with _told(ctx):
            return super().invoke(ctx)


@contextlib.contextmanager
def _told(ctx: click.Context | None = None) -> Iterator[None]:
    """Tell people what went wrong in the block, and leave with the code that says so."""
    try:
        yield
    except FcjaxError as error:
        _complain(error)
        try:
            sys.stdout.flush()
        except OSError:  # what could not be written is still there, and Python would try once more
            _leave(UNUSABLE)
        raise click.exceptions.Exit(UNUSABLE) from error
    except BrokenPipeError:
        _leave(CLOSED_PIPE)
    except KeyboardInterrupt as error:
        say(str(error) or "stopped")
        _leave(INTERRUPTED)
    except OSError as error:
        if error.filename is None and error.errno in _FULL:  # what we write to without a name
            say(f"error: standard output: cannot be written: {error.strerror}")
            _leave(UNUSABLE)  # or Python would try once more
        say(f"error: {error.filename or 'the system'}: {error.strerror or error}")
        raise click.exceptions.Exit(UNUSABLE) from error
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        say(f"error: a bug of fcjax, please report it: {type(error).__name__}: {error}")
        if ctx and ctx.meta.get(_VERBOSE):
            traceback.print_exc()
        else:
            say("the same command with --verbose shows where")
        raise click.exceptions.Exit(BROKEN) from error


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def say(message: str) -> None:
    """A line on standard error."""
    click.echo(f"fcjax: {message}", err=True)


def _complain(error: FcjaxError) -> None:
    lines = str(error).splitlines() or [type(error).__name__]
    for line in lines[:_FAULTS_SHOWN]:
        say(f"error: {line}")
    if len(lines) > _FAULTS_SHOWN:
        say(f"error: and {len(lines) - _FAULTS_SHOWN:,} more; `fcjax validate` lists them all")


def _leave(code: int) -> NoReturn:
    """End at once: neither the engine's threads nor a pipe without a reader are worth waiting for."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    import orjson

    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2, default=str).decode())


def fault_dict(fault: Fault) -> dict[str, Any]:
    """A fault as JSON."""
    return {name: getattr(fault, name) for name in ("file", "line", "case", "field", "message")}


def size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Bytes, with K, M or G behind the number for powers of 1024."""
    if value is None:
        return None
    text = value.strip().upper().removesuffix("B").removesuffix("I")
    power = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    try:
        return int(float(text[:-1] if power else text) * 2**power)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no size; allowed: a number of bytes, or one like 500M or 2G") from None


def number_k(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    """K of SPEC 5: a number of at least 1, or `release`."""
    if value is None or value == "release":
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 1 <= number < math.inf:
        raise click.BadParameter(f"{value!r} is no K; allowed: a number of at least 1, or the word release")
    return int(number) if number.is_integer() else number


def added(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator for several options, in the order that the help shows them."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_VERBOSE = "fcjax.verbose"


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_VERBOSE] = value


common_options = added(
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output, nothing else."),
    click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
    click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=_remember, help="Show the traceback of a bug."
    ),
)
"""What every command has: `as_json` and `quiet`."""

number_options = added(
    click.option(
        "--preset",
        type=click.Choice(["paper", "release"]),
        default="paper",
        show_default=True,
        help="Published numbers: paper (implication, context prior 0.99) or release (conditional, 0.9).",
    ),
    click.option(
        "--encoding",
        type=click.Choice(["implication", "conditional"]),
        help="What relations are as factors. [default: the preset's]",
    ),
    click.option(
        "--context-prior",
        type=click.FloatRange(0, 1),
        metavar="P",
        help="P(true) of contexts without a prior of their own. [default: the preset's]",
    ),
    click.option(
        "--atom-prior",
        type=click.FloatRange(0, 1),
        metavar="P",
        default=0.5,
        show_default=True,
        help="P(true) of every atom before the evidence.",
    ),
)
"""What the factors' numbers are (SPEC 2), whatever the relations."""

graph_options = added(
    number_options,
    click.option(
        "--version",
        type=click.Choice(["FR1", "FR2", "FR3"]),
        help="Relations that count: FR1 an atom with its own contexts, FR2 with every context, FR3 contexts with each "
        "other too. [default: all that are given]",
    ),
)
"""How relations become factors (SPEC 2): the arguments of `Settings` of the same names."""

k_option = click.option(
    "--k",
    metavar="K",
    callback=number_k,
    help="K of recall and F1, a number, or `release` for half of each response's atoms. [default: the median number of "
    "atoms]",
)
"""K of SPEC 5."""

engine_options = added(
    click.option(
        "--effort",
        type=click.Choice(["tight", "label", "fast"]),
        default="tight",
        show_default=True,
        help="For graphs that are too wide to be exact: narrow intervals, certain labels, or an estimate.",
    ),
    click.option("--limit-width", type=click.IntRange(0, 40), metavar="N", help="The widest graph to be exact."),
    click.option(
        "--memory",
        callback=size,
        metavar="SIZE",
        help="Memory for the tables of one graph, such as 500M. [default: 1G, less on a small machine]",
    ),
    click.option("--rows", type=click.IntRange(2), metavar="N", help="Sweeps that a proof may take on one graph."),
    click.option(
        "--seconds",
        type=click.FloatRange(0),
        metavar="S",
        help="Time that a proof may take on one graph. Depends on the clock: done again, a wide case may differ.",
    ),
    click.option("--tail", type=click.FloatRange(0), metavar="GAP", help="The gap at which a proof is finished."),
    click.option(
        "--method",
        type=click.Choice(["wmb"]),
        help="wmb: FactReasoner's weighted mini-buckets in place of all else, for comparison. Nothing is certain then. "
        "[default: exact, or with a proof]",
    ),
    click.option(
        "--i-bound",
        type=click.IntRange(1, 20),
        metavar="N",
        default=6,
        show_default=True,
        help="The mini-buckets of --method wmb have N + 1 variables.",
    ),
    click.option("--backend", type=click.Choice(["cpu", "xla"]), help="What does the sweeps. [default: by the device]"),
)
"""How to infer: `effort`, `method`, `i_bound` and `backend` of `infer`, and what `inference_limits` takes out."""


def inference_limits(options: dict[str, Any]) -> Limits:
    """The engine's limits, with what was given in place of its own defaults; their options are taken out."""
    from fcjax.core.limits import Limits

    names = {"limit_width": "exact_width", "memory": "memory", "rows": "rows", "seconds": "seconds", "tail": "tail"}
    given = {name: options.pop(option) for option, name in names.items()}
    return Limits(**{name: bound for name, bound in given.items() if bound is not None})
