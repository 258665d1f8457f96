"""SQL jobs on PostgreSQL.

    connect as the connection's login -> what could it do? -> BEGIN, session variables, role -> the body -> COMMIT

The deadline is ours: a job can reset `statement_timeout`. Asked to stop, the watching thread sends the server a request to cancel; a grace
period later it cuts the socket, and the server, which looks for its client every second, ends the statement.

A body that ends the transaction it runs in is found by the results of its statements and by the state of the transaction afterwards. What
it has committed stays, so the run ends as a permanent failure and is not repeated.

A body is one statement, sent by the extended protocol, where a second statement is a syntax error. With `multi` and without placeholders
it is a script. Rows beyond the limits are read and dropped, not left with the server: `SELECT archive(id) FROM orders` does its work in
the rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from typing import Any

import psycopg
from psycopg import generators, pq
from psycopg.pq.abc import PGresult

from rota.model.decide import Completed, Failed, Outcome
from rota.model.schedules import JobKind
from rota.model.settings import Settings
from rota.ports.executor import forced
from rota.ports.runner import BodyRefused, Control, Database, Order, Stream, Unreachable
from rota.runners.dialect import ConnectFailed, Dialect, Probe, failure
from rota.runners.failures import COMMIT_UNKNOWN, counted, is_permanent, located
from rota.runners.placeholders import Translated, translate
from rota.runners.postgres_session import (
    CANCEL_AGAIN_S,
    CANCEL_S,
    Patience,
    Session,
    first_line,
    open_session,
)
from rota.runners.postgres_values import Rows, bound, columns_of
from rota.runners.result_sets import ResultSet
from rota.runners.stops import Halted, halt, stop_reason

CHECK_S = 8.0
"""How long a question without a run may take, beside the time to connect."""
CHECK_LOCK = "2s"
"""How long a check waits for a table that others have locked."""
ROLLBACK_S = 1.0
"""How long a rollback is waited for. The server does it in any case, once the session is closed."""
NET_MAX_MS = 2**31 - 1
TIMEOUT_NET_S = 5.0
"""How much later than our own deadline the server ends a statement, for a worker that is stopped."""
CONTROL_TAGS = frozenset({"BEGIN", "START", "COMMIT", "ROLLBACK", "PREPARE"})
"""First words of the results of statements that may end a transaction."""
COMMITS = frozenset({"COMMIT", "PREPARE TRANSACTION"})
CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"})
COPIES = frozenset({pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH})
ROWS = frozenset({pq.ExecStatus.SINGLE_TUPLE, pq.ExecStatus.TUPLES_CHUNK, pq.ExecStatus.TUPLES_OK})
UNTYPED = frozenset({"42P18", "42725"})
"""Errors that a check makes where the type of a parameter counts, which only a run knows."""
SEVERAL = "a body is one statement: create the connection with MULTI for scripts without placeholders"
MIXED = "a body with placeholders is one statement, also with MULTI: take the placeholders or the other statements out"
NO_CONTROL = "Rota runs a body in one transaction and commits it at the end"
ENDED = f"the body ended its transaction: what it has committed stays, and it is not repeated. {NO_CONTROL}: take transaction control out"
PROCEDURE_ENDED = f"{NO_CONTROL}: a procedure can't commit or roll back there"
SET_UP = """
SELECT pg_catalog.set_config('rota.job_uuid', %(job_uuid)s, true), pg_catalog.set_config('rota.job_run_uuid', %(run_uuid)s, true),
       pg_catalog.set_config('rota.job_name', %(job_name)s, true),
       CASE WHEN %(net)s::text IS NOT NULL AND (pg_catalog.current_setting('statement_timeout') = '0'
                 OR pg_catalog.current_setting('statement_timeout')::interval > %(net)s::interval)
            THEN pg_catalog.set_config('statement_timeout', %(net)s, true) END"""
"""A shorter timeout that the login has by itself stays."""


def dialect(settings: Settings, store: str) -> Dialect:
    """Return what runs jobs on PostgreSQL."""
    return Postgres(settings, store)


class Postgres:
    """Runs, checks and probes. It keeps nothing between calls."""

    def __init__(self, settings: Settings, store: str) -> None:
        """Take the URL of Rota's own store, whose login no job may be."""
        self._settings = settings
        self._store = store

    def run(self, order: Order, database: Database, control: Control) -> Outcome:
        """Run the body in one transaction of a session of its own."""
        text = _translated(order.kind, order.body, order.params.keys() | order.secrets.keys())
        attempt = Attempt(order, database, control, text, self._settings)
        with control.watch(attempt.stop, attempt.force):
            return attempt.outcome(self._store)

    def check(self, database: Database, kind: JobKind, body: str, *, names: Collection[str], run_as: str | None) -> None:
        """Have the server parse the body, with the names that it uses."""
        text = _translated(kind, body, names)
        with closing(self._asked(database)) as session:
            try:
                session.execute(f"BEGIN READ ONLY; SET LOCAL lock_timeout TO '{CHECK_LOCK}'; SET LOCAL statement_timeout TO '5s'".encode())
                _become(session, run_as)
                _prepare(session, text)
            except psycopg.Error as error:
                _raise_refusal(error, text, body, database)

    def probe(self, database: Database) -> Probe:
        """Connect, and say who answered."""
        began = time.monotonic()
        with closing(self._asked(database)) as session:
            version = session.info.parameter_status("server_version") or ""
            login = session.info.user
        return Probe(server="PostgreSQL", version=version, login=login, seconds=time.monotonic() - began)

    def _asked(self, database: Database) -> Session:
        return open_session(database, store=self._store, tick=Patience(database, CHECK_S))


def _translated(kind: JobKind, body: str, names: Collection[str]) -> Translated:
    if "\0" in body:
        raise BodyRefused("the body holds the character NUL (U+0000)", sqlstate="22021", position=body.index("\0") + 1)
    text = translate(body, names)
    if kind is JobKind.PROCEDURE and text.first_word != "CALL":
        raise BodyRefused("the body of a procedure job begins with CALL: CALL name(…)", sqlstate="42601", position=1)
    if text.first_word in CONTROL_TAGS - {"PREPARE"}:
        raise BodyRefused(f"{text.first_word} is not possible in the body of a job: {NO_CONTROL}", sqlstate="2D000", position=1)
    return text


def _become(session: Session, role: str | None) -> None:
    """Narrow the rights of the transaction to those of a role. No boundary: the body can undo it."""
    if role is None:
        return
    if role.lower() == "none":
        raise BodyRefused("RUN AS none is not a role: name one, or leave RUN AS out", sqlstate="22023")
    session.execute("SELECT pg_catalog.set_config('role', %s, true)", [role])


def _prepare(session: Session, text: Translated) -> None:
    session.pgconn.send_prepare(b"", _encoded(text.text))
    for result in session.wait(generators.execute(session.pgconn)):
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BodyRefused("the body is not valid Unicode", sqlstate="22021", position=error.start + 1) from None


def _raise_refusal(error: psycopg.Error, text: Translated, body: str, database: Database) -> None:
    """Raise what a failed check means. Several statements can only be looked at as a whole, which shows errors of syntax."""
    several = _is_several(error)
    if (several and database.multi and not text.names) or (text.names and error.sqlstate in UNTYPED):
        return
    if error.sqlstate is None or not is_permanent(error.sqlstate):
        raise ConnectFailed(f"connection {database.name} could not check the body: {first_line(error)}", code=error.sqlstate) from None
    position = _position(error, text)
    raise BodyRefused(_described(error, text, body, database), sqlstate=error.sqlstate, position=position) from None


def _is_several(error: psycopg.Error) -> bool:
    return error.sqlstate == "42601" and "multiple commands" in (error.diag.message_primary or "")


def _position(error: psycopg.Error, text: Translated) -> int | None:
    position = error.diag.statement_position
    return text.original(int(position)) if position else None


def _described(error: psycopg.Error, text: Translated, body: str, database: Database) -> str:
    """Return what the server said of the body, with the place in it, and the remedy where we know a better one."""
    diag = error.diag
    lines = [located(diag.message_primary or first_line(error), body, _position(error, text))]
    lines += [
        f"{name}: {part}"
        for name, part in (("DETAIL", diag.message_detail), ("HINT", diag.message_hint), ("CONTEXT", diag.context))
        if part
    ]
    if _is_several(error):
        lines.append(f"HINT: {MIXED if database.multi else SEVERAL}")
    if error.sqlstate == "2D000":
        lines.append(f"HINT: {PROCEDURE_ENDED}")
    return "\n".join(lines)


class Attempt:
    """One run. `stop` and `force` are called by the watching thread, the rest by the run's own."""

    def __init__(self, order: Order, database: Database, control: Control, text: Translated, settings: Settings) -> None:
        """Take what is to be run."""
        self._order = order
        self._database = database
        self._control = control
        self._text = text
        self._settings = settings
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._asked_at = 0.0

    def stop(self) -> None:
        """Ask the server to cancel the statement."""
        with self._lock:
            self._asked_at = time.monotonic()
            if self._session is not None:
                self._session.cancel_safe(timeout=CANCEL_S)

    def force(self) -> None:
        """Cut the connection."""
        with self._lock:
            if self._session is not None:
                self._session.cut()

    def outcome(self, store: str) -> Outcome:
        """Run it and say how it ended."""
        try:
            halt(self._control)
            session = open_session(
                self._database, store=store, tick=lambda: halt(self._control), application=f"rota {self._order.job_name}"[:63]
            )
        except Halted as halted:
            return forced(halted.reason, self._order.timeout_s)
        session.tick = self._cancel_again
        session.add_notice_handler(self._note)
        with self._lock:
            self._session = session
        try:
            return self._in_transaction(session)
        finally:
            # Under the lock: a request to cancel that is being sent needs it open.
            with self._lock:
                self._session = None
                session.close()

    def _cancel_again(self) -> None:
        """Repeat the request to cancel: one that came when no statement was running was ignored."""
        if stop_reason(self._control) is None or self._session is None:
            return
        now = time.monotonic()
        if now - self._asked_at >= CANCEL_AGAIN_S:
            self._asked_at = now
            try:
                self._session.cancel_safe(timeout=CANCEL_S)
            except psycopg.Error:
                # The server does not answer: cutting the connection, which comes next, helps.
                return

    def _note(self, diagnostic: Any) -> None:
        """Put what the server says beside its results, such as RAISE NOTICE, into the run's log."""
        line = f"{diagnostic.severity}: {diagnostic.message_primary}\n"
        self._control.output(Stream.ERR, line.encode(errors="replace"))

    def _in_transaction(self, session: Session) -> Outcome:
        answer = Answer(session, self._settings)
        try:
            began = self._begin(session)
            halt(self._control)
            for result in session.results(_encoded(self._text.text), self._params()):
                answer.take(result)
            if answer.is_empty:
                raise BodyRefused("the body has no statement", sqlstate="42601")
            self._check_still_in(session, answer, began)
            halt(self._control)
        except Halted as halted:
            _roll_back(session)
            return forced(halted.reason, self._order.timeout_s)
        except BodyRefused as refused:
            _roll_back(session)
            return failure(refused)
        except _TransactionEnded:
            return Failed(ENDED, permanent=True, error_code="2D000")
        except psycopg.Error as error:
            return self._failed(session, answer, error)
        return self._commit(session, answer)

    def _begin(self, session: Session) -> Any:
        """Begin the transaction and set it up; return when it began, by which it is known."""
        order = self._order
        session.execute(b"BEGIN")
        remaining_s = self._control.remaining_s()
        net = None if remaining_s is None else f"{min(NET_MAX_MS, round((remaining_s + TIMEOUT_NET_S) * 1000))}ms"
        variables = {"job_uuid": order.job_uuid, "run_uuid": order.run_uuid, "job_name": order.job_name, "net": net}
        session.execute(SET_UP, variables)
        _become(session, order.run_as)
        return _began(session)

    def _params(self) -> list[tuple[bytes | None, int]] | None:
        if self._database.multi and not self._text.names:
            return None
        values: Mapping[str, Any] = {**self._order.secrets, **self._order.params}
        return [bound(name, values[name]) for name in self._text.names]

    def _check_still_in(self, session: Session, answer: Answer, began: Any) -> None:
        if session.info.transaction_status != pq.TransactionStatus.INTRANS or (answer.has_control and _began(session) != began):
            raise _TransactionEnded

    def _failed(self, session: Session, answer: Answer, error: psycopg.Error) -> Outcome:
        """Return what an error of the body means."""
        reason = stop_reason(self._control)
        if answer.has_committed:
            said = _described(error, self._text, self._order.body, self._database)
            return Failed(f"{ENDED}. It then failed: {said}", permanent=True, error_code="2D000")
        _roll_back(session)
        if reason is not None:
            return forced(reason, self._order.timeout_s)
        if error.sqlstate is None:
            # Of a script nobody knows how far it came.
            undone = "" if self._database.multi else "; nothing was committed"
            return Failed(f"connection {self._database.name} was lost: {first_line(error)}{undone}", error_code="08006")
        said = _described(error, self._text, self._order.body, self._database)
        return Failed(said, permanent=is_permanent(error.sqlstate), error_code=error.sqlstate)

    def _commit(self, session: Session, answer: Answer) -> Outcome:
        """Commit. Constraints and triggers that are deferred run now, and may fail or take long."""
        try:
            session.execute(b"COMMIT")
        except psycopg.Error as error:
            if session.closed or error.diag.severity_nonlocalized in {"FATAL", "PANIC"}:
                lost = f"the outcome of the commit is unknown: the connection was lost before its answer ({first_line(error)})"
                return Failed(f"{lost}. Check whether the work was done", error_code=COMMIT_UNKNOWN)
            return self._failed(session, answer, error)
        return answer.completed()


class _TransactionEnded(Exception):  # noqa: N818 - a signal inside this module
    """The body ended the transaction that it ran in."""


def _began(session: Session) -> Any:
    row = session.execute("SELECT pg_catalog.transaction_timestamp()::text").fetchone()
    return row and row[0]


def _roll_back(session: Session) -> None:
    """Roll back, so that its locks are free when the run is over. If that takes long, closing the session does it."""
    session.tick = Patience(Database(name="", url=""), ROLLBACK_S)
    try:
        if session.info.transaction_status in {pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR}:
            session.execute(b"ROLLBACK")
    except (psycopg.Error, Unreachable):
        return


class Answer:
    """What the statements of a body have answered so far."""

    def __init__(self, session: Session, settings: Settings) -> None:
        """Begin without any."""
        self._session = session
        self._settings = settings
        self._rows = Rows(session)
        self._open: ResultSet | None = None
        self._last: ResultSet | None = None
        self._last_tag = ""
        self._tag = ""
        self._chunk_tag = b""
        self._changed: int | None = None
        self.is_empty = True
        self.has_control = False
        self.has_committed = False

    def take(self, result: PGresult) -> None:
        """Take a result, or a part of one."""
        if result.status in COPIES:
            # The rest of the exchange would be data: the session is of no use any more.
            self._session.cut()
            raise BodyRefused("COPY from or to the client is not possible in a job: use INSERT or SELECT", sqlstate="0A000")
        if result.status == pq.ExecStatus.EMPTY_QUERY:
            return
        self.is_empty = False
        if result.status in ROWS:
            self._take_rows(result)
        if result.status in {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}:
            self._take_end(result)

    def _take_rows(self, result: PGresult) -> None:
        if self._open is None:
            settings = self._settings
            self._open = ResultSet(columns_of(result), rows_max=settings.sql_result_rows, bytes_max=settings.result_max)
        # The driver gives the tag to the last chunk that has rows, and none to the end that follows.
        self._chunk_tag = result.command_status or self._chunk_tag
        if not self._open.is_truncated:
            for row in self._rows.of(result):
                if not self._open.add(row):
                    break

    def _take_end(self, result: PGresult) -> None:
        self._tag = (result.command_status or self._chunk_tag).decode(errors="replace")
        self._chunk_tag = b""
        word, number = self._tag.partition(" ")[0], self._tag.rpartition(" ")[2]
        if self._open is not None:
            self._last, self._last_tag, self._open = self._open, self._tag, None
        # `CREATE TABLE AS` is a SELECT without rows.
        if word in CHANGES or (word == "SELECT" and result.status == pq.ExecStatus.COMMAND_OK):
            self._changed = (self._changed or 0) + (int(number) if number.isdigit() else 0)
        self.has_control = self.has_control or word in CONTROL_TAGS
        self.has_committed = self.has_committed or self._tag in COMMITS

    def completed(self) -> Completed:
        """Return the outcome of a run whose statements all succeeded."""
        text = self._last.text() if self._last is not None else None
        return Completed(text, message="; ".join(self._messages()) or self._tag or None, rows_affected=self._changed or 0)

    def _messages(self) -> list[str]:
        messages = [] if self._changed is None else [f"{counted(self._changed)} affected"]
        word, _, number = self._last_tag.rpartition(" ")
        if self._last is not None and word == "SELECT":
            cut = f", the first {self._last.kept:,} kept" if self._last.is_truncated else ""
            messages.append(f"SELECT: {counted(int(number))}{cut}")
        return messages
