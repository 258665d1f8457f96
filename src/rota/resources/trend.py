"""How it went lately: attempts that ended, period by period, and how long those that completed took; of all types or of one."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime

import msgspec

from rota.errors import InvalidOption
from rota.model.figures import percentile_s
from rota.model.states import Status
from rota.model.values import SECOND, Instant, moment_of
from rota.operation import Ask

TREND_LOOK = 60_000
"""Rows of figures that one trend reads, about: the newest."""
TYPES_SHOWN = 5
"""Types that a trend counts one by one: those with most attempts. The others are added up."""
ENDS = frozenset({Status.COMPLETED, Status.FAILED, Status.TIMED_OUT, Status.DEAD_LETTER})


class Range(msgspec.Struct, frozen=True):
    """How far a trend looks back, and in which steps."""

    name: str
    words: str
    length_s: int
    step_s: int
    step_words: str


RANGES = {
    each.name: each
    for each in (
        Range("15m", "15 minutes", 900, 60, "by the minute"),
        Range("1h", "1 hour", 3600, 120, "by 2 minutes"),
        Range("6h", "6 hours", 21_600, 900, "by 15 minutes"),
        Range("24h", "24 hours", 86_400, 3600, "by the hour"),
        Range("7d", "7 days", 604_800, 21_600, "by 6 hours"),
    )
}
USUAL = "24h"


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """One step: attempts that ended in it, and how long those that completed took."""

    begins_at: datetime
    completed: int
    failed: int
    """Attempts that failed, timed out or were dead-lettered."""
    p50_s: float | None
    p95_s: float | None
    by_type: dict[str, int] = msgspec.field(default_factory=dict)
    """Attempts that ended, of the types that the trend counts one by one."""


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """A range, oldest period first and the current one last."""

    range: Range
    job_type: str | None
    """None: of all types."""
    periods: tuple[Period, ...]
    types: tuple[str, ...]
    """The types with most attempts, the most first."""
    since: datetime | None = None
    """From when on it is counted, where there are more figures than are read at once."""


def trend(ask: Ask, *, range_name: str = USUAL, job_type: str | None = None) -> Trend:
    """Return how attempts ended lately. For Right.READ_STATS. It costs the same however many jobs there are."""
    if range_name not in RANGES:
        raise InvalidOption(f"range={range_name!r} is not one of {', '.join(RANGES)}")
    chosen = RANGES[range_name]
    step: Instant = chosen.step_s * SECOND
    now = ask.now
    last = now - now % step
    first = last - (chosen.length_s // chosen.step_s - 1) * step
    found = ask.store.trend(since=first, step=step, look=TREND_LOOK, job_type=job_type, scope=ask.scope)
    by_type: dict[Instant, Counter[str]] = defaultdict(Counter)
    completed: Counter[Instant] = Counter()
    failed: Counter[Instant] = Counter()
    totals: Counter[str] = Counter()
    for end in found.ends:
        if end.status in ENDS:
            (completed if end.status == Status.COMPLETED else failed)[end.period] += end.count
            by_type[end.period][end.job_type] += end.count
            totals[end.job_type] += end.count
    types = tuple(dict(totals.most_common(TYPES_SHOWN)))
    periods = tuple(
        Period(
            begins_at=moment_of(at),
            completed=completed[at],
            failed=failed[at],
            p50_s=percentile_s(found.took.get(at, {}), 0.5),
            p95_s=percentile_s(found.took.get(at, {}), 0.95),
            by_type={name: by_type[at][name] for name in types if by_type[at][name]},
        )
        for at in range(first, last + 1, step)
    )
    return Trend(range=chosen, job_type=job_type, periods=periods, types=types, since=moment_of(found.since) if found.more else None)
