"""Schedules and calendars in SQL: read, made, changed. Firing them: see `firing`; what became of due times: see `ledger`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import msgspec

from rota.errors import DependencyCycle, InvalidSchedule, NotFound, ScheduleExists, StillNeeded, UnknownTemplate
from rota.model.dependencies import find_circle
from rota.model.gate import Actor, Scope
from rota.model.schedule_options import as_options
from rota.model.schedules import Calendar, CatchUp, Kind, OnCompletion, Overlap, Schedule, ScheduleState, Timing, lattice_of
from rota.model.values import Instant, moment
from rota.ports.schedules import Beat, Change, DueSchedule
from rota.stores.sqlite.connection import Db
from rota.stores.sqlite.verbs import audit

_encode = msgspec.json.Encoder().encode


class Row(msgspec.Struct, array_like=True):
    """The columns of `schedule_columns`."""

    id: str
    name: str
    organization: str
    template: str
    template_id: str
    kind: Kind
    cron: str | None
    at: int | None
    interval: int | None
    timezone: str
    starts_at: int | None
    ends_at: int | None
    state: ScheduleState
    description: str | None
    params: dict[str, object] | None
    priority: int | None
    catch_up: CatchUp
    catch_up_lateness: int | None
    catch_up_count: int | None
    overlap: Overlap
    jitter: int
    calendar: str | None
    on_completion: OnCompletion
    depends_on: tuple[str, ...] | None
    run_as: str | None
    cursor_at: int
    next_at: int | None
    last_at: int | None
    declared: dict[str, object] | None
    version: int
    created_by: str
    created_at: int
    updated_at: int
    dropped_at: int | None
    live: tuple[str, ...] = ()
    already: tuple[int, ...] = ()

    def value(self) -> Schedule:
        """Return it as the model has it."""
        return Schedule(
            id=self.id,
            name=self.name,
            organization=self.organization,
            template=self.template,
            timing=Timing(
                kind=self.kind,
                cron=self.cron,
                at=self.at,
                interval=self.interval,
                timezone=self.timezone,
                starts_at=self.starts_at,
                ends_at=self.ends_at,
            ),
            state=self.state,
            description=self.description,
            params=self.params or {},
            priority=self.priority,
            catch_up=self.catch_up,
            catch_up_lateness=self.catch_up_lateness,
            catch_up_count=self.catch_up_count,
            overlap=self.overlap,
            jitter=self.jitter,
            calendar=self.calendar,
            on_completion=self.on_completion,
            depends_on=self.depends_on or (),
            run_as=self.run_as,
            cursor_at=self.cursor_at,
            next_at=self.next_at,
            last_at=self.last_at,
            declared=self.declared,
            version=self.version,
            created_by=self.created_by,
            created_at=moment(self.created_at),
            updated_at=moment(self.updated_at),
        )


rows_of = msgspec.json.Decoder(list[Row]).decode
_days = msgspec.json.Decoder(frozenset[date])


def schedules(db: Db, scope: Scope, *, name: str | None, template: str | None) -> list[Schedule]:
    """Return schedules inside a scope."""
    text = db.value("schedules", organization_id=scope.organization, owner=scope.owner, name=name, template=template)
    return [row.value() for row in rows_of(text)]


def schedule(db: Db, schedule_id: str) -> Schedule | None:
    """Return one schedule, dropped or not."""
    found = rows_of(db.value("schedule", schedule_id=schedule_id))
    return found[0].value() if found else None


def beat(db: Db) -> Beat:
    """Return when schedules want to be looked at."""
    *wants, furthest = db.rows("beat_of_schedules")[0]
    return Beat(next_at=min((at for at in wants if at is not None), default=None), furthest=furthest)


def due(db: Db, found: list[Row]) -> list[DueSchedule]:
    """Return schedules with what their fates depend on."""
    used = {(row.organization, row.calendar) for row in found}
    days = {(organization, name): None if name is None else calendar(db, organization, name) for organization, name in used}
    rooms = {organization: _room(db, organization) for organization in {row.organization for row in found}}
    return [
        DueSchedule(
            schedule=row.value(),
            template_id=row.template_id,
            live=row.live,
            already=row.already,
            calendar=days[row.organization, row.calendar],
            room=rooms[row.organization],
        )
        for row in found
    ]


def _room(db: Db, organization: str) -> int | None:
    most = db.value("max_queued", organization_id=organization)
    return None if most is None else most - db.value("queued_count", organization_id=organization)


# ---- making and changing -------------------------------------------------------------------------------------------


def add(db: Db, new: Schedule, actor: Actor, now: Instant) -> Schedule:
    """Add a schedule whose name is free."""
    if db.value("schedule_named", organization_id=new.organization, name=new.name) is not None:
        raise ScheduleExists(f"there is a schedule {new.name!r} already: edit it, or choose another name")
    _check_surroundings(db, new)
    _write(db, new, now, cursor_at=new.cursor_at)
    audit(db, actor, now, "schedule.create", ("schedule", new.name), after=said(new), organization=new.organization)
    return _there(db, new.id)


def change(db: Db, schedule_id: str, change_: Change, actor: Actor, now: Instant, *, close: Callable[[], object]) -> Schedule:
    """Change a schedule after its ledger was closed by the old definition."""
    before = live(db, schedule_id)
    after = change_(before)
    if after == before:
        return before
    _check_surroundings(db, after)
    close()
    if db.value("schedule_named", organization_id=before.organization, name=before.name) != schedule_id:
        # An AT that was due just now fired, and is not kept: there is nothing left to change.
        raise not_there(before.name)
    _write(db, after, now, cursor_at=now)
    written = _there(db, schedule_id)
    if said(before) != said(written):
        audit(
            db,
            actor,
            now,
            "schedule.edit",
            ("schedule", after.name),
            before=said(before),
            after=said(written),
            organization=after.organization,
        )
    return written


def drop(db: Db, schedule_id: str, actor: Actor, now: Instant, *, close: Callable[[], object]) -> None:
    """Take a schedule out of sight after its ledger was closed."""
    before = live(db, schedule_id)
    needing = [
        name for name, text in db.rows("all_depending", organization_id=before.organization) if before.name in msgspec.json.decode(text)
    ]
    if needing:
        raise StillNeeded(f"schedule {before.name!r} can't be deleted: {', '.join(map(repr, sorted(needing)[:5]))} depend on it")
    close()
    db.change("drop_schedule", schedule_id=schedule_id, now=now)
    audit(db, actor, now, "schedule.delete", ("schedule", before.name), before=said(before), organization=before.organization)


def said(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as the audit trail keeps it."""
    return as_options(schedule) | {"state": schedule.state}


def live(db: Db, schedule_id: str) -> Schedule:
    """Return a schedule that was not dropped."""
    found = rows_of(db.value("schedule", schedule_id=schedule_id))
    if not found or found[0].dropped_at is not None:
        raise NotFound("there is no such schedule any more: `rota schedule list` shows them")
    return found[0].value()


def not_there(name: str) -> NotFound:
    """Return what is said of a schedule that is not there."""
    return NotFound(f"there is no schedule {name!r}: `rota schedule list` shows them")


def _there(db: Db, schedule_id: str) -> Schedule:
    found = schedule(db, schedule_id)
    assert found is not None  # noqa: S101 - written in this transaction
    return found


def _check_surroundings(db: Db, new: Schedule) -> None:
    """Refuse a calendar or dependency that is not there, and dependencies in a circle."""
    if new.calendar is not None and db.row("calendar", organization_id=new.organization, name=new.calendar) is None:
        raise InvalidSchedule(f"calendar={new.calendar!r} is not there: `rota calendar list` shows them, `rota calendar set` makes one")
    for name in new.depends_on:
        if db.value("schedule_named", organization_id=new.organization, name=name) is None:
            raise InvalidSchedule(f"depends_on={name!r}: there is no schedule of that name: `rota schedule list` shows them")
    if not new.depends_on:
        return
    others = db.rows("all_depending", organization_id=new.organization)
    waits = [(name, parent) for name, text in others if name != new.name for parent in msgspec.json.decode(text)]
    path = find_circle(waits + [(new.name, parent) for parent in new.depends_on], new.name)
    if path is not None:
        raise DependencyCycle(f"schedules can't depend on each other in a circle: {' → '.join(path)}", tuple(path))


def _write(db: Db, new: Schedule, now: Instant, *, cursor_at: Instant) -> None:
    template_id = db.value("template_named", name=new.template)
    if template_id is None:
        raise UnknownTemplate(f"there is no template {new.template!r}: `rota template list` shows them")
    timing = new.timing
    due_next = None if new.state is ScheduleState.DISABLED else lattice_of(timing).next(cursor_at)
    db.change(
        "put_schedule",
        schedule_id=new.id,
        organization_id=new.organization,
        template_id=template_id,
        name=new.name,
        description=new.description,
        kind=timing.kind,
        cron=timing.cron,
        at=timing.at,
        interval=timing.interval,
        timezone=timing.timezone,
        starts_at=timing.starts_at,
        ends_at=timing.ends_at,
        state=new.state,
        params=_object(new.params),
        priority=new.priority,
        catch_up=new.catch_up,
        catch_up_lateness=new.catch_up_lateness,
        catch_up_count=new.catch_up_count,
        overlap=new.overlap,
        jitter=new.jitter,
        calendar=new.calendar,
        on_completion=new.on_completion,
        depends_on=_encode(new.depends_on).decode() if new.depends_on else None,
        run_as=new.run_as,
        cursor_at=cursor_at,
        next_at=due_next,
        declared=None if new.declared is None else _object(new.declared),
        created_by=new.created_by,
        now=now,
    )


def _object(value: dict[str, object]) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


# ---- calendars -----------------------------------------------------------------------------------------------------


def calendar(db: Db, organization: str, name: str) -> Calendar | None:
    """Return a calendar by its name."""
    row = db.row("calendar", organization_id=organization, name=name)
    return None if row is None else Calendar(name=name, days=_days.decode(row[0]), description=row[1])


def calendars(db: Db, organization: str | None) -> list[tuple[str, Calendar]]:
    """Return calendars with their organizations."""
    rows = db.rows("calendars", organization_id=organization)
    return [(row[0], Calendar(name=row[1], days=_days.decode(row[2]), description=row[3])) for row in rows]


def put_calendar(db: Db, new: Calendar, organization: str, actor: Actor, now: Instant) -> None:
    """Make a calendar or change its days."""
    before = calendar(db, organization, new.name)
    days = _encode(sorted(new.days)).decode()
    values = {
        "organization_id": organization,
        "name": new.name,
        "description": new.description,
        "days": days,
        "actor": actor.name,
        "now": now,
    }
    if db.change("put_calendar", **values):
        was = None if before is None else _shown(before)
        audit(db, actor, now, "calendar.set", ("calendar", new.name), before=was, after=_shown(new), organization=organization)


def drop_calendar(db: Db, name: str, organization: str, actor: Actor, now: Instant) -> None:
    """Remove a calendar that no schedule uses."""
    before = calendar(db, organization, name)
    if before is None:
        raise NotFound(f"there is no calendar {name!r}: `rota calendar list` shows them")
    users = [row[0] for row in db.rows("users_of_calendar", organization_id=organization, name=name)]
    if users:
        raise StillNeeded(f"calendar {name!r} can't be deleted: {', '.join(map(repr, users[:5]))} use it")
    db.change("drop_calendar", organization_id=organization, name=name)
    audit(db, actor, now, "calendar.delete", ("calendar", name), before=_shown(before), organization=organization)


def _shown(calendar_: Calendar) -> dict[str, object]:
    return {"days": sorted(day.isoformat() for day in calendar_.days), "description": calendar_.description}
