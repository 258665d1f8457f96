"""How attempts fared hour by hour: what the charts are drawn from."""

from __future__ import annotations

from collections import defaultdict

from rota.model.checks import whole
from rota.model.figures import Fared, percentile_s
from rota.model.gate import Actor, Right
from rota.model.states import Status
from rota.model.values import SECOND, moment_of
from rota.resources.trend import Trend
from rota.surfaces.python.base import Base

HOUR = 3600 * SECOND
ENDS = frozenset({Status.COMPLETED, Status.FAILED, Status.TIMED_OUT, Status.DEAD_LETTER})


class Charting(Base):
    """The part of Rota that looks back hour by hour."""

    def trend(self, *, hours: int = 24, actor: Actor | str | None = None) -> list[Trend]:
        """Return how attempts ended in each of the last hours, the oldest first and the one that is under way last."""
        scope = self._session.scope(actor, Right.READ_STATS)
        now = self._session.clock.now()
        last = now - now % HOUR
        first = last - (whole("hours", hours, least=1, most=9600) - 1) * HOUR
        fared: dict[int, Fared] = defaultdict(Fared)
        for each in self._session.open().store.hourly(since=first):
            if scope.organization in {None, each.organization} and each.status in ENDS:
                completed = each.status == Status.COMPLETED
                fared[each.hour].add(bucket=each.bucket, completed=completed, count=each.count, total_us=each.total_us)
        return [_trend(hour, fared[hour]) for hour in range(first, last + 1, HOUR)]


def _trend(hour: int, fared: Fared) -> Trend:
    return Trend(
        begins_at=moment_of(hour),
        completed=fared.completed,
        failed=fared.failed,
        p50_s=percentile_s(fared.buckets, 0.5),
        p95_s=fared.p95_s,
    )
