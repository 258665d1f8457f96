"""Params checked by a JSON Schema that a codec made, where the handler itself is not at hand.

Never stricter than the codec: a job that would run is not refused. What a schema does not tell for certain is accepted, such as the keys of
a `dict[int, …]` or the fields of a pydantic model, whose validators may take more than its schema says.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, convert

from rota.errors import InvalidParams
from rota.model.params import MODEL, misfit, missing_param, shown, unknown_param

FORMATS = {"date-time": datetime, "date": date, "time": time, "duration": timedelta, "uuid": UUID, "decimal": Decimal}
PLAIN = {"integer": int, "number": float, "string": str, "boolean": bool, "null": None}
BOUNDS = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
    "minItems": "min_length",
    "maxItems": "max_length",
    "minProperties": "min_length",
    "maxProperties": "max_length",
}
"""Words of JSON Schema, and of msgspec."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a value does not fit, and where in it."""

    path: str
    words: str

    def below(self, step: str) -> Refusal:
        """Return it as seen from the object or array around the value."""
        return Refusal(step + self.path, self.words)


class SchemaCheck:
    """Checks params by one schema. Keeps what it has worked out of the schema, and may be shared by threads."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Take the schema of a params object."""
        self._schema = schema
        self._definitions: Mapping[str, Any] = schema.get("$defs", {})
        self._types: dict[int, Any] = {}
        """Types of msgspec that parts of the schema are about, by the part's identity: the schema is kept, so it stays the same."""

    def refuse_misfit(self, params: Mapping[str, Any]) -> None:
        """Refuse params in their JSON form that the handler could not be called with, naming the place."""
        schema, called = self._schema, str(self._schema.get("title", "the handler"))
        for name in schema.get("required", ()):
            if name not in params:
                raise missing_param(called, name)
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name in params:
            if rest is False and name not in known:
                raise unknown_param(called, name, known)
        self.refuse_values(params)

    def refuse_values(self, params: Mapping[str, Any]) -> None:
        """Refuse values that do not fit, where not all params are there yet. Names are not checked."""
        try:
            refusal = next(self._refusals_of_members(self._schema, params, {}), None)
        except RecursionError:
            return  # the codec, which is written in C, can go deeper
        if refusal is not None:
            raise InvalidParams(f"params{refusal.path}: {refusal.words}")

    def _refusal(self, schema: Any, value: object, tried: dict[tuple[int, int], Refusal | None]) -> Refusal | None:
        """Return why a value does not fit; None if it does, or if the schema does not tell."""
        schema = self._resolved(schema)
        if not schema or schema.get("$comment") == MODEL:
            return None
        if "anyOf" in schema:
            return self._refusal_of_union(schema, value, tried)
        if (refusal := self._refusal_by_type(schema, value)) is not None:
            return refusal
        if isinstance(value, dict):
            lacking = (name for name in schema.get("required", ()) if name not in value and not _is_tag(schema, name))
            if (name := next(lacking, None)) is not None:
                return Refusal("", f"object missing required field {name}")
            return next(self._refusals_of_members(schema, value, tried), None)
        if isinstance(value, list):
            return next(self._refusals_of_items(schema, value, tried), None)
        return None

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Return the schema that a reference is to; an empty one, which anything fits, for what can't be read."""
        seen = 0
        while isinstance(schema, dict) and "$ref" in schema and seen <= len(self._definitions):
            schema, seen = self._definitions.get(str(schema["$ref"]).rpartition("/")[2]), seen + 1
        return schema if isinstance(schema, dict) else {}

    def _refusals_of_members(
        self, schema: Mapping[str, Any], value: Mapping[str, Any], tried: dict[tuple[int, int], Refusal | None]
    ) -> Iterator[Refusal]:
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, inner in value.items():
            if name not in known and rest is False and schema is not self._schema:
                yield Refusal("", f"object contains unknown field {name}")
            elif (refusal := self._refusal(known.get(name, rest), inner, tried)) is not None:
                yield refusal.below(f".{name}")

    def _refusals_of_items(
        self, schema: Mapping[str, Any], value: list[Any], tried: dict[tuple[int, int], Refusal | None]
    ) -> Iterator[Refusal]:
        first, rest = schema.get("prefixItems", ()), schema.get("items")
        for index, inner in enumerate(value):
            if (refusal := self._refusal(first[index] if index < len(first) else rest, inner, tried)) is not None:
                yield refusal.below(f"[{index}]")

    def _refusal_of_union(self, schema: dict[str, Any], value: object, tried: dict[tuple[int, int], Refusal | None]) -> Refusal | None:
        if self._type(schema) is not Any:
            return self._refusal_by_type(schema, value)
        # Kept for the whole check: members that contain each other would be tried again and again at every level.
        key = (id(schema), id(value))
        if key not in tried:
            tried[key] = self._first_refusal(schema["anyOf"], value, tried)
        return tried[key]

    def _first_refusal(self, members: Iterable[Any], value: object, tried: dict[tuple[int, int], Refusal | None]) -> Refusal | None:
        refusals = []
        for member in members:
            refusal = self._refusal(member, value, tried)
            if refusal is None:
                return None
            refusals.append(refusal)
        deep = [refusal for refusal in refusals if refusal.path]
        if deep:
            return deep[0]
        wanted = dict.fromkeys(refusal.words.removeprefix("expected ").partition(", got ")[0] for refusal in refusals)
        return Refusal("", f"expected {' or '.join(wanted)}, got {shown(value)}")

    def _refusal_by_type(self, schema: dict[str, Any], value: object) -> Refusal | None:
        kind = self._type(schema)
        if kind is Any:
            return None
        try:
            convert(value, kind)
        except msgspec.ValidationError as error:
            return Refusal("", misfit(error, value, "").removeprefix(": "))
        return None

    def _type(self, schema: dict[str, Any]) -> Any:
        """Return the type of msgspec that a value itself must have, whatever is inside of it; Any if the schema does not tell."""
        if id(schema) not in self._types:
            self._types[id(schema)] = _usable(self._union_type(schema["anyOf"]) if "anyOf" in schema else _type_of(schema))
        return self._types[id(schema)]

    def _union_type(self, members: list[Any]) -> Any:
        """Return a union of plain values; Any if a member is something else."""
        resolved = [self._resolved(member) for member in members]
        if any(each.get("type") in {"array", "object"} or each.get("$comment") == MODEL for each in resolved):
            return Any
        types = [self._type(member) if member else Any for member in resolved]
        return Any if Any in types else typing.Union[tuple(types)]  # noqa: UP007 - built from values


def _type_of(schema: dict[str, Any]) -> Any:
    if "enum" in schema or "const" in schema:
        return Literal[tuple(schema.get("enum", [schema.get("const")]))]
    kind = schema.get("type")
    if kind == "object":
        return _bounded(dict, schema)
    if kind == "array":
        count = len(schema.get("prefixItems", ()))
        is_tuple = count and schema.get("minItems") == schema.get("maxItems") == count
        return tuple[(Any,) * count] if is_tuple else _bounded(list, schema)  # type: ignore[misc] # built from a value
    if kind == "string" and "contentEncoding" in schema:
        return bytes  # its bounds count letters of base64
    if kind == "string" and schema.get("format") in FORMATS:
        return FORMATS[schema["format"]]
    return _bounded(PLAIN[kind], schema) if kind in PLAIN else Any


def _bounded(kind: Any, schema: Mapping[str, Any]) -> Any:
    bounds = {BOUNDS[word]: bound for word, bound in schema.items() if word in BOUNDS}
    return Annotated[kind, Meta(**bounds)] if bounds else kind


def _usable(kind: Any) -> Any:
    """Return a type that msgspec can check by; Any for another, such as a union that it can't tell apart."""
    try:
        msgspec.json.Decoder(kind)
    except TypeError:
        return Any
    return kind


def _is_tag(schema: Mapping[str, Any], name: str) -> bool:
    """Say whether a field may be the tag of a Struct, which need not be there outside of a union."""
    field = schema.get("properties", {}).get(name, {})
    return isinstance(field, dict) and len(field.get("enum", ())) == 1
