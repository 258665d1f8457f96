"""Schedules and calendars in SQL: read, made, changed. Firing them: see `firing`; what became of due times: see `ledger`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import msgspec

from rota.errors import (
    ChangedMeanwhile,
    DependencyCycle,
    InvalidSchedule,
    NotFound,
    Refused,
    ScheduleExists,
    StillNeeded,
    UnknownTemplate,
)
from rota.model.definitions import TemplateState, unfit_for_schedules
from rota.model.dependencies import find_circle
from rota.model.gate import EVERYTHING, Actor, Scope
from rota.model.kinds import JobWork
from rota.model.schedule_options import as_options
from rota.model.schedules import (
    Calendar,
    JobKind,
    OwnTemplate,
    Schedule,
    ScheduleState,
    TemplateVersion,
    comes_into_use,
    next_look,
)
from rota.model.values import Instant, moment
from rota.model.webhooks import WAIT_MAX
from rota.ports.schedules import Beat, Change, DueSchedule
from rota.stores.verbs import grants, secrets
from rota.stores.verbs.chains import number_of_live
from rota.stores.verbs.db import Db, audit

_encode = msgspec.json.Encoder().encode


class Due(msgspec.Struct, array_like=True, gc=False):
    """A schedule that is due, as `schedules_due_now` tells of it."""

    rowid: int
    schedule: Schedule
    has_live: int
    ahead_at: Instant | None
    told_from: Instant | None
    told_until: Instant | None
    open_due_at: Instant | None
    open_fate: str | None


class _Read(msgspec.Struct, array_like=True):
    """A schedule as `schedules` tells of it."""

    schedule: Schedule
    created_at: Instant
    updated_at: Instant
    dropped_at: Instant | None

    def value(self) -> Schedule:
        return msgspec.structs.replace(self.schedule, created_at=moment(self.created_at), updated_at=moment(self.updated_at))


due_of = msgspec.json.Decoder(list[Due]).decode
bare_of = msgspec.json.Decoder(list[Schedule]).decode
_rows_of = msgspec.json.Decoder(list[_Read]).decode
_days = msgspec.json.Decoder(frozenset[date])


def schedules(
    db: Db, *, scope: Scope = EVERYTHING, name: str | None = None, template: str | None = None, dropped: bool = False
) -> list[Schedule]:
    """Return schedules inside a scope."""
    values = {"organization_id": scope.organization, "owner": scope.owner, "granted": scope.granted, "name": name, "template": template}
    try:
        if name is not None and not dropped:
            return [row.value() for row in _rows_of(db.value("schedules_called", **values))]
        return [row.value() for row in _rows_of(db.value("schedules", dropped=int(dropped), **values))]
    except db.unwritable:
        # One that can't be read keeps no other from being shown; `rota doctor` names it.
        rows = db.rows("schedule_ids", dropped=int(dropped), **values)
        return [found for (schedule_id,) in rows if (found := _if_readable(db, schedule_id))]


def _if_readable(db: Db, schedule_id: str) -> Schedule | None:
    try:
        return schedule(db, schedule_id)
    except db.unwritable:
        return None


def live_chains(db: Db, schedule_id: str) -> list[str]:
    """Return the chains of a schedule that have not ended, by the ids of their first jobs."""
    return [root for (root,) in db.rows("live_roots", schedule_id=schedule_id)]


def template_version(db: Db, template_id: str, version: int) -> TemplateVersion | None:
    """Return what a job was in one of its versions."""
    row = db.row("template_version", template_id=template_id, version=version)
    if row is None:
        return None
    kind, job_type, body, defaults, created_by, created_at = row
    return TemplateVersion(version, JobKind(kind), job_type, body, msgspec.json.decode(defaults), created_by, moment(created_at))


def work_of(db: Db, job: int | str) -> JobWork | None:
    """Return what a job does, as it was defined when the job was enqueued."""
    number = number_of_live(db, job) if isinstance(job, str) else job
    row = None if number is None else db.row("work_of_job", number=number)
    if row is None:
        return None
    kind, body, defaults, name, schedule_id, run_as, created_by, shared = row
    return JobWork(
        kind=JobKind(kind),
        body=body,
        defaults=msgspec.json.decode(defaults),
        name=name,
        schedule_id=schedule_id or None,
        run_as=run_as,
        created_by=created_by,
        shared=bool(shared),
    )


def schedule(db: Db, schedule_id: str) -> Schedule | None:
    """Return one schedule, dropped or not."""
    found = _rows_of(db.value("schedule", schedule_id=schedule_id))
    return found[0].value() if found else None


def beat_of_schedules(db: Db) -> Beat:
    """Return when schedules want to be looked at."""
    *wants, furthest = db.rows("beat_of_schedules", span=WAIT_MAX)[0]
    return Beat(next_at=min((at for at in wants if at is not None), default=None), furthest=furthest)


def surroundings(db: Db, found: list[Due], rooms: dict[str, int | None]) -> list[DueSchedule]:
    """Return schedules with what their fates depend on. `rooms` are the organizations' as first looked at in this transaction."""
    used = {(each.schedule.organization, each.schedule.calendar) for each in found}
    days = {(organization, name): None if name is None else read_calendar(db, organization, name) for organization, name in used}
    rooms |= {organization: _room(db, organization) for organization in {organization for organization, _ in used} - rooms.keys()}
    spread_until = db.value("spread_until")
    return [
        DueSchedule(
            schedule=each.schedule,
            live=tuple(row[0] for row in db.rows("live_of", schedule_id=each.schedule.id)) if each.has_live else (),
            already=_already(db, each.schedule) if each.ahead_at is not None else (),
            calendar=days[each.schedule.organization, each.schedule.calendar],
            room=rooms[each.schedule.organization],
            spread_until=spread_until,
        )
        for each in found
    ]


def _already(db: Db, schedule: Schedule) -> tuple[Instant, ...]:
    return tuple(row[0] for row in db.rows("fired_beyond", schedule_id=schedule.id, cursor_at=schedule.cursor_at))


def _room(db: Db, organization: str) -> int | None:
    most = db.value("max_queued", organization_id=organization)
    return None if most is None else most - db.value("queued_count", organization_id=organization)


# ---- making and changing -------------------------------------------------------------------------------------------


def add_schedule(db: Db, schedule: Schedule, *, actor: Actor, now: Instant) -> Schedule:
    """Add a schedule whose name is free."""
    _refuse_taken(db, schedule)
    _check_surroundings(db, schedule, called=schedule.name)
    template_id = _template(db, None, schedule)
    db.change("note_clock", now=now)
    _put_own(db, None, schedule, actor=actor, now=now)
    _write(db, schedule, now, template_id=template_id, cursor_at=schedule.cursor_at)
    _audit(db, actor, now, "schedule.create", schedule, after=said(schedule))
    return _there(db, schedule.id)


def change(db: Db, schedule_id: str, change_: Change, actor: Actor, now: Instant, *, close: Callable[[], object]) -> Schedule:
    """Change a schedule after its ledger was closed by the old definition."""
    before = live(db, schedule_id)
    after = change_(before)
    if after == before:
        return before
    if after.name != before.name:
        _refuse_taken(db, after)
    _check_surroundings(db, after, called=before.name)
    template_id = _template(db, before, after)
    close()
    closed = _closed(db, before)
    if after.timing == before.timing and after.state is before.state:
        # Over, unless it is given another time: a change of something else does not undo that.
        after = msgspec.structs.replace(after, state=closed.state)
    db.change("note_clock", now=now)
    # After its due times up to now became jobs of what it was.
    _put_own(db, before, after, actor=actor, now=now)
    _write(db, after, now, template_id=template_id, cursor_at=now)
    if after.name != before.name:
        _follow_name(db, before, after.name, now)
    written = _there(db, schedule_id)
    was, is_now = ({**_moved(one, other), **said(one)} for one, other in ((before, written), (written, before)))
    if was != is_now:
        _audit(db, actor, now, "schedule.edit", after, before=was, after=is_now)
    return written


def _moved(one: Schedule, other: Schedule) -> dict[str, Any]:
    """Return the name and the owner of a schedule, where another version of it has others."""
    shown = {"name": (one.name, other.name), "owner": (one.created_by, other.created_by)}
    return {field: mine for field, (mine, theirs) in shown.items() if mine != theirs}


def _audit(db: Db, actor: Actor, now: Instant, action: str, schedule: Schedule, *, before: Any = None, after: Any = None) -> None:
    """Record a change, with the schedule's id, which stays when it is renamed."""
    subject = ("schedule", schedule.name)
    audit(db, actor, now, action, subject, before=before, after=after, organization=schedule.organization, job=schedule.id)


def _refuse_taken(db: Db, new: Schedule) -> None:
    if db.value("schedule_named", organization_id=new.organization, name=new.name) is not None:
        raise ScheduleExists(f"there is a schedule {new.name!r} already: edit it, or choose another name")
    if new.own is not None and db.value("name_of_template", organization_id=new.organization, name=new.name):
        raise ScheduleExists(f"there is a template {new.name!r} already: choose another name")


def _follow_name(db: Db, before: Schedule, name: str, now: Instant) -> None:
    """Have the schedules that depend on a renamed one name it as it is called now."""
    for child, text in db.rows("all_depending", organization_id=before.organization):
        parents = msgspec.json.decode(text)
        if before.name in parents:
            renamed = [name if parent == before.name else parent for parent in parents]
            db.change("set_dependencies", organization_id=before.organization, name=child, depends_on=_encode(renamed).decode(), now=now)


def _closed(db: Db, before: Schedule) -> Schedule:
    """Return a schedule whose due times up to now have their fates, by the definition that held then.

    An AT that was due is over. One that is not kept is gone by that same definition: whatever was to be changed of it comes too late.
    """
    try:
        return live(db, before.id)
    except NotFound:
        words = f"schedule {before.name!r} is over: it was due, and its on_completion is DROP"
        raise NotFound(f"{words}. It can be deleted, or a worker removes it; create another one") from None


def drop(db: Db, schedule_id: str, actor: Actor, now: Instant, *, close: Callable[[], object], version: int | None = None) -> None:
    """Take a schedule out of sight after its ledger was closed."""
    before = live(db, schedule_id)
    if version is not None and version != before.version:
        raise ChangedMeanwhile(f"schedule {before.name!r}", has=before.version, given=version)
    needing = depending_on(db, before)
    if needing:
        if before.own is not None:
            raise StillNeeded(f"job {before.name} can't be dropped: it is needed by {', '.join(needing[:5])}")
        raise StillNeeded(f"schedule {before.name!r} can't be deleted: it is needed by {', '.join(map(repr, needing[:5]))}")
    close()
    take_away(db, before, actor, now)


def take_away(db: Db, before: Schedule, actor: Actor, now: Instant) -> None:
    """Take a schedule out of sight, and with it the template that is its own."""
    db.change("drop_schedule", schedule_id=before.id, now=now)
    db.change("forget_told", schedule_id=before.id)
    if before.own is not None:
        db.change("drop_own_template", template_id=before.own.id, now=now)
    grants.remove_those_on_job(db, before.id, actor, now)
    secrets.drop_those_of_job(db, before.id, actor, now)
    _audit(db, actor, now, "schedule.delete", before, before=said(before))


def replace(db: Db, schedule_id: str, new: Schedule, actor: Actor, now: Instant, *, close: Callable[[], object]) -> Schedule:
    """Put a new schedule in the place of one of the same name, whose history stays. Those that depend on it depend on the new one."""
    before = live(db, schedule_id)
    close()
    take_away(db, before, actor, now)
    return add_schedule(db, new, actor=actor, now=now)


def depending_on(db: Db, schedule: Schedule) -> list[str]:
    """Return the names of the schedules that depend on this one."""
    rows = db.rows("all_depending", organization_id=schedule.organization)
    return sorted(name for name, text in rows if schedule.name in msgspec.json.decode(text))


def said(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as the audit trail keeps it."""
    return as_options(schedule) | {"state": schedule.state} | ({} if schedule.own is None else _said_of_own(schedule.own))


def _said_of_own(own: OwnTemplate) -> dict[str, Any]:
    """Return what a job has beyond a schedule. Its body is not among it: it may hold what only few may read."""
    fields = ("kind", "job_class", "partition_strategy", "partition_shard", "partition_expression")
    shown = {name: value for name in fields if (value := getattr(own, name)) is not None}
    return shown | own.defaults | {"template_version": own.version}


def live(db: Db, schedule_id: str) -> Schedule:
    """Return a schedule that was not dropped."""
    found = _rows_of(db.value("schedule", schedule_id=schedule_id))
    if not found or found[0].dropped_at is not None:
        raise not_there(found[0].schedule.name if found else schedule_id)
    return found[0].value()


def not_there(name: str) -> NotFound:
    """Return what is said of a schedule that is not there."""
    return NotFound(f"there is no schedule {name!r}: `rota schedule list` shows them")


def _there(db: Db, schedule_id: str) -> Schedule:
    found = schedule(db, schedule_id)
    assert found is not None  # noqa: S101 - written in this transaction
    return found


def _check_surroundings(db: Db, new: Schedule, *, called: str) -> None:
    """Refuse a calendar or dependency that is not there, and dependencies in a circle; `called` is its name in the store as yet."""
    if new.calendar is not None and db.row("calendar", organization_id=new.organization, name=new.calendar) is None:
        raise InvalidSchedule(
            f"calendar={new.calendar!r} is not there: `rota calendar list` shows them, `rota calendar update` creates one"
        )
    for name in new.depends_on:
        if db.value("schedule_named", organization_id=new.organization, name=name) is None:
            raise InvalidSchedule(f"depends_on={name!r}: there is no schedule of that name: `rota schedule list` shows them")
    if not new.depends_on:
        return
    others = db.rows("all_depending", organization_id=new.organization)
    waits = [(name, parent) for name, text in others if name != called for parent in msgspec.json.decode(text)]
    path = find_circle(waits + [(called, parent) for parent in new.depends_on], called)
    if path is not None:
        what = "schedules" if new.own is None else "jobs"
        raise DependencyCycle(f"{what} can't depend on each other in a circle: {' → '.join(path)}", tuple(path))


def _template(db: Db, before: Schedule | None, after: Schedule) -> str:
    """Return the id of a schedule's template, or refuse one that is not there, or takes no jobs though the schedule comes into use."""
    if after.own is not None:
        if after.template != (after.name if before is None else before.template):
            raise Refused(f"job {after.name!r} was created by SQL and has its own template: change it with ALTER JOB")
        return after.own.id
    row = db.row("template_named", name=after.template)
    if row is None:
        raise UnknownTemplate(f"there is no template {after.template!r}: `rota template list` shows them")
    template_id, state = row
    if state != TemplateState.ENABLED and comes_into_use(before, after):
        raise unfit_for_schedules(after.template, state)
    return str(template_id)


def _put_own(db: Db, before: Schedule | None, after: Schedule, *, actor: Actor, now: Instant) -> None:
    """Write the template of one schedule alone, if it has one. If nothing of what its jobs are made of changes, nor does its version."""
    own = after.own
    if own is None:
        return
    same = before is not None and before.own == own
    if not same or before is None or before.name != after.name or before.description != after.description:
        db.change(
            "put_own_template",
            template_id=own.id,
            organization_id=after.organization,
            name=after.name,
            description=after.description,
            kind=own.kind,
            job_type=own.job_type,
            body=own.body,
            defaults=_object(own.defaults),
            job_class=own.job_class,
            partition_strategy=own.partition_strategy,
            partition_shard=own.partition_shard,
            partition_expression=own.partition_expression,
            actor=actor.name,
            step=int(not same),
            now=now,
        )
    if not same:
        db.change("add_version", template_id=own.id, schedule_id=after.id, actor=actor.name, now=now)


def _write(db: Db, new: Schedule, now: Instant, *, template_id: str, cursor_at: Instant) -> None:
    timing = new.timing
    due_next = None if new.state is ScheduleState.DISABLED else next_look(timing, cursor_at)
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


def follow_zones(db: Db, rules: int) -> int:
    """Work out anew when zoned schedules are due next, after their cursors."""
    if db.value("zone_rules") == rules:
        return 0
    changed = 0
    for each in bare_of(db.value("zoned_schedules")):
        try:
            next_at = next_look(each.timing, each.cursor_at)
        except InvalidSchedule:
            # A zone that is gone: the trigger tells of it when it is due by the old rules.
            continue
        if next_at != each.next_at:
            changed += db.change("set_next", schedule_id=each.id, next_at=next_at)
    db.change("set_zone_rules", rules=rules)
    return changed


# ---- calendars -----------------------------------------------------------------------------------------------------


def read_calendar(db: Db, organization: str, name: str) -> Calendar | None:
    """Return a calendar by its name."""
    row = db.row("calendar", organization_id=organization, name=name)
    return None if row is None else Calendar(name=name, days=_days.decode(row[0]), description=row[1])


def calendars(db: Db, *, organization: str | None = None) -> list[tuple[str, Calendar]]:
    """Return calendars with their organizations."""
    rows = db.rows("calendars", organization_id=organization)
    return [(row[0], Calendar(name=row[1], days=_days.decode(row[2]), description=row[3])) for row in rows]


def put_calendar(db: Db, calendar: Calendar, *, organization: str, actor: Actor, now: Instant) -> None:
    """Make a calendar or change its days."""
    before = read_calendar(db, organization, calendar.name)
    days = _encode(sorted(calendar.days)).decode()
    values = {
        "organization_id": organization,
        "name": calendar.name,
        "description": calendar.description,
        "days": days,
        "actor": actor.name,
        "now": now,
    }
    if db.change("put_calendar", **values):
        was = None if before is None else _shown(before)
        audit(db, actor, now, "calendar.set", ("calendar", calendar.name), before=was, after=_shown(calendar), organization=organization)


def drop_calendar(db: Db, name: str, *, organization: str, actor: Actor, now: Instant) -> None:
    """Remove a calendar that no schedule uses."""
    before = read_calendar(db, organization, name)
    if before is None:
        raise NotFound(f"there is no calendar {name!r}: `rota calendar list` shows them")
    users = [row[0] for row in db.rows("users_of_calendar", organization_id=organization, name=name)]
    if users:
        raise StillNeeded(f"calendar {name!r} can't be deleted: it is used by {', '.join(map(repr, users[:5]))}")
    db.change("drop_calendar", organization_id=organization, name=name)
    audit(db, actor, now, "calendar.delete", ("calendar", name), before=_shown(before), organization=organization)


def _shown(calendar: Calendar) -> dict[str, object]:
    return {"days": sorted(day.isoformat() for day in calendar.days), "description": calendar.description}
