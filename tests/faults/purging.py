"""A store with something of everything that retention meets, and its purge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rota import Backoff, Rota, Settings
from rota.compose import Opened
from rota.stores.locks import FileLocks
from rota.stores.sqlite import SqliteStore
from tests.faults import invariants
from tests.support.clock import ManualClock

SETTINGS = Settings(wal_pages=12, busy_timeout=1.0, retention=0, retention_batch=8)
"""A log so short that checkpoints happen in the middle of it, and many small batches."""
DAYS = 10


def prepare(path: Path) -> None:
    """Make old chains of one and of several attempts, a group, what others need, and what has not ended."""
    clock = ManualClock()
    rota = Rota(path, clock=clock, settings=SETTINGS, seed=5)
    register(rota)
    needed = rota.enqueue("bad")
    rota.enqueue("good", depends_on=[needed.id])
    rota.enqueue_many([("good", {}), ("bad", {}), ("good", {})] * 4)
    rota.group([("good", {})] * 3)
    for _ in range(4):
        rota.turn()
        clock.advance(seconds=60)
    clock.advance(days=2 * DAYS)
    rota.enqueue_many([("good", {})] * 2)
    rota.turn()
    rota.enqueue("good", run_at=timedelta(days=400))
    rota.close()


def register(rota: Rota) -> None:
    @rota.job
    def good() -> None: ...

    @rota.job(max_retries=2, backoff=Backoff(base=1, jitter=0))
    def bad() -> None:
        raise ValueError("x")


@contextmanager
def opened(path: Path, *, vfs: str | None = None) -> Iterator[Rota]:
    """Open the store, on another disk if so wished, some days later."""
    clock = ManualClock()
    clock.advance(days=3 * DAYS)
    rota = Rota(path, clock=clock, settings=SETTINGS)
    register(rota)
    store = SqliteStore(path, SETTINGS, vfs=vfs)
    rota._session.opened = Opened(store, FileLocks(store.workers_folder, SETTINGS), f"{path}.logs")
    try:
        yield rota
    finally:
        rota.close()


def purge(rota: Rota) -> None:
    # Ten days have passed since the last job, and nobody has seen them pass.
    rota.store.purge(older_than=timedelta(days=DAYS + 5), trust_clock=True)


def roots(path: Path) -> set[str]:
    return set(invariants.tails(path))


def look(path: Path, *, before: set[str], after: set[str]) -> None:
    """Say that what is left is whole, that nothing of it comes back to life, and that a second purge ends where it should."""
    invariants.check(path)
    assert after <= roots(path) <= before
    with opened(path) as rota:
        rota._session.open().store.migrate(now=0)
        assert not rota.store.recover(), "recovery found something to do"
        assert after <= roots(path) <= before
        purge(rota)
    assert roots(path) == after
    invariants.check(path)
