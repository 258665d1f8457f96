"""SQL for clients: as many scripts at a time as the settings allow, stopped when their client goes away or has waited too long."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from rota.errors import ResourceBusy
from rota.model.gate import Actor
from rota.model.settings import Settings
from rota.surfaces.http.api.direct import start
from rota.surfaces.http.problems import BUSY

T = TypeVar("T")
_WAIT = re.compile(r"\bwait\b", re.IGNORECASE)


class Statements:
    """The scripts that one server runs.

    They wait for their turn without a thread, so that other requests always find one. A script that may wait for a run (EXECUTE JOB …
    WAIT) has a thread of its own and counts as a direct execution.
    """

    def __init__(self, settings: Settings, waits: threading.Semaphore) -> None:
        """Take the limits, and the room for scripts that wait for runs."""
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.sql_running)
        self._waits = waits

    async def do(self, request: Request, who: Actor, text: str, work: Callable[[], T]) -> T:
        """Do the work of a request that runs this text, off the event loop. Whose request it is, is known."""
        stop = threading.Event()
        stoppable = partial(_stoppable, stop, work)
        if _WAIT.search(text):
            return await self._watched(request, who, stop, self._apart(stoppable))
        async with self._turn():
            return await self._watched(request, who, stop, asyncio.ensure_future(run_in_threadpool(stoppable)))

    async def _watched(self, request: Request, who: Actor, stop: threading.Event, done: asyncio.Future[T]) -> T:
        """Return the result. Stop the work if the client goes away, its key is lost, the server ends, or it takes too long."""
        bell = asyncio.Event()
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(_gone(request)), asyncio.ensure_future(bell.wait())]
        with request.app.state.streams.holding(request, who, bell) as held:
            try:
                await asyncio.wait([done, *ends], timeout=self._settings.http_direct_wait, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.set()
                for each in ends:
                    each.cancel()
        result = await done
        if held.refused is not None:
            raise held.refused
        return result

    def _apart(self, work: Callable[[], T]) -> asyncio.Future[T]:
        most = self._settings.http_direct_max
        if not self._waits.acquire(blocking=False):
            raise ResourceBusy(f"{most} requests wait for runs already (setting http_direct_max): try again, or leave out WAIT")
        return start(work, self._waits)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        from rota.sql.errors import SqlLimitError  # noqa: PLC0415 - few servers are asked for SQL

        limit_s = self._settings.sql_timeout
        try:
            async with asyncio.timeout(limit_s):
                await self._turns.acquire()
        except TimeoutError:
            busy = f"{self._settings.sql_running} scripts have been running on this server for {limit_s:g} s"
            raise SqlLimitError(f"{busy}: try again, or raise the setting sql_running", sqlstate=BUSY) from None
        try:
            yield
        finally:
            self._turns.release()


def _stoppable(stop: threading.Event, work: Callable[[], T]) -> T:
    from rota.sql.interruption import stopped_by  # noqa: PLC0415 - as above

    with stopped_by(stop):
        return work()


async def _gone(request: Request) -> None:
    """Wait until the client has gone away. The body has come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
