"""Joins in chunks: the documents of another collection, asked for by many keys at a time.

The server's own `$lookup` costs ten times as much for each document, and an operation over many would exceed its time limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from rota.stores.mongodb.db import Db
from rota.stores.mongodb.documents import Document, Row

T = TypeVar("T")

CHUNK = 5000
"""Keys that are asked for at a time."""


def in_chunks(values: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Return the values in lists of this length."""
    rest = iter(values)
    while chunk := list(islice(rest, size)):
        yield chunk


def among(
    db: Db, collection: str, column: str, values: Iterable[Any], columns: Iterable[str] | None = (), /, **where: Any
) -> Iterator[Document]:
    """Return the documents that have one of these values in a column, and match."""
    for chunk in in_chunks(values):
        yield from db.find(collection, {column: {"$in": chunk}} | where, columns)


def users_of(db: Db, templates: Iterable[Document], organization_id: str, limit: int) -> list[Row]:
    """Return what has one of these templates: a job of an organization by its name, and a template that all share with that word."""
    found = list(templates)
    own = [each for each in found if "organization_id" in each]
    shared = [each for each in found if "organization_id" not in each]
    jobs = among(db, "schedules", "template_id", (each["_id"] for each in own), ("name",), organization_id=organization_id, dropped_at=None)
    users = [each["name"] for each in jobs] + [f"template {each['name']}" for each in shared]
    return [(user,) for user in sorted(users)[:limit]]


def present(db: Db, collection: str, column: str, values: Iterable[Any], /, **where: Any) -> set[Any]:
    """Return those of some values that a column has. An index on it has one step for each, however many documents have it."""
    stages: list[Document] = [{"$sort": {column: 1}}, {"$group": {"_id": f"${column}"}}]
    chunks = in_chunks(values)
    return {found["_id"] for chunk in chunks for found in db.aggregate(collection, [{"$match": {column: {"$in": chunk}} | where}, *stages])}


def unmatched(db: Db, collection: str, column: str, others: Iterable[str]) -> Iterator[int]:
    """Return the numbers in a column that are no keys of the other collections, in order. Each collection is walked once."""
    numbers = (found[column] for found in db.cursor(collection, {column: {"$gte": 0}}, (column,), sort=[(column, 1)]))
    for chunk in in_chunks(numbers):
        between = {"_id": {"$gte": chunk[0], "$lte": chunk[-1]}}
        known = {found["_id"] for other in others for found in db.cursor(other, between, ())}
        yield from (number for number in dict.fromkeys(chunk) if number not in known)
