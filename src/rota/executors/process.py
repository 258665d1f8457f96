"""Runs handlers in processes that can be killed, each the head of its own group.

The engine's thread only queues wishes; one keeper thread starts the processes, talks to them and reaps them, so what
it owns needs no lock. It must live as long as they do: the kernel counts the death of the *thread* that started a
process as the death of its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

from rota.errors import InvalidHandler
from rota.executors.invoke import inside_handler
from rota.executors.keeper import Keeper, Running
from rota.executors.locate import locate_app
from rota.executors.stops import take_all, take_one
from rota.model.decide import Stopped
from rota.model.values import Claimed
from rota.ports.executor import Ended, Equipment, Readiness, StopReason

CLOSE_S = 2.0
"""How long `close` waits for idle processes to end; after EXIT_S they are killed."""

ENTER_S = 5.0
"""How long a ready process may take to enter a handler, on a machine that is overloaded, before the job's time counts."""


class ProcessExecutor:
    """At most `slots` handlers at once, each in a process started before it was needed."""

    def __init__(self, equipment: Equipment) -> None:
        """Start the first processes in the background."""
        if inside_handler():
            raise InvalidHandler(
                "handler processes can't be started inside one: the main program starts its worker again when it is imported."
                " Put the call that runs it under `if __name__ == '__main__':`"
            )
        if equipment.app is not None:
            locate_app(equipment.app)  # refused here, and not by each process
        self._equipment = equipment
        self._clock = equipment.clock
        self._keeper = Keeper(equipment)
        self._thread = Thread(target=self._keeper.live, name="rota-keeper", daemon=True)
        self._thread.start()

    def submit(self, jobs: Sequence[Claimed]) -> None:
        """Queue these for the next processes that are ready."""
        self._keeper.released = False
        self._keeper.waiting.extend(jobs)
        self._keeper.wake()

    def readiness(self, job_type: str) -> Readiness:
        """Say whether a process has nothing to do and could import this handler; have one try to if none has."""
        handler = self._equipment.handlers.get(job_type)
        if handler is None:
            return Readiness.NEVER
        found = self._keeper.found.get(job_type)
        if found is None or found.handler is not handler:
            self._keeper.post(lambda: self._keeper.seek(handler))
            return Readiness.LATER
        if found.error is not None:
            return Readiness.NEVER
        return Readiness.NOW if found.tried and len(self._keeper.idle) > len(self._keeper.waiting) else Readiness.LATER

    def occupied(self) -> int:
        """Return how many processes have a handler."""
        return len(self._keeper.running)

    def given_up(self) -> int:
        """Have none: what is reported is over."""
        return 0

    def cancel(self, number: int) -> None:
        """Drop a waiting job, or send TERM to its process, and KILL to its group after `kill_grace`."""
        job = take_one(self._keeper.waiting, number)
        if job is not None:
            self._keeper.wake()
            self._equipment.sink.ended(Ended(job, Stopped(), self._clock.now(), 0.0))
        else:
            self._cancel(number)
            self._keeper.post(lambda: self._cancel(number))  # in case the keeper is just starting it

    def tick(self, monotonic: float) -> float | None:
        """Stop handlers over their timeout, and kill those past their grace."""
        soonest: float | None = None
        for running in tuple(self._keeper.running.values()):
            due = self._due(running, monotonic)
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def release(self) -> list[Claimed]:
        """Give back what no process has been given."""
        self._keeper.released = True
        return take_all(self._keeper.waiting)

    def interrupt(self) -> None:
        """Send TERM to every handler; `tick` kills those that are not over within `kill_grace`."""
        self._interrupt()
        self._keeper.post(self._interrupt)  # for those the keeper is just starting

    def renew(self, until: float | None) -> None:
        """Pass the lease on to every process, those still to be started included."""
        self._keeper.post(lambda: self._keeper.renew(until))

    def cut(self, grace_s: float) -> None:
        """Send TERM to every handler; the keeper itself kills those that are not over within the grace."""
        self._keeper.post(lambda: self._keeper.cut(grace_s))

    def close(self) -> None:
        """End idle processes, kill the others with all they started, and report nothing more."""
        self._keeper.shut()
        self._thread.join(CLOSE_S)

    def _due(self, running: Running, monotonic: float) -> float | None:
        """Do what is due for one handler; return when the next thing is."""
        if running.kill_at is not None:
            if monotonic < running.kill_at:
                return running.kill_at
            if not running.killed:
                running.killed = True
                self._keeper.post(lambda: self._keeper.kill(running))
            return None
        if running.job.timeout <= 0:
            return None
        slack = 0.0 if running.entered else ENTER_S
        deadline = running.started + running.job.timeout + slack
        if monotonic < deadline:
            return deadline
        self._stop(running, StopReason.TIMEOUT, monotonic + self._equipment.settings.timeout_grace)
        return running.kill_at

    def _stop(self, running: Running, reason: StopReason, kill_at: float) -> None:
        running.reason, running.kill_at = reason, kill_at
        self._keeper.post(lambda: self._keeper.stop(running))

    def _cancel(self, number: int) -> None:
        running = self._keeper.running.get(number)
        if running is not None and running.kill_at is None:
            self._stop(running, StopReason.CANCEL, self._clock.monotonic() + self._equipment.settings.kill_grace)

    def _interrupt(self) -> None:
        kill_at = self._clock.monotonic() + self._equipment.settings.kill_grace
        for running in tuple(self._keeper.running.values()):
            if running.kill_at is None:
                self._stop(running, StopReason.SHUTDOWN, kill_at)
