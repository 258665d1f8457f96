"""Bringing a schema up to date: by many at once, whole or not at all, and under processes that go on with what they know."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import psycopg
import pytest

from rota.errors import StoreBusy, StoreUnavailable, StoreUnusable
from rota.model.settings import Settings
from rota.stores.postgres import PostgresStore, migrate
from tests.stores.desk import Desk
from tests.support.postgres import shared_server

NEXT = migrate.latest() + 1
ADDITION = """
ALTER TABLE job_live ADD COLUMN colour text;
ALTER TABLE job_facts ADD COLUMN colour text NOT NULL DEFAULT 'grey';
CREATE TABLE colours (name text PRIMARY KEY);
CREATE INDEX live_colour ON job_live (colour) WHERE colour IS NOT NULL;
"""


@pytest.fixture
def database():
    server, name = shared_server(), "upgrades"
    with server.connect() as raw:
        raw.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        raw.execute(f"CREATE DATABASE {name}")
    yield name
    with server.connect() as raw:
        raw.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def opened(database):
    made = []

    def make(**settings):
        made.append(PostgresStore(shared_server().url(database), Settings(**settings)))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def raw(database):
    with shared_server().connect(database, options="-c search_path=rota") as connected:
        yield connected


@contextmanager
def newer(text=ADDITION):
    """Be a later Rota, which has one migration more."""
    with pytest.MonkeyPatch.context() as patch:
        more = migrate.migrations() | {NEXT: text}
        patch.setattr(migrate, "migrations", lambda: more)
        yield


def version(raw):
    return raw.execute("SELECT value FROM rota.meta WHERE key = 'schema'").fetchone()[0]


def test_many_who_start_at_once_find_one_schema(opened, raw):
    stores = [opened() for _ in range(8)]
    errors = []

    def start(store):
        try:
            store.migrate(now=0)
            Desk(store).store.workers()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert version(raw) == migrate.latest()
    assert raw.execute("SELECT count(*) FROM rota.organizations").fetchone()[0] == 1


def test_a_migration_that_fails_leaves_everything_as_it_was(opened, raw):
    opened().migrate(now=0)
    before = raw.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'rota'::regnamespace").fetchone()
    with newer(f"{ADDITION}; SELECT 1 / 0;"), pytest.raises(Exception, match="division by zero"):
        opened().migrate(now=0)
    assert raw.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'rota'::regnamespace").fetchone() == before
    assert version(raw) == migrate.latest()
    opened().migrate(now=0)


def test_a_first_migration_that_fails_leaves_nothing(opened, raw):
    with newer("SELECT 1 / 0;"), pytest.raises(Exception, match="division by zero"):
        opened().migrate(now=0)
    assert raw.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'rota'").fetchone()[0] == 0


def test_a_process_that_was_there_goes_on_while_a_newer_one_comes(opened, raw):
    old = opened()
    old.migrate(now=0)
    desk = Desk(old)
    waiting = desk.add()
    job = desk.claim_one()
    desk.several(5)
    with newer():
        new = opened()
        new.migrate(now=0)
        fresh = Desk(new)
    assert version(raw) == NEXT
    # What it knew by heart, it can still say: ends, claims, enqueues, verbs, lists.
    desk.done(job)
    assert desk.status(waiting) == "COMPLETED"
    desk.several(3)
    assert len(desk.claim(20)) == 8
    later = desk.add(delay=100)
    desk.advance(101)
    assert [each.job_id for each in desk.claim(1)] == [later]
    assert old.stats(now=desk.now).by_status["RUNNING"] == 9
    # And the newer one with it, on the same rows.
    assert fresh.job(waiting).status == "COMPLETED"
    fresh.now = desk.now
    added = fresh.add()
    assert desk.status(added) == "QUEUED"


def test_what_is_older_than_the_schema_is_not_let_in_any_more(opened):
    opened().migrate(now=0)
    with newer():
        opened().migrate(now=0)
    with pytest.raises(StoreUnusable, match=f"newer Rota .schema {NEXT}.*nothing was changed"):
        opened().migrate(now=0)


def test_a_migration_waits_until_nobody_is_in_the_middle_of_anything(opened, raw):
    store = opened()
    store.migrate(now=0)
    with raw.transaction():
        # A turn holds its share of the door for as long as it lasts.
        raw.execute("SELECT pg_advisory_xact_lock_shared(%s::int, %s::int)", store.address.key(1))
        with newer(), pytest.raises(StoreBusy, match="busy_timeout"):
            opened(busy_timeout=0.2).migrate(now=0)
    assert version(raw) == migrate.latest()
    with newer():
        opened(busy_timeout=0.2).migrate(now=0)
    assert version(raw) == NEXT


def test_one_that_is_up_to_date_asks_for_no_lock(opened, raw):
    store = opened()
    store.migrate(now=0)
    with raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", store.address.key(1))
        raw.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", store.address.key(3))
        opened(busy_timeout=0.2).migrate(now=0)


def test_a_migration_whose_connection_is_lost_is_undone(opened, raw, database):
    opened().migrate(now=0)
    with newer(f"{ADDITION} SELECT pg_terminate_backend(pg_backend_pid());"), pytest.raises(StoreUnavailable):
        opened(busy_timeout=0.2).migrate(now=0)
    assert version(raw) == migrate.latest()
    with pytest.raises(psycopg.errors.UndefinedTable):
        raw.execute("SELECT * FROM rota.colours")
