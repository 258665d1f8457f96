"""The store from above, in SQL: what waits and runs, figures, and what is new for those who watch. Every walk has its bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from rota.model.events import JobNow
from rota.model.figures import Fared, Stats, together
from rota.model.gate import EVERYTHING, Scope
from rota.model.reports import ScheduleReport
from rota.model.schedules import Fate
from rota.model.states import Status
from rota.model.values import LATEST, Instant, dashed, number_text
from rota.ports.events import DefinitionChange, Marks, NumberedReport, ProgressNow, Span
from rota.ports.overseeing import Dead, EndCount, Figure, Lane, Paused, RunningSuspect, Seen, Shown, Trended, UnderWay, Unfired
from rota.stores.verbs.db import Db
from rota.stores.verbs.reads import job_from, lines

LANES_MAX = 500
"""Lanes that are looked at, at most."""
ROWS_LOOK = 5000
"""Rows that are read where an index does not tell enough, at most: for those of one organization, and for what is blocked."""
SUSPECTS_LOOK = 1000
"""Rows at the front of each lane that are looked at for suspects."""
HEADS = 50
"""How many at the front of each lane are looked at for the longest wait."""
HOUR: Instant = 3_600_000_000
TYPES_MAX = 50
"""How many job types are shown with what waits of them."""
_numbers = msgspec.json.Decoder(list[int])


def waiting(db: Db, *, now: Instant, look: int, scope: Scope = EVERYTHING) -> list[Lane]:
    """Return what waits, in lanes."""
    queued = list(_queued(db, look) if scope.organization is None else _queued_of(db, look, scope))
    if db.rows("running_suspects"):
        queued = _with_suspects(db, queued, scope)
    return [*queued, *_blocked(db, look, scope), *_due(db, now, look, scope)]


def shown(db: Db, numbers: list[int]) -> dict[int, Shown]:
    """Return how jobs are named."""
    return {
        row[0]: Shown(id=dashed(row[1]), root_id=row[2], root_number=row[3], attempt=row[4], job_type=row[5])
        for row in db.rows("shown", numbers=numbers)
    }


def suspects(db: Db) -> list[RunningSuspect]:
    """Return the suspects that run."""
    return [
        RunningSuspect(worker_id=worker_id, number=number_text(root_id, root_number, attempt), executor=executor)
        for _, worker_id, root_id, root_number, attempt, executor in db.rows("running_suspects")
    ]


def running(db: Db, *, look: int, limit: int, scope: Scope = EVERYTHING) -> UnderWay:
    """Return the longest running jobs."""
    rows = db.rows("running_now", look=look, limit=limit, organization_id=scope.organization, owner=scope.owner)
    count, looked = (rows[0][-2], rows[0][-1]) if rows else (0, 0)
    return UnderWay(
        jobs=[Seen(job=job_from(row[:-4]), progress=row[-4], message=row[-3]) for row in rows], count=count, more=looked >= look
    )


def dead_lately(db: Db, *, since: Instant, look: int, limit: int, scope: Scope = EVERYTHING) -> list[Dead]:
    """Return dead letters."""
    values = {"organization_id": scope.organization, "owner": scope.owner}
    return [
        Dead(
            job=Shown(id=dashed(row[0]), root_id=row[1], root_number=row[2], attempt=row[3], job_type=row[4]),
            organization=row[5],
            at=row[6],
            reason=row[7],
        )
        for row in db.rows("dead_lately", since=since, look=look, limit=limit, **values)
    ]


def unfired(db: Db, *, since: Instant, limit: int, scope: Scope = EVERYTHING) -> list[Unfired]:
    """Return due times that did not fire."""
    return [
        Unfired(
            schedule=row[0],
            schedule_id=row[1],
            organization=row[2],
            fate=Fate(row[3]),
            due_at=row[4],
            last_due_at=row[5],
            count=row[6],
            reason=row[7],
        )
        for row in db.rows("unfired", since=since, limit=limit, organization_id=scope.organization, owner=scope.owner)
    ]


def figures(db: Db, *, since: Instant, scope: Scope = EVERYTHING) -> list[Figure]:
    """Return how attempts ended."""
    return [Figure(*row) for row in db.rows("figures", since=since - since % HOUR, organization_id=scope.organization)]


def hourly(db: Db, *, since: Instant, scope: Scope = EVERYTHING) -> list[Figure]:
    """Return figures by the hour."""
    return [Figure(*row) for row in db.rows("hourly", since=since - since % HOUR, organization_id=scope.organization)]


def trend(db: Db, *, since: Instant, step: Instant, look: int, job_type: str | None = None, scope: Scope = EVERYTHING) -> Trended:
    """Return figures by periods."""
    (begins, *_), *rows = db.rows(
        "trend_minutes" if step < HOUR else "trend_hours",
        since=since,
        step=step,
        look=look,
        job_type=job_type,
        organization_id=scope.organization,
    )
    took: dict[Instant, dict[int, int]] = {}
    ends: list[EndCount] = []
    for at, name, status, bucket, count in rows:
        if bucket is None:
            ends.append(EndCount(at - at % step, name, status, count))
        else:
            took.setdefault(at, {})[bucket] = count
    return Trended(ends=ends, took=took, since=begins, more=begins > since)


def kept(db: Db, status: str, *, scope: Scope = EVERYTHING) -> dict[str, int]:
    """Return how many ended jobs are here."""
    return dict(db.rows("kept", status=status, organization_id=scope.organization))


def errors(db: Db, numbers: list[int]) -> dict[int, str]:
    """Return what attempts died of."""
    return dict(db.rows("errors", numbers=numbers))


def metas(db: Db, numbers: list[int]) -> dict[int, str]:
    """Return what is kept with jobs."""
    return dict(db.rows("metas", numbers=numbers))


def paused(db: Db) -> list[Paused]:
    """Return what is paused."""
    return [Paused(kind=kind, name=name, at=at, by=by) for kind, name, at, by in db.rows("paused")]


def _queued(db: Db, look: int) -> Iterator[Lane]:
    """Go along the ready index, lane by lane and priority by priority, then along what is parked, word by word and type by type."""
    for job_type, lane, queue, number, most, count, since in sorted(
        db.rows("ready_lanes", limit=LANES_MAX, look=look, few=HEADS), key=itemgetter(0)
    ):
        values = {"number": number, "count": count, "more": count >= most, "since": since, "lane": lane, "queue": queue}
        yield Lane(status="QUEUED", job_type=job_type, **values)
    for held, job_type, number, most, count, since in db.rows("held_lanes", limit=LANES_MAX, look=look, few=HEADS):
        yield Lane(status="QUEUED", job_type=job_type, held=held, number=number, count=count, more=count >= most, since=since)


def _queued_of(db: Db, look: int, scope: Scope) -> Iterator[Lane]:
    """Look at the heads of an organization's lines, the highest priority first, until enough was looked at."""
    left, priority = min(look, ROWS_LOOK), db.value("next_priority", priority=101)
    while priority is not None and left > 0:
        rows = db.rows("line_lanes", priority=priority, organization_id=scope.organization, owner=scope.owner, look=left)
        looked = sum(row[3] for row in rows)
        for held, job_type, mine, count, since, number, lane, queue in rows:
            if mine:
                values = {"number": number, "count": count, "more": looked >= left, "since": since, "lane": lane, "queue": queue}
                yield Lane(status="QUEUED", job_type=job_type, held=held, **values)
        left -= looked
        priority = db.value("next_priority", priority=priority)


def _with_suspects(db: Db, lanes: list[Lane], scope: Scope) -> list[Lane]:
    """Count suspects apart from others of their type that wait in the same lane."""
    found: list[Lane] = []
    apart: dict[int, int] = {}
    heads = {lane.lane: lane for lane in lanes if lane.held is None and lane.lane is not None}
    for lane_id, head in sorted(heads.items(), key=lambda item: str(item[1].job_type)):
        values = {"organization_id": scope.organization, "owner": scope.owner}
        count, since, number = db.rows("waiting_suspects", lane=lane_id, look=SUSPECTS_LOOK, **values)[0]
        if count:
            apart[lane_id] = count
            found.append(msgspec.structs.replace(head, number=number, count=count, more=False, since=since, suspects=True))
    for lane in lanes:
        # Each priority is counted by itself: what was counted apart is taken from the first ones.
        taken = min(lane.count, apart.get(lane.lane or 0, 0)) if lane.held is None else 0
        if taken:
            apart[lane.lane or 0] -= taken
        if lane.count > taken:
            found.append(msgspec.structs.replace(lane, count=lane.count - taken))
    return found


def _blocked(db: Db, look: int, scope: Scope) -> Iterator[Lane]:
    values: dict[str, Any] = {"look": look}
    if scope.organization is not None:
        values |= {"organization_id": scope.organization, "owner": scope.owner}
    values["look"] = look = min(look, ROWS_LOOK)
    rows = db.rows("blocked_lanes" if scope.organization is None else "blocked_lanes_of", **values)
    more = sum(row[2] for row in rows) >= look
    for job_type, mine, count, since, number in rows:
        if mine:
            yield Lane(status="PENDING", job_type=job_type, number=number, count=count, more=more, since=since, blocked=True)


def _due(db: Db, now: Instant, look: int, scope: Scope) -> Iterator[Lane]:
    """Go from priority to priority: those whose time has come, and those whose time is to come."""
    values: dict[str, Any] = {"look": look}
    if scope.organization is not None:
        values["look"] = look = min(look, ROWS_LOOK)
        values |= {"organization_id": scope.organization, "owner": scope.owner}
    statement = "due_lane" if scope.organization is None else "due_lane_of"
    for priority, _ in db.rows("due_priorities"):
        for after, until in ((-1, now), (now, LATEST)):
            looked, count, since, number = db.rows(statement, priority=priority, after=after, until=until, **values)[0]
            if count:
                yield Lane(status="PENDING", number=number, count=count, more=looked >= look, since=since)


def stats(db: Db, *, now: Instant, hours: int = 24, scope: Scope = EVERYTHING) -> Stats:
    """Return counts and ages of what is inside the scope, and how types fared in the last hours."""
    by_priority, oldest = _queue(db, scope)
    fared = _fared(db, now, hours, scope)
    whole = together(fared.values())
    # Workers serve all: how many there are, and how they fare, is no business of one organization.
    everybody = scope.organization is None
    return Stats(
        by_status=_by_status(db, scope, sum(by_priority.values())),
        by_priority=by_priority,
        waiting_by_type=_types(db, scope),
        oldest_waiting_s=None if oldest is None else max(0.0, (now - oldest) / 1e6),
        workers=db.value("count_workers") if everybody else 0,
        late_results=db.value("late_results") if everybody else 0,
        claimed_ahead=db.value("claimed_ahead") if everybody else 0,
        hours=hours,
        by_type=tuple(each.of(job_type) for job_type, each in sorted(fared.items())),
        average_s=whole.average_s,
        p95_s=whole.p95_s,
        failure_rate=whole.failure_rate,
    )


def _by_status(db: Db, scope: Scope, queued: int) -> dict[str, int]:
    organization = {"organization_id": scope.organization}
    pending = db.value("count_pending") if scope.organization is None else db.value("count_pending_of", **organization)
    live = {"PENDING": pending, "QUEUED": queued, "RUNNING": db.value("count_running", **organization)}
    return dict.fromkeys(map(str, Status), 0) | live | dict(db.rows("count_ended", **organization))


def _queue(db: Db, scope: Scope) -> tuple[dict[int, int], Instant | None]:
    """Return how many are QUEUED by priority, highest first, and since when the longest waits."""
    by_priority: dict[int, int] = {}
    oldest: Instant | None = None
    for line in lines(db, scope):
        count, first = db.rows("count_line", **line, few=HEADS)[0]
        if count:
            by_priority[line["priority"]] = by_priority.get(line["priority"], 0) + count
            oldest = first if oldest is None else min(oldest, first)
    return by_priority, oldest


def _types(db: Db, scope: Scope) -> dict[str, int]:
    if scope.organization is None:
        return dict(db.rows("count_types", limit=TYPES_MAX))
    counts: dict[str, int] = {}
    for line in lines(db, scope):
        for job_type, count in db.rows("count_types_of_line", **line):
            counts[job_type] = counts.get(job_type, 0) + count
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TYPES_MAX])


def _fared(db: Db, now: Instant, hours: int, scope: Scope) -> dict[str, Fared]:
    """Return how each type fared since the hour in which the time asked for began."""
    since = now - hours * HOUR
    fared: dict[str, Fared] = {}
    for job_type, bucket, completed, count, total_us in db.rows("fared", since=since - since % HOUR, organization_id=scope.organization):
        fared.setdefault(job_type, Fared()).add(bucket=bucket, completed=bool(completed), count=count, total_us=total_us)
    return fared


def marks(db: Db) -> Marks:
    """Return how far the store has come."""
    return Marks(*db.rows("marks")[0])


def made_in(db: Db, spans: Sequence[Span], *, limit: int) -> list[JobNow]:
    """Return the jobs with these numbers."""
    ordered = sorted(spans, key=lambda span: span.first)
    return [JobNow(*row) for row in db.rows("made_in", spans=ordered, limit=limit)]


def progress_now(db: Db, *, limit: int) -> list[ProgressNow]:
    """Return what runs."""
    return [ProgressNow(*row) for row in db.rows("progress_now", limit=limit)]


def ended_since(db: Db, since: Instant, *, limit: int) -> list[list[int]]:
    """Return the numbers of what ended, type by type."""
    found = [_numbers.decode(text) for (text,) in db.rows("ended_since", since=since, limit=limit)]
    return [numbers for numbers in found if numbers]


def jobs_now(db: Db, numbers: Sequence[int]) -> list[JobNow]:
    """Return jobs as they stand."""
    return [JobNow(*row) for row in db.rows("jobs_now", numbers=sorted(numbers))]


def definition_changes(db: Db, *, after: int, limit: int) -> list[DefinitionChange]:
    """Return what people changed."""
    return [DefinitionChange(*row) for row in db.rows("definition_changes", after=after, limit=limit)]


def reports_after(db: Db, report_id: int, *, limit: int) -> list[NumberedReport]:
    """Return the reports after one."""
    return [_numbered(row) for row in db.rows("reports_after", after=report_id, limit=limit)]


def reports_since(db: Db, since: Instant, *, limit: int) -> list[NumberedReport]:
    """Return the reports since a moment."""
    return [_numbered(row) for row in db.rows("reports_since", since=since, limit=limit)]


def _numbered(row: tuple[Any, ...]) -> NumberedReport:
    number, *fields = row
    return NumberedReport(number, msgspec.convert(dict(zip(ScheduleReport.__struct_fields__, fields, strict=True)), ScheduleReport))


def counts(db: Db, *, scope: Scope = EVERYTHING) -> dict[str, int]:
    """Return how many jobs there are in each state."""
    organization = {"organization_id": scope.organization}
    if scope.organization is None:
        pending, queued = db.value("count_pending"), db.value("count_queued")
    else:
        pending = db.value("count_pending_of", **organization)
        queued = sum(db.value("count_queued_line", **line) for line in lines(db, scope))
    live = {"PENDING": pending, "QUEUED": queued, "RUNNING": db.value("count_running", **organization)}
    return dict.fromkeys(map(str, Status), 0) | live | dict(db.rows("count_ended", **organization))
