"""The options that commands share, and how what people type is read: durations, moments, params."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from rota.errors import InvalidOption
from rota.model.local_time import read_moment
from rota.surfaces.cli.zone import current

UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


def duration(text: str) -> timedelta:
    """Read 90s, 5m, 1h30m, 2d or plain seconds."""
    compact = text.replace(" ", "").lower()
    try:
        if compact.replace(".", "", 1).isdecimal():
            return timedelta(seconds=float(compact))
        if compact and not _PART.sub("", compact):
            return timedelta(seconds=sum(float(number) * UNIT_S[unit] for number, unit in _PART.findall(compact)))
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long") from None
    raise typer.BadParameter(f"{text!r} is not a duration: give 90s, 5m, 1h30m or 2d")


def point_in_time(text: str) -> datetime:
    """Read an ISO 8601 moment, as an option of typer's own."""
    try:
        return zoned(text)
    except InvalidOption as error:
        raise typer.BadParameter(str(error)) from None


def zoned(text: str, *, day: bool = False) -> datetime:
    """Read an ISO 8601 moment: a time of the command's zone, unless it has an offset; with `day` a date is its midnight."""
    reading = read_moment(text, current(), day=day)
    if reading.note:
        typer.echo(f"note: {reading.note}", err=True)
    return reading.at


def when(run_at: datetime | None, delay: timedelta | None) -> datetime | timedelta | None:
    """Return the moment that --run-at or --in names; both at once are refused."""
    if run_at is not None and delay is not None:
        raise typer.BadParameter("give --run-at or --in, not both")
    return run_at if delay is None else delay


def params_of(text: str | None, pairs: Sequence[str] | None) -> dict[str, Any] | None:
    """Return what --params (JSON, @file, or - for stdin) and, on top of it, -p key=value say; None if neither was given."""
    if text is None and not pairs:
        return None
    params = {} if text is None else _object(_read(text, "--params"), "--params")
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not key=value", param_hint="-p")
        params[key] = value_of(value)
    return params


def object_of(text: str, option: str, *, pairs: bool = False) -> dict[str, Any]:
    """Return the object that an option names: JSON, @file, or - for stdin; with `pairs` also key=value,key=value."""
    if pairs and "=" in text and not text.startswith(("{", "@")):
        named = [pair.partition("=") for pair in text.split(",")]
        return {key.strip(): value_of(value) for key, _, value in named}
    return _object(_read(text, option), option)


def _read(text: str, option: str) -> str:
    try:
        # JSON is UTF-8, whatever the terminal speaks.
        if text == "-":
            return typer.get_binary_stream("stdin").read().decode()
        return Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{text[1:] or text!r} can't be read: {error}", param_hint=option) from None


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise typer.BadParameter(f"{text[:60]!r} is not JSON: {error}", param_hint=option) from None
    except RecursionError:
        raise typer.BadParameter(f"{text[:60]!r}… is nested too deep", param_hint=option) from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f'{text[:60]!r} is not a JSON object: give for example \'{{"to": "ada"}}\'', param_hint=option)
    return value


def value_of(text: str) -> Any:
    """Read a value as JSON where it is JSON, as plain text otherwise."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    except RecursionError:
        raise typer.BadParameter(f"{text[:60]!r}… is nested too deep", param_hint="-p") from None


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="The store: a path, or sqlite:///, postgresql:// or mongodb:// with user@host/db. Else $ROTA_STORE, else ./rota.db.",
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:ATTR",
        help="Load this Rota and its handlers, from the current directory (ATTR: rota). Its own store is used unless --store is given.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one line for each item of a list.")]
OrganizationOption = Annotated[
    str | None,
    typer.Option("--organization", metavar="NAME", help="In this organization. Else your own: default, or that of the user named by --as."),
]
PriorityOption = Annotated[str | None, typer.Option("--priority", help="0 to 100, or low, normal, high, critical.")]
ParamsOption = Annotated[
    str | None,
    typer.Option("--params", metavar="JSON", help="Params as a JSON object; @FILE reads a file, - reads stdin."),
]
PairsOption = Annotated[
    list[str] | None,
    typer.Option("-p", "--param", metavar="KEY=VALUE", help="One param; a value that is JSON is taken as JSON, else as text."),
]
RunAtOption = Annotated[
    datetime | None,
    typer.Option(
        "--run-at",
        parser=point_in_time,
        metavar="ISO",
        help="Not before this time, such as 2026-08-01T09:00 (of --zone) or 2026-08-01T09:00Z.",
    ),
]
InOption = Annotated[
    timedelta | None,
    typer.Option("--in", parser=duration, metavar="DURATION", help="Not before this much time has passed: 90s, 5m, 1h30m."),
]
