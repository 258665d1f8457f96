"""Reports in SQL: written in the transaction that writes the outcome, with a message for each webhook that wants it.

A schedule's row says which span was reported as opened and can still grow. A span is closed by the next row of its schedule, by an edit,
and by the schedule's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rota.errors import NotFound
from rota.model.fates import Fated
from rota.model.reports import EVENT_OF, Phase, ScheduleReport, key_of, payload_of
from rota.model.schedules import Fate, Schedule
from rota.model.values import Instant
from rota.ports.hooks import Gap
from rota.ports.schedules import Firing
from rota.stores.verbs.db import Db
from rota.stores.verbs.schedules import Due, live
from rota.stores.verbs.webhooks import lane_for


def of_firings(db: Db, firings: Iterable[tuple[Due, Schedule, Firing]], grown: dict[str, Instant], now: Instant) -> None:
    """Report what was just written for several schedules. `grown` has the first due time of each row that was extended, by schedule."""
    reports: list[ScheduleReport] = []
    marks: list[tuple[str, Instant | None, str | None]] = []
    for due, schedule, firing in firings:
        if due.open_due_at is None and len(firing.rows) == len(firing.jobs):
            continue
        before = None if due.open_due_at is None or due.open_fate is None else (due.open_due_at, Fate(due.open_fate))
        after = _of_one(db, schedule, firing, before, grown.get(schedule.id), into=reports, now=now)
        if after != before:
            marks.append((schedule.id, *(after or (None, None))))
    if marks:
        db.change("mark_spans", rows=marks)
    _write(db, reports, now)


_Span = tuple[Instant, Fate]


def _of_one(
    db: Db, schedule: Schedule, firing: Firing, before: _Span | None, grown: Instant | None, *, into: list[ScheduleReport], now: Instant
) -> _Span | None:
    """Add the reports of one schedule; return the span that can still grow."""
    fresh = {(row.due_at, row.fate): row for row in firing.rows[grown is not None :]}
    longer = None if grown is None else (grown, firing.rows[0].fate)
    newest = max((span for span in (*fresh, longer, None if firing.rows else before) if span is not None), default=None)
    over = firing.drop or firing.state is not None or firing.next_at is None
    after = None if over or newest is None or newest[1] not in EVENT_OF else newest
    opened = [*([longer] if longer is not None and longer != before else []), *fresh]
    closed = [span for span in ([before] if before is not None else []) + opened if span != after]
    for spans, phase in ((opened, Phase.OPENED), (closed, Phase.CLOSED)):
        for span in spans:
            row = fresh.get(span) or _read(db, schedule.id, span)
            if row is not None and span[1] in EVENT_OF:
                into.append(_report(schedule, row, phase, now))
    return after


def close(db: Db, schedule: Schedule, now: Instant) -> None:
    """Report that the open span of a schedule grows no more: the schedule is changed or removed."""
    due_at, fate = db.row("open_span", schedule_id=schedule.id) or (None, None)
    if due_at is None:
        return
    db.change("mark_spans", rows=[(schedule.id, None, None)])
    row = _read(db, schedule.id, (due_at, Fate(fate)))
    if row is not None:
        _write(db, [_report(schedule, row, Phase.CLOSED, now)], now)


def of_row(db: Db, schedule: Schedule, row: Fated, now: Instant) -> None:
    """Report a row that stands alone and never grows."""
    _write(db, [_report(schedule, row, phase, now) for phase in Phase], now)


def report_overdue(db: Db, gaps: Sequence[Gap], *, now: Instant) -> int:
    """Report schedules that are overdue, as far as they still are; return how many were not reported before."""
    found = [(_there(db, gap.schedule_id), gap.row) for gap in gaps]
    late = [(schedule, row) for schedule, row in found if schedule is not None and schedule.cursor_at < row.due_at]
    return _write(db, [_report(schedule, row, Phase.OPENED, now) for schedule, row in late], now)


def _there(db: Db, schedule_id: str) -> Schedule | None:
    try:
        return live(db, schedule_id)
    except NotFound:
        return None


def _write(db: Db, reports: Sequence[ScheduleReport], now: Instant) -> int:
    """Write reports, but for those that were written before, and their messages; return how many are new."""
    if not reports:
        return 0
    rows = [
        (each.event, each.schedule_id, each.organization, each.due_at, each.last_due_at, each.count, each.outcome, each.phase, each.reason)
        for each in reports
    ]
    keys = {key_of(*row) for row in db.rows("add_reports", rows=rows, now=now)}
    new = [each for each in reports if each.key in keys]
    if new and db.value("any_endpoints"):
        _add_messages(db, new, now)
    return len(new)


def _add_messages(db: Db, reports: Sequence[ScheduleReport], now: Instant) -> None:
    messages: list[tuple[Any, ...]] = []
    endpoints = {name: db.rows("endpoints_of", organization_id=name) for name in sorted({each.organization for each in reports})}
    for each in reports:
        payload = payload_of(each)
        for endpoint_id, url, events, job_types in endpoints[each.organization]:
            lane = lane_for((endpoint_id, url, events, job_types), each.event, each.template, each.organization)
            if lane is not None:
                messages.append((each.event, each.schedule_id, each.key, url, payload, endpoint_id, each.organization, lane))
    if messages:
        db.change("add_report_mail", rows=messages, now=now)


def _read(db: Db, schedule_id: str, span: _Span) -> Fated | None:
    """Return a row of the ledger as it is; None if a clock that was set back has taken it away."""
    due_at, fate = span
    found = db.row("reported_row", schedule_id=schedule_id, due_at=due_at, fate=fate)
    return None if found is None else Fated(due_at=due_at, last_due_at=found[0], count=found[1], fate=fate, reason=found[2])


def _report(schedule: Schedule, row: Fated, phase: Phase, now: Instant) -> ScheduleReport:
    return ScheduleReport(
        event=EVENT_OF[row.fate],
        phase=phase,
        schedule_id=schedule.id,
        schedule=schedule.name,
        organization=schedule.organization,
        owner=schedule.created_by,
        template=schedule.template,
        outcome=row.fate,
        due_at=row.due_at,
        last_due_at=row.last_due_at,
        count=row.count,
        reason=row.reason,
        at=now,
    )
