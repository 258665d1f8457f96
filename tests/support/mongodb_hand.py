"""A hand in a store on MongoDB that does what the store's port forbids, and brings back what the tests of a process share.

Only collections with documents are emptied: emptying all of them takes longer than most tests do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from pymongo import MongoClient

from rota.stores.mongodb import MongoStore
from rota.stores.mongodb.documents import TYPES
from rota.stores.mongodb.schema import COLLECTIONS, COUNTERS, KEYS, LOCKS, META, RULES
from tests.support.mongodb import shared_set

Document = dict[str, Any]

LASTING = {"locks", "counters", "meta", "organizations", "bell"}
"""Collections with documents that a new store has."""
DEFAULT = {"display_name": "Default", "state": "ACTIVE", "created_at": 0, "signs": 0}
_UPDATE = re.compile(r"UPDATE (\w+) SET (.+?)(?: WHERE (\w+) = (.+))?$", re.DOTALL)
_DELETE = re.compile(r"DELETE FROM (\w+)(?: WHERE (\w+) = (.+))?$")
_INSERT = re.compile(r"INSERT INTO (\w+) \((.+?)\) VALUES \((.+)\)$")
_SETS = re.compile(r"(\w+) = ('(?:[^']|'')*'|[^,]+)")


class Hand:
    """One client for all that the tests of this process do in one database."""

    def __init__(self, database: str) -> None:
        usual: dict[str, Any] = {"retryWrites": True, "w": "majority", "readConcernLevel": "majority", "tz_aware": True, "maxPoolSize": 20}
        self.client: MongoClient[Document] = shared_set().client(type_registry=TYPES, **usual)
        self.database = self.client[database]

    def lend_client(self, store: MongoStore) -> None:
        """Give a store this client: to connect takes longer than many tests do. Closing the store does not close it."""
        store._connections._open = lambda: self.client  # type: ignore[method-assign]
        store._connections.close = lambda: None  # type: ignore[method-assign]

    def empty(self) -> None:
        """Bring the database back to what a new one is."""
        for name in self._filled():
            self.database[name].delete_many({})
        self.database["organizations"].delete_many({"_id": {"$ne": "default"}})
        self.database["organizations"].replace_one({"_id": "default"}, DEFAULT, upsert=True)
        self.database["locks"].update_many({"_id": {"$in": list(LOCKS)}}, {"$unset": {"moved": "", "sessions": ""}})
        self.database["meta"].delete_many({"_id": {"$nin": ["schema", *META]}})
        self.database["meta"].update_many(
            {"_id": {"$in": list(META)}}, [{"$set": {"value": {"$cond": [{"$eq": ["$_id", "definitions_version"]}, 1, 0]}}}]
        )
        self.database["counters"].update_many({"_id": {"$in": list(COUNTERS)}}, {"$set": {"value": 0}})

    def _filled(self) -> list[str]:
        """Return the collections with documents that a new store does not have, in one question."""
        first, *others = sorted(set(COLLECTIONS) - LASTING)
        one = {name: [{"$limit": 1}, {"$project": {"_id": 0, "name": {"$literal": name}}}] for name in (first, *others)}
        stages = [*one[first], *({"$unionWith": {"coll": name, "pipeline": one[name]}} for name in others)]
        return [found["name"] for found in self.database[first].aggregate(stages)]

    def find(self, collection: str, **where: Any) -> list[Document]:
        """Return documents in the order of their keys."""
        return list(self.database[collection].find(where).sort("_id", 1))

    def insert(self, collection: str, *documents: Document) -> None:
        self.database[collection].insert_many(list(documents), bypass_document_validation=True)

    def update(self, collection: str, where: Document, **columns: Any) -> None:
        gone = {name: "" for name, value in columns.items() if value is None}
        kept = {name: value for name, value in columns.items() if value is not None}
        change = ({"$set": kept} if kept else {}) | ({"$unset": gone} if gone else {})
        self.database[collection].update_many(where, change, bypass_document_validation=True)

    def delete(self, collection: str, **where: Any) -> None:
        self.database[collection].delete_many(where)

    def refuse(self, collection: str, document: Document) -> Callable[[], None]:
        """Have a validator refuse such documents; return what takes it away."""
        own = RULES.get(collection, {})
        self.database.command("collMod", collection, validator={"$and": [own, {"$nor": [document]}]})
        return lambda: self.database.command("collMod", collection, validator=own) and None

    def run(self, statement: str) -> None:
        """Do what a plain UPDATE, DELETE or INSERT of the tests says, with at most one condition."""
        if match := _UPDATE.match(statement):
            collection, sets, column, value = match.groups()
            columns = {name: _value(text) for name, text in _SETS.findall(sets)}
            self.update(collection, {} if column is None else {_key(collection, column): _value(value)}, **columns)
        elif match := _DELETE.match(statement):
            collection, column, value = match.groups()
            self.delete(collection, **({} if column is None else {_key(collection, column): _value(value)}))
        elif match := _INSERT.match(statement):
            collection, columns_, values = match.groups()
            names = [_key(collection, name.strip()) for name in columns_.split(",")]
            self.insert(collection, dict(zip(names, [_value(text) for text in values.split(", ")], strict=True)))
        else:
            raise AssertionError(f"a hand on MongoDB can't do this: {statement}")


def _key(collection: str, column: str) -> str:
    return "_id" if KEYS.get(collection) == column else column


def _value(text: str) -> Any:
    text = text.strip()
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return None if text == "NULL" else msgspec.json.decode(text)


@cache
def mongodb_hand(database: str) -> Hand:
    """Return the hand of this process."""
    return Hand(database)
