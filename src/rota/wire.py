"""Operations as JSON: the schema of their parameters, and how a surface reads what it was sent."""

from __future__ import annotations

import functools
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Union

import msgspec
from msgspec import UNSET, UnsetType

from rota.errors import InvalidOption
from rota.model.shapes import Shape, shape_of
from rota.model.templates import span_of
from rota.operation import Field, Operation

SEQUENCES = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection)


class Read(msgspec.Struct, frozen=True, eq=False):
    """How one parameter is read: the type of its JSON form, and what makes the value of it."""

    wire: Any
    value: Callable[[Any], Any] | None = None


def read(operation: Operation, given: Mapping[str, Any], *, text: bool = False) -> dict[str, Any]:
    """Return the keywords to call an operation with; raises InvalidOption naming the parameter. `text`: values are what a person typed."""
    try:
        said = msgspec.convert(dict(given), struct_of(operation), strict=not text)
    except msgspec.ValidationError as error:
        raise InvalidOption(_words(error)) from None
    keywords: dict[str, Any] = {}
    for field in operation.fields:
        value = getattr(said, field.name, UNSET)
        if value is UNSET:
            continue
        reader = reader_of(field)
        keywords[field.name] = value if value is None or reader.value is None else _made(field.name, reader.value, value)
    return keywords


def schema(operation: Operation) -> dict[str, Any]:
    """Return the JSON Schema of an operation's parameters, with their descriptions and examples."""
    (reference,), definitions = msgspec.json.schema_components([struct_of(operation)], ref_template="#/$defs/{name}")
    own: dict[str, Any] = definitions.pop(reference["$ref"].rpartition("/")[2])
    own.pop("title", None)
    for field in operation.fields:
        shown = own["properties"].get(field.name)
        if shown is None:
            continue
        shown.pop("default", None)
        if field.shape.help:
            shown["description"] = field.shape.help
        if field.shape.example is not None:
            shown["examples"] = [field.shape.example]
    return {**own, "$defs": definitions} if definitions else own


@functools.cache
def struct_of(operation: Operation) -> type[msgspec.Struct]:
    """Return the strict struct of the parameters that have a JSON form."""
    fields: list[Any] = []
    for field in operation.fields:
        reader = reader_of(field)
        if reader.wire is None:
            continue
        if field.required:
            fields.append((field.name, reader.wire))
        else:
            fields.append((field.name, Union[reader.wire, None, UnsetType], UNSET))  # noqa: UP007 - built at run time
    return msgspec.defstruct(operation.body.__qualname__.replace(".", ""), fields, kw_only=True, forbid_unknown_fields=True)


def reader_of(field: Field) -> Read:
    """Return how a parameter is read; `wire` is None for one that only Python can pass, such as a callback."""
    if field.shape.wire is not None:
        timed = _has(field.hint, timedelta)
        return Read(field.shape.wire, _when if timed and field.shape.wire is str else None)
    return _read(field.hint)


def _read(hint: Any) -> Read:
    if typing.get_origin(hint) is Annotated:
        shape: Shape = shape_of(hint)
        return Read(shape.wire) if shape.wire is not None else _read(hint.__origin__)
    members = _members(hint)
    if any(typing.get_origin(each) is abc.Callable or each is abc.Callable for each in members):
        return Read(None)
    if timedelta in members:
        return Read(str, _when) if datetime in members or members == [timedelta] else Read(Union[float, str])  # noqa: UP007
    if datetime in members:
        return Read(str, _moment)
    if any(_is_sequence(each) for each in members):
        items = next(typing.get_args(each) for each in members if _is_sequence(each))
        inner = _read(items[0] if items else Any)
        return Read(list[inner.wire] if inner.wire is not None else list[Any])  # type: ignore[name-defined]
    if len(members) > 1 and all(isinstance(each, type) and issubclass(each, str) for each in members):
        return Read(str)
    if len(members) == 1:
        (only,) = members
        if isinstance(only, type) and issubclass(only, Enum):
            return Read(only)
        if typing.get_origin(only) in {abc.Mapping, dict} or only in {Mapping, dict}:
            return Read(dict[str, Any])
        return Read(only)
    try:
        msgspec.json.Decoder(Union[tuple(members)])
    except TypeError:
        return Read(Any)
    return Read(Union[tuple(members)])


def _members(hint: Any) -> list[Any]:
    """Return the members of a union, without None and UNSET, and without their wrappings."""
    if typing.get_origin(hint) is Annotated:
        return _members(hint.__origin__)
    if typing.get_origin(hint) in {Union, types.UnionType}:
        return [member for each in typing.get_args(hint) for member in _members(each) if member not in {type(None), UnsetType}]
    return [hint]


def _has(hint: Any, kind: type) -> bool:
    return kind in _members(hint)


def _is_sequence(hint: Any) -> bool:
    return typing.get_origin(hint) in SEQUENCES or hint in SEQUENCES


def _when(given: str) -> datetime | timedelta:
    """Return a moment, or a length of time such as 90s or 2h."""
    try:
        return timedelta(seconds=span_of("time", given))
    except InvalidOption:
        return _moment(given)


def _moment(given: str) -> datetime:
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidOption(
            f"{given!r} is neither a moment, such as 2026-08-01T09:00:00Z, nor a length of time, such as 90s or 2h"
        ) from None
    if at.tzinfo is None:
        raise InvalidOption(f"{given!r} has no time zone: add Z or an offset such as +02:00")
    return at.astimezone(UTC) if at.utcoffset() is None else at


def _made(name: str, value: Callable[[Any], Any], given: Any) -> Any:
    try:
        return value(given)
    except InvalidOption as error:
        raise InvalidOption(f"{name}: {error}") from None


def _words(error: msgspec.ValidationError) -> str:
    """Return msgspec's words with the place first: `limit: expected int, got str`."""
    message, _, place = str(error).partition(" - at `$.")
    words = message[:1].lower() + message[1:]
    return f"{place.rstrip('`')}: {words}" if place else words
