"""Every annotation that params may have, with a value, its JSON form and its schema; and handlers that take them all, for each executor."""

from __future__ import annotations

import enum
import inspect
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic

from rota import Context, PermanentError, Retry, TransientError


class Color(enum.Enum):
    """An enumeration that is not text by itself."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    """A class with a field that JSON has no word for."""

    sku: str
    amount: Decimal = Decimal(1)


@dataclass
class Tree:
    """A class that contains itself."""

    name: str
    branches: list[Tree] = field(default_factory=list)


class Size(TypedDict):
    """An object that stays a dict."""

    width: int


class Point(NamedTuple):
    """A tuple whose places have names."""

    x: int
    y: int


class Mail(msgspec.Struct):
    """A Struct."""

    to: str
    at: datetime


class Part(pydantic.BaseModel):
    """A model inside a model."""

    amount: Decimal


class Order(pydantic.BaseModel):
    """A model with an alias: it is stored by that, as it is read by it."""

    placed: datetime = pydantic.Field(alias="placedAt")
    parts: list[Part]


class Case(NamedTuple):
    """One annotation."""

    kind: Any
    value: Any
    form: Any
    schema: dict[str, Any]


NOON = datetime(2026, 3, 1, 12, 30, 5, 250_000, tzinfo=UTC)
TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
MOMENT = {"type": "string", "format": "date-time"}
SPAN = {"type": "string", "format": "duration"}

TABLE: dict[str, Case] = {
    "str": Case(str, "text", "text", TEXT),
    "int": Case(int, 7, 7, WHOLE),
    "float": Case(float, 2.5, 2.5, {"type": "number"}),
    "bool": Case(bool, True, True, {"type": "boolean"}),
    "Any": Case(Any, {"a": [1, None]}, {"a": [1, None]}, {}),
    "object": Case(object, [1, "a"], [1, "a"], {}),
    "datetime": Case(datetime, NOON, "2026-03-01T12:30:05.250000Z", MOMENT),
    "date": Case(date, NOON.date(), "2026-03-01", {"type": "string", "format": "date"}),
    "time": Case(time, time(12, 30), "12:30:00", {"type": "string", "format": "time"}),
    "timedelta": Case(timedelta, timedelta(days=1, seconds=90), "P1DT90S", SPAN),
    "UUID": Case(UUID, UUID(int=7), "00000000-0000-0000-0000-000000000007", {"type": "string", "format": "uuid"}),
    "Decimal": Case(Decimal, Decimal("19.90"), "19.90", {"type": "string", "format": "decimal"}),
    "Path": Case(Path, Path("in/box"), "in/box", {"type": "string", "format": "path"}),
    "Enum": Case(Color, Color.RED, "red", {"$ref": "#/$defs/Color"}),
    "bytes": Case(bytes, b"\x00\xff", "AP8=", {"type": "string", "contentEncoding": "base64"}),
    "list[int]": Case(list[int], [1, 2], [1, 2], {"type": "array", "items": WHOLE}),
    "set[int]": Case(set[int], {1, 2}, [1, 2], {"type": "array", "items": WHOLE, "uniqueItems": True}),
    "frozenset[str]": Case(frozenset[str], frozenset({"a"}), ["a"], {"type": "array", "items": TEXT, "uniqueItems": True}),
    "tuple[int, str]": Case(
        tuple[int, str],
        (1, "a"),
        [1, "a"],
        {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [WHOLE, TEXT], "items": False},
    ),
    "tuple[int, ...]": Case(tuple[int, ...], (1, 2, 3), [1, 2, 3], {"type": "array", "items": WHOLE}),
    "dict[str, int]": Case(dict[str, int], {"a": 1}, {"a": 1}, {"type": "object", "additionalProperties": WHOLE}),
    "dict[int, datetime]": Case(
        dict[int, datetime], {1: NOON}, {"1": "2026-03-01T12:30:05.250000Z"}, {"type": "object", "additionalProperties": MOMENT}
    ),
    "dataclass": Case(Line, Line("tea", Decimal("1.5")), {"sku": "tea", "amount": "1.5"}, {"$ref": "#/$defs/Line"}),
    "list[dataclass]": Case(
        list[Line], [Line("tea")], [{"sku": "tea", "amount": "1"}], {"type": "array", "items": {"$ref": "#/$defs/Line"}}
    ),
    "recursive dataclass": Case(
        Tree, Tree("a", [Tree("b")]), {"name": "a", "branches": [{"name": "b", "branches": []}]}, {"$ref": "#/$defs/Tree"}
    ),
    "TypedDict": Case(Size, {"width": 3}, {"width": 3}, {"$ref": "#/$defs/Size"}),
    "NamedTuple": Case(Point, Point(1, 2), [1, 2], {"$ref": "#/$defs/Point"}),
    "Struct": Case(Mail, Mail("a@b.c", NOON), {"to": "a@b.c", "at": "2026-03-01T12:30:05.250000Z"}, {"$ref": "#/$defs/Mail"}),
    "pydantic model": Case(
        Order,
        Order(placedAt=NOON, parts=[Part(amount=Decimal("2.50"))]),
        {"placedAt": "2026-03-01T12:30:05.250000Z", "parts": [{"amount": "2.50"}]},
        {"$ref": "#/$defs/Order"},
    ),
    "Literal": Case(Literal["a", "b"], "a", "a", {"enum": ["a", "b"]}),
    "Optional": Case(datetime | None, None, None, {"anyOf": [MOMENT, {"type": "null"}]}),
    "datetime | timedelta": Case(datetime | timedelta, timedelta(seconds=5), "PT5S", {"anyOf": [MOMENT, SPAN]}),
    "str | datetime": Case(str | datetime, NOON, "2026-03-01T12:30:05.250000Z", {"anyOf": [MOMENT, TEXT]}),
    "Line | Tree": Case(
        Line | Tree, Tree("a"), {"name": "a", "branches": []}, {"anyOf": [{"$ref": "#/$defs/Line"}, {"$ref": "#/$defs/Tree"}]}
    ),
    "int | str": Case(int | str, 3, 3, {"anyOf": [WHOLE, TEXT]}),
    "Annotated": Case(Annotated[int, msgspec.Meta(ge=1, le=9)], 3, 3, {"type": "integer", "minimum": 1, "maximum": 9}),
}

PARAMS = {f"p{index}": case.value for index, case in enumerate(TABLE.values())}


def one(kind: Any) -> Any:
    """Return a function with one parameter of a type."""

    def takes(value): ...

    takes.__annotations__["value"] = kind
    return takes


def _differing(params: dict[str, Any]) -> list[str]:
    """Return which values did not arrive as they were sent."""
    kinds = list(TABLE)
    return [kinds[int(name[1:])] for name, value in params.items() if value != PARAMS[name] or type(value) is not type(PARAMS[name])]


def all_of_them(ctx: Context, **params: Any) -> dict[str, Any]:
    """Say which params arrived as something else, here and in the Context."""
    return {"arrived": len(params), "differing": _differing(params), "in the context": _differing(ctx.params)}


async def all_of_them_async(ctx: Context, **params: Any) -> dict[str, Any]:
    """Do the same on an event loop."""
    return all_of_them(ctx, **params)


def _sign(function: Any) -> None:
    """Give a function the parameters of the table in the place of **params."""
    by_name = inspect.Parameter.KEYWORD_ONLY
    named = [inspect.Parameter(f"p{index}", by_name, annotation=case.kind) for index, case in enumerate(TABLE.values())]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Context)
    function.__signature__ = inspect.Signature([context, *named])


_sign(all_of_them)
_sign(all_of_them_async)


def stamped(at: datetime) -> Mail:
    """Return a Struct."""
    return Mail("a@b.c", at + timedelta(hours=1))


def priced() -> dict[str, Any]:
    """Return what JSON has no words for, without saying so."""
    return {"sum": Decimal("1.10"), "paths": {Path("a")}, "line": Line("tea"), "order": TABLE["pydantic model"].value}


class OutOfStockError(Exception):
    """An error of an application."""


class SoldOutError(OutOfStockError):
    """A special case of it."""


def raises(what: str) -> None:
    """Raise the error that a name stands for."""
    raise _error(what)


async def raises_async(what: str) -> None:
    """Do the same on an event loop."""
    raise _error(what)


def _error(what: str) -> BaseException:
    return {
        "sold out": SoldOutError("no tea"),
        "connection": ConnectionResetError("gone"),
        "value": ValueError("nonsense"),
        "other": KeyError("other"),
        "permanent": PermanentError("never"),
        "transient": TransientError("later"),
        "retry": Retry("again", after=0),
        "exit": SystemExit(3),
    }[what]
