"""Forecasts of what will run, and plans of what a change of a schedule would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.declarations import synced
from rota.engine.fleet import fleet_of
from rota.errors import InvalidOption, InvalidSchedule
from rota.lab.forecasts import Forecast, ForecastItem, SchedulePlan, ZoneChange, at
from rota.lab.foresight import Foresight
from rota.lab.notes import note_of
from rota.lab.prospects import prospects
from rota.lab.windows import DAY_US, DAYS_MAX, FURTHEST, window
from rota.model.checks import whole
from rota.model.figures import FIGURES_H, Fared
from rota.model.forecast import Ahead, Foreseen, Jumps, compare, list_due, look_ahead
from rota.model.gate import Scope
from rota.model.prospects import Outcomes, Prospect
from rota.model.schedule_options import OPTIONS
from rota.model.schedules import Calendar, Schedule, ScheduleState
from rota.model.states import Status
from rota.model.values import LATEST, SECOND, Instant
from rota.model.words import in_words
from rota.schedule_edits import changed, with_template_name
from rota.schedule_views import in_scope, named

if TYPE_CHECKING:
    from rota.operation import Ask

HOUR_US = 3600 * SECOND


def forecast(
    ask: Ask,
    hours: float | None = None,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    schedule: str | None = None,
    skipped: bool = False,
    organization: str | None = None,
    limit: int | None = None,
) -> Forecast:
    """Return what will run in the next hours, or between two moments: see `Rota.forecast`."""
    now, settings = ask.now, ask.settings
    after, until = window(now, hours, start, end)
    shown = in_scope(ask, schedule, organization)
    most = settings.forecast_max if limit is None else whole("limit", limit, least=1, most=settings.forecast_max)
    everything = prospects(ask.session, _with_others(ask, shown), now if after >= now else None)
    mine = everything[: len(shown)]
    table = list_due(mine, after, until, most=most, skipped=skipped)
    foresight = _foresight(ask, everything, now)
    foresight.look(now, after, table.end(until))
    outcomes = Outcomes(everything, wait=round(settings.dependency_wait * SECOND), most=most)
    ahead = look_ahead(mine, table, outcomes=outcomes, foresee=foresight.of, skipped=skipped)
    jumps = Jumps(mine, after, until)
    return Forecast(
        (_item(item, jumps) for item in ahead.items),
        start=at(after),
        end=at(until),
        cut=ahead.cut,
        exact_until=None if foresight.end is None else at(max(after, foresight.end)),
        changes=tuple(_changes(ahead, mine, jumps)),
    )


def plan(ask: Ask, name: str, *, days: int = 90, organization: str | None = None, **options: Any) -> SchedulePlan:
    """Return the due times of the coming days that a change would add and remove: see `Rota.plan`."""
    if not options:
        raise InvalidOption(f"nothing to change: pass some of {', '.join(OPTIONS)}")
    now = ask.now
    end = min(FURTHEST, now + whole("days", days, least=1, most=DAYS_MAX) * DAY_US)
    before = msgspec.structs.replace(named(ask, name, organization), state=ScheduleState.ENABLED)
    after = changed(ask.session, before, with_template_name(ask.session, options), now)
    calendars = {calendar.name: calendar for _, calendar in ask.store.calendars(organization=before.organization)}
    _check_references(ask, after, calendars)
    old, new = (Prospect(schedule=each, calendar=calendars.get(each.calendar or "")) for each in (before, after))
    change = compare(old, new, now, end, most=ask.settings.forecast_max)
    return SchedulePlan(
        schedule=before.name,
        start=at(now),
        end=at(change.until),
        added=tuple(map(at, change.added)),
        removed=tuple(map(at, change.removed)),
        kept=change.kept,
        words_before=in_words(before.timing),
        words_after=in_words(after.timing),
    )


def _with_others(ask: Ask, shown: Sequence[Schedule]) -> list[Schedule]:
    """Return the schedules that are shown, and after them all others that the actor may read: they occupy slots too."""
    known = {each.id for each in shown}
    return [*shown, *(each for each in synced(ask.session).schedules(scope=ask.scope) if each.id not in known)]


def _foresight(ask: Ask, everything: Sequence[Prospect], now: Instant) -> Foresight:
    opened, settings = ask.opened, ask.settings
    fleet = fleet_of(opened.store, opened.liveness, ask.session.beats, patience_s=settings.lease_ttl)
    fared: dict[str, Fared] = {}
    for figure in opened.store.figures(since=now - FIGURES_H * HOUR_US, scope=ask.scope):
        if figure.status == Status.COMPLETED:
            kept = fared.setdefault(figure.job_type, Fared())
            kept.add(bucket=figure.bucket, completed=True, count=figure.count, total_us=figure.total_us)
    figures = [each.of(job_type) for job_type, each in fared.items()]
    slots = [worker.slots or settings.concurrency for worker in fleet.alive] or [settings.concurrency]
    return Foresight(opened.store, ask.registry, settings, prospects=everything, figures=figures, slots=slots)


def _check_references(ask: Ask, after: Schedule, calendars: Mapping[str, Calendar]) -> None:
    """Refuse what the store would refuse."""
    if after.calendar is not None and after.calendar not in calendars:
        raise InvalidSchedule(f"calendar={after.calendar!r} is not there: `rota calendar list` shows them")
    there = {each.name for each in ask.store.schedules(scope=Scope(after.organization))} if after.depends_on else set()
    for name in after.depends_on:
        if name not in there:
            raise InvalidSchedule(f"depends_on={name!r}: there is no schedule of that name: `rota schedule list` shows them")


def _item(item: Foreseen, jumps: Jumps) -> ForecastItem:
    schedule, starts_at = item.prospect.schedule, item.starts_at
    return ForecastItem(
        schedule=schedule.name,
        organization=schedule.organization,
        template=schedule.template,
        due_at=at(item.due_at),
        fate=item.fate,
        note=note_of(item, jumps),
        starts_at=None if starts_at is None else at(starts_at),
        wait_s=0.0 if starts_at is None else (starts_at - item.due_at) / SECOND,
    )


def _changes(ahead: Ahead, shown: Sequence[Prospect], jumps: Jumps) -> Iterator[ZoneChange]:
    """Go through the jumps that concern what is in the forecast, or what is not because of them."""
    due = {item.prospect.schedule.id for item in ahead.items}
    last = ahead.items[-1].due_at if ahead.cut and ahead.items else LATEST
    for jump in jumps.inside():
        concerned = [each for each in shown if jump.concerns(each.schedule) and (each.schedule.id in due or jump.skips(each))]
        names = sorted({each.schedule.name for each in concerned})
        if names and jump.at <= last:
            yield ZoneChange(at=at(jump.at), timezone=jump.timezone, before=jump.before, after=jump.after, schedules=tuple(names))
