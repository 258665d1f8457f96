"""Types of parameters that carry their words, examples and bounds, once for every surface."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias

import msgspec


class Shape(msgspec.Struct, frozen=True, eq=False):
    """How a value looks outside of Python."""

    help: str = ""
    example: Any = None
    metavar: str | None = None
    option: str | None = None
    """What the command line calls it: `type` for `job_type`."""
    wire: Any = None
    """The type of its JSON form, where Python takes more than that."""


Priority: TypeAlias = Annotated[
    int | Literal["low", "normal", "high", "critical"], Shape("0 to 100, or low, normal, high, critical.", "high", "PRIORITY")
]
When: TypeAlias = Annotated[
    datetime | timedelta, Shape("An aware datetime, or a timedelta from now.", "2026-08-01T09:00:00Z", "TIME", wire=str)
]
Span: TypeAlias = Annotated[float | str | timedelta, Shape("Seconds, or text such as 90s, 5m, 2h.", "5m", "SPAN", wire=float | str)]
Params: TypeAlias = Annotated[
    Mapping[str, Any], Shape("The handler's parameters by name.", {"to": "ada@example.com"}, "JSON", wire=dict[str, Any])
]
Limit: TypeAlias = Annotated[int, Shape("Maximum number of results.", 50, "N")]
Name: TypeAlias = Annotated[str, Shape(metavar="NAME")]
Organization: TypeAlias = Annotated[str | None, Shape("Organization; default: the caller's own.", "default", "NAME")]


def shape_of(hint: Any) -> Shape:
    """Return the Shape of an annotation, also inside `Priority | None`. An outer one gives the words, an inner one what it leaves out."""
    if typing.get_origin(hint) is Annotated:
        found = next((each for each in hint.__metadata__ if isinstance(each, Shape)), Shape())
        inner = shape_of(hint.__origin__)
        given = {name: value for name in Shape.__struct_fields__ if (value := getattr(found, name)) not in (None, "")}
        return msgspec.structs.replace(inner, **given)
    members = [each for each in typing.get_args(hint) if each is not type(None)]
    if len(members) == 1 and len(typing.get_args(hint)) == 2 and type(None) in typing.get_args(hint):
        return shape_of(members[0])
    return Shape()
