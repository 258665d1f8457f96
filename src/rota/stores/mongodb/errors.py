"""The driver's errors as ours, with the remedy. The server's words may be shown; the caller's URL may contain a password.

`StoreUnavailable` can pass without help, so a worker keeps trying. `StoreUnusable` needs somebody to change something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
)

from rota.errors import (
    AnswerLost,
    IllegalMove,
    InvalidParams,
    RotaError,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
)
from rota.stores.mongodb.address import Address

_COMMAND = re.compile(r'execute command \{ (\w+): "([^"]*)".*')
"""What a refusal repeats of a command: all of it, with the session and the time of the cluster."""
_OTHER_SET = re.compile(r'No replica set members available for replica set name "([^"]*)"')
"""Servers answer, but none belongs to the set that the URL names."""
TRANSIENT, UNKNOWN_COMMIT = "TransientTransactionError", "UnknownTransactionCommitResult"
UNAUTHORIZED, AUTHENTICATION_FAILED, ATLAS_ERROR = 13, 18, 8000
BAD_VALUE, CACHE_FULL = 2, 388
INTERRUPTED = frozenset({11601, 11600, 262, CACHE_FULL})
"""Somebody ended the session or the operation, or the server's cache was full of what others write."""
OLD_SNAPSHOT = frozenset({239, 246})
"""The moment that a read was to show is gone, or a collection was created after it."""
DUPLICATE_KEY, VALIDATION = 11000, 121
ENDED = frozenset({251, 290})
"""The transaction is not there any more: nobody was in its way, but the server or an administrator ended it."""
INVALID_SIZE = 10334
GROWN = frozenset({17280, 17419, 17420})
"""An update made a document larger than 16 MB, or a key is too long for its index."""


class Refused(Exception):  # noqa: N818 - the name that verbs catch it by is the dialect's
    """A document was refused because of its content: by a rule of the store, or by one that somebody added."""


class Unanswered(AnswerLost):
    """A commit whose answer was lost, with what its work has returned, which is true if it was made."""

    value: object = None


class InCallers(PyMongoError):  # noqa: N818 - named as those of ours are
    """An error of the driver's too: its `with_transaction` begins the caller's transaction again."""


class BusyInCallers(StoreBusy, InCallers):
    """A conflict in the caller's own transaction."""


class UnavailableInCallers(StoreUnavailable, InCallers):
    """The server was lost in the caller's own transaction."""


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn the driver's errors into ours, the driver's as the cause."""
    try:
        yield
    except InCallers:
        raise
    except (PyMongoError, BSONError, Refused) as error:
        raise translate(error, address) from error


@contextmanager
def translated_for_caller(address: Address) -> Iterator[None]:
    """Turn the driver's errors in the caller's own transaction into ours; those after which it can be begun again are both."""
    try:
        yield
    except (PyMongoError, BSONError, Refused) as error:
        ours = translate(error, address)
        if is_transient(error):
            kind = UnavailableInCallers if isinstance(ours, StoreUnavailable) else BusyInCallers
            raise kind(str(ours), [TRANSIENT]) from error
        raise ours from error


def translate(error: Exception, address: Address) -> RotaError:
    """Return our error for one of the driver's."""
    said, where = address.without_password(first_line(error)), address.shown
    match error:
        case Refused() | DuplicateKeyError():
            return IllegalMove(said)
        case DocumentTooLarge() | BSONError():
            return InvalidParams(f"MongoDB can't hold this: {said}. A document has at most 16 MB")
        case ExecutionTimeout():
            return StoreUnavailable(f"{where} broke off an operation that took too long: {said}")
        case OperationFailure(code=code) if code in {UNAUTHORIZED, AUTHENTICATION_FAILED, ATLAS_ERROR}:
            return StoreUnusable(_refusal(code, said, where))
        case OperationFailure(code=code) if code == CACHE_FULL:
            return StoreBusy(
                f"{where} has no room in its cache for a transaction as large as this: {said}. "
                "Write fewer or smaller jobs at a time (setting bulk_chunk), or give the server a larger cache"
            )
        case OperationFailure(code=code) if code in OLD_SNAPSHOT or code in INTERRUPTED:
            return StoreBusy(f"{where} could not finish a read or write: {said}. Repeat it")
        case ConnectionFailure():
            return StoreUnavailable(_unreachable(said, where))
        case PyMongoError() if error.has_error_label(TRANSIENT):
            return StoreBusy(_undone(error, said, where))
        case ConfigurationError() | InvalidOperation():
            return StoreUnusable(f"{where} can't be used: {said}")
        case _:
            return StoreError(f"{type(error).__name__}: {said}")


def unanswered(error: Exception, address: Address, value: object = None) -> Unanswered:
    """Return our error for a commit that nobody has answered."""
    lost = Unanswered(
        f"{address.shown} was lost before it had answered a commit, so the change may or may not be stored: "
        f"{address.without_password(first_line(error))}. Look, or repeat it: with the same id nothing is done twice"
    )
    lost.value = value
    return lost


def is_transient(error: Exception) -> bool:
    """Say whether the whole transaction can be begun again: a conflict with another, or a primary that went away."""
    return isinstance(error, PyMongoError) and error.has_error_label(TRANSIENT)


def is_lost(error: Exception) -> bool:
    """Say whether the server is away, rather than that it refused something."""
    return isinstance(error, ConnectionFailure)


def content_error(error: BulkWriteError) -> Exception:
    """Return what a batch of writes was refused for, as a single write would have raised it."""
    details = error.details or {}
    if error.has_error_label(TRANSIENT):
        return error
    for said in details.get("writeErrors", ()):
        code, text = said.get("code"), said.get("errmsg", "")
        if code == DUPLICATE_KEY:
            return DuplicateKeyError(text, code, said)
        if (refused := refusal(code, text)) is not None:
            return refused
        if code in INTERRUPTED:
            return OperationFailure(text, code, said)
    return error


def refusal(code: int | None, text: str) -> Exception | None:
    """Return why the server refused a document because of what is in it; None if it did for another reason."""
    if code == INVALID_SIZE or (code == BAD_VALUE and "too large" in text):
        # The driver itself raises this for most, and lets others pass: those of a batch, and those that are a little too large.
        return DocumentTooLarge(text)
    return Refused(text) if code == VALIDATION or code in GROWN else None


def first_line(error: Exception) -> str:
    """Return what was said, in one line, without all that the driver knows of each server."""
    text = str(error)
    if isinstance(error, OperationFailure):
        details = error.details or {}
        # A batch has one for each document, which it repeats; the first is what it was broken off for.
        text = str(details.get("errmsg") or next((each["errmsg"] for each in details.get("writeErrors", ())), text))
    return " ".join(text.partition("\n")[0].partition(", Timeout: ")[0].split()).removesuffix(".")


def _undone(error: PyMongoError, said: str, where: str) -> str:
    if isinstance(error, OperationFailure) and error.code in ENDED:
        remedy = "If it took longer than transactionLifetimeLimitSeconds (60 by default), do less in one call; otherwise repeat it"
        return f"{where} ended this transaction: {said}. {remedy}"
    return f"this and another transaction in {where} were in each other's way: {said}. Repeat it"


def _unreachable(said: str, where: str) -> str:
    if (name := _OTHER_SET.search(said)) is not None:
        return f"{where} is not a member of a replica set called '{name[1]}': check replicaSet in the URL"
    return f"{where} can't be reached: {said}. Check that the replica set is running and has a primary"


def _refusal(code: int | None, said: str, where: str) -> str:
    if code == UNAUTHORIZED and said.endswith("requires authentication"):
        return f"{where} wants a user and a password: set ROTA_STORE to mongodb://user:password@…; authSource names the user's database"
    if code == UNAUTHORIZED:
        shortly = _COMMAND.sub(r"execute \1 on \2", said)
        return f"this user may not do that in {where}: {shortly}. `rota grants` prints the role that a user needs"
    return f"{where} refuses this user: {said}. Use the right user and password in ROTA_STORE; authSource names the database of the user"
