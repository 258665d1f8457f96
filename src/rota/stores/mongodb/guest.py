"""The caller's own transaction: one opened here, or one of a pymongo session of the caller's.

It sees the moment of its first statement. What conflicts with another transaction undoes all of it, the caller's own writes too:
callers repeat such a transaction, as they do without Rota. So does a verb that fails after it has written a part: MongoDB has no
savepoints. One that is refused before it has written anything leaves the transaction as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from rota.errors import TransactionMisuse
from rota.stores.mongodb.db import Db, Undone
from rota.stores.mongodb.documents import CODEC, Document
from rota.stores.mongodb.errors import UNKNOWN_COMMIT, unanswered
from rota.stores.mongodb.marks import FREE, Shut, busy, refuse
from rota.stores.mongodb.schema import BELLS, DOORS, WHEEL
from rota.stores.mongodb.transaction import PAUSE_S, SNAPSHOT, guest_lock
from rota.stores.verbs.db import About
from rota.stores.verbs.store import Hold

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

    def __init__(self, store: object, session: ClientSession, database: Database[Document], *, wait_s: float) -> None:
        """Take the session; see `open` and `of`."""
        self.store = store
        self.session = session
        self._database = database
        self._wait_s = wait_s
        self._taken: set[str] = set()
        self._ended = False
        self._writes = 0

    @classmethod
    def open(cls, store: object, session: ClientSession, database: Database[Document], *, wait_s: float) -> Guest:
        """Begin a transaction in a session of ours."""
        session.start_transaction(read_concern=SNAPSHOT, write_concern=WriteConcern("majority", wtimeout=max(1, round(wait_s * 1000))))
        return cls(store, session, database, wait_s=wait_s)

    @classmethod
    def of(cls, store: object, session: ClientSession, database: str) -> Guest:
        """Borrow a session of the caller's, which must be inside a transaction."""
        if not session.in_transaction:
            raise TransactionMisuse("this session is not inside a transaction: start one, or leave transaction= out")
        return cls(store, session, session.client.get_database(database, CODEC), wait_s=0)

    @property
    def is_alone(self) -> bool:
        """Say whether it keeps everybody else from writing until it ends."""
        return WHEEL in self._taken

    def lent(self, hold: Hold) -> Lent:
        """Return the session for a verb that keeps this much to itself, until the transaction ends."""
        if self._ended:
            raise TransactionMisuse("this transaction is over: use it inside its block")
        if not self.session.in_transaction:
            raise TransactionMisuse(UNDONE)
        if hold is not Hold.NOTHING:
            names = {guest_lock()} if not self._taken else set()
            names |= {WHEEL, *DOORS} if hold is Hold.ALL else set()
            missing = names - self._taken
            if missing:
                self._take(missing)
        return Lent(self._database, self.session)

    def _take(self, names: set[str]) -> None:
        locks = self._database["locks"]
        free = {"_id": {"$in": sorted(names)}, **FREE}
        if locks.update_many(free, {"$inc": {"turns": 1}}, session=self.session).matched_count != len(names):
            try:
                refuse(locks.find_one({"_id": WHEEL}, session=self.session) or {})
            except Shut:
                raise busy(self._database.name) from None
        # The hint comes with the caller's commit.
        rung = {"_id": {"$in": sorted(names.intersection(BELLS))}}
        self._database["bell"].update_many(rung, {"$inc": {"rings": 1}}, session=self.session)
        self._taken |= names

    @contextmanager
    def lending(self, hold: Hold) -> Iterator[Lent]:
        """Lend the session for one verb; if it fails after it has written something, undo the transaction."""
        lent = self.lent(hold)
        try:
            yield lent
            lent.flush()
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
        if not self.session.in_transaction:
            raise TransactionMisuse(UNDONE)
        end = time.monotonic() + self._wait_s
        while True:
            try:
                self.session.commit_transaction()
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
        if self.session.in_transaction:
            try:
                self.session.abort_transaction()
            except PyMongoError:
                return

    def end(self) -> None:
        """Let nobody use it any more."""
        self._ended = True
