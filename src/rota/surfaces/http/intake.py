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
from typing import Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
THREADS = 16
TOGETHER_MAX = 500
"""Requests that share a commit, at most."""
UNDER_WAY_MAX = 3
"""Such batches at a time: while one waits for its commit, the next is made."""
LONG_THREADS = 8


class Intake(Generic[A, B]):
    """The threads of one app, and the requests that wait for one commit: while a thread works for some, the next gather."""

    def __init__(self, work: Callable[[list[A]], list[B | Exception]], *, direct_max: int) -> None:
        """Take what is done for all requests that go together, each with its own result, and how many direct executions there may be."""
        self._work = work
        # No thread is started before it is needed.
        self._threads = ThreadPoolExecutor(THREADS, "rota-intake")
        self._long = ThreadPoolExecutor(LONG_THREADS, "rota-intake-long")
        self._waiting: list[tuple[A, asyncio.Future[B]]] = []
        self._under_way = 0
        self.room = threading.Semaphore(direct_max)
        """Room for direct executions."""

    async def do(self, work: Callable[[], T]) -> T:
        """Do work on one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def do_long(self, work: Callable[[], T]) -> T:
        """Do work that waits for a client, on one of other threads."""
        return await asyncio.get_running_loop().run_in_executor(self._long, work)

    async def do_together(self, asked: A) -> B:
        """Wait until a thread has done the work for this request, and for those that go with it."""
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
