"""A PostgreSQL store that a simulation reads: the server itself refuses every change on its connections."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg

from rota.errors import StoreUnusable
from rota.model.settings import Settings
from rota.stores.postgres import PostgresStore, migrate
from rota.stores.postgres.address import Address
from rota.stores.postgres.connection import Pool, open_connection
from rota.stores.postgres.errors import translated
from rota.stores.postgres.migrate import latest


class ReadOnlyPostgres(PostgresStore):
    """A store that is only read, and not brought up to date."""

    def __init__(self, url: str, settings: Settings) -> None:
        """Take where it is; connections are opened when needed."""
        super().__init__(url, settings)
        self._pool = Pool(partial(_open, self.address, settings), size=settings.pool_size, wait_s=settings.busy_timeout)

    def exists(self) -> bool:
        """Say whether the schema holds a store; refuse one that would have to be changed before it can be read."""
        with self._pool.take() as db, translated(self.address):
            rights = migrate.Rights(*db.rows("schema_rights", schema=self.address.schema)[0])
            found = migrate.version_of(db, self.address, rights)
        if 0 < found < latest():
            raise StoreUnusable(
                f"{self.url} has schema {found}, and a simulation does not change it: `rota stats` brings it up to {latest()}"
            )
        return found > 0


def _open(address: Address, settings: Settings) -> psycopg.Connection[Any]:
    raw = open_connection(address, settings)
    try:
        with translated(address):
            raw.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    except BaseException:
        raw.close()
        raise
    return raw
