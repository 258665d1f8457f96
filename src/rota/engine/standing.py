"""How a worker stands with the others of its store: registered, beating, and guarded.

Where a driver turns the worker, beats have a thread of their own, and the guard has one. Without a driver beats are sent between
two turns, where no handler runs that would have to be stopped.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from rota.engine.crew import Crew
from rota.engine.guard import Guard
from rota.engine.lease import Renewal
from rota.engine.parts import Parts
from rota.engine.ticker import Ticker

log = logging.getLogger("rota.worker")


class Standing:
    """One worker's id, lease and guard. Belongs to the worker's thread, but for what its beats do."""

    def __init__(self, parts: Parts, crew: Crew, poke: Callable[[], None]) -> None:
        """Prepare; nobody knows of this worker before `begin`."""
        self._parts = parts
        self._crew = crew
        self._poke = poke
        self.id = parts.ids.take(1, parts.clock.now())[0]
        self.renewal = Renewal(parts.clock, parts.settings)
        self.guard = Guard(self.renewal, crew, parts.clock)
        self._beats = Ticker(self._beat, every_s=self.renewal.every_s, name="beats")
        self._tried = parts.clock.monotonic()
        self._noticed = self._resting = False
        self._announced: dict[str, str] | None = None
        """The digests that the store has acknowledged: the others are sent with the next beat."""

    # ---- life -------------------------------------------------------------------------------------------------

    def begin(self, worker_id: str) -> None:
        """Show a sign of life, and register."""
        parts = self._parts
        self._crew.lease = parts.liveness.take(worker_id)
        sent = parts.clock.monotonic()
        try:
            parts.store.register(
                worker_id,
                host=socket.gethostname(),
                kind="worker",
                job_types=self._types(),
                queues=parts.serving.queues,
                digests=self._digests(),
                now=parts.clock.now(),
                slots=self._crew.at_once,
            )
        except BaseException:
            self.let_go(clean=True)
            raise
        self.id, self._tried = worker_id, sent
        self.renewal.begin(sent)
        self._pass_on()

    def halt(self) -> None:
        """Stop every handler: others have taken over what they do."""
        if self.renewal.watched:
            # They are seen off, too, whatever becomes of the executors.
            self.guard.trip()
        self._crew.interrupt()

    def begin_anew(self) -> None:
        """Go on under another id, after this one was given up: with another sign of life, too."""
        # Built anew when needed: handler processes inherit the lock of the worker that they belong to.
        self._crew.close()
        self.let_go(clean=True)
        self.begin(self._parts.ids.take(1, self._parts.clock.now())[0])
        self.guard.mended()

    def let_go(self, *, clean: bool) -> None:
        """Take back the sign of life."""
        lease, self._crew.lease = self._crew.lease, None
        if lease is not None:
            lease.release(clean=clean)

    def withdraw(self) -> None:
        """Be gone without a word, unless it is already: whoever looks sees a dead worker, and ends what it held."""
        if self._crew.lease is not None:
            self._crew.close()
            self.rest()
            self.let_go(clean=False)

    def watch(self, *, guarded: bool = True) -> None:
        """Send beats and watch the lease on threads of their own, from now on."""
        if not self._beats.started:
            self._beats.start()
            if guarded:
                self.guard.start()
            self.notice()

    def rest(self) -> None:
        """End these threads: the worker is on its way out."""
        self._resting = True
        self.guard.stop()
        self._beats.stop()

    # ---- beats ------------------------------------------------------------------------------------------------

    def notice(self) -> None:
        """Heed it if others are there now that can only see our beat: handler processes are given their time, too."""
        if self.renewal.watched and not self._noticed:
            self._noticed = True
            self.beat_soon()
            self.guard.look()

    def beat_soon(self) -> None:
        """Show what has changed, and do not wait for the next beat."""
        self._tried -= self.renewal.every_s
        self._beats.soon()

    def beat_if_due(self, monotonic: float) -> None:
        """Beat between two turns, where no thread does."""
        if not self._beats.started and monotonic - self._tried >= self.renewal.every_s:
            self._beat()

    def _types(self) -> list[str]:
        return sorted(name for name in self._parts.handlers if self._parts.serving.takes(name))

    def _digests(self) -> dict[str, str]:
        handlers = self._parts.handlers
        return {name: handlers[name].codec.digest for name in self._types()}

    def _beat(self) -> None:
        """Send one beat, and take note of the answer."""
        parts, worker_id = self._parts, self.id
        sent = self._tried = parts.clock.monotonic()
        digests = self._digests()
        news = None if digests == self._announced else digests
        lives = parts.store.beat(worker_id, job_types=self._types(), digests=news)
        if worker_id != self.id or self._resting:
            return
        if lives:
            self._announced = digests
            self.renewal.acknowledged(sent)
            self._pass_on()
        else:
            self.renewal.lost = True
            self._poke()
        if parts.check_clock is not None:
            parts.check_clock()

    def _pass_on(self) -> None:
        """Give handler processes the lease, where there is one to be kept."""
        self._crew.renew(self.renewal.end_at if self.renewal.watched else None)
