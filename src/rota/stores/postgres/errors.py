"""The driver's errors as ours, with the remedy. What the server says may be shown; what the caller gave may hold a password.

`StoreUnavailable` is what can pass by itself: a worker goes on trying. `StoreUnusable` is what somebody has to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import psycopg
from psycopg import errors

from rota.errors import (
    AnswerLost,
    IllegalMove,
    InvalidOption,
    InvalidParams,
    RotaError,
    StoreBusy,
    StoreError,
    StoreMoved,
    StoreUnavailable,
    StoreUnusable,
)
from rota.stores.postgres.address import Address
from rota.stores.verbs.db import is_moved

ENDED = "terminating connection due to administrator command"
"""Said by a server that ends one session, or all of them. While it still connects there is no code for it."""


class Unanswered(AnswerLost):
    """A commit whose answer was lost, with what its work has returned, which is true if it was made."""

    value: object = None


class Case(msgspec.Struct, frozen=True):
    """One way in which a connection is refused: how it is told by, and what is to be done."""

    said: str
    kind: type[StoreError]
    remedy: str


# A refused connection has no code, only words: the server's where it answers, the driver's where it does not.
REFUSALS = (
    Case(
        "too many clients|too many connections|connection slots are reserved",
        StoreUnavailable,
        "Raise the server's max_connections, or the limit of this role or database, or lower the setting pool_size",
    ),
    Case("starting up|shutting down|in recovery mode|not yet accepting", StoreUnavailable, "Wait until it is up"),
    Case("not currently accepting", StoreUnusable, "Let it: ALTER DATABASE … ALLOW_CONNECTIONS true"),
    Case(
        "authentication failed|no password supplied|empty password",
        StoreUnusable,
        "Give the right user and password: in ROTA_STORE, or better in ~/.pgpass",
    ),
    Case('^database ".*" does not exist', StoreUnusable, "Make it (createdb), or name another in the URL"),
    Case('^role ".*" (does not|is not permitted)', StoreUnusable, "Make it (CREATE ROLE … LOGIN), or name another in the URL"),
    Case("permission denied for database", StoreUnusable, "Let the database's owner say GRANT CONNECT ON DATABASE … TO …"),
    Case(
        "pg_hba.conf.*(no encryption|SSL off)",
        StoreUnusable,
        "Add ?sslmode=require to the URL if the server asks for TLS, or let its pg_hba.conf allow this host, user and database",
    ),
    Case("pg_hba.conf", StoreUnusable, "Let the server's pg_hba.conf allow this host, user and database"),
    Case("does not support SSL", StoreUnusable, "Take sslmode out of the URL, or let the server speak TLS (ssl = on)"),
    Case("certificate|SSL error", StoreUnusable, "See sslmode, sslrootcert, sslcert and sslkey in the URL, and the server's certificate"),
    Case("invalid response|expected authentication request", StoreUnusable, "What listens there is not PostgreSQL: see host and port"),
    Case("resolve host|translate host name", StoreUnavailable, "See that the host's name is right, and that this machine can look it up"),
    Case("timeout expired|timed out", StoreUnavailable, "See host and port, and what stands between: a firewall answers nothing at all"),
    Case("no route to host|unreachable", StoreUnavailable, "See the host's address and this machine's network"),
    Case("read-only|standby", StoreUnavailable, "None of the servers takes writes: promote one, or see target_session_attrs in the URL"),
    Case("startup parameter|configuration parameter|service|port number", StoreUnusable, "See the options in the URL"),
)
AWAY = Case("", StoreUnavailable, "See that a server runs there and takes connections")
MANY_HOSTS = re.compile(r"^- host: '?([^',]*)'?, port: '?([^',:]*)'?(?:, hostaddr: '?[^',]*'?)?: (.*)$", re.MULTILINE)
LEAD = re.compile(r"^(connection (failed|is bad): )?(connection to server (at|on) .*? failed: )?([A-Z]+:  )?")


def refused(error: psycopg.Error, address: Address) -> StoreError:
    """Return our error for a connection that could not be made.

    The driver's own holds the password, and so do the frames it came through: its words go along as the cause, and no more.
    """
    reasons = {f"{host}:{port}": LEAD.sub("", said) for host, port, said in MANY_HOSTS.findall(str(error))}
    if not reasons:
        reasons = {"": LEAD.sub("", str(error).partition("\n")[0])}
    cases = [_case_of(said) for said in reasons.values()]
    # Of several servers one that comes back is enough.
    case = next((each for each in cases if each.kind is StoreUnavailable), cases[0])
    different = len(set(reasons.values())) > 1
    said = "; ".join(f"{host}: {said}" for host, said in reasons.items()) if different else next(iter(reasons.values()))
    verb = "can't be reached" if case.kind is StoreUnavailable else "can't be used"
    made = case.kind(f"{address.shown} {verb}: {address.without_password(_one_line(said))}. {case.remedy}")
    made.__cause__ = type(error)(address.without_password(str(error)))
    return made


def _case_of(said: str) -> Case:
    return next((case for case in REFUSALS if re.search(case.said, said, re.IGNORECASE)), AWAY)


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn the driver's errors into ours, the driver's as the cause."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, address) from error


def translate(error: psycopg.Error, address: Address) -> RotaError:
    """Return our error for one of the driver's, on a connection that was there."""
    said = address.without_password(first_line(error))
    where = address.shown
    match error:
        case errors.LockNotAvailable():
            return StoreBusy(f"others have held {where} for too long (setting busy_timeout): {said}")
        case errors.DeadlockDetected() | errors.SerializationFailure():
            return StoreBusy(f"this and another transaction in {where} stood in each other's way: {said}. Repeat it")
        case errors.IntegrityError() if is_moved(error):
            return StoreMoved(said)
        case errors.IntegrityError():
            return IllegalMove(said)
        case psycopg.DataError() if _is_nul(error, said):
            return InvalidOption("a text holds the character NUL (U+0000), which PostgreSQL can't hold: leave it out")
        case errors.StatementTooComplex():
            return InvalidParams("params are nested too deeply: at most 1,000 levels")
        case errors.InsufficientPrivilege() | errors.DuplicatePreparedStatement() | errors.InvalidSqlStatementName():
            return StoreUnusable(_wrong(error, said, address))
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.UndefinedFunction() | errors.UndefinedObject():
            return StoreUnusable(_wrong(error, said, address))
        case errors.ReadOnlySqlTransaction() | psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(_trouble(error, said, where))
        case _:
            return StoreError(f"{type(error).__name__}: {said}")


def _is_nul(error: psycopg.Error, said: str) -> bool:
    """Say whether a text was refused for what it holds: by the driver, which has no code for it, or by the server, as text or as JSON."""
    return isinstance(error, errors.UntranslatableCharacter | errors.CharacterNotInRepertoire) or "cannot contain NUL" in said


def unanswered(error: psycopg.Error, address: Address, value: object = None) -> Unanswered:
    """Return our error for a COMMIT that nobody has answered."""
    said = address.without_password(first_line(error))
    lost = Unanswered(
        f"{address.shown} was lost before it had answered a COMMIT, and what it was about may be written or not: {said}. "
        "Look, or do it again: with the same id nothing is done twice"
    )
    lost.value = value
    return lost


def _wrong(error: psycopg.Error, said: str, address: Address) -> str:
    match error:
        case errors.InsufficientPrivilege():
            return f"this role may not do that in {address.shown}: {said}. `rota grants` prints what a role needs"
        case errors.DuplicatePreparedStatement() | errors.InvalidSqlStatementName():
            return (
                f"{address.shown} is a pooler that hands a session on after each transaction, most likely ({said}): "
                "let it pool sessions (pool_mode = session), or name the server itself"
            )
        case _:
            return f"schema {address.schema!r} of {address.shown} is not what Rota made: {said}. `rota doctor` says what is missing"


def _trouble(error: psycopg.Error, said: str, where: str) -> str:
    match error:
        case errors.ReadOnlySqlTransaction():
            return f"{where} takes no writes now: {said}. Promote it, or name the server that does"
        case errors.QueryCanceled():
            return f"{where} broke off a statement: {said}. See statement_timeout of this role and database"
        case errors.DiskFull() | errors.OutOfMemory() | errors.IoError():
            return f"{where} could not do it: {said}. See the server's disk and memory; nothing was changed"
        case _:
            return f"{where} can't be reached: {said}. {AWAY.remedy}"


def first_line(error: psycopg.Error) -> str:
    """Return what the server said, in one line."""
    text = error.diag.message_primary or str(error)
    return _one_line(text.partition("\n")[0])


def is_lost(error: psycopg.Error, raw: psycopg.Connection[object]) -> bool:
    """Say whether the connection is of no more use, whatever it was asked: gone, or to a server that takes no writes any more."""
    gone = errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow | errors.ReadOnlySqlTransaction
    return raw.closed or raw.broken or isinstance(error, gone)


def _one_line(text: str) -> str:
    return " ".join(text.split()).removesuffix(".")
