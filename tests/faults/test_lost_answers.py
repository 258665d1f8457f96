"""A connection to PostgreSQL that breaks while a COMMIT is under way: nobody has heard whether it was made, and it comes out all the same.

A standby that never comes holds commits up for as long as a test likes: they are on the server's disk by then, and not acknowledged.
"""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from rota import Settings
from rota.errors import AnswerLost, StoreUnavailable
from rota.model.values import dashed
from rota.stores.postgres import PostgresStore
from rota.stores.postgres.db import Db
from tests.stores.desk import Desk
from tests.support.pace import patient
from tests.support.postgres import TUNED, fresh_database, make_server
from tests.support.waiting import eventually

WAITING = "SELECT pid FROM pg_stat_activity WHERE application_name = 'rota' AND wait_event = %s"
FOR_STANDBY, FOR_LOCK = "SyncRep", "advisory"


@pytest.fixture(scope="module")
def server():
    made = make_server(**TUNED)
    yield made
    made.throw_away()


@pytest.fixture
def desk(server):
    with fresh_database(server) as url:
        store = PostgresStore(url, Settings(pool_size=2, busy_timeout=20))
        store.migrate(now=0)
        made = Desk(store)
        store.register(made.worker, host="h", kind="worker", job_types=["t"], now=made.now)
        yield made
        store.close()


@pytest.fixture
def standby(server, desk):
    """From `miss` on commits wait, until it `comes`."""
    made = Standby(server)
    yield made
    made.comes()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as made:
        yield made


class Standby:
    def __init__(self, server) -> None:
        self._server = server
        self._set(None)

    def miss(self) -> None:
        self._set("nobody")

    def comes(self) -> None:
        self._set(None)

    def waiting(self, what: str = FOR_STANDBY) -> list[int]:
        """The sessions that wait for it, or for the lock of one that does."""
        with self._server.connect() as raw:
            return [row[0] for row in raw.execute(WAITING, (what,))]

    def _set(self, name) -> None:
        self._server.set("synchronous_standby_names", name)
        with self._server.connect() as raw:
            eventually(lambda: raw.execute("SHOW synchronous_standby_names").fetchone()[0] == (name or ""), what="the setting")


def cut(server, db, pid):
    """Let the client hang up: the server goes on, and notices when it has something to say."""
    hang_up(db)


def hang_up(db):
    with socket.socket(fileno=os.dup(db.raw.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def terminate(server, db, pid):
    """Let the server end the session: what it has written to its own disk stays, whether a standby has it or not."""
    with server.connect() as raw:
        raw.execute("SELECT pg_terminate_backend(%s)", (pid,))


def stop(server, db, pid):
    server.stop("immediate")


@pytest.fixture
def broken(server, desk, standby, pool, monkeypatch):
    """Begin a verb and break its connection when it waits for its COMMIT; `how` is one of the three above."""
    committing = []
    end = desk.store._end

    def noted(db, *words):
        committing.append(db)
        end(db, *words)

    monkeypatch.setattr(desk.store, "_end", noted)
    rows_behind = Db.rows_behind

    def noted_at_once(db, *words, **values):
        committing.append(db)
        return rows_behind(db, *words, **values)

    monkeypatch.setattr(Db, "rows_behind", noted_at_once)

    def begin(how, verb):
        standby.miss()
        under_way = pool.submit(verb)
        [pid] = eventually(standby.waiting, what="a commit that waits")
        how(server, committing[-1], pid)
        return under_way, pid

    return begin


def count(desk):
    return len(desk.store.queue(limit=100))


# Cut off, a commit is still under way, and is waited for. Ended, it can be seen, and may still be lost with this server: so whoever sees
# it waits for the standby, too.
BREAKS = pytest.mark.parametrize(("how", "waits"), [(cut, FOR_LOCK), (terminate, FOR_STANDBY)])


def put(desk, row):
    return desk.put(row)[0]


def put_at_once(desk, row):
    return desk.put_at_once(row)


@BREAKS
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("enqueue", [put, put_at_once])
def test_an_enqueue_whose_answer_was_lost_returns_when_it_is_certain_and_has_made_one_job(desk, standby, broken, how, waits, enqueue, key):
    row = desk.row(unique_key=key)
    under_way, pid = broken(how, lambda: enqueue(desk, row))
    eventually(lambda: set(standby.waiting(waits)) - {pid}, what="the question whether it is there")
    assert not under_way.done()
    standby.comes()

    enqueued = under_way.result(patient(20))
    assert (enqueued.job_id, enqueued.existing) == (row.job_id, False)
    assert [(job.id, job.position) for job in desk.store.queue(limit=100)] == [(dashed(row.job_id), enqueued.position)]


def test_an_enqueue_whose_commit_never_reached_the_server_is_made_again(desk, monkeypatch):
    tries = []
    end = desk.store._end

    def without_a_word(db, *words):
        tries.append(db)
        if len(tries) == 1:
            hang_up(db)
        end(db, *words)

    monkeypatch.setattr(desk.store, "_end", without_a_word)
    [enqueued] = desk.put(desk.row())
    assert not enqueued.existing
    assert count(desk) == 1


@pytest.mark.parametrize("key", [None, "k"])
def test_one_whose_only_statement_never_reached_the_server_is_made_again(desk, monkeypatch, key):
    rows_behind = Db.rows_behind

    def without_a_word(db, *words, **values):
        hang_up(db)
        return rows_behind(db, *words, **values)

    monkeypatch.setattr(Db, "rows_behind", without_a_word)
    assert not desk.put_at_once(desk.row(unique_key=key)).existing
    assert count(desk) == 1


def test_where_the_server_does_not_come_back_in_time_the_caller_is_told_that_nobody_knows_and_may_repeat_it(
    server, desk, standby, broken, monkeypatch
):
    monkeypatch.setattr(desk.store, "_settings", Settings(busy_timeout=0.3))
    row = desk.row()
    under_way, _ = broken(stop, lambda: desk.put(row))
    with pytest.raises(AnswerLost, match="may be written or not"):
        under_way.result(patient(20))
    with pytest.raises(StoreUnavailable, match="can't be reached"):
        desk.put(row)
    server.start()
    standby.comes()
    [enqueued] = desk.put(row)
    assert enqueued.existing  # it was on the server's disk
    assert count(desk) == 1


@BREAKS
def test_a_claim_whose_commit_is_under_way_when_its_connection_breaks_is_found_by_asking(desk, standby, broken, pool, how, waits):
    job_id = desk.add()
    desk.turn()
    request = desk.request(1)
    under_way, pid = broken(how, lambda: desk.store.turn(request))
    with pytest.raises(StoreUnavailable):
        under_way.result(patient(20))

    asked = pool.submit(desk.store.holding, desk.worker)
    eventually(lambda: set(standby.waiting(waits)) - {pid}, what="the question")
    assert not asked.done(), "a claim that the next moment makes would be nobody's"
    standby.comes()
    assert [job.job_id for job in asked.result(patient(20))] == [job_id]


def test_a_turn_that_was_undone_is_not_made_again_with_a_choice_of_another_moment(desk, server):
    """The worker makes another, and counts anew."""
    desk.add()
    asked = []

    def choose(candidates, reservation, usage):
        asked.append(candidates)
        with server.connect() as raw:
            raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rota'")
        return desk.request(1).choose(candidates, reservation, usage)

    request = desk.request(1, choose=choose)
    with pytest.raises(StoreUnavailable):
        desk.store.turn(request)
    assert len(asked) == 1
    assert len(desk.claim(1)) == 1


def test_a_connection_that_was_closed_while_it_lay_idle_is_not_used(desk, server):
    desk.store.definitions()
    server.stop()
    server.start()
    assert desk.store.definitions()
    assert desk.add()
