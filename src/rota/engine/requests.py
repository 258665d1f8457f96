"""Requests of running handlers, answered by a thread of their own: the wheel does not wait for what a handler asks for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from rota import errors
from rota.errors import RotaError
from rota.model.values import Claimed
from rota.ports.executor import Replied, Reply, Request

log = logging.getLogger("rota.worker")

Serve: TypeAlias = Callable[[Claimed, Request, Callable[[], None]], str]
"""Does what the handler of a job asks for and returns the answer as JSON text, or raises an error that the handler gets.

The last one raises Closed as soon as nobody waits for answers any more: it is called before each try.
"""
LOST = Reply(lost=True)


class Closed(Exception):  # noqa: N818 - a signal, not an error of anybody
    """The worker is gone: nobody waits for the answer."""


class Requests:
    """Takes requests from any thread and answers them in the order in which they come."""

    def __init__(self, serve: Serve | None = None) -> None:
        """Start nothing yet; without `serve` every request is refused."""
        self._serve = serve
        self._waiting: SimpleQueue[tuple[Claimed, Request, Replied] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def take(self, job: Claimed, request: Request, replied: Replied) -> None:
        """Have a request answered."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._waiting.put((job, request, replied))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="rota-requests", daemon=True)
                    self._thread.start()
        if closed:
            replied(LOST)

    def answer(self, job: Claimed, request: Request) -> Reply:
        """Answer a request in the thread of the caller."""
        if self._serve is None:
            return Reply(error="RotaError", text="this worker answers no requests of handlers")
        try:
            return Reply(self._serve(job, request, self._check))
        except Closed:
            return LOST
        except RotaError as error:
            return _refused(error)
        except Exception as error:
            log.exception("could not answer a request of job %d; its handler gets the error", job.number)
            return Reply(error="RotaError", text=f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Answer nothing more: handlers that still wait are told that they should stop."""
        with self._lock:
            self._closed = True
            self._waiting.put(None)

    def _check(self) -> None:
        if self._closed:
            raise Closed

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            job, request, replied = item
            replied(LOST if self._closed else self.answer(job, request))


def _refused(error: RotaError) -> Reply:
    """Return an error as a handler in any process can raise it again: by the nearest class that all of them know."""
    name = next(kind.__name__ for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
    return Reply(error=name, text=str(error), members={member: getattr(error, member) for member in error.members})
