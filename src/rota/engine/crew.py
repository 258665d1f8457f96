"""The executors of one worker, built when they are first needed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from rota.engine.parts import Parts
from rota.model.handler import Place
from rota.model.values import Claimed
from rota.ports.executor import Equipment, Executor, Readiness, Sink
from rota.ports.liveness import Lease

log = logging.getLogger("rota.worker")


class Crew:
    """One executor for each place that handlers run in. Belongs to the worker's thread, but for `renew` and `cut`."""

    def __init__(self, parts: Parts, sink: Sink, direct: Sink, *, slots: int) -> None:
        """Take what executors are built from; `direct` is for those that run handlers in the worker's own thread."""
        self._parts = parts
        self._sink, self._direct = sink, direct
        self._slots = slots
        self.at_once = 1 if parts.inline else slots
        """How many handlers run at once."""
        self._executors: dict[str, Executor] = {}
        self.lease: Lease | None = None
        """The worker's sign of life, which handler processes inherit."""
        self._until: float | None = None
        self._grace_s = 0.0
        self._cut = threading.Event()

    def at(self, place: str) -> Executor:
        """Return the executor of a place."""
        if self._parts.inline:
            place = Place.INLINE
        executor = self._executors.get(place)
        if executor is None:
            equipment = Equipment(
                handlers=self._parts.handlers,
                sink=self._direct if place == Place.INLINE else self._sink,
                clock=self._parts.clock,
                settings=self._parts.settings,
                slots=self._slots,
                log_dir=self._parts.log_dir,
                lock_fd=self.lease.fd if self.lease else None,
                store=self._parts.store.url,
                middleware=self._parts.middleware.functions,
                app=self._parts.app,
            )
            executor = self._executors[place] = self._parts.build_executor(place, equipment)
            if self._until is not None:
                executor.renew(self._until)
        return executor

    def submit(self, place: str, jobs: Sequence[Claimed]) -> bool:
        """Start these; False: the crew is cut off and starts nothing."""
        if self._cut.is_set():
            return False
        executor = self.at(place)
        executor.submit(jobs)
        if self._cut.is_set():
            executor.cut(self._grace_s)  # it came between: whoever cut the others may not have seen this one
        return True

    def readiness(self, job_type: str) -> Readiness:
        """Say whether a handler process could enter a handler of this type; start one if there is none."""
        return Readiness.LATER if self._cut.is_set() else self.at(Place.PROCESS).readiness(job_type)

    def occupied(self) -> int:
        """Return the slots in use."""
        return sum(executor.occupied() for executor in self._executors.values())

    def given_up(self) -> int:
        """Return the slots of handlers that were given up and have not returned."""
        return sum(executor.given_up() for executor in self._executors.values())

    def tick(self, monotonic: float) -> float | None:
        """Enforce timeouts and grace periods; return when to be called again."""
        deadlines = [executor.tick(monotonic) for executor in self._executors.values()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def release(self) -> list[Claimed]:
        """Give back what has not started."""
        return [job for executor in self._executors.values() for job in executor.release()]

    def interrupt(self) -> None:
        """Stop every running handler now."""
        for executor in self._executors.values():
            executor.interrupt()

    def renew(self, until: float | None) -> None:
        """Let handlers run until this monotonic moment; None: for as long as they like. From any thread."""
        self._until = until
        for executor in tuple(self._executors.values()):
            executor.renew(until)

    def cut(self, grace_s: float) -> tuple[Executor, ...]:
        """Stop every handler and start none until closed; return who may still be running some. From any thread."""
        self._grace_s = grace_s
        self._cut.set()
        executors = tuple(self._executors.values())
        for executor in executors:
            try:
                executor.cut(grace_s)
            except Exception:
                log.exception("could not stop the handlers; the process exits if they keep running")
        return executors

    def close(self) -> None:
        """Let go of threads, loop and processes; what is needed again is built anew, and has the lease that these had."""
        for executor in self._executors.values():
            executor.close()
        self._executors.clear()
        self._cut.clear()
