"""How a worker runs suspects: jobs under which a worker has crashed before, which may have been their doing.

One runs at a time. Where a handler process can import its handler it runs there, beside the worker's other jobs: if it is the culprit,
it takes nothing along. Otherwise it runs in the worker, where nothing is started until it finishes. It is claimed when a process
is ready, and not before: a suspect that waits for one inside the worker could be hit by a crash without having run.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec

from rota.engine.crew import Crew
from rota.engine.dispatch import suspect_of
from rota.engine.parts import Parts
from rota.engine.predicates import World
from rota.model.handler import Place
from rota.model.values import Claimed
from rota.ports.executor import Readiness

START_S = 30.0
"""How long a handler process may take to be ready for a suspect; after that the suspect runs in the worker."""
LOOK_S = 0.02
"""How often a worker looks whether the process is ready."""


class Suspects:
    """Where the suspects of one worker run. Belongs to its thread."""

    def __init__(self, parts: Parts, crew: Crew) -> None:
        """Start no process yet."""
        self._clock = parts.clock
        self._handlers = parts.handlers
        self._runs_apart = parts.runs_apart
        self._inline = parts.inline
        self._crew = crew
        self._met: set[str] = set()
        """Types of suspects that were met: processes are asked about these."""
        self._waiting: dict[str, float] = {}
        """Types whose suspects the last claim passed over for want of a process, and since when they wait."""
        self._awaits_process = False
        """Some of them wait for a process still; the others only for a slot."""
        self._inside: dict[str, str] = {}
        """Types that a process proved unable to import, and the executor of each."""

    def inside(self) -> dict[str, str]:
        """Return the types whose suspects run in the worker, with the executor of each."""
        if self._inline:
            return dict.fromkeys(self._handlers, Place.INLINE)
        found = {name: handler.executor for name, handler in tuple(self._handlers.items()) if not self._runs_apart(handler)}
        return found | self._inside

    def passed(self, types: AbstractSet[str], *, saw_all: bool) -> None:
        """Note which types of suspects the last claim passed over for want of a process.

        Unless it saw all that is waiting, others that it did not come to wait as before: their time does not start anew.
        """
        if types or self._waiting:
            now = self._clock.monotonic()
            kept = types if saw_all else types | self._waiting.keys()
            self._waiting = {name: self._waiting.get(name, now) for name in kept}
            self._met |= types
            self._awaits_process = self._awaits_process or bool(types)

    def seen_by(self, world: World, running: Claimed | None) -> World:
        """Return the world with the suspect that this worker runs, or with the processes that are ready for one."""
        if running is not None:
            return msgspec.structs.replace(world, suspects=dict.fromkeys(world.types, suspect_of(running)))
        if not self._met:
            return world
        ready = {name for name in self._met - self._inside.keys() if self._crew.readiness(name) is Readiness.NOW}
        return msgspec.structs.replace(world, unready=world.unready - ready - self._inside.keys(), inside={**world.inside, **self._inside})

    def look(self) -> bool:
        """Say whether a suspect that waits for a process can be claimed now: one is ready, or there will be none."""
        claimable = self._awaits_process = False
        for name, since in self._waiting.items():
            readiness, handler = self._crew.readiness(name), self._handlers.get(name)
            if handler is not None and (readiness is Readiness.NEVER or self._clock.monotonic() - since > START_S):
                self._inside[name] = handler.executor
                claimable = True
            elif readiness is Readiness.NOW:
                claimable = True
            else:
                self._awaits_process = True
        return claimable

    def delay_s(self, delay: float) -> float:
        """Return how long to sleep at most: less while a process is awaited."""
        return min(delay, LOOK_S) if self._awaits_process else delay
