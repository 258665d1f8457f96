"""Groups of commands that are made when one of them is asked for: a call needs one group at most, and the others take time."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from rota.surfaces.cli.acting import act_as_somebody


class Branch(TyperGroup):
    """A group that knows where its commands are registered: `module:function` in this package."""

    registers: tuple[str, ...] = ()
    _grown: dict[str, Any] | None = None

    @property
    def commands(self) -> dict[str, Any]:
        """Its commands by name."""
        if self._grown is None:
            whole = typer.Typer(rich_markup_mode="rich")
            for place in self.registers:
                module, _, function = place.partition(":")
                getattr(import_module(f"{__package__}.{module}"), function)(whole)
            act_as_somebody(whole)
            self._grown = dict(get_group(whole).commands)
        return self._grown

    @commands.setter
    def commands(self, given: object) -> None:
        """Take none: at first typer hands over those of an app that has none yet."""


def branch(app: typer.Typer, name: str, text: str, *registers: str, panel: str) -> None:
    """Add a group to the root."""
    kind = type(name, (Branch,), {"registers": registers})
    app.add_typer(typer.Typer(help=text, no_args_is_help=True), name=name, cls=kind, rich_help_panel=panel)
