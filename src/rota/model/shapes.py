"""Types of parameters that carry their words, examples and bounds, once for every surface."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union

import msgspec

NAME_MAX = 255
"""Characters of a name to look for. No setting allows longer names."""
TEXT_MAX = 1_000
"""Characters of a text to search for."""


class Shape(msgspec.Struct, frozen=True, eq=False):
    """How a value looks outside of Python."""

    help: str = ""
    example: Any = None
    metavar: str | None = None
    option: str | None = None
    """What the command line calls it: `type` for `job_type`."""
    wire: Any = None
    """The type of its JSON form, where Python takes more than that."""
    most: int | None = None
    """Characters that a text outside of Python may have."""
    hidden: bool | None = None
    """Whether it is a secret: no message repeats it, and the command line reads it from standard input, never from an argument."""


Priority: TypeAlias = Annotated[
    int | Literal["low", "normal", "high", "critical"],
    Shape("0 to 100, or low, normal, high, critical in any letter case.", "high", "PRIORITY"),
]
When: TypeAlias = Annotated[
    datetime | timedelta, Shape("An aware datetime, or a timedelta from now.", "2026-08-01T09:00:00Z", "TIME", wire=str)
]
Span: TypeAlias = Annotated[float | str | timedelta, Shape("Seconds, or text such as 90s, 5m, 2h.", "5m", "SPAN", wire=float | str)]
Params: TypeAlias = Annotated[
    Mapping[str, Any], Shape("The handler's parameters by name.", {"to": "ada@example.com"}, "JSON", wire=dict[str, Any])
]
Limit: TypeAlias = Annotated[int, Shape("Maximum number of results.", 50, "N")]
Name: TypeAlias = Annotated[str, Shape("Its name.", metavar="NAME")]
Organization: TypeAlias = Annotated[str | None, Shape("Organization; default: the caller's own.", "default", "NAME", most=NAME_MAX)]


def shape_of(hint: Any) -> Shape:
    """Return the Shape of an annotation, also inside `Priority | None`. An outer one gives the words, an inner one what it leaves out."""
    if typing.get_origin(hint) is Annotated:
        shape = shape_of(hint.__origin__)
        # Nested annotations are one tuple, the outermost last.
        for outer in (each for each in hint.__metadata__ if isinstance(each, Shape)):
            given = {name: value for name in Shape.__struct_fields__ if (value := getattr(outer, name)) not in (None, "")}
            shape = msgspec.structs.replace(shape, **given)
        return shape
    if typing.get_origin(hint) not in {Union, UnionType}:
        return Shape()
    members = [each for each in typing.get_args(hint) if each not in {NoneType, msgspec.UnsetType}]
    shaped = [each for each in members if typing.get_origin(each) is Annotated]
    if len(shaped) != 1:
        return Shape()
    # With other members beside it, its JSON form is not that of the whole.
    return shape_of(shaped[0]) if len(members) == 1 else msgspec.structs.replace(shape_of(shaped[0]), wire=None)
