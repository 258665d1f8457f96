"""Procrastinate on PostgreSQL, over psycopg 3 and asyncio."""

from __future__ import annotations

import procrastinate
from common import Payload, main, started
from postgres import Asked, AsyncPeer, fresh_database, url_of

DATABASE = "procrastinate"
CONCURRENCY = 30
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url_of(DATABASE), max_size=20))


@app.task(name="noop", retry=3)
async def noop(job: Payload) -> None:
    """Do nothing but be counted."""
    started(job)


class Procrastinate(AsyncPeer):
    """Thirty at once; its default is one, which is slower."""

    settings = f"async worker, concurrency={CONCURRENCY} (default 1), retry=3, LISTEN/NOTIFY; done rows kept"

    def __init__(self) -> None:
        super().__init__()
        self._asked = Asked(DATABASE)

    def version(self) -> str:
        """Return Procrastinate's version."""
        return procrastinate.__version__

    def reset(self) -> None:
        """Make an empty database with its schema."""
        fresh_database(DATABASE)

        async def install() -> None:
            async with app.open_async():
                await app.schema_manager.apply_schema_async()

        self._run(install())

    async def connect(self) -> None:
        """Open its pool."""
        await app.open_async()

    async def push(self, job: Payload) -> None:
        """Enqueue one job."""
        await noop.defer_async(job=job)

    async def push_many(self, jobs: list[Payload]) -> None:
        """Enqueue a chunk."""
        await noop.batch_defer_async(*({"job": job} for job in jobs))

    def left(self) -> int:
        """Return the jobs that wait or run."""
        return self._asked.value("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')")

    async def serve(self) -> None:
        """Work until SIGTERM."""
        async with app.open_async():
            await app.run_worker_async(concurrency=CONCURRENCY)


if __name__ == "__main__":
    main(Procrastinate())
