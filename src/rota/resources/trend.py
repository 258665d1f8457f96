"""How attempts ended hour by hour: the values that charts are drawn from."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

import msgspec

from rota.model.checks import whole
from rota.model.figures import Fared, percentile_s
from rota.model.states import Status
from rota.model.values import SECOND, moment_of
from rota.operation import Ask

HOUR = 3600 * SECOND
ENDS = frozenset({Status.COMPLETED, Status.FAILED, Status.TIMED_OUT, Status.DEAD_LETTER})


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """One hour: attempts that ended in it, and how long those that completed took."""

    begins_at: datetime
    completed: int
    failed: int
    """Attempts that failed, timed out or were dead-lettered."""
    p50_s: float | None
    p95_s: float | None


def trend(ask: Ask, *, hours: int = 24) -> list[Trend]:
    """Return how attempts ended in each of the last hours, the oldest first and the current hour last. For Right.READ_STATS."""
    now = ask.now
    last = now - now % HOUR
    first = last - (whole("hours", hours, least=1, most=9600) - 1) * HOUR
    fared: dict[int, Fared] = defaultdict(Fared)
    for figure in ask.store.hourly(since=first):
        if ask.scope.organization in {None, figure.organization} and figure.status in ENDS:
            completed = figure.status == Status.COMPLETED
            fared[figure.hour].add(bucket=figure.bucket, completed=completed, count=figure.count, total_us=figure.total_us)
    return [_trend(hour, fared[hour]) for hour in range(first, last + 1, HOUR)]


def _trend(hour: int, fared: Fared) -> Trend:
    return Trend(
        begins_at=moment_of(hour),
        completed=fared.completed,
        failed=fared.failed,
        p50_s=percentile_s(fared.buckets, 0.5),
        p95_s=fared.p95_s,
    )
