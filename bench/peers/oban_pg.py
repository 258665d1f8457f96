"""Oban for Python on PostgreSQL; it wants Python 3.12 or later, and takes uvloop, as its own command line does."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

import uvloop
from common import Payload, main, started
from oban import Oban, worker
from oban.schema import install
from postgres import Asked, AsyncPeer, fresh_database, url_of

DATABASE = "oban"
LIMIT = 100


@worker(queue="default")
class Noop:
    """Do nothing but be counted."""

    async def process(self, job: object) -> None:
        """Count the start."""
        started(job.args)  # type: ignore[attr-defined]


class ObanForPython(AsyncPeer):
    """A hundred at once: more were not faster."""

    settings = f"uvloop, queue limit {LIMIT}, LISTEN/NOTIFY; done rows kept for a day"
    loop = staticmethod(uvloop.new_event_loop)

    def __init__(self) -> None:
        super().__init__()
        self._asked = Asked(DATABASE)

    def version(self) -> str:
        """Return its version."""
        return version("oban")

    def reset(self) -> None:
        """Make an empty database with its schema."""
        fresh_database(DATABASE)

        async def make() -> None:
            pool = await Oban.create_pool(dsn=url_of(DATABASE))
            await install(pool)
            await pool.close()

        self._run(make())

    async def connect(self) -> None:
        """Start it as a client, without queues."""
        self._oban = Oban(pool=await Oban.create_pool(dsn=url_of(DATABASE)))
        await self._oban.start()

    async def push(self, job: Payload) -> None:
        """Enqueue one job."""
        await self._oban.enqueue(Noop.new(job))  # type: ignore[attr-defined]

    async def push_many(self, jobs: list[Payload]) -> None:
        """Enqueue a chunk."""
        await self._oban.enqueue_many(*(Noop.new(job) for job in jobs))  # type: ignore[attr-defined]

    def left(self) -> int:
        """Return the jobs that wait or run."""
        return self._asked.value("SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing', 'retryable')")

    async def serve(self) -> None:
        """Work until SIGTERM."""
        pool = await Oban.create_pool(dsn=url_of(DATABASE))
        async with Oban(pool=pool, queues={"default": LIMIT}):
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(ObanForPython())
