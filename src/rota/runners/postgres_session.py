"""The session of one run on PostgreSQL: opened as the connection's login with nothing of the worker's own, watched while it waits.

Every run has a session of its own. Keeping sessions would save 8 ms of logging in (SCRAM, loopback; 20 ms with the question about the login
on a busy machine). It is left out because `DISCARD ALL` does not make a session clean: what procedural languages keep in their globals
stays, and so does a login whose rights were taken away in the meantime.

The worker's own ways of logging in are shut out: its password file, PGPASSWORD, client certificate and Kerberos ticket are not the
connection's. A URL can't bring them back: of its options only `ALLOWED` are taken.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import conninfo, generators, pq
from psycopg.abc import PQGen
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready

from rota.model.urls import is_ambiguous
from rota.ports.runner import Database, UnfitDatabase
from rota.runners.dialect import ConnectFailed
from rota.runners.postgres_login import DEFAULT_PORT, QUERY, check_login, is_own_login

CONNECT_S = 5
"""How long a server may take to accept a connection. Each address of its name has this long."""
CANCEL_S = 1.0
"""How long a request to cancel may take."""
CANCEL_AGAIN_S = 0.5
"""A request that came before its statement was ignored by the server, so it is repeated."""
CHUNK_ROWS = 100
"""Rows that are held at a time."""
OLDEST_SERVER = 130000
ALLOWED = frozenset({"host", "port", "dbname", "user", "sslmode", "sslrootcert", "channel_binding", "target_session_attrs"})
"""What a URL may say. Others could read files of the worker, or change what is set up here."""
SHUT_OUT = {"password": "", "passfile": "/nonexistent/pgpass", "gssencmode": "disable", "hostaddr": "", "options": "", "port": DEFAULT_PORT}
"""Said outright, so that neither the environment nor the home of the worker's user supplies it."""
KEEPALIVES = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3", "tcp_user_timeout": "60000"}
CLIENT_CERTIFICATES = 160000
"""The libpq that can be told not to send one."""
SET_UP = f"BEGIN; SET LOCAL search_path TO pg_catalog; {QUERY.strip()}; COMMIT; SET idle_in_transaction_session_timeout TO '30s'".encode()
"""One message: what the login could do, and a net for a worker that is stopped in the middle of a transaction."""
CHECK_CLIENT = b"SET client_connection_check_interval TO '1s'"
CHECKS_CLIENT = 140000
"""The server that can look whether its client is still there while it executes."""
T = TypeVar("T")
_tick: ContextVar[Callable[[], None] | None] = ContextVar("_tick", default=None)


class Refusal(msgspec.Struct, frozen=True):
    """How a server or the driver refuses a connection: words to know it by, its code, and the remedy."""

    words: str
    code: str
    remedy: str
    permanent: bool = True


# A refused connection has no SQLSTATE in the driver, only words.
REFUSALS = (
    Refusal("password authentication failed|no password supplied|empty password", "28P01", "check user and password of the connection"),
    Refusal("authentication failed|pg_hba.conf|not permitted to log in", "28000", "check the login, and the server's pg_hba.conf"),
    Refusal('role ".*" does not exist', "28000", "create it (CREATE ROLE … LOGIN), or use another user"),
    Refusal('database ".*" does not exist', "3D000", "create it, or correct the URL"),
    Refusal("permission denied for database", "42501", "GRANT CONNECT ON DATABASE … TO the login"),
    Refusal("too many (clients|connections)|connection slots are reserved", "53300", "raise max_connections", permanent=False),
    Refusal("starting up|shutting down|in recovery mode|not yet accepting", "57P03", "wait until the server is up", permanent=False),
    Refusal("does not support SSL|certificate|SSL error", "08001", "check sslmode and sslrootcert in the URL"),
)
AWAY = Refusal("", "08001", "check host and port, and that the server is running", permanent=False)
LEAD = re.compile(r"^(connection (failed|is bad): )?(connection to server (at|on) .*? failed: )?([A-Z]+:  )?")


def open_session(database: Database, *, store: str, tick: Callable[[], None], application: str = "rota") -> Session:
    """Connect and see that a job may be this login. `tick` is called ten times a second while something is waited for; it may raise."""
    parts = _parts(database)
    if is_own_login(parts, store):
        raise UnfitDatabase(f"connection {database.name} is the login of Rota's own store: use another login, without rights on its schema")
    opened = _connected(parts, database, tick, application)
    if not isinstance(opened, Session):
        raise opened
    try:
        opened.tick = tick
        _set_up(opened, database)
    except BaseException:
        opened.close()
        raise
    return opened


def _parts(database: Database) -> dict[str, Any]:
    """Return what the URL says; refuse what it must not say, without repeating it: it may be a password."""
    try:
        parts = {} if is_ambiguous(database.url) else dict(conninfo.conninfo_to_dict(database.url))
    except psycopg.Error:
        parts = {}
    if not parts:
        raise UnfitDatabase(f"the URL of connection {database.name} can't be read: use postgresql://host:5432/database")
    if "password" in parts:
        raise UnfitDatabase(f"the URL of connection {database.name} has a password: keep it as a secret of the connection")
    unknown = sorted(parts.keys() - ALLOWED)
    if unknown:
        takes = ", ".join(sorted(ALLOWED - {"host", "port", "dbname", "user"}))
        raise UnfitDatabase(f"the URL of connection {database.name} has the option {unknown[0]}: it takes {takes}")
    parts["user"] = database.user or parts.get("user")
    if not parts["user"]:
        # The driver would take the name of the worker's own user.
        raise UnfitDatabase(f"connection {database.name} has no user: set USER, the login that its jobs are")
    if not parts.get("host"):
        raise UnfitDatabase(f"the URL of connection {database.name} has no host: use postgresql://host:5432/database")
    return {"dbname": parts["user"], **parts}


def _connected(parts: dict[str, Any], database: Database, tick: Callable[[], None], application: str) -> Session | ConnectFailed:
    """Return a session, or why there is none. The driver's own error is left here: its frames hold the password."""
    options = SHUT_OUT | KEEPALIVES | parts | {"connect_timeout": CONNECT_S, "client_encoding": "utf8", "application_name": application}
    if pq.version() >= CLIENT_CERTIFICATES:
        options["sslcertmode"] = "disable"
    token = _tick.set(tick)
    try:
        return Session.connect("", autocommit=True, prepare_threshold=None, **options | {"password": database.password or ""})
    except psycopg.Error as error:
        return _refused(str(error), database, parts["user"])
    finally:
        _tick.reset(token)


def _refused(said: str, database: Database, login: str) -> ConnectFailed:
    reason = LEAD.sub("", said.partition("\n")[0])
    refusal = next((each for each in REFUSALS if re.search(each.words, said, re.IGNORECASE)), AWAY)
    message = f"connection {database.name} can't be opened as {login}: {reason}; {refusal.remedy}"
    return ConnectFailed(message, code=refusal.code, permanent=refusal.permanent)


def _set_up(session: Session, database: Database) -> None:
    version = session.info.server_version
    if version < OLDEST_SERVER:
        raise UnfitDatabase(f"connection {database.name} leads to PostgreSQL {version // 10000}: use {OLDEST_SERVER // 10000} or later")
    try:
        check_login(session.execute(SET_UP), database)
        if version >= CHECKS_CLIENT:
            # Not every system that a server runs on can tell.
            with suppress(psycopg.errors.InvalidParameterValue):
                session.execute(CHECK_CLIENT)
    except psycopg.Error as error:
        said = first_line(error)
        failed = ConnectFailed(f"connection {database.name} was lost while it was set up: {said}", code=error.sqlstate or "08006")
    else:
        return
    raise failed


class Session(psycopg.Connection[Any]):
    """A connection that looks up while it waits, and can be cut from another thread."""

    tick: Callable[[], None] | None = None

    @classmethod
    def _connect_gen(cls, *args: Any, **options: Any) -> Any:
        """Look up while it connects, too."""
        return _ticking(super()._connect_gen(*args, **options), _tick.get())

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Run one of the driver's exchanges with the server. Everything that the driver waits for goes through here."""
        return super().wait(_ticking(gen, self.tick), *args, **options)

    def results(self, text: bytes, params: Sequence[tuple[bytes | None, int]] | None) -> Iterator[PGresult]:
        """Send a text and yield its results, rows in chunks. Params are values and types; None: a script without params.

        An error of the server is raised when its last result has been read, so that the session can be used again.
        """
        if params is None:
            self.pgconn.send_query(text)
        else:
            self.pgconn.send_query_params(text, [value for value, _ in params], param_types=[oid for _, oid in params])
        if pq.version() >= 170000:
            self.pgconn.set_chunked_rows_mode(CHUNK_ROWS)
        else:
            self.pgconn.set_single_row_mode()
        self.wait(generators.send(self.pgconn))
        failed: psycopg.Error | None = None
        while (result := self._next_result(failed)) is not None:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                failed = psycopg.errors.error_from_result(result)
            else:
                yield result
        if failed is not None:
            raise failed

    def _next_result(self, failed: psycopg.Error | None) -> PGresult | None:
        try:
            result: PGresult | None = self.wait(generators.fetch(self.pgconn))
        except psycopg.Error:
            # The server said why, and then closed the connection.
            if failed is not None:
                raise failed from None
            raise
        return result

    def cut(self) -> None:
        """Close the socket in both directions and keep its descriptor, which is the driver's. From any thread."""
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)


def _ticking(gen: Generator[Any, Any, T], tick: Callable[[], None] | None) -> Generator[Any, Any, T]:
    """Pass an exchange on, and call `tick` whenever nothing has moved for 0.1 s: the driver asks that often."""
    try:
        wanted = next(gen)
        while True:
            ready: Ready | int = yield wanted
            if not ready and tick is not None:
                tick()
            wanted = gen.send(ready)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        gen.close()


class Patience:
    """A tick that raises when a time is over: for questions that nobody else watches."""

    def __init__(self, database: Database, seconds: float) -> None:
        """Begin now."""
        self._database = database
        self._end = time.monotonic() + seconds

    def __call__(self) -> None:
        """Raise if it is over."""
        if time.monotonic() >= self._end:
            raise ConnectFailed(f"connection {self._database.name} has not answered in time; {AWAY.remedy}", code="08001")


def first_line(error: psycopg.Error) -> str:
    """Return what happened in one line."""
    return LEAD.sub("", str(error).strip().partition("\n")[0]) or type(error).__name__
