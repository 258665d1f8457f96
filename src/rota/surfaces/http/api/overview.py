"""The first screen: five questions, one answer."""

from __future__ import annotations

from typing import Any

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
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.describing import gives

router = strict_router("Overview", "/overview")


@router.get("", summary="Get the first screen", responses=gives(Overview))
def get(rota: Served, who: Who) -> Answer:
    """Say whether all is well, what did not run, what is stuck and why, what is running, and what comes next: of what you may see.

    It is cheap however many jobs there are: what is many is counted up to a bound, and said to be `more`.
    """
    return Answer(rota.acting_as(who).overview())


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
