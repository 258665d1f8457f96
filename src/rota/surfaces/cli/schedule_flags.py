"""What may be said of a schedule, as flags: one table for every command that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any

import msgspec
import typer

from rota.errors import InvalidOption, InvalidSchedule
from rota.model.schedule_options import OPTIONS, TIMES
from rota.surfaces.cli.exits import WRONG
from rota.surfaces.cli.options import PairsOption, ParamsOption, params_of
from rota.surfaces.cli.output import show_error

ScheduleArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
WithinOption = Annotated[
    str | None,
    typer.Option(
        "--organization",
        metavar="NAME",
        help="The schedule of this organization. Else your own, or the only one of that name.",
    ),
]
WHEN, HOW = "When", "How"
UNSETTABLE = tuple(option for option in OPTIONS if option not in {"template", *TIMES})
"""What has a default to go back to."""


def _flag(name: str, metavar: str, *, panel: str, words: str) -> Any:
    return Annotated[str | None, typer.Option(f"--{name}", metavar=metavar, rich_help_panel=panel, help=words, show_default=False)]


# The values stay texts: the model reads them, and says the same of a bad one here as everywhere.
FLAGS: dict[str, Any] = {
    "cron": _flag("cron", "CRON", panel=WHEN, words="Five fields, as '0 9 * * MON-FRI', or @hourly, @daily, @weekly, @monthly, @yearly."),
    "at": _flag("at", "TIME", panel=WHEN, words="Once, e.g. 2026-08-01T09:00:00Z."),
    "every": _flag("every", "DURATION", panel=WHEN, words="Again and again, this far apart: 90s, 5m, 1h30m, 2d."),
    "timezone": _flag("timezone", "ZONE", panel=WHEN, words="The zone of --cron and of the calendar's days: Europe/Berlin. Else UTC."),
    "starts": _flag("starts", "TIME", panel=WHEN, words="Not due before; --every counts from here, else from when it is made."),
    "ends": _flag("ends", "TIME", panel=WHEN, words="Not due after."),
    "calendar": _flag("calendar", "NAME", panel=WHEN, words="Days on which it is not due: see `rota calendar`."),
    "jitter": _flag("jitter", "DURATION", panel=WHEN, words="Start each job up to this much later, by chance."),
    "params": ParamsOption,
    "pairs": PairsOption,
    "priority": _flag("priority", "PRIORITY", panel=HOW, words="0 to 100, or low, normal, high, critical. Else its template's."),
    "catch_up": _flag(
        "catch-up", "RULE", panel=HOW, words="Due times that nobody was there to fire: none, last (the default: one job for all) or all."
    ),
    "catch_up_lateness": _flag("catch-up-lateness", "DURATION", panel=HOW, words="Catch up nothing that is later than this."),
    "catch_up_count": Annotated[
        int | None,
        typer.Option(
            "--catch-up-count", metavar="N", rich_help_panel=HOW, help="With --catch-up all: at most so many.", show_default=False
        ),
    ],
    "overlap": _flag(
        "overlap", "RULE", panel=HOW, words="Due while the one before is not over: skip (the default), queue behind it, or allow."
    ),
    "on_completion": _flag("on-completion", "RULE", panel=HOW, words="Of --at, when it has fired: PRESERVE (the default) or DROP."),
    "depends_on": Annotated[
        list[str] | None,
        typer.Option(
            "--depends-on",
            metavar="NAME",
            rich_help_panel=HOW,
            help="A schedule whose run must complete first. Give it again for each one.",
            show_default=False,
        ),
    ],
    "run_as": _flag("run-as", "ROLE", panel=HOW, words="Not available yet: any role is refused."),
    "description": _flag("description", "TEXT", panel=HOW, words="What it is for."),
}


class Given(msgspec.Struct, frozen=True):
    """The flags that were given."""

    said: dict[str, Any]
    params: str | None
    pairs: list[str] | None

    def options(self, present: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return them as options of a schedule; single params go on top of those `present`."""
        params = params_of(self.params, self.pairs, present=present)
        return self.said if params is None else {**self.said, "params": params}

    @property
    def adds_params(self) -> bool:
        """Say whether single params were given, to go on top of those that are there."""
        return self.params is None and bool(self.pairs)


def takes_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with every flag in the place of its parameter `given`, which gets those that were given."""

    @wraps(command)
    def taking(*args: Any, **options: Any) -> None:
        flags = {name: options.pop(name) for name in FLAGS}
        params, pairs = flags.pop("params"), flags.pop("pairs")
        said = {name: value for name, value in flags.items() if value not in (None, [])}
        with bad_values():
            command(*args, given=Given(said, params, pairs), **options)

    own = inspect.signature(command, eval_str=True)
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in FLAGS.items()]
    parts = [part for each in own.parameters.values() for part in (added if each.name == "given" else [each])]
    taking.__signature__ = own.replace(parameters=parts)  # type: ignore[attr-defined] # how a signature is told
    taking.__annotations__ = {each.name: each.annotation for each in parts}
    return taking


@contextmanager
def bad_values() -> Iterator[None]:
    """Say in one line what is wrong with a value that was given, and exit as for every command line that can't be."""
    try:
        yield
    except (InvalidSchedule, InvalidOption) as error:
        show_error(str(error), error.code)
        raise typer.Exit(WRONG) from None


def unset(names: list[str] | None, given: Mapping[str, Any]) -> dict[str, None]:
    """Return the options to take back to their defaults, or refuse those that have none or are given as well."""
    found: dict[str, None] = {}
    for name in names or ():
        option = name.lower().lstrip("-").replace("-", "_")
        if option not in UNSETTABLE:
            more = "; give another one instead" if option in {"template", *TIMES} else ""
            raise InvalidOption(f"--unset {name}: this has no default{more}: unset one of {', '.join(UNSETTABLE)}")
        if option in given:
            raise InvalidOption(f"--unset {name} and a new {option} are both given: give one of them")
        found[option] = None
    return found
