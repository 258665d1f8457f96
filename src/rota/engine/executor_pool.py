"""The executors of one worker, built when they are first needed, and where its suspects run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from rota.engine.parts import Parts
from rota.engine.predicates import World, suspect_of
from rota.model.handler import Place
from rota.model.values import Claimed
from rota.ports.executor import Equipment, Executor, Readiness, Sink
from rota.ports.liveness import Lease

log = logging.getLogger("rota.worker")

START_S = 30.0
"""How long a handler process may take to be ready for a suspect; after that the suspect runs in the worker."""
LOOK_S = 0.02
"""How often a worker looks whether the process is ready."""


class ExecutorPool:
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
        parts = self._parts
        if parts.inline:
            place = Place.INLINE
        executor = self._executors.get(place)
        if executor is None:
            equipment = Equipment(
                handlers=parts.handlers,
                sink=self._direct if place == Place.INLINE else self._sink,
                clock=parts.clock,
                settings=parts.settings,
                slots=self._slots,
                log_dir=parts.log_dir,
                lock_fd=self.lease.fd if self.lease else None,
                store=parts.store.url,
                middleware=parts.middleware.functions,
                app=parts.app,
                runners=parts.runners,
            )
            executor = self._executors[place] = parts.build_executor(place, equipment)
            if self._until is not None:
                executor.renew(self._until)
        return executor

    def submit(self, place: str, jobs: Sequence[Claimed]) -> bool:
        """Start these; False: the pool is cut off and starts nothing."""
        if self._cut.is_set():
            return False
        executor = self.at(place)
        executor.submit(jobs)
        if self._cut.is_set():
            executor.cut(self._grace_s)  # started meanwhile: the loop that cut the others may not have seen it
        return True

    def readiness(self, job_type: str) -> Readiness:
        """Say whether a handler process could enter a handler of this type; start one if there is none."""
        return Readiness.LATER if self._cut.is_set() else self.at(Place.PROCESS).readiness(job_type)

    def occupied(self) -> int:
        """Return the slots in use."""
        return sum([executor.occupied() for executor in self._executors.values()])

    def given_up(self) -> int:
        """Return the slots of abandoned handlers that have not returned."""
        return sum([executor.given_up() for executor in self._executors.values()])

    def tick(self, monotonic: float) -> float | None:
        """Enforce timeouts and grace periods; return when to be called again."""
        deadlines = [executor.tick(monotonic) for executor in self._executors.values()]
        return min([deadline for deadline in deadlines if deadline is not None], default=None)

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


class Suspects:
    """Where the suspects of one worker run: jobs under which a worker has crashed before, which may have been their doing.

    One runs at a time. Where a handler process can import its handler it runs there, beside the worker's other jobs: if it is the
    culprit, it takes nothing along. Otherwise it runs in the worker, where nothing is started until it finishes. It is claimed when a
    process is ready, and not before: a suspect that waits for one inside the worker could be hit by a crash without having run.
    Belongs to the worker's thread.
    """

    def __init__(self, parts: Parts, pool: ExecutorPool) -> None:
        """Start no process yet."""
        self._parts = parts
        self._pool = pool
        self.met: set[str] = set()
        """Types of suspects that were met: processes are asked about these."""
        self.waiting: dict[str, float] = {}
        """Types whose suspects the last claim passed over for want of a process, and since when they wait."""
        self.awaits_process = False
        """Some of them wait for a process still; the others only for a slot."""
        self._inside: dict[str, str] = {}
        """Types that a process proved unable to import, and the executor of each."""

    def inside(self) -> dict[str, str]:
        """Return the types whose suspects run in the worker, with the executor of each."""
        handlers, runs_apart = self._parts.handlers, self._parts.runs_apart
        if self._parts.inline:
            return dict.fromkeys(handlers, Place.INLINE)
        return {name: handler.executor for name, handler in tuple(handlers.items()) if not runs_apart(handler)} | self._inside

    def passed(self, types: AbstractSet[str], *, saw_all: bool) -> None:
        """Note which types of suspects the last claim passed over for want of a process.

        Unless it saw all that is waiting, others that it did not come to wait as before: their time does not start anew.
        """
        now = self._parts.clock.monotonic()
        kept = types if saw_all else types | self.waiting.keys()
        self.waiting = {name: self.waiting.get(name, now) for name in kept}
        self.met |= types
        self.awaits_process = bool(types) or (self.awaits_process and bool(kept))

    def seen_by(self, world: World, running: Claimed | None) -> World:
        """Return the world with the suspect that this worker runs, or with the processes that are ready for one."""
        if running is not None:
            return msgspec.structs.replace(world, suspects=dict.fromkeys(world.types, suspect_of(running)))
        if not self.met:
            return world
        ready = {name for name in self.met - self._inside.keys() if self._pool.readiness(name) is Readiness.NOW}
        return msgspec.structs.replace(world, unready=world.unready - ready - self._inside.keys(), inside={**world.inside, **self._inside})

    def look(self) -> bool:
        """Say whether a suspect that waits for a process can be claimed now: one is ready, or there will be none."""
        claimable = self.awaits_process = False
        for name, since in self.waiting.items():
            readiness, handler = self._pool.readiness(name), self._parts.handlers.get(name)
            if handler is not None and (readiness is Readiness.NEVER or self._parts.clock.monotonic() - since > START_S):
                self._inside[name] = handler.executor
                claimable = True
            elif readiness is Readiness.NOW:
                claimable = True
            else:
                self.awaits_process = True
        return claimable
