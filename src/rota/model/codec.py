"""Parameters and results by annotation: checked and encoded at enqueue, decoded before the call, described by one JSON Schema."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import NODEFAULT, UNSET, convert
from msgspec.inspect import (
    AnyType,
    CollectionType,
    CustomType,
    DataclassType,
    DateTimeType,
    DictType,
    EnumType,
    Field,
    Metadata,
    NamedTupleType,
    StrType,
    StructType,
    TimeType,
    TupleType,
    Type,
    TypedDictType,
    UnionType,
    type_info,
)
from msgspec.structs import asdict

from rota.errors import InvalidHandler, InvalidParams
from rota.model.lanes import ParamNames
from rota.model.params import (
    EMPTY,
    MISSING,
    MODEL,
    MisfitError,
    check_size,
    decode,
    decode_params,
    encode,
    encode_hook,
    encode_params,
    is_model,
    misfit,
    not_an_object,
    shown,
)

if TYPE_CHECKING:
    from rota.model.handler import Handler

CONTAINERS = {
    *(list, set, frozenset, tuple, dict),
    *(abc.Collection, abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet, abc.Mapping, abc.MutableMapping),
}
"""Types whose arguments are looked at; the fields of classes are msgspec's own matter."""
NOT_KEYS = (CollectionType, TupleType, DictType, DataclassType, NamedTupleType, StructType)
PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types whose JSON form fits wherever the value does; a Decimal fits a float, but its JSON form, text, does not."""
REMEDY = "annotate it with a type that can, such as a dataclass, or with Any"


class Shape(msgspec.Struct, frozen=True):
    """The annotations of one signature, in the forms that checking and decoding need."""

    fields: tuple[tuple[str, Any], ...]
    """Names and types, the Context and **names left out."""
    rest: Any
    """Type of what **names takes; MISSING if there is no such parameter."""
    struct: type[msgspec.Struct]
    """The params object as a type."""
    decode: Callable[[str], Any]
    optional: tuple[str, ...]
    """Names that may be absent; their defaults are applied by the call itself."""
    is_simple: bool
    """Neither hooks nor keys that are not text are needed, which would triple the cost of a check."""
    is_free: bool
    """Any JSON under any name will do, but for those of required parameters and of the Context."""
    by_text: bool
    """msgspec takes an instance of a class (a dataclass, a model) as it is: only its JSON form shows whether its fields fit."""


class Codec:
    """Encodes, checks and decodes for one handler. Built at first use: annotations may name classes that are defined after it."""

    def __init__(self, handler: Handler) -> None:
        """Take the handler; its annotations are not looked at yet."""
        self._handler = handler

    def build(self) -> None:
        """Resolve the annotations now, or raise InvalidHandler with the parameter that can't be stored."""
        self.shape  # noqa: B018 - built by being read

    def encode(self, params: Mapping[str, Any] | None, *, limit_bytes: int = sys.maxsize) -> str:
        """Return params as JSON text, or refuse them with the place of what does not fit. Python values and their JSON forms are taken."""
        if not params:
            if self._handler.required and (params is None or isinstance(params, Mapping)):
                self._handler.check(())
            return encode_params(params, limit_bytes=limit_bytes)
        if type(params) is not dict and not isinstance(params, Mapping):
            raise not_an_object(params)
        shape = self.shape
        try:
            if shape.is_simple:
                convert(params, shape.struct)
            elif shape.is_free:
                self._handler.check(params)
            else:
                convert(params, shape.struct, str_keys=True, dec_hook=decode_hook)
        except InvalidParams:
            raise
        except Exception as error:  # noqa: BLE001 - also what a class's own __post_init__ raises
            raise self._refusal(params, error) from None
        if shape.rest is not MISSING and not shape.is_free:
            self._check_rest(params)
        text = encode(params, "params")
        if len(text) * 4 > limit_bytes:
            check_size(text, limit_bytes)
        if shape.by_text or not PLAIN.issuperset(map(type, params.values())):
            self.decode(text)
        return text

    def check_some(self, params: Mapping[str, Any], called: str = "params") -> None:
        """Refuse values that do not fit, where not all params are there yet. Names are not checked."""
        text = encode_params(params, limit_bytes=sys.maxsize, name=called)
        for name, kind in self.shape.fields:
            if name in params and kind is not Any:
                one = msgspec.defstruct("Params", [(name, kind)])
                try:
                    convert(params, one, str_keys=True, dec_hook=decode_hook)
                    msgspec.json.decode(text, type=one, dec_hook=decode_hook)
                except (msgspec.ValidationError, RecursionError) as error:
                    raise InvalidParams(misfit(error, params, called)) from None

    def decode(self, text: str) -> dict[str, object]:
        """Return what to call the function with, or refuse what does not fit. What is absent stays absent: the call applies its default."""
        if text == EMPTY and not self._handler.required:
            return {}
        shape = self.shape
        if shape.is_free:
            params = decode_params(text)
            self._handler.check(params)
            return params
        try:
            params = asdict(shape.decode(text))
        except Exception as error:  # noqa: BLE001 - also what a class's own __post_init__ raises
            raise self._refusal(decode_params(text), error) from None
        for name in shape.optional:
            if params[name] is UNSET:
                del params[name]
        return params if shape.rest is MISSING else {**self._check_rest(decode_params(text)), **params}

    def decode_result(self, text: str | None) -> object:
        """Return a stored result as the return annotation says; as plain JSON without one, or if the result does not fit it."""
        kind = self._result_type
        if text is None or kind is Any:
            return decode(text)
        try:
            return msgspec.json.decode(text, type=kind, dec_hook=decode_hook)
        except Exception:  # noqa: BLE001 - also what a class's own __post_init__ raises
            return decode(text)

    @cached_property
    def digest(self) -> str:
        """Digest of the parameters' names and of which are required: the same in every process, and whatever their types are."""
        return digest_of(self.names)

    @property
    def names(self) -> ParamNames:
        """The parameters' names."""
        return ParamNames(self._handler.required, self._handler.allowed)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the params object."""
        shape = self.shape
        (reference,), definitions = msgspec.json.schema_components([shape.struct], schema_hook=schema_of, ref_template="#/$defs/{name}")
        own = definitions.pop(reference["$ref"].rpartition("/")[2])
        _state_formats(type_info(shape.struct), own, definitions)
        _open_enums(type_info(shape.struct), definitions)
        own["title"] = self._handler.name
        own["additionalProperties"] = False if shape.rest is MISSING else _schema(shape.rest)
        for name, default in self._defaults.items():
            if default is not UNSET:
                own["properties"][name] = {**own["properties"][name], "default": default}
        # A model or a member of a union brings definitions of its own, which belong to the whole.
        inner = [part.pop("$defs") for part in _parts([own, *definitions.values()]) if "$defs" in part]
        for more in inner:
            definitions |= more
        return {**own, "$defs": definitions} if definitions else own

    @cached_property
    def shape(self) -> Shape:
        """The annotations, resolved, and what is built from them."""
        fields: list[tuple[str, Any]] = []
        rest: Any = MISSING
        for parameter in self._parameters:
            kind = self._storable(parameter)
            if parameter.kind is parameter.VAR_KEYWORD:
                rest = kind
            else:
                fields.append((parameter.name, kind))
        defined = [(name, kind, UNSET if name in self._defaults else NODEFAULT) for name, kind in fields]
        struct = msgspec.defstruct("Params", defined, kw_only=True, forbid_unknown_fields=rest is MISSING, module=__name__)
        kinds = [kind for _, kind in fields]
        infos = [info for kind in (kinds if rest is MISSING else [*kinds, rest]) for info in _infos(type_info(kind))]
        return Shape(
            fields=tuple(fields),
            rest=rest,
            struct=struct,
            decode=msgspec.json.Decoder(struct, dec_hook=decode_hook).decode,
            optional=tuple(self._defaults),
            is_simple=rest is MISSING and not any(_needs_help(info) for info in infos),
            is_free=rest is Any and all(kind is Any for kind in kinds),
            by_text=any(_takes_instances(info) for info in infos),
        )

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        parameters = inspect.signature(self._handler.function).parameters.values()
        return [each for each in parameters if each.name != self._handler.context and each.kind is not each.VAR_POSITIONAL]

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """The parameters that have a default, with its JSON form; UNSET for one that has none."""
        return {each.name: _plain(each.default) for each in self._parameters if each.default is not MISSING}

    @cached_property
    def _result_type(self) -> Any:
        """What a stored result is decoded into; Any if nothing is said, or nothing that could be stored."""
        function = self._handler.function
        try:
            kind = _resolved(function, "return", inspect.signature(function).return_annotation)
            if self._handler.is_generator:
                arguments = typing.get_args(kind)
                kind = arguments[2] if len(arguments) == 3 else Any
            return _decodable(kind)
        except (NameError, TypeError, AttributeError, SyntaxError):
            return Any

    def _storable(self, parameter: inspect.Parameter) -> Any:
        """Return a parameter's annotation as msgspec can decode it, or refuse it naming the parameter."""
        where = f"{self._handler.name}(): parameter {parameter.name!r}"
        try:
            kind = _resolved(self._handler.function, parameter.name, parameter.annotation)
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            raise InvalidHandler(
                f"{where} has the annotation {parameter.annotation!r}, which can't be resolved: {error}. "
                "Define or import the name at the level of the handler's module, not under TYPE_CHECKING"
            ) from None
        try:
            kind = _decodable(kind)
        except TypeError as error:
            raise InvalidHandler(f"{where} can't be stored as JSON: {error}. Remedy: {REMEDY}") from None
        # Handlers with `times: int = None` are common enough, and None is then what others pass on.
        return typing.Optional[kind] if parameter.default is None and kind is not Any else kind  # noqa: UP045 - kind is a value

    def _check_rest(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return what **names takes of the params, converted."""
        self._handler.check_context(params)
        named = {name for name, _ in self.shape.fields}
        rest = {name: value for name, value in params.items() if name not in named}
        if self.shape.rest is Any:
            return rest
        for name, value in rest.items():
            try:
                rest[name] = convert(value, self.shape.rest, str_keys=True, dec_hook=decode_hook)
            except (msgspec.ValidationError, RecursionError) as error:
                raise InvalidParams(misfit(error, value, f"params.{name}")) from None
        return rest

    def _refusal(self, params: Mapping[str, Any], error: Exception) -> InvalidParams:
        """Return why params were refused; names that are missing or unknown come first, then what JSON can't hold at all."""
        self._handler.check(params.keys())
        encode(params, "params")
        return InvalidParams(misfit(error, params))


def digest_of(names: ParamNames) -> str:
    """Return the digest of parameters, by their names and by which are required."""
    allowed = None if names.allowed is None else sorted(names.allowed)
    return blake2b(msgspec.json.encode([sorted(names.required), allowed]), digest_size=8).hexdigest()


class _Anything(type):
    """msgspec asks whether a hook returned an instance of the type: whatever a member of a union made is one."""

    members: tuple[Any, ...] = ()

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class OneOf(metaclass=_Anything):
    """A union that JSON types do not tell apart: each member is tried."""


def decode_hook(kind: Any, value: Any) -> Any:
    """Return the value of a JSON form that msgspec does not know; Python values pass as they are."""
    if kind is object:
        return value
    if issubclass(kind, OneOf):
        return _first_fit(kind.members, value)
    if isinstance(value, kind):
        return value
    if issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise MisfitError("", f"expected text, got {shown(value)}")
        return kind(value)
    return _model(kind, value)


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the schema of what msgspec does not know."""
    if kind is object:
        return {"description": "any JSON value"}  # msgspec takes an empty one for none at all
    if issubclass(kind, OneOf):
        return {"anyOf": [_schema(member) for member in kind.members]}
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    return {**kind.model_json_schema(ref_template="#/$defs/{model}"), "$comment": MODEL}


def _first_fit(members: tuple[Any, ...], value: Any) -> Any:
    """Return the value as the first member that takes it. Of objects, classes that know all of the names come first."""
    refusals = []
    for member in sorted(members, key=functools.partial(_strange_names, value)) if isinstance(value, Mapping) else members:
        try:
            return convert(value, member, str_keys=True, dec_hook=decode_hook)
        except (msgspec.ValidationError, RecursionError) as error:
            refusals.append(misfit(error, value, ""))
    if all(words.startswith(": ") for words in refusals):
        wanted = dict.fromkeys(words.removeprefix(": ").removeprefix("expected ").partition(", got ")[0] for words in refusals)
        raise MisfitError("", f"expected {' or '.join(wanted)}, got {shown(value)}")
    path, _, words = refusals[0].partition(": ")
    raise MisfitError("", refusals[0]) if path.startswith("a key") else MisfitError(path, words)


def _strange_names(value: Mapping[str, Any], member: Any) -> int:
    """Return how many names of an object a class does not know."""
    if is_model(member):
        known = {each.alias or name for name, each in member.model_fields.items()}
    else:
        info = type_info(member)
        known = {each.encode_name for each in getattr(info, "fields", ())}
    return len(value.keys() - known)


def _model(kind: Any, value: Any) -> Any:
    """Return a pydantic model. From JSON: a strict model takes text for a date there, and only there."""
    try:
        return kind.model_validate_json(msgspec.json.encode(value, enc_hook=encode_hook))
    except ValueError as error:
        first = error.errors()[0]  # type: ignore[attr-defined] # a ValidationError of pydantic, which need not be installed
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        words = str(first["msg"])
        raise MisfitError(path, f"{words[:1].lower()}{words[1:]}, got {shown(first['input'])}") from None


def _resolved(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    """Return one annotation with the names in it looked up: each alone, so that one that can't be does not hide the others."""
    if annotation is MISSING:
        return Any
    return typing.get_type_hints(types.SimpleNamespace(__annotations__={name: annotation}), _names_for(function), include_extras=True)[name]


def _names_for(function: Any) -> dict[str, Any]:
    """Return the module-level names that a function's annotations are written in."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    own = getattr(function, "__globals__", None)
    return own if own is not None else vars(sys.modules.get(getattr(function, "__module__", ""), types))


def _decodable(kind: Any) -> Any:
    """Return an annotation as msgspec can decode it; raise TypeError for one that can't be stored."""
    kind = _adapted(kind)
    _refuse_unstorable(kind)
    msgspec.json.Decoder(kind, dec_hook=decode_hook)
    return kind


def _refuse_unstorable(kind: Any) -> None:
    for info in _infos(type_info(kind)):
        if isinstance(info, CustomType) and isinstance(info.cls, _Anything):
            for member in info.cls.members:
                _refuse_unstorable(member)
        elif isinstance(info, CustomType) and not _has_hook(info.cls):
            raise TypeError(f"there is no JSON form of {getattr(info.cls, '__name__', info.cls)}")
        if isinstance(info, DictType) and isinstance(info.key_type, NOT_KEYS):
            raise TypeError("the keys of an object are text or numbers")


def _adapted(kind: Any) -> Any:
    """Replace what msgspec has no word for, inside of containers too: object, Iterable, and unions that it can't tell apart."""
    if kind is object or kind is MISSING:
        return Any
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return typing.Annotated[(_adapted(kind.__origin__), *kind.__metadata__)]
    if origin in {typing.Union, types.UnionType}:
        return _union(tuple(_adapted(member) for member in arguments))
    if kind is Iterable or origin is Iterable:
        return list[_adapted(arguments[0]) if arguments else Any]  # type: ignore[misc] # built from a value
    if origin in CONTAINERS:
        return origin[tuple(each if each is Ellipsis else _adapted(each) for each in arguments)]
    return kind


def _union(members: tuple[Any, ...]) -> Any:
    try:
        msgspec.json.Decoder(typing.Union[members])  # noqa: UP007 - built from values
    except TypeError:
        # Any text is a str or a Path: what is narrower must be tried before them.
        wide = [each for each in members if each is str or (isinstance(each, type) and issubclass(each, PurePath))]
        narrow = [each for each in members if each not in {type(None), *wide}]
        one = type("OneOf", (OneOf,), {"members": (*narrow, *wide)})
        return typing.Optional[one] if type(None) in members else one  # noqa: UP045 - built from values
    return typing.Union[members]  # noqa: UP007 - built from values


def _has_hook(kind: Any) -> bool:
    return kind is object or (isinstance(kind, type) and issubclass(kind, PurePath | OneOf)) or is_model(kind)


def _needs_help(info: Type) -> bool:
    """Say whether msgspec converts a type only with a hook, or with keys that are read from text."""
    return isinstance(info, CustomType) or (isinstance(info, DictType) and not isinstance(info.key_type, AnyType | StrType))


def _takes_instances(info: Type) -> bool:
    if isinstance(info, CustomType):
        return info.cls is not object and not issubclass(info.cls, PurePath)
    return isinstance(info, DataclassType | StructType | NamedTupleType)


def _infos(info: Type) -> Iterator[Type]:
    """Yield a type and every type inside it, each once: types may contain themselves."""
    todo: list[Any] = [info]
    seen: set[int] = set()
    for part in todo:
        if isinstance(part, tuple):
            todo += part
        elif isinstance(part, Type | Field) and id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, Type):
                yield part
            todo += [getattr(part, name) for name in part.__struct_fields__]


def _schema(kind: Any) -> dict[str, Any]:
    if kind is Any:
        return {}
    schema = msgspec.json.schema(kind, schema_hook=schema_of, ref_template="#/$defs/{name}")
    _state_formats(type_info(kind), schema, schema.get("$defs", {}))
    _open_enums(type_info(kind), schema.get("$defs", {}))
    return schema


def _open_enums(info: Type, definitions: Mapping[str, Any]) -> None:
    """State the members of an Enum as examples if it takes other values, too: by a `_missing_` of its own, or as a Flag."""
    opened = {part.cls.__name__ for part in _infos(info) if isinstance(part, EnumType) and _takes_others(part.cls)}
    for form in definitions.values():
        if form.get("title") in opened and "enum" in form:
            form["examples"] = form.pop("enum")


def _takes_others(kind: type[Enum]) -> bool:
    return any("_missing_" in vars(base) for base in kind.__mro__ if base is not Enum)


def _state_formats(info: Type, schema: dict[str, Any], definitions: Mapping[str, Any]) -> None:
    """Add the formats of datetimes and times, which msgspec states only where a time zone is required."""
    for part, form in _pairs(info, schema, definitions):
        if isinstance(part, DateTimeType | TimeType):
            form.setdefault("format", "date-time" if isinstance(part, DateTimeType) else "time")


def _pairs(info: Type, schema: dict[str, Any], definitions: Mapping[str, Any]) -> Iterator[tuple[Type, dict[str, Any]]]:
    """Yield a type and every type inside it, each with its schema; a class once."""
    todo: list[tuple[Any, Any]] = [(info, schema)]
    classes: set[type] = set()
    for part, form in todo:
        if not isinstance(form, dict):
            continue
        yield part, form
        if isinstance(part, Metadata):
            todo.append((part.type, form))
        elif isinstance(part, CollectionType):
            todo.append((part.item_type, form.get("items")))
        elif isinstance(part, TupleType):
            todo += zip(part.item_types, form.get("prefixItems", ()), strict=False)
        elif isinstance(part, DictType):
            todo.append((part.value_type, form.get("additionalProperties")))
        elif isinstance(part, UnionType):
            # No two members of a union have the same JSON type, or msgspec would not take it.
            kinds = {option.get("type"): option for option in form.get("anyOf", ())}
            todo += [(member, kinds.get(_json_type(member))) for member in part.types]
        elif isinstance(part, StructType | DataclassType | TypedDictType) and part.cls not in classes:
            classes.add(part.cls)
            fields = definitions.get(form.get("$ref", "").rpartition("/")[2], form).get("properties", {})
            todo += [(field.type, fields.get(field.encode_name)) for field in part.fields]


def _json_type(info: Type) -> str | None:
    """Return the JSON type of a member of a union, if there may be a datetime in it."""
    while isinstance(info, Metadata):
        info = info.type
    if isinstance(info, DateTimeType | TimeType):
        return "string"
    return "object" if isinstance(info, DictType) else "array" if isinstance(info, CollectionType | TupleType) else None


def _plain(value: object) -> Any:
    """Return the JSON form of a default; UNSET if it has none."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_hook)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return UNSET


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object inside a schema."""
    if isinstance(value, dict):
        yield value
    for inner in list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(inner)
