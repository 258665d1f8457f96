"""The way of requests to the store: a few threads of their own, so that those who submit wait for nobody who reads.

One request makes one hop: who asks, what is asked and the answer are all done on the thread. Those that come at the same time meet in
the store, which writes them with one commit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.requests import Request

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
THREADS = 16
TOGETHER_MAX = 500
"""Requests that share a commit, at most."""
UNDER_WAY_MAX = 3
"""Such batches at a time: while one waits for its commit, the next is made."""
LONG_THREADS = 8


class Line(Generic[A, B]):
    """Those who wait for one commit: while a thread works for some, the next gather, and go together."""

    def __init__(self, work: Callable[[list[A]], list[B | Exception]], threads: ThreadPoolExecutor) -> None:
        """Take what is done for all who go together; each is told its own, or what went wrong with it."""
        self._work = work
        self._threads = threads
        self._waiting: list[tuple[A, asyncio.Future[B]]] = []
        self._under_way = 0

    async def do(self, asked: A) -> B:
        """Wait for one's turn and for its end."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[B] = loop.create_future()
        self._waiting.append((asked, done))
        if self._under_way < UNDER_WAY_MAX and len(self._waiting) == 1:
            # Not at once: others whose requests have come go with it.
            loop.call_soon(self._go, loop)
        return await done

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        going, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
        if going:
            self._under_way += 1
            told = loop.run_in_executor(self._threads, self._work, [asked for asked, _ in going])
            told.add_done_callback(partial(self._arrived, loop, [done for _, done in going]))

    def _arrived(
        self, loop: asyncio.AbstractEventLoop, waiting: list[asyncio.Future[B]], told: asyncio.Future[list[B | Exception]]
    ) -> None:
        self._under_way -= 1
        error = told.exception()
        answers = [error] * len(waiting) if error is not None else told.result()
        for done, answer in zip(waiting, answers, strict=True):
            if done.done():
                continue  # its client has gone
            if isinstance(answer, BaseException):
                done.set_exception(answer)
            else:
                done.set_result(answer)
        self._go(loop)


class Intake:
    """The threads of one app."""

    def __init__(self) -> None:
        """Make none before they are needed."""
        self._threads = ThreadPoolExecutor(THREADS, "rota-intake")
        self._lines: dict[Any, Line[Any, Any]] = {}
        self._room: threading.Semaphore | None = None
        self._long = ThreadPoolExecutor(LONG_THREADS, "rota-intake-long")

    async def do(self, work: Callable[[], T]) -> T:
        """Do work on one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def line(self, work: Callable[[list[A]], list[B | Exception]]) -> Line[A, B]:
        """Return the line of those for whom this is done."""
        found = self._lines.get(work)
        if found is None:
            found = self._lines[work] = Line(work, self._threads)
        return found

    async def do_long(self, work: Callable[[], T]) -> T:
        """Do work that waits for a client, on one of other threads."""
        return await asyncio.get_running_loop().run_in_executor(self._long, work)

    def room(self, most: int) -> threading.Semaphore:
        """Return what has room for so many direct executions."""
        if self._room is None:
            self._room = threading.Semaphore(most)
        return self._room


def intake_of(request: Request) -> Intake:
    """Return the intake of the app that a request came to; it is made with the first one."""
    state = request.app.state
    found: Intake | None = getattr(state, "intake", None)
    if found is None:
        found = state.intake = Intake()
    return found
