"""PgQueuer on PostgreSQL, over asyncpg and, as with its own command line, uvloop."""

from __future__ import annotations

import json
from importlib.metadata import version

import asyncpg
import uvloop
from common import Payload, main, started
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from postgres import Asked, AsyncPeer, fresh_database, url_of

DATABASE = "pgqueuer"
BATCH = 500


class Pgqueuer(AsyncPeer):
    """Jobs fetched and their ends written in batches of 500; its default of 10 is far slower."""

    settings = f"asyncpg, uvloop, batch_size={BATCH}, LISTEN/NOTIFY; done rows are moved to a log table"
    loop = staticmethod(uvloop.new_event_loop)

    def __init__(self) -> None:
        super().__init__()
        self._asked = Asked(DATABASE)

    def version(self) -> str:
        """Return PgQueuer's version."""
        return version("pgqueuer")

    def reset(self) -> None:
        """Make an empty database with its schema."""
        fresh_database(DATABASE)

        async def install() -> None:
            await self.connect()
            await self._queries.install()

        self._run(install())

    async def connect(self) -> None:
        """Open one connection."""
        self._queries = Queries(AsyncpgDriver(await asyncpg.connect(url_of(DATABASE))))

    async def push(self, job: Payload) -> None:
        """Enqueue one job."""
        await self._queries.enqueue("noop", json.dumps(job).encode())

    async def push_many(self, jobs: list[Payload]) -> None:
        """Enqueue a chunk by its call with lists."""
        count = len(jobs)
        await self._queries.enqueue(["noop"] * count, [json.dumps(job).encode() for job in jobs], [0] * count)

    def left(self) -> int:
        """Return the jobs still in the queue's table."""
        return self._asked.value("SELECT count(*) FROM pgqueuer")

    async def serve(self) -> None:
        """Work until SIGTERM."""
        pool = await asyncpg.create_pool(url_of(DATABASE), min_size=2, max_size=10)
        queue = PgQueuer(AsyncpgPoolDriver(pool))

        @queue.entrypoint("noop")
        async def noop(job: Job) -> None:
            started(json.loads(job.payload or b"{}"))

        await queue.run(batch_size=BATCH)


if __name__ == "__main__":
    main(Pgqueuer())
