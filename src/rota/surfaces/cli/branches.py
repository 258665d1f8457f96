"""Commands that are built when they are called: a call needs one of them, and the others take time."""

from __future__ import annotations

from collections import UserDict
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group
from typer.models import CommandInfo

from rota.surfaces.cli.acting import act_as_somebody


class Built(UserDict[str, Any]):
    """Commands by name, each built when it is first taken: one that is written by hand, or that of an operation, given as `noun.verb`."""

    def __getitem__(self, name: str) -> Any:
        command = self.data[name]
        if isinstance(command, str | CommandInfo):
            command = self.data[name] = made(command) if isinstance(command, str) else built(command)
        return command


@cache
def made(place: str, panel: str | None = None) -> Any:
    """Build the command of an operation, once."""
    from rota.surfaces.cli.commands import info_of  # noqa: PLC0415 - the page of all commands needs none

    return built(info_of(place, panel=panel))


def built(command: CommandInfo) -> Any:
    """Build one command."""
    one = typer.Typer(rich_markup_mode="rich")
    one.registered_commands.append(command)
    act_as_somebody(one)
    return get_group(one).commands[str(command.name)]


def registered(*places: str) -> Built:
    """Return commands: those that a function of this package registers (`module:function`), of an operation (`noun.verb`), of a noun."""
    by_hand = typer.Typer()
    operations: dict[str, Any] = {}
    for place in places:
        module, colon, function = place.partition(":")
        if colon:
            getattr(import_module(f"{__package__}.{module}"), function)(by_hand)
        elif "." in place:
            # Its last word, as the operation has it: `monque` of `store.import_monque`. To ask the operation would import it.
            operations[place.partition(".")[2].rpartition("_")[2]] = place
        else:
            from rota.surfaces.cli.commands import verbs_of  # noqa: PLC0415 - as in `made`

            operations |= verbs_of(place)
    return Built(operations | {str(command.name): command for command in by_hand.registered_commands})


class Branch(TyperGroup):
    """A group that knows where its commands are: see `registered`."""

    places: tuple[str, ...] = ()
    _grown: Built | None = None

    @property
    def commands(self) -> Built:
        """Its commands by name."""
        if self._grown is None:
            self._grown = registered(*self.places)
        return self._grown

    @commands.setter
    def commands(self, given: object) -> None:
        """Take none: at first typer hands over those of an app that has none yet."""


def branch(app: typer.Typer, name: str, text: str, *places: str, panel: str) -> None:
    """Add a group to the root."""
    kind = type(name, (Branch,), {"places": places})
    app.add_typer(typer.Typer(help=text, no_args_is_help=True), name=name, cls=kind, rich_help_panel=panel)


class Leaf(TyperCommand):
    """A command of the root. A list of commands needs its name and its summary; the rest is built when it is called."""

    def __init__(self, name: str, summary: str, place: str, *, panel: str) -> None:
        """Take what a list shows, and where the command is: `module:function` registers it, or it is that of an operation, `noun.verb`."""
        super().__init__(name, help=summary, rich_help_panel=panel)
        self.place = place

    @cached_property
    def whole(self) -> Any:
        """The command itself."""
        return registered(self.place)[str(self.name)] if ":" in self.place else made(self.place, self.rich_help_panel)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Begin a call, which is the command's own from here on."""
        return self.whole.make_context(*args, **options)
