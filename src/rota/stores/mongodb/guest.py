"""The caller's own transaction: one opened here, or one of a pymongo session of the caller's.

It sees the moment of its first statement. What conflicts with another transaction undoes all of it, the caller's own writes too:
callers repeat such a transaction, as they do without Rota. One that was opened here waits for others as long as there is nothing in it.
A verb that fails after it has written a part undoes the transaction too: MongoDB has no savepoints. One that is refused before it has
written anything leaves the transaction as it was.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import PyMongoError

from rota.errors import TransactionMisuse
from rota.stores.mongodb.db import Db, Undone
from rota.stores.mongodb.documents import CODEC, Document
from rota.stores.mongodb.errors import UNKNOWN_COMMIT, is_transient, unanswered
from rota.stores.mongodb.marks import FREE, Shut, busy, refuse
from rota.stores.mongodb.schema import BELLS, DOORS, WHEEL
from rota.stores.mongodb.transaction import PAUSE_S, SNAPSHOT, guest_lock, majority
from rota.stores.verbs.db import About
from rota.stores.verbs.store import Hold

Wait = Callable[[ClientSession, tuple[str, ...], float], None]
UNDONE = "this transaction was undone when a part of it failed, for MongoDB has no savepoints: begin it again"


class Lent(Db):
    """A session in a transaction that is the caller's: no part of it can be undone alone."""

    __slots__ = ()

    @contextmanager
    def savepoint(self, about: About) -> Iterator[None]:
        """Let what fails fail: the server has undone the whole transaction."""
        try:
            with super().savepoint(about):
                yield
        except Undone as undone:
            raise undone.error from undone

    def change(self, name: str, /, **values: Any) -> int:
        """Run a statement, but for one that others would have to wait for."""
        # The clock of a priority continues from where it is, and order is kept.
        return 0 if name == "clock_reset" else super().change(name, **values)


class Guest:
    """A transaction of the caller's."""

    def __init__(self, store: object, session: ClientSession, database: Database[Document], *, wait_s: float, wait: Wait | None) -> None:
        """Take the session; see `open` and `of`."""
        self.store = store
        self._wait = wait
        """Waits for those who hold documents of `locks`. None: there is, or may be, something in the transaction."""
        self._session = session
        self._database = database
        self._wait_s = wait_s
        self._taken: set[str] = set()
        self._ended = False
        self._writes = 0

    @classmethod
    def open(cls, store: object, session: ClientSession, database: Database[Document], *, wait_s: float, wait: Wait) -> Guest:
        """Begin a transaction in a session of ours."""
        guest = cls(store, session, database, wait_s=wait_s, wait=wait)
        guest._begin()
        return guest

    @classmethod
    def of(cls, store: object, session: ClientSession, database: str) -> Guest:
        """Borrow a session of the caller's, which must be inside a transaction."""
        if not session.in_transaction:
            raise TransactionMisuse("this session is not inside a transaction: start one, or leave transaction= out")
        return cls(store, session, session.client.get_database(database, CODEC), wait_s=0, wait=None)

    def _begin(self) -> None:
        self._session.start_transaction(read_concern=SNAPSHOT, write_concern=majority(self._wait_s))

    @property
    def session(self) -> ClientSession:
        """Return the session, in which the caller may write what it likes."""
        self._wait = None
        return self._session

    @property
    def is_alone(self) -> bool:
        """Say whether it keeps everybody else from writing until it ends."""
        return WHEEL in self._taken

    def lent(self, hold: Hold) -> Lent:
        """Return the session for a verb that keeps this much to itself, until the transaction ends."""
        if self._ended:
            raise TransactionMisuse("this transaction is over: use it inside its block")
        if not self._session.in_transaction:
            raise TransactionMisuse(UNDONE)
        if hold is Hold.NOTHING:
            self._wait = None
        else:
            self._hold({WHEEL, *DOORS} if hold is Hold.ALL else set())
        return Lent(self._database, self._session)

    def _hold(self, names: set[str]) -> None:
        """Write these documents of `locks`, and one of the guests'. While there is nothing in the transaction, wait for who holds them."""
        end, pause = time.monotonic() + self._wait_s, PAUSE_S[0]
        while missing := (names if self._taken else names | {guest_lock()}) - self._taken:
            try:
                self._take(missing)
            except PyMongoError as error:
                if self._wait is None or not is_transient(error) or time.monotonic() + PAUSE_S[1] > end:
                    raise
                self.abort()
                self._taken.clear()
                if names:
                    self._wait_for(names, end)
                time.sleep(pause * random.random())  # noqa: S311 - so that two do not meet again
                pause = min(2 * pause, PAUSE_S[1])
                self._begin()

    def _wait_for(self, names: set[str], end: float) -> None:
        assert self._wait is not None  # noqa: S101 - the caller looked
        try:
            self._wait(self._session, tuple(sorted(names)), end)
        except Shut:
            raise busy(self._database.name) from None

    def _take(self, names: set[str]) -> None:
        locks = self._database["locks"]
        free = {"_id": {"$in": sorted(names)}, **FREE}
        if locks.update_many(free, {"$inc": {"turns": 1}}, session=self._session).matched_count != len(names):
            try:
                refuse(locks.find_one({"_id": WHEEL}, session=self._session) or {})
            except Shut:
                raise busy(self._database.name) from None
        # The hint comes with the caller's commit.
        rung = {"_id": {"$in": sorted(names.intersection(BELLS))}}
        self._database["bell"].update_many(rung, {"$inc": {"rings": 1}}, session=self._session)
        self._taken |= names

    @contextmanager
    def lending(self, hold: Hold) -> Iterator[Lent]:
        """Lend the session for one verb; if it fails after it has written something, undo the transaction."""
        lent = self.lent(hold)
        try:
            yield lent
            lent.flush()
            self._wait = None
        except BaseException:
            if lent.writes:
                self.abort()
            raise
        finally:
            self._writes += lent.writes

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the whole transaction if the block raises after jobs were written in it: a part of it can't be undone."""
        before = self._writes
        try:
            yield
        except BaseException:
            if self._writes != before:
                self.abort()
            raise

    def stop(self) -> None:
        """Let what is under way end by itself."""

    def commit(self) -> None:
        """Commit; say it again where the answer is lost."""
        if not self._session.in_transaction:
            raise TransactionMisuse(UNDONE)
        end = time.monotonic() + self._wait_s
        while True:
            try:
                self._session.commit_transaction()
            except PyMongoError as error:
                if not error.has_error_label(UNKNOWN_COMMIT):
                    raise
                if time.monotonic() >= end:
                    raise unanswered(error, self.store.address) from error  # type: ignore[attr-defined] # a MongoStore
                time.sleep(PAUSE_S[1])
            else:
                return

    def abort(self) -> None:
        """Undo it."""
        if self._session.in_transaction:
            try:
                self._session.abort_transaction()
            except PyMongoError:
                return

    def end(self) -> None:
        """Let nobody use it any more."""
        self._ended = True
