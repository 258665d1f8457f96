"""A server that is stopped acknowledges every packet and answers nothing: each wait for it ends, and says what is known then."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, contextmanager

import psycopg
import pytest

from rota import Settings
from rota.errors import AnswerLost, StoreUnavailable
from rota.model.definitions import Template
from rota.model.gate import SYSTEM
from rota.stores.postgres import PostgresStore, notices
from rota.stores.postgres import store as postgres_store
from rota.stores.postgres.address import address
from rota.stores.postgres.connection import open_connection
from rota.stores.verbs import definitions
from tests.stores.desk import Desk
from tests.support.pace import patient
from tests.support.postgres import TUNED, fresh_database, make_server
from tests.support.waiting import eventually

ANSWER_S = 1.0
BIG = 20_000_000
"""More bytes than fit into the buffers of a connection."""


@pytest.fixture(scope="module")
def server():
    made = make_server(**TUNED)
    yield made
    made.throw_away()


@pytest.fixture
def url(server):
    with fresh_database(server) as made:
        yield f"{made}?connect_timeout=2"


@pytest.fixture
def store(url, monkeypatch):
    monkeypatch.setattr(postgres_store, "ANSWER_S", ANSWER_S)
    made = PostgresStore(url, Settings(pool_size=2, busy_timeout=0.1, lease_ttl=6))
    made.migrate(now=0)
    yield made
    made.close()


@pytest.fixture
def desk(store):
    made = Desk(store)
    store.register(made.worker, host="h", kind="worker", job_types=["t"], now=made.now)
    return made


@contextmanager
def frozen(server):
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def ends(call, *, within=10.0):
    """Make a call on a thread and return what it raised; fail if it does not return."""
    raised = []

    def run():
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patient(within))
    assert not thread.is_alive(), "it waits for ever"
    return raised[0] if raised else None


def write_large(desk):
    desk.put(desk.row(params=f'"{"x" * BIG}"'))


def read_in_pipeline(desk):
    with desk.store._reading() as db, db.raw.pipeline():
        db.raw.execute("SELECT 1")
        db.raw.execute("SELECT 2")


CALLS = {
    "read": lambda desk: desk.store.definitions(),
    "beat": lambda desk: desk.store.beat(desk.worker, job_types=["t"]),
    "verb": lambda desk: desk.store.pause("type", "t", actor=None, now=desk.now),
    "turn": lambda desk: desk.claim(),
    "pipeline": read_in_pipeline,
    "large write": write_large,
    "opening": lambda desk: desk.store.migrate(now=desk.now),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_to_a_server_that_is_stopped_ends_and_the_next_one_after_it_is_back_works(server, desk, call):
    desk.put(desk.row())
    with frozen(server):
        failed = ends(lambda: call(desk))
    assert isinstance(failed, StoreUnavailable), repr(failed)
    assert not isinstance(failed, AnswerLost)
    assert desk.store.beat(desk.worker, job_types=["t"])
    assert len(desk.claim()) == 1


def test_the_error_says_that_there_was_no_answer_and_for_how_long(server, desk):
    desk.store.definitions()
    with frozen(server):
        failed = ends(desk.store.definitions)
    assert "no answer for 1.1 s" in str(failed), failed


def test_of_a_commit_that_was_under_way_nobody_knows_whether_it_was_made(server, desk):
    def work(db):
        db.rows("mark")
        server.freeze()

    try:
        failed = ends(lambda: desk.store._write(work))
    finally:
        server.thaw()
    assert isinstance(failed, AnswerLost), repr(failed)


def test_so_it_is_with_a_lone_enqueue(server, desk):
    desk.put_at_once(desk.row())
    definitions, row = desk.store.definitions(), desk.row()
    with frozen(server):
        failed = ends(lambda: desk.store.enqueue([row], now=desk.now, definitions=definitions))
    assert isinstance(failed, AnswerLost), repr(failed)


def test_a_store_on_a_server_that_is_stopped_can_be_closed(server, desk):
    desk.put(desk.row())
    # What can't be sent any more keeps nobody from hanging up.
    with desk.store._pool.take() as db, frozen(server):
        db.raw.pgconn.send_query_params(b"SELECT length($1)", [b"x" * BIG])
        assert ends(db.raw.close) is None
        assert ends(desk.store.close) is None


def test_an_answer_that_comes_in_parts_may_take_as_long_as_it_likes(store):
    with store._reading() as db:
        slow = "SELECT pg_sleep(0.25), repeat('x', 20000) FROM generate_series(1, 12)"
        assert len(db.raw.execute(slow).fetchall()) == 12


def test_a_callers_own_statement_in_a_transaction_of_the_store_may_take_as_long_as_it_likes(store):
    with store.transaction() as tx:
        tx.execute("SELECT pg_sleep(%s)", [ANSWER_S * 2])
        tx.executemany("SELECT pg_sleep(%s)", [[ANSWER_S * 2]])


def test_a_callers_own_connection_is_never_cut(store, url):
    desk = Desk(store)
    with psycopg.connect(url) as own:
        store.enqueue([desk.row()], now=desk.now, transaction=own)
        own.execute("SELECT pg_sleep(%s)", [ANSWER_S * 2])
        with closing(psycopg.connect(url)) as other:
            other.execute("SELECT pg_sleep(%s)", [ANSWER_S * 2])
    assert len(desk.claim()) == 1


def test_what_grows_with_the_store_is_given_more_time(store, monkeypatch):
    with store._reading(long=True) as db:
        db.raw.execute("SELECT pg_sleep(%s)", [ANSWER_S * 2])
    store._write(lambda db: db.raw.execute("SELECT pg_sleep(%s)", [ANSWER_S * 2]), long=True)
    with pytest.raises(StoreUnavailable, match="no answer"), store._reading() as db:
        db.raw.execute("SELECT pg_sleep(%s)", [ANSWER_S * 10])


def test_a_repair_may_take_as_long_as_it_likes(store, url):
    with closing(psycopg.connect(url, autocommit=True, options="-c search_path=rota")) as own:
        own.execute("SET session_replication_role = replica")
        own.execute("INSERT INTO run_notes (job_number, error) VALUES (77, 'left here')")
        own.execute("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2.5); RETURN OLD; END $$")
        own.execute("CREATE TRIGGER slow BEFORE DELETE ON run_notes FOR EACH ROW EXECUTE FUNCTION slow()")
    (done, *_) = store.fix(now=0)
    assert done.text.startswith("removed 1 rows of runs that belong to no job")


def test_looking_for_the_jobs_of_a_template_before_it_is_dropped_is_given_more_time(store, desk, monkeypatch):
    store.put_templates([Template(id=desk.id(), name="t", job_type="t", defaults={})], actor=SYSTEM, now=desk.now)
    look = definitions.look_for_jobs

    def slow(db, name):
        db.raw.execute("SELECT pg_sleep(%s)", [ANSWER_S * 2.5])
        return look(db, name)

    monkeypatch.setattr(definitions, "look_for_jobs", slow)
    store.drop_template("t", actor=SYSTEM, now=desk.now)


def test_hints_come_again_after_a_server_was_stopped_for_longer_than_it_may(server, url, monkeypatch):
    monkeypatch.setattr(notices, "ASK_S", 0.1)
    listener = notices.listener(address(url, "rota"), Settings(lease_ttl=1.5))
    try:
        eventually(listener.fileno, what="that it listens")
        with frozen(server):
            eventually(lambda: listener.fileno() is None, what="that it notices")
        eventually(listener.fileno, within=30, what="that it listens again")
    finally:
        assert ends(listener.close) is None


def test_a_listener_whose_server_is_stopped_can_be_closed(server, url):
    listener = notices.listener(address(url, "rota"), Settings(lease_ttl=1.5))
    eventually(listener.fileno, what="that it listens")
    with frozen(server):
        assert ends(listener.close) is None


# ---- several hosts ---------------------------------------------------------------------------------------------------


@contextmanager
def hole():
    """A port where connections are taken and nobody ever answers; yields the port, and a function that counts who came."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        listening.setblocking(False)
        came = []

        def count():
            try:
                while True:
                    came.append(listening.accept()[0])
            except BlockingIOError:
                return len(came)

        yield listening.getsockname()[1], count
        for each in came:
            each.close()


def test_of_several_servers_the_one_that_answered_last_is_tried_first(server):
    with hole() as (port, count):
        where = address(f"postgresql://postgres@127.0.0.1:{port},127.0.0.1:{server.port}/postgres?connect_timeout=2", "rota")
        for _ in range(3):
            with closing(open_connection(where, Settings())) as raw:
                assert raw.info.port == server.port
        assert count() == 1


def test_a_server_that_answered_last_and_is_away_leaves_the_others_to_be_tried(server):
    with hole() as (port, count):
        where = address(f"postgresql://postgres@127.0.0.1:{server.port},127.0.0.1:{port}/postgres?connect_timeout=2", "rota")
        where.note_answer("127.0.0.1", port)
        with closing(open_connection(where, Settings())) as raw:
            assert raw.info.port == server.port
        assert count() == 1


@pytest.mark.parametrize(
    ("url", "environment", "seconds"),
    [
        ("postgresql://h/d", {}, "10"),
        ("postgresql://h,i/d", {}, "3"),
        ("postgresql://h:1,i:2/d", {}, "3"),
        ("postgresql://h,i/d?connect_timeout=7", {}, "7"),
        ("postgresql://h,i/d", {"PGCONNECT_TIMEOUT": "8"}, None),
    ],
)
def test_of_several_servers_one_that_does_not_answer_is_given_up_sooner(url, environment, seconds, monkeypatch):
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = psycopg.conninfo.conninfo_to_dict(address(url, "rota").conninfo())
    assert found.get("connect_timeout") == seconds


def test_ports_stay_with_their_hosts_whichever_is_first():
    def order(url, host, port):
        where = address(url, "rota")
        where.note_answer(host, port)
        found = psycopg.conninfo.conninfo_to_dict(where.conninfo())
        return found["host"], found.get("port")

    assert order("postgresql://h:1,i:2,j:3/d", "i", 2) == ("i,h,j", "2,1,3")
    assert order("postgresql://h,i:2/d", "i", 2) == ("i,h", "2,")
    assert order("postgresql://h,i/d?port=7", "i", 7) == ("i,h", "7,7")
    assert order("postgresql://h,i/d", "i", 5432) == ("i,h", ",")
    assert order("postgresql://h,i/d", "elsewhere", 5432) == ("h,i", ",")
