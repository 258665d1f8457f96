"""Rota on PostgreSQL."""

from __future__ import annotations

import os
import time

from common import FILLER, main, payloads
from postgres import Asked, chunks, drop_database, fresh_database
from rota_peer import RotaPeer

DATABASE = os.environ.get("BENCH_ROTA_DATABASE", "rota")
UNFINISHED = "SELECT count(*) FROM rota.job_live WHERE number > %s"
KEPT = "SELECT coalesce(max(number) - min(number), 0) FROM rota.job_ends"
SIZES = """
    SELECT relname, pg_table_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup, vacuum_count + autovacuum_count
      FROM pg_stat_user_tables WHERE schemaname = 'rota'"""
NOTED = """
    SELECT calls, total_exec_time, rows, wal_bytes::bigint, toplevel, query
      FROM public.pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_LOOK_S = 0.5
_FULL_S = 0.02
LAST = "SELECT coalesce(max(number), 0) FROM rota.job_facts"


class RotaPostgres(RotaPeer):
    """A database of its own, asked over a connection of the bench's own."""

    settings = "defaults: 8 threads per worker process, two job types registered; LISTEN/NOTIFY; jobs and runs kept"

    unopened = ("reset", "remove", "over", "sizes", "note", "noted")

    def __init__(self) -> None:
        self._asked = Asked(DATABASE)

    def reset(self) -> None:
        """Make an empty database with its schema."""
        fresh_database(DATABASE)
        self.open()
        self.rota.close()

    def fill(self, jobs: int) -> None:
        """Enqueue jobs that are not counted when they run."""
        self.rota.enqueue_many(("noop", job) for job in payloads(jobs, FILLER))

    def over(self) -> None:
        """Wait until nothing is left."""
        while self.left() > 0:
            time.sleep(_LOOK_S)

    def stream(self, jobs: int, waiting_max: int, kept_max: int) -> None:
        """Enqueue so many, a chunk at a time, while few wait and what is to be forgotten is not too much."""
        for chunk in chunks(jobs):
            while self.left() > waiting_max or self._asked.value(KEPT) > kept_max:
                time.sleep(_FULL_S)
            self.rota.enqueue_many(("noop", job) for job in chunk)

    def sizes(self) -> list[dict[str, object]]:
        """Return each table's size, that of its indexes, its rows, dead rows and vacuums."""
        names = ("table", "heap", "indexes", "live", "dead", "vacuums")
        return [dict(zip(names, row, strict=True)) for row in self._asked.run(SIZES).fetchall()]

    def note(self) -> None:
        """Begin to note what each statement costs."""
        self._asked.run("CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public")
        self._asked.run("SELECT public.pg_stat_statements_reset()")
        self._asked.run("CREATE TABLE IF NOT EXISTS public.noted AS SELECT pg_current_wal_lsn() AS begun")

    def noted(self) -> dict[str, object]:
        """Return what was noted since then."""
        wal_bytes = self._asked.value("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), begun)::bigint FROM public.noted")
        names = ("calls", "ms", "rows", "wal", "toplevel", "text")
        return {"wal_bytes": wal_bytes, "statements": [dict(zip(names, row, strict=True)) for row in self._asked.run(NOTED).fetchall()]}

    def settle(self) -> None:
        """Do now what autovacuum would have done by and by, and get the checkpoint over with."""
        for command in ("VACUUM ANALYZE", "CHECKPOINT"):
            self._asked.run(command)

    def remove(self) -> None:
        """Drop the database."""
        drop_database(DATABASE)

    def left(self, after: int = 0) -> int:
        """Return the jobs that have not ended, of those numbered above `after`."""
        return self._asked.value(UNFINISHED, after)

    def last(self) -> int:
        """Return the highest number that a job has."""
        return self._asked.value(LAST)


if __name__ == "__main__":
    main(RotaPostgres())
