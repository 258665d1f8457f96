"""What a caller's transaction holds up while it is open, and what goes on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from rota import Settings
from rota.errors import NotFound, StoreBusy, TemplateInUse, UnknownParent
from rota.stores.postgres.copying import PostgresDepot
from rota.stores.postgres.db import Db
from rota.stores.postgres.user_connection import Lent
from tests.support.callers import Psycopg, PsycopgAsync, shipped
from tests.support.pace import patient
from tests.support.waiting import eventually

IMPATIENT = Settings(busy_timeout=2.0)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as made:
        yield made


@pytest.fixture
def caller(shop, pool):
    with closing(Psycopg()) as made:
        yield made


def waits(database, kind):
    """Say whether anybody waits for a lock of this kind."""
    return database._raw.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = %s", (kind,)).fetchone()[0]


@contextmanager
def guests(shop):
    """Two transactions that have added jobs, one on a connection of the caller's own and one on the store's."""
    with closing(Psycopg()) as caller, shop.transaction() as tx:
        for name, place in (("theirs", caller.handle), ("ours", tx)):
            shop.enqueue("ship", {"order": 1}, transaction=place)
            shop.enqueue("ship", {"order": 2}, priority="high", unique_key=name, transaction=place)
            shop.enqueue("ship", {"order": 3}, run_at=timedelta(hours=1), transaction=place)
        yield
        caller.commit()


@pytest.mark.parametrize("kind", [Psycopg, PsycopgAsync])
def test_a_worker_sees_the_job_after_the_commit_and_not_before(kind, shop):
    with closing(kind()) as caller, shop.running(concurrency=2):
        job = caller.enqueue(shop, "ship", {"order": 1})
        other = shop.enqueue("ship", {"order": 2})
        assert shop.wait(other.id, timeout=patient(20)).result == 2
        with pytest.raises(NotFound):
            shop.jobs.get(job.id)
        caller.commit()
        assert shop.wait(job.id, timeout=patient(20)).result == 1


@pytest.mark.parametrize("settings", [Settings(busy_timeout=2.0, poll=0.05, poll_hinted=30.0)])
def test_the_hint_goes_with_the_callers_commit(shop):
    with closing(Psycopg()) as caller, shop.running(concurrency=1):
        assert shop.wait(shop.enqueue("ship", {"order": 2}).id, timeout=patient(20)).result == 2
        job = caller.enqueue(shop, "ship", {"order": 1})
        caller.commit()
        assert shop.wait(job.id, timeout=patient(10)).result == 1


def use(shop):
    """Do what keeps a store busy: turns, and verbs that have it to themselves."""
    later = shop.enqueue("ship", {"order": 10}, run_at=timedelta(hours=1))
    shop.schedule("often", "ship", every="1s", params={"order": 11})
    for number in range(20, 25):
        shop.enqueue("ship", {"order": number}, unique_key=f"n{number}", priority="high" if number % 2 else "normal")
    shop.jobs.cancel(later.id)
    child = shop.enqueue("ship", {"order": 30}, depends_on=[shop.enqueue("ship", {"order": 29})])
    shop.templates.pause("once")
    shop.templates.update("once", max_running=3)
    shop.store.recover()
    eventually(lambda: shop.jobs.list(schedule="often", status="COMPLETED"), what="a due time has run")
    result = shop.wait(child.id, timeout=patient(20)).result
    shop.store.purge(older_than=0)
    return result


@pytest.mark.parametrize("settings", [IMPATIENT])
def test_everything_goes_on_while_transactions_with_jobs_are_open(shop, pool):
    with shop.running(concurrency=2), guests(shop):
        assert pool.submit(use, shop).result(patient(30)) == 30


@pytest.mark.parametrize("settings", [IMPATIENT])
def test_a_guest_that_set_the_clock_back_would_hold_up_all_others(caller, shop, monkeypatch):
    monkeypatch.setattr(Lent, "change", Db.change)
    caller.enqueue(shop, "ship", {"order": 1})
    with pytest.raises(StoreBusy):
        shop.enqueue("ship", {"order": 2})


# ---- the same key ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_who_wants_a_key_that_a_guest_has_in_hand_waits_for_its_end(caller, shop, pool, database, end):
    first = caller.enqueue(shop, "ship", {"order": 1}, unique_key="k")
    asked = pool.submit(shop.enqueue, "ship", {"order": 1}, unique_key="k")
    eventually(lambda: waits(database, "transactionid"), what="the other waits")
    getattr(caller, end)()
    found = asked.result(patient(20))
    assert (found.id == first.id, found.existing) == ((True, True) if end == "commit" else (False, False))


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_of_two_guests_with_one_key_the_second_waits_for_the_first(caller, shop, pool, database, end):
    first = caller.enqueue(shop, "ship", {"order": 1}, unique_key="k")
    with closing(Psycopg()) as other:
        asked = pool.submit(other.enqueue, shop, "ship", {"order": 1}, unique_key="k")
        eventually(lambda: waits(database, "transactionid"), what="the other waits")
        getattr(caller, end)()
        found = asked.result(patient(20))
        other.commit()
    assert (found.id == first.id, found.existing) == ((True, True) if end == "commit" else (False, False))
    assert len(shop.jobs.list(status="QUEUED")) == 1


@pytest.mark.parametrize("settings", [Settings(busy_timeout=0.2)])
def test_who_waits_too_long_for_it_is_told_so_and_goes_on(caller, shop):
    caller.enqueue(shop, "ship", {"order": 1}, unique_key="k")
    with closing(Psycopg()) as other:
        other.execute("INSERT INTO orders VALUES (2)")
        with pytest.raises(StoreBusy, match="busy_timeout"):
            other.enqueue(shop, "ship", {"order": 1}, unique_key="k")
        assert other.execute("SELECT id FROM orders") == [{"id": 2}]


# ---- what does wait --------------------------------------------------------------------------------------------------


def test_a_job_with_parents_has_the_store_to_itself_until_the_commit(caller, shop, pool, database):
    parent = shop.enqueue("ship", {"order": 1})
    caller.enqueue(shop, "ship", {"order": 2}, depends_on=[parent])
    asked = pool.submit(shop.enqueue, "ship", {"order": 3})
    eventually(lambda: waits(database, "advisory"), what="the other waits")
    caller.commit()
    assert asked.result(patient(20))


def test_of_two_callers_who_wait_for_each_other_one_is_told_and_keeps_its_transaction(caller, shop, pool, database):
    """One has a row that the other wants, and wants the store, which the other has."""
    parent = shop.enqueue("ship", {"order": 1})
    with closing(Psycopg()) as other:
        caller.execute("SET deadlock_timeout = '100ms'")
        other.execute("SET deadlock_timeout = '20s'")
        caller.execute("INSERT INTO orders VALUES (1)")
        other.enqueue(shop, "ship", {"order": 2}, depends_on=[parent])
        theirs = pool.submit(other.execute, "INSERT INTO orders VALUES (1)")
        eventually(lambda: waits(database, "transactionid"), what="the other waits")
        with pytest.raises(StoreBusy, match="in each other's way"):
            caller.enqueue(shop, "ship", {"order": 3}, depends_on=[parent])
        assert caller.execute("SELECT id FROM orders") == [{"id": 1}]
        caller.rollback()
        theirs.result(patient(20))
        other.commit()
    assert len(shop.jobs.list(status="PENDING")) == 1


def test_what_a_refused_job_with_parents_locked_is_free_again(caller, shop):
    with pytest.raises(UnknownParent):
        caller.enqueue(shop, "ship", {"order": 2}, depends_on=["01a1df78-391a-7000-801e-bf0e68a814c6"])
    assert shop.enqueue("ship", {"order": 3})


def test_a_template_is_not_deleted_while_a_guest_may_have_jobs_of_it(caller, shop, pool, database):
    caller.enqueue(shop, "once", {"order": 1})
    asked = pool.submit(shop.templates.delete, "once")
    eventually(lambda: waits(database, "advisory"), what="the other waits")
    caller.commit()
    with pytest.raises(TemplateInUse):
        asked.result(patient(20))


def test_a_store_is_not_copied_while_a_guest_may_have_jobs_in_it(caller, shop, pool, database, settings):
    def hold():
        with PostgresDepot(database.server.url(), settings).hold():
            return shipped(shop)

    caller.enqueue(shop, "ship", {"order": 1})
    copied = pool.submit(hold)
    eventually(lambda: waits(database, "advisory"), what="the copy waits")
    caller.commit()
    assert copied.result(patient(20)) == [1]
