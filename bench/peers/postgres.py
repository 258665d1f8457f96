"""What the PostgreSQL peers share beside `common`: a database of each one's own, and asyncio behind the same command line."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import psycopg
from common import LATENCY, Payload, Peer, payload, payloads, uneven

POSTGRES = os.environ.get("BENCH_POSTGRES", "")
CHUNK = 1000
"""Jobs of one bulk call, for all alike."""


def url_of(database: str) -> str:
    """Return where a database of this run's server is."""
    return f"{POSTGRES}/{database}"


def fresh_database(database: str) -> None:
    """Drop and create a database, and get the checkpoint over with before anything is timed."""
    drop_database(database)
    with psycopg.connect(url_of("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
        connection.execute("CHECKPOINT")


def drop_database(database: str) -> None:
    """Drop a database, whoever is still connected to it."""
    with psycopg.connect(url_of("postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")


class Asked:
    """Questions to a database over a connection of their own: what is answered is what the tables say, not what a system believes."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._connection: psycopg.Connection[Any] | None = None

    def value(self, sql: str, *values: object) -> Any:
        """Return the first column of the first row."""
        row = self.run(sql, *values).fetchone()
        return row[0] if row else None

    def run(self, sql: str, *values: object) -> psycopg.Cursor[Any]:
        """Run a statement by itself."""
        if self._connection is None:
            self._connection = psycopg.connect(url_of(self._database), autocommit=True)
        return self._connection.execute(sql, values or None)


def chunks(jobs: int) -> Iterator[list[Payload]]:
    """Yield the payloads of a bulk load, so many to a call."""
    for first in range(0, jobs, CHUNK):
        yield list(payloads(min(CHUNK, jobs - first)))


class AsyncPeer(Peer):
    """A system whose calls are coroutines: one event loop for the life of the process."""

    unopened = ("reset", "work", "watch", "left")
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    """How the loop is made, where the system's own command line takes another than asyncio's."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=self.loop)
        return self._runner.run(work)

    async def connect(self) -> None:
        """Get ready to enqueue."""
        raise NotImplementedError

    async def push(self, job: Payload) -> None:
        """Enqueue one job."""
        raise NotImplementedError

    async def push_many(self, jobs: list[Payload]) -> None:
        """Enqueue one chunk by the bulk call."""
        raise NotImplementedError

    async def serve(self) -> None:
        """Be a worker until SIGTERM."""
        raise NotImplementedError

    def open(self) -> None:
        """Connect."""
        self._run(self.connect())

    def enqueue(self, jobs: int) -> None:
        """Enqueue one by one, without leaving the loop in between."""

        async def all_of_them() -> None:
            for job in payloads(jobs):
                await self.push(job)

        self._run(all_of_them())

    def bulk(self, jobs: int) -> None:
        """Enqueue in chunks."""

        async def all_of_them() -> None:
            for chunk in chunks(jobs):
                await self.push_many(chunk)

        self._run(all_of_them())

    def pace(self, jobs: int, gap_s: float) -> None:
        """Enqueue at uneven moments, the loop being free in between."""

        async def all_of_them() -> None:
            for number, pause_s in enumerate(uneven(jobs, gap_s)):
                await asyncio.sleep(pause_s)
                await self.push(payload(number, LATENCY))

        self._run(all_of_them())

    def work(self) -> None:
        """Be a worker."""
        self._run(self.serve())
