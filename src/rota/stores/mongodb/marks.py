"""Marks on the documents of `locks`: a store that was moved, and one that is being copied, or written by a copy.

A copy takes longer than a transaction may. So it does not hold the documents but marks them, for a time that it prolongs as long as it
lives: others wait while the mark is valid. A copy to here is written into collections of their own, beside those of the store. When it is
whole, the mark says so, and from then on it takes the place of the store, by renaming; also if the process dies on the way, for then
whoever uses the store next completes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, Self
from uuid import uuid4

from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from rota.errors import StoreBusy, StoreMoved
from rota.model.values import Instant
from rota.stores.mongodb.documents import Document
from rota.stores.mongodb.schema import LOCKS, WHEEL
from rota.stores.verbs.db import MOVED

BESIDE = "copying."
"""How the names of collections begin that a copy is written into."""
FREE: Document = {"moved": None, "copying": None}
"""The filter for documents of `locks` that anybody may write."""
VALID_S = 20.0
"""How long a mark is valid after the process that made it was last seen."""
ALL: Document = {"_id": {"$in": list(LOCKS)}}
NAMESPACE_NOT_FOUND = 26
OVERDUE = {"$lt": ["$copying.until", "$$NOW"]}


class Shut(Exception):  # noqa: N818 - a signal to the transaction, not an error of anybody
    """The store is being copied, or written by a copy: nobody else may write until that is over."""


def is_free(database: Database[Document]) -> bool:
    """Say whether the store was neither moved nor is being copied."""
    return database["locks"].find_one({"_id": WHEEL, **FREE}, {"_id": 1}) is not None


def refuse(wheel: Document) -> NoReturn:
    """Raise why the documents of `locks` can't be written."""
    if "moved" in wheel:
        raise StoreMoved(f"{MOVED} {wheel['moved']}: give that as the store")
    raise Shut


def busy(url: str) -> StoreBusy:
    """Return what those are told who have waited too long for a copy."""
    return StoreBusy(f"{url} is being copied: wait until `rota promote` has finished (setting busy_timeout)")


class Staged(Database[Document]):
    """The collections that a copy is written into, under the names of those whose place they will take."""

    def __getitem__(self, name: str) -> Collection[Document]:
        """Return a collection beside the store's."""
        return super().__getitem__(name if name in {"locks", "bell"} else BESIDE + name)


class Mark:
    """The mark of one copy, prolonged by a thread as long as its block lasts."""

    def __init__(self, database: Database[Document]) -> None:
        """Take the store that is marked; `put` marks it."""
        self._locks = database["locks"]
        self._by = uuid4().hex
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._prolong, name="rota-copying", daemon=True)

    def put(self, session: ClientSession | None = None, *, where: Document | None = None) -> bool:
        """Mark every document, and say whether it is ours alone."""
        done = self._locks.update_many(ALL | (where or {}), [{"$set": {"copying": {"by": self._by, "until": _until()}}}], session=session)
        return done.matched_count == len(LOCKS)

    def __enter__(self) -> Self:
        """Keep the mark valid."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Take the mark off."""
        self._over.set()
        self._thread.join()
        with suppress(PyMongoError):
            # If that fails, it becomes invalid on its own.
            self.take_off()

    def take_off(self) -> None:
        """Let others write again, unless a copy is complete and not in place: whoever uses the store next completes that."""
        self._locks.update_many({"copying.by": self._by, "copying.whole": None}, {"$unset": {"copying": ""}})

    def is_there(self) -> bool:
        """Say whether nobody else can have written since it was made."""
        return self._locks.count_documents({"copying.by": self._by, "$expr": {"$not": [OVERDUE]}}) == len(LOCKS)

    def replace(self, session: ClientSession, change: Document) -> bool:
        """Change every document that is still marked, and say whether all were."""
        return self._locks.update_many(ALL | {"copying.by": self._by}, change, session=session).matched_count == len(LOCKS)

    def _prolong(self) -> None:
        while not self._over.wait(VALID_S / 4):
            try:
                self._locks.update_many({"copying.by": self._by}, [{"$set": {"copying.until": _until()}}])
            except PyMongoError:
                # The next attempt may succeed; if none does, the mark becomes invalid, and `is_there` says so.
                continue


def _until() -> Document:
    return {"$add": ["$$NOW", round(VALID_S * 1000)]}


def moved(to: str, at: Instant) -> Document:
    """Return the change that closes a store."""
    return {"$set": {"moved": to, "moved_at": at}, "$unset": {"copying": ""}}


REOPENED: Document = {"$unset": {"moved": "", "moved_at": ""}}
WHOLE: Document = {"$set": {"copying.whole": 1}}
"""The copy is complete: it takes the place of what was there."""


def settle(database: Database[Document]) -> None:
    """End what the copy of a dead process left: take its mark off, and put in place what was complete."""
    wheel = database["locks"].find_one({"_id": WHEEL, "$expr": OVERDUE, "copying": {"$exists": True}})
    if wheel is None:
        return
    if "whole" in wheel["copying"]:
        put_in_place(database)
        return
    overdue = {"copying.by": wheel["copying"]["by"], "$expr": OVERDUE}
    in_transaction(database, lambda session: database["locks"].update_many(overdue, {"$unset": {"copying": ""}}, session=session))


def put_in_place(database: Database[Document]) -> None:
    """Give the collections of a complete copy their names, and open the store. Two may do this at once."""
    for name in names_beside(database):
        try:
            database[name].rename(name.removeprefix(BESIDE), dropTarget=True)
        except OperationFailure as error:
            if error.code != NAMESPACE_NOT_FOUND:
                raise
    gone = {"moved": "", "moved_at": "", "copying": ""}
    in_transaction(database, lambda session: database["locks"].update_many({"copying.whole": 1}, {"$unset": gone}, session=session))


def names_beside(database: Database[Document]) -> list[str]:
    """Return the names of collections that a copy was written into."""
    return sorted(name for name in database.list_collection_names() if name.startswith(BESIDE))


def in_transaction(database: Database[Document], work: Callable[[ClientSession], object]) -> None:
    """Do a piece of work that can be repeated in a transaction."""
    with database.client.start_session() as session:
        session.with_transaction(work)
