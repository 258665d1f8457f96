"""The kit and jobs that are enqueued in a transaction of the program's own database."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, contextmanager

import psycopg
import pytest
import sqlalchemy as sa
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from rota import Rota, enqueue_async, testing
from rota.errors import DuplicateJob, InvalidOption, TransactionMisuse, UnknownTemplate
from tests.support.callers import CALLERS, DATABASE, configure_django
from tests.support.postgres import shared_server


@pytest.fixture
def app(tmp_path):
    with closing(Rota(tmp_path / "real.db")) as made:

        @made.job
        def ship(order: int) -> str:
            return f"sent {order}"

        @made.job(dedup_window="1h")
        def once(order: int) -> None: ...

        yield made


@pytest.fixture
def kit(app):
    with testing.use(app) as made:
        yield made


@pytest.fixture(params=["session", "connection"])
def caller(request, tmp_path):
    """A session and a connection of a database without a server."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with closing(Session(engine) if request.param == "session" else engine.connect()) as made:
        yield made
    engine.dispose()


def orders(kit) -> list[int]:
    return [job.params["order"] for job in kit.jobs()]


def ship(kit, caller, order, **options):
    return kit.app.enqueue("ship", {"order": order}, transaction=caller, **options)


def test_a_job_is_there_after_the_commit_and_not_before(kit, caller):
    handle = ship(kit, caller, 1)
    kit.assert_not_enqueued("ship")
    assert kit.drain() == []
    caller.commit()
    kit.assert_enqueued("ship", {"order": 1}, count=1)
    assert handle.number == kit.jobs()[0].number
    assert [str(job.status) for job in kit.drain()] == ["COMPLETED"]


def test_a_failed_assertion_says_that_a_commit_is_missing(kit, caller):
    ship(kit, caller, 1)
    with pytest.raises(AssertionError, match="1 more job waits for the commit"):
        kit.assert_enqueued("ship")


def test_nothing_is_there_after_a_rollback_and_the_next_transaction_is_another(kit, caller):
    ship(kit, caller, 1, unique_key="one")
    caller.rollback()
    assert not ship(kit, caller, 2, unique_key="one").existing
    caller.commit()
    caller.commit()
    assert orders(kit) == [2]


def test_a_savepoint_that_is_rolled_back_takes_its_jobs_with_it_and_no_others(kit, caller):
    ship(kit, caller, 1)
    with caller.begin_nested():
        ship(kit, caller, 2)
        with rolled_back(caller):
            ship(kit, caller, 3)
        ship(kit, caller, 4)
    with rolled_back(caller), caller.begin_nested():
        ship(kit, caller, 5)
    caller.commit()
    assert orders(kit) == [1, 2, 4]


def test_the_first_job_may_be_enqueued_inside_a_savepoint(kit, caller):
    with rolled_back(caller):
        ship(kit, caller, 1)
    with caller.begin_nested():
        ship(kit, caller, 2)
    caller.commit()
    assert orders(kit) == [2]


@contextmanager
def rolled_back(caller):
    savepoint = caller.begin_nested()
    yield
    savepoint.rollback()


def test_refusals_are_those_of_the_store(kit, caller):
    first = ship(kit, caller, 1, unique_key="one")
    again = ship(kit, caller, 1, unique_key="one")
    assert (again.id, again.existing) == (first.id, True)
    kit.app.enqueue("once", {"order": 1}, transaction=caller)
    with pytest.raises(DuplicateJob):
        kit.app.enqueue("once", {"order": 1}, transaction=caller)
    caller.commit()
    assert orders(kit) == [1, 1]


def test_many_are_enqueued_together_or_not_at_all(kit, caller):
    with pytest.raises(UnknownTemplate):
        kit.app.enqueue_many([("ship", {"order": 1}), "nonsense"], transaction=caller)
    assert kit.app.enqueue_many([("ship", {"order": n}) for n in (2, 3)], transaction=caller).accepted == 2
    caller.commit()
    assert orders(kit) == [2, 3]


def test_other_jobs_are_enqueued_meanwhile(kit, caller):
    ship(kit, caller, 1)
    kit.app.enqueue("ship", {"order": 2})
    caller.commit()
    assert orders(kit) == [2, 1]


def test_a_scoped_session_is_the_session_of_its_thread(kit, tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    sessions = scoped_session(sessionmaker(engine))
    ship(kit, sessions, 1)
    sessions.commit()
    sessions.remove()
    engine.dispose()
    assert orders(kit) == [1]


def test_asynchronous_sessions_are_recorded_too(kit):
    async def order() -> None:
        engine = create_async_engine(shared_server().url(DATABASE).replace("postgresql://", "postgresql+psycopg://"))
        async with AsyncSession(engine) as session:
            await enqueue_async(kit.app, "ship", {"order": 1}, transaction=session)
            await session.rollback()
            await session.execute(sa.text("SELECT 1"))
            await enqueue_async(kit.app, "ship", {"order": 2}, transaction=session)
            await session.commit()
        async with engine.connect() as connection:
            await enqueue_async(kit.app, "ship", {"order": 3}, transaction=connection)
            await connection.commit()
        await engine.dispose()

    asyncio.run(order())
    assert orders(kit) == [2, 3]


def test_django_writes_the_job_after_its_commit(kit):
    configure_django()
    connection = connections["default"]
    with transaction.atomic():
        ship(kit, connection, 1, unique_key="one")
        assert ship(kit, connection, 1, unique_key="one").existing
        with transaction.atomic():
            ship(kit, connection, 2)
            transaction.set_rollback(True)
        with pytest.raises(UnknownTemplate):
            kit.app.enqueue_many([("ship", {"order": 3}), "nonsense"], transaction=connection)
        kit.assert_not_enqueued()
    assert orders(kit) == [1]
    with pytest.raises(TransactionMisuse, match="atomic"):
        ship(kit, connection, 4)
    connection.close()


def test_what_tells_nobody_of_its_commit_is_refused_with_the_remedy(kit):
    with closing(sqlite3.connect(":memory:")) as raw, pytest.raises(TransactionMisuse, match=r"sqlite3\.Connection.*store='postgresql"):
        ship(kit, raw, 1)
    with psycopg.connect(shared_server().url(DATABASE)) as raw, pytest.raises(TransactionMisuse, match=r"psycopg\.Connection"):
        ship(kit, raw, 1)


def test_a_transaction_of_the_rota_itself_is_used_as_always(kit):
    with kit.app.transaction() as tx:
        ship(kit, tx, 1)
    assert orders(kit) == [1]


def test_after_the_block_nothing_listens_any_more(app, caller):
    with testing.use(app) as kit:
        ship(kit, caller, 1)
    caller.commit()
    with testing.use(app) as kit:
        assert kit.jobs() == []
        ship(kit, caller, 2)
        caller.commit()
        assert orders(kit) == [2]


@pytest.mark.parametrize("kind", CALLERS, ids=lambda kind: kind.__name__)
def test_on_postgresql_the_transaction_itself_writes_the_job(app, kind):
    url = shared_server().url(DATABASE)
    caller = kind()
    with testing.use(app, store=url) as kit:
        caller.begin()
        caller.enqueue(app, "ship", {"order": 1})
        caller.rollback()
        caller.begin()
        handle = caller.enqueue(app, "ship", {"order": 2})
        kit.assert_not_enqueued()
        caller.commit()
        assert orders(kit) == [2]
        assert handle.number == kit.jobs()[0].number
        assert [str(job.status) for job in kit.drain(raise_errors=True)] == ["COMPLETED"]
        schema = app.settings.schema
    caller.close()
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone() == (None,)


def test_another_kind_of_store_is_refused(app):
    with pytest.raises(InvalidOption, match="PostgreSQL URL"), testing.use(app, store="rota.db"):
        pass
