"""Simulation: what this store's schedules would do in the days to come, told by the real engine on a copy that is thrown away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rota.compose import Opened
from rota.engine.registry import Registry
from rota.errors import InvalidOption
from rota.model.checks import whole
from rota.model.gate import EVERYTHING, Actor, Right, Scope
from rota.model.settings import Settings
from rota.model.templates import FIELDS
from rota.model.urls import StoreUrl
from rota.model.values import SECOND, Instant, instant, moment
from rota.ports.clock import Clock, Ids, SystemClock
from rota.ports.store import Store
from rota.surfaces.python.base import Base
from rota.surfaces.python.declaring import Declaring

if TYPE_CHECKING:
    from rota.simulation import Definitions, Order, Simulated

DAY_S = 86_400
DAYS_MAX = 3660
WORKERS_MAX = 100
FAULTS_MAX = 1000
LINES_MAX = 10_000_000
MINUTE = 60 * SECOND


class Simulating(Declaring):
    """The part of Rota that plays through what is to come."""

    def simulate(
        self,
        days: float = 7.0,
        *,
        seed: int = 0,
        start: datetime | None = None,
        workers: int = 1,
        concurrency: int | None = None,
        faults: str | Iterable[str] = (),
        faults_per_day: float = 2.0,
        failures: bool = False,
        limit: int = 1000,
        progress: Callable[[datetime], object] | None = None,
        actor: Actor | str | None = None,
    ) -> Simulated:
        """Run the schedules of this store through some days, on the real engine with a simulated clock, and tell what happened.

        Definitions are copied into a store that is thrown away; this one is only read. No handler is called: jobs last as long as
        those of their type did lately and, with `failures`, fail as often. `faults` are crash, clock-step and sleep, or all, each
        `faults_per_day` times a day on average. The same definitions, start and seed give the same story.
        """
        from rota.simulation import Order, faults_of  # noqa: PLC0415 - few programs need it

        # A clock that follows the store's own would open the store for writing.
        clock = SystemClock() if self._session.follows is not None and self._session.opened is None else self._session.clock
        now = clock.now()
        begin = now // MINUTE * MINUTE if start is None else _aware(start)
        order = Order(
            start=begin,
            end=begin + round(_number("days", days, DAYS_MAX) * DAY_S) * SECOND,
            seed=whole("seed", seed, least=0),
            workers=whole("workers", workers, least=1, most=WORKERS_MAX),
            concurrency=self.settings.concurrency if concurrency is None else whole("concurrency", concurrency, least=1),
            faults=faults_of(faults),
            faults_per_day=_number("faults_per_day", faults_per_day, FAULTS_MAX),
            failures=failures,
        )
        whole("limit", limit, least=0, most=LINES_MAX)
        onlooker = _Onlooker(self._session.where, self.settings, clock)
        try:
            said, scope = onlooker.definitions(actor, now)
        finally:
            onlooker.close()
        return self._play(said, scope, order, limit, progress)

    def _play(self, said: Definitions, scope: Scope, order: Order, limit: int, progress: Callable[[datetime], object] | None) -> Simulated:
        from rota.simulation import stage  # noqa: PLC0415 - few programs need it

        with stage(said, order, self.settings) as made:
            shadow = _Shadow(self._session.registry, made.path, made.settings, made.clock, made.ids)
            try:
                registry = shadow.declare(schedules=scope.organization in {None, "default"})
            finally:
                shadow.close()
            return made.play(registry, limit=limit, progress=None if progress is None else lambda at: progress(_moment(at)))


class _Onlooker(Base):
    """Somebody at the same store who can change nothing there."""

    def __init__(self, url: StoreUrl, settings: Settings, clock: Clock) -> None:
        """Open the store for reading, if it is there."""
        from rota.simulation import open_for_reading  # noqa: PLC0415 - few programs need it
        from rota.simulation.liveness import Roll  # noqa: PLC0415

        super().__init__(settings=settings, clock=clock)
        self._session.where = url
        self._theirs: Store | None = open_for_reading(url, settings)
        if self._theirs is not None:
            self._session.opened = Opened(self._theirs, Roll(), "")

    def definitions(self, actor: Actor | str | None, now: Instant) -> tuple[Definitions, Scope]:
        """Return what an actor may see, and how far that is: durations are statistics, and who may not read those can't simulate."""
        from rota.simulation import Definitions, read  # noqa: PLC0415 - few programs need it

        if self._theirs is None:
            return Definitions(), EVERYTHING
        scope = self._session.scope(actor, Right.READ_STATS)
        return read(self._theirs, now, scope), scope

    def close(self) -> None:
        """Let go of the store."""
        if self._theirs is not None:
            self._theirs.close()


class _Shadow(Declaring):
    """The same code on the store that is thrown away: what it says of templates and schedules counts there too."""

    def __init__(self, code: Registry, path: Path, settings: Settings, clock: Clock, ids: Ids) -> None:
        """Register what the code has registered."""
        super().__init__(path, settings=settings, clock=clock, ids=ids)
        for known in code.known():
            if known.handler is not None:
                said = {field: getattr(known.code, field) for field in FIELDS if field not in {"executor", "handler"}}
                options = {field: value for field, value in said.items() if value is not msgspec.UNSET}
                self._session.registry.add(
                    known.name, known.handler.function, executor=known.handler.executor, options=options, rules=known.handler.rules
                )
        self._session.registry.scheduled = dict(code.scheduled)

    def declare(self, *, schedules: bool) -> Registry:
        """Tell the store, and return what is known then."""
        if schedules:
            self._session.registry.undeclared = frozenset(self._session.registry.scheduled)
            self._declare_scheduled()
        return self._session.registry


def _number(name: str, value: object, most: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise InvalidOption(f"{name}={value!r} is not allowed: give a number above 0, at most {most:,}")
    return float(value)


def _aware(at: datetime) -> Instant:
    if getattr(at, "tzinfo", None) is None:
        raise InvalidOption(f"start={at!r} is not allowed: give a datetime with a time zone, such as datetime(2026, 3, 1, tzinfo=UTC)")
    return instant(at)


def _moment(at: Instant) -> datetime:
    found = moment(at)
    assert found is not None  # noqa: S101 - an instant
    return found
