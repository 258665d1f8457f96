"""Schedules in words, as a person would say them."""

from __future__ import annotations

from rota.errors import InvalidSchedule
from rota.model.cron import Cron, read_cron
from rota.model.local_time import written
from rota.model.schedules import Kind, Timing
from rota.model.values import SECOND, Instant, moment

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
ORDINALS = ("first", "second", "third", "fourth", "fifth")
UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
TIMES_SHOWN = 6


def in_words(timing: Timing) -> str:
    """Return when a schedule is due: "every weekday at 09:00 Europe/Berlin"."""
    if timing.kind is Kind.AT:
        at = moment(timing.at)
        return f"once, at {written(at)}" if at else "once"
    if timing.kind is Kind.EVERY:
        return f"every {span(timing.interval or 0)}" + _bounds(timing)
    try:
        cron = read_cron(timing.cron or "")
    except InvalidSchedule:
        return f"cron {timing.cron!r:.100}, which can't be read"
    return f"{cron_in_words(cron)} {timing.timezone}" + _bounds(timing)


def span(interval: Instant) -> str:
    """Return a length of time: "5 minutes", "hour", "1 day 6 hours"."""
    left, parts = interval / SECOND, []
    for size, name in UNITS:
        count = int(left // size) if size > 1 else left
        if count:
            parts.append((count, name))
            left -= count * size
    if not parts:
        return "0 seconds"
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    return " ".join(f"{count:g} {name}{'' if count == 1 else 's'}" for count, name in parts)


def cron_in_words(cron: Cron) -> str:
    """Return a cron expression in words; where words would be longer than the expression, the expression."""
    minute, hour, dom, month, dow = cron.plain.split()
    when = _time(minute, hour, cron)
    days = _days(dom, dow, cron)
    if when is None or days is None:
        return f"cron {cron.text}"
    months = "" if month == "*" else f" in {_list([MONTHS[number - 1] for number in sorted(cron.fields.months)])}"
    return _sentence(when, days, months)


def _sentence(when: str, days: str, months: str) -> str:
    if when.startswith("every"):
        return f"{when}{'' if days == 'every day' else f', {days}'}{months}"
    return f"{days} {when}{months}"


def _time(minute: str, hour: str, cron: Cron) -> str | None:
    if hour in {"*", "*/1"}:
        return _within_hour(minute)
    if minute.isdecimal() and (hour.startswith("*/") and hour[2:].isdecimal()) and 24 % int(hour[2:]) == 0:
        past = "" if int(minute) == 0 else f" at {int(minute)} past"
        return f"every {hour[2:]} hours{past}"
    if len(cron.times) <= TIMES_SHOWN:
        return f"at {_list([f'{time // 3600:02d}:{time % 3600 // 60:02d}' for time in cron.times])}"
    hours = sorted(cron.fields.hours)
    if hours == list(range(hours[0], hours[-1] + 1)):
        inner = _within_hour(minute)
        return None if inner is None else f"{inner} from {hours[0]:02d}:00 to {hours[-1]:02d}:59"
    return None


def _within_hour(minute: str) -> str | None:
    if minute == "*":
        return "every minute"
    if minute.startswith("*/") and minute[2:].isdecimal():
        step = int(minute[2:])
        return f"every {step} minutes" if 60 % step == 0 and step > 1 else "every minute" if step == 1 else None
    if minute.isdecimal():
        return "every hour" if int(minute) == 0 else f"every hour at {int(minute)} past"
    if all(part.isdecimal() for part in minute.split(",")):
        return f"every hour at {_list([str(int(part)) for part in minute.split(',')])} past"
    return None


def _days(dom: str, dow: str, cron: Cron) -> str | None:
    if dom == "*" and dow == "*":
        return "every day"
    if dom == "*":
        return _weekdays(cron)
    if dow != "*":
        return None
    if dom == "L":
        return "on the last day of the month"
    if dom == "LW":
        return "on the last weekday of the month"
    numbers = sorted(cron.fields.days)
    if any(number < 1 for number in numbers) or len(numbers) > TIMES_SHOWN:
        return None
    return f"on the {_list([_nth(number) for number in numbers])} of the month"


def _weekdays(cron: Cron) -> str | None:
    found = cron.fields.weekdays
    plain = sorted({item % 7 for item in found if isinstance(item, int)})
    special = sorted(item for item in found if isinstance(item, tuple))
    if special and not plain:
        words = [f"last {DAYS[day % 7]}" if nth < 0 else f"{ORDINALS[nth - 1]} {DAYS[day % 7]}" for day, nth in special]
        return f"on the {_list(words)} of the month"
    if special:
        return None
    if plain == [1, 2, 3, 4, 5]:
        return "every weekday"
    if plain == [0, 6]:
        return "every Saturday and Sunday"
    return f"every {_list([DAYS[day] for day in sorted(plain, key=lambda day: (day - 1) % 7)])}"


def _bounds(timing: Timing) -> str:
    words = ""
    starts, ends = moment(timing.starts_at), moment(timing.ends_at)
    if starts is not None and timing.kind is Kind.CRON:
        words += f", from {written(starts)}"
    if ends is not None:
        words += f", until {written(ends)}"
    return words


def _nth(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
