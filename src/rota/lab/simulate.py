"""Simulation of this store's schedules through the coming days, by the real engine on a temporary copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from rota.compose import Opened
from rota.declarations import declare_scheduled
from rota.engine.registry import Registry
from rota.errors import InvalidOption
from rota.model.checks import whole
from rota.model.gate import EVERYTHING, Actor, Right, Scope
from rota.model.settings import Settings
from rota.model.templates import FIELDS
from rota.model.urls import StoreUrl
from rota.model.values import SECOND, Instant, instant, moment_of
from rota.ports.clock import Clock, Ids, SystemClock
from rota.session import Session
from rota.simulation import Definitions, Order, Roll, Simulated, faults_of, open_for_reading, read, stage

DAY_S = 86_400
DAYS_MAX = 3660
WORKERS_MAX = 100
FAULTS_MAX = 1000
LINES_MAX = 10_000_000
MINUTE = 60 * SECOND


def simulate(
    session: Session,
    actor: Actor | str | None,
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
) -> Simulated:
    """Run the schedules of a store through some days: see `Rota.simulate`. The store is only read."""
    settings = session.settings
    # A clock that follows the store's own would open the store for writing.
    clock = SystemClock() if session.follows is not None and session.opened is None else session.clock
    now = clock.now()
    begin = now // MINUTE * MINUTE if start is None else _aware(start)
    order = Order(
        start=begin,
        end=begin + round(_number("days", days, DAYS_MAX) * DAY_S) * SECOND,
        seed=whole("seed", seed, least=0),
        workers=whole("workers", workers, least=1, most=WORKERS_MAX),
        concurrency=settings.concurrency if concurrency is None else whole("concurrency", concurrency, least=1),
        faults=faults_of(faults),
        faults_per_day=_number("faults_per_day", faults_per_day, FAULTS_MAX),
        failures=failures,
    )
    whole("limit", limit, least=0, most=LINES_MAX)
    definitions, scope = _definitions(session.where, settings, clock, actor, now)
    with stage(definitions, order, settings) as made:
        with _shadow(session.registry, made.path, made.settings, made.clock, made.ids) as shadow:
            if scope.organization in {None, "default"}:
                shadow.registry.undeclared = frozenset(shadow.registry.scheduled)
                declare_scheduled(shadow)
            registry = shadow.registry
        return made.play(registry, limit=limit, progress=None if progress is None else lambda at: progress(moment_of(at)))


def _definitions(url: StoreUrl, settings: Settings, clock: Clock, actor: Actor | str | None, now: Instant) -> tuple[Definitions, Scope]:
    """Return the definitions that an actor may see, and their scope. Durations are statistics: simulating needs the right to read those."""
    store = open_for_reading(url, settings)
    if store is None:
        return Definitions(), EVERYTHING
    try:
        reader = Session(None, settings=settings, clock=clock)
        reader.where, reader.opened = url, Opened(store, Roll(), "")
        scope = reader.scope(actor, Right.READ_STATS)
        return read(store, now, scope), scope
    finally:
        store.close()


@contextmanager
def _shadow(code: Registry, path: Path, settings: Settings, clock: Clock, ids: Ids) -> Iterator[Session]:
    """Open a session on the temporary store with the same code: the templates and schedules that it declares count there too."""
    session = Session(None, path, settings=settings, clock=clock, ids=ids)
    try:
        for known in code.known():
            if known.handler is not None:
                said = {field: getattr(known.code, field) for field in FIELDS if field not in {"executor", "handler"}}
                options = {field: value for field, value in said.items() if value is not msgspec.UNSET}
                session.registry.add(
                    known.name, known.handler.function, executor=known.handler.executor, options=options, rules=known.handler.rules
                )
        session.registry.scheduled = dict(code.scheduled)
        yield session
    finally:
        session.close()


def _number(name: str, value: object, most: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise InvalidOption(f"{name}={value!r} is not allowed: use a number above 0, at most {most:,}")
    return float(value)


def _aware(at: datetime) -> Instant:
    if getattr(at, "tzinfo", None) is None:
        raise InvalidOption(f"start={at!r} is not allowed: use a datetime with a time zone, such as datetime(2026, 3, 1, tzinfo=UTC)")
    return instant(at)
