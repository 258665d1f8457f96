"""Rows of the store's relations, in chunks and at one moment: what queries over sys.* read. See `rota.sql.catalog`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from rota.model.gate import EVERYTHING, Scope


class Compares(StrEnum):
    """How a bound compares a column."""

    EQUAL = "="
    LEAST = ">="
    MOST = "<="
    AMONG = "in"
    """Its value is a tuple."""
    GIVEN = "is not null"
    """It has no value."""
    OWN_OR_SHARED = "= or null"
    OWNED = "in, or owned"
    """Its value is a tuple; rows of the owner meet it too."""


class Bound(msgspec.Struct, frozen=True):
    """A condition on a column. Rows that do not meet it may come too, except for the last four kinds."""

    column: str
    compares: Compares
    value: Any = None
    owner: str | None = None
    """Of OWNED."""


class Order(msgspec.Struct, frozen=True):
    """An order by one column; NULL is the least."""

    column: str
    descending: bool = False


class Snapshot(Protocol):
    """The store at one moment."""

    def scan(
        self,
        relation: str,
        columns: Sequence[str],
        *,
        bounds: Sequence[Bound] = (),
        order: Order | None = None,
        scope: Scope = EVERYTHING,
    ) -> Iterator[tuple[Any, ...]]:
        """Return the columns of the rows inside the scope that meet the bounds, in order. They are read as they are asked for.

        Ids are 32 hexadecimal digits, moments microseconds since 1970 UTC. An order must be one of `orders`.
        """

    def orders(self, relation: str) -> frozenset[Order]:
        """Return the orders that a scan of a relation has for less than all of its rows."""


class Scans(Protocol):
    """Part of the store."""

    def snapshot(self, *, timeout_s: float) -> AbstractContextManager[Snapshot]:
        """Hold one moment for a block of scans. A step that takes longer than this is cancelled with a StoreError."""
