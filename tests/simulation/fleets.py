"""Fleets to foresee: a few schedules of every kind, drawn by chance, that overlap, depend on each other and share limits and workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from rota import Rota, Settings, testing
from rota.engine.worker import Worker
from rota.errors import InvalidSchedule
from rota.local_workers import make_worker
from rota.model.schedules import Fate, lattice_of
from rota.model.values import SECOND, instant, moment_of
from rota.testing import Clock, Kit

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
SECONDS = (0.237, 1.213, 7.419, 33.337, 95.551)
"""How long jobs take: in odd milliseconds, so that none ends in the moment in which another is due."""

Told = tuple[datetime, str, Fate]


class Fleet(msgspec.Struct):
    """Templates by name with their options and durations, schedules with their options, and who runs them."""

    templates: dict[str, dict[str, Any]]
    seconds: dict[str, float]
    schedules: list[dict[str, Any]]
    organization: int | None
    workers: int
    concurrency: int
    length: timedelta


def fleet(seed: int) -> Fleet:
    """Draw a fleet."""
    chance = Random(f"fleet {seed}")
    names = [f"job{number}" for number in range(chance.randrange(1, 4))]
    return Fleet(
        templates={name: {"max_running": chance.choice([None, None, 1, 2])} for name in names},
        seconds={name: chance.choice(SECONDS) for name in names},
        schedules=[_schedule(chance, number, names) for number in range(chance.randrange(1, 7))],
        organization=chance.choice([None, None, None, 2]),
        workers=chance.randrange(1, 4),
        concurrency=chance.choice([1, 2, 8]),
        length=timedelta(minutes=chance.choice([1, 2, 3])),
    )


def _schedule(chance: Random, number: int, templates: list[str]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "name": f"s{number}",
        "template": chance.choice(templates),
        "overlap": chance.choice(["skip", "skip", "queue", "allow"]),
    }
    match chance.choice(["cron", "every", "every", "at"]):
        case "cron":
            said |= {"cron": chance.choice(["* * * * *", "*/2 * * * *", "*/3 * * * *"]), "timezone": chance.choice(["UTC", "Asia/Kolkata"])}
        case "every":
            said |= {"every": chance.choice([2, 3, 10, 47, 60, 100]), "starts": START - timedelta(seconds=chance.randrange(100))}
        case _:
            said |= {"at": START + timedelta(seconds=chance.randrange(1, 400))}
    if number and chance.random() < 0.3:
        said["depends_on"] = [f"s{chance.randrange(number)}"]
    return said


# ---- a program that has it -----------------------------------------------------------------------------------------


class Sleepers:
    """Handlers that take the time of a clock that is moved: each sleeps until its end has come."""

    def __init__(self) -> None:
        self.clock = Clock(START)
        self._moved = threading.Condition()
        self._ends: list[int] = []

    def sleep(self, seconds: float) -> None:
        """Sleep, in the handler's own thread."""
        with self._moved:
            ends = self.clock.now() + round(seconds * SECOND)
            self._ends.append(ends)
            while self.clock.now() < ends:
                self._moved.wait()
            self._ends.remove(ends)

    def move(self, at: datetime) -> None:
        """Move the clock, and wake those whose time has come."""
        with self._moved:
            self.clock.set(at)
            self._moved.notify_all()

    def asleep(self) -> int:
        """Return how many sleep and will still."""
        with self._moved:
            return sum(ends > self.clock.now() for ends in self._ends)

    @property
    def next_end(self) -> datetime | None:
        """Return when the first of them wakes up."""
        with self._moved:
            return moment_of(min(self._ends)) if self._ends else None


@contextmanager
def program(drawn: Fleet) -> Iterator[tuple[Kit, Sleepers, list[Worker]]]:
    """Have a store with the fleet in it, whose durations it knows, at START, and the workers of the fleet."""
    app, sleepers, known = Rota("never-opened.db"), Sleepers(), threading.Event()

    def handler(name: str) -> Any:
        def run() -> None:
            if known.is_set():
                sleepers.sleep(drawn.seconds[name])
            else:
                kit.clock.advance(seconds=drawn.seconds[name])

        return run

    for name, options in drawn.templates.items():
        app.job(name=name, **options)(handler(name))
    settings = Settings(concurrency=drawn.concurrency, dependency_wait=60.0)
    with testing.use(app, at=START - timedelta(hours=1), settings=settings) as kit:
        for name in drawn.templates:
            app.enqueue(name)
        kit.drain()
        if drawn.organization is not None:
            app.organizations.update("default", max_running=drawn.organization)
        kit.clock.set(START)
        sleepers.clock = kit.clock
        known.set()
        for said in drawn.schedules:
            options = {key: value for key, value in said.items() if key != "name"}
            with suppress(InvalidSchedule):
                app.schedules.create(said["name"], options.pop("template"), **options)
        workers = [make_worker(app._session, app._session.open(), drawn.concurrency) for _ in range(drawn.workers)]
        try:
            for worker in workers:
                worker.start()
            yield kit, sleepers, workers
        finally:
            _stop(workers, sleepers)


def _stop(workers: list[Worker], sleepers: Sleepers) -> None:
    sleepers.move(sleepers.clock.at + timedelta(days=1))
    for worker in workers:
        worker.begin_stop()
    while any(worker.holding for worker in workers):
        for worker in workers:
            worker.turn()
        time.sleep(0.001)
    for worker in workers:
        worker.finish()


def live_through(kit: Kit, sleepers: Sleepers, workers: list[Worker], end: datetime) -> None:
    """Let the real workers run while the clock goes from event to event."""
    while True:
        _settle(sleepers, workers)
        events = [at for at in (kit._next_due(), sleepers.next_end) if at is not None and at > kit.clock.at]
        if not events or min(events) > end:
            return
        sleepers.move(min(events))


def _settle(sleepers: Sleepers, workers: list[Worker]) -> None:
    """Turn the workers until every job that was claimed sleeps, and nobody has anything to do."""
    quiet = 0
    while quiet < 2:
        delays = [worker.turn() for worker in workers]
        held = sum(worker.holding for worker in workers)
        quiet = quiet + 1 if min(delays) > 0 and held == sleepers.asleep() else 0
        if not quiet:
            time.sleep(0.0005)


# ---- what is told of it --------------------------------------------------------------------------------------------


def each_due(app: Rota, rows: list[tuple[str, Fate, datetime, datetime, int]], end: datetime) -> list[Told]:
    """Return due times up to the end one by one, of rows that may cover several: schedule, fate, first, last and how many."""
    timings = {each.name: each.timing for each in app._session.open().store.schedules()}
    found: list[Told] = []
    for schedule, fate, first, last, count in rows:
        points = (
            [first] if count == 1 else [moment_of(p.at) for p in lattice_of(timings[schedule]).points(instant(first) - 1, instant(last))]
        )
        assert len(points) == count
        found += [(at, schedule, fate) for at in points if at <= end]
    return sorted(found)
