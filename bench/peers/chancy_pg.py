"""Chancy on PostgreSQL, with its asyncio executor: at its default concurrency, and with as many at once as served it best."""

from __future__ import annotations

import logging
import os
from importlib.metadata import version

from chancy import Chancy, Queue, Worker
from chancy_jobs import noop
from common import Payload, main
from postgres import Asked, AsyncPeer, fresh_database, url_of

DATABASE = "chancy"
CONCURRENCY = int(os.environ.get("BENCH_CHANCY_CONCURRENCY", "0")) or None
EXECUTOR = "chancy.executors.asyncex.AsyncExecutor"


class ChancyPeer(AsyncPeer):
    """Fetching again as soon as a job has ended (eager polling), which by default it does not."""

    settings = (
        f"AsyncExecutor, concurrency={CONCURRENCY or '100 (its default)'}, eager_polling, polled every second, NOTIFY; done rows kept"
    )

    def __init__(self) -> None:
        super().__init__()
        self._asked = Asked(DATABASE)
        self._chancy = Chancy(url_of(DATABASE), log=logging.getLogger("quiet"))

    def version(self) -> str:
        """Return Chancy's version."""
        return version("chancy")

    def reset(self) -> None:
        """Make an empty database with its schema and its queue."""
        fresh_database(DATABASE)
        queue = Queue("default", concurrency=CONCURRENCY, executor=EXECUTOR, polling_interval=1, eager_polling=True)

        async def make() -> None:
            async with self._chancy as chancy:
                await chancy.migrate()
                await chancy.declare(queue)

        self._run(make())

    async def connect(self) -> None:
        """Open its pool."""
        await self._chancy.__aenter__()

    async def push(self, job: Payload) -> None:
        """Enqueue one job."""
        await self._chancy.push(noop.job.with_kwargs(job=job))

    async def push_many(self, jobs: list[Payload]) -> None:
        """Enqueue a chunk, in one transaction."""
        async for _ in self._chancy.push_many([noop.job.with_kwargs(job=job) for job in jobs], batch_size=len(jobs)):
            pass

    def left(self) -> int:
        """Return the jobs that wait or run."""
        return self._asked.value("SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')")

    async def serve(self) -> None:
        """Work until SIGTERM."""
        async with self._chancy as chancy, Worker(chancy) as worker:
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    main(ChancyPeer())
