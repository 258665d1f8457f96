"""Bounds of scans: as filters of the server, and as conditions on what was put together here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rota.ports.scan import Bound, Compares
from rota.stores.mongodb.documents import Document
from rota.stores.mongodb.schema import THERE

NEVER: Document = {"_id": {"$in": []}}
"""A filter that nothing meets: as in SQL, nothing compares with NULL."""
OWNER = "owner"
"""The column that a bound of kind OWNED looks at beside its own."""


def filter_of(bound: Bound, names: Mapping[str, str]) -> Document:
    """Return a bound as a filter; `names` are the names of columns in documents."""
    name, value = names[bound.column], bound.value
    match bound.compares:
        case Compares.GIVEN:
            return {name: THERE}
        case Compares.OWN_OR_SHARED:
            return {name: {"$in": [None, value]}}
        case Compares.AMONG:
            return {name: {"$in": list(value)}}
        case Compares.OWNED:
            return {"$or": [{names[OWNER]: bound.owner}, {name: {"$in": list(value)}}]}
        case _ if value is None:
            return NEVER
        case Compares.EQUAL:
            return {name: value}
        case Compares.LEAST:
            return {name: {"$gte": value}}
        case Compares.MOST:
            return {name: {"$lte": value}}


def condition_of(bound: Bound) -> Callable[..., bool]:
    """Return a bound as a condition on the value of its column; that of one of kind OWNED takes the owner's too."""
    given = bound.value
    match bound.compares:
        case Compares.GIVEN:
            return lambda value: value is not None
        case Compares.OWN_OR_SHARED:
            return lambda value: value is None or value == given
        case Compares.AMONG:
            several = frozenset(given)
            return lambda value: value in several
        case Compares.OWNED:
            granted, owner = frozenset(given), bound.owner
            return lambda value, whose: whose == owner or value in granted
        case Compares.EQUAL:
            return lambda value: value is not None and value == given
        case Compares.LEAST:
            return lambda value: value is not None and given is not None and value >= given
        case Compares.MOST:
            return lambda value: value is not None and given is not None and value <= given
