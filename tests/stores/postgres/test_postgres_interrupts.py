"""A thread that is interrupted (Ctrl-C) in the middle of anything: it is told so, and no connection is lost or spoilt for others."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
import pytest

from rota.errors import StoreUnavailable
from rota.stores.postgres import connection as connections
from rota.stores.postgres.connection import Pool


@pytest.fixture
def pool(store):
    """A pool of two, one of which has been used."""
    made = Pool(store._pool._open, size=2, wait_s=0.2)
    with made.take():
        pass
    yield made
    made.close()


def interrupt(*_):
    raise KeyboardInterrupt


def all_of(pool):
    """Lend as many as there are, and take them back."""
    with ExitStack() as lent:
        return len([lent.enter_context(pool.take()) for _ in range(pool._size)])


def take_interrupted_at(place, name, pool, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(place, name, interrupt)
        with pytest.raises(KeyboardInterrupt), pool.take():
            pytest.fail("it was lent")


def test_who_is_interrupted_while_a_connection_is_looked_for_takes_none_away(pool, monkeypatch):
    take_interrupted_at(connections, "is_rung", pool, monkeypatch)
    assert all_of(pool) == pool._size


def test_who_is_interrupted_while_one_is_opened_takes_none_away(pool, monkeypatch):
    pool.stale()
    take_interrupted_at(pool, "_open", pool, monkeypatch)
    assert all_of(pool) == pool._size


def test_who_is_interrupted_while_it_gives_one_back_gives_it_back(pool, monkeypatch):
    class Lock:
        def __enter__(self):
            patch.undo()
            raise KeyboardInterrupt

        def __exit__(self, *_):
            pass

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), pool.take():
        patch.setattr(pool, "_lock", Lock())
    assert all_of(pool) == pool._size


def test_a_connection_that_was_left_in_the_middle_of_a_pipeline_is_not_lent_again(pool):
    with pool.take() as left:
        left.raw.pgconn.enter_pipeline_mode()
    with pool.take() as db:
        assert db is not left
        assert db.value("server_clock")


def busy(db):
    """Be interrupted where the driver can not tidy up."""
    db.raw.pgconn.send_query(b"SELECT 1")
    raise KeyboardInterrupt


def in_a_part(db):
    with db.savepoint():
        busy(db)


@pytest.mark.parametrize("work", [busy, in_a_part])
def test_an_interrupt_in_a_write_is_what_is_told(store, work):
    with pytest.raises(KeyboardInterrupt):
        store._write(work)
    assert store.definitions() is not None


def test_an_interrupt_in_a_snapshot_is_what_is_told(store):
    with pytest.raises(KeyboardInterrupt), store._reading() as db, db.snapshot():
        busy(db)
    assert store.definitions() is not None


class Stumbling:
    """A pipeline that is interrupted while it ends, and complains of that."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            raise KeyboardInterrupt
        finally:
            raise psycopg.OperationalError("cannot exit pipeline mode while busy")


def test_an_interrupt_that_the_driver_stumbles_over_is_what_is_told(desk, monkeypatch):
    desk.meet()
    row = desk.row()
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "pipeline", lambda _: Stumbling())
        with pytest.raises(KeyboardInterrupt):
            desk.put_at_once(row)
    assert desk.store.definitions() is not None


def test_an_interrupt_that_came_before_is_not_told_again(desk, monkeypatch):
    def fail(_):
        raise psycopg.OperationalError("the connection is lost")

    desk.meet()
    row = desk.row()
    monkeypatch.setattr(psycopg.Connection, "pipeline", fail)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(StoreUnavailable):
            desk.put_at_once(row)
