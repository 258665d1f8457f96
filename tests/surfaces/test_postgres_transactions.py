"""Jobs in the caller's own transaction on PostgreSQL, whatever library that was opened with."""

from __future__ import annotations

import asyncio
from contextlib import closing
from decimal import Decimal

import psycopg
import pytest
from psycopg.types.numeric import IntDumper
from sqlalchemy.orm import scoped_session, sessionmaker

from rota import NewJob, Settings, enqueue_async
from rota.errors import DuplicateJob, InvalidParams, TransactionMisuse
from tests.support.callers import CALLERS, Django, Psycopg, PsycopgAsync, SqlalchemySession, orders, shipped, state_of
from tests.support.waiting import eventually


@pytest.fixture(params=CALLERS, ids=lambda kind: kind.__name__)
def caller(request, shop):
    made = request.param()
    made.begin()
    yield made
    made.close()


def test_order_and_job_are_there_after_the_commit_and_not_before(caller, shop, database):
    caller.execute("INSERT INTO orders VALUES (1)")
    job = caller.enqueue(shop, "ship", {"order": 1})
    assert (shipped(shop), orders(database)) == ([], [])
    caller.commit()
    assert str(job.status()) == "QUEUED"
    assert (shipped(shop), orders(database)) == ([1], [1])
    assert shop.jobs.get(job.id).number == job.number


def test_neither_is_there_after_a_rollback(caller, shop, database):
    caller.execute("INSERT INTO orders VALUES (1)")
    caller.enqueue(shop, "ship", {"order": 1})
    caller.rollback()
    assert (shipped(shop), orders(database)) == ([], [])


def test_a_job_may_be_the_first_thing_in_a_transaction(caller, shop):
    caller.enqueue(shop, "ship", {"order": 1})
    caller.commit()
    assert shipped(shop) == [1]


def test_a_refusal_leaves_the_transaction_as_it_was(caller, shop, database):
    shop.templates.update("once", dedup_window="1h")
    caller.execute("INSERT INTO orders VALUES (1)")
    caller.enqueue(shop, "once", {"order": 1})
    with pytest.raises(InvalidParams):
        caller.enqueue(shop, "ship", {"item": 1})
    with pytest.raises(DuplicateJob):
        caller.enqueue(shop, "once", {"order": 1})
    caller.execute("INSERT INTO orders VALUES (2)")
    caller.enqueue(shop, "ship", {"order": 2})
    caller.commit()
    assert (shipped(shop), orders(database)) == ([1, 2], [1, 2])


def test_a_transaction_that_has_failed_is_refused_until_it_is_rolled_back(caller, shop):
    with pytest.raises(Exception, match="division by zero"):
        caller.execute("SELECT 1 / 0")
    with pytest.raises(TransactionMisuse, match="roll back"):
        caller.enqueue(shop, "ship", {"order": 1})
    caller.rollback()
    caller.begin()
    caller.enqueue(shop, "ship", {"order": 1})
    caller.commit()
    assert shipped(shop) == [1]


def test_a_key_taken_in_the_same_transaction_names_its_holder(caller, shop):
    first = caller.enqueue(shop, "ship", {"order": 1}, unique_key="one")
    again = caller.enqueue(shop, "ship", {"order": 1}, unique_key="one")
    assert (again.id, again.existing) == (first.id, True)
    same = caller.enqueue(shop, "ship", {"order": 1}, job_id=first.id)
    assert (same.id, same.existing) == (first.id, True)
    caller.commit()
    assert shipped(shop) == [1]


def test_a_child_waits_for_a_parent_of_the_same_transaction(caller, shop):
    parent = caller.enqueue(shop, "ship", {"order": 1})
    child = caller.enqueue(shop, "ship", {"order": 2}, depends_on=[parent])
    caller.commit()
    assert shop.jobs.get(child).blockers == 1
    assert [str(shop.jobs.get(job.id).status) for job in (parent, child)] == ["QUEUED", "PENDING"]


@pytest.mark.parametrize("local", ["", "LOCAL"])
def test_nothing_of_ours_stays_behind_on_the_connection(caller, shop, local):
    caller.execute(f'SET {local} search_path = "$user", public, "it\'s"')
    caller.execute(f"SET {local} lock_timeout = '7s'")
    caller.execute(f"SET {local} enable_hashjoin = on")
    before = state_of(caller)
    caller.enqueue(shop, "ship", {"order": 1})
    caller.enqueue(shop, "ship", {"order": 2}, unique_key="k")
    with pytest.raises(InvalidParams):
        caller.enqueue(shop, "ship", {"item": 1})
    assert state_of(caller) == before
    caller.commit()
    assert [row["search_path"] for row in caller.execute("SHOW search_path")] == (
        ['"$user", public'] if local else ['"$user", public, "it\'s"']
    )


def test_a_connections_own_ways_with_values_are_not_ours(shop):
    class Roman(IntDumper):
        def dump(self, obj):
            raise AssertionError("the caller's dumper was asked")

    with closing(Psycopg()) as caller:
        caller.raw.adapters.register_dumper(int, Roman)
        for name in ("int8", "int4", "bool", "text"):
            caller.raw.adapters.register_loader(
                name, caller.raw.adapters.get_loader(psycopg.adapters.types["numeric"].oid, psycopg.pq.Format.TEXT)
            )
        caller.enqueue(shop, "ship", {"order": 1}, unique_key="k")
        assert caller.enqueue(shop, "ship", {"order": 1}, unique_key="k").existing
        assert caller.execute("SELECT 1::bigint AS one") == [{"one": Decimal(1)}]
        caller.commit()
    assert shipped(shop) == [1]


def test_temporary_tables_called_like_ours_are_not_taken_for_ours(shop):
    with closing(Psycopg()) as caller:
        caller.execute("CREATE TEMP TABLE meta (key text, value bigint); CREATE TEMP TABLE job_live (number bigint)")
        caller.enqueue(shop, "ship", {"order": 1})
        assert caller.execute("SELECT count(*) AS rows FROM job_live") == [{"rows": 0}]
        caller.commit()
    assert shipped(shop) == [1]


# ---- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Psycopg, SqlalchemySession, Django])
def test_many_jobs_are_there_after_the_commit(kind, shop):
    with closing(kind()) as caller:
        caller.begin()
        done = shop.enqueue_many([("ship", {"order": number}) for number in range(1, 26)], transaction=caller.handle)
        assert (done.accepted, shipped(shop)) == (25, [])
        caller.commit()
    assert shipped(shop) == list(range(1, 26))


@pytest.mark.parametrize("settings", [Settings(bulk_chunk=2)])
def test_a_bad_item_takes_the_whole_call_back_and_no_more(shop):
    with closing(Psycopg()) as caller:
        caller.enqueue(shop, "ship", {"order": 1})
        with pytest.raises(InvalidParams, match="none was enqueued"):
            shop.enqueue_many([("ship", {"order": 2}), ("ship", {"order": 3}), ("ship", {"item": 4})], transaction=caller.handle)
        caller.enqueue(shop, "ship", {"order": 5})
        caller.commit()
    assert shipped(shop) == [1, 5]


@pytest.mark.parametrize("settings", [Settings(bulk_chunk=2)])
def test_items_may_be_read_from_the_same_connection_meanwhile(shop):
    with closing(Psycopg()) as caller:
        caller.execute("INSERT INTO orders VALUES (1), (2), (3), (4), (5)")

        def items():
            for number in range(1, 6):
                (row,) = caller.execute(f"SELECT id FROM orders WHERE id = {number}")
                yield NewJob(name="ship", params={"order": row["id"]}, unique_key=f"order-{number}")

        assert shop.enqueue_many(items(), transaction=caller.handle).accepted == 5
        caller.commit()
    assert shipped(shop) == [1, 2, 3, 4, 5]


# ---- asynchronous ones -----------------------------------------------------------------------------------------------


def test_an_asynchronous_connection_is_for_aenqueue(shop):
    with closing(PsycopgAsync()) as caller:
        with pytest.raises(TransactionMisuse, match=r"AsyncConnection is asynchronous.*aenqueue"):
            shop.enqueue("ship", {"order": 1}, transaction=caller.handle)

        async def without_await():
            shop.enqueue("ship", {"order": 1}, transaction=caller.handle)

        with pytest.raises(TransactionMisuse, match=r"AsyncConnection is asynchronous.*aenqueue"):
            caller.run(without_await())


def test_a_plain_connection_may_be_given_to_aenqueue(shop):
    with closing(Psycopg()) as caller:
        asyncio.run(enqueue_async(shop, "ship", {"order": 1}, transaction=caller.handle))
        assert shipped(shop) == []
        caller.commit()
    assert shipped(shop) == [1]


def test_djangos_connection_belongs_to_its_thread(shop):
    with closing(Django()) as caller:
        caller.begin()
        with pytest.raises(TransactionMisuse, match="sync_to_async"):
            asyncio.run(enqueue_async(shop, "ship", {"order": 1}, transaction=caller.handle))


def test_a_session_that_each_thread_has_for_itself_will_do(shop):
    with closing(SqlalchemySession()) as caller:
        sessions = scoped_session(sessionmaker(caller.engine))
        shop.enqueue("ship", {"order": 1}, transaction=sessions)
        sessions.commit()
        sessions.remove()
    assert shipped(shop) == [1]


@pytest.fixture
def shut(shop, database):
    """The store while somebody has it to themselves."""
    with database.server.connect() as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", shop._session.open().store.address.key(1))
        yield shop


async def waiting(shop, database, handle):
    """Ask for a job that needs the whole store; return the task when it waits for that."""
    asked = asyncio.create_task(enqueue_async(shop, "ship", {"order": 1}, depends_on=shop.jobs.list()[:1], transaction=handle))
    await asyncio.to_thread(eventually, lambda: database._raw.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone())
    return asked


def test_a_caller_who_is_cancelled_has_its_connection_back_at_once_and_nothing_half_done(shut, database):
    async def story(handle):
        asked = await waiting(shut, database, handle)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    with closing(PsycopgAsync()) as caller:
        caller.execute("INSERT INTO orders VALUES (7)")
        before = state_of(caller)
        caller.run(asyncio.wait_for(story(caller.handle), 10))
        assert state_of(caller) == before
        assert caller.execute("SELECT id FROM orders") == [{"id": 7}]
        caller.commit()
    assert (shipped(shut), orders(database)) == ([], [7])


def test_a_program_that_ends_while_one_waits_is_not_held_up(shut, database):
    """Its event loop cancels whatever it still has, the statement too."""

    async def leave():
        connection = await psycopg.AsyncConnection.connect(database.server.url())
        return connection, await waiting(shut, database, connection)

    with asyncio.Runner() as runner:
        connection, asked = runner.run(leave())
    assert asked.cancelled()
    connection.pgconn.finish()
    assert shipped(shut) == []
