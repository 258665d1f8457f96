"""Measures: what a scrape of metrics asks for, in one look."""

from __future__ import annotations

import msgspec

from rota.engine.fleet import fleet_of
from rota.engine.meter import Turns
from rota.model.gate import Actor, Operation
from rota.model.lanes import QueueInfo
from rota.model.states import Status
from rota.model.values import SECOND, Instant
from rota.ports.overseeing import Figure, Lane, Unfired
from rota.ports.schedules import Ledger
from rota.ports.turns import Counting
from rota.surfaces.python.overseeing import Overseeing

DAY_US = 86_400 * SECOND
HOUR_US = 3600 * SECOND
UNFIRED_MAX = 10_000
"""Rows of the ledger that did not fire, of the last day, that are looked at."""


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """How the workers of a store fare, and what those of this process have done."""

    alive: int
    lost: int
    claimed_ahead: int
    """Jobs that those alive hold beyond their slots."""
    beat_age_s: float
    """For how long the beat that stands still longest has, as far as it was watched from here."""
    turns: Turns
    next_due_s: float | None
    """When they have to fire a schedule next; None: none is due."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """A store, or one organization's part of it, as a scrape sees it."""

    organization: str | None
    """Whose part it is; None: all of it."""
    at: Instant
    lanes: list[Lane]
    running: dict[tuple[str, str], int]
    """By organization and job type."""
    figures: list[Figure]
    """Ends by the hour, since the hour that was asked for."""
    unfired: list[Unfired]
    """Of the last day."""
    overdue: int
    """Due times that should have run and have no recorded outcome."""
    dead: dict[str, int]
    """Jobs that ended DEAD_LETTER and are in the store, by type."""
    pauses: int
    queues: list[QueueInfo]
    """Empty to whom workers are not shown."""
    workers: Workers | None
    """None to whom workers are not shown."""


class Measuring(Overseeing):
    """The part of Rota that is measured."""

    def measures(self, *, since: Instant | None = None, actor: Actor | str | None = None) -> Measures:
        """Return what metrics are made of; ends since the hour of a moment, or of the last hours. Bounded, as `overview` is."""
        scope = self._session.scope(actor, Operation.READ_STATS)
        opened, now = self._session.open(), self._session.clock.now()
        store = opened.store
        running = store.usage(Counting(running=True), now=now).running
        workers = None
        # Workers serve all: how they fare is no business of one organization.
        if scope.organization is None:
            fleet = fleet_of(store, opened.liveness, self._session.beats, patience_s=self.settings.lease_ttl)
            age_s = max((fleet.ages_s.get(worker.id, 0.0) for worker in fleet.alive), default=0.0)
            next_at = store.beat_of_schedules().next_at
            workers = Workers(
                alive=len(fleet.alive),
                lost=len(fleet.lost),
                claimed_ahead=sum(worker.claimed_ahead for worker in fleet.alive),
                beat_age_s=age_s,
                turns=self._session.meter.read(),
                next_due_s=None if next_at is None else (next_at - now) / SECOND,
            )
        return Measures(
            organization=scope.organization,
            at=now,
            lanes=store.waiting(now=now, look=self.settings.metrics_count_max, scope=scope),
            running={key: count for key, count in running.items() if scope.organization in {None, key[0]}},
            figures=store.hourly(since=now - 2 * HOUR_US if since is None else since, scope=scope),
            unfired=store.unfired(since=now - DAY_US, limit=UNFIRED_MAX, scope=scope),
            overdue=self._backlog(Ledger(scope=scope), now).expected,
            dead=store.kept(Status.DEAD_LETTER, scope=scope),
            pauses=sum(kind != "organization" or scope.organization in {None, name} for kind, name in store.pauses()),
            queues=store.queues(look=self.settings.metrics_count_max) if workers is not None else [],
            workers=workers,
        )
