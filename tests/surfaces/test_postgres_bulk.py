"""Bulk calls on PostgreSQL: several sessions write their chunks, and what is promised is what one would keep."""

from __future__ import annotations

import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from rota import NewJob, Rota, Settings
from rota.errors import IllegalMove, InvalidParams, QueueFull, RotaError, StoreUnavailable, TransactionMisuse
from tests.support.pace import patient
from tests.support.waiting import eventually

SMALL = Settings(bulk_chunk=10, bulk_sessions=3, busy_timeout=20)
WIDE = Settings(bulk_chunk=20, bulk_sessions=4, busy_timeout=20)

WRITERS = "FROM pg_stat_activity WHERE query LIKE '%INSERT INTO job_facts%' AND pid <> pg_backend_pid()"


@pytest.fixture
def settings():
    return SMALL


def ships(count, start=0):
    return (("ship", {"order": number}) for number in range(start, start + count))


def queued(database, job_type="ship"):
    """Return the orders of what is queued, in the queue's order; two never share a position here."""
    rows = database._sql(
        "SELECT position, (params::json ->> 'order')::integer FROM jobs WHERE status = 'QUEUED' AND job_type = ? ORDER BY position",
        (job_type,),
    )
    assert len({position for position, _ in rows}) == len(rows)
    return [order for _, order in rows]


def positions(database, bulk):
    found = dict(database._sql("SELECT job_id::text, position FROM jobs"))
    return [found[each] for each in bulk.ids]


def sessions(database, what):
    """Return the server's processes that write jobs, or last did, who began first before others."""
    return [pid for (pid,) in database._sql(f"SELECT pid {WRITERS} AND {what} ORDER BY xact_start")]


@contextmanager
def writing_stopped(database):
    """Let whoever wants to add a job wait while the block lasts, when it has its place already."""
    with database.server.connect(options=f"-c search_path={database.schema}") as other, other.transaction():
        other.execute("LOCK TABLE job_facts IN SHARE MODE")
        yield


def waiting(database, count):
    return eventually(
        lambda: len(found := sessions(database, "wait_event_type = 'Lock'")) == count and found, what=f"{count} sessions wait"
    )


@pytest.fixture
def nothing_left(database):
    """See that a call leaves nothing behind: no thread, no session in a transaction."""
    yield
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "rota-bulk"], what="the end of its threads")
    assert not sessions(database, "state <> 'idle'")


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as made:
        yield made


@pytest.mark.parametrize("settings", [WIDE])
def test_the_queue_has_the_items_order_however_many_sessions_write_them(shop, database, nothing_left):
    done = shop.enqueue_many(list(ships(1990)))
    assert (done.accepted, done.existing, len(set(done.ids))) == (1990, 0, 1990)
    assert queued(database) == list(range(1990))
    assert positions(database, done) == sorted(positions(database, done))


def test_as_many_sessions_write_as_the_setting_says_and_no_more_items_are_taken_than_they_and_one_chunk_need(
    shop, database, pool, nothing_left
):
    taken = []
    with writing_stopped(database):
        call = pool.submit(shop.enqueue_many, (taken.append(item) or item for item in ships(200)))
        waiting(database, 3)
        eventually(lambda: len(taken) == 40, what="the next chunk is built meanwhile")
        assert not call.done()
    assert call.result().accepted == 200
    assert queued(database) == list(range(200))


@pytest.mark.parametrize("settings", [WIDE])
def test_order_is_kept_beside_another_who_enqueues_and_a_worker_who_drains(shop, database, pool, nothing_left):
    shop.job(lambda order: threading.Event().wait(0.001), name="slow")
    shop.enqueue_many([("slow", {"order": -1})] * 200)
    shop.start(concurrency=2)
    other = pool.submit(lambda: [shop.enqueue("slow", {"order": -2}) for _ in range(100)])
    done = shop.enqueue_many([("slow", {"order": number}) for number in range(1500)])
    other.result()
    assert done.accepted == 1500
    assert positions(database, done) == sorted(set(positions(database, done)))
    ((count,),) = database._sql("SELECT count(*) FROM job_facts WHERE job_type = 'slow'")
    assert count == 1800


def at_the_door(database, count):
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    eventually(lambda: database._sql(waits) == [(count,)], what=f"{count} wait at the door")


def first_written_last(shop, database, pool, meanwhile):
    """Make a call of three chunks, of which the first loses its session and begins again when the others are written."""
    with writing_stopped(database):
        call = pool.submit(shop.enqueue_many, ships(30))
        first, _, _ = waiting(database, 3)
        alone = pool.submit(meanwhile)
        at_the_door(database, 1)
        database._sql("SELECT pg_terminate_backend(?)", (first,))
        at_the_door(database, 2)
    alone.result()
    return call.result()


def test_a_chunk_whose_session_was_ended_is_written_once_and_in_its_place(shop, database, pool, nothing_left):
    store = shop._session.open().store
    assert first_written_last(shop, database, pool, lambda: store._write(lambda db: None)).accepted == 30
    assert queued(database) == list(range(30))


def test_so_is_one_that_has_to_be_built_anew(shop, database, pool, nothing_left):
    with closing(Rota(database.server.url())) as other:
        assert first_written_last(shop, database, pool, lambda: other.templates.update("ship", max_retries=7)).accepted == 30
    assert queued(database) == list(range(30))
    assert [job.max_retries for job in shop.queues.jobs(limit=30)] == [7] * 10 + [5] * 20


def test_one_that_is_of_another_priority_by_then_can_not_stay_where_it_was(shop, database, pool, nothing_left):
    with closing(Rota(database.server.url())) as other:
        assert first_written_last(shop, database, pool, lambda: other.templates.update("ship", priority="low")).accepted == 30
    assert [job.params["order"] for job in shop.queues.jobs(limit=30)] == [*range(10, 30), *range(10)]


def test_whatever_sessions_are_ended_what_is_counted_is_there_and_nothing_is_there_twice(shop, database, pool, nothing_left):
    over = threading.Event()

    def end_some():
        while not over.wait(0.02):
            database._sql(f"SELECT pg_terminate_backend(pid) {WRITERS} AND random() < 0.3")

    ending = pool.submit(end_some)
    try:
        accepted = shop.enqueue_many(ships(1500)).accepted
        assert accepted == 1500
    except StoreUnavailable as error:
        accepted = accepted_by(error)
    over.set()
    ending.result()
    there = queued(database)
    assert (len(there), len(set(there)), there) == (accepted, accepted, sorted(there))


def accepted_by(error):
    return int(re.search(r"\((?:the )?([\d,]+) jobs (?:before it )?were accepted", str(error))[1].replace(",", ""))


@pytest.fixture
def thirteen_refused(shop, database):
    """A rule in the schema that only the write itself runs into."""
    database._sql("ALTER TABLE job_facts ADD CONSTRAINT no_thirteen CHECK (params NOT LIKE '{\"order\":13}')")
    yield
    database._sql("ALTER TABLE job_facts DROP CONSTRAINT no_thirteen")


def test_an_error_tells_what_was_written_behind_it(shop, database, pool, thirteen_refused, nothing_left):
    with writing_stopped(database):
        call = pool.submit(shop.enqueue_many, ships(30))
        waiting(database, 3)
    with pytest.raises(IllegalMove, match=r"^items 10 to 19: .*\(20 jobs were accepted: all before it and, behind it, items 20 to 29\)$"):
        call.result()
    assert queued(database) == [*range(10), *range(20, 30)]


def test_after_an_error_no_more_is_begun(shop, database, thirteen_refused, nothing_left):
    with pytest.raises(IllegalMove, match=r"^items 10 to 19: ") as caught:
        shop.enqueue_many(ships(1000))
    there = queued(database)
    assert accepted_by(caught.value) == len(there) <= 40
    assert there[:10] == list(range(10))


def test_a_bad_item_in_the_seventh_chunk_leaves_all_before_it(shop, database, nothing_left):
    items = [*ships(67), ("ship", {"item": 1}), *ships(100, 68)]
    with pytest.raises(InvalidParams, match=r"^item 67: .*\(the 67 jobs before it were accepted\)$"):
        shop.enqueue_many(items)
    assert queued(database) == list(range(67))


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_an_iterable_that_raises_leaves_the_chunks_before_it(shop, database, nothing_left, kind):
    def items():
        yield from ships(65)
        raise kind

    with pytest.raises(kind):
        shop.enqueue_many(items())
    assert queued(database) == list(range(60))


def test_who_is_interrupted_returns_when_what_is_under_way_is_written(shop, database, pool, nothing_left):
    def interrupt():
        with writing_stopped(database):
            began.set()
            waiting(database, 3)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.2)  # the caller has heard it, and waits again: nothing can be written yet

    began = threading.Event()
    interrupting = pool.submit(interrupt)
    began.wait()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            shop.enqueue_many(ships(1000))
    finally:
        signal.signal(signal.SIGINT, before)
    interrupting.result()
    assert queued(database) == list(range(30))


def test_what_failed_before_an_iterable_raised_is_what_is_told(shop, database, pool, thirteen_refused, nothing_left):
    def items():
        yield from ships(30)
        raise ZeroDivisionError

    with pytest.raises(IllegalMove, match=r"^items 10 to 19: ") as caught:
        shop.enqueue_many(items())
    assert accepted_by(caught.value) == len(queued(database))


def test_a_bound_of_the_queue_is_counted_chunk_by_chunk(shop, database, nothing_left):
    shop.organizations.create("acme", max_queued=25)
    with pytest.raises(QueueFull, match=r"^items 20 to 29: .*\(the 20 jobs before it were accepted\)$"):
        shop.enqueue_many(ships(31), organization="acme")
    assert queued(database) == list(range(20))


def test_keys_priorities_and_later_times_among_the_items_change_nothing_of_their_order(shop, database, nothing_left):
    items = list(ships(200))
    items[55] = items[57] = NewJob(name="ship", params={"order": 55}, unique_key="k")
    items[101] = NewJob(name="ship", params={"order": 101}, priority="high")
    items[120] = NewJob(name="ship", params={"order": 120}, run_at=timedelta(hours=1))
    items[150:170] = [NewJob(name="ship", params={"order": number}, priority="low") for number in range(150, 170)]
    done = shop.enqueue_many(items)
    assert (done.accepted, done.existing, done.ids[55]) == (199, 1, done.ids[57])
    orders = [job.params["order"] for job in shop.queues.jobs(limit=300)]
    rest = [number for number in range(200) if number not in {57, 101, 120} and not 150 <= number < 170]
    assert orders == [101, *rest, *range(150, 170)]


def test_what_the_items_wait_for_may_be_among_the_chunks_before(shop, database, nothing_left):
    ids = shop._session.ids.take(50, shop._session.clock.now())
    chain = [
        NewJob(
            name="ship", params={"order": number}, job_id=ids[number], depends_on=ids[number - 1] if number % 10 == 0 and number else None
        )
        for number in range(50)
    ]
    assert shop.enqueue_many(chain).accepted == 50
    assert len(queued(database)) == 46


@pytest.mark.parametrize("settings", [Settings(bulk_chunk=10, bulk_sessions=8, pool_size=2, busy_timeout=20)])
def test_of_the_smallest_pool_one_connection_is_left_to_others(shop, database, pool, nothing_left):
    taken = []
    with writing_stopped(database):
        call = pool.submit(shop.enqueue_many, (taken.append(item) or item for item in ships(200)))
        eventually(lambda: len(taken) == 20 and waiting(database, 1))
        assert [shop.store.stats().by_status["QUEUED"] for _ in range(10)] == [0] * 10
    assert call.result().accepted == 200
    assert queued(database) == list(range(200))


@pytest.mark.parametrize("settings", [SMALL, Settings(bulk_chunk=10, bulk_sessions=8, pool_size=2, busy_timeout=20)])
def test_several_threads_may_call_at_once(shop, database, pool, nothing_left):
    names = [f"ship_{index}" for index in range(5)]
    for name in names:
        shop.job(lambda order: order, name=name)
    calls = [pool.submit(shop.enqueue_many, [(name, {"order": number}) for number in range(150)]) for name in names]
    assert [call.result().accepted for call in calls] == [150] * 5
    assert all(positions(database, call.result()) == sorted(positions(database, call.result())) for call in calls)
    # A session that was lent is back: all are there for the next call.
    submitter = shop._session.submitter
    assert [submitter.sessions.acquire(blocking=False) for _ in range(submitter.sessions_max)] == [True] * submitter.sessions_max


@pytest.mark.parametrize("settings", [Settings(bulk_chunk=10, bulk_sessions=8, pool_size=2, busy_timeout=20)])
def test_a_handler_may_call_while_its_worker_turns_on_the_same_pool(shop, database, nothing_left):
    @shop.job
    def plan(orders: int) -> int:
        return shop.enqueue_many(ships(orders)).accepted

    shop.start(concurrency=4)
    jobs = [shop.enqueue("plan", {"orders": 100}) for _ in range(4)]
    assert [shop.wait(job.id, timeout=patient(20)).result for job in jobs] == [100] * 4
    eventually(lambda: shop.store.stats().by_status["COMPLETED"] == 405, what="all are done")


def test_inside_the_threads_own_transaction_it_is_refused(shop, database, nothing_left):
    with shop.transaction(), pytest.raises(TransactionMisuse):
        shop.enqueue_many(ships(100))
    assert queued(database) == []


def test_a_chunk_whose_template_has_changed_since_it_was_built_is_built_anew(shop, database, monkeypatch, nothing_left):
    store, side_by_side, seen = shop._session.open().store, shop._session.open().store.side_by_side, []

    def changing(rows, *, now):
        seen.append(len(rows))
        if len(seen) == 4:
            with closing(Rota(database.server.url())) as other:
                other.templates.update("ship", priority="high")
        return side_by_side(rows, now=now)

    monkeypatch.setattr(store, "side_by_side", changing)
    assert shop.enqueue_many(list(ships(100))).accepted == 100
    assert [job.params["order"] for job in shop.queues.jobs(limit=200)] == [*range(30, 100), *range(30)]


def test_where_no_thread_can_be_had_the_caller_writes_by_itself(shop, database, monkeypatch, nothing_left):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert shop.enqueue_many(ships(50)).accepted == 50
    assert queued(database) == list(range(50))


def test_a_store_that_is_away_is_said_with_what_was_accepted(shop, database, monkeypatch, nothing_left):
    store, pour = shop._session.open().store, shop._session.open().store.pour

    def away(rows, **options):
        if rows[0].params == '{"order":20}':
            raise StoreUnavailable("the server is away")
        return pour(rows, **options)

    monkeypatch.setattr(store, "pour", away)
    with pytest.raises(RotaError, match=r"^items 20 to 29: the server is away \(the 20 jobs before it were accepted\)$"):
        shop.enqueue_many(ships(100))
    assert queued(database) == list(range(20))
