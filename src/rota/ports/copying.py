"""A store as a whole: how all of it is read, written and closed, whatever it is kept in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import msgspec

from rota.model.values import Instant, WorkerInfo


class Kind(StrEnum):
    """What a column holds, in words that every store understands. Any of them may be unset."""

    ID = "id"
    """16 bytes."""
    WHOLE = "whole"
    REAL = "real"
    TEXT = "text"
    DIGEST = "digest"
    """Bytes of any length."""


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    name: str
    kind: Kind


class Table(msgspec.Struct, frozen=True):
    """One table in the form that all stores share. Its rows are read in the order of its key, by bytes."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)


Row: TypeAlias = tuple[Any, ...]
"""The values of one row in the order of the table's columns: bytes, int, float, str or None."""


class Moved(msgspec.Struct, frozen=True):
    """When a store was closed, and where what it held has gone."""

    at: Instant
    to: str


class Reading(Protocol):
    """A store as it stood at one moment."""

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""

    def rows(self, table: Table) -> Iterator[Row]:
        """Go through a table in the order of its key, holding no more of it than a row at a time."""

    def order(self) -> Iterator[Row]:
        """Go through the ids of all QUEUED jobs in the queue's order."""

    def workers(self) -> list[WorkerInfo]:
        """Return workers and clients that have not ended."""

    def direct(self) -> str | None:
        """Return the id of who waits for a direct execution, if anybody does."""


class Writing(Reading, Protocol):
    """A store that is written anew: nobody sees anything of it before the block ends well, and everything from then on."""

    def clear(self) -> None:
        """Throw away what is there, and put the rules for moves out of force: rows come as they are."""

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows, which come in the order of the tables."""

    def finish(self) -> None:
        """Put the rules back in force and see that what stands there keeps them; raise StoreError if not."""


class Guard(Protocol):
    """Keeps everybody else from writing to a store."""

    def check(self) -> None:
        """Raise StoreUnavailable if others may have written after all."""

    def close_store(self, moved: Moved) -> None:
        """Close the store for good and let go of it: from now on whoever opens it or writes to it is told where it went."""


class Depot(Protocol):
    """A store that can be copied as a whole, or be such a copy."""

    url: str
    """As people may see it."""
    tables: tuple[Table, ...]
    """All that is copied, those first that others refer to."""
    takes_nul: bool
    """Whether its texts may hold a NUL character."""

    def identity(self) -> str:
        """Return the same word for the same store, however it was named."""

    def exists(self) -> bool:
        """Say whether there is a store already, be it an empty one."""

    def prepare(self, *, now: Instant) -> None:
        """Refuse what can't be used, and bring the schema up to date, also of a store that is closed. A file is not made by this."""

    def moved(self) -> Moved | None:
        """Say whether it is closed, and where it went."""

    def others(self) -> list[str]:
        """Return the names of tables beside ours, which are not copied."""

    def snapshot(self) -> AbstractContextManager[Reading]:
        """Read the store as it stands now, for the time of a block, whoever writes meanwhile."""

    def hold(self) -> AbstractContextManager[Guard]:
        """Let nobody else write for the time of a block. Others wait, at most for their `busy_timeout`."""

    def writing(self) -> AbstractContextManager[Writing]:
        """Write the store anew, making it if it is not there. An exception in the block leaves everything as it was."""

    def reopen(self) -> None:
        """Take back that it was closed."""
