"""Commands that are built when they are called: a call needs one of them, and the others take time."""

from __future__ import annotations

from collections import UserDict
from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group
from typer.models import CommandInfo

from rota.surfaces.cli.acting import act_as_somebody


class Built(UserDict[str, Any]):
    """Commands by name, each built when it is first taken."""

    def __getitem__(self, name: str) -> Any:
        command = self.data[name]
        if isinstance(command, CommandInfo):
            one = typer.Typer(rich_markup_mode="rich")
            one.registered_commands.append(command)
            act_as_somebody(one)
            command = self.data[name] = get_group(one).commands[name]
        return command


def registered(*places: str) -> Built:
    """Return the commands that functions of this package register, given as `module:function`."""
    whole = typer.Typer()
    for place in places:
        module, _, function = place.partition(":")
        getattr(import_module(f"{__package__}.{module}"), function)(whole)
    return Built({str(command.name): command for command in whole.registered_commands})


class Branch(TyperGroup):
    """A group that knows where its commands are registered: `module:function` in this package."""

    registers: tuple[str, ...] = ()
    _grown: Built | None = None

    @property
    def commands(self) -> Built:
        """Its commands by name."""
        if self._grown is None:
            self._grown = registered(*self.registers)
        return self._grown

    @commands.setter
    def commands(self, given: object) -> None:
        """Take none: at first typer hands over those of an app that has none yet."""


def branch(app: typer.Typer, name: str, text: str, *registers: str, panel: str) -> None:
    """Add a group to the root."""
    kind = type(name, (Branch,), {"registers": registers})
    app.add_typer(typer.Typer(help=text, no_args_is_help=True), name=name, cls=kind, rich_help_panel=panel)


class Leaf(TyperCommand):
    """A command of the root. A list of commands needs its name and its summary; the rest is built when it is called."""

    def __init__(self, name: str, summary: str, register: str, *, panel: str) -> None:
        """Take what a list shows, and where the command is registered."""
        super().__init__(name, help=summary, rich_help_panel=panel)
        self.register = register

    @cached_property
    def whole(self) -> Any:
        """The command itself."""
        return registered(self.register)[str(self.name)]

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Begin a call, which is the command's own from here on."""
        return self.whole.make_context(*args, **options)
