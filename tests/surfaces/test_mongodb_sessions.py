"""Jobs in the caller's own transaction on MongoDB: of a pymongo session of the caller's, or one that Rota opened."""

from __future__ import annotations

import asyncio

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import DuplicateKeyError, OperationFailure

from rota import Rota, Settings, enqueue_async
from rota.errors import InvalidParams, RotaError, StoreBusy, TransactionMisuse
from tests.stores.makers import MongoMaker
from tests.support.mongodb import make_set
from tests.support.pace import patient


@pytest.fixture
def maker(tmp_path):
    made = MongoMaker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(maker):
    with MongoClient(maker.servers.url()) as made:
        made["shop"].drop_collection("orders")
        made["shop"].create_collection("orders")
        yield made


@pytest.fixture
def shop(maker, client, settings):
    made = Rota(maker.url, settings=settings)

    @made.job
    def ship(order: int) -> int:
        return order

    made.enqueue("ship", {"order": 0})
    made.turn()
    yield made
    made.close()


def shipped(shop) -> list[int]:
    return sorted(job.params["order"] for job in shop.jobs.list() if job.params["order"])


def orders(client) -> list[int]:
    return sorted(order["_id"] for order in client["shop"]["orders"].find())


def order(client, session, number: int) -> None:
    client["shop"]["orders"].insert_one({"_id": number}, session=session)


def test_order_and_job_are_there_after_the_commit_and_not_before(client, shop):
    with client.start_session() as session, session.start_transaction():
        order(client, session, 1)
        job = shop.enqueue("ship", {"order": 1}, transaction=session)
        assert (shipped(shop), orders(client)) == ([], [])
    assert (shipped(shop), orders(client)) == ([1], [1])
    assert str(job.status()) == "QUEUED"


def test_neither_is_there_after_a_rollback(client, shop):
    with client.start_session() as session:
        session.start_transaction()
        order(client, session, 1)
        shop.enqueue("ship", {"order": 1}, transaction=session)
        session.abort_transaction()
    assert (shipped(shop), orders(client)) == ([], [])


def test_a_transaction_that_rota_opened_has_a_session_for_the_callers_writes(client, shop):
    with shop.transaction() as tx:
        tx.session.client["shop"]["orders"].insert_one({"_id": 1}, session=tx.session)
        shop.enqueue("ship", {"order": 1}, transaction=tx)
    assert (shipped(shop), orders(client)) == ([1], [1])


def test_what_is_raised_in_a_transaction_that_rota_opened_undoes_it(client, shop):
    def fail() -> None:
        with shop.transaction() as tx:
            tx.session.client["shop"]["orders"].insert_one({"_id": 2}, session=tx.session)
            shop.enqueue("ship", {"order": 2}, transaction=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (shipped(shop), orders(client)) == ([], [])


def test_many_jobs_are_there_after_the_commit(client, shop):
    with client.start_session() as session, session.start_transaction():
        shop.enqueue_many((("ship", {"order": number}) for number in range(1, 2501)), transaction=session)
        assert shipped(shop) == []
    assert shop.store.stats().by_status["QUEUED"] == 2500


def test_a_refusal_before_anything_is_written_leaves_the_transaction_as_it_was(client, shop):
    with client.start_session() as session, session.start_transaction():
        order(client, session, 1)
        with pytest.raises(InvalidParams):
            shop.enqueue("ship", {"item": 1}, transaction=session)
        shop.enqueue("ship", {"order": 1}, transaction=session)
    assert (shipped(shop), orders(client)) == ([1], [1])


def test_a_key_taken_in_the_same_transaction_names_its_holder(client, shop):
    with client.start_session() as session, session.start_transaction():
        first = shop.enqueue("ship", {"order": 1}, unique_key="one", transaction=session)
        again = shop.enqueue("ship", {"order": 1}, unique_key="one", transaction=session)
    assert (again.id, again.existing) == (first.id, True)
    assert shipped(shop) == [1]


def test_of_two_transactions_with_one_key_one_is_undone_and_can_be_repeated(client, shop):
    def add(session):
        return shop.enqueue("ship", {"order": 1}, unique_key="one", transaction=session)

    with client.start_session() as first, client.start_session() as second:
        first.start_transaction()
        holder = add(first)
        second.start_transaction()
        with pytest.raises(StoreBusy, match="Repeat it"):
            add(second)
        first.commit_transaction()
        if second.in_transaction:
            second.abort_transaction()
        again = second.with_transaction(add)
    assert (again.id, again.existing) == (holder.id, True)
    assert shipped(shop) == [1]


def test_a_child_waits_for_a_parent_of_the_same_transaction(client, shop):
    with client.start_session() as session, session.start_transaction():
        parent = shop.enqueue("ship", {"order": 1}, transaction=session)
        child = shop.enqueue("ship", {"order": 2}, depends_on=[parent.id], transaction=session)
    assert str(child.status()) == "PENDING"


def test_a_mistake_of_the_caller_is_the_callers(client, shop):
    with client.start_session() as session:
        session.start_transaction()
        shop.enqueue("ship", {"order": 1}, transaction=session)
        order(client, session, 7)
        with pytest.raises(DuplicateKeyError):
            order(client, session, 7)
        with pytest.raises((TransactionMisuse, RotaError)):
            shop.enqueue("ship", {"order": 2}, transaction=session)
        with pytest.raises(OperationFailure):
            session.commit_transaction()
    assert (shipped(shop), orders(client)) == ([], [])


@pytest.mark.parametrize("what", ["client", 7, "a text"])
def test_what_is_no_session_is_refused_saying_what_is_taken(client, shop, what):
    with pytest.raises(TransactionMisuse, match="pymongo ClientSession"):
        shop.enqueue("ship", {"order": 1}, transaction=client if what == "client" else what)


def test_a_session_outside_of_a_transaction_is_refused(client, shop):
    with client.start_session() as session, pytest.raises(TransactionMisuse, match="not inside a transaction: start one"):
        shop.enqueue("ship", {"order": 1}, transaction=session)


def test_a_session_of_another_replica_set_is_refused(shop):
    other = make_set()
    try:
        with (
            other.client() as stranger,
            stranger.start_session() as session,
            session.start_transaction(),
            pytest.raises(TransactionMisuse, match="another replica set"),
        ):
            shop.enqueue("ship", {"order": 1}, transaction=session)
    finally:
        other.throw_away()


def test_an_asynchronous_session_is_refused_saying_so(maker, shop):
    async def call() -> None:
        async with AsyncMongoClient(maker.servers.url()) as client, client.start_session() as session:
            await session.start_transaction()
            with pytest.raises(TransactionMisuse, match="not an asynchronous one"):
                await enqueue_async(shop, "ship", {"order": 1}, transaction=session)
            await session.abort_transaction()

    asyncio.run(call())


@pytest.mark.parametrize("settings", [Settings(busy_timeout=2.0, poll=0.05, poll_hinted=30.0)])
def test_the_hint_goes_with_the_callers_commit(client, shop):
    with client.start_session() as session, shop.running(concurrency=1):
        assert shop.wait(shop.enqueue("ship", {"order": 2}).id, timeout=patient(20)).result == 2
        with session.start_transaction():
            job = shop.enqueue("ship", {"order": 1}, transaction=session)
        assert shop.wait(job.id, timeout=patient(10)).result == 1


def test_items_of_a_bulk_that_are_refused_undo_all_of_it(client, shop):
    with client.start_session() as session:
        session.start_transaction()
        order(client, session, 1)
        with pytest.raises(InvalidParams):
            shop.enqueue_many([("ship", {"order": 1}), ("ship", {"item": 1})], transaction=session)
        if session.in_transaction:
            session.commit_transaction()
    assert shipped(shop) == []
