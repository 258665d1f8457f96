"""Schedules that `@rota.job(cron=…)` declares beside its handler: the few options it takes, checked where they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.errors import InvalidInput, InvalidSchedule
from rota.model.schedule_options import with_options
from rota.model.schedules import Kind, Schedule, Timing

TAKEN = ("cron", "every", "timezone", "catch_up", "overlap", "calendar", "jitter", "depends_on")
"""What a decorator can say of its schedule. For more there is `rota.schedule(...)`."""


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
