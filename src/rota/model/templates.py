"""What a template can say of its jobs, and what of it is in force: settings, then the code's word, then people's.

Code proposes: what `@rota.job(...)` says is recorded anew whenever a process starts. People decide: what was set by
`rota template update`, a definitions file or the API stays on top until it is reset. The state (enabled, disabled, archived)
is only ever people's.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.errors import InvalidHandler, InvalidOption, InvalidParams, PayloadTooLarge
from rota.model.backoff import Backoff
from rota.model.checks import line, seconds, text, unknown_option, whole, word_of
from rota.model.handler import Handler, Place
from rota.model.lanes import DEFAULT_QUEUE, queue_of
from rota.model.ordering import priority_of
from rota.model.params import decode_params, encode, encode_params
from rota.model.settings import MIB, Settings
from rota.model.values import SECOND, Instant, Policy

UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
UNITS: dict[str, str] = {
    **dict.fromkeys(("S", "SEC", "SECS", "SECOND", "SECONDS"), "s"),
    **dict.fromkeys(("M", "MIN", "MINS", "MINUTE", "MINUTES"), "m"),
    **dict.fromkeys(("H", "HOUR", "HOURS"), "h"),
    **dict.fromkeys(("D", "DAY", "DAYS"), "d"),
}
"""Words for units of time, in capitals, and their letters."""
_WORD = re.compile(r"[A-Za-z]+")
_PART = re.compile(r"(\d{1,12}(?:\.\d+)?)(ms|[smhd])")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d+)?")
_RATE = re.compile(r"\s*(\d{1,9})\s*(?:/|per)\s*(\d{1,9}(?:\.\d+)?)?\s*(ms|s|m|h|d)\s*")


class Rate(msgspec.Struct, frozen=True):
    """At most `count` in any span of `seconds`."""

    count: int
    seconds: float

    @property
    def window(self) -> Instant:
        """Return the span in microseconds."""
        return round(self.seconds * SECOND)

    def __str__(self) -> str:
        """Return it as people write it: 10/60s."""
        return f"{self.count}/{self.seconds:g}s"


def rate_of(name: str, given: object) -> Rate:
    """Return a rate given as "10/60s", "100/h", (10, 60) or a Rate."""
    if isinstance(given, Rate):
        pair: tuple[Any, Any] = (given.count, given.seconds)
    elif isinstance(given, str) and (found := _RATE.fullmatch(given)):
        pair = (int(found[1]), float(found[2] or 1) * UNIT_S[found[3]])
    elif isinstance(given, tuple | list) and len(given) == 2:
        pair = (given[0], given[1])
    elif isinstance(given, Mapping) and set(given) == {"count", "seconds"}:
        pair = (given["count"], given["seconds"])
    else:
        raise InvalidOption(f'{name}={given!r} is not a rate: give "10/60s", "100/1h" or (10, 60)')
    count, span_s = whole(f"{name}'s count", pair[0], least=1), seconds(f"{name}'s window", pair[1])
    if span_s < 0.001:
        raise InvalidOption(f"{name}={given!r} has a window of {span_s:g} s: give at least 1 ms")
    return Rate(count, span_s)


def span_of(name: str, given: object) -> float:
    """Return seconds given as a number, a timedelta, or as people write them: "90", "5m", "1h30m", "1 hour 30 minutes"."""
    if isinstance(given, timedelta):
        return seconds(name, given.total_seconds())
    if not isinstance(given, str):
        return seconds(name, given)
    compact = _WORD.sub(lambda word: UNITS.get(word[0].upper(), word[0]), given).replace(" ", "").lower()
    if _NUMBER.fullmatch(compact):
        return seconds(name, float(compact))
    if not compact or _PART.sub("", compact):
        raise InvalidOption(f'{name}={given!r} is not a length of time: give seconds, or "90s", "1h30m", "15 minutes"')
    return seconds(name, sum(float(number) * UNIT_S[unit] for number, unit in _PART.findall(compact)))


class Spec(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The fields of a template's definition. UNSET says nothing; None says "none" where that means something."""

    display_name: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    handler: str | UnsetType = UNSET
    """Where its code is: module:function."""
    executor: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    timeout: float | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    max_crashes: int | UnsetType = UNSET
    backoff: Backoff | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    queue_ttl: float | UnsetType | None = UNSET
    payload_max: int | UnsetType | None = UNSET
    dedup_window: float | UnsetType | None = UNSET
    """Seconds in which the same params are refused; None or 0: never."""
    requires_permission: str | UnsetType | None = UNSET
    max_running: int | UnsetType | None = UNSET
    concurrency: int | UnsetType | None = UNSET
    """At most so many at once in one worker process."""
    rate_limit: Rate | UnsetType | None = UNSET
    submit_limit: Rate | UnsetType | None = UNSET
    default_params: dict[str, object] | UnsetType | None = UNSET
    """Under what each job says itself."""


FIELDS: tuple[str, ...] = Spec.__struct_fields__
TEXT_MAX = 4096
LABEL_MAX = 255
NULLABLE = frozenset(
    {
        "description",
        "queue_ttl",
        "payload_max",
        "dedup_window",
        "requires_permission",
        "max_running",
        "concurrency",
        "rate_limit",
        "submit_limit",
        "default_params",
    }
)
"""Fields that can be set to None: no limit, none required, none given."""
WRITTEN_AS_JSON = frozenset({"backoff", "default_params"})
WHOLE = frozenset({"max_retries", "max_crashes", "payload_max", "max_running", "concurrency"})
OF_THE_HANDLER = ("handler", "executor")
"""Fields that the code decides wherever it is: a record can't make a blocking function async, or another one of it."""


class Source(StrEnum):
    """Whose word a field is."""

    SETTING = "setting"
    """Nobody's: what the settings say or, where they say nothing, none."""
    CODE = "code"
    PEOPLE = "people"


class InForce(msgspec.Struct, kw_only=True, frozen=True):
    """One template as it stands for a job made now."""

    display_name: str
    description: str | None
    handler: str | None
    policy: Policy
    queue: str
    queue_ttl: float | None
    payload_max: int
    dedup_window: float | None
    requires_permission: str | None
    max_running: int | None
    concurrency: int | None
    rate_limit: Rate | None
    submit_limit: Rate | None
    default_params: dict[str, object] | None = None


def spec_of(given: Mapping[str, object]) -> Spec:
    """Return checked options as a Spec; each refusal names the option, its value and what is allowed."""
    unknown = sorted(set(given) - set(FIELDS))
    if unknown:
        raise unknown_option("a template", unknown[0], FIELDS)
    return Spec(**{name: _checked(name, value) for name, value in given.items() if value is not UNSET})  # type: ignore[arg-type]


def from_text(name: str, given: str) -> object:
    """Return what a person typed for a field, ready for `spec_of`: numbers where numbers stand, None for "none"."""
    if given.strip().lower() == "none":
        return None
    if name in WHOLE:
        try:
            return int(given)
        except ValueError:
            return given
    if name in WRITTEN_AS_JSON:
        try:
            return msgspec.json.decode(given)
        except msgspec.DecodeError:
            return given
    return given


def as_object(spec: Spec) -> dict[str, object]:
    """Return what a Spec says as the JSON object that stores keep."""
    found: dict[str, object] = msgspec.to_builtins(spec)
    return found


def from_object(stored: Mapping[str, object]) -> Spec:
    """Return a Spec from what a store kept; fields that a newer Rota wrote are left out."""
    return msgspec.convert({name: value for name, value in stored.items() if name in FIELDS}, Spec)


def said_by(code: Spec, people: Spec) -> dict[str, Source]:
    """Return for each field whose word holds."""

    def source(field: str) -> Source:
        if getattr(people, field) is not UNSET:
            return Source.PEOPLE
        return Source.SETTING if getattr(code, field) is UNSET else Source.CODE

    return {field: source(field) for field in FIELDS}


def besides_handler(people: Spec) -> Spec:
    """Return what people say where the code itself is present."""
    return msgspec.structs.replace(people, **dict.fromkeys(OF_THE_HANDLER, UNSET))


def in_force(name: str, settings: Settings, code: Spec, people: Spec) -> InForce:
    """Return what holds: settings, then what the code says, then what people have set."""
    sources = said_by(code, people)

    def word(field: str, otherwise: Any) -> Any:
        match sources[field]:
            case Source.PEOPLE:
                return getattr(people, field)
            case Source.CODE:
                return getattr(code, field)
            case Source.SETTING:
                return otherwise

    usual = Backoff(settings.backoff_base, settings.backoff_factor, settings.backoff_cap, settings.backoff_jitter)
    policy = Policy(
        priority=word("priority", settings.priority),
        max_retries=word("max_retries", settings.max_retries),
        max_crashes=word("max_crashes", settings.max_crashes),
        backoff=msgspec.json.encode(word("backoff", usual)).decode(),
        timeout=float(word("timeout", settings.timeout)),
        executor=word("executor", "thread"),
    )
    return InForce(
        display_name=word("display_name", name.replace("_", " ").capitalize()),
        description=word("description", None),
        handler=word("handler", None),
        policy=policy,
        queue=word("queue", DEFAULT_QUEUE),
        queue_ttl=word("queue_ttl", None),
        payload_max=word("payload_max", None) or settings.payload_max,
        dedup_window=word("dedup_window", None) or None,
        requires_permission=word("requires_permission", None),
        max_running=word("max_running", None),
        concurrency=word("concurrency", None),
        rate_limit=word("rate_limit", None),
        submit_limit=word("submit_limit", None),
        default_params=word("default_params", None) or None,
    )


def check_defaults(force: InForce, handler: Handler | None) -> None:
    """Refuse default params that no job could have: too large, or unknown to the handler where it is known here."""
    if not force.default_params:
        return
    try:
        encode_params(force.default_params, limit_bytes=force.payload_max)
    except PayloadTooLarge as error:
        raise InvalidOption(f"default_params are too large: {error}") from None
    if handler is None:
        return
    try:
        handler.check_context(force.default_params)
    except InvalidParams as error:
        raise InvalidOption(f"default_params: {error}") from None
    with contextlib.suppress(InvalidHandler):  # an annotation that can't be resolved yet; the first use tells if it never can be
        try:
            handler.codec.check_some(force.default_params, "default_params")
        except InvalidParams as error:
            raise InvalidOption(str(error)) from None
    for name in force.default_params:
        if handler.allowed is not None and name not in handler.allowed:
            takes = ", ".join(sorted(handler.allowed)) or "none"
            raise InvalidOption(f"default_params: the handler has no parameter {name!r}; it takes: {takes}")


def _checked(name: str, value: object) -> object:
    if value is None:
        if name in NULLABLE:
            return None
        raise InvalidOption(f"{name} can't be none: give a value, or reset it to what the code says")
    return _CHECKS[name](name, value)


def path_of(name: str, value: object) -> str:
    """Return where a function is, as people write it: package.module:function; refuse what can't be that."""
    path = line(name, value, TEXT_MAX)
    module, colon, function = path.partition(":")
    names = [*module.split("."), *(function.split(".") if colon else ())]
    if len(names) < 2 or not all(each.isidentifier() for each in names):
        raise InvalidOption(f"{name}={path!r} is not the place of a function: use package.module:function")
    return path


def backoff_of(name: str, value: object) -> Backoff:
    """Return a Backoff given as one, or as an object of its fields."""
    if isinstance(value, Backoff):
        return value
    if not isinstance(value, Mapping) or not set(value) <= set(Backoff.__struct_fields__):
        fields = ", ".join(Backoff.__struct_fields__)
        raise InvalidOption(f"{name}={value!r} is not allowed: give some of {fields}, for example {{base = 60, cap = 3600}}")
    spans = {each: span_of(f"{name} {each}", value[each]) for each in ("base", "cap") if isinstance(value.get(each), str)}
    return Backoff(**{**value, **spans})


def _params(name: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidOption(f'{name}={value!r:.60} is not allowed: give an object of names and values, such as {{"a": 1}}')
    try:
        # As JSON has it, so that what is said now compares with what was kept.
        return decode_params(encode(value, name))
    except InvalidParams as error:
        raise InvalidOption(str(error)) from None


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "display_name": partial(line, limit=LABEL_MAX),
    "description": partial(text, limit=TEXT_MAX),
    "handler": path_of,
    "executor": lambda name, value: str(word_of(Place, name, value)),
    "priority": lambda _, value: priority_of(value),
    "timeout": span_of,
    "max_retries": partial(whole, least=0),
    "max_crashes": partial(whole, least=1),
    "backoff": backoff_of,
    "queue": queue_of,
    "queue_ttl": span_of,
    "payload_max": partial(whole, least=2, most=16 * MIB),
    "dedup_window": span_of,
    "requires_permission": partial(line, limit=LABEL_MAX),
    "max_running": partial(whole, least=0),
    "concurrency": partial(whole, least=1),
    "rate_limit": rate_of,
    "submit_limit": rate_of,
    "default_params": _params,
}
