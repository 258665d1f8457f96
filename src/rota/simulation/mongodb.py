"""A MongoDB store that a simulation reads. The server can't keep a session of this user from writing, so the store refuses to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from rota.errors import StoreError, StoreUnusable
from rota.stores.mongodb import MongoStore
from rota.stores.mongodb.connection import refuse_unfit
from rota.stores.mongodb.db import Db
from rota.stores.mongodb.errors import translated
from rota.stores.mongodb.migrate import version_of
from rota.stores.mongodb.schema import VERSION
from rota.stores.verbs.store import Hold


class ReadOnlyMongo(MongoStore):
    """A store that is only read, and not brought up to date."""

    def exists(self) -> bool:
        """Say whether the database holds a store; refuse one that would have to be changed before it can be read."""
        with translated(self.address):
            client = self._connections.client
            refuse_unfit(client, self.address)
            found = version_of(client[self.address.database], self.address)
        if 0 < found < VERSION:
            raise StoreUnusable(
                f"{self.url} has schema {found}, and a simulation does not change it: `rota stats` brings it up to {VERSION}"
            )
        return found > 0

    def transaction(self) -> NoReturn:
        """Refuse to open the caller's own transaction."""
        self._refuse()

    def join(self, transaction: object) -> NoReturn:
        """Refuse to write in a transaction of the caller's."""
        del transaction
        self._refuse()

    def _write(self, work: Callable[[Db], object], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False) -> NoReturn:
        del work, hold, patient, long
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StoreError(f"{self.url} is open for reading only")
