"""Measures: the values of a scrape of metrics, read at once."""

from __future__ import annotations

import msgspec

from rota.engine.fleet import fleet_of
from rota.engine.meter import Turns
from rota.engine.overdue import overdue
from rota.model.lanes import QueueInfo
from rota.model.states import Status
from rota.model.values import SECOND, Instant
from rota.operation import Ask
from rota.ports.overseeing import Figure, Lane, Unfired
from rota.ports.turns import Counting

DAY_US = 86_400 * SECOND
HOUR_US = 3600 * SECOND
UNFIRED_MAX = 10_000
"""Rows of the ledger that did not fire, of the last day, that are read."""


class WorkerMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of a store, and the turns of those in this process."""

    alive: int
    lost: int
    claimed_ahead: int
    """Jobs that those alive hold beyond their slots."""
    beat_age_s: float
    """The age of the oldest heartbeat of a live worker, as far as this process has watched it."""
    turns: Turns
    next_due_s: float | None
    """Seconds until a schedule is due next; None: none is due."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """A store, or one organization's part of it, as metrics show it."""

    organization: str | None
    """Whose part it is; None: all of it."""
    at: Instant
    lanes: list[Lane]
    running: dict[tuple[str, str], int]
    """By organization and job type."""
    figures: list[Figure]
    """Finished attempts by the hour, since the hour that was asked for."""
    unfired: list[Unfired]
    """Of the last day."""
    overdue: int
    """Due times that should have run and have no recorded outcome."""
    dead: dict[str, int]
    """Jobs that ended DEAD_LETTER and are in the store, by type."""
    pauses: int
    queues: list[QueueInfo]
    """Empty for an actor who may not see workers."""
    workers: WorkerMeasures | None
    """None for an actor who may not see workers."""


def measures(ask: Ask, *, since: Instant | None = None) -> Measures:
    """Return the values of metrics; finished attempts since the hour of a moment, or of the last hours. For Right.READ_STATS.

    It is cheap however many jobs there are: large numbers are counted up to a bound.
    """
    opened, now, scope, settings = ask.opened, ask.now, ask.scope, ask.settings
    store = opened.store
    running = store.usage(Counting(running=True), now=now).running
    return Measures(
        organization=scope.organization,
        at=now,
        lanes=store.waiting(now=now, look=settings.metrics_count_max, scope=scope),
        running={key: count for key, count in running.items() if scope.organization in {None, key[0]}},
        figures=store.hourly(since=now - 2 * HOUR_US if since is None else since, scope=scope),
        unfired=store.unfired(since=now - DAY_US, limit=UNFIRED_MAX, scope=scope),
        overdue=overdue(store, ask.registry, settings, now=now, scope=scope).expected,
        dead=store.kept(Status.DEAD_LETTER, scope=scope),
        pauses=sum(kind != "organization" or scope.organization in {None, name} for kind, name in store.pauses()),
        queues=store.queues(look=settings.metrics_count_max) if scope.organization is None else [],
        # Workers serve all organizations: one of them learns nothing about them.
        workers=_workers(ask, now) if scope.organization is None else None,
    )


def _workers(ask: Ask, now: Instant) -> WorkerMeasures:
    opened, session = ask.opened, ask.session
    fleet = fleet_of(opened.store, opened.liveness, session.beats, patience_s=ask.settings.lease_ttl)
    age_s = max((fleet.ages_s.get(worker.id, 0.0) for worker in fleet.alive), default=0.0)
    next_at = opened.store.beat_of_schedules().next_at
    return WorkerMeasures(
        alive=len(fleet.alive),
        lost=len(fleet.lost),
        claimed_ahead=sum(worker.claimed_ahead for worker in fleet.alive),
        beat_age_s=age_s,
        turns=session.meter.read(),
        next_due_s=None if next_at is None else (next_at - now) / SECOND,
    )
