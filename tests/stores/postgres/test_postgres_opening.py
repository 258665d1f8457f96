"""A session that the server ends while a store is opened, at whatever statement: the store is opened all the same."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing, contextmanager

import pytest

from rota import Rota, Settings
from rota.errors import StoreUnavailable
from rota.stores.postgres import PostgresStore
from rota.stores.postgres.connection import Session
from tests.support.pace import patient
from tests.support.postgres import EMPTY, fresh_database, shared_server
from tests.support.proof import size

FATAL = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"


class Executioner:
    """Ends the session that is about to exchange its n-th message with the server; one session only, or each that comes."""

    def __init__(self, monkeypatch, *, often=False) -> None:
        self.at: int | None = None
        self.count = 0
        self._often = often
        self._patch = monkeypatch
        self._here = threading.get_ident()
        really = Session.wait

        def wait(session, *args, **options):
            if threading.get_ident() == self._here:
                self._look(session)
            return really(session, *args, **options)

        monkeypatch.setattr(Session, "wait", wait)

    def _look(self, session) -> None:
        if self.count == self.at or (self._often and self.at is not None and self.count > self.at):
            with shared_server().connect() as raw:
                raw.execute("SELECT pg_terminate_backend(%s, 10000)", [session.info.backend_pid])
        self.count += 1

    def strike(self, at) -> None:
        self.at, self.count = at, 0


@contextmanager
def started(url, **settings):
    """Open a store as a worker does, from the first connection to the last statement before it turns."""
    with closing(Rota(url, settings=Settings(**settings))) as rota:
        rota.job(name="t")(lambda: None)
        with rota.running():
            yield rota


@pytest.mark.prove
def test_a_worker_starts_although_the_server_ends_its_session_at_any_statement_of_opening(monkeypatch):
    executioner = Executioner(monkeypatch)
    with fresh_database(like=EMPTY) as url:
        for _ in range(2):
            executioner.strike(None)
            with started(url):
                statements = executioner.count
        assert statements >= 20
        for at in range(0, statements, size(5, prove=1)):
            executioner.strike(at)
            with started(url) as rota:
                assert executioner.count > at
                executioner.strike(None)
                assert rota.wait(rota.enqueue("t").id, timeout=patient(20)).status == "COMPLETED", at


def test_a_store_is_made_although_the_server_ends_its_session_at_any_statement_of_that(monkeypatch):
    executioner = Executioner(monkeypatch)
    with fresh_database(like=EMPTY) as url:
        executioner.strike(None)
        with closing(PostgresStore(url, Settings())) as store:
            store.migrate(now=0)
        statements = executioner.count
    assert statements >= 8
    for at in range(statements):
        with fresh_database(like=EMPTY) as url, closing(PostgresStore(url, Settings())) as store:
            executioner.strike(at)
            store.migrate(now=0)
            assert executioner.count > at
            executioner.strike(None)
            assert store.stats(now=0).workers == 0, at


def test_a_server_that_ends_every_session_is_given_up_after_busy_timeout(monkeypatch):
    executioner = Executioner(monkeypatch, often=True)
    with fresh_database(like=EMPTY) as url:
        executioner.strike(0)
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match="terminating connection"), started(url, busy_timeout=1):
            pass
        assert time.monotonic() - begun < patient(20)
        assert executioner.count > 2
        executioner.strike(None)


@contextmanager
def hanging_up(server, *, times):
    """A port that ends the first sessions before they have begun, as a server does that is told to, and then leads to the server."""
    came = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                came.append(line)
                if len(came) <= times:
                    line.recv(4096)
                    line.sendall(b"E" + (len(FATAL) + 4).to_bytes(4, "big") + FATAL)
                    line.close()
                else:
                    far = socket.create_connection((server.host, server.port))
                    came.append(far)
                    for here, there in ((line, far), (far, line)):
                        threading.Thread(target=forward, args=(here, there), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1], came
        listening.shutdown(socket.SHUT_RDWR)
        for each in came:
            each.close()


def forward(here, there):
    try:
        while data := here.recv(65536):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_session_that_is_ended_before_it_has_begun_is_opened_again():
    with fresh_database(like=EMPTY) as url, hanging_up(shared_server(), times=2) as (port, came):
        moved = url.replace(str(shared_server().port), str(port)) + "?sslmode=disable&gssencmode=disable"
        with closing(Rota(moved)) as rota:
            assert rota.store.stats().workers == 0
        assert len(came) > 2
