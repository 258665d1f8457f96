"""The caller's own transaction on MongoDB, which has no savepoints: what fails after it has written something undoes the whole."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rota.errors import DuplicateJob, IllegalMove, StoreBusy, TransactionMisuse
from rota.model.definitions import Organization
from rota.model.values import SECOND
from rota.ports.store import DefinitionsChanged, Where
from rota.stores.mongodb.schema import STRIPES
from rota.stores.verbs.store import Hold
from tests.stores.desk import ANNA, Desk
from tests.stores.makers import MongoMaker
from tests.support.pace import patient


@pytest.fixture
def desk(tmp_path):
    maker = MongoMaker(tmp_path)
    yield Desk(maker.open())
    maker.close()


def unrepeated(desk, letter):
    return desk.row(job_hash=letter * 32, dedup_window=60 * SECOND)


def test_a_block_that_fails_takes_the_transaction_with_it(desk):
    with pytest.raises(TransactionMisuse, match="no savepoints"), desk.store.transaction() as tx:  # noqa: PT012 - the block is the subject
        desk.store.enqueue([desk.row()], now=desk.now, transaction=tx)
        with pytest.raises(ZeroDivisionError), tx.savepoint():  # noqa: PT012 - the block is the subject
            desk.store.enqueue([desk.row()], now=desk.now, transaction=tx)
            _ = 1 / 0
        with pytest.raises(TransactionMisuse, match="no savepoints"):
            desk.store.enqueue([desk.row()], now=desk.now, transaction=tx)
    assert desk.order() == []


def test_a_block_in_which_nothing_was_written_fails_alone(desk):
    kept = desk.row()
    with desk.store.transaction() as tx:
        desk.store.enqueue([kept], now=desk.now, transaction=tx)
        with pytest.raises(IllegalMove), tx.savepoint():
            desk.store.enqueue([desk.row(priority=101)], now=desk.now, transaction=tx)
    assert desk.order() == [kept.job_id]


def test_a_refusal_before_anything_is_written_leaves_the_transaction_as_it_was(desk):
    desk.put(unrepeated(desk, "a"))
    kept = desk.row()
    with desk.store.transaction() as tx:
        with pytest.raises(DuplicateJob):
            desk.store.enqueue([unrepeated(desk, "a")], now=desk.now, transaction=tx)
        desk.store.enqueue([kept], now=desk.now, transaction=tx)
    assert kept.job_id in desk.order()


def test_a_refusal_in_the_middle_of_a_batch_undoes_the_transaction_of_the_callers_session(desk):
    desk.put(unrepeated(desk, "a"))
    before = desk.order()
    client = desk.store._connections.client
    with client.start_session() as session, session.start_transaction():
        client["callers"]["orders"].insert_one({"_id": desk.row().job_id}, session=session)
        with pytest.raises(DuplicateJob):
            desk.store.enqueue([unrepeated(desk, "b"), unrepeated(desk, "a")], now=desk.now, transaction=session)
        assert not session.in_transaction
    assert desk.order() == before
    assert client["callers"]["orders"].find_one() is None


def test_others_change_jobs_while_a_callers_transaction_is_open(desk):
    first, second = desk.several(2)
    added = desk.row()
    with desk.store._connections.client.start_session() as session, session.start_transaction():
        desk.store.enqueue([added], now=desk.now, transaction=session)
        desk.store.cancel(first, actor=ANNA, now=desk.now)
    assert desk.order() == [second, added.job_id]


def test_any_number_of_transactions_of_ours_add_jobs_beside_each_other(desk):
    inside = threading.Semaphore(0)

    def buy(row):
        with desk.store.transaction() as tx:
            desk.store.enqueue([row], now=desk.now, transaction=tx)
            inside.release()
            time.sleep(0.2)

    rows = [desk.row() for _ in range(STRIPES + 4)]
    with ThreadPoolExecutor(len(rows)) as pool:
        buyers = [pool.submit(buy, row) for row in rows]
        for _ in range(STRIPES):
            assert inside.acquire(timeout=patient(5))
        for buyer in buyers:
            buyer.result()
    assert set(desk.order()) == {row.job_id for row in rows}


def test_a_transaction_of_ours_that_needs_the_store_to_itself_waits_for_turns(desk):
    parent, over = desk.add(delay=1), threading.Event()

    def turn(db):
        db.has("meta", {"_id": "late_results"})
        time.sleep(0.01)

    def work():
        while not over.is_set():
            desk.store._run(turn, Hold.WHEEL)

    with ThreadPoolExecutor() as pool:
        worker = pool.submit(work)
        try:
            for _ in range(10):
                with desk.store.transaction() as tx:
                    desk.store.enqueue([desk.row(depends_on=(parent,))], now=desk.now, transaction=tx)
        finally:
            over.set()
        worker.result()
    assert len(desk.store.find(Where(status=("PENDING",)), limit=20)) == 11


def test_what_a_transaction_of_ours_has_read_is_not_read_anew_behind_its_back(desk):
    with pytest.raises(StoreBusy, match="in each other's way"), desk.store.transaction() as tx:  # noqa: PT012 - the block is the subject
        assert desk.store.job(desk.id(), transaction=tx) is None
        with ThreadPoolExecutor() as pool:
            pool.submit(desk.turn).result()
        desk.store.enqueue([desk.row(job_hash="a" * 32, dedup_window=SECOND)], now=desk.now, transaction=tx)


def test_what_a_caller_wrote_in_a_transaction_of_ours_is_never_left_out_of_it(desk):
    client = desk.store._connections.client
    with pytest.raises(StoreBusy, match="in each other's way"), desk.store.transaction() as tx:  # noqa: PT012 - the block is the subject
        client["callers"]["orders"].insert_one({"_id": 1}, session=tx.session)
        with ThreadPoolExecutor() as pool:
            pool.submit(desk.turn).result()
        desk.store.enqueue([desk.row(job_hash="a" * 32, dedup_window=SECOND)], now=desk.now, transaction=tx)
    assert client["callers"]["orders"].find_one() is None
    assert desk.order() == []


def test_a_conflict_in_a_callers_session_is_repeated_by_the_driver(desk):
    client, tried = desk.store._connections.client, []

    def buy(session):
        tried.append(session)
        client["callers"]["orders"].insert_one({"_id": desk.id()}, session=session)
        if len(tried) == 1:
            desk.put(desk.row(unique_key="k"))
        return desk.store.enqueue([desk.row(unique_key="k")], now=desk.now, transaction=session)

    with client.start_session() as session:
        (enqueued,) = session.with_transaction(buy)
    assert len(tried) == 2
    assert enqueued.existing
    assert client["callers"]["orders"].count_documents({}) == 1
    client.drop_database("callers")


def test_a_conflict_in_a_transaction_of_ours_is_one_of_our_errors(desk):
    with pytest.raises(StoreBusy, match="in each other's way"), desk.store.transaction() as tx:  # noqa: PT012 - the block is the subject
        desk.store.enqueue([desk.row()], now=desk.now, transaction=tx)
        with ThreadPoolExecutor() as pool:
            pool.submit(desk.put, desk.row(unique_key="k")).result()
        desk.store.enqueue([desk.row(unique_key="k")], now=desk.now, transaction=tx)


def test_the_first_job_of_a_type_keeps_nobody_from_adding_the_first_of_another(desk):
    with desk.store.transaction() as tx:
        desk.store.enqueue([desk.row("new")], now=desk.now, transaction=tx)
        with ThreadPoolExecutor() as pool:
            pool.submit(desk.put, desk.row("newer")).result()
            pool.submit(desk.put, desk.row("new")).result()
        desk.store.enqueue([desk.row("newest")], now=desk.now, transaction=tx)
    assert len(desk.order()) == 4
    assert sorted(lane.job_type for lane in desk.store.lanes()) == ["new", "newer", "newest"]


def test_jobs_of_definitions_that_are_newer_than_the_transaction_are_taken(desk):
    client = desk.store._connections.client
    before = desk.store.definitions()
    with client.start_session() as session, session.start_transaction():
        desk.store.enqueue([desk.row()], now=desk.now, definitions=before, transaction=session)
        desk.store.put_organization(Organization(name="shop", display_name="Shop"), actor=ANNA, now=desk.now)
        newer = desk.store.definitions()
        assert newer != before
        desk.store.enqueue([desk.row()], now=desk.now, definitions=newer, transaction=session)
        with pytest.raises(DefinitionsChanged):
            desk.store.enqueue([desk.row()], now=desk.now, definitions=newer + 1, transaction=session)
    assert len(desk.order()) == 2
