"""Commands that are built when they are called: a call needs one of them, and the others take time."""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, cached_property, wraps
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

named: ContextVar[str | None] = ContextVar("named", default=None)
"""What --as says, while a command lasts."""

asked_zone: ContextVar[str | None] = ContextVar("asked_zone", default=None)
"""What --zone says, while a command lasts."""

WITHOUT = frozenset({"key", "settings", "version"})
"""Commands that ask nothing of a store."""

AsOption = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", help="Act as this user of the store, with its rights. Else $ROTA_ACTOR, else you: a system manager."
    ),
]


def _take_zone(name: str | None) -> str | None:
    """Take the zone before other options are read: their times are of this zone."""
    asked_zone.set(None)
    if name is not None:
        from rota.errors import InvalidSchedule  # noqa: PLC0415 - a page of help needs none
        from rota.model.zones import zone_of  # noqa: PLC0415 - as above

        try:
            asked_zone.set(zone_of(name).key)
        except InvalidSchedule as error:
            raise typer.BadParameter(str(error).removeprefix("timezone ")) from None
    return name


ZoneOption = Annotated[
    str | None,
    typer.Option(
        "--zone",
        metavar="ZONE",
        is_eager=True,
        callback=_take_zone,
        help="Show times in this time zone, and read those without an offset in it. Else $ROTA_ZONE, else the machine's.",
    ),
]


@cache
def built(words: str, place: str, panel: str | None = None) -> Any:
    """Build a command, once: `module:function` is written by hand, `noun.verb` is that of an operation.

    All that act get --as and --zone.
    """
    module, colon, function = place.partition(":")
    if colon:
        from rota.surfaces.cli.examples import EXAMPLES, examples  # noqa: PLC0415 - the page of all commands needs none

        callback = getattr(import_module(f"{__package__}.{module}"), function)
        info = CommandInfo(name=words.rsplit(maxsplit=1)[-1], callback=callback, epilog=examples(*EXAMPLES[words]), rich_help_panel=panel)
    else:
        from rota.surfaces.cli.commands import info_of  # noqa: PLC0415 - as above

        info = info_of(place, panel=panel)
    if info.callback is not None and info.name not in WITHOUT:
        info.callback = _acting(info.callback)
    return get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode="rich")


def _acting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with two more options, which `session.actor` and `zone.current` read."""

    @wraps(command)
    def acting(*args: Any, acts_as: str | None = None, zone: str | None = None, **options: Any) -> Any:
        del zone  # taken when it was read
        before = named.set(acts_as)
        try:
            return command(*args, **options)
        finally:
            named.reset(before)
            asked_zone.set(None)

    own = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in (("acts_as", AsOption), ("zone", ZoneOption))
    ]
    acting.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined] # how a signature is told
    acting.__annotations__ = {name: each.annotation for name, each in acting.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return acting


class Built(UserDict[str, Any]):
    """The commands of a group by name, each built when it is first taken; before that there is its place: see `built`."""

    def __init__(self, group: str, places: dict[str, str]) -> None:
        """Take where each command is."""
        super().__init__(places)
        self._group = group

    def __getitem__(self, name: str) -> Any:
        command = self.data[name]
        if isinstance(command, str):
            command = self.data[name] = built(f"{self._group} {name}", command)
        return command


class Group(TyperGroup):
    """A group that shows its commands if none is named: that is not a mistake."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, or ask for the page of help."""
        return super().parse_args(ctx, args or ["--help"])


class Branch(Group):
    """A group that knows where its commands are: places of single ones, or a noun, for all of its operations."""

    places: tuple[str, ...] = ()
    path: str = ""
    """Its words, where it is inside another group."""
    _grown: Built | None = None

    @property
    def commands(self) -> Built:
        """Its commands by name."""
        if self._grown is None:
            by_name: dict[str, str] = {}
            for place in self.places:
                if ":" in place:
                    by_name[place.partition(":")[2].replace("_", "-")] = place
                elif "." in place:
                    # Its last word, as the operation has it: `monque` of `store.import_monque`. To ask the operation would import it.
                    by_name[place.partition(".")[2].rpartition("_")[2]] = place
                else:
                    from rota.surfaces.cli.commands import verbs_of  # noqa: PLC0415 - as in `built`

                    by_name |= verbs_of(place)
            self._grown = Built(self.path or str(self.name), by_name)
        return self._grown

    @commands.setter
    def commands(self, given: object) -> None:
        """Take none: at first typer hands over those of an app that has none yet."""


def branch(app: typer.Typer, name: str, text: str, *places: str, panel: str, inside: str = "") -> None:
    """Add a group to the root, or to a group of the root."""
    kind = type(name, (Branch,), {"places": places, "path": f"{inside} {name}".strip()})
    app.add_typer(typer.Typer(help=text), name=name, cls=kind, rich_help_panel=panel)


class Leaf(TyperCommand):
    """A command of the root. A list of commands needs its name and its summary; the rest is built when it is called."""

    def __init__(self, name: str, summary: str, place: str, *, panel: str) -> None:
        """Take what a list shows, and where the command is: see `built`."""
        super().__init__(name, help=summary, rich_help_panel=panel)
        self.place = place

    @cached_property
    def whole(self) -> Any:
        """The command itself."""
        return built(str(self.name), self.place, self.rich_help_panel)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Begin a call, which is the command's own from here on."""
        return self.whole.make_context(*args, **options)
