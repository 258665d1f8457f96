"""Schedules looked at from outside: what will run, whether all that was due got its fate, and what a change would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from rota.engine.due import DueRows
from rota.engine.fleet import fleet_of
from rota.errors import InvalidInput, InvalidOption, InvalidSchedule, PermissionDenied, Refused
from rota.lab.forecasts import Forecast, ForecastItem, Problem, SchedulePlan, Verified, ZoneChange, at
from rota.lab.notes import note_of
from rota.model.checks import whole
from rota.model.figures import FIGURES_H, Fared
from rota.model.forecast import Ahead, Foreseen, Jumps, compare, list_due, look_ahead
from rota.model.gate import Actor, Right, Scope
from rota.model.matching import WITH_JOB, Matched, match
from rota.model.prospects import Outcomes, Prospect
from rota.model.schedule_options import OPTIONS
from rota.model.schedules import Calendar, Kind, Schedule, ScheduleState, Timing, trouble_of
from rota.model.states import Status
from rota.model.values import LATEST, SECOND, Instant, Job, instant
from rota.model.words import in_words
from rota.ports.clock import UuidV7
from rota.ports.schedules import Ledger, Occurrence, cursor_of
from rota.ports.store import Store, Where
from rota.surfaces.python.scheduling import Scheduling

if TYPE_CHECKING:
    from rota.lab.foresight import Foresight

__all__ = ["Forecast", "ForecastItem", "Forecasting", "Problem", "SchedulePlan", "Verified", "ZoneChange"]

HOURS = 24.0
DAY_US = 86_400 * SECOND
HOUR_US = 3600 * SECOND
DAYS_MAX = 36_525
FURTHEST = LATEST - 400 * DAY_US
"""Windows end before the calendar does."""
PAGE = 1000
TRIES = 20
"""Looks at one schedule before we say that it is edited all the time."""
_LONG_AGO = Timing(kind=Kind.AT, at=0)
"""Stands for a timing that can't be read: nothing of it is due. `rota doctor` names the schedule."""


class Forecasting(Scheduling):
    """The part of Rota that looks ahead, and back."""

    def forecast(
        self,
        hours: float | None = None,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        schedule: str | None = None,
        skipped: bool = False,
        organization: str | None = None,
        limit: int | None = None,
        actor: Actor | str | None = None,
    ) -> Forecast:
        """Return what will run in the next hours (24), or between two moments: after `start`, up to and with `end`.

        With `skipped` also what will not: days of calendars, times that a clock jumps over, pauses, overlaps, dependencies that are
        not met, templates that take no jobs. It is told by the definitions of now, also of a window in the past, and as if workers
        were there at every due time (those that are alive now, one at least) and every job took its usual time and completed.
        Schedules whose jobs would meet, because they overlap, depend on each other or share a limit or slots that do not suffice,
        are simulated together, up to the setting `forecast_simulated_max`; the others start at their due times.
        """
        now = self._session.clock.now()
        after, until = _window(now, hours, start, end)
        shown = self._in_reach(schedule, organization, actor)
        most = self.settings.forecast_max if limit is None else whole("limit", limit, least=1, most=self.settings.forecast_max)
        scope = self._session.scope(actor, Right.READ)
        everything = self._prospects(self._with_others(shown, scope), now if after >= now else None)
        prospects = everything[: len(shown)]
        table = list_due(prospects, after, until, most=most, skipped=skipped)
        foresight = self._foresight(everything, now, scope)
        foresight.look(now, after, table.end(until))
        outcomes = Outcomes(everything, wait=round(self.settings.dependency_wait * SECOND), most=most)
        ahead = look_ahead(prospects, table, outcomes=outcomes, foresee=foresight.of, skipped=skipped)
        jumps = Jumps(prospects, after, until)
        return Forecast(
            (_item(item, jumps) for item in ahead.items),
            start=at(after),
            end=at(until),
            cut=ahead.cut,
            exact_until=None if foresight.end is None else at(max(after, foresight.end)),
            changes=tuple(_changes(ahead, prospects, jumps)),
        )

    def verify_schedules(
        self,
        schedule: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
    ) -> Verified:
        """Say whether every due time after `since`, up to and with `until`, has one fate, and each that fired a job of its own.

        A ledger was written by the definitions of its time. So what is older than a schedule's last edit is not held against its
        due times of now, only against itself and the jobs. What retention has removed is not missed; what was removed by hand is.
        What is `overdue` has no outcome yet, and is told apart from what does not match.
        """
        now = self._session.clock.now()
        low = 0 if since is None else _instant("since", since)
        high = now if until is None else _instant("until", until)
        found = self._in_reach(schedule, organization, actor)
        problems: list[Problem] = []
        due = matched = 0
        for each in found:
            one = self._match(each, low, high, now)
            due, matched = due + one.due, matched + one.matched
            problems += [
                Problem(schedule=each.name, due_at=None if its.due_at is None else at(its.due_at), what=its.what) for its in one.problems
            ]
        late = tuple(
            each
            for each in self.overdue(schedule, organization=organization, actor=actor)
            if each.expected and instant(each.last_due_at) > low and instant(each.due_at) <= high
        )
        return Verified(
            schedules=len(found),
            due=due + sum(each.expected for each in late),
            matched=matched,
            problems=tuple(problems),
            overdue=late,
            since=since,
            until=at(high),
        )

    def plan_schedule(
        self, name: str, *, days: int = 90, organization: str | None = None, actor: Actor | str | None = None, **options: Any
    ) -> SchedulePlan:
        """Say which due times of the days to come a change would add and remove; options as for `edit_schedule`. Nothing is changed.

        Calendars count, the schedule's state does not: it is told as if it were enabled.
        """
        if not options:
            raise InvalidOption(f"nothing to change: give some of {', '.join(OPTIONS)}")
        now = self._session.clock.now()
        end = min(FURTHEST, now + whole("days", days, least=1, most=DAYS_MAX) * DAY_US)
        before = msgspec.structs.replace(self._named(name, actor, Right.READ, organization), state=ScheduleState.ENABLED)
        after = self._changed(before, self._with_template_name(options), now)
        calendars = dict(self._calendars(before.organization))
        self._check_around(after, calendars)
        old, new = (Prospect(schedule=each, calendar=calendars.get(each.calendar or "")) for each in (before, after))
        change = compare(old, new, now, end, most=self.settings.forecast_max)
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

    # ---- looking ahead ----------------------------------------------------------------------------------------

    def _in_reach(self, schedule: str | None, organization: str | None, actor: Actor | str | None) -> list[Schedule]:
        """Return the schedules that were asked for and that the actor may read."""
        if schedule is not None:
            return [self._named(schedule, actor, Right.READ, organization)]
        found = self._open_synced().schedules(scope=self._session.scope(actor, Right.READ))
        return [each for each in found if organization in {None, each.organization}]

    def _prospects(self, reach: Sequence[Schedule], now: Instant | None) -> list[Prospect]:
        """Return schedules, and after them those they depend on, with what is known of them now.

        Without `now` it is about a time of which nothing is known: definitions alone count. What others depend on may be out of
        the actor's reach: it decides, and is not shown.
        """
        store = self._open_synced()
        needed = _needed(reach, store.schedules()) if any(each.depends_on for each in reach) else {}
        known = {each.id for each in reach}
        calendars = {(organization, calendar.name): calendar for organization, calendar in store.calendars()}
        already = {} if now is None else self._already(store, now)
        rows = DueRows(self._session.registry, UuidV7(Random(0)), Random(0))  # noqa: S311 - made to see what is refused, and thrown away
        rows.begin()
        found = []
        for each in (*reach, *(other for other in needed.values() if other.id not in known)):
            since, completed_at = now or 0, None
            if now is not None and each.id in needed:
                since, completed_at = _history(store, each, now)
            found.append(
                Prospect(
                    schedule=each if trouble_of(each.timing) is None else msgspec.structs.replace(each, timing=_LONG_AGO),
                    calendar=calendars.get((each.organization, each.calendar or "")),
                    refused=_why_refused(rows, each, self._session.clock.now()),
                    already=frozenset(already.get(each.id, ())),
                    since=since,
                    completed_at=completed_at,
                )
            )
        return found

    def _already(self, store: Store, now: Instant) -> dict[str, list[Instant]]:
        """Return due times to come that have fired, when the clock was ahead: nearly always none."""
        found: dict[str, list[Instant]] = {}
        for row in _rows(store, Ledger(fates=tuple(WITH_JOB), since=now + 1)):
            found.setdefault(row.schedule_id, []).append(row.due_at)
        return found

    def _with_others(self, shown: Sequence[Schedule], scope: Scope) -> list[Schedule]:
        """Return the schedules that are shown, and after them all others that the actor may read: they take up room too."""
        known = {each.id for each in shown}
        return [*shown, *(each for each in self._open_synced().schedules(scope=scope) if each.id not in known)]

    def _foresight(self, prospects: Sequence[Prospect], now: Instant, scope: Scope) -> Foresight:
        from rota.lab.foresight import Foresight  # noqa: PLC0415 - few programs need it

        opened = self._session.open()
        fleet = fleet_of(opened.store, opened.liveness, self._session.beats, patience_s=self.settings.lease_ttl)
        fared: dict[str, Fared] = {}
        for figure in opened.store.figures(since=now - FIGURES_H * HOUR_US, scope=scope):
            if figure.status == Status.COMPLETED:
                kept = fared.setdefault(figure.job_type, Fared())
                kept.add(bucket=figure.bucket, completed=True, count=figure.count, total_us=figure.total_us)
        figures = [each.of(job_type) for job_type, each in fared.items()]
        usual = self.settings.concurrency
        slots = [worker.slots or usual for worker in fleet.alive] or [usual]
        return Foresight(opened.store, self._session.registry, self.settings, prospects=prospects, figures=figures, slots=slots)

    # ---- looking back -----------------------------------------------------------------------------------------

    def _match(self, schedule: Schedule, since: Instant, until: Instant, now: Instant) -> Matched:
        """Match one schedule. It is read first: what is written meanwhile lies beyond its cursor; if it was edited, we begin anew."""
        store = self._session.open().store
        kept = self.settings.retention
        forgotten = now - round(kept * SECOND) if kept else 0
        for _ in range(TRIES):
            rows = list(_rows(store, Ledger(schedule_id=schedule.id, since=since + 1)))
            found = match(schedule, rows, _jobs(store, schedule.id), since=since, until=until, forgotten_before=forgotten)
            again = store.schedule(schedule.id)
            if again is None or (again.version == schedule.version and again.cursor_at >= schedule.cursor_at):
                return found.without(lambda job_id: self._clock_came_back(store, job_id))
            schedule = again
        raise Refused(f"schedule {schedule.name!r} is edited again and again: verify it later")

    def _clock_came_back(self, store: Store, job_id: str) -> bool:
        """Say whether the clock was ahead when a job was made: a job that was made after it says that it was made before it."""
        job = store.job(job_id)
        if job is None:
            return False
        grace = round(self.settings.schedule_grace * SECOND)
        earlier = store.find(Where(created_until=instant(job.created_at) - grace), limit=1)
        return bool(earlier) and earlier[0][0] > int(job.number.split("-")[2])

    # ---- planning ---------------------------------------------------------------------------------------------

    def _calendars(self, organization: str) -> Iterator[tuple[str, Calendar]]:
        for _, calendar in self._session.open().store.calendars(organization=organization):
            yield calendar.name, calendar

    def _check_around(self, after: Schedule, calendars: dict[str, Calendar]) -> None:
        """Refuse what the store would refuse."""
        if after.calendar is not None and after.calendar not in calendars:
            raise InvalidSchedule(f"calendar={after.calendar!r} is not there: `rota calendar list` shows them")
        there = {each.name for each in self._session.open().store.schedules(scope=Scope(after.organization))} if after.depends_on else set()
        for name in after.depends_on:
            if name not in there:
                raise InvalidSchedule(f"depends_on={name!r}: there is no schedule of that name: `rota schedule list` shows them")


def _window(now: Instant, hours: float | None, start: datetime | None, end: datetime | None) -> tuple[Instant, Instant]:
    after = now if start is None else _instant("start", start)
    if end is not None and hours is not None:
        raise InvalidOption(f"hours={hours!r} and end are both given: give one of them")
    if end is not None:
        until = _instant("end", end)
    else:
        length = HOURS if hours is None else hours
        if isinstance(length, bool) or not 0 < length <= DAYS_MAX * 24:
            raise InvalidOption(f"hours={hours!r} is not allowed: give more than 0, at most a hundred years")
        until = min(FURTHEST, after + round(length * 3600 * SECOND))
    if until <= after:
        raise InvalidOption(f"the window ends at {at(until).isoformat()}, which is not after its start, {at(after).isoformat()}")
    return after, until


def _instant(name: str, given: datetime) -> Instant:
    if getattr(given, "tzinfo", None) is None:
        raise InvalidOption(f"{name}={given!r} is not allowed: give a datetime with a time zone")
    found = instant(given)
    if not DAY_US <= found <= FURTHEST:
        raise InvalidOption(f"{name}={given.isoformat()} is out of range: give a moment between the years 1970 and 9998")
    return found


def _needed(schedules: Sequence[Schedule], everything: Sequence[Schedule]) -> dict[str, Schedule]:
    """Return, by id, what these schedules depend on, directly or not."""
    by_name = {(each.organization, each.name): each for each in everything}
    found: dict[str, Schedule] = {}
    left = [*schedules]
    while left:
        each = left.pop()
        for other in (by_name.get((each.organization, name)) for name in each.depends_on):
            if other is not None and other.id not in found:
                found[other.id] = other
                left.append(other)
    return found


def _why_refused(rows: DueRows, schedule: Schedule, now: Instant) -> str | None:
    """Return why no job could be made of a schedule as things stand: the trigger's own words."""
    try:
        rows.build(schedule, schedule.params, now=now, run_at=now)
    except (InvalidInput, PermissionDenied, Refused) as error:
        return str(error)
    return None


def _history(store: Store, schedule: Schedule, now: Instant) -> tuple[Instant, Instant | None]:
    """Return up to where a schedule's doings are history, and when its latest chain completed. One that runs is trusted to."""
    latest = store.find(Where(schedule_id=schedule.id, tails=True), limit=1)
    job = latest[0][1] if latest else None
    if job is None:
        return now, None
    if not job.status.ended:
        # One that waits for other schedules has its story still to come.
        if job.blockers and schedule.depends_on and job.due_at is not None:
            return instant(job.due_at) - 1, None
        return now, now
    return now, instant(job.finished_at) if job.status is Status.COMPLETED and job.finished_at is not None else None


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


def _rows(store: Store, ledger: Ledger) -> Iterator[Occurrence]:
    before = None
    while page := store.occurrences(ledger, limit=PAGE, before=before):
        yield from page
        before = cursor_of(page[-1])


def _jobs(store: Store, schedule_id: str) -> Iterator[Job]:
    before = None
    while page := store.find(Where(schedule_id=schedule_id), limit=PAGE, before=before):
        for before, job in page:  # noqa: B007 - the last one is where the next page begins
            yield job
