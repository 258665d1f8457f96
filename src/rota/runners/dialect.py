"""What the SQL runner asks of a kind of database. A further kind is a module with a function `dialect`, named in `rota.runners.sql`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from rota.model.decide import Failed, Outcome
from rota.model.schedules import JobKind
from rota.ports.runner import BodyRefused, Control, Database, Order, UnfitDatabase, Unreachable


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a database that was asked whether it can be used."""

    server: str
    """Its product: PostgreSQL or SQLite."""
    version: str
    login: str | None
    """The user that jobs are; None where the database has no users."""
    seconds: float


class ConnectFailed(Unreachable):
    """A database that could not be opened, and whether another attempt may have more luck."""

    def __init__(self, message: str, *, code: str | None = None, permanent: bool = False) -> None:
        """Take why, the database's code for it, and whether somebody has to change something first."""
        super().__init__(message)
        self.code = code
        self.permanent = permanent


class Dialect(Protocol):
    """One kind of database. Every method may be called from several threads at once; nothing is kept between calls."""

    def run(self, order: Order, database: Database, control: Control) -> Outcome:
        """Run the body in one transaction. May raise what `failure` takes if nothing was committed."""

    def check(self, database: Database, kind: JobKind, body: str, *, names: Collection[str], run_as: str | None) -> None:
        """Ask the database to prepare the body; raise BodyRefused, Unreachable or UnfitDatabase."""

    def probe(self, database: Database) -> Probe:
        """Connect and say who answered; raise Unreachable or UnfitDatabase."""


def failure(refused: BodyRefused | Unreachable | UnfitDatabase) -> Failed:
    """Return the outcome of a run whose body or database was refused."""
    match refused:
        case BodyRefused():
            return Failed(str(refused), permanent=True, error_code=refused.sqlstate)
        case UnfitDatabase():
            return Failed(str(refused), permanent=True, error_code="28000")
        case ConnectFailed():
            return Failed(str(refused), permanent=refused.permanent, error_code=refused.code)
        case _:
            return Failed(str(refused), error_code="08001")
