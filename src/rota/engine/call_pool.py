"""A few threads of Rota's own for the blocking calls of async programs: the program's own pool is neither filled nor waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

THREADS = 8
"""The most threads of one pool. They are started one by one, as calls meet."""

T = TypeVar("T")


class CallPool:
    """Makes blocking calls on its threads. It starts none before it is used, and again after it was closed."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function on a thread, in a copy of the caller's context, and return its result."""
        import asyncio  # noqa: PLC0415 - its import takes 40 ms, which only async programs need
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="rota-call")
            result = asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, function)
        return await result

    def close(self) -> None:
        """Let the threads end as soon as the calls that were made are over."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
