"""What all commands share: exit codes, messages on standard error, JSON on standard output."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

import click

from fcjax.core.errors import BudgetError, Fault, FcjaxError, InputError
from fcjax.core.errors import counted as counted
from fcjax.core.terminal import visible

OK, SOME_FAILED, UNUSABLE, WAITING, BROKEN, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 3, 70, 130, 141
"""The exit codes; `WAITING` is that of a run whose prompts were written to batch files."""

VERBOSE = "fcjax.verbose"
"""Key in a context's `meta`: whether the traceback of a bug is printed."""

RESUME = "run the same command to resume"
"""Ends the message of every run that was stopped."""

FAULTS_SHOWN = 20
"""Faults that are printed; further ones are counted."""

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)


@contextlib.contextmanager
def reported(ctx: click.Context | None = None) -> Iterator[None]:
    """Report an error in the block on standard error, and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show must not end the run
    if ctx and os.environ.get("NO_COLOR"):
        ctx.color = False
    try:
        yield
    except FcjaxError as error:
        _print_faults(error)
        try:
            sys.stdout.flush()
        except OSError:  # what could not be written is still in the buffer, and Python would try again at exit
            _leave(UNUSABLE)
        raise click.exceptions.Exit(UNUSABLE) from error
    except BrokenPipeError:
        _leave(CLOSED_PIPE)
    except KeyboardInterrupt as error:
        say(str(error) or "stopped")
        _leave(INTERRUPTED)
    except OSError as error:
        if error.filename is None and error.errno in _UNWRITABLE:  # only standard output is written without a name
            say(f"error: standard output: cannot be written: {error.strerror}")
            _leave(UNUSABLE)  # or Python would try again at exit
        say(f"error: {error.filename or 'the system'}: {error.strerror or error}")
        raise click.exceptions.Exit(UNUSABLE) from error
    except click.ClickException as error:
        _escape(error)
        raise
    except (click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        say(f"error: this is a bug in fcjax, please report it: {type(error).__name__}: {error}")
        if ctx and ctx.meta.get(VERBOSE):
            echo(traceback.format_exc().rstrip("\n"), err=True)
        else:
            say("run the same command with --verbose to see the traceback")
        raise click.exceptions.Exit(BROKEN) from error


@contextlib.contextmanager
def stopped(ctx: click.Context, kept: Callable[[], str]) -> Iterator[None]:
    """Where an interrupt or a used-up budget stops the run in the block, say what is `kept` and leave."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; {kept()}") from None
    except BudgetError as error:
        say(f"stopped: {error}; {kept()}")
        ctx.exit(SOME_FAILED)


def say(message: str) -> None:
    """Print a line on standard error."""
    click.echo(f"fcjax: {visible(message)}", err=True)


def echo(message: str, *, err: bool = False) -> None:
    """Print text, lines included, whose control characters are shown and not obeyed."""
    click.echo(visible(message, keep="\n\t"), err=err)


def escape_log_lines() -> None:
    """Show control characters in log lines and Python's warnings, of all libraries, and do not let them be obeyed."""
    logging.setLogRecordFactory(_LogRecord)
    text_of = warnings.formatwarning

    def escaped(message: Warning | str, *about: Any, **more: Any) -> str:
        return visible(text_of(visible(str(message)), *about, **more), keep="\n\t")

    warnings.formatwarning = escaped


class _LogRecord(logging.LogRecord):
    """A record whose message is one line, whatever handler writes it."""

    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, **more)
        if self.exc_info and self.exc_info[0]:
            self.exc_text = visible("".join(traceback.format_exception(*self.exc_info)).rstrip("\n"), keep="\n\t")

    def getMessage(self) -> str:  # noqa: N802
        return visible(super().getMessage(), keep="\t")


def _escape(error: click.ClickException) -> None:
    """Make an error of click's quote arguments with escapes. Few of its messages have lines of their own."""
    message = visible(error.format_message(), keep="\n\t" if isinstance(error, _WITH_LINES) else "")
    error.format_message = lambda: message  # type: ignore[method-assign]


_WITH_LINES: Final = (  # the help, and the choices of an argument that is missing
    click.MissingParameter,
    getattr(click.exceptions, "NoArgsIsHelpError", click.MissingParameter),
)


def _print_faults(error: FcjaxError) -> None:
    faults = error.faults if isinstance(error, InputError) else (error,)
    lines = [str(fault) or type(error).__name__ for fault in faults]
    for line in lines[:FAULTS_SHOWN]:
        say(f"error: {line}")
    if len(lines) > FAULTS_SHOWN:
        say(f"error: and {len(lines) - FAULTS_SHOWN:,} more; `fcjax validate` lists all of them")


def say_faults(faults: Sequence[Fault], count: int) -> None:
    """Print the first of `count` faults on standard error, and how many others there are."""
    for fault in faults[:FAULTS_SHOWN]:
        say(f"error: {fault}")
    if count > FAULTS_SHOWN:
        say(f"error: and {count - FAULTS_SHOWN:,} more")


def _leave(code: int) -> NoReturn:
    """End the process without waiting for the engine's threads or for a pipe that is not read."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    import orjson  # a C extension that the help does not need

    text = orjson.dumps(document, option=orjson.OPT_INDENT_2, default=str).decode()
    click.echo(_RAW.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


_RAW: Final = re.compile("[\x7f-\x9f]")  # control characters that JSON does not have to escape


def fault_dict(fault: Fault) -> dict[str, Any]:
    """A fault as JSON."""
    return {name: getattr(fault, name) for name in ("file", "line", "case", "field", "message")}


def byte_size(size: int) -> str:
    """A number of bytes with its unit."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size / 2**power:,.1f} {unit}"
    return f"{size} bytes"
