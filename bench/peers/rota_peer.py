"""Rota with its defaults, whatever the store: threads, eight at once, every commit synced. Public names only."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

from common import (
    COUNTERS,
    FILLER,
    LATENCY,
    PROCESS,
    STORES,
    WORK,
    Payload,
    Peer,
    pace,
    payload,
    payloads,
    read_delays,
    read_starts,
    started,
    watch,
)

_READY_CAP_S = 60.0
_WARM_UP_JOBS = 20
_IN_TURN = 2
_LOOK_S = 0.2


class RotaPeer(Peer):
    """Rota as a user has it: nothing is tuned for the measurement."""

    def version(self) -> str:
        """Return Rota's version."""
        from rota import __version__  # noqa: PLC0415 # see `open`

        return __version__

    def open(self) -> None:
        """Import Rota and open the store, which it does by itself on first use."""
        from rota_jobs import rota  # noqa: PLC0415 # `reset` must be able to remove the file before it is opened

        self.rota = rota
        rota.workers.list()

    def send(self, job: Payload) -> None:
        """Enqueue one job; it is on disk when this returns."""
        self.rota.enqueue("noop", job)

    def enqueue_threads(self, jobs: int, threads: int) -> None:
        """Enqueue one by one from several threads at once."""
        share = jobs // threads
        crew = [threading.Thread(target=self.enqueue, args=(share,)) for _ in range(threads)]
        for member in crew:
            member.start()
        for member in crew:
            member.join()

    def enqueue_keyed(self, jobs: int) -> None:
        """Enqueue one by one, each with a unique key of its own."""
        for number, job in enumerate(payloads(jobs)):
            self.rota.enqueue("noop", job, unique_key=f"key-{number}")

    def bulk(self, jobs: int) -> None:
        """Enqueue from a generator, so that a million never stand in memory at once."""
        self.rota.enqueue_many(("noop", job) for job in payloads(jobs))

    def left(self, after: int = 0) -> int:
        """Return the jobs that have not ended, of those numbered above `after`."""
        raise NotImplementedError

    def last(self) -> int:
        """Return the highest number that a job has."""
        raise NotImplementedError

    def work(self) -> None:
        """Be a worker until SIGTERM."""
        self.rota.run()

    # ---- only Rota ----

    def backlog(self, jobs: int, kind: str) -> int:
        """Add jobs that must not be in the way: due `later`, of `low` priority, or of a `foreign` type. Return the last number."""
        if kind == "foreign":
            self.rota.job(elsewhere)
        self.rota.enqueue_many(_waiting(jobs, kind))
        return self.last()

    def front(self, jobs: int) -> int:
        """Add jobs that a worker is to run first. Return the last number before them."""
        before = self.last()
        self.bulk(jobs)
        return before

    def watch_front(self, jobs: int, after: int) -> float:
        """Wait until the jobs numbered above `after` have started and ended; return that moment."""
        return watch(lambda: self.left(after), jobs)

    def pace_inside(self, jobs: int, gap_s: float) -> None:
        """Enqueue at intervals with the worker in this very process."""
        with self.rota.running():
            self.pace(jobs, gap_s)
            _wait_for_starts(jobs)

    def pace_process(self, jobs: int, gap_s: float) -> None:
        """Enqueue thread jobs and process jobs in turn, the pool of processes being warm."""
        with self.rota.running():
            for number in range(_WARM_UP_JOBS):
                self.rota.enqueue("noop_process", payload(number, FILLER))
                time.sleep(gap_s)
            for _ in range(jobs):
                pace(self.send, 1, gap_s)
                pace(lambda job: self.rota.enqueue("noop_process", job), 1, gap_s, PROCESS)
            _wait_for_starts(2 * jobs)

    def tenants(self, jobs: int, organizations: int, limited: int) -> None:
        """Have jobs of several organizations wait (of the default one, if there are none), each with a limit that may bind.

        They come in turns, a few of each, as tenants' jobs do.
        """
        names = [f"o{index}" for index in range(organizations)]
        for name in names:
            self.rota.organizations.create(name, max_running=4 if limited else None)
        if limited:
            self.rota.templates.update("noop", max_running=1000)
        for _ in range(jobs // (_IN_TURN * organizations) if names else 0):
            with self.rota.transaction() as transaction:
                for name in names:
                    some = [("noop", job) for job in payloads(_IN_TURN)]
                    self.rota.enqueue_many(some, organization=name, transaction=transaction)
        if not names:
            self.bulk(jobs)

    def busy(self, jobs: int) -> None:
        """Have one organization's jobs wait, and another organization be there."""
        for name in ("busy", "quiet"):
            self.rota.organizations.create(name)
        self.rota.enqueue_many((("noop", job) for job in payloads(jobs)), organization="busy")

    def late(self, organization: str, started: int) -> None:
        """When so many have started, add one job of this organization and wait for its start."""
        _wait_for_starts(started)
        self.rota.enqueue("noop", payload(0, LATENCY), organization=organization)
        _wait_for_delay()

    def block(self, jobs: int) -> None:
        """Put jobs of an organization that is suspended at the head of the queue."""
        from rota import NewJob  # noqa: PLC0415 # see `open`

        self.rota.organizations.create("blocked")
        ahead = (NewJob(name="noop", params=job, priority="high") for job in payloads(jobs))
        self.rota.enqueue_many(ahead, organization="blocked")
        self.rota.organizations.suspend("blocked")

    def types(self, jobs: int, types: int) -> float:
        """Drain jobs of this number of types in turn, in this process; return the CPU seconds from the first start to the last end."""
        for number in range(types):
            self.rota.job(name=f"type{number}")(_counted)
        self.rota.enqueue_many((f"type{job['number'] % types}", job) for job in payloads(jobs))
        with self.rota.running():
            _wait_for_starts(1)
            begun = time.process_time()
            watch(self.left, jobs)
            return time.process_time() - begun

    def sql(self, jobs: int) -> dict[str, float]:
        """Drain no-op jobs in Python, then the same number of jobs that are one SELECT each; return the CPU seconds of both.

        The SELECT is on a SQLite file of its own, which every run opens anew.
        """
        file = STORES / "bench-shop.db"
        with closing(sqlite3.connect(file)) as shop, shop:
            shop.executescript("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS goods (id INTEGER); INSERT INTO goods VALUES (1);")
        self.rota.connections.create("shop", f"sqlite:///{file}")
        self.rota.templates.sql("one", "SELECT id FROM goods WHERE id = :id", connection="shop")
        spent = {}
        for kind, items in (("python", (("noop", job) for job in payloads(jobs))), ("sql", (("one", {"id": 1}) for _ in range(jobs)))):
            self.rota.enqueue_many(items)
            begun = time.process_time()
            with self.rota.running():
                while self.left() > 0:
                    time.sleep(_LOOK_S)
            spent[kind] = time.process_time() - begun
        return spent

    def ready(self) -> dict[str, float]:
        """Work until the first handler has started; return when the store was opened and when that was."""
        from rota_jobs import OPENED  # noqa: PLC0415 # see `open`

        with self.rota.running():
            _wait_for_starts(1)
        return {"opened": OPENED, "first": read_starts().first}


def _counted(number: int, kind: str, sent: float, pad: str) -> None:
    """Do nothing but be counted."""
    started({"number": number, "kind": kind, "sent": sent})


def elsewhere(number: int, kind: str, sent: float, pad: str) -> None:
    """Stand for a job type that the measured worker does not have: registered where it is enqueued only."""


def _waiting(jobs: int, kind: str) -> Iterator[object]:
    from rota import NewJob  # noqa: PLC0415 # see `open`

    later = datetime.now(UTC) + timedelta(hours=9)
    for job in payloads(jobs, FILLER if kind != "low" else WORK):
        if kind == "later":
            yield NewJob(name="noop", params=job, run_at=later)
        elif kind == "low":
            yield NewJob(name="noop", params=job, priority="low")
        else:
            yield NewJob(name="elsewhere", params=job)


def _wait_for_starts(jobs: int) -> None:
    end = time.monotonic() + _READY_CAP_S
    while read_starts().jobs < jobs and time.monotonic() < end:
        time.sleep(0.001)


def _wait_for_delay() -> None:
    end = time.monotonic() + _READY_CAP_S
    while not read_delays(COUNTERS, LATENCY) and time.monotonic() < end:
        time.sleep(0.001)
