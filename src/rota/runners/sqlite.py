"""SQL jobs on SQLite.

    open the file -> BEGIN IMMEDIATE -> the statements, one by one -> COMMIT

SQLite has no users: what confines a job is what SQLite asks this module about. The authorizer refuses other files, PRAGMA and transaction
control; the progress handler looks at the deadline and at stops every millisecond or so; the commit hook refuses to commit once the run
was asked to stop. A single long step, such as one function over a large text, is not interrupted: `LIMITS` bounds it.

A SELECT is not read to its end once its rows are over the limits. Nothing it could still do is lost: changes are made before the first row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import apsw
import msgspec

from rota.model.decide import Completed, Failed, Outcome
from rota.model.schedules import JobKind
from rota.model.settings import MIB, Settings
from rota.ports.executor import StopReason, forced
from rota.ports.runner import BodyRefused, Control, Database, Order, UnfitDatabase
from rota.runners.dialect import ConnectFailed, Dialect, Probe
from rota.runners.failures import counted, is_permanent_sqlite, located
from rota.runners.result_sets import ResultSet
from rota.runners.sqlite_file import opened, target_of
from rota.runners.sqlite_text import Body, Statement, read
from rota.runners.stops import Halted, halt, stop_reason

STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock: about a millisecond."""
BUSY_PAUSE_S = 0.02
CHECK_S = 5.0
"""How long a check waits for a file that others have locked."""
LIMITS = {
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_LENGTH: 64 * MIB,
    apsw.SQLITE_LIMIT_SQL_LENGTH: 16 * MIB,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 500,
    apsw.SQLITE_LIMIT_TRIGGER_DEPTH: 100,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
OPTIONS = {
    apsw.SQLITE_DBCONFIG_DEFENSIVE: 1,
    apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_FKEY: 1,
}
FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})
"""Functions that reach out of the database."""
OWN_PRAGMAS = frozenset({"data_version", "page_size"})
"""Asked by SQLite's own full-text tables; they change nothing."""
REFUSED = {
    apsw.SQLITE_ATTACH: "a job may not attach another database: a connection is one file",
    apsw.SQLITE_DETACH: "a job may not detach a database: a connection is one file",
    apsw.SQLITE_TRANSACTION: "a body runs in one transaction, which Rota begins and commits: take {0} out",
    apsw.SQLITE_SAVEPOINT: "a body runs in one transaction, which Rota begins and commits: take SAVEPOINT and RELEASE out",
    apsw.SQLITE_PRAGMA: "PRAGMA {0} is not possible in a job",
    apsw.SQLITE_FUNCTION: "{1}() is not possible in a job",
}
NO_CALL = "SQLite has no procedures: to call the Python handler of that name, write CALL name(…) without quotes and without CONNECTION"
SEVERAL = "a body is one statement: create the connection with MULTI for several"
CODES: dict[int, str] = {
    code: name
    for codes in (apsw.mapping_result_codes, apsw.mapping_extended_result_codes)
    for code, name in codes.items()
    if isinstance(code, int) and isinstance(name, str)
}
SQLSTATES = (("syntax error", "42601"), ("incomplete input", "42601"), ("unrecognized token", "42601"), ("no such table", "42P01"),
             ("no such column", "42703"), ("no such function", "42883"))  # fmt: skip
"""SQLSTATEs for what SQLite says of a body that is checked; it has none of its own."""


def dialect(settings: Settings, store: str) -> Dialect:
    """Return what runs jobs on SQLite."""
    return Sqlite(settings, store)


class Sqlite:
    """Runs, checks and probes. It keeps nothing between calls."""

    def __init__(self, settings: Settings, store: str) -> None:
        """Take the URL of Rota's own store, whose file no job may open."""
        self._settings = settings
        self._store = store

    def run(self, order: Order, database: Database, control: Control) -> Outcome:
        """Run the body in one transaction."""
        if order.run_as is not None:
            raise UnfitDatabase(f"SQLite has no roles: take RUN AS {order.run_as} out, or use a connection to PostgreSQL")
        values = {**order.secrets, **order.params}
        body = _read(database, order.kind, order.body, values.keys())
        bindings = {name: _bound(name, values[name]) for name in body.names}
        with self._opened(database) as connection:
            attempt = Attempt(order, control, connection, self._settings)
            with control.watch(attempt.stop, attempt.force):
                return attempt.outcome(body, bindings)

    def check(self, database: Database, kind: JobKind, body: str, *, names: Collection[str], run_as: str | None) -> None:
        """Have SQLite compile the statements. Those after the first may need what the first creates: only their syntax counts."""
        if run_as is not None:
            raise BodyRefused(f"SQLite has no roles: take RUN AS {run_as} out", sqlstate="0A000")
        text = _read(database, kind, body, names)
        with self._opened(database) as connection:
            guard = Guard(connection)
            connection.set_busy_timeout(round(CHECK_S * 1000))
            _add_functions(connection, ("", "", ""))
            guard.armed = True
            for number, statement in enumerate(text.statements):
                _compile(connection, statement, dict.fromkeys(text.names), guard, body, is_first=number == 0)

    def probe(self, database: Database) -> Probe:
        """Open the file and read from it."""
        began = time.monotonic()
        with self._opened(database) as connection:
            connection.set_busy_timeout(round(CHECK_S * 1000))
            try:
                connection.pragma("schema_version")
            except apsw.Error as error:
                raise ConnectFailed(f"connection {database.name} can't be read: {_said(error)}", code=_code(error)) from None
        return Probe(server="SQLite", version=apsw.sqlite_lib_version(), login=None, seconds=time.monotonic() - began)

    @contextmanager
    def _opened(self, database: Database) -> Iterator[apsw.Connection]:
        connection = opened(target_of(database, allowed=self._settings.sql_paths, store=self._store), database)
        try:
            for limit, value in LIMITS.items():
                connection.limit(limit, value)
            for option, value in OPTIONS.items():
                connection.config(option, value)
            yield connection
        finally:
            connection.close(force=True)


def _read(database: Database, kind: JobKind, body: str, names: Collection[str]) -> Body:
    text = read(body, names)
    if text.first_word == "CALL" or kind is JobKind.PROCEDURE:
        raise BodyRefused(NO_CALL, sqlstate="0A000", position=1)
    if not text.statements:
        raise BodyRefused("the body has no statement", sqlstate="42601", position=1)
    if len(text.statements) > 1 and not database.multi:
        raise BodyRefused(SEVERAL, sqlstate="42601", position=text.statements[1].start + 1)
    return text


def _bound(name: str, value: Any) -> Any:
    """Return a parameter as SQLite takes it. JSON's lists and objects are their text."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise BodyRefused(f"the parameter {name} is larger than SQLite's integers", sqlstate="22003")
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    return msgspec.json.encode(value).decode()


def _add_functions(connection: apsw.Connection, values: tuple[str, str, str]) -> None:
    """Let statements, views and triggers ask which run they are in."""
    for name, value in zip(("rota_job_uuid", "rota_job_run_uuid", "rota_job_name"), values, strict=True):
        connection.create_scalar_function(name, _constant(value), 0, deterministic=True, flags=apsw.SQLITE_INNOCUOUS)


def _constant(value: str) -> Callable[..., str]:
    return lambda *_: value


def _compile(connection: apsw.Connection, statement: Statement, names: dict[str, None], guard: Guard, body: str, *, is_first: bool) -> None:
    cursor = connection.cursor()
    cursor.exec_trace = lambda *_: False
    try:
        cursor.execute(statement.text, names)
    except apsw.ExecTraceAbort:
        return
    except apsw.BusyError as error:
        raise ConnectFailed(f"the file is locked: {_said(error)}", code=_code(error)) from None
    except apsw.Error as error:
        said = guard.refusal or _said(error)
        sqlstate = "42501" if guard.refusal else next((code for words, code in SQLSTATES if words in said), "42000")
        if is_first or sqlstate in {"42501", "42601"}:
            position = statement.position(error)
            raise BodyRefused(located(said, body, position), sqlstate=sqlstate, position=position) from None


class Guard:
    """Decides what statements may do, and remembers why one was refused."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Watch a connection; everything is allowed until it is armed."""
        self.armed = False
        self.refusal: str | None = None
        connection.authorizer = self._allow

    def _allow(self, action: int, first: str | None, second: str | None, _schema: str | None, _source: str | None) -> int:
        if not self.armed or action not in REFUSED or self._is_harmless(action, first, second):
            return apsw.SQLITE_OK
        self.refusal = REFUSED[action].format(first, second)
        return apsw.SQLITE_DENY

    def _is_harmless(self, action: int, first: str | None, second: str | None) -> bool:
        if action == apsw.SQLITE_FUNCTION:
            return str(second).lower() not in FUNCTIONS
        return action == apsw.SQLITE_PRAGMA and second is None and str(first).lower() in OWN_PRAGMAS


class Attempt:
    """One run. `stop` and `force` are called by the watching thread, the rest by the run's own."""

    def __init__(self, order: Order, control: Control, connection: apsw.Connection, settings: Settings) -> None:
        """Set the connection up for this run."""
        self._order = order
        self._control = control
        self._connection = connection
        self._settings = settings
        self._stopped = threading.Event()
        self._guard = Guard(connection)
        self._statement: Statement | None = None
        self._last: ResultSet | None = None
        self._is_query = False
        self._is_last_query = False
        self._waits_until: float | None = None
        connection.set_busy_handler(self._wait_for_lock)
        connection.set_progress_handler(self._is_over, STEPS)
        connection.set_commit_hook(self._is_over)
        _add_functions(connection, (order.job_uuid, order.run_uuid, order.job_name))

    def stop(self) -> None:
        """Interrupt the statement; nothing is committed from now on."""
        self._stopped.set()
        self._connection.interrupt()

    def force(self) -> None:
        """Do it again: there is no other way to end a statement of this process."""
        self.stop()

    def outcome(self, body: Body, bindings: dict[str, Any]) -> Outcome:
        """Run it and say how it ended."""
        try:
            halt(self._control)
            return self._in_transaction(body, bindings)
        except Halted as halted:
            return forced(halted.reason, self._order.timeout_s)
        except apsw.Error as error:
            return self._failed(error)
        finally:
            self._roll_back()

    def _in_transaction(self, body: Body, bindings: dict[str, Any]) -> Outcome:
        connection = self._connection
        connection.execute("BEGIN" if connection.readonly("main") else "BEGIN IMMEDIATE")
        before = connection.total_changes()
        self._guard.armed = True
        for self._statement in body.statements:
            self._execute(self._statement, bindings)
        self._guard.armed = False
        self._statement = None
        changed = connection.total_changes() - before
        connection.execute("COMMIT")
        text = self._last.text() if self._last is not None else None
        return Completed(text, message="; ".join(self._messages(changed)), rows_affected=changed)

    def _execute(self, statement: Statement, bindings: dict[str, Any]) -> None:
        """Execute a statement; keep its rows up to the limits, in place of those of the statement before."""
        cursor = self._connection.cursor()
        columns: list[str] = []

        def note_columns(begun: apsw.Cursor, *_: Any) -> bool:
            columns.extend(column[0] for column in begun.get_description())
            self._is_query = begun.is_readonly
            return True

        cursor.exec_trace = note_columns
        cursor.execute(statement.text, bindings)
        if columns:
            settings = self._settings
            self._is_last_query = self._is_query
            self._last = ResultSet(columns, rows_max=settings.sql_result_rows, bytes_max=settings.result_max)
            try:
                any(not self._last.add(row) for row in cursor)
            except UnicodeDecodeError:
                # A text in the file that is no text.
                self._last.truncate()
        cursor.close(force=True)

    def _messages(self, changed: int) -> list[str]:
        messages = [f"{counted(changed)} affected"] if changed or self._last is None else []
        if self._last is not None and self._is_last_query:
            messages.append(f"SELECT: {'the first ' if self._last.is_truncated else ''}{counted(self._last.kept)}")
        return messages

    def _failed(self, error: apsw.Error) -> Outcome:
        reason = self._reason()
        if reason is not None and isinstance(error, apsw.InterruptError | apsw.BusyError | apsw.ConstraintError):
            return forced(reason, self._order.timeout_s)
        code = _code(error)
        position = self._statement.position(error) if self._statement else None
        said = self._guard.refusal if isinstance(error, apsw.AuthError) and self._guard.refusal else _said(error)
        return Failed(located(said, self._order.body, position), permanent=is_permanent_sqlite(code), error_code=code)

    def _roll_back(self) -> None:
        self._guard.armed = False
        self._connection.set_progress_handler(None)
        with suppress(apsw.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _reason(self) -> StopReason | None:
        return stop_reason(self._control)

    def _is_over(self) -> bool:
        """Say whether the run is to stop: asked between steps, and before a commit, which this refuses."""
        return self._stopped.is_set() or self._reason() is not None

    def _wait_for_lock(self, _tries: int) -> bool:
        """Wait for another writer, for `busy_timeout` at most."""
        now = time.monotonic()
        if _tries == 0 or self._waits_until is None:
            self._waits_until = now + self._settings.busy_timeout
        if self._is_over() or now >= self._waits_until:
            return False
        self._stopped.wait(BUSY_PAUSE_S)
        return True


def _code(error: apsw.Error) -> str:
    """Return the name of the extended result code, or of the plain one."""
    return CODES.get(getattr(error, "extendedresult", 0)) or CODES.get(getattr(error, "result", 1), "SQLITE_ERROR")


def _said(error: apsw.Error) -> str:
    return str(error).removeprefix(f"{type(error).__name__}: ")
