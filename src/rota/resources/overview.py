"""The first screen: is the store healthy, what did not run, what is stuck and why, what is running, what comes next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from rota.declarations import synced
from rota.engine.fleet import Fleet, fleet_of
from rota.engine.overdue import Backlog, Overdue, overdue
from rota.engine.overview import Grouping, example_of, unserved_queues
from rota.lab.agenda import agenda
from rota.lab.prospects import prospects
from rota.model.figures import Fared
from rota.model.gate import Actor, Right, Scope
from rota.model.overview import (
    PLANNED,
    Ahead,
    Counts,
    Current,
    Facts,
    Health,
    Hour,
    Level,
    NotRun,
    OverdueFacts,
    Overview,
    Patience,
    Running,
    Stuck,
    Why,
    health_of,
    is_stuck,
)
from rota.model.prospects import Outcomes
from rota.model.schedules import Fate
from rota.model.states import Status
from rota.model.values import SECOND, Instant, moment_of
from rota.ports.overseeing import Dead, Figure, Lane, Seen, Unfired
from rota.ports.store import Store
from rota.session import Session

DAY_US = 86_400 * SECOND
HOUR_US = 3600 * SECOND
LOOK = 50_000
"""Waiting jobs that are counted, about."""
RUNNING_LOOK = 5000
RUNNING_MAX = 50
NOT_RUN_LOOK = 1000
NOT_RUN_MAX = 50
DEAD_LOOK = 2000
DEAD_MAX = 500
AHEAD_HOURS = 24
AHEAD_SCHEDULES = 50_000
"""Schedules whose due times are counted into hours, at most."""
AHEAD_LOOK = 3000
"""Due times of dependencies that are looked at for what is listed."""
UNQUEUED_S = 60.0
SHOULD_RUN = {Why.TURN, Why.NO_WORKER}


def overview(session: Session, actor: Actor | str | None) -> Overview:
    """Return the first screen as one value, without what the actor may not see.

    It is cheap however many jobs there are: large numbers are counted up to a bound, and marked as more.
    """
    now, scope, settings = session.clock.now(), session.may(actor, Right.READ), session.settings
    if scope is None:
        return _nothing(now)
    store = synced(session)
    begun = time.perf_counter()
    figures = store.figures(since=now - settings.stats_hours * HOUR_US, scope=scope)
    fleet = fleet_of(store, session.open().liveness, session.beats, patience_s=settings.lease_ttl)
    lanes = store.waiting(now=now, look=LOOK, scope=scope)
    stuck = Grouping(store, session.registry, fleet.alive, now=now, scope=scope).stuck(lanes)
    ahead_of_slots = sum(worker.claimed_ahead for worker in fleet.alive) if scope.organization is None else 0
    running = _running(store, figures, now, scope, ahead_of_slots)
    dead = store.dead_lately(since=now - DAY_US, look=DEAD_LOOK, limit=DEAD_MAX, scope=scope)
    unfired = store.unfired(since=now - DAY_US, limit=NOT_RUN_LOOK, scope=scope)
    backlog = overdue(store, session.registry, settings, now=now, scope=scope)
    read_s = time.perf_counter() - begun
    ahead = _ahead(session, store, now, scope)
    counts = _counts(lanes, running, figures, fleet, settings.stats_hours, session.may(actor, Right.READ_STATS))
    furthest = store.beat_of_schedules().furthest
    facts = _facts(lanes, stuck, counts, running, fleet, everything=scope.organization is None)
    facts |= {
        "read_s": read_s,
        "paused": _paused(store, scope),
        "scheduled": bool(ahead.items),
        "dead": sum(each.at >= now - HOUR_US for each in dead),
        "overdue": _overdue_facts(backlog) if backlog.schedules else None,
        "missed": sum(_inside(row, now - HOUR_US) for row in unfired if row.fate not in PLANNED),
        "clock_ahead_s": 0.0 if furthest is None else max(0.0, (furthest - now) / SECOND),
    }
    patience = Patience(waiting_s=settings.waiting_warn, unqueued_s=UNQUEUED_S, clock_s=settings.schedule_grace, read_s=settings.slow_warn)
    return Overview(
        at=moment_of(now),
        organization=scope.organization,
        health=health_of(Facts(**facts), patience),  # type: ignore[arg-type] # each of its own type
        counts=counts,
        not_run=(*map(_overdue_group, backlog.schedules), *_not_run(unfired, dead, now - DAY_US))[:NOT_RUN_MAX],
        stuck=tuple(each for each in stuck if is_stuck(each, settings.waiting_warn)),
        running=running,
        ahead=ahead,
        took_ms=round((time.perf_counter() - begun) * 1000, 3),
    )


def _ahead(session: Session, store: Store, now: Instant, scope: Scope) -> Ahead:
    """Return what comes next: hours are counted, and only the first due times are listed."""
    schedules, until = store.schedules(scope=scope), now + AHEAD_HOURS * HOUR_US
    if not schedules:
        begins = range(now - now % HOUR_US, until + 1, HOUR_US)
        hours = tuple(Hour(begins_at=moment_of(hour), count=0) for hour in begins)
        return Ahead(start=moment_of(now), end=moment_of(until), hours=hours)
    shown = schedules[:AHEAD_SCHEDULES]
    known = prospects(session, store, shown, now)
    outcomes = Outcomes(known, wait=round(session.settings.dependency_wait * SECOND), most=AHEAD_LOOK)
    return agenda(known, outcomes, after=now, until=until, shown=len(shown), more=len(schedules) > len(shown))


def _counts(  # noqa: PLR0917 - called in one place
    lanes: Sequence[Lane], running: Running, figures: Sequence[Figure], fleet: Fleet, hours: int, scope: Scope | None
) -> Counts | None:
    if scope is None:
        return None
    ended: Counter[str] = Counter()
    for figure in figures:
        ended[figure.status] += figure.count
    return Counts(
        pending=sum(lane.count for lane in lanes if lane.status == Status.PENDING),
        queued=sum(lane.count for lane in lanes if lane.status == Status.QUEUED),
        running=running.count,
        claimed_ahead=running.claimed_ahead,
        more=running.more or any(lane.more for lane in lanes),
        completed=ended[Status.COMPLETED],
        failed=ended[Status.FAILED] + ended[Status.TIMED_OUT],
        dead=ended[Status.DEAD_LETTER],
        hours=hours,
        workers=len(fleet.alive) if scope.organization is None else None,
    )


def _paused(store: Store, scope: Scope) -> tuple[tuple[str, Instant, str], ...]:
    pauses = (each for each in store.paused() if each.kind != "organization" or scope.organization in {None, each.name})
    # The person who paused it is named only to an actor who may see the users of all organizations.
    return tuple(
        ("everything" if each.kind == "all" else f"{each.kind} {each.name}", each.at, each.by if scope.organization is None else "")
        for each in pauses
    )


def _nothing(now: Instant) -> Overview:
    at = moment_of(now)
    words = "There is nothing here that you may read."
    return Overview(
        at=at,
        organization=None,
        health=Health(level=Level.WELL, sentence=words),
        counts=None,
        not_run=(),
        stuck=(),
        running=Running(),
        ahead=Ahead(start=at, end=at),
    )


# ---- is it healthy? ------------------------------------------------------------------------------------------------


def _facts(
    lanes: Sequence[Lane], stuck: Sequence[Stuck], counts: Counts | None, running: Running, fleet: Fleet, *, everything: bool
) -> dict[str, object]:
    ready = [each.oldest_s for each in stuck if each.why is Why.TURN and each.job_type is not None]
    unqueued = [each.oldest_s for each in stuck if each.why in SHOULD_RUN and each.job_type is None]
    return {
        "alive": len(fleet.alive),
        # Workers serve all organizations: one of them learns nothing about them.
        "lost": len(fleet.lost) if everything else 0,
        "lost_jobs": sum(worker.holds for worker in fleet.lost) if everything else 0,
        "waiting": sum(lane.count for lane in lanes),
        "more": any(lane.more for lane in lanes),
        "running": running.count,
        "completed": None if counts is None else counts.completed,
        "hours": 24 if counts is None else counts.hours,
        "oldest_s": max(ready, default=0.0),
        "unqueued_s": max(unqueued, default=0.0),
        "suspects": tuple((each.count, each.words) for each in stuck if each.why is Why.SUSPECT),
        "unserved": tuple(str(each.job_type) for each in stuck if each.why is Why.NO_WORKER and each.job_type is not None),
        "unserved_queues": unserved_queues(lanes, fleet.alive),
    }


def _overdue_facts(backlog: Backlog) -> OverdueFacts | None:
    late = backlog.alarming
    if not late:
        return None
    return OverdueFacts(
        count=backlog.expected,
        schedules=tuple(each.schedule for each in late),
        since=late[0].due_at,
        more=backlog.more,
    )


# ---- what did not run? ---------------------------------------------------------------------------------------------


def _not_run(unfired: Sequence[Unfired], dead: Sequence[Dead], since: Instant) -> tuple[NotRun, ...]:
    """Return groups, the latest first."""
    by_schedule: dict[tuple[str, str], list[Unfired]] = {}
    for row in unfired:
        by_schedule.setdefault((row.schedule_id, row.fate), []).append(row)
    by_type: dict[tuple[str, str], list[Dead]] = {}
    for each in sorted(dead, key=lambda each: each.at, reverse=True):
        by_type.setdefault((each.organization, each.job.job_type), []).append(each)
    cut = len(dead) >= DEAD_MAX
    found = [*(_unfired_group(same, since) for same in by_schedule.values()), *(_dead_group(same, more=cut) for same in by_type.values())]
    found.sort(key=lambda each: each.last_at, reverse=True)
    return tuple(found[:NOT_RUN_MAX])


def _inside(row: Unfired, since: Instant) -> int:
    """Return how many due times of a row lie in a window that ends after it; of a span, as if they were evenly spread."""
    if row.due_at >= since or row.count == 1:
        return row.count if row.last_due_at >= since else 0
    step = (row.last_due_at - row.due_at) / (row.count - 1)
    return max(0, min(row.count, int((row.last_due_at - since) / step) + 1)) if row.last_due_at >= since else 0


def _overdue_group(late: Overdue) -> NotRun:
    return NotRun(
        kind="schedule",
        name=late.schedule,
        organization=late.organization,
        fate=Fate.OVERDUE,
        count=late.count,
        more=late.bounded,
        first_at=moment_of(late.due_at),
        last_at=moment_of(late.last_due_at),
        reason=late.reason,
        planned=not late.expected,
    )


def _unfired_group(rows: list[Unfired], since: Instant) -> NotRun:
    latest = rows[0]
    return NotRun(
        kind="schedule",
        name=latest.schedule,
        organization=latest.organization,
        fate=latest.fate,
        count=sum(_inside(row, since) for row in rows),
        first_at=moment_of(max(since, min(row.due_at for row in rows))),
        last_at=moment_of(latest.last_due_at),
        reason=latest.reason,
        planned=latest.fate in PLANNED,
    )


def _dead_group(dead: list[Dead], *, more: bool) -> NotRun:
    latest = dead[0]
    return NotRun(
        kind="job",
        name=latest.job.job_type,
        organization=latest.organization,
        fate=Status.DEAD_LETTER,
        count=len(dead),
        more=more,
        first_at=moment_of(dead[-1].at),
        last_at=moment_of(latest.at),
        reason=latest.reason,
        example=example_of(latest.job),
    )


# ---- what is running? ----------------------------------------------------------------------------------------------


def _running(store: Store, figures: Iterable[Figure], now: Instant, scope: Scope, ahead: int) -> Running:
    found = store.running(look=RUNNING_LOOK, limit=RUNNING_MAX, scope=scope)
    wanted = {seen.job.job_type for seen in found.jobs}
    fared: dict[str, Fared] = {}
    for figure in figures:
        if figure.job_type in wanted and figure.status == Status.COMPLETED:
            kept = fared.setdefault(figure.job_type, Fared())
            kept.add(bucket=figure.bucket, completed=True, count=figure.count, total_us=figure.total_us)
    jobs = tuple(_current(seen, fared.get(seen.job.job_type, Fared()), moment_of(now)) for seen in found.jobs)
    return Running(jobs=jobs, count=max(0, found.count - ahead), more=found.more, claimed_ahead=ahead)


def _current(seen: Seen, fared: Fared, now: datetime) -> Current:
    job = seen.job
    started = job.started_at or now
    elapsed_s, long_s = max(0.0, (now - started).total_seconds()), fared.p95_s
    return Current(
        id=job.id,
        number=job.number,
        job_type=job.job_type,
        organization=job.organization,
        attempt=job.attempt,
        started_at=started,
        elapsed_s=elapsed_s,
        progress=seen.progress,
        message=seen.message,
        usual_s=fared.p50_s,
        long_s=long_s,
        timeout_s=job.timeout or None,
        stopping=job.cancel_requested_at is not None,
        slow=long_s is not None and elapsed_s > long_s,
    )
