"""The yardstick: what SQLite itself does on this disk with one bare table (apsw, WAL, synchronous=FULL)."""

from __future__ import annotations

import json

import apsw
from common import STORES, Peer, main, payload, remove_sqlite

FILE = STORES / "plain.db"
INSERT = "INSERT INTO job (state, data) VALUES (0, ?)"


class PlainSqlite(Peer):
    """No scheduler at all: rows in, commits counted."""

    settings = "apsw, one bare table, WAL, synchronous=FULL"

    def version(self) -> str:
        """Return SQLite's version."""
        return apsw.sqlite_lib_version()

    def reset(self) -> None:
        """Make the empty table."""
        remove_sqlite(FILE)
        self.open()
        self.db.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, data TEXT NOT NULL)")

    def open(self) -> None:
        """Open the file with the durability that Rota uses."""
        self.db = apsw.Connection(str(FILE))
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")

    def enqueue(self, rows: int) -> None:
        """Commit one row at a time."""
        for number in range(rows):
            self.db.execute(INSERT, (json.dumps(payload(number)),))

    def bulk(self, rows: int, per_commit: int = 100) -> None:
        """Commit rows in transactions of a hundred."""
        for first in range(0, rows, per_commit):
            self.db.execute("BEGIN IMMEDIATE")
            self.db.executemany(INSERT, [(json.dumps(payload(first + k)),) for k in range(per_commit)])
            self.db.execute("COMMIT")


if __name__ == "__main__":
    main(PlainSqlite())
