"""Operations as JSON: the schema of their parameters, and how a surface reads what it was sent."""

from __future__ import annotations

import base64
import binascii
import functools
import typing
from collections import abc
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import UNSET, UnsetType

from rota.errors import InvalidOption
from rota.model.templates import span_of
from rota.operation import Field, Operation

SEQUENCES = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection)
SHOWN_MAX = 60
"""Characters of a refused value that a message repeats."""
SECRETS = frozenset({"secret"})
"""Parameters whose values no message repeats."""
_MOMENT = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
_SPAN = Union[float, str]  # noqa: UP007 - a value, built at run time as the others are


class Read(msgspec.Struct, frozen=True, eq=False):
    """How one parameter is read: the type of its JSON form, and the function that turns a value of it into what Python takes."""

    wire: Any
    value: Callable[[Any], Any] | None = None
    null: bool = False
    """Whether null is a value of its own."""


def read(operation: Operation, given: Mapping[str, Any], *, text: bool = False) -> dict[str, Any]:
    """Return the keywords for `call`; raises InvalidOption naming the parameter and the value. `text`: a person typed the values."""
    struct = struct_of(operation)
    names = struct.__struct_fields__
    for name in given:
        if name not in names:
            raise InvalidOption(f"{operation.name} has no parameter {name!r:.80}: it takes {', '.join(names) or 'none'}")
    for field in operation.fields:
        if field.required and field.name in names and field.name not in given:
            help_ = f" ({field.shape.help})" if field.shape.help else ""
            raise InvalidOption(f"{field.name} is missing: {operation.name} needs it{help_}")
    said = {field.name: _worded(field, given[field.name]) for field in operation.fields if field.name in given}
    try:
        values = msgspec.convert(said, struct, strict=not text)
    except msgspec.ValidationError as error:
        raise InvalidOption(_words(operation, error, given)) from None
    keywords: dict[str, Any] = {}
    for field in operation.fields:
        value = getattr(values, field.name, UNSET)
        if value is not UNSET:
            convert = reader_of(field).value
            keywords[field.name] = value if value is None or convert is None else _converted(field.name, convert, value)
    return keywords


def call(method: Callable[..., Any], operation: Operation, keywords: Mapping[str, Any]) -> Any:
    """Call an operation, as the method of a noun, with what `read` has returned."""
    parameters = operation.parameters
    named = dict(keywords)
    positional = [named.pop(each.name) for each in parameters.values() if each.kind is each.POSITIONAL_ONLY and each.name in named]
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL and parameter.name in named:
            # What comes before `*fields` is passed by its place, too.
            leading = [each.name for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD and each.name in named]
            several = named.pop(parameter.name)
            positional += [*(named.pop(name) for name in leading), *several]
        elif parameter.kind is parameter.VAR_KEYWORD and parameter.name in named:
            # They may have any name: what an operation with such keywords takes besides is passed by its place.
            named |= named.pop(parameter.name)
    return method(*positional, **named)


def schema(operation: Operation, *, refs: str = "#/$defs/{name}") -> dict[str, Any]:
    """Return the JSON Schema of an operation's parameters, with their descriptions, defaults and examples.

    Types that it refers to are in `$defs`; `refs` is where references look for them.
    """
    (reference,), definitions = msgspec.json.schema_components([struct_of(operation)], ref_template=refs)
    own: dict[str, Any] = definitions.pop(reference["$ref"].rpartition("/")[2])
    own.pop("title", None)
    for field in operation.fields:
        shown = own["properties"].get(field.name)
        if shown is None:
            continue
        shown.pop("default", None)
        if field.shape.help:
            shown["description"] = field.shape.help
        if not field.required and field.default not in (None, UNSET, ()):
            shown["default"] = msgspec.json.decode(msgspec.json.encode(field.default))
        if field.shape.example is not None:
            listed = shown.get("type") == "array" or any(each.get("type") == "array" for each in shown.get("anyOf", ()))
            example = field.shape.example
            shown["examples"] = [[example] if listed and not isinstance(example, list) else example]
    return {**own, "$defs": definitions} if definitions else own


@functools.cache
def struct_of(operation: Operation) -> type[msgspec.Struct]:
    """Return the strict struct of the parameters that have a JSON form."""
    fields: list[Any] = []
    for field in operation.fields:
        reader = reader_of(field)
        if reader.wire is None:
            continue
        kind = Union[reader.wire, None] if reader.null else reader.wire  # noqa: UP007 - built at run time
        if field.required:
            fields.append((field.name, kind))
        else:
            fields.append((field.name, Union[kind, UnsetType], UNSET))  # noqa: UP007 - built at run time
    return msgspec.defstruct(operation.body.__qualname__.replace(".", ""), fields, kw_only=True, forbid_unknown_fields=True)


@functools.cache
def reader_of(field: Field) -> Read:
    """Return how a parameter is read; `wire` is None for one that only Python can pass, such as a callback."""
    reader = _read(field.hint)
    if field.shape.wire is not None:
        reader = msgspec.structs.replace(reader, wire=field.shape.wire)
        members = _members(field.hint)
        cursor = next((each for each in members if typing.get_origin(each) is tuple and ... not in typing.get_args(each)), None)
        if field.shape.wire is str and cursor is not None and str not in members:
            reader = msgspec.structs.replace(reader, value=functools.partial(unseal, kind=cursor))
    if field.shape.most is not None:
        reader = msgspec.structs.replace(reader, wire=Annotated[reader.wire, msgspec.Meta(max_length=field.shape.most)])
    return msgspec.structs.replace(reader, null=_takes_none(field.hint))


def is_list(field: Field) -> bool:
    """Say whether a parameter takes several values."""
    return any(_is_sequence(each) for each in _members(reader_of(field).wire))


def is_text(field: Field) -> bool:
    """Say whether a parameter takes any text."""
    return str in _members(reader_of(field).wire)


def kind_of(field: Field) -> Any:
    """Return the type of a parameter, without None."""
    return _members(field.hint)[0]


def seal(place: object) -> str:
    """Return a place in a list as a text that can be part of a URL."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def unseal(cursor: str, kind: Any) -> Any:
    """Return the place that a cursor stands for; raises InvalidOption for one that `seal` has not returned."""
    try:
        text = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidOption(f"{cursor[:40]!r} is not a valid cursor: pass the previous page's `next`, or omit it") from None


def _read(hint: Any) -> Read:
    members = _members(hint)
    if any(typing.get_origin(each) is abc.Callable or each is abc.Callable for each in members):
        return Read(None)
    if datetime in members and timedelta in members:
        return Read(str, _when)
    if datetime in members:
        return Read(str) if str in members else Read(_MOMENT, _moment)
    if timedelta in members:
        return Read(_SPAN, _span)
    sequence = next((each for each in members if _is_sequence(each)), None)
    if sequence is not None:
        items = typing.get_args(sequence)
        inner = _read(items[0]).wire if items else Any
        several: Any = list[Any] if inner is None else list[inner]  # type: ignore[valid-type]
        return Read(Union[several, str] if str in members else several)  # noqa: UP007 - built at run time
    return Read(_json_type(members))


def _json_type(members: list[Any]) -> Any:
    """Return the JSON type of a union: what is left when objects that only Python has are taken out. None: nothing."""
    if any(isinstance(each, type) and issubclass(each, Enum) for each in members) and str in members:
        # An enum whose words are also taken as text: the schema lists the words.
        members = [each for each in members if each is not str]
    elif str in members:
        # A thing or its name: JSON has the name.
        members = [each for each in members if _is_plain(each) and typing.get_origin(each) is not Literal]
    members = [dict[str, Any] if _is_mapping(each) else each for each in members]
    members = [each for each in members if _is_json(each)]
    if not members:
        return None
    return members[0] if len(members) == 1 else Union[tuple(members)]  # noqa: UP007 - built at run time


def _is_plain(member: Any) -> bool:
    return member in {str, int, float, bool} or typing.get_origin(member) is Literal or _is_mapping(member)


def _is_mapping(member: Any) -> bool:
    return typing.get_origin(member) in {abc.Mapping, dict} or member in {Mapping, dict}


def _is_json(member: Any) -> bool:
    if member is object:
        return False
    try:
        msgspec.json.schema(member)
    except TypeError:
        return False
    return True


def _members(hint: Any) -> list[Any]:
    """Return the members of a union, without None and UNSET, and without their wrappings."""
    if typing.get_origin(hint) is Annotated:
        return _members(hint.__origin__)
    if typing.get_origin(hint) in {Union, UnionType}:
        return [member for each in typing.get_args(hint) for member in _members(each) if member not in {NoneType, UnsetType}]
    return [hint]


def _takes_none(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        return _takes_none(hint.__origin__)
    if typing.get_origin(hint) in {Union, UnionType}:
        return any(_takes_none(each) for each in typing.get_args(hint))
    return hint is NoneType


def _is_sequence(hint: Any) -> bool:
    return typing.get_origin(hint) in SEQUENCES or hint in SEQUENCES


def _when(given: str) -> datetime | timedelta:
    """Return a moment, or a length of time such as 90s or 2h."""
    try:
        return _span(given)
    except InvalidOption:
        return _moment(given, "is neither a moment, such as 2026-08-01T09:00:00Z, nor a length of time, such as 90s or 2h")


def _span(given: float | str) -> timedelta:
    try:
        return timedelta(seconds=span_of("", given))
    except OverflowError:
        raise InvalidOption(f"{given!r} is too long: use at most {timedelta.max.days} days") from None
    except InvalidOption:
        raise InvalidOption(f"{given!r} is not a length of time: use seconds, or text such as 90s, 5m or 1h30m") from None


def _moment(given: str, wrong: str = "is not a moment: use ISO 8601 with a time zone, such as 2026-08-01T09:00:00Z") -> datetime:
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidOption(f"{given!r} {wrong}") from None
    if at.tzinfo is None:
        raise InvalidOption(f"{given!r} has no time zone: add Z or an offset such as +02:00")
    return at


def _worded(field: Field, value: Any) -> Any:
    """Return a word of a fixed set as the set has it: people write words in any letter case."""
    words = _words_of(field) if isinstance(value, str | list) else {}
    if not words:
        return value
    if isinstance(value, list):
        return [words.get(each.casefold(), each) if isinstance(each, str) else each for each in value]
    return words.get(value.casefold(), value)


@functools.cache
def _words_of(field: Field) -> dict[str, str]:
    members = _members(field.hint)
    members += [each for member in members if _is_sequence(member) for item in typing.get_args(member) for each in _members(item)]
    words = [str(word) for each in members if typing.get_origin(each) is Literal for word in typing.get_args(each)]
    words += [str(word.value) for each in members if isinstance(each, type) and issubclass(each, Enum) for word in each]
    return {word.casefold(): word for word in words}


def _converted(name: str, convert: Callable[[Any], Any], given: Any) -> Any:
    try:
        return convert(given)
    except InvalidOption as error:
        raise InvalidOption(f"{name}: {error}") from None


def _words(operation: Operation, error: msgspec.ValidationError, given: Mapping[str, Any]) -> str:
    """Return msgspec's words with the place and the value first: `limit='ten': expected int, got str`."""
    message, _, rest = str(error).partition(" - at `$.")
    place = rest.rstrip("`")
    name = place.partition(".")[0].partition("[")[0]
    words = (message[:1].lower() + message[1:]).replace("`", "")
    if name not in given:
        return words
    field = next(field for field in operation.fields if field.name == name)
    if name in SECRETS or field.shape.hidden:
        return f"{place}: {words}"
    known = list(_words_of(field).values())
    if known and message.startswith("Invalid enum value"):
        numbers = "a number or " if int in _members(reader_of(field).wire) else ""
        return f"{name}={_shortened(given[name])} is not {numbers}one of {', '.join(known)}"
    return f"{name}={_shortened(given[name])}: {words}" + ("" if place == name else f" at {place}")


def _shortened(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}…"
