"""What a Rota itself answers, beside its nouns: the first screen, the forecast, a plan, why a job does not run yet."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Unpack

from rota.engine.explain import Explanation
from rota.lab.forecasts import Forecast, SchedulePlan
from rota.model.gate import Right
from rota.model.overview import (
    Ahead,
    ClockChange,
    Coming,
    Concern,
    Counts,
    Current,
    Example,
    Health,
    Hour,
    NotRun,
    Overview,
    Running,
    Stuck,
)
from rota.model.schedule_options import ScheduleOptions
from rota.model.shapes import Shape
from rota.operation import Ask
from rota.resources.jobs import Ref
from rota.resources.schedules import ScheduleName, SomeSchedule, Whose
from rota.surfaces.http.api.endpoint import Asked, by_hand


@by_hand("overview", Right.READ, "GET /overview", tag="Overview")
def overview(asked: Asked, ask: Ask) -> Overview:  # noqa: ARG001 - the gate is asked by making it
    """Return the first screen: whether all is well, what did not run, what is stuck and why, what is running, and what comes next.

    It shows what the caller may see, and is cheap however many jobs there are: large numbers are counted up to a bound, and marked as
    `more`.
    """
    return asked.rota.overview()


@by_hand("explain", Right.READ, "GET /jobs/{job}/explain", tag="Jobs")
def explain(asked: Asked, ask: Ask, job: Ref) -> Explanation:  # noqa: ARG001 - as above
    """Explain why the live job of this chain does not run yet, condition by condition, or how the chain ended."""
    return asked.rota.explain(job)


@by_hand("forecast", Right.READ, "GET /forecast", tag="Schedules")
def forecast(
    asked: Asked,
    ask: Ask,  # noqa: ARG001 - as above
    *,
    hours: Annotated[float | None, Shape("How many hours, from now or from `start`. Default: 24.", 24)] = None,
    start: Annotated[datetime | None, Shape("After this moment. Default: now.")] = None,
    end: Annotated[datetime | None, Shape("Up to and including this moment, instead of `hours`.")] = None,
    schedule: SomeSchedule = None,
    skipped: Annotated[bool, Shape("Include what will not run, with the reason.")] = False,
    organization: Whose = None,
    limit: Annotated[int, Shape("Maximum number of due times.", 1000)] = 1000,
) -> Forecast:
    """Return what is due in the coming hours or between two moments, and when it will probably start. See the guide on schedules."""
    return asked.rota.forecast(hours, start=start, end=end, schedule=schedule, skipped=skipped, organization=organization, limit=limit)


@by_hand("plan", Right.READ, "POST /schedules/{name}/plan", tag="Schedules")
def plan(
    asked: Asked,
    ask: Ask,  # noqa: ARG001 - as above
    name: ScheduleName,
    *,
    days: Annotated[int, Shape("How many days ahead.", 30)] = 90,
    organization: Whose = None,
    **options: Unpack[ScheduleOptions],
) -> SchedulePlan:
    """Return the due times of the coming days that a change would add and remove. Nothing is changed."""
    return asked.rota.plan(name, days=days, organization=organization, **options)


AT, SOON = "2026-03-01T09:00:00Z", "2026-03-01T09:10:00Z"
EXAMPLE = {"id": "019ca8a1-2c00-7000-8000-00000000002a", "number": "JOB-2026-00042", "job_type": "send_email"}
CONCERN = {"level": "watch", "what": "1 job was dead-lettered in the last hour", "remedy": "`rota dead list` says why"}
HEALTH = {"level": "watch", "sentence": "1 job was dead-lettered in the last hour.", "concerns": [CONCERN]}
COUNTS = {
    "pending": 3,
    "queued": 12,
    "running": 1,
    "claimed_ahead": 0,
    "more": False,
    "completed": 1204,
    "failed": 2,
    "dead": 1,
    "hours": 24,
    "workers": 2,
}
NOT_RUN = {
    "kind": "job",
    "name": "send_email",
    "organization": "default",
    "fate": "DEAD_LETTER",
    "count": 1,
    "first_at": AT,
    "last_at": AT,
    "reason": "ValueError: no such address",
    "more": False,
    "planned": False,
    "example": EXAMPLE,
}
STUCK = {
    "why": "limit",
    "words": "2 of at most 2 send_email jobs run",
    "count": 12,
    "more": False,
    "oldest_s": 4.2,
    "example": EXAMPLE,
    "job_type": None,
    "next_at": None,
}
CURRENT = {
    "id": EXAMPLE["id"],
    "number": EXAMPLE["number"],
    "job_type": "send_email",
    "organization": "default",
    "attempt": 1,
    "started_at": AT,
    "elapsed_s": 3.4,
    "progress": 40,
    "message": "page 4 of 10",
    "usual_s": 8.0,
    "long_s": 12.5,
    "timeout_s": 300.0,
    "stopping": False,
    "slow": False,
}
COMING = {"schedule": "report", "organization": "default", "template": "make_report", "due_at": SOON, "note": None, "more": 0}
HOUR = {"begins_at": AT, "count": 6}
CHANGE = {"at": "2026-03-29T01:00:00Z", "timezone": "Europe/Berlin", "before": "UTC+1", "after": "UTC+2", "schedules": ["report"]}
AHEAD = {
    "start": AT,
    "end": "2026-03-02T09:00:00Z",
    "items": [COMING],
    "hours": [HOUR],
    "count": 144,
    "more": False,
    "changes": [CHANGE],
}
RUNNING = {"jobs": [CURRENT], "count": 1, "more": False, "claimed_ahead": 0}
SHAPES: dict[type, Any] = {
    Overview: {
        "at": AT,
        "organization": None,
        "health": HEALTH,
        "counts": COUNTS,
        "not_run": [NOT_RUN],
        "stuck": [STUCK],
        "running": RUNNING,
        "ahead": AHEAD,
        "took_ms": 12.5,
    },
    Health: HEALTH,
    Concern: CONCERN,
    Counts: COUNTS,
    NotRun: NOT_RUN,
    Stuck: STUCK,
    Running: RUNNING,
    Current: CURRENT,
    Ahead: AHEAD,
    Coming: COMING,
    Hour: HOUR,
    ClockChange: CHANGE,
    Example: EXAMPLE,
}
