"""Creating the collections and indexes of a store, and bringing an older one up to date."""

from __future__ import annotations

import time
from collections.abc import Iterable

from pymongo import IndexModel
from pymongo.database import Database
from pymongo.errors import OperationFailure

from rota.errors import StoreUnusable
from rota.stores.mongodb.address import Address
from rota.stores.mongodb.documents import Document
from rota.stores.mongodb.errors import OLD_SNAPSHOT
from rota.stores.mongodb.marks import settle
from rota.stores.mongodb.schema import BELLS, COLLECTIONS, COUNTERS, INDEXES, LOCKS, META, VERSION, collection_options

FIRST: dict[str, Iterable[str]] = {"locks": LOCKS, "counters": COUNTERS, "meta": META, "bell": BELLS, "organizations": ("default",)}
"""The keys of documents that a new store has, by collection."""
NAMESPACE_EXISTS = 48
SEEN_S = 10.0
"""How long a new collection may take until reads of one moment can see it."""


def migrate(database: Database[Document], address: Address) -> None:
    """Create what is missing. Two processes may start at once: every step is one that can be repeated."""
    settle(database)
    version = version_of(database, address)
    if version < VERSION:
        there = set(database.list_collection_names())
        if not version:
            _refuse_foreign(database, there, address)
        _create(database, there)


def version_of(database: Database[Document], address: Address) -> int:
    """Return the version of a store's schema, 0 if there is no store; refuse one that this code does not know."""
    version = _version(database)
    if not isinstance(version, int):
        raise foreign("meta", address)
    if version > VERSION:
        raise StoreUnusable(
            f"{address.shown} has schema {version}, and this Rota knows {VERSION}: it was written by a newer version. Update this one"
        )
    return version


def _version(database: Database[Document]) -> object:
    return (database["meta"].find_one({"_id": "schema"}) or {"value": 0})["value"]


def _refuse_foreign(database: Database[Document], there: set[str], address: Address) -> None:
    """Refuse a database in which another program has collections of the same names: its documents would be taken for ours."""
    for name in sorted(there.intersection(COLLECTIONS)):
        theirs = database[name].find_one({"_id": {"$nin": list(FIRST.get(name, ()))}}, {"_id": 1})
        # Another process may have created the store, and used it, since this one looked.
        if theirs is not None and not _version(database):
            raise foreign(name, address)


def foreign(name: str, address: Address) -> StoreUnusable:
    """Return why a database can't be a store."""
    return StoreUnusable(f"{address.shown} has a collection {name!r} that is not Rota's: a store is a whole database, so name another one")


def _create(database: Database[Document], there: set[str]) -> None:
    for name in COLLECTIONS:
        if name not in there:
            try:
                database.create_collection(name, check_exists=False, **collection_options(name))
            except OperationFailure as error:
                if error.code != NAMESPACE_EXISTS:
                    raise
    create_indexes(database)
    for name in LOCKS:
        _put(database, "locks", name, {"turns": 0})
    for name in COUNTERS:
        _put(database, "counters", name, {"value": 0})
    for name, value in META.items():
        _put(database, "meta", name, {"value": value})
    for name in BELLS:
        _put(database, "bell", name, {"rings": 0})
    _put(database, "organizations", "default", {"display_name": "Default", "state": "ACTIVE", "created_at": 0, "signs": 0})
    # Last: who finds it, finds all of it.
    database["meta"].update_one({"_id": "schema"}, {"$set": {"value": VERSION}}, upsert=True)
    wait_until_seen(database)


def create_indexes(database: Database[Document]) -> None:
    """Create the indexes that are missing."""
    for name in COLLECTIONS:
        models = [IndexModel(index.keys(), **index.options()) for index in INDEXES if index.collection == name]
        if models:
            database[name].create_indexes(models)


def _put(database: Database[Document], collection: str, key: str, document: Document) -> None:
    database[collection].update_one({"_id": key}, {"$setOnInsert": document}, upsert=True)


def wait_until_seen(database: Database[Document]) -> None:
    """Wait until reads of one moment see the collections: a server refuses those of a moment before one was created."""
    end = time.monotonic() + SEEN_S
    for name in COLLECTIONS:
        while True:
            try:
                with database.client.start_session(snapshot=True) as session:
                    database[name].find_one({}, {"_id": 1}, session=session)
            except OperationFailure as error:
                if error.code not in OLD_SNAPSHOT or time.monotonic() > end:
                    raise
                time.sleep(0.05)
            else:
                break
