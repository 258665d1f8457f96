"""Params and results as JSON: encoded once, refused with the place in the object where JSON ends."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from rota.errors import InvalidParams, PayloadTooLarge


def encode_hook(value: Any) -> object:
    """Return the JSON form of what msgspec does not know: paths, and models of pydantic, which need not be installed."""
    if isinstance(value, PurePath):
        return str(value)
    if is_model(type(value)):
        plain = value.model_dump(mode="json", by_alias=True)
        if type(value).model_validate(plain) != value:
            raise TypeError(f"a {type(value).__name__} does not come back as it is: its JSON form hides or leaves out a field")
        return plain
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def is_model(kind: object) -> bool:
    """Say whether a type is a model of pydantic."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_json_schema")


_encoder = msgspec.json.Encoder(enc_hook=encode_hook)
_decode = msgspec.json.Decoder().decode
EMPTY = "{}"
MODEL = "checked by pydantic"
"""Comment of a model's schema, whose validators may take more than it says."""
MISSING = inspect.Parameter.empty
"""In the place of a value or an annotation that is not there."""
SHOWN_MAX = 60
"""Characters of a wrong value that an error shows."""
DEPTH_MAX = 500
"""Levels of nesting: what every store's own JSON functions can take."""
DEEP_BYTES = 2 * DEPTH_MAX
"""Text that is nested more deeply is longer than this."""


def encode_params(params: Mapping[str, object] | None, *, limit_bytes: int, name: str = "params") -> str:
    """Return params as JSON text, or refuse them saying where and why."""
    if not params:
        if params is None or isinstance(params, Mapping):
            return EMPTY
        raise not_an_object(params, name)
    if type(params) is not dict and not isinstance(params, Mapping):
        raise not_an_object(params, name)
    text = encode(params, name)
    if len(text) * 4 > limit_bytes:
        check_size(text, limit_bytes, name)
    return text


def check_size(text: str, limit_bytes: int, name: str = "params") -> None:
    """Refuse text that takes more bytes than the limit. Text of a quarter as many characters never does."""
    if len(text) > limit_bytes or len(text.encode()) > limit_bytes:
        size = len(text.encode())
        whose = " (payload_max, of the template or the settings)" if name == "params" else ""
        raise PayloadTooLarge(
            f"{name} take {size:,} bytes; the limit is {limit_bytes:,}{whose}. Store the data elsewhere and pass its name"
        )


def not_an_object(params: object, name: str = "params") -> InvalidParams:
    """Return the refusal of params that are something else than names and values."""
    return InvalidParams(f"{name} must be an object of names and values, not {type(params).__name__}")


def missing_param(called: str, name: str) -> InvalidParams:
    """Return the refusal of params that lack one."""
    return InvalidParams(f"{called}() needs a parameter {name!r}, which params do not have")


def unknown_param(called: str, name: str, allowed: Iterable[str]) -> InvalidParams:
    """Return the refusal of a param that the handler does not have."""
    return InvalidParams(f"{called}() has no parameter {name!r}; it takes: {', '.join(sorted(allowed)) or 'none'}")


def encode(value: object, name: str) -> str:
    """Return any value as JSON text; `name` is how the error calls it."""
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidParams(_explain(value, name, error)) from None
    # NaN and the infinities come out as null: only then is a slow look at the object worth it.
    if b"null" in data and (place := _not_finite(value, name)):
        raise InvalidParams(f"{place} is NaN or infinite, which JSON can't hold")
    if len(data) > DEEP_BYTES and data.count(b"[") + data.count(b"{") > DEPTH_MAX and _depth(value) > DEPTH_MAX:
        raise InvalidParams(f"{name} is nested too deeply: at most {DEPTH_MAX} levels are allowed")
    return data.decode()


def decode(text: str | None) -> object:
    """Return what JSON text holds; None for None."""
    return None if text is None else _decode(text)


def decode_params(text: str) -> dict[str, object]:
    """Return params from the JSON text that `encode_params` made."""
    return _params_decoder.decode(text)


_params_decoder = msgspec.json.Decoder(dict[str, object])


def _explain(value: object, name: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"{name} is nested too deeply, or contains itself"
    place, culprit = _culprit(value, name, 0)
    if isinstance(culprit, str):
        return f"{place} holds text that is not valid Unicode (a lone surrogate)"
    return f"{place} is {_article(type(culprit).__name__)}, which JSON can't hold: pass text, numbers, lists or objects"


def _culprit(value: object, place: str, depth: int) -> tuple[str, object]:
    """Walk down to the first thing that can't be encoded by itself."""
    if depth < 64:
        for inner_place, inner in _children(value, place):
            try:
                _encoder.encode(inner)
            except (TypeError, ValueError, OverflowError, RecursionError):
                return _culprit(inner, inner_place, depth + 1)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str | int | float):
                return f"a key of {place}", key
    return place, value


def _children(value: object, place: str) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(f"{place}.{key}", inner) for key, inner in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"{place}[{index}]", inner) for index, inner in enumerate(value)]
    return [(f"{place}.{name}", getattr(value, name)) for name in _field_names(value) if hasattr(value, name)]


def _field_names(value: Any) -> list[str]:
    """Return the fields of an object that is stored as one: a dataclass, a Struct or a model."""
    if isinstance(value, type):
        return []
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return list(getattr(value, "__struct_fields__", ())) or (list(type(value).model_fields) if is_model(type(value)) else [])


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level := [inner for outer in level for _, inner in _children(outer, "")]:
        deepest += 1
    return deepest


def _not_finite(value: object, place: str) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else place
    for inner_place, inner in _children(value, place):
        if found := _not_finite(inner, inner_place):
            return found
    return None


def _article(name: str) -> str:
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


class MisfitError(ValueError):
    """What a hook refuses: the place below the value that it was given, and why."""

    def __init__(self, path: str, words: str) -> None:
        """Take the place as it is written after the parameter, and the reason."""
        super().__init__(words)
        self.path = path
        self.words = words


WORDS = {
    "Invalid decimal string": "expected decimal",
    "Invalid UUID": "expected UUID",
    "Invalid RFC3339 encoded datetime": "expected datetime in ISO 8601",
    "Invalid RFC3339 encoded date": "expected date in ISO 8601",
    "Invalid RFC3339 encoded time": "expected time in ISO 8601",
    "Invalid ISO8601 duration": "expected duration in ISO 8601",
    "Invalid base64 encoded string": "expected bytes in base64",
}
"""How our errors say what msgspec says of text in a wrong form."""
_PLACE = re.compile(r"(?P<words>.*) - at `(?P<key>key` in `)?\$(?P<path>.*)`", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")


def misfit(error: Exception, value: object, name: str = "params") -> str:
    """Return msgspec's words as `params.lines[2].amount: expected decimal, got str 'x'`."""
    if isinstance(error, RecursionError):
        return f"{name} is nested too deeply, or contains itself"
    if not isinstance(error, msgspec.ValidationError):
        return f"{name}: {type(error).__name__}: {error}"
    told = str(error)
    parsed = _PLACE.fullmatch(told)
    words, path = (told, "") if parsed is None else (parsed["words"], parsed["path"])
    cause = error.__cause__
    if isinstance(cause, MisfitError):
        return f"{name}{path}{cause.path}: {cause.words}"
    key = parsed is not None and parsed["key"] is not None
    return f"{'a key of ' if key else ''}{name}{path}: {_with_value(words, MISSING if key else _at(value, path))}"


def _with_value(words: str, value: object) -> str:
    """Return what was expected, and the value that there was instead, if it could be found and is short."""
    words = WORDS.get(words) or f"{words[:1].lower()}{words[1:]}".replace("`", "")
    if value is MISSING or words.startswith(("object ", "invalid ")):
        return words
    return f"{words.partition(', got ')[0]}, got {shown(value)}"


def _at(value: Any, path: str) -> object:
    """Return what is at a path; MISSING where it leads through what has no places."""
    for name, index, _ in _STEP.findall(path):
        try:
            value = value[name] if name else value[int(index)]
        except (LookupError, TypeError, ValueError):
            return MISSING
    return value


def shown(value: object) -> str:
    """Return a wrong value as an error shows it."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list | tuple | set | frozenset):
        return f"array of length {len(value)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + '…'}"
