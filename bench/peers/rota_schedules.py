"""Rota with many schedules: what a look costs when none is due, and what firing very many at once costs beside enqueueing as many."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from common import STORES, Peer, main, remove_sqlite

FILE = STORES / os.environ.get("BENCH_ROTA_FILE", "schedules.db")
START = datetime(2026, 1, 5, 8, 59, 30, tzinfo=UTC)
LOOKS = 2000
ROUNDS = 5


class RotaSchedules(Peer):
    """On a clock that is set by hand: nobody waits for nine o'clock."""

    settings = "defaults (synchronous=FULL); the clock is simulated, all else is real"

    def version(self) -> str:
        """Return Rota's version."""
        from rota import __version__  # noqa: PLC0415 # see `open`

        return __version__

    def reset(self) -> None:
        """Start with an empty file."""
        remove_sqlite(FILE)

    def open(self) -> None:
        """Open the store at half a minute to nine."""
        from rota.testing import Clock  # noqa: PLC0415 # `reset` comes first

        self.clock = Clock(START)
        self.rota = self._rota("NORMAL")

    def _rota(self, synchronous: str):  # type: ignore[no-untyped-def] # Rota is not imported before `open`
        from rota import Rota, Settings  # noqa: PLC0415 # see `open`

        rota = Rota(str(FILE), clock=self.clock, settings=Settings.from_environment(os.environ, synchronous=synchronous))
        rota.job(name="noop")(_noop)
        return rota

    def look(self, schedules: int) -> dict[str, float]:
        """Register so many, none of them due, and return how long one look of the trigger takes, in milliseconds."""
        self._register(schedules, "0 3 * * *")
        trigger = self._worker().trigger
        trigger.tick()
        return {"ms": _ms(lambda: self._looks(trigger)) / LOOKS}

    def _looks(self, trigger) -> None:  # type: ignore[no-untyped-def]
        for _ in range(LOOKS):
            trigger.look()
            trigger.tick()

    def fire(self, due: int, others: int) -> dict[str, list[float]]:
        """Fire so many at once, with others registered; and enqueue as many: the two in turns, milliseconds of each."""
        self._register(others, "0 3 1 1 *")
        self._register(due, "0 9 * * *")
        worker = self._worker()
        fired: list[float] = []
        enqueued: list[float] = []
        for day in range(ROUNDS):
            jobs = [("noop", {"number": number}) for number in range(due)]
            enqueued.append(_ms(lambda jobs=jobs: self.rota.enqueue_many(jobs)))  # type: ignore[misc]
            self.clock.set(START + timedelta(days=day, seconds=40))
            fired.append(_ms(lambda: self._fire_all(worker)))
            self._end_all(worker)
        return {"fire": fired, "enqueue": enqueued}

    def _fire_all(self, worker) -> None:  # type: ignore[no-untyped-def]
        while worker.trigger.tick():
            pass

    def _end_all(self, worker) -> None:  # type: ignore[no-untyped-def]
        """Run what waits, so that nothing of the day before is left."""
        while worker.turn() == 0.0 or worker.holding:
            pass

    def crons(self, schedules: int) -> dict[str, float]:
        """Register so many crons, a sixtieth of them due in the next minute, and return how long that minute's tick takes."""
        for minute in range(60):
            self._register(schedules // 60, f"{minute} * * * *", f"at {minute}")
        worker = self._worker()
        worker.trigger.tick()
        self.clock.set(START + timedelta(seconds=30))
        return {"ms": _ms(lambda: self._fire_all(worker)), "due": len(self.rota.schedules.occurrences(limit=schedules))}

    def due_times(self) -> dict[str, float]:
        """Go through a year of an every-minute cron in a zone with two clock changes; return due times a second."""
        from rota.model.cron import read_cron  # noqa: PLC0415
        from rota.model.lattice import OnCron  # noqa: PLC0415 # see `open`
        from rota.model.zones import zone_of  # noqa: PLC0415

        every_minute = OnCron(read_cron("* * * * *"), zone_of("Europe/Berlin"))
        first = round(START.timestamp()) * 1_000_000
        begun = time.perf_counter()
        count = sum(1 for _ in every_minute.points(first, first + 365 * 86_400_000_000))
        return {"count": count, "per_second": count / (time.perf_counter() - begun)}

    def simulate(self, schedules: int, days: int) -> dict[str, float]:
        """Simulate a mix of schedules: one in a hundred every minute, one in five hourly, the rest daily or weekly."""
        each = schedules // 100
        self._register(each, "* * * * *", "minute")
        self._register(20 * each, "17 * * * *", "hour")
        self._register(50 * each, "30 4 * * *", "day")
        self._register(29 * each, "0 6 * * MON", "week")
        begun = time.perf_counter()
        story = self.rota.simulate(days, seed=42)
        return {"seconds": time.perf_counter() - begun, "fired": story.totals.fired}

    def _register(self, count: int, cron: str, name: str = "due") -> None:
        for number in range(count):
            self.rota.schedules.create(f"{name} {cron} {number}", "noop", cron=cron)

    def _worker(self):  # type: ignore[no-untyped-def]
        """Open the store anew with full durability, and return a worker that runs its jobs in this thread."""
        self.rota.close()
        self.rota = rota = self._rota("FULL")
        rota.enqueue("noop")
        worker = rota._session.make_worker(rota._session.open(), 8, inline=True)  # noqa: SLF001 - a trigger by itself is not for programs
        worker.start()
        return worker


def _noop(number: int = 0) -> None:
    """Do nothing."""


def _ms(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begun)


if __name__ == "__main__":
    main(RotaSchedules())
