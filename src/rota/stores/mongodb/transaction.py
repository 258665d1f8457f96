"""One piece of work as one transaction: who waits for whom, what is begun again, and what is said when nobody knows.

MongoDB has no advisory lock, and two transactions that write one document do not wait for each other: the second is refused. So each
kind of work writes documents of `locks` (see `HELD`), which serialises it with what must not run beside it:

- a turn writes the wheel;
- an enqueue writes one of the doors, so that many can run beside each other and beside a turn;
- all other work writes the wheel and every door.

Before its transaction, work writes its session into the same documents outside of any transaction. The server lets such a write wait
until the transaction that holds the document is over. A process that dies inside a transaction would hold its documents for a minute:
who waits asks the server what the sessions that are noted there do, and ends one whose transaction does nothing.

With a few producers there is hardly a moment at which every door is free. So work that needs all of them, and has met somebody there,
closes them for a moment: enqueues that come then wait, those under way end, and it has its turn.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from bson.binary import Binary
from bson.errors import BSONError
from pymongo import MongoClient, timeout
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import ExecutionTimeout, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from rota.errors import StoreBusy, StoreUnusable
from rota.model.settings import Settings
from rota.stores.mongodb.address import Address
from rota.stores.mongodb.connection import ANSWER_S
from rota.stores.mongodb.db import Db, Undone
from rota.stores.mongodb.documents import Document
from rota.stores.mongodb.errors import (
    INTERRUPTED,
    UNKNOWN_COMMIT,
    Refused,
    is_lost,
    is_transient,
    translate,
    translated,
    unanswered,
)
from rota.stores.mongodb.marks import FREE, Shut, busy, refuse, settle
from rota.stores.mongodb.schema import DOORS, GUESTS, STRIPES, THERE, WHEEL
from rota.stores.verbs.store import Hold

T = TypeVar("T")
log = logging.getLogger("rota.store")

SNAPSHOT = ReadConcern("snapshot")
HELD: dict[Hold, tuple[str, ...]] = {
    Hold.NOTHING: (),
    Hold.LIGHT: (WHEEL,),
    Hold.CLAIM: (WHEEL,),
    Hold.WHEEL: (WHEEL,),
    Hold.ALL: (WHEEL, *DOORS),
    Hold.STILL: (WHEEL, *DOORS, *GUESTS),
}
"""The documents of `locks` that each kind of work writes; an enqueue writes one of `DOORS`, a guest one of `GUESTS`."""
PAUSE_S = (0.001, 0.05)
"""Shortest and longest pause before work is begun again after a conflict."""
LOOK_S = 0.5
"""How long somebody waits before it looks at who holds what it waits for, and then again and again."""
IDLE_S = 0.9
"""A transaction that asked the server for nothing for this long has lost its process, or that is stopped: statements follow each other."""
CLOSED_S = 0.5
"""For how long doors are closed for work that needs all of them, and how long an enqueue waits before a closed one at most."""
KNOCK_S = (0.002, 0.02)
"""Shortest and longest pause before an enqueue looks whether its door is open again."""
OPENED: Document = {"$expr": {"$not": [{"$gt": ["$closed_until", "$$NOW"]}]}}
"""The filter for doors that are not closed."""
CLOSED: Document = {"closed_until": {"$add": ["$$NOW", round(CLOSED_S * 1000)]}}
"""What closes doors."""

FORGOTTEN_S = 120.0
"""Longer than a server keeps a transaction open."""
ABORT_S = 1.0
"""How long work that failed waits for the server to undo it."""

_stripes = count(random.randrange(STRIPES))  # noqa: S311 - only to spread processes


class Transactions:
    """Does pieces of work in transactions of one database."""

    def __init__(self, client: MongoClient[Document], address: Address, settings: Settings, idle: Idle) -> None:
        """Take the connections of a store, and what it knows of others' transactions."""
        self._idle = idle
        self._client = client
        self._address = address
        self._database = client[address.database]
        self._wait_s = settings.busy_timeout
        self._majority = majority(settings.busy_timeout)

    def run(self, work: Callable[[Db], T], hold: Hold) -> T:
        """Do a piece of work and commit it: once more from the beginning where another was in its way, and never after a lost answer."""
        failed: dict[Any, Exception] = {}
        names, end = held_by(hold), time.monotonic() + self._wait_s
        pause, has_failed = PAUSE_S[0], False
        with self._client.start_session(causal_consistency=False) as session:
            while True:
                db = Db(self._database, session, failed=failed)
                try:
                    self._queue_up(session, names, end, close=has_failed and len(names) > 1)
                    session.start_transaction(read_concern=SNAPSHOT, write_concern=self._majority)
                    self._take(session, names)
                    value = work(db)
                    db.flush()
                except Undone as undone:
                    _abort(session)
                    failed[undone.about] = undone.error
                    continue
                except Shut:
                    _abort(session)
                    self._settle()
                    if time.monotonic() + PAUSE_S[1] > end:
                        raise busy(self._address.shown) from None
                except Unnoted:
                    _abort(session)
                    if time.monotonic() + PAUSE_S[1] > end:
                        raise self._held_for_too_long() from None
                except (PyMongoError, BSONError, Refused) as error:
                    _abort(session)
                    # A worker has chosen for the moment in which its turn was made: its next turn chooses anew.
                    if db.is_chosen or not _again(error) or time.monotonic() + PAUSE_S[1] > end:
                        raise translate(error, self._address) from error
                except BaseException:
                    _abort(session)
                    raise
                else:
                    if self._commit(session, value, end, again=not db.is_chosen):
                        return value
                has_failed = True
                time.sleep(pause * random.random())  # noqa: S311 - so that two do not meet again
                pause = min(2 * pause, PAUSE_S[1])

    def _queue_up(self, session: ClientSession, names: tuple[str, ...], end: float, *, close: bool) -> None:
        """Wait until nobody holds these documents, with a note of this session for those who wait behind it; `close` doors if asked to."""
        if names:
            self._wait(session, names, end, {f"sessions.{lsid(session).hex}": "$$NOW"} | (CLOSED if close else {}))

    def wait_for_others(self, session: ClientSession, names: tuple[str, ...], end: float) -> None:
        """Wait the same way for a caller's transaction. It is not noted: it may do nothing for as long as its caller likes."""
        self._wait(session, names, end, CLOSED)

    def _wait(self, session: ClientSession, names: tuple[str, ...], end: float, note: Document) -> None:
        opens = time.monotonic() + (CLOSED_S if names[0] in DOORS else 0)
        pause = KNOCK_S[0]
        holders = Holders(self._client, self._database, names, session, self._idle)
        # Who does not want to wait asks once all the same.
        least_s = PAUSE_S[1]
        while True:
            patience_s = min(LOOK_S, max(least_s, end - time.monotonic()))
            least_s = 0.0
            if patience_s <= 0:
                raise self._held_for_too_long()
            # A door that is closed by one after the other is waited for no longer than that.
            knocks = OPENED if time.monotonic() < opens else {}
            try:
                done = self._database.command(
                    "update",
                    "locks",
                    updates=[{"q": {"_id": {"$in": list(names)}, "copying": None} | knocks, "u": [{"$set": note}], "multi": True}],
                    writeConcern={"w": 1},
                    maxTimeMS=max(1, round(patience_s * 1000)),
                    session=session,
                )
            except ExecutionTimeout:
                holders.end_idle()
            except OperationFailure as error:
                # This session was ended by another who waited too: it is noted anew.
                if error.code not in INTERRUPTED:
                    raise
            else:
                if done["n"] == len(names):
                    return
                if not knocks:
                    raise Shut
                time.sleep(pause * random.random())  # noqa: S311 - so that not all come in at once
                pause = min(2 * pause, KNOCK_S[1])

    def _take(self, session: ClientSession, names: tuple[str, ...]) -> None:
        """Write the documents inside the transaction; refuse a store that was moved, or is being copied."""
        locks = self._database["locks"]
        if names:
            free = {"_id": {"$in": list(names)}, **FREE, f"sessions.{lsid(session).hex}": THERE}
            taken = {"$inc": {"turns": 1}, "$unset": {"sessions": "", "closed_until": ""}}
            if locks.update_many(free, taken, session=session).matched_count == len(names):
                return
        wheel = locks.find_one({"_id": WHEEL}, {"moved": 1, "copying": 1}, session=session)
        if wheel is None or len(wheel) > 1:
            refuse(wheel or {})
        if names:
            raise Unnoted

    def _held_for_too_long(self) -> StoreBusy:
        return StoreBusy(f"others have held {self._address.shown} for too long (setting busy_timeout)")

    def _settle(self) -> None:
        """End what a dead copy left, and refuse a store that is not there any more."""
        with translated(self._address):
            settle(self._database)
            if self._database["locks"].find_one({"_id": WHEEL}) is None:
                raise StoreUnusable(f"{self._address.shown} has no store any more: somebody has dropped the database, or its collections")

    def _commit(self, session: ClientSession, value: object, end: float, *, again: bool) -> bool:
        """Commit, and say whether it is done: if not, it never was and never will be.

        A commit without an answer is said again in the same session, for the server remembers the one that was. The work is not.
        """
        while True:
            try:
                session.commit_transaction()
            except PyMongoError as error:
                if error.has_error_label(UNKNOWN_COMMIT):
                    if time.monotonic() < end:
                        time.sleep(PAUSE_S[1])
                        continue
                    raise unanswered(error, self._address, value) from error
                if again and is_transient(error) and time.monotonic() < end:
                    return False
                raise translate(error, self._address) from error
            else:
                return True


class Unnoted(Exception):  # noqa: N818 - a signal to the transaction, not an error of anybody
    """Another one that had waited as well has taken the documents in between, and with them the note of this one."""


class Idle:
    """The transactions that others have waited for in this process, to tell those that ask for nothing any more.

    It outlives the single call: with a short `busy_timeout` it takes several until one is seen to be idle.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._seen: dict[tuple[UUID, int], tuple[int, float]] = {}
        """For how long each transaction was at work when it was last seen at work, and when that was."""

    def among(self, active: dict[tuple[UUID, int], int], now: float) -> list[UUID]:
        """Return the sessions of those that are open now and have not been at work for long; each comes with how long it was at work."""
        with self._lock:
            self._seen = {key: seen for key, seen in self._seen.items() if now - seen[1] < FORGOTTEN_S}
            for key, microseconds in active.items():
                if self._seen.get(key, (-1, now))[0] != microseconds:
                    self._seen[key] = (microseconds, now)
            return [key[0] for key in active if now - self._seen[key][1] >= IDLE_S]


class Holders:
    """The sessions that may hold documents which one transaction waits for."""

    def __init__(
        self, client: MongoClient[Document], database: Database[Document], names: tuple[str, ...], own: ClientSession, idle: Idle
    ) -> None:
        """Take what is waited for, and the session that waits."""
        self._client = client
        self._locks = database["locks"]
        self._names = list(names)
        self._own = lsid(own)
        self._idle = idle

    def end_idle(self) -> None:
        """End the sessions whose transactions ask for nothing any more."""
        idle = self._idle.among(self._active(), time.monotonic())
        if idle:
            log.warning("ended %d transactions in MongoDB that did nothing for %.1f s and held up others", len(idle), IDLE_S)
            self._client.admin.command("killSessions", [{"id": Binary.from_uuid(session)} for session in idle])

    def _active(self) -> dict[tuple[UUID, int], int]:
        """Return for how many microseconds each noted transaction was at work, by its session and its number there."""
        notes = {note for lock in self._locks.find({"_id": {"$in": self._names}}) for note in lock.get("sessions", {})}
        noted = [Binary.from_uuid(UUID(note)) for note in notes if UUID(note) != self._own]
        stages: list[Document] = [
            {"$currentOp": {"allUsers": False, "idleSessions": True}},
            {"$match": {"lsid.id": {"$in": noted}, "transaction": {"$exists": True}}},
            {"$project": {"session": "$lsid.id", "number": "$transaction.parameters.txnNumber", "active": "$transaction.timeActiveMicros"}},
        ]
        admin = self._client.get_database("admin", read_concern=ReadConcern("local"))
        found = admin.aggregate(stages) if noted else ()
        return {(Binary.as_uuid(each["session"]), int(each["number"])): int(each["active"]) for each in found}


def held_by(hold: Hold) -> tuple[str, ...]:
    """Return the documents that a kind of work writes; those of enqueues take turns."""
    return (DOORS[next(_stripes) % STRIPES],) if hold is Hold.DOOR else HELD[hold]


def majority(wait_s: float) -> WriteConcern:
    """Return how a commit is acknowledged. The other members answer when they can: to wait for that is not to wait for anybody's work."""
    return WriteConcern("majority", wtimeout=round(max(ANSWER_S, wait_s) * 1000))


def guest_lock() -> str:
    """Return the document that the transaction of a caller writes while it has jobs that nobody sees yet."""
    return GUESTS[next(_stripes) % STRIPES]


def lsid(session: ClientSession) -> UUID:
    """Return the id of a session, by which the server can be asked to end it."""
    binary: Binary = session.session_id["id"]
    return binary.as_uuid()


def server_time(client: MongoClient[Document]) -> datetime:
    """Return what the primary's clock shows."""
    now: datetime = client.admin.command("hello")["localTime"]
    return now.replace(tzinfo=UTC)


def _again(error: Exception) -> bool:
    interrupted = isinstance(error, OperationFailure) and error.code in INTERRUPTED
    return is_transient(error) or interrupted or is_lost(error)


def _abort(session: ClientSession) -> None:
    if session.in_transaction:
        # If this fails, the server or the next who waits for it ends the transaction.
        with suppress(PyMongoError), timeout(ABORT_S):
            session.abort_transaction()
