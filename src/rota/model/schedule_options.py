"""What people may say of a schedule, in their own words, and the schedule that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated, Any, TypeAlias, TypedDict, TypeVar

import msgspec

from rota.errors import InvalidInput, InvalidOption, InvalidSchedule
from rota.model.checks import check_name, text, unknown_option, whole
from rota.model.cron import read_cron
from rota.model.ordering import priority_of
from rota.model.params import decode_params, encode
from rota.model.schedules import Calendar, CatchUp, Kind, OnCompletion, Overlap, Schedule, ScheduleState, Timing, check, lattice_of
from rota.model.shapes import Params, Priority, Shape, Span
from rota.model.templates import TEXT_MAX, span_of
from rota.model.values import LATEST, SECOND, Instant, instant, moment
from rota.model.zones import zone_of

NAME_MAX = 255
JITTER_MAX_S = 86_400
TIMES = ("cron", "at", "every")
"""Exactly one of them says when."""
TAKEN = ("cron", "every", "timezone", "catch_up", "overlap", "calendar", "jitter", "depends_on")
"""What a decorator can say of its schedule. For more there is `rota.schedule(...)`."""

Moment: TypeAlias = Annotated[
    datetime | str, Shape("An aware datetime, or text such as 2026-03-01T09:00:00Z.", "2026-03-01T09:00:00Z", "TIME", wire=str)
]


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule besides its template. None takes an option back to its default."""

    cron: Annotated[str | None, Shape("Five fields. One of cron, at and every says when it is due.", "0 9 * * *", "CRON")]
    at: Annotated[Moment | None, Shape("Due once, at this moment.")]
    every: Annotated[Span | None, Shape("Due at this interval, counted from `starts`.", "1h")]
    timezone: Annotated[str | None, Shape("IANA time zone of a cron expression. Default: UTC.", "Europe/Berlin", "ZONE")]
    starts: Annotated[Moment | None, Shape("Not due before this moment.")]
    ends: Annotated[Moment | None, Shape("Not due after this moment.")]
    params: Annotated[Params | None, Shape("Parameters of its jobs.")]
    priority: Annotated[Priority | str | None, Shape("Priority of its jobs. Default: that of the template.", "high", "PRIORITY")]
    catch_up: Annotated[str | None, Shape("Due times that passed while no worker ran: none, last or all. Default: last.", "last", "WORD")]
    catch_up_lateness: Annotated[Span | None, Shape("Do not make up for due times that are later than this.", "1h")]
    catch_up_count: Annotated[int | None, Shape("Make up for at most this many due times.", 10, "N")]
    overlap: Annotated[str | None, Shape("While its previous job is unfinished: allow, queue or skip. Default: skip.", "skip", "WORD")]
    jitter: Annotated[Span | None, Shape("Delay each job by a random time of at most this.", "30s")]
    calendar: Annotated[str | None, Shape("Not due on the days of this calendar.", "holidays", "NAME")]
    on_completion: Annotated[str | None, Shape("After an `at` has fired: preserve the schedule, or drop it.", "preserve", "WORD")]
    depends_on: Annotated[
        Sequence[str] | str | None, Shape("Schedules whose jobs must complete first.", ["extract"], "NAME", wire=list[str])
    ]
    run_as: Annotated[str | None, Shape("Refused here: RUN AS of CREATE JOB sets the role of an SQL job.", metavar="ROLE")]
    description: Annotated[str | None, Shape("What the schedule is for.", metavar="TEXT")]


OPTIONS = ("template", *ScheduleOptions.__annotations__)

Word = TypeVar("Word", bound=StrEnum)


def with_options(schedule: Schedule, options: Mapping[str, Any], now: Instant) -> Schedule:
    """Return a schedule on which these options have been applied; None takes an option back to its default."""
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise unknown_option("a schedule", unknown, OPTIONS)
    fields = {name: READ[name](name, value) for name, value in options.items() if name in READ}
    changed = msgspec.structs.replace(schedule, timing=_timing(schedule.timing, options, now), **fields)
    check(changed)
    if changed.timing == schedule.timing:
        return changed
    _refuse_never(changed, now)
    # Whoever gives one that is over another time wants it to fire: nobody has disabled it.
    return msgspec.structs.replace(changed, state=ScheduleState.ENABLED) if _is_over(schedule) else changed


def as_options(schedule: Schedule) -> dict[str, Any]:
    """Return what a schedule says in the words of its options, JSON's types only; defaults are left out."""
    timing, plain = schedule.timing, Schedule(id="", name="", organization="", template="", timing=Timing(kind=Kind.CRON))
    said: dict[str, Any] = {
        "template": schedule.template,
        "cron": timing.cron,
        "at": _text(timing.at),
        "every": None if timing.interval is None else timing.interval / SECOND,
        "timezone": None if timing.timezone == "UTC" else timing.timezone,
        "starts": _text(timing.starts_at),
        "ends": _text(timing.ends_at),
    }
    for name in READ:
        value = getattr(schedule, name)
        if name not in said and value != getattr(plain, name):
            said[name] = value / SECOND if name in {"catch_up_lateness", "jitter"} else msgspec.to_builtins(value)
    return {name: value for name, value in said.items() if value is not None}


def as_said(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as JSON can hold them, to compare what is said now with what was said before."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return _text(_moment("", value))
        return value.total_seconds() if hasattr(value, "total_seconds") else value

    return dict(msgspec.json.decode(msgspec.json.encode({name: plain(value) for name, value in options.items()}, enc_hook=str)))


def schedule_said(template: str, options: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """Return what is declared of a template's schedule, or None if nothing is; refuse what can't be, naming the function."""
    said = {name: value for name, value in options.items() if value is not None}
    if not said:
        return None
    if "at" in said:
        raise InvalidSchedule(
            f"{where}: at={said['at']!r} is one moment, and a decorator says the same again at each start: "
            f"use `rota.create_schedule(NAME, {template!r}, at=…)` once, or enqueue with run_at=…"
        )
    if "cron" not in said and "every" not in said:
        option = next(iter(said))
        raise InvalidSchedule(f"{where}: {option}= is about a schedule, and nothing says when: give cron= or every=, or leave it out")
    said["template"] = template
    empty = Schedule(id="", name=template, organization="", template=template, timing=Timing(kind=Kind.CRON))
    try:
        with_options(empty, said, 0)
    except InvalidInput as error:
        raise InvalidSchedule(f"{where}: {error}") from None
    return said


def calendar_of(name: str, days: object, description: str | None, *, most: int) -> Calendar:
    """Return a calendar of days given as dates or texts, or refuse it naming the day."""
    check_name(name, "calendar", NAME_MAX)
    if isinstance(days, str) or not isinstance(days, Sequence | set | frozenset):
        raise InvalidSchedule(f"calendar {name!r}: days={days!r:.60} is not a list of days: give dates such as 2026-12-25")
    if len(days) > most:
        raise InvalidSchedule(f"calendar {name!r} has {len(days):,} days; at most {most:,} are allowed (setting calendar_max)")
    return Calendar(name=name, days=frozenset(_day(name, day) for day in days), description=_words("description", description))


# ---- when ----------------------------------------------------------------------------------------------------------


def _timing(before: Timing, options: Mapping[str, Any], now: Instant) -> Timing:
    given = [name for name in TIMES if options.get(name) is not None]
    if len(given) > 1:
        raise InvalidSchedule(f"{' and '.join(given)} are both given: a schedule has one of {', '.join(TIMES)}")
    timing = before
    if "timezone" in options:
        zone = "UTC" if options["timezone"] is None else _said("timezone", options["timezone"], "an IANA name, such as Europe/Berlin")
        zone_of(zone)
        timing = msgspec.structs.replace(timing, timezone=zone)
    for name, field in (("starts", "starts_at"), ("ends", "ends_at")):
        if name in options:
            timing = msgspec.structs.replace(timing, **{field: _moment(name, options[name])})
    if given:
        timing = _kind(timing, given[0], options[given[0]])
    if timing.kind is Kind.AT and any(options.get(name) is not None for name in ("starts", "ends")):
        raise InvalidSchedule("starts and ends say nothing of an `at`: leave them out")
    if timing.kind is Kind.EVERY and timing.starts_at is None:
        timing = msgspec.structs.replace(timing, starts_at=now)
    return timing


def _kind(timing: Timing, name: str, value: Any) -> Timing:
    """Return the timing with another rule; what only the old rule had is gone."""
    if name == "cron":
        cron = read_cron(_said(name, value, "five fields, such as '0 9 * * MON-FRI'"))
        return msgspec.structs.replace(timing, kind=Kind.CRON, cron=cron.text, at=None, interval=None)
    if name == "every":
        interval = round(_span(name, value) * SECOND)
        return msgspec.structs.replace(timing, kind=Kind.EVERY, cron=None, at=None, interval=interval)
    return msgspec.structs.replace(timing, kind=Kind.AT, cron=None, at=_moment(name, value), interval=None, starts_at=None, ends_at=None)


def _is_over(schedule: Schedule) -> bool:
    """Say whether this is an AT that has fired, and is DISABLED for that."""
    at = schedule.timing.at
    return at is not None and schedule.last_at == at and schedule.state is ScheduleState.DISABLED


def _said(name: str, value: Any, wanted: str) -> str:
    """Return what is said in a text, or refuse it: a file or a request may have anything in its place."""
    if not isinstance(value, str):
        raise InvalidSchedule(f"{name}={value!r:.60} is not a text: give {wanted}")
    return value


def _refuse_never(schedule: Schedule, now: Instant) -> None:
    """Refuse what would never be due from now on: nobody would notice that it does not run."""
    timing = schedule.timing
    if timing.kind is Kind.AT or lattice_of(timing).next(now) is not None:
        return
    raise InvalidSchedule(
        f"{timing.cron or 'every'} has no due time from now ({_text(now)}) until ends={_text(timing.ends_at)}: give a later ends, or none"
    )


def _moment(name: str, value: Any) -> Instant | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidSchedule(f"{name}={value!r} is not a moment: give for example 2026-03-01T09:00:00+01:00") from None
    if not isinstance(value, datetime):
        raise InvalidSchedule(f"{name}={value!r} is not a moment: give an aware datetime, or a text such as 2026-03-01T09:00:00Z")
    if value.tzinfo is None:
        raise InvalidSchedule(f"{name}={value.isoformat()} has no time zone: end it with Z or +01:00, or give an aware datetime")
    at = instant(value)
    if not 0 <= at <= LATEST:
        raise InvalidSchedule(f"{name}={value.isoformat()} is out of range: give a moment between the years 1970 and 9999")
    return at


def _text(at: Instant | None) -> str | None:
    found = moment(at)
    return None if found is None else found.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _day(calendar: str, day: object) -> date:
    if isinstance(day, datetime) or not isinstance(day, date | str):
        raise InvalidSchedule(f"calendar {calendar!r}: {day!r} is not a day: give a date such as 2026-12-25")
    try:
        return date.fromisoformat(day) if isinstance(day, str) else day
    except ValueError:
        raise InvalidSchedule(f"calendar {calendar!r}: {day!r} is not a day of the calendar: give for example 2026-12-25") from None


# ---- what ----------------------------------------------------------------------------------------------------------


def _span(name: str, value: Any) -> float:
    try:
        return span_of(name, value)
    except InvalidOption as error:
        raise InvalidSchedule(str(error)) from None


def _span_us(name: str, value: Any) -> Instant | None:
    return None if value is None else round(_span(name, value) * SECOND)


def _jitter(name: str, value: Any) -> Instant:
    found = _span_us(name, value) or 0
    if found > JITTER_MAX_S * SECOND:
        raise InvalidSchedule(f"{name}={found / SECOND:g} seconds is not allowed: use at most a day")
    return found


def _word(kind: type[Word], default: Word) -> Callable[[str, Any], Word]:
    def read(name: str, value: Any) -> Word:
        if value is None:
            return default
        found = next((word for word in kind if word.lower() == str(value).lower()), None)
        if found is None:
            raise InvalidSchedule(f"{name}={value!r} is not one of {', '.join(kind)}")
        return found

    return read


def _name(what: str) -> Callable[[str, Any], Any]:
    def read(_: str, value: Any) -> Any:
        check_name(value, what, NAME_MAX)
        return value

    return read


def _maybe(read: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else read(name, value)


def _no_role(name: str, value: Any) -> None:
    """Refuse a role: only SQL that a job runs on PostgreSQL can have one, and CREATE JOB and ALTER JOB set it."""
    if value is not None:
        raise InvalidSchedule(
            f"{name}={value!r:.60} is not available here, because only SQL has a role: leave it out, and set the role of an SQL job"
            " with ALTER JOB … SET RUN AS"
        )


def _words(name: str, value: Any) -> str | None:
    return None if value is None else text(name, value, TEXT_MAX)


def _params(name: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidSchedule(f"{name}={value!r:.60} is not allowed: give an object of names and values")
    # As JSON has it, so that what is said now compares with what was kept.
    return decode_params(encode(value, name))


def _names(name: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, Sequence):
        raise InvalidSchedule(f"{name}={value!r:.60} is not allowed: give the names of schedules")
    for each in given:
        check_name(each, "schedule", NAME_MAX)
    return tuple(dict.fromkeys(given))


READ: dict[str, Callable[[str, Any], Any]] = {
    "template": _name("template"),
    "params": _params,
    "priority": _maybe(lambda _, value: priority_of(value)),
    "catch_up": _word(CatchUp, CatchUp.LAST),
    "catch_up_lateness": _span_us,
    "catch_up_count": _maybe(lambda name, value: whole(name, value, least=1, most=10_000)),
    "overlap": _word(Overlap, Overlap.SKIP),
    "jitter": _jitter,
    "calendar": _maybe(_name("calendar")),
    "on_completion": _word(OnCompletion, OnCompletion.PRESERVE),
    "depends_on": _names,
    "run_as": _no_role,
    "description": _words,
}
