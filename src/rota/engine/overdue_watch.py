"""Reports schedules that are overdue: each process that serves a store looks, and the store reports each gap once."""

from __future__ import annotations

import logging

from rota.engine.overdue import Overdue, overdue
from rota.engine.registry import Registry
from rota.model.fates import Fated
from rota.model.schedules import Fate
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.ports.clock import Clock
from rota.ports.hooks import Gap
from rota.ports.store import Store

log = logging.getLogger("rota.trigger")

GAPS_MAX = 10_000
"""Schedules that one look works out."""
REASON = "no worker has recorded an outcome"


class OverdueWatch:
    """Looks for overdue schedules. Belongs to one thread."""

    def __init__(self, store: Store, registry: Registry, *, clock: Clock, settings: Settings) -> None:
        """Take what to look at."""
        self._store = store
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._reported: frozenset[tuple[str, Instant]] = frozenset()
        """Gaps that this process knows to be reported: they cost no further write."""

    @property
    def every_s(self) -> float:
        """How often to look, so that a gap is reported soon after the tolerance of `overdue`, which is `lease_ttl`."""
        return self._settings.lease_ttl / 3

    def look(self) -> None:
        """Report gaps that are new."""
        now = self._clock.now()
        found = overdue(self._store, self._registry, self._settings, now=now, limit=GAPS_MAX).alarming
        new = [each for each in found if (each.schedule_id, each.due_at) not in self._reported]
        if new and self._store.report_overdue([_gap(each) for each in new], now=now):
            log.warning("%d schedules are overdue, %s among them: %s", len(new), new[0].schedule, REASON)
        self._reported = frozenset((each.schedule_id, each.due_at) for each in found)


def _gap(each: Overdue) -> Gap:
    row = Fated(due_at=each.due_at, last_due_at=each.last_due_at, count=each.count, fate=Fate.OVERDUE, reason=REASON)
    return Gap(each.schedule_id, row)
