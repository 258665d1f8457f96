"""Calls a program's hooks beside the turns of a worker, on a thread that is started with the first event."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread

from rota.hooks import AttemptEvent, Hook, On, WorkerEvent

log = logging.getLogger("rota.hooks")

EVENTS_MAX = 10_000
"""Events that wait for hooks. Where hooks are slower than the worker for long, those beyond are dropped: a worker is not held up."""
CLOSE_S = 5.0
"""How long a worker that stops waits for hooks to return."""


class HookCalls:
    """The calls of one worker, one after the other. `inline`: at once, in the thread that has written the outcome."""

    def __init__(self, on: On, *, inline: bool) -> None:
        """Take the hooks; nothing is started before there is an event for one."""
        self.on = on
        self._inline = inline
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._dropped = 0

    def add(self, hooks: tuple[Hook[AttemptEvent], ...], event: AttemptEvent) -> None:
        """Have hooks called with an event."""
        for hook in hooks:
            self._put(partial(hook.call, event))

    def begin(self, worker_id: str) -> None:
        """Call the hooks of a worker that starts, and return when they have."""
        self.on.worker_start.call(WorkerEvent(worker=worker_id, pid=os.getpid()))

    def close(self, worker_id: str) -> None:
        """Let the hooks that wait be called, those of the worker's stop last, and wait for them a while."""
        if self.on.worker_stop.functions:
            self._put(partial(self.on.worker_stop.call, WorkerEvent(worker=worker_id, pid=os.getpid())))
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._waiting.put(None)
        thread.join(CLOSE_S)
        if thread.is_alive():
            log.error("a hook has not returned within %g s; the worker stops, and %d events may be lost", CLOSE_S, self._waiting.qsize())

    def _put(self, call: Callable[[], None]) -> None:
        if self._inline:
            call()
            return
        if self._waiting.qsize() >= EVENTS_MAX:
            if not self._dropped:
                log.error("hooks are slower than the worker: %d events wait for them, and further ones are dropped", EVENTS_MAX)
            self._dropped += 1
            return
        if self._dropped:
            log.error("hooks have caught up; %d events were dropped", self._dropped)
            self._dropped = 0
        self._waiting.put(call)
        if self._thread is None:
            self._thread = Thread(target=self._live, name="rota-hooks", daemon=True)
            self._thread.start()

    def _live(self) -> None:
        while (call := self._waiting.get()) is not None:
            call()
            del call  # an idle thread keeps no exception alive
