"""A disk that can't be read in the middle of a transaction, at every read in turn: SQLite then undoes all of it by itself.

Nothing of it may be written after that, and no job may be blamed for it.
"""

from __future__ import annotations

from itertools import count

import apsw
import pytest

from rota.errors import StoreUnavailable
from rota.model.decide import Completed, Failed
from rota.model.settings import Settings
from rota.ports.executor import Report
from rota.stores.sqlite import SqliteStore
from tests.stores.desk import Desk


class Unreadable(apsw.VFS):
    """Fails so many reads, from the `at`-th on."""

    def __init__(self) -> None:
        self.name = "unreadable"
        self.at = self.reads = self.failed = 0
        super().__init__(self.name, "")

    def xOpen(self, name, flags):  # noqa: N802 - SQLite's own name
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk, name, flags) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xRead(self, amount, offset):  # noqa: N802
        self._disk.reads += 1
        if self._disk.at and self._disk.at <= self._disk.reads < self._disk.at + 2:
            self._disk.failed += 1
            raise apsw.IOError("made to fail")
        return super().xRead(amount, offset)


@pytest.fixture
def disk():
    made = Unreadable()
    yield made
    made.unregister()


@pytest.fixture
def desk(disk, tmp_path):
    store = SqliteStore(tmp_path / "rota.db", Settings(synchronous="NORMAL"), vfs=disk.name)
    store.migrate(now=0)
    yield Desk(store)
    store.close()


def whole(raw):
    return {table: list(raw.execute(f"SELECT * FROM {table}")) for table in ("jobs", "job_runs", "job_edges", "stats_total", "queue_clock")}


def at_every_read(desk, disk, work):
    """Do this work again and again, each time with the fault one read later, until it is not met any more; return what it gives back."""
    raw = apsw.Connection(str(desk.store.path))
    try:
        for at in count(1):
            # Somebody else commits: what the writer knows of the file is of the past, and it has to read it again.
            raw.pragma("user_version", at)
            before = whole(raw)
            disk.at, disk.reads, disk.failed = at, 0, 0
            try:
                return work()
            except StoreUnavailable:
                assert disk.failed
            finally:
                disk.at = 0
            assert whole(raw) == before, f"read {at} failed, and something was written"
    finally:
        raw.close()
        assert at > 5


def test_a_turn_that_meets_an_unreadable_page_is_undone_and_can_be_repeated(desk, disk):
    jobs = [desk.add(params=f'{{"text":"{"x" * 3000}"}}') for _ in range(5)]
    reported, done, failing = desk.claim(3)
    request = desk.request(
        2,
        reports=[Report(reported.number, progress=5)],
        done=[(done.number, desk.now)],
        endings=[desk.ending(reported, Completed('"ok"')), desk.ending(failing, Failed("x"))],
    )
    turned = at_every_read(desk, disk, lambda: desk.store.turn(request))
    assert (turned.refused, turned.late, len(turned.claimed)) == ([], [], 2)
    assert [desk.status(job) for job in jobs] == ["COMPLETED", "COMPLETED", "FAILED", "RUNNING", "RUNNING"]


def test_a_batch_that_meets_an_unreadable_page_is_all_or_nothing(desk, disk):
    parent = desk.add(params=f'{{"text":"{"x" * 3000}"}}')
    rows = [desk.row() for _ in range(3)] + [desk.row(unique_key=str(n)) for n in range(3)]
    rows += [desk.row(depends_on=(parent,)) for _ in range(3)]
    added = at_every_read(desk, disk, lambda: desk.put(*rows))
    assert [each.existing for each in added] == [False] * 9


def test_a_callers_own_transaction_that_meets_an_unreadable_page_is_undone(desk, disk):
    desk.add(params=f'{{"text":"{"x" * 3000}"}}')
    rows = [desk.row() for _ in range(3)]

    def work():
        with desk.store.transaction() as tx:
            desk.store.enqueue(rows[:2], now=desk.now, transaction=tx)
            desk.store.enqueue(rows[2:], now=desk.now, transaction=tx)

    at_every_read(desk, disk, work)
    assert desk.order()[1:] == [row.job_id for row in rows]
