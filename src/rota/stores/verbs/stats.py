"""Figures in SQL: counted as jobs end, so that no read walks over history."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.figures import Fared, together
from rota.model.gate import Scope
from rota.model.states import Status
from rota.model.values import Instant, Stats
from rota.stores.verbs.db import Db
from rota.stores.verbs.queue import numbers_json
from rota.stores.verbs.reads import lines

HOUR: Instant = 3_600_000_000
HEADS = 50
"""How many at the front of each line are looked at for the longest wait."""
TYPES_MAX = 50
"""How many job types are shown with what waits of them."""


def tally(db: Db, numbers: Sequence[int]) -> None:
    """Count jobs that have just ended: in the hour of their end, and among all that are here."""
    if numbers:
        db.tally(numbers_json(numbers))


def untally(db: Db, numbers: Sequence[int]) -> None:
    """Count ended jobs no longer as being here: they are about to be removed. Their hours keep them."""
    if numbers and db.change("untally", numbers=numbers_json(numbers)):
        db.change("forget_zeros")


def stats(db: Db, now: Instant, hours: int, scope: Scope) -> Stats:
    """Return counts and ages of what is inside the scope, and how types fared in the last hours."""
    # One view of the store for all counts, so that they add up whoever writes meanwhile.
    with db.snapshot():
        found = _look(db, now, hours, scope)
    return found  # noqa: RET504 - a context manager may swallow an error, for all that mypy knows


def _look(db: Db, now: Instant, hours: int, scope: Scope) -> Stats:
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
