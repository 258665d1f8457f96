"""A little of everything that writes, in steps that may be repeated: what a step says twice, the store does once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

from rota import Backoff, NewJob, PermanentError, Rota, Settings, Snooze
from rota.compose import Opened
from rota.local_workers import make_worker
from rota.model.gate import LOCAL
from rota.model.groups import Mode, OnFailure
from rota.model.values import Origin
from rota.ports.store import NewGroup
from rota.stores.locks import FileLocks
from rota.stores.sqlite import SqliteStore
from rota.stores.sqlite.connection import translated
from tests.support.clock import ManualClock

SETTINGS = Settings(wal_pages=12, busy_timeout=1.0)
"""A log so short that checkpoints happen all the time."""
TURNS_MAX = 200


def job_id(number: int) -> str:
    return f"01a1dd9cae9770008088{number:012x}"


class Scenario:
    """The steps, on one file. `ack` is called with what has become true each time that a step was confirmed."""

    def __init__(self, path: Path, *, vfs: str | None = None, ack: Callable[[str], None] = lambda _: None) -> None:
        self.clock = ManualClock()
        self.rota = Rota(path, clock=self.clock, settings=SETTINGS, seed=3)
        self.ack = ack
        register(self.rota)
        store = SqliteStore(path, SETTINGS, vfs=vfs)
        self.rota._session.opened = Opened(store, FileLocks(store.workers_folder, SETTINGS), None)
        self.store = store

    def steps(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The steps in order; each may be called again after it failed."""
        rota, store = self.rota, self.store
        yield "migrate", lambda: store.migrate(now=self.clock.now())
        yield "enqueue", lambda: self._enqueue(1, "good")
        yield "bulk", self._bulk
        yield "later", lambda: self._enqueue(20, "good", run_at=timedelta(hours=10))
        yield "turn", self.turn
        yield "cancel", lambda: self._cancel(20)
        yield "key", lambda: self._enqueue(21, "good", unique_key="k")
        yield "change", lambda: rota.jobs.update(job_id(21), priority="low")
        yield "enqueue more", lambda: self._enqueue(22, "good", priority="low")
        yield "move", lambda: rota.jobs.move(job_id(22), front=True)
        yield "group", self._group
        yield "transaction", self._transaction
        yield "turn of groups", self.turn
        yield "retry", self._retry
        yield "time passes", lambda: self.clock.advance(seconds=30)
        yield "last turn", self.turn
        yield "pause", lambda: rota.templates.pause("good")
        yield "resume", lambda: rota.templates.resume("good")
        yield "checkpoint", self._checkpoint

    def turn(self) -> None:
        """Turn until nothing is left to do now; a worker keeps its outcomes while the store fails."""
        rota = self.rota
        if rota._session.inline is None:
            rota._session.registry.sync(self.store, self.clock.now())
            worker = make_worker(rota._session, rota._session.opened, 4, inline=True)
            worker.start()
            rota._session.inline = worker
        worker = rota._session.inline
        for _ in range(TURNS_MAX):
            worker.poke()
            worker.turn()
            # Progress is the worker's own affair: we only give it time, as its driver does after trouble.
            if not worker.holding and not self.store.queue(limit=1):
                return
        raise AssertionError("the wheel turned and turned and never came to an end")

    def close(self) -> None:
        self.rota.close()

    def _enqueue(self, number: int, name: str, **options) -> None:
        self.rota.enqueue(name, {"n": number}, job_id=job_id(number), **options)
        self.ack(job_id(number))

    def _bulk(self) -> None:
        names = ["good", "bad", "dead", "drowsy", "good", "good"]
        self.rota.enqueue_many([NewJob(name=name, params={"n": n}, job_id=job_id(n)) for n, name in enumerate(names, 2)])
        for number in range(2, 2 + len(names)):
            self.ack(job_id(number))

    def _cancel(self, number: int) -> None:
        self.rota.jobs.cancel(job_id(number))
        self.ack(f"{job_id(number)} CANCELLED")

    def _group(self) -> None:
        rows = []
        for number, name in ((31, "good"), (32, "dead"), (33, "good")):
            new = NewJob(name=name, params={"n": number}, job_id=job_id(number))
            rows.append(self.rota._session.submitter.one(new, self.store, LOCAL, origin=Origin.GROUP))
        group = NewGroup(group_id=job_id(30), name="three", mode=Mode.SEQUENTIAL, on_failure=OnFailure.STOP, members=rows)
        self.store.add_group(group, actor=LOCAL, now=self.clock.now())
        for number in (31, 32, 33):
            self.ack(job_id(number))

    def _transaction(self) -> None:
        with self.rota.transaction() as tx:
            tx.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
            tx.execute("INSERT OR IGNORE INTO orders VALUES (7)")
            self.rota.enqueue("good", {"n": 40}, job_id=job_id(40), transaction=tx)
        self.ack(job_id(40))

    def _retry(self) -> None:
        self.store.retry(job_id(4), new_id=job_id(50), actor=LOCAL, now=self.clock.now())
        self.ack(job_id(50))

    def _checkpoint(self) -> None:
        with translated(self.store.path):
            self.store._writer._db.raw.wal_checkpoint()


def prepare(path: Path) -> None:
    """Make a file with the schema and the templates in it, for scenarios that do not begin at the very beginning."""
    with closing(Rota(path, clock=ManualClock(), settings=SETTINGS, seed=1)) as rota:
        register(rota)
        rota._session.registry.sync(rota._session.open().store, rota._session.clock.now())


@contextmanager
def scenario(path: Path, **options) -> Iterator[Scenario]:
    made = Scenario(path, **options)
    try:
        yield made
    finally:
        made.close()


def register(rota: Rota) -> None:
    @rota.job(backoff=Backoff(base=10, jitter=0))
    def good(n: int):
        return {"n": n}

    @rota.job(backoff=Backoff(base=10, jitter=0))
    def bad(ctx, n: int):
        if ctx.attempt == 1:
            raise RuntimeError("not yet")

    @rota.job
    def dead(n: int):
        raise PermanentError("never")

    @rota.job
    def drowsy(ctx, n: int):
        if ctx.attempt == 1:
            raise Snooze(5)
