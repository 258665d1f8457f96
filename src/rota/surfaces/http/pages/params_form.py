"""A form for params, built from the JSON Schema of a handler: one field for each parameter.

A field that comes back as it was shown keeps the value that was there, also an absent one. So an unchanged form changes nothing, and
defaults are not stored unless they were before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import StrEnum
from hashlib import blake2b
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from rota.errors import InvalidOption
from rota.model.local_time import field_text, read_moment

PREFIX = "p"
"""The first step of the names of all fields, so that a parameter may be called `csrf` or `priority`."""
FIELDS_MAX = 200
"""Parameters of one form, nested ones included; a schema with more is edited as JSON."""
DEPTH_MAX = 5
"""Objects inside objects; a deeper one is edited as JSON."""
LONG = 80
"""Characters of a text that is shown in several lines."""
LONG_LIMIT = 200
"""A text that may be this long is shown in several lines."""
SHOWN_MAX = 60
"""Characters of a wrong value that an error repeats."""
DIGITS_MAX = 400

FORMATS: dict[str, tuple[Any, str]] = {
    "uuid": (UUID, "UUID"),
    "decimal": (Decimal, "decimal number"),
    "duration": (timedelta, "ISO 8601 duration, such as PT5M"),
    "time": (time, "time, such as 08:30:00"),
    "date": (date, "date, such as 2026-11-15"),
    "date-time": (datetime, "date and time, such as 2026-11-15T08:00:00"),
}
"""Formats of text: the type that reads it, and the words for it."""
HINTS = {"path": "path", "email": "e-mail address", "uri": "URL"}
_INTEGER = re.compile(r"[+-]?\d+")
_PLACE = re.compile(r"params((?:\.\w+)+)|parameter '(\w+)'")


class Kind(StrEnum):
    """How a value is entered."""

    CHOICE = "choice"
    CHECK = "check"
    INTEGER = "integer"
    NUMBER = "number"
    DATE = "date"
    MOMENT = "moment"
    TEXT = "text"
    LINES = "lines"
    OBJECT = "object"
    JSON = "json"


class Field(msgspec.Struct, kw_only=True):
    """One parameter: its schema, the shown value, and the typed one."""

    path: tuple[str, ...]
    kind: Kind
    schema: Mapping[str, Any]
    required: bool
    """Its object can't be without it."""
    nullable: bool
    must_fill: bool
    """Its object is required too, so that a browser may insist on it."""
    id: str
    base: Any = UNSET
    """The value that is there."""
    default: Any = UNSET
    """The value that applies while none is there."""
    children: list[Field] = []
    choices: list[tuple[str, str]] = []
    """Of a select: values as JSON, and their words."""
    text: str = ""
    """The content of the field: the shown value at first, then the typed one."""
    error: str = ""
    zone: tzinfo = UTC
    """The zone of a moment."""
    remark: str = ""
    """What has to be said about the value that was typed."""

    @property
    def name(self) -> str:
        """The parameter's own name."""
        return self.path[-1]

    @property
    def place(self) -> str:
        """The parameter as errors name it: order.customer."""
        return ".".join(self.path)

    @property
    def key(self) -> str:
        """The name of the form's field."""
        return "/".join((PREFIX, *(step.replace("~", "~0").replace("/", "~1") for step in self.path)))

    @property
    def description(self) -> str:
        """The description that its author gave."""
        return str(self.schema.get("description") or "")

    @property
    def hint(self) -> str:
        """The values that fit, and the effect of an empty field."""
        parts = [_bounds(self.schema), _format_words(self)]
        if self.kind not in {Kind.CHECK, Kind.CHOICE, Kind.OBJECT} and not self.required and self.default is not UNSET:
            parts.append("if empty: no value" if self.default is None else f"if empty: {_brief(self.default)}")
        return "; ".join(part for part in parts if part)

    @property
    def attributes(self) -> dict[str, Any]:
        """HTML attributes that state the values that fit."""
        if self.kind in {Kind.INTEGER, Kind.NUMBER}:
            return _number_attributes(self.kind, self.schema)
        if self.kind in {Kind.TEXT, Kind.LINES}:
            lengths = {"minlength": self.schema.get("minLength"), "maxlength": self.schema.get("maxLength")}
            mode = {"inputmode": "decimal"} if self.schema.get("format") == "decimal" else {}
            return {name: value for name, value in lengths.items() if isinstance(value, int)} | mode
        return {}

    @property
    def notes(self) -> list[str]:
        """The ids of the texts that describe it."""
        return [f"{self.id}-wrong"] * bool(self.error) + [f"{self.id}-hint"] * bool(self.description or self.hint)

    @property
    def rows(self) -> int:
        """How many lines of its text are seen at once."""
        return min(12, max(4 if self.kind is Kind.LINES else 2, self.text.count("\n") + 2))

    def walk(self) -> Iterator[Field]:
        """Yield the field and all inside it."""
        yield self
        for child in self.children:
            yield from child.walk()


class ParamsForm:
    """The form for the params of one handler."""

    def __init__(self, root: Field) -> None:
        """Made by `form_for`."""
        self.root = root
        self._shown = {field.key: field.text for field in root.walk()}

    @property
    def fields(self) -> list[Field]:
        """One field for each parameter."""
        return self.root.children

    @property
    def errors(self) -> list[Field]:
        """The fields that were refused."""
        return [field for field in self.root.walk() if field.error]

    def read(self, typed: Mapping[str, str]) -> dict[str, Any]:
        """Return the params that were typed. What can't be read is left out and has its `error` set."""
        for field in self.root.walk():
            field.text, field.error = typed.get(field.key, "").replace("\r\n", "\n"), ""
        value = self._object(self.root)
        return value if isinstance(value, dict) else {}

    def fill(self, params: Mapping[str, Any]) -> bool:
        """Let the fields hold other params than those that are there; say whether all of them can be shown."""
        self._fill(self.root, params)
        read = self.read({field.key: field.text for field in self.root.walk()})
        for field in self.root.walk():
            field.error = ""
        return is_same(read, params)

    def _fill(self, parent: Field, values: Mapping[str, Any]) -> None:
        for field in parent.children:
            value = values.get(field.name, UNSET)
            if value is UNSET:
                for each in field.walk():
                    each.text = self._shown[each.key] if field.base is UNSET else ""
                    _choose_anew(each)
            elif field.kind is Kind.OBJECT:
                self._fill(field, value if isinstance(value, dict) else {})
            elif _fits(field, value):
                field.text = _text_of(field, value)
                field.kind = _one_or_more_lines(field)
                _choose_anew(field)

    def blame(self, message: str) -> None:
        """Show a refusal of the whole params beside the field that it names."""
        found = _PLACE.search(message)
        if found is None:
            return
        path = tuple((found[1] or f".{found[2]}")[1:].split("."))
        named = [field for field in self.root.walk() if field.path and path[: len(field.path)] == field.path]
        if named:
            named[-1].error = message

    def _value(self, field: Field) -> Any:
        """Return what was typed into a field; UNSET if it is to be absent."""
        if field.kind is Kind.OBJECT:
            return self._object(field)
        if self._is_unchanged(field) and (field.base is not UNSET or not field.required):
            return field.base
        if field.kind is Kind.CHECK:
            return field.text == "true"
        if not field.text.strip() and (not field.text or field.kind not in {Kind.TEXT, Kind.LINES}):
            return self._empty(field)
        try:
            return _parsed(field)
        except ValueError as error:
            field.error = f"{field.place}: {error}"
            return UNSET

    def _empty(self, field: Field) -> Any:
        if not field.required:
            return UNSET
        if field.nullable:
            return None
        field.error = f"{field.place}: required"
        return UNSET

    def _object(self, field: Field) -> Any:
        """Return the object of a fieldset. One that is not required is absent while nothing is entered in it."""
        leaves = [each for each in field.walk() if each.kind is not Kind.OBJECT]
        is_unchanged = all(self._is_unchanged(each) for each in leaves)
        if field.path and (field.nullable or not field.required):
            if is_unchanged and not isinstance(field.base, dict):
                return None if field.required and field.base is UNSET else field.base
            if not is_unchanged and not any(each.text.strip() for each in leaves):
                return None if field.required else UNSET
        present = next((value for value in (field.base, field.default) if isinstance(value, dict)), {})
        named = {child.name for child in field.children}
        built = {name: value for name, value in present.items() if name not in named}
        for child in field.children:
            value = self._value(child)
            if value is not UNSET:
                built[child.name] = value
        return built

    def _is_unchanged(self, field: Field) -> bool:
        # A browser may leave out seconds that are zero.
        text = _moment_text(field, field.text) if field.kind is Kind.MOMENT else field.text
        return self._shown[field.key] in {text, field.text}


def form_for(
    schema: Mapping[str, Any] | None,
    params: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    zone: tzinfo = UTC,
) -> ParamsForm | None:
    """Return the form for params, filled with those that are there; None for a handler whose params are edited as JSON.

    `defaults` are a template's own, which come before those of the handler. Moments are shown and typed as times of the zone.
    """
    if not schema or not isinstance(schema.get("properties"), dict) or schema.get("additionalProperties") is not False:
        return None
    builder = _Builder(schema.get("$defs") or {}, zone)
    root = Field(path=(), kind=Kind.OBJECT, schema=schema, required=True, nullable=False, must_fill=True, id="p0", base=dict(params or {}))
    # Params that the handler does not have stay: whether they are refused is not the form's to decide.
    root.children = builder.children(root, frozenset(), defaults or {})
    if builder.count > FIELDS_MAX or (root.children and all(not _is_typed(field.schema) for field in root.children)):
        return None
    return ParamsForm(root)


def is_same(one: object, other: object) -> bool:
    """Say whether two values are the same JSON: for Python 1 and True are equal."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def digest_of(params: object) -> str:
    """Return what tells params from others, so that a form can say which it was made for."""
    return blake2b(msgspec.json.encode(params, order="sorted"), digest_size=12).hexdigest()


class _Builder:
    """Builds the fields of one schema."""

    def __init__(self, definitions: Mapping[str, Any], zone: tzinfo) -> None:
        self._definitions = definitions
        self._zone = zone
        self.count = 0

    def children(self, parent: Field, above: frozenset[str], defaults: Mapping[str, Any]) -> list[Field]:
        """Return the fields of an object."""
        required = set(parent.schema.get("required") or ()) - defaults.keys()
        present = parent.base if isinstance(parent.base, dict) else parent.default if isinstance(parent.default, dict) else {}
        found = []
        for name, schema in parent.schema["properties"].items():
            if self.count > FIELDS_MAX:
                break
            self.count += 1
            flat, references, nullable = self._flat(schema if isinstance(schema, dict) else {}, above)
            field = Field(
                path=(*parent.path, str(name)),
                kind=_kind(flat, depth=len(parent.path) + 1),
                schema=flat,
                id=f"p{self.count}",
                nullable=nullable,
                required=name in required,
                must_fill=parent.must_fill and name in required and not nullable,
                base=present.get(name, UNSET),
                default=defaults[name] if name in defaults else flat.get("default", UNSET),
                zone=self._zone,
            )
            self._fill(field, references)
            found.append(field)
        return found

    def _fill(self, field: Field, above: frozenset[str]) -> None:
        """Choose how a field shows its value, and add the fields inside it."""
        if field.kind is Kind.CHECK and (field.nullable or (not field.required and not isinstance(field.default, bool))):
            field.kind = Kind.CHOICE
        if not _fits(field, field.base) or not _fits(field, field.default):
            field.kind = Kind.JSON
        if field.kind is Kind.OBJECT:
            field.children = self.children(field, above, {})
            return
        field.text = _shown(field)
        field.kind = _one_or_more_lines(field)
        if field.kind is Kind.CHOICE:
            field.choices = _choices(field)
        # A text may be empty if it was before.
        field.must_fill = field.must_fill and field.kind is not Kind.CHECK and field.base != ""

    def _flat(self, schema: dict[str, Any], above: frozenset[str]) -> tuple[dict[str, Any], frozenset[str], bool]:
        """Return a schema without references and without null, the references that led to it, and whether it may be null.

        One that is inside itself comes back as one that nothing is known of.
        """
        nullable = False
        for _ in range(20):
            own = {name: value for name, value in schema.items() if name not in {"$ref", "anyOf", "oneOf", "allOf"}}
            if "$ref" in schema:
                reference = str(schema["$ref"]).rpartition("/")[2]
                if reference in above:
                    return own, above, nullable
                above |= {reference}
                schema = {**_object_of(self._definitions.get(reference)), **own}
                continue
            options = next((schema[word] for word in ("anyOf", "oneOf", "allOf") if isinstance(schema.get(word), list)), None)
            if options is None:
                return schema, above, nullable
            others = [each for each in options if _object_of(each).get("type") != "null"]
            nullable = nullable or len(others) < len(options)
            if len(others) != 1:
                return own, above, nullable
            schema = {**_object_of(others[0]), **own}
        return {}, above, nullable


def _object_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_typed(schema: Mapping[str, Any]) -> bool:
    return any(word in schema for word in ("type", "enum", "const"))


def _kind(schema: Mapping[str, Any], *, depth: int) -> Kind:
    kind = schema.get("type")
    if isinstance(schema.get("enum"), list) or "const" in schema:
        return Kind.CHOICE
    if kind == "object":
        extra = schema.get("additionalProperties", False)
        is_known = isinstance(schema.get("properties"), dict) and bool(schema["properties"]) and extra is False
        return Kind.OBJECT if is_known and depth < DEPTH_MAX else Kind.JSON
    if kind == "string":
        limit = schema.get("maxLength")
        plain = Kind.LINES if isinstance(limit, int) and limit >= LONG_LIMIT else Kind.TEXT
        return {"date": Kind.DATE, "date-time": Kind.MOMENT}.get(str(schema.get("format")), plain)
    return {"boolean": Kind.CHECK, "integer": Kind.INTEGER, "number": Kind.NUMBER}.get(str(kind), Kind.JSON)


def _fits(field: Field, value: Any) -> bool:
    """Say whether a kind of field can show a value; another is shown as JSON."""
    if value is UNSET or value is None or field.kind in {Kind.CHOICE, Kind.JSON}:
        return True
    kinds: dict[Kind, tuple[type, ...]] = {Kind.CHECK: (bool,), Kind.INTEGER: (int,), Kind.NUMBER: (int, float), Kind.OBJECT: (dict,)}
    wanted = kinds.get(field.kind, (str,))
    if not isinstance(value, wanted) or (isinstance(value, bool) and field.kind is not Kind.CHECK):
        return False
    if field.kind in {Kind.DATE, Kind.MOMENT}:
        return _moment_text(field, str(value)) is not None
    # A browser takes these out of a text, so that it would come back changed.
    return not isinstance(value, str) or not re.search(r"[\r\0]", value)


def _shown(field: Field) -> str:
    """Return what a field holds at first: the value that is there, or the default."""
    if field.base is not UNSET:
        return _text_of(field, field.base)
    return "" if field.default is UNSET or (field.default is None and field.kind is Kind.JSON) else _text_of(field, field.default)


def _text_of(field: Field, value: Any) -> str:
    """Return a value as a field holds it."""
    if value is None:
        return "null" if field.kind is Kind.JSON or (field.kind is Kind.CHOICE and _offers_null(field)) else ""
    if field.kind is Kind.CHECK:
        return "true" if value else ""
    if field.kind in {Kind.DATE, Kind.MOMENT}:
        return _moment_text(field, value) or ""
    if field.kind is Kind.JSON:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return msgspec.json.encode(value).decode() if field.kind is Kind.CHOICE or not isinstance(value, str) else value


def _offers_null(field: Field) -> bool:
    """Say whether null is one of the choices. Where it is the default, or there is none, an empty choice means the same."""
    return None in (field.schema.get("enum") or ()) or (field.nullable and field.default is not UNSET and field.default is not None)


def _one_or_more_lines(field: Field) -> Kind:
    is_long = "\n" in field.text or len(field.text) > LONG
    return Kind.LINES if field.kind is Kind.TEXT and is_long else field.kind


def _moment_text(field: Field, value: str) -> str | None:
    """Return a date, or a moment in the field's zone to the second, as browsers show it; None if it is none."""
    try:
        if field.kind is Kind.DATE:
            return date.fromisoformat(value).isoformat()
        at = datetime.fromisoformat(value)
        return field_text(at, field.zone) if at.tzinfo else f"{at:%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError):
        return None


def _choose_anew(field: Field) -> None:
    """Let a choice that has no value any more have an empty one: a browser sends the first if none is chosen."""
    if field.kind is Kind.CHOICE:
        field.choices = _choices(field)


def _choices(field: Field) -> list[tuple[str, str]]:
    values = [field.schema["const"]] if "const" in field.schema else list(field.schema.get("enum") or (True, False))
    found = [(msgspec.json.encode(value).decode(), _choice_words(value)) for value in values]
    if field.text and field.text not in dict(found):
        found.append((field.text, f"{_choice_words(msgspec.json.decode(field.text))} (not one of the values)"))
    null = _offers_null(field)
    if null and "null" not in dict(found):
        found.append(("null", "no value"))
    if not field.text or (field.nullable and not null):
        found.insert(0, ("", "Choose" if field.must_fill else "not given" if null else "no value"))
    return found


def _choice_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "no value" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _parsed(field: Field) -> Any:
    """Return the value of what was typed, or raise ValueError with what is wrong."""
    if field.kind is Kind.CHOICE:
        return _chosen(field)
    if field.kind is Kind.JSON:
        try:
            return msgspec.json.decode(field.text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from None
    if field.kind in {Kind.INTEGER, Kind.NUMBER}:
        return _in_bounds(_number(field.kind, field.text.strip()), field.schema)
    if field.kind is Kind.DATE:
        return _formatted(field.text.strip(), "date")
    if field.kind is Kind.MOMENT:
        return _moment(field)
    length, least, most = len(field.text), field.schema.get("minLength"), field.schema.get("maxLength")
    if (isinstance(least, int) and length < least) or (isinstance(most, int) and length > most):
        raise ValueError(f"expected {_bounds(field.schema)}, got {length}")
    form = str(field.schema.get("format"))
    return _formatted(field.text.strip() if form in FORMATS else field.text, form)


def _chosen(field: Field) -> Any:
    if field.text not in dict(field.choices):
        raise ValueError(f"expected one of {', '.join(words for _, words in field.choices)}, got {_typed(field.text)}")
    return msgspec.json.decode(field.text)


def _number(kind: Kind, text: str) -> float:
    try:
        if len(text) > DIGITS_MAX or "_" in text:
            raise ValueError
        if _INTEGER.fullmatch(text):
            value: float = int(text)
        else:
            value = float(text)
            value = int(value) if kind is Kind.INTEGER and value.is_integer() else value
        if value in {float("inf"), float("-inf")} or value != value or (kind is Kind.INTEGER and isinstance(value, float)):  # noqa: PLR0124 - NaN
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError(f"expected {'a whole number' if kind is Kind.INTEGER else 'a number'}, got {_typed(text)}") from None
    return value


def _in_bounds(value: float, schema: Mapping[str, Any]) -> float:
    checks: dict[str, Callable[[float], bool]] = {
        "minimum": lambda bound: value >= bound,
        "maximum": lambda bound: value <= bound,
        "exclusiveMinimum": lambda bound: value > bound,
        "exclusiveMaximum": lambda bound: value < bound,
    }
    for word, holds in checks.items():
        bound = schema.get(word)
        if isinstance(bound, int | float) and not isinstance(bound, bool) and not holds(bound):
            raise ValueError(f"expected {_bounds(schema)}, got {_brief(value)}")
    return value


def _moment(field: Field) -> str:
    """Return a moment as it is stored: in UTC, unless an offset was typed."""
    text = field.text.strip()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected {FORMATS['date-time'][1]}, got {_typed(text)}") from None
    if at.tzinfo is not None and at.utcoffset() != timedelta(0):
        return at.isoformat()
    try:
        reading = read_moment(text, field.zone, day=True)
    except InvalidOption as error:
        raise ValueError(str(error)) from None
    field.remark = reading.note
    return f"{reading.at.replace(tzinfo=None).isoformat()}Z"


def _formatted(text: str, form: str) -> str:
    """Return a text that has its format, or raise ValueError."""
    if form in FORMATS:
        kind, words = FORMATS[form]
        try:
            msgspec.convert(text, kind)
        except msgspec.ValidationError:
            raise ValueError(f"expected {words}, got {_typed(text)}") from None
    return text


def _number_attributes(kind: Kind, schema: Mapping[str, Any]) -> dict[str, Any]:
    whole = kind is Kind.INTEGER
    found: dict[str, Any] = {"step": 1 if whole else "any"}
    for name, word, exclusive, step in (("min", "minimum", "exclusiveMinimum", 1), ("max", "maximum", "exclusiveMaximum", -1)):
        bound, beyond = schema.get(word), schema.get(exclusive)
        if bound is None and isinstance(beyond, int | float):
            bound = beyond + step if whole and isinstance(beyond, int) else beyond
        # A browser counts steps from the lower bound: from 0.5 no whole number would be one.
        if isinstance(bound, int) or (isinstance(bound, float) and not whole):
            found[name] = bound
    return found


def _bounds(schema: Mapping[str, Any]) -> str:
    """Return the bounds of a number, or of the length of a text, in words."""
    if schema.get("type") == "string":
        least, most, unit = schema.get("minLength"), schema.get("maxLength"), " characters"
        return _range(least, most, unit) if isinstance(least, int) or isinstance(most, int) else ""
    least, most = schema.get("minimum"), schema.get("maximum")
    parts = [_range(least, most, "") if least is not None or most is not None else ""]
    parts += [f"more than {schema['exclusiveMinimum']}" if "exclusiveMinimum" in schema else ""]
    parts += [f"less than {schema['exclusiveMaximum']}" if "exclusiveMaximum" in schema else ""]
    parts += [f"a multiple of {schema['multipleOf']}" if "multipleOf" in schema else ""]
    return " and ".join(part for part in parts if part)


def _range(least: object, most: object, unit: str) -> str:
    if least is None:
        return f"at most {most}{unit}"
    return f"at least {least}{unit}" if most is None else f"{least} to {most}{unit}"


def _format_words(field: Field) -> str:
    if field.kind is Kind.MOMENT:
        return str(field.zone)
    if field.kind is Kind.JSON:
        words = {"array": "JSON array", "object": "JSON object"}
        return words.get(str(field.schema.get("type")), "JSON")
    if field.kind not in {Kind.TEXT, Kind.LINES}:
        return ""
    form = str(field.schema.get("format"))
    return FORMATS[form][1] if form in FORMATS else "base64" if field.schema.get("contentEncoding") == "base64" else HINTS.get(form, "")


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _typed(text: str) -> str:
    return repr(text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…")
