"""Rota on SQLite."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
from common import STORES, main, remove_sqlite
from rota_peer import RotaPeer

FILE = STORES / os.environ.get("BENCH_ROTA_FILE", "rota.db")
UNFINISHED = """
    SELECT (SELECT count(*) FROM jobs WHERE status = 'QUEUED')
         + (SELECT count(*) FROM jobs WHERE status = 'RUNNING')
         + (SELECT count(*) FROM jobs WHERE status = 'PENDING' AND blockers = 0)"""  # each has an index; nothing here waits for another
UNFINISHED_AFTER = "SELECT count(*) FROM jobs NOT INDEXED WHERE number > ? AND finished_at IS NULL"  # by rowid, not over the backlog
LAST = "SELECT coalesce(max(number), 0) FROM jobs"


class RotaSqlite(RotaPeer):
    """One file, asked over a connection of the bench's own."""

    settings = "defaults: 8 threads per worker process, two job types registered; WAL, synchronous=FULL; jobs and runs kept"

    def reset(self) -> None:
        """Start with an empty file; worker locks and logs beside it are of no consequence."""
        remove_sqlite(FILE)

    def left(self, after: int = 0) -> int:
        """Return the jobs that have not ended, of those numbered above `after`."""
        return _scalar(UNFINISHED_AFTER, after) if after else _scalar(UNFINISHED)

    def last(self) -> int:
        """Return the highest number that a job has."""
        return _scalar(LAST)


def _scalar(sql: str, *values: int) -> int:
    # A connection of its own: what is asked is what the file says, not what the engine believes.
    database = apsw.Connection(str(Path(FILE)), flags=apsw.SQLITE_OPEN_READWRITE)
    database.set_busy_timeout(10_000)
    try:
        return next(database.execute(sql, values))[0]
    finally:
        database.close()


if __name__ == "__main__":
    main(RotaSqlite())
