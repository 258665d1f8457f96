"""Jobs in the caller's own transaction on PostgreSQL, whatever library that was opened with."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from decimal import Decimal

import psycopg
import pytest
import sqlalchemy as sa
from django.db.utils import ConnectionHandler
from psycopg.types.numeric import IntDumper
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from rota import NewJob, Settings
from rota.errors import DuplicateJob, InvalidParams, QueueFull, StoreBusy, StoreUnusable, TransactionMisuse
from tests.support.callers import CALLERS, Django, Psycopg, PsycopgAsync, SqlalchemyConnection, SqlalchemySession, configure_django
from tests.support.postgres import make_server
from tests.support.waiting import eventually


@pytest.fixture(params=CALLERS, ids=lambda kind: kind.__name__)
def caller(request, shop):
    made = request.param()
    made.begin()
    yield made
    made.close()


def shipped(shop):
    """Return the orders that there are jobs of."""
    return sorted(job.params["order"] for job in shop.find() if job.params["order"])


def orders(database):
    return [row[0] for row in database._raw.execute("SELECT id FROM public.orders ORDER BY id")]


def test_order_and_job_are_there_after_the_commit_and_not_before(caller, shop, database):
    caller.execute("INSERT INTO orders VALUES (1)")
    job = caller.enqueue(shop, "ship", {"order": 1})
    assert (str(job.status), shipped(shop), orders(database)) == ("QUEUED", [], [])
    caller.commit()
    assert (shipped(shop), orders(database)) == ([1], [1])
    assert shop.get(job.id).number == job.number


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
    shop.set_template("once", dedup_window="1h")
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
    assert (str(child.status), child.blockers) == ("PENDING", 1)
    caller.commit()
    assert [str(shop.get(job.id).status) for job in (parent, child)] == ["QUEUED", "PENDING"]


def state_of(caller):
    """Return everything about a session that a guest could leave behind."""
    # Those of the language that triggers are written in come with the first trigger of anybody.
    settings = {
        row["name"]: row["setting"] for row in caller.execute("SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'")
    }
    prepared = caller.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%job_live%'")
    tables = caller.execute("SELECT to_regclass('job_live') IS NULL AS unseen, to_regclass('orders') IS NULL AS gone")
    raw = caller.raw
    return settings, prepared, tables, raw.autocommit, raw.row_factory, raw.cursor_factory, raw.prepare_threshold, raw.info.pipeline_status


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


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_limit_refuses_and_the_transaction_goes_on(shop, database):
    shop.create_organization("acme", max_queued=1)
    with closing(Psycopg()) as caller:
        caller.enqueue(shop, "ship", {"order": 1}, organization="acme")
        with pytest.raises(QueueFull):
            caller.enqueue(shop, "ship", {"order": 2}, organization="acme")
        caller.execute("INSERT INTO orders VALUES (1)")
        caller.commit()
    assert (shipped(shop), orders(database)) == ([1], [1])


@pytest.mark.parametrize("kind", [Psycopg, SqlalchemyConnection, PsycopgAsync])
def test_a_connection_in_autocommit_mode_needs_a_transaction(kind, shop):
    with closing(kind()) as caller:
        if kind is SqlalchemyConnection:
            caller.handle.execution_options(isolation_level="AUTOCOMMIT")
        elif kind is PsycopgAsync:
            caller.run(caller.handle.set_autocommit(True))
        else:
            caller.handle.autocommit = True
        with pytest.raises(TransactionMisuse, match=r"autocommit mode and in no transaction.*with connection.transaction"):
            caller.enqueue(shop, "ship", {"order": 1})
    assert shipped(shop) == []


def test_django_outside_of_an_atomic_block_is_in_autocommit_mode(shop):
    with closing(Django()) as caller, pytest.raises(TransactionMisuse, match=r"with transaction\.atomic"):
        caller.enqueue(shop, "ship", {"order": 1})


@pytest.mark.parametrize("kind", [Psycopg, PsycopgAsync, SqlalchemyConnection])
def test_a_closed_connection_is_refused(kind, shop):
    caller = kind()
    if kind is PsycopgAsync:
        caller.run(caller.handle.close())
    else:
        caller.close()
    with pytest.raises(TransactionMisuse, match="is closed"):
        caller.enqueue(shop, "ship", {"order": 1})
    caller.close()


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


def test_a_connection_in_a_pipeline_is_refused(shop):
    with closing(Psycopg()) as caller, caller.raw.pipeline(), pytest.raises(TransactionMisuse, match="pipeline"):
        caller.enqueue(shop, "ship", {"order": 1})


def test_a_connection_in_the_middle_of_a_copy_is_refused(shop):
    with closing(Psycopg()) as caller, caller.raw.cursor().copy("COPY orders FROM STDIN"), pytest.raises(TransactionMisuse, match="COPY"):
        caller.enqueue(shop, "ship", {"order": 1})


def test_a_read_only_transaction_is_refused(shop):
    with closing(Psycopg()) as caller:
        caller.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(TransactionMisuse, match="READ ONLY"):
            caller.enqueue(shop, "ship", {"order": 1})


def test_a_connection_that_speaks_another_encoding_is_refused(shop):
    with closing(Psycopg()) as caller:
        caller.execute("SET client_encoding = 'LATIN1'")
        with pytest.raises(TransactionMisuse, match=r"LATIN1.*client_encoding=UTF8"):
            caller.enqueue(shop, "ship", {"order": 1})


def test_a_connection_to_another_database_is_refused(shop, database):
    with (
        psycopg.connect(database.server.url("template1")) as other,
        pytest.raises(TransactionMisuse, match="to database 'template1', and jobs"),
    ):
        shop.enqueue("ship", {"order": 1}, transaction=other)


def test_a_database_of_the_same_name_on_another_server_is_refused(shop):
    server = make_server(fsync="off")
    try:
        with psycopg.connect(server.url()) as other, pytest.raises(TransactionMisuse, match="of another server"):
            shop.enqueue("ship", {"order": 1}, transaction=other)
    finally:
        server.throw_away()


def test_a_role_without_rights_is_told_which_and_has_enough_with_a_submitters(shop, database):
    database._raw.execute("DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN")
    with psycopg.connect(database.server.url(user="clerk")) as theirs:
        with pytest.raises(StoreUnusable, match=r"role 'clerk'.*`rota grants clerk --kind submitter`"):
            shop.enqueue("ship", {"order": 1}, transaction=theirs)
        theirs.rollback()
        for grant in shop.grants("clerk", kind="submitter"):
            database._raw.execute(grant)
        parent = shop.enqueue("ship", {"order": 1}, transaction=theirs, unique_key="k")
        shop.enqueue_many([("ship", {"order": 2}), ("ship", {"order": 3})], transaction=theirs)
        shop.enqueue("ship", {"order": 4}, transaction=theirs, depends_on=[parent])
        theirs.commit()
    database._raw.execute("DROP OWNED BY clerk; DROP ROLE clerk")
    assert shipped(shop) == [1, 2, 3, 4]


def test_what_has_no_psycopg_connection_is_refused_saying_what_is_taken(shop, tmp_path):
    engine = sa.create_engine("sqlite://", poolclass=NullPool)
    configure_django()
    django = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "d.db")}})["default"]
    with closing(sqlite3.connect(":memory:")) as plain, Session(engine) as session, closing(django):
        for given, driver in [(plain, "sqlite3.Connection"), (session, "driven by sqlite3.Connection"), (django, "django.*driven by")]:
            with pytest.raises(TransactionMisuse, match=f"takes what `with rota.transaction.*psycopg Connection.*{driver}"):
                shop.enqueue("ship", {"order": 1}, transaction=given)
        with pytest.raises(TransactionMisuse, match=r"this is builtins\.str"):
            shop.enqueue("ship", {"order": 1}, transaction="BEGIN")


def test_a_store_on_a_file_takes_only_its_own_transactions(rota):
    with closing(Psycopg()) as caller, pytest.raises(TransactionMisuse, match="of the same Rota"):
        rota.enqueue("ship", transaction=caller.handle)


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
        asyncio.run(shop.aenqueue("ship", {"order": 1}, transaction=caller.handle))
        assert shipped(shop) == []
        caller.commit()
    assert shipped(shop) == [1]


def test_djangos_connection_belongs_to_its_thread(shop):
    with closing(Django()) as caller:
        caller.begin()
        with pytest.raises(TransactionMisuse, match="sync_to_async"):
            asyncio.run(shop.aenqueue("ship", {"order": 1}, transaction=caller.handle))


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
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", shop._open().store.address.key(1))
        yield shop


async def waiting(shop, database, handle):
    """Ask for a job that needs the whole store; return the task when it waits for that."""
    asked = asyncio.create_task(shop.aenqueue("ship", {"order": 1}, depends_on=shop.find()[:1], transaction=handle))
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


# ---- isolation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_sees_one_moment_takes_plain_jobs_and_no_others(shop, level):
    with closing(Psycopg()) as caller:
        caller.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        caller.execute("SELECT 1")
        caller.enqueue(shop, "ship", {"order": 1})
        with pytest.raises(TransactionMisuse, match="READ COMMITTED"):
            caller.enqueue(shop, "ship", {"order": 2}, unique_key="k")
        with pytest.raises(TransactionMisuse, match="READ COMMITTED"):
            caller.enqueue(shop, "ship", {"order": 2}, depends_on=[shop.find()[0]])
        caller.commit()
    assert shipped(shop) == [1]


def test_templates_that_changed_after_that_moment_are_an_error_and_not_an_endless_loop(shop):
    with closing(Psycopg()) as caller:
        caller.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        caller.execute("SELECT 1")
        shop.set_template("ship", max_retries=1)
        with pytest.raises(StoreBusy, match="begin it again"):
            caller.enqueue(shop, "ship", {"order": 1})
        caller.rollback()
        caller.enqueue(shop, "ship", {"order": 1})
        caller.commit()
    assert shipped(shop) == [1]
