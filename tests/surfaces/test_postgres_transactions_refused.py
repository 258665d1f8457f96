"""Connections that a job can't be committed with, and jobs that a transaction can't take: each is refused with what to do."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest
import sqlalchemy as sa
from django.db.utils import ConnectionHandler
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from rota.errors import QueueFull, StoreBusy, StoreUnavailable, StoreUnusable, TransactionMisuse
from tests.support.callers import Django, Psycopg, PsycopgAsync, SqlalchemyConnection, configure_django, orders, shipped
from tests.support.postgres import make_server
from tests.support.waiting import eventually


def test_a_limit_refuses_and_the_transaction_goes_on(shop, database):
    shop.organizations.create("acme", max_queued=1)
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


def test_a_connection_in_a_pipeline_is_refused(shop):
    with closing(Psycopg()) as caller, caller.raw.pipeline(), pytest.raises(TransactionMisuse, match="pipeline"):
        caller.enqueue(shop, "ship", {"order": 1})


def test_a_connection_in_the_middle_of_a_copy_is_refused(shop):
    with closing(Psycopg()) as caller, caller.raw.cursor().copy("COPY orders FROM STDIN"), pytest.raises(TransactionMisuse, match="COPY"):
        caller.enqueue(shop, "ship", {"order": 1})


@pytest.mark.parametrize("kind", [Psycopg, PsycopgAsync])
def test_a_connection_that_was_lost_is_told_so(kind, shop, database):
    with closing(kind()) as caller:
        (found,) = caller.execute("SELECT pg_backend_pid() AS pid")
        database._raw.execute("SELECT pg_terminate_backend(%s)", (found["pid"],))
        eventually(lambda: not database._raw.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (found["pid"],)).fetchall())
        with pytest.raises(StoreUnavailable):
            caller.enqueue(shop, "ship", {"order": 1})
        with pytest.raises(TransactionMisuse, match="is closed"):
            caller.enqueue(shop, "ship", {"order": 1})
    assert shipped(shop) == []


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
        for grant in shop.store.grants("clerk", kind="submitter"):
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
            caller.enqueue(shop, "ship", {"order": 2}, depends_on=[shop.jobs.list()[0]])
        caller.commit()
    assert shipped(shop) == [1]


def test_templates_that_changed_after_that_moment_are_an_error_and_not_an_endless_loop(shop):
    with closing(Psycopg()) as caller:
        caller.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        caller.execute("SELECT 1")
        shop.templates.update("ship", max_retries=1)
        with pytest.raises(StoreBusy, match="begin it again"):
            caller.enqueue(shop, "ship", {"order": 1})
        caller.rollback()
        caller.enqueue(shop, "ship", {"order": 1})
        caller.commit()
    assert shipped(shop) == [1]
