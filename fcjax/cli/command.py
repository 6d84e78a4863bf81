"""Commands of the command line: loaded on first use, help in sections, options without effect refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar

import click

from fcjax.cli import requirements
from fcjax.cli.shell import reported

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

COMMON: Final = "Common options"
MODEL: Final = "Model"
EVIDENCE: Final = "Evidence"
RELATIONS: Final = "Relations"
CORRECTION: Final = "Correction"
GRAPH: Final = "Graph"
FILES: Final = "Input and output"
ENGINE: Final = "Engine"
OTHER: Final = "Options"
SECTIONS: Final = (OTHER, COMMON, CORRECTION, MODEL, EVIDENCE, RELATIONS, GRAPH, FILES, ENGINE)
"""Sections of the help, in the order of every command."""

_DEFAULT: Final = re.compile(r"\s*\[default: (.+)\]$", re.DOTALL)
_LARGE: Final = 2**31 - 1

RENAMED: Final = {"--version": "--graph", "--k-contexts": "--contexts-per-atom"}
"""Options by their names before the first release."""


class Option(click.Option):
    """An option with its section of the help.

    A help text may end in `[default: ...]` where the default is not a value; it is shown like those that are.
    """

    def __init__(self, *args: Any, section: str = OTHER, **attributes: Any):
        super().__init__(*args, **attributes)
        self.section = section
        self._default_text: str | None = None
        if self.help and (found := _DEFAULT.search(self.help)):
            self.help, self._default_text = self.help[: found.start()], found[1]

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        if self._default_text is not None:
            extra["default"] = self._default_text
        if isinstance(self.type, click.IntRange) and (self.type.max or 0) >= _LARGE:
            extra["range"] = f"x>={self.type.min}"  # a technical maximum is noise
        return extra


def option(*names: str, section: str = OTHER, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """`click.option` with a section of the help."""
    return click.option(*names, cls=Option, section=section, **attributes)


def options(*decorators: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """One decorator for several options, in the order of the help."""

    def add(command: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add


class Command(click.Command):
    """A command whose help has sections, and which refuses an option that would have no effect."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            new = RENAMED.get(error.option_name)
            if new and any(new in parameter.opts for parameter in self.params):
                found = f"No such option '{error.option_name}'. Did you mean '{new}'?"
                raise click.NoSuchOption(error.option_name, found, ctx=ctx) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        requirements.check(ctx)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        parameters = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        sections = {getattr(parameter, "section", OTHER) for parameter in parameters}
        for parameter in parameters:
            section = getattr(parameter, "section", None)
            if section is None:  # click's own --help
                section = COMMON if COMMON in sections else OTHER
            if (row := parameter.get_help_record(ctx)) is not None:
                rows.setdefault(section, []).append(row)
        for section in SECTIONS:
            if section in rows:
                with formatter.section(section):
                    formatter.write_dl(rows[section], col_max=26)


command = partial(click.command, cls=Command)


class Group(click.Group):
    """A group of commands. An error in one of them ends in one clear message and an exit code."""

    command_class = Command

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with reported():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with reported(ctx):
            return super().invoke(ctx)


class Lazy(NamedTuple):
    """A command that is imported on first use."""

    place: str  # module:attribute
    help: str  # the first sentence of its help, for the list of commands


class LazyGroup(Group):
    """A group that knows its commands by name and imports each one on first use."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy], **attributes: Any):
        super().__init__(*args, **attributes)
        self._lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *(name for name in super().list_commands(ctx) if name not in self._lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._lazy and cmd_name not in self.commands:
            module, _, attribute = self._lazy[cmd_name].place.partition(":")
            self.add_command(getattr(import_module(module), attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in self._lazy.items()])
