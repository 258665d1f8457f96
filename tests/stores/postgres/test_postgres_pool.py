"""Connections that are fewer than those who want one: they wait for each other, and nobody for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rota.errors import StoreBusy, StoreError
from rota.stores.postgres.connection import Loan, Pool
from tests.support.pace import patient


@pytest.fixture
def make_pool(store):
    made = []

    def make(size, wait_s=20.0):
        made.append(Pool(store._pool._open, size=size, wait_s=wait_s))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def lent(pool, *, waited_s=0.0):
    """One who asks for a connection, and has waited so long already."""
    loan = Loan()
    loan.since -= waited_s
    return loan, pool._lend_now(loan)


def test_who_has_waited_for_long_is_not_overtaken(make_pool):
    pool = make_pool(1)
    holder, _ = lent(pool)
    patient, has = lent(pool, waited_s=1)
    assert not has
    pool._take_back(holder)
    late, has = lent(pool)
    assert not has
    assert pool._lend_now(patient)
    pool._take_back(patient)
    assert pool._lend_now(late)
    pool._take_back(late)


def test_who_has_just_come_may_be_overtaken_and_keeps_its_place(make_pool):
    pool = make_pool(1)
    holder, _ = lent(pool)
    first, _ = lent(pool)
    second, _ = lent(pool)
    pool._take_back(holder)
    quick, has = lent(pool)
    assert has
    pool._take_back(quick)
    assert [first.bell.locked(), second.bell.locked()] == [False, True]


def test_one_who_was_told_and_did_not_come_tells_the_next(make_pool):
    pool = make_pool(1)
    holder, _ = lent(pool)
    first, _ = lent(pool)
    second, _ = lent(pool)
    pool._take_back(holder)
    assert second.bell.locked()
    pool._take_back(first)  # interrupted, or its time was over
    assert not second.bell.locked()
    assert pool._lend_now(second)
    pool._take_back(second)


def test_many_threads_share_a_few_connections(make_pool):
    pool, running, most = make_pool(2), threading.Semaphore(2), 25

    def use(_):
        with pool.take() as db:
            assert running.acquire(blocking=False)
            db.value("server_clock")
            running.release()

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(use, range(16 * most)))
    assert (len(pool._loans), len(pool._waiting), len(pool._idle)) == (0, 0, 2)


def test_who_waits_too_long_is_told_so_and_leaves_no_trace(make_pool):
    pool = make_pool(1, wait_s=0.05)
    with pool.take():
        with pytest.raises(StoreBusy, match=r"all 1 connections of this process have been busy for 0\.05 s"), pool.take():
            pytest.fail("it was lent")
        assert not pool._waiting
    with pool.take():
        pass


def test_one_who_waits_for_a_pool_that_is_closed_is_told_so(make_pool):
    pool = make_pool(1)
    with ThreadPoolExecutor(1) as threads:
        with pool.take():
            waits = threads.submit(lambda: pool.take().__enter__())
            while not pool._waiting:
                pass
            pool.close()
        with pytest.raises(StoreError, match="closed"):
            waits.result(patient(10))
